//! Striping of real packets (A-59): whoever takes part, a stream stays in order over channels with different delays.

use super::{flood, go, in_time, options, parse};
use lastmeter::emulate::{Options, Report};
use lastmeter_live::site::Kind;

const TRUNK: &str = r#"
title = "Stripes between two hosts"
duration = "600 ms"
[nodes]
alice = { host = { live = true } }
bob = { host = { live = true } }
[nodes.trunk.striped-trunk]
stripes = 4
rate = "20 Mbit/s"
delay = "1 ms"
skew = "2 ms"
marker-every = 16
host-time = "20 us"
network-time = "10 us"
[[links]]
between = ["alice", "trunk", "bob"]
"#;

/// Frames that left for bob after one that alice had sent later, and all that left.
fn overtaken(report: &Report) -> (usize, usize) {
    let mut latest = 0;
    let sent = report.measured.departures[1].iter().map(|one| one.seq);
    let behind = sent.filter(|&seq| {
        latest = latest.max(seq);
        seq < latest
    });
    (behind.count(), report.measured.departures[1].len())
}

fn striped(sets: &[&str]) -> Report {
    let flood = Some(flood(1_500.0, 1000, 0.3));
    go(&parse(TRUNK, sets), &Options { flood, ..options(Kind::Packet) })
}

pub(super) fn a_59_whoever_takes_part_real_packets_stay_in_order() {
    let plain = striped(&["nodes.trunk.striped-trunk.synchronise=none"]);
    let (behind, all) = overtaken(&plain);
    println!("  nobody restores the order: {behind} of {all} frames were overtaken");
    in_time!(all > 200, "{all} frames");
    in_time!(behind > 50, "skew alone reorders: {behind} of {all}");
    for (who, works) in [
        ("network", ["trunk nodes"].as_slice()),
        ("hosts", &["trunk hosts"]),
        ("both", &["trunk hosts", "trunk nodes"]),
    ] {
        let report = striped(&[&format!("nodes.trunk.striped-trunk.takes-part={who}")]);
        let (behind, all) = overtaken(&report);
        let busy = report.ledger.resources.iter().filter(|one| one.kind == "cpu" && one.busy > 0.0);
        let mut busy: Vec<&str> = busy.map(|one| one.name.as_str()).collect();
        busy.sort_unstable();
        println!("  {who:>7}: {behind} of {all} frames were overtaken; at work: {busy:?}");
        in_time!(all > 200, "{all} frames");
        assert_eq!(behind, 0, "{who}");
        assert_eq!(busy, works, "{who}");
        let twin = report.twin.unwrap();
        assert!(twin.order_identical && twin.early == 0 && twin.changed == 0, "{twin:?}");
    }
}
