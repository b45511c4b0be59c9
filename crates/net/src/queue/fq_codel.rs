//! FQ-CoDel: a queue for each flow under CoDel, served by a deficit round robin that prefers new flows.
//!
//! ```text
//!      /-> queue 0 [ ... ] CoDel -\      new queues first, one quantum each;
//! in --+-> queue 1 [ ... ] CoDel --+--> then old queues in turn
//!      \-> ...             CoDel -/
//! ```
//!
//! | Parameter  | Unit    | Default  | Meaning                                              |
//! |------------|---------|----------|------------------------------------------------------|
//! | `queues`   | queues  | 1024     | number of queues onto which flows are hashed  (§5.2) |
//! | `by`       | word    | `flow`   | what is hashed                                       |
//! | `quantum`  | size    | 1514 B   | bytes served per turn  (§5.2)                        |
//! | `target`   | time    | 5 ms     | of CoDel  (§5.2)                                     |
//! | `interval` | time    | 100 ms   | of CoDel  (§5.2)                                     |
//! | `mtu`      | size    | 1500 B   | of CoDel                                             |
//! | `ecn`      | flag    | true     | mark if both ends support ECN  (§5.2)                |
//! | `packets`  | packets | 10240    | limit on packets in all queues  (§5.2)               |
//! | `bytes`    | size    | no limit | limit on bytes in all queues                         |
//! | `batch`    | packets | 64       | limit on packets dropped per overflow  (§4.1)        |
//!
//! When the line goes idle, both lists are emptied, so that the next packet of each flow finds a new queue, as in
//! Linux, whose device polls in vain before it idles. If the rate of the line is not constant, they are emptied by
//! that poll.
//!
//! When full, half of the packets of the queue with the most bytes, at most `batch`, are dropped from
//! its head.
//!
//! Source: RFC 8290, §4. A queue has used up its credits at zero ("at least a quantum of bytes"; as in
//! Linux), although the same sentence of §4.2 says "negative". Half of an odd number of packets is rounded
//! up, so that an overflow always drops. Deviations: the hash has no random key, because runs must be
//! repeatable; there is no `ce_threshold` (§5.2.7, off by default).

use super::codel::{CodelOptions, INTERVAL, Law, MTU, TARGET};
use super::drr::QUANTUM;
use super::flows::{BY, BYTES, Bank, By, Classifier, End, QUEUES_MAX, Room, Unit, of_bank};
use super::red::MARKED;
use super::turns::Turns;
use super::{Described, LONG, Queue, Site};
use lastmeter_base::here;
use lastmeter_base::kind::{Fallback, Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, Rate, Time};

/// Options of FQ-CoDel; see the table above.
#[derive(Clone, Copy, Debug)]
pub struct FqCodelOptions {
    /// What is hashed.
    pub by: By,
    /// The number of queues; `None`: one for each flow.
    pub queues: Option<usize>,
    /// Bytes served per turn.
    pub quantum: Bytes,
    /// CoDel's options, for each queue.
    pub codel: CodelOptions,
    /// Limit on all queues together.
    pub room: Room,
    /// Limit on packets dropped per overflow.
    pub batch: u64,
    /// The rate of the line, which tells when it goes idle; `None`: when it polls in vain.
    pub rate: Option<Rate>,
    /// Line time of a packet beyond its length.
    pub framing: Bytes,
}

impl FqCodelOptions {
    /// The values of RFC 8290, §5.2.
    pub fn rfc_8290() -> FqCodelOptions {
        FqCodelOptions {
            by: By::Flow,
            queues: Some(1024),
            quantum: Bytes(1514),
            codel: CodelOptions { ecn: true, ..CodelOptions::RFC_8289 },
            room: Room::packets(10_240),
            batch: 64,
            rate: None,
            framing: Bytes::ZERO,
        }
    }
}

/// Queues under CoDel.
#[derive(Debug)]
pub struct FqCodel {
    bank: Bank,
    classifier: Classifier,
    laws: Vec<Law>,
    turns: Turns,
    options: FqCodelOptions,
    /// When the line goes idle, unless something arrives first.
    idle_at: Option<Time>,
    marked: u64,
}

impl FqCodel {
    /// Empty.
    pub fn new(options: FqCodelOptions) -> FqCodel {
        FqCodel {
            bank: Bank::ranked(options.room, Unit::Bytes, false),
            classifier: Classifier::new(options.by, options.queues),
            laws: Vec::new(),
            turns: Turns::default(),
            options,
            idle_at: None,
            marked: 0,
        }
    }

    /// RFC 8290 §4.1: from the head of the queue with the most bytes.
    #[cold]
    fn make_room(&mut self) {
        while self.bank.is_over() {
            let longest = self.bank.longest().expect("a buffer that is too full is not empty");
            let half = self.bank.fifo(longest).len().div_ceil(2).min(self.options.batch.max(1));
            for _ in 0..half {
                self.bank.drop_from(longest, End::Front, "longest queue");
            }
        }
    }
}

impl Queue for FqCodel {
    #[inline]
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        if packet.len > self.bank.room.bytes {
            return Err(packet);
        }
        if self.idle_at.take().is_some_and(|at| at < now) {
            self.turns.forget();
        }
        packet.entered = now;
        let at = self.classifier.queue_of(&packet);
        if at >= self.laws.len() {
            let count = self.bank.reach(at);
            self.laws.resize(count, Law::default());
            self.turns.reach(count);
        }
        self.bank.push(at, packet);
        self.turns.arrived(at, self.options.quantum);
        if self.bank.is_over() {
            self.make_room();
        }
        Ok(())
    }
    /// RFC 8290 §4.2.
    #[inline]
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        loop {
            let at = self.turns.next(|_| self.options.quantum)?;
            let codel = &self.options.codel;
            match self.laws[at].dequeue(now, codel, &mut self.bank, at, &mut self.marked) {
                Some(packet) => {
                    self.turns.sent(at, packet.len);
                    if self.bank.packets == 0 {
                        let busy = self
                            .options
                            .rate
                            .map(|rate| rate.time_for(packet.len + self.options.framing));
                        self.idle_at = busy.map(|busy| now + busy);
                    }
                    return Some(packet);
                }
                None => drop(self.turns.found_empty()),
            }
        }
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

impl Described for FqCodel {
    const PAGE: &'static Page = &Page {
        name: "fq-codel",
        family: Family::Queue,
        what: "FQ-CoDel: a queue for each flow under CoDel; new queues go first.",
        ports: "in --> [ queue per flow, CoDel ] --> new queues, then old ones in turn --> out",
        params: &[
            BY,
            Param::or("queues", ParamKind::Integer { min: 1, max: QUEUES_MAX as u64 }, "1024")
                .is("number of queues onto which flows are hashed"),
            Param { default: Fallback::Written("1514 B"), ..QUANTUM },
            TARGET,
            INTERVAL,
            MTU,
            Param::or("ecn", ParamKind::Flag, "true").is("mark if both ends support ECN"),
            Param::or("packets", ParamKind::COUNT, "10240").is("limit on packets in all queues"),
            BYTES,
            Param::or("batch", ParamKind::COUNT, "64").is("limit on packets dropped per overflow"),
        ],
        source: "RFC 8290, §4",
        deviations: &[
            "The hash has no random key, because runs must be repeatable.",
            "There is no `ce_threshold`, which is off by default.",
        ],
        counters: &[MARKED],
        drops: &[
            LONG,
            ("codel", "packets that CoDel dropped from a standing queue"),
            ("longest queue", "packets of the longest queue, dropped to make room"),
        ],
        example: one_queue!("fq-codel = {}"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> FqCodel {
        let options = FqCodelOptions {
            quantum: values.get("quantum"),
            codel: CodelOptions::from_values(values),
            room: Room::from_values(values, site),
            batch: values.get("batch"),
            rate: site.rate,
            framing: site.framing,
            ..FqCodelOptions::rfc_8290()
        };
        FqCodel { classifier: Classifier::from_values(values), ..FqCodel::new(options) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet, victims};
    use lastmeter_base::Duration;

    fn each() -> FqCodelOptions {
        FqCodelOptions { queues: None, ..FqCodelOptions::rfc_8290() }
    }

    /// RFC 8290 §4.2: a sparse flow is served before those that keep a queue.
    #[test]
    fn a_sparse_flow_goes_before_heavy_ones() {
        let mut queue = FqCodel::new(each());
        (0..20).for_each(|n| queue.enqueue(Time::START, packet(n % 2, 1500)).unwrap());
        (0..6).for_each(|_| drop(queue.dequeue(Time::START)));
        queue.enqueue(Time::START, packet(9, 100)).unwrap();
        assert_eq!(queue.dequeue(Time::START).unwrap().flow.0, 9);
    }

    /// The line is busy with a packet's framing, too: until that has left, a flow keeps its turn.
    #[test]
    fn a_line_idles_only_when_a_packet_s_framing_has_left() {
        let (rate, framing) = (Some(Rate::from_mbit(12)), Bytes(150));
        // 1500 B take 1 ms, the framing 0.1 ms.
        for (after, order) in [(1050, [0, 1, 0]), (1200, [0, 0, 1])] {
            let mut queue = FqCodel::new(FqCodelOptions { rate, framing, ..each() });
            queue.enqueue(Time::START, packet(0, 1500)).unwrap();
            queue.dequeue(Time::START).unwrap();
            let now = Time::START + Duration::from_us(after);
            for flow in [0, 0, 1] {
                queue.enqueue(now, packet(flow, 1500)).unwrap();
            }
            let found = [(); 3].map(|()| queue.dequeue(now).unwrap().flow.0);
            assert_eq!(found, order, "{after} us");
        }
    }

    /// RFC 8290 §4.2: a queue that empties while new passes through the old list once.
    #[test]
    fn a_queue_cannot_stay_new_by_emptying_again_and_again() {
        let mut queue = FqCodel::new(each());
        (0..40).for_each(|_| queue.enqueue(Time::START, packet(0, 1500)).unwrap());
        (0..2).for_each(|_| drop(queue.dequeue(Time::START)));
        let mut sparse = 0;
        for _ in 0..30 {
            queue.enqueue(Time::START, packet(1, 1500)).unwrap();
            let out = queue.dequeue(Time::START).unwrap();
            sparse += u32::from(out.flow.0 == 1);
        }
        assert!((13..=17).contains(&sparse), "{sparse}");
    }

    /// RFC 8290 §4.2 and Fig. 1: a new queue that empties becomes old, even if no other is; only an old
    /// one that is found empty leaves the lists.
    #[test]
    fn a_new_queue_that_empties_is_old_before_it_is_gone() {
        let mut queue = FqCodel::new(each());
        queue.enqueue(Time::START, packet(0, 1500)).unwrap();
        assert!(queue.dequeue(Time::START).is_some());
        queue.enqueue(Time::START, packet(1, 100)).unwrap();
        assert!(queue.dequeue(Time::START).is_some());
        assert_eq!((&queue.turns.old, &queue.turns.new), (&[0].into(), &[1].into()));
        queue.enqueue(Time::START, packet(0, 1500)).unwrap();
        queue.enqueue(Time::START, packet(2, 1500)).unwrap();
        let order: Vec<u32> =
            check::drain(&mut queue, Time::START).iter().map(|packet| packet.flow.0).collect();
        assert_eq!(order, [2, 0], "flow 0 is no longer new");
        assert!(queue.turns.old.is_empty() && queue.turns.new.is_empty());
    }

    /// Linux polls the discipline in vain before its line idles, which empties both lists.
    #[test]
    fn after_an_idle_time_every_queue_is_new_with_its_whole_quantum() {
        let rate = Some(Rate::from_gbit(1)); // 1500 bytes take 12 us.
        let first = |wait: u64| {
            let mut queue = FqCodel::new(FqCodelOptions { rate, quantum: Bytes(2000), ..each() });
            queue.enqueue(Time::START, packet(0, 1500)).unwrap();
            assert!(queue.dequeue(Time::START).is_some());
            let later = Time::START + Duration::from_us(wait);
            (0..2).for_each(|_| queue.enqueue(later, packet(1, 1000)).unwrap());
            (0..2).for_each(|_| queue.enqueue(later, packet(0, 1000)).unwrap());
            let order = check::drain(&mut queue, later);
            order.iter().map(|packet| packet.flow.0).collect::<Vec<u32>>()
        };
        assert_eq!(first(11), [0, 1, 1, 0], "the line is busy: flow 0 has 500 bytes left");
        assert_eq!(first(13), [1, 1, 0, 0], "it has idled");
    }

    #[test]
    fn an_overflow_drops_half_of_the_queue_with_the_most_bytes() {
        let mut queue = FqCodel::new(FqCodelOptions { room: Room::packets(30), ..each() });
        (0..20).for_each(|_| queue.enqueue(Time::START, packet(0, 100)).unwrap());
        (0..11).for_each(|_| queue.enqueue(Time::START, packet(1, 1500)).unwrap());
        assert_eq!(victims(&mut queue), [(1, "longest queue"); 6]);
    }

    #[test]
    fn each_queue_has_its_own_control_law() {
        let mut queue = FqCodel::new(each());
        for ms in 0..400 {
            let now = Time::START + Duration::from_ms(ms);
            (0..2).for_each(|_| queue.enqueue(now, packet(0, 1500)).unwrap());
            if ms % 4 == 0 {
                queue.enqueue(now, packet(1, 100)).unwrap();
            }
            queue.dequeue(now);
        }
        let victims = victims(&mut queue);
        assert!(victims.len() > 3 && victims.iter().all(|&(flow, _)| flow == 0), "{victims:?}");
    }

    #[test]
    fn accounts_for_every_packet() {
        let fast = CodelOptions {
            target: Duration::from_us(5),
            interval: Duration::from_us(100),
            ..CodelOptions::RFC_8289
        };
        let options = FqCodelOptions { codel: fast, room: Room::packets(30), batch: 4, ..each() };
        check::holds(FqCodel::new(options), &check::USUAL);
        let hashed = FqCodelOptions { queues: Some(3), quantum: Bytes(300), ..options };
        check::holds(FqCodel::new(hashed), &check::USUAL);
    }
}
