//! Threads for models, behind the engine's trait: rayon's pool, and further ones for what must run
//! concurrently.

use crate::Complaint;
use lastmeter_lab::Parallel;
use std::io;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread::{self, Builder};

/// A pool of threads.
#[derive(Debug)]
pub struct Threads {
    pool: rayon::ThreadPool,
}

/// More threads than this for each core would only wait for one another.
const PER_CORE_MAX: usize = 4;

/// Whether so many threads make sense here.
///
/// # Errors
/// They do not; says how many do.
pub(crate) fn check(threads: Option<usize>) -> Result<(), Complaint> {
    let most = PER_CORE_MAX * thread::available_parallelism().map_or(1, usize::from);
    match threads {
        Some(threads) if threads == 0 || threads > most => Err(Complaint(format!(
            "--threads {threads}: write a number from 1 to {most}, {PER_CORE_MAX} for each core"
        ))),
        _ => Ok(()),
    }
}

impl Threads {
    /// A pool of `threads` threads, or of one per core.
    ///
    /// # Errors
    /// The system has none left.
    pub fn new(threads: Option<usize>) -> Result<Threads, String> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
        Ok(Threads { pool: pool.map_err(|error| format!("no threads: {error}"))? })
    }
    /// Number of threads.
    pub fn count(&self) -> usize {
        self.pool.current_num_threads()
    }
}

impl Parallel for Threads {
    fn run(&self, tasks: &mut [&mut (dyn FnMut() + Send)]) {
        // In their order, as far as there are threads.
        self.pool.scope_fifo(|scope| {
            for task in tasks {
                scope.spawn_fifo(move |_| task());
            }
        });
    }
    // In extra threads: the pool's may be busy with work that waits for this.
    fn run_together(&self, tasks: &mut [&mut (dyn FnMut() + Send)]) -> bool {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let nested = self.pool.current_thread_index().is_some();
        let Some((first, others)) = tasks.split_first_mut() else { return true };
        if nested || others.len() >= self.count().min(cores) {
            return false;
        }
        // No thread starts before all exist: it could wait for one that the system refused to create.
        let all_there = OnceLock::new();
        thread::scope(|scope| {
            let spawned: io::Result<Vec<_>> = others
                .iter_mut()
                .map(|task| {
                    let begin = || {
                        if *all_there.wait() {
                            task()
                        }
                    };
                    Builder::new().spawn_scoped(scope, begin)
                })
                .collect();
            let is_complete = *all_there.get_or_init(|| spawned.is_ok());
            if is_complete {
                first();
            }
            for thread in spawned.into_iter().flatten() {
                // A scope would report only that a thread panicked, not its message.
                thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
            is_complete
        })
    }
    // From outside the pool, each call would put this thread to sleep and wake another.
    fn within(&self, work: &mut (dyn FnMut() + Send)) {
        self.pool.install(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn tasks_that_wait_for_one_another_run_together_or_not_at_all() {
        let threads = Threads::new(Some(2)).expect("threads");
        let (barrier, ran) = (Barrier::new(2), AtomicUsize::default());
        let one = || {
            barrier.wait();
            ran.fetch_add(1, Ordering::Relaxed);
        };
        let (mut first, mut second, mut third) = (one, one, one);
        assert!(!threads.run_together(&mut [&mut first, &mut second, &mut third]), "too many");
        let mut nested = None;
        threads.within(&mut || {
            nested = Some(threads.run_together(&mut [&mut first, &mut second]));
        });
        assert_eq!((nested, ran.load(Ordering::Relaxed)), (Some(false), 0));
        let together = threads.run_together(&mut [&mut first, &mut second]);
        assert_eq!(together, thread::available_parallelism().is_ok_and(|cores| cores.get() > 1));
        assert_eq!(ran.into_inner(), if together { 2 } else { 0 });
    }

    #[test]
    fn a_panic_keeps_its_message() {
        let threads = Threads::new(Some(2)).expect("threads");
        let (mut fault, mut other) = (|| panic!("a fault in a model"), || ());
        let run = || threads.run_together(&mut [&mut other, &mut fault]);
        match catch_unwind(AssertUnwindSafe(run)) {
            Err(panic) => assert_eq!(panic.downcast_ref(), Some(&"a fault in a model")),
            Ok(together) => assert!(!together, "a panic was swallowed"),
        }
    }
}
