//! Direct lookup: arrays indexed by the bits of a key, few and large, whose slots hold a result or the next array.
//!
//! ```text
//! IPv4   24 bits | 8                     slots of 16 bits: the first array has 32 MiB
//! IPv6   16 bits | 16 | 8 | 8 | ...      slots of 32 bits
//! slot   0: no route | number of a next hop | array, or node of ranges, for the bits that follow (top bit set)
//! ```
//!
//! Every prefix is expanded into all slots that it covers, except those of longer prefixes. So an address costs one
//! load per array and hardly any arithmetic: for a full IPv4 table the first array answers, except in 451 of its
//! 16,777,216 slots. From bit 32 of IPv6 on, 16 bits with few prefixes are a node of ranges in one cache line
//! (`ranges.rs`). Tree Bitmap (`tree_bitmap.rs`) takes a tenth of the memory, but more arithmetic.
//!
//! Next hops have numbers of 15 bits, so that a 16-bit slot can name one: at most 32,767 different ones in the life of
//! a table. A next hop that fits is its own number, unless that is taken; as long as all are, a batch needs no table of
//! them. To make a change, the writer needs the length of the prefix that a slot shows; these lengths are kept beside
//! the slots, a byte each, for the writer alone, as is a map of all prefixes.
//!
//! **Updates** are as in Tree Bitmap (see `memory.rs`): readers never wait, and see each slot before or after a change.
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

use super::direct_search::{DirectReader, Many, lookup};
use super::key::{Key, Prefix};
use super::memory::{LINE, Memory, RESERVED, half, whole, word};
use super::ranges::{self, Shown};
use super::tree_bitmap::MemoryUse;
use super::{Full, NextHop};
use foldhash::fast::RandomState;
use pulp::Arch;
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
/// Keys that have a layout.
pub trait DirectKey: Key + Hash {
    /// The bits that index each array. All arrays except those of the first two steps have the size of the last.
    const STEPS: &'static [u32];
    /// Bits in a slot.
    const SLOT: u32;
    /// How many steps most keys take: a batch takes these in step.
    const COMMON: usize;
    /// From this step on, slots may point to nodes of ranges, and arrays have 8 bits.
    const RANGED: usize;
}

impl DirectKey for u32 {
    const STEPS: &'static [u32] = &[24, 8];
    const SLOT: u32 = 16;
    const COMMON: usize = 1;
    const RANGED: usize = usize::MAX;
}

impl DirectKey for u128 {
    const STEPS: &'static [u32] = &[16, 16, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8];
    const SLOT: u32 = 32;
    const COMMON: usize = 3;
    const RANGED: usize = 2;
}

/// Where slots and next hops are; positions of slots are counted in slots.
pub(super) struct Layout<K>(PhantomData<K>);

impl<K: DirectKey> Layout<K> {
    /// Slots in a word.
    pub(super) const PER: u32 = 64 / K::SLOT;
    pub(super) const MASK: u64 = (1 << K::SLOT) - 1;
    /// The bit that marks a slot as a pointer to an array.
    pub(super) const POINTS: u64 = 1 << (K::SLOT - 1);
    /// The bit next to it, which marks it as a pointer to a node of ranges.
    pub(super) const NODE: u64 = if K::RANGED < K::STEPS.len() { 1 << (K::SLOT - 2) } else { 0 };
    /// Where the next hops begin, two to a word, after the reserved words; number 0 is no next hop.
    const HOPS: u32 = RESERVED;
    /// The word that is zero while each next hop is its own number.
    const RENUMBERED: u32 = 0;
    /// The word at which the first array begins.
    pub(super) const FIRST: u32 = RESERVED + whole(HOPS_MAX.div_ceil(2));
    /// The word after it.
    const END: u32 = (Self::FIRST + (1 << K::STEPS[0]) / Self::PER).next_multiple_of(2 * RESERVED);
    /// The word after the last array.
    const LIMIT: u32 = match K::SLOT {
        16 => Self::END + (ARRAYS_MAX << 8) / Self::PER,
        _ => WORDS_MAX,
    };

    /// The words of the first array.
    #[inline(always)]
    pub(super) fn first(words: &[AtomicU64]) -> &[AtomicU64] {
        &words[Self::FIRST as usize..][..(1 << K::STEPS[0]) / Self::PER as usize]
    }
    /// The slot's value.
    #[inline(always)]
    pub(super) fn slot(words: &[AtomicU64], at: u64) -> u64 {
        let at = at as u32;
        word(words, at / Self::PER) >> (at % Self::PER * K::SLOT) & Self::MASK
    }
    /// The first slot of the array that a slot points to.
    #[inline(always)]
    pub(super) fn array(slot: u64) -> u64 {
        let number = slot & !Self::POINTS;
        match K::SLOT {
            // Arrays of 256 slots are numbered in order.
            16 => u64::from(Self::END * Self::PER) + (number << 8),
            // In pairs of words.
            _ => number * u64::from(2 * Self::PER),
        }
    }
    /// Whether a slot points to an array.
    #[inline(always)]
    pub(super) fn is_array(slot: u64) -> bool {
        slot & (Self::POINTS | Self::NODE) == Self::POINTS
    }
    /// The number of the cache line of the node that a slot points to.
    #[inline(always)]
    pub(super) fn node(slot: u64) -> u64 {
        slot & (Self::NODE.wrapping_sub(1) & Self::MASK)
    }
    /// The slot's value that points to the node at a pair of words, the first of a cache line.
    pub(super) fn to_node(pair: u32) -> u64 {
        let line = 2 * u64::from(pair) / LINE as u64;
        Self::POINTS | Self::NODE | line
    }
    /// The slot's value that points to the array at a pair of words.
    pub(super) fn pointer(pair: u32) -> u64 {
        let number = match K::SLOT {
            16 => ((2 * pair - Self::END) * Self::PER) >> 8,
            _ => pair,
        };
        Self::POINTS | u64::from(number)
    }
    #[inline(always)]
    pub(super) fn hop(words: &[AtomicU64], number: u64) -> Option<NextHop> {
        NextHop::new(half(words, 2 * Self::HOPS + (number as u32 & HOPS_MAX)))
    }
    /// Whether each next hop is its own number, as far as slots show it that were loaded before.
    #[inline(always)]
    pub(super) fn are_numbers(words: &[AtomicU64]) -> bool {
        word(words, Self::RENUMBERED) == 0
    }
    /// The bits before an array of this step.
    pub(super) fn before(step: usize) -> u32 {
        K::STEPS[..step].iter().sum()
    }
    /// A key's place in an array of this step.
    pub(super) fn place(key: K, step: usize) -> u32 {
        (key.window(Self::before(step)) >> (64 - K::STEPS[step])) as u32
    }
}

/// A table of prefixes, owned by its one writer; see the top of the file.
#[derive(Debug)]
pub struct Direct<K> {
    pub(super) memory: Memory,
    arch: Arch,
    /// For each slot, one more than the length of the prefix that it shows; 0 without one.
    pub(super) lengths: Vec<u8>,
    prefixes: HashMap<(u8, K), u16, RandomState>,
    /// How many prefixes have each length.
    counts: [u32; 129],
    /// For each array, except the first and those from step [`DirectKey::RANGED`] on, by its pair of words: how
    /// many prefixes are longer than the bits before it.
    needed: HashMap<u32, u32, RandomState>,
    numbers: HashMap<NextHop, u16, RandomState>,
    /// All numbers above it are taken.
    number_max: u32,
    /// Words of arrays and nodes.
    pub(super) array_words: u64,
    /// How many nodes there are.
    pub(super) nodes: u64,
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
            number_max: HOPS_MAX,
            array_words: 0,
            nodes: 0,
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
        DirectReader::new(self.memory.door(), self.arch)
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
        let own = len + 1;
        let shown = Shown { value: number, length: own };
        self.show(prefix, old.is_none(), shown, &|shown| shown <= own);
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
        let shown = cover.map(|(&value, length)| Shown { value, length }).unwrap_or_default();
        self.show(prefix, false, shown, &|shown| shown == len + 1);
        self.close(prefix);
        Layout::<K>::hop(self.memory.words(), old.into())
    }

    /// Whether there is room for the arrays and nodes that a prefix needs.
    fn check_room(&self, prefix: Prefix<K>) -> Result<(), Full> {
        if K::RANGED < K::STEPS.len() {
            // At worst, all nodes are rewritten, each becomes an array of nodes, and a large array is missing.
            let arrays = u64::from(K::BITS / 8) * (256 + 256 * LINE as u64) + (1 << 16);
            let words = self.nodes * LINE as u64 + arrays;
            return match u64::from(self.memory.used()) + words <= u64::from(Layout::<K>::LIMIT) {
                true => Ok(()),
                false => Err(Full::Words(Layout::<K>::LIMIT)),
            };
        }
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
        if self.numbers.len() == HOPS_MAX as usize {
            return Err(Full::NextHops(HOPS_MAX));
        }
        let is_taken = |number| Layout::<K>::hop(self.memory.words(), number).is_some();
        let mut number = hop.get();
        if number > HOPS_MAX || is_taken(number.into()) {
            while is_taken(self.number_max.into()) {
                self.number_max -= 1;
            }
            number = self.number_max;
            self.memory.publish_word(Layout::<K>::RENUMBERED, 1);
        }
        self.memory.publish(2 * Layout::<K>::HOPS + number, hop.get());
        self.numbers.insert(hop, number as u16);
        Ok(number as u16)
    }
    /// Shows a value for those addresses of a prefix whose value has a length to be replaced. Makes missing arrays,
    /// without changing any answer.
    fn show(
        &mut self,
        prefix: Prefix<K>,
        is_new: bool,
        shown: Shown,
        replaces: &impl Fn(u8) -> bool,
    ) {
        let (mut array, mut step) = (u64::from(Layout::<K>::FIRST * Layout::<K>::PER), 0);
        while Layout::<K>::before(step + 1) < prefix.len().into() {
            let at = array + u64::from(Layout::<K>::place(prefix.key(), step));
            let mut slot = self.slot(at);
            step += 1;
            if step >= K::RANGED && !Layout::<K>::is_array(slot) {
                let end = Layout::<K>::before(step) + ranges::BITS;
                if u32::from(prefix.len()) <= end {
                    let free = end - u32::from(prefix.len());
                    let first = (prefix.key().window(Layout::<K>::before(step)) >> 48) as u16;
                    let values = (first, first | ((1_u32 << free) - 1) as u16);
                    let new = self.repaint(at, values, shown, replaces);
                    if new != slot {
                        self.store(at, new);
                    }
                    return;
                }
                slot = self.spread(at);
            } else if slot & Layout::<K>::POINTS == 0 {
                slot = self.make(at, slot, step);
            }
            array = Layout::<K>::array(slot);
            if is_new && step < K::RANGED {
                *self.needed.entry(pair::<K>(array)).or_default() += 1;
            }
        }
        self.paint(array, step, Some(prefix), shown, replaces);
    }
    /// Makes an array of this step, whose slots all copy the slot that will point to it; returns that slot's new value.
    fn make(&mut self, at: u64, shown: u64, step: usize) -> u64 {
        let words = whole((1 << K::STEPS[step]) / Layout::<K>::PER);
        let pair = self.memory.allocate(words / 2);
        let word = (0..Layout::<K>::PER).fold(0, |word, _| word << K::SLOT | shown);
        (pair..pair + words / 2).for_each(|pair| self.memory.put(pair, [word; 2]));
        let length = self.lengths[at as usize];
        let slots = (words * Layout::<K>::PER) as usize;
        self.set_lengths(pair, std::iter::repeat_n(length, slots));
        self.array_words += u64::from(words);
        let slot = Layout::<K>::pointer(pair);
        self.store(at, slot);
        slot
    }
    /// The lengths of the slots from a pair of words on.
    pub(super) fn set_lengths(&mut self, pair: u32, lengths: impl ExactSizeIterator<Item = u8>) {
        let first = (2 * pair * Layout::<K>::PER) as usize;
        let end = first + lengths.len();
        if self.lengths.len() < end {
            self.lengths.resize(end, 0);
        }
        for (to, length) in self.lengths[first..end].iter_mut().zip(lengths) {
            *to = length;
        }
    }
    /// Stops counting a removed prefix; arrays that are no longer needed are freed, without changing any answer.
    fn close(&mut self, prefix: Prefix<K>) {
        if K::RANGED < K::STEPS.len() {
            self.collapse(prefix);
        }
        let mut array = u64::from(Layout::<K>::FIRST * Layout::<K>::PER);
        let (mut step, mut unneeded) = (0, None);
        while Layout::<K>::before(step + 1) < prefix.len().into() && step + 1 < K::RANGED {
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
        // Arrays below an unneeded one are not needed either, and the last shows what they all show.
        if let Some(at) = unneeded {
            self.lengths[at as usize] = self.lengths[array as usize];
            self.store(at, self.slot(array));
        }
    }

    pub(super) fn slot(&self, at: u64) -> u64 {
        Layout::<K>::slot(self.memory.words(), at)
    }
    pub(super) fn store(&mut self, at: u64, slot: u64) {
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
        shown: Shown,
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
        shown: Shown,
        replaces: &impl Fn(u8) -> bool,
    ) {
        let old = word(self.memory.words(), at);
        let (mut new, first) = (old, u64::from(at * Layout::<K>::PER));
        let covered = |lane: &u32| range.contains(&(first + u64::from(*lane)));
        // Arrays below come first: a store there would unlink a node that can still be seen here.
        for lane in (0..Layout::<K>::PER).filter(covered) {
            let shows = old >> (lane * K::SLOT) & Layout::<K>::MASK;
            if Layout::<K>::is_array(shows) {
                self.paint(Layout::<K>::array(shows), step + 1, None, shown, replaces);
            }
        }
        for lane in (0..Layout::<K>::PER).filter(covered) {
            let (slot, shift) = (first + u64::from(lane), lane * K::SLOT);
            let shows = old >> shift & Layout::<K>::MASK;
            let value = if Layout::<K>::is_array(shows) {
                continue;
            } else if shows & Layout::<K>::POINTS != 0 {
                self.repaint(slot, (0, u16::MAX), shown, replaces)
            } else if replaces(self.lengths[slot as usize]) {
                self.lengths[slot as usize] = shown.length;
                shown.value.into()
            } else {
                continue;
            };
            new = new & !(Layout::<K>::MASK << shift) | value << shift;
        }
        if new != old {
            self.memory.publish_word(at, new);
        }
    }
}

/// The pair of words at which an array begins.
pub(super) fn pair<K: DirectKey>(array: u64) -> u32 {
    array as u32 / (2 * Layout::<K>::PER)
}
