//! The minimum of many frequently changing keys: a tournament tree.
//!
//! ```text
//!            min                  `set`  climbs from a leaf and stops where nothing changes
//!        min     min              `best` reads the root
//!       a   b   c   d
//! ```
//!
//! One array, no pointers. `set` is O(log n) and usually less, `best` is O(1), `winner` descends to
//! the leaf. It replaces a heap because a key can change without being searched for, and
//! because equal keys have a defined order: the leaf with the lowest number wins.

/// Leaves with keys, and their minimum.
#[derive(Clone, Debug)]
pub(super) struct Tournament<T> {
    /// The root is at 1, the children of `n` at `2n` and `2n + 1`.
    nodes: Vec<T>,
    vacant: T,
}

impl<T: Copy + Ord> Tournament<T> {
    /// Empty; `vacant` is the key of absent entries, and greater than all others.
    pub(super) fn new(vacant: T) -> Tournament<T> {
        Tournament { nodes: vec![vacant; 2], vacant }
    }
    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }
    /// Sets the key of leaf `at`, which is created if absent.
    #[inline]
    pub(super) fn set(&mut self, at: usize, key: T) {
        if at >= self.leaves() {
            self.grow(at);
        }
        let mut node = self.leaves() + at;
        self.nodes[node] = key;
        while node > 1 {
            let least = self.nodes[node].min(self.nodes[node ^ 1]);
            node /= 2;
            if self.nodes[node] == least {
                break;
            }
            self.nodes[node] = least;
        }
    }
    /// Removes leaf `at`.
    #[inline]
    pub(super) fn clear(&mut self, at: usize) {
        self.set(at, self.vacant);
    }
    /// Whether leaf `at` has a key.
    pub(super) fn has(&self, at: usize) -> bool {
        at < self.leaves() && self.nodes[self.leaves() + at] != self.vacant
    }
    /// The least key, if there is any.
    #[inline]
    pub(super) fn best(&self) -> Option<T> {
        (self.nodes[1] != self.vacant).then_some(self.nodes[1])
    }
    /// The leaf with the least key, if there is any.
    pub(super) fn winner(&self) -> Option<usize> {
        let least = self.best()?;
        let mut node = 1;
        while node < self.leaves() {
            node = 2 * node + usize::from(self.nodes[2 * node] != least);
        }
        Some(node - self.leaves())
    }
    /// The least key except that of leaf `at`.
    pub(super) fn best_except(&self, at: usize) -> Option<T> {
        let mut least = self.vacant;
        let mut node = self.leaves() + at;
        while node > 1 && node < self.nodes.len() {
            least = least.min(self.nodes[node ^ 1]);
            node /= 2;
        }
        (least != self.vacant).then_some(least)
    }
    #[cold]
    fn grow(&mut self, at: usize) {
        let old = self.leaves();
        let leaves = (at + 1).next_power_of_two();
        let mut nodes = vec![self.vacant; 2 * leaves];
        nodes[leaves..leaves + old].copy_from_slice(&self.nodes[old..]);
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node].min(nodes[2 * node + 1]);
        }
        self.nodes = nodes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_scan_finds(
            steps in prop::collection::vec((0usize..70, prop::option::of(0u64..50)), 1..200),
        ) {
            let mut tree = Tournament::new(u64::MAX);
            let mut keys = [u64::MAX; 70];
            for (at, key) in steps {
                let key = key.map_or(u64::MAX, |key| key << 32 | at as u64);
                tree.set(at, key);
                keys[at] = key;
                let least = |keys: &mut dyn Iterator<Item = u64>| {
                    keys.min().filter(|&key| key != u64::MAX)
                };
                prop_assert_eq!(tree.best(), least(&mut keys.iter().copied()));
                let winner = least(&mut keys.iter().copied());
                let winner = winner.and_then(|key| keys.iter().position(|&other| other == key));
                prop_assert_eq!(tree.winner(), winner);
                let others = keys.iter().enumerate().filter(|&(other, _)| other != at);
                prop_assert_eq!(tree.best_except(at), least(&mut others.map(|(_, &key)| key)));
            }
        }
    }
}
