//! Long work: without the interpreter's lock, while Ctrl-C is watched for and progress is reported.

use lastmeter::threads::Threads;
use lastmeter_lab::run::Watch;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How often signals are checked and progress is reported.
const EVERY: Duration = Duration::from_millis(50);

/// Does `work` in a thread of its own, without the lock. Meanwhile `tell` is called periodically with the
/// lock; if it fails or Ctrl-C was pressed, the work is stopped and that error is returned.
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
                // The receiver is gone only if this thread is already being joined.
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

/// The requested number of threads, or one per core.
pub(crate) fn threads(py: Python<'_>, threads: Option<usize>) -> PyResult<Threads> {
    Threads::new(threads).map_err(|words| crate::problem::wrong(py, words))
}
