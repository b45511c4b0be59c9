//! Hierarchical packet fair queueing: a tree of classes, each inner node a WF2Q+ server.
//!
//! ```text
//!               /-> a1 [ ... ] 30 -\
//!        /-> A 50                   \
//! in --> |      \-> a2 [ ... ] 20 --+--> out     an idle class's share goes to its siblings,
//!        \-> B 50 -> b1, b2 --------/            in proportion to their weights
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                    |
//! |-----------|---------|----------|------------------------------------------------------------|
//! | `parents` | numbers | required | parent of node 1, 2, ...: 0, the root, or a node before it |
//! | `weights` | numbers | all 1    | share of node 1, 2, ... among its siblings                 |
//! | `packets` | packets | no limit | limit on packets in all leaves                             |
//! | `bytes`   | size    | no limit | limit on bytes in all leaves                               |
//! | `each`    | packets | no limit | limit on packets of one leaf                               |
//!
//! Leaves serve the classes of packets in order: the first leaf class 0, and so on; classes beyond the
//! last share it. A node without children is a leaf. Work per packet is O(log n) at each
//! level, a cost that the flat map avoids (A-154).
//!
//! Source: Bennett & Zhang, Hierarchical Packet Fair Queueing Algorithms, SIGCOMM 1996, §4 (ARRIVE,
//! RESET-PATH, RESTART-NODE); the link-sharing tree is A-150 to A-153. Deviation: the path of a packet
//! is restarted when the next one is requested, which is when its service has ended.

use super::flows::{BYTES, Bank, By, Classifier, EACH, PACKETS, Room, WEIGHT_MAX, of_bank, weight};
use super::wf2q::Eligibility;
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, Time, here};

/// Limit on classes, because a packet's class has eight bits.
const LEAVES_MAX: usize = 256;

/// The shape of a link-sharing tree.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Parent of each node; that of the root is the root.
    pub(super) parents: Vec<usize>,
    /// Weight of each node among its siblings.
    pub(super) weights: Vec<u64>,
    /// The nodes without children, in order.
    pub(super) leaves: Vec<usize>,
}

impl Tree {
    /// Node n + 1 has the n-th parent and weight; node 0 is the root.
    ///
    /// # Errors
    /// A parent that does not come before its child, more weights than nodes, no class or too many.
    ///
    /// ```
    /// use lastmeter_net::queue::Tree;
    /// let tree = Tree::new(&[0, 0, 1, 1, 2, 2], &[50, 50, 30, 20, 10, 40])?;
    /// assert_eq!(tree.leaves(), 4);
    /// let error = Tree::new(&[0, 7], &[]).unwrap_err();
    /// assert_eq!(error.index, Some(1));
    /// # Ok::<(), lastmeter_base::kind::Misfit>(())
    /// ```
    pub fn new(parents: &[u64], weights: &[u64]) -> Result<Tree, Misfit> {
        let fault = |found: String, right: &str| Err(Misfit::new(PARENTS.name, found, right));
        if parents.is_empty() {
            return fault("the tree has no class".to_owned(), "write [0] for a single one");
        }
        let mut all = vec![0];
        for (index, &parent) in parents.iter().enumerate() {
            // The parent of node index + 1 must come before it.
            match usize::try_from(parent).ok().filter(|&parent| parent <= index) {
                Some(parent) => all.push(parent),
                None => {
                    let node = index + 1;
                    let found = format!("node {parent} cannot be the parent of node {node}");
                    let right = match index {
                        0 => "the parent of the first node is 0, the root".to_owned(),
                        _ => format!("write 0, the root, or one of the nodes 1 to {index}"),
                    };
                    return Err(Misfit::new(PARENTS.name, found, right).at(index));
                }
            }
        }
        let mut is_parent = vec![false; all.len()];
        all[1..].iter().for_each(|&parent| is_parent[parent] = true);
        let leaves: Vec<usize> = (1..all.len()).filter(|&node| !is_parent[node]).collect();
        if leaves.len() > LEAVES_MAX {
            let found = format!("the tree has {} classes", leaves.len());
            return fault(found, "a packet's class has eight bits: write at most 256");
        }
        if weights.len() > parents.len() {
            let found = format!("{} weights for {} nodes", weights.len(), parents.len());
            return Err(Misfit::new(TREE_WEIGHTS.name, found, "write one for each node"));
        }
        let weights = (0..all.len()).map(|n| if n == 0 { 1 } else { weight(weights, n - 1) });
        Ok(Tree { weights: weights.collect(), leaves, parents: all })
    }
    /// How many classes it has.
    pub fn leaves(&self) -> usize {
        self.leaves.len()
    }
    pub(super) fn from_values(values: &Values) -> Result<Tree, Misfit> {
        let weights = values.given::<Vec<u64>>("weights").unwrap_or_default();
        Tree::new(&values.get::<Vec<u64>>("parents"), &weights)
    }
}

pub(super) const PARENTS: Param =
    Param::required("parents", ParamKind::Integers { min: 0, max: 1023 })
        .is("parent of node 1, 2, ...: 0, the root, or a node before it");
pub(super) const TREE_WEIGHTS: Param =
    Param::optional("weights", ParamKind::Integers { min: 1, max: WEIGHT_MAX }, "all alike")
        .is("share of node 1, 2, ... among its siblings");

/// A tree of WF2Q+ servers.
#[derive(Debug)]
pub struct HPfq {
    bank: Bank,
    classifier: Classifier,
    each: u64,
    tree: Tree,
    /// One for each inner node; children are known by their own numbers.
    servers: Vec<Eligibility>,
    /// For each node, the class of the leaf whose head packet is also the node's, and the packet's length.
    heads: Vec<Option<(usize, u64)>>,
    /// The class whose packet was handed out last, and its length: its path is not restarted yet.
    in_service: Option<(usize, u64)>,
    insertions: u64,
}

impl HPfq {
    /// Empty.
    pub fn new(tree: Tree, room: Room, each: u64) -> HPfq {
        let mut bank = Bank::new(room);
        bank.reach(tree.leaves() - 1);
        let mut servers: Vec<Eligibility> =
            tree.parents.iter().map(|_| Eligibility::new()).collect();
        for node in 1..tree.parents.len() {
            servers[tree.parents[node]].admit(tree.weights[node]);
        }
        HPfq {
            bank,
            classifier: Classifier::new(By::Class, Some(tree.leaves())),
            each,
            servers,
            heads: vec![None; tree.parents.len()],
            tree,
            in_service: None,
            insertions: 0,
        }
    }

    /// ARRIVE: a leaf, or a node below, has something to send; its ancestors are notified, up to the
    /// first that already had something to send.
    fn arrive(&mut self, class: usize, len: u64) {
        let mut node = self.tree.leaves[class];
        while node != 0 {
            let parent = self.tree.parents[node];
            self.servers[parent].activate(node, len, self.tree.weights[node]);
            self.insertions += 1;
            if self.heads[parent].is_some() {
                return;
            }
            // A node that was empty selects its only child.
            self.servers[parent].select();
            self.heads[parent] = Some((class, len));
            node = parent;
        }
    }

    /// RESET-PATH and RESTART-NODE, from the leaf up: each server is notified of the service and selects
    /// again.
    fn restart(&mut self, class: usize, len: u64) {
        let mut node = self.tree.leaves[class];
        let mut next = match self.bank.fifo(class).head_len() {
            0 => None,
            len => Some((class, len)),
        };
        while node != 0 {
            let parent = self.tree.parents[node];
            let server = &mut self.servers[parent];
            self.insertions += u64::from(next.is_some());
            server.serve(node, len, next.map(|(_, len)| len), self.tree.weights[node]);
            next = server.select().and_then(|child| match self.leaf_class(child) {
                Some(class) => Some((class, self.bank.fifo(class).head_len())),
                None => self.heads[child],
            });
            // The child on the path has its new head already.
            self.heads[parent] = next;
            node = parent;
        }
    }
    fn leaf_class(&self, node: usize) -> Option<usize> {
        self.tree.leaves.binary_search(&node).ok()
    }
}

impl Queue for HPfq {
    fn enqueue(&mut self, _now: Time, packet: Packet) -> Result<(), Packet> {
        let class = self.classifier.queue_of(&packet);
        let empty = packet.len == Bytes::ZERO;
        if empty || !self.bank.fits(packet.len) || self.bank.fifo(class).len() >= self.each {
            return Err(packet);
        }
        let len = packet.len.0;
        // A leaf whose packet is in service is restarted with what it has by then.
        let idle = self.bank.fifo(class).is_empty()
            && self.in_service.is_none_or(|(serving, _)| serving != class);
        self.bank.push(class, packet);
        if idle {
            self.arrive(class, len);
        }
        Ok(())
    }
    fn dequeue(&mut self, _now: Time) -> Option<Packet> {
        if let Some((class, len)) = self.in_service.take() {
            self.restart(class, len);
        }
        let (class, len) = self.heads[0]?;
        self.in_service = Some((class, len));
        self.bank.pop(class)
    }
    of_bank!(ready_at, packets, bytes);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count(INSERTIONS.0, self.insertions);
    }
}

/// The cost of a packet: most of the work is finding its place.
pub(super) const INSERTIONS: (&str, &str) =
    ("insertions", "insertions of a queue or class into an ordered list");

impl Described for HPfq {
    const PAGE: &'static Page = &Page {
        name: "h-pfq",
        family: Family::Queue,
        what: "A link-sharing tree of classes, each inner node a WF2Q+ server.",
        ports: "in --> [ queue per leaf ] --> tree of fair servers --> out",
        params: &[PARENTS, TREE_WEIGHTS, PACKETS, BYTES, EACH],
        source: "Bennett & Zhang, SIGCOMM 1996, §4; Ndiaye, MIT LCS-TM-509 (link-sharing tree)",
        deviations: &["The path of a packet is restarted when the next one is requested."],
        counters: &[INSERTIONS],
        drops: &[FULL],
        example: one_queue!(
            "h-pfq = { parents = [0, 0, 1, 1, 2, 2], weights = [50, 50, 30, 20, 10, 40] }"
        ),
        ..Page::at(here!())
    };

    fn fit(values: &Values) -> Result<(), Misfit> {
        Tree::from_values(values).map(drop)
    }
    fn build(values: &Values, site: &Site<'_>) -> HPfq {
        let each = site.buffers.scale(values.given("each").unwrap_or(u64::MAX));
        let tree = Tree::from_values(values).expect("the values are consistent");
        HPfq::new(tree, Room::from_values(values, site), each)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::queue::check::{self, packet};

    /// The tree of the specification: A { a1 30, a2 20 } 50, B { b1 10, b2 40 } 50.
    pub(in crate::queue) fn tree() -> Tree {
        Tree::new(&[0, 0, 1, 1, 2, 2], &[50, 50, 30, 20, 10, 40]).unwrap()
    }

    /// Bytes that each class sends while those of `active` are never empty.
    pub(in crate::queue) fn sent(queue: &mut impl Queue, active: &[u32], count: u64) -> [u64; 4] {
        let mut sent = [0; 4];
        let mut now = Time::START;
        for &class in active {
            (0..3).for_each(|_| queue.enqueue(now, packet(class, 1000)).unwrap());
        }
        for _ in 0..count {
            now += lastmeter_base::Duration::from_us(10);
            let out = queue.dequeue(now).unwrap();
            sent[usize::from(out.class)] += out.len.0;
            queue.enqueue(now, packet(u32::from(out.class), 1000)).unwrap();
        }
        sent
    }

    /// Shares of 1000 packets, to within a packet at each of two levels.
    pub(in crate::queue) fn near(sent: [u64; 4], shares: [u64; 4], slack: u64) {
        for (sent, share) in sent.into_iter().zip(shares) {
            assert!(sent.abs_diff(share * 10_000) <= slack, "{sent} {share}");
        }
    }

    #[test]
    fn shares_follow_the_tree_whichever_classes_idle() {
        let queue = || HPfq::new(tree(), Room::UNLIMITED, u64::MAX);
        near(sent(&mut queue(), &[0, 1, 2, 3], 1000), [30, 20, 10, 40], 2000);
        near(sent(&mut queue(), &[0, 2, 3], 1000), [50, 0, 10, 40], 2000);
        near(sent(&mut queue(), &[2, 3], 1000), [0, 0, 20, 80], 2000);
    }

    /// A-151 at every moment: no active class lags behind its share by more than one packet per level.
    #[test]
    fn no_active_class_ever_lags_by_more_than_a_packet_a_level() {
        let mut queue = HPfq::new(tree(), Room::UNLIMITED, u64::MAX);
        (0..4).for_each(|class| {
            (0..3).for_each(|_| queue.enqueue(Time::START, packet(class, 1000)).unwrap());
        });
        let (mut got, shares) = ([0f64; 4], [0.3, 0.2, 0.1, 0.4]);
        for n in 1..2000 {
            let out = queue.dequeue(Time::START).unwrap();
            got[usize::from(out.class)] += 1.0;
            queue.enqueue(Time::START, packet(u32::from(out.class), 1000)).unwrap();
            for (got, share) in got.iter().zip(shares) {
                assert!(got - share * f64::from(n) >= -2.0, "{got} of {n}");
            }
        }
    }

    #[test]
    fn an_invalid_tree_is_refused_at_the_wrong_number() {
        let index = |parents: &[u64]| Tree::new(parents, &[]).unwrap_err().index;
        assert_eq!(index(&[1]), Some(0));
        assert_eq!(index(&[0, 2, 0]), Some(1));
        assert_eq!(index(&[0, 0, u64::MAX]), Some(2));
        assert_eq!(index(&[]), None);
        assert_eq!(index(&[0; 257]), None);
        assert_eq!(Tree::new(&[0], &[1, 2]).unwrap_err().param, "weights");
    }

    #[test]
    fn accounts_for_every_packet() {
        check::holds(HPfq::new(tree(), Room::packets(30), 12), &check::USUAL);
        let deep = Tree::new(&[0, 1, 2, 3, 3, 0], &[]).unwrap();
        check::holds(HPfq::new(deep, Room::UNLIMITED, u64::MAX), &check::USUAL);
    }
}
