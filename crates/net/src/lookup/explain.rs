//! The nodes that a lookup visits.
//!
//! ```
//! use lastmeter_net::lookup::{NextHop, Options, Prefix, TreeBitmap};
//! let mut table = TreeBitmap::new(Options::FIPL);
//! let prefix = Prefix::new(0x8000_0000_u32, 2).expect("2 <= 32");
//! table.insert(prefix, NextHop::new(3).expect("not zero"))?;
//! let steps = table.explain(0x80fc_99a0).steps;
//! assert_eq!(steps[0].internal, "0 00 0010 00000000");
//! # Ok::<(), lastmeter_net::lookup::Full>(())
//! ```
//!
//! Rows: D-129.

use super::key::{Key, Prefix};
use super::node::{Node, TOP, matches, rank, slot_place};
use super::{NextHop, TreeBitmap};

/// The path of one key through a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation<K> {
    /// The last array's entry; `None` without an array.
    pub entry: Option<Entry>,
    /// The nodes, in order.
    pub steps: Vec<Step>,
    /// The longest prefix that matches, with its next hop.
    pub longest: Option<(Prefix<K>, NextHop)>,
}

/// The entry of the arrays at which a search ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How many of the key's first bits selected it.
    pub bits: u8,
    /// Their value.
    pub number: u32,
    /// The next hop of the longest match within them.
    pub next_hop: Option<NextHop>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The first bit of the key that it examines.
    pub depth: u32,
    /// Index of its word.
    pub address: u32,
    /// The key's bits that it examines, the first at the top: `1000`.
    pub bits: String,
    /// The internal prefix bitmap, grouped by level: `1 00 0110 00000010`.
    pub internal: String,
    /// The extending paths bitmap; in an end node, that of the longest prefixes.
    pub external: String,
    /// Whether it is an end node.
    pub end: bool,
    /// The longest match inside: its length from the key's first bit, the rank of its next hop, and
    /// the next hop.
    pub matched: Option<(u32, u32, NextHop)>,
    /// The rank of the child in which the search continues.
    pub child: Option<u32>,
}

impl<K: Key> TreeBitmap<K> {
    /// What a lookup of `key` visits.
    pub fn explain(&self, key: K) -> Explanation<K> {
        let (memory, shape, arrays) = self.parts();
        let (entry, bits) = arrays.entry(memory, key);
        let in_array = (shape.initial > 0).then(|| Entry {
            bits,
            number: arrays.number(key, bits),
            next_hop: NextHop::new(memory.half(2 * entry)),
        });
        let mut steps = Vec::new();
        // An entry of an earlier step points to nothing, or the search would have continued.
        let (mut at, mut depth) = (memory.half(2 * entry + 1), shape.initial);
        let mut longest = None;
        while at != 0 {
            let node = Node::read(memory.words(), at);
            let step = self.explain_node(&node, at, key, depth);
            longest = step.matched.map(|(len, _, hop)| (len, hop)).or(longest);
            at = step.child.map_or(0, |rank| memory.half(slot_place(at, rank)));
            depth += shape.stride;
            steps.push(step);
        }
        let prefix = |(len, hop)| Some((Prefix::new(key, len as u8)?, hop));
        let longest = longest.and_then(prefix).or_else(|| arrays.longest(key));
        Explanation { entry: in_array, steps, longest }
    }

    fn explain_node(&self, node: &Node, at: u32, key: K, depth: u32) -> Step {
        let shape = self.parts().1;
        let value = shape.value(key.window(depth));
        let external = TOP << value;
        let rank_outside = rank(node.external, external);
        let matching = node.internal & matches(value.into(), shape.stride);
        let inside = (matching != 0).then(|| {
            let place = matching.ilog2();
            let (len, rank) = ((place + 1).ilog2(), rank(node.internal, TOP << place));
            (depth + len, rank, node.hops()[rank as usize])
        });
        let extends = node.external & external != 0;
        let outside = (extends && node.end)
            .then(|| (depth + shape.stride, rank_outside, node.slots()[rank_outside as usize]));
        let matched = outside.or(inside);
        Step {
            depth,
            address: at,
            bits: format!("{value:0width$b}", width = shape.stride as usize),
            internal: levels(node.internal, shape.stride),
            external: binary(node.external, 1 << shape.stride),
            end: node.end,
            matched: matched.and_then(|(len, rank, hop)| Some((len, rank, NextHop::new(hop)?))),
            child: (extends && !node.end).then_some(rank_outside),
        }
    }
}

/// The first `count` bits of a bitmap, the first on the left.
fn binary(word: u64, count: u32) -> String {
    (0..count).map(|place| if word & TOP << place != 0 { '1' } else { '0' }).collect()
}

/// An internal bitmap, grouped by level as in Fig 24.
fn levels(bitmap: u64, stride: u32) -> String {
    let level = |len: u32| binary(bitmap >> ((1 << len) - 1), 1 << len);
    (0..stride).map(level).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::Options;

    /// The prefixes of Fig 23, for which the text gives the bitmaps of the root.
    fn figure() -> TreeBitmap<u32> {
        let mut table = TreeBitmap::new(Options::FIPL);
        let mut insert = |bits: u32, len: u8, hop: u32| {
            let prefix = Prefix::new(bits, len).expect("at most 32");
            table.insert(prefix, NextHop::new(hop).expect("not zero")).expect("there is room");
        };
        insert(0, 0, 1);
        insert(0x4000_0000, 2, 2);
        insert(0x8000_0000, 2, 3);
        insert(0xc000_0000, 3, 4);
        // A child at each odd value up to five; the figure does not show their contents.
        insert(0x1000_0000, 5, 5);
        insert(0x3000_0000, 5, 6);
        insert(0x5000_0000, 5, 7);
        table
    }

    #[test]
    fn the_root_of_figures_23_and_24_is_coded_bit_by_bit_d_129_d_130() {
        let table = figure();
        let explained = table.explain(0x80fc_99a0);
        assert_eq!(explained.steps.len(), 1);
        let root = &explained.steps[0];
        assert_eq!(root.internal, "1 00 0110 00000010");
        assert_eq!(&root.external[..6], "010101");
        assert_eq!(root.bits, "1000");
        // 128.252.153.160 matches 10*, whose next hop is the third of the root's.
        assert_eq!(root.matched, Some((2, 2, NextHop::new(3).expect("not zero"))));
        assert_eq!(table.lookup(0x80fc_99a0), NextHop::new(3));
        assert_eq!(explained.longest.map(|(prefix, _)| prefix.len()), Some(2));
    }

    #[test]
    fn an_explanation_ends_where_the_lookup_does() {
        let table = figure();
        for key in (0..=u32::MAX).step_by(0x0101_0101) {
            let longest = table.explain(key).longest;
            assert_eq!(longest.map(|(_, hop)| hop), table.lookup(key), "{key:x}");
            assert!(longest.is_none_or(|(prefix, _)| prefix.contains(key)));
        }
    }
}
