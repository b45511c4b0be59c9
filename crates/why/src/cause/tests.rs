//! What is said of witnesses that are made up.

use super::*;
use lastmeter_live::observe::Udp;

/// A sender whose thread waits for room on a path of 20 ms.
fn blocked() -> Witnesses {
    Witnesses {
        sends: true,
        connections: 1,
        looks: 100,
        program_looks: 100,
        seconds: 2.0,
        bytes: 1 << 24,
        bytes_each: 16e6,
        rate: 5e7,
        busy: 1.0,
        window_constant: 1.0,
        window: 1 << 20,
        not_sent: 1.0,
        rtt: 0.02,
        rtt_min: 0.02,
        out_over_in: 1000.0,
        acknowledged: 0.5,
        segments: (5000, 10_000),
        payload: 1448.0,
        segment: 1448,
        variation: Some(0.3),
        send_full: 1.0,
        send_buffer: 1 << 17,
        receive_buffer: 1 << 17,
        receive_window: 1 << 16,
        run: 0.02,
        throttled: Some(0.0),
        send: 0.97,
        not_attributed: 0.01,
        ..Witnesses::default()
    }
}

fn cause(w: Witnesses) -> Option<Cause> {
    judge(&w).cause
}

#[test]
fn few_looks_say_nothing_and_of_what_there_were_few_is_said() {
    let few = Witnesses { looks: 3, program_looks: 3, ..blocked() };
    assert!(judge(&few).words.starts_with("Only 3 looks at the connection"));
    let nothing = Witnesses { looks: 0, bytes: 0, ..few };
    assert!(judge(&nothing).words.starts_with("No TCP connection carried data"));
    let datagrams = Witnesses { datagrams: (5000.0, 100.0), ..nothing };
    assert!(judge(&datagrams).words.starts_with("Only 3 looks at the program"));
}

#[test]
fn a_send_buffer_is_too_small_only_if_all_of_it_is_in_flight() {
    assert_eq!(cause(Witnesses { not_sent: 0.0, ..blocked() }), Some(Cause::SendBuffer));
    let w = Witnesses { congestion_filled: 1.0, ..blocked() };
    assert_eq!(cause(w), Some(Cause::CongestionWindow));
}

#[test]
fn queue_loss_and_delay_are_told_apart() {
    let w = Witnesses { congestion_filled: 1.0, ..blocked() };
    let queue = Witnesses { rtt: 0.06, lost: 0.01, ..w };
    assert_eq!(cause(queue), Some(Cause::LinkRate));
    let uneven = Witnesses { lost: 0.01, variation: Some(0.6), ..w };
    assert_eq!(cause(uneven), Some(Cause::Loss));
    let capped = Witnesses { pacing_max: Some(5.1e7), ..w };
    assert_eq!(cause(capped), Some(Cause::PacingCap));
}

#[test]
fn a_sender_tells_a_slow_reader_from_a_small_buffer() {
    // 50 Mbit/s times 20 ms are 125 kB, about this window.
    let w = Witnesses { window_limited: 0.9, window: 1 << 17, ..blocked() };
    assert_eq!(cause(Witnesses { window_closed: 0.8, ..w }), Some(Cause::ReceiverSlow));
    assert_eq!(cause(w), Some(Cause::ReceiveBuffer));
    // A window that neither closes nor keeps its size may be either.
    let varies = judge(&Witnesses { window_constant: 0.3, ..w });
    assert_eq!((varies.cause, varies.confidence), (None, Confidence::Undecided));
    assert!(varies.words.contains("only the receiver's side"), "{}", varies.words);
    // One that keeps its size, of which two thirds arrive each shortest round trip, waits somewhere.
    let waits = judge(&Witnesses { window: 186_000, ..w });
    assert_eq!((waits.cause, waits.elsewhere), (None, true));
    assert!(waits.words.contains("a link is full"), "{}", waits.words);
}

#[test]
fn a_program_that_computes_does_so_beside_others_too() {
    let computes = |run, wait| Witnesses {
        run,
        wait,
        user: Some(0.9),
        not_sent: 0.0,
        send_full: 0.0,
        send: 0.0,
        poll: 1.0 - run - wait,
        ..blocked()
    };
    assert_eq!(cause(computes(0.95, 0.0)), Some(Cause::SenderComputes));
    let disturbed = judge(&computes(0.65, 0.17));
    assert_eq!(disturbed.cause, Some(Cause::SenderComputes));
    assert_ne!(disturbed.confidence, Confidence::High);
    assert!(
        disturbed.words.contains("65 % of the time and waited 17 % for a CPU"),
        "{}",
        disturbed.words
    );
    assert_eq!(cause(computes(0.6, 0.3)), Some(Cause::SharedCpu));
    assert_eq!(cause(computes(0.5, 0.05)), None);
}

#[test]
fn unread_bytes_do_not_blame_a_reader_that_waits_for_data() {
    let w = Witnesses { sends: false, unread: 0.9, send: 0.0, receive: 0.95, ..blocked() };
    let finding = judge(&w);
    assert_eq!(finding.cause, None);
    assert!(finding.words.contains("waited for data"), "{}", finding.words);
    let asleep = Witnesses { receive: 0.0, timer: 0.95, queue_full: 0.9, ..w };
    assert_eq!(cause(asleep), Some(Cause::ReceiverSleeps));
    // One that waits for events while its buffer is full does not wait for that data.
    let polls = Witnesses { receive: 0.0, poll: 0.95, queue_full: 0.9, ..w };
    assert_eq!(cause(polls), Some(Cause::ReceiverSleeps));
    assert!(judge(&Witnesses { queue_full: 0.2, ..polls }).elsewhere);
    // It waits for less than half of the time, but has time left, and its buffer is never full.
    let keeps_up = Witnesses { receive: 0.45, run: 0.5, ..w };
    assert!(judge(&keeps_up).elsewhere);
    assert!(!judge(&Witnesses { queue_full: 0.2, ..keeps_up }).elsewhere);
}

#[test]
fn a_quota_is_not_another_program() {
    let w = Witnesses { send: 0.0, run: 0.3, wait: 0.65, user: Some(0.1), ..blocked() };
    assert_eq!(cause(w), Some(Cause::SharedCpu));
    assert_eq!(cause(Witnesses { throttled: Some(0.6), ..w }), Some(Cause::Throttled));
}

#[test]
fn confidence_is_high_only_when_the_time_is_attributed() {
    let w = Witnesses { not_sent: 0.0, ..blocked() };
    assert_eq!(judge(&w).confidence, Confidence::High);
    let dark = Witnesses { not_attributed: 0.2, ..w };
    assert_eq!(judge(&dark).confidence, Confidence::Medium);
}

#[test]
fn a_policer_is_steady_and_loss_is_not() {
    let w = Witnesses { congestion_filled: 1.0, lost: 0.02, lossy_windows: 0.9, ..blocked() };
    let w = Witnesses { variation: Some(0.6), ..w };
    assert_eq!(cause(w), Some(Cause::Loss));
    assert_eq!(cause(Witnesses { variation: Some(0.05), ..w }), Some(Cause::Policer));
    // Under CUBIC the rate swings more; then losses that come together tell a policer.
    let swings = Witnesses { variation: Some(0.2), data_out: 2600.0, ..w };
    assert_eq!(cause(Witnesses { lossy_windows: 0.2, ..swings }), Some(Cause::Policer));
    assert_eq!(cause(swings), None);
    let order = Witnesses { spurious: 0.9, reordered: 40, lost: 0.002, ..w };
    assert_eq!(cause(order), Some(Cause::Reordering));
}

#[test]
fn bbr_fills_a_link_without_filling_its_window() {
    let w = Witnesses { bbr_rate: Some(5.2e7), ..blocked() };
    assert_eq!(cause(w), Some(Cause::LinkRate));
    // What its queue drops, it drops at a steady rate.
    let dropped = Witnesses { lost: 0.04, lossy_windows: 0.3, rtt: 0.045, ..w };
    assert_eq!(cause(dropped), Some(Cause::LinkRate));
    assert_eq!(cause(Witnesses { rtt: 0.02, ..dropped }), Some(Cause::Policer));
    // It may be far below what BBR once found.
    assert_eq!(cause(Witnesses { bbr_rate: Some(5e8), ..w }), None);
}

#[test]
fn both_sides_see_a_proxy_and_a_full_way_back() {
    let slow = Witnesses { window_limited: 0.9, window_closed: 0.8, ..blocked() };
    let waits = Witnesses { sends: false, send: 0.0, receive: 0.95, ..blocked() };
    let of = |out: &Witnesses, back: &Witnesses| {
        joined((Some(out), &judge(out)), (Some(back), &judge(back)), 0.0).cause
    };
    assert_eq!(of(&slow, &waits), Some(Cause::Proxy));
    // Its receiver takes the pauses for round trips of a small buffer.
    let guesses = Witnesses { receive_buffer_fixed: true, receive_rtt: 0.01, ..waits };
    assert_eq!(judge(&guesses).cause, Some(Cause::ReceiveBuffer));
    assert_eq!(of(&slow, &guesses), Some(Cause::Proxy));
    // A window of 262 kB, of which less than half comes each round trip.
    let varies = Witnesses { window_closed: 0.0, window_constant: 0.3, window: 1 << 18, ..slow };
    assert_eq!(judge(&varies).cause, None);
    assert_eq!(of(&varies, &waits), Some(Cause::Proxy));
    assert_eq!(of(&Witnesses { window: 1 << 17, ..varies }, &waits), None);
    // One that keeps its size may wait in a full link as well.
    let steady = Witnesses { window_constant: 0.95, window: 186_000, ..varies };
    let sides = ((Some(&steady), &judge(&steady)), (Some(&waits), &judge(&waits)));
    let open = joined(sides.0, sides.1, 0.0);
    assert_eq!((open.cause, open.elsewhere), (None, false));
    assert!(open.words.starts_with("Neither side shows what limits"), "{}", open.words);
    let queue = Witnesses { congestion_filled: 1.0, rtt: 0.09, acknowledged: 0.1, ..blocked() };
    assert_eq!(judge(&queue).cause, None);
    // 400 kB have arrived of which the sender does not know yet: 64 ms at 50 Mbit/s.
    let out = Witnesses { at: (1.0, 1_000_000), ..queue };
    let back = Witnesses { at: (1.0, 1_400_000), ..waits };
    assert_eq!(of(&out, &back), Some(Cause::AckPath));
    assert_eq!(of(&out, &Witnesses { at: (1.0, 1_050_000), ..waits }), None);
    // Not after five round trips.
    assert_eq!(of(&Witnesses { seconds: 0.45, ..out }, &back), None);
    // Not if the clocks may be as far apart.
    let full = Witnesses { at: (1.0, 1_400_000), ..waits };
    let sides = ((Some(&out), &judge(&out)), (Some(&full), &judge(&full)));
    assert_eq!(joined(sides.0, sides.1, 0.03).cause, None);
}

#[test]
fn both_sides_tell_a_slow_reader_from_a_small_buffer() {
    // A window that varies: the sender leaves it open.
    let out = Witnesses { window_limited: 0.9, window_constant: 0.3, window: 1 << 17, ..blocked() };
    assert_eq!(judge(&out).cause, None);
    // The agent may not see the process that reads.
    let hidden = Witnesses {
        sends: false,
        send: 0.0,
        run: 0.0,
        not_attributed: 1.0,
        receive_buffer_fixed: true,
        ..blocked()
    };
    let of = |back: &Witnesses| joined((Some(&out), &judge(&out)), (Some(back), &judge(back)), 0.0);
    let behind = of(&Witnesses { unread: 1.0, queue_full: 0.9, ..hidden });
    assert_eq!(behind.cause, Some(Cause::ReceiverSlow));
    assert!(behind.words.contains("data lay unread at its side"), "{}", behind.words);
    let small = of(&hidden);
    assert_eq!(small.cause, Some(Cause::ReceiveBuffer));
    assert!(small.words.contains("reads at once"), "{}", small.words);
    // Neither, if the reader is behind only now and then.
    assert_eq!(of(&Witnesses { unread: 0.6, queue_full: 0.2, ..hidden }).cause, None);
}

#[test]
fn a_receiver_takes_the_rate_of_many_connections_for_that_of_many_windows() {
    let reads = Witnesses { sends: false, receive: 0.99, send: 0.0, send_full: 0.0, ..blocked() };
    let fixed =
        Witnesses { receive_buffer_fixed: true, receive_rtt: 0.01, connections: 1, ..reads };
    assert_eq!(cause(fixed), Some(Cause::ReceiveBuffer));
    // Its round trip may be its sender's pauses.
    assert_eq!(judge(&fixed).confidence, Confidence::Medium);
    assert_eq!(cause(Witnesses { connections: 64, ..fixed }), None);
}

#[test]
fn names_connections_datagrams_and_no_network_are_told_apart() {
    let short = Witnesses {
        opened: 10.0,
        bytes_each: 2048.0,
        out_over_in: 1.0,
        busy: 0.3,
        send: 0.0,
        send_full: 0.0,
        receive: 0.4,
        ..blocked()
    };
    assert_eq!(cause(Witnesses { connect: 0.5, ..short }), Some(Cause::ConnectionSetUp));
    let names = Witnesses { names: 0.8, connect: 0.1, receive: 0.9, ..short };
    assert_eq!(cause(names), Some(Cause::NameLookUp));
    let none = Witnesses { bytes: 0, send: 0.0, run: 0.9, ..blocked() };
    assert_eq!(cause(none), Some(Cause::NoNetwork));
    let brief = judge(&Witnesses { opened: 2300.0, ..none });
    assert_eq!(brief.cause, None);
    assert!(brief.words.starts_with("2300 connections a second were opened"), "{}", brief.words);
    assert_eq!(cause(Witnesses { run: 0.0, accept: 1.0, ..none }), None);
    let flood = Witnesses { datagrams: (5000.0, 0.0), overflowed: 0.5, sends: false, ..none };
    assert_eq!(cause(flood), Some(Cause::DatagramOverflow));
}

#[test]
fn of_datagrams_the_cpu_the_link_and_what_is_inside_the_program_are_told_apart() {
    let none = Witnesses { bytes: 0, looks: 0, sends: false, send: 0.0, ..blocked() };
    let sends = Witnesses { datagrams: (10.0, 9000.0), run: 0.9, ..none };
    let of = |w: Witnesses| judge(&w);
    let computes = of(Witnesses { user: Some(0.8), ..sends });
    assert_eq!(computes.cause, Some(Cause::SenderComputes));
    let moves = of(Witnesses { user: Some(0.2), ..sends });
    assert_eq!(moves.cause, Some(Cause::SenderCpu));
    assert!(moves.words.contains("UDP_SEGMENT"), "{}", moves.words);
    let batched = Udp { per_call: Some((1.0, 8.0)), ..Udp::default() };
    let moves = of(Witnesses { user: Some(0.2), udp: batched, ..sends });
    assert!(!moves.words.contains("UDP_SEGMENT"), "{}", moves.words);
    let full = Witnesses { run: 0.1, send: 0.8, dropped: 900, ..sends };
    assert_eq!(of(full).cause, Some(Cause::LinkRate));
    let receives = Witnesses { datagrams: (9000.0, 40.0), user: Some(0.9), ..sends };
    assert_eq!(of(receives).cause, Some(Cause::ReceiverComputes));
    assert_eq!(of(Witnesses { overflowed: 0.3, ..receives }).cause, Some(Cause::DatagramOverflow));
    // It waits for what only it knows.
    let udp = Udp { quic: true, ..Udp::default() };
    let waits = of(Witnesses { run: 0.2, poll: 0.8, udp, ..sends });
    assert_eq!((waits.cause, waits.elsewhere), (None, false));
    assert!(waits.words.contains("inside the program"), "{}", waits.words);
}

#[test]
fn an_advice_has_a_value_and_a_band() {
    let advice = judge(&Witnesses { not_sent: 0.0, ..blocked() }).advice.unwrap();
    // 1 MiB of window for 125 kB in flight: more than four times, so four times.
    // The kernel doubles it, and half a piece of 64 KiB is there besides: 500 kB.
    assert_eq!(advice.lift, Some(Lift::SendBuffer(233_616)));
    let gain = advice.gain.unwrap();
    assert!(gain.low < gain.expected && gain.expected < gain.high, "{gain:?}");
    assert!(advice.words.contains("SO_SNDBUF of 228 KiB"), "{}", advice.words);
}

#[test]
fn next_to_nothing_is_not_judged() {
    let little = Witnesses { bytes: 79, not_sent: 0.0, ..blocked() };
    assert_eq!(cause(little), None);
    let few = Witnesses { looks: 2, not_sent: 0.0, ..blocked() };
    assert_eq!(cause(few), None);
}
