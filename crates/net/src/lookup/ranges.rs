//! Nodes of ranges: what sixteen bits of a key select, within one cache line.
//!
//! ```text
//! words 0 to 3   where each of 16 ranges begins, in order, the first at 0       slots of 16 bits, the low ones first
//! words 4 to 7   the number of each one's next hop
//! ```
//!
//! A range ends where the next one begins. Unused ranges begin at the last value and show what the last one shows.
//! All starts are compared at once, within words or as a vector: how many do not exceed the key's bits is the range's
//! number.
//!
//! A network's prefixes are few, and lie anywhere in it: arrays of 256 slots would take a kilobyte, another for each
//! slot, and two loads that miss the caches. A node that would need more ranges becomes an array whose slots have
//! nodes of their own. It stays an array until all its slots show the same.
//!
//! Nodes never change while readers can see them. Source: the idea of searching ranges is from DXR (Zec, Rizzo and
//! Mikuc, CCR 42(5), 2012); one-line nodes and their comparison are our own.

use super::direct::{Direct, DirectKey, Layout};
use super::memory::LINE;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits that a node examines.
pub(super) const BITS: u32 = 16;
/// Ranges in a node.
pub(super) const RANGES: usize = 16;
/// Values in a word.
const PER: usize = 4;
/// A change adds at most two.
const ROOM: usize = RANGES + 2;
/// The top bit of each value in a word.
const TOPS: u64 = 0x8000_8000_8000_8000;
/// The bottom bit.
const ONES: u64 = 0x0001_0001_0001_0001;

/// A node's words.
pub(super) type Line = [AtomicU64; LINE];

/// The line with this number; none beyond the end.
#[inline(always)]
pub(super) fn line(words: &[AtomicU64], at: u64) -> Option<&Line> {
    words.as_chunks::<LINE>().0.get(at as usize)
}

/// A bit, at the bottom of each value, for each start in a word that is at most `value`, which is repeated in it.
#[inline(always)]
fn at_most(begins: u64, value: u64) -> u64 {
    let low = (value | TOPS).wrapping_sub(begins & !TOPS);
    ((value & !begins | !(value ^ begins) & low) & TOPS) >> (BITS - 1)
}

/// The number of the range that contains a value.
#[inline(always)]
pub(super) fn number(begins: [u64; PER], value: u64) -> u64 {
    let value = value * ONES;
    let each = begins.map(|begins| at_most(begins, value));
    let counts = each[0] + each[1] + each[2] + each[3];
    last(counts.wrapping_mul(ONES) >> (3 * BITS))
}

/// The number of the last range of this many; the first begins at 0.
#[inline(always)]
pub(super) fn last(count: u64) -> u64 {
    count.wrapping_sub(1) & (RANGES as u64 - 1)
}

/// One of the words with the starts of a node's ranges.
#[inline(always)]
pub(super) fn begins(line: &Line, at: usize) -> u64 {
    line[at].load(Ordering::Relaxed)
}

/// What a node shows for a value.
#[inline(always)]
pub(super) fn find(words: &[AtomicU64], at: u64, asked: u64) -> u64 {
    line(words, at).map_or(0, |line| {
        let number = number([0, 1, 2, 3].map(|word| begins(line, word)), asked);
        shown(line, number)
    })
}

/// What the range with this number shows.
#[inline(always)]
pub(super) fn shown(line: &Line, number: u64) -> u64 {
    let word = &line[PER + number as usize % RANGES / PER];
    word.load(Ordering::Relaxed) >> (number % PER as u64 * u64::from(BITS)) & 0xffff
}

/// What an address shows: the number of a next hop, and one more than the length of its prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) value: u16,
    pub(super) length: u8,
}

/// Ranges in order, neighbours of which show different things.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranges {
    len: usize,
    all: [(u16, Shown); ROOM],
}

impl Ranges {
    fn none() -> Ranges {
        Ranges { len: 0, all: [(0, Shown::default()); ROOM] }
    }
    fn push(&mut self, from: u16, shown: Shown) {
        if self.len == 0 || self.all[self.len - 1].1 != shown {
            self.all[self.len] = (from, shown);
            self.len += 1;
        }
    }
    fn read(line: &Line, lengths: &[u8]) -> Ranges {
        let value = |at: usize| {
            (line[at / PER].load(Ordering::Relaxed) >> (at % PER * BITS as usize)) as u16
        };
        let mut ranges = Ranges::none();
        for (at, &length) in lengths.iter().enumerate().take(RANGES) {
            ranges.push(value(at), Shown { value: value(RANGES + at), length });
        }
        ranges
    }
    /// Each with its last value.
    fn each(&self) -> impl Iterator<Item = (u16, u16, Shown)> + use<'_> {
        let all = &self.all[..self.len];
        let last = |at: usize| all.get(at + 1).map_or(u16::MAX, |(next, _)| next - 1);
        all.iter().enumerate().map(move |(at, &(from, shown))| (from, last(at), shown))
    }
    /// With a value shown from `first` to `last` wherever a length is to be replaced.
    fn changed(
        &self,
        (first, last): (u16, u16),
        new: Shown,
        replaces: &impl Fn(u8) -> bool,
    ) -> Ranges {
        let mut ranges = Ranges::none();
        for (from, to, shown) in self.each() {
            if from > last || to < first || !replaces(shown.length) {
                ranges.push(from, shown);
                continue;
            }
            if from < first {
                ranges.push(from, shown);
            }
            ranges.push(from.max(first), new);
            if to > last {
                ranges.push(last + 1, shown);
            }
        }
        ranges
    }
    /// Of values that begin with this byte, by their other bits.
    fn part(&self, byte: u8) -> Ranges {
        let (first, last) = (u16::from(byte) << 8, u16::from(byte) << 8 | 0xff);
        let mut ranges = Ranges::none();
        for (from, _, shown) in self.each().filter(|&(from, to, _)| from <= last && to >= first) {
            ranges.push(from.max(first) << 8, shown);
        }
        ranges
    }
    /// As a node's words, and the lengths of its ranges.
    fn written(&self) -> ([u64; LINE], [u8; RANGES]) {
        let (mut words, mut lengths) = ([0; LINE], [0; RANGES]);
        for (at, length) in lengths.iter_mut().enumerate() {
            let used = at.min(self.len - 1);
            let (from, shown) = self.all[used];
            let from = if used == at { from } else { u16::MAX };
            for (at, value) in [(at, from), (RANGES + at, shown.value)] {
                words[at / PER] |= u64::from(value) << (at % PER * BITS as usize);
            }
            *length = shown.length;
        }
        (words, lengths)
    }
}

impl<K: DirectKey> Direct<K> {
    /// The ranges of a slot that has no array.
    fn ranges(&self, at: u64) -> Ranges {
        let slot = self.slot(at);
        if slot & Layout::<K>::POINTS == 0 {
            let mut ranges = Ranges::none();
            ranges.push(0, Shown { value: slot as u16, length: self.lengths[at as usize] });
            return ranges;
        }
        let at = Layout::<K>::node(slot);
        let first = (at as u32 * LINE as u32 * Layout::<K>::PER) as usize;
        let line = line(self.memory.words(), at).expect("a slot points to a node");
        Ranges::read(line, &self.lengths[first..first + RANGES])
    }
    /// The new value of a slot without an array that shows a value from `first` to `last` wherever a length is to be
    /// replaced. The caller stores it, which unlinks the previous node.
    pub(super) fn repaint(
        &mut self,
        at: u64,
        values: (u16, u16),
        shown: Shown,
        replaces: &impl Fn(u8) -> bool,
    ) -> u64 {
        let before = self.ranges(at);
        let after = before.changed(values, shown, replaces);
        let old = self.slot(at);
        if after == before {
            return old;
        }
        self.leave(old);
        let (slot, length) = self.build(&after);
        self.lengths[at as usize] = length;
        slot
    }
    /// Makes an array of what a slot without one shows; the slot's value.
    pub(super) fn spread(&mut self, at: u64) -> u64 {
        let (ranges, old) = (self.ranges(at), self.slot(at));
        self.leave(old);
        let slot = self.array_of(&ranges);
        self.store(at, slot);
        slot
    }
    fn leave(&mut self, slot: u64) {
        if slot & Layout::<K>::POINTS != 0 {
            self.memory.doom((Layout::<K>::node(slot) as usize * LINE / 2) as u32, LINE as u32 / 2);
            self.array_words -= LINE as u64;
            self.nodes -= 1;
        }
    }
    /// A slot's value and length for ranges.
    fn build(&mut self, ranges: &Ranges) -> (u64, u8) {
        if ranges.len == 1 {
            let (_, Shown { value, length }) = ranges.all[0];
            return (value.into(), length);
        }
        if ranges.len > RANGES {
            return (self.array_of(ranges), 0);
        }
        let (words, lengths) = ranges.written();
        let pair = self.memory.allocate(LINE as u32 / 2);
        self.array_words += LINE as u64;
        self.nodes += 1;
        for (pair, two) in (pair..).zip(words.as_chunks::<2>().0) {
            self.memory.put(pair, *two);
        }
        self.set_lengths(pair, lengths.into_iter());
        (Layout::<K>::to_node(pair), 0)
    }
    fn array_of(&mut self, ranges: &Ranges) -> u64 {
        // Starts in its nodes differ in eight bits only, so that none of them becomes an array of nodes.
        let slots: Vec<(u64, u8)> = (0..=255).map(|byte| self.build(&ranges.part(byte))).collect();
        let words = slots.len() as u32 / Layout::<K>::PER;
        let pair = self.memory.allocate(words / 2);
        self.array_words += u64::from(words);
        for (pair, four) in (pair..).zip(slots.as_chunks::<4>().0) {
            let two = |at: usize| four[at].0 | four[at + 1].0 << K::SLOT;
            self.memory.put(pair, [two(0), two(2)]);
        }
        self.set_lengths(pair, slots.iter().map(|&(_, length)| length));
        Layout::<K>::pointer(pair)
    }
    /// Frees the arrays on a removed prefix's path whose slots all show the same.
    pub(super) fn collapse(&mut self, prefix: super::Prefix<K>) {
        let mut way = Vec::new();
        let (mut array, mut step) = (u64::from(Layout::<K>::FIRST * Layout::<K>::PER), 0);
        while Layout::<K>::before(step + 1) < prefix.len().into() {
            let at = array + u64::from(Layout::<K>::place(prefix.key(), step));
            let slot = self.slot(at);
            if !Layout::<K>::is_array(slot) {
                break;
            }
            (array, step) = (Layout::<K>::array(slot), step + 1);
            if step >= K::RANGED {
                way.push((at, array));
            }
        }
        for (at, array) in way.into_iter().rev() {
            let (slot, length) = (self.slot(array), self.lengths[array as usize]);
            let all = array..array + 256;
            let same = |at: u64| self.lengths[at as usize] == length && self.slot(at) == slot;
            if slot & Layout::<K>::POINTS != 0 || !all.into_iter().all(same) {
                break;
            }
            let words = 256 / Layout::<K>::PER;
            self.memory.doom(super::direct::pair::<K>(array), words / 2);
            self.array_words -= u64::from(words);
            self.lengths[at as usize] = length;
            self.store(at, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;

    #[test]
    fn a_value_is_found_in_the_range_that_contains_it() {
        let mut random = Stream::new(1, "ranges");
        for round in 0..400 {
            let mut ranges = Ranges::none();
            ranges.push(0, Shown { value: 9, length: 1 });
            let mut from = 0_u16;
            let most = if round % 2 == 0 { 9000 } else { 40 };
            while ranges.len <= random.below(16) as usize {
                let Some(next) = from.checked_add(1 + random.below(most) as u16) else { break };
                from = next;
                ranges.push(from, Shown { value: random.below(1 << 15) as u16, length: 2 });
            }
            let (words, lengths) = ranges.written();
            let line: Line = words.map(AtomicU64::new);
            assert_eq!(Ranges::read(&line, &lengths), ranges);
            let ends = ranges.each().flat_map(|(from, to, _)| [from, to]);
            for value in ends.chain((0..50).map(|_| random.bits() as u16)) {
                let expected = ranges.each().find(|&(from, to, _)| (from..=to).contains(&value));
                let found = find(&line, 0, value.into());
                assert_eq!(Some(found), expected.map(|(.., shown)| shown.value.into()), "{value}");
            }
        }
    }
}
