//! Processes that are no child: one of our own, and the other ends of connections from another host.
//!
//! The sockets of this host's network namespace whose other end is at a given address are followed, whoever holds
//! them. Where this user may see the process that does, its threads are followed, too; else only the socket's
//! counters are known, and none of the process's time is attributed.

use super::closed::Closings;
use super::diag::Diagnostics;
use super::tally::Connection;
use super::{
    Follower, KEPT_MAX, LISTING, NAMESPACES_MAX, Observation, SEARCH_EVERY, look_until, looks,
};
use super::{now, processes};
use lastmeter_linux::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// A connection: this host's end and the other host's.
pub(crate) type Pair = (SocketAddr, SocketAddr);

/// Follows process `pid` and its descendants until `pause`, handed the seconds to wait, says that it is over.
pub(crate) fn process(pid: u32, mut pause: impl FnMut(f64) -> Result<bool>) -> Result<Observation> {
    let (mut follower, elapsed, cost) =
        look_until(pid, super::Reports(None), |_, _, seconds| pause(seconds))?;
    Ok(follower.so_far(elapsed, None, cost))
}

/// Follows the sockets whose other end is at one of these addresses until `pause` says that it is over, and which of
/// them are wanted.
pub(crate) fn peers(
    from: &BTreeSet<IpAddr>,
    mut pause: impl FnMut(f64) -> Result<Option<Vec<Pair>>>,
) -> Result<Observation> {
    let mut follower = Follower::default();
    let network = processes::network(std::process::id()).unwrap_or_default();
    follower.networks.insert(network, Diagnostics::open()?);
    if let Ok(closings) = Closings::open(None) {
        follower.closings.insert(network, closings);
    }
    let mut pairs = Vec::new();
    let (elapsed, cost) = looks(
        &mut follower,
        |follower| follower.look_at_peers(from),
        |_, _, seconds| Ok(pause(seconds)?.map(|wanted| pairs = wanted).is_some()),
    )?;
    follower.keep(&pairs);
    Ok(follower.so_far(elapsed, None, cost))
}

/// An address without the detour over version 6 that a socket of both versions takes.
fn plain(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

impl Follower {
    fn look_at_peers(&mut self, from: &BTreeSet<IpAddr>) -> Result<()> {
        if self.looks.is_multiple_of(SEARCH_EVERY) {
            self.read_processes();
            self.surroundings();
            for pid in &self.pids {
                if let Some(times) = processes::user_system(*pid) {
                    self.processes.insert(*pid, times);
                }
            }
        }
        self.threads();
        self.looks += 1;
        self.closings.values_mut().for_each(Closings::take);
        let at = now();
        let due = self.listing.is_due(at, std::iter::empty());
        let (mut streams, cost) = self.streams(due)?;
        streams.retain(|(_, seen)| from.contains(&seen.remote.ip().to_canonical()));
        let took = now() - at;
        self.reading += took;
        if due {
            let own = streams.iter().map(|(network, seen)| (*network, seen.id));
            self.listing.done((at, cost, LISTING * self.share()), own, std::iter::empty());
        }
        let known = |inode: &u32| self.inodes.contains_key(inode) || self.foreign.contains(inode);
        let inodes = streams.iter().map(|(_, seen)| seen.inode);
        // One that nobody has accepted yet has none.
        let new: BTreeSet<u32> = inodes.filter(|inode| *inode > 0 && !known(inode)).collect();
        self.find(new);
        for (_, seen) in streams {
            let pid = self.inodes.get(&seen.inode).copied().unwrap_or(0);
            let key = (0, seen.local.to_string(), seen.remote.to_string());
            if self.connections.len() < KEPT_MAX || self.connections.contains_key(&key) {
                let new = || Connection::new(&seen, pid, at);
                let one = self.connections.entry(key).or_insert_with(new);
                one.note(&seen, at, due);
                one.pid = pid.max(one.pid);
            }
        }
        self.mark(at, took);
        Ok(())
    }

    /// Searches all processes that this user may see for those that hold these sockets.
    fn find(&mut self, wanted: BTreeSet<u32>) {
        if wanted.is_empty() {
            return;
        }
        let mut held = BTreeMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            processes::sockets(pid, &mut held);
        }
        held.retain(|inode, _| wanted.contains(inode));
        for pid in held.values() {
            if self.seen.len() < NAMESPACES_MAX * NAMESPACES_MAX && self.seen.insert(*pid) {
                self.pids.push(*pid);
            }
        }
        if self.foreign.len() > KEPT_MAX {
            self.foreign.clear();
        }
        self.foreign.extend(wanted.into_iter().filter(|inode| !held.contains_key(inode)));
        if self.inodes.len() > KEPT_MAX {
            self.inodes.clear();
        }
        self.inodes.extend(held);
    }

    /// Forgets all connections but these, and all processes that hold none of them.
    fn keep(&mut self, pairs: &[Pair]) {
        let pairs: BTreeSet<Pair> = pairs.iter().map(|(a, b)| (plain(*a), plain(*b))).collect();
        self.connections.retain(|_, one| {
            let (local, remote) = one.ends();
            pairs.contains(&(plain(local), plain(remote)))
        });
        let pids: BTreeSet<u32> = self.connections.values().map(|one| one.pid).collect();
        self.threads.retain(|_, thread| pids.contains(&thread.first.pid));
        self.pids.retain(|pid| pids.contains(pid));
        self.throttled.retain(|pid, _| pids.contains(pid));
        self.processes.retain(|pid, _| pids.contains(pid));
        self.seen.retain(|pid| pids.contains(pid));
        self.pipes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_other_end_of_a_connection_is_found_and_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut other = listener.accept().unwrap().0;
        let pair = (other.local_addr().unwrap(), other.peer_addr().unwrap());
        let from = BTreeSet::from([pair.1.ip()]);
        let mut looks = 0;
        let seen = peers(&from, |_| {
            looks += 1;
            one.write_all(&[0; 1000]).unwrap();
            other.read_exact(&mut [0; 1000]).unwrap();
            Ok((looks == 5).then(|| vec![pair]))
        });
        let seen = seen.unwrap();
        assert_eq!((seen.connections.len(), seen.looks), (1, 5));
        let found = &seen.connections[0];
        assert_eq!((&found.local, &found.remote), (&pair.0.to_string(), &pair.1.to_string()));
        assert!(found.received >= 4000 && found.marks.len() == 5, "{found:?}");
        // It is this process, which this user may see.
        assert_eq!(seen.processes, 1);
        let elsewhere = BTreeSet::from(["192.0.2.1".parse().unwrap()]);
        let seen = peers(&elsewhere, |_| Ok(Some(vec![pair]))).unwrap();
        assert!(seen.connections.is_empty() && seen.processes == 0);
    }
}
