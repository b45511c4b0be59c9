//! What queues owe that have no packet: four bytes each, in the order of their outputs.
//!
//! ```text
//! known    0 1 1 0 ... 1 | 0 0 1 ...        a bit for each output
//! before   0             | 17               how many are known before each word
//! values   v(1) v(2) ...                    the bits owed when rates were last computed
//! ```
//!
//! So a value is found by counting bits. Values are added when rates are computed; one that is taken
//! in between leaves a zero.

use super::{PS_PER_SECOND, bits_in, time_for};
use lastmeter_base::Duration;

#[derive(Debug, Default)]
pub(super) struct Debts {
    known: Vec<u64>,
    before: Vec<u16>,
    values: Vec<u32>,
}

impl Debts {
    #[inline]
    fn place(&self, output: usize) -> Option<usize> {
        let (word, bit) = (output / 64, 1 << (output % 64));
        let known = *self.known.get(word)?;
        let below = (known & (bit - 1)).count_ones() as usize;
        (known & bit != 0).then(|| usize::from(self.before[word]) + below)
    }
    /// Whether the queue of an output owes.
    pub(super) fn has(&self, output: usize) -> bool {
        self.place(output).is_some_and(|place| self.values[place] != 0)
    }
    /// Takes the bits that the queue of an output owed when rates were last computed.
    #[inline]
    pub(super) fn take(&mut self, output: usize) -> Option<u32> {
        let place = self.place(output)?;
        let owed = std::mem::take(&mut self.values[place]);
        (owed != 0).then_some(owed)
    }

    /// Takes off what has been paid in `time` at the rate that follows from the output alone, and adds
    /// `owing`, which is in order.
    pub(super) fn change(
        &mut self,
        time: Duration,
        rate: impl Fn(usize) -> u64,
        owing: &[(u16, u32)],
    ) {
        let last = owing.last().map_or(0, |&(output, _)| usize::from(output) / 64 + 1);
        if self.known.len() < last {
            self.known.resize(last, 0);
            self.before.resize(last, 0);
        }
        let mut values = Vec::with_capacity(self.values.len() + owing.len());
        let mut old = self.values.iter();
        let mut owing = owing.iter().copied().peekable();
        for (number, word) in self.known.iter_mut().enumerate() {
            self.before[number] = values.len() as u16; // At most `PORTS_MAX`.
            let mut left = std::mem::take(word);
            loop {
                let one = left.trailing_zeros() as usize; // 64 if none is left.
                let until = number * 64 + one;
                while let Some((output, owed)) = owing.next_if(|next| usize::from(next.0) < until) {
                    *word |= 1 << (output % 64);
                    values.push(owed);
                }
                if left == 0 {
                    break;
                }
                left &= left - 1;
                let Some(&owed) = old.next() else { break };
                let still = if owed == 0 { 0 } else { still_owed(owed, time, rate(until)) };
                if still > 0 {
                    *word |= 1 << one;
                    values.push(still);
                }
            }
        }
        self.values = values;
    }
}

/// What is owed of some bits after a time: as if the instant at which all is paid, rounded up to a
/// picosecond, were turned into bits again, rounded up too.
#[inline]
fn still_owed(owed: u32, time: Duration, rate: u64) -> u32 {
    let Some(paid) = time.as_ps().checked_mul(rate) else {
        let left = time_for(owed.into(), rate).saturating_sub(time.as_ps());
        return u32::try_from(bits_in(left, rate)).unwrap_or(owed);
    };
    let (whole, part) = (paid / PS_PER_SECOND, paid % PS_PER_SECOND);
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
        ) {
            let (mut debts, mut plain) = (Debts::default(), BTreeMap::<u16, u32>::new());
            for (owing, taken) in periods {
                // A bit a picosecond.
                plain.values_mut().for_each(|owed| *owed = owed.saturating_sub(100));
                plain.retain(|_, owed| *owed > 0);
                let owing: BTreeMap<u16, u32> =
                    owing.into_iter().filter(|(output, _)| !plain.contains_key(output)).collect();
                let given: Vec<(u16, u32)> = owing.iter().map(|(&o, &owed)| (o, owed)).collect();
                debts.change(Duration::from_ps(100), |_| PS_PER_SECOND, &given);
                plain.extend(owing);
                for output in taken {
                    prop_assert_eq!(debts.has(output.into()), plain.contains_key(&output));
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
            let found = still_owed(owed, Duration::from_ps(time), rate);
            prop_assert_eq!(u64::from(found), expected);
        }
    }
}
