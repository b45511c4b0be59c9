//! The machine of a host with a profile: its stages and resources, as the profile says and a
//! what-if changes it.
//!
//! ```text
//! applications --> in 0 [send] out 0 --> links
//! applications <-- out 1 [receive] in 1 <-- links
//! applications <-- out 1 [reception <-- before] in 1 + i <-- link i, where a policy schedules
//! ```

use super::Builder;
use super::reception::Scheduled;
use crate::livelock::{APPLICATION, RECEPTION};
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Cost, Duration, PerByte, StageId};
use lastmeter_engine::{ElementId, Error, Place, PortId, ResourceId, ResourceInfo, StageInfo};
use lastmeter_host::element::Host;
use lastmeter_host::machine::{Machine, Next, ResourceOptions, Stage};
use lastmeter_host::profile::{Profile, ResourceProfile, StageProfile};
use lastmeter_host::receive::Part;
use lastmeter_host::receive::division::Division;
use lastmeter_host::resource::{Options, Priority};
use lastmeter_net::queue::{self, DropTail, Queue};

/// Where applications are: they send into this input and receive from this output.
pub(super) const FROM_APPLICATIONS: PortId = PortId(0);
pub(super) const TO_APPLICATIONS: PortId = PortId(1);
/// Where links are: with reception each has an input, from this one on.
pub(super) const FROM_LINKS: PortId = PortId(1);
pub(super) const TO_LINKS: PortId = PortId(0);

/// The machine that is being made.
struct Plan<'p> {
    /// Its host, and the name that it shares with the others of a counted node.
    host: String,
    group: String,
    /// Whether there are others.
    shared: bool,
    profile: &'p Profile,
    resources: Vec<ResourceOptions>,
    /// How much its applications send or read at once.
    message: Option<Bytes>,
}

impl Builder<'_, '_> {
    /// The machine of `node`, with a policy that schedules its receive stages or without.
    pub(super) fn machine(
        &mut self,
        node: usize,
        profile: &Profile,
        reception: Option<&Nested>,
    ) -> Result<ElementId, Error> {
        let single = &self.network.nodes[node];
        let declared = &self.experiment.nodes[single.declared];
        let host = single.name.clone();
        let place = Plan {
            resources: profile.resources.iter().map(|one| self.resource(&host, one)).collect(),
            host,
            group: declared.name.clone(),
            shared: declared.count.is_some(),
            profile,
            message: declared.kind.values.given("message"),
        };
        let mut stages = Vec::new();
        let mut entries = vec![0];
        self.way(&place, &profile.send, Next::Exit(TO_LINKS), &mut stages);
        let Some(described) = reception else {
            entries.push(stages.len());
            self.way(&place, &profile.receive, Next::Exit(TO_APPLICATIONS), &mut stages);
            let machine = Machine::new(&place.resources, stages, entries);
            return self.graph.add(format!("{} works", place.host), Host::new(machine));
        };
        let division = Division::of(profile).expect("a profile that cannot be divided is reported");
        let links = self.links_to(node);
        for interface in 0..links.len() {
            if !division.before.is_empty() {
                entries.push(stages.len());
                self.way(&place, division.before, Next::Interface(interface), &mut stages);
            }
        }
        let cpu = index_of(profile, &division.cpu.name);
        let named = |stage: Option<&StageProfile>| Some(stage_name(&place.group, &stage?.name));
        if let Some(entry) = division.entry {
            self.host_stage(&place, entry, Some(RECEPTION));
        }
        let scheduled = Scheduled {
            group: &place.group,
            cpu: (resource_name(&place.host, &division.cpu.name), place.resources[cpu].id),
            shared: place.shared,
            entry: named(division.entry),
            handling: named(division.kernel.first().copied()),
            application: named(division.application.first()),
            kernel: division.kernel.len(),
            parts: {
                let kernel = division.kernel.iter().map(|&stage| (stage, RECEPTION));
                let all = kernel.chain(division.application.iter().map(|one| (one, APPLICATION)));
                all.map(|(stage, role)| self.part(&place, stage, role)).collect()
            },
            division: Some(&division),
        };
        let reception = self.receives(described, scheduled, links.len());
        let machine = Machine::new(&place.resources, stages, entries);
        let machine = machine.receiving(cpu, reception, Some(TO_APPLICATIONS));
        let element = self.graph.add(format!("{} works", place.host), Host::new(machine))?;
        for (interface, hop) in (FROM_LINKS.0..).zip(links) {
            self.ports.insert(hop, (element, PortId(interface)));
        }
        Ok(element)
    }

    /// The hops that end at a node.
    pub(super) fn links_to(&self, node: usize) -> Vec<usize> {
        let hops = &self.network.hops;
        self.flows.hops.iter().copied().filter(|&hop| hops[hop].to == node).collect()
    }

    /// Adds stages in a row, the last of which leads to `exit`.
    fn way(&mut self, place: &Plan<'_>, way: &[StageProfile], exit: Next, into: &mut Vec<Stage>) {
        let last = into.len() + way.len() - 1;
        for stage in way {
            let next = match into.len() == last {
                true => exit,
                false => Next::Stage(into.len() + 1),
            };
            let id = self.host_stage(place, stage, None);
            into.push(self.stage_of(place, stage, id, next));
        }
    }

    /// A stage whose work a policy schedules.
    fn part(&mut self, place: &Plan<'_>, stage: &StageProfile, role: &'static str) -> Part {
        let id = self.host_stage(place, stage, Some(role));
        let Stage { cost, per_pdu, buses, priority, .. } =
            self.stage_of(place, stage, id, Next::Exit(TO_APPLICATIONS));
        let priority = match priority {
            thread @ Priority::Thread(_) => thread,
            _ => Priority::Thread(0),
        };
        Part { stage: id, cost, per_pdu, buses, priority }
    }

    fn resource(&mut self, host: &str, resource: &ResourceProfile) -> ResourceOptions {
        let name = resource_name(host, &resource.name);
        let (numerator, denominator) = self.speed(&name);
        let ResourceProfile { kind, units, discipline, .. } = *resource;
        let info = ResourceInfo { units, ..ResourceInfo::new(name, kind) };
        let id = self.names.resource(&mut self.graph, info).id;
        let options = Options {
            units,
            discipline,
            context_switch: resource.context_switch.scale_ceil(denominator, numerator),
            interrupt: resource.interrupt.scale_ceil(denominator, numerator),
        };
        ResourceOptions {
            id,
            options,
            per_byte: resource.per_byte.scale_ceil(denominator, numerator),
        }
    }

    /// The stage's name in the books.
    fn host_stage(
        &mut self,
        place: &Plan<'_>,
        stage: &StageProfile,
        role: Option<&'static str>,
    ) -> StageId {
        let Plan { group, shared, profile, resources, .. } = place;
        let name = stage_name(group, &stage.name);
        let index = index_of(profile, &stage.resource);
        let resource: Option<ResourceId> = (!shared).then_some(resources[index].id);
        let is_memory = |bus: &str| profile.resources[index_of(profile, bus)].memory;
        let memory =
            stage.buses.iter().filter(|(bus, _)| is_memory(bus)).map(|&(_, times)| times).sum();
        let StageProfile { copies, touches, .. } = *stage;
        let place = Place { role, ..Place::default() };
        let info = StageInfo { copies, touches, memory, place, ..StageInfo::new(name, resource) };
        self.names.stage(&mut self.graph, info).id
    }

    fn stage_of(&self, place: &Plan<'_>, stage: &StageProfile, id: StageId, next: Next) -> Stage {
        let Plan { host, group, profile, message, .. } = place;
        let cost = stage.cost(*message);
        let free = self.is_free(&stage_name(group, &stage.name));
        let (numerator, denominator) = self.speed(&resource_name(host, &stage.resource));
        let per_pdu = match free {
            true => Duration::ZERO,
            false => stage.per_pdu.scale_ceil(denominator, numerator),
        };
        let cost = match free {
            true => Cost::FREE,
            false => Cost {
                per_packet: cost.per_packet.scale_ceil(denominator, numerator),
                per_byte: match cost.per_byte {
                    PerByte::ZERO => PerByte::ZERO,
                    per_byte => per_byte.scale_ceil(denominator, numerator),
                },
            },
        };
        let buses = stage.buses.iter().map(|(bus, times)| (index_of(profile, bus), *times));
        let resource = index_of(profile, &stage.resource);
        Stage {
            id,
            queue: match &stage.queue {
                Some(described) => {
                    let name = format!("{host} {}", stage.name);
                    queue::build(described, &self.site(&name, None, Bytes::ZERO))
                }
                None => Box::new(DropTail::new(u64::MAX, Bytes(u64::MAX))) as Box<dyn Queue>,
            },
            full: stage.full,
            resource,
            priority: stage.priority,
            preemptive: stage.preemptive,
            cost,
            per_pdu,
            batch: stage.batch,
            buses: if free { Vec::new() } else { buses.collect() },
            places: profile.resources[resource].units,
            next,
        }
    }
}

fn resource_name(host: &str, resource: &str) -> String {
    format!("{host}.{resource}")
}

fn stage_name(group: &str, stage: &str) -> String {
    format!("{group} {stage}")
}

/// Decoding has checked that every resource that a stage names is there.
fn index_of(profile: &Profile, resource: &str) -> usize {
    let index = profile.resources.iter().position(|known| known.name == resource);
    index.expect("a stage names a resource of its profile")
}
