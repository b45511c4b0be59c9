//! Benchmarks of the engine: bundled experiments, timed while they run, not while they are built.

use super::{Measurement, Setting, peer};
use crate::Complaint;
use lastmeter_engine::{Outcome, Serial};
use lastmeter_lab::build::Changes;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{self, Builtin};
use lastmeter_lab::run::{RunOptions, prepare};
use std::fmt::Write;
use std::time::Instant;

pub(super) type Bench = fn(&Setting<'_>) -> Result<Measurement, Complaint>;

/// All benchmarks of the engine.
pub(crate) const ALL: &[(&str, Bench)] = &[
    ("engine/chain", chain),
    ("engine/mm1", mm1),
    ("engine/tandem", tandem),
    ("engine/ledger", ledger),
    ("engine/threads", threads),
    ("engine/dumbbell", dumbbell),
    ("engine/dumbbell@10000", dumbbell_of_10000),
];

/// Runs of each; the best one counts.
const ROUNDS: usize = 5;
const ROUNDS_QUICK: usize = 2;
/// Chains of the benchmark of threads.
const CHAINS: usize = 64;

/// What a run did, and in how many seconds at best.
pub(super) struct Timed {
    pub(super) seconds: f64,
    /// CPU time where the system reports it, else wall-clock time.
    pub(super) cpu_seconds: f64,
    pub(super) outcome: Outcome,
}

impl Timed {
    /// The better times of this run and an earlier one of the same.
    pub(super) fn or_before(self, before: Option<Timed>) -> Timed {
        let Some(before) = before else { return self };
        let seconds = self.seconds.min(before.seconds);
        let cpu_seconds = self.cpu_seconds.min(before.cpu_seconds);
        Timed { seconds, cpu_seconds, ..self }
    }
    pub(super) fn counter(&self, name: &str) -> u64 {
        let reports = self.outcome.elements.iter().flat_map(|report| &report.counters);
        reports.filter(|(counter, _)| *counter == name).map(|(_, value)| value).sum()
    }
    pub(super) fn hash(&self) -> String {
        // Everything that the ledger is made from, in the order of the graph.
        let books = self.outcome.books.paths.iter().map(|book| {
            let rows: Vec<_> = book.rows().iter().map(|row| (row.stage, row.time())).collect();
            format!("{:?} {:?} {} {rows:?}", book.offered, book.delivered, book.latency.sum())
        });
        let books: Vec<String> = books.collect();
        lastmeter_lab::digest(format!("{books:?}{:?}", self.outcome.elements).as_bytes())
    }
}

fn parse(name: &str, text: &str, setting: &Setting<'_>) -> Result<Experiment, Complaint> {
    let parsed = Experiment::parse(name, text, &[], &Builtin);
    let mut experiment = parsed.map_err(|problems| {
        problems.iter().map(|p| p.render(false)).collect::<Vec<_>>().join("\n")
    })?;
    if setting.quick {
        experiment.duration = experiment.duration / 10;
    }
    experiment.seed = setting.seed.unwrap_or(experiment.seed);
    Ok(experiment)
}

fn bundled(name: &str, setting: &Setting<'_>) -> Result<Experiment, Complaint> {
    parse(name, text_of(name)?, setting)
}

fn text_of(name: &str) -> Result<&'static str, Complaint> {
    Ok(library::experiment(name).ok_or(format!("`{name}` is not bundled"))?)
}

/// The best of several runs.
fn best(
    experiment: &Experiment,
    setting: &Setting<'_>,
    threads: usize,
    collecting: bool,
) -> Result<Timed, Complaint> {
    let rounds = if setting.quick { ROUNDS_QUICK } else { ROUNDS };
    let mut best: Option<Timed> = None;
    for _ in 0..rounds {
        best = Some(once(experiment, setting, threads, collecting)?.or_before(best));
    }
    best.ok_or_else(|| Complaint("nothing ran".to_owned()))
}

fn once(
    experiment: &Experiment,
    setting: &Setting<'_>,
    threads: usize,
    collecting: bool,
) -> Result<Timed, Complaint> {
    let manner = RunOptions { threads, shuffle_ties: 0, collecting };
    let mut prepared = prepare(experiment, &Changes::NONE, manner, &Builtin)?;
    let (seconds, cpu_seconds) = clocked(threads, || match threads {
        1 => prepared.run(&Default::default(), &Serial),
        _ => prepared.run(&Default::default(), setting.threads),
    })?;
    Ok(Timed { seconds, cpu_seconds, outcome: prepared.finish()? })
}

/// The seconds that `run` takes, and the CPU time on one thread, else the same seconds.
pub(super) fn clocked<E>(
    threads: usize,
    run: impl FnOnce() -> Result<(), E>,
) -> Result<(f64, f64), E> {
    let (began, cpu_began) = (Instant::now(), cpu_seconds());
    run()?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds().zip(cpu_began).map(|(now, began)| now - began);
    Ok((seconds, cpu.filter(|_| threads == 1).unwrap_or(seconds)))
}

/// CPU time of this thread in seconds, where the system reports it.
fn cpu_seconds() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns: u64 = status.split_whitespace().next()?.parse().ok()?;
    Some(ns as f64 * 1e-9)
}

pub(super) fn result(
    bench: &str,
    value: f64,
    unit: &str,
    timed: &Timed,
    note: String,
) -> Measurement {
    Measurement::new(bench, value, unit, timed.hash(), note)
}

fn chain(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let experiment = bundled("chain", setting)?;
    let timed = best(&experiment, setting, 1, true)?;
    let hops = timed.counter("served");
    let value = hops as f64 / timed.seconds;
    let note = format!("{hops} packet-hops through ten routers, ledger on, one thread");
    let mut result = result("engine/chain", value, "packet-hops/s", &timed, note);
    result.beside_if_there("ns-3", peer::ns3_chain(experiment.duration.as_secs_f64()));
    Ok(result)
}

/// One run of the chain, for comparison.
pub(super) fn chain_once(setting: &Setting<'_>) -> Result<Timed, Complaint> {
    once(&bundled("chain", setting)?, setting, 1, true)
}

fn dumbbell(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let experiment = bundled("dumbbell", setting)?;
    let mut result = dumbbell_run("engine/dumbbell", &experiment, setting)?;
    result.beside_if_there("ns-3", peer::ns3_dumbbell(experiment.duration.as_secs_f64()));
    Ok(result)
}

/// The same hosts with a hundred connections between each pair.
fn dumbbell_of_10000(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let text = text_of("dumbbell")?.replace("[traffic.tcp]", "[traffic.tcp]\nconnections = 100");
    let text = text.replace("{ packets = 200 }", "{ packets = 5000 }");
    let experiment = parse("10,000 connections", &text, setting)?;
    let before = memory_most();
    let mut result = dumbbell_run("engine/dumbbell@10000", &experiment, setting)?;
    if let (Some(before), Some(after)) = (before, memory_most()) {
        let grown = after.saturating_sub(before) as f64 / f64::from(1 << 20);
        let _ = write!(result.note, "; peak memory {grown:.1} MiB above the runs before it");
    }
    Ok(result)
}

fn dumbbell_run(
    name: &str,
    experiment: &Experiment,
    setting: &Setting<'_>,
) -> Result<Measurement, Complaint> {
    let timed = best(experiment, setting, 1, true)?;
    let (hops, connections) = (timed.counter("served"), timed.counter("connections") / 2);
    let each = timed.cpu_seconds / experiment.duration.as_secs_f64();
    let note = format!(
        "{hops} packet-hops of {connections} TCP connections with SACK, delayed acknowledgements \
         and receive windows; {:.1} ms of CPU time per simulated second, ledger on, one \
         thread",
        each * 1e3
    );
    let value = hops as f64 / timed.cpu_seconds;
    Ok(result(name, value, "packet-hops/CPU s", &timed, note))
}

/// The peak memory of this process in bytes, where the system reports it.
pub(super) fn memory_most() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn mm1(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let timed = best(&bundled("mm1", setting)?, setting, 1, true)?;
    let customers = timed.outcome.books.delivered;
    let value = customers as f64 / timed.seconds;
    let note = format!("{customers} customers through M/M/1 at load 0.8, ledger on, one thread");
    Ok(result("engine/mm1", value, "customers/s", &timed, note))
}

fn tandem(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let timed = best(&bundled("tandem", setting)?, setting, 1, true)?;
    let services = timed.counter("served");
    let value = services as f64 / timed.seconds;
    let note = format!("{services} services at ten stations in tandem, ledger on, one thread");
    Ok(result("engine/tandem", value, "services/s", &timed, note))
}

fn ledger(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let mut experiment = bundled("chain", setting)?;
    // About a million packets.
    experiment.duration = experiment.duration * 7;
    let with = best(&experiment, setting, 1, true)?;
    let without = best(&experiment, setting, 1, false)?;
    let share = 1.0 - without.seconds / with.seconds;
    let packets = with.outcome.books.made;
    let note = format!("share of the run time spent on the ledger of {packets} packets");
    Ok(result("engine/ledger", share, "of the run", &with, note).lower_is_better())
}

fn threads(setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let mut experiment = parse("64 chains", &chains(text_of("chain")?), setting)?;
    // A tenth of the time: there are 64 of them.
    experiment.duration = experiment.duration / 10;
    let count = setting.threads.count();
    let one = best(&experiment, setting, 1, true)?;
    let many = best(&experiment, setting, count, true)?;
    if one.hash() != many.hash() {
        return Err(Complaint(format!("{count} threads gave a different result than one")));
    }
    let note = format!("{CHAINS} chains on {count} threads, same result as on one");
    Ok(result("engine/threads", one.seconds / many.seconds, "times one", &one, note))
}

/// The chain's experiment repeated, each copy with names of its own.
fn chains(text: &str) -> String {
    let value = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        line.map_or(String::new(), |line| format!("{line}\n"))
    };
    let mut chains = value("title") + &value("duration") + &value("seed");
    let names: Vec<String> = (1..=10).map(|router| format!("r{router}")).collect();
    for chain in 0..CHAINS {
        let node = |name: &str| format!("c{chain}{name}");
        let _ = write!(chains, "[nodes.{}]\nhost = {{}}\ncount = 50\n", node("s"));
        let _ = write!(chains, "[nodes.{}]\nhost = {{}}\ncount = 50\n", node("d"));
        for name in &names {
            let _ = write!(chains, "[nodes.{}]\nrouter = {{}}\n", node(name));
        }
        let all = ["s"].into_iter().chain(names.iter().map(String::as_str)).chain(["d"]);
        let between: Vec<String> = all.map(node).collect();
        let _ = write!(
            chains,
            "[[links]]\nbetween = {between:?}\nrate = \"1 Gbit/s\"\ndelay = \"1 ms\"\n\
             queue = {{ drop-tail = {{ packets = 200 }} }}\n\
             [[traffic]]\nname = {:?}\nfrom = {:?}\nto = {:?}\nphase = \"random\"\n\
             constant = {{ rate = \"18 Mbit/s\", size = \"1500 B\" }}\n",
            node("cbr"),
            node("s"),
            node("d")
        );
    }
    chains
}
