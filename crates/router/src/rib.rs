//! The control processor's routes from all sources, the best one for each prefix, and the minimal set of changes
//! for a port processor.
//!
//! ```text
//! file, FRR, kernel --> sources of a prefix --> best --> hop's number --> Command::Hop, Command::Route
//! ```
//!
//! Of several sources for one prefix the one listed first in [`Source`] wins. A hop is a set of next routers; equal
//! sets share a number, which is freed when no route uses it (D-42: among equal lengths the lowest cost wins,
//! and equal costs are used together).

use crate::message::Command;
use crate::port_processor::hop::{BLACKHOLE, FIRST, Next, PROHIBITED, UNREACHABLE};
use crate::port_processor::tables::Network;
use std::collections::{BTreeMap, HashMap};

/// Where a route comes from, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// `router.toml` and commands.
    File,
    /// A routing protocol, by FRR.
    Fpm,
    /// The kernel's main table.
    Kernel,
}

/// Where packets go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum To {
    /// To one of these next routers, selected by flow.
    Next(Vec<Next>),
    /// Dropped silently.
    Blackhole,
    /// Dropped, with an ICMP unreachable.
    Unreachable,
    /// Dropped, with an ICMP error "prohibited".
    Prohibited,
}

/// A route of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    to: To,
    /// The lower is better, within a source.
    metric: u32,
    /// The generation in which it was last announced.
    generation: u32,
}

/// The routes of a prefix: usually from one source.
#[derive(Clone, Debug, Default)]
struct Known {
    entries: Vec<(Source, Entry)>,
    /// The hop that the port processor has.
    hop: u32,
}

/// All routes.
#[derive(Debug, Default)]
pub struct Rib {
    known: HashMap<Network, Known>,
    /// Numbers of hops and how many routes use them.
    numbers: HashMap<Vec<Next>, u32>,
    uses: Vec<(Vec<Next>, u64)>,
    free: Vec<u32>,
    generations: BTreeMap<Source, u32>,
    /// Changes sent since the start.
    pub changes: u64,
}

impl Rib {
    /// How many prefixes have a route.
    pub fn len(&self) -> usize {
        self.known.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
    /// How many sets of next routers are in use.
    pub fn hops(&self) -> usize {
        self.numbers.len()
    }
    /// A source announces a route or, with `None`, withdraws it. Appends the changes for the port processor.
    pub fn set(
        &mut self,
        network: Network,
        source: Source,
        route: Option<(To, u32)>,
        out: &mut Vec<Command>,
    ) {
        let generation = self.generations.get(&source).copied().unwrap_or(0);
        let known = self.known.entry(network).or_default();
        let at = known.entries.iter().position(|(own, _)| *own == source);
        match (route, at) {
            (Some((to, metric)), Some(at)) => {
                known.entries[at].1 = Entry { to, metric, generation };
            }
            (Some((to, metric)), None) => {
                known.entries.push((source, Entry { to, metric, generation }));
            }
            (None, Some(at)) => drop(known.entries.swap_remove(at)),
            (None, None) => {}
        }
        self.choose(network, out);
    }
    /// Sends the best route of a prefix if it has changed.
    fn choose(&mut self, network: Network, out: &mut Vec<Command>) {
        let Some(known) = self.known.get(&network) else { return };
        let old = known.hop;
        let best = known.entries.iter().min_by_key(|(source, entry)| (*source, entry.metric));
        let to = best.map(|(_, entry)| entry.to.clone());
        let gone = to.is_none();
        let hop = match to {
            None => 0,
            Some(To::Blackhole) => BLACKHOLE,
            Some(To::Unreachable) => UNREACHABLE,
            Some(To::Prohibited) => PROHIBITED,
            Some(To::Next(next)) => self.number(next, out),
        };
        if gone {
            self.known.remove(&network);
        } else if let Some(known) = self.known.get_mut(&network) {
            known.hop = hop;
        }
        // The number is used once more for this route, whether it had it before or not.
        if hop != old {
            self.changes += 1;
            out.push(Command::Route { prefix: network.0, len: network.1, hop });
        }
        if old >= FIRST {
            self.release(old);
        }
    }
    /// The number of a hop that does not belong to a route; it stays until it is released.
    pub fn number(&mut self, mut next: Vec<Next>, out: &mut Vec<Command>) -> u32 {
        next.sort_unstable();
        next.dedup();
        if let Some(number) = self.numbers.get(&next) {
            self.uses[(*number - FIRST) as usize].1 += 1;
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.uses.push((Vec::new(), 0));
            FIRST + self.uses.len() as u32 - 1
        });
        self.uses[(number - FIRST) as usize] = (next.clone(), 1);
        out.push(Command::Hop { number, to: next.clone() });
        self.numbers.insert(next, number);
        number
    }
    /// A use of a number has ended.
    pub fn release(&mut self, number: u32) {
        let (next, uses) = &mut self.uses[(number - FIRST) as usize];
        *uses -= 1;
        if *uses == 0 {
            let next = std::mem::take(next);
            self.numbers.remove(&next);
            self.free.push(number);
        }
    }
    /// A source starts to announce all its routes again.
    pub fn begin(&mut self, source: Source) {
        *self.generations.entry(source).or_default() += 1;
    }
    /// The source has announced them all: removes those that it did not announce again; returns how many.
    pub fn sweep(&mut self, source: Source, out: &mut Vec<Command>) -> usize {
        let generation = self.generations.get(&source).copied().unwrap_or(0);
        let is_stale = |known: &Known| {
            known.entries.iter().any(|(own, e)| *own == source && e.generation != generation)
        };
        let stale: Vec<Network> = self
            .known
            .iter()
            .filter(|(_, known)| is_stale(known))
            .map(|(network, _)| *network)
            .collect();
        for network in &stale {
            self.set(*network, source, None, out);
        }
        stale.len()
    }
    /// The complete state for a new port processor.
    pub fn all(&self, out: &mut Vec<Command>) {
        for (next, number) in &self.numbers {
            out.push(Command::Hop { number: *number, to: next.clone() });
        }
        for (network, known) in &self.known {
            if known.hop != 0 {
                out.push(Command::Route { prefix: network.0, len: network.1, hop: known.hop });
            }
        }
    }
    /// The meaning of a hop number, as text.
    pub fn describe(&self, hop: u32) -> Option<&[Next]> {
        let at = hop.checked_sub(FIRST)? as usize;
        self.uses.get(at).map(|(next, _)| next.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn network(last: u8) -> Network {
        (IpAddr::from([192, 0, last, 0]), 24)
    }
    fn via(last: u8) -> To {
        To::Next(vec![Next { port: 0, address: Some([10, 0, 0, last].into()) }])
    }

    #[test]
    fn the_smallest_change_is_told() {
        let (mut rib, mut out) = (Rib::default(), Vec::new());
        rib.set(network(1), Source::Fpm, Some((via(1), 20)), &mut out);
        rib.set(network(2), Source::Fpm, Some((via(1), 20)), &mut out);
        assert_eq!(out.len(), 3, "one hop, two routes: {out:?}");
        out.clear();
        rib.set(network(1), Source::Fpm, Some((via(1), 30)), &mut out);
        rib.set(network(1), Source::Kernel, Some((via(2), 0)), &mut out);
        assert_eq!(out, [], "nothing that matters to packets has changed");
        rib.set(network(1), Source::Fpm, None, &mut out);
        assert!(matches!(out[..], [Command::Hop { .. }, Command::Route { .. }]), "{out:?}");
    }

    #[test]
    fn what_is_not_told_again_is_swept() {
        let (mut rib, mut out) = (Rib::default(), Vec::new());
        (1..=3).for_each(|n| rib.set(network(n), Source::Fpm, Some((via(n), 20)), &mut out));
        rib.set(network(9), Source::File, Some((To::Blackhole, 0)), &mut out);
        rib.begin(Source::Fpm);
        rib.set(network(2), Source::Fpm, Some((via(2), 20)), &mut out);
        out.clear();
        assert_eq!(rib.sweep(Source::Fpm, &mut out), 2);
        assert_eq!(out.len(), 2, "{out:?}");
        assert_eq!(rib.len(), 2);
    }

    proptest! {
        /// A port processor that received each change has the same state as one that receives everything at the end.
        #[test]
        fn changes_add_up(steps in prop::collection::vec((0..6u8, 0..3u8, 0..5u8), 1..200)) {
            let (mut rib, mut out) = (Rib::default(), Vec::new());
            for (last, source, to) in steps {
                let source = [Source::File, Source::Fpm, Source::Kernel][usize::from(source)];
                let route = match to {
                    0 => None,
                    1 => Some((To::Blackhole, 0)),
                    other => Some((via(other), 0)),
                };
                rib.set(network(last), source, route, &mut out);
            }
            let told = |commands: &[Command]| {
                let (mut hops, mut routes) = (BTreeMap::new(), BTreeMap::new());
                for command in commands {
                    match command {
                        Command::Hop { number, to } => drop(hops.insert(*number, to.clone())),
                        Command::Route { prefix, hop: 0, .. } => drop(routes.remove(prefix)),
                        Command::Route { prefix, hop, .. } => drop(routes.insert(*prefix, *hop)),
                        _ => {}
                    }
                }
                let meaning = routes.into_iter().map(|(prefix, hop)| (prefix, hops.get(&hop).cloned(), hop.min(FIRST)));
                meaning.collect::<Vec<_>>()
            };
            let mut all = Vec::new();
            rib.all(&mut all);
            prop_assert_eq!(told(&out), told(&all));
        }
    }
}
