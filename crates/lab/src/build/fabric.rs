//! Fabrics and fat trees: nodes whose neighbours have a port each, made of many elements.

use super::{Builder, Made, Output};
use crate::document::{Fault, shorten};
use lastmeter_base::{Duration, NodeId};
use lastmeter_engine::{Error, Graph, ResourceId, ResourceInfo, ResourceKind};
use lastmeter_lan::fabric::fat_tree;
use lastmeter_lan::fabric::network::{self, PortOptions, Speed, Stages};
use lastmeter_lan::fabric::port::Place;
use std::collections::BTreeSet;

/// How many times as fast something is that costs nothing.
pub(super) const FREE: Speed = (1_000_000, 1);

/// A node with a port for each neighbour.
pub(super) struct Ports {
    /// The neighbours, in the order of their links.
    pub(super) neighbours: Vec<usize>,
    /// Which port leads to each node.
    pub(super) nodes: Vec<(NodeId, usize)>,
}

impl Ports {
    /// The port of a neighbour.
    pub(super) fn of(&self, neighbour: usize) -> usize {
        let port = self.neighbours.iter().position(|&known| known == neighbour);
        port.expect("a hop has two ends")
    }
}

impl Builder<'_, '_> {
    /// A node of a fabric's, a wormhole network's, a pre-emptive link's, a port processor's or an
    /// adapter's kind; `None` if it is of another one.
    pub(super) fn switching(&mut self, node: usize) -> Result<Option<Made>, Error> {
        let declared = &self.experiment.nodes[self.network.nodes[node].declared];
        let name = declared.kind.page.name;
        if name == network::PAGE.name {
            return self.fabric(node).map(Some);
        }
        if name == fat_tree::PAGE.name {
            return self.fat_tree(node).map(Some);
        }
        if name == lastmeter_lan::wormhole::element::PAGE.name {
            return self.wormhole(node).map(Some);
        }
        if name == lastmeter_lan::preempt::element::PAGE.name {
            return self.adu_link(node).map(Some);
        }
        if name == lastmeter_host::port_processor::kind::PAGE.name {
            return self.port_processor(node).map(Some);
        }
        if name == lastmeter_host::adapter::element::PAGE.name {
            return self.adapter(node).map(Some);
        }
        Ok(None)
    }

    /// The ports of a node, one for each neighbour.
    pub(super) fn ports_of(&self, node: usize) -> Ports {
        let network = self.network;
        let leaving = network.leaving[node].iter();
        let mut ports = Ports {
            neighbours: leaving.map(|&hop| network.hops[hop].to).collect(),
            nodes: Vec::new(),
        };
        let table = &self.flows.tables[&node];
        let port =
            |(&to, &hop): (&usize, &usize)| (NodeId(to as u32), ports.of(network.hops[hop].to));
        ports.nodes = table.iter().map(port).collect();
        ports
    }

    /// Says what is wrong with a node, which is then left out.
    pub(super) fn misfit(&mut self, node: usize, error: &str) -> Made {
        let declared = &self.experiment.nodes[self.network.nodes[node].declared];
        let kind = declared.kind.page.name;
        let right = format!("`lastmeter kinds {kind}` says what it can have");
        let key = format!("nodes.{}", shorten(&declared.name));
        self.reporter.report(&declared.mark, &key, Fault::new(error.to_owned(), right));
        Made { input: None, outputs: Vec::new() }
    }

    /// How many times as fast a resource is, whose stage may cost nothing.
    fn speed_or_free(&self, resource: &str, stage: &str) -> Speed {
        if self.is_free(stage) { FREE } else { self.speed(resource) }
    }

    pub(super) fn port_resource(&mut self, name: String, kind: ResourceKind) -> ResourceId {
        self.resources.insert(name.clone());
        self.graph.resource(ResourceInfo::new(name, kind))
    }

    /// Leads hops that arrive to their ports, and ports to the hops that leave.
    pub(super) fn joined(&mut self, node: usize, ports: &Ports, made: &[Place]) -> Made {
        let network = self.network;
        for &hop in self.flows.hops.iter().filter(|&&hop| network.hops[hop].to == node) {
            self.ports.insert(hop, made[ports.of(network.hops[hop].from)].0);
        }
        let hops: BTreeSet<usize> = self.flows.tables[&node].values().copied().collect();
        let output = |hop: usize| -> Output { made[ports.of(network.hops[hop].to)].1 };
        let outputs = hops.into_iter().map(|hop| (output(hop), hop)).collect();
        Made { input: made.first().map(|port| port.0), outputs }
    }

    fn fabric(&mut self, node: usize) -> Result<Made, Error> {
        let single = &self.network.nodes[node];
        let values = &self.experiment.nodes[single.declared].kind.values;
        let ports = self.ports_of(node);
        let mut options = match network::Options::of(values, ports.neighbours.len()) {
            Ok(options) => options,
            Err(error) => return Ok(self.misfit(node, &error)),
        };
        if self.changes.ideal.contains(&self.experiment.nodes[single.declared].name) {
            options = options.ideal(ports.neighbours.len());
        }
        let name = &single.name;
        let called = |what: &str| format!("{name} {what}");
        let names = ["virtual output queue", "transit", "trunk", "fabric output", "output queue"];
        let names = names.map(called);
        let [input, transit, trunk, output, queue] =
            names.each_ref().map(|name| self.stage(name.clone(), None));
        if self.is_free(&names[1]) {
            options.transit = Duration::from_ps(2);
        }
        let of: Vec<PortOptions> = ports
            .neighbours
            .iter()
            .map(|&neighbour| {
                let neighbour = self.network.nodes[neighbour].name.clone();
                let mut one = |what: &str, stage: &str, kind| {
                    let name = format!("{name} {what} {neighbour}");
                    let speed = self.speed_or_free(&name, stage);
                    (self.port_resource(name, kind), speed)
                };
                PortOptions {
                    input: one("in", &names[0], ResourceKind::Engine),
                    output: one("line", &names[3], ResourceKind::Engine),
                    link: one("link", &names[4], ResourceKind::Wire),
                }
            })
            .collect();
        let records = self.graph.path(name.clone(), "backlogs");
        let stages = Stages { input, transit, trunk, output, queue };
        let trunk_free = self.is_free(&names[2]);
        let (resources, changes) = (&mut self.resources, self.changes);
        let mut trunk = |graph: &mut Graph, number: usize| {
            let name = format!("{name} trunk {number}");
            resources.insert(name.clone());
            let speed = changes.speed.get(&name).copied().unwrap_or((1, 1));
            let speed = if trunk_free { FREE } else { speed };
            (graph.resource(ResourceInfo::new(name, ResourceKind::Engine)), speed)
        };
        let to = (stages, records);
        let made =
            network::assemble(&mut self.graph, name, &options, &of, &ports.nodes, to, &mut trunk)?;
        Ok(self.joined(node, &ports, &made))
    }

    fn fat_tree(&mut self, node: usize) -> Result<Made, Error> {
        let single = &self.network.nodes[node];
        let values = &self.experiment.nodes[single.declared].kind.values;
        let ports = self.ports_of(node);
        let hosts = ports.neighbours.len();
        let mut options = match fat_tree::Options::of(values, hosts) {
            Ok(options) => options,
            Err(error) => return Ok(self.misfit(node, &error)),
        };
        let name = &single.name;
        let (line, propagation) = (format!("{name} line"), format!("{name} propagation"));
        let free = self.is_free(&line);
        if self.is_free(&propagation) {
            options.delay = Duration::ZERO;
        }
        let stages = fat_tree::Stages {
            line: self.stage(line, None),
            propagation: self.stage(propagation, None),
        };
        let (resources, changes) = (&mut self.resources, self.changes);
        let mut resource = |graph: &mut Graph, name: String| {
            resources.insert(name.clone());
            let speed = changes.speed.get(&name).copied().unwrap_or((1, 1));
            let speed = if free { FREE } else { speed };
            (graph.resource(ResourceInfo::new(name, ResourceKind::Wire)), speed)
        };
        let made = fat_tree::assemble(
            &mut self.graph,
            name,
            &options,
            hosts,
            &ports.nodes,
            stages,
            &mut resource,
        )?;
        Ok(self.joined(node, &ports, &made))
    }
}
