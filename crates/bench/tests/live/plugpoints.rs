//! What a packet costs at the kernel's host interfaces, beside what the model predicts from shorter ones.

use crate::attempts::{disturbed, in_time};
use lastmeter_bench::plugpoints::INTERFACES;
use lastmeter_linux::load;
use std::time::Duration;

/// Measured by predicted, or the other way round, at most: set before the first run.
const TOLERANCE: f64 = 1.5;
const LOOK: Duration = Duration::from_millis(300);

/// How often an interface is measured until the tolerance is met: others may slow the short frames, or the long ones.
const TRIES: usize = 3;

/// What arrives is compared byte by byte where it is measured.
pub(crate) fn a_03_a_packet_costs_what_the_model_predicts_from_shorter_ones() {
    let mut measured = 0;
    for interface in INTERFACES {
        let kind = interface.kind;
        let busy = || load::others(LOOK).unwrap().is_busy();
        let was_busy = busy();
        for tried in 1..=TRIES {
            let live = match interface.live(true) {
                None => break,
                Some(Ok(live)) => live,
                // AF_XDP needs root.
                Some(Err(why)) if interface.adapter == "af-xdp" => {
                    println!("SKIP: {kind}: {why:?}");
                    break;
                }
                Some(Err(why)) => panic!("{kind}: {why:?}"),
            };
            let ratio = live.ratio();
            let us = |parts: [f64; 2]| parts.map(|seconds| (seconds * 1e9).round() / 1e3);
            let (short, long) = (us(live.constants), us(live.parts));
            println!("{kind}: {short:?} us, {long:?} us, ratio {ratio:.2}");
            if ratio < TOLERANCE && ratio > 1.0 / TOLERANCE {
                measured += 1;
                break;
            }
            if tried == TRIES && (was_busy || busy()) {
                disturbed!("{kind}: {ratio}, while others use the machine");
            }
            in_time!(tried < TRIES, "{kind}: {live:?}");
        }
    }
    assert!(measured >= 3, "AF_PACKET, UDP and TCP need no more than a namespace");
}
