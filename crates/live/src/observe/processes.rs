//! A process and its descendants in procfs: their sockets and their threads' CPU time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The most processes followed: the command is not meant to be a build farm.
const PROCESSES_MAX: usize = 256;
/// `USER_HZ`.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU time of one thread, in seconds since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ThreadTime {
    pub(super) run: f64,
    pub(super) wait: f64,
}

/// The process `root` and its descendants that still exist.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let mut next = 0;
    while next < all.len() && all.len() < PROCESSES_MAX {
        let pid = all[next];
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(children.split_ascii_whitespace().filter_map(|w| w.parse::<u32>().ok()));
        }
    }
    all
}

/// The inodes of the sockets that `pid` holds.
pub(super) fn sockets(pid: u32, into: &mut BTreeSet<u32>) {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return };
    for entry in entries.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let inode = target
            .to_str()
            .and_then(|t| t.strip_prefix("socket:["))
            .and_then(|t| t.strip_suffix(']'))
            .and_then(|t| t.parse::<u32>().ok());
        into.extend(inode);
    }
}

/// The scheduler's statistics of every thread of `pid`.
pub(super) fn threads(pid: u32, into: &mut BTreeMap<u32, ThreadTime>) {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for entry in entries.flatten() {
        let Some(tid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let text = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
        let mut numbers = text.split_ascii_whitespace().filter_map(|w| w.parse::<u64>().ok());
        let mut seconds = || numbers.next().unwrap_or(0) as f64 * 1e-9;
        into.insert(tid, ThreadTime { run: seconds(), wait: seconds() });
    }
}

/// Seconds of `pid` in user mode and in the kernel, in ticks of 10 ms.
pub(super) fn user_system(pid: u32) -> Option<(f64, f64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and brackets; the fields after its last bracket are plain.
    let rest = text.rsplit_once(')')?.1;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut seconds = || fields.next()?.parse::<u64>().ok().map(|t| t as f64 / TICKS_PER_SECOND);
    Some((seconds()?, seconds()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_itself() {
        let pid = std::process::id();
        assert_eq!(tree(pid)[0], pid);
        let mut times = BTreeMap::new();
        threads(pid, &mut times);
        assert!(times.values().any(|t| t.run > 0.0));
        assert!(user_system(pid).is_some());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut inodes = BTreeSet::new();
        sockets(pid, &mut inodes);
        assert!(!inodes.is_empty());
        drop(listener);
    }

    #[test]
    fn an_exited_process_has_no_sockets_or_times() {
        let mut inodes = BTreeSet::new();
        sockets(u32::MAX, &mut inodes);
        assert!(inodes.is_empty() && user_system(u32::MAX).is_none());
    }
}
