//! Which prefix of a rule an address has: an expanded trie with strides of 16, 8 and 8 bits.
//!
//! ```text
//! root  65,536 entries: row | child --> node of 256: row | child --> node of 256: row
//! ```
//!
//! Every address takes three loads whatever the prefixes, and those of many addresses overlap: what a
//! classifier wants, most of whose addresses are hosts. With Tree Bitmaps, which need far less memory, the two
//! addresses of a packet took 24 ns of 51 with 1,000 rules; they take about 10.
//!
//! Source: Srinivasan and Varghese, "Fast address lookups using controlled prefix expansion", ACM TOCS
//! 17(1), 1999.

use crate::lookup::Prefix;
use std::hint::select_unpredictable;

/// Bits that the root's entries and a node's tell apart.
const STRIDES: [u8; 3] = [16, 8, 8];
const NODE: usize = 1 << STRIDES[1];
const ROW: usize = 0;
const CHILD: usize = 1;

/// Rows by prefix; row 0 is none. Node 0 is empty, and the child of every entry that has none.
#[derive(Debug)]
pub(super) struct Trie {
    root: Vec<[u32; 2]>,
    nodes: Vec<[u32; 2]>,
    /// How many prefixes each node leads to.
    prefixes: Vec<u32>,
    free: Vec<u32>,
    /// How long the prefix of each row is.
    lens: Vec<u8>,
}

/// Where the entries of a prefix stand: in the root or a node, one after the other.
#[derive(Clone, Copy)]
struct Place {
    node: Option<u32>,
    first: usize,
    count: usize,
    /// Bits before those that the node looks at.
    depth: u8,
}

impl Trie {
    pub(super) fn new() -> Trie {
        Trie {
            root: vec![[0; 2]; 1 << STRIDES[0]],
            nodes: vec![[0; 2]; NODE],
            prefixes: vec![0],
            free: Vec::new(),
            lens: vec![0],
        }
    }
    pub(super) fn bytes(&self) -> usize {
        (self.root.len() + self.nodes.len()) * size_of::<[u32; 2]>()
    }

    /// The row of the longest prefix of an address. No branch depends on it.
    #[inline(always)]
    pub(super) fn lookup(&self, address: u32) -> u32 {
        let root = self.root[(address >> 16) as usize];
        let middle = self.entry(root[CHILD], address >> 8);
        let last = self.entry(middle[CHILD], address);
        let longest = select_unpredictable(middle[ROW] != 0, middle[ROW], root[ROW]);
        select_unpredictable(last[ROW] != 0, last[ROW], longest)
    }
    #[inline(always)]
    fn entry(&self, node: u32, bits: u32) -> [u32; 2] {
        let nodes = self.nodes.as_chunks::<NODE>().0;
        nodes[node as usize][bits as usize % NODE]
    }

    fn entries(&mut self, node: Option<u32>) -> &mut [[u32; 2]] {
        match node {
            None => &mut self.root,
            Some(node) => &mut self.nodes.as_chunks_mut::<NODE>().0[node as usize],
        }
    }
    /// Where a prefix' entries stand; `step` says which node follows an entry on the way there.
    fn walk(
        &mut self,
        prefix: Prefix<u32>,
        mut step: impl FnMut(&mut Trie, Option<u32>, usize) -> u32,
    ) -> Place {
        let (mut node, mut depth) = (None, 0);
        for stride in STRIDES {
            let first = (prefix.key() << depth >> (32 - stride)) as usize;
            if prefix.len() <= depth + stride {
                return Place { node, first, count: 1 << (depth + stride - prefix.len()), depth };
            }
            node = Some(step(self, node, first));
            depth += stride;
        }
        unreachable!("a prefix has at most as many bits as the strides have together")
    }
    fn allocate(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.nodes.resize(self.nodes.len() + NODE, [0; 2]);
            self.prefixes.push(0);
            self.prefixes.len() as u32 - 1
        })
    }

    /// Adds a prefix, which must not be there, with its row.
    pub(super) fn insert(&mut self, prefix: Prefix<u32>, row: u32) {
        if self.lens.len() <= row as usize {
            self.lens.resize(row as usize + 1, 0);
        }
        self.lens[row as usize] = prefix.len();
        let place = self.walk(prefix, |trie, node, at| {
            if trie.entries(node)[at][CHILD] == 0 {
                trie.entries(node)[at][CHILD] = trie.allocate();
            }
            let child = trie.entries(node)[at][CHILD];
            trie.prefixes[child as usize] += 1;
            child
        });
        for at in place.first..place.first + place.count {
            let now = self.entries(place.node)[at][ROW];
            if now == 0 || self.lens[now as usize] < prefix.len() {
                self.entries(place.node)[at][ROW] = row;
            }
        }
    }
    /// Removes a prefix; `shorter` is the row of the longest one around it, 0 if there is none.
    pub(super) fn remove(&mut self, prefix: Prefix<u32>, row: u32, shorter: u32) {
        let place = self.walk(prefix, |trie, node, at| trie.entries(node)[at][CHILD]);
        // The shorter one's entries may stand nearer to the root.
        let here = shorter != 0 && self.lens[shorter as usize] > place.depth;
        let shorter = if here { shorter } else { 0 };
        let entries = &mut self.entries(place.node)[place.first..place.first + place.count];
        entries.iter_mut().filter(|entry| entry[ROW] == row).for_each(|entry| entry[ROW] = shorter);
        // A node without prefixes is all zeros, and may be used again.
        self.walk(prefix, |trie, node, at| {
            let child = trie.entries(node)[at][CHILD];
            trie.prefixes[child as usize] -= 1;
            if trie.prefixes[child as usize] == 0 {
                trie.entries(node)[at][CHILD] = 0;
                trie.free.push(child);
            }
            child
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;
    use std::collections::BTreeMap;

    #[test]
    fn it_agrees_with_a_scan_while_prefixes_come_and_go_and_frees_what_it_took() {
        let mut random = Stream::new(1, "trie");
        let (mut trie, mut here) = (Trie::new(), BTreeMap::new());
        let mut rows: Vec<u32> = (1..400).rev().collect();
        for step in 0..4_000 {
            let key = 0x0a00_0000 + random.below(4) as u32 * 0x0001_0101;
            let len = 1 + random.below(32) as u8;
            let prefix = Prefix::new(key, len).unwrap();
            let around = |here: &BTreeMap<Prefix<u32>, u32>| {
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
                    assert_eq!(
                        trie.lookup(address),
                        longest.map_or(0, |(_, &row)| row),
                        "{address:08x}"
                    );
                }
            }
        }
        for (prefix, row) in std::mem::take(&mut here) {
            trie.remove(prefix, row, 0);
        }
        assert!(trie.nodes.iter().chain(&trie.root).all(|entry| *entry == [0; 2]));
        assert_eq!(trie.free.len(), trie.prefixes.len() - 1);
    }
}
