//! The machine: one CPU, its interfaces, and the application that consumes what arrives.
//!
//! ```text
//! interface --raise--> [interrupts] --+                     priority   what runs there
//!                      [soft interrupts] > one CPU          interrupt  entry, commands
//! application queue --> [threads] ----+                     softirq    commands
//!                                                           thread     application, pollers
//! ```
//!
//! An interrupt pre-empts everything but another interrupt; a soft interrupt pre-empts threads.
//! Threads take turns as [`Scheduling`] says (`threads.rs`); what becomes of a packet
//! is in `packets.rs`. Each step of work is one job of the CPU, accounted to
//! its own stage, so that the ledger says what went into interrupts, protocol and application.

use super::interface::{Command, Interface};
use super::{Commands, Costs, Counts, Expired, InterfaceOptions, Place, View};
use crate::machine::Output;
use crate::resource::{self, Discipline, Done, Job, Priority, Resource};
use lastmeter_base::{Duration, Packet, StageId, Time};
use lastmeter_engine::{Meter, ResourceId};
use std::collections::VecDeque;

mod packets;
mod threads;

/// How threads take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// In the order in which they became ready; each until it has nothing to do (x-kernel).
    Cooperative,
    /// The one that has had least time, for at least so long (as a fair-share scheduler does).
    Fair(Duration),
}

/// The stages of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// Entering and leaving interrupt handlers.
    pub interrupt: StageId,
    /// Turning to a thread.
    pub switch: StageId,
    /// The first command of a packet.
    pub accept: StageId,
    /// The transfer into the host's memory.
    pub transfer: StageId,
    /// The last command of a packet: the protocol stack.
    pub protocol: StageId,
    /// The application's work.
    pub application: StageId,
    /// Looking at interfaces that have nothing.
    pub polling: StageId,
}

/// What a host is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What its work costs.
    pub costs: Costs,
    /// How its threads take turns.
    pub scheduling: Scheduling,
    /// What the CPU is called in the books.
    pub cpu: ResourceId,
    /// What its stages are called.
    pub stages: Stages,
}

/// Levels of the CPU; also the numbers of their jobs.
const INTERRUPT: usize = 0;
const SOFTIRQ: usize = 1;
const THREAD: usize = 2;
const SPIN: usize = 3;
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(3_000_000);

/// What the CPU does at one level.
enum Step {
    Enter(Raise),
    Turn,
    Look,
    /// A command, and whether its packet is refused.
    Handle(Command, bool),
    Work(usize, Packet),
}

#[derive(Clone, Copy)]
enum Raise {
    Adapter(usize),
    Clock(usize, Option<Place>),
}

/// Commands of one interface that are handled together.
#[derive(Clone, Copy)]
struct Batch {
    interface: usize,
    handled: u64,
    /// In the application's own thread: nothing to turn to.
    in_application: bool,
}

/// Whose turn a thread's step is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Application,
    Poller(usize),
}

/// A host that receives.
pub struct Host {
    options: Options,
    cpu: Resource,
    interfaces: Vec<Interface>,
    /// What the CPU does at each level; a step stays here while it is pre-empted.
    steps: [Option<Step>; 3],
    /// The batches of the interrupt and the softirq level.
    batches: [Option<Batch>; 2],
    raised: VecDeque<Raise>,
    softirqs: VecDeque<usize>,
    /// Pollers that are ready, in that order, with what they have done.
    pollers: VecDeque<Batch>,
    /// The interface that is asked first when nothing else is to be done: they take turns.
    asks_first: usize,
    /// Packets for the application.
    queue: VecDeque<(usize, Packet)>,
    /// Whether the application became ready before all pollers that are.
    application_first: bool,
    application_asleep: bool,
    running: Option<Who>,
    /// The thread that the CPU turned to last.
    last: Option<Who>,
    /// Time of threads, for fair turns: the application, then each interface's poller.
    runtimes: Vec<Duration>,
    /// Whether reception has used the cache since the application did.
    cold: bool,
    outputs: Vec<Output>,
}

impl Host {
    /// A host at rest.
    pub fn new(options: Options, interfaces: Vec<InterfaceOptions>) -> Host {
        let cpu = resource::Options {
            units: 1,
            discipline: Discipline::Priority,
            context_switch: Duration::ZERO,
            interrupt: Duration::ZERO,
        };
        let spins = interfaces.iter().any(|interface| interface.policy.spins());
        let mut host = Host {
            cpu: Resource::new(options.cpu, cpu),
            runtimes: vec![Duration::ZERO; interfaces.len() + 1],
            interfaces: interfaces.into_iter().map(Interface::new).collect(),
            options,
            steps: [None, None, None],
            batches: [None, None],
            raised: VecDeque::new(),
            softirqs: VecDeque::new(),
            pollers: VecDeque::new(),
            asks_first: 0,
            queue: VecDeque::new(),
            application_first: false,
            application_asleep: true,
            running: None,
            last: None,
            cold: true,
            outputs: Vec::new(),
        };
        if spins {
            let stage = options.stages.polling;
            let priority = Priority::Thread(0);
            let job = Job { id: SPIN, stage, priority, preemptive: false, work: FOR_EVER };
            host.cpu.submit(Time::START, job);
        }
        host
    }

    /// A packet comes from the network. What is due before it must have been done.
    pub fn arrive(&mut self, now: Time, interface: usize, mut packet: Packet) {
        packet.entered = now;
        let view = self.view(interface);
        let stage = self.options.stages.accept;
        let card = &mut self.interfaces[interface];
        card.counts.arrived += 1;
        let taken = card.options.takes.as_mut().is_none_or(|t| t.admits(now, &packet, &view));
        let reason = match taken {
            _ if card.on_adapter >= card.options.adapter_buffers => "adapter full",
            false => "refused by the adapter",
            true => "",
        };
        if !reason.is_empty() {
            card.counts.dropped_by_adapter += 1;
            self.outputs.push(Output::Drop(packet, stage, reason));
            return;
        }
        card.on_adapter += 1;
        match card.options.commands {
            Commands::Two => {
                card.waiting.push_back(packet);
                card.announce(now);
            }
            Commands::One => self.transfer(now, interface, packet),
        }
        self.changed(now, interface);
    }

    /// When something is due next.
    pub fn next(&self) -> Option<Time> {
        let interfaces = self.interfaces.iter().filter_map(Interface::next);
        interfaces.chain(self.cpu.next()).min()
    }

    /// Does everything that is due by `now`, in the order in which it became due.
    pub fn advance(&mut self, now: Time) {
        while let Some(due) = self.next().filter(|&due| due <= now) {
            self.advance_to(due);
        }
    }

    fn advance_to(&mut self, due: Time) {
        if self.cpu.next() == Some(due) {
            if let Some(done) = self.cpu.complete(due) {
                self.done(due, done);
            }
            return;
        }
        for interface in 0..self.interfaces.len() {
            let card = &mut self.interfaces[interface];
            if card.transfers.front().is_some_and(|&(at, _)| at <= due) {
                self.transferred(due, interface);
            } else if card.interrupt.is_some_and(|at| at <= due) {
                card.interrupt = None;
                self.changed(due, interface);
            } else if card.options.policy.timer().is_some_and(|at| at <= due) {
                self.expired(due, interface);
            } else {
                continue;
            }
            return;
        }
    }

    /// What the host wants done outside, in order: packets that the application has processed
    /// leave by the port of their interface.
    pub fn outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// What an interface has done.
    pub fn counts(&self, interface: usize) -> Counts {
        self.interfaces[interface].counts
    }

    /// Packets on adapters, in queues and in service.
    pub fn held(&self) -> u64 {
        let in_step = |step: &&Step| matches!(step, Step::Handle(..) | Step::Work(..));
        let steps = self.steps.iter().flatten().filter(in_step).count() + self.queue.len();
        steps as u64 + self.interfaces.iter().map(Interface::held).sum::<u64>()
    }

    /// What the CPU did.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.cpu.meters()
    }

    fn view(&self, interface: usize) -> View {
        let card = &self.interfaces[interface];
        let buffers = card.options.host_buffers;
        let queue = self.queue.len() as u64;
        View {
            pending: card.commands.len() as u64,
            oldest: card.commands.front().map(|&(at, _)| at),
            buffers_free: buffers.saturating_sub(card.on_host),
            buffers,
            backlog: queue,
            application_idle: queue == 0 && self.application_asleep,
            ahead: card.virtual_service.saturating_sub(self.least_served()),
            handled: card.handled,
        }
    }

    /// The least virtual service of those interfaces that want any.
    fn least_served(&self) -> Duration {
        let active = self
            .interfaces
            .iter()
            .filter(|card| card.options.reservation.is_some() && card.wants_service());
        active.map(|card| card.virtual_service).min().unwrap_or(FOR_EVER)
    }

    /// Something about an interface has changed: may it interrupt; has an idle host work?
    fn changed(&mut self, now: Time, interface: usize) {
        self.consult(now, interface);
        self.go_on_threads(now);
    }

    fn consult(&mut self, now: Time, interface: usize) {
        let card = &self.interfaces[interface];
        if card.engaged || card.commands.is_empty() {
            return;
        }
        let view = self.view(interface);
        let card = &mut self.interfaces[interface];
        match card.options.policy.interrupt_at(now, &view) {
            Some(at) if at <= now => {
                card.interrupt = None;
                card.engaged = true;
                card.counts.interrupts += 1;
                card.handled.interrupts += 1;
                self.raise(now, Raise::Adapter(interface));
            }
            at => card.interrupt = at,
        }
    }

    fn raise(&mut self, now: Time, raise: Raise) {
        self.raised.push_back(raise);
        self.go_on_interrupts(now);
    }

    fn go_on_interrupts(&mut self, now: Time) {
        if self.steps[INTERRUPT].is_some() || self.batches[INTERRUPT].is_some() {
            return;
        }
        if let Some(raise) = self.raised.pop_front() {
            let cost = self.options.costs.interrupt;
            self.step(now, INTERRUPT, Step::Enter(raise), self.options.stages.interrupt, cost);
        }
    }

    fn go_on_softirqs(&mut self, now: Time) {
        if self.steps[SOFTIRQ].is_some() || self.batches[SOFTIRQ].is_some() {
            return;
        }
        if let Some(interface) = self.softirqs.pop_front() {
            self.batches[SOFTIRQ] = Some(Batch { interface, handled: 0, in_application: false });
            self.go_on_batch(now, SOFTIRQ);
        }
    }

    /// Begins a batch, or queues it.
    fn begin(&mut self, now: Time, interface: usize, place: Place) {
        self.interfaces[interface].engaged = true;
        self.interfaces[interface].interrupt = None;
        match place {
            Place::Interrupt => self.raise(now, Raise::Clock(interface, Some(place))),
            Place::Softirq => {
                self.softirqs.push_back(interface);
                self.go_on_softirqs(now);
            }
            Place::Thread | Place::Application => {
                let in_application = place == Place::Application;
                if self.pollers.is_empty() {
                    self.application_first = !self.queue.is_empty();
                }
                let least = self.runtime_floor();
                let runtime = &mut self.runtimes[interface + 1];
                *runtime = (*runtime).max(least);
                self.pollers.push_back(Batch { interface, handled: 0, in_application });
                self.go_on_threads(now);
            }
        }
    }

    /// What a thread that wakes up is taken to have had at least.
    fn runtime_floor(&self) -> Duration {
        match self.running {
            Some(Who::Application) => self.runtimes[0],
            Some(Who::Poller(interface)) => self.runtimes[interface + 1],
            None => Duration::ZERO,
        }
    }

    /// One more command of the batch of a level, or its end.
    fn go_on_batch(&mut self, now: Time, level: usize) {
        let Some(batch) = self.batches[level] else { return };
        let interface = batch.interface;
        let view = self.view(interface);
        let policy = &mut self.interfaces[interface].options.policy;
        if view.pending > 0 && policy.proceed(now, &view, batch.handled) {
            self.handle(now, level, interface);
            return;
        }
        self.batches[level] = None;
        let place = policy.finished(now, &view, batch.handled);
        self.ended(now, interface, place);
        match level {
            INTERRUPT => self.go_on_interrupts(now),
            _ => self.go_on_softirqs(now),
        }
        self.go_on_threads(now);
    }

    fn ended(&mut self, now: Time, interface: usize, place: Option<Place>) {
        match place {
            Some(place) => self.begin(now, interface, place),
            None => {
                self.interfaces[interface].engaged = false;
                self.consult(now, interface);
            }
        }
    }

    /// Works on the next command of `interface` at a level.
    fn handle(&mut self, now: Time, level: usize, interface: usize) {
        let view = self.view(interface);
        let Costs { accept, demultiplex, protocol, .. } = self.options.costs;
        let card = &mut self.interfaces[interface];
        let Some((_, command)) = card.commands.pop_front() else { return };
        let ring = card.options.commands == Commands::One;
        let lazy = card.options.policy.is_lazy();
        let (packet, checks) = match &command {
            Command::Read(packet) => (packet, true),
            Command::ReadEnd(packet) => (packet, ring),
        };
        let refused =
            checks && card.options.accepts.as_mut().is_some_and(|a| !a.admits(now, packet, &view));
        let stages = self.options.stages;
        let (stage, cost) = match &command {
            Command::Read(_) if lazy => (stages.accept, demultiplex),
            Command::Read(_) => (stages.accept, accept),
            Command::ReadEnd(_) if lazy && ring => (stages.accept, demultiplex),
            Command::ReadEnd(_) if lazy => (stages.accept, Duration::ZERO),
            Command::ReadEnd(_) if refused => (stages.accept, accept),
            Command::ReadEnd(_) if ring => (stages.protocol, accept + protocol),
            Command::ReadEnd(_) => (stages.protocol, protocol),
        };
        self.cold = true;
        self.step(now, level, Step::Handle(command, refused), stage, cost);
    }

    fn step(&mut self, now: Time, level: usize, step: Step, stage: StageId, work: Duration) {
        let priority = match level {
            INTERRUPT => Priority::Interrupt,
            SOFTIRQ => Priority::Softirq,
            _ => Priority::Thread(1),
        };
        debug_assert!(self.steps[level].is_none(), "one step at a time");
        self.steps[level] = Some(step);
        self.cpu.submit(now, Job { id: level, stage, priority, preemptive: true, work });
    }

    /// A step is done.
    fn done(&mut self, now: Time, done: Done) {
        let level = done.id;
        let Some(step) = self.steps.get_mut(level).and_then(Option::take) else { return };
        if let (THREAD, Some(who)) = (level, self.running) {
            let at = if let Who::Poller(interface) = who { interface + 1 } else { 0 };
            self.runtimes[at] += done.served;
        }
        match step {
            Step::Enter(raise) => self.entered(now, raise),
            Step::Turn | Step::Look => {}
            Step::Handle(command, refused) => {
                let interface = self.interface_of(level);
                self.handled(now, interface, command, refused, &done);
                match level {
                    INTERRUPT | SOFTIRQ => {
                        self.batches[level].iter_mut().for_each(|batch| batch.handled += 1);
                    }
                    _ => {
                        let own = |batch: &&mut Batch| batch.interface == interface;
                        self.pollers.iter_mut().find(own).into_iter().for_each(|b| b.handled += 1);
                    }
                }
            }
            Step::Work(interface, packet) => self.processed(now, interface, packet, &done),
        }
        match level {
            INTERRUPT | SOFTIRQ => {
                self.go_on_batch(now, level);
                self.go_on_interrupts(now);
                self.go_on_softirqs(now);
            }
            _ => {}
        }
        self.go_on_threads(now);
    }

    fn interface_of(&self, level: usize) -> usize {
        match (level, self.running) {
            (THREAD, Some(Who::Poller(interface))) => interface,
            _ => self.batches[level].map_or(0, |batch| batch.interface),
        }
    }

    fn entered(&mut self, now: Time, raise: Raise) {
        let (interface, place) = match raise {
            Raise::Adapter(interface) => {
                let view = self.view(interface);
                let place = self.interfaces[interface].options.policy.interrupted(now, &view);
                (interface, Some(place))
            }
            Raise::Clock(interface, place) => (interface, place),
        };
        match place {
            Some(Place::Interrupt) => {
                self.batches[INTERRUPT] =
                    Some(Batch { interface, handled: 0, in_application: false });
            }
            Some(place) => self.begin(now, interface, place),
            None => {}
        }
    }

    fn expired(&mut self, now: Time, interface: usize) {
        let view = self.view(interface);
        let card = &mut self.interfaces[interface];
        let expired = card.options.policy.expired(now, &view);
        match expired {
            Expired::Nothing => {}
            Expired::Clock => self.raise(now, Raise::Clock(interface, None)),
            // Whoever is being served already is not begun a second time.
            Expired::ClockThen(place) if !card.engaged => {
                card.engaged = true;
                card.interrupt = None;
                self.raise(now, Raise::Clock(interface, Some(place)));
            }
            Expired::ClockThen(_) => self.raise(now, Raise::Clock(interface, None)),
        }
        self.changed(now, interface);
    }
}
