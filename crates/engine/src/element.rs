//! Elements, and their reports at the end of a run.

use crate::run::Levels;
use crate::{Context, Level, Meter, Series};
use lastmeter_base::{FlowId, NodeId, Packet, PathId, Time};

/// An element of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementId(pub u32);
/// A port of an element; inputs and outputs are numbered separately, each from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);
/// A timer of an element, from 0 to below [`Element::timers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub u32);

impl TimerId {
    /// Passed to `expire` of an element that takes input when a live clock woke up for input instead of a
    /// deadline.
    pub const INPUT: TimerId = TimerId(u32::MAX);
}

/// Something with numbered ports that reacts to packets and to its own timers.
///
/// A handler runs to completion at one instant, `cx.now()`. It never blocks, never reads a clock
/// and never calls another element: what it sends is delivered after it returns, in order.
///
/// ```
/// use lastmeter_base::Packet;
/// use lastmeter_engine::{Context, Element, PortId};
///
/// /// Passes packets on unchanged.
/// struct Null;
/// impl Element for Null {
///     fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
///         cx.send(PortId(0), packet);
///     }
/// }
/// ```
pub trait Element: Send {
    /// A packet arrived on input `port`.
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, packet: Packet);

    /// Called once, before the first packet, at [`Time::START`].
    fn start(&mut self, _cx: &mut Context<'_>) {}

    /// A timer that was set with [`Context::arm`] has expired.
    ///
    /// A wall clock may wake up late, and then several deadlines are handled in sequence. Each still runs at
    /// the instant at which it was due, so that lateness only shifts departures. Compute the next deadline
    /// from the last one.
    fn expire(&mut self, _cx: &mut Context<'_>, timer: TimerId) {
        unreachable!("{timer:?} was never armed")
    }

    /// Announces an event a few events ahead, so that the element can prefetch the memory that it will need
    /// (`lastmeter_base::prefetch`). It changes nothing, and is called as [`Element::foresees`] requests.
    /// Returns the output through which it will send, if known.
    fn foresee(&self, _next: Foreseen<'_>, _look: Look) -> Option<PortId> {
        None
    }

    /// How early to call [`Element::foresee`]: worthwhile if an element has far more state than a processor's
    /// caches hold. An element that runs ahead, and has many outputs, is asked for each packet in any case.
    fn foresees(&self) -> Foresight {
        Foresight::None
    }

    /// The destination of the packet that its timer sends next, if already decided, so that its receiver can
    /// prefetch.
    fn sends_next(&self) -> Option<NodeId> {
        None
    }

    /// Whether it may run ahead of the others: be given packets before they are due, in a batch, each at its own
    /// instant. This applies if every edge into it has a delay: arrivals within the shortest of these are known.
    /// It must share no mutable state with other elements. What it sends is an event of its own even if it
    /// arrives at the same instant.
    fn runs_ahead(&self) -> bool {
        false
    }

    /// Whether it only passes packets on: all that it does happens as it receives one, it has no timers, and it shares
    /// no mutable state with other elements. Such an element runs ahead together with those to which it sends without
    /// delay if these are all alike, and nothing else sends to them; within them what arrives at the same instant is
    /// received at once.
    fn passes_on(&self) -> bool {
        false
    }

    /// Whether packets end here: whether received packets are delivered or dropped, and change nothing but its
    /// report. Then it may be given packets after they were due, each at its own instant. If a flow ends at such
    /// an element and at others, its jitter may be recorded in another order.
    fn is_end(&self) -> bool {
        false
    }

    /// Number of timers: one for each resource that it serves.
    fn timers(&self) -> u32 {
        1
    }

    /// Whether it handles few packets for its many outputs, as an element that only sends notifications: then
    /// these do not count as load when a graph is partitioned.
    fn is_seldom_busy(&self) -> bool {
        false
    }

    /// Whether it is notified of a live clock's input, with [`TimerId::INPUT`]: only ports are.
    fn takes_input(&self) -> bool {
        false
    }

    /// Counters, the packets still held, and the use of the element's resources.
    fn report(&self, _out: &mut Report) {}
}

/// How early an element prefetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Foresight {
    /// Not at all.
    #[default]
    None,
    /// One event ahead: a [`Look::Last`]. The element itself, and the engine's data on it, are in a cache
    /// anyway: there are few elements, or each handles many events in a row.
    Next,
    /// Some events ahead: a [`Look::First`]. Before that the engine prefetches the element.
    Early,
    /// Both: the first prefetch brings the pointers for the second. For thousands of elements, each with tens
    /// of events between two of its own.
    Steps,
}

/// The stage of an element's prefetch for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// What it reads may not be in a cache yet.
    First,
    /// What it prefetched first has arrived.
    Last,
}

/// An upcoming event of an element.
#[derive(Clone, Copy, Debug)]
pub enum Foreseen<'a> {
    /// It will receive this packet on this input.
    Packet(PortId, &'a Packet),
    /// One of its timers will expire.
    Timer,
    /// A timer of an element that sends to it without delay will expire; the packet's destination, if known.
    Neighbour(Option<NodeId>),
}

/// An element's report at the end of a run.
#[derive(Debug, Default)]
pub struct Report {
    pub(crate) now: Time,
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    pub(crate) counters: Vec<(&'static str, u64)>,
    pub(crate) meters: Vec<Meter>,
    pub(crate) levels: Levels,
    pub(crate) series: Vec<(&'static str, &'static str, Series)>,
    pub(crate) transfers: Vec<Transfer>,
}

/// What became of a transfer that one end knows from start to finish, such as a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Its path: the traffic it belongs to.
    pub path: PathId,
    /// Its flow.
    pub flow: FlowId,
    /// When it began.
    pub began: Time,
    /// When its last byte was known to have arrived; `None` if that was not yet at the end of the run.
    pub completed: Option<Time>,
    /// Bytes known to have arrived.
    pub bytes: u64,
}

impl Report {
    /// When the run ended.
    pub fn now(&self) -> Time {
        self.now
    }
    /// Reports `packets` as still held: in a queue, in service, in flight.
    pub fn held(&mut self, packets: u64) {
        self.held += packets;
    }
    /// Reports `packets` as waiting here that were already sent, to depart later: they show here, and the edge
    /// that they are on accounts for them.
    pub fn waiting(&mut self, packets: u64) {
        self.waiting += packets;
    }
    /// A counter or gauge, for people and programs to read.
    pub fn count(&mut self, name: &'static str, value: u64) {
        self.counters.push((name, value));
    }
    /// How long a quantity had which value, with its unit: `ps` for a time, else a word.
    pub fn level(&mut self, name: &'static str, unit: &'static str, level: &Level) {
        self.levels.push((name, unit, level.until(self.now)));
    }
    /// A quantity over time, and its unit: `ps` for a time, else a word.
    pub fn series(&mut self, name: &'static str, unit: &'static str, series: &Series) {
        self.series.push((name, unit, series.clone()));
    }
    /// A transfer of this element.
    pub fn transfer(&mut self, transfer: Transfer) {
        self.transfers.push(transfer);
    }
    /// The use of one unit of a resource during the run.
    pub fn meter(&mut self, meter: &Meter) {
        self.meters.push(meter.closed_at(self.now));
    }
}
