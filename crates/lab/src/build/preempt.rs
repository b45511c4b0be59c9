//! Links for application data units.

use super::fabric::FREE;
use super::{Builder, Made};
use lastmeter_engine::{Error, PortId, ResourceKind};
use lastmeter_lan::preempt::element::{AduLink, of};
use lastmeter_lan::preempt::link::Link;

impl Builder<'_, '_> {
    /// A link that whole units share.
    pub(super) fn adu_link(&mut self, node: usize) -> Result<Made, Error> {
        let single = &self.network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let values = &declared.kind.values;
        let name = single.name.clone();
        let stage = format!("{} line", declared.name);
        let (numerator, denominator) = if self.is_free(&stage) { FREE } else { self.speed(&name) };
        let (rate, way) = of(values);
        let link = Link::new(rate.scale_floor(numerator, denominator), way);
        let shared = declared.count.is_some_and(|count| count > 1);
        let resource = self.port_resource(name.clone(), ResourceKind::Wire);
        let stage = self.stage(stage, (!shared).then_some(resource));
        let element = AduLink::new(link, values.get("units"), stage, resource);
        let element = self.graph.add(name, element)?;
        let outputs = self.spread(node, vec![(element, PortId(0))])?;
        Ok(Made { input: Some((element, PortId(0))), outputs })
    }
}
