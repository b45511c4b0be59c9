//! The search in direct tables: one key, or many interleaved; see `direct.rs`.

use super::direct::{DirectKey, Layout};
use super::memory::{Door, LINE};
use super::{NextHop, ranges};
use pulp::{Arch, Simd, WithSimd};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that are looked up in step.
const ROW: usize = 64;

#[inline(always)]
pub(super) fn lookup<K: DirectKey>(words: &[AtomicU64], key: K) -> Option<NextHop> {
    Layout::<K>::hop(words, number(words, key))
}

/// The number of the next hop of the longest prefix that matches `key`.
#[inline(always)]
fn number<K: DirectKey>(words: &[AtomicU64], key: K) -> u64 {
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
    match slot & Layout::<K>::POINTS {
        0 => slot,
        _ => ranges::find(words, Layout::<K>::node(slot), key.window(depth) >> 48),
    }
}

/// A value for each key of a row. Vectors of it lie within cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Lanes<T>([T; ROW]);

/// Interleaved searches, compiled for several processors.
pub(super) struct Many<'a, K> {
    pub(super) words: &'a [AtomicU64],
    pub(super) keys: &'a [K],
    pub(super) hops: &'a mut [Option<NextHop>],
}

/// Steps after which a key's first 64 bits still have those for a node; longer searches start again, one by one.
const STEPS_MAX: usize = 4;

impl<K: DirectKey> WithSimd for Many<'_, K> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::_MM_HINT_NTA;
            use pulp::x86::{V3, V4};
            let simd: &dyn std::any::Any = &simd;
            if let Some(&v4) = simd.downcast_ref::<V4>() {
                let number = |begins, value| {
                    let at_most =
                        v4.cmp_le_u16x16(pulp::cast(begins), v4.splat_u16x16(value as u16));
                    ranges::last(at_most.0.count_ones().into())
                };
                return self.rows(number, |at| v4.sse._mm_prefetch::<_MM_HINT_NTA>(at));
            }
            if let Some(&v3) = simd.downcast_ref::<V3>() {
                return self.rows(ranges::number, |at| v3.sse._mm_prefetch::<_MM_HINT_NTA>(at));
            }
        }
        let _ = simd;
        self.rows(ranges::number, |_| ());
    }
}

impl<K: DirectKey> Many<'_, K> {
    /// With a processor's own [`ranges::number`], and its way to request a cache line that is used once, without
    /// waiting for it; any address is allowed.
    #[inline(always)]
    fn rows(self, number: impl Fn([u64; 4], u64) -> u64 + Copy, prefetch: impl Fn(*const i8)) {
        for (keys, hops) in self.keys.chunks(ROW).zip(self.hops.chunks_mut(ROW)) {
            // Callers often continue with the keys that follow, which are not in the cache if there are many.
            let next = keys.as_ptr_range().end.cast::<i8>();
            (0..size_of::<[K; ROW]>()).step_by(64).for_each(|at| prefetch(next.wrapping_add(at)));
            let (mut padded, mut found) = ([K::from_left(0); ROW], [None; ROW]);
            let keys = keys.as_array().unwrap_or_else(|| {
                padded[..keys.len()].copy_from_slice(keys);
                &padded
            });
            row(self.words, keys, &mut found, number);
            hops.copy_from_slice(&found[..hops.len()]);
        }
    }
}

/// The lanes whose slots pass a test, in order.
#[inline(always)]
fn lanes_where<F: Fn(u64) -> bool>(
    slots: &Lanes<u32>,
    test: F,
) -> impl Iterator<Item = usize> + use<F> {
    let bit = |(at, &slot): (usize, &u32)| u64::from(test(slot.into())) << at;
    let mut lanes = slots.0.iter().enumerate().map(bit).fold(0, |all, bit| all | bit);
    std::iter::from_fn(move || {
        let lane = lanes.trailing_zeros() as usize;
        lanes &= lanes.wrapping_sub(1);
        (lane < ROW).then_some(lane)
    })
}

/// A row of keys.
///
/// Steps that most keys take are separate loops over all lanes, with as few instructions as possible between loads,
/// so that many more loads are in flight. After them, only the lanes that go on are visited. A slot is read only once,
/// as it may change at any time.
#[inline(always)]
fn row<K: DirectKey>(
    words: &[AtomicU64],
    keys: &[K; ROW],
    hops: &mut [Option<NextHop>; ROW],
    range: impl Fn([u64; 4], u64) -> u64,
) {
    let per = Layout::<K>::PER;
    let load = |at: u32| words[at as usize].load(Ordering::Acquire);
    let slot_of =
        |word: u64, place: u32| (word >> (place % per * K::SLOT) & Layout::<K>::MASK) as u32;
    let is_array = |slot: u64| Layout::<K>::is_array(slot);
    let is_node = |slot: u64| slot & Layout::<K>::NODE != 0;
    let line = |slot: u32| Layout::<K>::node(slot.into());
    // The bits that follow those already looked at.
    let mut rest = Lanes(keys.map(|key| key.window(0)));
    let mut found = Lanes([0_u64; ROW]);
    let mut slots = Lanes([0_u32; ROW]);
    let first = Layout::<K>::first(words);
    let place = |rest: u64| (rest >> (64 - K::STEPS[0])) as u32;
    for (found, &rest) in found.0.iter_mut().zip(&rest.0) {
        *found = first[(place(rest) / per) as usize].load(Ordering::Acquire);
    }
    for at in 0..ROW {
        slots.0[at] = slot_of(found.0[at], place(rest.0[at]));
        rest.0[at] <<= K::STEPS[0];
    }
    for (step, &bits) in K::STEPS.iter().enumerate().take(STEPS_MAX).skip(1) {
        let next = |slot: u32, rest: u64| {
            Layout::<K>::array(slot.into()) as u32 + (rest >> (64 - bits)) as u32
        };
        if step >= K::COMMON {
            for at in lanes_where(&slots, is_array) {
                let place = next(slots.0[at], rest.0[at]);
                slots.0[at] = slot_of(load(place / per), place);
                rest.0[at] <<= bits;
            }
            continue;
        }
        let (mut places, mut at_words) = (Lanes([0_u32; ROW]), Lanes([0_u32; ROW]));
        for at in 0..ROW {
            let slot = slots.0[at];
            // A lane that ends at a node reads its first word, so that its line is in the cache.
            let node = if is_node(slot.into()) { line(slot) as u32 * LINE as u32 } else { 0 };
            let place = next(slot, rest.0[at]);
            places.0[at] = place;
            at_words.0[at] = if is_array(slot.into()) { place / per } else { node };
        }
        // Eight at once: a loop of one load has half as many instructions again.
        let eights = found.0.as_chunks_mut::<8>().0;
        for (found, at) in eights.iter_mut().zip(at_words.0.as_chunks::<8>().0) {
            for (found, &at) in found.iter_mut().zip(at) {
                *found = load(at);
            }
        }
        for at in 0..ROW {
            let goes_on = is_array(slots.0[at].into());
            let slot = slot_of(found.0[at], places.0[at]);
            slots.0[at] = if goes_on { slot } else { slots.0[at] };
            rest.0[at] = if goes_on { rest.0[at] << bits } else { rest.0[at] };
        }
    }
    if K::RANGED < K::STEPS.len() {
        let lines = words.as_chunks::<LINE>().0;
        for at in lanes_where(&slots, is_node) {
            let line = &lines[line(slots.0[at]) as usize];
            let begins = [0, 1, 2, 3].map(|word| ranges::begins(line, word));
            slots.0[at] = ranges::shown(line, range(begins, rest.0[at] >> 48)) as u32;
        }
    }
    if STEPS_MAX < K::STEPS.len() {
        for at in lanes_where(&slots, is_array) {
            slots.0[at] = number(words, keys[at]) as u32;
        }
    }
    if Layout::<K>::are_numbers(words) {
        *hops = slots.0.map(NextHop::new);
    } else {
        *hops = slots.0.map(|slot| Layout::<K>::hop(words, slot.into()));
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

#[cfg(test)]
mod tests {
    use super::super::{Direct, Prefix};
    use super::*;

    #[test]
    fn a_batch_of_any_length_gives_the_same_on_every_processor_d_128() {
        let mut random = lastmeter_base::Stream::new(1, "processors");
        let mut key = || u128::from(random.bits() & 0x0101_0303_0f0f_0303) << 64;
        let mut table = Direct::<u128>::new();
        for number in 1..2_000 {
            let prefix = Prefix::new(key(), 20 + (number % 45) as u8).expect("at most 64");
            table.insert(prefix, NextHop::new(number).expect("not zero")).expect("there is room");
        }
        for len in 0..3 * ROW {
            let keys: Vec<u128> = (0..len).map(|_| key()).collect();
            let (mut hops, mut portable) = (vec![None; len], vec![None; len]);
            table.lookup_batch(&keys, &mut hops);
            let words = table.memory.words();
            Many { words, keys: &keys, hops: &mut portable }.rows(ranges::number, |_| ());
            let one_by_one: Vec<_> = keys.iter().map(|&key| table.lookup(key)).collect();
            assert_eq!((&hops, &portable), (&one_by_one, &one_by_one));
            assert!(len < ROW || hops.iter().any(Option::is_some));
        }
    }
}
