//! What to do about a cause: one knob, with a value computed from what was measured, and what to expect.

use lastmeter_ledger::figures::rate as in_words;
use lastmeter_live::observe::Witnesses;
use serde::Serialize;

/// The most by which a buffer is advised to grow at once: beyond, something else limits.
const GROW_MAX: f64 = 4.0;
/// Times the rate beyond which a gain is not worth a figure.
const GAIN_MAX: f64 = 100.0;
/// Seconds to copy a byte into the kernel and out of it, on any machine of this century at most.
const COPY: f64 = 0.5e-9;

/// Times the present rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// At least.
    pub low: f64,
    /// Most likely.
    pub expected: f64,
    /// At most.
    pub high: f64,
}

impl Gain {
    fn new(low: f64, expected: f64, high: f64) -> Option<Gain> {
        let fits = expected.is_finite() && expected <= GAIN_MAX;
        fits.then_some(Gain { low: low.max(1.0).min(expected), expected, high: high.max(expected) })
    }

    /// What is gained if this share of the time is saved; all of it at best.
    fn without(share: f64) -> Option<Gain> {
        let full = 1.0 / (1.0 - share.clamp(0.0, 0.999));
        Gain::new(1.0 + 0.5 * (full - 1.0), full, 1.0 + 1.3 * (full - 1.0))
    }

    /// In words.
    pub fn words(&self) -> String {
        format!("expect {:.1} times the rate, {:.1} to {:.1}", self.expected, self.low, self.high)
    }
}

/// A change that can be made while the program runs, and taken back.
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
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// What to change, and to what.
    pub words: String,
    /// What it brings.
    pub gain: Option<Gain>,
    /// The change itself, where it can be made from outside.
    pub lift: Option<Lift>,
}

impl Advice {
    fn of(words: impl Into<String>, gain: Option<Gain>, lift: Option<Lift>) -> Advice {
        Advice { words: words.into(), gain, lift }
    }

    /// The whole of it, without a full stop.
    pub fn knob(&self) -> String {
        match &self.gain {
            Some(gain) => format!("{}: {}", self.words, gain.words()),
            None => self.words.clone(),
        }
    }
}

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

pub(super) fn sleep(w: &Witnesses) -> Advice {
    let words = "Sleep less: read or send when the socket is ready instead of at set times";
    Advice::of(words, Gain::without(w.timer.max(w.empty * w.poll)), None)
}

pub(super) fn send_disk(w: &Witnesses) -> Advice {
    Advice::of("Read ahead, or from a faster disk", Gain::without(w.disk), None)
}

pub(super) fn receive_disk(w: &Witnesses) -> Advice {
    let words = "Write to a faster disk, or from a second thread";
    Advice::of(words, Gain::without(w.disk), None)
}

pub(super) fn pipe_from(w: &Witnesses) -> Advice {
    let words = "Look at the program that writes the pipe";
    Advice::of(words, Gain::without(w.pipe - w.pipe_write), None)
}

pub(super) fn pipe_to(w: &Witnesses) -> Advice {
    Advice::of("Look at the program that reads the pipe", Gain::without(w.pipe_write), None)
}

pub(super) fn profile(_: &Witnesses) -> Advice {
    let words = "Divide its work over two threads, or profile it";
    Advice::of(words, Gain::new(1.3, 1.8, 2.0), None)
}

pub(super) fn second_core(w: &Witnesses) -> Advice {
    let words = "Use a second connection on another core";
    // It needs a core that is idle.
    Advice::of(words, if w.idle >= 0.25 { Gain::new(1.2, 1.7, 2.0) } else { None }, None)
}

pub(super) fn larger_messages(w: &Witnesses) -> Advice {
    let size_now = w.payload.max(1.0);
    let each = size_now * 8.0 / w.rate.max(1.0);
    let factor = (4096.0 / size_now).max(2.0);
    let gain = factor * each / (each + (factor - 1.0) * size_now * COPY);
    let words = format!(
        "Send 4 KiB at a time instead of {size_now:.0} B, or leave TCP_NODELAY off, so that \
         messages share segments"
    );
    Advice::of(words, Gain::new(0.4 * gain, 0.8 * gain, gain), None)
}

pub(super) fn own_core(w: &Witnesses) -> Advice {
    let gain = (w.run + w.wait) / w.run.max(0.01);
    let words = "Give it a core of its own (taskset), or move the others away";
    let gain = Gain::new(1.0 + 0.5 * (gain - 1.0), gain, gain * 1.15);
    Advice::of(words, gain, Some(Lift::Affinity))
}

pub(super) fn quota(w: &Witnesses) -> Advice {
    let share = w.throttled.unwrap_or(0.0).min(0.99);
    let words = "Raise the quota (cpu.max) of its control group";
    Advice::of(words, Gain::without(share), None)
}

pub(super) fn softirq(_: &Witnesses) -> Advice {
    let words = "Spread the protocol work over more cores (RPS: rps_cpus; or more queues), or \
                 switch GRO on";
    Advice::of(words, Gain::new(1.2, 1.6, 2.0), None)
}

pub(super) fn send_buffer(w: &Witnesses) -> Advice {
    let now = in_flight(w.rate, w.rtt_min);
    let grow = (f64::from(w.window) / now).clamp(2.0, GROW_MAX);
    // The kernel doubles what is asked for, and its count includes its own overhead.
    let ask = f64::from(w.send_buffer) / 2.0 * grow;
    let words = format!(
        "Ask for SO_SNDBUF of {} ({} at a time every {:.1} ms now), or leave it to the kernel",
        size(ask),
        size(now),
        1e3 * w.rtt_min
    );
    Advice::of(
        words,
        Gain::new(0.6 * grow, 0.95 * grow, 1.2 * grow),
        Some(Lift::SendBuffer(ask as u64)),
    )
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
    let gain = Gain::new(0.5 * GROW_MAX, 0.95 * GROW_MAX, 1.25 * GROW_MAX);
    let lift = (!w.sends).then_some(Lift::ReceiveBuffer(ask as u64));
    Advice::of(words, gain, lift)
}

pub(super) fn at_the_receiver(_: &Witnesses) -> Advice {
    Advice::of("Run `lastmeter why` at the receiver", None, None)
}

pub(super) fn as_its_user(_: &Witnesses) -> Advice {
    Advice::of("Run the agent as the user of the receiving program, or as root", None, None)
}

pub(super) fn pacing(w: &Witnesses) -> Advice {
    let cap = 2.0 * w.pacing_max.unwrap_or(0.0);
    let words = format!("Raise SO_MAX_PACING_RATE to {}", in_words(cap));
    Advice::of(words, Gain::new(1.6, 1.95, 2.1), Some(Lift::Pacing(cap as u64)))
}

pub(super) fn link(w: &Witnesses) -> Advice {
    let words = match w.rtt - w.rtt_min {
        queue if queue > 0.005 => format!(
            "Only a faster link helps; its queue costs {:.0} ms, which fq_codel or bbr saves",
            1e3 * queue
        ),
        _ => "Only a faster link helps".to_owned(),
    };
    Advice::of(words, None, None)
}

pub(super) fn policer(w: &Witnesses) -> Advice {
    let words = format!(
        "Send no faster than it lets pass: SO_MAX_PACING_RATE of {} saves the repeats; more needs \
         another contract",
        in_words(w.rate)
    );
    Advice::of(words, None, None)
}

pub(super) fn loss(w: &Witnesses) -> Advice {
    let words = match w.bbr_rate {
        Some(_) => "Find what loses them (cable, radio, a full buffer of an interface)",
        None => "Use congestion control bbr, which does not slow down for it, or four connections",
    };
    let gain = if w.bbr_rate.is_none() { Gain::new(1.5, 3.5, 20.0) } else { None };
    Advice::of(words, gain, w.bbr_rate.is_none().then_some(Lift::Bbr))
}

pub(super) fn reordering(_: &Witnesses) -> Advice {
    let words = "Find the two ways that the packets take (load balancing by packet); hash by flow";
    Advice::of(words, None, None)
}

pub(super) fn congestion(_: &Witnesses) -> Advice {
    let words = "Keep the connection open for more data, or use four connections at once";
    Advice::of(words, Gain::new(1.5, 3.0, 4.0), None)
}

pub(super) fn ack_path(_: &Witnesses) -> Advice {
    let words = "Relieve the way back: put acknowledgements first there (a priority queue), or \
                 thin them out";
    Advice::of(words, None, None)
}

pub(super) fn round_trips(_: &Witnesses) -> Advice {
    let words = "Send the next request before the reply has come, two at a time";
    Advice::of(words, Gain::new(1.7, 1.95, 2.1), None)
}

pub(super) fn nagle(w: &Witnesses) -> Advice {
    let words = "Set TCP_NODELAY, or send each message in one call";
    let gain = 1.0 / (1.0 - w.tail_held.clamp(0.0, 0.98));
    Advice::of(words, Gain::new(0.4 * gain, gain, 20.0 * gain), Some(Lift::NoDelay))
}

pub(super) fn set_up(w: &Witnesses) -> Advice {
    let words = "Keep connections open and use them again (keep-alive, a pool)";
    Advice::of(words, Gain::without(w.connect), None)
}

pub(super) fn names(w: &Witnesses) -> Advice {
    let words = "Look each name up once: a cache, a nearer name server, or the address itself";
    Advice::of(words, Gain::without(w.names), None)
}

pub(super) fn overflow(w: &Witnesses) -> Advice {
    let words = format!(
        "The reader must be {:.1} times as fast; a larger SO_RCVBUF helps against bursts only",
        1.0 / (1.0 - w.overflowed).max(0.01)
    );
    Advice::of(words, Gain::without(w.overflowed), None)
}

pub(super) fn proxy(_: &Witnesses) -> Advice {
    Advice::of("Run `lastmeter why` on what passes the data on", None, None)
}

pub(super) fn no_network(_: &Witnesses) -> Advice {
    Advice::of("Profile the program; the network is not part of it", None, None)
}
