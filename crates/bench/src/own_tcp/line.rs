//! One of our connections that sends a stream over a line with a rate, a delay and losses: before the kernel in real
//! time, or before another of ours in virtual time.

use super::serve::byte;
use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_transport::tcp::{Config, Connection, Recovery, Segment};
use std::collections::VecDeque;
use std::ops::Range;

/// As in `experiments/tcp-recovery`: Ethernet across a continent, which 51 packets fill.
const RATE: Rate = Rate::from_bits(10_000_000);
const WAY: Duration = Duration::from_ms(30);
const WINDOW: u64 = 51;
const MSS: u16 = 1460;
/// Four of a window, three windows after the start.
const LOSSES: Range<u64> = 3 * WINDOW..3 * WINDOW + 4;
/// How many bytes are sent: a second and a half.
pub(super) const BYTES: u64 = 2_000_000;
/// Written at a time.
const CHUNK: u64 = 1 << 14;

/// The line, and what is on it.
#[derive(Default)]
struct Line {
    free: Time,
    /// Packets with data that were put on it.
    data: u64,
    there: VecDeque<(Time, Segment, Vec<u8>)>,
    back: VecDeque<(Time, Segment)>,
}

impl Line {
    fn put(&mut self, now: Time, segment: Segment, payload: Vec<u8>) {
        self.free = self.free.max(now) + RATE.time_for(Bytes(segment.packet_len()));
        self.data += u64::from(segment.len > 0);
        let lost = segment.len > 0 && LOSSES.contains(&(self.data - 1));
        if !lost {
            self.there.push_back((self.free + WAY, segment, payload));
        }
    }
}

/// The sender and its line.
pub(super) struct Sender {
    tcp: Connection,
    line: Line,
    written: u64,
    completed: Option<Time>,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sent {
    /// Seconds until all was acknowledged.
    pub(super) seconds: f64,
    pub(super) timeouts: u64,
    pub(super) again: u64,
    /// Round trips from the first duplicates until all losses were repaired.
    pub(super) trips: f64,
}

/// A TCP as in that experiment; `acknowledge_every` is that of the kernel.
fn config(recovery: Recovery) -> Config {
    Config {
        mss: MSS,
        recovery,
        sack: false,
        timestamps: false,
        limited_transmit: false,
        initial_window: 1,
        growth_max: 1,
        initial_threshold: Some(Bytes(WINDOW * u64::from(MSS))),
        timeout_initial: Duration::from_secs(3),
        timeout_min: Duration::from_secs(1),
        granularity: Duration::from_ms(500),
        content: true,
        ..Config::modern()
    }
}

impl Sender {
    pub(super) fn new(recovery: Recovery) -> Sender {
        let tcp = Connection::connect(Time::START, config(recovery), 1);
        Sender { tcp, line: Line::default(), written: 0, completed: None }
    }

    /// A segment that the other end sent at `now`.
    pub(super) fn comes_back(&mut self, now: Time, segment: Segment) {
        self.line.back.push_back((now + WAY, segment));
    }

    /// What leaves the line by `now`.
    pub(super) fn leaves(&mut self, now: Time) -> Option<(Segment, Vec<u8>)> {
        let (_, segment, payload) = self.line.there.pop_front_if(|(due, ..)| *due <= now)?;
        Some((segment, payload))
    }

    /// Everything that is due at this end.
    pub(super) fn step(&mut self, now: Time) {
        while let Some((_, segment)) = self.line.back.pop_front_if(|(due, _)| *due <= now) {
            self.tcp.receive(now, &segment, &[]);
            if self.tcp.acknowledged() >= BYTES {
                self.completed.get_or_insert(now);
            }
            self.turn(now);
        }
        if self.tcp.ready_at().is_some_and(|due| due <= now) {
            self.tcp.expire(now);
        }
        self.turn(now);
    }

    fn turn(&mut self, now: Time) {
        while self.written < BYTES {
            let until = BYTES.min(self.written + CHUNK);
            let bytes: Vec<u8> = (self.written..until).map(byte).collect();
            let taken = self.tcp.write(&bytes);
            self.written += taken as u64;
            if taken < bytes.len() {
                break;
            }
        }
        if self.written == BYTES {
            self.tcp.close();
        }
        while let Some(segment) = self.tcp.transmit(now) {
            let mut payload = Vec::new();
            self.tcp.payload(&segment, &mut payload);
            self.line.put(now, segment, payload);
        }
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Option<Time> {
        let there = self.line.there.front().map(|(due, ..)| *due);
        let back = self.line.back.front().map(|(due, _)| *due);
        [self.tcp.ready_at(), there, back].into_iter().flatten().min()
    }

    /// How it went, once everything was acknowledged.
    pub(super) fn sent(&self) -> Option<Sent> {
        let seconds = self.completed?.since_start().as_secs_f64();
        let counters = self.tcp.counters();
        Some(Sent {
            seconds,
            timeouts: counters.timeouts,
            again: counters.retransmissions,
            trips: counters.repairing.as_secs_f64() / (WAY * 2).as_secs_f64(),
        })
    }
}

/// The same in virtual time, with a receiver of our own.
pub(super) fn model(recovery: Recovery) -> Option<Sent> {
    let mut sender = Sender::new(recovery);
    let mut receiver = Connection::listen(config(recovery), 2);
    let mut now = Time::START;
    // Each step has something that is due: a segment or a timer.
    for _ in 0..STEPS_MAX {
        sender.step(now);
        while let Some((segment, payload)) = sender.leaves(now) {
            receiver.receive(now, &segment, &payload);
            receiver.consume(u64::MAX);
            while let Some(segment) = receiver.transmit(now) {
                sender.comes_back(now, segment);
            }
        }
        if receiver.ready_at().is_some_and(|due| due <= now) {
            receiver.expire(now);
            while let Some(segment) = receiver.transmit(now) {
                sender.comes_back(now, segment);
            }
        }
        if let Some(sent) = sender.sent() {
            return Some(sent);
        }
        now = [sender.next(), receiver.ready_at()].into_iter().flatten().min()?;
    }
    None
}

/// Steps of a model: a transfer has some ten thousand.
const STEPS_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Four losses of a window: what the experiment shows, in this line's model.
    #[test]
    fn a_165_partial_acknowledgements_repair_what_reno_leaves_to_its_timer() {
        let (reno, newreno) = (model(Recovery::Reno).unwrap(), model(Recovery::NewReno).unwrap());
        assert_eq!((newreno.timeouts, newreno.again), (0, 4), "{newreno:?}");
        assert!(newreno.trips <= 5.5, "{newreno:?}");
        assert!(reno.timeouts > 0 && reno.seconds > newreno.seconds + 0.5, "{reno:?} {newreno:?}");
    }
}
