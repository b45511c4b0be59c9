//! Instants and lengths of time, in whole picoseconds.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Sub};

/// An instant: picoseconds since the engine started. The range is 213 days.
///
/// `Time - Time` is a [`Duration`]; `Time + Time` does not compile.
///
/// ```
/// use lastmeter_base::{Duration, Time};
/// let departed = Time::START + Duration::from_us(12);
/// assert_eq!((departed - Time::START).as_ps(), 12_000_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

const PS_PER_SECOND: f64 = 1e12;

impl Time {
    /// The instant at which every run starts.
    pub const START: Time = Time(0);
    /// The last instant that can be expressed; used for "never".
    pub const MAX: Time = Time(u64::MAX);

    /// An instant `ps` picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Time {
        Time(ps)
    }
    /// Picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }
    /// Time since the start.
    pub const fn since_start(self) -> Duration {
        Duration(self.0)
    }
    /// The length of time since `earlier`, or zero where `earlier` is later.
    pub const fn saturating_since(self, earlier: Time) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// Zero.
    pub const ZERO: Duration = Duration(0);
    /// The longest time that can be expressed.
    pub const MAX: Duration = Duration(u64::MAX);

    /// A length of `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Duration {
        Duration(ps)
    }
    /// A length of `ns` nanoseconds. Panics beyond 213 days.
    pub const fn from_ns(ns: u64) -> Duration {
        Duration(ns.checked_mul(1_000).expect("duration beyond 213 days"))
    }
    /// A length of `us` microseconds. Panics beyond 213 days.
    pub const fn from_us(us: u64) -> Duration {
        Duration(us.checked_mul(1_000_000).expect("duration beyond 213 days"))
    }
    /// A length of `ms` milliseconds. Panics beyond 213 days.
    pub const fn from_ms(ms: u64) -> Duration {
        Duration(ms.checked_mul(1_000_000_000).expect("duration beyond 213 days"))
    }
    /// A length of `s` seconds. Panics beyond 213 days.
    pub const fn from_secs(s: u64) -> Duration {
        Duration(s.checked_mul(1_000_000_000_000).expect("duration beyond 213 days"))
    }
    /// The nearest whole picosecond to `seconds`; negative and NaN give zero, too large saturates.
    ///
    /// For results of random draws only: a deadline is never computed in floating point.
    pub fn from_secs_f64(seconds: f64) -> Duration {
        Duration((seconds * PS_PER_SECOND).round() as u64)
    }
    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }
    /// Seconds, for printing.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PS_PER_SECOND
    }
    /// Whether this is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// `self - other`, or zero where `other` is longer.
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
    /// `self * numerator / denominator` rounded up, exact in between.
    ///
    /// [`Duration::MAX`] where the result is beyond it. Panics if `denominator` is zero.
    pub fn scale_ceil(self, numerator: u64, denominator: u64) -> Duration {
        let scaled = (u128::from(self.0) * u128::from(numerator)).div_ceil(denominator.into());
        Duration(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// [`Time::MAX`] where the sum is beyond it: an event after 213 days never comes.
impl Add<Duration> for Time {
    type Output = Time;
    #[inline]
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(by.0))
    }
}
impl AddAssign<Duration> for Time {
    #[inline]
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}
impl Sub for Time {
    type Output = Duration;
    #[inline]
    fn sub(self, earlier: Time) -> Duration {
        Duration(self.0.checked_sub(earlier.0).expect("an instant minus a later one"))
    }
}
arithmetic!(Duration, "a duration minus a longer one");

impl Div<u64> for Duration {
    type Output = Duration;
    /// Rounds down.
    fn div(self, by: u64) -> Duration {
        Duration(self.0 / by)
    }
}

impl fmt::Display for Duration {
    /// Four significant digits in the largest unit that leaves a whole part: `1.234 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] = [
            (1_000_000_000_000, "s"),
            (1_000_000_000, "ms"),
            (1_000_000, "us"),
            (1_000, "ns"),
            (1, "ps"),
        ];
        crate::text::write_in(f, self.0, &UNITS, UNITS[0])
    }
}
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.since_start().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_unit_that_reads_best() {
        let cases = [
            (Duration::ZERO, "0 s"),
            (Duration::from_ps(999), "999 ps"),
            (Duration::from_ns(1_500), "1.5 us"),
            (Duration::from_us(12_345), "12.35 ms"),
            (Duration::from_secs(86_400), "86400 s"),
        ];
        for (duration, text) in cases {
            assert_eq!(duration.to_string(), text);
        }
    }

    #[test]
    #[should_panic(expected = "an instant minus a later one")]
    fn refuses_a_negative_span() {
        let _ = Time::START - Time::from_ps(1);
    }

    #[test]
    fn scales_exactly_where_the_product_needs_128_bits() {
        let day = Duration::from_secs(86_400);
        assert_eq!(day.scale_ceil(1_000_000, 1_000_000), day);
        assert_eq!(Duration::from_ps(10).scale_ceil(1, 3), Duration::from_ps(4));
    }
}
