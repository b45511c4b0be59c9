//! Which side and which resource limited a transfer, or that the data are inconclusive.
//!
//! Method. Each side's time is split into running, waiting for the CPU, its own delays, and being
//! blocked in the socket. A side that is never blocked is the limit, and its largest part says why.
//! While both sides are blocked, something between them is the limit, and the sender's TCP says
//! what: the receiver's window, the send buffer, or else the network. The network is a rate when
//! a queue builds up (the round-trip time grows or segments are lost), else a delay.
//!
//! | sender blocked | receiver blocked | limit                                              |
//! |----------------|------------------|----------------------------------------------------|
//! | no             | yes              | sender: application, CPU, or a CPU it shares       |
//! | yes            | no               | receiver: application, CPU, or a CPU it shares     |
//! | yes            | yes              | receiver window, send buffer, network              |
//! | no             | no               | the busier of the two; undecided if they are equal |

use crate::transfer::{Measurement, Placement, Side, Workload};
use serde::{Deserialize, Serialize};

/// The share of the time below which nothing is called the limit.
const SHARE_MIN: f64 = 0.5;
/// The lead over the runner-up required to call anything the limit.
const LEAD_MIN: f64 = 0.1;
/// A side that waits for its CPU for this share of the time shares it.
const WAIT_MIN: f64 = 0.2;
/// A round trip this many times the minimum indicates a queue.
const QUEUE_RATIO: f64 = 1.5;
/// And longer by this many seconds, so that the jitter of a veth pair is not taken for a queue.
const QUEUE_MIN: f64 = 200e-6;

/// How the network limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Network {
    /// A link is saturated, at this rate in bits per second.
    Rate(f64),
    /// The path is long and too little is in flight; its round trip in seconds.
    Delay(f64),
}

/// What limits a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Limit {
    /// The sending application has nothing to send.
    SenderApplication,
    /// The send buffer is too small for the path.
    SendBuffer,
    /// Something between the hosts.
    Network(Network),
    /// The receive buffer is too small for the path.
    ReceiverWindow,
    /// The receiving application does not read.
    ReceiverApplication,
    /// The sender's CPU time per byte.
    SenderCpu,
    /// The receiver's CPU time per byte.
    ReceiverCpu,
    /// A CPU that one end shares with other programs, or with the other end.
    SharedCpu,
    /// Each message waits for the reply to the previous one: the round trip limits, and no resource.
    RoundTrip,
    /// The data are inconclusive.
    Undecided,
}

/// What limited a transfer, and for how much of the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limited {
    /// What limits.
    pub by: Limit,
    /// The fraction of time for which it did.
    pub fraction: f64,
    /// 0 to 1: its lead over the runner-up, less what other programs disturbed.
    pub lead: f64,
    /// The next candidate and its fraction.
    pub runner_up: Option<(Limit, f64)>,
    /// One sentence.
    pub words: String,
}

/// The evidence at one end, as fractions of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndEvidence {
    /// On a CPU, the application's own computing included.
    pub run: f64,
    /// Ready while something else ran.
    pub wait: f64,
    /// In the application's own delays, asleep or computing.
    pub application: f64,
    /// Asleep in the socket.
    pub blocked: f64,
}

/// What was measured of a transfer. An end that cannot be observed is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The sender.
    pub sender: Option<EndEvidence>,
    /// The receiver.
    pub receiver: Option<EndEvidence>,
    /// Both run on one core on purpose.
    pub same_core: bool,
    /// Each message waits for a reply.
    pub request_response: bool,
    /// Fraction of time with data in the sender's socket.
    pub busy: f64,
    /// Of all time, the fraction that the receiver's window limited.
    pub receiver_window: f64,
    /// Of all time, the fraction that the send buffer limited.
    pub send_buffer: f64,
    /// Fraction of samples in which all data was in flight and the windows allowed more.
    pub all_in_flight: f64,
    /// Smoothed round-trip time, seconds.
    pub rtt: f64,
    /// Minimum round-trip time.
    pub rtt_min: f64,
    /// Segments retransmitted, as a fraction of those sent.
    pub repeated: f64,
    /// Bits per second.
    pub rate: f64,
    /// Share of the CPU that other programs took.
    pub foreign: f64,
}

/// Judges a transfer between our own hosts.
pub fn of(m: &Measurement) -> Limited {
    let end = |side: &Side| EndEvidence {
        run: side.activity.run,
        wait: side.activity.wait,
        application: side.application,
        blocked: side.activity.blocked,
    };
    let tcp = &m.sender.tcp;
    judge(&Evidence {
        sender: Some(end(&m.sender)),
        receiver: Some(end(&m.receiver)),
        same_core: m.setting.placement == Placement::SameCore,
        request_response: m.setting.workload == Workload::RequestResponse,
        busy: tcp.busy,
        receiver_window: tcp.receiver_window_limited,
        send_buffer: tcp.send_buffer_limited,
        all_in_flight: tcp.all_in_flight,
        rtt: tcp.rtt,
        rtt_min: tcp.rtt_min,
        repeated: tcp.retransmits as f64 / tcp.data_segments_out.max(1) as f64,
        rate: m.goodput.mean,
        foreign: m.foreign,
    })
}

/// Judges evidence from anywhere.
pub fn judge(evidence: &Evidence) -> Limited {
    let mut candidates = candidates(evidence);
    candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (by, fraction) = candidates[0];
    let runner_up = candidates.get(1).copied();
    let lead = fraction - runner_up.map_or(0.0, |(_, f)| f);
    let lead = (lead * (1.0 - evidence.foreign)).clamp(0.0, 1.0);
    if fraction < SHARE_MIN || lead < LEAD_MIN {
        let words = format!(
            "The data do not decide: {} {:.0} % of the time, {} {:.0} %.",
            name(by),
            fraction * 100.0,
            runner_up.map_or("nothing else", |(l, _)| name(l)),
            runner_up.map_or(0.0, |(_, f)| f) * 100.0,
        );
        let runner_up = Some((by, fraction));
        return Limited { by: Limit::Undecided, fraction, lead, runner_up, words };
    }
    let words = words(by, fraction, evidence);
    Limited { by, fraction, lead, runner_up, words }
}

/// Every limit with the fraction of time in which it may have been the one.
fn candidates(e: &Evidence) -> Vec<(Limit, f64)> {
    let (send_blocked, receive_blocked) =
        (e.sender.map_or(1.0, |s| s.blocked), e.receiver.map_or(1.0, |r| r.blocked));
    // At least this long both were blocked, if they were blocked independently: a lower bound
    // would be `s + r - 1`; when one end sleeps because the other does, it is the smaller.
    let both = send_blocked.min(receive_blocked);
    if e.request_response {
        let busiest = [e.sender, e.receiver].into_iter().flatten();
        let own = busiest.map(|end| end.application).fold(0.0, f64::max);
        if own < SHARE_MIN {
            return vec![(Limit::RoundTrip, 1.0 - own)];
        }
    }
    let mut all = Vec::new();
    let limits = [
        (e.sender, Limit::SenderApplication, Limit::SenderCpu),
        (e.receiver, Limit::ReceiverApplication, Limit::ReceiverCpu),
    ];
    let mut shared = 0.0_f64;
    for (end, application, cpu) in limits {
        let Some(end) = end else { continue };
        let asleep = (1.0 - end.run - end.wait - end.blocked).max(0.0);
        let computing = (end.application - asleep).max(0.0);
        all.push((application, end.application));
        if end.wait >= WAIT_MIN {
            // The CPU is full, whether this end or another runs on it.
            shared = shared.max(end.run - computing + end.wait);
        } else {
            all.push((cpu, (end.run - computing).max(0.0)));
        }
    }
    if e.same_core {
        // Each end waits for the other: together they are one user of one core.
        let run: f64 = [e.sender, e.receiver].into_iter().flatten().map(|end| end.run).sum();
        shared = shared.max(run.min(1.0));
        all.retain(|(l, _)| !matches!(l, Limit::SenderCpu | Limit::ReceiverCpu));
    }
    all.push((Limit::SharedCpu, shared));
    let window = e.receiver_window.min(both);
    // The kernel counts this limit only in some of the places where it waits for room.
    let buffer = e.send_buffer.max(e.all_in_flight).min(both - window);
    let network = (both - window - buffer).min(e.busy).max(0.0);
    all.push((Limit::ReceiverWindow, window));
    all.push((Limit::SendBuffer, buffer));
    all.push((Limit::Network(network_kind(e)), network));
    all
}

fn network_kind(e: &Evidence) -> Network {
    let queue = e.rtt > QUEUE_RATIO * e.rtt_min && e.rtt - e.rtt_min > QUEUE_MIN;
    if queue || e.repeated > 0.0 { Network::Rate(e.rate) } else { Network::Delay(e.rtt_min) }
}

fn name(limit: Limit) -> &'static str {
    match limit {
        Limit::SenderApplication => "sending application",
        Limit::SendBuffer => "send buffer",
        Limit::Network(Network::Rate(_)) => "network rate",
        Limit::Network(Network::Delay(_)) => "network delay",
        Limit::ReceiverWindow => "receiver's window",
        Limit::ReceiverApplication => "receiving application",
        Limit::SenderCpu => "sender's CPU",
        Limit::ReceiverCpu => "receiver's CPU",
        Limit::SharedCpu => "shared CPU",
        Limit::RoundTrip => "round trip",
        Limit::Undecided => "nothing",
    }
}

fn words(limit: Limit, fraction: f64, e: &Evidence) -> String {
    let percent = fraction * 100.0;
    let (rtt, rtt_min) = (e.rtt * 1e3, e.rtt_min * 1e3);
    match limit {
        Limit::SenderApplication => format!(
            "The sending application spent {percent:.0} % of the time on its own work or asleep; \
             the path waited for it."
        ),
        Limit::ReceiverApplication => format!(
            "The receiving application spent {percent:.0} % of the time on its own work or asleep; \
             its buffer was full and the sender waited."
        ),
        Limit::SenderCpu | Limit::ReceiverCpu => {
            format!("The {} was busy moving data {percent:.0} % of the time.", name(limit))
        }
        Limit::SharedCpu if e.same_core => {
            format!("Sender and receiver share one CPU, which was busy {percent:.0} % of the time.")
        }
        Limit::SharedCpu => {
            let waited = |end: Option<EndEvidence>| end.map_or(0.0, |end| end.wait);
            let (sender, receiver) = (waited(e.sender), waited(e.receiver));
            let side = if receiver >= sender { "receiver" } else { "sender" };
            format!(
                "The {side} waited {:.0} % of the time for a CPU that another program used.",
                sender.max(receiver) * 100.0
            )
        }
        Limit::ReceiverWindow if e.receiver.is_none() => format!(
            "The receiver's window limited {percent:.0} % of the time: its buffer is small or its \
             application slow; only its own side can tell."
        ),
        Limit::ReceiverWindow => format!(
            "The receive buffer is too small for a round trip of {rtt_min:.1} ms: its window was \
             the limit {percent:.0} % of the time while the receiver waited for data."
        ),
        Limit::SendBuffer => format!(
            "The send buffer is too small for a round trip of {rtt_min:.1} ms: it was the limit \
             {percent:.0} % of the time."
        ),
        Limit::Network(Network::Rate(rate)) => format!(
            "The network carries {:.4} Mbit/s and no more: a queue made the round trip {rtt:.1} ms \
             instead of {rtt_min:.1} ms, or segments were lost.",
            rate / 1e6
        ),
        Limit::Network(Network::Delay(_)) => format!(
            "The congestion window is too small for a round trip of {rtt_min:.1} ms; both ends \
             waited {percent:.0} % of the time."
        ),
        Limit::RoundTrip => {
            "Each message waits for the reply to the previous one: the round-trip time limits, \
             and no resource is saturated."
                .to_owned()
        }
        Limit::Undecided => "The data do not decide.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: EndEvidence = EndEvidence { run: 0.02, wait: 0.0, application: 0.0, blocked: 0.98 };
    const QUIET: Evidence = Evidence {
        sender: Some(IDLE),
        receiver: Some(IDLE),
        same_core: false,
        request_response: false,
        busy: 1.0,
        receiver_window: 0.0,
        send_buffer: 0.0,
        all_in_flight: 0.0,
        rtt: 0.02,
        rtt_min: 0.02,
        repeated: 0.0,
        rate: 1e8,
        foreign: 0.0,
    };

    #[test]
    fn a_sleeping_receiver_is_not_a_small_window() {
        let receiver = EndEvidence { run: 0.03, wait: 0.0, application: 0.96, blocked: 0.01 };
        let e = Evidence { receiver: Some(receiver), receiver_window: 1.0, ..QUIET };
        assert_eq!(judge(&e).by, Limit::ReceiverApplication);
    }

    #[test]
    fn a_small_window_is_the_limit() {
        let e = Evidence { receiver_window: 0.99, ..QUIET };
        assert_eq!(judge(&e).by, Limit::ReceiverWindow);
    }

    #[test]
    fn a_queue_indicates_a_rate_and_no_queue_a_delay() {
        let e = Evidence { rtt: 0.09, ..QUIET };
        assert_eq!(judge(&e).by, Limit::Network(Network::Rate(1e8)));
        assert_eq!(judge(&QUIET).by, Limit::Network(Network::Delay(0.02)));
    }

    #[test]
    fn two_equally_busy_ends_are_undecided() {
        let busy = EndEvidence { run: 0.95, wait: 0.0, application: 0.0, blocked: 0.05 };
        let e = Evidence { sender: Some(busy), receiver: Some(busy), ..QUIET };
        let limited = judge(&e);
        assert_eq!(limited.by, Limit::Undecided);
        assert!(limited.words.contains("sender's CPU"), "{}", limited.words);
    }

    #[test]
    fn the_applications_own_computing_is_not_a_cpu_limit() {
        let sender = EndEvidence { run: 1.0, wait: 0.0, application: 0.97, blocked: 0.0 };
        let e = Evidence { sender: Some(sender), busy: 0.05, ..QUIET };
        assert_eq!(judge(&e).by, Limit::SenderApplication);
    }
}
