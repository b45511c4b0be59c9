//! A node of Tree Bitmap, decoded.

use super::memory::{Memory, bitmaps, half};
use std::sync::atomic::AtomicU64;

/// The bit of the internal bitmap's word for a node without children.
pub(super) const END: u64 = 1 << 63;
/// The internal bitmap's bit for the prefix that ends where the node begins.
pub(super) const TOP: u64 = 1;

/// The longest stride: its external bitmap fills a word.
pub(super) const STRIDE_MAX: u8 = 6;

/// The internal bits of all prefixes that match a value of `stride` bits.
///
/// The prefix of `l` bits with value v has position 2^l - 1 + v. The first position is the lowest bit, so of
/// all matches the longest is the highest.
#[inline(always)]
pub(super) fn matches(value: u64, stride: u32) -> u64 {
    (0..stride).fold(0, |bits, len| bits | TOP << ((1 << len) - 1 + (value >> (stride - len))))
}

/// The internal bitmap's bit for the prefix of `len` bits with this value.
pub(super) const fn internal_bit(len: u8, value: u32) -> u64 {
    TOP << ((1 << len) - 1 + value)
}

/// The number of ones below `bit` in `bitmap`.
pub(super) fn rank(bitmap: u64, bit: u64) -> u32 {
    (bitmap & (bit - 1)).count_ones()
}

/// Position of the next hop of rank `rank`, in half words.
#[inline(always)]
pub(super) fn hop_at(node: u64, rank: u64) -> u64 {
    // A replica's pointers may be anything, so nothing here may overflow.
    (4 * node).wrapping_sub(1 + rank)
}
/// Position of the slot of rank `rank`, in half words.
#[inline(always)]
pub(super) fn slot_at(node: u64, rank: u64) -> u64 {
    4 * node + 4 + rank
}

/// [`hop_at`], for one node.
pub(super) fn hop_place(node: u32, rank: u32) -> u32 {
    hop_at(node.into(), rank.into()) as u32
}
/// [`slot_at`], for one node.
pub(super) fn slot_place(node: u32, rank: u32) -> u32 {
    slot_at(node.into(), rank.into()) as u32
}

/// Bitmaps with the next hops and slots that they count.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The internal prefix bitmap, without the end bit.
    pub(super) internal: u64,
    /// The extending paths bitmap; in an end node the bitmap of the prefixes as long as the stride.
    pub(super) external: u64,
    pub(super) end: bool,
    hops: [u32; 64],
    /// Pointers to children; in an end node next hops.
    slots: [u32; 64],
}

impl Node {
    pub(super) fn new(end: bool) -> Node {
        Node { internal: 0, external: 0, end, hops: [0; 64], slots: [0; 64] }
    }
    pub(super) fn read(words: &[AtomicU64], at: u32) -> Node {
        let (internal, external) = bitmaps(words, at);
        let mut node = Node::new(internal & END != 0);
        (node.internal, node.external) = (internal & !END, external);
        for (rank, hop) in (0..node.internal.count_ones()).zip(&mut node.hops) {
            *hop = half(words, hop_place(at, rank));
        }
        for (rank, slot) in (0..node.external.count_ones()).zip(&mut node.slots) {
            *slot = half(words, slot_place(at, rank));
        }
        node
    }
    /// Writes the node into a new block and returns its position.
    pub(super) fn write(&self, memory: &mut Memory) -> u32 {
        let (hops, slots) = self.pairs();
        let at = memory.allocate(hops + 1 + slots) + hops;
        let word = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        for pair in 0..hops {
            let [h0, h1, h2, h3] = four(&self.hops, pair);
            memory.put(at - 1 - pair, [word(h3, h2), word(h1, h0)]);
        }
        let end = if self.end { END } else { 0 };
        memory.put(at, [self.internal | end, self.external]);
        for pair in 0..slots {
            let [s0, s1, s2, s3] = four(&self.slots, pair);
            memory.put(at + 1 + pair, [word(s0, s1), word(s2, s3)]);
        }
        at
    }
    /// Pairs of words of next hops and of slots.
    fn pairs(&self) -> (u32, u32) {
        (self.internal.count_ones().div_ceil(4), self.external.count_ones().div_ceil(4))
    }
    /// The block of this node at `at`: its start and length.
    pub(super) fn block(&self, at: u32) -> (u32, u32) {
        let (hops, slots) = self.pairs();
        (at - hops, hops + 1 + slots)
    }
    pub(super) fn is_empty(&self) -> bool {
        self.internal | self.external == 0
    }
    /// Whether all it holds is the prefix that ends where it begins.
    pub(super) fn is_top_only(&self) -> bool {
        self.internal == TOP && self.external == 0
    }
    pub(super) fn hops(&self) -> &[u32] {
        &self.hops[..self.internal.count_ones() as usize]
    }
    pub(super) fn slots(&self) -> &[u32] {
        &self.slots[..self.external.count_ones() as usize]
    }
    pub(super) fn slots_mut(&mut self) -> &mut [u32] {
        &mut self.slots[..self.external.count_ones() as usize]
    }

    pub(super) fn insert_hop(&mut self, bit: u64, hop: u32) {
        insert(&mut self.internal, &mut self.hops, bit, hop);
    }
    pub(super) fn remove_hop(&mut self, bit: u64) -> u32 {
        remove(&mut self.internal, &mut self.hops, bit)
    }
    pub(super) fn insert_slot(&mut self, bit: u64, slot: u32) {
        insert(&mut self.external, &mut self.slots, bit, slot);
    }
    pub(super) fn remove_slot(&mut self, bit: u64) -> u32 {
        remove(&mut self.external, &mut self.slots, bit)
    }
}

fn four(items: &[u32; 64], pair: u32) -> [u32; 4] {
    items.as_chunks::<4>().0[pair as usize]
}

fn insert(bitmap: &mut u64, items: &mut [u32; 64], bit: u64, item: u32) {
    debug_assert_eq!(*bitmap & bit, 0, "the position is free");
    let (rank, len) = (rank(*bitmap, bit) as usize, bitmap.count_ones() as usize);
    items.copy_within(rank..len, rank + 1);
    items[rank] = item;
    *bitmap |= bit;
}

fn remove(bitmap: &mut u64, items: &mut [u32; 64], bit: u64) -> u32 {
    debug_assert_ne!(*bitmap & bit, 0, "the position is occupied");
    let (rank, len) = (rank(*bitmap, bit) as usize, bitmap.count_ones() as usize);
    let item = items[rank];
    items.copy_within(rank + 1..len, rank);
    // Blocks are compared word by word, so unused words are zero.
    items[len - 1] = 0;
    *bitmap &= !bit;
    item
}
