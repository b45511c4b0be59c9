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
use facts::{BUSY, DATAGRAMS, MOST, OPENED, SOME};
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
        let datagrams = w.datagrams.0.max(w.datagrams.1) >= DATAGRAMS;
        return Finding::undecided(match w.bytes < BYTES_MIN {
            true if datagrams => {
                format!("Only {} looks at the program: too few to tell.", w.program_looks)
            }
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
        w if w.bytes < BYTES_MIN && w.opened >= OPENED => (
            false,
            format!(
                "{:.0} connections a second were opened here, too short to be looked at, so it is \
                 not known whose they are and what limits them.",
                w.opened
            ),
        ),
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
        w if w.sends && w.window_limited >= SOME && facts::is_window_steady(w) => elsewhere(
            "The receiver's window is filled, keeps its size and is opened again later than the \
             shortest round trip: a link is full or who reads at its other end is slow, which \
             only the receiver's side can tell."
                .to_owned(),
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
        (None, None) if sender.elsewhere => Finding::undecided(format!(
            "Neither side shows what limits. At the sender: {} At the receiver: {}",
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
mod tests;
