//! The network that an experiment describes: every single node, every direction of every link, and the routes
//! between nodes.

use super::{End, Experiment};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Single nodes and directions of links, in the order in which they were declared.
pub struct Network {
    /// Every single node.
    pub nodes: Vec<Single>,
    /// Every direction of every link.
    pub hops: Vec<Hop>,
    /// The first member of each declared node.
    first: Vec<usize>,
    /// The hops that arrive at each node.
    pub arriving: Vec<Vec<usize>>,
    /// The hops that leave each node.
    pub leaving: Vec<Vec<usize>>,
}

/// One node.
pub struct Single {
    pub name: String,
    /// The index of the declared node of which it is a member.
    pub declared: usize,
    pub forwards: bool,
}

/// One direction of one link.
#[derive(Clone, Debug)]
pub struct Hop {
    pub from: usize,
    pub to: usize,
    /// The index of the declared link to which it belongs.
    pub link: usize,
    /// Whether it is the direction from right to left.
    pub back: bool,
    /// The cost of a route over it.
    pub cost: u64,
    /// `alice->r1`.
    pub name: String,
    /// The same for all members of a counted node: `s->r1`.
    pub group: String,
    /// Whether other hops have the same group.
    pub shared: bool,
    /// The name shared by all links between members of these nodes, however they were declared; `None` if there is
    /// only one.
    pub like: Option<String>,
}

impl Network {
    /// The network of an experiment whose nodes and link ends have been checked.
    pub fn new(experiment: &Experiment) -> Network {
        let mut network = Network {
            nodes: Vec::new(),
            hops: Vec::new(),
            first: Vec::new(),
            arriving: Vec::new(),
            leaving: Vec::new(),
        };
        for (declared, node) in experiment.nodes.iter().enumerate() {
            network.first.push(network.nodes.len());
            let forwards = !node.is_host();
            let single = |name: String| Single { name, declared, forwards };
            match node.count {
                None => network.nodes.push(single(node.name.clone())),
                Some(count) => (0..count).for_each(|member| {
                    network.nodes.push(single(format!("{}.{member}", node.name)))
                }),
            }
        }
        network.arriving = vec![Vec::new(); network.nodes.len()];
        network.leaving = vec![Vec::new(); network.nodes.len()];
        for (index, link) in experiment.links.iter().enumerate() {
            for pair in link.between.windows(2) {
                network.join(experiment, index, &pair[0], &pair[1]);
            }
        }
        network
    }

    fn join(&mut self, experiment: &Experiment, link: usize, a: &End, b: &End) {
        let pairs = self.pairs(experiment, a, b);
        let shared = pairs.len() > 1;
        for (from, to) in pairs {
            let ways = [(false, from, to, &a.name, &b.name), (true, to, from, &b.name, &a.name)];
            for (back, from, to, from_group, to_group) in ways {
                let cost = experiment.links[link].values(back).get("cost");
                let name = format!("{}->{}", self.nodes[from].name, self.nodes[to].name);
                let group = format!("{from_group}->{to_group}");
                let of = |node: usize| &experiment.nodes[self.nodes[node].declared].name;
                let like = Some(format!("{}->{}", of(from), of(to))).filter(|like| *like != name);
                self.arriving[to].push(self.hops.len());
                self.leaving[from].push(self.hops.len());
                self.hops.push(Hop { from, to, link, back, cost, name, group, shared, like });
            }
        }
    }

    /// The single nodes to which an end refers.
    fn members(&self, experiment: &Experiment, end: &End) -> std::ops::Range<usize> {
        let first = self.first[end.node];
        match (end.member, experiment.nodes[end.node].count) {
            (Some(member), _) => first + member as usize..first + member as usize + 1,
            (None, Some(count)) => first..first + count as usize,
            (None, None) => first..first + 1,
        }
    }

    /// The hosts that a live run connects, in order of declaration.
    pub fn live(&self, experiment: &Experiment) -> Vec<usize> {
        let is_live = |&node: &usize| {
            let kind = &experiment.nodes[self.nodes[node].declared].kind;
            !self.nodes[node].forwards && kind.values.given("live") == Some(true)
        };
        (0..self.nodes.len()).filter(is_live).collect()
    }

    /// Pairs the members of two ends: one to one if both have as many, else one with each.
    pub fn pairs(&self, experiment: &Experiment, a: &End, b: &End) -> Vec<(usize, usize)> {
        let (a, b) = (self.members(experiment, a), self.members(experiment, b));
        match (a.len(), b.len()) {
            (1, _) => b.map(|to| (a.start, to)).collect(),
            (_, 1) => a.map(|from| (from, b.start)).collect(),
            _ => a.zip(b).collect(),
        }
    }

    /// The next hop from each node to `destination`: by the least sum of costs, ties broken by order of declaration.
    /// Hosts do not forward.
    pub fn towards(&self, destination: usize) -> Vec<Option<usize>> {
        let mut distance = vec![u64::MAX; self.nodes.len()];
        distance[destination] = 0;
        let mut reached = BinaryHeap::from([Reverse((0, destination))]);
        let passes = |node: usize| node == destination || self.nodes[node].forwards;
        while let Some(Reverse((so_far, node))) = reached.pop() {
            if so_far > distance[node] || !passes(node) {
                continue;
            }
            for &hop in &self.arriving[node] {
                let Hop { from, cost, .. } = self.hops[hop];
                if so_far + cost < distance[from] {
                    distance[from] = so_far + cost;
                    reached.push(Reverse((distance[from], from)));
                }
            }
        }
        let nearer = |from: usize, hop: &usize| {
            let Hop { to, cost, .. } = self.hops[*hop];
            passes(to) && distance[to] != u64::MAX && distance[to] + cost == distance[from]
        };
        (0..self.nodes.len())
            .map(|from| self.leaving[from].iter().copied().find(|hop| nearer(from, hop)))
            .collect()
    }
}
