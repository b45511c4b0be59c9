//! The layers of live runs (A-42, A-68, A-115): the function of each stage and its share of the time as in the model,
//! the jitter that each adds, and the buffers of hosts and of a switch as one chain.

use super::{flood, go, in_time, is_installed, options, parse, shell};
use lastmeter::emulate::Options;
use lastmeter_ledger::Ledger;
use lastmeter_ledger::layers::{Function, Layer, by_function, chain, layers};
use lastmeter_linux::port::Offload;
use lastmeter_live::site::Kind;
use std::process::Command;

/// Two workstations with VudBoards, whose boards send 67 Mbit/s, and a switch whose output takes half of that and has
/// room for 256 packets.
const SITE: &str = r#"
title = "Layers"
duration = "800 ms"
[nodes]
alice = { host = { live = true, profile = "dec3000-800", adapter = "vudboard" } }
switch = { router = {} }
bob = { host = { live = true, profile = "dec3000-800", adapter = "vudboard" } }
[[links]]
between = ["alice", "switch"]
rate = "428.5 Mbit/s"
queue = { drop-tail = { packets = 256 } }
[[links]]
between = ["switch", "bob"]
rate = "30 Mbit/s"
queue = { drop-tail = { packets = 256 } }
[[traffic]]
name = "questions"
from = "alice"
to = "bob"
bulk = { size = "98 B", window = 1 }
"#;

/// The layers from alice to bob.
fn of(ledger: &Ledger) -> Vec<Layer<'_>> {
    let path = ledger.paths.iter().find(|path| path.name.starts_with("alice->bob"));
    layers(ledger, path.expect("a path from alice to bob"))
}

/// The same in virtual time.
fn modelled(sets: &[&str]) -> Ledger {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.toml");
    std::fs::write(&file, SITE).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastmeter"));
    command.arg("run").arg(&file).arg("--json");
    for set in sets {
        command.args(["--set", set]);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).expect(&errors)
}

fn find<'a>(all: &'a [Layer<'a>], name: &str) -> &'a Layer<'a> {
    all.iter().find(|layer| layer.stage.name == name).expect(name)
}

/// Packets that go alone: each stage has the function and the time that it has in the model.
pub(crate) fn a_42_live_columns_are_those_of_the_model() {
    if !is_installed("ping") {
        return;
    }
    let programs = vec![shell("alice", "ping -q -c 30 -i 0.02 10.77.0.2", true)];
    let kind = Kind::Tap(Offload::None);
    let report = go(&parse(SITE, &[]), &Options { programs, ..options(kind) });
    assert_eq!(report.status, Some(0));
    let (here, model) = (of(&report.ledger), modelled(&["duration=20 ms"]));
    let there = of(&model);
    let columns = |all: &[Layer<'_>]| -> Vec<(String, Function)> {
        all.iter().map(|layer| (layer.stage.name.clone(), layer.function)).collect()
    };
    assert_eq!(columns(&here), columns(&there));
    for ((function, time), (_, expected)) in by_function(&here).into_iter().zip(by_function(&there))
    {
        println!("  {}: {:.2} us, model {:.2} us", function.name(), time * 1e6, expected * 1e6);
        assert!(time > 0.0 && expected > 0.0);
        // A few frames are shorter than a ping's: those of ARP.
        in_time!((time / expected - 1.0).abs() < 0.1, "{function:?}: {time} s, model {expected} s");
    }
    // Together they are the latency.
    let sum: f64 = by_function(&here).iter().map(|(_, time)| time).sum();
    let path = report.ledger.paths.iter().find(|path| path.name.starts_with("alice->bob")).unwrap();
    let mean = path.totals.latency.unwrap().mean;
    assert!((sum / mean - 1.0).abs() < 1e-6, "{sum} {mean}");
}

/// More than the sender's board and the switch's output can take: the packets wait in these two buffers, and the
/// sender's, which fills all the time, adds most of the jitter; live as in the model.
pub(crate) fn a_68_jitter_and_waiting_are_where_packets_queue_up() {
    // 1000 bytes 12,000 times a second are 96 Mbit/s.
    let flood = Some(flood(12_000.0, 1000, 0.4));
    let options = Options { flood, twin: false, ..options(Kind::Packet) };
    let report = go(&parse(SITE, &[]), &options);
    let traffic = "traffic.0={ name = \"flood\", from = \"alice\", to = \"bob\", \
                   poisson = { rate = \"96 Mbit/s\", size = \"1000 B\" } }";
    let model = modelled(&[traffic, "duration=400 ms"]);
    for (ledger, is_live) in [(&report.ledger, true), (&model, false)] {
        let all = of(ledger);
        for layer in &all {
            println!("  {}: {:?} s, {:?} packets", layer.stage.name, layer.jitter, layer.waiting);
        }
        let queues = ["alice page by DMA", "switch->bob transmit"].map(|name| find(&all, name));
        let waiting = queues.iter().filter_map(|layer| layer.waiting).fold(f64::INFINITY, f64::min);
        let jitter = queues[0].jitter.expect("times of every packet are known");
        let others = all.iter().filter(|layer| layer.stage.name != queues[0].stage.name);
        let most = others.filter_map(|layer| layer.jitter).fold(0.0, f64::max);
        let words = format!("live {is_live}: {jitter} s, others {most} s; {waiting} packets");
        // The machine's own lateness is not in the stages; a slow generator fills no queue.
        in_time!(jitter > 1e-3 && jitter > most && waiting > 2.0, "{words}");
        let whole = chain(&all).expect("live and modelled stages know how long packets wait");
        let sum: f64 = queues.iter().filter_map(|layer| layer.waiting).sum();
        in_time!(sum <= whole && sum > 0.8 * whole, "{sum} of {whole} packets");
    }
}
