//! What a policy schedules where a host has a profile: its receive stages, divided.
//!
//! ```text
//! network --> [before: cards, DMA] --> interface --> [kernel] --> queue --> [application]
//!              the machine's own stages               where the policy says   a thread
//! ```
//!
//! The processor's stages up to the last one of an interrupt or soft interrupt go with a packet's
//! last command, wherever the policy handles it; the stages after them are the application's. A
//! stage that says of how many interrupts it is the cost (`interrupts`) is charged for each
//! interrupt that there is, not for each packet. What it costs to enter a handler comes from
//! there and from the processor. Queues before these stages are those of reception: as long as
//! the profile says, where it limits packets.

use super::{Commands, Costs};
use crate::profile::{Profile, ResourceProfile, StageProfile};
use crate::resource::{Discipline, Priority};
use lastmeter_base::Duration;
use lastmeter_engine::ResourceKind;
use lastmeter_net::queue::{self, DropTail};

/// The receive stages of a profile, divided among who does their work.
#[derive(Clone, Debug)]
pub struct Division<'a> {
    /// The processor that the policy schedules.
    pub cpu: &'a ResourceProfile,
    /// What is done before an interface has a packet, by other resources.
    pub before: &'a [StageProfile],
    /// The stage that interrupts cost.
    pub entry: Option<&'a StageProfile>,
    /// What goes with a packet's last command.
    pub kernel: Vec<&'a StageProfile>,
    /// What the application does.
    pub application: &'a [StageProfile],
}

impl<'a> Division<'a> {
    /// Divides the receive stages of `profile`.
    ///
    /// # Errors
    /// Why no policy can schedule them, and what would be right.
    pub fn of(profile: &'a Profile) -> Result<Division<'a>, (String, String)> {
        let resource = |name: &str| profile.resources.iter().find(|known| known.name == name);
        let processor = |stage: &StageProfile| {
            resource(&stage.resource).filter(|resource| resource.kind == ResourceKind::Cpu)
        };
        let stages = &profile.receive;
        let first = stages.iter().enumerate();
        let first = first.filter_map(|(at, stage)| Some((at, processor(stage)?))).next();
        let Some((first, cpu)) = first else {
            let found = "no processor takes part in its profile's reception";
            return Err((found.to_owned(), "leave out `reception`".to_owned()));
        };
        if cpu.units > 1 || cpu.discipline == Discipline::Share {
            let found = format!("`{}` of its profile is several processors", cpu.name);
            return Err((found, "name a profile with one, or leave out `reception`".to_owned()));
        }
        let (before, own) = stages.split_at(first);
        if let Some(other) = own.iter().find(|stage| stage.resource != cpu.name) {
            let found = format!(
                "`{}` of its profile is served by `{}` between what `{}` does, and a policy hands \
                 each packet over once",
                other.name, other.resource, cpu.name
            );
            let right = format!("put it before `{}` in the profile", own[0].name);
            return Err((found, right));
        }
        if let Some(stage) = own.iter().find(|stage| stage.random.is_some()) {
            let found = format!("`{}` of its profile takes a random time", stage.name);
            return Err((found, "leave out `random` there, or `reception` here".to_owned()));
        }
        let of_kernel = |stage: &StageProfile| {
            matches!(stage.priority, Priority::Interrupt | Priority::Softirq)
        };
        let kernel = own.iter().rposition(of_kernel).map_or(0, |last| last + 1);
        let (kernel, application) = own.split_at(kernel);
        let entry = kernel.iter().find(|stage| stage.interrupts > 0);
        let others =
            |stage: &&StageProfile| !entry.is_some_and(|entry| std::ptr::eq(entry, *stage));
        let kernel = kernel.iter().filter(others).collect();
        Ok(Division { cpu, before, entry, kernel, application })
    }

    /// Costs of reception in addition to the stages.
    pub fn costs(&self) -> Costs {
        let entry = self.entry.map_or(Duration::ZERO, |entry| {
            entry.cost.per_packet.scale_ceil(1, u64::from(entry.interrupts))
        });
        Costs { interrupt: self.cpu.interrupt + entry, ..Costs::NOTHING }
    }

    /// How many commands a packet takes: as many as it interrupts.
    pub fn commands(&self) -> Commands {
        match self.entry {
            Some(entry) if entry.interrupts > 1 => Commands::Two,
            _ => Commands::One,
        }
    }

    /// Packets that wait for the first stage of the kernel, at most, where the profile says.
    pub fn adapter_buffers(&self) -> Option<u64> {
        self.entry.or(self.kernel.first().copied()).and_then(limit)
    }

    /// Packets that wait for the application, at most, where the profile says.
    pub fn buffers(&self) -> Option<u64> {
        self.application.first().and_then(limit)
    }
}

fn limit(stage: &StageProfile) -> Option<u64> {
    let queue = stage.queue.as_ref().filter(|queue| queue::is::<DropTail>(queue))?;
    queue.values.given("packets")
}
