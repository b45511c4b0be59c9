//! The search: one key, or many that take turns.
//!
//! A key costs a load of its entry in the initial array, two loads (the bitmaps, side by side) for each
//! node, and one for the next hop, which is fetched only at the end. The loads of one key wait for each
//! other; those of different keys do not. So many keys go down the tree in step, a level at a time, and
//! while one key's load is under way the processor computes for the others (D-131). Keys whose search
//! has ended leave the row; no branch depends on a key.

use super::NextHop;
use super::key::Key;
use super::memory::{RESERVED, bitmaps, half, word};
use super::node::{END, MATCHES, hop_at, slot_at};
use pulp::{Arch, Simd, WithSimd};
use std::hint::select_unpredictable;
use std::sync::atomic::AtomicU64;

/// Keys that go down the tree in step.
const ROW: usize = 64;

/// What a search needs to know about a tree beside its words.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) initial: u32,
    pub(super) stride: u32,
    /// Chooses the form of the search that was compiled for this processor.
    arch: Arch,
}

/// Where a search stands.
#[derive(Clone, Copy)]
struct Lane {
    node: u32,
    /// The next hop of the longest match so far, in half words.
    best: u32,
}

/// One node: the half word that was fetched, the longest match so far, and whether that half word is a
/// pointer to a child and the search goes on; otherwise it is the next hop.
#[inline(always)]
fn step(words: &[AtomicU64], lane: Lane, window: u64, stride: u32) -> (Lane, bool) {
    let (internal, external) = bitmaps(words, lane.node);
    let value = (window >> (64 - stride)) & 63;
    let matching = internal & MATCHES[(stride & 7) as usize % MATCHES.len()][value as usize];
    // Below the longest match stand those before it; without one the rank is not used.
    let longest = !matching.leading_zeros() & 63;
    let inner = hop_at(lane.node, below(internal, longest).count_ones());
    let best = select_unpredictable(matching != 0, inner, lane.best);
    let outer = slot_at(lane.node, below(external, value as u32).count_ones());
    let extends = external >> value;
    let fetched = half(words, select_unpredictable(extends & 1 != 0, outer, best));
    (Lane { node: fetched, best }, extends & !(internal / END) & 1 != 0)
}

/// The bits of `bitmap` below bit `at`.
#[inline(always)]
fn below(bitmap: u64, at: u32) -> u64 {
    bitmap & !(u64::MAX << (at & 63))
}

impl Shape {
    pub(super) fn new(initial: u8, stride: u8) -> Shape {
        Shape { initial: initial.into(), stride: stride.into(), arch: Arch::new() }
    }
    /// The entry of the initial array for keys that begin as this window does.
    #[inline(always)]
    pub(super) fn entry(&self, window: u64) -> u32 {
        RESERVED + window.checked_shr(64 - self.initial).unwrap_or(0) as u32
    }
    /// The value of the bits that a node looks at, at the window's beginning.
    pub(super) fn value(&self, window: u64) -> u32 {
        (window >> (64 - self.stride)) as u32
    }

    #[inline(always)]
    fn enter(&self, words: &[AtomicU64], window: u64) -> Lane {
        let entry = self.entry(window);
        Lane { node: (word(words, entry) >> 32) as u32, best: 2 * entry }
    }

    /// The next hop of one key.
    #[inline]
    pub(super) fn lookup<K: Key>(&self, words: &[AtomicU64], key: K) -> Option<NextHop> {
        self.arch.dispatch(One { shape: self, words, key })
    }

    /// The next hops of many keys, which take turns.
    pub(super) fn lookup_batch<K: Key>(
        &self,
        words: &[AtomicU64],
        keys: &[K],
        hops: &mut [Option<NextHop>],
    ) {
        self.arch.dispatch(Many { shape: self, words, keys, hops });
    }

    #[inline(always)]
    fn one<K: Key>(&self, words: &[AtomicU64], key: K, stride: u32) -> Option<NextHop> {
        let mut lane = self.enter(words, key.window(0));
        let mut depth = self.initial;
        loop {
            let (next, goes_on) = step(words, lane, key.window(depth), stride);
            // A replica that was sent nonsense may hold a loop; keys end.
            if !goes_on || depth > u32::from(K::BITS) {
                return NextHop::new(next.node);
            }
            lane = next;
            depth += stride;
        }
    }

    #[inline(always)]
    fn row<K: Key>(
        &self,
        words: &[AtomicU64],
        keys: &[K],
        hops: &mut [Option<NextHop>],
        stride: u32,
    ) {
        let mut row = Row {
            lanes: [Lane { node: 0, best: 0 }; ROW],
            numbers: std::array::from_fn(|number| number as u8),
            windows: [0; ROW],
            found: [0; ROW],
        };
        for ((lane, window), key) in row.lanes.iter_mut().zip(&mut row.windows).zip(keys) {
            *window = key.window(0);
            *lane = self.enter(words, *window);
        }
        // All nodes are on their way before the first is needed.
        for lane in &row.lanes[..keys.len().min(ROW)] {
            let _ = bitmaps(words, lane.node);
        }
        let (mut going, mut depth, mut base) = (keys.len().min(ROW), self.initial, 0);
        while going > 0 && depth <= u32::from(K::BITS) {
            if depth + stride > base + 64 {
                base = depth;
                for (window, key) in row.windows.iter_mut().zip(keys) {
                    *window = key.window(depth);
                }
            }
            going = row.level(words, going, depth - base, stride);
            depth += stride;
        }
        for (hop, found) in hops.iter_mut().zip(row.found) {
            *hop = NextHop::new(found);
        }
    }
}

/// Keys that go down the tree in step.
struct Row {
    /// Those that go on, the others left out.
    lanes: [Lane; ROW],
    /// Which key a lane's is.
    numbers: [u8; ROW],
    /// For each key, the bits that are looked at in this level and some after it.
    windows: [u64; ROW],
    /// For each key, what was fetched last.
    found: [u32; ROW],
}

impl Row {
    /// One node of each lane; the lanes that go on move together, and it says how many they are.
    #[inline(always)]
    fn level(&mut self, words: &[AtomicU64], going: usize, offset: u32, stride: u32) -> usize {
        let mut still = 0;
        for at in 0..going.min(ROW) {
            let number = usize::from(self.numbers[at]) % ROW;
            let window = self.windows[number] << (offset & 63);
            let (next, goes_on) = step(words, self.lanes[at], window, stride);
            self.found[number] = next.node;
            self.lanes[still % ROW] = next;
            self.numbers[still % ROW] = number as u8;
            still += usize::from(goes_on);
        }
        still
    }
}

/// A search, to be compiled for several processors.
struct One<'a, K> {
    shape: &'a Shape,
    words: &'a [AtomicU64],
    key: K,
}

impl<K: Key> WithSimd for One<'_, K> {
    type Output = Option<NextHop>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Option<NextHop> {
        // Constant strides save instructions; these are the ones that tables have.
        match self.shape.stride {
            6 => self.shape.one(self.words, self.key, 6),
            stride => self.shape.one(self.words, self.key, stride),
        }
    }
}

/// Searches that take turns, to be compiled for several processors.
struct Many<'a, K> {
    shape: &'a Shape,
    words: &'a [AtomicU64],
    keys: &'a [K],
    hops: &'a mut [Option<NextHop>],
}

impl<K: Key> WithSimd for Many<'_, K> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (keys, hops) in self.keys.chunks(ROW).zip(self.hops.chunks_mut(ROW)) {
            match self.shape.stride {
                6 => self.shape.row(self.words, keys, hops, 6),
                stride => self.shape.row(self.words, keys, hops, stride),
            }
        }
    }
}
