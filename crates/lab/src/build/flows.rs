//! The flows of an experiment, and the parts of the network that they use.

use crate::experiment::{Experiment, Network};
use lastmeter_engine::site::{Speaks, TrafficKind, own};
use std::collections::{BTreeMap, BTreeSet};

/// One flow.
#[derive(Clone, Debug)]
pub(super) struct SingleFlow {
    /// The index of the declared traffic to which it belongs.
    pub(super) traffic: usize,
    /// Its number within that traffic.
    pub(super) number: u32,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Every flow, and the nodes and hops in use.
pub(super) struct Flows {
    pub(super) all: Vec<SingleFlow>,
    /// The flows that each host sends, by its node.
    pub(super) sent: BTreeMap<usize, Vec<usize>>,
    /// The flows that each host receives, by its node.
    pub(super) received: BTreeMap<usize, Vec<usize>>,
    /// The hops that packets take, in order of declaration.
    pub(super) hops: BTreeSet<usize>,
    /// The hosts that a live run connects, in order of declaration; none in a model.
    pub(super) live: Vec<usize>,
    /// For each node that packets leave: the hop towards each destination.
    pub(super) tables: BTreeMap<usize, BTreeMap<usize, usize>>,
}

impl Flows {
    /// The flows of a checked experiment; each has a route.
    ///
    /// In a live run, real programs replace the traffic of live hosts.
    pub(super) fn new(experiment: &Experiment, network: &Network, is_live: bool) -> Flows {
        let live = if is_live { network.live(experiment) } else { Vec::new() };
        let mut flows = Flows {
            all: Vec::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            hops: BTreeSet::new(),
            live,
            tables: BTreeMap::new(),
        };
        // The senders to each destination, of requests and responses.
        let mut senders: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (traffic, entry) in experiment.traffic.iter().enumerate() {
            let responds = (entry.kind.maker::<TrafficKind>().responds)(&entry.kind.values);
            let pairs = network.pairs(experiment, &entry.from, &entry.to);
            for (number, (from, to)) in pairs.into_iter().enumerate() {
                if flows.live.contains(&from) || flows.live.contains(&to) {
                    continue;
                }
                flows.sent.entry(from).or_default().push(flows.all.len());
                flows.received.entry(to).or_default().push(flows.all.len());
                let number = number as u32;
                flows.all.push(SingleFlow { traffic, number, from, to });
                senders.entry(to).or_default().insert(from);
                if responds {
                    senders.entry(from).or_default().insert(to);
                }
            }
        }
        for &destination in &flows.live {
            let others = flows.live.iter().copied().filter(|&other| other != destination);
            senders.entry(destination).or_default().extend(others);
        }
        speakers(experiment, network, &mut senders);
        for (destination, senders) in senders {
            flows.route(network, destination, &senders);
        }
        flows
    }

    fn route(&mut self, network: &Network, destination: usize, senders: &BTreeSet<usize>) {
        let towards = network.towards(destination);
        for &sender in senders {
            let mut node = sender;
            while node != destination {
                let hop = towards[node].expect("a checked flow has a route");
                self.hops.insert(hop);
                // From a node that another flow has passed, the rest of the route is known.
                if self.tables.entry(node).or_default().insert(destination, hop).is_some() {
                    break;
                }
                node = network.hops[hop].to;
            }
        }
    }

    /// The number of links that a flow passes.
    pub(super) fn links(&self, network: &Network, flow: &SingleFlow) -> u64 {
        let (mut node, mut links) = (flow.from, 0);
        while node != flow.to {
            node = network.hops[self.tables[&node][&flow.to]].to;
            links += 1;
        }
        links
    }

    /// The nodes that are needed, in order of declaration.
    pub(super) fn nodes(&self) -> BTreeSet<usize> {
        let sending = self.tables.keys();
        sending.chain(self.received.keys()).chain(&self.live).copied().collect()
    }
}

/// Nodes that speak with one another send to each other, as far as there are routes.
fn speakers(
    experiment: &Experiment,
    network: &Network,
    senders: &mut BTreeMap<usize, BTreeSet<usize>>,
) {
    let kind = |node: usize| &experiment.nodes[network.nodes[node].declared].kind;
    let all = (0..network.nodes.len()).filter(|&node| own::<Speaks>(kind(node)).is_some());
    let all: Vec<usize> = all.collect();
    for &to in &all {
        let towards = network.towards(to);
        let from = all.iter().copied().filter(|&from| from != to && towards[from].is_some());
        senders.entry(to).or_default().extend(from);
    }
}
