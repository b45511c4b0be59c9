//! Index of outputs: which have a queue, and the debts of queues without packets, four bytes each, in the order of
//! outputs.
//!
//! ```text
//! queues   0 0 1 0 ... 0 | 1 0 0 ...        a bit for each output
//! listed   0 1 0 0 ... 1 | 0 0 1 ...        a bit for each output
//! before   0             | 2                number of entries listed before each word
//! newest   q(2)          | q(64)            the newest queue of each word; queues are chained from it
//! values   v(1) v(63)    | v(66) ...        the bits owed when rates were last computed, plus `paid`
//! ```
//!
//! A value is found by counting bits, and the entry of an output lies in one cache line or two. Queues without
//! packets nearly always pay at the same rate: the bits that all have paid are counted once, in `paid`, and a
//! value is a debt plus that count at the time of listing. A queue without remaining debt stays in the list until
//! its slot is needed.

use super::{PS_PER_SECOND, bits_in, time_for};
use lastmeter_base::{Duration, prefetch, prefetch_slice};

#[derive(Debug, Default)]
pub(super) struct Known {
    words: Vec<Word>,
    values: Vec<u32>,
    /// Bits that all have paid since the list was last rewritten.
    paid: u32,
}

/// No listed queue owes more bits than this, nor do all pay more before the list is rewritten; so the difference
/// of two 32-bit numbers tells which is less.
pub(super) const OWED_MAX: u32 = 1 << 30;
/// Spare capacity after a rewrite, and the number of entries per further spare one.
const ROOM_LEAST: usize = 32;
const ROOM_EACH: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Word {
    queues: u64,
    listed: u64,
    before: u16,
    /// The newest queue of any of these outputs since all were sorted.
    newest: u16,
}

/// The place of no queue.
pub(super) const NO_PLACE: u16 = u16::MAX;

impl Known {
    /// Prefetches the entry of an output.
    #[inline]
    pub(super) fn prefetch(&self, output: usize) {
        if let Some(word) = self.words.get(output / 64) {
            prefetch(word);
        }
    }
    /// Prefetches the debt of an output's queue.
    #[inline]
    pub(super) fn prefetch_value(&self, output: usize) {
        if let Ok(place) = self.search(output) {
            self.values.get(place).into_iter().for_each(prefetch);
        }
    }
    /// Prefetches the entries of all outputs.
    pub(super) fn prefetch_all(&self) {
        self.prefetch_words();
        prefetch_slice(&self.values);
    }
    /// Prefetches the bits that say which outputs have a debt.
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
    /// Registers a new queue, at a place; returns the place of the one before it.
    #[inline]
    pub(super) fn add_queue(&mut self, output: usize, place: u16) -> u16 {
        self.set_queue(output);
        std::mem::replace(&mut self.words[output / 64].newest, place)
    }
    /// The place of the newest queue of this output or of any other in its word.
    #[inline]
    pub(super) fn newest(&self, output: usize) -> u16 {
        self.words.get(output / 64).map_or(NO_PLACE, |word| word.newest)
    }
    /// Unregisters a queue; returns the newest, if that is newer than it.
    pub(super) fn remove_queue(&mut self, output: usize, place: u16, before: u16) -> u16 {
        let Some(word) = self.words.get_mut(output / 64) else { return NO_PLACE };
        word.queues &= !(1 << (output % 64));
        if word.newest != place {
            return word.newest;
        }
        word.newest = before;
        NO_PLACE
    }
    pub(super) fn clear_queues(&mut self) {
        self.words.iter_mut().for_each(|word| (word.queues, word.newest) = (0, NO_PLACE));
    }

    fn grow(&mut self, words: usize) {
        if self.words.len() < words {
            let before = self.values.len() as u16; // At most `PORTS_MAX`.
            self.words.resize(words, Word { queues: 0, listed: 0, before, newest: NO_PLACE });
        }
    }

    #[inline]
    fn is_listed(&self, output: usize) -> bool {
        self.words.get(output / 64).is_some_and(|word| word.listed >> (output % 64) & 1 == 1)
    }
    /// The index of an output's value, or where it would be inserted.
    #[inline]
    fn search(&self, output: usize) -> Result<usize, usize> {
        let bit = 1 << (output % 64);
        let Some(word) = self.words.get(output / 64) else { return Err(self.values.len()) };
        let below = (word.listed & (bit - 1)).count_ones() as usize;
        let place = usize::from(word.before) + below;
        if word.listed & bit != 0 { Ok(place) } else { Err(place) }
    }
    /// The bits owed at an index.
    #[inline]
    fn owed(&self, place: usize) -> u32 {
        // A debt is never negative.
        let owed = self.values[place].wrapping_sub(self.paid);
        if owed >> 31 == 0 { owed } else { 0 }
    }
    /// Whether the queue of an output has a debt.
    pub(super) fn owes(&self, output: usize) -> bool {
        self.search(output).is_ok_and(|place| self.owed(place) != 0)
    }
    /// Removes and returns the bits that the queue of an output owed when rates were last computed.
    #[inline]
    pub(super) fn take(&mut self, output: usize) -> Option<u32> {
        let place = self.search(output).ok()?;
        let owed = self.owed(place);
        self.values[place] = self.paid;
        (owed != 0).then_some(owed)
    }

    /// Subtracts what has been paid in `time` at the rate that follows from the output alone, which is at most
    /// `rate_most` and nearly always equal to it; then adds `owing`, which is in order, at most [`OWED_MAX`] each.
    /// `are_usual` says of which words all outputs have that rate.
    pub(super) fn change(
        &mut self,
        time: Duration,
        rate: impl Fn(usize) -> u64,
        (rate_most, are_usual): (u64, impl Fn(usize) -> bool),
        owing: &[(u16, u32)],
    ) {
        let usual = Payment::of(time, rate_most);
        let own = |output| Payment::of(time, rate(output));
        let has_room = self.values.len() + owing.len() <= self.values.capacity();
        let paid = usual.whole().filter(|&whole| has_room && whole <= OWED_MAX - self.paid);
        match paid {
            Some(whole) => {
                let unusual = (0..self.words.len()).filter(|&number| !are_usual(number));
                unusual.for_each(|number| self.pay_besides(number, whole, own));
                self.paid += whole;
            }
            None => {
                self.go_through(|number| are_usual(number).then_some(usual), own);
                let len = self.values.len() + owing.len();
                self.values.reserve_exact(owing.len() + len / ROOM_EACH + ROOM_LEAST);
            }
        }
        self.add(owing);
    }

    /// Adjusts the values of a word so that each has paid the right amount when `paid` has grown by `whole`.
    fn pay_besides(&mut self, number: usize, whole: u32, own: impl Fn(usize) -> Payment) {
        let Word { mut listed, before, .. } = self.words[number];
        let mut place = usize::from(before);
        while listed != 0 {
            let output = number * 64 + listed.trailing_zeros() as usize;
            let still = own(output).still_owed(self.owed(place));
            self.values[place] = self.paid + whole + still;
            place += 1;
            listed &= listed - 1;
        }
    }

    /// Subtracts what each has paid, and removes the queues without remaining debt. Payments are the `usual` ones
    /// of a word, if any, otherwise their `own`.
    fn go_through(
        &mut self,
        usual: impl Fn(usize) -> Option<Payment>,
        own: impl Fn(usize) -> Payment,
    ) {
        let (mut from, mut to) = (0, 0);
        for number in 0..self.words.len() {
            let usual = usual(number);
            self.words[number].before = to as u16; // At most `PORTS_MAX`.
            let mut left = std::mem::take(&mut self.words[number].listed);
            while left != 0 {
                let bit = left.trailing_zeros();
                let payment = usual.unwrap_or_else(|| own(number * 64 + bit as usize));
                let still = payment.still_owed(self.owed(from));
                self.values[to] = still;
                self.words[number].listed |= u64::from(still > 0) << bit;
                (from, to) = (from + 1, to + usize::from(still > 0));
                left &= left - 1;
            }
        }
        self.values.truncate(to);
        self.paid = 0;
    }

    /// Lists the debts of queues; queues already listed owe nothing new.
    fn add(&mut self, owing: &[(u16, u32)]) {
        self.grow(owing.last().map_or(0, |&(output, _)| usize::from(output) / 64 + 1));
        let is_new = |&&(output, _): &&(u16, u32)| !self.is_listed(output.into());
        let mut new = owing.iter().filter(is_new).count();
        let (mut end, mut number) = (self.values.len(), self.words.len());
        self.values.resize(end + new, 0);
        // Last one first, so that each value is moved once.
        for &(output, owed) in owing.iter().rev() {
            let output = usize::from(output);
            while number > output / 64 + 1 {
                number -= 1;
                self.words[number].before += new as u16;
            }
            match self.search(output) {
                Ok(place) => self.values[place] = self.paid + owed,
                Err(place) => {
                    self.values.copy_within(place..end, place + new);
                    (end, new) = (place, new - 1);
                    self.values[place + new] = self.paid + owed;
                    // The remaining search is below this one.
                    self.words[output / 64].listed |= 1 << (output % 64);
                }
            }
        }
    }
}

/// The payment over a time at a rate.
#[derive(Clone, Copy)]
struct Payment {
    time: Duration,
    rate: u64,
    /// In whole bits and a fraction; `None` if it overflows.
    paid: Option<(u64, u64)>,
}

impl Payment {
    #[inline]
    fn of(time: Duration, rate: u64) -> Payment {
        let paid = time.as_ps().checked_mul(rate);
        Payment { time, rate, paid: paid.map(|paid| (paid / PS_PER_SECOND, paid % PS_PER_SECOND)) }
    }

    /// The bits paid off any debt, if rounding does not matter.
    fn whole(self) -> Option<u32> {
        let (whole, part) = self.paid?;
        (part >= self.rate).then(|| u32::try_from(whole).unwrap_or(u32::MAX))
    }

    /// The remaining debt, computed as if the time at which all is paid, rounded up to a picosecond, were
    /// converted back to bits, again rounded up.
    #[inline]
    fn still_owed(self, owed: u32) -> u32 {
        let Payment { time, rate, paid } = self;
        let Some((whole, part)) = paid else {
            let left = time_for(owed.into(), rate).saturating_sub(time.as_ps());
            return u32::try_from(bits_in(left, rate)).unwrap_or(owed);
        };
        // The first rounding adds less than `rate`; most fractions of a bit are larger.
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
        fn the_index_of_debts_equals_an_ordered_map(
            periods in prop::collection::vec((
                prop::collection::vec((0u16..300, prop_oneof![1u32..4000, 1..=OWED_MAX]), 0..40),
                prop::collection::vec(0u16..400, 0..20),
                // Up to 2000 bits, and some debts larger than any that occur.
                prop_oneof![9 => 0u64..1_000_000_000, 1 => 0u64..1_000_000_000_000_000],
            ), 1..30),
            unusual in 0usize..10,
        ) {
            const RATE: u64 = 2_000_003;
            let rate = |output| if output / 64 == unusual { RATE / 3 } else { RATE };
            let (mut debts, mut plain) = (Known::default(), BTreeMap::<u16, u32>::new());
            for (owing, taken, time) in periods {
                let time = Duration::from_ps(time);
                for (&output, owed) in &mut plain {
                    *owed = Payment::of(time, rate(output.into())).still_owed(*owed);
                }
                plain.retain(|_, owed| *owed > 0);
                let owing: BTreeMap<u16, u32> =
                    owing.into_iter().filter(|(output, _)| !plain.contains_key(output)).collect();
                let given: Vec<(u16, u32)> = owing.iter().map(|(&o, &owed)| (o, owed)).collect();
                debts.change(time, rate, (RATE, |word: usize| word != unusual), &given);
                plain.extend(owing);
                for output in 0..300 {
                    prop_assert_eq!(debts.owes(output.into()), plain.contains_key(&output));
                }
                for output in taken {
                    prop_assert_eq!(debts.take(output.into()), plain.remove(&output));
                }
            }
        }

        #[test]
        fn remaining_debts_equal_the_result_of_two_roundings(
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
