//! Hosts: what sends, what receives, and, for hosts with a profile, the stages between applications and the wire.
//!
//! ```text
//! sources, clients, responders --> (forwarder, if there are several links) --> hops
//! sink, clients, responders <-- (demultiplexer, if there are several) <-- hops
//! ```

use super::{Builder, Input, LiveEnd, Made, Output, Peer};
use lastmeter_base::{NodeId, PathId};
use lastmeter_engine::site::{Applications, Between, HostKind, Inputs, Receiver, TrafficKind};
use lastmeter_engine::{ElementId, Error, PortId};
use lastmeter_net::demultiplexer::Demultiplexer;

/// The paths of one declared traffic.
pub(super) struct Paths {
    pub(super) there: PathId,
    pub(super) back: Option<PathId>,
}

impl Builder<'_, '_> {
    /// Declares a path for each pair of live hosts, for all traffic, and for the responses to it.
    pub(super) fn declare_paths(&mut self) -> Vec<Paths> {
        for &from in &self.flows.live {
            let others = self.flows.live.iter().filter(|&&to| to != from);
            let mut paths = Vec::new();
            for &to in others {
                let name = |node: usize| &self.network.nodes[node].name;
                let path = format!("{}->{}", name(from), name(to));
                paths.push((to, self.graph.path(path, "live")));
            }
            self.live_paths.insert(from, paths);
        }
        let mut paths = Vec::new();
        for entry in &self.experiment.traffic {
            let (from, to) = (&entry.from.name, &entry.to.name);
            let there = self.graph.path(format!("{from}->{to}"), entry.name.clone());
            let responds = (entry.kind.maker::<TrafficKind>().responds)(&entry.kind.values);
            let back = responds.then(|| {
                self.graph.path(format!("{to}->{from}"), format!("{} responses", entry.name))
            });
            paths.push(Paths { there, back });
        }
        paths
    }

    /// A host with everything that sends and receives on it.
    pub(super) fn host(&mut self, node: usize, paths: &[Paths]) -> Result<Made, Error> {
        if let Some(port) = self.live_end(node)? {
            // Its port replaces everything that sends and receives.
            let port = (port, PortId(0));
            return self.between(node, Some(port), vec![port], true);
        }
        let (receivers, leaving) = self.ends(node, paths)?;
        let applications = self.demultiplex(node, receivers)?;
        self.between(node, applications, leaving, false)
    }

    /// Builds the stages of the host's kind between its applications and its links.
    fn between(
        &mut self,
        node: usize,
        applications: Option<Input>,
        mut leaving: Vec<Output>,
        live: bool,
    ) -> Result<Made, Error> {
        let declared = &self.experiment.nodes[self.network.nodes[node].declared];
        let hops = &self.network.hops;
        let links: Vec<usize> =
            self.flows.hops.iter().copied().filter(|&hop| hops[hop].to == node).collect();
        let all = Applications { receive: applications.is_some(), live, links: links.len() };
        let around = self.around();
        let mut site = around.site(node, &mut self.graph, &mut self.names);
        let build = declared.kind.maker::<HostKind>().build;
        let built = build(&declared.kind.values, &mut site, all);
        let Between { send, receive } = self.fits(declared, built)?.unwrap_or_default();
        if let Some(((to, input), output)) = send.filter(|_| !leaving.is_empty()) {
            for (element, port) in std::mem::replace(&mut leaving, vec![output]) {
                self.graph.connect(element, port, to, input)?;
            }
        }
        let input = match (applications, receive) {
            (Some((to, input)), Some((inputs, outputs))) => {
                for (element, port) in outputs {
                    self.graph.connect(element, port, to, input)?;
                }
                match inputs {
                    Inputs::One(input) => Some(input),
                    Inputs::Each(inputs) => {
                        let first = inputs.first().copied();
                        self.ports.extend(links.into_iter().zip(inputs));
                        first
                    }
                }
            }
            (applications, _) => applications,
        };
        let outputs = self.spread(node, leaving)?;
        Ok(Made { input, outputs })
    }

    /// The element of a host that a live run connects, under the host's name.
    fn live_end(&mut self, node: usize) -> Result<Option<ElementId>, Error> {
        let Some(peers) = self.live_paths.get(&node) else { return Ok(None) };
        let peer = |&(node, path): &(usize, PathId)| Peer { node: NodeId(node as u32), path };
        let peers = peers.iter().map(peer).collect();
        let index = self.live_paths.keys().position(|&known| known == node);
        let index = index.expect("the host is one of the live hosts");
        let Some(ends) = self.ends.as_mut() else { return Ok(None) };
        let element = ends(LiveEnd { index, node: NodeId(node as u32), peers });
        let name = format!("{} port", self.network.nodes[node].name);
        self.graph.add_boxed(name, element).map(Some)
    }

    /// Passes arriving packets to their receiver.
    fn demultiplex(
        &mut self,
        node: usize,
        receivers: Vec<Receiver>,
    ) -> Result<Option<Input>, Error> {
        if let [] | [_] = receivers.as_slice() {
            return Ok(receivers.first().map(|receiver| receiver.input));
        }
        let takes = receivers.iter().enumerate().flat_map(|(port, receiver)| {
            receiver.takes.iter().map(move |&(path, flow)| (path, flow, PortId(port as u16)))
        });
        let name = format!("{} demultiplexes", self.network.nodes[node].name);
        let element = self.graph.add(name, Demultiplexer::new(takes))?;
        for (port, receiver) in receivers.iter().enumerate() {
            let (to, input) = receiver.input;
            self.graph.connect(element, PortId(port as u16), to, input)?;
        }
        Ok(Some((element, PortId(0))))
    }
}
