//! One end of a connection that loses segments: what it retransmits, and how much at once.

use crate::common::dialogue::{open, plain, play};
use lastmeter_transport::tcp::{Config, Recovery};

#[test]
fn slow_start_adds_a_segment_for_each_one_acknowledged() {
    let script = "
        write 9000
        > 1:2001 ack 1 each 1000
        @ 200
        < ack 1001
        > 2001:4001 ack 1 each 1000
        window 3000
        < ack 2001
        > 4001:6001 ack 1 each 1000
        window 4000
    ";
    play(Config { initial_window: 2, ..plain() }, &open(script));
}

#[test]
fn the_timer_doubles_and_the_window_begins_with_one() {
    let script = "
        write 3000
        > 1:3001 ack 1 each 1000
        @ 400
        > 1:1001 ack 1
        window 1000
        @ 1000
        > 1:1001 ack 1
        @ 1100
        < ack 1001
        > 1001:3001 ack 1 each 1000
    ";
    play(plain(), &open(script));
}

const FIVE: &str = "
        write 9000
        > 1:5001 ack 1 each 1000
        @ 200
";

/// Segments 1 and 3 of six are lost.
fn lossy(recovery: Recovery) -> Config {
    Config { initial_window: 5, recovery, ..plain() }
}

#[test]
fn newreno_repairs_a_hole_with_each_partial_acknowledgement() {
    play(
        lossy(Recovery::NewReno),
        &open(&format!(
            "{FIVE}
        < ack 1
        < ack 1
        < ack 1
        > 1:1001 ack 1
        window 5500             # Half of five, and three segments that have left.
        @ 300
        < ack 2001              # A part (A-165): the next hole at once.
        > 2001:3001 ack 1
        > 5001:6001 ack 1
        window 4500
        @ 400
        < ack 5001              # All but the new one.
        window 2000
        > 6001:7001 ack 1
    "
        )),
    );
}

#[test]
fn a_loss_halves_the_window_in_whole_segments_as_in_linux() {
    let config = Config { halves_window: true, ..lossy(Recovery::NewReno) };
    play(
        config,
        &open(&format!(
            "{FIVE}
        < ack 1
        < ack 1
        < ack 1
        > 1:1001 ack 1
        window 5000             # Two of five, and three segments that have left.
    "
        )),
    );
}

#[test]
fn reno_leaves_recovery_with_the_first_new_acknowledgement_and_waits_for_the_timer() {
    play(
        lossy(Recovery::Reno),
        &open(&format!(
            "{FIVE}
        < ack 1
        < ack 1
        < ack 1
        > 1:1001 ack 1
        @ 300
        < ack 2001              # The second hole is not seen: a long timeout (A-163).
        window 2500
        @ 600
        > 2001:3001 ack 1
        window 1000             # And then a window of one (A-164).
    "
        )),
    );
}

/// Only segment 1 is lost; the timer also resends what has arrived, which the peer acknowledges again.
#[test]
fn a_careful_reno_does_not_take_duplicates_of_what_the_timer_resent_for_a_loss() {
    let again = "
        > 5001:6001 ack 1
        > 7001:9001 ack 1 each 1000
    ";
    for (careful, then) in [(false, again), (true, "")] {
        play(
            Config { careful, ..lossy(Recovery::Reno) },
            &open(&format!(
                "{FIVE}
        @ 400
        > 1:1001 ack 1
        window 1000
        @ 500
        < ack 1001
        > 1001:3001 ack 1 each 1000
        @ 600
        < ack 5001
        > 5001:7001 ack 1 each 1000
        < ack 5001
        < ack 5001
        < ack 5001
        {then}
    "
            )),
        );
    }
}

#[test]
fn tahoe_starts_again_with_a_window_of_one() {
    play(
        lossy(Recovery::Tahoe),
        &open(&format!(
            "{FIVE}
        < ack 1
        < ack 1
        < ack 1
        > 1:1001 ack 1
        window 1000
        @ 300
        < ack 2001
        > 2001:4001 ack 1 each 1000
    "
        )),
    );
}

#[test]
fn sack_repairs_what_is_missing_and_nothing_else() {
    let config = Config { sack: true, initial_window: 8, ..plain() };
    let script = "
        connect
        > SYN
        @ 100
        < SYN ack 1 mss 1000 sackok
        > ack 1
        write 20000
        > 1:8001 ack 1 each 1000
        @ 200
        < ack 1 sack 1001:2001
        < ack 1 sack 1001:2001 3001:4001
        < ack 1 sack 1001:2001 3001:5001
        > 1:1001 ack 1
        window 4000
        < ack 1 sack 1001:2001 3001:6001
        > 2001:3001 ack 1
        < ack 1 sack 1001:2001 3001:7001
        > 8001:9001 ack 1
        @ 300
        < ack 2001 sack 3001:7001
        > 9001:10001 ack 1
        < ack 8001
        window 4000
        > 10001:12001 ack 1 each 1000
    ";
    play(config, script);
}

#[test]
fn after_a_timeout_what_was_already_sacked_does_not_grow_the_window_again() {
    let config = Config { sack: true, initial_window: 8, growth_max: 1000, ..plain() };
    let script = "
        connect
        > SYN
        @ 100
        < SYN ack 1 mss 1000 sackok
        > ack 1
        write 20000
        > 1:8001 ack 1 each 1000
        @ 400
        > 1:1001 ack 1
        window 1000
        @ 410
        < ack 1 sack 1001:8001
        @ 500
        < ack 8001
        window 2000             # One segment has arrived since, not eight.
        > 8001:10001 ack 1 each 1000
    ";
    play(config, script);
}

#[test]
fn without_new_data_only_what_is_below_a_block_is_resent_on_suspicion() {
    let config = Config { sack: true, initial_window: 8, ..plain() };
    let script = "
        connect
        > SYN
        @ 100
        < SYN ack 1 mss 1000 sackok
        > ack 1
        write 8000
        > 1:8001 ack 1 each 1000
        @ 200
        < ack 1 sack 1001:2001
        < ack 1 sack 1001:2001 3001:4001
        < ack 1 sack 1001:2001 3001:4001 5001:6001
        > 1:1001 ack 1
        window 4000
        < ack 1 sack 5001:7001 1001:2001 3001:4001
        > 2001:3001 ack 1
        @ 300
        < ack 2001 sack 5001:7001 3001:4001
        > 4001:5001 ack 1       # Not lost yet: rule 3 of NextSeg (RFC 6675 §4).
        @ 350
        < ack 4001 sack 5001:7001
        window 4000             # There is room, but 7001:8001 may be on the way: (1.b).
        @ next 650              # Each part has restarted the timer (RFC 6298 §5.3).
        > 4001:5001 ack 1
    ";
    play(config, script);
}

#[test]
fn limited_transmit_sends_new_data_for_the_first_two_duplicates() {
    let config = Config { limited_transmit: true, ..lossy(Recovery::NewReno) };
    play(
        config,
        &open(&format!(
            "{FIVE}
        < ack 1
        > 5001:6001 ack 1
        < ack 1
        > 6001:7001 ack 1
        < ack 1
        > 1:1001 ack 1
        window 5500
    "
        )),
    );
}

#[test]
fn with_hoe_two_duplicates_send_one_new_segment() {
    play(
        Config { one_for_two: true, ..lossy(Recovery::NewReno) },
        &open(&format!(
            "{FIVE}
        < ack 1
        < ack 1
        < ack 1
        > 1:1001 ack 1
        window 2500             # Nothing inflates it.
        < ack 1
        < ack 1
        > 5001:6001 ack 1
        < ack 1
        < ack 1
        > 6001:7001 ack 1
    "
        )),
    );
}

#[test]
fn with_hoe_no_acknowledgement_sends_more_than_a_burst() {
    //
    let script = "
        write 30000
        > 1:3001 ack 1 each 1000
        @ 200
        < ack 3001              # The window would let seven go.
        > 3001:6001 ack 1 each 1000
    ";
    play(Config { burst_max: Some(3), initial_window: 8, ..plain() }, &open(script));
}
