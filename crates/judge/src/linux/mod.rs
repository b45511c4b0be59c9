//! The model's TCP judged by Linux's: the same link and queue, once between two real hosts, once in a model.
//!
//! ```text
//!                              .--live---> iperf3 through the emulated link --> linux-6.18.csv --.
//! experiments/linux-tcp/path.toml                                                                 +--> off by how much
//!                              '--seeds--> the model's TCP through the same link ----------------'
//! ```
//!
//! Linux's runs are kept as data, as each takes its hundred seconds. The tolerances were set before the first run:
//! 5 % of the goodput, 10 % of the mean wait in the queue, 20 % of the loss, all three in at least [`AGREE`] scenarios.
//! Two things of the model were changed after the first comparison; docs/linux.md says which, and what it was before.
//!
//! Rows: A-161.

mod found;
mod scenarios;
mod table;

use crate::interval;
pub use found::{Found, HEADER, line};
use found::{Kept, METRICS, kept};
use lastmeter_base::Duration;
use lastmeter_repro::{Effort, Error, Shelf};
pub use scenarios::{Scenario, scenarios};
use serde::Serialize;

/// The version of a row's JSON. It changes when a key changes its meaning or goes away.
pub const SCHEMA: &str = "lastmeter.linux/1";

/// So much of the beginning of each run is left out.
pub const LEFT_OUT: Duration = Duration::from_secs(10);
/// How long a run is, with its beginning; as in the experiment.
pub const LASTS: Duration = Duration::from_secs(100);

/// Runs of Linux for each scenario.
pub const RUNS: u64 = 3;
/// Seeds of ours for each scenario.
pub const SEEDS: u64 = 10;
/// Of ours, where it shall be shorter.
pub const SEEDS_FEW: u64 = 3;
/// In so many scenarios, of twelve, all metrics agree.
pub const AGREE: usize = 10;

/// The experiment.
const FILE: &str = "experiments/linux-tcp/path.toml";
/// Where what Linux gave is kept.
const KEPT: &str = "experiments/linux-tcp/linux-6.18.csv";
/// The connections' name in the experiment.
const CLASS: &str = "transfer";

/// A metric of a scenario, ours beside Linux's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Round trip, queue, connections and control.
    pub scenario: String,
    /// What is compared.
    pub metric: &'static str,
    /// The unit of all values.
    pub unit: &'static str,
    /// The mean of Linux's runs, and the least and the most of them.
    pub theirs: f64,
    /// See `theirs`.
    pub theirs_least: f64,
    /// See `theirs`.
    pub theirs_most: f64,
    /// The mean of ours.
    pub ours: f64,
    /// By what share of Linux's ours may be off.
    pub tolerance: f64,
    /// Whether it is not off by more.
    pub pass: bool,
}

/// What comes of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// In the order of the scenarios.
    pub rows: Vec<Row>,
}

impl Report {
    /// In how many scenarios all metrics agree, and of how many.
    pub fn agree(&self) -> (usize, usize) {
        let scenarios: Vec<&[Row]> = self.rows.chunks(METRICS.len()).collect();
        let agree = scenarios.iter().filter(|rows| rows.iter().all(|row| row.pass)).count();
        (agree, scenarios.len())
    }

    /// Whether enough of the scenarios agree; of those that were chosen, all but as many as may differ of all.
    pub fn passes(&self) -> bool {
        let (agree, of) = self.agree();
        agree + (scenarios().len() - AGREE) >= of
    }
}

/// The runs of Linux that a file's text does not have: scenario and number.
///
/// # Errors
/// The text is wrong.
pub fn missing(text: &str, select: &str) -> Result<Vec<(Scenario, u64)>, Error> {
    let kept = kept(text, KEPT)?;
    let runs = (1..=RUNS).flat_map(|run| chosen(select).into_iter().map(move |one| (one, run)));
    Ok(runs.filter(|(one, run)| !kept.contains_key(&(one.name.clone(), *run))).collect())
}

fn chosen(select: &str) -> Vec<Scenario> {
    scenarios().into_iter().filter(|scenario| scenario.name.contains(select)).collect()
}

/// Runs the model with `seeds` seeds from `seed` on and puts it beside what was kept of Linux, which is `text`, or what
/// the program carries with it. The threads of `effort` change nothing in the result.
///
/// # Errors
/// A file is wrong, or a run failed.
pub fn run(
    select: &str,
    (seed, seeds): (u64, u64),
    text: Option<&str>,
    effort: Effort<'_>,
) -> Result<Report, Error> {
    let shelf = Shelf::builtin();
    let kept = kept(text.map_or_else(|| shelf.text(KEPT), Ok)?, KEPT)?;
    let mut tasks = Vec::new();
    let chosen = chosen(select);
    for (at, scenario) in chosen.iter().enumerate() {
        let experiment = scenario.model()?;
        tasks.extend((seed..seed + seeds).map(|seed| (at, experiment.clone(), seed)));
    }
    let ours = interval::each(&tasks, effort, |(at, experiment, seed)| {
        Ok((*at, Found::ours(experiment, *seed, LEFT_OUT)?))
    })?;
    let ours: Vec<(usize, Found)> = ours.into_iter().flatten().collect();
    let mut report = Report::default();
    for (at, scenario) in chosen.iter().enumerate() {
        let of_it = ours.iter().filter(|(of, _)| *of == at).map(|(_, found)| *found).collect();
        report.rows.extend(rows(scenario, &kept, of_it));
    }
    Ok(report)
}

/// A scenario's rows; none where either side has no run.
fn rows(scenario: &Scenario, kept: &Kept, ours: Vec<Found>) -> Vec<Row> {
    let theirs = (1..=RUNS).filter_map(|run| kept.get(&(scenario.name.clone(), run)).copied());
    let theirs: Vec<Found> = theirs.collect();
    if ours.is_empty() || theirs.is_empty() {
        return Vec::new();
    }
    let rows = METRICS.iter().map(|metric| {
        let values = |runs: &[Found]| runs.iter().map(metric.of).collect::<Vec<f64>>();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (theirs, ours) = (values(&theirs), mean(&values(&ours)));
        let linux = mean(&theirs);
        Row {
            schema: SCHEMA,
            scenario: scenario.name.clone(),
            metric: metric.name,
            unit: metric.unit,
            theirs: linux,
            theirs_least: theirs.iter().copied().fold(f64::INFINITY, f64::min),
            theirs_most: theirs.iter().copied().fold(0.0, f64::max),
            ours,
            tolerance: metric.tolerance,
            pass: (ours - linux).abs() <= metric.tolerance * linux,
        }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;

    /// What the model gives, but for these factors.
    fn text(scenario: &Scenario, of: &Found, factors: [f64; 3]) -> String {
        let [goodput, wait, loss] = factors;
        let dropped = (of.dropped as f64 * loss) as u64;
        let found = Found {
            goodput: of.goodput * goodput,
            wait: of.wait * wait,
            dropped,
            served: of.served,
        };
        format!("{HEADER}{}", line(&scenario.name, 1, "x", &found))
    }

    #[test]
    fn what_is_off_by_more_than_its_tolerance_is_told() {
        let scenario = &scenarios()[1];
        let ours = scenario.ours(1, LEFT_OUT, LASTS).unwrap();
        assert!(ours.goodput > 8e6 && ours.dropped > 5 && ours.wait > 1e-3, "{ours:?}");
        for (factors, passes) in [
            ([1.0, 1.0, 1.0], [true; 3]),
            ([1.1, 1.0, 1.0], [false, true, true]),
            ([1.0, 0.8, 1.0], [true, false, true]),
            ([1.0, 1.0, 2.0], [true, true, false]),
        ] {
            let text = text(scenario, &ours, factors);
            let report = run(&scenario.name, (1, 1), Some(&text), Effort::PLAIN).unwrap();
            let found: Vec<bool> = report.rows.iter().map(|row| row.pass).collect();
            assert_eq!(found, passes, "{factors:?}");
            let missing = missing(&text, &scenario.name).unwrap();
            assert_eq!(missing.iter().map(|(_, run)| *run).collect::<Vec<_>>(), [2, 3]);
        }
    }

    #[test]
    fn segments_that_end_writes_are_acknowledged_at_once() {
        let acknowledgements = |write: &str| {
            let set = [
                "duration=14 s".to_owned(),
                format!("traffic.transfer.tcp.acknowledge-writes={write}"),
            ];
            let text = Shelf::builtin();
            let experiment = interval::read(text.text(FILE).unwrap(), FILE, &set).unwrap();
            let run = interval::Interval::run(&experiment, 1, LEFT_OUT).unwrap();
            let named = |name: &str| {
                run.to.elements.iter().position(|element| element.name == name).unwrap()
            };
            let data = run.counted(named("alice->bob"), "served");
            run.counted(named("bob receives transfer"), "segments") as f64 / data as f64
        };
        let (each, never) = (acknowledgements("1448 B"), acknowledgements("1 GiB"));
        assert!(each > 0.97, "every segment ends a write: {each}");
        // Nine segments: four acknowledgements of two, and one of the end.
        let some = acknowledgements("13032 B");
        assert!((0.45..0.60).contains(&never), "{never}");
        assert!((0.03..0.08).contains(&(some - never)), "{some} beside {never}");
    }
}
