//! The tests on which causes rest: each is a fact that is so, is not, or could not be read.

use lastmeter_live::observe::Witnesses;

/// Most of the time.
pub(super) const MOST: f64 = 0.5;
/// Too much of the time for the opposite to be true.
pub(super) const SOME: f64 = 0.3;
/// A CPU that is idle a third of the time is not the limit.
pub(super) const BUSY: f64 = 0.67;
/// Waiting for a CPU this long, the thread shares it.
const CROWDED: f64 = 0.25;
/// A control group kept from its CPUs for this share of the time limits its program.
const THROTTLED: f64 = 0.1;
/// User mode takes this share of the CPU time of a program that computes.
pub(super) const COMPUTES: f64 = 0.6;
/// Share of segments lost from which the congestion window is held down by loss.
const LOSSY: f64 = 0.0005;
/// A policer drops this share of the segments or more, since it has no queue to warn the sender.
const POLICED: f64 = 0.005;
/// The rate of a policed or full path deviates by this share at most.
const FLAT: f64 = 0.15;
/// It drops something in this share of the tenths of a second or more.
const LOSSY_WINDOWS: f64 = 0.15;
/// Seconds of a window of [`Witnesses::lossy_windows`].
const LOSSY_WINDOW: f64 = 0.1;
/// Losses come together if less than this part of the windows that loss at random would reach have some: in
/// `why --truth` policers had at most 0.58 of them, loss at random at least 0.92.
const CLUSTERED: f64 = 0.75;
/// Of the segments repeated, the share repeated for nothing where the order was at fault.
const FOR_NOTHING: f64 = 0.5;
/// A round trip this many times the least shows a queue,
const QUEUE_RATIO: f64 = 1.5;
/// where it is also longer by this many seconds.
const QUEUE_MIN: f64 = 500e-6;
/// Of a cap or a window, the share of it that counts as all of it.
const NEAR: f64 = 0.6;
/// The kernel counts its overhead in the send buffer, so data takes a part of it, down to this.
const BUFFER_SHARE: f64 = 0.12;
/// A window that is opened again so much less often than each round trip has a slow reader.
const HALF_WINDOW: f64 = 0.4;
/// One that limits, and nothing else, is opened again each shortest round trip: in `why --truth` small buffers had 0.92
/// or more of that, a reader behind a proxy up to 0.67. Between the two, a full link or a slow reader makes it wait.
const WHOLE_WINDOW: f64 = 0.8;
/// Of what BBR takes the path to carry.
const NEAR_BBR: f64 = 0.7;
/// Segments one way for each the other way, at most, where messages and replies alternate.
const ALTERNATING: f64 = 5.0;
/// New connections each second from which opening them matters,
pub(super) const OPENED: f64 = 4.0;
/// with less data than this in each.
const EACH_MAX: f64 = 256.0 * 1024.0;
/// Bytes of data in a segment of a program that writes small messages, each at once.
const SMALL: f64 = 700.0;
/// A CPU whose softirqs take this share does little else.
const SOFTIRQ: f64 = 0.7;
/// Datagrams each second that count as traffic.
pub(super) const DATAGRAMS: f64 = 20.0;
/// The share of the datagrams that a full buffer dropped.
const OVERFLOWED: f64 = 0.02;
/// The share of the datagrams that a full queue on the way out dropped.
const REFUSED: f64 = 0.005;
/// Fewer acknowledgements than one for so many segments: some were lost or merged on the way.
const ACKNOWLEDGED: f64 = 0.3;

/// A fact.
pub(super) struct Test {
    pub(super) words: &'static str,
    pub(super) is: fn(&Witnesses) -> Option<bool>,
}

macro_rules! test {
    ($name:ident, $words:literal, $is:expr) => {
        pub(super) const $name: Test = Test { words: $words, is: $is };
    };
}

test!(SENDS, "the program sends", |w| Some(w.sends));
test!(RECEIVES, "the program receives", |w| Some(!w.sends));

// What the thread did.
test!(TIMER, "it slept until a time of its own choice", |w| Some(w.timer >= MOST));
test!(DISK, "it slept in a disk or file", |w| Some(w.disk >= SOME));
test!(PIPE_EMPTY, "it waited for data from a pipe", |w| Some(w.pipe - w.pipe_write >= SOME));
test!(PIPE_FULL, "it waited for room in a pipe", |w| Some(w.pipe_write >= SOME));
test!(IN_SEND, "it waited for room in the socket", |w| Some(in_send(w) >= SOME));
test!(IN_RECEIVE, "it waited for data", |w| Some(in_receive(w) >= SOME));
test!(IN_RECEIVE_CALL, "it slept reading the socket", |w| Some(w.receive >= SOME));
test!(ON_CPU, "its thread was on a CPU", |w| {
    // What others took of it now and then would have been its own.
    Some(w.run >= MOST && w.run + w.wait >= BUSY)
});
test!(COMPUTING, "in user mode", |w| w.user.map(|user| user >= COMPUTES));
test!(MOVING, "in the kernel", |w| w.user.map(|user| user < COMPUTES));
test!(WAITED, "it waited for a CPU", |w| Some(w.wait >= CROWDED));
test!(WANTS_CPU, "its thread was ready all along", |w| Some(w.run + w.wait >= BUSY));
test!(ELSEWHERE, "it slept elsewhere", |w| Some(w.disk + w.pipe + w.timer >= 0.15));
test!(QUOTA, "its quota was used up", |w| w.throttled.map(|share| share >= THROTTLED));
test!(POLLS, "it waited for events", |w| Some(w.poll >= MOST));
test!(SERVES, "it waited for connections or for data", |w| Some(w.accept + w.receive >= MOST));
test!(WAITS_FOR_REPLY, "it waited for the reply", |w| Some(w.receive + w.poll >= MOST));

// What lay in its sockets.
test!(UNREAD, "data lay unread", |w| Some(w.unread >= MOST));
test!(QUEUE_FULL, "its buffer was full", |w| Some(w.queue_full >= SOME));
test!(BEHIND, "its buffer was full meanwhile", |w| Some(w.poll + w.queue_full - 1.0 >= SOME));
test!(NOT_FULL, "its buffer stayed empty", |w| Some(w.queue_full < SOME));
test!(HAS_DATA, "data was under way", |w| Some(w.busy >= MOST));
test!(NOTHING, "it had nothing to send", |w| Some(w.empty >= MOST));
test!(WAITING_DATA, "data waited to be sent", |w| Some(w.not_sent >= MOST));
test!(SEND_FULL, "the send buffer was full", |w| {
    Some(w.send_full >= MOST || w.buffer_limited >= SOME)
});
test!(ALL_SENT, "all of it was in flight", |w| Some(w.not_sent < MOST));
test!(BUFFER_A_TRIP, "a buffer's worth left each round trip", |w| {
    Some(w.rate * w.rtt_min / 8.0 >= BUFFER_SHARE * f64::from(w.send_buffer))
});
test!(FIXED, "its receive buffer has a fixed size", |w| Some(w.receive_buffer_fixed));

// The receiver's window.
test!(WINDOW, "the receiver's window was the limit", |w| Some(w.window_limited >= SOME));
test!(SHUT, "that window fell to nothing, or was not opened again each round trip", |w| {
    // A window that still grows is not opened fully yet.
    let settled = w.seconds >= 10.0 * w.rtt_min && w.window_limited >= MOST;
    Some(w.window_closed >= 0.1 || (settled && windows_a_trip(w) < HALF_WINDOW))
});
test!(OPEN, "a window arrived each round trip", |w| { Some(is_window_a_trip(w)) });
test!(STEADY, "that window never fell to half", |w| Some(is_window_steady(w)));
test!(WINDOW_A_TRIP, "one window arrived per round trip", |w| {
    // The rate is of all connections, the window of one.
    let bytes = w.rate / w.connections.max(1) as f64 * w.receive_rtt / 8.0;
    (w.receive_rtt > 0.0).then(|| bytes >= NEAR * f64::from(w.receive_window))
});

// The path.
test!(CONGESTION, "the congestion window was filled", |w| Some(w.congestion_filled >= MOST));
test!(QUEUED, "a queue made the round trip longer", |w| Some(queued(w)));
test!(NO_QUEUE, "no queue built up", |w| Some(!queued(w)));
test!(LOST, "segments were lost", |w| Some(w.lost >= LOSSY));
test!(BBR_RATE, "the rate is what BBR found the path to carry", |w| {
    Some(w.bbr_rate.is_some_and(|rate| rate > 0.0 && w.rate >= NEAR_BBR * rate))
});
test!(BBR, "BBR does not slow down for loss", |w| Some(w.bbr_rate.is_some()));
test!(POLICER, "the excess was dropped at a steady rate, without a queue", |w| {
    w.variation.map(|variation| {
        let uneven = w.bbr_rate.is_some() || clustered(w);
        let flat = variation <= if uneven { 2.0 * FLAT } else { FLAT };
        !queued(w) && w.lost >= POLICED && flat && w.lossy_windows >= LOSSY_WINDOWS
    })
});
test!(ORDER, "segments overtook each other and were repeated for nothing", |w| {
    Some(w.reordered > 0 && w.spurious >= FOR_NOTHING)
});
test!(STEADY_RATE, "the rate is too steady for loss at random", |w| {
    w.variation.map(|variation| variation <= 2.0 * FLAT)
});
test!(YOUNG, "its window may still grow", |w| Some(w.seconds < 10.0 * w.receive_rtt));
test!(NOT_BEHIND, "little lay unread", |w| Some(!w.sends && w.unread < MOST));
test!(FEW_ACKS, "few acknowledgements came back", |w| Some(w.acknowledged < ACKNOWLEDGED));
test!(PACED, "the rate is the program's own cap", |w| {
    Some(w.pacing_max.is_some_and(|cap| w.rate >= NEAR * cap))
});

// Messages.
test!(ALTERNATES, "messages and replies alternate", |w| Some(alternates(w)));
test!(ONE_WAY, "data goes one way", |w| Some(!alternates(w)));
test!(TARDY, "a reply takes longer than the round trip", |w| {
    // Segments are messages only where a message fits into one.
    let small = w.payload < 0.7 * f64::from(w.segment.max(1));
    (small && w.rtt_min > 0.0).then_some(w.data_out * w.rtt_min < NEAR)
});
test!(TAIL, "the end of a message was held back", |w| Some(w.tail_held >= SOME));
test!(MANY_OPENED, "it opens connections all the time", |w| {
    Some(w.opened >= OPENED && w.bytes_each < EACH_MAX)
});
test!(CONNECTS, "it waited for connections to be made", |w| {
    Some(w.connect >= SOME && w.connect > w.names)
});
test!(NAMES, "it waited for a name server", |w| Some(w.names >= SOME && w.names >= w.connect));
test!(TINY, "a segment carries little", |w| {
    Some(w.payload > 0.0 && w.payload < SMALL && w.payload < 0.7 * f64::from(w.segment))
});
test!(LARGE, "segments are full", |w| {
    Some(w.payload >= SMALL || w.payload >= 0.7 * f64::from(w.segment))
});

// The machine, and datagrams.
test!(SOFTIRQ_CPU, "a CPU did nothing but protocol work", |w| Some(w.softirq >= SOFTIRQ));
test!(OVERFLOW, "datagrams were dropped at a full buffer", |w| {
    Some(w.datagrams.0 >= DATAGRAMS && w.overflowed >= OVERFLOWED)
});
test!(SENDS_DATAGRAMS, "it sends datagrams", |w| {
    Some(w.datagrams.1 >= DATAGRAMS && w.datagrams.1 > w.datagrams.0)
});

test!(OWN_DROPS, "its own sockets dropped datagrams", |w| {
    let arrived = w.datagrams.0 * w.seconds + w.udp.dropped as f64;
    Some(arrived >= DATAGRAMS && w.udp.dropped as f64 >= OVERFLOWED * arrived)
});
test!(GETS_DATAGRAMS, "it receives datagrams", |w| {
    Some(w.datagrams.0 >= DATAGRAMS && w.datagrams.0 >= w.datagrams.1)
});
test!(OUT_FULL, "a queue on the way out was full", |w| {
    let sent = (w.datagrams.1 * w.seconds).max(1.0);
    Some(w.udp.blocked.max(w.send) >= SOME || w.dropped as f64 >= REFUSED * sent)
});

test!(QUIET, "no packets to speak of", |w| {
    Some(w.bytes == 0 && w.datagrams.0 + w.datagrams.1 < DATAGRAMS && w.opened < OPENED)
});

pub(super) fn queued(w: &Witnesses) -> bool {
    w.rtt > QUEUE_RATIO * w.rtt_min && w.rtt - w.rtt_min > QUEUE_MIN
}

/// Whether losses come together, as where a rate is exceeded: at random, far more of the windows would have some.
fn clustered(w: &Witnesses) -> bool {
    let each = w.data_out * LOSSY_WINDOW;
    w.lossy_windows < CLUSTERED * (1.0 - (-w.lost * each).exp())
}

/// Whether all of a window arrives each round trip.
pub(super) fn is_window_a_trip(w: &Witnesses) -> bool {
    w.window_closed < 0.1 && windows_a_trip(w) >= WHOLE_WINDOW
}

/// Whether the window keeps its size, whoever makes the sender wait for it.
pub(super) fn is_window_steady(w: &Witnesses) -> bool {
    w.window_closed < 0.1 && w.window_constant >= MOST
}

/// Windows that arrive each round trip: one if the window is the limit, fewer if its owner is slow.
fn windows_a_trip(w: &Witnesses) -> f64 {
    w.rate * w.rtt_min / 8.0 / f64::from(w.window.max(1))
}

fn alternates(w: &Witnesses) -> bool {
    w.out_over_in <= ALTERNATING && w.out_over_in * ALTERNATING >= 1.0
}

/// A program that polls waits for room if it has none.
fn in_send(w: &Witnesses) -> f64 {
    w.send + if w.sends { w.poll * w.send_full } else { 0.0 }
}

/// A receiver that polls waits for data.
pub(super) fn in_receive(w: &Witnesses) -> f64 {
    w.receive + if w.sends { 0.0 } else { w.poll }
}
