//! Every reachable state of a small ring, with any single loss at any step.
//!
//! ```text
//! state     the state of each node, and the signals on each link, in order
//! steps     a signal arrives; a node gets power; the holder of the token sends a frame or passes it on;
//!           when no signal is in transit, a word is repeated, or the master's timeout expires
//! faults    at most one: a signal is lost, a frame's source is corrupted, a link is silent, a node
//!           loses its power
//! ```
//!
//! Timeouts expire when no signal is in transit: they are longer than a signal takes around the ring. All orders
//! are tried. In every state there is at most one token; identities are correct when the ring is up; and from
//! every state, without further faults, the ring comes up again, with one token and no stray frame.

use super::{Node, Signal, State};
use std::collections::{HashMap, VecDeque};

/// Most signals on one link; more would mean that they accumulate.
const LINK_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct System {
    nodes: Vec<Node>,
    /// `links[i]` leads to node `i + 1`.
    links: Vec<VecDeque<Signal>>,
    faults: u8,
    /// Whether the master's timeouts ever expire.
    waits: bool,
}

impl System {
    fn new(nodes: usize, faults: u8) -> System {
        System {
            nodes: (0..nodes).map(|at| Node::new(at == 0)).collect(),
            links: vec![VecDeque::new(); nodes],
            faults,
            waits: true,
        }
    }

    /// A node loses its power, and its neighbour the signal.
    fn off(&mut self, at: usize) {
        self.nodes[at] = Node::new(self.nodes[at].master);
        self.silence(at);
    }

    /// A node falls silent.
    fn silence(&mut self, at: usize) {
        let there = (at + 1) % self.nodes.len();
        self.links[at].clear();
        let signal = self.nodes[there].no_signal();
        self.put(there, signal);
    }

    /// A host is removed from the ring or a new one inserted, and the fibres are reconnected.
    fn change(&mut self, at: usize, joins: bool) {
        if joins {
            self.nodes.insert(at, Node::new(false));
            self.links.insert(at, VecDeque::new());
            self.silence(at);
        } else {
            self.nodes.remove(at);
            self.links.remove(at);
            self.silence(at - 1);
        }
    }

    fn put(&mut self, from: usize, signal: Option<Signal>) {
        self.links[from].extend(signal);
        assert!(self.links[from].len() <= LINK_MAX, "too many signals on a link: {self:?}");
    }

    fn frames(&self) -> usize {
        let signals = self.links.iter().flatten();
        signals.filter(|signal| matches!(signal, Signal::Frame(_))).count()
    }

    fn tokens(&self) -> usize {
        let under_way = self.links.iter().flatten().filter(|&&signal| signal == Signal::Token);
        under_way.count() + self.nodes.iter().filter(|node| node.holds).count()
    }

    /// Calls `reached` with each state that is one step away, and whether a fault led there.
    fn step(&self, mut reached: impl FnMut(System, bool)) {
        let count = self.nodes.len();
        let mut to = |fault: bool, change: &dyn Fn(&mut System)| {
            let mut next = self.clone();
            next.faults -= u8::from(fault);
            change(&mut next);
            reached(next, fault);
        };
        for at in 0..count {
            let there = (at + 1) % count;
            if let Some(&signal) = self.links[at].front() {
                let arrive = |next: &mut System, signal| {
                    next.links[at].pop_front();
                    let answer = next.nodes[there].receive(signal);
                    next.put(there, answer);
                };
                to(false, &|next| arrive(next, signal));
                if self.faults > 0 {
                    to(true, &|next| {
                        next.links[at].pop_front();
                    });
                }
                if let (Signal::Frame(mut header), true) = (signal, self.faults > 0) {
                    // An identity that no station of such a small ring has.
                    header.src = 15;
                    to(true, &|next| next.links[at][0] = Signal::Frame(header));
                }
            }
            let node = &self.nodes[at];
            if node.state == State::Off {
                to(false, &|next| {
                    let signal = next.nodes[at].power();
                    next.put(at, Some(signal));
                });
            } else if self.faults > 0 {
                to(true, &|next| {
                    let signal = next.nodes[at].no_signal();
                    next.put(at, signal);
                });
                to(true, &|next| next.off(at));
            }
            if node.holds {
                to(false, &|next| {
                    let signal = next.nodes[at].release();
                    next.put(at, signal);
                });
                // One frame at a time is enough to reach every state of another one.
                if self.frames() == 0 {
                    let dst = ((at + count - 1) % count) as u8;
                    to(false, &|next| {
                        let signal = next.nodes[at].send(dst);
                        next.put(at, signal);
                    });
                }
            }
        }
        if self.links.iter().all(VecDeque::is_empty) {
            for at in 0..count {
                if self.nodes[at].repeat().is_some() {
                    to(false, &|next| {
                        let signal = next.nodes[at].repeat();
                        next.put(at, signal);
                    });
                }
            }
            let nobody_holds = self.nodes.iter().all(|node| !node.holds);
            if self.waits && nobody_holds && self.nodes[0].clone().expire().is_some() {
                to(false, &|next| {
                    let signal = next.nodes[0].expire();
                    next.put(0, signal);
                });
            }
        }
    }

    /// What must hold in every state: identities are positions, except that those from before a change last until
    /// the ring is down.
    fn check(&self, changed: bool) {
        assert!(self.tokens() <= 1, "two tokens: {self:?}");
        let mut rids = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let rid = node.rid.map(usize::from);
            assert!(changed || rid.is_none_or(|rid| rid == at), "a wrong identity: {self:?}");
            assert!(!node.holds || node.state == State::Up);
            rids.extend(rid);
        }
        let given = rids.len();
        rids.sort_unstable();
        rids.dedup();
        assert_eq!(rids.len(), given, "a duplicate identity: {self:?}");
        let hosts = self.nodes[0].hosts.map(usize::from);
        let right = hosts.is_none_or(|hosts| hosts == self.nodes.len() - 1);
        assert!(changed || right, "a wrong number: {self:?}");
    }

    fn is_up(&self) -> bool {
        let mut nodes = self.nodes.iter().enumerate();
        let up = nodes.all(|(at, node)| node.state == State::Up && node.rid == Some(at as u8));
        up && self.tokens() == 1 && self.frames() == 0
    }
}

/// Findings.
struct Found {
    states: Vec<System>,
    /// The first state found from which the ring never comes up again.
    stuck: Option<usize>,
    /// The first state found in which it is up.
    up: Option<usize>,
}

/// Visits every reachable state.
fn explore(first: System, changed: bool) -> Found {
    let mut known: HashMap<System, u32> = HashMap::from([(first.clone(), 0)]);
    let mut states: Vec<System> = vec![first];
    // Predecessors of each state by steps without a fault.
    let mut before: Vec<Vec<u32>> = vec![Vec::new()];
    let mut at = 0;
    while at < states.len() {
        states[at].check(changed);
        let mut found = Vec::new();
        states[at].step(|next, fault| found.push((next, fault)));
        for (next, fault) in found {
            let fresh = states.len() as u32;
            let index = *known.entry(next).or_insert_with_key(|next| {
                states.push(next.clone());
                before.push(Vec::new());
                fresh
            });
            if !fault {
                before[index as usize].push(at as u32);
            }
        }
        at += 1;
    }
    let mut recovers: Vec<bool> = states.iter().map(System::is_up).collect();
    let up = recovers.iter().position(|&up| up);
    let mut reached: Vec<usize> = (0..states.len()).filter(|&at| recovers[at]).collect();
    while let Some(at) = reached.pop() {
        for &from in &before[at] {
            if !std::mem::replace(&mut recovers[from as usize], true) {
                reached.push(from as usize);
            }
        }
    }
    let stuck = recovers.iter().position(|&recovers| !recovers);
    Found { states, stuck, up }
}

#[test]
#[allow(clippy::print_stdout, reason = "the number of states is worth reading")]
fn j_38_j_42_up_to_five_nodes_come_up_after_any_single_fault_at_any_step() {
    for nodes in 2..=5 {
        let without = explore(System::new(nodes, 0), false);
        let with = explore(System::new(nodes, 1), false);
        let count = (with.states.len(), without.states.len());
        println!("{nodes} nodes: {} states with one fault, {} without", count.0, count.1);
        assert!(with.up.is_some() && count.0 > count.1);
        let stuck = with.stuck.or(without.stuck).map(|at| &with.states[at]);
        assert!(stuck.is_none(), "it never comes up again: {stuck:?}");
    }
}

#[test]
fn j_43_a_ring_that_loses_or_gains_a_host_comes_up_with_new_identities() {
    for nodes in 3..=4 {
        let found = explore(System::new(nodes, 0), false);
        let up = &found.states[found.up.unwrap()];
        for at in 1..nodes {
            for joins in [false, true] {
                let mut changed = up.clone();
                changed.change(at, joins);
                let found = explore(changed, true);
                assert!(found.up.is_some() && found.stuck.is_none(), "{nodes} {at} {joins}");
            }
        }
    }
}

#[test]
fn without_the_masters_timeouts_a_single_loss_is_permanent() {
    let lasts = System { waits: false, ..System::new(3, 0) };
    assert!(explore(lasts.clone(), false).stuck.is_none());
    assert!(explore(System { faults: 1, ..lasts }, false).stuck.is_some());
}
