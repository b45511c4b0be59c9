//! Experiments from text to outcome.

#![allow(clippy::unwrap_used, reason = "a test")]

use lastmeter_base::Time;
use lastmeter_engine::{Outcome, VirtualClock};
use lastmeter_lab::build::{Changes, build};
use lastmeter_lab::document::{Override, Problem};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Builtin;

const TWO_HOSTS: &str = r#"
title = "Two hosts and a router"
duration = "100 ms"
[nodes]
alice = { host = {} }
r1 = { router = {} }
bob = { host = {} }
[[links]]
between = ["alice", "r1", "bob"]
rate = "1 Gbit/s"
delay = "1 ms"
queue = { drop-tail = { packets = 200 } }
[[traffic]]
name = "bulk"
from = "alice"
to = "bob"
constant = { rate = "18 Mbit/s", size = "1500 B" }
"#;

fn parse(text: &str, overrides: &[&str]) -> Result<Experiment, Vec<Problem>> {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    Experiment::parse("experiment.toml", text, &overrides, &Builtin)
}

fn run(experiment: &Experiment, changes: &Changes) -> Outcome {
    let built = build(experiment, changes, &Builtin).unwrap();
    let mut engine = built.graph.build(1).unwrap();
    engine.run_until(built.end, &mut VirtualClock::default()).unwrap();
    engine.finish().unwrap()
}

fn shown(problems: Vec<Problem>) -> String {
    problems.iter().map(|problem| format!("{}\n", problem.render(false))).collect()
}

#[test]
fn two_hosts_run_from_text_to_balanced_books() {
    let experiment = parse(TWO_HOSTS, &[]).map_err(shown).unwrap();
    let outcome = run(&experiment, &Changes::NONE);
    assert_eq!(outcome.now, Time::START + experiment.duration);
    let stages: Vec<&str> = outcome.stages.iter().map(|stage| stage.name.as_str()).collect();
    let names =
        ["alice->r1 propagation", "alice->r1 transmit", "r1->bob propagation", "r1->bob transmit"];
    assert_eq!(stages, names);
    assert_eq!(outcome.resources[0].name, "alice->r1");
    assert_eq!(
        (outcome.paths[0].name.as_str(), outcome.paths[0].class.as_str()),
        ("alice->bob", "bulk")
    );
    // 18 Mbit/s are a packet every 666.7 us: 150 in 100 ms, the last three still on their way.
    assert_eq!(outcome.books.made, 150);
    assert_eq!(outcome.books.delivered, 147);
    let latency = outcome.books.paths[0].latency.mean();
    assert!((latency - 2.024e-3).abs() < 1e-12, "{latency}");
}

fn served(outcome: &Outcome) -> u64 {
    let counters = outcome.elements.iter().flat_map(|element| &element.counters);
    counters.filter(|(name, _)| *name == "served").map(|(_, count)| count).sum()
}

#[test]
fn the_chain_of_fifty_flows_serves_what_it_should() {
    let text = include_str!("../../../experiments/chain/experiment.toml");
    let outcome = run(&parse(text, &[]).map_err(shown).unwrap(), &Changes::NONE);
    println!("{} {} {}", served(&outcome), outcome.books.delivered, outcome.handled);
}

#[test]
fn mm1_and_the_tandem_agree_with_theory() {
    let cases = [
        (include_str!("../../../experiments/mm1/experiment.toml"), 5e-6),
        (include_str!("../../../experiments/tandem/experiment.toml"), 50e-6),
    ];
    for (text, time) in cases {
        let outcome = run(&parse(text, &[]).map_err(shown).unwrap(), &Changes::NONE);
        let mean = outcome.books.paths[0].latency.mean();
        println!("{mean} {}", outcome.books.delivered);
        assert!((mean / time - 1.0).abs() < 0.05, "{mean} s instead of {time} s");
    }
}
