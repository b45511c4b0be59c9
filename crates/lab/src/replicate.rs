//! One experiment with several seeds: each figure's mean, with its 95 % confidence interval.
//!
//! ```text
//! seed, seed + 1, ... --> a ledger each --> figures of all paths, each path, resource and level --> intervals
//! ```
//!
//! Replications instead of batches of one long run: they are independent whatever the experiment
//! (Law & Kelton, Simulation Modeling and Analysis, §9.4.1). A `warm-up` removes the bias of their beginnings.

use crate::experiment::Experiment;
use crate::run::{Failure, Runner, all, rerun};
use crate::sweep::{Interval, MEASURES, Measure, Measures, REPLICATES_MAX, Until};
use lastmeter_ledger::{Estimate, Ledger};

/// Runs without `until`, and those before its first check.
pub const RUNS: u64 = 5;

/// How often to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Replicates {
    /// Runs, or with `until` those before its first check.
    pub runs: u64,
    /// If set, runs are added until an interval is narrow enough.
    pub until: Option<Until>,
}

/// The intervals of the figures of `first` and of as many more runs as it takes, with the seeds that follow.
///
/// # Errors
/// If the experiment, the measure's name, or the model contains errors.
pub fn replicate(
    experiment: &Experiment,
    first: &Ledger,
    replicates: &Replicates,
    runner: Runner<'_>,
) -> Result<Vec<Estimate>, Failure> {
    let mut ledgers = vec![first.clone()];
    let mut runs = replicates.runs.clamp(1, REPLICATES_MAX);
    let target = replicates.until.as_ref().and_then(|until| {
        let measure = Measure::find(&until.measure).ok()?;
        Some((until, measure))
    });
    loop {
        let known = ledgers.len() as u64;
        runner.watch.expect((runs - known) as usize);
        let seeded = (known..runs).map(|more| {
            let experiment =
                Experiment { seed: experiment.seed.wrapping_add(more), ..experiment.clone() };
            move || rerun(&experiment, &crate::build::Changes::NONE, 0, runner)
        });
        let more = all(seeded.collect(), runner)?;
        // An interrupted run has no ledger; those before it count.
        let stopped = more.iter().any(Option::is_none);
        ledgers.extend(more.into_iter().map_while(|ledger| ledger));
        let Some((until, measure)) = target else { break };
        let values: Vec<f64> =
            ledgers.iter().map(|ledger| (measure.of)(&Measures::of(ledger))).collect();
        let enough = runs >= until.most.min(REPLICATES_MAX) || until.is_narrow(&values);
        if stopped || enough {
            break;
        }
        runs = (runs + runs.div_ceil(2)).min(until.most);
    }
    Ok(estimates(&ledgers))
}

/// Every figure that all of the ledgers have.
fn estimates(ledgers: &[Ledger]) -> Vec<Estimate> {
    let figures: Vec<Vec<Figure>> = ledgers.iter().map(figures).collect();
    let Some((first, others)) = figures.split_first() else { return Vec::new() };
    let estimate = |one: &Figure| {
        let same = |other: &&Figure| (&other.of, other.measure) == (&one.of, one.measure);
        let of_others = others.iter().map(|figures| figures.iter().find(same)?.value);
        let values: Vec<f64> = std::iter::once(one.value).chain(of_others).flatten().collect();
        let Interval { count, mean, half_width, .. } = Interval::of(&values)?;
        Some(Estimate {
            of: one.of.clone(),
            measure: one.measure.to_owned(),
            unit: one.unit.clone(),
            runs: count,
            mean,
            half_width,
        })
    };
    first.iter().filter_map(estimate).collect()
}

/// A figure of a ledger; `None` if it has none, such as the latency of a path that delivered nothing.
struct Figure {
    of: String,
    measure: &'static str,
    unit: String,
    value: Option<f64>,
}

fn figures(ledger: &Ledger) -> Vec<Figure> {
    let mut all = Vec::new();
    let mut add = |of: &str, measure, unit: &str, value| {
        all.push(Figure { of: of.to_owned(), measure, unit: unit.to_owned(), value });
    };
    let whole = Measures::of(ledger);
    for measure in MEASURES {
        let unit = if measure.name == "memory-multiple" { "times" } else { measure.unit };
        add("all paths", measure.name, unit, Some((measure.of)(&whole)));
    }
    let several = ledger.paths.len() > 1;
    for path in ledger.paths.iter().filter(|_| several) {
        let (of, totals) = (format!("{} {}", path.name, path.class), &path.totals);
        let latency = |value: fn(&lastmeter_ledger::Latency) -> Option<f64>| {
            totals.latency.as_ref().and_then(value)
        };
        add(&of, "goodput", "bit/s", Some(totals.goodput));
        add(&of, "latency", "s", latency(|latency| Some(latency.mean)));
        add(&of, "latency-p99", "s", latency(|latency| latency.p99));
        add(&of, "loss", "", totals.loss);
    }
    for resource in &ledger.resources {
        add(&resource.name, "busy", "", Some(resource.utilisation()));
    }
    for level in &ledger.levels {
        add(&level.name, "mean", &level.unit, Some(level.mean));
    }
    for transfers in &ledger.transfers {
        let completion = transfers.completion;
        add(&transfers.name, "completion", "s", completion.map(|times| times.mean));
        add(&transfers.name, "fairness", "", Some(transfers.fairness));
    }
    all
}
