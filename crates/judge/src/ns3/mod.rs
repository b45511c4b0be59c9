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
//! simulator's runs are apart, of both together. Of 254 cells some lie beyond by chance, so each that does is
//! judged again, by [`AGAIN`] other runs for each of the first ones, and by these alone. If it lies beyond again,
//! it passes if `experiments/ns3/causes.toml` says why.

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

/// So many other runs for each of the first ones where a cell lies beyond.
pub const AGAIN: u64 = 4;

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
            Half::Mended => 524_287,
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
    /// How many runs of ours, and as many of ns-3 with its faults mended.
    pub runs: u64,
    /// How far off ours was in the first runs, where it lay beyond and was judged again by other ones.
    pub first_off: Option<f64>,
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
/// standard input and returns its standard output; `keep` is given each line as it comes. Where a cell of the first
/// runs lies beyond, the other ones are missing, too, once `text` has all first runs.
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
    if missing.is_empty() {
        let report = judge("", (1, SEEDS), &kept, effort)?;
        let beyond = |name: &str| {
            report.rows.iter().any(|row| row.scenario == name && (row.beyond || row.again()))
        };
        for scenario in scenarios().into_iter().filter(|scenario| beyond(&scenario.name)) {
            for seed in others(1, SEEDS) {
                if !kept.contains_key(&(scenario.name.clone(), Half::Mended.mended(), seed)) {
                    missing.push(Missing { scenario: scenario.clone(), half: Half::Mended, seed });
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
    let mut report = judge(select, (seed, seeds), &kept, effort)?;
    report.explain(&causes, seeds == SEEDS && !effort.observer.stopped());
    Ok(report)
}

/// The seeds of the other runs.
fn others(seed: u64, seeds: u64) -> std::ops::Range<u64> {
    seed + seeds..seed + (1 + AGAIN) * seeds
}

/// All cells, those that lay beyond by the other runs, where ns-3's are kept.
fn judge(
    select: &str,
    (seed, seeds): (u64, u64),
    kept: &Kept,
    effort: Effort<'_>,
) -> Result<Report, Error> {
    let shelf = Shelf::builtin();
    let chosen: Vec<Scenario> =
        scenarios().into_iter().filter(|scenario| scenario.name.contains(select)).collect();
    let mut experiments = Vec::new();
    for scenario in &chosen {
        experiments.push(scenario.experiment(&shelf)?);
    }
    let ours = |which: &[(usize, u64)]| {
        interval::each(which, effort, |&(at, seed)| Found::ours(&experiments[at], seed))
    };
    let tasks: Vec<(usize, u64)> =
        (0..chosen.len()).flat_map(|at| (seed..seed + seeds).map(move |seed| (at, seed))).collect();
    let found = ours(&tasks)?;
    let mut report = Report::default();
    for (at, runs) in found.chunks(seeds as usize).enumerate() {
        let runs: Vec<&Found> = runs.iter().flatten().collect();
        if runs.is_empty() {
            continue;
        }
        let seconds = experiments[at].duration.as_secs_f64();
        let mut first = rows(&chosen[at], &runs, kept, (1..SEEDS + 1, seconds))?;
        let of_seed = |seed| (chosen[at].name.clone(), Half::Mended.mended(), seed);
        let is_kept = others(1, SEEDS).all(|seed| kept.contains_key(&of_seed(seed)));
        if is_kept && first.iter().any(|row| row.beyond) {
            let tasks: Vec<_> = others(seed, seeds).map(|seed| (at, seed)).collect();
            let more = ours(&tasks)?;
            let more: Vec<&Found> = more.iter().flatten().collect();
            if more.len() == tasks.len() {
                let second = rows(&chosen[at], &more, kept, (others(1, SEEDS), seconds))?;
                first.iter_mut().zip(second).for_each(|(first, second)| first.judge_by(second));
            }
        }
        report.rows.extend(first);
    }
    Ok(report)
}

/// The rows of a scenario, of ns-3's runs with these seeds. Of [`AGAIN`] times as many runs, the values are means
/// of so many, so that the yardstick is made of as many values as before.
fn rows(
    scenario: &Scenario,
    ours: &[&Found],
    kept: &Kept,
    (seeds, seconds): (std::ops::Range<u64>, f64),
) -> Result<Vec<Row>, Error> {
    let again = seeds.start > 1;
    let metrics = |half: Half, seeds: std::ops::Range<u64>| -> Result<Vec<Vec<Metric>>, Error> {
        let mended = half.mended();
        let of_seed = |seed| {
            let key = (scenario.name.clone(), mended, seed);
            let found = kept.get(&key).map(|found| found.metrics(seconds));
            let say = || format!("no run `{}`, mended {}, seed {seed}", key.0, key.1);
            found.ok_or_else(|| Error::file(peer::FILE, 1, say()))
        };
        seeds.map(of_seed).collect()
    };
    // As it is shipped, ns-3 has no other runs: it is shown, and not judged.
    let shipped = metrics(Half::Shipped, 1..SEEDS + 1)?;
    let theirs = metrics(Half::Mended, seeds)?;
    let ours: Vec<Vec<Metric>> = ours.iter().map(|found| found.metrics(seconds)).collect();
    let runs = ours.len() as u64;
    let values = |runs: &[Vec<Metric>], at: usize, of: usize| -> Vec<f64> {
        let mean = |runs: &[Vec<Metric>]| {
            halves::mean(&runs.iter().map(|metrics| metrics[at].2).collect::<Vec<f64>>())
        };
        runs.chunks(of).map(mean).collect()
    };
    let row = |(at, (metric, unit, _)): (usize, &Metric)| {
        let of = if again { AGAIN as usize } else { 1 };
        let shipped = values(&shipped, at, 1);
        let [theirs, ours] = [&theirs, &ours].map(|runs| values(runs, at, of));
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
            runs,
            first_off: None,
            beyond_shipped: beyond(&shipped),
            beyond: beyond(&theirs),
            whose: None,
            why: None,
            pass: true,
        }
    };
    Ok(ours[0].iter().enumerate().map(row).collect())
}

impl Row {
    /// How far off ours is, of ns-3's.
    fn off(&self) -> f64 {
        self.ours / self.theirs - 1.0
    }

    /// Whether it was judged by other runs.
    fn again(&self) -> bool {
        self.first_off.is_some()
    }

    /// Where it lies beyond, other runs decide.
    fn judge_by(&mut self, other: Row) {
        if self.beyond {
            let (first_off, beyond_shipped) = (Some(self.off()), self.beyond_shipped);
            *self = Row { first_off, beyond_shipped, ..other };
        }
    }
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
            first_off: None,
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

    #[test]
    fn other_runs_decide_where_the_first_ones_lie_beyond_and_only_there() {
        let other = |beyond| Row { runs: 40, theirs: 2.0, ours: 2.0, ..row("loss", beyond) };
        let mut first = Row { theirs: 1.0, ours: 1.25, ..row("loss", true) };
        first.judge_by(other(false));
        assert_eq!((first.runs, first.beyond, first.first_off), (40, false, Some(0.25)));
        assert!(first.beyond_shipped, "as it is shipped, ns-3 has no other runs");
        let mut agrees = row("loss", false);
        agrees.judge_by(other(true));
        assert_eq!((agrees.runs, agrees.beyond, agrees.first_off), (10, false, None));
    }
}
