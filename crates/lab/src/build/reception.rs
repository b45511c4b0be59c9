//! How a host receives: interrupts, polling, and what lies between (E-100 to E-106).
//!
//! ```text
//! link i --> in i [ adapter, commands, one CPU ] out i --> applications       without a profile
//! link i --> [ machine of the profile: before --> reception ] --> applications     with one
//! ```

use super::{Builder, Input};
use crate::livelock::{APPLICATION, Names, RECEPTION};
use lastmeter_base::Duration;
use lastmeter_base::kind::Nested;
use lastmeter_engine::{Error, PortId, ResourceId, ResourceInfo, ResourceKind};
use lastmeter_host::element::Host;
use lastmeter_host::receive::division::Division;
use lastmeter_host::receive::{self, Costs, Options, Part, Reception, Stages, kind};

/// What a policy has to schedule at a host.
pub(super) struct Scheduled<'a> {
    /// The name that it shares with the others of a counted node.
    pub(super) group: &'a str,
    /// Its processor.
    pub(super) cpu: (String, ResourceId),
    /// Whether there are others, each with a processor of its own.
    pub(super) shared: bool,
    /// Stages of its profile that stand for those which every reception has: what interrupts cost,
    /// what a command costs, the application.
    pub(super) entry: Option<String>,
    pub(super) handling: Option<String>,
    pub(super) application: Option<String>,
    /// Stages of its profile: those of the kernel, then those of the application.
    pub(super) parts: Vec<Part>,
    pub(super) kernel: usize,
    pub(super) division: Option<&'a Division<'a>>,
}

impl Builder<'_, '_> {
    /// Puts the way to receive of a host without a profile between its links and its applications.
    pub(super) fn reception(
        &mut self,
        node: usize,
        described: &Nested,
        (to, input): Input,
    ) -> Result<Option<Input>, Error> {
        let single = &self.network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let name = format!("{}.cpu", single.name);
        let info = ResourceInfo::new(name.clone(), ResourceKind::Cpu);
        let cpu = self.names.resource(&mut self.graph, info).id;
        let scheduled = Scheduled {
            group: &declared.name,
            cpu: (name, cpu),
            shared: declared.count.is_some(),
            entry: None,
            handling: None,
            application: None,
            parts: Vec::new(),
            kernel: 0,
            division: None,
        };
        let links = self.links_to(node);
        let reception = self.receives(described, scheduled, links.len());
        let host = Host::new(receive::alone(cpu, reception));
        let element = self.graph.add(format!("{} takes", single.name), host)?;
        for (port, hop) in (0..).map(PortId).zip(links) {
            self.ports.insert(hop, (element, port));
            self.graph.connect(element, port, to, input)?;
        }
        Ok(Some((element, PortId(0))))
    }

    /// Reception from so many links, as described and as a what-if changes it.
    pub(super) fn receives(
        &mut self,
        described: &Nested,
        scheduled: Scheduled<'_>,
        links: usize,
    ) -> Reception {
        let Scheduled { cpu: (cpu_name, cpu), shared, parts, kernel, division, .. } = scheduled;
        let own = Names::new(scheduled.group);
        let (handling, application) = (scheduled.handling, scheduled.application);
        let names = Names {
            interrupt: scheduled.entry.unwrap_or(own.interrupt),
            accept: handling.clone().unwrap_or(own.accept),
            protocol: handling.unwrap_or(own.protocol),
            application: application.unwrap_or(own.application),
            ..own
        };
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
        let costs = self.changed(kind::costs(&described.values, division), &cpu_name, &names);
        let scheduling = kind::scheduling(described);
        let options = Options { costs, scheduling, stages, parts, kernel };
        let free = self.is_free(&names.transfer);
        let interface = |_| {
            let mut interface = kind::interface(described, division);
            if free {
                interface.transfer = Duration::ZERO;
            }
            interface
        };
        Reception::new(options, (0..links).map(interface).collect())
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
