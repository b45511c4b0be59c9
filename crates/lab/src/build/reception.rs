//! How a host receives: interrupts, polling, and what lies between (E-100 to E-106).
//!
//! ```text
//! link i --> in i [ adapter, commands, one CPU ] out i --> applications
//! ```

use super::{Builder, Input};
use crate::livelock::{APPLICATION, Names, RECEPTION};
use lastmeter_base::Duration;
use lastmeter_base::kind::Nested;
use lastmeter_engine::{Error, PortId, ResourceInfo, ResourceKind};
use lastmeter_host::receive::element::Receiver;
use lastmeter_host::receive::{Costs, Host, Options, Stages, kind};

impl Builder<'_, '_> {
    /// Puts the way to receive that a host names, if any, between its links and its applications.
    pub(super) fn reception(
        &mut self,
        node: usize,
        applications: Option<Input>,
    ) -> Result<Option<Input>, Error> {
        let network = self.network;
        let single = &network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let described = declared.kind.values.given::<Nested>("reception");
        let (Some(described), Some((to, input))) = (described, applications) else {
            return Ok(applications);
        };
        let links: Vec<usize> =
            self.flows.hops.iter().copied().filter(|&hop| network.hops[hop].to == node).collect();
        let names = Names::new(&declared.name);
        let name = format!("{}.cpu", single.name);
        let info = ResourceInfo::new(name.clone(), ResourceKind::Cpu);
        let cpu = self.names.resource(&mut self.graph, info).id;
        let shared = declared.count.is_some();
        let mut stage = |name: &str, role: Option<&'static str>, on_cpu: bool| {
            self.stage_for(name.to_owned(), role, (on_cpu && !shared).then_some(cpu))
        };
        let receives = Some(RECEPTION);
        let stages = Stages {
            interrupt: stage(&names.interrupt, receives, true),
            switch: stage(&names.switch, None, true),
            accept: stage(&names.accept, receives, true),
            transfer: stage(&names.transfer, None, false),
            protocol: stage(&names.protocol, receives, true),
            application: stage(&names.application, Some(APPLICATION), true),
            polling: stage(&names.polling, receives, true),
        };
        let costs = self.changed(kind::costs(&described), &name, &names);
        let options = Options { costs, scheduling: kind::scheduling(&described), cpu, stages };
        let free = self.is_free(&names.transfer);
        let interface = |_: &usize| {
            let mut interface = kind::interface(&described);
            if free {
                interface.transfer = Duration::ZERO;
            }
            interface
        };
        let host = Host::new(options, links.iter().map(interface).collect());
        let element = self.graph.add(format!("{} takes", single.name), Receiver::new(host))?;
        for (port, &hop) in links.iter().enumerate() {
            let port = PortId(port as u16);
            self.ports.insert(hop, (element, port));
            self.graph.connect(element, port, to, input)?;
        }
        Ok(Some((element, PortId(0))))
    }

    /// What reception costs where something is faster, or costs nothing.
    fn changed(&self, costs: Costs, cpu: &str, names: &Names) -> Costs {
        let (numerator, denominator) = self.speed(cpu);
        let of = |cost: Duration, stage: &str| match self.is_free(stage) {
            true => Duration::ZERO,
            false => cost.scale_ceil(denominator, numerator),
        };
        let (accept, protocol) =
            (of(costs.accept, &names.accept), of(costs.protocol, &names.protocol));
        let demultiplex = of(costs.demultiplex, &names.accept).min(accept + protocol);
        Costs {
            interrupt: of(costs.interrupt, &names.interrupt),
            switch: of(costs.switch, &names.switch),
            wake: of(costs.wake, &names.switch),
            accept,
            demultiplex,
            protocol,
            application: of(costs.application, &names.application),
            cache_miss: of(costs.cache_miss, &names.application),
            look: of(costs.look, &names.polling),
        }
    }
}
