//! A router that is offered up to ten times what it can forward. Needs root, `ip`, `ethtool`, two cores.
//!
//! Rows: E-133.

use super::PROGRAM;
use super::attempts::{Outcome, attempt, in_time};
use serde_json::Value;
use std::process::{Command, Stdio};

/// What is left at ten times the highest rate: set before the first run, by what the router is to do.
const LEFT: f64 = 0.95;

#[test]
fn a_router_forwards_as_much_when_it_is_offered_ten_times_as_much_e_133() {
    match attempt(overloaded) {
        Outcome::Passed => {}
        Outcome::Undecided(words) => println!("UNDECIDED: {words}"),
        Outcome::Failed(words) => panic!("{words}"),
    }
}

fn overloaded() {
    let output = Command::new(PROGRAM)
        .args(["router", "bench", "router/overload", "--quick", "--json"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let lacks = ["not permitted", "is it installed", "failed to set pid"];
    if !output.status.success() && lacks.iter().any(|words| said.contains(words)) {
        return println!("SKIP: {said}");
    }
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let at = |times: u32| {
        let name = format!("router/overload@{times}x");
        let line = lines.iter().find(|line| line["bench"] == name.as_str());
        let line = line.unwrap_or_else(|| panic!("no {name}"));
        println!("{name}: {} of peak, {}", line["value"], line["note"]);
        line["value"].as_f64().unwrap()
    };
    let shares = [1, 2, 5, 10].map(at);
    assert!(shares.iter().all(|share| *share >= 0.0 && *share <= 1.0), "{shares:?}");
    in_time!(shares[3] >= LEFT, "{shares:?}");
}
