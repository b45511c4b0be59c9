//! How many instructions a packet-hop takes: a limit on the engine's work that other programs cannot disturb.
//!
//! The program runs itself under valgrind, for two durations; what both do once cancels out. `docs/speed.md` says where
//! the instructions go. It needs valgrind.
//!
//! `instructions EXPERIMENT MILLISECONDS` only runs an experiment and prints its packet-hops.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use lastmeter_base::Duration;
use lastmeter_engine::Serial;
use lastmeter_lab::build::Changes;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{self, Builtin};
use lastmeter_lab::run::{RunOptions, prepare};
use std::process::Command;

/// Experiments with two durations in milliseconds, and the limit for a packet-hop in the build of the tests, with all
/// checks on: 855 and 1984 on 29 November 2026, and room for builds in which less is inlined.
const LIMITS: [(&str, [u64; 2], u64); 2] =
    [("chain", [40, 100], 1100), ("dumbbell", [500, 1000], 2400)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, duration] = &arguments[..] {
        println!("{}", hops(name, duration.parse().unwrap()));
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIP: valgrind is not installed");
        return;
    }
    for (name, durations, limit) in LIMITS {
        let [short, long] = durations.map(|duration| counted(name, duration));
        let each = (long.0 - short.0) / (long.1 - short.1);
        println!("{name}: {each} instructions a packet-hop, at most {limit}");
        assert!(
            each <= limit,
            "{name} takes {each} instructions a packet-hop; the limit is {limit}"
        );
    }
}

/// The instructions of a run, and its packet-hops.
fn counted(name: &str, duration: u64) -> (u64, u64) {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(std::env::current_exe().unwrap()).args([name, &duration.to_string()]);
    let output = valgrind.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, instructions) =
        collected.unwrap_or_else(|| panic!("callgrind counted nothing: {said}"));
    let hops = String::from_utf8_lossy(&output.stdout);
    (instructions.trim().parse().unwrap(), hops.trim().parse().unwrap())
}

/// Packets served by queues in a run of this many milliseconds.
fn hops(name: &str, duration: u64) -> u64 {
    let text = library::experiment(name).unwrap();
    let mut experiment = Experiment::parse(name, text, &[], &Builtin).ok().unwrap();
    experiment.duration = Duration::from_ms(duration);
    let options = RunOptions { threads: 1, shuffle_ties: 0, collecting: true };
    let mut prepared = prepare(&experiment, &Changes::NONE, options, &Builtin).ok().unwrap();
    prepared.run(&Default::default(), &Serial).ok().unwrap();
    let outcome = prepared.finish().ok().unwrap();
    let counters = outcome.elements.iter().flat_map(|element| &element.counters);
    counters.filter(|(name, _)| *name == "served").map(|(_, count)| count).sum()
}
