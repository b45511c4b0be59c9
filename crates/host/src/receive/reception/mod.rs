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
//! An interrupt pre-empts everything but another interrupt; a soft interrupt pre-empts threads. [`Scheduling`]
//! determines how threads take turns (`threads.rs`); `packets.rs` handles individual packets. Each step of work is
//! a job of the CPU, accounted to its own stage, so that the ledger shows the time spent in interrupts, protocol
//! and application. With a profile, the host's receive stages are jobs following that one ([`Part`]): the stages
//! of the kernel wherever the policy handles the last command of a packet, the others in the application.
//!
//! Reception decides and the machine serves: reception puts its requests into a list of [`Request`]s, and the
//! machine tells it what is done.

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

pub(crate) use levels::Request;
use levels::{Level, Step};
pub use stages::{APPLICATION, Named, RECEPTION, Stages};

/// How threads take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// In the order in which they became ready; each runs until it has nothing to do (x-kernel).
    Cooperative,
    /// The one that has had the least time, for at least this long (as in a fair-share scheduler).
    Fair(Duration),
}

/// Parameters of a receiving host.
#[derive(Clone, Debug)]
pub struct Options {
    /// Costs, in addition to those of `parts`.
    pub costs: Costs,
    /// How its threads take turns.
    pub scheduling: Scheduling,
    /// Its stages in the books.
    pub stages: Stages,
    /// The stages of the host's profile that a packet passes on the CPU, in order.
    pub parts: Vec<Part>,
    /// How many of them are executed with a packet's last command; the others are the application's.
    pub kernel: usize,
}

/// A stage of a profile, as a part of the processing of a packet.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its stage in the books.
    pub stage: StageId,
    /// Cost of a packet on the CPU.
    pub cost: Cost,
    /// Additional cost of a PDU's last packet.
    pub per_pdu: Duration,
    /// Buses that a packet's bytes cross meanwhile, by index, and how many times each byte does.
    pub buses: Vec<(usize, u32)>,
    /// Priority on the CPU if the application executes it, and on priority buses.
    pub priority: Priority,
}

/// Levels of the CPU.
const INTERRUPT: usize = 0;
const SOFTIRQ: usize = 1;
const THREAD: usize = 2;
const SPIN: usize = 3;
/// Jobs of reception are numbered by level from here on; the machine's own numbers are lower.
const JOBS: usize = usize::MAX - SPIN;
const LONGER_THAN_ANY_RUN: Duration = Duration::from_secs(3_000_000);

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
    /// In the application's own thread: no thread switch.
    in_application: bool,
}

/// The thread that a step belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Application,
    Poller(usize),
}

/// How a host accepts packets from its interfaces.
pub struct Reception {
    options: Options,
    interfaces: Vec<Interface>,
    levels: [Level; 3],
    requests: Vec<Request>,
    /// The batches at interrupt and softirq level.
    batches: [Option<Batch>; 2],
    raised: VecDeque<Raise>,
    softirqs: VecDeque<usize>,
    /// Pollers that are ready, in that order, with their progress.
    pollers: VecDeque<Batch>,
    /// The interface to poll first when there is nothing else to do: they take turns.
    polled_first: usize,
    /// Packets for the application.
    queue: VecDeque<(usize, Packet)>,
    /// Whether the application became ready before all ready pollers.
    application_first: bool,
    application_asleep: bool,
    running: Option<Who>,
    /// The thread that the CPU last switched to.
    last: Option<Who>,
    /// Run times of threads, for fair scheduling: the application, then each interface's poller.
    runtimes: Vec<Duration>,
    /// Whether reception has used the cache since the application last did.
    cold: bool,
    outputs: Vec<Output>,
}

impl Reception {
    /// With empty interfaces.
    pub fn new(options: Options, interfaces: Vec<InterfaceOptions>) -> Reception {
        let spins = interfaces.iter().any(|interface| interface.policy.spins());
        let mut reception = Reception {
            runtimes: vec![Duration::ZERO; interfaces.len() + 1],
            interfaces: interfaces.into_iter().map(Interface::new).collect(),
            levels: std::array::from_fn(|_| Level::at_rest(options.stages.interrupt)),
            options,
            requests: Vec::new(),
            batches: [None, None],
            raised: VecDeque::new(),
            softirqs: VecDeque::new(),
            pollers: VecDeque::new(),
            polled_first: 0,
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
            let job = Job { id, stage, priority, preemptive: false, work: LONGER_THAN_ANY_RUN };
            reception.requests.push(Request { job, bytes: Bytes(0) });
        }
        reception
    }

    /// A packet arrives from the network. Everything due before it must have been handled.
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

    /// When the next event of an interface is due; the machine knows the events of the CPU.
    pub(crate) fn ready_at(&self) -> Option<Time> {
        self.interfaces.iter().filter_map(Interface::ready_at).min()
    }

    /// Handles the first event that is due at an interface.
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

    /// Its effects on the outside world, in order: packets that the application has processed leave by the port of
    /// their interface.
    pub(crate) fn outputs(&mut self) -> std::vec::Drain<'_, Output> {
        self.outputs.drain(..)
    }

    /// Its requests for CPU time, in order.
    pub(crate) fn requests(&mut self) -> std::vec::Drain<'_, Request> {
        self.requests.drain(..)
    }

    /// Counts of an interface.
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

    /// The least virtual service among interfaces that want service.
    fn least_served(&self) -> Duration {
        let active = self
            .interfaces
            .iter()
            .filter(|card| card.options.reservation.is_some() && card.wants_service());
        active.map(|card| card.virtual_service).min().unwrap_or(LONGER_THAN_ANY_RUN)
    }

    /// The state of an interface has changed: it may interrupt, and an idle host may have work.
    fn changed(&mut self, now: Time, interface: usize) {
        self.consult(now, interface);
        self.continue_threads(now);
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
        self.continue_interrupts();
    }

    fn continue_interrupts(&mut self) {
        if self.levels[INTERRUPT].step.is_some() || self.batches[INTERRUPT].is_some() {
            return;
        }
        if let Some(raise) = self.raised.pop_front() {
            let cost = self.options.costs.interrupt;
            self.step(INTERRUPT, Step::Enter(raise), (self.options.stages.interrupt, cost), 0..0);
        }
    }

    fn continue_softirqs(&mut self, now: Time) {
        if self.levels[SOFTIRQ].step.is_some() || self.batches[SOFTIRQ].is_some() {
            return;
        }
        if let Some(interface) = self.softirqs.pop_front() {
            self.batches[SOFTIRQ] = Some(Batch { interface, handled: 0, in_application: false });
            self.continue_batch(now, SOFTIRQ);
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
                self.continue_softirqs(now);
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
                self.continue_threads(now);
            }
        }
    }

    /// The run time credited to a thread that wakes up, if it has had less.
    fn runtime_floor(&self) -> Duration {
        match self.running {
            Some(Who::Application) => self.runtimes[0],
            Some(Who::Poller(interface)) => self.runtimes[interface + 1],
            None => Duration::ZERO,
        }
    }

    /// Handles one more command of the batch at a level, or ends the batch.
    fn continue_batch(&mut self, now: Time, level: usize) {
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
            INTERRUPT => self.continue_interrupts(),
            _ => self.continue_softirqs(now),
        }
        self.continue_threads(now);
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

    /// Handles the next command of `interface` at a level.
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
                self.continue_batch(now, level);
                self.continue_interrupts();
                self.continue_softirqs(now);
            }
            _ => {}
        }
        self.continue_threads(now);
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
            // An interface that is already being served is not started again.
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
