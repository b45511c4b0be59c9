//! Whether frames can wait for each other in a circle.
//!
//! ```text
//! route: channel a --> channel b --> channel c       a frame that holds a may wait for b
//!
//! a deadlock can be reached   <=>   these dependencies have a circle
//! ```
//!
//! With cut-through and flow control a frame holds channels while it waits for the next. Source: HPL-93-37
//! §3.5 ("careful thought needs to be applied to the issue of flow control to ensure that deadlock
//! conditions do not occur"); Dally & Seitz, Deadlock-free message routing in multiprocessor
//! interconnection networks, IEEE Trans. Comp. 36(5), 1987 (the condition).

use std::collections::BTreeMap;

/// A circle of channels each of which some route leaves for the next, or `None`: then no frames can come to
/// wait for each other.
///
/// ```
/// use crate::machines::switch::deadlock::circle;
/// assert_eq!(circle(&[vec![0, 1], vec![1, 2]]), None);
/// assert_eq!(circle(&[vec![0, 1], vec![1, 2], vec![2, 0]]), Some(vec![0, 1, 2]));
/// ```
pub fn circle(routes: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut waits: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for route in routes {
        for pair in route.windows(2) {
            waits.entry(pair[0]).or_default().push(pair[1]);
        }
    }
    // Depth first, with the way to where it is; what is done leads to no circle.
    let mut done: Vec<usize> = Vec::new();
    for &start in waits.keys() {
        let mut way: Vec<(usize, usize)> = vec![(start, 0)];
        while let Some((channel, next)) = way.last_mut() {
            let channel = *channel;
            let following = waits.get(&channel).and_then(|all| all.get(*next)).copied();
            *next += 1;
            match following {
                None => {
                    done.push(channel);
                    way.pop();
                }
                Some(following) => {
                    let place = way.iter().position(|&(passed, _)| passed == following);
                    if let Some(place) = place {
                        return Some(way[place..].iter().map(|&(channel, _)| channel).collect());
                    }
                    if !done.contains(&following) {
                        way.push((following, 0));
                    }
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Every state that frames on these routes can come to, each channel held by one frame at most: whether
    /// in some of them frames wait for ever.
    fn explored(routes: &[Vec<usize>], channels: usize) -> bool {
        // Who holds each channel: the route, and how far it has come.
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
            // Frames that are there and none of which can move.
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
        fn j_64_a_circle_is_found_exactly_where_frames_can_wait_for_ever(
            picks in prop::collection::vec(prop::collection::vec(0usize..4, 1..4), 1..4),
        ) {
            // A route uses no channel twice.
            let route = |pick: &Vec<usize>| {
                let mut seen = HashSet::new();
                pick.iter().copied().filter(|&channel| seen.insert(channel)).collect::<Vec<_>>()
            };
            let routes: Vec<Vec<usize>> = picks.iter().map(route).collect();
            prop_assert_eq!(circle(&routes).is_some(), explored(&routes, 4), "{:?}", routes);
        }
    }

    #[test]
    fn j_64_a_ring_of_switches_has_a_circle_and_a_tree_has_none() {
        // Channel n leads from switch n to switch n + 1 of four.
        let around: Vec<Vec<usize>> = (0..4).map(|n| vec![n, (n + 1) % 4]).collect();
        assert_eq!(circle(&around).map(|circle| circle.len()), Some(4));
        assert_eq!(circle(&around[..3]), None);
    }
}
