//! What to do about a cause: one knob, with a value computed from what was measured, and what to expect.

use super::Cause;
use super::gain::{self, Gain, PIECE};
use lastmeter_ledger::figures::rate as in_words;
use lastmeter_live::observe::Witnesses;
use serde::Serialize;

/// The most by which a buffer is advised to grow at once: beyond, something else limits.
const GROW_MAX: f64 = 4.0;
/// Connections at once, where more than one is advised.
const AT_ONCE: u32 = 4;

/// A change whose gain can be predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lift {
    /// `SO_SNDBUF` of its connections, bytes.
    SendBuffer(u64),
    /// `SO_RCVBUF`, bytes.
    ReceiveBuffer(u64),
    /// `TCP_NODELAY`.
    NoDelay,
    /// `SO_MAX_PACING_RATE`, bits per second.
    Pacing(u64),
    /// `TCP_CONGESTION` = `bbr`.
    Bbr,
    /// All cores that this process may use.
    Affinity,
    /// No quota of its control group.
    Quota,
    /// This part of what the program does itself for each message: sleeping, computing, its disk, its pipe.
    Work(f64),
    /// A link, or a contract, this many times as fast.
    Link(f64),
    /// This part of the loss.
    Loss(f64),
    /// This part of the path's delay.
    Trip(f64),
    /// So many times as many connections at once.
    Connections(u32),
    /// One connection for all messages.
    KeepOpen,
    /// No name is looked up.
    NoLookUp,
    /// Messages so many times as large.
    Message(f64),
}

impl Lift {
    /// In words.
    pub fn words(&self) -> String {
        let part = |part: f64, of: &str| match part {
            0.5 => format!("half of the {of}"),
            0.25 => format!("a quarter of the {of}"),
            part => format!("{part} of the {of}"),
        };
        match *self {
            Lift::SendBuffer(ask) => format!("SO_SNDBUF of {}", size(ask as f64)),
            Lift::ReceiveBuffer(ask) => format!("SO_RCVBUF of {}", size(ask as f64)),
            Lift::NoDelay => "TCP_NODELAY".to_owned(),
            Lift::Pacing(rate) => format!("SO_MAX_PACING_RATE of {}", in_words(rate as f64)),
            Lift::Bbr => "congestion control bbr".to_owned(),
            Lift::Affinity => "any core".to_owned(),
            Lift::Quota => "no quota".to_owned(),
            Lift::Work(left) => part(left, "work"),
            Lift::Link(factor) => format!("a link {factor} times as fast"),
            Lift::Loss(left) => part(left, "loss"),
            Lift::Trip(left) => part(left, "delay"),
            Lift::Connections(count) => format!("{count} connections for each"),
            Lift::KeepOpen => "connections kept open".to_owned(),
            Lift::NoLookUp => "no look-ups".to_owned(),
            Lift::Message(factor) => format!("messages {factor} times as large"),
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// What to change, and to what.
    pub words: String,
    /// What it brings.
    pub gain: Option<Gain>,
    /// The change itself, where its gain can be predicted.
    pub lift: Option<Lift>,
}

impl Advice {
    fn of(words: impl Into<String>) -> Advice {
        Advice { words: words.into(), gain: None, lift: None }
    }

    /// With what the change brings, where `cause` limits.
    fn with(self, cause: Cause, lift: Lift, w: &Witnesses) -> Advice {
        Advice { gain: gain::of(cause, lift, w).ok(), lift: Some(lift), ..self }
    }

    /// The whole of it, without a full stop.
    pub fn knob(&self) -> String {
        match &self.gain {
            Some(gain) => format!("{}: {}", self.words, gain.words()),
            None => self.words.clone(),
        }
    }
}

/// Half of what the program does itself: that much is certain to be the limit, all of it is not.
const HALF: Lift = Lift::Work(0.5);

/// A size to ask for, in a round unit.
fn size(bytes: f64) -> String {
    match bytes {
        b if b >= 1024.0 * 1024.0 => format!("{:.1} MiB", b / 1024.0 / 1024.0),
        b => format!("{:.0} KiB", (b / 1024.0).max(1.0)),
    }
}

/// Bytes that are under way at this rate.
fn in_flight(rate: f64, trip: f64) -> f64 {
    (rate * trip / 8.0).max(1.0)
}

/// The cause of this kind at the end that was looked at.
fn at(w: &Witnesses, sender: Cause, receiver: Cause) -> Cause {
    if w.sends { sender } else { receiver }
}

pub(super) fn sleep(w: &Witnesses) -> Advice {
    let words = "Sleep less: read or send when the socket is ready instead of at set times; \
                 with half of it";
    Advice::of(words).with(at(w, Cause::SenderSleeps, Cause::ReceiverSleeps), HALF, w)
}

pub(super) fn send_disk(w: &Witnesses) -> Advice {
    Advice::of("Read ahead, or from a disk twice as fast").with(Cause::SenderDisk, HALF, w)
}

pub(super) fn receive_disk(w: &Witnesses) -> Advice {
    let words = "Write from a second thread, or to a disk twice as fast";
    Advice::of(words).with(Cause::ReceiverDisk, HALF, w)
}

pub(super) fn pipe_from(w: &Witnesses) -> Advice {
    let words = "Look at the program that writes the pipe; if it were twice as fast";
    Advice::of(words).with(Cause::SenderPipe, HALF, w)
}

pub(super) fn pipe_to(w: &Witnesses) -> Advice {
    let words = "Look at the program that reads the pipe; if it were twice as fast";
    Advice::of(words).with(Cause::ReceiverPipe, HALF, w)
}

pub(super) fn profile(w: &Witnesses) -> Advice {
    let words = "Divide its work over two threads, or profile it; with half of its computing";
    Advice::of(words).with(at(w, Cause::SenderComputes, Cause::ReceiverComputes), HALF, w)
}

pub(super) fn second_core(_: &Witnesses) -> Advice {
    Advice::of(
        "Use a second connection on another core; how much that brings, the other end's CPU \
         decides",
    )
}

pub(super) fn larger_messages(w: &Witnesses) -> Advice {
    let size_now = w.payload.max(1.0);
    let words = format!(
        "Send 4 KiB at a time instead of {size_now:.0} B, or leave TCP_NODELAY off, so that \
         messages share segments; already with twice as much at a time"
    );
    Advice::of(words).with(Cause::SmallMessages, Lift::Message(2.0), w)
}

pub(super) fn own_core(w: &Witnesses) -> Advice {
    let words = "Give it a core of its own (taskset), or move the others away";
    Advice::of(words).with(Cause::SharedCpu, Lift::Affinity, w)
}

pub(super) fn quota(w: &Witnesses) -> Advice {
    let words = "Lift the quota (cpu.max) of its control group";
    Advice::of(words).with(Cause::Throttled, Lift::Quota, w)
}

pub(super) fn softirq(_: &Witnesses) -> Advice {
    Advice::of(
        "Spread the protocol work over more cores (RPS: rps_cpus; or more queues), or switch GRO \
         on; how much that brings, what else runs there decides",
    )
}

pub(super) fn send_buffer(w: &Witnesses) -> Advice {
    let now = in_flight(w.rate, w.rtt_min);
    let grow = (f64::from(w.window) / now).clamp(2.0, GROW_MAX);
    // The kernel doubles what is asked for.
    let ask = ((grow * now - PIECE / 2.0) / 2.0).max(f64::from(w.send_buffer));
    let words = format!(
        "Ask for SO_SNDBUF of {} ({} at a time every {:.1} ms now), or leave it to the kernel",
        size(ask),
        size(now),
        1e3 * w.rtt_min
    );
    Advice::of(words).with(Cause::SendBuffer, Lift::SendBuffer(ask as u64), w)
}

pub(super) fn receive_buffer(w: &Witnesses) -> Advice {
    let ask = GROW_MAX * f64::from(if w.sends { w.window } else { w.receive_buffer / 2 });
    let trip = if w.sends { w.rtt_min } else { w.receive_rtt };
    let words = format!(
        "Ask for SO_RCVBUF of {} at the receiver before it connects ({} times {:.1} ms), or leave \
         it to the kernel",
        size(ask),
        in_words(GROW_MAX * w.rate),
        1e3 * trip
    );
    let advice = Advice::of(words).with(Cause::ReceiveBuffer, Lift::ReceiveBuffer(ask as u64), w);
    // It is the receiver's to change.
    Advice { lift: advice.lift.filter(|_| !w.sends), ..advice }
}

pub(super) fn at_the_receiver(_: &Witnesses) -> Advice {
    Advice::of("Run `lastmeter why` at the receiver")
}

pub(super) fn as_its_user(_: &Witnesses) -> Advice {
    Advice::of("Run the agent as the user of the receiving program, or as root")
}

pub(super) fn pacing(w: &Witnesses) -> Advice {
    let cap = 2.0 * w.pacing_max.unwrap_or(0.0);
    let words = format!("Raise SO_MAX_PACING_RATE to {}", in_words(cap));
    Advice::of(words).with(Cause::PacingCap, Lift::Pacing(cap as u64), w)
}

pub(super) fn link(w: &Witnesses) -> Advice {
    let words = match w.rtt - w.rtt_min {
        queue if queue > 0.005 => format!(
            "Its queue costs {:.0} ms, which fq_codel or bbr saves; for more, only a faster link \
             helps: one twice as fast",
            1e3 * queue
        ),
        _ => "Only a faster link helps; one twice as fast".to_owned(),
    };
    Advice::of(words).with(Cause::LinkRate, Lift::Link(2.0), w)
}

pub(super) fn policer(w: &Witnesses) -> Advice {
    let words = format!(
        "Send no faster than it lets pass: SO_MAX_PACING_RATE of {} saves the repeats; for more, \
         a contract for twice as much",
        in_words(w.rate)
    );
    Advice::of(words).with(Cause::Policer, Lift::Link(2.0), w)
}

pub(super) fn loss(w: &Witnesses) -> Advice {
    match w.bbr_rate {
        Some(_) => Advice::of("Find what loses them (cable, radio, a full buffer of an interface)"),
        None => Advice::of(
            "Find what loses them, or use congestion control bbr, which does not slow down for \
             it, or four connections",
        )
        .with(Cause::Loss, Lift::Connections(AT_ONCE), w),
    }
}

pub(super) fn reordering(_: &Witnesses) -> Advice {
    Advice::of("Find the two ways that the packets take (load balancing by packet); hash by flow")
}

pub(super) fn congestion(w: &Witnesses) -> Advice {
    let words = "Keep the connection open for more data, or use four connections at once";
    Advice::of(words).with(Cause::CongestionWindow, Lift::Connections(AT_ONCE), w)
}

pub(super) fn ack_path(_: &Witnesses) -> Advice {
    Advice::of(
        "Relieve the way back: put acknowledgements first there (a priority queue), or thin them \
         out",
    )
}

pub(super) fn round_trips(w: &Witnesses) -> Advice {
    let words = "Send the next request before the reply has come, two at a time";
    Advice::of(words).with(Cause::RoundTrips, Lift::Connections(2), w)
}

pub(super) fn nagle(w: &Witnesses) -> Advice {
    let words = "Set TCP_NODELAY, or send each message in one call";
    Advice::of(words).with(Cause::Nagle, Lift::NoDelay, w)
}

pub(super) fn set_up(w: &Witnesses) -> Advice {
    let words = "Keep connections open and use them again (keep-alive, a pool)";
    Advice::of(words).with(Cause::ConnectionSetUp, Lift::KeepOpen, w)
}

pub(super) fn names(w: &Witnesses) -> Advice {
    let words = "Look each name up once: a cache, a nearer name server, or the address itself";
    Advice::of(words).with(Cause::NameLookUp, Lift::NoLookUp, w)
}

pub(super) fn overflow(w: &Witnesses) -> Advice {
    let words = format!(
        "The reader must be {:.1} times as fast (a larger SO_RCVBUF helps against bursts only); \
         with half of its own work",
        1.0 / (1.0 - w.overflowed).max(0.01)
    );
    Advice::of(words).with(Cause::DatagramOverflow, HALF, w)
}

pub(super) fn slower(_: &Witnesses) -> Advice {
    Advice::of("Send no faster than it takes (SO_TXTIME or fq's pacing), or use a faster link")
}

pub(super) fn profile_datagrams(_: &Witnesses) -> Advice {
    Advice::of(
        "Profile it, or divide it over two threads with a socket each (SO_REUSEPORT); what that \
         brings, the other end decides",
    )
}

/// Fewer calls for the same datagrams, unless they are few already.
pub(super) fn batches(already: bool) -> Advice {
    Advice::of(match already {
        false => "Move several datagrams with each call (UDP_SEGMENT, UDP_GRO, sendmmsg, recvmmsg)",
        true => {
            "Use a second thread with a socket of its own (several datagrams go with each call)"
        }
    })
}

pub(super) fn proxy(_: &Witnesses) -> Advice {
    Advice::of("Run `lastmeter why` on what passes the data on")
}

pub(super) fn no_network(_: &Witnesses) -> Advice {
    Advice::of("Profile the program; the network is not part of it")
}
