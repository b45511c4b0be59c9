//! Which cores may be used, and staying on one.

use crate::error::{Doing, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this process may run on, in rising order.
///
/// # Errors
/// When the kernel does not tell.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).doing(|| "asking which cores are allowed".to_owned())?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// The same, as the kernel takes it.
pub(crate) fn set() -> Result<CpuSet> {
    sched_getaffinity(None).doing(|| "asking which cores are allowed".to_owned())
}

/// Keeps the calling thread on `core`; `None` leaves it free.
pub(crate) fn pin(core: Option<usize>) -> Result<()> {
    let Some(core) = core else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).doing(|| format!("moving to core {core}"))
}

/// Runs `work` on `core` and gives the thread its freedom back.
pub(crate) fn pinned<T>(core: usize, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = sched_getaffinity(None).doing(|| "asking which cores are allowed".to_owned())?;
    pin(Some(core))?;
    let result = work();
    sched_setaffinity(None, &before).doing(|| "giving the core back".to_owned())?;
    result
}
