//! The search in direct tables: one key, or many interleaved; see `direct.rs`.

use super::direct::{DirectKey, Layout};
use super::memory::{Door, word};
use super::{NextHop, ranges};
use pulp::{Arch, Simd, WithSimd};
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

/// Keys that are looked up in step.
const ROW: usize = 64;

#[inline(always)]
pub(super) fn lookup<K: DirectKey>(words: &[AtomicU64], key: K) -> Option<NextHop> {
    let (mut array, mut depth) = (u64::from(Layout::<K>::FIRST * Layout::<K>::PER), 0);
    let mut slot = 0;
    for &bits in K::STEPS {
        slot = Layout::<K>::slot(words, array + (key.window(depth) >> (64 - bits)));
        depth += bits;
        if !Layout::<K>::is_array(slot) {
            break;
        }
        array = Layout::<K>::array(slot);
    }
    if slot & Layout::<K>::POINTS != 0 {
        slot = ranges::find(words, Layout::<K>::node(slot), key.window(depth) >> 48);
    }
    Layout::<K>::hop(words, slot)
}

/// A value for each key of a row. Vectors of it lie within cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Lanes<T>([T; ROW]);

/// The slots at many places.
#[inline(always)]
fn slots_at<K: DirectKey>(words: &[AtomicU64], places: &Lanes<u32>) -> Lanes<u32> {
    let per = Layout::<K>::PER;
    let mut found = Lanes([0; ROW]);
    for at in 0..ROW {
        found.0[at] = word(words, places.0[at] / per);
    }
    let mut slots = Lanes([0; ROW]);
    for at in 0..ROW {
        let shift = places.0[at] % per * K::SLOT;
        slots.0[at] = (found.0[at] >> shift & Layout::<K>::MASK) as u32;
    }
    slots
}

/// Interleaved searches, compiled for several processors.
pub(super) struct Many<'a, K> {
    pub(super) words: &'a [AtomicU64],
    pub(super) keys: &'a [K],
    pub(super) hops: &'a mut [Option<NextHop>],
}

/// Steps that the keys of a row take together; longer searches continue one by one.
const TOGETHER: usize = 4;

impl<K: DirectKey> WithSimd for Many<'_, K> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (keys, hops) in self.keys.chunks(ROW).zip(self.hops.chunks_mut(ROW)) {
            row(self.words, keys, hops);
        }
    }
}

/// A row of keys; lanes beyond the last key stay at an empty slot.
///
/// Every step is a separate loop over all lanes, with as few instructions as possible between loads, so that many more
/// loads are in flight. A slot is read only once, as it may change at any time.
#[inline(always)]
fn row<K: DirectKey>(words: &[AtomicU64], keys: &[K], hops: &mut [Option<NextHop>]) {
    let (mut windows, mut places) = (Lanes([0_u64; ROW]), Lanes([0_u32; ROW]));
    for ((window, place), key) in windows.0.iter_mut().zip(&mut places.0).zip(keys) {
        *window = key.window(0);
        *place = Layout::<K>::FIRST * Layout::<K>::PER + (*window >> (64 - K::STEPS[0])) as u32;
    }
    let mut slots = slots_at::<K>(words, &places);
    // The bits that follow those already looked at.
    let mut rest = Lanes(windows.0.map(|window| window << K::STEPS[0]));
    for &bits in K::STEPS.iter().take(TOGETHER).skip(1) {
        let array = |slot: u32| Layout::<K>::is_array(slot.into());
        if !slots.0.iter().fold(false, |any, &slot| any | array(slot)) {
            break;
        }
        for at in 0..ROW {
            let slot = slots.0[at];
            let next = Layout::<K>::array(slot.into()) as u32;
            let next = next + (rest.0[at] >> (64 - bits)) as u32;
            places.0[at] = if array(slot) { next } else { places.0[at] };
        }
        let found = slots_at::<K>(words, &places);
        for at in 0..ROW {
            let goes_on = array(slots.0[at]);
            slots.0[at] = if goes_on { found.0[at] } else { slots.0[at] };
            rest.0[at] = if goes_on { rest.0[at] << bits } else { rest.0[at] };
        }
    }
    if K::RANGED < K::STEPS.len() {
        search_ranges::<K>(words, &rest, &mut slots);
    }
    for ((hop, &slot), key) in hops.iter_mut().zip(&slots.0).zip(keys) {
        *hop = match slot & Layout::<K>::POINTS as u32 {
            0 => Layout::<K>::hop(words, slot.into()),
            _ => lookup(words, *key),
        };
    }
}

/// Replaces each slot that points to a node by what the node shows.
///
/// The first words of all lines are loaded before the others: with fewer instructions in that loop, more lines are in
/// flight.
#[inline(always)]
fn search_ranges<K: DirectKey>(words: &[AtomicU64], rest: &Lanes<u64>, slots: &mut Lanes<u32>) {
    let is_node = |slot: u32| u64::from(slot) & Layout::<K>::NODE != 0;
    // Lanes without a node read the first line, and ignore it.
    let mut nodes = Lanes([0_u64; ROW]);
    for at in 0..ROW {
        let slot = slots.0[at];
        nodes.0[at] = if is_node(slot) { Layout::<K>::node(slot.into()) } else { 0 };
    }
    let mut begins = [Lanes([0_u64; ROW]); 4];
    for (begins, &node) in begins[0].0.iter_mut().zip(&nodes.0) {
        *begins = ranges::line(words, node).map_or(0, |line| ranges::begins(line, 0));
    }
    for at in 0..ROW {
        if let Some(line) = ranges::line(words, nodes.0[at]) {
            for (word, begins) in begins.iter_mut().enumerate().skip(1) {
                begins.0[at] = ranges::begins(line, word);
            }
        }
    }
    let (mut numbers, mut places) = (Lanes([0_u64; ROW]), Lanes([0_u32; ROW]));
    for at in 0..ROW {
        let all = [0, 1, 2, 3].map(|word: usize| begins[word].0[at]);
        numbers.0[at] = ranges::number(all, rest.0[at] >> 48);
        places.0[at] = ranges::place(nodes.0[at], numbers.0[at]);
    }
    let mut found = Lanes([0_u64; ROW]);
    for (found, &place) in found.0.iter_mut().zip(&places.0) {
        *found = word(words, place);
    }
    for at in 0..ROW {
        let shown = ranges::value(found.0[at], numbers.0[at]) as u32;
        slots.0[at] = if is_node(slots.0[at]) { shown } else { slots.0[at] };
    }
}

/// Looks up keys from another thread while the table's writer changes it; see [`super::Reader`].
#[derive(Debug)]
pub struct DirectReader<K> {
    door: Door,
    arch: Arch,
    key: PhantomData<K>,
}

impl<K: DirectKey> DirectReader<K> {
    pub(super) fn new(door: Door, arch: Arch) -> DirectReader<K> {
        DirectReader { door, arch, key: PhantomData }
    }
    /// The next hop of the longest prefix that matches `key`.
    pub fn lookup(&mut self, key: K) -> Option<NextHop> {
        self.door.inside(|words| lookup(words, key))
    }
    /// The next hops of many keys, interleaved. Panics if `hops` is not as long as `keys`.
    pub fn lookup_batch(&mut self, keys: &[K], hops: &mut [Option<NextHop>]) {
        assert_eq!(keys.len(), hops.len(), "a next hop for each key");
        let arch = self.arch;
        self.door.inside(|words| arch.dispatch(Many { words, keys, hops }));
    }
}

impl<K: DirectKey> Clone for DirectReader<K> {
    fn clone(&self) -> DirectReader<K> {
        DirectReader::new(self.door.another(), self.arch)
    }
}
