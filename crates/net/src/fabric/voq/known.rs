//! What is known of outputs: which have a queue, and what queues owe that have no packet, four bytes
//! each, in the order of their outputs.
//!
//! ```text
//! queues   0 0 1 0 ... 0 | 1 0 0 ...        a bit for each output
//! owes     0 1 0 0 ... 1 | 0 0 1 ...        a bit for each output
//! before   0             | 2                how many owe before each word
//! values   v(1) v(63)    | v(66) ...        the bits owed when rates were last computed
//! ```
//!
//! So a value is found by counting bits, and what is known of an output lies in one line of a cache, or
//! two. Values are added when rates are computed; one that is taken in between leaves a zero.

use super::{PS_PER_SECOND, bits_in, time_for};
use lastmeter_base::{Duration, prefetch, prefetch_slice};

#[derive(Debug, Default)]
pub(super) struct Known {
    words: Vec<Word>,
    values: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Word {
    queues: u64,
    owes: u64,
    before: u16,
}

impl Known {
    /// Asks for what is known of an output.
    #[inline]
    pub(super) fn prefetch(&self, output: usize) {
        if let Some(word) = self.words.get(output / 64) {
            prefetch(word);
        }
    }
    /// Asks for what its queue owes.
    #[inline]
    pub(super) fn prefetch_value(&self, output: usize) {
        if let Some(value) = self.place(output).and_then(|place| self.values.get(place)) {
            prefetch(value);
        }
    }
    /// Asks for what is known of all outputs.
    pub(super) fn prefetch_all(&self) {
        self.prefetch_words();
        prefetch_slice(&self.values);
    }
    /// Asks for what says which owe.
    #[inline]
    pub(super) fn prefetch_words(&self) {
        prefetch_slice(&self.words);
    }

    #[inline]
    pub(super) fn has_queue(&self, output: usize) -> bool {
        self.words.get(output / 64).is_some_and(|word| word.queues >> (output % 64) & 1 == 1)
    }
    #[inline]
    pub(super) fn set_queue(&mut self, output: usize) {
        self.grow(output / 64 + 1);
        self.words[output / 64].queues |= 1 << (output % 64);
    }
    pub(super) fn clear_queue(&mut self, output: usize) {
        if let Some(word) = self.words.get_mut(output / 64) {
            word.queues &= !(1 << (output % 64));
        }
    }
    pub(super) fn clear_queues(&mut self) {
        self.words.iter_mut().for_each(|word| word.queues = 0);
    }

    fn grow(&mut self, words: usize) {
        if self.words.len() < words {
            self.words.resize(words, Word::default());
        }
    }

    #[inline]
    fn place(&self, output: usize) -> Option<usize> {
        let bit = 1 << (output % 64);
        let word = self.words.get(output / 64)?;
        let below = (word.owes & (bit - 1)).count_ones() as usize;
        (word.owes & bit != 0).then(|| usize::from(word.before) + below)
    }
    /// Whether the queue of an output owes.
    pub(super) fn owes(&self, output: usize) -> bool {
        self.place(output).is_some_and(|place| self.values[place] != 0)
    }
    /// Takes the bits that the queue of an output owed when rates were last computed.
    #[inline]
    pub(super) fn take(&mut self, output: usize) -> Option<u32> {
        let place = self.place(output)?;
        let owed = std::mem::take(&mut self.values[place]);
        (owed != 0).then_some(owed)
    }

    /// Takes off what has been paid in `time` at the rate that follows from the output alone, which is
    /// at most `rate_most` and nearly always that, and adds `owing`, which is in order. `are_usual` says
    /// of which words all have that. What is known lies in `values` then, and those have its room.
    pub(super) fn change(
        &mut self,
        time: Duration,
        rate: impl Fn(usize) -> u64,
        (rate_most, are_usual): (u64, impl Fn(usize) -> bool),
        owing: &[(u16, u32)],
        values: &mut Vec<u32>,
    ) {
        self.grow(owing.last().map_or(0, |&(output, _)| usize::from(output) / 64 + 1));
        let usual = Payment::of(time, rate_most);
        let whole = usual.whole();
        values.clear();
        values.reserve((self.values.len() + owing.len()).next_multiple_of(64));
        let mut old = self.values.iter();
        let mut owing = owing.iter().copied().peekable();
        for (number, word) in self.words.iter_mut().enumerate() {
            word.before = values.len() as u16; // At most `PORTS_MAX`.
            let mut left = std::mem::take(&mut word.owes);
            if let Some(whole) = whole.filter(|_| are_usual(number)) {
                let begin = values.len();
                let mut still_owing = 0;
                values.extend(old.by_ref().take(left.count_ones() as usize));
                let mut end = begin;
                for place in begin..values.len() {
                    let still = values[place].saturating_sub(whole);
                    values[end] = still;
                    end += usize::from(still > 0);
                    still_owing |= u64::from(still > 0) << left.trailing_zeros();
                    left &= left - 1;
                }
                values.truncate(end);
                // Few are added to each word.
                let is_here = |next: &(u16, u32)| usize::from(next.0) / 64 == number;
                while let Some((output, owed)) = owing.next_if(is_here) {
                    let bit = 1 << (output % 64);
                    let below = (still_owing & (bit - 1)).count_ones() as usize;
                    values.insert(begin + below, owed);
                    still_owing |= bit;
                }
                word.owes = still_owing;
                continue;
            }
            loop {
                let one = left.trailing_zeros() as usize; // 64 if none is left.
                let until = number * 64 + one;
                while let Some((output, owed)) = owing.next_if(|next| usize::from(next.0) < until) {
                    word.owes |= 1 << (output % 64);
                    values.push(owed);
                }
                if left == 0 {
                    break;
                }
                left &= left - 1;
                let Some(&owed) = old.next() else { break };
                if owed == 0 {
                    continue;
                }
                let rate = rate(until);
                let payment = if rate == rate_most { usual } else { Payment::of(time, rate) };
                let still = payment.still_owed(owed);
                if still > 0 {
                    word.owes |= 1 << one;
                    values.push(still);
                }
            }
        }
        std::mem::swap(&mut self.values, values);
    }
}

/// What is paid in a time at a rate.
#[derive(Clone, Copy)]
struct Payment {
    time: Duration,
    rate: u64,
    /// In whole bits, and parts of one; `None` if it is more than a number holds.
    paid: Option<(u64, u64)>,
}

impl Payment {
    #[inline]
    fn of(time: Duration, rate: u64) -> Payment {
        let paid = time.as_ps().checked_mul(rate);
        Payment { time, rate, paid: paid.map(|paid| (paid / PS_PER_SECOND, paid % PS_PER_SECOND)) }
    }

    /// The bits that are paid of whatever is owed, if it does not matter how they are rounded.
    fn whole(self) -> Option<u32> {
        let (whole, part) = self.paid?;
        (part >= self.rate).then(|| u32::try_from(whole).unwrap_or(u32::MAX))
    }

    /// What is still owed of some bits: as if the instant at which all is paid, rounded up to a
    /// picosecond, were turned into bits again, rounded up too.
    #[inline]
    fn still_owed(self, owed: u32) -> u32 {
        let Payment { time, rate, paid } = self;
        let Some((whole, part)) = paid else {
            let left = time_for(owed.into(), rate).saturating_sub(time.as_ps());
            return u32::try_from(bits_in(left, rate)).unwrap_or(owed);
        };
        // The first rounding adds less than what `rate` is: most parts of a bit are larger.
        let more = match part < rate {
            true => {
                let rounded = u128::from(time_for(owed.into(), rate)) * u128::from(rate);
                let added = rounded - u128::from(owed) * u128::from(PS_PER_SECOND);
                added.saturating_sub(part.into()).div_ceil(PS_PER_SECOND.into()) as u64
            }
            false => 0,
        };
        (u64::from(owed) + more).saturating_sub(whole) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn debts_are_a_map_in_order(
            periods in prop::collection::vec((
                prop::collection::vec((0u16..300, 1u32..400), 0..40),
                prop::collection::vec(0u16..400, 0..20),
            ), 1..12),
            most in PS_PER_SECOND..PS_PER_SECOND + 2,
        ) {
            let (mut debts, mut plain) = (Known::default(), BTreeMap::<u16, u32>::new());
            let mut spare = Vec::new();
            for (owing, taken) in periods {
                // A bit a picosecond.
                plain.values_mut().for_each(|owed| *owed = owed.saturating_sub(100));
                plain.retain(|_, owed| *owed > 0);
                let owing: BTreeMap<u16, u32> =
                    owing.into_iter().filter(|(output, _)| !plain.contains_key(output)).collect();
                let given: Vec<(u16, u32)> = owing.iter().map(|(&o, &owed)| (o, owed)).collect();
                let rate = |_: usize| PS_PER_SECOND;
                let usual = (most, |_: usize| most == PS_PER_SECOND);
                debts.change(Duration::from_ps(100), rate, usual, &given, &mut spare);
                plain.extend(owing);
                for output in taken {
                    prop_assert_eq!(debts.owes(output.into()), plain.contains_key(&output));
                    prop_assert_eq!(debts.take(output.into()), plain.remove(&output));
                }
            }
        }

        #[test]
        fn what_is_still_owed_is_what_two_roundings_give(
            owed in 1u32.., time in prop_oneof![0u64..10_000, 0u64..1 << 62],
            rate in prop_oneof![
                Just(0u64), 1000u64..4000, (1u64..1000).prop_map(|n| n * 2_000_000), 1000u64..1 << 42],
        ) {
            let expected = match rate {
                0 => u64::from(owed),
                _ => bits_in(time_for(owed.into(), rate).saturating_sub(time), rate),
            };
            let found = Payment::of(Duration::from_ps(time), rate).still_owed(owed);
            prop_assert_eq!(u64::from(found), expected);
        }
    }
}
