//! Looks at a command while it runs, in a thread of its own.

use super::{EVENTS_MAX, Seen, Tracing};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// When looks begin, after the start: a short command has one, and a long one is looked at more than at its start.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(600),
    Duration::from_millis(1600),
    Duration::from_millis(3600),
    Duration::from_millis(7600),
];
/// How long each lasts.
const EACH: Duration = Duration::from_millis(100);

/// The looks.
pub(crate) struct Watching {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    /// What was seen so far, or why nothing is.
    seen: Mutex<Result<Seen, String>>,
    over: AtomicBool,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Result<Seen, String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Waits until then, or until it is over.
    fn wait(&self, until: Instant) {
        while !self.is_over() && Instant::now() < until {
            std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }

    fn look(&self, begun: Instant) {
        let mut open = None;
        for after in LOOKS {
            self.wait(begun + after);
            if self.is_over() {
                break;
            }
            // Only now: a command that ends at once does not wait until they are closed.
            let tracing = match open.take().map_or_else(Tracing::open, Ok) {
                Ok(tracing) => open.insert(tracing),
                Err(why) => return *self.seen() = Err(why),
            };
            let look = tracing.look(EACH, EVENTS_MAX / LOOKS.len(), || self.is_over());
            let mut seen = self.seen();
            match (look, &mut *seen) {
                (Ok(look), Ok(seen)) => seen.add(look),
                (Err(why), seen) => *seen = Err(why),
                (_, Err(_)) => {}
            }
        }
        open.into_iter().for_each(Tracing::close);
    }
}

impl Watching {
    /// Begins; the first look comes a little later.
    pub(crate) fn begin() -> Watching {
        let (seen, over) = (Mutex::new(Ok(Seen::default())), AtomicBool::new(false));
        let shared = Arc::new(Shared { seen, over });
        let (looking, begun) = (Arc::clone(&shared), Instant::now());
        let thread = std::thread::Builder::new().name("waits".to_owned());
        let thread = thread.spawn(move || looking.look(begun));
        if let Err(error) = &thread {
            *shared.seen() = Err(format!("starting a thread: {error}"));
        }
        Watching { shared, thread: Mutex::new(thread.ok()) }
    }

    /// What was seen so far; `None` where no look is over yet.
    pub(crate) fn so_far(&self) -> Result<Option<Seen>, String> {
        self.shared.seen().clone().map(|seen| Some(seen).filter(|seen| seen.looks > 0))
    }

    /// Ends a look that goes on.
    pub(crate) fn end(&self) {
        self.shared.over.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.end();
    }
}
