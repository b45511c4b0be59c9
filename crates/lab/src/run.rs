//! Running experiments: once, again with each change, and again with simultaneous events reordered.

use crate::build::{Captures, Changes, build};
use crate::close::{Close, close};
use crate::document::Problem;
use crate::experiment::{Experiment, Network, Node};
use crate::explain::{Change, Effect, Shuffle, candidates, rank, shuffled, together, verdict};
use crate::library::Library;
use lastmeter_base::Time;
use lastmeter_engine::site::{Fabric, own};
use lastmeter_engine::{Control, Engine, Error, Outcome, Parallel};
use lastmeter_ledger::{Ledger, Provenance, Resource, Source};
use lastmeter_net::plugin;
use std::collections::{BTreeMap, BTreeSet};
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

/// How many times the first run is shown to its follower.
const LOOKS: u64 = 256;

/// The state of the first run between two steps, or at its end, for a follower.
pub struct SoFar<'a> {
    /// The share of the run that is done.
    pub share: f64,
    ledger: &'a dyn Fn() -> Result<Ledger, Failure>,
}

impl SoFar<'_> {
    /// The ledger so far, without verdict and what-ifs; as expensive as closing the books.
    ///
    /// # Errors
    /// If the books do not balance.
    pub fn ledger(&self) -> Result<Ledger, Failure> {
        (self.ledger)()
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
        if let Some(warm) = self.warm_up.take_if(|warm| *warm <= self.end) {
            self.engine.run_parallel(warm, control, parallel).map_err(Failure::Engine)?;
            if control.stopped() {
                return Ok(());
            }
            self.engine.leave_out();
        }
        self.engine.run_parallel(self.end, control, parallel).map_err(Failure::Engine)
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
    let mut prepared = prepare(experiment, changes, manner, runner.library)?;
    prepared.run(&runner.watch.control, runner.parallel)?;
    prepared.finish()
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
    let manner = RunOptions { threads: runner.threads, shuffle_ties: 0, collecting: true };
    let outcome = match &runner.watch.follower {
        None => once(experiment, changes, manner, runner)?,
        Some(follower) => followed(experiment, changes, manner, runner, follower)?,
    };
    Ok(close(&outcome, closing(experiment)))
}

/// [`once`] in steps. Splitting a run moves no event.
fn followed(
    experiment: &Experiment,
    changes: &Changes,
    manner: RunOptions,
    runner: Runner<'_>,
    follower: &Follower,
) -> Result<Outcome, Failure> {
    let mut prepared = prepare(experiment, changes, manner, runner.library)?;
    let (control, end) = (&runner.watch.control, prepared.end);
    let mut cut = false;
    for step in 1..=LOOKS {
        prepared.end = Time::START + (end - Time::START).scale_ceil(step, LOOKS);
        prepared.run(control, runner.parallel)?;
        let engine = &prepared.engine;
        let ledger = || {
            let outcome = engine.so_far().map_err(Failure::Engine)?;
            Ok(close(&outcome, closing(experiment)))
        };
        follower(&SoFar { share: step as f64 / LOOKS as f64, ledger: &ledger });
        // The last steps of a short run may end without the engine having checked for a stop.
        cut = control.stopped() && step < LOOKS;
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

/// The result of explaining a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The ledger, with verdict and what-ifs.
    pub ledger: Ledger,
    /// The number of changes not tried, because there were too many.
    pub left_out: usize,
    /// The result of the check of simultaneous events, if requested.
    pub shuffle: Option<Shuffle>,
}

/// Runs `experiment`, then again with each change, and derives the verdict. With `shuffles`, repeats the run that
/// many times with simultaneous events in random order.
///
/// # Errors
/// If the experiment or the model contains errors.
pub fn explain(
    experiment: &Experiment,
    shuffles: u64,
    runner: Runner<'_>,
) -> Result<Explained, Failure> {
    let mut ledger = ledger(experiment, runner)?;
    let (mut changes, left_out) = candidates(&ledger);
    changes.extend(ideals(experiment));
    changes.extend(withouts(experiment));
    let whole = !ledger.provenance.partial;
    let changes = if whole { changes } else { Vec::new() };
    runner.watch.expect(changes.len() + shuffles as usize);
    let mut effects = effects(experiment, &ledger, changes, runner)?;
    if whole && !runner.watch.control.stopped() {
        let sets = together(&ledger, &effects, &entries(experiment, &ledger));
        runner.watch.expect(sets.len() + shuffles as usize);
        effects.extend(self::effects(experiment, &ledger, sets, runner)?);
    }
    ledger.verdict = verdict(&ledger, &effects);
    ledger.what_ifs = rank(&ledger, &effects);
    ledger.provenance.partial |= runner.watch.control.stopped();
    let shuffle = match shuffles {
        0 => None,
        _ if !whole => None,
        count => Some(shuffle(experiment, &ledger, &effects, count, runner)?),
    };
    Ok(Explained { ledger, left_out, shuffle })
}

/// Runs the experiment once for each change, as many at once as there are threads. A run that was stopped early is
/// left out.
fn effects(
    experiment: &Experiment,
    baseline: &Ledger,
    changes: Vec<Change>,
    runner: Runner<'_>,
) -> Result<Vec<Effect>, Failure> {
    let runs = changes.into_iter().map(|change| {
        let changes = changes_of(&change, baseline);
        let run = move || rerun(experiment, &changes, 0, runner);
        (change, run)
    });
    let (changes, runs): (Vec<Change>, Vec<_>) = runs.unzip();
    let ledgers = all(runs, runner)?;
    let effect = |(change, ledger): (Change, Option<Ledger>)| Some(Effect::of(change, &ledger?));
    Ok(changes.into_iter().zip(ledgers).filter_map(effect).collect())
}

fn shuffle(
    experiment: &Experiment,
    ledger: &Ledger,
    effects: &[Effect],
    count: u64,
    runner: Runner<'_>,
) -> Result<Shuffle, Failure> {
    let salt = |order: u64| order.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let runs = (1..=count)
        .map(|order| move || rerun(experiment, &Changes::NONE, salt(order), runner))
        .collect();
    let mut others: Vec<Ledger> = all(runs, runner)?.into_iter().flatten().collect();
    for other in &mut others {
        other.verdict = verdict(other, effects);
    }
    Ok(shuffled(ledger, &others))
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
pub(crate) fn all<F>(tasks: Vec<F>, runner: Runner<'_>) -> Result<Vec<Option<Ledger>>, Failure>
where
    F: FnOnce() -> Result<Option<Ledger>, Failure> + Send,
{
    let mut results: Vec<Option<Result<Option<Ledger>, Failure>>> =
        tasks.iter().map(|_| None).collect();
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

/// For each declared link, the groups of resources that it makes.
fn entries(experiment: &Experiment, ledger: &Ledger) -> Vec<Vec<String>> {
    let named = ledger.resources.iter().map(|one| (one.name.as_str(), one.group()));
    let groups: BTreeMap<&str, &str> = named.collect();
    let mut entries = vec![BTreeSet::new(); experiment.links.len()];
    for hop in Network::new(experiment).hops {
        entries[hop.link].extend(groups.get(hop.name.as_str()).map(|&group| group.to_owned()));
    }
    entries.into_iter().map(|entry| entry.into_iter().collect()).collect()
}

/// A change in the terms of the graph's builder: each resource of a group by its own name. Every fabric is compared
/// with ideal output queueing (D-59).
fn ideals(experiment: &Experiment) -> impl Iterator<Item = Change> + '_ {
    let fabrics = experiment.nodes.iter().filter(|Node { kind, .. }| {
        own::<Fabric>(kind).is_some_and(|fabric| !(fabric.is_ideal)(&kind.values))
    });
    fabrics.map(|node| Change::Ideal { fabric: node.name.clone() })
}

/// Every plugin is compared with none.
fn withouts(experiment: &Experiment) -> impl Iterator<Item = Change> + '_ {
    let nodes = experiment.nodes.iter().filter(|node| plugin::is_in(&node.kind));
    nodes.map(|node| Change::Without { node: node.name.clone() })
}

/// Whether an experiment has owners' programs: then only a library with a sandbox can build it.
pub fn has_plugins(experiment: &Experiment) -> bool {
    withouts(experiment).next().is_some()
}

fn changes_of(change: &Change, baseline: &Ledger) -> Changes {
    let mut changes = Changes::NONE;
    match change {
        Change::Faster { group, numerator, denominator } => {
            let members = baseline.resources.iter().filter(|one| one.group() == group);
            let faster = |one: &Resource| (one.name.clone(), (*numerator, *denominator));
            changes.speed = members.map(faster).collect();
        }
        Change::Together { groups, numerator, denominator } => {
            let is_member = |one: &&Resource| groups.iter().any(|group| group == one.group());
            let faster = |one: &Resource| (one.name.clone(), (*numerator, *denominator));
            changes.speed = baseline.resources.iter().filter(is_member).map(faster).collect();
        }
        Change::Free { stage } => {
            changes.free.insert(stage.clone());
        }
        Change::BuffersDoubled => changes.buffers = (2, 1),
        Change::Ideal { fabric } => drop(changes.ideal.insert(fabric.clone())),
        Change::Without { node } => drop(changes.without.insert(node.clone())),
    }
    changes
}
