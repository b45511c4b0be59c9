//! The allowed cores, and pinning to one.

use crate::error::{Doing, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this process may run on, in rising order.
///
/// # Errors
/// When the kernel does not report them.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).doing("reading the allowed cores")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// The same, in the kernel's form.
pub(crate) fn set() -> Result<CpuSet> {
    sched_getaffinity(None).doing("reading the allowed cores")
}

/// Pins the calling thread to `core`; `None` leaves it free.
pub fn pin(core: Option<usize>) -> Result<()> {
    let Some(core) = core else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).doing(|| format!("moving to core {core}"))
}

/// Runs `work` on `core` and restores the thread's affinity.
pub fn pinned<T>(core: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = sched_getaffinity(None).doing("reading the allowed cores")?;
    pin(Some(core))?;
    let result = work();
    sched_setaffinity(None, &before).doing("restoring the affinity")?;
    result
}
