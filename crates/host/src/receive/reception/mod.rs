//! Interfaces and the application that consumes what arrives, on a processor of a
//! [`Machine`](crate::machine::Machine).
//!
//! ```text
//! interface --raise--> [interrupts] --+                        level      what runs there
//!                      [soft interrupts] > the machine's CPU   interrupt  entry, commands
//! application queue --> [threads] ----+                        softirq    commands
//!                                                              thread     application, pollers
//! ```
//!
//! An interrupt pre-empts everything but another interrupt; a soft interrupt pre-empts threads.
//! Threads take turns as [`Scheduling`] says (`threads.rs`); what happens to a packet
//! is in `packets.rs`. Each step of work is a job of the CPU, accounted to its own stage, so that
//! the ledger says what went into interrupts, protocol and application. Where the host has a
//! profile, its receive stages are jobs behind that one ([`Part`]): the stages of the kernel
//! wherever the policy handles the last command of a packet, the others in the application.
//!
//! Reception decides and the machine serves: what it wants done it puts into [`Asks`], and it is
//! told what is done.

use super::interface::{Command, Interface};
use super::{Commands, Costs, Counts, Expired, InterfaceOptions, Place, View};
use crate::machine::Output;
use crate::resource::{Job, Priority};
use lastmeter_base::{Bytes, Cost, Duration, Packet, StageId, Time};
use std::collections::VecDeque;

mod levels;
mod packets;
mod stages;
mod threads;

pub(crate) use levels::Ask;
use levels::{Level, Step};
pub use stages::{APPLICATION, Named, RECEPTION, Stages};

/// How threads take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// In the order in which they became ready; each until it has nothing to do (x-kernel).
    Cooperative,
    /// The one that has had least time, for at least so long (as a fair-share scheduler does).
    Fair(Duration),
}

/// How a host receives.
#[derive(Clone, Debug)]
pub struct Options {
    /// What its work costs, besides that of `parts`.
    pub costs: Costs,
    /// How its threads take turns.
    pub scheduling: Scheduling,
    /// What its stages are called.
    pub stages: Stages,
    /// The stages of the host's profile that a packet passes on the CPU, in order.
    pub parts: Vec<Part>,
    /// So many of them go with a packet's last command; the others are the application's.
    pub kernel: usize,
}

/// A stage of a profile, as a part of what reception does with a packet.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is called in the books.
    pub stage: StageId,
    /// What a packet costs the CPU.
    pub cost: Cost,
    /// Additional cost of a PDU's last packet.
    pub per_pdu: Duration,
    /// Buses that a packet's bytes cross meanwhile, by index, and how often each byte does.
    pub buses: Vec<(usize, u32)>,
    /// Who goes first at the CPU where the application does it, and at priority buses.
    pub priority: Priority,
}

/// Levels of the CPU.
const INTERRUPT: usize = 0;
const SOFTIRQ: usize = 1;
const THREAD: usize = 2;
const SPIN: usize = 3;
/// Jobs of reception are numbered by level from here on; the machine's own are fewer.
const JOBS: usize = usize::MAX - SPIN;
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(3_000_000);

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

/// How a host takes packets from its interfaces.
pub struct Reception {
    options: Options,
    interfaces: Vec<Interface>,
    levels: [Level; 3],
    asks: Vec<Ask>,
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

impl Reception {
    /// With interfaces that have nothing yet.
    pub fn new(options: Options, interfaces: Vec<InterfaceOptions>) -> Reception {
        let spins = interfaces.iter().any(|interface| interface.policy.spins());
        let mut reception = Reception {
            runtimes: vec![Duration::ZERO; interfaces.len() + 1],
            interfaces: interfaces.into_iter().map(Interface::new).collect(),
            levels: std::array::from_fn(|_| Level::at_rest(options.stages.interrupt)),
            options,
            asks: Vec::new(),
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
            let (id, stage) = (JOBS + SPIN, reception.options.stages.polling);
            let priority = Priority::Idle;
            let job = Job { id, stage, priority, preemptive: false, work: FOR_EVER };
            reception.asks.push(Ask { job, bytes: Bytes(0) });
        }
        reception
    }

    /// A packet comes from the network. What is due before it must have been done.
    pub(crate) fn arrive(&mut self, now: Time, interface: usize, mut packet: Packet) {
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

    /// When an interface does something next; what the CPU does, the machine knows.
    pub(crate) fn ready_at(&self) -> Option<Time> {
        self.interfaces.iter().filter_map(Interface::ready_at).min()
    }

    /// Does the first thing that an interface has due.
    pub(crate) fn advance_to(&mut self, due: Time) {
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

    /// What it wants done outside, in order: packets that the application has processed leave by
    /// the port of their interface.
    pub(crate) fn outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// What it wants the CPU to do, in order.
    pub(crate) fn asks(&mut self) -> std::vec::Drain<'_, Ask> {
        self.asks.drain(..)
    }

    /// What an interface has done.
    pub(crate) fn counts(&self, interface: usize) -> Counts {
        self.interfaces[interface].counts
    }

    /// Packets on adapters, in queues and in service.
    pub(crate) fn held(&self) -> u64 {
        let steps = self.levels.iter().filter_map(|level| level.step.as_ref());
        let packets = steps.filter(|step| step.packet().is_some()).count() + self.queue.len();
        packets as u64 + self.interfaces.iter().map(Interface::held).sum::<u64>()
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
                self.raise(Raise::Adapter(interface));
            }
            at => card.interrupt = at,
        }
    }

    fn raise(&mut self, raise: Raise) {
        self.raised.push_back(raise);
        self.go_on_interrupts();
    }

    fn go_on_interrupts(&mut self) {
        if self.levels[INTERRUPT].step.is_some() || self.batches[INTERRUPT].is_some() {
            return;
        }
        if let Some(raise) = self.raised.pop_front() {
            let cost = self.options.costs.interrupt;
            self.step(INTERRUPT, Step::Enter(raise), (self.options.stages.interrupt, cost), 0..0);
        }
    }

    fn go_on_softirqs(&mut self, now: Time) {
        if self.levels[SOFTIRQ].step.is_some() || self.batches[SOFTIRQ].is_some() {
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
            Place::Interrupt => self.raise(Raise::Clock(interface, Some(place))),
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
            INTERRUPT => self.go_on_interrupts(),
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
        let work = match &command {
            Command::Read(_) if lazy => (stages.accept, demultiplex),
            Command::Read(_) => (stages.accept, accept),
            Command::ReadEnd(_) if lazy && ring => (stages.accept, demultiplex),
            Command::ReadEnd(_) if lazy => (stages.accept, Duration::ZERO),
            Command::ReadEnd(_) if refused => (stages.accept, accept),
            Command::ReadEnd(_) if ring => (stages.protocol, accept + protocol),
            Command::ReadEnd(_) => (stages.protocol, protocol),
        };
        let whole = matches!(command, Command::ReadEnd(_)) && !refused && !lazy;
        let parts = if whole { 0..self.options.kernel } else { 0..0 };
        self.cold = true;
        self.step(level, Step::Handle(command, refused), work, parts);
    }

    /// A step is done.
    fn done(&mut self, now: Time, level: usize) {
        let Some(step) = self.levels[level].step.take() else { return };
        match step {
            Step::Enter(raise) => self.entered(now, raise),
            Step::Turn | Step::Look => {}
            Step::Handle(command, refused) => {
                let interface = self.interface_of(level);
                self.handled(now, interface, command, refused);
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
            Step::Work(interface, packet) => self.processed(now, interface, packet),
        }
        match level {
            INTERRUPT | SOFTIRQ => {
                self.go_on_batch(now, level);
                self.go_on_interrupts();
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
            Expired::Clock => self.raise(Raise::Clock(interface, None)),
            // Whoever is being served already is not begun a second time.
            Expired::ClockThen(place) if !card.engaged => {
                card.engaged = true;
                card.interrupt = None;
                self.raise(Raise::Clock(interface, Some(place)));
            }
            Expired::ClockThen(_) => self.raise(Raise::Clock(interface, None)),
        }
        self.changed(now, interface);
    }
}
