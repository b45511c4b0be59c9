//! Outputs joined to inputs, and what is on its way between them.
//!
//! ```text
//! [ Edge | Edge | Edge | ... ]       read for each packet that is sent, and never written
//!     |             `------------ an edge to where packets wait otherwise needs no more
//!     v
//! [ Flight | Flight | ... ]          the packets on their way; an event says when the first arrives
//! ```

use crate::PortId;
use crate::events::{Asks, Event, Events, Key, Target};
use lastmeter_base::{Duration, Packet, StageId, prefetch};
use std::collections::VecDeque;

/// An output joined to an input, at once or after a constant delay. Two take one cache line.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Edge {
    pub(crate) delay: Duration,
    /// The ledger's name for the delay, or [`NO_STAGE`].
    pub(crate) stage: StageId,
    /// Where packets are on their way along it, in the part where it ends; [`NO_FLIGHT`] where they wait
    /// otherwise.
    pub(crate) flight: u32,
    pub(crate) to: End,
}

const _: () = assert!(size_of::<Edge>() == 32);
/// No delay that the ledger knows; stages have smaller numbers.
pub(crate) const NO_STAGE: StageId = StageId(u32::MAX);
pub(crate) const NO_FLIGHT: u32 = u32::MAX;

/// Where an edge leads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// An input of an element of this partition, by local number.
    Here(u32, PortId),
    /// An input of an element that may run ahead, by the number of its arrivals.
    Ahead(u32, PortId),
    /// An input of an element of this partition where packets end.
    Last(u32, PortId),
    /// Another partition.
    There(u16),
    /// Nowhere: what is sent is dropped and counted.
    Nowhere,
}

/// What is on its way along an edge that ends in this partition. It takes one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Flight {
    pub(crate) to: End,
    pub(crate) asks: Asks,
    /// The oldest packet; an event says when it arrives. Most edges of a large graph have no other.
    pub(crate) first: Option<Packet>,
    /// Those behind it, oldest first.
    pub(crate) rest: VecDeque<(Key, Packet)>,
}

const _: () = assert!(size_of::<Flight>() == 64);

/// A packet that crosses to another partition.
#[derive(Debug)]
pub(crate) struct Crossing {
    /// Of that partition.
    pub(crate) flight: u32,
    pub(crate) due: Key,
    pub(crate) packet: Packet,
}

impl Edge {
    /// One that leads nowhere.
    pub(crate) const NOWHERE: Edge =
        Edge { delay: Duration::ZERO, stage: NO_STAGE, flight: NO_FLIGHT, to: End::Nowhere };
}

impl Flight {
    /// One on which there is nothing.
    pub(crate) fn new(to: End, asks: Asks) -> Flight {
        Flight { to, asks, first: None, rest: VecDeque::new() }
    }

    /// How many packets are on their way.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    /// Puts a packet on its way; one event stands for all that are on it. `index` is its own.
    #[inline]
    pub(crate) fn fly(&mut self, index: u32, due: Key, packet: Packet, events: &mut Events) {
        if self.first.is_none() {
            events.push(Event { key: due, target: Target::flight(index, self.asks) });
            self.first = Some(packet);
            return;
        }
        debug_assert!(self.rest.back().is_none_or(|&(last, _)| last.at() <= due.at()));
        self.rest.push_back((due, packet));
    }

    /// The oldest packet on its way arrives; gives it, and when the next one will.
    #[inline]
    pub(crate) fn land(&mut self) -> (Packet, Option<Key>) {
        let packet = self.first.take().expect("a flight's event stands for a packet");
        let Some((due, next)) = self.rest.pop_front() else { return (packet, None) };
        if self.rest.is_empty() {
            // From the beginning again: a ring that few are on stays in few lines of a cache.
            self.rest.clear();
        }
        self.first = Some(next);
        (packet, Some(due))
    }

    /// Asks for the next packet that arrives, and for what says when the one behind it will.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        self.first.iter().for_each(Packet::prefetch);
        self.rest.front().into_iter().for_each(prefetch);
    }
}
