//! Deficit round robin, plain and weighted; a full buffer drops from the longest queue.
//!
//! ```text
//!      /-> queue 0 [ ... ] deficit 0 -\
//! in --+-> queue 1 [ ... ] deficit 1 --+--> out     a turn each: deficit += quantum * weight,
//!      \-> queue 2 [ ... ] deficit 2 -/             then send while the head fits the deficit
//! ```
//!
//! | Parameter | Unit    | Default   | Meaning                                                        |
//! |-----------|---------|-----------|----------------------------------------------------------------|
//! | `by`      | word    | `flow`    | what gets its own queue: `flow`, `path`, `class`               |
//! | `queues`  | queues  | one each  | number of queues onto which flows are hashed (WU: 64)          |
//! | `quantum` | size    | 1500 B    | bytes added to the deficit each turn (WU router: 2048 B)       |
//! | `weights` | numbers | all 1     | the quantum of queue n is `quantum` times weight n             |
//! | `packets` | packets | no limit  | limit on packets in all queues                                 |
//! | `bytes`   | size    | no limit  | limit on bytes in all queues                                   |
//! | `unit`    | word    | `packets` | unit in which lengths are compared                             |
//! | `drop`    | word    | `front`   | end of the longest queue from which packets are dropped (ours) |
//!
//! When full, the arrival is stored first and the longest queue then drops, so that a short queue
//! is never refused. A quantum of at least the longest packet makes each `dequeue` O(1); a smaller
//! one is legal and may need several rounds. Finding the longest queue is O(log n) at worst.
//!
//! Source: Shreedhar & Varghese, Efficient Fair Queueing Using Deficit Round Robin, ACM SIGCOMM
//! 1995, §3; longest-queue drop after McKenney, Stochastic Fairness Queueing, INFOCOM 1990; the
//! combination is what the Washington University papers call DRR (D-77).
//!
//! Deviation: none in the schedule. The sources leave open which end drops; the front is our choice because
//! it tells the sender of the loss sooner (Lakshman, Neidhardt & Ott 1996), and ns-2's DRR, which the
//! Washington University study used, drops there. Among queues of equal length, the one
//! served longest ago drops, as in ns-2, whose search starts at the queue whose turn it is: with a
//! fixed choice, the same connection would lose packets whenever many queues are short.

use super::flows::{
    BY, BYTES, Bank, Classifier, End, PACKETS, QUEUES, Room, Unit, WEIGHTS, of_bank, weight,
};
use super::ring::Ring;
use super::{Described, LONG, Queue, Site};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, Time};
use lastmeter_engine::site::Granted;

/// The quantum of a turn.
pub(super) const QUANTUM: Param = Param::or("quantum", ParamKind::PACKET, "1500 B")
    .is("bytes added to a queue's deficit each turn");
/// How lengths compare.
pub(super) const UNIT: Param =
    Param::or("unit", ParamKind::Choice(&["packets", "bytes"]), "packets")
        .is("unit in which queue lengths are compared");
/// Where victims are taken from.
pub(super) const DROP: Param = Param::or("drop", ParamKind::Choice(&["front", "tail"]), "front")
    .is("end of a queue from which packets are dropped");

/// Which queue loses a packet when the buffer is full.
pub(super) trait Victim: Send {
    /// The drop reason.
    const REASON: &'static str;
    /// The queue to drop from, which is not empty.
    fn pick(&mut self, now: Time, bank: &Bank) -> usize;
    /// Whether to refuse an arrival to queue `at`, before anything else is decided.
    fn refuses(&mut self, _now: Time, _at: usize, _len: Bytes, _bank: &Bank) -> bool {
        false
    }
    /// A packet of `len` left queue `at`: sent, not dropped.
    fn departed(&mut self, _now: Time, _at: usize, _len: Bytes) {}
    /// Queue `at` has become empty or non-empty.
    fn emptiness(&mut self, _at: usize, _empty: bool) {}
}

/// The options of all kinds of deficit round robin.
#[derive(Clone, Debug)]
pub struct DrrOptions {
    /// What gets its own queue.
    pub by: super::By,
    /// The number of queues to hash onto; `None`: one each.
    pub queues: Option<usize>,
    /// Bytes added each turn to the deficit of a queue of weight 1.
    pub quantum: Bytes,
    /// Weights; those not listed are 1.
    pub weights: Vec<u64>,
    /// The buffer shared by all.
    pub room: Room,
    /// How lengths compare.
    pub unit: Unit,
    /// Which end drops.
    pub drop_from: End,
}

impl DrrOptions {
    /// As in the Washington University experiments: a queue per flow, 1500 bytes, lengths in packets.
    pub fn each(packets: u64) -> DrrOptions {
        DrrOptions {
            by: super::By::Flow,
            queues: None,
            quantum: Bytes(1500),
            weights: Vec::new(),
            room: Room::packets(packets),
            unit: Unit::Packets,
            drop_from: End::Front,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    deficit: u64,
    quantum: u64,
    /// Its quantum has not yet been added in this turn.
    fresh: bool,
}

/// Deficit round robin; `V` picks the queue that drops.
#[derive(Debug)]
pub(super) struct Rounds<V> {
    bank: Bank,
    classifier: Classifier,
    ring: Ring,
    turns: Vec<Turn>,
    quantum: u64,
    weights: Vec<u64>,
    /// The sum of the weights of backlogged queues.
    busy: u64,
    drop_from: End,
    pub(super) victim: V,
}

impl<V: Victim> Rounds<V> {
    pub(super) fn new(options: DrrOptions, shortest: bool, victim: V) -> Rounds<V> {
        Rounds {
            bank: Bank::ranked(options.room, options.unit, shortest),
            classifier: Classifier::new(options.by, options.queues),
            ring: Ring::default(),
            turns: Vec::new(),
            quantum: options.quantum.0.max(1),
            weights: options.weights,
            busy: 0,
            drop_from: options.drop_from,
            victim,
        }
    }
    /// With the options that [`Rounds::params`] describes.
    pub(super) fn from_values(
        values: &Values,
        site: &Site<'_>,
        shortest: bool,
        victim: V,
    ) -> Rounds<V> {
        let options = DrrOptions {
            quantum: values.get("quantum"),
            weights: values.given("weights").unwrap_or_default(),
            room: Room::from_values(values, site),
            unit: Unit::from_values(values),
            drop_from: End::from_values(values),
            ..DrrOptions::each(0)
        };
        let classifier = Classifier::from_values(values);
        Rounds { classifier, ..Rounds::new(options, shortest, victim) }
    }
    #[cold]
    fn make(&mut self, at: usize) {
        let (from, count) = (self.turns.len(), self.bank.reach(at));
        self.turns.extend((from..count).map(|queue| {
            let quantum = self.quantum.saturating_mul(weight(&self.weights, queue));
            Turn { deficit: 0, quantum, fresh: true }
        }));
    }
    fn empty(&mut self, at: usize) {
        self.turns[at].deficit = 0;
        self.busy -= weight(&self.weights, at);
        self.ring.leave(at);
        self.victim.emptiness(at, true);
    }
    #[cold]
    fn drop_one(&mut self, now: Time) {
        let at = self.victim.pick(now, &self.bank);
        self.bank.drop_from(at, self.drop_from, V::REASON);
        if self.bank.fifo(at).is_empty() {
            self.empty(at);
        }
    }
}

impl<V: Victim> Queue for Rounds<V> {
    #[inline]
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        let at = self.classifier.queue_of(&packet);
        if at >= self.turns.len() {
            self.make(at);
        }
        if packet.len > self.bank.room.bytes {
            return Err(packet);
        }
        if self.victim.refuses(now, at, packet.len, &self.bank) {
            self.bank.discard(packet, V::REASON);
            return Ok(());
        }
        if self.bank.fifo(at).is_empty() {
            self.turns[at].fresh = true;
            self.busy += weight(&self.weights, at);
            self.ring.join(at);
            self.victim.emptiness(at, false);
        }
        self.bank.push(at, packet);
        while self.bank.is_over() {
            self.drop_one(now);
        }
        Ok(())
    }
    #[inline]
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        loop {
            let at = self.ring.head()?;
            let turn = &mut self.turns[at];
            if turn.fresh {
                turn.deficit += turn.quantum;
                turn.fresh = false;
            }
            let len = self.bank.fifo(at).head_len();
            if len <= turn.deficit {
                turn.deficit -= len;
                let packet = self.bank.pop(at)?;
                self.victim.departed(now, at, packet.len);
                if self.bank.fifo(at).is_empty() {
                    self.empty(at);
                }
                return Some(packet);
            }
            turn.fresh = true;
            self.ring.rotate();
        }
    }
    /// Each backlogged queue, and the packet's own, is granted a share in proportion to its weight.
    fn granted(&self, packet: &Packet) -> Granted {
        // A new flow has the next queue.
        let at = self.classifier.find(packet).unwrap_or(self.turns.len());
        let (own, len) = (weight(&self.weights, at), self.bank.bytes_in(at));
        let others = if len > Bytes::ZERO { self.busy - own } else { self.busy };
        let share = u128::from(Granted::WHOLE) * u128::from(own) / u128::from(own + others);
        Granted { len, share: share as u64 }
    }
    of_bank!(ready_at, packets, bytes, dropped);
}

/// The longest queue drops.
#[derive(Debug)]
pub(super) struct Longest;

impl Victim for Longest {
    const REASON: &'static str = "longest queue";
    fn pick(&mut self, _now: Time, bank: &Bank) -> usize {
        bank.longest().expect("a buffer that is too full is not empty")
    }
}

/// Deficit round robin with longest-queue drop.
///
/// ```
/// use lastmeter_base::{Bytes, FlowId, Packet, Time};
/// use lastmeter_net::queue::{Drr, DrrOptions, Queue};
/// let mut queue = Drr::new(DrrOptions::each(3));
/// for flow in [0, 0, 0, 1] {
///     let mut packet = Packet::new(Bytes(1500));
///     packet.flow = FlowId(flow);
///     queue.enqueue(Time::START, packet)?;
/// }
/// assert_eq!(queue.dropped().map(|(packet, _)| packet.flow), Some(FlowId(0)));
/// # Ok::<(), Packet>(())
/// ```
#[derive(Debug)]
pub struct Drr(Rounds<Longest>);

impl Drr {
    /// Empty.
    pub fn new(options: DrrOptions) -> Drr {
        Drr(Rounds::new(options, false, Longest))
    }
}

/// Passes every method of [`Queue`] on to the field `0`, which does the work.
macro_rules! queue_of_field {
    ($type:ty) => {
        impl $crate::queue::Queue for $type {
            #[inline]
            fn enqueue(
                &mut self,
                now: lastmeter_base::Time,
                packet: lastmeter_base::Packet,
            ) -> Result<(), lastmeter_base::Packet> {
                self.0.enqueue(now, packet)
            }
            #[inline]
            fn dequeue(&mut self, now: lastmeter_base::Time) -> Option<lastmeter_base::Packet> {
                self.0.dequeue(now)
            }
            #[inline]
            fn ready_at(&self, now: lastmeter_base::Time) -> Option<lastmeter_base::Time> {
                self.0.ready_at(now)
            }
            fn packets(&self) -> u64 {
                self.0.packets()
            }
            fn bytes(&self) -> lastmeter_base::Bytes {
                self.0.bytes()
            }
            fn granted(&self, packet: &lastmeter_base::Packet) -> lastmeter_engine::site::Granted {
                self.0.granted(packet)
            }
            #[inline]
            fn dropped(&mut self) -> Option<(lastmeter_base::Packet, &'static str)> {
                self.0.dropped()
            }
            fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
                self.0.counts(count);
            }
        }
    };
}
pub(super) use queue_of_field;
queue_of_field!(Drr);

impl Described for Drr {
    const PAGE: &'static Page = &Page {
        name: "drr",
        family: Family::Queue,
        what: "Deficit round robin, weighted or not; a full buffer drops from the longest queue.",
        ports: "in --> [ queue per flow ] --> a turn each: deficit += quantum * weight --> out",
        params: &[BY, QUEUES, QUANTUM, WEIGHTS, PACKETS, BYTES, UNIT, DROP],
        source: "Shreedhar & Varghese, SIGCOMM 1995, §3; longest-queue drop after McKenney, \
                 INFOCOM 1990",
        deviations: &["Which end drops is our choice; the sources leave it open."],
        drops: &[LONG, ("longest queue", "packets of the longest queue, dropped to make room")],
        example: one_queue!("drr = { packets = 50 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Drr {
        Drr(Rounds::from_values(values, site, false, Longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, drain, packet, victims};
    use proptest::prelude::*;

    fn options(packets: u64) -> DrrOptions {
        DrrOptions::each(packets)
    }

    #[test]
    fn a_full_buffer_drops_the_oldest_packet_of_the_longest_queue() {
        let mut queue = Drr::new(options(4));
        for (flow, len) in [(0, 10), (1, 20), (1, 21), (0, 11), (0, 12), (2, 30)] {
            queue.enqueue(Time::START, packet(flow, len)).unwrap();
        }
        // The fifth packet makes flow 0 the longest; the sixth finds it equal to flow 1.
        assert_eq!(victims(&mut queue), [(0, "longest queue"), (0, "longest queue")]);
        let lens: Vec<u64> = drain(&mut queue, Time::START).iter().map(|p| p.len.0).collect();
        assert_eq!(lens, [12, 20, 21, 30]);
    }

    #[test]
    fn of_queues_of_equal_length_the_one_served_longest_ago_drops() {
        let mut queue = Drr::new(options(6));
        let mut lost = Vec::new();
        // Three flows hold two packets each; whenever one is served, each of them adds a packet.
        for flow in [0, 1, 2, 0, 1, 2] {
            queue.enqueue(Time::START, packet(flow, 1500)).unwrap();
        }
        for _ in 0..6 {
            let served = queue.dequeue(Time::START).unwrap().flow.0;
            queue.enqueue(Time::START, packet(served, 1500)).unwrap();
            queue.enqueue(Time::START, packet((served + 1) % 3, 1500)).unwrap();
            queue.enqueue(Time::START, packet((served + 2) % 3, 1500)).unwrap();
            lost.extend(victims(&mut queue).into_iter().map(|(flow, _)| flow));
        }
        assert!(
            (0..3).all(|flow| lost.iter().filter(|&&who| who == flow).count() == 4),
            "{lost:?}"
        );
    }

    #[test]
    fn a_discard_that_empties_a_queue_ends_its_turn() {
        let mut queue = Drr::new(options(1));
        queue.enqueue(Time::START, packet(0, 100)).unwrap();
        queue.enqueue(Time::START, packet(1, 100)).unwrap();
        assert_eq!(victims(&mut queue), [(0, "longest queue")]);
        assert_eq!(drain(&mut queue, Time::START)[0].flow.0, 1);
        assert_eq!(queue.ready_at(Time::START), None);
    }

    #[test]
    fn lengths_in_bytes_pick_another_victim_than_lengths_in_packets() {
        for (unit, victim) in [(Unit::Packets, 0), (Unit::Bytes, 1)] {
            let mut queue = Drr::new(DrrOptions { unit, ..options(3) });
            for (flow, len) in [(0, 40), (0, 40), (1, 1500), (2, 40)] {
                queue.enqueue(Time::START, packet(flow, len)).unwrap();
            }
            assert_eq!(victims(&mut queue), [(victim, "longest queue")]);
        }
    }

    #[test]
    fn what_is_granted_is_a_share_of_what_the_busy_queues_have() {
        let mut queue = Drr::new(DrrOptions { weights: vec![1, 3], ..options(100) });
        let asked = |queue: &Drr, flow| queue.granted(&packet(flow, 1));
        let granted = |len, share| Granted { len: Bytes(len), share };
        assert_eq!(asked(&queue, 0), granted(0, 1_000_000));
        for (flow, len) in [(0, 500), (1, 700), (1, 800)] {
            queue.enqueue(Time::START, packet(flow, len)).unwrap();
        }
        assert_eq!(asked(&queue, 0), granted(500, 250_000));
        assert_eq!(asked(&queue, 1), granted(1500, 750_000));
        // A third one would have weight 1, as it is not listed.
        assert_eq!(asked(&queue, 2), granted(0, 200_000));
        drain(&mut queue, Time::START);
        assert_eq!(asked(&queue, 1), granted(0, 1_000_000));
    }

    #[test]
    fn accounts_for_every_packet() {
        check::holds(Drr::new(options(20)), &check::USUAL);
        let room = Room { packets: u64::MAX, bytes: Bytes(9_000) };
        let tail = DrrOptions { room, unit: Unit::Bytes, drop_from: End::Tail, ..options(1) };
        check::holds(Drr::new(tail), &check::USUAL);
        let hashed = DrrOptions { queues: Some(3), quantum: Bytes(100), ..options(20) };
        check::holds(Drr::new(hashed), &check::USUAL);
    }

    proptest! {
        /// Shreedhar & Varghese, Theorem 2 in its weighted form: between two queues that are never
        /// empty, the bytes sent per unit of weight differ by at most a quantum and two packets.
        #[test]
        fn shares_between_backlogged_queues_stay_within_the_bound(
            weights in prop::collection::vec(1u64..8, 2..6),
            quantum in 200u64..3000,
            seed in any::<u64>(),
        ) {
            const LEN_MAX: u64 = 1500;
            let mut random = lastmeter_base::Stream::new(seed, "drr");
            let quantum = Bytes(quantum);
            let mut queue = Drr::new(DrrOptions {
                quantum, weights: weights.clone(), ..options(u64::MAX)
            });
            let mut sent = vec![0u64; weights.len()];
            for flow in 0..weights.len() as u32 {
                (0..2).for_each(|_| {
                    let len = 1 + random.below(LEN_MAX);
                    queue.enqueue(Time::START, packet(flow, len)).unwrap();
                });
            }
            for _ in 0..400 {
                let out = queue.dequeue(Time::START).unwrap();
                sent[out.flow.0 as usize] += out.len.0;
                let len = 1 + random.below(LEN_MAX);
                queue.enqueue(Time::START, packet(out.flow.0, len)).unwrap();
                for (i, &a) in weights.iter().enumerate() {
                    for (j, &b) in weights.iter().enumerate() {
                        let (x, y) = (sent[i] as f64 / a as f64, sent[j] as f64 / b as f64);
                        let bound = quantum.0 as f64 + LEN_MAX as f64 * (1.0 / a as f64 + 1.0 / b as f64);
                        prop_assert!((x - y).abs() <= bound, "{x} {y} {bound}");
                    }
                }
            }
        }
    }
}
