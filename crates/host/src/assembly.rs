//! The machine of a host with a profile: its stages and resources, built at the host's site.
//!
//! ```text
//! applications --> in 0 [send] out 0 --> links
//! applications <-- out 1 [receive] in 1 <-- links
//! applications <-- out 1 [reception <-- before] in 1 + i <-- link i, where a policy schedules
//! ```

use crate::machine::{Machine, Next, ResourceOptions, Stage};
use crate::profile::{Profile, StageProfile};
use crate::receive::division::Division;
use crate::receive::{APPLICATION, Part, RECEPTION, site::reception};
use crate::resource::{Options, Priority};
use lastmeter_base::kind::Nested;
use lastmeter_base::{Bytes, Cost, Draw, Stream};
use lastmeter_engine::site::{self, Moves, Resource, Site};
use lastmeter_engine::{Error, PortId};
use lastmeter_net::queue::{self, DropTail, Queue};

/// Where applications connect: they send to this input and receive from this output.
pub(crate) const FROM_APPLICATIONS: PortId = PortId(0);
pub(crate) const TO_APPLICATIONS: PortId = PortId(1);
/// Where links connect: with reception each link has its own input, counting from this one.
pub(crate) const FROM_LINKS: PortId = PortId(1);
pub(crate) const TO_LINKS: PortId = PortId(0);

/// The machine that `profile` describes, whose applications send or read `message` at once. With a way to receive
/// and a number of links, that policy schedules its receive stages.
///
/// # Errors
/// If the policy cannot schedule the receive stages.
pub(crate) fn of_profile(
    site: &mut Site<'_>,
    profile: &Profile,
    message: Option<Bytes>,
    way: Option<(&Nested, usize)>,
) -> Result<Machine, Error> {
    let mut assembly = Assembly::new(site, profile, message);
    assembly.stages("send", &profile.send, Next::Exit(TO_LINKS));
    if profile.send.is_empty() {
        // Unused input, so that the following inputs keep their numbers.
        assembly.entries.push(0);
    }
    let Some((way, links)) = way else {
        assembly.stages("receive", &profile.receive, Next::Exit(TO_APPLICATIONS));
        return Ok(assembly.machine());
    };
    let division = Division::of(profile).map_err(|(found, _)| found)?;
    for interface in 0..links {
        assembly.stages("receive", division.before, Next::Interface(interface));
    }
    if let Some(entry) = division.entry {
        assembly.stage(entry, RECEPTION);
    }
    let kernel = division.kernel.iter().map(|&stage| (stage, RECEPTION));
    let all = kernel.chain(division.application.iter().map(|stage| (stage, APPLICATION)));
    let parts = all.map(|(stage, role)| assembly.part(stage, role)).collect();
    let cpu = assembly.index(&division.cpu.name);
    assembly.site.source = None;
    let resource = assembly.resources[cpu];
    let scheduled = Some((&division, parts));
    let reception = reception(assembly.site, way, (&resource, links), scheduled);
    Ok(assembly.machine().receiving(cpu, reception, Some(TO_APPLICATIONS)))
}

/// The machine under construction.
struct Assembly<'s, 'a, 'p> {
    site: &'s mut Site<'a>,
    profile: &'p Profile,
    message: Option<Bytes>,
    resources: Vec<Resource>,
    stages: Vec<Stage>,
    /// The first stage of packets from each input.
    entries: Vec<usize>,
}

impl<'s, 'a, 'p> Assembly<'s, 'a, 'p> {
    fn new(site: &'s mut Site<'a>, profile: &'p Profile, message: Option<Bytes>) -> Self {
        let resources = profile.resources.iter().map(|resource| {
            site.source = Some(resource.source.clone());
            let suffix = format!(".{}", resource.name);
            site.units(resource.role(), &suffix, resource.kind, resource.units)
        });
        let resources = resources.collect();
        Assembly { site, profile, message, resources, stages: Vec::new(), entries: Vec::new() }
    }

    fn machine(&mut self) -> Machine {
        let resources = self.resources.iter().zip(&self.profile.resources);
        let resources = resources.map(|(resource, profile)| ResourceOptions {
            id: resource.id,
            options: Options {
                units: profile.units,
                discipline: profile.discipline,
                context_switch: resource.time(profile.context_switch),
                interrupt: resource.time(profile.interrupt),
            },
            per_byte: resource.per_byte(profile.per_byte),
        });
        let resources: Vec<_> = resources.collect();
        let (stages, entries) = (&mut self.stages, &mut self.entries);
        Machine::new(&resources, std::mem::take(stages), std::mem::take(entries))
    }

    /// Adds a chain of stages, the last of which leads to `exit`.
    fn stages(&mut self, role: &'static str, way: &[StageProfile], exit: Next) {
        let first = self.stages.len();
        self.entries.extend((!way.is_empty()).then_some(first));
        for (number, stage) in (first + 1..).zip(way) {
            let next = if number == first + way.len() { exit } else { Next::Stage(number) };
            let work = self.stage(stage, role);
            let queue = match &stage.queue {
                Some(described) => {
                    let name = format!("{} {}", self.site.name, stage.name);
                    queue::build(
                        described,
                        &queue::Site { name: &name, ..queue::Site::of(self.site) },
                    )
                }
                None => Box::new(DropTail::new(u64::MAX, Bytes(u64::MAX))) as Box<dyn Queue>,
            };
            let resource = self.index(&stage.resource);
            self.stages.push(Stage {
                id: work.id,
                queue,
                full: stage.full,
                resource,
                priority: stage.priority,
                preemptive: stage.preemptive,
                cost: self.cost(stage, &work),
                per_pdu: work.time(stage.per_pdu),
                random: self.random(stage, &work),
                batch: stage.batch,
                buses: self.buses(stage, &work),
                places: self.profile.resources[resource].units,
                next,
            });
        }
    }

    /// A stage whose work the policy schedules.
    fn part(&mut self, stage: &StageProfile, role: &'static str) -> Part {
        let work = self.stage(stage, role);
        let priority = match stage.priority {
            thread @ Priority::Thread(_) => thread,
            _ => Priority::Thread(0),
        };
        Part {
            stage: work.id,
            cost: self.cost(stage, &work),
            per_pdu: work.time(stage.per_pdu),
            buses: self.buses(stage, &work),
            priority,
        }
    }

    /// The stage in the books.
    fn stage(&mut self, stage: &StageProfile, role: &'static str) -> site::Stage {
        let is_memory = |bus: &str| self.profile.resources[self.index(bus)].memory;
        let memory = stage.buses.iter().filter(|(bus, _)| is_memory(bus));
        let memory = memory.map(|&(_, times)| times).sum();
        let StageProfile { copies, touches, .. } = *stage;
        let resource = self.resources[self.index(&stage.resource)];
        self.site.source = Some(stage.source.clone());
        let moves = Moves { copies, touches, memory };
        self.site.moving(&stage.name, role, Some(&resource), moves)
    }

    fn cost(&self, stage: &StageProfile, work: &site::Stage) -> Cost {
        let Cost { per_packet, per_byte } = stage.cost(self.message);
        Cost { per_packet: work.time(per_packet), per_byte: work.per_byte(per_byte) }
    }

    fn random(&self, stage: &StageProfile, work: &site::Stage) -> Option<(Draw, Stream)> {
        let draw = stage.random.as_ref()?;
        Some((work.draw(draw), self.site.stream(&format!(" {}", stage.name))))
    }

    fn buses(&self, stage: &StageProfile, work: &site::Stage) -> Vec<(usize, u32)> {
        let buses = stage.buses.iter().filter(|_| !work.free);
        buses.map(|(bus, times)| (self.index(bus), *times)).collect()
    }

    /// Reading the profile checked that every resource named by a stage exists.
    fn index(&self, resource: &str) -> usize {
        let index = self.profile.resources.iter().position(|known| known.name == resource);
        index.expect("a stage names a resource of its profile")
    }
}
