//! The search: one key, or many interleaved.
//!
//! A key costs a load of its entry in the initial array, two loads (the bitmaps, side by side) for each
//! node, and one for the next hop, which is fetched only at the end. The loads of one key wait for each
//! other; those of different keys do not. So keys descend the tree in step, a level at a time, and
//! while one key's load is in flight the processor works on the others (D-131). Keys whose search
//! has ended leave the batch; no branch depends on a key.

use super::NextHop;
use super::key::Key;
use super::memory::{RESERVED, bitmaps, half, word};
use super::node::{END, hop_at, matches, slot_at};
use pulp::{Arch, Simd, WithSimd};
use std::sync::atomic::AtomicU64;

/// Number of keys that descend the tree in step.
const ROW: usize = 64;
/// Lanes of the widest vectors: keys processed at once.
const VECTOR: usize = 8;

/// What a search needs besides the words of the tree.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    steps: &'static [u8],
    /// Bits of all steps together.
    pub(super) initial: u32,
    pub(super) stride: u32,
    /// Selects the version of the search that was compiled for this processor.
    arch: Arch,
}

/// State of a search.
#[derive(Clone, Copy)]
struct Lane {
    node: u32,
    /// The next hop of the longest match so far, in half words.
    best: u32,
}

/// The result of a node for a value of its bits: the longest match so far, the half word to fetch, and
/// whether that is a pointer to a child and the search goes on (1) or the next hop (0).
///
/// Half words are counted in 64 bits and nothing branches, so that many lanes can be processed at once.
#[inline(always)]
fn judge(node: u64, best: u64, bitmaps: (u64, u64), value: u64, stride: u32) -> (u64, u64, u64) {
    let (internal, external) = bitmaps;
    let matching = internal & matches(value, stride);
    // The bits below the longest match are those before it; without a match the rank is not used.
    let longest = !u64::from(matching.leading_zeros()) & 63;
    let inner = hop_at(node, rank_below(internal, longest));
    let best = select(matching != 0, inner, best);
    let outer = slot_at(node, rank_below(external, value));
    let extends = external >> value & 1;
    (best, select(extends != 0, outer, best), extends & !(internal / END))
}

/// Selects one of two, without a branch.
#[inline(always)]
fn select(first: bool, one: u64, other: u64) -> u64 {
    let mask = u64::from(first).wrapping_neg();
    one & mask | other & !mask
}

/// The number of ones in `bitmap` below bit `at`.
#[inline(always)]
fn rank_below(bitmap: u64, at: u64) -> u64 {
    u64::from((bitmap & !(u64::MAX << (at & 63))).count_ones())
}

/// The bits of each array, and of a node.
type Steps<'a> = (&'a [u8], u32);

/// The entry of the first array for a window of a key's first bits.
#[inline(always)]
fn first_entry(window: u64, steps: &[u8]) -> u64 {
    let bits = u32::from(steps.first().copied().unwrap_or(0));
    u64::from(RESERVED) + window.checked_shr(64 - bits).unwrap_or(0)
}

/// The entry of the array at `array` for the window's first `step` bits. Without an array that is an empty
/// word; an entry is read only once, as its target may change at any time.
#[inline(always)]
fn next_entry(array: u64, window: u64, step: u8) -> u64 {
    select(array != 0, 2 * array + (window >> (64 - u32::from(step))), 0)
}

/// What an entry points to: an array, a node, or nothing.
#[inline(always)]
fn pointer(words: &[AtomicU64], entry: u64) -> u64 {
    word(words, entry as u32) >> 32
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
    pub(super) fn new(steps: &'static [u8], stride: u8) -> Shape {
        let initial = steps.iter().map(|&step| u32::from(step)).sum();
        Shape { steps, initial, stride: stride.into(), arch: Arch::new() }
    }
    /// The value of the bits that a node examines, at the start of the window.
    pub(super) fn value(&self, window: u64) -> u32 {
        (window >> (64 - self.stride)) as u32
    }

    /// The next hop of one key.
    #[inline]
    pub(super) fn lookup<K: Key>(&self, words: &[AtomicU64], key: K) -> Option<NextHop> {
        self.arch.dispatch(One { shape: self, words, key })
    }

    /// The next hops of many keys, interleaved.
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
    fn one<K: Key>(
        &self,
        words: &[AtomicU64],
        key: K,
        (steps, stride): Steps<'_>,
    ) -> Option<NextHop> {
        let window = key.window(0);
        let mut entry = first_entry(window, steps);
        let mut depth = u32::from(steps.first().copied().unwrap_or(0));
        let mut node = pointer(words, entry);
        for &step in steps.iter().skip(1) {
            let next = next_entry(node, window << depth, step);
            entry = select(node != 0, next, entry);
            node = pointer(words, next);
            depth += u32::from(step);
        }
        let mut lane = Lane { node: node as u32, best: 2 * entry as u32 };
        loop {
            let (next, goes_on) = step(words, lane, key.window(depth), stride);
            // A replica that received arbitrary words may contain a loop; keys are finite.
            if !goes_on || depth + stride > u32::from(K::BITS) {
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
        (steps, stride): Steps<'_>,
    ) {
        let mut row = Row::<N>::new();
        for (window, key) in row.windows.iter_mut().zip(keys) {
            *window = key.window(0);
        }
        let (mut lanes, mut base) = (keys.len().min(N), 0);
        let mut depth = row.enter(words, lanes, steps);
        // A replica that received arbitrary words may contain a loop; keys are finite.
        while lanes > 0 && depth <= u32::from(K::BITS) {
            if depth + stride > base + 64 {
                base = depth;
                for (window, &number) in row.windows.iter_mut().zip(&row.numbers).take(lanes) {
                    *window = keys.get(usize::from(number)).map_or(0, |key| key.window(depth));
                }
            }
            let going = row.level(words, lanes, (depth - base, stride));
            depth += stride;
            if 2 * going <= lanes {
                lanes = row.pack(hops, lanes);
            }
        }
        row.pack(hops, lanes);
    }
}

/// Keys that descend the tree in step, each in a lane. A lane whose search has ended stays at the empty
/// node and repeats its result, until half of them have ended; then the active lanes are compacted.
///
/// Every step is a separate loop over all lanes, so that loads overlap and the arithmetic fills vectors.
struct Row<const N: usize> {
    nodes: [u64; N],
    /// For each lane, the next hop of the longest match so far, in half words.
    best: [u64; N],
    /// For each lane, the bits examined at this level and some after it.
    windows: [u64; N],
    internal: [u64; N],
    external: [u64; N],
    /// The selected half word and its content: a node, or, when the search has ended, the next hop.
    halves: [u64; N],
    found: [u64; N],
    goes_on: [u64; N],
    /// The key of each lane.
    numbers: [u8; N],
}

impl<const N: usize> Row<N> {
    const NUMBERS: [u8; N] = {
        let (mut numbers, mut at) = ([0; N], 0);
        while at < N {
            numbers[at] = at as u8;
            at += 1;
        }
        numbers
    };

    #[inline(always)]
    fn new() -> Row<N> {
        let zeros = [0; N];
        Row {
            nodes: zeros,
            best: zeros,
            windows: zeros,
            internal: zeros,
            external: zeros,
            halves: zeros,
            found: zeros,
            goes_on: zeros,
            numbers: Row::<N>::NUMBERS,
        }
    }

    /// The number of lanes rounded up to whole vectors; the extra ones stay at the empty node.
    #[inline(always)]
    fn whole(lanes: usize) -> usize {
        lanes.next_multiple_of(VECTOR).min(N)
    }

    /// Takes the lanes through the arrays to the nodes; returns how many bits that took.
    #[inline(always)]
    fn enter(&mut self, words: &[AtomicU64], lanes: usize, steps: &[u8]) -> u32 {
        let lanes = lanes.min(N);
        for at in 0..lanes {
            self.best[at] = first_entry(self.windows[at], steps);
        }
        for at in 0..lanes {
            self.nodes[at] = pointer(words, self.best[at]);
        }
        let mut depth = u32::from(steps.first().copied().unwrap_or(0));
        for &step in steps.iter().skip(1) {
            for at in 0..lanes {
                let array = self.nodes[at];
                self.nodes[at] = next_entry(array, self.windows[at] << depth, step);
                self.best[at] = select(array != 0, self.nodes[at], self.best[at]);
            }
            for at in 0..lanes {
                self.nodes[at] = pointer(words, self.nodes[at]);
            }
            depth += u32::from(step);
        }
        for best in &mut self.best {
            *best *= 2;
        }
        depth
    }

    /// Processes one node per lane; returns how many lanes continue.
    #[inline(always)]
    fn level(&mut self, words: &[AtomicU64], lanes: usize, (offset, stride): (u32, u32)) -> usize {
        let lanes = Row::<N>::whole(lanes);
        for at in 0..lanes {
            (self.internal[at], self.external[at]) = bitmaps(words, self.nodes[at] as u32);
        }
        for at in 0..lanes {
            let value = (self.windows[at] << (offset & 63)) >> (64 - stride) & 63;
            let both = (self.internal[at], self.external[at]);
            (self.best[at], self.halves[at], self.goes_on[at]) =
                judge(self.nodes[at], self.best[at], both, value, stride);
        }
        for at in 0..lanes {
            self.found[at] = half(words, self.halves[at] as u32).into();
        }
        let mut going = 0;
        for at in 0..lanes {
            let goes_on = self.goes_on[at];
            self.nodes[at] = select(goes_on != 0, self.found[at], 0);
            self.best[at] = select(goes_on != 0, self.best[at], self.halves[at]);
            going += goes_on;
        }
        going as usize
    }

    /// Writes the next hops of the keys whose search has ended, compacts the active lanes, and
    /// returns their number.
    #[inline(always)]
    fn pack(&mut self, hops: &mut [Option<NextHop>], lanes: usize) -> usize {
        let mut still = 0;
        for at in 0..lanes.min(N) {
            let number = self.numbers[at];
            if let Some(hop) = hops.get_mut(usize::from(number)) {
                *hop = NextHop::new(self.found[at] as u32);
            }
            let to = still % N;
            self.numbers[to] = number;
            self.windows[to] = self.windows[at];
            (self.nodes[to], self.best[to]) = (self.nodes[at], self.best[at]);
            still += self.goes_on[at] as usize;
        }
        for at in still..Row::<N>::whole(still) {
            (self.nodes[at], self.best[at]) = (0, 0);
        }
        still
    }
}

/// A search with its steps, which are constants for the usual tables: that saves instructions.
macro_rules! constant {
    ($shape:expr, |$steps:ident| $search:expr) => {
        match ($shape.steps, $shape.stride) {
            ([18], 6) => {
                let $steps: Steps<'_> = (&[18], 6);
                $search
            }
            ([12, 12, 3, 3], 6) => {
                let $steps: Steps<'_> = (&[12, 12, 3, 3], 6);
                $search
            }
            $steps => $search,
        }
    };
}

/// A search, compiled for several processors.
struct One<'a, K> {
    shape: &'a Shape,
    words: &'a [AtomicU64],
    key: K,
}

impl<K: Key> WithSimd for One<'_, K> {
    type Output = Option<NextHop>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Option<NextHop> {
        let One { shape, words, key } = self;
        constant!(shape, |steps| shape.one(words, key, steps))
    }
}

/// Interleaved searches, compiled for several processors.
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
            let (shape, words) = (self.shape, self.words);
            constant!(shape, |steps| shape.row::<K, ROW>(words, keys, hops, steps));
        }
    }
}

/// Searches with a fixed number in flight, compiled for several processors.
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
        let Few { shape, words, keys, hops } = self;
        constant!(shape, |steps| shape.row::<K, N>(words, keys, hops, steps));
    }
}
