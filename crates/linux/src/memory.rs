//! The memory of this machine, and a limit on that of this process.

use crate::error::{Doing, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// Bytes of memory that this machine has, or that the control group of this process allows, if that is less.
///
/// # Errors
/// The kernel does not say.
pub fn total() -> Result<u64> {
    let about = fs::read_to_string("/proc/meminfo").doing("reading the size of memory")?;
    let kib = about.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    });
    let missing = || std::io::Error::other("it has no MemTotal");
    let bytes = kib.ok_or_else(missing).doing("reading /proc/meminfo")? * 1024;
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse::<u64>().ok());
    Ok(group.map_or(bytes, |group| group.min(bytes)))
}

/// Limits the address space of this process and of those that it starts: what exceeds it is refused, and a
/// program that cannot do without ends.
///
/// # Errors
/// The kernel refuses.
pub fn limit(bytes: u64) -> Result<()> {
    let now = getrlimit(Resource::As);
    let most = now.maximum.map_or(bytes, |most| most.min(bytes));
    let both = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::As, both).doing("limiting the memory of this process")
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_has_memory() {
        assert!(super::total().unwrap() > 1 << 26);
    }
}
