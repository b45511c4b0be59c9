//! What each change would buy: predicted from the host's constants, measured by applying it, or both side by side.
//!
//! The ratio of changed to unchanged, whether the model's or that of runs in turn, is applied to the measurement:
//! errors common to both cancel.

use super::change::Change;
use super::trial::{Trial, Trials};
use lastmeter_ledger::{WhatIf, figures};
use lastmeter_linux::Result;
use lastmeter_live::calibrate::Calibration;
use lastmeter_live::predict::{Prediction, predict};
use lastmeter_live::transfer::{Measurement, Setting, Workload};

/// A change and what it buys.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The change.
    pub change: Change,
    /// As it appears in the ledger.
    pub row: WhatIf,
    /// Expected relative error of the prediction, where there is one.
    pub uncertainty: Option<f64>,
}

/// The metric of a setting, and its value in a prediction.
fn metric(setting: &Setting, prediction: &Prediction) -> f64 {
    match setting.workload {
        Workload::RequestResponse => f64::from(setting.streams) / prediction.message_rate,
        _ => prediction.goodput,
    }
}

/// The metric's name.
pub(crate) fn name_of(setting: &Setting) -> &'static str {
    match setting.workload {
        Workload::RequestResponse => "latency",
        _ => "goodput",
    }
}

/// The metric's name and its measured value.
pub(crate) fn metric_of(m: &Measurement) -> (&'static str, f64) {
    let name = name_of(&m.setting);
    match m.latency {
        Some(latency) if name == "latency" => (name, latency.p50),
        _ => ("goodput", m.goodput.windows.median),
    }
}

/// A model whose band is wider than this predicts no changes: they would be guesses.
const BAND_MAX: f64 = 0.4;

/// Why the model predicts no changes: the measurement is outside its own band, or that says nothing.
pub fn refuted(measured: &Measurement, prediction: &Prediction) -> Option<String> {
    let (name, value) = metric_of(measured);
    let expected = metric(&measured.setting, prediction);
    let band = prediction.uncertainty;
    let off = expected / value.max(f64::MIN_POSITIVE) - 1.0;
    if band > BAND_MAX {
        return Some(format!(
            "The model of this host, calibrated while it was busy or changing, is sure to {:.0} % \
             only, so it predicts no changes.",
            band * 100.0
        ));
    }
    (off.abs() > band).then(|| {
        format!(
            "The model of this host expects {} and {} was measured, {}: outside its own band of \
             {:.0} %, so it predicts no changes.",
            figures::metric(name, expected),
            figures::metric(name, value),
            figures::gain(off),
            band * 100.0
        )
    })
}

/// How much better than `baseline`.
pub(crate) fn gain(metric: &str, baseline: f64, value: f64) -> f64 {
    match metric {
        "latency" => baseline / value - 1.0,
        _ => value / baseline - 1.0,
    }
}

/// What the model makes of changes.
pub struct Predicted(Vec<(Change, f64, f64)>);

/// Predicts each change for which there are constants.
///
/// # Errors
/// When the calibration lacks a constant, or a change gives a setting that cannot run.
pub fn predicted(
    calibration: &Calibration,
    setting: &Setting,
    changes: &[Change],
) -> Result<Predicted> {
    let now = metric(setting, &predict(calibration, setting)?);
    let of = |change: &Change| {
        let changed = change.setting(setting);
        let prediction = predict(&change.host(calibration), &changed)?;
        Ok((*change, metric(&changed, &prediction) / now, prediction.uncertainty))
    };
    let changes = changes.iter().filter(|change| change.is_predicted());
    Ok(Predicted(changes.map(of).collect::<Result<_>>()?))
}

/// The changes that were predicted or tried, best first.
pub fn candidates(
    measured: &Measurement,
    changes: &[Change],
    predicted: Option<&Predicted>,
    trials: Option<&Trials>,
) -> Vec<Candidate> {
    let of = |change: &Change| {
        let model = predicted.and_then(|all| all.0.iter().find(|(of, ..)| of == change));
        let model = model.map(|(_, ratio, uncertainty)| (*ratio, *uncertainty));
        candidate(measured, *change, model, trials.and_then(|all| all.of(*change)))
    };
    let mut all: Vec<Candidate> = changes.iter().filter_map(of).collect();
    all.sort_by(|a, b| b.row.gain.total_cmp(&a.row.gain));
    all
}

/// One change; `None` if it was neither predicted nor tried.
fn candidate(
    measured: &Measurement,
    change: Change,
    model: Option<(f64, f64)>,
    trial: Option<&Trial>,
) -> Option<Candidate> {
    let (name, baseline) = metric_of(measured);
    let predicted = model.map(|(ratio, _)| baseline * ratio);
    let found = trial.map(|trial| baseline * trial.ratio);
    let row = WhatIf {
        change: change.words(),
        metric: name.to_owned(),
        baseline,
        predicted,
        measured: found,
        error: predicted.zip(found).map(|(predicted, found)| predicted / found - 1.0),
        gain: gain(name, baseline, found.or(predicted)?),
        share: None,
    };
    Some(Candidate { change, row, uncertainty: model.map(|(_, uncertainty)| uncertainty) })
}

/// The best change that can be applied and leaves the program useful.
pub fn best(candidates: &[Candidate]) -> Option<usize> {
    candidates.iter().position(|one| one.change.is_useful())
}
