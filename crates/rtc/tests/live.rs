//! Real-time channels between processes of this machine.
//!
//! The hosts are this program run again, so it has its own `main`. Needs network namespaces: without the rights it
//! prints `SKIP:` and why. A test that other programs disturb at every attempt prints `UNDECIDED:`.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, reason = "a test")]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;
mod channels;

use lastmeter_live::{site::Site, worker};

fn main() {
    worker::enter_if_asked(&[lastmeter_rtc::part::TASK]);
    if let Err(e) = Site::apart(&["host".to_owned()]) {
        println!("SKIP: all tests of channels between processes: {e}");
        return;
    }
    attempts::run_all(TESTS);
}

const TESTS: &[(&str, fn())] = &[
    ("channels_meet_their_deadlines_beside_best_effort", channels::well_behaved),
    ("with_a_horizon_an_idle_link_sends_early_packets", channels::horizon),
    ("a_channel_beyond_its_contract_harms_only_itself", channels::ill_behaved),
    ("a_channel_that_no_link_can_guarantee_is_refused", channels::refused),
];
