//! What an element is, and what it reports at the end.

use crate::{Context, Meter, Series};
use lastmeter_base::{NodeId, Packet, Time};

/// An element of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementId(pub u32);
/// A port of an element; inputs and outputs are numbered separately, each from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);
/// A timer of an element, from 0 to what [`Element::timers`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(pub u32);

impl TimerId {
    /// What `expire` of an element that takes input is told when a live clock woke up for input
    /// instead of for a deadline.
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
    /// A wall clock may wake up late, and then several deadlines are handled in a row. Each still
    /// runs at the instant at which it was due, so that lateness shifts departures and nothing else.
    /// Compute the next deadline from the last one.
    fn expire(&mut self, _cx: &mut Context<'_>, timer: TimerId) {
        unreachable!("{timer:?} was never armed")
    }

    /// What is going to happen to the element after a few other events, so that it may ask for the
    /// memory that it will need (`lastmeter_base::prefetch`). It changes nothing, and is called as
    /// [`Element::foresees`] says. Gives the output that it will send through, if it can tell.
    fn foresee(&self, _next: Foreseen<'_>, _look: Look) -> Option<PortId> {
        None
    }

    /// How early [`Element::foresee`] is worth its calls: where an element has far more state than a
    /// processor's caches hold.
    fn foresees(&self) -> Foresight {
        Foresight::None
    }

    /// Where the packet will go that its timer sends next, where it has decided that already: for whoever
    /// receives it at once and asks for memory early.
    fn sends_next(&self) -> Option<NodeId> {
        None
    }

    /// Whether it may run ahead of the others: whether it can be given packets before they are due, one
    /// after the other, each as if it came in its time. So it is where all that leads to it has a delay:
    /// what comes to it within the shortest of these is known. It must share nothing with other elements
    /// that any of them changes. What it sends is an event of its own even if it comes to its peer at the
    /// same instant.
    fn runs_ahead(&self) -> bool {
        false
    }

    /// Whether packets end here: whether what it receives is delivered or dropped, and changes nothing but
    /// what it reports. Then it may be given packets after they were due, each as if it came in its time. If a
    /// flow ends at such an element and at others, what its latency varies by may be told in another order.
    fn is_end(&self) -> bool {
        false
    }

    /// How many timers the element uses: one for each resource that it serves.
    fn timers(&self) -> u32 {
        1
    }

    /// Whether it handles few packets for so many outputs, as what only tells others what is new:
    /// then these do not count where a graph is cut into parts that shall take equally long.
    fn is_seldom_busy(&self) -> bool {
        false
    }

    /// Whether it is told of a live clock's input, with [`TimerId::INPUT`]: only ports are.
    fn takes_input(&self) -> bool {
        false
    }

    /// Counters, the packets still held, and what the element's resources did.
    fn report(&self, _out: &mut Report) {}
}

/// How early an element asks for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Foresight {
    /// Not at all.
    #[default]
    None,
    /// Just before: a [`Look::Last`]. The element itself, and what the engine knows of it, are in a cache
    /// anyway: there are few, or each handles many events in a row.
    Next,
    /// Some events before: a [`Look::First`]. Before that the engine asks for the element.
    Early,
    /// Both. What was asked for the first time says where the rest is. For thousands of elements, each
    /// with tens of events between two of its own.
    Steps,
}

/// Which look an element has at what is going to happen to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Whatever it reads may still be far from the processor.
    First,
    /// What it asked for at its first look has come.
    Last,
}

/// What is going to happen to an element.
#[derive(Clone, Copy, Debug)]
pub enum Foreseen<'a> {
    /// It will receive this packet on this input.
    Packet(PortId, &'a Packet),
    /// One of its timers will expire.
    Timer,
    /// A timer of whoever sends to it at once will expire, who may know where the packet will go.
    Neighbour(Option<NodeId>),
}

/// What an element says of itself at the end of a run.
#[derive(Debug, Default)]
pub struct Report {
    pub(crate) now: Time,
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    pub(crate) counters: Vec<(&'static str, u64)>,
    pub(crate) meters: Vec<Meter>,
    pub(crate) series: Vec<(&'static str, &'static str, Series)>,
}

impl Report {
    /// When the run ended.
    pub fn now(&self) -> Time {
        self.now
    }
    /// States that `packets` are still held: in a queue, in service, in flight.
    pub fn held(&mut self, packets: u64) {
        self.held += packets;
    }
    /// States that `packets` wait here that have been sent on already, to depart later: whoever asks
    /// finds them here, and the edge that they are on accounts for them.
    pub fn waiting(&mut self, packets: u64) {
        self.waiting += packets;
    }
    /// A counter or gauge, for people and programs to read.
    pub fn count(&mut self, name: &'static str, value: u64) {
        self.counters.push((name, value));
    }
    /// How a quantity went over time, and its unit: `ps` for a time, else a word.
    pub fn series(&mut self, name: &'static str, unit: &'static str, series: &Series) {
        self.series.push((name, unit, series.clone()));
    }
    /// What one unit of a resource did during the run.
    pub fn meter(&mut self, meter: &Meter) {
        self.meters.push(meter.closed_at(self.now));
    }
}
