//! The longest prefix of a rule that matches an address: an expanded trie with strides of 16, 8 and 8 bits, and so on.
//!
//! ```text
//! root  65,536 slots --> node of 256 --> node of 256 ...     slot: row, or (top bit set) the next node
//! ```
//!
//! A slot without a node has the row of the longest prefix, even one that ends nearer to the root. An IPv4
//! address takes at most three loads, whatever the prefixes, and those of many addresses overlap: this suits a
//! classifier, most of whose addresses are hosts. Slots have 16 bits: there are no more than 16,384 rules. With Tree
//! Bitmaps, which need less memory, a packet's two addresses took 24 of 51 ns with 1,000 rules.
//!
//! Source: Srinivasan and Varghese, "Fast address lookups using controlled prefix expansion", ACM TOCS
//! 17(1), 1999.

use super::rule::Address;
use crate::lookup::Prefix;
use std::marker::PhantomData;

/// Bits resolved by the root and by a node.
const ROOT: u8 = 16;
const STRIDE: u8 = 8;
const NODE: usize = 1 << STRIDE;
/// The bit of a slot that marks the others as a node's number.
const POINTS: u16 = 1 << 15;

/// The nodes of a level. Node 0 is empty.
#[derive(Debug)]
struct Nodes {
    slots: Vec<[u16; NODE]>,
    /// How many prefixes lie below each node.
    prefixes: Vec<u32>,
    free: Vec<u16>,
}

/// Rows by prefix; row 0 is none.
#[derive(Debug)]
pub(super) struct Trie<A> {
    root: Vec<u16>,
    /// The nodes of each level.
    nodes: Vec<Nodes>,
    /// The length of each row's prefix.
    lens: Vec<u8>,
    address: PhantomData<A>,
}

impl Nodes {
    fn new() -> Nodes {
        Nodes { slots: vec![[0; NODE]], prefixes: vec![0], free: Vec::new() }
    }
    /// Follows each address's slot that points to a node to that node's slot.
    #[inline(always)]
    fn next<A: Address, const N: usize>(
        &self,
        slots: &mut [u16; N],
        (addresses, depth): (&[A; N], u32),
        count: usize,
    ) {
        // Only the loads are one by one; the two other loops fill vectors.
        let mut places = [0_u32; N];
        for at in 0..N {
            let (slot, byte) = (slots[at], addresses[at].byte(depth) % NODE);
            let place = u32::from(slot & !POINTS) * NODE as u32 + byte as u32;
            places[at] = if slot & POINTS != 0 { place } else { 0 };
        }
        let table = self.slots.as_flattened();
        let mut found = [0; N];
        for at in 0..count.min(N) {
            found[at] = table[places[at] as usize];
        }
        for at in 0..N {
            slots[at] = if slots[at] & POINTS != 0 { found[at] } else { slots[at] };
        }
    }
    /// The node of a slot, below which there is one more prefix; a new one shows the slot's row everywhere.
    fn lead(&mut self, slot: &mut u16) -> usize {
        if *slot & POINTS == 0 {
            let node = self.free.pop().unwrap_or_else(|| {
                self.slots.push([0; NODE]);
                self.prefixes.push(0);
                u16::try_from(self.prefixes.len() - 1)
                    .ok()
                    .filter(|node| *node < POINTS)
                    .expect("there are fewer rules than node numbers")
            });
            self.slots[usize::from(node)] = [*slot; NODE];
            *slot = POINTS | node;
        }
        let node = usize::from(*slot & !POINTS);
        self.prefixes[node] += 1;
        node
    }
    /// A prefix below a slot's node was removed; if it was the last, all slots of the node show the same, and it goes.
    fn leave(&mut self, slot: &mut u16) {
        let node = *slot & !POINTS;
        let prefixes = &mut self.prefixes[usize::from(node)];
        *prefixes -= 1;
        if *prefixes == 0 {
            *slot = self.slots[usize::from(node)][0];
            self.free.push(node);
        }
    }
    fn bytes(&self) -> usize {
        size_of_val(self.slots.as_slice())
    }
}

/// The value of a prefix's bits from `depth` on, at most `stride`, and how many slots it covers.
fn place<A: Address>(prefix: Prefix<A>, depth: u8, stride: u8) -> (usize, usize) {
    let first = (prefix.key().window(depth.into()) >> (64 - stride)) as usize;
    (first, 1 << (depth + stride).saturating_sub(prefix.len()))
}

/// Applies `change` to the rows of slots and of the nodes below.
fn change(slots: &mut [u16], below: &mut [Nodes], to: &impl Fn(u16) -> u16) {
    for slot in slots {
        if *slot & POINTS == 0 {
            *slot = to(*slot);
        } else if let [next, below @ ..] = &mut *below {
            change(&mut next.slots[usize::from(*slot & !POINTS)], below, to);
        }
    }
}

impl<A: Address> Trie<A> {
    const LEVELS: u32 = ((A::BITS - ROOT) / STRIDE) as u32;

    pub(super) fn new() -> Trie<A> {
        let nodes = (0..Trie::<A>::LEVELS).map(|_| Nodes::new()).collect();
        Trie { root: vec![0; 1 << ROOT], nodes, lens: vec![0], address: PhantomData }
    }
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.root.as_slice()) + self.nodes.iter().map(Nodes::bytes).sum::<usize>()
    }

    /// The row of the longest prefix of each address. No branch depends on an
    /// address, and each load has its own loop, so that the loads of different addresses overlap.
    #[inline(always)]
    pub(super) fn lookup<const N: usize>(&self, addresses: &[A; N], count: usize) -> [u16; N] {
        let count = count.min(N);
        let mut slots = [0_u16; N];
        let root = &self.root[..1 << ROOT];
        for at in 0..count {
            slots[at] = root[(addresses[at].window(0) >> (64 - ROOT)) as usize];
        }
        for (level, nodes) in (0..Trie::<A>::LEVELS).zip(&self.nodes) {
            // Few IPv6 prefixes are long.
            if level >= 2 && slots.iter().all(|slot| slot & POINTS == 0) {
                break;
            }
            nodes.next(&mut slots, (addresses, u32::from(ROOT) + level * u32::from(STRIDE)), count);
        }
        slots
    }

    /// The slots of a prefix at the level where it ends, and the nodes of the levels below. Nodes on the way exist, or
    /// `lead` makes them.
    fn change(
        &mut self,
        prefix: Prefix<A>,
        mut lead: impl FnMut(&mut Nodes, &mut u16) -> usize,
        to: impl Fn(&[u8], u16) -> u16,
    ) {
        let Trie { root, nodes, lens, .. } = self;
        let (mut slots, mut below) = (&mut root[..], &mut nodes[..]);
        let (mut depth, mut stride) = (0, ROOT);
        loop {
            let (at, count) = place(prefix, depth, stride);
            depth += stride;
            if prefix.len() <= depth {
                return change(&mut slots[at..at + count], below, &|now| to(lens, now));
            }
            let Some((next, others)) = std::mem::take(&mut below).split_first_mut() else { return };
            let node = lead(next, &mut slots[at]);
            slots = &mut next.slots[node];
            (below, stride) = (others, STRIDE);
        }
    }
    /// Adds a prefix, which must not be present, with its row.
    pub(super) fn insert(&mut self, prefix: Prefix<A>, row: u16) {
        if self.lens.len() <= usize::from(row) {
            self.lens.resize(usize::from(row) + 1, 0);
        }
        let len = prefix.len();
        self.lens[usize::from(row)] = len;
        // Row 0, which is none, has length 0.
        let to = |lens: &[u8], now| if lens[usize::from(now)] <= len { row } else { now };
        self.change(prefix, Nodes::lead, to);
    }
    /// Removes a prefix; `shorter` is the row of the longest prefix that contains it, 0 if there is none.
    pub(super) fn remove(&mut self, prefix: Prefix<A>, row: u16, shorter: u16) {
        let there = |_: &mut Nodes, slot: &mut u16| usize::from(*slot & !POINTS);
        self.change(prefix, there, |_, now| if now == row { shorter } else { now });
        self.leave(prefix);
    }
    /// A prefix was removed: nodes on its path that have none left go, the last first.
    fn leave(&mut self, prefix: Prefix<A>) {
        let mut way = Vec::new();
        let (mut depth, mut slot) = (ROOT, self.root[place(prefix, 0, ROOT).0]);
        for nodes in &self.nodes {
            if prefix.len() <= depth {
                break;
            }
            let node = usize::from(slot & !POINTS);
            let at = place(prefix, depth, STRIDE).0;
            way.push((node, at));
            (slot, depth) = (nodes.slots[node][at], depth + STRIDE);
        }
        for level in (0..way.len()).rev() {
            let (above, here) = self.nodes.split_at_mut(level);
            let slot = match (above.last_mut(), level.checked_sub(1).map(|above| way[above])) {
                (Some(above), Some((node, at))) => &mut above.slots[node][at],
                _ => &mut self.root[place(prefix, 0, ROOT).0],
            };
            here[0].leave(slot);
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
        let (mut trie, mut here) = (Trie::<u32>::new(), BTreeMap::new());
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
                    let expected = longest.map_or(0, |(_, &row)| row);
                    assert_eq!(trie.lookup(&[address, 7], 1), [expected, 0], "{address:08x}");
                }
            }
        }
        for (prefix, row) in std::mem::take(&mut here) {
            trie.remove(prefix, row, 0);
        }
        assert!(trie.root.iter().all(|slot| *slot == 0));
        for nodes in &trie.nodes {
            assert_eq!(nodes.free.len(), nodes.prefixes.len() - 1);
        }
    }
}
