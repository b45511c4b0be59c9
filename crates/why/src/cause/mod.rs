//! The causes that can limit somebody's connection, and the tests by which each stands or falls.
//!
//! A cause holds when all that it needs was read and is so, and nothing that was read refutes it. When one
//! cause holds it is the verdict; when none or several do there is no verdict, and the words say why.
//! Confidence is high only where every test could be made and at most a tenth of the time of the
//! thread that moves the data is not attributed.

mod advice;
mod both;
mod datagrams;
mod facts;
mod gain;
mod rows;

pub use advice::{Advice, Lift};
pub use both::is_hidden;
pub use gain::{Gain, Predicted, of as gain};

use both::SELDOM;
use facts::{BUSY, DATAGRAMS, MOST, SOME};
use lastmeter_ledger::Confidence;
use lastmeter_live::observe::Witnesses;
use rows::Row;
use serde::{Deserialize, Serialize};

/// Fewer looks than this decide nothing.
const LOOKS_MIN: u32 = 6;
/// Fewer than this leave shares of the looks coarse.
const LOOKS_SURE: u32 = 20;
/// Fewer bytes than this are next to nothing.
const BYTES_MIN: u64 = 4096;
/// The share of the time that may stay unattributed where confidence is high.
const UNATTRIBUTED_MAX: f64 = 0.1;
/// Waiting for a CPU longer than this, the program is disturbed by others.
const DISTURBED: f64 = 0.1;

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
    /// Each message is a segment and a call of its own, and the sender's CPU is busy with them.
    SmallMessages,
    /// One CPU is busy with the protocols of arriving packets.
    Softirq,
    /// What exceeds a rate is dropped, without a queue.
    Policer,
    /// Packets overtake each other.
    Reordering,
    /// The way back loses or delays acknowledgements.
    AckPath,
    /// Making connections takes longer than using them.
    ConnectionSetUp,
    /// The name server.
    NameLookUp,
    /// Datagrams arrive faster than they are read.
    DatagramOverflow,
    /// What passes the data on between the two ends.
    Proxy,
    /// The network has no part in it.
    NoNetwork,
}

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
    /// What limits is not at this side; only another can tell what it is.
    pub elsewhere: bool,
    /// One thing to do.
    pub advice: Option<Advice>,
    /// The cause, and the test that refutes the next one.
    pub words: String,
}

impl Finding {
    fn undecided(words: String) -> Finding {
        Finding {
            cause: None,
            share: 0.0,
            confidence: Confidence::Undecided,
            next: None,
            elsewhere: false,
            advice: None,
            words,
        }
    }
}

/// Of a side at which no connection was seen.
pub fn unseen() -> Finding {
    Finding::undecided("No TCP connection was seen.".to_owned())
}

/// Judges one side.
pub fn judge(w: &Witnesses) -> Finding {
    if w.looks.max(w.program_looks) < LOOKS_MIN {
        return Finding::undecided(match w.bytes < BYTES_MIN {
            true => "No TCP connection carried data before the command ended.".to_owned(),
            false => format!("Only {} looks at the connection: too few to tell.", w.looks),
        });
    }
    // Connections that are too short to be looked at often say little themselves.
    let brief = w.looks < LOOKS_MIN;
    let rows = if brief || w.bytes < BYTES_MIN { rows::OTHER } else { rows::TCP };
    let so = |test: &facts::Test| (test.is)(w) == Some(true);
    let holds = |row: &&Row| row.needs.iter().all(so) && !row.refuted_by.iter().any(so);
    let holding: Vec<&Row> = rows.iter().filter(holds).collect();
    match holding.as_slice() {
        [row] => found(w, row, rows),
        [first, others @ ..] if others.iter().all(|other| other.cause == first.cause) => {
            found(w, first, rows)
        }
        [] => {
            let (elsewhere, words) = open(w);
            Finding { elsewhere, ..Finding::undecided(words) }
        }
        [first, second, ..] => Finding::undecided(format!(
            "Two causes remain. {}. {}.",
            (first.words)(w),
            (second.words)(w)
        )),
    }
}

/// Whether what limits is not at this side, and why nothing holds.
fn open(w: &Witnesses) -> (bool, String) {
    let waiting = w.receive + w.poll;
    let percent = |share: f64| format!("{:.0} % of the time", 100.0 * share);
    let elsewhere = |words: String| (true, words);
    match w {
        w if w.bytes < BYTES_MIN && w.datagrams.0.max(w.datagrams.1) >= DATAGRAMS => {
            datagrams::open(w)
        }
        w if w.bytes >= BYTES_MIN && w.looks < LOOKS_MIN => {
            (false, format!("Only {} looks at the connection: too few to tell.", w.looks))
        }
        w if w.bytes < BYTES_MIN => {
            (false, "TCP carried next to nothing, so it is not judged.".to_owned())
        }
        w if w.accept >= SOME => elsewhere(format!(
            "It waited for new connections {}: what delays them only their other end can tell.",
            percent(w.accept)
        )),
        w if !w.sends && waiting >= MOST => elsewhere(format!(
            "The program waited for data {}: the sender or the network limits, which only the \
             sender's side can tell.",
            percent(waiting)
        )),
        // A buffer that is seldom full, by a program that has time left, is no slow reader's.
        w if !w.sends && waiting >= SOME && w.run < BUSY && w.queue_full < SELDOM => {
            elsewhere(format!(
                "The program waited for data {}, and its buffer was full {}: the sender or the \
                 network limits, which only the sender's side can tell.",
                percent(waiting),
                percent(w.queue_full)
            ))
        }
        w if (facts::TARDY.is)(w) == Some(true) && waiting >= MOST => elsewhere(format!(
            "It waited {} for the other end, which takes longer than the round trip to reply; why, \
             only that end can tell.",
            percent(waiting)
        )),
        w if w.sends && is_hidden(w) && w.empty >= MOST => (
            false,
            format!(
                "Its socket had nothing to send {}: the sending program is slow, and why only a \
                 user who may see its process can tell.",
                percent(w.empty)
            ),
        ),
        w if w.sends && w.window_limited >= SOME => elsewhere(
            "The receiver's window limits and varies: its program reads too slowly or its buffer \
             is small, which only the receiver's side can tell."
                .to_owned(),
        ),
        w if w.sends && facts::queued(w) && (facts::FEW_ACKS.is)(w) == Some(true) => elsewhere(
            "The round trip is longer than it need be and few acknowledgements come back: a link \
             is full, on the way there or on the way back, which the receiver's side can tell."
                .to_owned(),
        ),
        _ => (false, "None of the known causes holds for most of the time.".to_owned()),
    }
}

fn found(w: &Witnesses, row: &Row, rows: &[Row]) -> Finding {
    let so = |test: &facts::Test| (test.is)(w);
    // The nearest other cause is the one of which most is so; the test that refutes it is named.
    let nearness = |other: &Row| {
        let so_far = other.needs.iter().filter(|test| so(test) == Some(true)).count();
        let against = other.refuted_by.iter().filter(|test| so(test) == Some(true)).count();
        (2 * so_far) as i64 - (other.needs.len() + against) as i64
    };
    let others = rows.iter().filter(|other| other.cause != row.cause);
    let next = others.max_by_key(|other| nearness(other));
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
    let disturbed = w.wait >= DISTURBED && row.cause != Cause::SharedCpu;
    // These rest on counts of few events or on what looks like a queue, or like a round trip, from afar.
    let inferred = match row.cause {
        Cause::Loss | Cause::Policer | Cause::Reordering | Cause::CongestionWindow => true,
        Cause::LinkRate => w.lost == 0.0,
        Cause::ReceiveBuffer => !w.sends,
        _ => false,
    };
    let coarse = w.looks.max(w.program_looks) < LOOKS_SURE;
    let clear = w.not_attributed <= UNATTRIBUTED_MAX && !disturbed && !inferred && !coarse;
    let confidence = match (read, clear) {
        (true, true) => Confidence::High,
        (true, false) | (false, true) => Confidence::Medium,
        (false, false) => Confidence::Low,
    };
    let advice = (row.advice)(w);
    Finding {
        cause: Some(row.cause),
        share: (row.share)(w).clamp(0.0, 1.0),
        confidence,
        next: next.map(|row| row.cause),
        elsewhere: false,
        words: format!("{}{against}. {}.", (row.words)(w), advice.knob()),
        advice: Some(advice),
    }
}

/// What was read of one side, and what it says.
pub type Side<'a> = (Option<&'a Witnesses>, &'a Finding);

/// Joins what both sides say: a cause at one side that the other leaves open or says less exactly, and
/// what only both together show. `clock` is by how many seconds the sides' clocks may be apart.
pub fn joined(sender: Side<'_>, receiver: Side<'_>, clock: f64) -> Finding {
    if let (Some(out), Some(back)) = (sender.0, receiver.0) {
        let finding = both::buffers(out, sender.1, back, receiver.1);
        let finding = finding.or_else(|| both::path(out, sender.1, back, receiver.1, clock));
        if let Some(finding) = finding {
            return finding;
        }
    }
    let (sender, receiver) = (sender.1, receiver.1);
    match (sender.cause, receiver.cause) {
        (Some(Cause::ReceiverSlow), None) => Finding::undecided(format!(
            "The receiver does not read fast enough, and why is open. {}",
            receiver.words
        )),
        (Some(_), None) => sender.clone(),
        (None, Some(_)) => receiver.clone(),
        (Some(a), Some(b)) if a == b => sender.clone(),
        (Some(Cause::ReceiverSlow), Some(_)) => receiver.clone(),
        // Nothing tells the sender of datagrams that they are dropped, so it is always busy with something.
        (Some(_), Some(Cause::DatagramOverflow)) => receiver.clone(),
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
        Cause::SmallMessages => "small messages",
        Cause::Softirq => "protocol work on one CPU",
        Cause::Policer => "a policer",
        Cause::Reordering => "reordering",
        Cause::AckPath => "the way back",
        Cause::ConnectionSetUp => "connection set-up",
        Cause::NameLookUp => "name look-ups",
        Cause::DatagramOverflow => "unread datagrams",
        Cause::Proxy => "a proxy between",
        Cause::NoNetwork => "no network at all",
    }
}

#[cfg(test)]
mod tests {
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
    }

    #[test]
    fn unread_bytes_do_not_blame_a_reader_that_waits_for_data() {
        let w = Witnesses { sends: false, unread: 0.9, send: 0.0, receive: 0.95, ..blocked() };
        let finding = judge(&w);
        assert_eq!(finding.cause, None);
        assert!(finding.words.contains("waited for data"), "{}", finding.words);
        let asleep = Witnesses { receive: 0.0, timer: 0.95, queue_full: 0.9, ..w };
        assert_eq!(cause(asleep), Some(Cause::ReceiverSleeps));
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
        // A window of 262 kB, of which less than half comes each round trip.
        let varies =
            Witnesses { window_closed: 0.0, window_constant: 0.3, window: 1 << 18, ..slow };
        assert_eq!(judge(&varies).cause, None);
        assert_eq!(of(&varies, &waits), Some(Cause::Proxy));
        assert_eq!(of(&Witnesses { window: 1 << 17, ..varies }, &waits), None);
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
        let out =
            Witnesses { window_limited: 0.9, window_constant: 0.3, window: 1 << 17, ..blocked() };
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
        let of =
            |back: &Witnesses| joined((Some(&out), &judge(&out)), (Some(back), &judge(back)), 0.0);
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
        let reads =
            Witnesses { sends: false, receive: 0.99, send: 0.0, send_full: 0.0, ..blocked() };
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
        assert_eq!(
            of(Witnesses { overflowed: 0.3, ..receives }).cause,
            Some(Cause::DatagramOverflow)
        );
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
}
