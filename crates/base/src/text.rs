//! Quantities as text with a unit, as in experiment files, profiles and on the command line. A bare number is
//! an error that says what to write.

use crate::{Bytes, Duration, PerByte, Rate};
use std::fmt;

/// A value that is written as a number with a unit.
///
/// ```
/// use lastmeter_base::{Quantity, Rate};
/// assert_eq!(Rate::parse("2.5 Gbit/s"), Ok(Rate::from_mbit(2_500)));
/// let error = Rate::parse("10").unwrap_err().to_string();
/// assert_eq!(error, "`10` has no unit: write \"10 Mbit/s\" or \"10 MB/s\"");
/// ```
pub trait Quantity: Sized {
    /// Its name in messages: "rate".
    const NAME: &'static str;
    /// The known units, with their size in the smallest unit.
    const UNITS: &'static [(&'static str, u64)];
    /// The two units that the message for a bare number suggests.
    const PROPOSED: [&'static str; 2];
    /// Whether zero makes sense.
    const ZERO_ALLOWED: bool = true;

    /// The quantity of `count` smallest units.
    fn from_smallest(count: u64) -> Self;

    /// Reads `text`, which is a decimal number, an optional space, and a unit.
    ///
    /// # Errors
    /// Says what is wrong with the text and what would be right.
    fn parse(text: &str) -> Result<Self, QuantityError> {
        let smallest = parse_smallest(text, Self::NAME, Self::UNITS, Self::PROPOSED)?;
        if smallest == 0 && !Self::ZERO_ALLOWED {
            let found = format!("`{}` is zero", text.trim());
            return Err(QuantityError {
                found,
                right: format!("a {} must be positive", Self::NAME),
            });
        }
        Ok(Self::from_smallest(smallest))
    }
}

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError {
    /// What is wrong with it.
    pub found: String,
    /// What would be right.
    pub right: String,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.found, self.right)
    }
}
impl std::error::Error for QuantityError {}

impl Quantity for Duration {
    const NAME: &'static str = "time";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("ps", 1),
        ("ns", 1_000),
        ("us", 1_000_000),
        ("µs", 1_000_000),
        ("ms", 1_000_000_000),
        ("s", 1_000_000_000_000),
        ("min", 60_000_000_000_000),
        ("h", 3_600_000_000_000_000),
    ];
    const PROPOSED: [&'static str; 2] = ["us", "ms"];
    fn from_smallest(count: u64) -> Duration {
        Duration::from_ps(count)
    }
}

impl Quantity for Bytes {
    const NAME: &'static str = "size";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("B", 1),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    const PROPOSED: [&'static str; 2] = ["B", "KiB"];
    fn from_smallest(count: u64) -> Bytes {
        Bytes(count)
    }
}

impl Quantity for Rate {
    const NAME: &'static str = "rate";
    const UNITS: &'static [(&'static str, u64)] = &[
        ("bit/s", 1),
        ("kbit/s", 1_000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
        ("Tbit/s", 1_000_000_000_000),
        ("B/s", 8),
        ("kB/s", 8_000),
        ("MB/s", 8_000_000),
        ("GB/s", 8_000_000_000),
        ("TB/s", 8_000_000_000_000),
        ("KiB/s", 8 << 10),
        ("MiB/s", 8 << 20),
        ("GiB/s", 8 << 30),
    ];
    const PROPOSED: [&'static str; 2] = ["Mbit/s", "MB/s"];
    const ZERO_ALLOWED: bool = false;
    fn from_smallest(count: u64) -> Rate {
        Rate::from_bits(count)
    }
}

impl Quantity for PerByte {
    const NAME: &'static str = "time per byte";
    const UNITS: &'static [(&'static str, u64)] =
        &[("ps/B", 1_000), ("ns/B", 1_000_000), ("us/B", 1_000_000_000), ("µs/B", 1_000_000_000)];
    const PROPOSED: [&'static str; 2] = ["ns/B", "us/B"];
    fn from_smallest(count: u64) -> PerByte {
        PerByte::from_fs(count)
    }
    /// Also reads a rate: "32.3 MB/s" is the time per byte of a copy at this rate.
    fn parse(text: &str) -> Result<PerByte, QuantityError> {
        if text.trim_end().ends_with("/s") {
            return Rate::parse(text).map(PerByte::from_rate);
        }
        parse_smallest(text, Self::NAME, Self::UNITS, Self::PROPOSED).map(PerByte::from_fs)
    }
}

fn parse_smallest(
    text: &str,
    name: &str,
    units: &[(&str, u64)],
    proposed: [&str; 2],
) -> Result<u64, QuantityError> {
    let fail = |found: String, right: String| Err(QuantityError { found, right });
    let trimmed = text.trim();
    let is_digit = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
    let digits_end = trimmed.find(|c: char| !is_digit(c)).unwrap_or(trimmed.len());
    let exponent_len = exponent_len(&trimmed[digits_end..]);
    let (number, unit) = trimmed.split_at(digits_end + exponent_len);
    let unit = unit.trim_start();
    if number.is_empty() {
        let right = format!("write a number and a unit, like \"10 {}\"", proposed[0]);
        return match trimmed.starts_with('-') {
            true => {
                fail(format!("`{trimmed}` is negative"), format!("a {name} cannot be negative"))
            }
            false => fail(format!("`{trimmed}` is not a {name}"), right),
        };
    }
    if unit.is_empty() {
        let [a, b] = proposed;
        let right = format!("write \"{number} {a}\" or \"{number} {b}\"");
        return fail(format!("`{number}` has no unit"), right);
    }
    let Some(&(_, size)) = units.iter().find(|&&(known, _)| known == unit) else {
        let known = units.iter().map(|&(unit, _)| unit).filter(|unit| unit.is_ascii());
        let right = match nearest(unit, known.clone()) {
            Some(near) => format!("did you mean \"{number} {near}\"?"),
            None => format!("the units of a {name} are {}", known.collect::<Vec<_>>().join(", ")),
        };
        return fail(format!("`{unit}` is not a unit of a {name}"), right);
    };
    let (digits, exponent) = number.split_at(number.len() - exponent_len);
    let Some((mantissa, decimals)) = decimal(digits) else {
        let right = "write digits with at most one point, like 2.5 or 1e9".to_owned();
        return fail(format!("`{number}` is not a decimal number"), right);
    };
    let exponent: i32 = exponent.get(1..).map_or(0, |text| {
        let beyond = if text.starts_with('-') { i32::MIN } else { i32::MAX };
        text.parse().unwrap_or(beyond)
    });
    // An exponent takes decimals away, and then adds zeros.
    let decimals = i32::try_from(decimals).unwrap_or(i32::MAX).saturating_sub(exponent);
    let power = |exponent: i32| 10u128.checked_pow(exponent.max(0).unsigned_abs());
    let scaled = power(decimals.saturating_neg())
        .and_then(|zeros| mantissa.checked_mul(zeros)?.checked_mul(u128::from(size)));
    let divisor = power(decimals).unwrap_or(u128::MAX);
    match scaled {
        Some(scaled) if !scaled.is_multiple_of(divisor) => {
            let right = "leave out some decimals".to_owned();
            fail(format!("`{trimmed}` is finer than the resolution of a {name}"), right)
        }
        Some(scaled) => match u64::try_from(scaled / divisor) {
            Ok(count) => Ok(count),
            Err(_) => fail(format!("`{trimmed}` is larger than a {name} can be"), most(unit, size)),
        },
        None => fail(format!("`{trimmed}` is larger than a {name} can be"), most(unit, size)),
    }
}

/// The length of an exponent, such as `e9` or `E-3`, at the beginning of a text.
fn exponent_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return 0 };
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let count = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if count == 0 { 0 } else { text.len() - digits.len() + count }
}

/// The largest whole number of a unit that fits.
fn most(unit: &str, size: u64) -> String {
    format!("write at most \"{} {unit}\"", u64::MAX / size)
}

/// The digits of `number` without its point, and how many of them were decimals.
fn decimal(number: &str) -> Option<(u128, u32)> {
    const DIGITS_MAX: usize = 24;
    let plain: String = number.chars().filter(|&c| c != '_').collect();
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    (digits.len() <= DIGITS_MAX)
        .then(|| digits.parse().ok())
        .flatten()
        .map(|mantissa| (mantissa, fraction.len() as u32))
}

/// The unit that was probably meant: the same letters in another case, or a common alternative spelling.
fn nearest<'a>(unit: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    const SPELLINGS: [(&str, &str); 14] = [
        ("bps", "bit/s"),
        ("kbps", "kbit/s"),
        ("mbps", "Mbit/s"),
        ("gbps", "Gbit/s"),
        ("tbps", "Tbit/s"),
        ("b/s", "bit/s"),
        ("kb/s", "kbit/s"),
        ("mb/s", "Mbit/s"),
        ("gb/s", "Gbit/s"),
        ("sec", "s"),
        ("usec", "us"),
        ("msec", "ms"),
        ("bytes", "B"),
        ("k", "KiB"),
    ];
    let lower = unit.to_lowercase();
    let respelled = SPELLINGS.into_iter().find(|&(from, _)| from == lower).map(|(_, to)| to);
    known
        .clone()
        .find(|candidate| Some(*candidate) == respelled)
        .or_else(|| known.clone().find(|candidate| candidate.to_lowercase() == lower))
}

/// Writes `value` in the largest of `units` that it reaches, else in `other`.
pub(crate) fn write_in(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(u64, &str)],
    other: (u64, &str),
) -> fmt::Result {
    let (size, unit) = units.iter().copied().find(|&(size, _)| value >= size).unwrap_or(other);
    write_significant(f, value as f64 / size as f64)?;
    write!(f, " {unit}")
}

/// Writes `value` with four significant digits and without trailing zeros.
fn write_significant(f: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    let decimals = match value {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => f.write_str(text.trim_end_matches('0').trim_end_matches('.')),
        false => f.write_str(&text),
    }
}

/// Replaces control characters, which would move a terminal's cursor, by blanks of the same length in bytes.
pub fn printable(c: char) -> char {
    match c {
        c if c.is_ascii_control() => ' ',
        c if c.is_control() => '\u{a0}',
        c => c,
    }
}

/// The user's text as shown in a message: printable, and cut after 60 characters.
pub fn shorten(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let shown: String = text.chars().take(SHOWN_MAX).map(printable).collect();
    if text.chars().nth(SHOWN_MAX).is_some() { format!("{shown}...") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_quantity_is_parsed_exactly() {
        assert_eq!(Rate::parse("10 Gbit/s"), Ok(Rate::from_gbit(10)));
        assert_eq!(Rate::parse("10Gbit/s"), Ok(Rate::from_gbit(10)));
        assert_eq!(Rate::parse("32.3 MB/s"), Ok(Rate::from_bits(258_400_000)));
        assert_eq!(Bytes::parse("64 KiB"), Ok(Bytes(65_536)));
        assert_eq!(Duration::parse("10 us"), Ok(Duration::from_us(10)));
        assert_eq!(PerByte::parse("0.42 us/B"), Ok(PerByte::from_fs(420_000_000)));
        assert_eq!(PerByte::parse("1 GB/s"), Ok(PerByte::from_fs(1_000_000)));
        assert_eq!(Rate::parse("1e9 bit/s"), Ok(Rate::from_gbit(1)));
        assert_eq!(Rate::parse("2.5E+3Mbit/s"), Ok(Rate::from_mbit(2_500)));
        assert_eq!(Duration::parse("1500e-3 us"), Ok(Duration::from_ns(1_500)));
    }

    #[test]
    fn errors_say_what_to_write() {
        let cases = [
            ("10", "`10` has no unit: write \"10 Mbit/s\" or \"10 MB/s\""),
            ("10 Mbps", "`Mbps` is not a unit of a rate: did you mean \"10 Mbit/s\"?"),
            ("10 gbit/s", "`gbit/s` is not a unit of a rate: did you mean \"10 Gbit/s\"?"),
            ("fast", "`fast` is not a rate: write a number and a unit, like \"10 Mbit/s\""),
            ("-1 Mbit/s", "`-1 Mbit/s` is negative: a rate cannot be negative"),
            ("0 Mbit/s", "`0 Mbit/s` is zero: a rate must be positive"),
            (
                "1.2.3 Mbit/s",
                "`1.2.3` is not a decimal number: write digits with at most one point, like 2.5 or \
                 1e9",
            ),
            (
                "0.5 bit/s",
                "`0.5 bit/s` is finer than the resolution of a rate: leave out some decimals",
            ),
            (
                "1e Mbit/s",
                "`e Mbit/s` is not a unit of a rate: the units of a rate are bit/s, \
                kbit/s, Mbit/s, Gbit/s, Tbit/s, B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s",
            ),
            (
                "1e40 Gbit/s",
                "`1e40 Gbit/s` is larger than a rate can be: write at most \"18446744073 Gbit/s\"",
            ),
            (
                "1e999999999999 Gbit/s",
                "`1e999999999999 Gbit/s` is larger than a rate can be: write at most \
                 \"18446744073 Gbit/s\"",
            ),
            (
                "1e-999999999999 s/s",
                "`s/s` is not a unit of a rate: the units of a rate are bit/s, kbit/s, Mbit/s, \
                 Gbit/s, Tbit/s, B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s",
            ),
            (
                "1e-40 Gbit/s",
                "`1e-40 Gbit/s` is finer than the resolution of a rate: leave out some decimals",
            ),
            (
                "99999999999 Tbit/s",
                "`99999999999 Tbit/s` is larger than a rate can be: \
                 write at most \"18446744 Tbit/s\"",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(Rate::parse(text).unwrap_err().to_string(), message);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in ".{0,40}") {
            let _ = Rate::parse(&text);
            let _ = Bytes::parse(&text);
            let _ = Duration::parse(&text);
            let _ = PerByte::parse(&text);
        }

        #[test]
        fn whole_numbers_of_every_unit_are_exact(count in 0u64..1_000_000, unit in 0usize..9) {
            let (name, size) = Bytes::UNITS[unit];
            prop_assert_eq!(Bytes::parse(&format!("{count} {name}")), Ok(Bytes(count * size)));
        }
    }
}
