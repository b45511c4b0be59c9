//! Self-clocked fair queueing: weighted shares, with virtual time read from the packet in service.
//!
//! ```text
//! in --> F = max(F of its queue, v) + len / weight --> [ queues ] --> smallest F --> out, v = F
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                          |
//! |-----------|---------|----------|--------------------------------------------------|
//! | `by`      | word    | `flow`   | what gets its own queue: `flow`, `path`, `class` |
//! | `queues`  | queues  | one each | number of queues onto which flows are hashed     |
//! | `weights` | numbers | all 1    | share phi of queue n                             |
//! | `packets` | packets | no limit | limit on packets in all queues                   |
//! | `bytes`   | size    | no limit | limit on bytes in all queues                     |
//! | `each`    | packets | no limit | limit on packets in one queue                    |
//!
//! A packet that finds no room is refused. O(log n) in the number of queues.
//!
//! Source: Golestani, A Self-Clocked Fair Queueing Scheme, INFOCOM 1994, §3: between backlogged
//! queues, service per weight differs by at most one packet of each (Theorem 1); delay may be worse
//! than PGPS by (n - 1) packets. Deviation: v is not reset at the end of a busy period, which
//! makes the same decisions, because no idle queue has an F beyond v; it is reset beyond 2^60.

use super::drr::queue_of_field;
use super::stamps::{RESTART, SHARE, ShareOptions, Stamped, Stamper, entry, share};
use super::{Described, FULL, Site};
use lastmeter_base::Time;
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Page, Values};

#[derive(Debug, Default)]
struct SelfClock {
    v: u64,
    finish: Vec<u64>,
}

impl Stamper for SelfClock {
    fn stamp(&mut self, _now: Time, at: usize, len: u64, weight: u64) -> Option<u64> {
        let v = self.v;
        let finish = entry(&mut self.finish, at);
        *finish = (*finish).max(v) + share(len, weight);
        Some(*finish)
    }
    fn served(&mut self, stamp: u64) {
        self.v = stamp;
    }
    fn idle(&mut self) {
        if self.v > RESTART {
            self.v = 0;
            self.finish.fill(0);
        }
    }
}

/// Self-clocked fair queueing.
#[derive(Debug)]
pub struct Scfq(Stamped<SelfClock>);

impl Scfq {
    /// Empty.
    pub fn new(options: ShareOptions) -> Scfq {
        Scfq(Stamped::new(options, SelfClock::default()))
    }
}
queue_of_field!(Scfq);

impl Described for Scfq {
    const PAGE: &'static Page = &Page {
        name: "scfq",
        family: Family::Queue,
        what: "Self-clocked fair queueing: weighted shares, and a cheaply computed virtual time.",
        ports: "in --> [ queue per flow ] --> smallest finish stamp --> out",
        params: &SHARE,
        source: "Golestani, INFOCOM 1994, §3",
        deviations: &["Virtual time is not reset in idle periods, which makes the same decisions."],
        drops: &[FULL],
        example: one_queue!(r#"scfq = { by = "path", weights = [3, 1], packets = 50 }"#),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Scfq {
        Scfq::new(ShareOptions::from_values(values, site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Queue;
    use crate::queue::Room;
    use crate::queue::check::{self, packet};
    use lastmeter_base::Stream;
    use proptest::prelude::*;

    proptest! {
        /// Golestani 1994, Theorem 1, over every interval: extremes of the difference are compared.
        #[test]
        fn service_per_weight_differs_by_at_most_one_packet_of_each(
            weights in prop::collection::vec(1u64..9, 2..6), seed in any::<u64>(),
        ) {
            const LEN_MAX: u64 = 1500;
            let mut random = Stream::new(seed, "scfq");
            let mut queue = Scfq::new(ShareOptions::weighted(&weights));
            for flow in 0..weights.len() as u32 {
                let len = 1 + random.below(LEN_MAX);
                queue.enqueue(Time::START, packet(flow, len)).unwrap();
                queue.enqueue(Time::START, packet(flow, len)).unwrap();
            }
            let mut sent = vec![0f64; weights.len()];
            let mut extremes = vec![vec![(0f64, 0f64); weights.len()]; weights.len()];
            for _ in 0..300 {
                let out = queue.dequeue(Time::START).unwrap();
                let flow = out.flow.0 as usize;
                sent[flow] += out.len.0 as f64 / weights[flow] as f64;
                queue.enqueue(Time::START, packet(out.flow.0, 1 + random.below(LEN_MAX))).unwrap();
                for i in 0..weights.len() {
                    for j in 0..weights.len() {
                        let (low, high) = &mut extremes[i][j];
                        (*low, *high) = (low.min(sent[i] - sent[j]), high.max(sent[i] - sent[j]));
                        let bound = LEN_MAX as f64 * (1.0 / weights[i] as f64 + 1.0 / weights[j] as f64);
                        prop_assert!(*high - *low <= bound + 0.01, "{low} {high} {bound}");
                    }
                }
            }
        }
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = ShareOptions { room: Room::packets(30), ..ShareOptions::weighted(&[4, 2]) };
        check::holds(Scfq::new(ShareOptions { each: 8, ..options }), &check::USUAL);
    }
}
