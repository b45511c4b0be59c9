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
use super::node::{END, hop_at, matches, slot_at};
use pulp::{Arch, Simd, WithSimd};
use std::sync::atomic::AtomicU64;

/// Keys that go down the tree in step.
const ROW: usize = 64;
/// Lanes of the widest vectors: the arithmetic is done for so many at once.
const VECTOR: usize = 8;

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

/// What a node says about a value of its bits: the longest match so far, the half word to fetch, and
/// whether that is a pointer to a child and the search goes on (1) or the next hop (0).
///
/// Half words are counted in 64 bits and nothing branches, so that many lanes can be computed at once.
#[inline(always)]
fn judge(node: u64, best: u64, bitmaps: (u64, u64), value: u64, stride: u32) -> (u64, u64, u64) {
    let (internal, external) = bitmaps;
    let matching = internal & matches(value, stride);
    // Below the longest match stand those before it; without one the rank is not used.
    let longest = !u64::from(matching.leading_zeros()) & 63;
    let inner = hop_at(node, rank_below(internal, longest));
    let best = select(matching != 0, inner, best);
    let outer = slot_at(node, rank_below(external, value));
    let extends = external >> value & 1;
    (best, select(extends != 0, outer, best), extends & !(internal / END))
}

/// One of two, without a branch.
#[inline(always)]
fn select(first: bool, one: u64, other: u64) -> u64 {
    let mask = u64::from(first).wrapping_neg();
    one & mask | other & !mask
}

/// How many bits of `bitmap` stand below bit `at`.
#[inline(always)]
fn rank_below(bitmap: u64, at: u64) -> u64 {
    u64::from((bitmap & !(u64::MAX << (at & 63))).count_ones())
}

/// One node: the half word that was fetched, the longest match so far, and whether the search goes on.
#[inline(always)]
fn step(words: &[AtomicU64], lane: Lane, window: u64, stride: u32) -> (Lane, bool) {
    let (node, best) = (u64::from(lane.node), u64::from(lane.best));
    let value = window >> (64 - stride) & 63;
    let (best, at, goes_on) = judge(node, best, bitmaps(words, lane.node), value, stride);
    (Lane { node: half(words, at as u32), best: best as u32 }, goes_on != 0)
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

    /// The next hops of `N` keys, all of which are in flight together and no others.
    pub(super) fn lookup_in_flight<K: Key, const N: usize>(
        &self,
        words: &[AtomicU64],
        keys: &[K; N],
        hops: &mut [Option<NextHop>; N],
    ) {
        const { assert!(N > 0 && N <= ROW, "a lane's number is a byte, and a row has 64") };
        self.arch.dispatch(Few { shape: self, words, keys, hops });
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
    fn row<K: Key, const N: usize>(
        &self,
        words: &[AtomicU64],
        keys: &[K],
        hops: &mut [Option<NextHop>],
        stride: u32,
    ) {
        let mut row = Row::<N> {
            nodes: [0; N],
            best: [0; N],
            windows: [0; N],
            numbers: std::array::from_fn(|number| number as u8),
        };
        for (at, key) in keys.iter().enumerate().take(N) {
            let window = key.window(0);
            row.place(at, self.enter(words, window), window);
        }
        let (mut going, mut depth, mut base) = (keys.len().min(N), self.initial, 0);
        while going > 0 && depth <= u32::from(K::BITS) {
            if depth + stride > base + 64 {
                base = depth;
                for (window, &number) in row.windows.iter_mut().zip(&row.numbers).take(going) {
                    *window = keys.get(usize::from(number)).map_or(0, |key| key.window(depth));
                }
            }
            going = row.level(words, hops, going, (depth - base, stride));
            depth += stride;
        }
    }
}

/// Keys that go down the tree in step: lanes, of which those that go on stand first.
struct Row<const N: usize> {
    nodes: [u64; N],
    /// For each lane, the next hop of the longest match so far, in half words.
    best: [u64; N],
    /// For each lane, the bits that are looked at in this level and some after it.
    windows: [u64; N],
    /// Which key a lane's is.
    numbers: [u8; N],
}

impl<const N: usize> Row<N> {
    #[inline(always)]
    fn place(&mut self, at: usize, lane: Lane, window: u64) {
        let at = at % N;
        (self.nodes[at], self.best[at]) = (lane.node.into(), lane.best.into());
        self.windows[at] = window;
    }

    /// One node of each lane; the lanes that go on move together, and it says how many they are.
    ///
    /// The loads of all bitmaps, the arithmetic of all lanes, and the loads of what it chose follow
    /// each other, so that loads overlap and the arithmetic fills vectors. Each load's outcome is taken
    /// for the key's next hop; that of the last one is.
    #[inline(always)]
    fn level(
        &mut self,
        words: &[AtomicU64],
        hops: &mut [Option<NextHop>],
        going: usize,
        (offset, stride): (u32, u32),
    ) -> usize {
        let going = going.min(N);
        let (mut internal, mut external) = ([0; N], [0; N]);
        for at in 0..going {
            (internal[at], external[at]) = bitmaps(words, self.nodes[at] as u32);
        }
        let (mut halves, mut goes_on) = ([0; N], [0; N]);
        for at in 0..going.next_multiple_of(VECTOR).min(N) {
            let value = (self.windows[at] << (offset & 63)) >> (64 - stride) & 63;
            let both = (internal[at], external[at]);
            (self.best[at], halves[at], goes_on[at]) =
                judge(self.nodes[at], self.best[at], both, value, stride);
        }
        let mut still = 0;
        for at in 0..going {
            let lane = Lane { node: half(words, halves[at] as u32), best: self.best[at] as u32 };
            let number = self.numbers[at];
            if let Some(hop) = hops.get_mut(usize::from(number)) {
                *hop = NextHop::new(lane.node);
            }
            self.numbers[still % N] = number;
            self.place(still, lane, self.windows[at]);
            still += goes_on[at] as usize;
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
                6 => self.shape.row::<K, ROW>(self.words, keys, hops, 6),
                stride => self.shape.row::<K, ROW>(self.words, keys, hops, stride),
            }
        }
    }
}

/// Searches of which so many are in flight together, to be compiled for several processors.
struct Few<'a, K, const N: usize> {
    shape: &'a Shape,
    words: &'a [AtomicU64],
    keys: &'a [K; N],
    hops: &'a mut [Option<NextHop>; N],
}

impl<K: Key, const N: usize> WithSimd for Few<'_, K, N> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.shape.stride {
            6 => self.shape.row::<K, N>(self.words, self.keys, self.hops, 6),
            stride => self.shape.row::<K, N>(self.words, self.keys, self.hops, stride),
        }
    }
}
