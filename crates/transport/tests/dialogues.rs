//! One end of a connection: what arrives, and what it must answer.

use crate::common::dialogue::{open, plain, play};
use lastmeter_base::Bytes;
use lastmeter_transport::tcp::control::Kind;
use lastmeter_transport::tcp::{Config, Lingering};

#[test]
fn opens_and_closes_first_and_lingers_for_twice_the_life_of_a_segment() {
    let script = "
        state ESTABLISHED
        close
        > FIN 1:1 ack 1
        state FIN_WAIT_1
        < ack 2
        state FIN_WAIT_2
        < FIN 1:1 ack 2
        > ack 2
        state TIME_WAIT
        @ 1000
        < FIN 1:1 ack 2         # Our last acknowledgement was lost: the time begins again.
        > ack 2
        @ 60500
        state TIME_WAIT
        @ 61000
        state CLOSED
        ended Done
    ";
    play(plain(), &open(script));
}

#[test]
fn closes_last() {
    let script = "
        listen
        < SYN mss 1000
        > SYN ack 1
        < ack 1
        state ESTABLISHED
        < FIN 1:1 ack 1
        > ack 2
        state CLOSE_WAIT
        write 500
        > 1:501 ack 2
        close
        > FIN 501:501 ack 2
        state LAST_ACK
        < ack 502
        state CLOSED
        ended Done
    ";
    play(plain(), script);
}

#[test]
fn both_open_at_once() {
    let script = "
        connect
        > SYN
        < SYN mss 1000
        > SYN ack 1
        state SYN_RECEIVED
        < ack 1
        state ESTABLISHED
    ";
    play(plain(), script);
}

#[test]
fn both_close_at_once() {
    let script = "
        close
        > FIN 1:1 ack 1
        < FIN 1:1 ack 1
        > ack 2
        state CLOSING
        < ack 2
        state TIME_WAIT
    ";
    play(plain(), &open(script));
}

#[test]
fn a_syn_is_retransmitted_and_finally_given_up() {
    let script = "
        connect
        > SYN
        @ 1000
        > SYN
        @ 3000
        > SYN
        @ 7000
        state CLOSED
        ended TimedOut
    ";
    play(Config { retries_opening: 2, ..plain() }, script);
}

#[test]
fn a_refused_connection_is_closed() {
    let script = "
        connect
        > SYN
        < RST ack 1
        state CLOSED
        ended Refused
    ";
    play(plain(), script);
}

#[test]
fn a_reset_counts_only_with_the_exact_number() {
    let script = "
        < RST 5000:5000         # In the window: asked about (RFC 5961 3.2).
        > ack 1
        state ESTABLISHED
        < RST 90000:90000       # Outside: nothing.
        < RST 1:1
        state CLOSED
        ended Reset
    ";
    play(plain(), &open(script));
}

#[test]
fn what_belongs_to_no_connection_is_reset() {
    let script = "
        listen
        < 1:1 ack 77
        > RST 77:77
        state LISTEN
    ";
    play(plain(), script);
}

#[test]
fn a_syn_within_a_connection_is_challenged() {
    let script = "
        < SYN 500:500
        > ack 1
        state ESTABLISHED
    ";
    play(plain(), &open(script));
}

#[test]
fn an_acknowledgement_of_more_than_was_sent_is_corrected() {
    let script = "
        < ack 5000
        > ack 1
        state ESTABLISHED
    ";
    play(plain(), &open(script));
}

#[test]
fn every_second_segment_is_acknowledged_or_one_after_a_delay() {
    let script = "
        < 1:1001 ack 1
        < 1001:2001 ack 1
        > ack 2001
        < 2001:3001 ack 1
        @ 139
        @ 140
        > ack 3001
    ";
    play(plain(), &open(script));
}

#[test]
fn out_of_order_data_is_reported_at_once_with_the_latest_block_first() {
    let config = Config { sack: true, ..plain() };
    let script = "
        listen
        < SYN mss 1000 sackok
        > SYN ack 1
        < ack 1
        < 1001:2001 ack 1
        > ack 1 sack 1001:2001
        < 3001:4001 ack 1
        > ack 1 sack 3001:4001 1001:2001
        < 5001:6001 ack 1
        > ack 1 sack 5001:6001 3001:4001 1001:2001
        < 2001:3001 ack 1
        > ack 1 sack 1001:4001 5001:6001
        < 1:1001 ack 1
        > ack 4001 sack 5001:6001
        < 4001:5001 ack 1
        > ack 6001
    ";
    play(config, script);
}

#[test]
fn repeated_data_is_acknowledged_again_and_not_delivered_twice() {
    let tcp = play(
        plain(),
        &open(
            "
        < 1:1001 ack 1
        < 1:1001 ack 1
        > ack 1001
        < 501:1501 ack 1
        < 1501:2501 ack 1
        > ack 2501
    ",
        ),
    );
    assert_eq!(tcp.readable(), 2500);
}

#[test]
fn the_window_closes_and_its_opening_is_announced_when_large_enough() {
    let config = Config { receive_buffer: Bytes(2500), ..plain() };
    let script = "
        < 1:1001 ack 1
        < 1001:2001 ack 1
        > ack 2001 win 500
        < 2001:2501 ack 1
        @ 140
        > ack 2501 win 0
        < 2501:2502 ack 1       # Beyond the window.
        > ack 2501 win 0
        read 400                # Not worth a segment.
        read 600
        > ack 2501 win 1000
    ";
    play(config, &open(script));
}

#[test]
fn a_closed_window_is_probed_at_growing_intervals() {
    let script = "
        < ack 1 win 0
        write 2000
        @ 400                   # RTO: 100 + 4 * 50 ms.
        > 0:0 ack 1
        < ack 1 win 0
        @ 1000
        > 0:0 ack 1
        < ack 1 win 5000
        > 1:2001 ack 1 each 1000
    ";
    play(plain(), &open(script));
}

#[test]
fn a_dead_peer_with_a_closed_window_ends_the_connection() {
    let script = "
        < ack 1 win 0
        write 2000
        @ 400
        > 0:0 ack 1
        @ 1000
        > 0:0 ack 1
        @ 2200
        state CLOSED
        ended TimedOut
    ";
    play(Config { retries: 2, ..plain() }, &open(script));
}

#[test]
fn a_small_segment_waits_for_the_one_before_it_unless_told_otherwise() {
    let script = "
        write 1300
        > 1:1001 ack 1          # 300 bytes wait (Nagle).
        @ 200
        < ack 1001
        > 1001:1301 ack 1
    ";
    play(plain(), &open(script));
    let script = "
        write 1300
        > 1:1001 ack 1
        > 1001:1301 ack 1
    ";
    play(Config { nagle: false, ..plain() }, &open(script));
}

#[test]
fn marks_are_echoed_until_the_window_has_been_reduced() {
    let config = Config { ecn: true, initial_window: 4, ..plain() };
    let script = "
        connect
        > SYN ECE CWR
        @ 100
        < SYN ECE ack 1 mss 1000
        > ack 1
        write 9000
        > 1:1001 ack 1 ect
        > 1001:2001 ack 1 ect
        > 2001:3001 ack 1 ect
        > 3001:4001 ack 1 ect
        @ 200
        < ECE ack 2001
        window 2000
        < ECE ack 4001          # Of the same window.
        window 2000
        > CWR 4001:5001 ack 1 ect
        > 5001:6001 ack 1 ect
    ";
    play(config.clone(), script);
    let script = "
        listen
        < SYN ECE CWR mss 1000
        > SYN ECE ack 1
        < ack 1
        < 1:1001 ack 1 ce
        < 1001:2001 ack 1
        > ECE ack 2001
        < CWR 2001:3001 ack 1
        < 3001:4001 ack 1
        > ack 4001
    ";
    play(config, script);
}

#[test]
fn dctcp_echoes_each_mark_exactly() {
    let config = Config { ecn: true, control: Kind::Dctcp, ..plain() };
    let script = "
        listen
        < SYN ECE CWR mss 1000
        > SYN ECE ack 1
        < ack 1
        < 1:1001 ack 1
        < 1001:2001 ack 1 ce    # What came before was not marked (RFC 8257 3.2).
        > ack 1001
        < 2001:3001 ack 1 ce
        > ECE ack 3001
        < 3001:4001 ack 1 ce
        < 4001:5001 ack 1
        > ECE ack 4001
    ";
    play(config, script);
}

#[test]
fn old_timestamps_are_refused() {
    let config = Config { timestamps: true, ..plain() };
    let script = "
        connect
        > SYN
        @ 100
        < SYN ack 1 mss 1012 ts
        > ack 1
        @ 200
        < 1:1001 ack 1
        < old 1001:2001 ack 1   # RFC 7323 5.3: of another life.
        > ack 1001
        < 1001:2001 ack 1
        < 2001:3001 ack 1
        > ack 3001
    ";
    play(config, script);
}

/// N-74: the client resets the server and lingers in its place.
#[test]
fn the_shift_takes_over_time_wait_from_the_server() {
    let config = Config { lingering: Lingering::Shift, ..plain() };
    let script = "
        < FIN 1:1 ack 1
        > ack 2
        close
        > FIN 1:1 ack 2
        < ack 2
        > RST 2:2 ack 2
        state TIME_WAIT
    ";
    play(config, &open(script));
    let script = "
        listen
        < SYN mss 1000
        > SYN ack 1
        < ack 1
        close
        > FIN 1:1 ack 1
        < ack 2
        < FIN 1:1 ack 2
        > ack 2
        state TIME_WAIT
        < RST 2:2
        state CLOSED
        ended Done
    ";
    play(plain(), script);
}

/// N-74: agreed in the handshake, the server is free although it closed first.
#[test]
fn the_negotiation_leaves_time_wait_with_the_client() {
    let config = Config { lingering: Lingering::Negotiate, ..plain() };
    let script = "
        listen
        < SYN mss 1000 lingers
        > SYN ack 1
        < ack 1
        close
        > FIN 1:1 ack 1
        < ack 2
        < FIN 1:1 ack 2
        > ack 2
        state CLOSED
        ended Done
    ";
    play(config.clone(), script);
    let script = "
        connect
        > SYN
        < SYN ack 1 mss 1000 lingers
        > ack 1
        < FIN 1:1 ack 1
        > ack 2
        close
        > FIN 1:1 ack 2
        < ack 2
        state TIME_WAIT
    ";
    play(config, script);
}

/// RFC 5681 §3.1 and RFC 6298 §5.7.
#[test]
fn after_a_lost_syn_the_window_is_one_segment_and_the_timer_three_seconds() {
    let script = "
        connect
        > SYN
        @ 1000
        > SYN
        @ 1100
        < SYN ack 1 mss 1000
        > ack 1
        window 1000
        write 3000
        > 1:1001 ack 1
        @ 4100
        > 1:1001 ack 1
    ";
    play(Config { initial_window: 10, ..plain() }, script);
}

#[test]
fn the_first_segment_may_be_acknowledged_at_once() {
    let script = "
        listen
        < SYN mss 1000
        > SYN ack 1
        < ack 1
        < 1:1001 ack 1
        > ack 1001
        < 1001:2001 ack 1
        < 2001:3001 ack 1
        > ack 3001
    ";
    play(Config { acknowledge_first: true, acknowledge_every: 2, ..plain() }, script);
}

#[test]
fn the_handshake_may_be_acknowledged_without_data() {
    let opening = "
        connect
        > SYN
        write 500
        < SYN ack 1 mss 1000
    ";
    let together = [opening, "> 1:501 ack 1"].concat();
    play(plain(), &together);
    let apart = [opening, "> ack 1\n> 1:501 ack 1"].concat();
    play(Config { acknowledge_opening: true, ..plain() }, &apart);
}
