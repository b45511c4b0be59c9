//! Long work: without the interpreter's lock, while somebody watches for Ctrl-C and says how far
//! it is.

use lastmeter::threads::Threads;
use lastmeter_lab::run::Watch;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How often signals are looked at and progress is told.
const EVERY: Duration = Duration::from_millis(50);

/// Does `work` in a thread of its own, without the lock. Meanwhile `tell` is called now and then
/// with the lock; where it fails, or Ctrl-C was pressed, the work is asked to stop, and that error
/// is what comes of it.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    watch: &Watch,
    mut tell: impl FnMut(Python<'_>) -> PyResult<()> + Send,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    py.detach(|| {
        std::thread::scope(|scope| {
            let (done, waiting) = channel();
            let thread = scope.spawn(move || {
                let result = work();
                // Nobody listens any more only if this thread is being waited for.
                let _ = done.send(());
                result
            });
            let mut interrupted = None;
            while let Err(RecvTimeoutError::Timeout) = waiting.recv_timeout(EVERY) {
                if interrupted.is_some() {
                    continue;
                }
                let looked = Python::attach(|py| {
                    py.check_signals()?;
                    tell(py)
                });
                if let Err(error) = looked {
                    watch.control.stop();
                    interrupted = Some(error);
                }
            }
            let result = thread.join();
            match (interrupted, result) {
                (Some(error), _) => Err(error),
                (None, Ok(result)) => Ok(result),
                (None, Err(_)) => Err(PyRuntimeError::new_err("the work panicked")),
            }
        })
    })
}

/// As many threads as were asked for, or as there are cores.
pub(crate) fn threads(py: Python<'_>, threads: Option<usize>) -> PyResult<Threads> {
    Threads::new(threads).map_err(|words| crate::problem::wrong(py, words))
}
