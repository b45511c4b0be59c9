//! Direct lookup: arrays indexed by the bits of a key, few and large, whose slots hold a result or the next array.
//!
//! ```text
//! IPv4   24 bits | 8                     slots of 16 bits: the first array has 32 MiB
//! IPv6   16 bits | 16 | 8 | 8 | ...      slots of 32 bits
//! slot   0: no route | number of a next hop | array for the bits that follow (top bit set)
//! ```
//!
//! Every prefix is expanded to all slots that it covers and no longer one does. So an address costs one load for each
//! array and hardly any arithmetic: a full table of IPv4 is answered from the first array but for 451 of 16,777,216
//! slots, one of IPv6 from the second to the fourth. Tree Bitmap (`tree_bitmap.rs`) takes a tenth of the memory and
//! computes more.
//!
//! Next hops are numbered as they come, so that a slot of 16 bits can name one: at most 32,767 different ones in the
//! life of a table. For a change the writer needs the length of the prefix that a slot shows; that is kept beside the
//! slots, a byte each, for the writer alone, as is a map of all prefixes.
//!
//! **Updates** are as of Tree Bitmap (see `memory.rs`): readers never wait, and see each slot before or after a change.
//! A prefix shorter than an array's bits changes slot by slot, so it appears at slightly different times for
//! different keys.
//!
//! Source: Gupta, Lin and McKeown, "Routing lookups in hardware at memory access speeds", INFOCOM 1998 (DIR-24-8);
//! the interface is that of D-128 to D-132. Deviations: numbers of next hops instead of next hops, more levels for
//! IPv6.
//!
//! ```
//! use lastmeter_net::lookup::{Direct, NextHop, Prefix};
//! let mut table = Direct::new();
//! let hop = |number| NextHop::new(number).expect("not zero");
//! table.insert(Prefix::new(0x0a00_0000_u32, 8).expect("8 <= 32"), hop(1))?;
//! table.insert(Prefix::new(0x0a01_0200_u32, 28).expect("28 <= 32"), hop(2))?;
//! assert_eq!(table.lookup(0x0a01_0203), Some(hop(2)));
//! assert_eq!(table.lookup(0x0a01_02ff), Some(hop(1)));
//! assert_eq!(table.lookup(0x0b00_0000), None);
//! # Ok::<(), lastmeter_net::lookup::Full>(())
//! ```

use super::key::{Key, Prefix};
use super::memory::{Door, Memory, RESERVED, half, whole, word};
use super::tree_bitmap::MemoryUse;
use super::{Full, NextHop};
use foldhash::fast::RandomState;
use pulp::{Arch, Simd, WithSimd};
use std::collections::HashMap;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// Limit on the different next hops that a table ever names.
const HOPS_MAX: u32 = (1 << 15) - 1;
/// Limit on a table's memory in words of 8 bytes: 1 GiB.
const WORDS_MAX: u32 = 1 << 27;
/// Limit on arrays that slots of 16 bits can point to.
const ARRAYS_MAX: u32 = 1 << 15;
/// Keys that are looked up in step.
const ROW: usize = 64;

/// Keys that have a layout.
pub trait DirectKey: Key + Hash {
    /// The bits that index each array. All arrays but those of the first two steps have the size of the last.
    const STEPS: &'static [u32];
    /// Bits of a slot.
    const SLOT: u32;
}

impl DirectKey for u32 {
    const STEPS: &'static [u32] = &[24, 8];
    const SLOT: u32 = 16;
}

impl DirectKey for u128 {
    const STEPS: &'static [u32] = &[16, 16, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8];
    const SLOT: u32 = 32;
}

/// Where slots and next hops are; positions of slots are counted in slots.
struct Layout<K>(PhantomData<K>);

impl<K: DirectKey> Layout<K> {
    /// Slots of a word.
    const PER: u32 = 64 / K::SLOT;
    const MASK: u64 = (1 << K::SLOT) - 1;
    /// The bit that says that a slot points to an array.
    const POINTS: u64 = 1 << (K::SLOT - 1);
    /// Words of the next hops, two to a word, after those reserved; number 0 is no next hop.
    const HOPS: u32 = RESERVED;
    /// The word at which the first array begins.
    const FIRST: u32 = RESERVED + whole(HOPS_MAX.div_ceil(2));
    /// The word after it.
    const END: u32 = (Self::FIRST + (1 << K::STEPS[0]) / Self::PER).next_multiple_of(2 * RESERVED);
    /// The word after the last array.
    const LIMIT: u32 = match K::SLOT {
        16 => Self::END + (ARRAYS_MAX << 8) / Self::PER,
        _ => WORDS_MAX,
    };

    /// The slot's value.
    #[inline(always)]
    fn slot(words: &[AtomicU64], at: u64) -> u64 {
        let at = at as u32;
        word(words, at / Self::PER) >> (at % Self::PER * K::SLOT) & Self::MASK
    }
    /// The slots at many places.
    #[inline(always)]
    fn slots(words: &[AtomicU64], places: &[u32; ROW]) -> [u32; ROW] {
        let mut found = [0; ROW];
        for at in 0..ROW {
            found[at] = word(words, places[at] / Self::PER);
        }
        let mut slots = [0; ROW];
        for at in 0..ROW {
            slots[at] = (found[at] >> (places[at] % Self::PER * K::SLOT) & Self::MASK) as u32;
        }
        slots
    }
    /// The first slot of the array that a slot points to.
    #[inline(always)]
    fn array(slot: u64) -> u64 {
        let number = slot & !Self::POINTS;
        match K::SLOT {
            // Arrays of 256 slots are numbered in their order.
            16 => u64::from(Self::END * Self::PER) + (number << 8),
            // In pairs of words.
            _ => number * u64::from(2 * Self::PER),
        }
    }
    /// The slot's value that points to the array at a pair of words.
    fn pointer(pair: u32) -> u64 {
        let number = match K::SLOT {
            16 => ((2 * pair - Self::END) * Self::PER) >> 8,
            _ => pair,
        };
        Self::POINTS | u64::from(number)
    }
    #[inline(always)]
    fn hop(words: &[AtomicU64], number: u64) -> Option<NextHop> {
        NextHop::new(half(words, 2 * Self::HOPS + (number as u32 & HOPS_MAX)))
    }
    /// The bits before an array of this step.
    fn before(step: usize) -> u32 {
        K::STEPS[..step].iter().sum()
    }
    /// Of a key, the place in an array of this step.
    fn place(key: K, step: usize) -> u32 {
        (key.window(Self::before(step)) >> (64 - K::STEPS[step])) as u32
    }
}

/// A table of prefixes, owned by its one writer; see the top of the file.
#[derive(Debug)]
pub struct Direct<K> {
    memory: Memory,
    arch: Arch,
    /// For each slot, one more than the length of the prefix that it shows; 0 without one.
    lengths: Vec<u8>,
    prefixes: HashMap<(u8, K), u16, RandomState>,
    /// How many prefixes have each length.
    counts: [u32; 129],
    /// For each array but the first, by its pair of words, how many prefixes are longer than the bits before it.
    needed: HashMap<u32, u32, RandomState>,
    numbers: HashMap<NextHop, u16, RandomState>,
    array_words: u64,
}

impl<K: DirectKey> Default for Direct<K> {
    fn default() -> Direct<K> {
        Direct::new()
    }
}

impl<K: DirectKey> Direct<K> {
    /// An empty table.
    pub fn new() -> Direct<K> {
        let end = Layout::<K>::END;
        Direct {
            memory: Memory::new(end - RESERVED),
            arch: Arch::new(),
            lengths: vec![0; (end * Layout::<K>::PER) as usize],
            prefixes: HashMap::default(),
            counts: [0; 129],
            needed: HashMap::default(),
            numbers: HashMap::default(),
            array_words: 0,
        }
    }
    /// How many prefixes it holds.
    pub fn len(&self) -> u64 {
        self.prefixes.len() as u64
    }
    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }
    /// The next hop of the longest prefix that matches `key`.
    pub fn lookup(&self, key: K) -> Option<NextHop> {
        lookup(self.memory.words(), key)
    }
    /// The next hops of many keys, interleaved.
    ///
    /// Panics if `hops` is not as long as `keys`.
    pub fn lookup_batch(&self, keys: &[K], hops: &mut [Option<NextHop>]) {
        assert_eq!(keys.len(), hops.len(), "a next hop for each key");
        self.arch.dispatch(Many { words: self.memory.words(), keys, hops });
    }
    /// A reader for another thread.
    pub fn reader(&self) -> DirectReader<K> {
        DirectReader { door: self.memory.door(), arch: self.arch, key: PhantomData }
    }
    /// Its memory.
    pub fn memory(&self) -> MemoryUse {
        let len = self.memory.words().len() as u64;
        let initial = u64::from(Layout::<K>::END);
        let prefix = size_of::<((u8, K), u16)>() + 1;
        MemoryUse {
            initial: initial * 8,
            nodes: self.array_words * 8,
            free: (len - initial - self.array_words) * 8,
            writer: self.memory.list_bytes()
                + self.lengths.capacity() as u64
                + (self.prefixes.capacity() * 8 / 7 * prefix) as u64
                + (self.needed.capacity() * 8 / 7 * 9) as u64,
        }
    }
    /// Every prefix with its next hop, in order.
    pub fn to_vec(&self) -> Vec<(Prefix<K>, NextHop)> {
        let hop = |number: u16| Layout::<K>::hop(self.memory.words(), number.into());
        let one = |(&(len, key), &number)| Prefix::new(key, len).zip(hop(number));
        let mut all: Vec<_> = self.prefixes.iter().filter_map(one).collect();
        all.sort_unstable();
        all
    }

    /// Inserts a prefix, or changes its next hop; returns the previous one.
    ///
    /// # Errors
    /// If a limit is reached; the table is unchanged.
    pub fn insert(&mut self, prefix: Prefix<K>, hop: NextHop) -> Result<Option<NextHop>, Full> {
        let (len, key) = (prefix.len(), prefix.key());
        self.check_room(prefix)?;
        let number = self.number(hop)?;
        let old = self.prefixes.insert((len, key), number);
        if old.is_none() {
            self.counts[usize::from(len)] += 1;
        }
        let (array, step) = self.open(prefix, old.is_none());
        let own = len + 1;
        self.paint(array, step, Some(prefix), (number.into(), own), &|shown| shown <= own);
        Ok(old.and_then(|old| Layout::<K>::hop(self.memory.words(), old.into())))
    }
    /// Removes a prefix; returns its next hop.
    pub fn remove(&mut self, prefix: Prefix<K>) -> Option<NextHop> {
        let (len, key) = (prefix.len(), prefix.key());
        let old = self.prefixes.remove(&(len, key))?;
        self.counts[usize::from(len)] -= 1;
        let shorter = (0..len).rev().filter(|&len| self.counts[usize::from(len)] > 0);
        let cover = shorter
            .filter_map(|len| {
                let over = Prefix::new(key, len)?;
                Some((self.prefixes.get(&(len, over.key()))?, len + 1))
            })
            .next();
        let shown = cover.map_or((0, 0), |(&number, shown)| (u64::from(number), shown));
        let (array, step) = self.open(prefix, false);
        self.paint(array, step, Some(prefix), shown, &|shown| shown == len + 1);
        self.close(prefix);
        Layout::<K>::hop(self.memory.words(), old.into())
    }

    /// Whether there is room for the arrays that a prefix needs.
    fn check_room(&self, prefix: Prefix<K>) -> Result<(), Full> {
        let (mut array, mut there) = (u64::from(Layout::<K>::FIRST * Layout::<K>::PER), 0);
        while Layout::<K>::before(there + 1) < prefix.len().into() {
            let slot = self.slot(array + u64::from(Layout::<K>::place(prefix.key(), there)));
            if slot & Layout::<K>::POINTS == 0 {
                break;
            }
            (array, there) = (Layout::<K>::array(slot), there + 1);
        }
        let steps = K::STEPS.iter().enumerate().skip(there + 1);
        let missing = steps.filter(|&(step, _)| Layout::<K>::before(step) < prefix.len().into());
        let arrays = missing.map(|(_, bits)| whole((1 << bits) / Layout::<K>::PER));
        let words: u32 = arrays.filter(|words| !self.memory.is_free(words / 2)).sum();
        match self.memory.used() + words <= Layout::<K>::LIMIT {
            true => Ok(()),
            false => Err(Full::Words(Layout::<K>::LIMIT)),
        }
    }
    /// The number of a next hop.
    fn number(&mut self, hop: NextHop) -> Result<u16, Full> {
        if let Some(&number) = self.numbers.get(&hop) {
            return Ok(number);
        }
        let number = self.numbers.len() as u32 + 1;
        if number > HOPS_MAX {
            return Err(Full::NextHops(HOPS_MAX));
        }
        self.memory.publish(2 * Layout::<K>::HOPS + number, hop.get());
        self.numbers.insert(hop, number as u16);
        Ok(number as u16)
    }
    /// The array in which a prefix ends and its step; makes those that are missing, without changing any answer.
    fn open(&mut self, prefix: Prefix<K>, is_new: bool) -> (u64, usize) {
        let (mut array, mut step) = (u64::from(Layout::<K>::FIRST * Layout::<K>::PER), 0);
        while Layout::<K>::before(step + 1) < prefix.len().into() {
            let at = array + u64::from(Layout::<K>::place(prefix.key(), step));
            let mut slot = self.slot(at);
            step += 1;
            if slot & Layout::<K>::POINTS == 0 {
                slot = self.make(at, slot, step);
            }
            array = Layout::<K>::array(slot);
            if is_new {
                *self.needed.entry(pair::<K>(array)).or_default() += 1;
            }
        }
        (array, step)
    }
    /// An array of this step, whose slots all are as the one that points to it was; returns that one.
    fn make(&mut self, at: u64, shown: u64, step: usize) -> u64 {
        let words = whole((1 << K::STEPS[step]) / Layout::<K>::PER);
        let pair = self.memory.allocate(words / 2);
        let word = (0..Layout::<K>::PER).fold(0, |word, _| word << K::SLOT | shown);
        (pair..pair + words / 2).for_each(|pair| self.memory.put(pair, [word; 2]));
        let first = (2 * pair * Layout::<K>::PER) as usize;
        let end = first + (words * Layout::<K>::PER) as usize;
        let length = self.lengths[at as usize];
        if self.lengths.len() < end {
            self.lengths.resize(end, 0);
        }
        self.lengths[first..end].fill(length);
        self.array_words += u64::from(words);
        let slot = Layout::<K>::pointer(pair);
        self.store(at, slot);
        slot
    }
    /// Uncounts a removed prefix; arrays that are no longer needed are freed, without changing any answer.
    fn close(&mut self, prefix: Prefix<K>) {
        let mut array = u64::from(Layout::<K>::FIRST * Layout::<K>::PER);
        let (mut step, mut unneeded) = (0, None);
        while Layout::<K>::before(step + 1) < prefix.len().into() {
            let at = array + u64::from(Layout::<K>::place(prefix.key(), step));
            array = Layout::<K>::array(self.slot(at));
            step += 1;
            let pair = pair::<K>(array);
            let Some(count) = self.needed.get_mut(&pair) else { return };
            *count -= 1;
            if *count > 0 {
                continue;
            }
            self.needed.remove(&pair);
            let words = whole((1 << K::STEPS[step]) / Layout::<K>::PER);
            self.memory.doom(pair, words / 2);
            self.array_words -= u64::from(words);
            unneeded.get_or_insert(at);
        }
        // Arrays below an unneeded one are not needed either, and the last one shows what they all show.
        if let Some(at) = unneeded {
            self.lengths[at as usize] = self.lengths[array as usize];
            self.store(at, self.slot(array));
        }
    }

    fn slot(&self, at: u64) -> u64 {
        Layout::<K>::slot(self.memory.words(), at)
    }
    fn store(&mut self, at: u64, slot: u64) {
        let (at, shift) = (at as u32 / Layout::<K>::PER, at as u32 % Layout::<K>::PER * K::SLOT);
        let others = word(self.memory.words(), at) & !(Layout::<K>::MASK << shift);
        self.memory.publish_word(at, others | slot << shift);
    }
    /// Shows a value in an array's slots, and those of the arrays below it, that a prefix covers (all without one) and
    /// that show a prefix of a length to replace.
    fn paint(
        &mut self,
        array: u64,
        step: usize,
        prefix: Option<Prefix<K>>,
        shown: (u64, u8),
        replaces: &impl Fn(u8) -> bool,
    ) {
        let bits = K::STEPS[step];
        let range = match prefix {
            None => array..array + (1 << bits),
            Some(prefix) => {
                let free = Layout::<K>::before(step + 1) - u32::from(prefix.len());
                let first = array + u64::from(Layout::<K>::place(prefix.key(), step));
                first..first + (1 << free)
            }
        };
        let per = u64::from(Layout::<K>::PER);
        for at in range.start / per..range.end.div_ceil(per) {
            self.paint_word(at as u32, &range, step, shown, replaces);
        }
    }
    fn paint_word(
        &mut self,
        at: u32,
        range: &Range<u64>,
        step: usize,
        (value, length): (u64, u8),
        replaces: &impl Fn(u8) -> bool,
    ) {
        let old = word(self.memory.words(), at);
        let (mut new, first) = (old, u64::from(at * Layout::<K>::PER));
        for lane in 0..Layout::<K>::PER {
            let (slot, shift) = (first + u64::from(lane), lane * K::SLOT);
            if !range.contains(&slot) {
                continue;
            }
            let shows = old >> shift & Layout::<K>::MASK;
            if shows & Layout::<K>::POINTS != 0 {
                let below = Layout::<K>::array(shows);
                self.paint(below, step + 1, None, (value, length), replaces);
            } else if replaces(self.lengths[slot as usize]) {
                self.lengths[slot as usize] = length;
                new = new & !(Layout::<K>::MASK << shift) | value << shift;
            }
        }
        if new != old {
            self.memory.publish_word(at, new);
        }
    }
}

/// The pair of words at which an array begins.
fn pair<K: DirectKey>(array: u64) -> u32 {
    array as u32 / (2 * Layout::<K>::PER)
}

#[inline(always)]
fn lookup<K: DirectKey>(words: &[AtomicU64], key: K) -> Option<NextHop> {
    let (mut array, mut depth) = (u64::from(Layout::<K>::FIRST * Layout::<K>::PER), 0);
    let mut slot = 0;
    for &bits in K::STEPS {
        slot = Layout::<K>::slot(words, array + (key.window(depth) >> (64 - bits)));
        if slot & Layout::<K>::POINTS == 0 {
            break;
        }
        (array, depth) = (Layout::<K>::array(slot), depth + bits);
    }
    Layout::<K>::hop(words, slot)
}

/// Interleaved searches, compiled for several processors.
struct Many<'a, K> {
    words: &'a [AtomicU64],
    keys: &'a [K],
    hops: &'a mut [Option<NextHop>],
}

/// Steps that the keys of a row take together; longer searches go on one by one.
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
/// Every step is a separate loop over all lanes, with as few instructions as it can have between loads: so many more of
/// them are in flight.
#[inline(always)]
fn row<K: DirectKey>(words: &[AtomicU64], keys: &[K], hops: &mut [Option<NextHop>]) {
    let (mut windows, mut places) = ([0_u64; ROW], [0_u32; ROW]);
    for ((window, place), key) in windows.iter_mut().zip(&mut places).zip(keys) {
        *window = key.window(0);
        *place = Layout::<K>::FIRST * Layout::<K>::PER + (*window >> (64 - K::STEPS[0])) as u32;
    }
    let mut slots = Layout::<K>::slots(words, &places);
    let mut depth = K::STEPS[0];
    for &bits in K::STEPS.iter().take(TOGETHER).skip(1) {
        if slots.iter().fold(0, |any, slot| any | slot) & Layout::<K>::POINTS as u32 == 0 {
            break;
        }
        for at in 0..ROW {
            let slot = slots[at];
            let next = Layout::<K>::array(slot.into()) as u32;
            let next = next + (windows[at] << depth >> (64 - bits)) as u32;
            places[at] = if slot & Layout::<K>::POINTS as u32 != 0 { next } else { places[at] };
        }
        slots = Layout::<K>::slots(words, &places);
        depth += bits;
    }
    for ((hop, &slot), key) in hops.iter_mut().zip(&slots).zip(keys) {
        *hop = match slot & Layout::<K>::POINTS as u32 {
            0 => Layout::<K>::hop(words, slot.into()),
            _ => lookup(words, *key),
        };
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
        DirectReader { door: self.door.another(), arch: self.arch, key: PhantomData }
    }
}
