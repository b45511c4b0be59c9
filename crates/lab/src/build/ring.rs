//! Rings: nodes whose neighbours are stations, each with an input and an output of its own.

use super::{Builder, Made};
use crate::document::{Fault, shorten};
use lastmeter_base::{Duration, NodeId, Stream};
use lastmeter_engine::{Error, PortId, ResourceInfo, ResourceKind};
use lastmeter_lan::timed_token::element::{Changed, Ring, medium};
use std::collections::BTreeSet;

/// How many times as fast a ring is whose access costs nothing.
const FREE: u64 = 1_000_000;
/// The shortest mean time between faults of a part that a ring lives with.
const FAULTS_MIN: Duration = Duration::from_us(1);

impl Builder<'_, '_> {
    /// A ring of the node's neighbours, in the order of their links.
    pub(super) fn ring(&mut self, node: usize) -> Result<Made, Error> {
        let network = self.network;
        let single = &network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let values = &declared.kind.values;
        let neighbours: Vec<usize> =
            network.leaving[node].iter().map(|&hop| network.hops[hop].to).collect();
        let station = |neighbour: usize| {
            neighbours.iter().position(|&known| known == neighbour).expect("a hop has two ends")
        };
        let named: Vec<String> = values.given("synchronous").unwrap_or_default();
        let is_named = |&neighbour: &usize| {
            let neighbour = &network.nodes[neighbour];
            let group = &self.experiment.nodes[neighbour.declared].name;
            named.iter().any(|name| *name == neighbour.name || name == group)
        };
        let synchronous: Vec<bool> = neighbours.iter().map(is_named).collect();
        let (access, propagation) =
            (format!("{} access", single.name), format!("{} propagation", single.name));
        let speed = match self.is_free(&access) {
            true => (FREE, 1),
            false => self.speed(&single.name),
        };
        let changed = Changed { speed, near: self.is_free(&propagation) };
        let between = values.given::<Duration>("faults");
        let medium = match medium(values, &synchronous, changed) {
            _ if between.is_some_and(|between| between < FAULTS_MIN) => {
                Err(format!("parts that break again within {FAULTS_MIN} leave no ring"))
            }
            _ if !named.is_empty() && !synchronous.contains(&true) => {
                Err(format!("`{}` is no neighbour", shorten(&named[0])))
            }
            medium => medium,
        };
        let medium = match medium {
            Ok(medium) => medium,
            Err(error) => {
                let right = "`lastmeter kinds timed-token-ring` says what it can have";
                let key = format!("nodes.{}", declared.name);
                self.reporter.report(&declared.mark, &key, Fault::new(error, right));
                return Ok(Made { input: None, outputs: Vec::new() });
            }
        };
        let name = single.name.clone();
        self.resources.insert(name.clone());
        let kind = ResourceKind::Wire;
        let resource = self.graph.resource(ResourceInfo::new(name.clone(), kind));
        let access = self.stage(access, Some(resource));
        let propagation = self.stage(propagation, None);
        let table = &self.flows.tables[&node];
        let stations: Vec<(NodeId, usize)> = table
            .iter()
            .map(|(&to, &hop)| (NodeId(to as u32), station(network.hops[hop].to)))
            .collect();
        let ring = Ring::new(medium, &stations, (access, propagation), resource);
        let seed = Stream::new(self.experiment.seed, &format!("{name}: faults")).bits();
        let ring = ring.with_synchronous(synchronous).with_faults(values, seed);
        let element = self.graph.add(name, ring)?;
        for &hop in self.flows.hops.iter().filter(|&&hop| network.hops[hop].to == node) {
            let port = PortId(station(network.hops[hop].from) as u16);
            self.ports.insert(hop, (element, port));
        }
        let hops: BTreeSet<usize> = table.values().copied().collect();
        let output = |hop: usize| PortId(station(network.hops[hop].to) as u16);
        let outputs = hops.into_iter().map(|hop| ((element, output(hop)), hop)).collect();
        Ok(Made { input: Some((element, PortId(0))), outputs })
    }
}
