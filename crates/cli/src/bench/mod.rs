//! `lastmeter bench`: how fast things run, compared with peers that are installed.
//!
//! Each benchmark runs several times and reports the best, which other programs disturbed least. Equal
//! hashes show that two runs did the same work.

mod adapter;
mod classify;
mod crates;
mod curves;
mod engine;
mod engines;
pub(crate) mod failover;
pub(crate) mod forward;
mod lookup;
mod observed;
mod peer;
mod receive;
mod scale;

use crate::threads::Threads;
use crate::{Common, Complaint, Ended, output, results};
use lastmeter_base::bench::Case;
use lastmeter_bench::Measurement;
use std::time::Instant;

pub(crate) use peer::ns3_path;

/// Run benchmarks, compared with peers that are installed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Only those whose names begin with this: `engine`, `wire/aal5`
    #[arg(default_value = "")]
    name: String,
    /// Also look addresses up in this routing table, compared with DPDK where it is installed
    #[arg(long, value_name = "FILE")]
    table: Option<std::path::PathBuf>,
    /// With `engine/fabric` or `engine/fat-tree`: run only this size, and report its memory
    #[arg(long, value_name = "N", conflicts_with = "table")]
    size: Option<usize>,
    /// With `receive/guest`: the guest's adapter, by name, in place of QEMU's
    #[arg(long, value_name = "NAME", conflicts_with_all = ["table", "size"])]
    adapter: Option<String>,
    /// Write one HTML page here: those whose names end in `@N`, plotted over N
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    out: Option<std::path::PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter bench                 all of them
  lastmeter bench engine --json   a line of JSON for each engine benchmark
  lastmeter bench wire --quick    the formats, on small input
  lastmeter bench router          a router beside the kernel (needs root and `make devices`)
  lastmeter bench receive --out receive.html
                                  ways to receive under load, here and in the model (needs root)
  lastmeter bench receive/guest   the same in a guest's kernel, livelock included (`make guest`)
  lastmeter bench receive/guest --adapter simple-nic
                                  through an adapter that is described
  lastmeter bench adapter         adapters that do not exist under a guest, beside their models
  lastmeter bench failover        hosts on two networks, in which each link and each switch fails
  lastmeter bench forward         shares of IP and of the devices in forwarding a packet (root)
  lastmeter bench dtp             transactions with a device over UDP; `time-wait`: closed ones
  lastmeter bench own-tcp         the models' TCP before this kernel's: repair of losses, TIME_WAIT
  lastmeter bench units           data units forwarded whole, or packet by packet
  lastmeter bench delivery        the same data to a native socket, and through IP
  lastmeter bench explain         what explaining costs, beside every change on the whole run
  lastmeter bench plugpoints      one stream through every kind of host interface
  lastmeter bench channels        flows told apart by one of 32768 channels (root)
  lastmeter bench tune/cim        packets' best length and how many in flight, by an adapter's name
  lastmeter bench engine/fat-tree --size 32
                                  what memory 8192 hosts take
  lastmeter bench lookup/engines --out engines.html
                                  lookups in flight on this machine, beside a model of 2001";

/// What every benchmark is given.
pub(crate) struct Setting<'a> {
    quick: bool,
    seed: Option<u64>,
    threads: &'a Threads,
}

/// Frames a second of a film in CIF, which its coder has to keep up with.
const FILM: f64 = 30.0;
/// How long a case of a crate is repeated.
const SECONDS: f64 = 1.0;
const SECONDS_QUICK: f64 = 0.05;

pub(crate) fn bench(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    results::prepare_file(arguments.out.as_deref())?;
    let (device, part) = arguments.name.split_once('/').unwrap_or((&arguments.name, ""));
    if arguments.adapter.is_some() && !arguments.name.starts_with("receive/guest") {
        let right = "name receive/guest, or one of its ways";
        return Err(Complaint(format!("--adapter is that of a guest: {right}")));
    }
    if crate::daemon::MEASURED.contains(&device) {
        return crate::daemon::bench(common, &arguments.name);
    }
    if device == "receive" {
        return receive::bench(common, arguments);
    }
    if device == "adapter" {
        return adapter::bench(common, part);
    }
    if device == "failover" {
        return failover::bench(common);
    }
    if device == "forward" {
        return forward::bench(common);
    }
    if device == "tune" {
        let adapter = if part.is_empty() { "cim" } else { part };
        let found = lastmeter_bench::tune::measure(adapter, common.quick);
        let found = found.map_err(|lastmeter_bench::Complaint(why)| Complaint(why))?;
        let lines = found.measurements();
        match common.json {
            true => lines.iter().for_each(|line| show(common, line)),
            false => output::print(&found.table()),
        }
        arguments.out.as_deref().map_or(Ok(()), |path| curves::save(path, &lines))?;
        return Ok(Ended::Done);
    }
    let threads = Threads::new(common.threads)?;
    let setting = Setting { quick: common.quick, seed: common.seed, threads: &threads };
    if let Some(size) = arguments.size {
        show(common, &scale::alone(&arguments.name, size, &setting)?);
        return Ok(Ended::Done);
    }
    let mut results = Vec::new();
    for (_, run) in own().filter(|(name, _)| name.starts_with(&arguments.name)) {
        let result = run(&setting)?;
        show(common, &result);
        results.push(result);
    }
    let alone = lastmeter_bench::alone().filter(|_| !arguments.name.is_empty());
    let pieces = lastmeter_bench::all().chain(alone);
    for (_, run) in pieces.filter(|(name, _)| name.starts_with(&arguments.name)) {
        let result = run(&lastmeter_bench::Setting { quick: common.quick });
        let result = result.map_err(|lastmeter_bench::Complaint(why)| Complaint(why))?;
        show(common, &result);
        results.push(result);
    }
    let mut found = !results.is_empty();
    let asked = lookup::wanted(&arguments.name);
    if let Some(table) = arguments.table.as_deref().filter(|_| asked) {
        found = true;
        lookup::all(table, &setting, &arguments.name)?
            .iter()
            .for_each(|result| show(common, result));
    }
    for case in cases().filter(|case| case.name.starts_with(&arguments.name)) {
        found = true;
        let mut result = timed(case, common.quick);
        classify::beside(&mut result, common.quick)?;
        if result.bench.starts_with("wave/") {
            result.beside("real time", FILM);
        }
        show(common, &result);
        results.push(result);
    }
    match &arguments.out {
        _ if !found => return Err(Complaint(unknown(&arguments.name))),
        Some(path) => curves::save(path, &results)?,
        None => {}
    }
    Ok(Ended::Done)
}

/// What is measured here and not in a crate, because it needs threads, peers or other programs.
fn own() -> impl Iterator<Item = (&'static str, engine::Bench)> {
    let engines = engine::ALL.iter().chain(scale::ALL).chain(engines::ALL).copied();
    engines.chain([("why/observed", observed::observed as engine::Bench)])
}

/// Cases of the crates below.
fn cases() -> impl Iterator<Item = &'static Case> {
    lastmeter_lab::bench_cases().chain(lastmeter_bench::cases())
}

fn unknown(name: &str) -> String {
    let pieces = lastmeter_bench::all().chain(lastmeter_bench::alone());
    let names = own().map(|(name, _)| name).chain(pieces.map(|(name, _)| name));
    let names: Vec<&str> = names.chain(cases().map(|case| case.name)).collect();
    let near = lastmeter_lab::document::nearest(name, names.iter().copied());
    let hint = near.map_or("the".to_owned(), |near| format!("did you mean `{near}`? The"));
    let mut groups: Vec<&str> = names.iter().filter_map(|name| name.split('/').next()).collect();
    groups.sort_unstable();
    groups.dedup();
    format!("no benchmark's name begins with `{name}`: {hint} groups are {}", groups.join(", "))
}

/// Repeats a crate's case and takes the best round.
fn timed(case: &Case, quick: bool) -> Measurement {
    let mut work = (case.prepare)(quick);
    let wanted = if quick { SECONDS_QUICK } else { SECONDS };
    let began = Instant::now();
    let (mut best, mut hash) = (0.0_f64, 0);
    while began.elapsed().as_secs_f64() < wanted {
        let start = Instant::now();
        let done = work();
        best = best.max(done.units as f64 / start.elapsed().as_secs_f64());
        hash = done.hash;
    }
    let unit = format!("{}/s", case.unit);
    Measurement::new(case.name, best, unit, format!("{hash:016x}"), case.what)
}

fn show(common: &Common, result: &Measurement) {
    if common.json {
        output::print(&serde_json::to_string(result).unwrap_or_default());
        return;
    }
    // What is measured on a live machine has no result that could be repeated.
    let hash = match result.hash.as_str() {
        "" => String::new(),
        hash => format!(" (hash {hash})"),
    };
    output::print(&format!(
        "{:<18} {:<26}{}\n{:18} {}{hash}",
        result.bench,
        quantity(result.value, &result.unit),
        beside(result),
        "",
        result.note,
    ));
}

/// A peer's value, and what part of it or how many times as much ours is.
fn beside(result: &Measurement) -> String {
    match (&result.peer, result.peer_value, result.ratio) {
        (Some(peer), Some(value), Some(ratio)) => {
            let (value, ratio) = (quantity(value, &result.unit), significant(ratio).0);
            let of = if result.ratio < Some(1.0) { "of" } else { "times" };
            format!("{peer}: {value}, ours {ratio} {of} that")
        }
        _ => String::new(),
    }
}

/// A value with its unit: symbols take the prefix themselves, `31.61 GB/s`; words do not, `13.90 M packets/s`.
fn quantity(value: f64, unit: &str) -> String {
    if unit == "s" && value < 1.0 {
        let (scaled, unit) = if value < 1e-3 { (value * 1e6, "us") } else { (value * 1e3, "ms") };
        return format!("{scaled:.2} {unit}");
    }
    let (digits, prefix) = significant(value);
    let is_symbol = ["B", "bit", "s"].contains(&unit.split('/').next().unwrap_or(unit));
    match (is_symbol, prefix) {
        (true, prefix) => format!("{digits} {prefix}{unit}"),
        (false, "") => format!("{digits} {unit}"),
        (false, prefix) => format!("{digits} {prefix} {unit}"),
    }
}

/// Four significant digits, and the metric prefix that they need.
fn significant(value: f64) -> (String, &'static str) {
    let (scaled, prefix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let decimals = match scaled.abs() {
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    (format!("{scaled:.decimals$}"), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_units_of_the_field() {
        assert_eq!(quantity(31.61e9, "B/s"), "31.61 GB/s");
        assert_eq!(quantity(13.9e6, "packets/s"), "13.90 M packets/s");
        assert_eq!(quantity(12.5, "packets/s"), "12.50 packets/s");
        assert_eq!(quantity(2.5e6, "B"), "2.500 MB");
        assert_eq!(quantity(15.8e-6, "s"), "15.80 us");
        assert_eq!(quantity(26.2e-3, "s"), "26.20 ms");
    }

    #[test]
    fn a_peer_that_is_faster_is_said_to_be() {
        let mut result = Measurement::new("x", 7.0, "B/s", String::new(), "");
        result.beside("theirs", 10.0);
        assert_eq!(beside(&result), "theirs: 10.00 B/s, ours 0.700 of that");
        result.beside("theirs", 3.5);
        assert_eq!(beside(&result), "theirs: 3.500 B/s, ours 2.000 times that");
    }
}
