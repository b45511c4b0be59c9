//! Benchmarks on real sockets that a model predicts.
//!
//! The helpers are this program run again, so it has its own `main`. Needs network namespaces: without the rights it
//! prints `SKIP:` and why. What other programs disturb at every attempt is reported as `UNDECIDED:`.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, reason = "a test")]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;
#[path = "live/plugpoints.rs"]
mod plugpoints;
#[path = "live/tune.rs"]
mod tune;

use lastmeter_live::site::Site;

fn main() {
    lastmeter_live::worker::enter_if_asked(&lastmeter_bench::TASKS);
    if let Err(e) = Site::apart(&["host".to_owned()]) {
        println!("SKIP: hosts in namespaces: {e}");
        return;
    }
    attempts::run_all(TESTS);
}

const TESTS: &[(&str, fn())] = &[
    (
        "a_03_a_packet_costs_what_the_model_predicts_from_shorter_ones",
        plugpoints::a_03_a_packet_costs_what_the_model_predicts_from_shorter_ones,
    ),
    (
        "e_28_the_tuner_finds_the_published_operating_point_on_real_sockets",
        tune::e_28_the_tuner_finds_the_published_operating_point_on_real_sockets,
    ),
];
