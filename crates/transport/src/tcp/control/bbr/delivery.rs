//! Delivery rate estimation: a sample with each acknowledgement.
//!
//! ```text
//! rate = delivered since / max(time in which it was sent, time in which it was acknowledged)
//! ```
//!
//! Both times start from the state when the segment now acknowledged was sent: so a sample never exceeds
//! what the network carried, whatever happens to acknowledgements on their way. Segments sent while the
//! application was the limit are marked, and so are their samples.
//!
//! Source: Cheng, Cardwell, Hassas Yeganeh & Jacobson, Delivery Rate Estimation,
//! draft-cheng-iccrg-delivery-rate-estimation-00, §3; names in `C.` and `P.` are of its variables.
//! Amounts are in bytes, as there (Linux's `tcp_rate.c` counts packets). Without selective
//! acknowledgements a duplicate counts as a full segment and gives no sample, as in Linux.

use lastmeter_base::{Duration, Time};
use std::collections::VecDeque;

/// Bits per second of one byte per picosecond.
const BITS: u128 = 8_000_000_000_000;

/// A segment in flight: `P`. The send buffer limits their number.
#[derive(Clone, Copy, Debug)]
struct Sent {
    start: u64,
    end: u64,
    /// `P.sent_time`.
    at: Time,
    /// `P.delivered`, `P.delivered_time` and `P.first_sent_time`.
    delivered: u64,
    delivered_at: Time,
    first_at: Time,
    /// `P.is_app_limited`.
    limited: bool,
    again: bool,
    arrived: bool,
}

/// A rate sample from an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Bits per second.
    pub(crate) rate: u64,
    /// Bytes delivered when the segment was sent.
    pub(crate) delivered_before: u64,
    /// The application, and not the network, may have limited it.
    pub(crate) limited: bool,
}

/// The state of a connection's estimate: `C`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivery {
    sent: VecDeque<Sent>,
    /// `C.delivered`, in bytes, and `C.delivered_time`.
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Time,
    /// `C.first_sent_time`.
    first_at: Time,
    /// `C.app_limited`: samples are marked until this much has been delivered; 0 for none.
    limited_until: u64,
    /// The minimum round trip: no sample is taken over less.
    least: Option<Duration>,
    /// For the acknowledgement being processed: the segment of its sample, and the shortest round trip that it
    /// shows.
    newest: Option<Sent>,
    pub(crate) round_trip: Option<Duration>,
}

impl Delivery {
    /// A segment is sent; `idle` if nothing else is in flight.
    pub(crate) fn sent(&mut self, now: Time, (start, end): (u64, u64), idle: bool) {
        if idle {
            (self.first_at, self.delivered_at) = (now, now);
        }
        let mut segment = Sent {
            start,
            end,
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_at: self.first_at,
            limited: self.limited_until > 0,
            again: false,
            arrived: false,
        };
        if self.sent.back().is_none_or(|last| last.end <= start) {
            self.sent.push_back(segment);
            return;
        }
        segment.again = true;
        self.replace(segment);
    }

    /// A retransmission replaces the record of the original; if its bounds differ, that is cut.
    fn replace(&mut self, segment: Sent) {
        let Sent { start, end, .. } = segment;
        let first = self.sent.partition_point(|old| old.end <= start);
        let exact = self.sent.get(first).is_some_and(|old| (old.start, old.end) == (start, end));
        if exact {
            self.sent[first] = segment;
            return;
        }
        let mut at = first;
        if let Some(old) = self.sent.get(at).copied().filter(|old| old.start < start) {
            self.sent[at].end = start;
            at += 1;
            if old.end > end {
                self.sent.insert(at, Sent { start: end, ..old });
            }
        }
        while self.sent.get(at).is_some_and(|old| old.end <= end) {
            self.sent.remove(at);
        }
        if let Some(old) = self.sent.get_mut(at).filter(|old| old.start < end) {
            old.start = end;
        }
        self.sent.insert(at, segment);
    }

    /// Everything below `position` has arrived.
    pub(crate) fn arrived_below(&mut self, now: Time, position: u64) {
        while let Some(segment) = self.sent.front().copied().filter(|first| first.end <= position) {
            self.sent.pop_front();
            self.note(now, segment);
        }
    }

    /// Data between two positions has arrived.
    pub(crate) fn arrived(&mut self, now: Time, from: u64, to: u64) {
        let mut at = self.sent.partition_point(|segment| segment.end <= from);
        while let Some(segment) = self.sent.get(at).copied().filter(|next| next.end <= to) {
            self.note(now, segment);
            self.sent[at].arrived = true;
            at += 1;
        }
    }

    /// The sample is of the segment sent after the most had been delivered.
    fn note(&mut self, now: Time, segment: Sent) {
        if segment.arrived {
            return;
        }
        if self.newest.is_none_or(|newest| segment.delivered > newest.delivered) {
            self.newest = Some(segment);
        }
        if !segment.again {
            // The acknowledgement of a retransmission may be for the original (Karn).
            let round_trip = now.saturating_since(segment.at);
            self.round_trip = Some(self.round_trip.map_or(round_trip, |r| r.min(round_trip)));
        }
    }

    /// An acknowledgement of this many bytes has been processed: returns its sample, if any.
    pub(crate) fn sample(&mut self, now: Time, bytes: u64) -> Option<Sample> {
        self.delivered += bytes;
        if self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        if bytes > 0 {
            self.delivered_at = now;
        }
        self.least = self.least.into_iter().chain(self.round_trip).min();
        let segment = self.newest.take()?;
        self.first_at = segment.at;
        let sending = segment.at.saturating_since(segment.first_at);
        let acknowledging = now.saturating_since(segment.delivered_at);
        let interval = sending.max(acknowledging);
        if interval.is_zero() || self.least.is_some_and(|least| interval < least) {
            // A retransmission of data that had already arrived: too short to be true.
            return None;
        }
        let delivered = u128::from(self.delivered - segment.delivered);
        let rate = delivered * BITS / u128::from(interval.as_ps());
        Some(Sample {
            rate: u64::try_from(rate).unwrap_or(u64::MAX),
            delivered_before: segment.delivered,
            limited: segment.limited,
        })
    }

    /// There is nothing to send while `flight` bytes are in flight: samples are marked until all of them have
    /// been delivered.
    pub(crate) fn limit(&mut self, flight: u64) {
        self.limited_until = (self.delivered + flight).max(1);
    }

    /// Whether segments sent now are marked.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited_until > 0
    }

    /// Forgets what is in flight.
    pub(crate) fn clear(&mut self) {
        self.sent = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Time {
        Time::START + Duration::from_ms(ms)
    }

    /// Sends ten segments of 1000 bytes, one every millisecond, from an idle start.
    fn ten() -> Delivery {
        let mut delivery = Delivery::default();
        for n in 0..10 {
            delivery.sent(at(n), (1000 * n, 1000 * (n + 1)), n == 0);
        }
        delivery
    }

    fn acknowledge(delivery: &mut Delivery, ms: u64, from: u64, to: u64) -> Option<Sample> {
        delivery.arrived_below(at(ms), to);
        delivery.sample(at(ms), to - from)
    }

    #[test]
    fn a_sample_is_what_came_since_over_the_time_since() {
        let mut delivery = ten();
        // Everything before the first acknowledgement was sent with nothing delivered at 0 ms.
        let first = acknowledge(&mut delivery, 100, 0, 1000).expect("a sample");
        assert_eq!(first, Sample { rate: 80_000, delivered_before: 0, limited: false });
        delivery.sent(at(100), (10_000, 11_000), false);
        for n in 1..10 {
            acknowledge(&mut delivery, 100 + 2 * n, 1000 * n, 1000 * (n + 1));
        }
        // Sent at 100 ms with 1000 bytes delivered; back at 200 ms with 11,000.
        let last = acknowledge(&mut delivery, 200, 10_000, 11_000).expect("a sample");
        assert_eq!(last, Sample { rate: 800_000, delivered_before: 1000, limited: false });
    }

    #[test]
    fn acknowledgements_that_come_at_once_do_not_raise_the_rate_above_that_of_sending() {
        let mut delivery = Delivery::default();
        for n in 0..20 {
            delivery.sent(at(10 * n), (1000 * n, 1000 * (n + 1)), n == 0);
        }
        assert!(acknowledge(&mut delivery, 195, 0, 10_000).is_some());
        delivery.sent(at(200), (20_000, 21_000), false);
        // Eleven segments acknowledged within 101 ms would be 871 kbit/s: more than was sent.
        let sample = acknowledge(&mut delivery, 296, 10_000, 21_000).expect("a sample");
        assert_eq!(sample.rate, 11_000 * 8 * 1000 / 200);
    }

    #[test]
    fn segments_sent_while_the_application_was_the_limit_are_marked_until_delivered() {
        let mut delivery = ten();
        delivery.limit(10_000);
        delivery.sent(at(50), (10_000, 11_000), false);
        let samples: Vec<bool> = (0..11)
            .map(|n| acknowledge(&mut delivery, 100 + n, 1000 * n, 1000 * (n + 1)))
            .map(|sample| sample.expect("a sample").limited)
            .collect();
        // The ten were sent before; only the last followed the gap.
        assert_eq!(samples, [vec![false; 10], vec![true]].concat());
        assert!(!delivery.is_limited());
    }

    #[test]
    fn retransmissions_give_no_round_trip_and_no_sample_over_less_than_one() {
        let mut delivery = ten();
        delivery.arrived(at(100), 1000, 10_000);
        assert_eq!(delivery.round_trip, Some(Duration::from_ms(91)));
        delivery.arrived_below(at(100), 10_000);
        delivery.sample(at(100), 10_000);
        delivery.round_trip = None;
        // Sent twice and acknowledged 20 ms after the first time: 91 ms is the minimum.
        delivery.sent(at(110), (10_000, 11_000), true);
        delivery.sent(at(120), (10_000, 11_000), false);
        delivery.arrived_below(at(130), 11_000);
        assert_eq!(delivery.round_trip, None);
        assert_eq!(delivery.sample(at(130), 1000), None);
        assert!(delivery.sent.is_empty());
    }

    proptest! {
        #[test]
        fn whatever_is_retransmitted_the_segments_stay_disjoint_and_in_order(
            steps in prop::collection::vec((0u64..30, 1u64..9, any::<bool>()), 1..40),
        ) {
            let mut delivery = Delivery::default();
            let mut end = 0;
            for (back, len, arrives) in steps {
                let start = end - back.min(end);
                let last = if start == end { end + len } else { (start + len).min(end) };
                if arrives {
                    delivery.arrived(at(1), start, last);
                    delivery.sample(at(1), 0);
                    continue;
                }
                delivery.sent(at(0), (start, last), false);
                end = end.max(last);
                let apart = delivery.sent.iter().zip(delivery.sent.iter().skip(1));
                prop_assert!(apart.clone().all(|(a, b)| a.end == b.start), "{:?}", delivery.sent);
                prop_assert!(delivery.sent.iter().all(|s| s.start < s.end));
                prop_assert_eq!(delivery.sent.front().map(|s| s.start), Some(0));
                prop_assert_eq!(delivery.sent.back().map(|s| s.end), Some(end));
            }
            delivery.arrived_below(at(2), end);
            prop_assert!(delivery.sent.is_empty());
        }
    }
}
