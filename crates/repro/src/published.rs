//! Published values, and how close a value must be.
//!
//! | tolerance  | published | a value passes if it                                          |
//! |------------|-----------|---------------------------------------------------------------|
//! | `exact`    | `107`     | is equal                                                      |
//! | `printed`  | `1510`    | is within half a unit of the last printed digit               |
//! | `5 %`      | `300`     | differs by at most this, relative to the published value      |
//! | `2 us`     | `21`      | differs by at most this, in the row's unit                    |
//! | `<`, `<=`, `>`, `>=` | `700` | is on that side: the document states a bound            |
//! | `< 10 %`   | `1000000` | is on that side and close: "a little less than"               |
//! | `range`    | `50..200` | is in the range, ends included                                |
//! | `holds`    | `holds`   | is true: an ordering or a shape                               |
//!
//! The error is relative to the published value, with its sign. Statements, bounds that hold, and ranges that
//! contain the value have none.

use serde::{Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;

/// A published value as typed.
#[derive(Clone, Debug, PartialEq)]
pub enum Published {
    /// A number.
    Number {
        /// The text, as printed.
        text: String,
        /// Its value.
        value: f64,
    },
    /// A range: lower end and upper end.
    Range(f64, f64),
    /// A statement that holds or does not.
    Holds,
}

impl Serialize for Published {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Published::Number { value, .. } => value.serialize(serializer),
            Published::Range(low, high) => [low, high].serialize(serializer),
            Published::Holds => true.serialize(serializer),
        }
    }
}

/// The tolerance within which a value counts as reproduced.
#[derive(Clone, Debug, PartialEq)]
pub enum Tolerance {
    /// Equal.
    Exact,
    /// Within half of the last printed digit.
    Printed,
    /// At most this relative difference from the published value.
    Share(f64),
    /// At most this difference, in the row's unit.
    Distance(f64, String),
    /// On one side of the published value, with at most this relative difference.
    Side(Side, Option<f64>),
    /// Within the published range.
    Range,
    /// The statement holds.
    Holds,
}

/// The side of a published bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `<`
    Below,
    /// `<=`
    NotAbove,
    /// `>`
    Above,
    /// `>=`
    NotBelow,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Relative to the published value; `None` for statements, bounds that hold, ranges that contain the value, and
    /// published values of 0.
    pub error: Option<f64>,
    /// Whether it is within the tolerance.
    pub pass: bool,
}

/// Values are exact units after one division; this covers the rounding of that division only.
const ROUNDING: f64 = 1e-12;

impl Published {
    /// Parses a number, a range (`50..200`), or `holds`.
    ///
    /// # Errors
    /// A message with the correct form.
    pub fn parse(text: &str) -> Result<Published, String> {
        if text == "holds" {
            return Ok(Published::Holds);
        }
        let number = |text: &str| match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => Err(format!("`{text}` is not a number, range (`50..200`) or `holds`")),
        };
        match text.split_once("..") {
            None => Ok(Published::Number { text: text.to_owned(), value: number(text)? }),
            Some((low, high)) => match (number(low)?, number(high)?) {
                (low, high) if low <= high => Ok(Published::Range(low, high)),
                _ => Err(format!("`{text}`: write the lower end first")),
            },
        }
    }

    /// Half of the last printed digit: 0.5 for `1510`, 0.05 for `24.7`.
    fn half_digit(text: &str) -> f64 {
        let decimals = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        0.5 * 0.1f64.powi(decimals as i32)
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Published::Number { text, .. } => f.write_str(text),
            Published::Range(low, high) => write!(f, "{low}..{high}"),
            Published::Holds => f.write_str("holds"),
        }
    }
}

const SIDES: [(&str, Side); 4] =
    [("<=", Side::NotAbove), (">=", Side::NotBelow), ("<", Side::Below), (">", Side::Above)];

impl Tolerance {
    /// Parses the tolerance of a row whose values are in `unit`.
    ///
    /// # Errors
    /// A message with the correct form.
    pub fn parse(text: &str, unit: &str) -> Result<Tolerance, String> {
        match text {
            "exact" => return Ok(Tolerance::Exact),
            "printed" => return Ok(Tolerance::Printed),
            "range" => return Ok(Tolerance::Range),
            "holds" => return Ok(Tolerance::Holds),
            _ => {}
        }
        let wrong = || {
            format!(
                "`{text}` is not a tolerance: write exact, printed, `5 %`, `2 {unit}`, a side \
                 (`<`, `<=`, `>`, `>=`, also with a share: `< 10 %`), range or holds"
            )
        };
        let number = |text: &str| match text.trim().parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
            _ => Err(wrong()),
        };
        if let Some((sign, side)) = SIDES.into_iter().find(|(sign, _)| text.starts_with(sign)) {
            let share = match text[sign.len()..].trim() {
                "" => None,
                rest => Some(number(rest.strip_suffix('%').ok_or_else(wrong)?)? / 100.0),
            };
            return Ok(Tolerance::Side(side, share));
        }
        match (text.strip_suffix('%'), text.strip_suffix(unit)) {
            (Some(share), _) => Ok(Tolerance::Share(number(share)? / 100.0)),
            (_, Some(distance)) if !unit.is_empty() => {
                Ok(Tolerance::Distance(number(distance)?, unit.to_owned()))
            }
            _ => Err(wrong()),
        }
    }

    /// Whether it applies to `published`: a range needs `range`, and so on.
    pub fn suits(&self, published: &Published) -> bool {
        match published {
            Published::Number { .. } => !matches!(self, Tolerance::Range | Tolerance::Holds),
            Published::Range(..) => *self == Tolerance::Range,
            Published::Holds => *self == Tolerance::Holds,
        }
    }

    /// Whether it is two-sided.
    pub fn has_two_sides(&self) -> bool {
        !matches!(self, Tolerance::Holds | Tolerance::Side(_, None))
    }

    /// Compares `measured` with `published`, which must suit the tolerance. A statement that holds is 1. NaN never
    /// passes.
    pub fn judge(&self, published: &Published, measured: f64) -> Judgement {
        let relative = |to: f64| {
            let error = if measured == to { 0.0 } else { (measured - to) / to.abs() };
            error.is_finite().then_some(error)
        };
        match published {
            Published::Holds => Judgement { error: None, pass: measured == 1.0 },
            &Published::Range(low, high) => {
                let pass = (low..=high).contains(&measured);
                let end = if measured < low { low } else { high };
                Judgement { error: if pass { None } else { relative(end) }, pass }
            }
            Published::Number { text, value } => {
                let pass = self.allows(text, *value, measured);
                let bound = matches!(self, Tolerance::Side(_, None));
                Judgement { error: if bound && pass { None } else { relative(*value) }, pass }
            }
        }
    }

    fn allows(&self, text: &str, published: f64, measured: f64) -> bool {
        let within =
            |distance: f64| (measured - published).abs() <= distance + ROUNDING * published.abs();
        match self {
            Tolerance::Exact => within(0.0),
            Tolerance::Printed => within(Published::half_digit(text)),
            Tolerance::Share(share) => within(share * published.abs()),
            Tolerance::Distance(distance, _) => within(*distance),
            Tolerance::Side(side, share) => {
                side.has(measured, published)
                    && share.is_none_or(|share| within(share * published.abs()))
            }
            Tolerance::Range | Tolerance::Holds => false,
        }
    }
}

impl Side {
    fn has(self, measured: f64, published: f64) -> bool {
        let Some(order) = measured.partial_cmp(&published) else { return false };
        match self {
            Side::Below => order == Ordering::Less,
            Side::NotAbove => order != Ordering::Greater,
            Side::Above => order == Ordering::Greater,
            Side::NotBelow => order != Ordering::Less,
        }
    }

    fn sign(self) -> &'static str {
        SIDES.into_iter().find(|&(_, side)| side == self).map_or("", |(sign, _)| sign)
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As written, so that 5 % is not 5.000000000000001 %.
        let percent = |share: f64| (share * 1e8).round() / 1e6;
        match self {
            Tolerance::Exact => f.write_str("exact"),
            Tolerance::Printed => f.write_str("printed"),
            Tolerance::Share(share) => write!(f, "{} %", percent(*share)),
            Tolerance::Distance(distance, unit) => write!(f, "{distance} {unit}"),
            Tolerance::Side(side, None) => f.write_str(side.sign()),
            Tolerance::Side(side, Some(share)) => {
                write!(f, "{} {} %", side.sign(), percent(*share))
            }
            Tolerance::Range => f.write_str("range"),
            Tolerance::Holds => f.write_str("holds"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(published: &str, tolerance: &str, measured: f64) -> Judgement {
        let published = Published::parse(published).unwrap();
        let tolerance = Tolerance::parse(tolerance, "us").unwrap();
        assert!(tolerance.suits(&published));
        tolerance.judge(&published, measured)
    }

    #[test]
    fn every_tolerance_has_an_inside_and_an_outside() {
        let cases = [
            ("107", "exact", 107.0, 107.001),
            ("1510", "printed", 1509.5, 1509.4),
            ("24.7", "printed", 24.75, 24.76),
            ("300", "5 %", 285.0, 284.9),
            ("21", "2 us", 23.0, 23.1),
            ("700", "<", 546.0, 700.0),
            ("700", "<=", 700.0, 700.1),
            ("700", ">", 701.0, 700.0),
            ("700", ">=", 700.0, 699.0),
            ("1000000", "< 10 %", 934_579.0, 899_999.0),
            ("1000000", "< 10 %", 900_000.0, 1_000_000.0),
            ("50..200", "range", 200.0, 49.0),
            ("holds", "holds", 1.0, 0.0),
        ];
        for (published, tolerance, inside, outside) in cases {
            assert!(judge(published, tolerance, inside).pass, "{published} {tolerance}");
            assert!(!judge(published, tolerance, outside).pass, "{published} {tolerance}");
            assert!(!judge(published, tolerance, f64::NAN).pass, "{published} {tolerance}");
        }
    }

    #[test]
    fn the_error_is_what_lies_beyond_what_was_published() {
        assert_eq!(judge("300", "5 %", 288.0).error, Some(-0.04));
        assert_eq!(judge("700", "<", 546.0).error, None);
        assert_eq!(judge("700", "<", 770.0).error, Some(0.1));
        assert_eq!(judge("50..200", "range", 80.0).error, None);
        assert_eq!(judge("50..200", "range", 25.0).error, Some(-0.5));
        assert_eq!(judge("holds", "holds", 1.0).error, None);
        assert_eq!(judge("0", "exact", 0.0).error, Some(0.0));
        assert_eq!(judge("0", "exact", 1.0).error, None);
    }

    #[test]
    fn says_what_would_be_right() {
        assert!(Published::parse("about 3").unwrap_err().contains("`50..200`"));
        assert!(Published::parse("200..50").unwrap_err().contains("lower end first"));
        for wrong in ["close", "5", "< 10", "-5 %", "nan %", "2 ms", ""] {
            assert!(Tolerance::parse(wrong, "us").unwrap_err().contains("`2 us`"), "{wrong}");
        }
        let range = Published::parse("1..2").unwrap();
        assert!(!Tolerance::Exact.suits(&range));
    }

    #[test]
    fn prints_as_it_was_written() {
        for text in ["exact", "printed", "5 %", "0.7 %", "2 us", "<", ">=", "< 10 %", "range"] {
            assert_eq!(Tolerance::parse(text, "us").unwrap().to_string(), text);
        }
    }
}
