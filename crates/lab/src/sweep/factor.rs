//! Factors: what varies in a sweep, and the values it takes.

use lastmeter_base::{Bytes, Duration, PerByte, Quantity, Rate};

/// A key of the experiment, and the values that it takes.
///
/// | written | means |
/// |---|---|
/// | `links.0.rate=1 Mbit/s,10 Mbit/s` | these two |
/// | `links.0.rate=1 Mbit/s..10 Mbit/s` | any between: for random and Latin-hypercube designs |
/// | `links.0.rate=1 Mbit/s..1 Gbit/s log` | any between, each decade equally likely |
/// | `links.0.rate=1 Mbit/s..1 Gbit/s log / 4` | four, evenly spaced, both ends included |
///
/// ```
/// use lastmeter_lab::sweep::Factor;
/// let factor = Factor::parse("links.0.rate=1 Mbit/s..1 Gbit/s log / 4")?;
/// let levels = factor.levels().expect("four of them");
/// assert_eq!(levels, ["1 Mbit/s", "10 Mbit/s", "100 Mbit/s", "1 Gbit/s"]);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// The key in the experiment, as in `--set`.
    pub key: String,
    /// Its values.
    values: Domain,
}

#[derive(Clone, Debug, PartialEq)]
enum Domain {
    Levels(Vec<String>),
    Range(Range),
}

#[derive(Clone, Debug, PartialEq)]
struct Range {
    low: f64,
    high: f64,
    kind: Kind,
    logarithmic: bool,
    steps: Option<u64>,
}

/// The type of a value: decides how it is written, and its number in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Whole,
    Number,
    Time,
    Size,
    Rate,
    PerByte,
}

/// Levels of one factor.
const LEVELS_MAX: u64 = 100_000;
/// Significant digits of a drawn value.
const DIGITS: i32 = 6;

/// A value as a number of smallest units, with its type; `None` for text.
pub(super) fn number(text: &str) -> Option<(f64, Kind)> {
    let text = text.trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if let Ok(whole) = text.parse::<i64>() {
        return Some((whole as f64, Kind::Whole));
    }
    if let Some(number) = text.parse::<f64>().ok().filter(|number| number.is_finite()) {
        return Some((number, Kind::Number));
    }
    let time = || Duration::parse(text).ok().map(|time| (time.as_ps() as f64, Kind::Time));
    let size = || Bytes::parse(text).ok().map(|size| (size.0 as f64, Kind::Size));
    let rate = || Rate::parse(text).ok().map(|rate| (rate.as_bits() as f64, Kind::Rate));
    let cost = || PerByte::parse(text).ok().map(|cost| (cost.as_fs() as f64, Kind::PerByte));
    time().or_else(size).or_else(rate).or_else(cost)
}

impl Kind {
    /// The number of smallest units in an SI base unit.
    pub(super) fn smallest_per_si(self) -> f64 {
        match self {
            Kind::Time => 1e12,
            Kind::PerByte => 1e15,
            Kind::Whole | Kind::Number | Kind::Size | Kind::Rate => 1.0,
        }
    }

    /// Writes a value so that it reads back as itself.
    fn write(self, value: f64) -> String {
        fn quantity<Q: Quantity>(value: f64) -> String {
            let count = value.round();
            let decimal = |size: u64| size.to_string().trim_end_matches('0') == "1";
            let units = Q::UNITS.iter().filter(|(name, size)| name.is_ascii() && decimal(*size));
            let (name, size) = units
                .filter(|&&(_, size)| size as f64 <= count.max(1.0))
                .max_by_key(|&&(_, size)| size)
                .unwrap_or(&Q::UNITS[0]);
            format!("{} {name}", count / *size as f64)
        }
        match self {
            Kind::Whole => format!("{}", value.round()),
            Kind::Number => format!("{value}"),
            Kind::Time => quantity::<Duration>(value),
            Kind::Size => quantity::<Bytes>(value),
            Kind::Rate => quantity::<Rate>(value),
            Kind::PerByte => quantity::<PerByte>(value),
        }
    }
}

/// `value` with [`DIGITS`] significant digits.
fn rounded(value: f64) -> f64 {
    let text = format!("{value:.*e}", DIGITS as usize - 1);
    text.parse().unwrap_or(value)
}

impl Factor {
    /// A factor with these values, written as in `--set`.
    ///
    /// # Errors
    /// If there are no values, or too many.
    pub fn of(key: &str, levels: Vec<String>) -> Result<Factor, String> {
        let key = key.trim();
        if key.is_empty() {
            return Err("a factor has no key: write KEY=VALUE,VALUE".to_owned());
        }
        if levels.is_empty() || levels.iter().any(|level| level.trim().is_empty()) {
            return Err(format!("`{key}` lacks a value: write {key}=VALUE,VALUE"));
        }
        if levels.len() as u64 > LEVELS_MAX {
            return Err(format!("`{key}` has {} values; {LEVELS_MAX} are most", levels.len()));
        }
        Ok(Factor { key: key.to_owned(), values: Domain::Levels(levels) })
    }

    /// Reads `KEY=VALUE,VALUE`, `KEY=LOW..HIGH`, `KEY=LOW..HIGH log`, each range also with `/ N`.
    ///
    /// # Errors
    /// Says what is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Factor, String> {
        let Some((key, values)) = text.split_once('=') else {
            return Err(format!(
                "`{text}` has no `=`: write KEY=VALUE,VALUE, like links.0.rate='1 Mbit/s,1 Gbit/s'"
            ));
        };
        match range(key.trim(), values)? {
            Some(range) => Ok(Factor { key: key.trim().to_owned(), values: Domain::Range(range) }),
            None => Factor::of(key, split(values)),
        }
    }

    /// Its values; `None` for a range without a number of steps.
    pub fn levels(&self) -> Option<Vec<String>> {
        match &self.values {
            Domain::Levels(levels) => Some(levels.clone()),
            Domain::Range(range) => {
                let steps = range.steps?;
                let share = |step: u64| match steps {
                    1 => 0.5,
                    _ => step as f64 / (steps - 1) as f64,
                };
                Some((0..steps).map(|step| range.at(share(step))).collect())
            }
        }
    }

    /// The value at `share` (from 0 to below 1) of the way through.
    pub(super) fn at(&self, share: f64) -> String {
        match &self.values {
            Domain::Levels(levels) => {
                let index = (share * levels.len() as f64) as usize;
                levels[index.min(levels.len() - 1)].clone()
            }
            Domain::Range(range) => range.at(share),
        }
    }

    /// Values to check before anything runs: every one of a list, the ends of a range.
    pub(super) fn samples(&self) -> Vec<String> {
        match &self.values {
            Domain::Levels(levels) => levels.clone(),
            Domain::Range(range) => vec![range.at(0.0), range.at(1.0)],
        }
    }
}

impl Range {
    fn at(&self, share: f64) -> String {
        let (low, high) = (self.low, self.high);
        let value = match self.logarithmic {
            true => low * (high / low).powf(share),
            false => low + (high - low) * share,
        };
        // The ends are exactly as written; rounding must not exceed them.
        let value = match share {
            0.0 => low,
            1.0 => high,
            _ => rounded(value).clamp(low, high),
        };
        self.kind.write(value)
    }
}

/// Parses a range; `None` if the text is not one.
fn range(key: &str, text: &str) -> Result<Option<Range>, String> {
    let Some((low, rest)) = text.split_once("..") else { return Ok(None) };
    let (rest, steps) = match rest.rsplit_once(" / ") {
        Some((rest, steps)) => (rest, Some(steps.trim())),
        None => (rest, None),
    };
    let (high, logarithmic) = match rest.trim_end().strip_suffix(" log") {
        Some(high) => (high, true),
        None => (rest, false),
    };
    // File names contain dots, too.
    let (Some((low_value, low_kind)), Some((high_value, high_kind))) = (number(low), number(high))
    else {
        return Ok(None);
    };
    let kind = match (low_kind, high_kind) {
        (a, b) if a == b => a,
        (Kind::Whole | Kind::Number, Kind::Whole | Kind::Number) => Kind::Number,
        _ => return Err(format!("{key}: `{low}` and `{high}` are not of the same kind")),
    };
    let right = "write the lower one first";
    if low_value >= high_value {
        return Err(format!("{key}: `{low}` is not less than `{high}`: {right}"));
    }
    if logarithmic && low_value <= 0.0 {
        return Err(format!(
            "{key}: a logarithmic range cannot start at `{low}`: write more than 0"
        ));
    }
    let steps = match steps.map(str::parse::<u64>) {
        None => None,
        Some(Ok(steps)) if (1..=LEVELS_MAX).contains(&steps) => Some(steps),
        Some(_) => {
            return Err(format!("{key}: write the number of values after the slash: {text} / 5"));
        }
    };
    Ok(Some(Range { low: low_value, high: high_value, kind, logarithmic, steps }))
}

/// Splits at commas outside quotes and brackets.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut depth, mut quote) = (0_i32, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(std::mem::take(&mut part).trim().to_owned());
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part.trim().to_owned());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn levels(text: &str) -> Vec<String> {
        Factor::parse(text).unwrap().levels().unwrap()
    }

    #[test]
    fn values_are_split_outside_of_quotes_and_brackets() {
        assert_eq!(levels("seed=1, 2,3"), ["1", "2", "3"]);
        let queues = levels(r#"links.0.queue={red={min=5,max=9}},{codel={}}"#);
        assert_eq!(queues, ["{red={min=5,max=9}}", "{codel={}}"]);
        assert_eq!(levels(r#"title="a,b",c"#), [r#""a,b""#, "c"]);
    }

    #[test]
    fn ranges_are_evenly_spaced_with_both_ends() {
        assert_eq!(levels("n=1..9 / 5"), ["1", "3", "5", "7", "9"]);
        assert_eq!(levels("p=0..0.5 / 3"), ["0", "0.25", "0.5"]);
        assert_eq!(levels("d=1 ms..1.5 s / 2"), ["1 ms", "1.5 s"]);
        assert_eq!(levels("b=10 B..10 kB log / 4"), ["10 B", "100 B", "1 kB", "10 kB"]);
    }

    #[test]
    fn a_path_is_not_a_range() {
        assert_eq!(levels("capture=../a.pcapng,../b.pcapng"), ["../a.pcapng", "../b.pcapng"]);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let wrong = [
            ("rate", "has no `=`"),
            ("rate=", "lacks a value"),
            ("rate=1,,2", "lacks a value"),
            ("rate=2 Mbit/s..1 Mbit/s", "the lower one first"),
            ("rate=1 Mbit/s..1 s", "not of the same kind"),
            ("n=0..5 log", "more than 0"),
            ("n=1..5 / 0", "number of values"),
            ("=1", "has no key"),
        ];
        for (text, words) in wrong {
            let found = Factor::parse(text).unwrap_err();
            assert!(found.contains(words), "{text}: {found}");
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "\\PC{0,60}") {
            if let Ok(factor) = Factor::parse(&text) {
                prop_assert!(!factor.samples().is_empty());
            }
        }

        #[test]
        fn a_drawn_value_reads_back_and_lies_in_its_range(
            low in 1u64..1_000_000_000_000,
            more in 1u64..1_000_000_000_000,
            share in 0.0f64..1.0,
            log in any::<bool>(),
        ) {
            let high = low + more;
            let word = if log { " log" } else { "" };
            let factor = Factor::parse(&format!("k={low} ps..{high} ps{word}")).unwrap();
            let (value, kind) = number(&factor.at(share)).unwrap();
            prop_assert_eq!(kind, Kind::Time);
            prop_assert!(value >= low as f64 && value <= high as f64);
        }
    }
}
