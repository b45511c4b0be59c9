//! `lastmeter bench receive`: every way to receive, on this machine.

use crate::attempts::{attempt, in_time};
use serde_json::Value;
use std::process::{Command, Stdio};

/// The value of a line whose name begins so.
fn value(lines: &[Value], name: &str) -> f64 {
    let line = lines.iter().find(|line| line["bench"].as_str().unwrap().starts_with(name));
    line.unwrap_or_else(|| panic!("no {name}"))["value"].as_f64().unwrap()
}

#[test]
fn every_way_to_receive_gets_what_is_sent_and_no_more_e_96_to_e_106() {
    attempt(every_way).settle();
}

fn every_way() {
    let output = Command::new(env!("CARGO_BIN_EXE_lastmeter"))
        .args(["bench", "receive", "--quick", "--json"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("needs root and two cores") {
        println!("SKIP: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        let share = line["value"].as_f64().unwrap();
        // What is sent just before the window may be processed in it.
        assert!(share >= 0.0, "{line}");
        in_time!(share <= 1.3, "{line}");
    }
    let ways = [
        "softirq",
        "softirq, apart",
        "GRO",
        "threaded NAPI",
        "deferred",
        "busy polling",
        "suspended",
    ];
    let policies = [
        "interrupts, early drop",
        "continuous polling",
        "timed polling",
        "explicit management",
        "adaptive backoff",
        "lazy processing",
    ];
    // E-106: Linux's rules in our receiver.
    let today = ["coalescing", "DIM", "suspension"];
    for way in ways.iter().chain(&policies).chain(&today) {
        in_time!(value(&lines, &format!("receive/{way}@0.5")) > 0.0, "{way} received nothing");
        value(&lines, &format!("receive/{way}/cpu-left"));
    }
    // E-131: the important are lost last. E-132: whoever sends most is the one who loses.
    let flow = |way: &str, flow: u8| value(&lines, &format!("receive/{way}/flow-{flow}@"));
    let (important, other) = (flow("tags", 0), flow("tags", 1));
    in_time!(important >= other, "tags: {important} of the important, {other} of others");
    let greedy = flow("budgets", 3);
    let fair = (0..3).all(|modest| flow("budgets", modest) >= greedy);
    in_time!(fair, "budgets: {greedy} of whoever sends most, less of another");
    // E-120.
    for policy in policies {
        value(&lines, &format!("receive/two/{policy}@"));
    }
}
