//! `lastmeter bench forward`: what forwarding costs this kernel, by sampling.

use crate::attempts::{attempt, in_time};
use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn a_134_ip_is_the_smaller_part_of_forwarding_a_packet() {
    attempt(shares).settle();
}

fn shares() {
    let output = Command::new(env!("CARGO_BIN_EXE_lastmeter"))
        .args(["bench", "forward", "--quick", "--json"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if ["making network namespaces", "samples the kernel", "`ip`"]
        .iter()
        .any(|why| said.contains(why))
    {
        println!("SKIP: {said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let value = |name: &str| {
        let line = lines.iter().find(|line| line["bench"] == name);
        line.unwrap_or_else(|| panic!("no {name} in {text}"))["value"].as_f64().unwrap()
    };
    let parts = ["forward/ip", "forward/devices", "forward/buffers", "forward/rest"];
    let sum: f64 = parts.iter().map(|part| value(part)).sum();
    let all = value("forward/packet");
    assert!((sum / all - 1.0).abs() < 1e-9, "the parts are the whole: {text}");
    // A hundred nanoseconds to some tens of microseconds: else the packets were not forwarded, or not sampled.
    in_time!((1e-7..5e-5).contains(&all), "{text}");
    assert!(value("forward/ip") > 0.0 && value("forward/devices") > 0.0, "{text}");
    in_time!(value("forward/ip-share") < 0.5, "IP is not the smaller part: {text}");
    assert!(text.contains("ANA §3.1"), "what was published stands beside: {text}");
}
