//! Nodes: each is built by its kind, at its place in the network.

use super::flows::Flows;
use super::{Builder, Made, Output};
use crate::document::{Fault, shorten};
use crate::experiment::{Experiment, Network, Node};
use crate::library::Library;
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, NodeId, Rate};
use lastmeter_engine::site::{
    self, Inputs, Names, Neighbour, NodeKind, Outputs, Ports, Programs, Site,
};
use lastmeter_engine::{Error, Graph};
use std::any::Any;
use std::io::Read;
use std::sync::Arc;

/// The surroundings that nodes and traffic can see.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    experiment: &'a Experiment,
    network: &'a Network,
    flows: &'a Flows,
    library: &'a dyn Library,
}

impl<'a> Around<'a> {
    /// The site of `node` in `graph`.
    pub(super) fn site<'s>(
        &'s self,
        node: usize,
        graph: &'s mut Graph,
        names: &'s mut Names,
    ) -> Site<'s> {
        let single = &self.network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let leaving = &self.network.leaving[node];
        let by = |hop| leaving.binary_search(hop).expect("a route leaves by a link of its node");
        let routes = self.flows.tables.get(&node).into_iter().flatten();
        Site {
            graph,
            names,
            network: self,
            seed: self.experiment.seed,
            node: NodeId(node as u32),
            name: &single.name,
            group: &declared.name,
            shared: declared.count.is_some_and(|count| count > 1),
            neighbours: site::Network::neighbours(self, NodeId(node as u32)),
            routes: routes.map(|(&to, hop)| (NodeId(to as u32), by(hop))).collect(),
            source: None,
        }
    }
}

impl Around<'_> {
    fn declared(&self, node: NodeId) -> &Node {
        &self.experiment.nodes[self.network.nodes[node.0 as usize].declared]
    }
}

impl site::Network for Around<'_> {
    fn len(&self) -> usize {
        self.network.nodes.len()
    }
    fn find(&self, name: &str) -> Option<NodeId> {
        let place = self.network.nodes.iter().position(|node| node.name == name);
        place.map(|node| NodeId(node as u32))
    }
    fn name(&self, node: NodeId) -> &str {
        &self.network.nodes[node.0 as usize].name
    }
    fn group(&self, node: NodeId) -> &str {
        &self.declared(node).name
    }
    fn kind(&self, node: NodeId) -> &Nested {
        &self.declared(node).kind
    }
    fn neighbours(&self, node: NodeId) -> Vec<Neighbour<'_>> {
        let neighbour = |&hop: &usize| {
            let node = NodeId(self.network.hops[hop].to as u32);
            Neighbour {
                node,
                name: self.name(node),
                group: self.group(node),
                kind: self.kind(node),
            }
        };
        self.network.leaving[node.0 as usize].iter().map(neighbour).collect()
    }
    fn way(&self, from: NodeId, to: NodeId) -> Vec<NodeId> {
        let mut way = vec![from];
        let mut node = from.0 as usize;
        while node != to.0 as usize {
            node = self.network.hops[self.flows.tables[&node][&(to.0 as usize)]].to;
            way.push(NodeId(node as u32));
        }
        way
    }
    fn profile(&self, node: NodeId, param: &str) -> Option<Arc<dyn Any + Send + Sync>> {
        self.experiment.profile(self.declared(node), param, self.library.kinds()).cloned()
    }
    fn open(&self, path: &str) -> Result<Box<dyn Read + Send>, String> {
        self.library.open(path)
    }
    fn rate(&self, node: NodeId, neighbour: usize) -> Option<Rate> {
        let hop = &self.network.hops[self.network.leaving[node.0 as usize][neighbour]];
        self.experiment.links[hop.link].values(hop.back).given("rate")
    }
    fn framing(&self, node: NodeId, neighbour: usize) -> Bytes {
        let hop = &self.network.hops[self.network.leaving[node.0 as usize][neighbour]];
        let values = self.experiment.links[hop.link].values(hop.back);
        values.given("framing").unwrap_or(Bytes::ZERO)
    }
    fn programs(&self) -> Option<&dyn Programs> {
        self.library.programs()
    }
}

impl<'a> Builder<'a, '_> {
    pub(super) fn around(&self) -> Around<'a> {
        let Builder { experiment, network, flows, library, .. } = *self;
        Around { experiment, network, flows, library }
    }

    /// A node that forwards packets.
    pub(super) fn node(&mut self, node: usize) -> Result<Made, Error> {
        let declared = &self.experiment.nodes[self.network.nodes[node].declared];
        let around = self.around();
        let mut site = around.site(node, &mut self.graph, &mut self.names);
        let build = declared.kind.maker::<NodeKind>().build;
        let ports = build(&declared.kind.values, &mut site);
        match self.fits(declared, ports)? {
            Some(ports) => self.joined(node, ports),
            None => Ok(Made { input: None, outputs: Vec::new() }),
        }
    }

    /// What a kind has built; reports an error if it could not.
    pub(super) fn fits<T>(
        &mut self,
        declared: &Node,
        built: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let found = match built {
            Ok(built) => return Ok(Some(built)),
            Err(Error::Misfit(found)) => found,
            Err(error) => return Err(error),
        };
        let right = format!("`lastmeter kinds {}` lists its parameters", declared.kind.page.name);
        let key = format!("nodes.{}", shorten(&declared.name));
        self.reporter.report(&declared.mark, &key, Fault::new(found, right));
        Ok(None)
    }

    /// Connects arriving hops to a node's inputs, and its outputs to leaving hops.
    fn joined(&mut self, node: usize, ports: Ports) -> Result<Made, Error> {
        let input = match ports.inputs {
            Inputs::One(input) => Some(input),
            // Both directions of a link have the same position among those of a node.
            Inputs::Each(inputs) => {
                let arriving = self.network.arriving[node].iter();
                let used = arriving.zip(&inputs).filter(|(hop, _)| self.flows.hops.contains(hop));
                self.ports.extend(used);
                inputs.first().copied()
            }
        };
        let outputs = match ports.outputs {
            Outputs::Any(leaving) => self.spread(node, leaving)?,
            Outputs::Each(outputs) => self.each(node, &outputs),
        };
        Ok(Made { input, outputs })
    }

    /// The outputs to each neighbour, with the hops that packets take there.
    pub(super) fn each(&self, node: usize, outputs: &[Output]) -> Vec<(Output, usize)> {
        let leaving = &self.network.leaving[node];
        let hops = self.hops_of(node);
        let output = |hop| leaving.binary_search(hop).ok().map(|place| outputs[place]);
        hops.iter().filter_map(|hop| Some((output(hop)?, *hop))).collect()
    }
}
