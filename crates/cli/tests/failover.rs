//! `lastmeter bench failover`: hosts on two networks, in which links and switches fail (N-47, N-48).

use crate::attempts::{attempt, in_time};
use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn n_47_n_48_every_single_failure_is_survived_and_noticed_within_the_models_bound() {
    attempt(every_failure).settle();
}

fn every_failure() {
    if Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_err() {
        println!("SKIP: `ip` is not installed");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_lastmeter"))
        .args(["bench", "failover", "--quick", "--json"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("making network namespaces") {
        println!("SKIP: {said}");
        return;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed: Vec<&str> = lines.iter().map(|line| line["failed"].as_str().unwrap()).collect();
    assert_eq!(failed, ["alice-s1", "s1-a", "s1-b", "alice-ether", "a"], "{said}");
    // What a process does when others have the cores for longer than the probes wait is no failure.
    const SLACK: f64 = 0.1;
    for line in &lines {
        in_time!(line["survived"] == true, "{line}");
        in_time!(line["changed"] == line["expected"], "{line}");
        let (silent, bound) = (line["silent"].as_f64().unwrap(), line["bound"].as_f64().unwrap());
        in_time!(silent <= bound + SLACK, "{line}");
        let changes = !line["expected"].as_array().unwrap().is_empty();
        // Three probes go unanswered, of which the first may have been sent just before the failure.
        let (interval, of) = if bound > 0.1 { (0.1, "hosts") } else { (0.02, "switches") };
        if changes {
            assert!(silent > 2.0 * interval, "{of} cannot know so early: {line}");
        }
    }
}
