//! Adapters as nodes, compared with the equations of their description.

use crate::build::{Changes, build};
use crate::document::Override;
use crate::experiment::Experiment;
use crate::library::Builtin;
use lastmeter_engine::{Outcome, Serial};

/// The example on the page with an override; the engine checks the books.
fn run(sets: &[&str]) -> Outcome {
    let text = lastmeter_host::adapter::element::PAGE.example;
    let sets: Vec<Override> = sets.iter().filter_map(|set| Override::parse(set).ok()).collect();
    let shown = |problems: Vec<crate::document::Problem>| {
        problems.iter().map(|problem| problem.render(false)).collect::<String>()
    };
    let experiment = Experiment::parse("x.toml", text, &sets, &Builtin);
    let experiment = experiment.unwrap_or_else(|problems| panic!("{}", shown(problems)));
    let built = build(&experiment, &Changes::NONE, &Builtin);
    let built = built.unwrap_or_else(|problems| panic!("{}", shown(problems)));
    let end = built.end;
    let mut engine = built.graph.build(1).unwrap_or_else(|error| panic!("{error}"));
    let ran = engine.run_parallel(end, &Default::default(), &Serial);
    ran.unwrap_or_else(|error| panic!("{error}"));
    engine.finish().unwrap_or_else(|error| panic!("{error}"))
}

fn count(outcome: &Outcome, counter: &str) -> u64 {
    let card = outcome.elements.iter().find(|report| report.name == "card");
    let counters = card.map_or(&[][..], |report| &report.counters);
    counters.iter().find(|(name, _)| *name == counter).map_or(0, |&(_, count)| count)
}

#[test]
fn e_65_a_saturated_cim_sends_a_message_each_2808_microseconds() {
    // Eq 5.5 at 4 KB, over 200 ms less the first message's latency.
    let sent = count(&run(&[]), "sent");
    assert!((69..=71).contains(&sent), "{sent}");
    let fast = count(&run(&["nodes.card.adapter.banks=2"]), "sent");
    assert!((86..=88).contains(&fast), "half of Eq 5.2, 2269 us: {fast}");
}

#[test]
fn e_46_messages_without_a_buffer_are_dropped_as_described() {
    let modern = [
        "duration=20 us",
        "nodes.card.adapter.device=pcie4",
        "nodes.card.adapter.depth=1024",
        "traffic.messages.constant.size=1500 B",
        "traffic.messages.constant.rate=4 Tbit/s",
    ];
    let outcome = run(&modern);
    assert!(count(&outcome, "dropped") > 1000, "{}", count(&outcome, "dropped"));
    // 8 MiB on the CIM.
    let long = [
        "nodes.card.adapter.device=cim",
        "traffic.messages.constant.size=9 MiB",
        "traffic.messages.constant.rate=10 Gbit/s",
    ];
    let outcome = run(&long);
    assert!(count(&outcome, "sent") == 0 && count(&outcome, "dropped") > 10);
}
