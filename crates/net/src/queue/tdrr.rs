//! Throughput deficit round robin: a full buffer drops from the queue that was served fastest.
//!
//! ```text
//! in --> [ queue per flow ] --> deficit round robin --> out, which moves each queue's rate estimate
//! ```
//!
//! Parameters are those of `drr`, and:
//!
//! | Parameter | Unit | Default | Meaning                                        |
//! |-----------|------|---------|------------------------------------------------|
//! | `memory`  | time | 100 ms  | time constant tau of the rate estimate  (ours) |
//!
//! Estimate of a queue's rate R at a departure of `len` bytes, `dt` after the last one:
//! `R = R exp(-dt/tau) + (len/dt) (1 - exp(-dt/tau))`; departures at one instant add up. Estimates
//! decay at the same rate, so their order changes only at departures: `ln R + last/tau` is compared,
//! and the largest is found in O(log n). Until something has departed, the longest queue drops.
//!
//! Source: the rule of the Washington University router (D-78), §7.1. Deviation: the source gives no
//! estimator; this exponential one is ours (Stoica, Shenker & Zhang, SIGCOMM 1998, eq. 5).

use super::drr::{DROP, DrrOptions, QUANTUM, Rounds, UNIT, Victim, queue_of_field};
use super::flows::{BY, BYTES, Bank, PACKETS, QUEUES, WEIGHTS};
use super::tournament::Tournament;
use super::{Described, LONG, Site};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Time};

#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    /// Bytes a second at `last`; zero before the first interval.
    rate: f64,
    last: Option<Time>,
    /// Bytes that departed at `last`.
    pending: u64,
}

/// The queue with the highest throughput drops.
#[derive(Debug)]
struct Fastest {
    tau: f64,
    estimates: Vec<Estimate>,
    /// Of queues that hold something and have departed: inverted order of `ln R + last/tau`.
    order: Tournament<u128>,
}

impl Fastest {
    fn new(memory: Duration) -> Fastest {
        let tau = memory.as_secs_f64().max(1e-9);
        Fastest { tau, estimates: Vec::new(), order: Tournament::new(u128::MAX) }
    }
    fn rank(&mut self, at: usize) {
        let Estimate { rate, last, .. } = self.estimates[at];
        let Some(last) = last.filter(|_| rate > 0.0) else { return };
        let level = rate.ln() + last.since_start().as_secs_f64() / self.tau;
        self.order.set(at, u128::from(!ordered(level)) << 32 | at as u128);
    }
    fn reach(&mut self, at: usize) {
        if at >= self.estimates.len() {
            self.estimates.resize(at + 1, Estimate::default());
        }
    }
}

/// Bits that compare like the numbers.
fn ordered(number: f64) -> u64 {
    let bits = number.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

impl Victim for Fastest {
    const REASON: &'static str = "highest throughput";
    fn pick(&mut self, _now: Time, bank: &Bank) -> usize {
        let fastest = self.order.best().map(|key| (key & u128::from(u32::MAX)) as usize);
        fastest.or(bank.longest()).expect("a buffer that is too full is not empty")
    }
    fn departed(&mut self, now: Time, at: usize, len: Bytes) {
        self.reach(at);
        let estimate = &mut self.estimates[at];
        match estimate.last {
            Some(last) if last == now => estimate.pending += len.0,
            last => {
                if let Some(last) = last {
                    let dt = (now - last).as_secs_f64();
                    let decay = (-dt / self.tau).exp();
                    let fresh = (estimate.pending as f64 / dt) * (1.0 - decay);
                    estimate.rate = estimate.rate * decay + fresh;
                }
                (estimate.last, estimate.pending) = (Some(now), len.0);
            }
        }
        self.rank(at);
    }
    fn emptiness(&mut self, at: usize, empty: bool) {
        self.reach(at);
        match empty {
            true => self.order.clear(at),
            false => self.rank(at),
        }
    }
}

/// Deficit round robin that drops from the queue with the highest throughput.
#[derive(Debug)]
pub struct Tdrr(Rounds<Fastest>);

impl Tdrr {
    /// Empty, with time constant `memory`.
    pub fn new(options: DrrOptions, memory: Duration) -> Tdrr {
        Tdrr(Rounds::new(options, false, Fastest::new(memory)))
    }
}
queue_of_field!(Tdrr);

impl Described for Tdrr {
    const PAGE: &'static Page = &Page {
        name: "tdrr",
        family: Family::Queue,
        what: "Deficit round robin; a full buffer drops from the queue of highest throughput.",
        ports: "in --> [ queue per flow ] --> deficit round robin --> out",
        params: &[
            BY,
            QUEUES,
            QUANTUM,
            WEIGHTS,
            PACKETS,
            BYTES,
            UNIT,
            DROP,
            Param::or("memory", ParamKind::Time, "100 ms").is("time constant of the rate estimate"),
        ],
        source: "Kantawala & Turner's rule for the Washington University router (D-78)",
        deviations: &["The source gives no estimator of throughput; an exponential one is ours."],
        drops: &[
            LONG,
            (
                "highest throughput",
                "packets of the queue with the highest throughput, dropped to make room",
            ),
        ],
        example: one_queue!("tdrr = { packets = 50 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Tdrr {
        Tdrr(Rounds::from_values(values, site, false, Fastest::new(values.get("memory"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Queue;
    use crate::queue::check::{self, packet, victims};

    #[test]
    fn drops_from_the_queue_that_was_served_fastest_and_not_from_the_longest() {
        let mut queue = Tdrr::new(DrrOptions::each(6), Duration::from_ms(100));
        let at = |ms| Time::START + Duration::from_ms(ms);
        // Flow 0 is served 1500 bytes a millisecond, flow 1 100 bytes.
        for ms in 0..50 {
            queue.enqueue(at(ms), packet(0, 1500)).unwrap();
            queue.enqueue(at(ms), packet(1, 100)).unwrap();
            queue.dequeue(at(ms)).unwrap();
            queue.dequeue(at(ms)).unwrap();
        }
        for (flow, len) in [(1, 100), (1, 100), (1, 100), (1, 100), (0, 1500), (0, 1500), (1, 100)]
        {
            queue.enqueue(at(50), packet(flow, len)).unwrap();
        }
        assert_eq!(victims(&mut queue), [(0, "highest throughput")]);
    }

    #[test]
    fn the_estimate_of_a_constant_rate_becomes_that_rate() {
        let mut fastest = Fastest::new(Duration::from_ms(100));
        for ms in 0..1000 {
            fastest.departed(Time::START + Duration::from_ms(ms), 0, Bytes(1500));
        }
        assert!((fastest.estimates[0].rate / 1.5e6 - 1.0).abs() < 0.001);
    }

    #[test]
    fn before_anything_has_departed_the_longest_queue_drops() {
        let mut queue = Tdrr::new(DrrOptions::each(2), Duration::from_ms(100));
        for flow in [0, 1, 1] {
            queue.enqueue(Time::START, packet(flow, 100)).unwrap();
        }
        assert_eq!(victims(&mut queue), [(1, "highest throughput")]);
    }

    #[test]
    fn accounts_for_every_packet() {
        check::holds(Tdrr::new(DrrOptions::each(20), Duration::from_ms(1)), &check::USUAL);
    }
}
