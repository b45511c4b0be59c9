//! The network between two ends, as both saw it.

use super::{End, Pair, RECEIVER, SENDER, at, near};
use crate::observed::SEEN_MIN;
use lastmeter_ledger::figures;
use lastmeter_ledger::{Count, Counter, Latency, Path, Place, Stage, Times, Totals};
use lastmeter_linux::tcp_info::TcpInfo;
use lastmeter_live::observe::{Mark, Observed};
use lastmeter_live::remote::Clocks;
use std::cmp::Ordering;

/// The clocks may be off by this share of the round trip where one-way delays are told.
const ERROR_MAX: f64 = 0.25;
/// Fewer marks than this in the time that both looked tell nothing.
const MARKS_MIN: usize = 5;

/// One-way delays of data and of acknowledgements, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Delays {
    pub(super) there: f64,
    pub(super) back: f64,
    /// Of either, in opposite directions.
    pub(super) error: f64,
}

pub(super) struct Network {
    /// Where the clocks are known well enough.
    pub(super) delays: Option<Delays>,
    pub(super) counters: Vec<Counter>,
    pub(super) notes: Vec<String>,
}

pub(super) fn of(
    main: &Pair<'_>,
    sender: &End<'_>,
    receiver: &End<'_>,
    clocks: &Clocks,
) -> Network {
    let looking = (sender.seen.observation.reading + receiver.seen.observation.reading) / 2.0;
    let error = clocks.error() + looking;
    let measured = delays(&main.sender.marks, &main.receiver.marks, error);
    let delays = measured.filter(|d| error <= ERROR_MAX * (d.there + d.back));
    let mut notes = vec![clock_words(clocks)];
    notes.push(match (delays, measured) {
        (Some(d), _) => format!(
            "One way, from the host's queues on: data took {} there, acknowledgements {} back \
             (what one is too long the other is too short).",
            near(d.there, d.error),
            figures::time(d.back)
        ),
        (None, Some(d)) => format!(
            "One-way delays are not told: the clocks are known to {}, and both ways together take \
             {}.",
            figures::time(error),
            figures::time(d.there + d.back)
        ),
        (None, None) => {
            "One-way delays are not known: too little was seen at both ends at once.".to_owned()
        }
    });
    notes.extend(both_sides(main));
    Network { delays, counters: counters(main), notes }
}

fn clock_words(clocks: &Clocks) -> String {
    let wall = &clocks.wall;
    let which = match wall.seconds.total_cmp(&0.0) {
        Ordering::Less => "behind",
        _ => "ahead of",
    };
    let (drift, error) = clocks.drift();
    format!(
        "The agent's wall clock is {} {which} this host's; the shortest exchange took {}. Its \
         monotonic clock gained {:.1} ±{:.1} us a second over {:.1} s.",
        near(wall.seconds.abs(), wall.error),
        figures::time(wall.round_trip),
        1e6 * drift,
        1e6 * error,
        clocks.apart
    )
}

/// By how much a count grows each second, from the first look at a connection to the last.
fn each_second(one: &Observed, what: fn(&TcpInfo) -> u64) -> f64 {
    match one.seen < SEEN_MIN {
        // It was seen once, after a time that nobody knows.
        true => what(&one.last) as f64 / SEEN_MIN,
        false => what(&one.last).saturating_sub(what(&one.first)) as f64 / one.seen,
    }
}

/// What the kernels of both ends say of the same packets.
fn both_sides(main: &Pair<'_>) -> Vec<String> {
    let (out, back) = (&main.sender.last, &main.receiver.last);
    let own = match back.receive_rtt {
        0.0 => "does not know it".to_owned(),
        rtt => format!("estimates {}", figures::time(rtt)),
    };
    let trips = format!(
        "Round trip: {} on average and {} at least by the sender's kernel; the receiver's {own}.",
        figures::time(main.sender.rtt),
        figures::time(out.rtt_min)
    );
    let rates = format!(
        "Rate: the sender's kernel sent {} ({} in all again), the receiver's took {} in order.",
        figures::rate(8.0 * each_second(main.sender, |t| t.bytes_sent.max(t.bytes_acked))),
        figures::size(out.bytes_repeated),
        figures::rate(8.0 * each_second(main.receiver, |t| t.bytes_received))
    );
    let missing = out.data_segments_out.saturating_sub(back.data_segments_in);
    let segments = format!(
        "Segments with data: the sender sent {}, {} of them again ({} for nothing); {} arrived, {} \
         out of order; by the last look at each end {missing} were lost or under way.",
        out.data_segments_out,
        out.retransmits,
        out.spurious,
        back.data_segments_in,
        back.out_of_order
    );
    vec![trips, rates, segments]
}

fn counters(main: &Pair<'_>) -> Vec<Counter> {
    let (out, back) = (&main.sender.last, &main.receiver.last);
    let count = |element: &str, name: &str, value: u64| Counter {
        element: element.to_owned(),
        name: name.to_owned(),
        value,
    };
    vec![
        count(SENDER, "segments with data sent", out.data_segments_out.into()),
        count(SENDER, "segments sent again", out.retransmits.into()),
        count(SENDER, "segments sent again for nothing", out.spurious.into()),
        count(RECEIVER, "segments with data arrived", back.data_segments_in.into()),
        count(RECEIVER, "segments arrived out of order", back.out_of_order.into()),
        count(SENDER, "bytes acknowledged", main.sender.sent),
        count(RECEIVER, "bytes arrived in order", main.receiver.received),
    ]
}

/// How far the data had come at a time, linear between marks; `None` outside.
fn come(marks: &[Mark], time: f64, what: impl Fn(&Mark) -> u64) -> Option<f64> {
    let after = marks.partition_point(|mark| mark.at < time);
    let (a, b) = (marks.get(after.checked_sub(1)?)?, marks.get(after)?);
    let (from, to) = (what(a) as f64, what(b) as f64);
    Some(from + (to - from) * (time - a.at) / (b.at - a.at).max(f64::MIN_POSITIVE))
}

/// The mean bytes between what had left and what had arrived, over the rate; the same of acknowledgements.
pub(super) fn delays(sender: &[Mark], receiver: &[Mark], error: f64) -> Option<Delays> {
    let (mut there, mut back, mut count) = (0.0, 0.0, 0);
    let mut ends: Option<[(f64, f64); 2]> = None;
    let mut add = |at: f64, sent: f64, acked: f64, received: f64| {
        there += sent - received;
        back += received - acked;
        count += 1;
        let now = (at, received);
        let [first, last] = ends.unwrap_or([now, now]);
        ends = Some([if at < first.0 { now } else { first }, if at > last.0 { now } else { last }]);
    };
    for mark in sender {
        if let Some(received) = come(receiver, mark.at, |far| far.received) {
            add(mark.at, mark.sent as f64, mark.acked as f64, received);
        }
    }
    for mark in receiver {
        let sent = come(sender, mark.at, |far| far.sent);
        if let Some((sent, acked)) = sent.zip(come(sender, mark.at, |far| far.acked)) {
            add(mark.at, sent, acked, mark.received as f64);
        }
    }
    let [first, last] = ends.filter(|_| count >= MARKS_MIN)?;
    let rate = (last.1 - first.1) / (last.0 - first.0);
    let (there, back) =
        (there / f64::from(count as u32) / rate, back / f64::from(count as u32) / rate);
    let known = rate > 0.0 && there.is_finite() && back.is_finite() && there + back > 0.0;
    known.then_some(Delays { there, back, error })
}

/// The path of a connection's bytes, through both hosts.
pub(super) fn path(pair: &Pair<'_>, there: Option<f64>, several: bool) -> Path {
    let Pair { sender, receiver } = pair;
    let bytes = receiver.received;
    let delivered = Count { packets: receiver.last.data_segments_in.into(), bytes };
    let goodput = 8.0 * each_second(receiver, |t| t.bytes_received);
    let each_second = (goodput / 8.0).max(1.0);
    let name = |text: &str| match several {
        true => format!("{text}, {}", sender.local),
        false => text.to_owned(),
    };
    let stage = |text: &str, place: Place, seconds: f64| Stage {
        place,
        wait: Some(Times::mean(seconds.max(0.0))),
        ..Stage::new(name(text), None, delivered)
    };
    let network = match there {
        Some(there) => stage("network, there", Place::default(), there),
        None => {
            let flying = sender.in_flight / each_second;
            stage("network, until acknowledged", Place::default(), flying)
        }
    };
    let stages = vec![
        stage("waiting to be sent", at(SENDER), sender.not_sent / each_second),
        network,
        stage("unread", at(RECEIVER), receiver.unread / each_second),
    ];
    let mean = stages.iter().map(Stage::wait_mean).sum();
    let latency = Some(Latency { mean, ..Latency::default() });
    let class = match sender.last.retransmits {
        0 => "seen from both ends".to_owned(),
        again => format!("seen from both ends, {again} segments sent again"),
    };
    let totals = Totals { latency, ..Totals::new(delivered, goodput) };
    Path::new(format!("{} to {}", sender.local, sender.remote), class, stages, totals)
}
