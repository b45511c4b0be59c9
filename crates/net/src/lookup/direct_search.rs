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

/// The slots at many places.
#[inline(always)]
fn slots_at<K: DirectKey>(words: &[AtomicU64], places: &[u32; ROW]) -> [u32; ROW] {
    let per = Layout::<K>::PER;
    let mut found = [0; ROW];
    for at in 0..ROW {
        found[at] = word(words, places[at] / per);
    }
    let mut slots = [0; ROW];
    for at in 0..ROW {
        slots[at] = (found[at] >> (places[at] % per * K::SLOT) & Layout::<K>::MASK) as u32;
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
    let (mut windows, mut places) = ([0_u64; ROW], [0_u32; ROW]);
    for ((window, place), key) in windows.iter_mut().zip(&mut places).zip(keys) {
        *window = key.window(0);
        *place = Layout::<K>::FIRST * Layout::<K>::PER + (*window >> (64 - K::STEPS[0])) as u32;
    }
    let mut slots = slots_at::<K>(words, &places);
    // The bits that follow those already looked at.
    let mut rest = windows.map(|window| window << K::STEPS[0]);
    for &bits in K::STEPS.iter().take(TOGETHER).skip(1) {
        let array = |slot: u32| Layout::<K>::is_array(slot.into());
        if !slots.iter().fold(false, |any, &slot| any | array(slot)) {
            break;
        }
        for at in 0..ROW {
            let next = Layout::<K>::array(slots[at].into()) as u32;
            let next = next + (rest[at] >> (64 - bits)) as u32;
            places[at] = if array(slots[at]) { next } else { places[at] };
        }
        let found = slots_at::<K>(words, &places);
        for at in 0..ROW {
            let goes_on = array(slots[at]);
            slots[at] = if goes_on { found[at] } else { slots[at] };
            rest[at] = if goes_on { rest[at] << bits } else { rest[at] };
        }
    }
    if K::RANGED < K::STEPS.len() {
        search_ranges::<K>(words, &rest, &mut slots);
    }
    for ((hop, &slot), key) in hops.iter_mut().zip(&slots).zip(keys) {
        *hop = match slot & Layout::<K>::POINTS as u32 {
            0 => Layout::<K>::hop(words, slot.into()),
            _ => lookup(words, *key),
        };
    }
}

/// Replaces each slot that points to a node by what the node shows.
#[inline(always)]
fn search_ranges<K: DirectKey>(words: &[AtomicU64], rest: &[u64; ROW], slots: &mut [u32; ROW]) {
    let is_node = |slot: u32| u64::from(slot) & Layout::<K>::NODE != 0;
    let mut begins = [[0_u64; ROW]; 4];
    for at in 0..ROW {
        // Lanes without a node read the first line, and ignore it.
        let node = if is_node(slots[at]) { Layout::<K>::node(slots[at].into()) } else { 0 };
        if let Some(line) = ranges::line(words, node) {
            let found = ranges::begins(line);
            for (begins, found) in begins.iter_mut().zip(found) {
                begins[at] = found;
            }
        }
    }
    let mut numbers = [0_u64; ROW];
    for at in 0..ROW {
        let all = [begins[0][at], begins[1][at], begins[2][at], begins[3][at]];
        numbers[at] = ranges::number(all, rest[at] >> 48);
    }
    for at in 0..ROW {
        let node = if is_node(slots[at]) { Layout::<K>::node(slots[at].into()) } else { 0 };
        let shown = ranges::shown(words, node, numbers[at]) as u32;
        slots[at] = if is_node(slots[at]) { shown } else { slots[at] };
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
