//! Stages and resources state their host and role, and the source of their constants.

use crate::build::{Changes, build};
use crate::experiment::Experiment;
use crate::library::Builtin;
use lastmeter_engine::{Outcome, Place, Serial};

const TEXT: &str = r#"
duration = "10 ms"
[nodes]
s = { host = { profile = "hp9000-730", adapter = "afterburner" }, count = 2 }
in = { port-processor = { profile = "spc" } }
core = { fabric = { rate = "1 Gbit/s" } }
card = { adapter = { device = "cim" } }
d = { host = { reception = { napi = {} } } }
[[links]]
between = ["s", "in"]
card = "oc3"
[[links]]
between = ["s.1", "core"]
[[links]]
between = ["in", "core", "card", "d"]
[[traffic]]
name = "transfer"
from = "s"
to = "d"
constant = { rate = "1 Mbit/s", size = "1000 B" }
"#;

fn outcome() -> Outcome {
    let shown = |problems: Vec<crate::document::Problem>| {
        problems.iter().map(|problem| problem.render(false)).collect::<String>()
    };
    let experiment = Experiment::parse("x.toml", TEXT, &[], &Builtin);
    let experiment = experiment.unwrap_or_else(|problems| panic!("{}", shown(problems)));
    let built = build(&experiment, &Changes::NONE, &Builtin);
    let built = built.unwrap_or_else(|problems| panic!("{}", shown(problems)));
    let mut engine = built.graph.build(1).unwrap_or_else(|error| panic!("{error}"));
    let ran = engine.run_parallel(built.end, &Default::default(), &Serial);
    ran.unwrap_or_else(|error| panic!("{error}"));
    engine.finish().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_stage_and_resource_states_its_place_and_the_source_of_its_constants() {
    let outcome = outcome();
    let all = outcome.resources.iter().map(|info| (&info.name, &info.place));
    let all: Vec<_> =
        all.chain(outcome.stages.iter().map(|info| (&info.name, &info.place))).collect();
    let jetstream = Some("the document on Jetstream and Afterburner");
    let (router, thesis) = (Some("Kuhns et al."), Some("A. Indiresan, thesis"));
    let expected = [
        ("s.1.cpu", Some("s.1"), Some("s.cpu"), "cpu", jetstream),
        ("s.1.card-to-memory", Some("s.1"), Some("s.card-to-memory"), "memory", jetstream),
        ("s protocol out", Some("s"), None, "send", jetstream),
        ("s.0->in", None, Some("s->in"), "transmit", router),
        ("in pci", Some("in"), None, "pci", router),
        ("in word swap", Some("in"), None, "word swap", router),
        ("core in s.1", Some("core"), Some("core in s"), "in", None),
        ("card.network", Some("card"), None, "network", thesis),
        ("d.cpu", Some("d"), None, "cpu", None),
        ("d reception: protocol", Some("d"), None, "reception", None),
        ("d application", Some("d"), None, "application", None),
    ];
    for (name, host, group, role, source) in expected {
        let found = all.iter().find(|(known, _)| *known == name);
        let Some((_, Place { host: h, group: g, role: r, source: s })) = found else {
            panic!(
                "there is no `{name}` among {:?}",
                all.iter().map(|one| one.0).collect::<Vec<_>>()
            )
        };
        assert_eq!((h.as_deref(), g.as_deref(), *r), (host, group, Some(role)), "{name}");
        let begins =
            s.as_deref().zip(source).is_some_and(|(found, begins)| found.starts_with(begins));
        assert!(begins || (s.is_none() && source.is_none()), "{name}: {s:?}");
    }
    assert!(all.iter().all(|(_, place)| place.role.is_some()), "everything has a role");
}
