//! Edges from outputs to inputs, and the packets in flight on them.
//!
//! ```text
//! [ Edge | Edge | Edge | ... ]       read for each packet that is sent, and never written
//!     |             `------------ an edge whose packets wait elsewhere has no flight
//!     v
//! [ Flight | Flight | ... ]          the packets in flight; one event for the first arrival
//! ```

use crate::PortId;
use crate::events::{Event, Events, Key, Prefetch, Target};
use lastmeter_base::{Duration, Packet, StageId, prefetch};
use std::collections::VecDeque;

/// An output joined to an input, at once or after a constant delay. Two take one cache line.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Edge {
    pub(crate) delay: Duration,
    /// The ledger's stage for the delay, or [`NO_STAGE`].
    pub(crate) stage: StageId,
    /// Its flight, in the partition where it ends; [`NO_FLIGHT`] where its packets wait elsewhere.
    pub(crate) flight: u32,
    pub(crate) to: End,
}

const _: () = assert!(size_of::<Edge>() == 32);
/// No stage; real ones have smaller numbers.
pub(crate) const NO_STAGE: StageId = StageId(u32::MAX);
pub(crate) const NO_FLIGHT: u32 = u32::MAX;

/// Where an edge leads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// An input of an element of this partition, by local number.
    Here(u32, PortId),
    /// The same of an edge without delay, stage or trace from an element that does not run ahead: what is sent without
    /// a departure of its own is received as soon as the handler returns.
    Next(u32, PortId),
    /// An input of an element that may run ahead, by the number of its arrivals.
    Ahead(u32, PortId),
    /// An input of an element of this partition where packets end.
    Last(u32, PortId),
    /// Another partition.
    There(u16),
    /// Not connected: packets are dropped and counted.
    Nowhere,
}

/// The packets in flight on an edge that ends in this partition. It takes one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Flight {
    pub(crate) to: End,
    pub(crate) prefetch: Prefetch,
    /// The oldest packet, for whose arrival there is an event. Most edges of a large graph have no other.
    pub(crate) first: Option<Packet>,
    /// Those behind it, oldest first; all of them, if their element may run ahead.
    pub(crate) rest: VecDeque<(Key, Packet)>,
    /// The next flight in its bucket of [`Arrivals`](crate::arrivals::Arrivals).
    pub(crate) next: u32,
}

const _: () = assert!(size_of::<Flight>() == 64);

/// A packet on its way to another partition, or to an element that may run ahead.
#[derive(Debug)]
pub(crate) struct Crossing {
    /// Of the partition where it ends.
    pub(crate) flight: u32,
    pub(crate) due: Key,
    pub(crate) packet: Packet,
}

impl Edge {
    /// One that leads nowhere.
    pub(crate) const NOWHERE: Edge =
        Edge { delay: Duration::ZERO, stage: NO_STAGE, flight: NO_FLIGHT, to: End::Nowhere };

    /// What its element sends without a departure of its own is received next, if nothing else has to be done.
    pub(crate) fn pass_on(&mut self) {
        if let End::Here(to, input) = self.to
            && self.delay.is_zero()
            && self.stage == NO_STAGE
        {
            self.to = End::Next(to, input);
        }
    }
}

impl Flight {
    /// One on which there is nothing.
    pub(crate) fn new(to: End, prefetch: Prefetch) -> Flight {
        let rest = VecDeque::new();
        Flight { to, prefetch, first: None, rest, next: NO_FLIGHT }
    }

    /// The input at its end.
    #[inline(always)]
    pub(crate) fn input(&self) -> PortId {
        match self.to {
            End::Here(_, input) | End::Ahead(_, input) | End::Last(_, input) => input,
            End::Next(..) | End::There(_) | End::Nowhere => {
                unreachable!("a flight ends in this partition")
            }
        }
    }

    /// Number of packets in flight.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Adds a packet; there is one event for the whole flight. `index` is its own.
    #[inline]
    pub(crate) fn fly(&mut self, index: u32, due: Key, packet: Packet, events: &mut Events) {
        if self.first.is_none() {
            events.push(Event { key: due, target: Target::flight(index, self.prefetch) });
            self.first = Some(packet);
            return;
        }
        debug_assert!(self.rest.back().is_none_or(|&(last, _)| last.at() <= due.at()));
        self.rest.push_back((due, packet));
    }

    /// The oldest packet arrives; returns it, and the arrival of the next one.
    #[inline]
    pub(crate) fn land(&mut self) -> (Packet, Option<Key>) {
        let packet = self.first.take().expect("a flight with an event has a packet");
        let Some((due, next)) = self.rest.pop_front() else { return (packet, None) };
        if self.rest.is_empty() {
            // Restart at the beginning: a ring with few packets stays in few cache lines.
            self.rest.clear();
        }
        self.first = Some(next);
        (packet, Some(due))
    }

    /// Prefetches the next arriving packet, and the arrival time of the one after it.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        self.first.iter().for_each(Packet::prefetch);
        self.rest.front().into_iter().for_each(prefetch);
    }
}
