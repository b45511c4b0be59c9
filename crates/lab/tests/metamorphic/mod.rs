//! A model's result must not depend on irrelevant details: metamorphic relations over all bundled experiments, each
//! run for about five thousand events.
//!
//! ```text
//! experiment --> run -------------------------> totals --+
//!     '--rewritten: reordered, cut, scaled, ...--> run --+--> equal, or an exception with its reason
//! ```
//!
//! Each exception is asserted to fail: once the relation holds for it, the test fails until it is removed from the
//! list.

#![allow(clippy::print_stdout, reason = "the experiments that a relation skips are printed")]
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod relations;
mod text;

use lastmeter_engine::{Control, Outcome, Serial};
use lastmeter_lab::build::{Changes, build};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{Builtin, texts};
use lastmeter_lab::run::has_plugins;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// The least number of events of a run, if its duration allows.
const EVENTS: u64 = 5_000;

/// A bundled experiment, shortened.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) experiment: Experiment,
    /// Its totals.
    pub(crate) totals: Totals,
    /// Whether its totals change with the order of simultaneous events.
    ties: bool,
}

pub(crate) fn parse(name: &str, text: &str) -> Result<Experiment, String> {
    let said = |problems: Vec<_>| problems.iter().map(ToString::to_string).collect::<String>();
    Experiment::parse(name, text, &[], &Builtin).map_err(said)
}

/// Every file under `experiments` that describes an experiment.
fn subjects() -> &'static [Subject] {
    static SUBJECTS: OnceLock<Vec<Subject>> = OnceLock::new();
    SUBJECTS.get_or_init(|| {
        let files = texts().into_iter().filter_map(|(path, text)| {
            let name = path.strip_prefix("experiments/")?;
            let other = ["/repro.toml", "/blast.toml", "/causes.toml"];
            let other = other.iter().any(|end| name.ends_with(end)) || name.contains("/profiles/");
            let name = name.strip_suffix(".toml").filter(|_| !other)?;
            let name = name.strip_suffix("/experiment").unwrap_or(name);
            Some((name.to_owned(), text))
        });
        // There is no sandbox for plugins here.
        let plain = |(name, text): &(String, String)| !has_plugins(&parse(name, text).unwrap());
        files.filter(plain).map(|(name, text)| subject(name, text)).collect()
    })
}

fn subject(name: String, text: String) -> Subject {
    let mut experiment = parse(&name, &text).unwrap();
    let whole = experiment.duration;
    for parts in [4096, 1024, 256, 64, 16, 4, 1] {
        experiment.duration = whole.scale_ceil(1, parts);
        if parts == 1 || run(&experiment, &Changes::NONE, 1).handled >= EVENTS {
            break;
        }
    }
    let said = totals(&run(&experiment, &Changes::NONE, 1));
    let ties =
        SALTS.iter().any(|&salt| totals(&ordered(&experiment, &Changes::NONE, 1, salt)) != said);
    Subject { name, text, experiment, totals: said, ties }
}

/// Seeds of random orders of simultaneous events.
const SALTS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0x3c6e_f372_fe94_f82b];

/// A run in this many parts.
pub(crate) fn run(experiment: &Experiment, changes: &Changes, parts: usize) -> Outcome {
    ordered(experiment, changes, parts, 0)
}

/// The same with simultaneous events in another order.
fn ordered(experiment: &Experiment, changes: &Changes, parts: usize, salt: u64) -> Outcome {
    let mut built = build(experiment, changes, &Builtin).unwrap();
    built.graph.shuffle_ties = salt;
    let mut engine = built.graph.build(parts).unwrap();
    engine.run_parallel(built.end, &Arc::new(Control::default()), &Serial).unwrap();
    engine.finish().unwrap()
}

/// The totals of each path of a run, by name and class.
pub(crate) type Totals = BTreeMap<String, Path>;

/// The totals of a path, all exact.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Path {
    pub(crate) offered: (u64, u64),
    pub(crate) delivered: (u64, u64),
    pub(crate) dropped: (u64, u64),
    /// Sum, least, greatest; in picoseconds.
    pub(crate) latency: [u128; 3],
    pub(crate) variation: u128,
    pub(crate) reordered: u64,
    /// Wait, service and blocked time at each stage.
    pub(crate) stages: BTreeMap<String, [u128; 3]>,
}

pub(crate) fn totals(outcome: &Outcome) -> Totals {
    let mut totals = Totals::new();
    for (info, book) in outcome.paths.iter().zip(&outcome.books.paths) {
        let dropped = book.dropped_total();
        let [least, most] =
            [book.latency.min(), book.latency.max()].map(|time| time.as_ps().into());
        let stages = book.rows().into_iter().map(|row| {
            let name = outcome.stages[row.stage.0 as usize].name.clone();
            (name, [row.wait.sum(), row.service.sum(), row.blocked.sum()])
        });
        let path = Path {
            offered: (book.offered.packets, book.offered.bytes),
            delivered: (book.delivered.packets, book.delivered.bytes),
            dropped: (dropped.packets, dropped.bytes),
            latency: [book.latency.sum(), least, most],
            variation: book.variation.sum(),
            reordered: book.reordered,
            stages: stages.collect(),
        };
        assert!(totals.insert(format!("{} {}", info.name, info.class), path).is_none());
    }
    totals
}

/// Why a relation does not hold for some experiments.
pub(crate) enum Reason {
    /// The rewritten experiment has other elements or other instants, and a hash of both picks the order of
    /// simultaneous events. That their order matters is checked with random orders.
    Ties,
    /// In words.
    Other(&'static str),
}

/// Experiments for which a relation does not hold, and why.
pub(crate) type Exceptions<'a> = &'a [(Reason, &'a [&'a str])];

/// Checks a relation on every subject. `rewritten` returns the totals that must be equal, or `None` if the relation does
/// not apply. It must hold for at least `least` subjects.
pub(crate) fn hold(
    relation: &str,
    least: usize,
    exceptions: Exceptions<'_>,
    rewritten: impl Fn(&Subject) -> Option<[Totals; 2]>,
) {
    let (mut wrong, mut nothing, mut held) = (Vec::new(), Vec::new(), 0);
    let reason = |name: &str| exceptions.iter().find(|(_, names)| names.contains(&name));
    for name in exceptions.iter().flat_map(|(_, names)| *names) {
        let known = subjects().iter().any(|subject| subject.name == *name);
        assert!(known, "{relation}: there is no `{name}`");
    }
    for subject in subjects() {
        let name = subject.name.as_str();
        match (rewritten(subject), reason(name)) {
            (None, None) => nothing.push(name),
            (Some([before, after]), None) if before == after => held += 1,
            (Some([before, after]), None) => {
                wrong.push(format!("{}{}", differ(name, &before, &after), subject.ties));
            }
            (Some([before, after]), Some(_)) if before == after => {
                wrong.push(format!("{name}: it holds: remove it from the list"));
            }
            (None, Some(_)) => wrong.push(format!("{name}: the relation does not apply")),
            (_, Some((Reason::Ties, _))) if !subject.ties => {
                wrong.push(format!("{name}: ties are not the reason: no order changes the totals"));
            }
            (_, Some((Reason::Ties, _))) => {}
            (_, Some((Reason::Other(why), _))) => println!("{relation}: not {name}: {why}"),
        }
    }
    println!("{relation}: holds for {held}; does not apply to {}: {nothing:?}", nothing.len());
    assert!(wrong.is_empty(), "{relation}:\n{}", wrong.join("\n"));
    assert!(held >= least, "{relation}: holds for {held} only");
}

/// The differences, the number of paths with any, and whether random orders of ties change these, too.
fn differ(name: &str, before: &Totals, after: &Totals) -> String {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |key: &&String| before.get(*key) != after.get(*key);
    let differing: Vec<&String> = keys.iter().copied().filter(differs).collect();
    let none = Path::default();
    let of = |totals: &Totals| format!("{:#?}", totals.get(differing[0]).unwrap_or(&none));
    let (before, after) = (of(before), of(after));
    let lines = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
    let lines: Vec<String> = lines.map(|(a, b)| format!("{} {}", a.trim(), b.trim())).collect();
    format!(
        "{name}: {} of {} paths, {}: {}; random orders differ too: ",
        differing.len(),
        keys.len(),
        differing[0],
        lines.join("; "),
    )
}
