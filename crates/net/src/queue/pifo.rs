//! A sorted queue in hardware: packets are pushed in at their rank, and leave from the head (PIFO).
//!
//! ```text
//! in --> rank --> [ root: m of the smallest ] --> the smallest --> out
//!                    |     |     |     |
//!                  [ m ] [ m ] [ m ] [ m ]      a balanced tree of m ways: each slot is before its subtree
//! ```
//!
//! | Parameter | Unit | Default | Meaning |
//! |---|---|---|---|
//! | `rank` | word | `fair` | `fair`: start of service in fair queueing; `deadline`; `class`; `arrival` |
//! | `by` | word | `flow` | for `fair`: what shares the line |
//! | `queues` | queues | one each | for `fair`: number of queues onto which flows are hashed |
//! | `weights` | numbers | all 1 | for `fair`: share of flow n |
//! | `order` | slots | 4 | m, slots of a node, compared at once |
//! | `levels` | levels | 8 | levels of the tree: room for m + m^2 + ... packets, 87,380 |
//! | `packets` | packets | no limit | limit on packets held, if less |
//! | `bytes` | size | no limit | limit on bytes held |
//!
//! A sequencer chip sorts as many packets as it has slots. A push stops at the first free slot and displaces what
//! ranks behind it; a pop refills each slot from the one below. So either visits each level at most once, whatever
//! the number of packets, and hardware can do a push and a pop in every level at once: one packet per clock cycle.
//! The counters are pushes and pops, and the levels that they visited. Equal ranks leave in their order of arrival.
//! When full, the arrival is refused. (A-160)
//!
//! Source: Sivaraman et al., Programmable Packet Scheduling at Line Rate, SIGCOMM 2016, §2 (push-in first-out queue;
//! rank of start-time fair queueing); Yao et al., BMW Tree, SIGCOMM 2023, §3 (balanced multi-way sorting tree).
//! Deviation: all packets are in the tree, not only the first of each flow.

use super::flows::{BY, BYTES, By, Classifier, PACKETS, QUEUES, Room, WEIGHTS, weight};
use super::stamps::{entry, share};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, Time, here};

/// Limit on the slots of a tree.
const SLOTS_MAX: u64 = 1 << 20;

/// Rank, then arrival.
type Key = (u64, u64);

#[derive(Debug)]
struct Slot {
    key: Key,
    /// Packets here and below.
    count: u64,
    packet: Packet,
}

/// A balanced multi-way sorting tree.
#[derive(Debug)]
struct Tree {
    order: usize,
    capacity: u64,
    /// Slots of node 0, then of node 1, and so on; grows as it is filled.
    slots: Vec<Option<Slot>>,
    held: u64,
    visited: u64,
}

/// Capacity of this many `levels` of `order`: order + order^2 + ..., at most the largest number there is.
fn capacity(order: u64, levels: u64) -> u64 {
    (1..=levels)
        .scan(1u64, |nodes, _| {
            *nodes = nodes.saturating_mul(order);
            Some(*nodes)
        })
        .fold(0, u64::saturating_add)
}

impl Tree {
    fn new(order: usize, levels: u64) -> Tree {
        let capacity = capacity(order as u64, levels);
        Tree { order, capacity, slots: Vec::new(), held: 0, visited: 0 }
    }
    /// The slots of the node below a slot begin here.
    fn below(&self, slot: usize) -> usize {
        (slot + 1) * self.order
    }
    /// The caller has checked that there is room.
    fn push(&mut self, mut key: Key, mut packet: Packet) {
        self.held += 1;
        let mut first = 0;
        loop {
            self.visited += 1;
            if self.slots.len() < first + self.order {
                self.slots.resize_with(first + self.order, || None);
            }
            let node = first..first + self.order;
            let least = node.min_by_key(|&at| self.slots[at].as_ref().map_or(0, |slot| slot.count));
            let least = least.expect("a node has slots");
            match &mut self.slots[least] {
                free @ None => {
                    *free = Some(Slot { key, count: 1, packet });
                    return;
                }
                Some(slot) => {
                    slot.count += 1;
                    if key < slot.key {
                        std::mem::swap(&mut slot.key, &mut key);
                        std::mem::swap(&mut slot.packet, &mut packet);
                    }
                }
            }
            first = self.below(least);
        }
    }
    /// The smallest key of a node and its slot.
    fn smallest(&self, first: usize) -> Option<usize> {
        let node = first..(first + self.order).min(self.slots.len());
        let keys = node.filter_map(|at| self.slots[at].as_ref().map(|slot| (slot.key, at)));
        keys.min().map(|(_, at)| at)
    }
    fn pop(&mut self) -> Option<(Key, Packet)> {
        let mut hole = self.smallest(0)?;
        self.held -= 1;
        self.visited += 1;
        let Slot { key, mut count, packet } = self.slots[hole].take()?;
        // The packet that moves up takes over the rest of the subtree.
        while count > 1 {
            self.visited += 1;
            let from = self.smallest(self.below(hole)).expect("the subtree has packets");
            let next = self.slots[from].take().expect("the smallest is there");
            self.slots[hole] = Some(Slot { count: count - 1, ..next });
            (hole, count) = (from, next.count);
        }
        Some((key, packet))
    }
}

/// What decides a packet's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The start of its service in start-time fair queueing.
    Fair,
    /// Its deadline.
    Deadline,
    /// Its class.
    Class,
    /// Its arrival.
    Arrival,
}

/// A push-in first-out queue.
///
/// ```
/// use lastmeter_base::{Bytes, Packet, Time};
/// use lastmeter_net::queue::{Pifo, Queue, Rank, Room};
/// let mut queue = Pifo::new(Rank::Class, (4, 8), Room::UNLIMITED);
/// for class in [7, 3, 5] {
///     let mut packet = Packet::new(Bytes(53));
///     packet.class = class;
///     queue.enqueue(Time::START, packet)?;
/// }
/// assert_eq!(queue.dequeue(Time::START).map(|packet| packet.class), Some(3));
/// # Ok::<(), Packet>(())
/// ```
#[derive(Debug)]
pub struct Pifo {
    tree: Tree,
    rank: Rank,
    classifier: Classifier,
    weights: Vec<u64>,
    /// Virtual time at which each flow's last packet ends.
    finish: Vec<u64>,
    /// The start of the packet that left last.
    virtual_time: u64,
    room: Room,
    bytes: Bytes,
    arrivals: u64,
    operations: u64,
}

impl Pifo {
    /// Empty, with a tree of this order and number of levels; all flows have the same share.
    pub fn new(rank: Rank, (order, levels): (usize, u64), room: Room) -> Pifo {
        Pifo {
            tree: Tree::new(order.max(2), levels.max(1)),
            rank,
            classifier: Classifier::new(By::Flow, None),
            weights: Vec::new(),
            finish: Vec::new(),
            virtual_time: 0,
            room,
            bytes: Bytes::ZERO,
            arrivals: 0,
            operations: 0,
        }
    }
    /// Flows, paths or classes with these shares.
    #[must_use]
    pub fn weighted(self, by: By, weights: &[u64]) -> Pifo {
        Pifo { classifier: Classifier::new(by, None), weights: weights.to_vec(), ..self }
    }
    fn rank_of(&mut self, packet: &Packet) -> u64 {
        match self.rank {
            Rank::Deadline => packet.deadline.as_ps(),
            Rank::Class => u64::from(packet.class),
            Rank::Arrival => 0,
            Rank::Fair => {
                let flow = self.classifier.queue_of(packet);
                let finish = entry(&mut self.finish, flow);
                let start = self.virtual_time.max(*finish);
                *finish = start + share(packet.len.0, weight(&self.weights, flow));
                start
            }
        }
    }
}

impl Queue for Pifo {
    fn enqueue(&mut self, _now: Time, packet: Packet) -> Result<(), Packet> {
        let held = self.bytes + packet.len;
        let most = self.tree.capacity.min(self.room.packets);
        if self.tree.held >= most || held > self.room.bytes {
            return Err(packet);
        }
        self.bytes = held;
        let rank = self.rank_of(&packet);
        self.arrivals += 1;
        self.operations += 1;
        self.tree.push((rank, self.arrivals), packet);
        Ok(())
    }
    fn dequeue(&mut self, _now: Time) -> Option<Packet> {
        let ((rank, _), packet) = self.tree.pop()?;
        self.operations += 1;
        self.bytes -= packet.len;
        if self.rank == Rank::Fair {
            self.virtual_time = rank;
            if self.tree.held == 0 {
                self.virtual_time = 0;
                self.finish.fill(0);
            }
        }
        Some(packet)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        (self.tree.held > 0).then_some(now)
    }
    fn packets(&self) -> u64 {
        self.tree.held
    }
    fn bytes(&self) -> Bytes {
        self.bytes
    }
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("operations", self.operations);
        count("levels", self.tree.visited);
    }
}

impl Described for Pifo {
    const PAGE: &'static Page = &Page {
        name: "pifo",
        family: Family::Queue,
        what: "A sorted queue in hardware: packets are pushed in at their rank, the first leaves.",
        ports: "in --> rank --> [ balanced tree of m ways ] --> the smallest --> out",
        params: &[
            Param::or("rank", ParamKind::Choice(&["fair", "deadline", "class", "arrival"]), "fair")
                .is("what decides a packet's place; `fair`: its start in fair queueing"),
            BY,
            QUEUES,
            WEIGHTS,
            Param::or("order", ParamKind::Integer { min: 2, max: 64 }, "4")
                .is("slots of a node of the tree, compared at once"),
            Param::or("levels", ParamKind::Integer { min: 1, max: 20 }, "8")
                .is("levels of the tree: room for order + order^2 + ... packets"),
            PACKETS,
            BYTES,
        ],
        source: "Sivaraman et al., SIGCOMM 2016, §2; Yao et al., BMW Tree, SIGCOMM 2023, §3",
        deviations: &["All packets are in the tree, not only the first of each flow."],
        counters: &[
            ("operations", "pushes and pops: one clock cycle each in hardware"),
            ("levels", "levels of the tree that they visited"),
        ],
        drops: &[FULL],
        example: one_queue!(r#"pifo = { by = "path", weights = [3, 1], packets = 50 }"#),
        ..Page::at(here!())
    };

    fn fit(values: &Values) -> Result<(), Misfit> {
        let (order, levels) = (values.get("order"), values.get("levels"));
        let slots = capacity(order, levels);
        if slots <= SLOTS_MAX {
            return Ok(());
        }
        let found = format!("{levels} levels of {order} have {slots} slots");
        Err(Misfit::new("levels", found, format!("write fewer: at most {SLOTS_MAX} slots")))
    }

    fn build(values: &Values, site: &Site<'_>) -> Pifo {
        let rank = match values.get::<String>("rank").as_str() {
            "deadline" => Rank::Deadline,
            "class" => Rank::Class,
            "arrival" => Rank::Arrival,
            _ => Rank::Fair,
        };
        let shape = (values.get::<u64>("order") as usize, values.get("levels"));
        Pifo {
            classifier: Classifier::from_values(values),
            weights: values.given("weights").unwrap_or_default(),
            ..Pifo::new(rank, shape, Room::from_values(values, site))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, drain, packet};
    use lastmeter_base::Duration;
    use proptest::prelude::*;

    fn ranked(rank: Rank) -> Pifo {
        Pifo::new(rank, (3, 6), Room::UNLIMITED)
    }

    #[test]
    fn a_160_an_operation_visits_each_level_once_whatever_waits() {
        let mut queue = Pifo::new(Rank::Deadline, (4, 8), Room::UNLIMITED);
        assert_eq!(queue.tree.capacity, 87_380);
        let mut random = lastmeter_base::Stream::new(1, "pifo");
        let mut step = |queue: &mut Pifo, pops: bool| {
            let before = queue.tree.visited;
            if pops {
                drop(queue.dequeue(Time::START));
            }
            let mut packet = packet(0, 53);
            packet.deadline = Time::START + Duration::from_ns(random.below(1 << 40));
            queue.enqueue(Time::START, packet).unwrap();
            queue.tree.visited - before
        };
        for _ in 0..87_380 {
            assert!(step(&mut queue, false) <= 8);
        }
        assert!(queue.enqueue(Time::START, packet(0, 53)).is_err(), "every slot is taken");
        for _ in 0..10_000 {
            assert!(step(&mut queue, true) <= 16, "a pop and a push");
        }
    }

    #[test]
    fn equal_ranks_leave_in_their_order_and_classes_before_later_ones() {
        let mut queue = ranked(Rank::Class);
        for (n, class) in [2, 1, 2, 0, 1, 2, 0].into_iter().enumerate() {
            queue.enqueue(Time::START, packet(class, 100 + n as u64)).unwrap();
        }
        let lens: Vec<u64> = drain(&mut queue, Time::START).iter().map(|p| p.len.0).collect();
        assert_eq!(lens, [103, 106, 101, 104, 100, 102, 105]);
    }

    /// Sivaraman et al. §2.1: shares in proportion to the weights.
    #[test]
    fn backlogged_flows_share_by_weight() {
        let mut queue = ranked(Rank::Fair).weighted(By::Flow, &[3, 1]);
        (0..300).for_each(|n| queue.enqueue(Time::START, packet(n % 2, 1000)).unwrap());
        let first = (0..100).filter(|_| queue.dequeue(Time::START).unwrap().flow.0 == 0).count();
        assert!((74..=76).contains(&first), "{first}");
    }

    #[test]
    fn accounts_for_every_packet() {
        check::holds(ranked(Rank::Fair), &check::USUAL);
        let arrival = Pifo::new(Rank::Arrival, (2, 4), Room::UNLIMITED);
        check::holds(arrival, &check::USUAL);
        let room = Room { packets: 20, bytes: Bytes(9_000) };
        check::holds(Pifo::new(Rank::Class, (4, 3), room), &check::USUAL);
    }

    proptest! {
        /// Against a list that is searched for its smallest.
        #[test]
        fn the_tree_sorts_as_a_list_does(
            steps in prop::collection::vec(prop::option::of(0u64..50), 1..400),
            order in 2usize..6,
        ) {
            let mut tree = Tree::new(order, 9);
            let mut list: Vec<Key> = Vec::new();
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Some(rank) => {
                        let key = (rank, n as u64);
                        list.push(key);
                        tree.push(key, packet(0, 53));
                    }
                    None => {
                        let least = list.iter().copied().min();
                        list.retain(|&key| Some(key) != least);
                        prop_assert_eq!(tree.pop().map(|(key, _)| key), least);
                    }
                }
                prop_assert_eq!(tree.held, list.len() as u64);
            }
        }
    }
}
