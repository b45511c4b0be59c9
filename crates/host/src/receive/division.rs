//! What a policy schedules on a host with a profile: its receive stages, divided.
//!
//! ```text
//! network --> [before: cards, DMA] --> interface --> [kernel] --> queue --> [application]
//!              the machine's own stages               handled by the policy  a thread
//! ```
//!
//! The processor's stages up to the last one of an interrupt or soft interrupt are executed with a packet's last
//! command, wherever the policy handles it; the stages after them are the application's. A stage that gives the
//! number of interrupts that it covers (`interrupts`) is charged per interrupt raised, not per packet. The cost of
//! entering a handler is the sum of that and the processor's own. The queues in front of these stages are those of
//! reception, as long as the profile says if it limits packets.

use super::{Commands, Costs};
use crate::profile::{Profile, ResourceProfile, StageProfile};
use crate::resource::{Discipline, Priority};
use lastmeter_base::Duration;
use lastmeter_engine::ResourceKind;
use lastmeter_net::queue::{self, DropTail};

/// The receive stages of a profile, divided by who executes them.
#[derive(Clone, Debug)]
pub struct Division<'a> {
    /// The processor that the policy schedules.
    pub cpu: &'a ResourceProfile,
    /// Stages on other resources, before an interface has the packet.
    pub before: &'a [StageProfile],
    /// The stage that represents the cost of interrupts.
    pub entry: Option<&'a StageProfile>,
    /// Stages executed with a packet's last command.
    pub kernel: Vec<&'a StageProfile>,
    /// Stages executed by the application.
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
            let found = "no receive stage of its profile runs on a processor";
            return Err((found.to_owned(), "leave out `reception`".to_owned()));
        };
        if cpu.units > 1 || cpu.discipline == Discipline::Share {
            let found = format!("`{}` of its profile serves several jobs at once", cpu.name);
            return Err((
                found,
                "name a profile with one processor, or leave out `reception`".to_owned(),
            ));
        }
        let (before, own) = stages.split_at(first);
        if let Some(other) = own.iter().find(|stage| stage.resource != cpu.name) {
            let found = format!(
                "`{}` of its profile runs on `{}` between stages on `{}`, but a policy hands \
                 over each packet only once",
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

    /// Number of commands per packet: as many as the interrupts that it causes.
    pub fn commands(&self) -> Commands {
        match self.entry {
            Some(entry) if entry.interrupts > 1 => Commands::Two,
            _ => Commands::One,
        }
    }

    /// Most packets that may wait for the first stage of the kernel, if the profile says.
    pub fn adapter_buffers(&self) -> Option<u64> {
        self.entry.or(self.kernel.first().copied()).and_then(limit)
    }

    /// Most packets that may wait for the application, if the profile says.
    pub fn buffers(&self) -> Option<u64> {
        self.application.first().and_then(limit)
    }
}

fn limit(stage: &StageProfile) -> Option<u64> {
    let queue = stage.queue.as_ref().filter(|queue| queue::is::<DropTail>(queue))?;
    queue.values.given("packets")
}
