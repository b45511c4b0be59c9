//! Link sharing by one flat fair queue with weights periodically remapped from a tree.
//!
//! ```text
//! in --> [ queue per leaf ] --> one queue of stamps, F = max(F, v) + len / weight --> out
//!              | active?                          ^ weight
//!              +--> up the tree: sums of active --+-- down the tree: rates, once a period
//! ```
//!
//! | Parameter   | Unit    | Default  | Meaning                                                         |
//! |-------------|---------|----------|-----------------------------------------------------------------|
//! | `parents`   | numbers | required | as for `h-pfq`                                                  |
//! | `weights`   | numbers | all 1    | as for `h-pfq`                                                  |
//! | `period`    | time    | 1 ms     | time between traversals of the tree  (ours)                     |
//! | `every`     | packets | none     | also traverse after this many packets  (ours: 64)               |
//! | `pipelined` | flag    | true     | one traversal per period, distributing the sums of the last one |
//! | `packets`   | packets | no limit | limit on packets in all leaves                                  |
//! | `bytes`     | size    | no limit | limit on bytes in all leaves                                    |
//! | `each`      | packets | no limit | limit on packets of one leaf                                    |
//!
//! Phase A (post-order): a leaf is active while its queue holds something, a class while a child is;
//! each node adds up the weights of its active children. Phase B (pre-order): a node's rate is divided
//! among its active children by weight. Pipelined, one traversal does B with the sums of the last
//! traversal on its way down and A on its way up, so that weights are one traversal older. Stamps already
//! assigned are not changed. The cost per packet is that of one sorted queue, whatever the depth.
//!
//! Source: Ndiaye, MIT LCS-TM-509 (flat WFQ with remapped weights); Lefelhocz (pipelined
//! recomputation); A-155 to A-159. Deviations, both ours because the text leaves them open: the flat
//! queue is self-clocked, since a fluid server with changing weights is not defined; and an inactive
//! leaf keeps its rate in the full tree, so that a packet between traversals gets its guarantee.

use super::flows::{BYTES, Bank, By, Classifier, EACH, PACKETS, Room, of_bank};
use super::h_pfq::{INSERTIONS, PARENTS, TREE_WEIGHTS, Tree};
use super::stamps::{RESTART, SCALE_BITS, keyed, unkeyed};
use super::tournament::Tournament;
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Duration, Packet, Time, here};
use std::collections::VecDeque;

/// The root's rate in the units of a leaf's weight, which is a whole number, rounded down.
const WHOLE: u64 = 1 << 32;

/// The tree, and what its traversals know.
#[derive(Debug)]
struct Mapping {
    tree: Tree,
    /// Sums of the weights of active children, from the last phase A.
    sums: Vec<u64>,
    active: Vec<bool>,
    rates: Vec<u64>,
    /// Rates with every leaf active.
    nominal: Vec<u64>,
}

impl Mapping {
    fn new(tree: Tree) -> Mapping {
        let nodes = tree.parents.len();
        let empty = || vec![0; nodes];
        let (sums, rates, nominal) = (empty(), empty(), empty());
        let mut mapping = Mapping { tree, sums, active: vec![true; nodes], rates, nominal };
        mapping.sum_up(|_| true);
        mapping.push_down();
        mapping.nominal = mapping.rates.clone();
        mapping
    }
    /// Phase A. Parents come before their children, so a backward pass is in post-order.
    fn sum_up(&mut self, is_active: impl Fn(usize) -> bool) {
        self.sums.fill(0);
        self.active.fill(false);
        for (class, &leaf) in self.tree.leaves.iter().enumerate() {
            self.active[leaf] = is_active(class);
        }
        for node in (1..self.tree.parents.len()).rev() {
            if self.active[node] {
                let parent = self.tree.parents[node];
                self.active[parent] = true;
                self.sums[parent] += self.tree.weights[node];
            }
        }
    }
    /// Phase B.
    fn push_down(&mut self) {
        self.rates[0] = WHOLE;
        for node in 1..self.tree.parents.len() {
            let (parent, weight) = (self.tree.parents[node], self.tree.weights[node]);
            self.rates[node] = match self.active[node] {
                true => share_of(self.rates[parent], weight, self.sums[parent]),
                false => self.nominal[node].max(1),
            };
        }
    }
    fn weight(&self, class: usize) -> u64 {
        self.rates[self.tree.leaves[class]]
    }
}

fn share_of(rate: u64, weight: u64, sum: u64) -> u64 {
    ((u128::from(rate) * u128::from(weight) / u128::from(sum.max(1))) as u64).max(1)
}

/// Parameters of the flat map; see the table above.
#[derive(Clone, Debug)]
pub struct FlatOptions {
    /// The classes.
    pub tree: Tree,
    /// Time between traversals.
    pub period: Duration,
    /// Also traverse after this many packets.
    pub every: Option<u64>,
    /// Whether a traversal distributes the sums of the last.
    pub pipelined: bool,
    /// Limit on all leaves together.
    pub room: Room,
    /// Limit on packets of one leaf.
    pub each: u64,
}

/// One fair queue with the weights of a tree.
#[derive(Debug)]
pub struct FlatWfq {
    bank: Bank,
    classifier: Classifier,
    options: (Duration, Option<u64>, bool, u64),
    mapping: Mapping,
    due: Time,
    passed: u64,
    v: u64,
    finish: Vec<u64>,
    stamps: Vec<VecDeque<u64>>,
    heads: Tournament<u128>,
    traversals: u64,
    maps: u64,
    insertions: u64,
}

impl FlatWfq {
    /// Empty.
    pub fn new(options: FlatOptions) -> FlatWfq {
        let classes = options.tree.leaves();
        let mut bank = Bank::new(options.room);
        bank.reach(classes - 1);
        FlatWfq {
            bank,
            classifier: Classifier::new(By::Class, Some(classes)),
            options: (options.period, options.every, options.pipelined, options.each),
            mapping: Mapping::new(options.tree),
            due: Time::START,
            passed: 0,
            v: 0,
            finish: vec![0; classes],
            stamps: vec![VecDeque::new(); classes],
            heads: Tournament::new(u128::MAX),
            traversals: 0,
            maps: 0,
            insertions: 0,
        }
    }
    fn traverse_if_due(&mut self, now: Time) {
        let (period, every, pipelined, _) = self.options;
        if now < self.due && every.is_none_or(|every| self.passed < every) {
            return;
        }
        self.due = now + period;
        self.passed = 0;
        // The first traversal of the pipeline knows no activity yet.
        if pipelined && self.traversals > 0 {
            self.mapping.push_down();
            self.maps += 1;
        }
        let bank = &self.bank;
        self.mapping.sum_up(|class| !bank.fifo(class).is_empty());
        self.traversals += 1;
        if !pipelined {
            self.mapping.push_down();
            (self.traversals, self.maps) = (self.traversals + 1, self.maps + 1);
        }
    }
}

impl Queue for FlatWfq {
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        self.traverse_if_due(now);
        let class = self.classifier.queue_of(&packet);
        if !self.bank.fits(packet.len) || self.bank.fifo(class).len() >= self.options.3 {
            return Err(packet);
        }
        // len / (weight / WHOLE), rounded up.
        let len = u128::from(packet.len.0) << (SCALE_BITS + WHOLE.ilog2());
        let share = len.div_ceil(u128::from(self.mapping.weight(class))) as u64;
        let stamp = self.finish[class].max(self.v).saturating_add(share);
        self.finish[class] = stamp;
        if self.bank.fifo(class).is_empty() {
            self.heads.set(class, keyed(stamp, class));
            self.insertions += 1;
        }
        self.stamps[class].push_back(stamp);
        self.bank.push(class, packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.traverse_if_due(now);
        let (stamp, class) = unkeyed(self.heads.best()?);
        self.v = stamp;
        self.passed += 1;
        self.stamps[class].pop_front();
        match self.stamps[class].front() {
            Some(&next) => {
                self.heads.set(class, keyed(next, class));
                self.insertions += 1;
            }
            None => self.heads.clear(class),
        }
        let packet = self.bank.pop(class);
        if self.bank.packets == 0 && self.v > RESTART {
            self.v = 0;
            self.finish.fill(0);
        }
        packet
    }
    of_bank!(ready_at, packets, bytes);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("traversals", self.traversals);
        count("maps", self.maps);
        count(INSERTIONS.0, self.insertions);
    }
}

impl Described for FlatWfq {
    const PAGE: &'static Page = &Page {
        name: "flat-wfq",
        family: Family::Queue,
        what: "Link sharing by one flat fair queue with weights periodically remapped from a tree.",
        ports: "in --> [ queue per leaf ] --> smallest stamp --> out",
        params: &[
            PARENTS,
            TREE_WEIGHTS,
            Param::or("period", ParamKind::Time, "1 ms").is("time between traversals of the tree"),
            Param::optional("every", ParamKind::COUNT, "none")
                .is("also traverse after this many packets"),
            Param::or("pipelined", ParamKind::Flag, "true")
                .is("distribute the sums of the last traversal in this one"),
            PACKETS,
            BYTES,
            EACH,
        ],
        source: "Ndiaye, MIT LCS-TM-509; Lefelhocz (pipelined recomputation); A-155 to A-159",
        deviations: &[
            "The flat queue is self-clocked: a fluid server with changing weights is not defined.",
            "An inactive leaf keeps its rate in the full tree; the source does not say.",
        ],
        counters: &[
            ("traversals", "traversals of the tree: up or down or, pipelined, both"),
            ("maps", "times that weights were recomputed for the active leaves"),
            INSERTIONS,
        ],
        drops: &[FULL],
        example: one_queue!(
            "flat-wfq = { parents = [0, 0, 1, 1, 2, 2], weights = [50, 50, 30, 20, 10, 40] }"
        ),
        ..Page::at(here!())
    };

    fn fit(values: &Values) -> Result<(), Misfit> {
        Tree::from_values(values).map(drop)
    }
    fn build(values: &Values, site: &Site<'_>) -> FlatWfq {
        FlatWfq::new(FlatOptions {
            tree: Tree::from_values(values).expect("the values are consistent"),
            period: values.get("period"),
            every: values.given("every"),
            pipelined: values.get("pipelined"),
            room: Room::from_values(values, site),
            each: site.buffers.scale(values.given("each").unwrap_or(u64::MAX)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check;
    use crate::queue::h_pfq::tests::{near, sent, tree};
    use lastmeter_base::Stream;

    fn flat(period: Duration, pipelined: bool) -> FlatWfq {
        let (room, each) = (Room::UNLIMITED, u64::MAX);
        FlatWfq::new(FlatOptions { tree: tree(), period, every: None, pipelined, room, each })
    }

    #[test]
    fn shares_are_those_of_the_tree_after_the_first_traversals() {
        for pipelined in [false, true] {
            // Before the first map, during two traversals, some packets pass at nominal weights.
            let queue = || flat(Duration::from_us(20), pipelined);
            near(sent(&mut queue(), &[0, 1, 2, 3], 1000), [30, 20, 10, 40], 6000);
            near(sent(&mut queue(), &[0, 2, 3], 1000), [50, 0, 10, 40], 6000);
            near(sent(&mut queue(), &[2, 3], 1000), [0, 0, 20, 80], 6000);
        }
    }

    /// A-159: each map of the pipeline is the map of two phases on the activity one traversal ago.
    #[test]
    fn the_pipeline_gives_the_maps_of_two_phases_one_traversal_later() {
        let (mut piped, mut phased) = (Mapping::new(tree()), Mapping::new(tree()));
        let mut random = Stream::new(1, "flat");
        let mut last = None;
        for _ in 0..200 {
            let pattern = random.bits();
            piped.push_down();
            piped.sum_up(|class| pattern >> class & 1 == 1);
            if let Some(last) = last.replace(pattern) {
                phased.sum_up(|class| last >> class & 1 == 1);
                phased.push_down();
                assert_eq!(piped.rates, phased.rates);
            }
        }
    }

    /// A-159: the first map comes after the second traversal, and then one after each; two phases need
    /// two traversals for each.
    #[test]
    fn a_pipeline_maps_once_per_traversal_and_two_phases_every_other_time() {
        for (pipelined, expected) in [(true, [1, 0, 2, 1, 3, 2]), (false, [2, 1, 4, 2, 6, 3])] {
            let mut queue = flat(Duration::from_us(10), pipelined);
            let mut counted = Vec::new();
            for us in [0, 10, 20] {
                let now = Time::START + Duration::from_us(us);
                queue.enqueue(now, check::packet(0, 100)).unwrap();
                queue.counts(&mut |name, count| {
                    counted.extend((name != "insertions").then_some(count));
                });
            }
            assert_eq!(counted, expected);
        }
    }

    #[test]
    fn rates_of_active_leaves_use_the_whole_link() {
        let mut mapping = Mapping::new(tree());
        for pattern in 1u32..16 {
            mapping.sum_up(|class| pattern >> class & 1 == 1);
            mapping.push_down();
            let active = (0..4).filter(|class| pattern >> class & 1 == 1);
            let sum: u64 = active.map(|class| mapping.weight(class)).sum();
            assert!(sum <= WHOLE && sum + 8 > WHOLE, "{pattern:b} {sum}");
        }
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = FlatOptions {
            tree: tree(),
            period: Duration::from_us(5),
            every: Some(3),
            pipelined: true,
            room: Room::packets(30),
            each: 12,
        };
        check::holds(FlatWfq::new(options.clone()), &check::USUAL);
        check::holds(FlatWfq::new(FlatOptions { pipelined: false, ..options }), &check::USUAL);
    }
}
