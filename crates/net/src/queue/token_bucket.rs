//! Token bucket: limits a queue's output to a rate, after a burst.
//!
//! ```text
//! in --> [ any queue ] --> gate(rate, burst) --> out
//! ```
//!
//! In any interval t at most `rate * t + burst` leaves (Cruz 1991, part I, the (sigma, rho)
//! regulator). A packet larger than the burst could never pass and is refused.
//!
//! Tokens are kept as the instant at which the bucket will be full again, so that rounding errors do not add
//! up: the debt of a packet is `rate.time_for(len)`, rounded up once.

use super::{Described, Queue, Site};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Packet, Rate, Time};
use lastmeter_engine::site::Granted;

/// A gate behind another queue.
pub struct TokenBucket<Q> {
    queue: Q,
    rate: Rate,
    burst: Bytes,
    /// The time in which an empty bucket fills, rounded down so that the bound holds exactly.
    depth: Duration,
    /// When the bucket is full again.
    full_at: Time,
    /// The packet that waits for tokens.
    head: Option<Packet>,
}

impl<Q: Queue> TokenBucket<Q> {
    /// A full bucket behind `queue`.
    pub fn new(queue: Q, rate: Rate, burst: Bytes) -> TokenBucket<Q> {
        let depth = rate.time_within(burst);
        TokenBucket { queue, rate, burst, depth, full_at: Time::START, head: None }
    }

    /// When a packet of `len` may pass: its debt, added to the current one, stays within the depth.
    fn passes_at(&self, len: Bytes) -> Time {
        let slack = self.depth.saturating_sub(self.rate.time_for(len));
        Time::from_ps(self.full_at.as_ps().saturating_sub(slack.as_ps()))
    }
}

impl<Q: Queue> Queue for TokenBucket<Q> {
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        if packet.len > self.burst {
            return Err(packet);
        }
        self.queue.enqueue(now, packet)?;
        if self.head.is_none() {
            self.head = self.queue.dequeue(now);
        }
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        let len = self.head.as_ref()?.len;
        if self.passes_at(len) > now {
            return None;
        }
        self.full_at = self.full_at.max(now) + self.rate.time_for(len);
        std::mem::replace(&mut self.head, self.queue.dequeue(now))
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        self.head.as_ref().map(|packet| self.passes_at(packet.len).max(now))
    }
    fn packets(&self) -> u64 {
        self.queue.packets() + u64::from(self.head.is_some())
    }
    fn bytes(&self) -> Bytes {
        self.queue.bytes() + self.head.as_ref().map_or(Bytes::ZERO, |packet| packet.len)
    }
    fn granted(&self, packet: &Packet) -> Granted {
        self.queue.granted(packet)
    }
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        self.queue.dropped()
    }
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        self.queue.counts(count);
    }
}

impl Described for TokenBucket<Box<dyn Queue>> {
    const PAGE: &'static Page = &Page {
        name: "token-bucket",
        family: Family::Queue,
        what: "Limits the output of any other queue to a rate, after a burst.",
        ports: "in --> [ any queue ] --> gate(rate, burst) --> out",
        params: &[
            Param::required("rate", ParamKind::Rate).is("rate at which tokens accumulate"),
            Param::required("burst", ParamKind::BUFFER)
                .is("depth of the bucket; a larger packet is dropped"),
            Param::or("queue", ParamKind::Nested(Family::Queue), "{ drop-tail = {} }")
                .is("where packets wait for tokens"),
        ],
        source: "Cruz, A Calculus for Network Delay, Part I, IEEE Trans. Inf. Theory 37(1), 1991: \
                 the (sigma, rho) regulator",
        deviations: &["Tokens are kept as the instant at which the bucket is full again, so that \
                       rounding errors do not add up."],
        drops: &[("full", "packets longer than the burst, or refused by its queue")],
        example: r#"
duration = "100 ms"
[nodes]
alice = { host = {} }
bob = { host = {} }
[[links]]
between = ["alice", "bob"]
rate = "100 Mbit/s"
queue = { token-bucket = { rate = "5 Mbit/s", burst = "15 kB" } }
[[traffic]]
name = "video"
from = "alice"
to = "bob"
on-off = { rate = "20 Mbit/s", size = "1500 B", on = "10 ms", off = { exponential = "40 ms" } }
"#,
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> TokenBucket<Box<dyn Queue>> {
        let queue = super::build(&values.get::<Nested>("queue"), site);
        // The burst is part of the traffic contract, not buffer space: changes of buffers do not scale it.
        TokenBucket::new(queue, values.get("rate"), values.get("burst"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::DropTail;
    use proptest::prelude::*;

    fn bucket(rate: Rate, burst: u64) -> TokenBucket<DropTail> {
        TokenBucket::new(DropTail::new(u64::MAX, Bytes(u64::MAX)), rate, Bytes(burst))
    }

    #[test]
    fn lets_a_burst_through_at_once_and_then_keeps_the_rate() {
        let mut bucket = bucket(Rate::from_bits(8_000_000), 3000);
        (0..4).for_each(|_| bucket.enqueue(Time::START, Packet::new(Bytes(1500))).unwrap());
        assert!(bucket.dequeue(Time::START).is_some());
        assert!(bucket.dequeue(Time::START).is_some());
        assert!(bucket.dequeue(Time::START).is_none());
        // 1500 bytes at one byte a microsecond.
        let due = Time::START + Duration::from_us(1500);
        assert_eq!(bucket.ready_at(Time::START), Some(due));
        assert!(bucket.dequeue(due).is_some());
        assert_eq!(bucket.ready_at(due), Some(due + Duration::from_us(1500)));
    }

    #[test]
    fn accounts_for_every_packet() {
        use crate::queue::check;
        let options = check::Options { work_conserving: false, ..check::USUAL };
        let queue = DropTail::new(20, Bytes(u64::MAX));
        check::holds(TokenBucket::new(queue, Rate::from_gbit(4), Bytes(3000)), &options);
        // Some packets, of up to 1500 bytes, are longer than the burst of 1000: they are refused.
        check::holds(bucket(Rate::from_gbit(100), 1000), &options);
    }

    proptest! {
        /// Cruz 1991: in every interval, at most burst plus rate times its length.
        #[test]
        fn never_passes_more_than_burst_plus_rate(
            lens in prop::collection::vec(1u64..2000, 1..60),
            gaps in prop::collection::vec(0u64..3_000_000_000, 60),
            bits in 1_000_000u64..50_000_000,
        ) {
            const BURST: u64 = 2500;
            let rate = Rate::from_bits(bits);
            let mut bucket = bucket(rate, BURST);
            let mut departures: Vec<(Time, u64)> = Vec::new();
            let mut now = Time::START;
            for (len, gap) in lens.into_iter().zip(gaps) {
                let arrival = now + Duration::from_ps(gap);
                while let Some(at) = bucket.ready_at(now).filter(|&at| at <= arrival) {
                    departures.push((at, bucket.dequeue(at).unwrap().len.0));
                    now = at;
                }
                now = arrival;
                bucket.enqueue(now, Packet::new(Bytes(len))).unwrap();
            }
            for first in 0..departures.len() {
                let mut passed = 0;
                for &(at, len) in &departures[first..] {
                    passed += len;
                    let span = u128::from((at - departures[first].0).as_ps());
                    let bound = u128::from(BURST) * 8 * 1_000_000_000_000 + span * u128::from(bits);
                    prop_assert!(u128::from(passed) * 8 * 1_000_000_000_000 <= bound);
                }
            }
        }
    }
}
