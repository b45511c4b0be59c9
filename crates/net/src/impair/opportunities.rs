//! Delivery opportunities: the packet-delivery traces of mahimahi.
//!
//! ```text
//! 0        a line for each opportunity to deliver 1500 bytes: milliseconds since the start,
//! 5        in increasing order; several lines with the same number are several
//! 5        opportunities. The last line is also the length of the trace, after which it
//! 12       repeats: here opportunities occur at 0, 5, 5, 12, 12, 17, 17, 24, 24 ...
//! ```
//!
//! Source: Netravali et al., Mahimahi: Accurate Record-and-Replay for HTTP, USENIX ATC 2015, §4.1;
//! mm-link(1); `link_queue.cc` for what is refused. Deviations: space around a number is allowed,
//! and the last line may lack its line end.

use super::trace_error::{TraceError, lines, shown};
use lastmeter_base::kind::TIME_MAX;
use lastmeter_base::{Duration, Time};
use std::fmt::Write;
use std::sync::Arc;

/// Most opportunities in a trace: 12 GB of data.
pub const OPPORTUNITIES_MAX: usize = 1 << 23;
/// The longest trace, in milliseconds: as long as the longest experiment.
pub const MILLISECONDS_MAX: u32 = (TIME_MAX.as_ps() / Duration::from_ms(1).as_ps()) as u32;

/// A trace, and the position in it.
///
/// ```
/// use lastmeter_base::Duration;
/// use lastmeter_net::impair::Opportunities;
/// let mut trace = Opportunities::parse(b"0\n5\n5\n12\n")?;
/// let times: Vec<u64> = (0..7).map(|_| trace.take().as_ps() / 1_000_000_000).collect();
/// assert_eq!(times, [0, 5, 5, 12, 12, 17, 17]);
/// # Ok::<(), lastmeter_net::impair::TraceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// Milliseconds, in order; the last is more than zero.
    at: Arc<[u32]>,
    /// The index in `at` of the next one.
    next: usize,
    /// How often the whole trace has been used.
    cycle: u64,
    /// Its speed relative to the recording, as numerator and denominator.
    speed: (u64, u64),
}

impl Opportunities {
    /// Reads a trace.
    ///
    /// # Errors
    /// Says which line is wrong, and why.
    pub fn parse(text: &[u8]) -> Result<Opportunities, TraceError> {
        let mut at: Vec<u32> = Vec::new();
        for (line, bytes) in lines(text) {
            let error = |reason: String| Err(TraceError::new(line, reason));
            let Some(ms) = number(bytes) else {
                let found = shown(bytes);
                return error(match bytes.is_empty() {
                    true => "the line is empty: write a number of milliseconds".to_owned(),
                    false => format!("`{found}` is not a whole number of milliseconds"),
                });
            };
            let ms = match u32::try_from(ms) {
                Ok(ms) if ms <= MILLISECONDS_MAX => ms,
                _ => return error(format!("{ms} ms is more than {MILLISECONDS_MAX} ms")),
            };
            if let Some(last) = at.last().filter(|&&last| ms < last) {
                return error(format!("{ms} ms comes after {last} ms: times never decrease"));
            }
            if at.len() == OPPORTUNITIES_MAX {
                return error(format!("a trace has at most {OPPORTUNITIES_MAX} opportunities"));
            }
            at.push(ms);
        }
        if at.last() == Some(&0) {
            let reason = "the trace has no length: end it later than 0 ms";
            return Err(TraceError::new(at.len(), reason));
        }
        let speed = (1, 1);
        Ok(Opportunities { at: at.into(), next: 0, cycle: 0, speed })
    }

    /// The text that parses to this trace.
    pub fn emit(&self) -> String {
        let mut text = String::new();
        for ms in self.at.iter() {
            writeln!(text, "{ms}").expect("a text can be written to");
        }
        text
    }

    /// The same at this multiple of its speed; no opportunity has been used yet.
    pub fn scale(self, numerator: u64, denominator: u64) -> Opportunities {
        Opportunities { next: 0, cycle: 0, speed: (numerator, denominator), ..self }
    }

    /// The length of the trace, after which it repeats.
    fn period(&self) -> u64 {
        self.at.last().copied().unwrap_or(1).into()
    }

    /// When the next opportunity occurs.
    pub fn next(&self) -> Time {
        let ms = self.period() * self.cycle + u64::from(self.at[self.next]);
        let (numerator, denominator) = self.speed;
        Time::START + Duration::from_ms(ms).scale_ceil(denominator, numerator)
    }

    /// Uses the next opportunity, and returns when it occurs.
    pub fn take(&mut self) -> Time {
        let at = self.next();
        self.next += 1;
        if self.next == self.at.len() {
            (self.next, self.cycle) = (0, self.cycle + 1);
        }
        at
    }

    /// Skips all opportunities up to and including `now`, in a time that does not depend on their
    /// number.
    pub fn pass(&mut self, now: Time) {
        if self.next() > now {
            return;
        }
        let (numerator, denominator) = self.speed;
        let recorded = now.since_start().scale_ceil(numerator, denominator);
        let ms = recorded.as_ps() / Duration::from_ms(1).as_ps();
        let cycle = ms / self.period();
        // One step back, because rounding may have gone one too far.
        if cycle > self.cycle + 1 {
            (self.cycle, self.next) = (cycle - 1, 0);
        }
        let within = ms.saturating_sub(self.cycle * self.period());
        let begun = self.at.partition_point(|&at| u64::from(at) < within);
        self.next = self.next.max(begun.saturating_sub(1));
        while self.next() <= now {
            self.take();
        }
    }
}

/// A whole number in digits alone.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_name_the_line_and_the_reason() {
        let long = format!("1\n{}\n", u64::from(MILLISECONDS_MAX) + 1);
        for (text, message) in [
            ("", "line 1: the line is empty: write a number of milliseconds"),
            ("1\n\n2\n", "line 2: the line is empty: write a number of milliseconds"),
            ("1\n2 3\n", "line 2: `2 3` is not a whole number of milliseconds"),
            ("1\n-2\n", "line 2: `-2` is not a whole number of milliseconds"),
            ("4\n3\n", "line 2: 3 ms comes after 4 ms: times never decrease"),
            ("0\n0\n", "line 2: the trace has no length: end it later than 0 ms"),
            (&long, "line 2: 100000001 ms is more than 100000000 ms"),
        ] {
            let error = Opportunities::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    /// A text, and its numbers.
    fn trace() -> impl Strategy<Value = Vec<u32>> {
        let numbers = prop::collection::vec(0..500u32, 1..60);
        numbers.prop_map(|mut numbers| {
            numbers.sort_unstable();
            *numbers.last_mut().unwrap() += 1;
            numbers
        })
    }

    fn text(numbers: &[u32]) -> String {
        numbers.iter().map(|ms| format!("{ms}\n")).collect()
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(numbers in trace()) {
            let parsed = Opportunities::parse(text(&numbers).as_bytes()).unwrap();
            prop_assert_eq!(parsed.emit(), text(&numbers));
            prop_assert_eq!(Opportunities::parse(parsed.emit().as_bytes()).unwrap(), parsed);
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            crate::fuzz::fuzz_mahimahi(&bytes);
        }

        #[test]
        fn passing_is_the_same_as_taking_one_after_the_other(
            numbers in trace(), nows in prop::collection::vec(0u64..9_000_000_000_000, 1..6),
            speed in (1u64..5, 1u64..5),
        ) {
            let parsed = Opportunities::parse(text(&numbers).as_bytes()).unwrap();
            let mut quick = parsed.scale(speed.0, speed.1);
            let mut slow = quick.clone();
            let mut nows = nows;
            nows.sort_unstable();
            for now in nows.into_iter().map(Time::from_ps) {
                quick.pass(now);
                while slow.next() <= now {
                    slow.take();
                }
                prop_assert_eq!(&quick, &slow);
            }
        }
    }
}
