//! The simulator judged by another one: ns-3 3.37 on the same networks, by scenario and metric.
//!
//! ```text
//! experiments/ns3/*.toml --+--seeds--> our runs -------------------------------+--> beyond? --> cause
//!                          '--description--> ns-3, once --> ns3-3.37.csv ------'    |
//!                                     as shipped, and with its faults mended        two halves
//! ```
//!
//! ns-3's runs are kept as data, because it is a hundred times slower and not everybody has it. The verdict was
//! settled before any run: a cell lies beyond where ours and ns-3's means are further apart than [`BEYOND`] times
//! the yardstick, and than [`LEAST`] of the value. The yardstick is how far the means of two halves of the *same*
//! simulator's runs are apart, of both together. A cell that lies beyond passes if
//! `experiments/ns3/causes.toml` says why.

mod causes;
mod found;
mod halves;
mod peer;
mod scenarios;
mod table;

use crate::interval;
use causes::Cause;
use found::{Found, Metric};
use lastmeter_repro::{Effort, Error, Shelf};
pub use peer::HEADER;
use peer::Kept;
use scenarios::{Scenario, scenarios};
use serde::Serialize;
use std::collections::BTreeSet;

/// The version of a row's JSON. It changes when a key changes its meaning or goes away.
pub const SCHEMA: &str = "lastmeter.ns3/1";

/// Seeds of each scenario, in both simulators.
pub const SEEDS: u64 = 10;
/// Of ours, where it shall be shorter.
pub const SEEDS_FEW: u64 = 3;

/// So many yardsticks apart is beyond: for two halves of ten runs, 3.2 standard errors of the difference.
pub const BEYOND: f64 = 2.0;
/// Differences below this share of ns-3's value are none.
pub const LEAST: f64 = 0.01;

/// ns-3 with or without its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// As it is.
    Shipped,
    /// With the faults of `peers/ns3_mended.h` mended.
    Mended,
}

impl Half {
    /// Which faults are mended, as the bits of `peers/ns3_mended.h`.
    const fn mended(self) -> u32 {
        match self {
            Half::Shipped => 0,
            Half::Mended => 511,
        }
    }
}

/// A metric of a scenario, ours beside ns-3's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Which network, queue, room and control.
    pub scenario: String,
    /// What is compared.
    pub metric: String,
    /// The unit of all values.
    pub unit: &'static str,
    /// The mean of ns-3's runs, as it is shipped.
    pub shipped: f64,
    /// The mean of ns-3's runs with its faults mended.
    pub theirs: f64,
    /// The mean of ours.
    pub ours: f64,
    /// How far two halves of ns-3's runs are apart, with its faults mended.
    pub theirs_apart: f64,
    /// How far two halves of ours are apart.
    pub ours_apart: f64,
    /// How many runs of ours.
    pub runs: u64,
    /// Whether ours lies beyond ns-3 as it is shipped.
    pub beyond_shipped: bool,
    /// Whether ours lies beyond ns-3 with its faults mended.
    pub beyond: bool,
    /// Whose the cause is, where the cell lies beyond and it is listed.
    pub whose: Option<String>,
    /// The cause.
    pub why: Option<String>,
    /// Whether it does not lie beyond, or it is listed why.
    pub pass: bool,
}

/// What comes of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// In the order of the scenarios.
    pub rows: Vec<Row>,
    /// Listed cells that do not lie beyond, or that there are not.
    pub stale: Vec<String>,
}

impl Report {
    /// Whether every cell that lies beyond is listed, and no other.
    pub fn passes(&self) -> bool {
        self.stale.is_empty() && self.rows.iter().all(|row| row.pass)
    }
}

/// The runs of ns-3 that a text of [`measure`] does not have yet.
struct Missing {
    scenario: Scenario,
    half: Half,
    seed: u64,
}

/// Runs ns-3 where `text`, which was kept before, lacks a run: `ask` runs its program with a description on its
/// standard input and returns its standard output; `keep` is given each line as it comes.
///
/// # Errors
/// The text, an experiment, the program or an answer is wrong.
pub fn measure(
    text: &str,
    effort: Effort<'_>,
    ask: &(dyn Fn(&str) -> Result<String, String> + Sync),
    keep: &(dyn Fn(&str) -> Result<(), String> + Sync),
) -> Result<(), Error> {
    let (shelf, kept) = (Shelf::builtin(), peer::kept(text, peer::FILE)?);
    let mut missing = Vec::new();
    for seed in 1..=SEEDS {
        for scenario in scenarios() {
            for half in [Half::Shipped, Half::Mended] {
                if !kept.contains_key(&(scenario.name.clone(), half.mended(), seed)) {
                    missing.push(Missing { scenario: scenario.clone(), half, seed });
                }
            }
        }
    }
    interval::each(&missing, effort, |Missing { scenario, half, seed }| {
        let description = peer::description(&scenario.experiment(&shelf)?, *half, *seed);
        let failed = |error: String| Error::file(&scenario.name, 1, error);
        let found = ask(&description).and_then(|answer| peer::answer(&answer)).map_err(failed)?;
        keep(&peer::line(&scenario.name, *half, *seed, &found)).map_err(failed)
    })?;
    Ok(())
}

/// Runs ours with `seeds` seeds from `seed` on and puts it beside what was kept of ns-3, which is `kept`, or what
/// the program carries with it. The threads of `effort` change nothing in the result.
///
/// # Errors
/// A file is wrong, or a run failed.
pub fn run(
    select: &str,
    (seed, seeds): (u64, u64),
    kept: Option<&str>,
    effort: Effort<'_>,
) -> Result<Report, Error> {
    let shelf = Shelf::builtin();
    let kept = peer::kept(kept.map_or_else(|| shelf.text(peer::FILE), Ok)?, peer::FILE)?;
    let causes = causes::read(shelf.text(causes::FILE)?, causes::FILE)?;
    let chosen: Vec<Scenario> =
        scenarios().into_iter().filter(|scenario| scenario.name.contains(select)).collect();
    let mut experiments = Vec::new();
    for scenario in &chosen {
        experiments.push(scenario.experiment(&shelf)?);
    }
    let tasks: Vec<_> = experiments
        .iter()
        .flat_map(|experiment| (seed..seed + seeds).map(move |seed| (experiment, seed)))
        .collect();
    let found =
        interval::each(&tasks, effort, |(experiment, seed)| Found::ours(experiment, *seed))?;
    let mut report = Report::default();
    for ((scenario, experiment), runs) in
        chosen.iter().zip(&experiments).zip(found.chunks(seeds as usize))
    {
        let runs: Vec<&Found> = runs.iter().flatten().collect();
        if !runs.is_empty() {
            let seconds = experiment.duration.as_secs_f64();
            report.rows.extend(rows(scenario, &runs, &kept, seconds)?);
        }
    }
    report.explain(&causes, seeds == SEEDS && !effort.observer.stopped());
    Ok(report)
}

/// The rows of a scenario.
fn rows(
    scenario: &Scenario,
    ours: &[&Found],
    kept: &Kept,
    seconds: f64,
) -> Result<Vec<Row>, Error> {
    let metrics = |half: Half| -> Result<Vec<Vec<Metric>>, Error> {
        let of_seed = |seed| {
            let key = (scenario.name.clone(), half.mended(), seed);
            let found = kept.get(&key).map(|found| found.metrics(seconds));
            let say = || format!("no run `{}`, mended {}, seed {seed}", key.0, key.1);
            found.ok_or_else(|| Error::file(peer::FILE, 1, say()))
        };
        (1..=SEEDS).map(of_seed).collect()
    };
    let (shipped, theirs) = (metrics(Half::Shipped)?, metrics(Half::Mended)?);
    let ours: Vec<Vec<Metric>> = ours.iter().map(|found| found.metrics(seconds)).collect();
    let values = |runs: &[Vec<Metric>], at: usize| -> Vec<f64> {
        runs.iter().map(|metrics| metrics[at].2).collect()
    };
    let row = |(at, (metric, unit, _)): (usize, &Metric)| {
        let [shipped, theirs, ours] = [&shipped, &theirs, &ours].map(|runs| values(runs, at));
        let ours_apart = halves::apart(&ours);
        let beyond = |theirs: &[f64]| {
            let off = (halves::mean(&ours) - halves::mean(theirs)).abs();
            off > BEYOND * halves::apart(theirs).hypot(ours_apart)
                && off > LEAST * halves::mean(theirs).abs()
        };
        Row {
            schema: SCHEMA,
            scenario: scenario.name.clone(),
            metric: metric.clone(),
            unit,
            shipped: halves::mean(&shipped),
            theirs: halves::mean(&theirs),
            ours: halves::mean(&ours),
            theirs_apart: halves::apart(&theirs),
            ours_apart,
            runs: ours.len() as u64,
            beyond_shipped: beyond(&shipped),
            beyond: beyond(&theirs),
            whose: None,
            why: None,
            pass: true,
        }
    };
    Ok(ours[0].iter().enumerate().map(row).collect())
}

impl Report {
    /// Enters the causes that are listed. `all`: whether a listed cell that does not lie beyond is a fault,
    /// which it is not of few runs.
    fn explain(&mut self, causes: &[Cause], all: bool) {
        let mut used = BTreeSet::new();
        for row in &mut self.rows {
            let cell = format!("{}: {}", row.scenario, row.metric);
            let cause = causes.iter().find(|cause| cause.cells.contains(&cell));
            if let Some(cause) = cause.filter(|_| row.beyond) {
                row.whose = Some(cause.whose.clone());
                row.why = Some(cause.why.clone());
                used.insert(cell);
            }
            row.pass = !row.beyond || row.whose.is_some();
        }
        let ran: BTreeSet<&str> = self.rows.iter().map(|row| row.scenario.as_str()).collect();
        let listed = causes.iter().flat_map(|cause| &cause.cells).filter(|cell| {
            let scenario = cell.rsplit_once(": ").map_or(cell.as_str(), |(scenario, _)| scenario);
            all && ran.contains(scenario)
        });
        self.stale = listed.filter(|cell| !used.contains(*cell)).cloned().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: &str, beyond: bool) -> Row {
        Row {
            schema: SCHEMA,
            scenario: "a, b 1, c".to_owned(),
            metric: metric.to_owned(),
            unit: "",
            shipped: 1.0,
            theirs: 1.0,
            ours: 1.0,
            theirs_apart: 0.0,
            ours_apart: 0.0,
            runs: 10,
            beyond_shipped: beyond,
            beyond,
            whose: None,
            why: None,
            pass: false,
        }
    }

    #[test]
    fn what_lies_beyond_passes_with_a_cause_and_a_cause_without_it_is_stale() {
        let cause = |cell: &str| Cause {
            cells: vec![format!("a, b 1, c: {cell}")],
            whose: "ours".to_owned(),
            why: "so".to_owned(),
        };
        let rows = vec![row("loss", true), row("wait", false)];
        let mut report = Report { rows, stale: Vec::new() };
        report.explain(&[], true);
        assert!(!report.rows[0].pass && report.rows[1].pass && !report.passes());
        report.explain(&[cause("loss")], true);
        assert!(report.passes());
        report.explain(&[cause("loss"), cause("wait")], true);
        assert_eq!(report.stale, ["a, b 1, c: wait"]);
        assert!(!report.passes());
        report.explain(&[cause("loss"), cause("wait")], false);
        assert!(report.passes(), "few runs do not show that a cause is gone");
    }
}
