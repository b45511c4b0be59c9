//! A rate that changes with time, as a table says.
//!
//! ```text
//! time, rate            the first line may name the columns; empty lines and lines that begin with
//! 0 s, 10 Mbit/s        `#` are skipped. Times begin at 0 and increase; each rate holds until the
//! 2.5 s, 800 kbit/s     next line's time, and the last one without end, or until the table repeats.
//! 4 s, 0 bit/s          At a rate of zero nothing moves.
//! 4.1 s, 10 Mbit/s
//! ```

use super::trace_error::{TraceError, lines, shown};
use lastmeter_base::kind::{RATE_MIN, TIME_MAX};
use lastmeter_base::{Bytes, Duration, Quantity, Rate, Time};
use std::fmt::Write;

/// Most rates in a table.
pub const RATES_MAX: usize = 1 << 20;
/// The longest line.
const LINE_LEN_MAX: usize = 256;
const PS: u128 = 1_000_000_000_000;

/// When each rate begins; `None` while nothing moves.
pub type Steps = Vec<(Duration, Option<Rate>)>;

/// A rate over time.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Time};
/// use lastmeter_net::impair::RateTable;
/// let table = RateTable::new(RateTable::parse(b"0 s, 8 Mbit/s\n1 ms, 1 Mbit/s\n")?, None)?;
/// // 1000 bytes in the first millisecond, and 500 in 4 ms more.
/// assert_eq!(table.time_for(Time::START, Bytes(1500)), Duration::from_ms(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTable {
    /// When each begins, in picoseconds, and its bits per second; the first begins at 0.
    steps: Vec<(u64, u64)>,
    /// After how long it repeats.
    period: Option<u64>,
    /// What moves in a period, in bits times 10^12.
    per_period: u128,
}

impl RateTable {
    /// Reads the steps of a table from comma-separated text.
    ///
    /// # Errors
    /// Says which line is wrong, and why.
    pub fn parse(text: &[u8]) -> Result<Steps, TraceError> {
        let mut steps: Steps = Vec::new();
        for (number, line) in lines(text) {
            let skipped = line.is_empty() || line.starts_with(b"#");
            if skipped || (steps.is_empty() && line == b"time, rate") {
                continue;
            }
            let step = step(line).map_err(|reason| TraceError::new(number, reason))?;
            follows(&steps, step.0).map_err(|reason| TraceError::new(number, reason))?;
            steps.push(step);
        }
        match steps.is_empty() {
            true => Err(TraceError::new(1, "there is no rate: write `0 s, 10 Mbit/s`")),
            false => Ok(steps),
        }
    }

    /// The text that parses to these steps.
    pub fn emit(steps: &Steps) -> String {
        let mut text = String::new();
        for (time, rate) in steps {
            let bits = rate.map_or(0, Rate::as_bits);
            writeln!(text, "{} ps, {bits} bit/s", time.as_ps()).expect("a text can be written to");
        }
        text
    }

    /// The table with these steps, repeated every `period` where there is one.
    ///
    /// # Errors
    /// If times do not increase from 0, if the period ends before the last step begins, or if
    /// nothing would ever move again.
    pub fn new(steps: Steps, period: Option<Duration>) -> Result<RateTable, String> {
        for (index, &(time, _)) in steps.iter().enumerate() {
            follows(&steps[..index], time)?;
        }
        let Some(&(last, last_rate)) = steps.last() else {
            return Err("the table has no rates".to_owned());
        };
        if let Some(period) = period.filter(|&period| period <= last) {
            return Err(format!(
                "the last rate begins at {last}, when the table has repeated \
                                at {period}"
            ));
        }
        let moves = match period {
            Some(_) => steps.iter().any(|(_, rate)| rate.is_some()),
            None => last_rate.is_some(),
        };
        if !moves {
            return Err("the last rate is zero: end with a rate above zero".to_owned());
        }
        let steps: Vec<(u64, u64)> = steps
            .iter()
            .map(|(time, rate)| (time.as_ps(), rate.map_or(0, Rate::as_bits)))
            .collect();
        let mut table = RateTable { steps, period: period.map(Duration::as_ps), per_period: 0 };
        table.per_period = match table.period {
            Some(period) => table.moved_until(period),
            None => 0,
        };
        Ok(table)
    }

    /// The same, with every rate times `numerator / denominator`, rounded down.
    pub fn scale(mut self, numerator: u64, denominator: u64) -> RateTable {
        for (_, rate) in &mut self.steps {
            if let Some(whole) = (*rate > 0).then(|| Rate::from_bits(*rate)) {
                *rate = whole.scale_floor(numerator, denominator).as_bits();
            }
        }
        self.per_period = self.period.map_or(0, |period| self.moved_until(period));
        self
    }

    /// How long `len` takes from `start` on: exact, rounded up once.
    pub fn time_for(&self, start: Time, len: Bytes) -> Duration {
        let mut left = u128::from(len.0) * 8 * PS;
        let (mut at, mut whole) = match self.period {
            Some(period) => (start.as_ps() % period, start.as_ps() - start.as_ps() % period),
            None => (start.as_ps(), 0),
        };
        let mut index = self.steps.partition_point(|&(begins, _)| begins <= at) - 1;
        loop {
            let rate = u128::from(self.steps[index].1);
            let ends = self.steps.get(index + 1).map(|step| step.0).or(self.period);
            let moves = ends.map_or(u128::MAX, |ends| rate * u128::from(ends - at));
            if moves >= left {
                // Nothing is left to move only if there was nothing at all.
                let time = if left == 0 { 0 } else { left.div_ceil(rate) };
                let end = u128::from(whole) + u128::from(at) + time;
                let end = u64::try_from(end).expect("a packet takes less than 213 days");
                return Time::from_ps(end) - start;
            }
            left -= moves;
            index += 1;
            match ends.filter(|_| index == self.steps.len()) {
                None => at = self.steps[index].0,
                Some(period) => {
                    // The table begins again; whole periods are skipped at once.
                    let rounds = u64::try_from((left - 1) / self.per_period).unwrap_or(u64::MAX);
                    left -= u128::from(rounds) * self.per_period;
                    let skipped = rounds.checked_mul(period).and_then(|ps| ps.checked_add(period));
                    whole += skipped.expect("a packet takes less than 213 days");
                    (at, index) = (0, 0);
                }
            }
        }
    }

    /// What moves from 0 to `until`, in bits times 10^12.
    fn moved_until(&self, until: u64) -> u128 {
        let ends = self.steps[1..].iter().map(|step| step.0).chain([until]);
        let spans = self.steps.iter().zip(ends);
        spans.map(|(&(begins, rate), ends)| u128::from(ends - begins) * u128::from(rate)).sum()
    }
}

/// Reads `2.5 s, 800 kbit/s`.
fn step(line: &[u8]) -> Result<(Duration, Option<Rate>), String> {
    let text = std::str::from_utf8(line).ok().filter(|_| line.len() <= LINE_LEN_MAX);
    let Some((time, rate)) = text.and_then(|text| text.split_once(',')) else {
        return Err(format!("`{}` is not a time and rate: write `0 s, 10 Mbit/s`", shown(line)));
    };
    let time = Duration::parse(time).map_err(|error| error.to_string())?;
    if time > TIME_MAX {
        return Err(format!("{time} is more than {TIME_MAX}"));
    }
    Ok((time, rate_or_none(rate)?))
}

/// Reads a rate, which may be zero here: `None`.
///
/// # Errors
/// Says what is wrong and what would be right.
pub fn rate_or_none(text: &str) -> Result<Option<Rate>, String> {
    let digits = text.trim().trim_start_matches(['0', '.', '_']);
    let unit = digits.trim_start();
    if digits.len() < text.trim().len() && Rate::UNITS.iter().any(|&(known, _)| known == unit) {
        return Ok(None);
    }
    match Rate::parse(text).map_err(|error| error.to_string())? {
        rate if rate < RATE_MIN => Err(format!("{rate} is too slow: write at least {RATE_MIN}")),
        rate => Ok(Some(rate)),
    }
}

/// Whether a step at `time` may follow `steps`.
fn follows(steps: &[(Duration, Option<Rate>)], time: Duration) -> Result<(), String> {
    match steps.last() {
        None if !time.is_zero() => Err(format!("the first rate begins at {time}: write `0 s`")),
        Some(&(last, _)) if time <= last => {
            Err(format!("{time} comes after {last}: times increase"))
        }
        _ if steps.len() >= RATES_MAX => Err(format!("a table has at most {RATES_MAX} rates")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_name_the_line_and_the_reason() {
        for (text, message) in [
            ("# nothing\n", "line 1: there is no rate: write `0 s, 10 Mbit/s`"),
            ("1 s, 1 Mbit/s", "line 1: the first rate begins at 1 s: write `0 s`"),
            ("0 s, 1 Mbit/s\n0 s, 2 Mbit/s", "line 2: 0 s comes after 0 s: times increase"),
            ("0 s, 10", "line 1: `10` has no unit: write \"10 Mbit/s\" or \"10 MB/s\""),
            ("0 s; 10", "line 1: `0 s; 10` is not a time and rate: write `0 s, 10 Mbit/s`"),
            ("0 s, 1 bit/s", "line 1: 1 bit/s is too slow: write at least 1 kbit/s"),
        ] {
            let error = RateTable::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
        let table =
            |text: &str, period| RateTable::new(RateTable::parse(text.as_bytes()).unwrap(), period);
        let error = table("0 s, 1 Mbit/s\n1 s, 0 bit/s", None).unwrap_err();
        assert_eq!(error, "the last rate is zero: end with a rate above zero");
        let error = table("0 s, 1 Mbit/s\n1 s, 2 Mbit/s", Some(Duration::from_ms(10))).unwrap_err();
        assert_eq!(error, "the last rate begins at 1 s, when the table has repeated at 10 ms");
    }

    #[test]
    fn an_outage_delays_by_its_length_and_a_table_repeats() {
        let text = b"time, rate\n0 s, 8 Mbit/s\n\n# outage\n1 ms, 0 Mbit/s\n";
        let period = Some(Duration::from_ms(4));
        let table = RateTable::new(RateTable::parse(text).unwrap(), period).unwrap();
        // 1000 bytes in each first millisecond of four.
        for (start, len, us) in [
            (0, 1000, 1000),
            (0, 1001, 4001),
            (500, 1000, 4000),
            (2000, 1, 2001),
            (0, 1_000_000, 4_000_000 - 3000),
        ] {
            let time = table.time_for(Time::START + Duration::from_us(start), Bytes(len));
            assert_eq!(time, Duration::from_us(us), "{len} B from {start} us");
        }
    }

    fn steps() -> impl Strategy<Value = Steps> {
        let gaps = prop::collection::vec((1u64..4000, 0u64..5), 0..8);
        (1u64..5, gaps).prop_map(|(first, gaps)| {
            let mut steps = vec![(Duration::ZERO, Some(Rate::from_mbit(first)))];
            for (gap, rate) in gaps {
                let last = steps[steps.len() - 1].0;
                let rate = (rate > 0).then(|| Rate::from_mbit(rate));
                steps.push((last + Duration::from_us(gap), rate));
            }
            steps
        })
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(steps in steps()) {
            prop_assert_eq!(RateTable::parse(RateTable::emit(&steps).as_bytes()).unwrap(), steps);
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            crate::fuzz::fuzz_rate_table(&bytes);
        }

        #[test]
        fn it_moves_as_much_as_the_rates_sum_to(
            steps in steps(), more in 1u64..2000, start in 0u64..20_000, len in 0u64..20_000,
        ) {
            let last = steps[steps.len() - 1].0;
            let period = last + Duration::from_us(more);
            let table = RateTable::new(steps.clone(), Some(period)).unwrap();
            let start = Time::START + Duration::from_us(start);
            let end = start + table.time_for(start, Bytes(len));
            // Counted microsecond by microsecond, where every step begins at a whole one.
            let rate_at = |us: u64| {
                let since = Duration::from_us(us % (period.as_ps() / 1_000_000));
                let step = steps.iter().rev().find(|step| step.0 <= since).unwrap();
                step.1.map_or(0, |rate| rate.as_bits() / 1_000_000)
            };
            let us = |time: Time| time.as_ps() / 1_000_000;
            let before: u64 = (us(start)..us(end)).map(rate_at).sum();
            prop_assert!(before <= len * 8, "{} bits of {}", before, len * 8);
            prop_assert!(before + rate_at(us(end)) >= len * 8);
        }
    }
}
