//! The arrays in which a search begins, and the prefixes that end within their bits.
//!
//! ```text
//! key    | first step | second step | ...          | strides of the nodes
//! entry  | pointer to an array --> | pointer to an array --> | pointer to a node
//!        | next hop of the longest match within the bits so far
//! ```
//!
//! The first array has an entry for each value of the first step's bits. If some prefix below an entry is
//! longer, the entry points to a further array for the next step's bits, whose entries start with its next
//! hop. So all steps together may cover many bits, and only the parts that have prefixes use memory:
//! of the 4,096 values of an IPv6 address's first 12 bits, 10 are in use.

use super::NextHop;
use super::key::{Key, Prefix};
use super::memory::{Memory, RESERVED, whole};
use std::collections::BTreeMap;

/// Limit on the bits that index the first array.
pub const FIRST_MAX: u8 = 24;
/// Limit on the bits that index any other array.
pub const STEP_MAX: u8 = 12;
/// Limit on the bits of all steps together.
pub const INITIAL_MAX: u8 = 30;

/// The writer's data about the arrays.
#[derive(Debug)]
pub(super) struct Arrays {
    steps: &'static [u8],
    /// The bits of all steps together.
    bits: u8,
    /// The prefixes within these bits: their bits, length; next hop. An entry does not store how long
    /// the prefix of its next hop is.
    short: BTreeMap<(u32, u8), u32>,
    /// For each array except the first, by its position in pairs of words, how many prefixes are longer
    /// than the bits before it.
    prefixes: BTreeMap<u32, u32>,
    /// Words of all arrays.
    words: u64,
}

impl Arrays {
    /// The first array alone, after the reserved words.
    ///
    /// # Panics
    /// If the steps exceed their limits.
    pub(super) fn new(steps: &'static [u8]) -> Arrays {
        let bits = steps.iter().map(|&step| u32::from(step)).sum::<u32>();
        let first = steps.first().is_none_or(|&first| first <= FIRST_MAX);
        let others = steps.iter().skip(1).all(|step| (1..=STEP_MAX).contains(step));
        assert!(first && others && bits <= INITIAL_MAX.into(), "the steps of the arrays");
        let words = u64::from(whole(Arrays::first_len(steps)));
        Arrays { steps, bits: bits as u8, short: BTreeMap::new(), prefixes: BTreeMap::new(), words }
    }
    /// Words of the first array.
    pub(super) fn first_len(steps: &[u8]) -> u32 {
        1 << steps.first().copied().unwrap_or(0)
    }
    pub(super) fn words(&self) -> u64 {
        self.words
    }
    /// Limit on the words that a prefix needs for arrays.
    pub(super) fn words_for_one(&self) -> u32 {
        self.steps.iter().skip(1).map(|&step| whole(2 << step)).sum()
    }
    /// Bytes of the writer's own data.
    pub(super) fn writer_bytes(&self) -> u64 {
        // A B-tree's leaves are at least about two thirds full: 11 pairs of 8 and 4 bytes, and 12 more.
        (self.short.len() as u64 * 12 + self.prefixes.len() as u64 * 8) * 3 / 2
    }
    /// Whether a prefix ends within the arrays' bits.
    pub(super) fn holds<K: Key>(&self, prefix: Prefix<K>) -> bool {
        self.bits > 0 && prefix.len() <= self.bits
    }
    /// The bits of a key that index the arrays.
    fn value<K: Key>(&self, key: K) -> u32 {
        key.window(0).checked_shr(64 - u32::from(self.bits)).unwrap_or(0) as u32
    }
    /// How many values a prefix of `len` bits has.
    fn values(&self, len: u8) -> u32 {
        1 << (self.bits - len)
    }
    /// The next hop of the longest prefix of at most `len` bits that contains a value.
    fn around(&self, value: u32, len: u8) -> Option<(u8, u32)> {
        (0..=len).rev().find_map(|len| {
            let over = value & !(self.values(len) - 1);
            Some((len, *self.short.get(&(over, len))?))
        })
    }
    /// The longest prefix within the arrays' bits that matches a key.
    pub(super) fn longest<K: Key>(&self, key: K) -> Option<(Prefix<K>, NextHop)> {
        let (len, hop) = self.around(self.value(key), self.bits)?;
        Prefix::new(key, len).zip(NextHop::new(hop))
    }

    /// The arrays on the path of a value: the word of the entry, and the bits up to the end of its step.
    fn way(&self, memory: &Memory, value: u32) -> impl Iterator<Item = (u32, u8)> {
        let (mut array, mut depth) = (Some(RESERVED), 0);
        let steps = self.steps.iter().map_while(move |&step| {
            let first = array?;
            depth += step;
            let entry = first + (value >> (self.bits - depth) & ((1 << step) - 1));
            let pointer = memory.half(2 * entry + 1);
            array = (pointer != 0).then_some(2 * pointer);
            Some((entry, depth))
        });
        let none = self.steps.is_empty().then_some((RESERVED, 0));
        none.into_iter().chain(steps)
    }
    /// The entry at which a search for `key` ends, and how many bits selected it.
    pub(super) fn entry<K: Key>(&self, memory: &Memory, key: K) -> (u32, u8) {
        self.way(memory, self.value(key)).last().expect("there is a first array")
    }
    /// The entry that points to the node for keys that begin like `key`, if there is one.
    pub(super) fn last_entry<K: Key>(&self, memory: &Memory, key: K) -> Option<u32> {
        let (entry, depth) = self.entry(memory, key);
        (depth == self.bits).then_some(entry)
    }
    /// Like [`Arrays::last_entry`], but creates the arrays missing on a prefix's path, without changing any
    /// answer. The last step's entry, if the prefix is longer than all steps together.
    pub(super) fn open<K: Key>(&mut self, memory: &mut Memory, prefix: Prefix<K>) -> u32 {
        let value = self.value(prefix.key());
        loop {
            let way = self.way(memory, value);
            let (entry, depth) = way.last().expect("there is a first array");
            if depth == self.bits || prefix.len() <= depth {
                return entry;
            }
            let index = self.step_after(depth);
            let pairs = (1_u32 << self.steps[index]).div_ceil(2);
            let array = memory.allocate(pairs);
            let hop = u64::from(memory.half(2 * entry));
            (array..array + pairs).for_each(|pair| memory.put(pair, [hop; 2]));
            memory.publish(2 * entry + 1, array);
            self.prefixes.insert(array, 0);
            self.words += u64::from(whole(2 * pairs));
        }
    }
    /// Which step examines the bits after the first `depth`.
    fn step_after(&self, depth: u8) -> usize {
        let ends = self.steps.iter().scan(0, |end, step| {
            *end += step;
            Some(*end)
        });
        ends.take_while(|&end| end <= depth).count()
    }
    /// The arrays that a prefix needs, except the first: the entry that points to each, with its depth.
    fn needed<K: Key>(&self, memory: &Memory, prefix: Prefix<K>) -> Vec<(u32, u8)> {
        let way = self.way(memory, self.value(prefix.key()));
        way.filter(|&(_, depth)| depth < prefix.len().min(self.bits)).collect()
    }
    /// Counts a new prefix whose arrays exist.
    pub(super) fn count<K: Key>(&mut self, memory: &Memory, prefix: Prefix<K>) {
        if self.steps.len() > 1 {
            for (entry, _) in self.needed(memory, prefix) {
                let array = memory.half(2 * entry + 1);
                *self.prefixes.get_mut(&array).expect("the array was opened") += 1;
            }
        }
    }
    /// Stops counting a removed prefix; arrays that are no longer needed are freed, without changing any answer.
    pub(super) fn close<K: Key>(&mut self, memory: &mut Memory, prefix: Prefix<K>) {
        if self.steps.len() < 2 {
            return;
        }
        let mut last_needed = None;
        for (entry, depth) in self.needed(memory, prefix) {
            let array = memory.half(2 * entry + 1);
            let prefixes = self.prefixes.get_mut(&array).expect("the array was opened");
            *prefixes -= 1;
            if *prefixes > 0 {
                continue;
            }
            self.prefixes.remove(&array);
            let pairs = (1_u32 << self.steps[self.step_after(depth)]).div_ceil(2);
            memory.doom(array, pairs);
            self.words -= u64::from(whole(2 * pairs));
            last_needed.get_or_insert((entry, depth));
        }
        // Arrays below an unneeded one are not needed either; one store unlinks them all.
        if let Some((entry, depth)) = last_needed {
            let hop = self.around(self.value(prefix.key()), depth).map_or(0, |(_, hop)| hop);
            memory.publish_word(entry, hop.into());
        }
    }

    /// Inserts a prefix within the arrays' bits; returns its previous next hop.
    pub(super) fn insert<K: Key>(
        &mut self,
        memory: &mut Memory,
        prefix: Prefix<K>,
        hop: u32,
    ) -> Option<NextHop> {
        self.open(memory, prefix);
        let first = self.value(prefix.key());
        let old = self.short.insert((first, prefix.len()), hop);
        self.fill(memory, first, prefix.len(), hop);
        old.and_then(NextHop::new)
    }
    /// Removes a prefix within the arrays' bits; returns its next hop.
    pub(super) fn remove<K: Key>(
        &mut self,
        memory: &mut Memory,
        prefix: Prefix<K>,
    ) -> Option<NextHop> {
        let (first, len) = (self.value(prefix.key()), prefix.len());
        let old = self.short.remove(&(first, len))?;
        let shorter = self.around(first, len).map_or(0, |(_, hop)| hop);
        self.fill(memory, first, len, shorter);
        NextHop::new(old)
    }
    /// Gives `hop` to the values of a prefix, except those of longer prefixes.
    fn fill(&self, memory: &mut Memory, first: u32, len: u8, hop: u32) {
        let (end, mut from) = (first + self.values(len), first);
        let inside =
            self.short.range((first, 0)..(end, 0)).filter(|((_, longer), _)| *longer > len);
        for (&(start, longer), _) in inside {
            self.cover(memory, (from, start), hop);
            from = from.max(start + self.values(longer));
        }
        self.cover(memory, (from, end), hop);
    }
    /// Gives `hop` to a range of values. If a prefix ends between entries, an array exists there.
    fn cover(&self, memory: &mut Memory, range: (u32, u32), hop: u32) {
        if self.steps.is_empty() || range.0 >= range.1 {
            return;
        }
        self.cover_array(memory, (0, RESERVED), 0, range, hop);
    }
    /// The part in one array: of step `index`, at `array`, for the values from `base` on.
    fn cover_array(
        &self,
        memory: &mut Memory,
        (index, array): (usize, u32),
        base: u32,
        range: (u32, u32),
        hop: u32,
    ) {
        let depth: u8 = self.steps[..=index].iter().sum();
        let values = self.values(depth);
        let last = base + (values << self.steps[index]);
        let (from, end) = (range.0.max(base) - base, range.1.min(last) - base);
        for at in from / values..end.div_ceil(values) {
            let entry = array + at;
            match memory.half(2 * entry + 1) {
                next if next != 0 && depth < self.bits => {
                    let base = base + at * values;
                    self.cover_array(memory, (index + 1, 2 * next), base, range, hop);
                }
                _ => memory.publish(2 * entry, hop),
            }
        }
    }

    /// The prefixes within the arrays' bits: the bits, the first at the top, the length, the next hop.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = (u128, u8, u32)> {
        self.short.iter().map(|(&(value, len), &hop)| (self.left(value), len, hop))
    }
    /// The nodes that entries point to, with the bits that lead there, the first at the top.
    pub(super) fn nodes(&self, memory: &Memory) -> Vec<(u32, u128)> {
        let (mut found, mut value) = (Vec::new(), 0_u32);
        while value < 1 << self.bits {
            let (entry, depth) = self.way(memory, value).last().expect("there is a first array");
            let pointer = memory.half(2 * entry + 1);
            if depth == self.bits && pointer != 0 {
                found.push((pointer, self.left(value)));
            }
            value += self.values(depth);
        }
        found
    }
    fn left(&self, value: u32) -> u128 {
        u128::from(value).checked_shl(128 - u32::from(self.bits)).unwrap_or(0)
    }
    /// The value of the first `depth` bits that lead to the entry of `key`.
    pub(super) fn number<K: Key>(&self, key: K, depth: u8) -> u32 {
        self.value(key) >> (self.bits - depth)
    }
}
