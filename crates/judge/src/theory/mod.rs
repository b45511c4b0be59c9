//! The simulator judged by queueing theory: experiments with a known closed-form answer, each run many times with
//! different seeds, and the mean compared with the formula.
//!
//! ```text
//! experiments/theory/*.toml --seeds--> runs --without warm-up--> mean, standard error --+--> verdict
//!            '------------- loads, services --> formula --------------------------------+
//! ```
//!
//! The criterion was settled before any run: a mean within three of its standard errors of the formula. Beside it
//! stands the difference between halves of the same runs, below which no agreement can be expected.

mod cases;
mod estimate;
pub mod formulas;
mod measure;
mod table;

use crate::interval::{self, Interval};
use cases::{CASES, Case, Law, Load, Value};
use estimate::Estimate;
use lastmeter_repro::{Effort, Error, Shelf};
use measure::Given;
use serde::Serialize;

/// The version of a row's JSON. It changes when a key is removed or changes its meaning.
pub const SCHEMA: &str = "lastmeter.theory/1";

/// Agreement is within this many standard errors.
pub const ERRORS_MAX: f64 = 3.0;

/// Runs per load, a power of two: takes seconds.
pub const RUNS: u64 = 64;
/// The same for a shorter check.
pub const RUNS_FEW: u64 = 16;
/// The same for a longer check.
pub const RUNS_MANY: u64 = 256;

/// A quantity: our value beside theory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// The model of queueing theory.
    pub case: &'static str,
    /// The quantity and the load.
    pub quantity: String,
    /// The unit of all values.
    pub unit: &'static str,
    /// The value of the formula: the mean or the bound.
    pub theory: f64,
    /// Whether it is a `mean`, `exact`, or a `bound`.
    pub is: &'static str,
    /// The mean of our runs.
    pub ours: f64,
    /// The standard error of that mean; zero where nothing is random.
    pub standard_error: f64,
    /// The mean difference between the means of two halves of the runs.
    pub yardstick: f64,
    /// Number of runs, each with its own seed.
    pub runs: u64,
    /// Ours less theory, in standard errors; absent if nothing is random.
    pub z: Option<f64>,
    /// Whether it is within [`ERRORS_MAX`], exact, or within the bounds.
    pub pass: bool,
    /// The source of the formula.
    pub source: &'static str,
    /// The model's assumptions, and how the experiment meets them.
    pub assumes: &'static str,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// In the order of the cases.
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether theory and ours agree everywhere.
    pub fn passes(&self) -> bool {
        self.rows.iter().all(|row| row.pass)
    }
}

/// A load of a case with the experiments that it runs.
struct Job {
    case: &'static Case,
    load: &'static Load,
    given: Vec<(f64, Given)>,
    /// The first seed, and the number of seeds.
    seeds: std::ops::Range<u64>,
}

impl Job {
    fn new(
        shelf: &Shelf,
        (case, load): (&'static Case, &'static Load),
        (seed, runs): (u64, u64),
    ) -> Result<Job, Error> {
        let file = format!("experiments/theory/{}", case.file);
        let text = shelf.text(&file)?;
        let given =
            load.runs.iter().map(|&(weight, set)| Ok((weight, Given::read(text, &file, set)?)));
        let given = given.collect::<Result<Vec<_>, Error>>()?;
        let random =
            case.laws.iter().any(|law| matches!((law.theory)(&given[0].1), Value::Mean(_)));
        let runs = if random { runs } else { 1 };
        Ok(Job { case, load, given, seeds: seed..seed.saturating_add(runs) })
    }

    /// The values of each law from the runs with one seed.
    fn measure(&self, seed: u64) -> Result<Vec<f64>, Error> {
        let mut sums = vec![0.0; self.case.laws.len()];
        for (weight, given) in &self.given {
            let run: Interval = given.run(seed)?;
            for (sum, law) in sums.iter_mut().zip(self.case.laws) {
                *sum += weight * (law.ours)(&run);
            }
        }
        Ok(sums)
    }

    fn row(&self, law: &Law, values: &[f64]) -> Row {
        let Estimate { mean, error, yardstick } = Estimate::of(values);
        let (is, theory, z, pass) = match (law.theory)(&self.given[0].1) {
            Value::Mean(theory) => {
                let z = (mean - theory) / error;
                ("mean", theory, Some(z), z.abs() <= ERRORS_MAX)
            }
            Value::Exact(theory, slack) => ("exact", theory, None, (mean - theory).abs() <= slack),
            Value::Bound(most, slack, least) => {
                ("bound", most, None, (least - slack..=most + slack).contains(&mean))
            }
        };
        let scale = law.unit.1;
        Row {
            schema: SCHEMA,
            case: self.case.title,
            quantity: format!("{}, {}", law.what, self.load.name),
            unit: law.unit.0,
            theory: theory * scale,
            is,
            ours: mean * scale,
            standard_error: error * scale,
            yardstick: yardstick * scale,
            runs: values.len() as u64,
            z,
            pass,
            source: self.case.source,
            assumes: self.case.assumes,
        }
    }
}

/// Runs every case with `runs` seeds, a power of two, from `seed` on. The result does not depend on the threads of
/// `effort`.
///
/// # Errors
/// A file of a case is wrong, or a run failed.
pub fn run(seed: u64, runs: u64, effort: Effort<'_>) -> Result<Report, Error> {
    let loads = CASES.iter().flat_map(|case| case.loads.iter().map(move |load| (case, load)));
    let shelf = Shelf::builtin();
    let jobs = loads.map(|of| Job::new(&shelf, of, (seed, runs)));
    let jobs = jobs.collect::<Result<Vec<Job>, Error>>()?;
    let tasks: Vec<(&Job, u64)> =
        jobs.iter().flat_map(|job| job.seeds.clone().map(move |seed| (job, seed))).collect();
    let measured = interval::each(&tasks, effort, |(job, seed)| job.measure(*seed))?;
    let (mut rows, mut from) = (Vec::new(), 0);
    for job in &jobs {
        let runs = (job.seeds.end - job.seeds.start) as usize;
        // Those of a run that was stopped: halves need a power of two.
        let mut done: Vec<&Vec<f64>> = measured[from..from + runs].iter().flatten().collect();
        done.truncate(done.len().checked_ilog2().map_or(0, |power| 1 << power));
        for (at, law) in job.case.laws.iter().enumerate().filter(|_| !done.is_empty()) {
            let values: Vec<f64> = done.iter().map(|run| run[at]).collect();
            rows.push(job.row(law, &values));
        }
        from += runs;
    }
    Ok(Report { rows })
}
