//! What explaining a run costs, in runs, and whether the search in rounds finds what an exhaustive one finds: for every
//! bundled experiment, and for random networks.

use crate::{Bench, Complaint, Measurement, Setting};
use lastmeter_base::Stream;
use lastmeter_engine::Serial;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{self, Builtin};
use lastmeter_lab::run::{Runner, Search, Watch, explain, has_plugins, ledger};
use lastmeter_ledger::Ledger;
use lastmeter_linux::clock::thread_cpu;
use std::fmt::Write;

pub(super) const ALL: &[(&str, Bench)] =
    &[("explain/bundled", bundled), ("explain/random", random)];

/// Changes that are told first, and compared.
const BEST: usize = 5;
/// Gains that differ by less are equal, as for the verdict.
const CLOSE: f64 = 0.005;
/// An exhaustive search is left out where the run itself takes longer than this, in CPU seconds.
const RUN_MAX: f64 = 3.0;
const RUN_MAX_QUICK: f64 = 1.0;
/// An explanation that takes so many CPU seconds is waited for.
const LONG: f64 = 2.0;
/// Random networks that are compared.
const NETWORKS: u64 = 200;
const NETWORKS_QUICK: u64 = 20;

/// One experiment, explained in both ways.
struct Both {
    name: String,
    /// What the search in rounds costs, its run included, in runs.
    price: f64,
    /// That in CPU seconds.
    seconds: f64,
    /// The same of the exhaustive search, and what it found better than the other; `None` where it was left out.
    exhaustive: Option<(f64, Found)>,
}

/// What the search in rounds found of what an exhaustive search finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The best changes in their order, but those that are equally good.
    All,
    /// The best one.
    First,
    /// Another one.
    Other,
}

fn bundled(setting: &Setting) -> Result<Measurement, Complaint> {
    let mut all = Vec::new();
    for name in library::experiments() {
        let text = library::experiment(&name).unwrap_or_default();
        let experiment = parse(&name, text)?;
        if !has_plugins(&experiment) {
            all.push(both(name, &experiment, setting)?);
        }
    }
    Ok(measurement("explain/bundled", &all))
}

fn random(setting: &Setting) -> Result<Measurement, Complaint> {
    let count = if setting.quick { NETWORKS_QUICK } else { NETWORKS };
    let one = |seed| {
        let name = format!("network {seed}");
        let experiment = parse(&name, &network(seed))?;
        both(name, &experiment, setting)
    };
    let all: Vec<Both> = (1..=count).map(one).collect::<Result<_, Complaint>>()?;
    Ok(measurement("explain/random", &all))
}

fn parse(name: &str, text: &str) -> Result<Experiment, Complaint> {
    let parsed = Experiment::parse(name, text, &[], &Builtin);
    parsed.map_err(|problems| {
        let words: Vec<String> = problems.iter().map(|problem| problem.render(false)).collect();
        Complaint(words.join("\n"))
    })
}

/// CPU seconds, and the ledger.
fn timed(experiment: &Experiment, search: Option<Search>) -> Result<(f64, Ledger), Complaint> {
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
    let began = thread_cpu();
    let ledger = match search {
        None => ledger(experiment, runner)?,
        Some(search) => explain(experiment, search, 0, runner)?.ledger,
    };
    Ok((thread_cpu() - began, ledger))
}

fn both(name: String, experiment: &Experiment, setting: &Setting) -> Result<Both, Complaint> {
    let (run, _) = timed(experiment, None)?;
    let (rounds, ours) = timed(experiment, Some(Search::Rounds))?;
    let exhaustive = match run <= if setting.quick { RUN_MAX_QUICK } else { RUN_MAX } {
        false => None,
        true => {
            let (all, theirs) = timed(experiment, Some(Search::Exhaustive))?;
            Some((all / run, found(&ours, &theirs)))
        }
    };
    Ok(Both { name, price: rounds / run, seconds: rounds, exhaustive })
}

/// Compares each of the best changes with the one that the exhaustive search has in its place, by what that search
/// says about both.
fn found(ours: &Ledger, theirs: &Ledger) -> Found {
    let gain = |change: &str| {
        let one = theirs.what_ifs.iter().find(|one| one.change == change);
        one.map_or(f64::NEG_INFINITY, |one| one.gain)
    };
    let mut pairs = ours.what_ifs.iter().zip(&theirs.what_ifs).take(BEST);
    let as_good = pairs.by_ref().take_while(|(our, their)| gain(&our.change) >= their.gain - CLOSE);
    match as_good.count() {
        0 if !theirs.what_ifs.is_empty() => Found::Other,
        count if count < BEST.min(theirs.what_ifs.len()) => Found::First,
        _ => Found::All,
    }
}

fn measurement(bench: &str, all: &[Both]) -> Measurement {
    let sorted = |prices: &mut dyn Iterator<Item = f64>| {
        let mut prices: Vec<f64> = prices.collect();
        prices.sort_by(f64::total_cmp);
        prices
    };
    let prices = sorted(&mut all.iter().map(|one| one.price));
    let long = |one: &&Both| one.seconds > LONG;
    let of_long = sorted(&mut all.iter().filter(long).map(|one| one.price));
    let median = |sorted: &[f64]| sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    let compared: Vec<&(f64, Found)> =
        all.iter().filter_map(|one| one.exhaustive.as_ref()).collect();
    let with = |wanted: &[Found]| compared.iter().filter(|one| wanted.contains(&one.1)).count();
    let mut note = format!(
        "CPU time, median of {}; the best {BEST} as found exhaustively in {} of {}, the best one \
         in {}",
        all.len(),
        with(&[Found::All]),
        compared.len(),
        with(&[Found::All, Found::First])
    );
    if let Some(dearest) = all.iter().max_by(|a, b| a.price.total_cmp(&b.price)) {
        let _ = write!(note, "; at most {:.1}: {}", dearest.price, dearest.name);
    }
    if let Some(most) = of_long.last() {
        let (count, middle) = (of_long.len(), median(&of_long));
        let _ =
            write!(note, "; of the {count} beyond {LONG} s of CPU {middle:.1}, at most {most:.1}");
    }
    let longest = all.iter().map(|one| one.seconds).fold(0.0, f64::max);
    let _ = write!(note, "; the longest takes {longest:.1} s");
    let differs = |one: &&Both| matches!(one.exhaustive, Some((_, Found::First | Found::Other)));
    let names: Vec<&str> = all.iter().filter(differs).map(|one| one.name.as_str()).collect();
    if !names.is_empty() {
        let _ = write!(note, "; other ones in {}", names.join(", "));
    }
    let mut found = Measurement::new(bench, median(&prices), "runs", String::new(), note);
    let exhaustive = sorted(&mut compared.iter().map(|one| one.0));
    found.beside("every change on the whole run", median(&exhaustive));
    found.lower_is_better()
}

/// A network with one to four pairs of hosts, which share two to four links in a row; their rates, delays, queues and
/// traffic are random.
fn network(seed: u64) -> String {
    let mut random = Stream::new(seed, "explain");
    let mut below = move |end: u64| random.below(end);
    let pairs = 1 + below(4);
    let routers = 2 + below(3);
    let mut text =
        format!("title = \"{seed}\"\nduration = \"{} s\"\nseed = {seed}\n", 10 + below(20));
    text += "[nodes]\n";
    (0..pairs)
        .for_each(|n| text += &format!("s{n} = {{ host = {{}} }}\nd{n} = {{ host = {{}} }}\n"));
    (0..routers).for_each(|n| text += &format!("r{n} = {{ router = {{}} }}\n"));
    let mut link = |from: &str, to: &str, rate: u64, delay: u64, packets: u64| {
        text += &format!(
            "[[links]]\nbetween = [\"{from}\", \"{to}\"]\nrate = \"{rate} Mbit/s\"\n\
             delay = \"{delay} us\"\nqueue = {{ drop-tail = {{ packets = {packets} }} }}\n"
        );
    };
    let last = routers - 1;
    for n in 0..pairs {
        link(&format!("s{n}"), "r0", 20 + below(80), 10 + below(500), 100);
        link(&format!("r{last}"), &format!("d{n}"), 20 + below(80), 10 + below(500), 100);
    }
    for n in 0..last {
        let (from, to) = (format!("r{n}"), format!("r{}", n + 1));
        link(&from, &to, 20 + below(130), 100 + below(5000), 20 + below(100));
    }
    for n in 0..pairs {
        text += &format!("[[traffic]]\nname = \"t{n}\"\nfrom = \"s{n}\"\nto = \"d{n}\"\n");
        text += &match below(2) {
            0 => "tcp = {}\n".to_owned(),
            _ => {
                format!("poisson = {{ rate = \"{} Mbit/s\", size = \"1000 B\" }}\n", 5 + below(60))
            }
        };
    }
    text
}
