//! The longest prefix of a rule that matches an address: an expanded trie with strides of 16, 8 and 8 bits.
//!
//! ```text
//! root  65,536 entries: row | child --> middle node of 256: row | child --> last node of 256: row
//! ```
//!
//! Every address takes three loads whatever the prefixes, and those of many addresses overlap: this suits a
//! classifier, most of whose addresses are hosts. Rows and children have 16 bits: there are fewer than
//! 16,384 rules, and a last node takes 512 bytes. With Tree Bitmaps, which need less memory, the two addresses
//! of a packet took 24 ns of 51 with 1,000 rules.
//!
//! Source: Srinivasan and Varghese, "Fast address lookups using controlled prefix expansion", ACM TOCS
//! 17(1), 1999.

use crate::lookup::Prefix;
use std::hint::select_unpredictable;

/// Bits resolved by the root and by a node.
const STRIDES: [u8; 3] = [16, 8, 8];
const NODE: usize = 1 << STRIDES[1];

/// An entry of the root or of a middle node: the row of the longest prefix, and the child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    row: u16,
    child: u16,
}

/// The nodes of a level. Node 0 is empty, and serves as the child of every entry that has none.
#[derive(Debug)]
struct Nodes<E> {
    entries: Vec<E>,
    /// How many prefixes lie below each node.
    prefixes: Vec<u32>,
    free: Vec<u16>,
}

/// Rows by prefix; row 0 is none.
#[derive(Debug)]
pub(super) struct Trie {
    root: Vec<Entry>,
    middle: Nodes<Entry>,
    last: Nodes<u16>,
    /// The length of each row's prefix.
    lens: Vec<u8>,
}

impl<E: Copy + Default> Nodes<E> {
    fn new() -> Nodes<E> {
        Nodes { entries: vec![E::default(); NODE], prefixes: vec![0], free: Vec::new() }
    }
    #[inline(always)]
    fn entry(&self, node: u16, bits: u32) -> E {
        self.entries.as_chunks::<NODE>().0[usize::from(node)][bits as usize % NODE]
    }
    fn node(&mut self, node: u16) -> &mut [E; NODE] {
        &mut self.entries.as_chunks_mut::<NODE>().0[usize::from(node)]
    }
    /// An entry's child, which is created if absent; one more prefix lies below it.
    fn lead(&mut self, child: u16) -> u16 {
        let child = if child == 0 { self.allocate() } else { child };
        self.prefixes[usize::from(child)] += 1;
        child
    }
    /// The child of an entry below which a prefix was removed; none if that was the last one.
    fn leave(&mut self, child: u16) -> u16 {
        let prefixes = &mut self.prefixes[usize::from(child)];
        *prefixes -= 1;
        if *prefixes > 0 {
            return child;
        }
        // A node without prefixes is all zeros, and may be reused.
        self.free.push(child);
        0
    }
    fn allocate(&mut self) -> u16 {
        self.free.pop().unwrap_or_else(|| {
            self.entries.resize(self.entries.len() + NODE, E::default());
            self.prefixes.push(0);
            u16::try_from(self.prefixes.len() - 1).expect("there are fewer rules than node numbers")
        })
    }
    fn bytes(&self) -> usize {
        size_of_val(self.entries.as_slice())
    }
}

/// The value of a prefix's bits from `depth` on, at most `stride`, and how many entries it covers.
fn place(prefix: Prefix<u32>, depth: u8, stride: u8) -> (usize, usize) {
    let first = (prefix.key() << depth >> (32 - stride)) as usize;
    (first, 1 << (depth + stride).saturating_sub(prefix.len()))
}

impl Trie {
    pub(super) fn new() -> Trie {
        Trie {
            root: vec![Entry::default(); 1 << STRIDES[0]],
            middle: Nodes::new(),
            last: Nodes::new(),
            lens: vec![0],
        }
    }
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.root.as_slice()) + self.middle.bytes() + self.last.bytes()
    }

    /// Replaces each address by the row of its longest prefix. No branch depends on an
    /// address, and each load has its own loop, so that the loads of different addresses overlap.
    #[inline(always)]
    pub(super) fn lookup<const N: usize>(&self, addresses: &mut [u32; N], count: usize) {
        let count = count.min(N);
        let (mut rows, mut children) = ([0_u16; N], [0_u16; N]);
        let root = &self.root[..1 << STRIDES[0]];
        for at in 0..count {
            let Entry { row, child } = root[(addresses[at] >> 16) as usize];
            (rows[at], children[at]) = (row, child);
        }
        for at in 0..count {
            let Entry { row, child } = self.middle.entry(children[at], addresses[at] >> 8);
            rows[at] = select_unpredictable(row != 0, row, rows[at]);
            children[at] = child;
        }
        for at in 0..count {
            let row = self.last.entry(children[at], addresses[at]);
            addresses[at] = select_unpredictable(row != 0, row, rows[at]).into();
        }
    }

    /// Applies `change` to the row of each entry of a prefix, whose nodes exist.
    fn change(&mut self, prefix: Prefix<u32>, change: impl Fn(&[u8], u16) -> u16) {
        let [first, second, third] = STRIDES;
        let (at, count) = place(prefix, 0, first);
        let change = |row: &mut u16| *row = change(&self.lens, *row);
        if prefix.len() <= first {
            return self.root[at..at + count]
                .iter_mut()
                .map(|entry| &mut entry.row)
                .for_each(change);
        }
        let child = self.root[at].child;
        let (at, count) = place(prefix, first, second);
        let node = self.middle.node(child);
        if prefix.len() <= first + second {
            return node[at..at + count].iter_mut().map(|entry| &mut entry.row).for_each(change);
        }
        let child = node[at].child;
        let (at, count) = place(prefix, first + second, third);
        self.last.node(child)[at..at + count].iter_mut().for_each(change);
    }
    /// Adds a prefix, which must not be present, with its row.
    pub(super) fn insert(&mut self, prefix: Prefix<u32>, row: u16) {
        if self.lens.len() <= usize::from(row) {
            self.lens.resize(usize::from(row) + 1, 0);
        }
        self.lens[usize::from(row)] = prefix.len();
        let [first, second, _] = STRIDES;
        if prefix.len() > first {
            let above = &mut self.root[place(prefix, 0, first).0].child;
            *above = self.middle.lead(*above);
            if prefix.len() > first + second {
                let above = &mut self.middle.node(*above)[place(prefix, first, second).0].child;
                *above = self.last.lead(*above);
            }
        }
        let len = prefix.len();
        self.change(
            prefix,
            |lens, now| {
                if now == 0 || lens[usize::from(now)] < len { row } else { now }
            },
        );
    }
    /// Removes a prefix; `shorter` is the row of the longest prefix that contains it, 0 if there is none.
    pub(super) fn remove(&mut self, prefix: Prefix<u32>, row: u16, shorter: u16) {
        let [first, second, _] = STRIDES;
        let depth = [0, first, first + second];
        let depth = depth.into_iter().rfind(|&depth| depth < prefix.len()).unwrap_or(0);
        // The shorter one's entries may be nearer to the root.
        let here = shorter != 0 && (depth == 0 || self.lens[usize::from(shorter)] > depth);
        let shorter = if here { shorter } else { 0 };
        self.change(prefix, |_, now| if now == row { shorter } else { now });
        if prefix.len() > first {
            let above = &mut self.root[place(prefix, 0, first).0].child;
            if prefix.len() > first + second {
                let above = &mut self.middle.node(*above)[place(prefix, first, second).0].child;
                *above = self.last.leave(*above);
            }
            *above = self.middle.leave(*above);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;
    use std::collections::BTreeMap;

    #[test]
    fn it_agrees_with_a_scan_under_changes_and_frees_its_nodes() {
        let mut random = Stream::new(1, "trie");
        let (mut trie, mut here) = (Trie::new(), BTreeMap::new());
        let mut rows: Vec<u16> = (1..400).rev().collect();
        for step in 0..4_000 {
            let key = 0x0a00_0000 + random.below(4) as u32 * 0x0001_0101;
            let len = 1 + random.below(32) as u8;
            let prefix = Prefix::new(key, len).unwrap();
            let around = |here: &BTreeMap<Prefix<u32>, u16>| {
                let shorter = here.iter().filter(|(other, _)| other.len() < len);
                let around = shorter.filter(|(other, _)| other.contains(prefix.key()));
                around.max_by_key(|(other, _)| other.len()).map_or(0, |(_, &row)| row)
            };
            match here.remove(&prefix) {
                Some(row) => {
                    trie.remove(prefix, row, around(&here));
                    rows.push(row);
                }
                None => {
                    let row = rows.pop().unwrap();
                    trie.insert(prefix, row);
                    here.insert(prefix, row);
                }
            }
            if step % 40 == 0 {
                let near = |random: &mut Stream| 0x0a00_0000 + random.below(5) as u32 * 0x0001_0101;
                let mut addresses: Vec<u32> = (0..64).map(|_| near(&mut random)).collect();
                addresses.extend((0..8).map(|_| random.bits() as u32));
                for address in addresses {
                    let all = here.iter().filter(|(prefix, _)| prefix.contains(address));
                    let longest = all.max_by_key(|(prefix, _)| prefix.len());
                    let mut found = [address, 7];
                    trie.lookup(&mut found, 1);
                    let expected = longest.map_or(0, |(_, &row)| u32::from(row));
                    assert_eq!(found, [expected, 7], "{address:08x}");
                }
            }
        }
        for (prefix, row) in std::mem::take(&mut here) {
            trie.remove(prefix, row, 0);
        }
        let none = Entry::default();
        assert!(trie.middle.entries.iter().chain(&trie.root).all(|entry| *entry == none));
        assert!(trie.last.entries.iter().all(|row| *row == 0));
        assert_eq!(trie.middle.free.len(), trie.middle.prefixes.len() - 1);
        assert_eq!(trie.last.free.len(), trie.last.prefixes.len() - 1);
    }
}
