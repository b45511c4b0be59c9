//! The machine of a host with a profile: its stages and resources, as the profile says and a
//! what-if changes it.
//!
//! ```text
//! applications --> in 0 [send] out 0 --> links
//! applications <-- out 1 [receive] in 1 <-- links
//! ```

use super::Builder;
use lastmeter_base::{Bytes, Cost, Duration, PerByte, StageId};
use lastmeter_engine::{ElementId, Error, PortId, ResourceId, ResourceInfo, StageInfo};
use lastmeter_host::element::Host;
use lastmeter_host::machine::{Machine, Next, ResourceOptions, Stage};
use lastmeter_host::profile::{Profile, ResourceProfile, StageProfile};
use lastmeter_host::resource::Options;
use lastmeter_net::queue::{self, DropTail, Queue};

/// Where applications are: they send into this input and receive from this output.
pub(super) const FROM_APPLICATIONS: PortId = PortId(0);
pub(super) const TO_APPLICATIONS: PortId = PortId(1);
/// Where links are.
pub(super) const FROM_LINKS: PortId = PortId(1);
pub(super) const TO_LINKS: PortId = PortId(0);

impl Builder<'_, '_> {
    /// The machine of `node`.
    pub(super) fn machine(&mut self, node: usize, profile: &Profile) -> Result<ElementId, Error> {
        let single = &self.network.nodes[node];
        let (name, group) =
            (single.name.clone(), self.experiment.nodes[single.declared].name.clone());
        let declared = &self.experiment.nodes[single.declared];
        let (shared, message) = (declared.count.is_some(), declared.kind.values.given("message"));
        let resources: Vec<ResourceOptions> =
            profile.resources.iter().map(|resource| self.resource(&name, resource)).collect();
        let mut stages = Vec::new();
        for (direction, exit) in [(&profile.send, TO_LINKS), (&profile.receive, TO_APPLICATIONS)] {
            let last = stages.len() + direction.len() - 1;
            for stage in direction {
                let next = match stages.len() == last {
                    true => Next::Exit(exit),
                    false => Next::Stage(stages.len() + 1),
                };
                let id = self.host_stage(&group, shared, profile, stage, &resources);
                stages.push(self.stage_of(
                    &name,
                    &group,
                    profile,
                    (stage, stage.cost(message)),
                    id,
                    next,
                ));
            }
        }
        let entries = vec![0, profile.send.len()];
        let machine = Machine::new(&resources, stages, entries);
        self.graph.add(format!("{name} works"), Host::new(machine))
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
        group: &str,
        shared: bool,
        profile: &Profile,
        stage: &StageProfile,
        resources: &[ResourceOptions],
    ) -> StageId {
        let name = stage_name(group, &stage.name);
        let index = index_of(profile, &stage.resource);
        let resource: Option<ResourceId> = (!shared).then_some(resources[index].id);
        let is_memory = |bus: &str| profile.resources[index_of(profile, bus)].memory;
        let memory =
            stage.buses.iter().filter(|(bus, _)| is_memory(bus)).map(|&(_, times)| times).sum();
        let StageProfile { copies, touches, .. } = *stage;
        let info = StageInfo { copies, touches, memory, ..StageInfo::new(name, resource) };
        self.names.stage(&mut self.graph, info).id
    }

    fn stage_of(
        &self,
        host: &str,
        group: &str,
        profile: &Profile,
        (stage, cost): (&StageProfile, Cost),
        id: StageId,
        next: Next,
    ) -> Stage {
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
