//! Predictions beside measurements for many settings, and whether changes were ranked correctly.
//!
//! For each setting three soft changes are predicted and measured. For each pair of the four (the
//! setting as it is, too) the order of what was predicted must be that of what was measured. A pair
//! whose runs overlap, from first to third quartile, or whose medians lie within 10 % of each other is
//! a tie: the measurement does not say which is better, or the difference does not matter, so
//! neither order is wrong. One pair in the wrong order makes the ranking wrong.

use super::change::Change;
use lastmeter_base::Bytes;
use lastmeter_ledger::figures;
use lastmeter_live::statistics::Spread;
use lastmeter_live::transfer::{Placement, Setting};
use lastmeter_live::validate::Validated;
use serde::Serialize;

/// The version of the JSON lines.
pub const SCHEMA: &str = "lastmeter.validate/1";
/// Relative error that a prediction may have.
pub const ERROR_MAX: f64 = 0.15;
/// Relative error that is a failure, unless low confidence was stated beforehand.
pub const ERROR_OUTRIGHT: f64 = 0.40;
/// Settings of ten that must lie within [`ERROR_MAX`], and that must be ranked correctly.
pub const WITHIN_MIN: f64 = 0.8;
/// See [`WITHIN_MIN`].
pub const RANKED_MIN: f64 = 0.9;

/// Relative difference of two rates below which they count as equal.
pub const TIE: f64 = 0.10;

/// Prediction and measurement of the same transfer with one change.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// As an argument of `--what-if`.
    pub change: String,
    /// Bits per second.
    pub predicted: f64,
    /// Median and quartiles of the runs.
    pub measured: Spread,
}

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// What differs from the plain transfer.
    pub setting: String,
    /// Bits per second.
    pub predicted: f64,
    /// Median of the runs.
    pub measured: f64,
    /// First quartile of the runs.
    pub measured_low: f64,
    /// Third quartile.
    pub measured_high: f64,
    /// Predicted over measured, less one.
    pub error: f64,
    /// Whether the changes were ranked correctly.
    pub ranking_right: bool,
    /// `high`, `medium`, `low`: stated before measuring.
    pub confidence: &'static str,
    /// CPUs used by other programs during the measurement, the worst of the runs.
    pub others: f64,
    /// What the ranking rests on.
    pub changes: Vec<Tried>,
}

/// The changes that are tried on a setting: larger messages, other packets, other cores.
pub fn changes(setting: &Setting) -> Vec<Change> {
    let packets = match setting.offload {
        true => Change::Offload(false),
        false if setting.mtu < 9000 => Change::Mtu(9000),
        false => Change::Mtu(1500),
    };
    let other = match setting.placement {
        Placement::SameCore => Placement::OtherCore,
        _ => Placement::SameCore,
    };
    let message = Bytes(setting.message.0.saturating_mul(2));
    vec![Change::Message(message), packets, Change::Placement(other)]
}

/// Makes the line of a setting.
pub fn row(name: &str, one: &Validated, changes: Vec<Tried>) -> Row {
    let base = Tried { change: String::new(), predicted: one.predicted, measured: one.measured };
    let confidence = match one.uncertainty {
        u if u <= ERROR_MAX => "high",
        u if u <= ERROR_OUTRIGHT => "medium",
        _ => "low",
    };
    Row {
        schema: SCHEMA,
        setting: name.to_owned(),
        predicted: one.predicted,
        measured: one.measured.median,
        measured_low: one.measured.low,
        measured_high: one.measured.high,
        error: one.error,
        ranking_right: is_right(&base, &changes),
        confidence,
        others: one.others,
        changes,
    }
}

/// Whether every pair that the measurement distinguishes is predicted in its order.
fn is_right(base: &Tried, changes: &[Tried]) -> bool {
    let all: Vec<&Tried> = std::iter::once(base).chain(changes).collect();
    let pairs = all.iter().enumerate().flat_map(|(i, a)| all[i + 1..].iter().map(move |b| (a, b)));
    pairs.into_iter().all(|(a, b)| {
        let overlap = a.measured.low <= b.measured.high && b.measured.low <= a.measured.high;
        let tie = overlap || (a.measured.median / b.measured.median).ln().abs() < TIE;
        let measured = a.measured.median.total_cmp(&b.measured.median);
        tie || a.predicted.total_cmp(&b.predicted) == measured
    })
}

/// Whether all rows together are good enough.
pub fn passes(rows: &[Row]) -> bool {
    let share = |is: fn(&Row) -> bool| {
        rows.iter().filter(|row| is(row)).count() as f64 / rows.len().max(1) as f64
    };
    share(|row| row.error.abs() <= ERROR_MAX) >= WITHIN_MIN
        && share(|row| row.ranking_right) >= RANKED_MIN
        && rows.iter().all(|row| row.error.abs() <= ERROR_OUTRIGHT || row.confidence == "low")
}

/// The line above the rows.
pub fn heading(width: usize) -> String {
    let wide = name_width(width);
    format!(
        "{:<wide$} {:>9} {:>9} {:>13} {:>7} {:>7} {:>6}  {}",
        "setting, Gbit/s",
        "predicted",
        "measured",
        "quartiles",
        "error",
        "ranking",
        "others",
        "sure"
    )
}

fn name_width(width: usize) -> usize {
    width.saturating_sub(67).clamp(12, 50)
}

/// A row for people.
pub fn line(row: &Row, width: usize) -> String {
    let wide = name_width(width);
    let gbit = |rate: f64| figures::significant(rate / 1e9);
    let name: String = match row.setting.chars().count() > wide {
        true => row.setting.chars().take(wide - 1).chain(['…']).collect(),
        false => row.setting.clone(),
    };
    format!(
        "{name:<wide$} {:>9} {:>9} {:>13} {:>7} {:>7} {:>6}  {}",
        gbit(row.predicted),
        gbit(row.measured),
        format!("{}-{}", gbit(row.measured_low), gbit(row.measured_high)),
        figures::gain(row.error),
        if row.ranking_right { "right" } else { "WRONG" },
        figures::significant(row.others),
        row.confidence,
    )
}

/// What all rows say together.
pub fn summary(rows: &[Row]) -> String {
    let within = rows.iter().filter(|row| row.error.abs() <= ERROR_MAX).count();
    let ranked = rows.iter().filter(|row| row.ranking_right).count();
    let outright = rows
        .iter()
        .filter(|row| row.error.abs() > ERROR_OUTRIGHT && row.confidence != "low")
        .count();
    let noise = Spread::of(
        rows.iter().map(|row| (row.measured_high - row.measured_low) / row.measured).collect(),
    );
    format!(
        "{within} of {} within {:.0} %, {ranked} ranked correctly (rates within {:.0} % of each \
         other are a tie),\n{outright} wrong by more than {:.0} % without a warning.\nRuns of one \
         setting spread by {:.1} % (median; a quarter by more than {:.1} %).",
        rows.len(),
        ERROR_MAX * 100.0,
        TIE * 100.0,
        ERROR_OUTRIGHT * 100.0,
        noise.median * 100.0,
        noise.high * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(predicted: f64, low: f64, high: f64) -> Tried {
        let median = f64::midpoint(low, high);
        let measured = Spread { median, low, high, samples: 3 };
        Tried { change: String::new(), predicted, measured }
    }

    #[test]
    fn only_a_tie_may_be_ranked_either_way() {
        let base = tried(10.0, 9.0, 11.0);
        assert!(is_right(&base, &[tried(12.0, 10.0, 12.0)]));
        assert!(is_right(&base, &[tried(8.0, 10.0, 12.0)]));
        assert!(!is_right(&base, &[tried(8.0, 12.0, 13.0)]));
        let steady = tried(10.0, 10.0, 10.0);
        assert!(is_right(&steady, &[tried(8.0, 10.9, 10.9)]));
        assert!(!is_right(&steady, &[tried(8.0, 11.2, 11.2)]));
    }
}
