//! Packets on their way to an element that may run ahead (lookahead).
//!
//! ```text
//! now        shortest delay of its inputs
//! |--------------------------------------|
//!  known: no further arrivals            anything sent from now on
//! ```
//!
//! Nothing sent from now on arrives before the shortest delay of its inputs has passed, and nobody observes
//! what it does until its packets arrive. So it receives all packets due before then in one batch: one event
//! for all, and its state is in a near cache after the first.

use crate::events::{Event, Events, Key, Prefetch, Target};
use crate::world::{NOBODY, World};
use crate::{Element, Foreseen, Look, PortId};
use lastmeter_base::{Duration, Packet, Time};

/// The packets on their way to one element.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pub(crate) element: u32,
    /// The shortest delay of its inputs.
    delay: Duration,
    /// Whose event represents the first of them.
    event: Target,
    /// When that is due; [`Key::NEVER`] if there is none. Later ones may exist and are harmless.
    queued: Key,
    /// In order of arrival, if `is_sorted`.
    waiting: Vec<Arrival>,
    is_sorted: bool,
}

/// A packet, when it arrives, and where.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) due: Key,
    pub(crate) input: PortId,
    /// `None` when it has been received.
    pub(crate) packet: Option<Packet>,
}

impl Arrivals {
    /// `flight` is one of its own, which never carries a packet.
    pub(crate) fn new(element: u32, delay: Duration, flight: u32, prefetch: Prefetch) -> Arrivals {
        let (event, queued) = (Target::flight(flight, prefetch), Key::NEVER);
        Arrivals { element, delay, event, queued, waiting: Vec::new(), is_sorted: true }
    }

    /// Puts a packet on its way.
    #[inline]
    pub(crate) fn put(&mut self, arrival: Arrival, events: &mut Events) {
        let due = arrival.due;
        self.is_sorted &= self.waiting.last().is_none_or(|last| last.due < due);
        self.waiting.push(arrival);
        self.queue(due, events);
    }

    #[inline]
    fn queue(&mut self, due: Key, events: &mut Events) {
        if due < self.queued {
            self.queued = due;
            events.push(Event { key: due, target: self.event });
        }
    }

    /// Its event is due; returns its arrivals in order, and how many of them come before anything not yet known
    /// and by `last`. `None` if an earlier event has superseded it.
    pub(crate) fn begin(&mut self, key: Key, last: Time) -> Option<(Vec<Arrival>, usize)> {
        if key != self.queued {
            return None;
        }
        self.queued = Key::NEVER;
        let mut waiting = std::mem::take(&mut self.waiting);
        if !std::mem::replace(&mut self.is_sorted, true) {
            waiting.sort_unstable_by_key(|arrival| arrival.due);
        }
        let end = key.at() + self.delay;
        let is_known = |arrival: &&Arrival| arrival.due.at() < end && arrival.due.at() <= last;
        let known = waiting.iter().take_while(is_known).count();
        Some((waiting, known))
    }

    /// The first `received` of those from [`Arrivals::begin`] are done; the others are due later.
    pub(crate) fn end(&mut self, mut waiting: Vec<Arrival>, received: usize, events: &mut Events) {
        waiting.drain(..received);
        let first = waiting.first().map(|next| next.due);
        // Packets that it has sent to itself.
        for arrival in std::mem::replace(&mut self.waiting, waiting) {
            self.put(arrival, events);
        }
        first.into_iter().for_each(|due| self.queue(due, events));
    }

    /// Prefetches the first packets.
    pub(crate) fn prefetch(&self) {
        self.waiting.iter().take(PACKET).for_each(Arrival::prefetch);
    }

    /// Whether its element prefetches at the last moment for each packet.
    pub(crate) fn looks_again(&self) -> bool {
        self.event.prefetch.late()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Arrival {
    #[inline(always)]
    fn prefetch(&self) {
        self.packet.iter().for_each(Packet::prefetch);
    }
}

/// How many packets ahead each step of a prefetch is done, each step following a pointer from the previous
/// one: the packet, its element's first and second prefetch, and the edge that it will take.
const PACKET: usize = 10;
const FORESEEN: usize = 6;
const FORESEEN_AGAIN: usize = 3;

/// The output edges of packets between their first and last prefetch.
pub(crate) type Sends = [u32; FORESEEN - FORESEEN_AGAIN];

/// An element that runs ahead.
#[derive(Clone, Copy)]
pub(crate) struct Runner<'a> {
    pub(crate) me: usize,
    pub(crate) element: &'a dyn Element,
    /// Whether it prefetches at the last moment for each packet.
    pub(crate) looks_again: bool,
}

impl Runner<'_> {
    #[inline(always)]
    fn last_look(self, arrival: &Arrival) {
        if self.looks_again
            && let Some(packet) = &arrival.packet
        {
            self.element.foresee(Foreseen::Packet(arrival.input, packet), Look::Last);
        }
    }
}

impl World {
    /// Prefetches what an element needs first when it starts to run ahead.
    pub(crate) fn begin_look_ahead(&self, next: &[Arrival], runner: Runner<'_>) -> Sends {
        let mut sends = [NOBODY; FORESEEN - FORESEEN_AGAIN];
        next.iter().take(PACKET).for_each(Arrival::prefetch);
        for (place, arrival) in next.iter().take(FORESEEN).enumerate() {
            sends[place % sends.len()] = self.first_look(arrival, runner);
        }
        next.iter().take(FORESEEN_AGAIN).for_each(|arrival| runner.last_look(arrival));
        sends
    }

    /// Advances the prefetch of each later packet by one step.
    #[inline(always)]
    pub(crate) fn look_ahead_of(&self, next: &[Arrival], runner: Runner<'_>, sends: &mut Sends) {
        next.get(PACKET).into_iter().for_each(Arrival::prefetch);
        next.get(FORESEEN_AGAIN).into_iter().for_each(|arrival| runner.last_look(arrival));
        self.prefetch_flight(sends[0]);
        sends[0] = next.get(FORESEEN).map_or(NOBODY, |arrival| self.first_look(arrival, runner));
        sends.rotate_left(1);
    }

    /// Returns the edge along which the packet will be sent, and prefetches it.
    #[inline(always)]
    fn first_look(&self, arrival: &Arrival, runner: Runner<'_>) -> u32 {
        let Some(packet) = &arrival.packet else { return NOBODY };
        let next = Foreseen::Packet(arrival.input, packet);
        let output = runner.element.foresee(next, Look::First);
        self.prefetch_edge(runner.me, output.map_or(0, |output| output.0.into()))
    }
}
