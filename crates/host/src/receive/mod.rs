//! Reception: how a host accepts packets from its adapters, and what it does under overload.
//!
//! ```text
//!             adapter                                        host
//! arrival --> [buffers] --command, interrupt?--> interrupt | softirq | thread --> [queue] --> application
//!   drop: `adapter full`, `refused`                 drop: `no buffer`          one CPU, shared by all
//! ```
//!
//! [`Reception`] is a part of a [`Machine`]: interfaces, their commands and the application that consumes what
//! arrives, on one of its CPUs. A [`Policy`] decides when an interface may interrupt, where its commands are
//! handled, and how many at a time; an [`Admission`] decides which packets are admitted. Both are machines with
//! `now` as an argument, one file each:
//!
//! | policy | file | id |
//! |---|---|---|
//! | an interrupt for each command | [`interrupt`] | E-100 |
//! | continuous polling | [`polling`] | E-101 |
//! | polling driven by a clock | [`timed`] | E-102 |
//! | interrupts disabled and enabled by the host | [`explicit`] | E-103 |
//! | the adapter backs off | [`backoff`] | E-104 |
//! | the adapter backs off, with exact shares | [`shares`] | E-125 |
//! | lazy receiver processing | [`lazy`] | E-105 |
//! | NAPI, threaded or not, deferred or coalesced | [`napi`] | E-106 |
//! | Linux's dynamic interrupt moderation | [`dim`] | E-106 |
//! | interrupts suspended while the application polls | [`suspension`] | E-106 |
//! | the control commands of Table 7.1 | [`control`] | E-99 |
//! | early drop, tags, budgets of flows, drop on the adapter | [`admission`] | E-100, E-105, E-131, E-132 |
//!
//! [`kind`] makes all of them available to experiment files; [`division`] determines which stages of a host's
//! profile they schedule.
//!
//! Source: Indiresan, "Exploring quality-of-service issues in network interface design",
//! University of Michigan, 1997, chapter 7. [`equations`] has its Eqs 7.1 to 7.5.

pub mod admission;
pub mod backoff;
pub mod control;
pub mod dim;
pub mod division;
pub mod equations;
pub mod explicit;
mod interface;
pub mod interrupt;
pub mod kind;
pub mod lazy;
pub mod napi;
pub mod polling;
mod reception;
pub mod shares;
pub(crate) mod site;
pub mod suspension;
pub mod timed;
pub mod trial;

pub use interface::{Commands, Counts, InterfaceOptions};
pub use reception::{APPLICATION, Named, Options, Part, RECEPTION, Reception, Scheduling, Stages};

use crate::machine::{Machine, ResourceOptions};
use crate::resource::{self, Discipline};
use lastmeter_base::{Bytes, Duration, Packet, PerByte, Time};
use lastmeter_engine::ResourceId;
use lastmeter_engine::site::Stage;

/// CPU costs of reception. Symbols are those of Table 7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// `C_intr`: to enter and leave an interrupt handler.
    pub interrupt: Duration,
    /// `C_sw`: to switch to a polling thread and back.
    pub switch: Duration,
    /// To wake the application when its queue was empty.
    pub wake: Duration,
    /// The part of `C_ri` for the first command (`read`): buffers and the handshake.
    pub accept: Duration,
    /// The part of `C_ri` that finds a packet's socket, if the rest is left to the application ([`lazy`]); at most
    /// `accept + protocol`.
    pub demultiplex: Duration,
    /// The rest of `C_ri`, for the last command (`read end`): the protocol stack.
    pub protocol: Duration,
    /// `C_pp`: the application's processing of a packet when its data and code have left the cache.
    pub application: Duration,
    /// `C_cm`: the saving on `application` if it processed a packet just before and no reception came in between.
    /// At most `application`.
    pub cache_miss: Duration,
    /// Cost of polling an interface that has nothing.
    pub look: Duration,
}

impl Costs {
    /// No costs.
    pub const NOTHING: Costs = Costs {
        interrupt: Duration::ZERO,
        switch: Duration::ZERO,
        wake: Duration::ZERO,
        accept: Duration::ZERO,
        demultiplex: Duration::ZERO,
        protocol: Duration::ZERO,
        application: Duration::ZERO,
        cache_miss: Duration::ZERO,
        look: Duration::ZERO,
    };

    /// The costs per stage of reception in which they occur.
    #[must_use]
    pub fn at(self, stages: &Stages<Stage>) -> Costs {
        let (accept, protocol) =
            (stages.accept.time(self.accept), stages.protocol.time(self.protocol));
        Costs {
            interrupt: stages.interrupt.time(self.interrupt),
            switch: stages.switch.time(self.switch),
            wake: stages.switch.time(self.wake),
            accept,
            demultiplex: stages.accept.time(self.demultiplex).min(accept + protocol),
            protocol,
            application: stages.application.time(self.application),
            cache_miss: stages.application.time(self.cache_miss),
            look: stages.polling.time(self.look),
        }
    }
}

/// Where the host handles commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the interrupt handler, before everything else.
    Interrupt,
    /// In a soft interrupt, before every thread.
    Softirq,
    /// In a thread, competing with the application.
    Thread,
    /// In the application itself, which polls when it has nothing else to do.
    Application,
}

/// What a policy sees of its interface and host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Commands that the adapter has for the host.
    pub pending: u64,
    /// When the oldest of them was posted.
    pub oldest: Option<Time>,
    /// Free receive buffers of this interface.
    pub buffers_free: u64,
    /// All receive buffers of this interface.
    pub buffers: u64,
    /// Packets that wait for the application, from all interfaces.
    pub backlog: u64,
    /// Whether the application is idle.
    pub application_idle: bool,
    /// How far this interface is ahead of its reserved share, compared with the one furthest behind of those that
    /// want service; zero without reservations.
    pub ahead: Duration,
    /// Packets and bytes handled since the start, and interrupts raised.
    pub handled: Handled,
}

/// Totals of an interface's commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Packets given to the application or put into its queue.
    pub packets: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Interrupts that the adapter raised.
    pub interrupts: u64,
}

/// When an interface interrupts, and where and how its commands are handled.
///
/// [`Policy::interrupt_at`] is called whenever something has changed; the other methods follow a batch of
/// commands.
///
/// ```text
/// posted --> interrupt_at --> interrupted --> place --> proceed? .. proceed? --> finished --> place?
///            timer --> expired --> place?        idle --> place?
/// ```
pub trait Policy: Send {
    /// When the adapter may interrupt, in the current state; `None` while it may not. Called only while there are
    /// commands and none of them is being handled.
    fn interrupt_at(&mut self, now: Time, view: &View) -> Option<Time>;

    /// The interrupt was taken: where its commands are handled.
    fn interrupted(&mut self, _now: Time, _view: &View) -> Place {
        Place::Interrupt
    }

    /// Whether to handle one more command in this batch, of which `handled` are done.
    fn proceed(&mut self, now: Time, view: &View, handled: u64) -> bool;

    /// The batch is done: where to continue at once, if at all.
    fn finished(&mut self, _now: Time, _view: &View, _handled: u64) -> Option<Place> {
        None
    }

    /// When [`Policy::expired`] is to be called.
    fn timer(&self) -> Option<Time> {
        None
    }

    /// The timer has expired: whether it causes a clock interrupt on the CPU, and where commands are then handled.
    fn expired(&mut self, _now: Time, _view: &View) -> Expired {
        Expired::Nothing
    }

    /// The host has nothing else to do: where to handle commands, if anywhere.
    fn idle(&mut self, _now: Time, _view: &View) -> Option<Place> {
        None
    }

    /// Whether the host polls the interface continuously, so that it is never idle.
    fn spins(&self) -> bool {
        false
    }

    /// Whether the application does the protocol processing itself.
    fn is_lazy(&self) -> bool {
        false
    }
}

/// Effect of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Nothing on the CPU: it was the adapter's timer, or only the policy's state changed.
    Nothing,
    /// Only a clock interrupt.
    Clock,
    /// A clock interrupt, then a batch at this place.
    ClockThen(Place),
}

/// Which packets are admitted.
pub trait Admission: Send {
    /// Whether `packet` may have a buffer.
    fn admits(&mut self, now: Time, packet: &Packet, view: &View) -> bool;
}

/// A machine with nothing but `reception` on one CPU, named `cpu` in the books. Packets of interface `i` arrive at
/// port `i` and leave at port `i`.
pub fn alone(cpu: ResourceId, reception: Reception) -> Machine {
    let options = resource::Options {
        units: 1,
        discipline: Discipline::Priority,
        context_switch: Duration::ZERO,
        interrupt: Duration::ZERO,
    };
    let cpu = ResourceOptions { id: cpu, options, per_byte: PerByte::ZERO };
    Machine::new(&[cpu], Vec::new(), Vec::new()).receiving(0, reception, None)
}

#[cfg(test)]
mod tests;
