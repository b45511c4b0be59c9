//! Wormhole networks: one element with a port for each neighbour.

use super::fabric::FREE;
use super::{Builder, Made};
use lastmeter_engine::{Error, PortId, ResourceId, ResourceKind};
use lastmeter_lan::wormhole::element::{Wormhole, lan};

impl Builder<'_, '_> {
    /// A wormhole network of the node's neighbours. Its channels are as fast as its hosts' channels
    /// are made, which are resources of the ledger and equally fast.
    pub(super) fn wormhole(&mut self, node: usize) -> Result<Made, Error> {
        let single = &self.network.nodes[node];
        let values = &self.experiment.nodes[single.declared].kind.values;
        let ports = self.ports_of(node);
        let called = |what: &str| format!("{} {what}", single.name);
        let (interface, way) = (called("interface"), called("way"));
        let network = self.network;
        let neighbour = |&node: &usize| network.nodes[node].name.as_str();
        let names: Vec<&str> = ports.neighbours.iter().map(neighbour).collect();
        let resources: Vec<String> =
            names.iter().map(|name| called(&format!("channel of {name}"))).collect();
        // One that is made faster makes the network so: all channels have one rate.
        let fastest = resources.iter().map(|name| self.speed(name)).find(|&speed| speed != (1, 1));
        let speed = if self.is_free(&way) { FREE } else { fastest.unwrap_or((1, 1)) };
        let lan = match lan(values, &names, speed) {
            Ok(lan) => lan,
            Err(error) => return Ok(self.misfit(node, &error)),
        };
        let resources: Vec<ResourceId> = resources
            .into_iter()
            .map(|name| self.port_resource(name, ResourceKind::Wire))
            .collect();
        let stages = (self.stage(interface, None), self.stage(way, None));
        let packets = values.get("packets");
        let wormhole = Wormhole::new(lan, &ports.nodes, stages, &resources, packets);
        let element = self.graph.add(single.name.clone(), wormhole)?;
        let port = |port: usize| (element, PortId(port as u16));
        let made: Vec<_> = (0..names.len()).map(|at| (port(at), port(at))).collect();
        Ok(self.joined(node, &ports, &made))
    }
}
