//! Multicast by recycling: a switch that copies a cell to at most two outputs makes any number of copies by
//! sending some of them back to an input.
//!
//! ```text
//! vci x --> leaf (port, vci)              an entry has at most two branches; recycled cells
//!      '--> recycle as y --> leaf         return on another circuit
//!                       '--> leaf
//! ```
//!
//! F copies take F - 1 entries, ceil(log2 F) passes and F - 2 recycled cells. Adding a leaf changes two entries,
//! whatever F is.
//!
//! Source: Kuhns et al., §2.2 and §6.1 (D-07); tables as in Turner's recycling fabrics.

use std::collections::{BTreeMap, VecDeque};

/// A receiver of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leaf {
    /// The output port.
    pub port: u16,
    /// Its circuit at that port.
    pub vci: u16,
}

/// Where one copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// Out of the switch.
    Leaf(Leaf),
    /// Back to an input, on another circuit.
    Recycle(u32),
}

/// A copy that has left the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Its destination.
    pub leaf: Leaf,
    /// How many times it passed through the switch.
    pub passes: u32,
}

/// One multicast circuit: the entries that its cells pass.
///
/// ```
/// use lastmeter_lan::fabric::multicast::{Leaf, Tree};
/// let mut tree = Tree::default();
/// (0..5).for_each(|port| assert!(tree.add(Leaf { port, vci: 50 }) <= 2));
/// let copies = tree.copy();
/// assert_eq!(copies.len(), 5);
/// assert_eq!(copies.iter().map(|copy| copy.passes).max(), Some(3)); // ceil(log2 5)
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Entries by circuit; cells arrive on circuit 0.
    entries: BTreeMap<u32, [Option<Branch>; 2]>,
    /// Position of each leaf: the entry and the branch.
    leaves: BTreeMap<Leaf, (u32, usize)>,
    /// Leaves, nearest to the root first; removed ones are skipped.
    nearest: VecDeque<Leaf>,
    circuits: u32,
}

const ROOT: u32 = 0;

impl Tree {
    /// A chain of circuits, each of which sends both copies to the next: 2 to the power of `circuits` copies of
    /// each cell for one leaf (§6.1), which multiplies a source's traffic.
    pub fn amplifier(circuits: u32, leaf: Leaf) -> Tree {
        let mut tree = Tree { circuits, ..Tree::default() };
        for circuit in 0..circuits {
            let branch = match circuit + 1 == circuits {
                true => Branch::Leaf(leaf),
                false => Branch::Recycle(circuit + 1),
            };
            tree.entries.insert(circuit, [Some(branch); 2]);
        }
        tree
    }

    /// Adds a leaf; returns how many entries changed: none if it was there already.
    pub fn add(&mut self, leaf: Leaf) -> usize {
        if self.leaves.contains_key(&leaf) {
            return 0;
        }
        self.nearest.push_back(leaf);
        let root = self.entries.entry(ROOT).or_default();
        if let Some(side) = root.iter().position(Option::is_none) {
            root[side] = Some(Branch::Leaf(leaf));
            self.leaves.insert(leaf, (ROOT, side));
            return 1;
        }
        let known = |leaf: &Leaf| self.leaves.contains_key(leaf);
        let moved = loop {
            let nearest = self.nearest.pop_front().expect("a full root has leaves");
            if known(&nearest) {
                break nearest;
            }
        };
        let (circuit, side) = self.leaves[&moved];
        self.circuits += 1;
        let fresh = self.circuits;
        self.entries.entry(circuit).or_default()[side] = Some(Branch::Recycle(fresh));
        self.entries.insert(fresh, [Some(Branch::Leaf(moved)), Some(Branch::Leaf(leaf))]);
        self.leaves.insert(moved, (fresh, 0));
        self.leaves.insert(leaf, (fresh, 1));
        self.nearest.push_back(moved);
        2
    }

    /// Removes a leaf; returns how many entries changed. Its sibling moves up.
    pub fn remove(&mut self, leaf: Leaf) -> usize {
        let Some((circuit, side)) = self.leaves.remove(&leaf) else { return 0 };
        self.nearest.retain(|&other| other != leaf);
        let entry = self.entries.get_mut(&circuit).expect("a leaf has an entry");
        if circuit == ROOT {
            entry[side] = None;
            return 1;
        }
        let beside = entry[1 - side];
        self.entries.remove(&circuit);
        let back = Some(Branch::Recycle(circuit));
        let above = self.entries.iter().find_map(|(&above, entry)| {
            let side = entry.iter().position(|&branch| branch == back)?;
            Some((above, side))
        });
        let (above, side) = above.expect("every circuit but the root has a parent");
        self.entries.get_mut(&above).expect("it was just found")[side] = beside;
        if let Some(Branch::Leaf(other)) = beside {
            self.leaves.insert(other, (above, side));
        }
        2
    }

    /// All copies of a cell, in the order of passes.
    pub fn copy(&self) -> Vec<Copy> {
        let mut waiting = VecDeque::from([(ROOT, 1)]);
        let mut copies = Vec::new();
        while let Some((circuit, passes)) = waiting.pop_front() {
            for branch in self.entries.get(&circuit).into_iter().flatten().flatten() {
                match *branch {
                    Branch::Leaf(leaf) => copies.push(Copy { leaf, passes }),
                    Branch::Recycle(next) => waiting.push_back((next, passes + 1)),
                }
            }
        }
        copies
    }

    /// Cells recycled for each cell that arrives.
    pub fn recycled(&self) -> usize {
        let branches = self.entries.values().flatten().flatten();
        branches.filter(|branch| matches!(branch, Branch::Recycle(_))).count()
    }
    /// Entries of the table.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leaf(port: u16) -> Leaf {
        Leaf { port, vci: 40 + port }
    }

    #[test]
    fn copies_need_log_2_passes() {
        let mut tree = Tree::default();
        for leaves in 1..=200u16 {
            assert!(tree.add(leaf(leaves)) <= 2);
            let copies = tree.copy();
            let mut ports: Vec<u16> = copies.iter().map(|copy| copy.leaf.port).collect();
            ports.sort_unstable();
            assert!(ports.into_iter().eq(1..=leaves), "each leaf gets each cell once");
            let passes = copies.iter().map(|copy| copy.passes).max().unwrap();
            let doublings = u32::from(leaves).next_power_of_two().trailing_zeros().max(1);
            assert_eq!(passes, doublings, "{leaves}");
            assert_eq!(tree.entries(), usize::from(leaves.max(2)) - 1);
            assert_eq!(tree.recycled(), usize::from(leaves.max(2)) - 2);
        }
    }

    /// §6.1: traffic "can be amplified by 2^n by copying and recycling cells through n VCIs".
    #[test]
    fn each_circuit_in_a_chain_doubles_the_cells() {
        for circuits in 1..10 {
            assert_eq!(Tree::amplifier(circuits, leaf(1)).copy().len(), 1 << circuits);
        }
    }

    proptest! {
        #[test]
        fn leaves_join_and_leave_and_each_gets_one_copy(
            changes in prop::collection::vec((any::<bool>(), 0u16..20), 0..120),
        ) {
            let mut tree = Tree::default();
            let mut members = std::collections::BTreeSet::new();
            for (add, port) in changes {
                let changed = match add {
                    true => { members.insert(port); tree.add(leaf(port)) }
                    false => { members.remove(&port); tree.remove(leaf(port)) }
                };
                prop_assert!(changed <= 2);
                let mut ports: Vec<u16> =
                    tree.copy().iter().map(|copy| copy.leaf.port).collect();
                ports.sort_unstable();
                prop_assert_eq!(ports, members.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}
