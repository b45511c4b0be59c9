//! Threads for models: rayon's pool behind the engine's trait.

use lastmeter_lab::Parallel;

/// A pool of threads.
#[derive(Debug)]
pub struct Threads {
    pool: rayon::ThreadPool,
}

impl Threads {
    /// A pool of `threads`, or of as many as there are cores.
    ///
    /// # Errors
    /// The machine gives none.
    pub fn new(threads: Option<usize>) -> Result<Threads, String> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
        Ok(Threads { pool: pool.map_err(|error| format!("no threads: {error}"))? })
    }
    /// How many there are.
    pub fn count(&self) -> usize {
        self.pool.current_num_threads()
    }
}

impl Parallel for Threads {
    fn run(&self, tasks: &mut [&mut (dyn FnMut() + Send)]) {
        self.pool.scope(|scope| {
            for task in tasks {
                scope.spawn(move |_| task());
            }
        });
    }
    // From outside, each call would put this thread to sleep and wake another.
    fn within(&self, work: &mut (dyn FnMut() + Send)) {
        self.pool.install(work);
    }
}
