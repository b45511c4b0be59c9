//! What is on its way to an element that may run ahead.
//!
//! ```text
//! now        shortest delay of its inputs
//! |--------------------------------------|
//!  known: nothing comes between these     what is sent from now on
//! ```
//!
//! Nothing that is sent from now on comes to it before the shortest delay of its inputs has passed, and
//! nobody hears of what it does before that comes to them. So it is given what is due before then in a
//! row: one event for all, and what it needs is in a near cache after the first.

use crate::PortId;
use crate::events::{Asks, Event, Events, Key, Target};
use lastmeter_base::{Duration, Packet, Time};

/// The packets on their way to one element.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pub(crate) element: u32,
    /// The shortest delay of its inputs.
    delay: Duration,
    /// Whose event stands for the first of them.
    event: Target,
    /// When that is due; [`Key::NEVER`] if there is none. That there may be later ones does no harm.
    queued: Key,
    /// In the order in which they are due, if `is_sorted`.
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
    /// `edge` is one of its own, on which there is never a packet.
    pub(crate) fn new(element: u32, delay: Duration, edge: u32, asks: Asks) -> Arrivals {
        let (event, queued) = (Target::edge(edge, asks), Key::NEVER);
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

    /// An event of it is due; gives what is on its way in order, and how much of that comes before anything
    /// that is not known yet and by `last`. `None` if an earlier event has taken its place.
    pub(crate) fn begin(&mut self, key: Key, last: Time) -> Option<(Vec<Arrival>, usize)> {
        if key != self.queued {
            return None;
        }
        self.queued = Key::NEVER;
        let mut waiting = std::mem::take(&mut self.waiting);
        if !std::mem::replace(&mut self.is_sorted, true) {
            waiting.sort_unstable_by_key(|arrival| arrival.due);
        }
        let end = key.at().saturating_add(self.delay);
        let is_known = |arrival: &&Arrival| arrival.due.at() < end && arrival.due.at() <= last;
        let known = waiting.iter().take_while(is_known).count();
        Some((waiting, known))
    }

    /// The first `received` of what [`Arrivals::begin`] gave have been; the others are due later.
    pub(crate) fn end(&mut self, mut waiting: Vec<Arrival>, received: usize, events: &mut Events) {
        waiting.drain(..received);
        let first = waiting.first().map(|next| next.due);
        // What it has sent to itself.
        for arrival in std::mem::replace(&mut self.waiting, waiting) {
            self.put(arrival, events);
        }
        first.into_iter().for_each(|due| self.queue(due, events));
    }

    /// Asks for the first packets.
    pub(crate) fn prefetch(&self, packets: usize) {
        let first = self.waiting.iter().take(packets);
        first.filter_map(|arrival| arrival.packet.as_ref()).for_each(Packet::prefetch);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
