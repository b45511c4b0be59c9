//! A pipeline: which process writes to which, and what each waits for.
//!
//! The descriptors in procfs say who holds which end of a pipe; the states of the threads say who sleeps
//! because a pipe is full or empty.

use super::processes::State;
use super::tally::Thread;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The most stages of a pipeline.
const STAGES_MAX: usize = 64;
/// The owner may write: in a link of `/proc/PID/fd`, that the descriptor was opened for writing.
const WRITES: u32 = 0o200;
/// Thread names have this many bytes at most, and those of processes are cut alike.
const NAME_MAX: usize = 15;

/// One process of a pipeline. Shares are of its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Its id.
    pub pid: u32,
    /// Asleep because the pipe that it reads is empty.
    pub starved: f64,
    /// Asleep because the pipe that it writes is full.
    pub blocked: f64,
    /// On a CPU, its busiest thread.
    pub run: f64,
    /// Ready for one.
    pub wait: f64,
    /// Asleep until a time of its own choice.
    pub timer: f64,
    /// Asleep in a disk or file system.
    pub disk: f64,
    /// Asleep in a socket, or until one of several descriptors is ready.
    pub socket: f64,
}

/// The ends of pipes that a process holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    name: String,
    reads: BTreeSet<u64>,
    writes: BTreeSet<u64>,
}

impl Ends {
    /// Whether the process holds both ends of a pipe.
    pub(super) fn is_own(&self, inode: u64) -> bool {
        self.reads.contains(&inode) && self.writes.contains(&inode)
    }
}

/// The ends that `pid` holds; `None` if it has ended.
pub(super) fn of(pid: u32) -> Option<Ends> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let mut ends = Ends { name: name.trim().chars().take(NAME_MAX).collect(), ..Ends::default() };
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let inode = target
            .to_str()
            .and_then(|t| t.strip_prefix("pipe:["))
            .and_then(|t| t.strip_suffix(']'))
            .and_then(|t| t.parse().ok());
        let (Some(inode), Ok(link)) = (inode, fs::symlink_metadata(entry.path())) else { continue };
        let which = if link.mode() & WRITES != 0 { &mut ends.writes } else { &mut ends.reads };
        which.insert(inode);
    }
    Some(ends)
}

/// The longest chain of processes, each of which writes a pipe that the next reads, and one of which is the `owner` of
/// the connection, if there is one; empty without a pipe.
pub(super) fn chain(
    ends: &BTreeMap<u32, Ends>,
    owner: Option<u32>,
    threads: &[&Thread],
    elapsed: f64,
) -> Vec<Stage> {
    let next = |pid: u32| {
        let from = &ends[&pid].writes;
        let reads = |(other, end): &(&u32, &Ends)| **other != pid && !end.reads.is_disjoint(from);
        ends.iter().find(reads).map(|(other, _)| *other)
    };
    let mut longest = Vec::new();
    for &first in ends.keys() {
        let mut chain = vec![first];
        while let Some(pid) = chain.last().and_then(|&last| next(last)) {
            if chain.contains(&pid) || chain.len() >= STAGES_MAX {
                break;
            }
            chain.push(pid);
        }
        if chain.len() > longest.len() && owner.is_none_or(|pid| chain.contains(&pid)) {
            longest = chain;
        }
    }
    if longest.len() < 2 {
        return Vec::new();
    }
    longest.into_iter().map(|pid| stage(pid, &ends[&pid].name, threads, elapsed)).collect()
}

fn stage(pid: u32, name: &str, threads: &[&Thread], elapsed: f64) -> Stage {
    let own = || threads.iter().filter(|thread| thread.last.pid == pid);
    // Of several threads those that read and write the pipes tell how the process fares.
    let most = |states: &[State]| own().map(|thread| thread.asleep(states)).fold(0.0, f64::max);
    let seconds = elapsed.max(1e-3);
    let grown = |of: fn(&Thread) -> f64| own().map(|t| of(t) / seconds).fold(0.0, f64::max);
    Stage {
        name: name.to_owned(),
        pid,
        starved: most(&[State::PipeRead, State::PipeOrSocket]),
        blocked: most(&[State::PipeWrite]),
        run: grown(|t| t.last.run - t.first.run).min(1.0),
        wait: grown(|t| t.last.wait - t.first.wait).min(1.0),
        timer: most(&[State::Timer]),
        disk: most(&[State::Disk]),
        socket: most(&[State::Send, State::Receive, State::Poll, State::Connect]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(reads: &[u64], writes: &[u64]) -> Ends {
        let set = |all: &[u64]| all.iter().copied().collect();
        Ends { name: "stage".to_owned(), reads: set(reads), writes: set(writes) }
    }

    #[test]
    fn a_chain_is_found_in_its_order_and_a_ring_ends() {
        let three = [(9, ends(&[], &[1])), (4, ends(&[1], &[2])), (7, ends(&[2], &[]))];
        let pids = |all: &[(u32, Ends)]| {
            let all = all.iter().cloned().collect();
            chain(&all, None, &[], 1.0).iter().map(|stage| stage.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(&three), [9, 4, 7]);
        assert!(pids(&[(1, ends(&[5], &[6]))]).is_empty());
        assert_eq!(pids(&[(1, ends(&[5], &[6])), (2, ends(&[6], &[5]))]).len(), 2);
        let all = three.iter().cloned().collect();
        assert_eq!(chain(&all, Some(4), &[], 1.0).len(), 3);
        assert!(chain(&all, Some(5), &[], 1.0).is_empty());
    }

    #[test]
    fn a_process_tells_the_ends_that_it_holds() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let own = of(std::process::id()).unwrap();
        assert!(own.reads.intersection(&own.writes).next().is_some());
        drop((read, write));
        assert!(of(u32::MAX).is_none());
    }
}
