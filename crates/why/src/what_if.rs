//! What each change would buy, predicted from the host's constants and set beside the measurement.
//!
//! The model's ratio of changed to unchanged is applied to the measurement: errors common to both
//! cancel.

use super::change::Change;
use lastmeter_ledger::{WhatIf, figures};
use lastmeter_live::Result;
use lastmeter_live::calibrate::Calibration;
use lastmeter_live::predict::{Prediction, predict};
use lastmeter_live::transfer::{Measurement, Setting, Workload};

/// A change and what it is predicted to buy.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The change.
    pub change: Change,
    /// As it appears in the ledger.
    pub row: WhatIf,
    /// Expected relative error of the prediction.
    pub uncertainty: f64,
}

/// The metric of a setting, and its value in a prediction.
fn metric(setting: &Setting, prediction: &Prediction) -> f64 {
    match setting.workload {
        Workload::RequestResponse => f64::from(setting.streams) / prediction.message_rate,
        _ => prediction.goodput,
    }
}

/// The metric's name and its measured value.
fn measured_metric(m: &Measurement) -> (&'static str, f64) {
    match m.latency {
        Some(latency) if m.setting.workload == Workload::RequestResponse => {
            ("latency", latency.p50)
        }
        _ => ("goodput", m.goodput.windows.median),
    }
}

/// A model whose band is wider than this offers no what-ifs: they would be guesses.
const BAND_MAX: f64 = 0.4;

/// Why the model offers no what-ifs: the measurement is outside its own band, or that says nothing.
pub fn refuted(measured: &Measurement, prediction: &Prediction) -> Option<String> {
    let (name, value) = measured_metric(measured);
    let expected = metric(&measured.setting, prediction);
    let band = prediction.uncertainty;
    let off = expected / value.max(f64::MIN_POSITIVE) - 1.0;
    if band > BAND_MAX {
        return Some(format!(
            "The model of this host, calibrated while it was busy or changing, is sure to {:.0} % \
             only, so it offers no what-ifs.",
            band * 100.0
        ));
    }
    (off.abs() > band).then(|| {
        format!(
            "The model of this host expects {} and {} was measured, {}: outside its own band of \
             {:.0} %, so it offers no what-ifs.",
            figures::metric(name, expected),
            figures::metric(name, value),
            figures::gain(off),
            band * 100.0
        )
    })
}

/// How much better than `baseline`.
fn gain(metric: &str, baseline: f64, value: f64) -> f64 {
    match metric {
        "latency" => baseline / value - 1.0,
        _ => value / baseline - 1.0,
    }
}

/// Predicts each change, best first.
///
/// # Errors
/// When the calibration lacks a constant, or a change gives a setting that cannot run.
pub fn predicted(
    calibration: &Calibration,
    measured: &Measurement,
    changes: &[Change],
) -> Result<Vec<Candidate>> {
    let setting = &measured.setting;
    let now = metric(setting, &predict(calibration, setting)?);
    let (name, baseline) = measured_metric(measured);
    let mut all = Vec::new();
    for change in changes {
        let changed = change.setting(setting);
        let prediction = predict(&change.host(calibration), &changed)?;
        let value = baseline * metric(&changed, &prediction) / now;
        let row = WhatIf {
            change: change.words(),
            metric: name.to_owned(),
            baseline,
            predicted: value,
            measured: None,
            error: None,
            gain: gain(name, baseline, value),
        };
        all.push(Candidate { change: *change, row, uncertainty: prediction.uncertainty });
    }
    all.sort_by(|a, b| b.row.gain.total_cmp(&a.row.gain));
    Ok(all)
}

/// The best change that can be applied and leaves the program useful.
pub fn best(candidates: &[Candidate]) -> Option<usize> {
    candidates.iter().position(|one| one.change.is_useful())
}

/// Records in a candidate the result of applying it.
pub fn applied(candidate: &mut Candidate, measured: &Measurement) {
    let (_, value) = measured_metric(measured);
    candidate.row.measured = Some(value);
    candidate.row.error = Some(candidate.row.predicted / value - 1.0);
}
