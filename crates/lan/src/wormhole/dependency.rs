//! Whether routes can deadlock: the graph of channels that wait for each other has a cycle or not.
//!
//! A worm on one channel of its path waits for the next. Routes are free of deadlock if no channel
//! waits, through any number of others, for itself (and for routes by destination, only if).
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
    /// The dependencies of paths over so many channels.
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

    /// A cycle of channels each of which waits for the one after it, the last for the first; `None`
    /// proves that the routes cannot deadlock.
    pub fn cycle(&self) -> Option<Vec<Channel>> {
        // 0 not seen, 1 on the way that is being followed, 2 done.
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
                        return Some(way[from.expect("it is on the way")..].to_vec());
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
    use super::super::routes::{Faults, Manner, Routes};
    use super::super::topology::Topology;
    use super::*;
    use proptest::prelude::*;

    fn cycle(topology: &Topology, manner: Manner) -> Option<Vec<Channel>> {
        let routes = Routes::new(topology, manner, &Faults::default());
        let paths = routes.paths().map(|path| &path[..]);
        Dependencies::of(topology.channels(), paths).cycle()
    }

    proptest! {
        #[test]
        fn routes_up_and_then_down_never_have_a_cycle(
            seed in 0u64..10_000, switches in 1usize..12, more in 0usize..20,
        ) {
            prop_assert_eq!(cycle(&Topology::random(seed, switches, more), Manner::UpDown), None);
        }
    }

    #[test]
    fn around_a_ring_the_fewest_hops_have_a_cycle_and_it_is_one() {
        let mut ring = Topology::default();
        for switch in 0..6 {
            ring.add_switch(&format!("s{switch}"), 8).unwrap();
            ring.add_host(&format!("h{switch}"), switch, 0).unwrap();
        }
        (0..6).for_each(|switch| ring.add_cable(switch, (switch + 1) % 6, 10).unwrap());
        let found = cycle(&ring, Manner::Shortest).unwrap();
        assert_eq!(found.len(), 6, "all the way around");
        assert_eq!(cycle(&ring, Manner::UpDown), None);
    }
}
