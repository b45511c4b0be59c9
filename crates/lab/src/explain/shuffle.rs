//! Whether the order of simultaneous events was decisive: the phase-effect check.
//!
//! Floyd and Jacobson (1991) warned that a model's conclusions may depend on the order of events that in reality
//! have none. A run is repeated with random orders; a total that changes by more than the tolerance, or a different
//! verdict, is reported.

use lastmeter_ledger::Ledger;
use serde::Serialize;

/// Relative tolerance of totals.
pub const TOLERANCE: f64 = 0.01;

/// The result of the check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shuffle {
    /// How many random orders were tried.
    pub runs: usize,
    /// The relative tolerance of totals.
    pub tolerance: f64,
    /// What changed by more, in words; empty if nothing did.
    pub moved: Vec<String>,
}

/// Compares the ledgers of runs in random order with that of the normal order.
pub fn shuffled(ordinary: &Ledger, others: &[Ledger]) -> Shuffle {
    let mut moved = Vec::new();
    let mut totals: Vec<(String, f64, Vec<f64>)> = Vec::new();
    for (at, path) in ordinary.paths.iter().enumerate() {
        let name = format!("{} {}", path.name, path.class);
        let of = |value: fn(&lastmeter_ledger::Totals) -> f64| {
            let values = others.iter().map(|other| value(&other.paths[at].totals)).collect();
            (value(&path.totals), values)
        };
        let (value, values) = of(|totals| totals.goodput);
        totals.push((format!("goodput of {name}"), value, values));
        let (value, values) = of(|totals| totals.latency_mean());
        totals.push((format!("mean latency of {name}"), value, values));
        let (value, values) = of(|totals| totals.loss.unwrap_or(0.0));
        totals.push((format!("loss of {name}"), value, values));
    }
    for (name, value, values) in totals {
        let low = values.iter().copied().fold(value, f64::min);
        let high = values.iter().copied().fold(value, f64::max);
        let far = (high - value).max(value - low);
        if far > TOLERANCE * value.abs().max(f64::MIN_POSITIVE) {
            moved.push(format!("{name}: {value:.6e}, in other orders {low:.6e} to {high:.6e}"));
        }
    }
    let limit = |ledger: &Ledger| ledger.verdict.as_ref().and_then(|v| v.resource.clone());
    let verdicts = others.iter().filter(|other| other.verdict.is_some());
    for other in verdicts.filter(|other| limit(other) != limit(ordinary)) {
        let name = limit(other).unwrap_or_else(|| "nothing".to_owned());
        moved.push(format!("the verdict: another order names {name}"));
    }
    moved.dedup();
    Shuffle { runs: others.len(), tolerance: TOLERANCE, moved }
}
