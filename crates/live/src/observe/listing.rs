//! When all sockets are listed, and which are asked for in between.
//!
//! To list TCP connections the kernel goes through its whole table of them, once for each version of IP: milliseconds
//! on a host with much memory, however few there are. One whose addresses are known it finds at once. So the
//! program's own connections are asked for at each look, and the others are listed as often as that is cheap.

use super::diag::{Connection, Id};
use super::{EVERY, EVERY_MAX, Follower};
use lastmeter_linux::Result;
use lastmeter_linux::clock::thread_cpu;
use std::collections::BTreeMap;

/// More connections than these are listed, not asked for one by one.
const ASKED_MAX: usize = 64;
/// A socket that so many listings did not find is no connection: it may be one of another family.
const TRIES: u8 = 3;
/// A new socket makes the next listing early if it would not put off the one after it by more seconds than this.
const EARLY_MAX: f64 = 2.0 * EVERY_MAX;

/// The state between two looks.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Looks at which all were listed.
    pub(super) looks: u32,
    /// CPU seconds that this took.
    pub(super) took: f64,
    /// When the next one is due, seconds.
    next: f64,
    /// The program's connections, each in its network namespace; `None` if there were too many.
    asked: Option<Vec<(u64, Id)>>,
    /// The program's sockets at the last listing, of any kind, and how many did not find them.
    sockets: BTreeMap<u32, u8>,
}

impl Listing {
    /// Whether all are listed now, not asked for; earlier than they would be if one of these sockets may be a new
    /// connection.
    pub(super) fn is_due<'a>(&self, at: f64, mut sockets: impl Iterator<Item = &'a u32>) -> bool {
        let is_new = |inode| self.sockets.get(inode).is_none_or(|tries| *tries < TRIES);
        self.asked.is_none() || at >= self.next || self.next - at < EARLY_MAX && sockets.any(is_new)
    }

    /// The connections to ask for in a namespace.
    pub(super) fn asked(&self, network: u64) -> Vec<Id> {
        let all = self.asked.iter().flatten();
        all.filter(|(of, _)| *of == network).map(|(_, id)| *id).collect()
    }

    /// All were listed `at` this time, which took `cost` seconds of CPU time and may take the share `most`. The program
    /// has these connections, and these sockets of any kind, found or not.
    pub(super) fn done(
        &mut self,
        (at, cost, most): (f64, f64, f64),
        own: impl Iterator<Item = (u64, Id)>,
        sockets: impl Iterator<Item = (u32, bool)>,
    ) {
        self.looks += 1;
        self.took += cost;
        self.next = self.next.max(at) + (cost / most).clamp(EVERY, EVERY_MAX);
        let own: Vec<(u64, Id)> = own.take(ASKED_MAX + 1).collect();
        self.asked = (own.len() <= ASKED_MAX).then_some(own);
        let tries = |(inode, found)| match found {
            true => (inode, TRIES),
            false => (inode, self.sockets.get(&inode).map_or(1, |tries| tries.saturating_add(1))),
        };
        self.sockets = sockets.map(tries).collect();
    }

    /// Those that no longer are there.
    pub(super) fn forget(&mut self, network: u64, gone: &[Id]) {
        let all = self.asked.iter_mut();
        all.for_each(|all| all.retain(|(of, id)| *of != network || !gone.contains(id)));
    }
}

impl Follower {
    /// The TCP connections of every namespace, all or those asked for, and the CPU seconds that this took.
    pub(super) fn streams(&mut self, all: bool) -> Result<(Vec<(u64, Connection)>, f64)> {
        let (mut streams, from) = (Vec::new(), thread_cpu());
        for (id, network) in &mut self.networks {
            let each = |seen| streams.push((*id, seen));
            if all {
                network.list(each)?;
            } else {
                self.listing.forget(*id, &network.ask(&self.listing.asked(*id), each));
            }
        }
        Ok((streams, thread_cpu() - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::{empty, once, repeat_n};

    fn id(number: u8) -> Id {
        Id { family: 2, bytes: [number; 48] }
    }

    #[test]
    fn what_is_dear_is_listed_seldom_and_the_programs_own_is_asked_for_meanwhile() {
        let mut listing = Listing::default();
        assert!(listing.is_due(0.0, empty()));
        let own = [(5, id(1)), (6, id(1)), (5, id(2))];
        listing.done((0.0, 0.001, 0.01), own.into_iter(), once((7, true)));
        listing.forget(5, &[id(1)]);
        assert_eq!((listing.asked(5), listing.asked(6)), (vec![id(2)], vec![id(1)]));
        assert!(!listing.is_due(0.09, empty()) && listing.is_due(0.1, empty()));
        // A new socket brings the next one forward, and puts off the one after it.
        assert!(!listing.is_due(0.05, [7].iter()));
        assert!(listing.is_due(0.05, [7, 8].iter()));
        listing.done((0.05, 0.001, 0.01), empty(), [(7, true), (8, true)].into_iter());
        assert!(!listing.is_due(0.19, [8].iter()) && listing.is_due(0.2, empty()));
        assert_eq!((listing.looks, listing.took), (2, 0.002));
    }

    #[test]
    fn a_socket_may_be_connected_later_and_one_after_another_does_not_list_at_each_look() {
        let mut listing = Listing::default();
        let mut tries = 0;
        while listing.is_due(0.0, [1].iter()) {
            tries += 1;
            listing.done((0.0, 0.0, 0.01), empty(), once((1, false)));
        }
        assert_eq!(tries, TRIES);
        let early = |number: &u32| {
            let due = listing.is_due(0.0, once(number));
            if due {
                listing.done((0.0, 1.0, 0.01), empty(), once((*number, true)));
            }
            due
        };
        assert_eq!((2..20).filter(early).count(), 2);
    }

    #[test]
    fn many_connections_are_listed() {
        let mut listing = Listing::default();
        listing.done((0.0, 1.0, 0.01), repeat_n((5, id(1)), ASKED_MAX), empty());
        assert!(!listing.is_due(EVERY_MAX / 2.0, empty()));
        listing.done((0.0, 1.0, 0.01), repeat_n((5, id(1)), ASKED_MAX + 1), empty());
        assert!(listing.is_due(EVERY_MAX / 2.0, empty()));
    }
}
