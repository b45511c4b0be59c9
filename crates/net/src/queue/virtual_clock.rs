//! VirtualClock: serves each queue as if it had its own link at its reserved rate.
//!
//! ```text
//! in --> aux = max(now, aux) + len / (rate * weight) --> [ queues ] --> smallest aux --> out
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                   |
//! |-----------|---------|----------|-----------------------------------------------------------|
//! | `by`      | word    | `flow`   | what gets its own queue: `flow`, `path`, `class`          |
//! | `queues`  | queues  | one each | number of queues onto which flows are hashed              |
//! | `weights` | numbers | all 1    | share phi of queue n                                      |
//! | `packets` | packets | no limit | limit on packets in all queues                            |
//! | `bytes`   | size    | no limit | limit on bytes in all queues                              |
//! | `each`    | packets | no limit | limit on packets in one queue                             |
//! | `rate`    | rate    | required | rate reserved by a weight of 1 |
//! | `ahead`   | time    | 100 ms   | how far aux may be ahead of the clock  (ours)             |
//! | `excess`  | word    | `note`   | whether packets beyond that are counted (`note`) or refused (`police`) |
//!
//! A queue that used spare bandwidth is far ahead and waits when others return: it is punished for something that
//! harmed nobody, which is why later disciplines use a system virtual time.
//!
//! Source: Zhang, VirtualClock, SIGCOMM 1990, §3. Deviation: a queue is checked at each arrival and
//! not once per averaging interval; the paper's reaction is a message to the source, here a counter.

use super::drr::queue_of_field;
use super::stamps::{SHARE, ShareOptions, Stamped, Stamper, entry};
use super::{Described, FULL, Site};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Rate, Time, here};

#[derive(Debug)]
struct Clocks {
    rate: Rate,
    ahead: Duration,
    police: bool,
    /// `auxVC` of each queue, in picoseconds.
    aux: Vec<u64>,
    exceeded: u64,
}

impl Stamper for Clocks {
    fn stamp(&mut self, now: Time, at: usize, len: u64, weight: u64) -> Option<u64> {
        let (rate, limit) = (self.rate, (now + self.ahead).as_ps());
        let aux = entry(&mut self.aux, at);
        let next =
            (*aux).max(now.as_ps()) + rate.scale_floor(weight, 1).time_for(Bytes(len)).as_ps();
        if next > limit {
            self.exceeded += 1;
            if self.police {
                return None;
            }
        }
        *aux = next;
        Some(next)
    }
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("exceeded", self.exceeded);
    }
}

/// VirtualClock.
#[derive(Debug)]
pub struct VirtualClock(Stamped<Clocks>);

impl VirtualClock {
    /// Empty; a weight of 1 has reserved `rate`, and may be `ahead` of it; more is refused if `police`.
    pub fn new(options: ShareOptions, rate: Rate, ahead: Duration, police: bool) -> VirtualClock {
        let clocks = Clocks { rate, ahead, police, aux: Vec::new(), exceeded: 0 };
        VirtualClock(Stamped::new(options, clocks))
    }
}
queue_of_field!(VirtualClock);

impl Described for VirtualClock {
    const PAGE: &'static Page = &Page {
        name: "virtual-clock",
        family: Family::Queue,
        what: "VirtualClock: packets leave in the order in which private links would send them.",
        ports: "in --> [ queue per flow ] --> smallest private finish time --> out",
        params: &[
            SHARE[0],
            SHARE[1],
            SHARE[2],
            SHARE[3],
            SHARE[4],
            SHARE[5],
            Param::required("rate", ParamKind::Rate).is("rate reserved by a weight of 1"),
            Param::or("ahead", ParamKind::Time, "100 ms")
                .is("how far a queue may be ahead of its rate"),
            Param::or("excess", ParamKind::Choice(&["note", "police"]), "note")
                .is("whether packets beyond that are counted or refused"),
        ],
        source: "Zhang, SIGCOMM 1990, §3",
        deviations: &["A queue is checked at each arrival, not once per averaging interval."],
        counters: &[("exceeded", "packets of queues that were too far ahead of their rates")],
        drops: &[FULL],
        example: one_queue!(r#"virtual-clock = { rate = "1 Mbit/s", packets = 50 }"#),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> VirtualClock {
        let police = values.get::<String>("excess") == "police";
        let options = ShareOptions::from_values(values, site);
        VirtualClock::new(options, values.get("rate"), values.get("ahead"), police)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Queue;
    use crate::queue::Room;
    use crate::queue::check::{self, packet};

    fn clock(weights: &[u64], police: bool) -> VirtualClock {
        let options = ShareOptions { room: Room::packets(40), ..ShareOptions::weighted(weights) };
        VirtualClock::new(options, Rate::from_mbit(8), Duration::from_ms(10), police)
    }

    #[test]
    fn packets_go_in_the_order_of_their_private_links() {
        let mut queue = clock(&[1, 2], false);
        for flow in [0, 0, 0, 1, 1, 1] {
            queue.enqueue(Time::START, packet(flow, 1000)).unwrap();
        }
        let order: Vec<u32> =
            check::drain(&mut queue, Time::START).iter().map(|p| p.flow.0).collect();
        // Private finish times: 1, 2, 3 ms and 0.5, 1, 1.5 ms; ties go to the lower number.
        assert_eq!(order, [1, 0, 1, 1, 0, 0]);
    }

    #[test]
    fn a_queue_that_used_spare_bandwidth_waits_when_others_return() {
        let mut queue = clock(&[], false);
        (0..20).for_each(|_| queue.enqueue(Time::START, packet(0, 1000)).unwrap());
        (0..10).for_each(|_| drop(queue.dequeue(Time::START)));
        (0..5).for_each(|_| queue.enqueue(Time::START, packet(1, 1000)).unwrap());
        (0..5).for_each(|_| assert_eq!(queue.dequeue(Time::START).unwrap().flow.0, 1));
    }

    #[test]
    fn policing_refuses_packets_too_far_ahead() {
        let mut queue = clock(&[], true);
        let taken = (0..20).filter(|_| queue.enqueue(Time::START, packet(0, 1000)).is_ok()).count();
        assert_eq!(taken, 10);
    }

    #[test]
    fn accounts_for_every_packet() {
        check::holds(clock(&[3, 1], false), &check::USUAL);
        check::holds(clock(&[3, 1], true), &check::USUAL);
    }
}
