//! The table of causes: what each needs, what refutes it, its words and its advice.

use super::advice::{self, Advice};
use super::datagrams;
use super::facts::*;
use super::{Cause, DISTURBED};
use lastmeter_ledger::figures::rate as in_words;
use lastmeter_live::observe::Witnesses;

/// A cause and its tests.
pub(super) struct Row {
    pub(super) cause: Cause,
    pub(super) needs: &'static [Test],
    pub(super) refuted_by: &'static [Test],
    /// The share of the time in which it limited.
    pub(super) share: fn(&Witnesses) -> f64,
    /// What it is, without a full stop.
    pub(super) words: fn(&Witnesses) -> String,
    /// One thing to do, and what to expect of it.
    pub(super) advice: fn(&Witnesses) -> Advice,
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} % of the time", 100.0 * share)
}

/// How long its thread ran, and how long it waited to, if others disturbed it.
fn ran(w: &Witnesses) -> String {
    match w.wait >= DISTURBED {
        true => format!("{} and waited {:.0} % for a CPU", percent(w.run), 100.0 * w.wait),
        false => percent(w.run),
    }
}

fn ms(seconds: f64) -> String {
    format!("{:.1} ms", 1e3 * seconds)
}

/// Of TCP connections.
pub(super) const TCP: &[Row] = &[
    Row {
        cause: Cause::SenderSleeps,
        needs: &[SENDS, TIMER],
        refuted_by: &[IN_SEND, TAIL, CONNECTS, NAMES],
        share: |w| w.timer,
        words: |w| format!("The sending program slept {} by its own choice", percent(w.timer)),
        advice: advice::sleep,
    },
    Row {
        cause: Cause::SenderSleeps,
        needs: &[SENDS, POLLS, NOTHING, ONE_WAY],
        refuted_by: &[IN_SEND, TAIL, TIMER, CONNECTS, NAMES, HAS_DATA],
        share: |w| w.poll,
        words: |w| format!("The sending program had nothing to send {}", percent(w.empty)),
        advice: advice::sleep,
    },
    Row {
        cause: Cause::SenderDisk,
        needs: &[SENDS, DISK],
        refuted_by: &[IN_SEND, TIMER],
        share: |w| w.disk,
        words: |w| format!("The sending program waited for a disk {}", percent(w.disk)),
        advice: advice::send_disk,
    },
    Row {
        cause: Cause::SenderPipe,
        needs: &[SENDS, PIPE_EMPTY],
        refuted_by: &[IN_SEND, TIMER],
        share: |w| w.pipe - w.pipe_write,
        words: |w| {
            let share = percent(w.pipe - w.pipe_write);
            format!("The sending program waited for data from a pipe {share}")
        },
        advice: advice::pipe_from,
    },
    Row {
        cause: Cause::SenderComputes,
        needs: &[SENDS, ON_CPU, COMPUTING],
        refuted_by: &[IN_SEND, WAITED, QUOTA],
        share: |w| w.run,
        words: |w| format!("The sending program computed: its thread ran {}", ran(w)),
        advice: advice::profile,
    },
    Row {
        cause: Cause::SmallMessages,
        needs: &[SENDS, ON_CPU, MOVING, TINY],
        refuted_by: &[IN_SEND, WAITED, QUOTA, SOFTIRQ_CPU],
        share: |w| w.run,
        words: |w| {
            format!(
                "The sender's CPU was busy with small messages {}: a segment carries {:.0} B",
                percent(w.run),
                w.payload
            )
        },
        advice: advice::larger_messages,
    },
    Row {
        cause: Cause::SenderCpu,
        needs: &[SENDS, ON_CPU, MOVING, LARGE],
        refuted_by: &[IN_SEND, WAITED, QUOTA],
        share: |w| w.run,
        words: |w| format!("The sender's CPU was busy moving data {}", percent(w.run)),
        advice: advice::second_core,
    },
    Row {
        cause: Cause::ReceiverSleeps,
        needs: &[RECEIVES, TIMER, UNREAD],
        refuted_by: &[IN_RECEIVE],
        share: |w| w.timer,
        words: |w| {
            format!("The receiving program slept {} while data lay unread", percent(w.timer))
        },
        advice: advice::sleep,
    },
    Row {
        cause: Cause::ReceiverSleeps,
        needs: &[RECEIVES, POLLS, BEHIND],
        refuted_by: &[IN_RECEIVE_CALL, TIMER, DISK, PIPE_FULL, ON_CPU],
        share: |w| w.poll,
        words: |w| {
            format!(
                "The receiving program waited {} for other things while its buffer was full",
                percent(w.poll)
            )
        },
        advice: advice::sleep,
    },
    Row {
        cause: Cause::ReceiverDisk,
        needs: &[RECEIVES, DISK, UNREAD],
        refuted_by: &[IN_RECEIVE, TIMER],
        share: |w| w.disk,
        words: |w| format!("The receiving program waited for a disk {}", percent(w.disk)),
        advice: advice::receive_disk,
    },
    Row {
        cause: Cause::ReceiverPipe,
        needs: &[RECEIVES, PIPE_FULL, UNREAD],
        refuted_by: &[IN_RECEIVE, TIMER],
        share: |w| w.pipe_write,
        words: |w| {
            format!("The receiving program waited for room in a pipe {}", percent(w.pipe_write))
        },
        advice: advice::pipe_to,
    },
    Row {
        cause: Cause::ReceiverComputes,
        needs: &[RECEIVES, ON_CPU, COMPUTING, UNREAD],
        refuted_by: &[IN_RECEIVE, WAITED, QUOTA],
        share: |w| w.run,
        words: |w| format!("The receiving program computed: its thread ran {}", ran(w)),
        advice: advice::profile,
    },
    Row {
        cause: Cause::ReceiverCpu,
        needs: &[RECEIVES, ON_CPU, MOVING, QUEUE_FULL],
        refuted_by: &[IN_RECEIVE, WAITED, QUOTA],
        share: |w| w.run,
        words: |w| format!("The receiver's CPU was busy moving data {}", percent(w.run)),
        advice: advice::second_core,
    },
    Row {
        cause: Cause::SharedCpu,
        needs: &[WANTS_CPU, WAITED],
        refuted_by: &[QUOTA, IN_SEND, IN_RECEIVE, ELSEWHERE, NOT_BEHIND],
        share: |w| w.run + w.wait,
        words: |w| format!("The program waited {} for a CPU that others used", percent(w.wait)),
        advice: advice::own_core,
    },
    Row {
        cause: Cause::Throttled,
        needs: &[QUOTA],
        refuted_by: &[IN_SEND, IN_RECEIVE],
        share: |w| w.throttled.unwrap_or(0.0),
        words: |w| {
            let share = percent(w.throttled.unwrap_or(0.0));
            format!("The quota of its control group kept the program from the CPU {share}")
        },
        advice: advice::quota,
    },
    Row {
        cause: Cause::Softirq,
        needs: &[SOFTIRQ_CPU],
        refuted_by: &[ON_CPU, TIMER, WINDOW],
        share: |w| w.softirq,
        words: |w| format!("One CPU was busy with protocol work {}", percent(w.softirq)),
        advice: advice::softirq,
    },
    Row {
        cause: Cause::SendBuffer,
        needs: &[SENDS, HAS_DATA, IN_SEND, SEND_FULL, ALL_SENT, BUFFER_A_TRIP],
        refuted_by: &[WINDOW, CONGESTION, TIMER],
        share: |w| w.send + w.poll,
        words: |w| {
            let (size, trip) = (w.send_buffer / 1024, ms(w.rtt_min));
            format!("The send buffer of {size} KiB is too small for a round trip of {trip}")
        },
        advice: advice::send_buffer,
    },
    Row {
        cause: Cause::ReceiverSlow,
        needs: &[SENDS, WINDOW, SHUT],
        refuted_by: &[TIMER],
        share: |w| w.window_limited,
        words: |w| {
            let share = percent(w.window_limited);
            format!(
                "The receiving program does not read fast enough: its window held the data back \
                 {share}"
            )
        },
        advice: advice::at_the_receiver,
    },
    Row {
        cause: Cause::ReceiveBuffer,
        needs: &[SENDS, WINDOW, OPEN, STEADY],
        refuted_by: &[TIMER],
        share: |w| w.window_limited,
        words: |w| {
            let (size, trip) = (w.window / 1024, ms(w.rtt_min));
            format!(
                "The receive buffer is too small for a round trip of {trip}: the window is {size} \
                 KiB"
            )
        },
        advice: advice::receive_buffer,
    },
    Row {
        cause: Cause::ReceiveBuffer,
        needs: &[RECEIVES, WAITS_FOR_REPLY, FIXED, NOT_FULL, WINDOW_A_TRIP],
        refuted_by: &[ALTERNATES, TIMER, YOUNG],
        share: |w| w.receive + w.poll,
        words: |w| {
            let (size, trip) = (w.receive_window / 1024, ms(w.receive_rtt));
            format!(
                "The receive buffer is too small for a round trip of {trip}: the window is {size} \
                 KiB"
            )
        },
        advice: advice::receive_buffer,
    },
    Row {
        cause: Cause::PacingCap,
        needs: &[SENDS, PACED],
        refuted_by: &[WINDOW],
        share: |w| w.busy,
        words: |w| {
            format!("The program caps its own rate at {}", in_words(w.pacing_max.unwrap_or(0.0)))
        },
        advice: advice::pacing,
    },
    Row {
        cause: Cause::LinkRate,
        needs: &[SENDS, HAS_DATA, CONGESTION, QUEUED],
        refuted_by: &[WINDOW, TIMER, ON_CPU, PACED, ALTERNATES, ORDER, FEW_ACKS, BBR],
        share: |w| w.busy,
        words: |w| {
            // Where it lost something, the queue is on the way there.
            let way = if w.lost > 0.0 { "" } else { ", on the way there or on the way back" };
            format!("A link is full at {}{way}", in_words(w.rate))
        },
        advice: advice::link,
    },
    Row {
        cause: Cause::LinkRate,
        needs: &[SENDS, HAS_DATA, WAITING_DATA, BBR_RATE],
        refuted_by: &[WINDOW, TIMER, ON_CPU, PACED, ALTERNATES, POLICER, FEW_ACKS],
        share: |w| w.busy,
        words: |w| format!("A link is full at {}", in_words(w.rate)),
        advice: advice::link,
    },
    Row {
        cause: Cause::Policer,
        needs: &[SENDS, HAS_DATA, NO_QUEUE, LOST, POLICER],
        refuted_by: &[WINDOW, TIMER, ON_CPU, PACED, ALTERNATES, ORDER],
        share: |w| w.busy,
        words: |w| {
            format!(
                "A policer lets {} pass and drops the rest, {:.1} % of the segments, without a \
                 queue",
                in_words(w.rate),
                100.0 * w.lost
            )
        },
        advice: advice::policer,
    },
    Row {
        cause: Cause::Loss,
        needs: &[SENDS, HAS_DATA, CONGESTION, NO_QUEUE, LOST],
        refuted_by: &[WINDOW, TIMER, ON_CPU, PACED, ALTERNATES, ORDER, POLICER, STEADY_RATE, BBR],
        share: |w| w.busy,
        words: |w| {
            format!(
                "{:.2} % of the segments were lost, which keeps the congestion window small",
                100.0 * w.lost
            )
        },
        advice: advice::loss,
    },
    Row {
        cause: Cause::Reordering,
        needs: &[SENDS, HAS_DATA, CONGESTION, ORDER],
        refuted_by: &[WINDOW, TIMER, ON_CPU, PACED, ALTERNATES],
        share: |w| w.busy,
        words: |w| {
            format!(
                "Packets overtake each other, so segments are sent again for nothing ({:.0} % of \
                 the repeats)",
                100.0 * w.spurious
            )
        },
        advice: advice::reordering,
    },
    Row {
        cause: Cause::CongestionWindow,
        needs: &[SENDS, HAS_DATA, CONGESTION, NO_QUEUE],
        refuted_by: &[WINDOW, TIMER, ON_CPU, PACED, LOST, ALTERNATES, ORDER, BBR_RATE],
        share: |w| w.busy,
        words: |w| {
            let trip = ms(w.rtt_min);
            format!("The congestion window was still too small for a round trip of {trip}")
        },
        advice: advice::congestion,
    },
    Row {
        cause: Cause::RoundTrips,
        needs: &[ALTERNATES, WAITS_FOR_REPLY, HAS_DATA],
        refuted_by: &[TARDY, TAIL, TIMER, ON_CPU, WAITED, CONNECTS, NAMES],
        share: |w| w.receive + w.poll,
        words: |w| {
            let trip = ms(w.rtt_min);
            format!("Each message waits for the reply to the one before, a round trip of {trip}")
        },
        advice: advice::round_trips,
    },
    Row {
        cause: Cause::Nagle,
        needs: &[TAIL, ALTERNATES],
        refuted_by: &[WINDOW, CONGESTION],
        share: |w| w.tail_held,
        words: |w| {
            format!(
                "The end of each message waits {} for an acknowledgement (Nagle's algorithm)",
                percent(w.tail_held)
            )
        },
        advice: advice::nagle,
    },
    SET_UP,
    NAME_LOOK_UP,
];

/// Connections that are too short to be looked at often.
const SET_UP: Row = Row {
    cause: Cause::ConnectionSetUp,
    needs: &[MANY_OPENED, CONNECTS],
    refuted_by: &[TIMER, ON_CPU, NAMES],
    share: |w| w.connect,
    words: |w| {
        format!(
            "Connections were being made {}: each carries only {:.0} KiB",
            percent(w.connect),
            w.bytes_each / 1024.0
        )
    },
    advice: advice::set_up,
};

/// It is judged with and without a TCP connection.
const NAME_LOOK_UP: Row = Row {
    cause: Cause::NameLookUp,
    needs: &[NAMES],
    refuted_by: &[TIMER, ON_CPU, CONNECTS],
    share: |w| w.names,
    words: |w| format!("The program waited for a name server {}", percent(w.names)),
    advice: advice::names,
};

/// Where TCP carried next to nothing.
pub(super) const OTHER: &[Row] = &[
    NAME_LOOK_UP,
    SET_UP,
    Row {
        cause: Cause::DatagramOverflow,
        needs: &[OVERFLOW],
        refuted_by: &[SENDS_DATAGRAMS],
        share: |w| w.overflowed,
        words: |w| {
            format!(
                "{:.0} % of the datagrams were dropped because the program reads too slowly: it {}",
                100.0 * w.overflowed,
                doing(w)
            )
        },
        advice: advice::overflow,
    },
    Row {
        cause: Cause::DatagramOverflow,
        needs: &[OWN_DROPS],
        refuted_by: &[],
        share: own_drops,
        words: |w| {
            format!(
                "{:.0} % of the datagrams were dropped because the program reads too slowly: it {}",
                100.0 * own_drops(w),
                doing(w)
            )
        },
        advice: advice::overflow,
    },
    Row {
        cause: Cause::SenderSleeps,
        needs: &[SENDS_DATAGRAMS, TIMER],
        refuted_by: &[OUT_FULL, OWN_DROPS],
        share: |w| w.timer,
        words: |w| {
            let share = percent(w.timer);
            format!("The program sends datagrams and slept {share} by its own choice")
        },
        advice: advice::sleep,
    },
    datagrams::LINK,
    datagrams::SENDER_COMPUTES,
    datagrams::SENDER_CPU,
    datagrams::RECEIVER_COMPUTES,
    datagrams::RECEIVER_CPU,
    Row {
        cause: Cause::NoNetwork,
        needs: &[QUIET],
        refuted_by: &[NAMES, QUOTA, WAITED, SERVES],
        share: |w| w.run.max(w.timer).max(w.disk).max(w.pipe),
        words: |w| format!("The program uses no network: it {}", doing(w)),
        advice: advice::no_network,
    },
    Row {
        cause: Cause::Throttled,
        needs: &[QUOTA],
        refuted_by: &[OVERFLOW],
        share: |w| w.throttled.unwrap_or(0.0),
        words: |w| {
            let share = percent(w.throttled.unwrap_or(0.0));
            format!("The quota of its control group kept the program from the CPU {share}")
        },
        advice: advice::quota,
    },
    Row {
        cause: Cause::SharedCpu,
        needs: &[WANTS_CPU, WAITED],
        refuted_by: &[QUOTA, OVERFLOW, ELSEWHERE],
        share: |w| w.run + w.wait,
        words: |w| format!("The program waited {} for a CPU that others used", percent(w.wait)),
        advice: advice::own_core,
    },
];

/// Of the datagrams that came for it, the share that its own sockets dropped.
fn own_drops(w: &Witnesses) -> f64 {
    let dropped = w.udp.dropped as f64;
    dropped / (w.datagrams.0 * w.seconds + dropped).max(1.0)
}

/// What its busiest thread did most.
fn doing(w: &Witnesses) -> String {
    let all = [
        ("slept by its own choice", w.timer),
        ("waited for a disk", w.disk),
        ("waited for a pipe", w.pipe),
        ("waited for another thread or process", w.others),
        ("waited for events", w.poll + w.receive),
        ("was on a CPU", w.run),
        ("waited for a CPU", w.wait),
    ];
    let most = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let (words, share) = most.expect("there are some");
    format!("{words} {}", percent(share))
}
