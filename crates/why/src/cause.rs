//! The causes that can limit somebody's connection, and the tests by which each stands or falls.
//!
//! A cause holds when all that it needs was read and is so, and nothing that was read refutes it. When one
//! cause holds it is the verdict; when none or several do there is no verdict, and the words say why.
//! Confidence is high only where every test could be made and at most a tenth of the time of the
//! thread that moves the data is not attributed.

use lastmeter_ledger::Confidence;
use lastmeter_ledger::figures::rate as in_words;
use lastmeter_live::observe::Witnesses;
use serde::{Deserialize, Serialize};

/// Most of the time.
const MOST: f64 = 0.5;
/// Too much of the time for the opposite to be true.
const SOME: f64 = 0.3;
/// A CPU that is idle a third of the time is not the limit.
const BUSY: f64 = 0.67;
/// Waiting for a CPU this long, the thread shares it.
const CROWDED: f64 = 0.25;
/// A control group kept from its CPUs for this share of the time limits its program.
const THROTTLED: f64 = 0.1;
/// User mode takes this share of the CPU time of a program that computes.
const COMPUTES: f64 = 0.6;
/// Share of segments lost from which the congestion window is held down by loss.
const LOSSY: f64 = 0.0005;
/// A round trip this many times the least shows a queue,
const QUEUE_RATIO: f64 = 1.5;
/// where it is also longer by this many seconds.
const QUEUE_MIN: f64 = 500e-6;
/// Of a cap or a window, the share of it that counts as all of it.
const NEAR: f64 = 0.6;
/// Segments one way for each the other way, at most, where messages and replies alternate.
const ALTERNATING: f64 = 5.0;
/// Fewer looks than this decide nothing.
const LOOKS_MIN: u32 = 10;
/// Fewer bytes than this are next to nothing.
const BYTES_MIN: u64 = 4096;
/// The share of the time that may stay unattributed where confidence is high.
const UNATTRIBUTED_MAX: f64 = 0.1;

/// What can limit a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The sending program sleeps.
    SenderSleeps,
    /// It waits for a disk.
    SenderDisk,
    /// It waits for a pipe.
    SenderPipe,
    /// It computes.
    SenderComputes,
    /// Its CPU is busy moving the data.
    SenderCpu,
    /// The receiving program sleeps.
    ReceiverSleeps,
    /// It waits for a disk.
    ReceiverDisk,
    /// It waits for a pipe.
    ReceiverPipe,
    /// It computes.
    ReceiverComputes,
    /// Its CPU is busy moving the data.
    ReceiverCpu,
    /// The receiving program does not read; why, only its own side can tell.
    ReceiverSlow,
    /// Other programs use the CPU.
    SharedCpu,
    /// A control group's quota.
    Throttled,
    /// The send buffer is smaller than what the path holds.
    SendBuffer,
    /// The receive buffer is.
    ReceiveBuffer,
    /// A link or a shaper is full.
    LinkRate,
    /// Segments are lost without a queue.
    Loss,
    /// The congestion window is still small for the round trip.
    CongestionWindow,
    /// The program's own cap on the pacing rate.
    PacingCap,
    /// Each message waits for the reply to the one before.
    RoundTrips,
    /// The last part of a message is held back until the part before is acknowledged.
    Nagle,
}

/// A fact that is so, is not, or could not be read.
struct Test {
    words: &'static str,
    is: fn(&Witnesses) -> Option<bool>,
}

/// A cause and its tests.
struct Row {
    cause: Cause,
    needs: &'static [Test],
    refuted_by: &'static [Test],
    /// The share of the time in which it limited.
    share: fn(&Witnesses) -> f64,
    /// What it is, without a full stop.
    words: fn(&Witnesses) -> String,
    /// One thing to do, and what to expect of it.
    knob: fn(&Witnesses) -> String,
}

macro_rules! test {
    ($name:ident, $words:literal, $is:expr) => {
        const $name: Test = Test { words: $words, is: $is };
    };
}

test!(SENDS, "the program sends", |w| Some(w.sends));
test!(RECEIVES, "the program receives", |w| Some(!w.sends));
test!(TIMER, "it slept until a time of its own choice", |w| Some(w.timer >= MOST));
test!(DISK, "it slept in a disk or file", |w| Some(w.disk >= SOME));
test!(PIPE, "it slept in a pipe", |w| Some(w.pipe >= SOME));
test!(IN_SEND, "it waited for room in the socket", |w| Some(w.send >= SOME));
test!(IN_RECEIVE, "it waited for data", |w| Some(w.receive >= SOME));
test!(ON_CPU, "its thread was on a CPU", |w| Some(w.run >= BUSY));
test!(COMPUTING, "in user mode", |w| w.user.map(|user| user >= COMPUTES));
test!(MOVING, "in the kernel", |w| w.user.map(|user| user < COMPUTES));
test!(WAITED, "it waited for a CPU", |w| Some(w.wait >= CROWDED));
test!(WANTS_CPU, "its thread was ready all along", |w| Some(w.run + w.wait >= BUSY));
test!(QUOTA, "its quota was used up", |w| w.throttled.map(|share| share >= THROTTLED));
test!(UNREAD, "data lay unread", |w| Some(w.unread >= MOST));
test!(QUEUE_FULL, "its buffer was full", |w| Some(w.queue_full >= SOME));
test!(HAS_DATA, "data was under way", |w| Some(w.busy >= MOST));
test!(WINDOW, "the receiver's window was the limit", |w| Some(w.window_limited >= SOME));
test!(CLOSED, "that window fell to nothing", |w| Some(w.window_closed >= 0.1));
test!(OPEN, "that window stayed open", |w| Some(w.window_closed < 0.1));
test!(STEADY, "that window never fell to half", |w| Some(w.window_constant >= 0.5));
test!(SEND_FULL, "the send buffer was full", |w| {
    Some(w.send_full >= MOST || w.buffer_limited >= SOME)
});
test!(ALL_SENT, "all of it was in flight", |w| Some(w.not_sent < SOME));
test!(CONGESTION, "the congestion window was filled", |w| Some(w.congestion_filled >= MOST));
test!(QUEUED, "a queue made the round trip longer", |w| Some(queued(w)));
test!(NO_QUEUE, "no queue built up", |w| Some(!queued(w)));
test!(LOST, "segments were lost", |w| Some(w.lost >= LOSSY));
test!(PACED, "the rate is the program's own cap", |w| {
    Some(w.pacing_max.is_some_and(|cap| w.rate >= NEAR * cap))
});
test!(ALTERNATES, "messages and replies alternate", |w| {
    Some(w.out_over_in <= ALTERNATING && w.out_over_in * ALTERNATING >= 1.0)
});
test!(WAITS_FOR_REPLY, "it waited for the reply", |w| Some(w.receive + w.poll >= MOST));
test!(TAIL, "the end of a message was held back", |w| Some(w.tail_held >= SOME));
test!(FIXED, "its receive buffer has a fixed size", |w| Some(w.receive_buffer_fixed));
test!(NOT_FULL, "its buffer stayed empty", |w| Some(w.queue_full < SOME));
test!(WINDOW_A_TRIP, "one window arrived per round trip", |w| {
    let bytes = w.rate * w.receive_rtt / 8.0;
    (w.receive_rtt > 0.0).then(|| bytes >= NEAR * f64::from(w.receive_window))
});

fn queued(w: &Witnesses) -> bool {
    w.rtt > QUEUE_RATIO * w.rtt_min && w.rtt - w.rtt_min > QUEUE_MIN
}

fn percent(share: f64) -> String {
    format!("{:.0} % of the time", 100.0 * share)
}

fn ms(seconds: f64) -> String {
    format!("{:.1} ms", 1e3 * seconds)
}

/// Twice the size of a buffer, which the kernel counts twice: what to ask for.
fn twice(buffer: u32) -> String {
    format!("{} KiB", (buffer / 1024).max(1))
}

const ROWS: &[Row] = &[
    Row {
        cause: Cause::SenderSleeps,
        needs: &[SENDS, TIMER],
        refuted_by: &[IN_SEND, TAIL],
        share: |w| w.timer,
        words: |w| format!("The sending program slept {} by its own choice", percent(w.timer)),
        knob: |w| {
            format!(
                "Shorten its sleep: {:.1} times the rate at most",
                1.0 / (1.0 - w.timer).max(0.01)
            )
        },
    },
    Row {
        cause: Cause::SenderDisk,
        needs: &[SENDS, DISK],
        refuted_by: &[IN_SEND, TIMER],
        share: |w| w.disk,
        words: |w| format!("The sending program waited for a disk {}", percent(w.disk)),
        knob: |_| "Read ahead, or from a faster disk".to_owned(),
    },
    Row {
        cause: Cause::SenderPipe,
        needs: &[SENDS, PIPE],
        refuted_by: &[IN_SEND, TIMER],
        share: |w| w.pipe,
        words: |w| format!("The sending program waited for a pipe {}", percent(w.pipe)),
        knob: |_| "Look at the program that writes the pipe".to_owned(),
    },
    Row {
        cause: Cause::SenderComputes,
        needs: &[SENDS, ON_CPU, COMPUTING],
        refuted_by: &[IN_SEND, WAITED, QUOTA],
        share: |w| w.run,
        words: |w| format!("The sending program computed: its thread ran {}", percent(w.run)),
        knob: |_| "Profile it, or divide its work over threads".to_owned(),
    },
    Row {
        cause: Cause::SenderCpu,
        needs: &[SENDS, ON_CPU, MOVING],
        refuted_by: &[IN_SEND, WAITED, QUOTA],
        share: |w| w.run,
        words: |w| format!("The sender's CPU was busy moving data {}", percent(w.run)),
        knob: |_| "Send larger messages, or use a second connection on another core".to_owned(),
    },
    Row {
        cause: Cause::ReceiverSleeps,
        needs: &[RECEIVES, TIMER, QUEUE_FULL],
        refuted_by: &[IN_RECEIVE],
        share: |w| w.timer,
        words: |w| {
            format!("The receiving program slept {} while data lay unread", percent(w.timer))
        },
        knob: |w| {
            format!(
                "Shorten its sleep: {:.1} times the rate at most",
                1.0 / (1.0 - w.timer).max(0.01)
            )
        },
    },
    Row {
        cause: Cause::ReceiverDisk,
        needs: &[RECEIVES, DISK, UNREAD],
        refuted_by: &[IN_RECEIVE, TIMER],
        share: |w| w.disk,
        words: |w| format!("The receiving program waited for a disk {}", percent(w.disk)),
        knob: |_| "Write to a faster disk, or from a second thread".to_owned(),
    },
    Row {
        cause: Cause::ReceiverPipe,
        needs: &[RECEIVES, PIPE, UNREAD],
        refuted_by: &[IN_RECEIVE, TIMER],
        share: |w| w.pipe,
        words: |w| format!("The receiving program waited for a pipe {}", percent(w.pipe)),
        knob: |_| "Look at the program that reads the pipe".to_owned(),
    },
    Row {
        cause: Cause::ReceiverComputes,
        needs: &[RECEIVES, ON_CPU, COMPUTING],
        refuted_by: &[IN_RECEIVE, WAITED, QUOTA],
        share: |w| w.run,
        words: |w| format!("The receiving program computed: its thread ran {}", percent(w.run)),
        knob: |_| "Profile it, or divide its work over threads".to_owned(),
    },
    Row {
        cause: Cause::ReceiverCpu,
        needs: &[RECEIVES, ON_CPU, MOVING],
        refuted_by: &[IN_RECEIVE, WAITED, QUOTA],
        share: |w| w.run,
        words: |w| format!("The receiver's CPU was busy moving data {}", percent(w.run)),
        knob: |_| "Read larger pieces, or use a second connection on another core".to_owned(),
    },
    Row {
        cause: Cause::SharedCpu,
        needs: &[WANTS_CPU, WAITED],
        refuted_by: &[QUOTA, IN_SEND, IN_RECEIVE],
        share: |w| w.run + w.wait,
        words: |w| format!("The program waited {} for a CPU that others used", percent(w.wait)),
        knob: |w| {
            let gain = (w.run + w.wait) / w.run.max(0.01);
            format!("Give it a core of its own: {gain:.1} times the rate at most")
        },
    },
    Row {
        cause: Cause::Throttled,
        needs: &[QUOTA],
        refuted_by: &[IN_SEND, IN_RECEIVE],
        share: |w| w.throttled.unwrap_or(0.0),
        words: |w| {
            let share = w.throttled.unwrap_or(0.0);
            format!(
                "The quota of its control group kept the program from the CPU {}",
                percent(share)
            )
        },
        knob: |_| "Raise cpu.max of its control group".to_owned(),
    },
    Row {
        cause: Cause::SendBuffer,
        needs: &[SENDS, HAS_DATA, IN_SEND, SEND_FULL, ALL_SENT],
        refuted_by: &[WINDOW, CONGESTION, TIMER],
        share: |w| w.send,
        words: |w| {
            let trip = ms(w.rtt_min);
            format!(
                "The send buffer of {} KiB is too small for a round trip of {trip}",
                w.send_buffer / 1024
            )
        },
        knob: |w| format!("Ask for SO_SNDBUF of {}: up to twice the rate", twice(w.send_buffer)),
    },
    Row {
        cause: Cause::ReceiverSlow,
        needs: &[SENDS, WINDOW, CLOSED],
        refuted_by: &[TIMER],
        share: |w| w.window_limited,
        words: |_| "The receiving program does not read fast enough".to_owned(),
        knob: |_| "Run `lastmeter why` at the receiver".to_owned(),
    },
    Row {
        cause: Cause::ReceiveBuffer,
        needs: &[SENDS, WINDOW, OPEN, STEADY],
        refuted_by: &[TIMER],
        share: |w| w.window_limited,
        words: |w| {
            let trip = ms(w.rtt_min);
            format!(
                "The receive buffer is too small for a round trip of {trip}: the window is {} KiB",
                w.window / 1024
            )
        },
        knob: |w| {
            let size = w.window / 512;
            format!("Ask for SO_RCVBUF of {size} KiB at the receiver: up to twice the rate")
        },
    },
    Row {
        cause: Cause::ReceiveBuffer,
        needs: &[RECEIVES, WAITS_FOR_REPLY, FIXED, NOT_FULL, WINDOW_A_TRIP],
        refuted_by: &[ALTERNATES, TIMER],
        share: |w| w.receive + w.poll,
        words: |w| {
            let (size, trip) = (w.receive_window / 1024, ms(w.receive_rtt));
            format!(
                "The receive buffer is too small for a round trip of {trip}: the window is {size} \
                 KiB"
            )
        },
        knob: |w| format!("Ask for SO_RCVBUF of {}: up to twice the rate", twice(w.receive_buffer)),
    },
    Row {
        cause: Cause::PacingCap,
        needs: &[SENDS, PACED],
        refuted_by: &[WINDOW],
        share: |w| w.busy,
        words: |w| {
            format!("The program caps its own rate at {}", in_words(w.pacing_max.unwrap_or(0.0)))
        },
        knob: |_| "Raise SO_MAX_PACING_RATE".to_owned(),
    },
    Row {
        cause: Cause::LinkRate,
        needs: &[SENDS, HAS_DATA, CONGESTION, QUEUED],
        refuted_by: &[WINDOW, TIMER, ON_CPU, PACED, ALTERNATES],
        share: |w| w.busy,
        words: |w| format!("A link is full at {}", in_words(w.rate)),
        knob: |_| "Only a faster link helps; a shorter queue saves its delay".to_owned(),
    },
    Row {
        cause: Cause::Loss,
        needs: &[SENDS, HAS_DATA, CONGESTION, NO_QUEUE, LOST],
        refuted_by: &[WINDOW, TIMER, ON_CPU, PACED, ALTERNATES],
        share: |w| w.busy,
        words: |w| {
            format!(
                "{:.2} % of the segments were lost, which keeps the congestion window small",
                100.0 * w.lost
            )
        },
        knob: |_| "Find what loses them, or use congestion control bbr".to_owned(),
    },
    Row {
        cause: Cause::CongestionWindow,
        needs: &[SENDS, HAS_DATA, CONGESTION, NO_QUEUE],
        refuted_by: &[WINDOW, TIMER, ON_CPU, PACED, LOST, ALTERNATES],
        share: |w| w.busy,
        words: |w| {
            format!(
                "The congestion window was still too small for a round trip of {}",
                ms(w.rtt_min)
            )
        },
        knob: |_| "Keep the connection for more data, or use parallel connections".to_owned(),
    },
    Row {
        cause: Cause::RoundTrips,
        needs: &[ALTERNATES, WAITS_FOR_REPLY],
        refuted_by: &[TAIL, TIMER, ON_CPU, WAITED],
        share: |w| w.receive + w.poll,
        words: |w| {
            format!(
                "Each message waits for the reply to the one before, a round trip of {}",
                ms(w.rtt_min)
            )
        },
        knob: |_| {
            "Send the next request before the reply has come: two at a time, twice the rate"
                .to_owned()
        },
    },
    Row {
        cause: Cause::Nagle,
        needs: &[TAIL, ALTERNATES],
        refuted_by: &[WINDOW, CONGESTION],
        share: |w| w.tail_held,
        words: |_| {
            "The end of each message waits for an acknowledgement (Nagle's algorithm)".to_owned()
        },
        knob: |_| "Set TCP_NODELAY, or send each message in one call".to_owned(),
    },
];

/// What the tests say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The one cause that holds.
    pub cause: Option<Cause>,
    /// The share of the time in which it limited.
    pub share: f64,
    /// From tests and witnesses.
    pub confidence: Confidence,
    /// The cause that came nearest.
    pub next: Option<Cause>,
    /// One thing to do.
    pub knob: Option<String>,
    /// The cause, and the test that refutes the next one.
    pub words: String,
}

impl Finding {
    fn undecided(words: String) -> Finding {
        let confidence = Confidence::Undecided;
        Finding { cause: None, share: 0.0, confidence, next: None, knob: None, words }
    }
}

/// Of a side at which no connection was seen.
pub fn unseen() -> Finding {
    Finding::undecided("No TCP connection was seen.".to_owned())
}

/// Judges one side.
pub fn judge(w: &Witnesses) -> Finding {
    if w.looks < LOOKS_MIN {
        let words = format!("Only {} looks at the connection: too few to tell.", w.looks);
        return Finding::undecided(words);
    }
    if w.bytes < BYTES_MIN {
        return Finding::undecided("TCP carried next to nothing, so it is not judged.".to_owned());
    }
    let so = |test: &Test| (test.is)(w);
    let needed = |row: &&Row| row.needs.iter().all(|test| so(test) == Some(true));
    let refuted = |row: &Row| row.refuted_by.iter().find(|test| so(test) == Some(true));
    let holding: Vec<&Row> =
        ROWS.iter().filter(needed).filter(|row| refuted(row).is_none()).collect();
    match holding.as_slice() {
        [row] => found(w, row),
        [] if !w.sends && w.receive + w.poll >= MOST => Finding::undecided(format!(
            "The program waited for data {}: the sender or the network limits, which only the \
             sender's side can tell.",
            percent(w.receive + w.poll)
        )),
        [] if w.sends && w.window_limited >= SOME => Finding::undecided(
            "The receiver's window limits and varies: its program reads too slowly or its buffer \
             is small, which only the receiver's side can tell."
                .to_owned(),
        ),
        [] => Finding::undecided("None of the known causes holds for most of the time.".to_owned()),
        [first, second, ..] => Finding::undecided(format!(
            "Two causes remain. {}. {}.",
            (first.words)(w),
            (second.words)(w)
        )),
    }
}

fn found(w: &Witnesses, row: &Row) -> Finding {
    let so = |test: &Test| (test.is)(w);
    // The nearest other cause is the one that fails the fewest tests; the first of those is named.
    let failed = |other: &Row| {
        let missing = other.needs.iter().filter(|test| so(test) != Some(true)).count();
        missing + other.refuted_by.iter().filter(|test| so(test) == Some(true)).count()
    };
    let others = ROWS.iter().filter(|other| other.cause != row.cause);
    let next = others.min_by_key(|other| failed(other));
    let against = next.map_or(String::new(), |next| {
        let missing = next.needs.iter().find(|test| so(test) != Some(true));
        let refuting = next.refuted_by.iter().find(|test| so(test) == Some(true));
        let why = match (missing, refuting) {
            (_, Some(test)) => test.words.to_owned(),
            (Some(test), None) => format!("it is not so that {}", test.words),
            (None, None) => return String::new(),
        };
        format!("; not {}, since {why}", name(next.cause))
    });
    let read = row.needs.iter().chain(row.refuted_by).all(|test| so(test).is_some());
    let confidence = match (read, w.not_attributed <= UNATTRIBUTED_MAX) {
        (true, true) => Confidence::High,
        (true, false) | (false, true) => Confidence::Medium,
        (false, false) => Confidence::Low,
    };
    Finding {
        cause: Some(row.cause),
        share: (row.share)(w).clamp(0.0, 1.0),
        confidence,
        next: next.map(|row| row.cause),
        knob: Some((row.knob)(w)),
        words: format!("{}{against}. {}.", (row.words)(w), (row.knob)(w)),
    }
}

/// Joins what both sides say: a cause at one side that the other leaves open or says less exactly.
pub fn joined(sender: &Finding, receiver: &Finding) -> Finding {
    match (sender.cause, receiver.cause) {
        (Some(_), None) => sender.clone(),
        (None, Some(_)) => receiver.clone(),
        (Some(a), Some(b)) if a == b => sender.clone(),
        (Some(Cause::ReceiverSlow), Some(_)) => receiver.clone(),
        (Some(_), Some(_)) => Finding::undecided(format!(
            "The two sides disagree. {} {}",
            sender.words, receiver.words
        )),
        (None, None) => sender.clone(),
    }
}

/// A cause in words.
pub fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::SenderSleeps => "a sleeping sender",
        Cause::SenderDisk => "the sender's disk",
        Cause::SenderPipe => "the sender's pipe",
        Cause::SenderComputes => "the sender's computing",
        Cause::SenderCpu => "the sender's CPU",
        Cause::ReceiverSleeps => "a sleeping receiver",
        Cause::ReceiverDisk => "the receiver's disk",
        Cause::ReceiverPipe => "the receiver's pipe",
        Cause::ReceiverComputes => "the receiver's computing",
        Cause::ReceiverCpu => "the receiver's CPU",
        Cause::ReceiverSlow => "a slow reader",
        Cause::SharedCpu => "a shared CPU",
        Cause::Throttled => "a quota",
        Cause::SendBuffer => "the send buffer",
        Cause::ReceiveBuffer => "the receive buffer",
        Cause::LinkRate => "a full link",
        Cause::Loss => "loss",
        Cause::CongestionWindow => "the congestion window",
        Cause::PacingCap => "a pacing cap",
        Cause::RoundTrips => "round trips",
        Cause::Nagle => "Nagle's algorithm",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender whose thread waits for room on a path of 20 ms.
    const BLOCKED: Witnesses = Witnesses {
        sends: true,
        connections: 1,
        looks: 100,
        seconds: 2.0,
        bytes: 1 << 24,
        rate: 5e7,
        busy: 1.0,
        window_limited: 0.0,
        buffer_limited: 0.0,
        congestion_filled: 0.0,
        window_filled: 0.0,
        window_closed: 0.0,
        window_constant: 1.0,
        window: 1 << 20,
        tail_held: 0.0,
        not_sent: 1.0,
        application_limited: 0.0,
        rtt: 0.02,
        rtt_min: 0.02,
        lost: 0.0,
        pacing_max: None,
        out_over_in: 1000.0,
        send_full: 1.0,
        send_buffer: 1 << 17,
        unread: 0.0,
        queue_full: 0.0,
        receive_buffer: 1 << 17,
        receive_buffer_fixed: false,
        receive_window: 1 << 16,
        receive_rtt: 0.0,
        run: 0.02,
        wait: 0.0,
        user: None,
        throttled: Some(0.0),
        timer: 0.0,
        disk: 0.0,
        pipe: 0.0,
        send: 0.97,
        receive: 0.0,
        poll: 0.0,
        other: 0.0,
        not_attributed: 0.01,
    };

    fn cause(w: Witnesses) -> Option<Cause> {
        judge(&w).cause
    }

    #[test]
    fn a_send_buffer_is_too_small_only_if_all_of_it_is_in_flight() {
        assert_eq!(cause(Witnesses { not_sent: 0.0, ..BLOCKED }), Some(Cause::SendBuffer));
        let w = Witnesses { congestion_filled: 1.0, ..BLOCKED };
        assert_eq!(cause(w), Some(Cause::CongestionWindow));
    }

    #[test]
    fn queue_loss_and_delay_are_told_apart() {
        let w = Witnesses { congestion_filled: 1.0, ..BLOCKED };
        let queue = Witnesses { rtt: 0.06, lost: 0.01, ..w };
        assert_eq!(cause(queue), Some(Cause::LinkRate));
        assert_eq!(cause(Witnesses { lost: 0.01, ..w }), Some(Cause::Loss));
        let capped = Witnesses { pacing_max: Some(5.1e7), ..w };
        assert_eq!(cause(capped), Some(Cause::PacingCap));
    }

    #[test]
    fn a_sender_tells_a_slow_reader_from_a_small_buffer() {
        let w = Witnesses { window_limited: 0.9, ..BLOCKED };
        assert_eq!(cause(Witnesses { window_closed: 0.8, ..w }), Some(Cause::ReceiverSlow));
        assert_eq!(cause(w), Some(Cause::ReceiveBuffer));
        // A window that neither closes nor keeps its size may be either.
        let varies = judge(&Witnesses { window_constant: 0.3, ..w });
        assert_eq!((varies.cause, varies.confidence), (None, Confidence::Undecided));
        assert!(varies.words.contains("only the receiver's side"), "{}", varies.words);
    }

    #[test]
    fn unread_bytes_do_not_blame_a_reader_that_waits_for_data() {
        let w = Witnesses { sends: false, unread: 0.9, send: 0.0, receive: 0.95, ..BLOCKED };
        let finding = judge(&w);
        assert_eq!(finding.cause, None);
        assert!(finding.words.contains("waited for data"), "{}", finding.words);
        let asleep = Witnesses { receive: 0.0, timer: 0.95, queue_full: 0.9, ..w };
        assert_eq!(cause(asleep), Some(Cause::ReceiverSleeps));
    }

    #[test]
    fn a_quota_is_not_another_program() {
        let w = Witnesses { send: 0.0, run: 0.3, wait: 0.65, user: Some(0.1), ..BLOCKED };
        assert_eq!(cause(w), Some(Cause::SharedCpu));
        assert_eq!(cause(Witnesses { throttled: Some(0.6), ..w }), Some(Cause::Throttled));
    }

    #[test]
    fn confidence_is_high_only_when_the_time_is_attributed() {
        let w = Witnesses { not_sent: 0.0, ..BLOCKED };
        assert_eq!(judge(&w).confidence, Confidence::High);
        let dark = Witnesses { not_attributed: 0.2, ..w };
        assert_eq!(judge(&dark).confidence, Confidence::Medium);
    }

    #[test]
    fn next_to_nothing_is_not_judged() {
        assert_eq!(cause(Witnesses { bytes: 79, not_sent: 0.0, ..BLOCKED }), None);
        assert_eq!(cause(Witnesses { looks: 2, not_sent: 0.0, ..BLOCKED }), None);
    }
}
