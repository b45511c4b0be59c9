//! The CPU's work at each level: a step, its own work first, then stages of the host's profile.
//!
//! ```text
//! step --> own work --> part --> part --> done: next step
//!                         '--> buses, meanwhile
//! ```

use super::{Command, INTERRUPT, JOBS, Part, Raise, Reception, SOFTIRQ, THREAD, Who};
use crate::resource::{Done, Job, Priority};
use lastmeter_base::{Bytes, Duration, Packet, StageId, Time};
use std::ops::Range;

/// What the CPU does at one level.
pub(super) enum Step {
    Enter(Raise),
    Turn,
    Look,
    /// A command, and whether its packet is refused.
    Handle(Command, bool),
    Work(usize, Packet),
}

impl Step {
    /// The packet that it works on.
    pub(super) fn packet(&self) -> Option<&Packet> {
        match self {
            Step::Handle(Command::Read(packet) | Command::ReadEnd(packet), _)
            | Step::Work(_, packet) => Some(packet),
            Step::Enter(_) | Step::Turn | Step::Look => None,
        }
    }

    fn packet_mut(&mut self) -> Option<&mut Packet> {
        match self {
            Step::Handle(Command::Read(packet) | Command::ReadEnd(packet), _)
            | Step::Work(_, packet) => Some(packet),
            Step::Enter(_) | Step::Turn | Step::Look => None,
        }
    }
}

/// Work for the CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) job: Job,
    /// The bytes that it moves.
    pub(crate) bytes: Bytes,
}

/// State of the CPU at a level.
pub(super) struct Level {
    /// It stays here while it is pre-empted.
    pub(super) step: Option<Step>,
    /// The stage that the running job is accounted to.
    pub(super) stage: StageId,
    /// The profile part that the job represents, if any.
    pub(super) part: Option<usize>,
    /// The parts that come after it.
    pub(super) rest: Range<usize>,
    /// The job's times, once the CPU has done its share.
    pub(super) served: Option<Done>,
    /// The number of buses that the packet's bytes still have to cross.
    pub(super) crossing: u32,
}

impl Level {
    pub(super) fn at_rest(stage: StageId) -> Level {
        Level { step: None, stage, part: None, rest: 0..0, served: None, crossing: 0 }
    }
}

impl Reception {
    /// Begins a step: its own work, then some of the profile's parts.
    pub(super) fn step(
        &mut self,
        level: usize,
        step: Step,
        own: (StageId, Duration),
        parts: Range<usize>,
    ) {
        debug_assert!(self.levels[level].step.is_none(), "one step at a time");
        let (stage, work) = own;
        self.levels[level].step = Some(step);
        self.levels[level].rest = parts;
        if work.is_zero() && self.next_part(level) {
            return;
        }
        (self.levels[level].stage, self.levels[level].part) = (stage, None);
        self.request(level, Priority::Thread(0), work, Bytes(0));
    }

    /// Continues with the next part of a step, if there is one.
    fn next_part(&mut self, level: usize) -> bool {
        let state = &mut self.levels[level];
        let (Some(at), Some(packet)) =
            (state.rest.next(), state.step.as_ref().and_then(Step::packet))
        else {
            return false;
        };
        let part = &self.options.parts[at];
        let (len, ends) = (packet.len, packet.ends);
        let work = part.cost.time_for(len) + if ends { part.per_pdu } else { Duration::ZERO };
        (state.stage, state.part) = (part.stage, Some(at));
        state.crossing = part.buses.len() as u32;
        self.request(level, part.priority, work, len);
        true
    }

    /// Requests CPU time at a level; in a thread, with the priority of the thread.
    fn request(&mut self, level: usize, thread: Priority, work: Duration, bytes: Bytes) {
        let priority = match level {
            INTERRUPT => Priority::Handler,
            SOFTIRQ => Priority::Softirq,
            _ => thread,
        };
        let (stage, preemptive) = (self.levels[level].stage, level != THREAD);
        let job = Job { id: JOBS + level, stage, priority, preemptive, work };
        self.requests.push(Request { job, bytes });
    }

    /// The level of the CPU for the job of reception with this number.
    pub(crate) fn level(id: usize) -> Option<usize> {
        id.checked_sub(JOBS)
    }

    /// The part that runs at a level, and the length of its packet.
    pub(crate) fn running(&self, level: usize) -> Option<(&Part, Bytes)> {
        let level = self.levels.get(level)?;
        Some((&self.options.parts[level.part?], level.step.as_ref()?.packet()?.len))
    }

    /// The CPU has done its share of the job at a level. Returns whether the job is done.
    pub(crate) fn served(&mut self, level: usize, done: Done) -> bool {
        self.levels[level].served = Some(done);
        self.levels[level].crossing == 0
    }

    /// The bytes of a level's packet have crossed one of its buses. Returns whether the job is done.
    pub(crate) fn crossed(&mut self, level: usize) -> bool {
        let level = &mut self.levels[level];
        level.crossing -= 1;
        level.crossing == 0 && level.served.is_some()
    }

    /// Continues if both CPU and buses have done their share.
    pub(crate) fn complete(&mut self, now: Time, level: usize) {
        let state = &mut self.levels[level];
        let Some(done) = state.served.take() else { return };
        if level == THREAD
            && let Some(who) = self.running
        {
            let at = if let Who::Poller(interface) = who { interface + 1 } else { 0 };
            self.runtimes[at] += done.served;
        }
        let stage = state.stage;
        if let Some(packet) = state.step.as_mut().and_then(Step::packet_mut) {
            record(now, stage, packet, &done);
        }
        if !self.next_part(level) {
            self.done(now, level);
        }
    }
}

/// Records the stage in the packet. Time neither waiting nor in service was pre-emption, or waiting for a bus.
fn record(now: Time, stage: StageId, packet: &mut Packet, done: &Done) {
    let wait = done.started - packet.entered;
    let blocked = (now - done.started) - done.served;
    packet.visit(stage, wait, done.served, blocked);
    packet.entered = now;
}
