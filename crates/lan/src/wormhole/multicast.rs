//! Multicast by software: each host that has a message forwards it to half of the hosts that it is responsible
//! for.
//!
//! Hosts are in the order of their addresses, starting with the sender. A host that is responsible for a range of
//! them sends to the first of its second half, which becomes responsible for that half. So all hosts have the
//! message after ceil(log2 n) steps, which is the minimum; and in a tree with its hosts in order, no two messages
//! of a step use the same channel.
//!
//! Source: Xu, Gui & Ni, Optimal Software Multicast in Wormhole-Routed Multistage Networks,
//! Supercomputing 1994 (N-76).

use super::routes::Path;
use super::topology::{Channel, Topology};
use std::collections::BTreeSet;

/// One message: sender and receiver.
pub type Send = (usize, usize);

/// The steps in which `source` reaches all `others`; messages of a step are sent simultaneously.
///
/// ```
/// use lastmeter_lan::wormhole::multicast::schedule;
/// let steps = schedule(4, &[1, 6, 7]);
/// assert_eq!(steps, [vec![(4, 7)], vec![(4, 6), (7, 1)]]);
/// ```
pub fn schedule(source: usize, others: &[usize]) -> Vec<Vec<Send>> {
    // In order of addresses, rotated so that the source is first.
    let mut order: Vec<usize> = others.iter().copied().filter(|&other| other != source).collect();
    order.sort_unstable();
    order.dedup();
    let later = order.partition_point(|&other| other < source);
    order.rotate_left(later);
    order.insert(0, source);
    let mut steps = Vec::new();
    let mut rows: Vec<std::ops::Range<usize>> = std::iter::once(0..order.len()).collect();
    while rows.iter().any(|row| row.len() > 1) {
        let mut step = Vec::new();
        for row in std::mem::take(&mut rows) {
            if row.len() == 1 {
                rows.push(row);
                continue;
            }
            let half = row.start + row.len().div_ceil(2);
            step.push((order[row.start], order[half]));
            rows.push(row.start..half);
            rows.push(half..row.end);
        }
        steps.push(step);
    }
    steps
}

/// The path through [`Topology::tree`] that goes up no higher than necessary, by the sender's digits.
pub fn tree_path(tree: &Topology, radix: usize, from: usize, to: usize) -> Path {
    let levels = tree.switches().len() / (tree.hosts().len() / radix);
    let width = radix.pow(levels as u32 - 1);
    let (mut at, target) = (from / radix, to / radix);
    let mut path = vec![tree.out_of_host(from)];
    let channel = |from: usize, to: usize| -> Channel {
        let found = tree.out_of_switch(from).find(|&(_, next)| next == to);
        found.expect("neighbouring levels are connected").0
    };
    // The level at which all higher digits of the two agree.
    let mut level = 0;
    while at / radix.pow(level as u32) != target / radix.pow(level as u32) {
        // Up by the sender's own digit: each sender has a path of its own.
        let weight = radix.pow(level as u32);
        let digit = if level == 0 { from % radix } else { from / radix.pow(level as u32) % radix };
        let above = at - at / weight % radix * weight + digit * weight;
        path.push(channel(level * width + at, (level + 1) * width + above));
        at = above;
        level += 1;
    }
    while level > 0 {
        level -= 1;
        let weight = radix.pow(level as u32);
        let below = at - at / weight % radix * weight + target / weight % radix * weight;
        path.push(channel((level + 1) * width + at, level * width + below));
        at = below;
    }
    path.push(tree.to_host(to));
    path.into()
}

/// Pairs of messages of one step that use the same channel.
pub fn meetings(paths: &[Path]) -> usize {
    let sets: Vec<BTreeSet<Channel>> =
        paths.iter().map(|path| path.iter().copied().collect()).collect();
    let pairs = (0..sets.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs.filter(|&(a, b)| !sets[a].is_disjoint(&sets[b])).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_host_gets_one_copy_in_the_fewest_steps_without_contention(
            source in 0usize..64, others in prop::collection::btree_set(0usize..64, 1..40),
        ) {
            let tree = Topology::tree(4, 3).unwrap();
            let others: Vec<usize> = others.into_iter().filter(|&host| host != source).collect();
            let steps = schedule(source, &others);
            let fewest = (others.len() as u32 + 1).next_power_of_two().trailing_zeros();
            prop_assert_eq!(steps.len() as u32, fewest);
            let mut have = std::collections::BTreeSet::from([source]);
            for step in steps {
                let senders: Vec<usize> = step.iter().map(|&(from, _)| from).collect();
                prop_assert!(senders.iter().all(|from| have.contains(from)));
                let paths: Vec<Path> =
                    step.iter().map(|&(from, to)| tree_path(&tree, 4, from, to)).collect();
                prop_assert_eq!(meetings(&paths), 0);
                prop_assert!(step.iter().all(|&(_, to)| have.insert(to)), "each once");
            }
            prop_assert_eq!(have.len(), others.len() + 1);
        }
    }

    #[test]
    fn out_of_order_messages_share_channels() {
        let tree = Topology::tree(4, 3).unwrap();
        let mut met = 0;
        for shift in 1..16 {
            let paths: Vec<Path> = (0..16)
                .map(|from| tree_path(&tree, 4, from, (from * 16 + shift) % 64))
                .filter(|path| path.len() > 1)
                .collect();
            met += meetings(&paths);
        }
        assert!(met > 0);
    }
}
