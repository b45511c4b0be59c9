//! The linear bounded arrival process and logical arrival times (E-16, E-17).
//!
//! ```text
//! l(m_0) = t_0;   l(m_i) = max { l(m_(i-1)) + I_min, t_i }
//! ```
//!
//! l is when a message would have arrived had its source kept to the rate. Messages are served by l, so a
//! source that is early, within its burst or beyond it, delays only itself.
//!
//! Source: Indiresan 1997, §3.2.1; Cruz, IEEE Trans. Inf. Theory 37(1), 1991.
//!
//! ```
//! use lastmeter_base::{Duration, Time};
//! use lastmeter_transport::channel::arrival::LogicalArrivals;
//! let ms = |n| Time::START + Duration::from_ms(n);
//! let mut arrivals = LogicalArrivals::new(Duration::from_ms(10));
//! // Three at once, and one much later.
//! let logical: Vec<Time> = [0, 0, 0, 99].map(|at| arrivals.arrive(ms(at))).into();
//! assert_eq!(logical, [ms(0), ms(10), ms(20), ms(99)]);
//! ```

use lastmeter_base::{Duration, Time};

/// Assigns each message its logical arrival time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalArrivals {
    interval: Duration,
    next: Time,
}

impl LogicalArrivals {
    /// Before the first message of a channel with this I_min.
    pub fn new(interval: Duration) -> LogicalArrivals {
        LogicalArrivals { interval, next: Time::START }
    }
    /// A message arrives at `now`: returns its logical arrival.
    pub fn arrive(&mut self, now: Time) -> Time {
        let logical = self.peek(now);
        self.next = logical + self.interval;
        logical
    }
    /// What [`LogicalArrivals::arrive`] would return.
    pub fn peek(&self, now: Time) -> Time {
        self.next.max(now)
    }
    /// Whether a message arriving at `now` conforms to a burst of `burst_max`: at most
    /// B_max + t / I_min messages in any time t, including this one.
    ///
    /// It does if the message is early by no more than B_max - 1 intervals.
    pub fn conforms(&self, now: Time, burst_max: u64) -> bool {
        let early = self.peek(now) - now;
        early <= self.interval * burst_max.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INTERVAL: Duration = Duration::from_ps(1000);

    /// The definition, over every interval that begins and ends with a message.
    fn keeps(times: &[u64], burst: u64) -> bool {
        (0..times.len()).all(|from| {
            (from..times.len()).all(|to| {
                let most = burst + (times[to] - times[from]) / INTERVAL.as_ps();
                (to - from + 1) as u64 <= most
            })
        })
    }

    proptest! {
        #[test]
        fn e_17_logical_times_keep_the_rate_and_never_come_before_the_message(
            gaps in prop::collection::vec(0u64..3000, 1..60),
        ) {
            let mut arrivals = LogicalArrivals::new(INTERVAL);
            let (mut at, mut last) = (0, None::<Time>);
            for gap in gaps {
                at += gap;
                let now = Time::from_ps(at);
                let logical = arrivals.arrive(now);
                prop_assert!(logical >= now);
                // The recursion itself.
                let expected = last.map_or(now, |last| now.max(last + INTERVAL));
                prop_assert_eq!(logical, expected);
                last = Some(logical);
            }
        }

        #[test]
        fn e_16_conformance_is_the_definition(
            gaps in prop::collection::vec(0u64..2500, 1..25), burst in 1u64..6,
        ) {
            let mut arrivals = LogicalArrivals::new(INTERVAL);
            let (mut at, mut kept) = (0, Vec::new());
            for gap in gaps {
                at += gap;
                let conforms = arrivals.conforms(Time::from_ps(at), burst);
                let mut with = kept.clone();
                with.push(at);
                prop_assert_eq!(conforms, keeps(&with, burst));
                if conforms {
                    arrivals.arrive(Time::from_ps(at));
                    kept = with;
                }
            }
        }
    }
}
