//! Explaining a run: the changes to try, and how much of the run is repeated with each.
//!
//! An exhaustive search repeats the whole run with every change. A search of rounds repeats a short beginning with
//! many, compares each with the same beginning of the run itself, goes on with a longer one for the better half, and
//! repeats most for the few that can be among the best. All of it costs one to four runs, building the models aside;
//! short runs are repeated more often, as long as that takes a few seconds. Beginnings have the same random numbers,
//! so that what differs is what was changed.

use super::{Failure, PARTS, Prepared, RunOptions, Runner, all, closing, in_steps, prepare, rerun};
use crate::build::Changes;
use crate::close::close;
use crate::experiment::{Experiment, Network, Node};
use crate::explain::{
    Beginning, CHANGES_MAX, Change, Effect, LOOKS, Round, Rounds, Shuffle, Sums, beginnings,
    candidates, is_alone, is_free, promising, rank, shuffled, together, verdict,
};
use lastmeter_base::Time;
use lastmeter_engine::site::{Fabric, own};
use lastmeter_ledger::{Ledger, Resource};
use lastmeter_net::plugin;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// How the effects of changes are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// In rounds, for the price of a few runs; on the whole run with every change if that is short.
    #[default]
    Rounds,
    /// The whole run again with every change.
    Exhaustive,
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

impl From<Ledger> for Explained {
    /// A ledger that is not explained further.
    fn from(ledger: Ledger) -> Explained {
        Explained { ledger, left_out: 0, shuffle: None }
    }
}

/// Runs `experiment`, finds the effects of changes, and derives the verdict. With `shuffles`, repeats the run that
/// many times with simultaneous events in random order.
///
/// # Errors
/// If the experiment or the model contains errors.
pub fn explain(
    experiment: &Experiment,
    search: Search,
    shuffles: u64,
    runner: Runner<'_>,
) -> Result<Explained, Failure> {
    FirstRun::new(experiment, runner)?.explain(search, shuffles, runner)
}

/// An experiment that has run once, and what is needed to explain it.
#[derive(Debug)]
pub struct FirstRun<'a> {
    experiment: &'a Experiment,
    ledger: Ledger,
    rounds: Rounds,
    changes: Vec<Change>,
    left_out: usize,
    is_short: bool,
}

impl<'a> FirstRun<'a> {
    /// Runs `experiment` as it is.
    ///
    /// # Errors
    /// If the experiment or the model contains errors.
    pub fn new(experiment: &'a Experiment, runner: Runner<'_>) -> Result<FirstRun<'a>, Failure> {
        let (ledger, beginnings, all) = looked_at(experiment, runner)?;
        let (mut changes, left_out) = candidates(&ledger);
        changes.extend(ideals(experiment));
        changes.extend(withouts(experiment));
        let is_short = is_free(&all, changes.len());
        let rounds = Rounds::new(beginnings, &all);
        Ok(FirstRun { experiment, ledger, rounds, changes, left_out, is_short })
    }

    /// The ledger, if somebody would wait for the verdict long enough to read it.
    pub fn before_the_verdict(&self) -> Option<&Ledger> {
        Some(&self.ledger).filter(|ledger| !self.is_short && !ledger.provenance.partial)
    }

    /// Finds the effects of changes and derives the verdict, as [`explain`] does.
    ///
    /// # Errors
    /// If a changed model contains errors.
    pub fn explain(
        self,
        search: Search,
        shuffles: u64,
        runner: Runner<'_>,
    ) -> Result<Explained, Failure> {
        let FirstRun { experiment, mut ledger, rounds, changes, mut left_out, is_short } = self;
        let whole = !ledger.provenance.partial;
        let effects = match (whole, search) {
            (false, _) => Vec::new(),
            (true, Search::Rounds) if !is_short => {
                let known = changes.len();
                let changes = promising(&ledger, changes, CHANGES_MAX);
                left_out += known - changes.len();
                in_rounds(experiment, &ledger, rounds, changes, shuffles, runner)?
            }
            (true, _) => exhaustive(experiment, &ledger, changes, shuffles, runner)?,
        };
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
}

/// The run as it is, its beginnings, and what happened in all of it.
fn looked_at(
    experiment: &Experiment,
    runner: Runner<'_>,
) -> Result<(Ledger, Vec<Beginning>, Sums), Failure> {
    let end = (Time::START + experiment.duration).as_ps();
    runner.watch.end.store(end, Ordering::Relaxed);
    let steps: Vec<u64> = match runner.watch.follower {
        Some(_) => (1..=PARTS).collect(),
        None => LOOKS.into_iter().chain([PARTS]).collect(),
    };
    let mut looks = Vec::new();
    let outcome = in_steps(experiment, &Changes::NONE, runner, &steps, |so_far| {
        if let Some(follower) = &runner.watch.follower {
            follower(so_far);
        }
        if LOOKS.contains(&so_far.parts) {
            let outcome = so_far.outcome()?;
            let ledger = close(&outcome, closing(experiment));
            looks.push((so_far.parts, Sums::of(&outcome, &ledger)));
        }
        Ok(())
    })?;
    let ledger = close(&outcome, closing(experiment));
    let all = Sums::of(&outcome, &ledger);
    Ok((ledger, beginnings(&looks, &all), all))
}

/// The effects of all `changes`, and of those together that may limit together, on the whole run.
fn exhaustive(
    experiment: &Experiment,
    ledger: &Ledger,
    changes: Vec<Change>,
    shuffles: u64,
    runner: Runner<'_>,
) -> Result<Vec<Effect>, Failure> {
    let run = |changes: Vec<Change>| {
        runner.watch.expect(changes.len() + shuffles as usize);
        effects(experiment, ledger, changes, None, runner)
    };
    let mut effects = run(changes)?;
    if !runner.watch.control.stopped() {
        effects.extend(run(together(ledger, &effects, &entries(experiment, ledger)))?);
    }
    Ok(effects)
}

/// The effects of `changes`, and of those together that may limit together: of the best on a long beginning of the
/// run, of the others on short ones.
fn in_rounds(
    experiment: &Experiment,
    ledger: &Ledger,
    mut rounds: Rounds,
    mut changes: Vec<Change>,
    shuffles: u64,
    runner: Runner<'_>,
) -> Result<Vec<Effect>, Failure> {
    let mut found: BTreeMap<Change, Effect> = BTreeMap::new();
    changes.extend(together(ledger, &[], &entries(experiment, ledger)));
    loop {
        let Round { beginning, next } = rounds.next(changes.len());
        runner.watch.expect(changes.len() + shuffles as usize);
        let effects = effects(experiment, ledger, changes, beginning.as_ref(), runner)?;
        found.extend(effects.iter().map(|effect| (effect.change.clone(), effect.clone())));
        match next {
            Some(next) if beginning.is_some() && !runner.watch.control.stopped() => {
                changes = next.changes(ledger, &effects);
            }
            _ => break,
        }
    }
    // Sets are for where nothing alone helps, which only the last round tells.
    let most = found.values().map(|effect| effect.share).fold(0.0, f64::max);
    let last: Vec<Effect> = found.values().filter(|one| one.share >= most).cloned().collect();
    if is_alone(ledger, &last) {
        found.retain(|change, _| !matches!(change, Change::Together { .. }));
    }
    Ok(found.into_values().collect())
}

/// Runs the experiment, or a beginning of it, once for each change, as many at once as there are threads. A run that
/// was stopped early is left out.
fn effects(
    experiment: &Experiment,
    baseline: &Ledger,
    changes: Vec<Change>,
    beginning: Option<&Beginning>,
    runner: Runner<'_>,
) -> Result<Vec<Effect>, Failure> {
    let run = &|change: Change| -> Result<Option<Effect>, Failure> {
        let changes = changes_of(&change, baseline);
        Ok(match beginning {
            None => {
                rerun(experiment, &changes, 0, runner)?.map(|changed| Effect::of(change, &changed))
            }
            Some(before) => second_half(experiment, &changes, before.parts, runner)?
                .map(|changed| Effect::of_beginning(change, &changed, before, baseline)),
        })
    };
    let runs = changes.into_iter().map(|change| move || run(change)).collect();
    Ok(all(runs, runner)?.into_iter().flatten().collect())
}

/// What happens in the second half of a beginning that is so many parts long; `None` if it was stopped.
fn second_half(
    experiment: &Experiment,
    changes: &Changes,
    parts: u64,
    runner: Runner<'_>,
) -> Result<Option<Sums>, Failure> {
    let control = &runner.watch.control;
    if control.stopped() {
        return Ok(None);
    }
    let manner = RunOptions { threads: 1, shuffle_ties: 0, collecting: true };
    let mut prepared = prepare(experiment, changes, manner, runner.library)?;
    let sums = |prepared: &Prepared| {
        let outcome = prepared.engine.so_far().map_err(Failure::Engine)?;
        Ok(Sums::of(&outcome, &close(&outcome, closing(experiment))))
    };
    prepared.run_parts(parts / 2, control, runner.parallel)?;
    let first = sums(&prepared)?;
    prepared.run_parts(parts, control, runner.parallel)?;
    let both = sums(&prepared)?;
    runner.watch.runs_done.fetch_add(1, Ordering::Relaxed);
    Ok((!control.stopped()).then(|| both.after(&first)))
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
