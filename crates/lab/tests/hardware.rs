//! An adapter's control in Verilog compared with its model (E-130): the same messages through both.
//!
//! Needs Debian's iverilog; without it the test is skipped with a message.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use lastmeter_base::{Bytes, Duration};
use lastmeter_host::adapter::description::Description;
use lastmeter_host::adapter::hardware::{Bench, Needs, verilog};
use lastmeter_host::adapter::pipeline::run;
use lastmeter_host::adapter::transmitter::Variation;
use lastmeter_lab::library::Builtin;
use lastmeter_lab::profile::device::read;
use std::path::PathBuf;
use std::process::Command;

/// Hand-overs of a message from one stage to the next, from the host and back to it.
const HAND_OVERS: u64 = 8;

/// The mean time from one message to the next that the bench prints; `None` without a simulator.
fn simulated(name: &str, card: &Description, bench: &Bench) -> Option<Duration> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join(format!("{name}.v")), folder.join(format!("{name}.vvp")));
    std::fs::write(&source, verilog(card, bench).unwrap()).unwrap();
    let compiler = Command::new("iverilog")
        .args(["-g2005", "-s", "bench_card", "-o"])
        .args([&program, &source])
        .output();
    let Ok(compiled) = compiler else {
        println!("SKIP: iverilog is not installed");
        return None;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = Command::new("vvp").arg(&program).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let mean = text.lines().find_map(|line| line.trim().parse().ok());
    Some(Duration::from_ps(mean.unwrap_or_else(|| panic!("{name}: {text}"))))
}

/// Both times, and the tolerance: a whole cycle for each activity and each hand-over.
fn beside(name: &str, card: &Description, bench: Bench) -> Option<(Duration, Duration)> {
    let theirs = simulated(name, card, &bench)?;
    let messages = bench.messages as usize;
    let ours = run(card, bench.len, (bench.depth, messages), Variation::None, 1).mean;
    let most = bench.period * HAND_OVERS;
    assert!(theirs + most >= ours && theirs <= ours + most, "{name}: {theirs} beside {ours}");
    Some((theirs, ours))
}

#[test]
fn e_130_the_control_of_the_cim_in_verilog_takes_the_times_of_its_equations() {
    let cim = read("cim", &Builtin).unwrap();
    let period = Duration::from_us(2);
    let bench = Bench { len: Bytes(4096), depth: 1, messages: 11, period };
    // Eqs 5.2, 5.5 and 5.6, as printed (E-65, E-68, E-75).
    let two_banks = cim.with_two_banks();
    for (name, card, depth, published) in [
        ("cim-1", &cim, 1, 4538.0),
        ("cim-2", &cim, 2, 2808.0),
        ("cim-banks", &two_banks, 3, 1748.0),
    ] {
        let Some((theirs, _)) = beside(name, card, Bench { depth, ..bench }) else { return };
        let us = theirs.as_ps() as f64 / 1e6;
        assert!((us / published - 1.0).abs() < 0.01, "{name}: {us} beside {published}");
    }
}

#[test]
fn e_130_a_modern_card_takes_the_stated_cycles() {
    let mut card = read("pcie4", &Builtin).unwrap();
    let bench = Bench { len: Bytes(64), depth: 16, messages: 200, period: Duration::from_ns(4) };
    // Interface and transfer in parallel, and a bus that takes no time: the network limits.
    card.queueing.stages = 3;
    card.transfer.pcie = None;
    let needs = Needs::of(&card, bench.len, bench.period);
    let Some(theirs) = simulated("pcie4", &card, &bench) else { return };
    assert_eq!((theirs, needs.taken), (bench.period * needs.taken, 3));
}

/// Each discipline, with transfers that are not pre-empted, and with stages that take turns.
#[test]
fn e_130_every_bundled_adapter_in_verilog_takes_its_models_time() {
    for (name, len, messages, period) in [
        ("cim", 512, 20, Duration::from_us(5)),
        ("disk", 8192, 20, Duration::from_us(50)),
        ("simple-nic", 1500, 30, Duration::from_ns(1)),
    ] {
        let card = read(name, &Builtin).unwrap();
        for stages in [1, 2, 3] {
            for depth in [1, 3] {
                let mut card = card.clone();
                card.queueing.stages = stages;
                let bench = Bench { len: Bytes(len), depth, messages, period };
                if beside(&format!("{name}-{stages}-{depth}"), &card, bench).is_none() {
                    return;
                }
            }
        }
    }
}
