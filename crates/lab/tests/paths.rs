//! Routers that read paths beside routers with tables (N-38).

use super::reception::{run, shown};
use lastmeter_engine::Outcome;
use lastmeter_lab::build::Changes;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Builtin;

/// Two ways from west to east, of which the shorter is taken; six hosts at three of five routers.
const MESH: &str = r#"
title = "Routers"
duration = "40 ms"
[nodes]
west = { router = {} }
north = { router = {} }
middle = { router = {} }
south = { router = {} }
east = { router = {} }
a = { host = {}, count = 2 }
b = { host = {}, count = 2 }
c = { host = {}, count = 2 }
[[links]]
between = ["west", "middle", "east"]
rate = "100 Mbit/s"
delay = "1 ms"
[[links]]
between = ["west", "north", "south", "east"]
rate = "100 Mbit/s"
delay = "1 ms"
[[links]]
between = [["a", "west"], ["b", "east"], ["c", "north"]]
rate = "100 Mbit/s"
[[traffic]]
name = "there"
from = "a"
to = "b"
poisson = { rate = "5 Mbit/s", size = "500 B" }
[[traffic]]
name = "back"
from = "b"
to = "c"
poisson = { rate = "5 Mbit/s", size = "500 B" }
[[traffic]]
name = "across"
from = "c"
to = "a"
poisson = { rate = "5 Mbit/s", size = "500 B" }
"#;

fn outcome(text: &str, sets: &[&str]) -> Outcome {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
    let experiment = Experiment::parse("experiment.toml", text, &sets, &Builtin);
    run(&experiment.map_err(shown).unwrap(), &Changes::NONE)
}

fn count(outcome: &Outcome, element: &str, counter: &str) -> u64 {
    let known = outcome.elements.iter().find(|one| one.name == element).expect(element);
    known.counters.iter().find(|(name, _)| *name == counter).expect(counter).1
}

#[test]
fn n_38_routers_without_tables_deliver_what_routers_with_tables_do() {
    let tables = outcome(MESH, &[]);
    let paths = outcome(&MESH.replace("router = {}", "path-router = {}"), &[]);
    for outcome in [&tables, &paths] {
        assert_eq!(outcome.books.dropped, 0);
        assert!(outcome.books.delivered > 200, "{}", outcome.books.delivered);
    }
    // Each path takes the same routers; headers only delay what is on its way at the end.
    let forwarded = |outcome: &Outcome, name: &str| count(outcome, name, "forwarded");
    for name in ["west", "north", "middle", "south", "east"] {
        let (with, without) = (forwarded(&tables, name), forwarded(&paths, name));
        assert!(without <= with && without + 20 >= with, "{name}: {without} beside {with}");
    }
    assert_eq!(count(&paths, "middle", "paths") + count(&paths, "south", "paths"), 0);
    assert!(count(&paths, "west", "paths") > 0, "those of its hosts");
    assert!(count(&paths, "west", "header_bytes") > 0);
}
