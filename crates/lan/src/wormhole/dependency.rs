//! Whether routes can deadlock: whether the graph of channels that wait for each other has a cycle.
//!
//! A worm on one channel of its path waits for the next. Routes are deadlock-free if no channel waits, through any
//! number of others, for itself (for routes by destination: if and only if).
//!
//! The same is true of frames in a switch with cut-through and flow control, which hold one channel while they
//! wait for the next (HPL-93-37 §3.5, J-64).
//!
//! Source: Dally & Seitz, Deadlock-Free Message Routing in Multiprocessor Interconnection Networks,
//! IEEE Transactions on Computers 36(5), 1987, Theorem 1.

use super::topology::Channel;
use std::collections::BTreeSet;

/// Which channel waits for which.
#[derive(Clone, Debug)]
pub struct Dependencies {
    next: Vec<BTreeSet<Channel>>,
}

impl Dependencies {
    /// The dependencies of paths over this many channels.
    ///
    /// ```
    /// use lastmeter_lan::wormhole::dependency::Dependencies;
    /// let paths: [&[usize]; 3] = [&[0, 1], &[1, 2], &[2, 0]];
    /// assert!(Dependencies::of(3, paths).cycle().is_some());
    /// assert!(Dependencies::of(3, paths[..2].iter().copied()).cycle().is_none());
    /// ```
    pub fn of<'a>(channels: usize, paths: impl IntoIterator<Item = &'a [Channel]>) -> Dependencies {
        let mut next = vec![BTreeSet::new(); channels];
        for path in paths {
            for pair in path.windows(2) {
                next[pair[0]].insert(pair[1]);
            }
        }
        Dependencies { next }
    }

    /// A cycle of channels, each of which waits for the next, and the last for the first. `None` proves that the
    /// routes cannot deadlock.
    pub fn cycle(&self) -> Option<Vec<Channel>> {
        // 0: not seen, 1: on the current path, 2: done.
        let mut state = vec![0u8; self.next.len()];
        for start in 0..self.next.len() {
            if state[start] != 0 {
                continue;
            }
            state[start] = 1;
            let mut way = vec![(start, self.next[start].iter())];
            while let Some((channel, rest)) = way.last_mut() {
                let channel = *channel;
                match rest.next() {
                    None => {
                        state[channel] = 2;
                        way.pop();
                    }
                    Some(&next) if state[next] == 1 => {
                        let way: Vec<Channel> = way.into_iter().map(|(at, _)| at).collect();
                        let from = way.iter().position(|&at| at == next);
                        return Some(way[from.expect("it is on the current path")..].to_vec());
                    }
                    Some(&next) if state[next] == 0 => {
                        state[next] = 1;
                        way.push((next, self.next[next].iter()));
                    }
                    Some(_) => {}
                }
            }
        }
        None
    }

    /// How many channels wait for others, and how many dependencies there are.
    pub fn size(&self) -> (usize, usize) {
        let waiting = self.next.iter().filter(|next| !next.is_empty()).count();
        (waiting, self.next.iter().map(BTreeSet::len).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes::{Faults, Routes, Routing};
    use super::super::topology::Topology;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn cycle(topology: &Topology, routing: Routing) -> Option<Vec<Channel>> {
        let routes = Routes::new(topology, routing, &Faults::default());
        let paths = routes.paths().map(|path| &path[..]);
        Dependencies::of(topology.channels(), paths).cycle()
    }

    proptest! {
        #[test]
        fn up_down_routes_never_have_a_cycle(
            seed in 0u64..10_000, switches in 1usize..12, more in 0usize..20,
        ) {
            prop_assert_eq!(cycle(&Topology::random(seed, switches, more), Routing::UpDown), None);
        }
    }

    #[test]
    fn around_a_ring_routes_by_fewest_hops_have_a_real_cycle() {
        let mut ring = Topology::default();
        for switch in 0..6 {
            ring.add_switch(&format!("s{switch}"), 8).unwrap();
            ring.add_host(&format!("h{switch}"), switch, 0).unwrap();
        }
        (0..6).for_each(|switch| ring.add_cable(switch, (switch + 1) % 6, 10).unwrap());
        let found = cycle(&ring, Routing::Shortest).unwrap();
        assert_eq!(found.len(), 6, "the whole ring");
        assert_eq!(cycle(&ring, Routing::UpDown), None);
    }

    fn cycle_of(channels: usize, routes: &[Vec<usize>]) -> Option<Vec<Channel>> {
        Dependencies::of(channels, routes.iter().map(Vec::as_slice)).cycle()
    }

    /// Every reachable state of frames on these routes, with each channel held by at most one frame: whether in
    /// some of them frames wait forever.
    fn explored(routes: &[Vec<usize>], channels: usize) -> bool {
        // The holder of each channel: its route, and how far it has got.
        type State = Vec<Option<(usize, usize)>>;
        let first: State = vec![None; channels];
        let mut known = HashSet::from([first.clone()]);
        let mut left = vec![first];
        while let Some(state) = left.pop() {
            let mut moves = Vec::new();
            let mut stuck = true;
            for (channel, &held) in state.iter().enumerate() {
                let Some((route, at)) = held else { continue };
                let mut next = state.clone();
                next[channel] = None;
                match routes[route].get(at + 1) {
                    None => moves.push(next),
                    Some(&to) if state[to].is_none() => {
                        next[to] = Some((route, at + 1));
                        moves.push(next);
                    }
                    Some(_) => continue,
                }
                stuck = false;
            }
            // Frames exist, and none of them can move.
            if stuck && state.iter().any(Option::is_some) {
                return true;
            }
            for (route, channels) in routes.iter().enumerate() {
                if state[channels[0]].is_none() {
                    let mut next = state.clone();
                    next[channels[0]] = Some((route, 0));
                    moves.push(next);
                }
            }
            left.extend(moves.into_iter().filter(|next| known.insert(next.clone())));
        }
        false
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn j_64_a_cycle_is_found_exactly_if_frames_can_wait_forever(
            picks in prop::collection::vec(prop::collection::vec(0usize..4, 1..4), 1..4),
        ) {
            // A route uses no channel twice.
            let route = |pick: &Vec<usize>| {
                let mut seen = HashSet::new();
                pick.iter().copied().filter(|&channel| seen.insert(channel)).collect::<Vec<_>>()
            };
            let routes: Vec<Vec<usize>> = picks.iter().map(route).collect();
            prop_assert_eq!(cycle_of(4, &routes).is_some(), explored(&routes, 4), "{:?}", routes);
        }
    }

    #[test]
    fn j_64_a_ring_of_switches_has_a_cycle_and_a_tree_has_none() {
        // Channel n leads from switch n to switch n + 1 of four.
        let around: Vec<Vec<usize>> = (0..4).map(|n| vec![n, (n + 1) % 4]).collect();
        assert_eq!(cycle_of(4, &around).map(|cycle| cycle.len()), Some(4));
        assert_eq!(cycle_of(4, &around[..3]), None);
    }
}
