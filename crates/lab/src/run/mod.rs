//! Running experiments: once, again with each change, and again with simultaneous events reordered.

mod explain;

pub use explain::{Explained, FirstRun, Search, explain, has_plugins};

use crate::build::{Captures, Changes, build};
use crate::close::{Close, close};
use crate::document::Problem;
use crate::experiment::Experiment;
use crate::explain::verdict;
use crate::library::Library;
use lastmeter_base::Time;
use lastmeter_engine::{Control, Engine, Error, Outcome, Parallel};
use lastmeter_ledger::{Ledger, Provenance, Source};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Why a run produced no ledger.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// An error in what the user wrote or named.
    Problems(Vec<Problem>),
    /// The model is at fault.
    Engine(Error),
    /// The machine refuses what a live run needs.
    Live(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Problems(problems) => {
                problems.iter().try_for_each(|problem| f.write_str(&problem.render(false)))
            }
            Failure::Engine(error) => error.fmt(f),
            Failure::Live(error) => error.fmt(f),
        }
    }
}

/// Parts of equal time into which a run is cut, after each of which it can be looked at.
pub const PARTS: u64 = 256;
/// Handlers that each part of a graph must run, on average, until it waits for the others: less than this is done in
/// about the time that waiting takes.
const AT_ONCE_MIN: f64 = 100.0;
/// That is judged after so many handlers, or not at all if a sixteenth of the run has not as many.
const TRIED_MIN: u64 = 2_000;
const TRIED_MAX: u64 = PARTS / 16;

/// The state of the first run between two steps, or at its end, for a follower.
pub struct SoFar<'a> {
    /// The share of the run that is done.
    pub share: f64,
    /// The same in parts, of [`PARTS`].
    parts: u64,
    experiment: &'a Experiment,
    engine: &'a Engine,
}

impl SoFar<'_> {
    /// The ledger so far, without verdict and what-ifs; as expensive as closing the books.
    ///
    /// # Errors
    /// If the books do not balance.
    pub fn ledger(&self) -> Result<Ledger, Failure> {
        Ok(close(&self.outcome()?, closing(self.experiment)))
    }

    fn outcome(&self) -> Result<Outcome, Failure> {
        self.engine.so_far().map_err(Failure::Engine)
    }
}

type Follower = Box<dyn Fn(&SoFar<'_>) + Send + Sync>;

/// Lets a caller watch, follow and stop runs.
#[derive(Default)]
pub struct Watch {
    /// The progress of the first run, and whether any run is to stop.
    pub control: Arc<Control>,
    end: std::sync::atomic::AtomicU64,
    runs: AtomicUsize,
    runs_done: AtomicUsize,
    follower: Option<Follower>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Watch {
    /// A watch that shows the first run to `follower` after each of 256 equal steps; the result does not depend on
    /// it.
    pub fn followed(follower: impl Fn(&SoFar<'_>) + Send + Sync + 'static) -> Watch {
        Watch { follower: Some(Box::new(follower)), ..Watch::default() }
    }

    /// This many more runs follow.
    pub(crate) fn expect(&self, runs: usize) {
        self.runs.store(self.runs_done.load(Ordering::Relaxed) + runs, Ordering::Relaxed);
    }

    /// The share of the first run that is done, how many further runs are done, and of how many.
    pub fn progress(&self) -> (f64, usize, usize) {
        let end = self.end.load(Ordering::Relaxed).max(1);
        let first = self.control.now().as_ps() as f64 / end as f64;
        let runs = self.runs.load(Ordering::Relaxed);
        (first.min(1.0), self.runs_done.load(Ordering::Relaxed), runs)
    }
}

/// What it takes to run an experiment: threads, a library, a watch.
#[derive(Clone, Copy)]
pub struct Runner<'a> {
    /// Provides the threads.
    pub parallel: &'a dyn Parallel,
    /// The number of parts into which a single run is cut.
    pub threads: usize,
    /// Where profiles and captures come from.
    pub library: &'a dyn Library,
    /// Lets the caller watch and stop.
    pub watch: &'a Watch,
}

/// The options of a single run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The number of parts into which the graph is cut.
    pub threads: usize,
    /// The seed of a random order of simultaneous events; zero for the normal order.
    pub shuffle_ties: u64,
    /// Whether stages are recorded.
    pub collecting: bool,
}

/// An experiment that has been built but has not run.
pub struct Prepared {
    engine: Engine,
    /// Until it is over.
    warm_up: Option<Time>,
    end: Time,
    captures: Captures,
}

/// Builds `experiment` with `changes`.
///
/// # Errors
/// If the experiment contains errors.
pub fn prepare(
    experiment: &Experiment,
    changes: &Changes,
    manner: RunOptions,
    library: &dyn Library,
) -> Result<Prepared, Failure> {
    let mut built = build(experiment, changes, library).map_err(Failure::Problems)?;
    let captures = built.captures();
    built.graph.shuffle_ties = manner.shuffle_ties;
    built.graph.collecting = manner.collecting;
    let end = built.end;
    let engine = built.graph.build(manner.threads).map_err(Failure::Engine)?;
    let warm_up = Some(Time::START + experiment.warm_up).filter(|end| *end > Time::START);
    Ok(Prepared { engine, warm_up, end, captures })
}

impl Prepared {
    /// Runs to the end, or until `control` stops it.
    ///
    /// # Errors
    /// If the model makes no progress.
    pub fn run(&mut self, control: &Arc<Control>, parallel: &dyn Parallel) -> Result<(), Failure> {
        self.run_parts(PARTS, control, parallel)
    }

    /// Runs until so many parts of [`PARTS`] are over.
    fn run_parts(
        &mut self,
        parts: u64,
        control: &Arc<Control>,
        parallel: &dyn Parallel,
    ) -> Result<(), Failure> {
        let until = match parts {
            PARTS => self.end,
            parts => Time::START + (self.end - Time::START).scale_ceil(parts, PARTS),
        };
        if let Some(warm) = self.warm_up.take_if(|warm| *warm <= until) {
            self.engine.run_parallel(warm, control, parallel).map_err(Failure::Engine)?;
            if control.stopped() {
                return Ok(());
            }
            self.engine.leave_out();
        }
        self.engine.run_parallel(until, control, parallel).map_err(Failure::Engine)
    }

    /// Closes the books.
    ///
    /// # Errors
    /// If they do not balance, or a capture broke while it was replayed.
    pub fn finish(self) -> Result<Outcome, Failure> {
        let outcome = self.engine.finish().map_err(Failure::Engine)?;
        match self.captures.problems() {
            problems if problems.is_empty() => Ok(outcome),
            problems => Err(Failure::Problems(problems)),
        }
    }
}

fn once(
    experiment: &Experiment,
    changes: &Changes,
    manner: RunOptions,
    runner: Runner<'_>,
) -> Result<Outcome, Failure> {
    let mut prepared = begun(experiment, changes, manner, runner)?;
    prepared.run(&runner.watch.control, runner.parallel)?;
    prepared.finish()
}

/// Builds `experiment` with `changes`, in several parts only if these are not mostly waiting for one another, which its
/// beginning tells. In networks with short links a part has a few handlers to run until it must wait, which takes as
/// long, and more than ten times as long while another program has the other's processor. The outcome is the same.
fn begun(
    experiment: &Experiment,
    changes: &Changes,
    manner: RunOptions,
    runner: Runner<'_>,
) -> Result<Prepared, Failure> {
    let mut prepared = prepare(experiment, changes, manner, runner.library)?;
    if prepared.engine.parts() == 1 {
        return Ok(prepared);
    }
    let control = &runner.watch.control;
    let mut parts = 1;
    while parts <= TRIED_MAX && prepared.engine.handled() < TRIED_MIN && !control.stopped() {
        prepared.run_parts(parts, control, runner.parallel)?;
        parts *= 2;
    }
    let is_known = prepared.engine.handled() >= TRIED_MIN && !control.stopped();
    if is_known && prepared.engine.handled_at_once(prepared.end) < AT_ONCE_MIN {
        let manner = RunOptions { threads: 1, ..manner };
        return prepare(experiment, changes, manner, runner.library);
    }
    Ok(prepared)
}

/// Runs `experiment` once and makes its ledger, without what-ifs; the verdict says what is busiest.
///
/// # Errors
/// If the experiment or the model contains errors.
pub fn ledger(experiment: &Experiment, runner: Runner<'_>) -> Result<Ledger, Failure> {
    let mut ledger = changed(experiment, &Changes::NONE, runner)?;
    ledger.verdict = verdict(&ledger, &[]);
    Ok(ledger)
}

/// Runs `experiment` once; what its elements report.
///
/// # Errors
/// If the experiment or the model contain errors.
pub fn outcome(experiment: &Experiment, runner: Runner<'_>) -> Result<Outcome, Failure> {
    let manner = RunOptions { threads: runner.threads, shuffle_ties: 0, collecting: true };
    once(experiment, &Changes::NONE, manner, runner)
}

/// Runs `experiment` with changes and makes its ledger, without verdict and what-ifs.
///
/// # Errors
/// If the experiment, the changes or the model contain errors.
pub fn changed(
    experiment: &Experiment,
    changes: &Changes,
    runner: Runner<'_>,
) -> Result<Ledger, Failure> {
    let end = (Time::START + experiment.duration).as_ps();
    runner.watch.end.store(end, Ordering::Relaxed);
    let outcome = match &runner.watch.follower {
        None => {
            let manner = RunOptions { threads: runner.threads, shuffle_ties: 0, collecting: true };
            once(experiment, changes, manner, runner)?
        }
        Some(follower) => {
            let steps: Vec<u64> = (1..=PARTS).collect();
            in_steps(experiment, changes, runner, &steps, |so_far| {
                follower(so_far);
                Ok(())
            })?
        }
    };
    Ok(close(&outcome, closing(experiment)))
}

/// [`once`] in steps, which end after so many parts of [`PARTS`], the last with the run. Splitting a run moves no
/// event.
fn in_steps(
    experiment: &Experiment,
    changes: &Changes,
    runner: Runner<'_>,
    steps: &[u64],
    mut look: impl FnMut(&SoFar<'_>) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let manner = RunOptions { threads: runner.threads, shuffle_ties: 0, collecting: true };
    let mut prepared = begun(experiment, changes, manner, runner)?;
    let control = &runner.watch.control;
    let mut cut = false;
    for &parts in steps {
        prepared.run_parts(parts, control, runner.parallel)?;
        let engine = &prepared.engine;
        look(&SoFar { share: parts as f64 / PARTS as f64, parts, experiment, engine })?;
        // The last steps of a short run may end without the engine having checked for a stop.
        cut = control.stopped() && parts < PARTS;
        if cut {
            break;
        }
    }
    let mut outcome = prepared.finish()?;
    outcome.stopped |= cut;
    Ok(outcome)
}

/// What the ledger of `experiment` contains besides the figures from the books.
pub fn closing(experiment: &Experiment) -> Close {
    Close {
        title: experiment.title.clone(),
        provenance: Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: Some(experiment.seed),
            experiment: Source { name: experiment.title.clone(), hash: experiment.hash.clone() },
            profiles: experiment.profile_sources.clone(),
            level: "model".to_owned(),
            ..Provenance::default()
        },
    }
}

/// One more run; `None` if it was stopped.
pub(crate) fn rerun(
    experiment: &Experiment,
    changes: &Changes,
    shuffle_ties: u64,
    runner: Runner<'_>,
) -> Result<Option<Ledger>, Failure> {
    let control = &runner.watch.control;
    if control.stopped() {
        return Ok(None);
    }
    let manner = RunOptions { threads: 1, shuffle_ties, collecting: true };
    let outcome = once(experiment, changes, manner, runner)?;
    runner.watch.runs_done.fetch_add(1, Ordering::Relaxed);
    Ok((!outcome.stopped).then(|| close(&outcome, closing(experiment))))
}

/// Runs all tasks concurrently, and fails if one fails.
pub(crate) fn all<T, F>(tasks: Vec<F>, runner: Runner<'_>) -> Result<Vec<Option<T>>, Failure>
where
    F: FnOnce() -> Result<Option<T>, Failure> + Send,
    T: Send,
{
    let mut results: Vec<Option<Result<Option<T>, Failure>>> = tasks.iter().map(|_| None).collect();
    let mut tasks: Vec<_> = tasks
        .into_iter()
        .zip(&mut results)
        .map(|(task, result)| {
            let mut task = Some(task);
            move || *result = task.take().map(|task| task())
        })
        .collect();
    let mut tasks: Vec<&mut (dyn FnMut() + Send)> =
        tasks.iter_mut().map(|task| task as &mut (dyn FnMut() + Send)).collect();
    runner.parallel.run(&mut tasks);
    results.into_iter().map(|result| result.unwrap_or(Ok(None))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{self, Builtin};
    use lastmeter_base::Duration;
    use lastmeter_engine::Serial;

    /// In how many parts the first two seconds of an experiment can run, and in how many they do.
    fn parts(name: &str) -> [usize; 2] {
        let text = library::experiment(name).unwrap();
        let mut experiment = Experiment::parse(name, text, &[], &Builtin).unwrap();
        experiment.duration = Duration::from_ms(2000);
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 2, library: &Builtin, watch: &watch };
        let manner = RunOptions { threads: 2, shuffle_ties: 0, collecting: true };
        let cut = prepare(&experiment, &Changes::NONE, manner, &Builtin).ok().unwrap();
        let begun = begun(&experiment, &Changes::NONE, manner, runner).ok().unwrap();
        [cut, begun].map(|prepared| prepared.engine.parts())
    }

    #[test]
    fn a_graph_runs_in_parts_only_if_these_have_something_to_do_between_two_waits() {
        // The link's delay is 10 ns.
        assert_eq!(parts("afterburner"), [2, 1]);
        // The bottleneck's is 48 ms.
        assert_eq!(parts("dumbbell"), [2, 2]);
    }
}
