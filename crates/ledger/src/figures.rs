//! Numbers as people read them: three or four significant digits and always a unit.

use lastmeter_base::{Bytes, Duration, Rate};

const TIMES: [(f64, &str); 5] =
    [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"), (1e-12, "ps")];

/// A time in words: `1.234 ms`. A negative one, which only a residual can be, keeps its sign.
pub fn time(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "-" } else { "" };
    // The cast saturates, so that no number from outside can stop a report.
    format!("{sign}{}", Duration::from_ps((seconds.abs() * 1e12).round() as u64))
}

/// A time for a column: three significant digits, and the unit padded to two characters, so that
/// right-aligned digits line up.
pub fn time_cell(seconds: f64) -> String {
    let size = seconds.abs();
    if size < 0.5e-12 || !size.is_finite() {
        return "0 s ".to_owned();
    }
    // Compared after rounding: 999.96 us is 1.00 ms.
    let fits = |&&(unit, _): &&(f64, &str)| size / unit >= 0.9995;
    let (unit, name) = TIMES.iter().find(fits).unwrap_or(&TIMES[4]);
    format!("{} {name:<2}", significant(seconds / unit))
}

/// Three significant digits.
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// A value of a unit: a time, a rate, a share without a unit, else three digits and the unit.
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "s" => time(value),
        "bit/s" => rate(value),
        "" => share(value),
        _ => format!("{} {unit}", significant(value)),
    }
}

/// A rate in words: `9.41 Gbit/s`.
pub fn rate(bits_per_second: f64) -> String {
    match bits_per_second.round() as u64 {
        0 => "0 bit/s".to_owned(),
        bits => Rate::from_bits(bits).to_string(),
    }
}

/// A size in words: `64 KiB`, `243 MB`.
pub fn size(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// A share in words: `97.4 %`.
pub fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        p if p < 0.05 => "<0.1 %".to_owned(),
        _ => format!("{percent:.1} %"),
    }
}

/// A gain in words, with its sign: `+38.1 %`.
pub fn gain(share: f64) -> String {
    match share * 100.0 {
        p if p.abs() < 0.05 => "0 %".to_owned(),
        p => format!("{p:+.1} %"),
    }
}

/// A count with its thousands separated: `1 234 567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A count in at most seven characters: `1 234`, `162 k`, `1.23 M`.
pub fn count_cell(number: u64) -> String {
    match number as f64 {
        n if n < 99_999.5 => count(number),
        n if n < 999_500.0 => format!("{} k", significant(n / 1e3)),
        n if n < 999_500_000.0 => format!("{} M", significant(n / 1e6)),
        n => format!("{} G", significant(n / 1e9)),
    }
}

/// `1 packet`, `2 packets`.
pub fn plural(number: u64, one: &str) -> String {
    format!("{} {one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A metric of a what-if in its own unit.
pub fn metric(name: &str, value: f64) -> String {
    match name {
        "goodput" => rate(value),
        "latency" => time(value),
        "loss" => share(value),
        _ => significant(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_keep_three_digits_and_line_up() {
        let cells = [0.0, 1.234e-6, 12.34e-6, 123.4e-6, 999.96e-6, 1.5, 3e-12].map(time_cell);
        assert_eq!(
            cells,
            ["0 s ", "1.23 us", "12.3 us", "123 us", "1.00 ms", "1.50 s ", "3.00 ps"]
        );
    }

    #[test]
    fn no_number_in_a_file_stops_a_report() {
        for value in [f64::NAN, f64::INFINITY, -1.0, 1e300, -0.0] {
            time(value);
            time_cell(value);
            rate(value);
            share(value);
            gain(value);
        }
    }

    #[test]
    fn counts_have_their_thousands_separated() {
        assert_eq!([7, 1234, 1_234_567].map(count), ["7", "1 234", "1 234 567"]);
        assert_eq!([99_999, 162_118, 1_234_567].map(count_cell), ["99 999", "162 k", "1.23 M"]);
        assert_eq!(plural(1, "packet"), "1 packet");
    }
}
