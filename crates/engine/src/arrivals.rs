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

use crate::edges::{Crossing, Edge, End, Flight, NO_FLIGHT};
use crate::events::{Event, Events, Key, Prefetch, Target};
use crate::world::{NOBODY, World};
use crate::{Element, Foreseen, Look, PortId};
use lastmeter_base::{Duration, Packet, Time, prefetch_lines};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is on its way to one element.
///
/// ```text
///                  flights: their packets, each in order
///                    |         |    |
/// [ begun ]  [ bucket | bucket | ... | bucket ]  [ far ]
/// due soonest                           due latest
/// ```
///
/// Each flight is in the bucket, by time, in which its first packet is due; several buckets go into the shortest delay
/// of an input. There is one event, at the start of the first bucket that is not empty: what is sent from then on
/// arrives a delay later, so the buckets until then are begun together. Only packets of several flights in one
/// bucket are sorted.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pub(crate) runner: Runner,
    /// Whose event represents the first of them.
    event: Target,
    /// When that is due; [`Key::NEVER`] if there is none. Later ones may exist and are harmless.
    queued: Key,
    /// Log2 of the width of a bucket in picoseconds.
    shift: u32,
    /// The first bucket, in widths.
    first: u64,
    /// The shortest delay in picoseconds.
    delay: u64,
    /// Due in buckets before the first, and not received yet; in order, if `is_sorted`.
    begun: Vec<Arrival>,
    is_sorted: bool,
    /// The first flight of each bucket, or [`NO_FLIGHT`]; each leads to the next. A power of two of them.
    buckets: Vec<u32>,
    /// Which of them are not empty.
    filled: Vec<u64>,
    /// Flights whose first packet is due beyond the last bucket, by time.
    far: BinaryHeap<Reverse<(u64, u32)>>,
    /// Flights from other partitions whose first packet is due in a bucket that has begun.
    late: Vec<u32>,
}

/// At least so many buckets go into the shortest delay.
const BUCKETS_IN_DELAY: u64 = 8;
/// Fewest and most buckets.
const BUCKETS_LEAST: u64 = 64;
const BUCKETS_MOST: u64 = 4096;

/// A packet, when it arrives, and where.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) due: Key,
    pub(crate) input: PortId,
    /// `None` when it has been received.
    pub(crate) packet: Option<Packet>,
}

impl Arrivals {
    /// For inputs with these shortest and longest delays; `event` is a flight of its own, which never carries a packet.
    pub(crate) fn new(
        runner: Runner,
        (shortest, longest): (Duration, Duration),
        event: u32,
        prefetch: Prefetch,
    ) -> Arrivals {
        let delay = shortest.as_ps();
        let shift = (delay / BUCKETS_IN_DELAY).max(1).ilog2();
        // A packet may wait before the delay.
        let buckets = (longest.as_ps() >> shift).saturating_mul(2);
        let buckets = buckets.clamp(BUCKETS_LEAST, BUCKETS_MOST).next_power_of_two() as usize;
        Arrivals {
            runner,
            event: Target::flight(event, prefetch),
            queued: Key::NEVER,
            shift,
            first: 0,
            delay,
            begun: Vec::new(),
            is_sorted: true,
            buckets: vec![NO_FLIGHT; buckets],
            filled: vec![0; buckets / 64],
            far: BinaryHeap::new(),
            late: Vec::new(),
        }
    }

    #[inline(always)]
    fn place(&self, bucket: u64) -> usize {
        bucket as usize & (self.buckets.len() - 1)
    }
    #[inline(always)]
    fn start_of(&self, bucket: u64) -> Key {
        Key::new(Time::from_ps(bucket << self.shift), 0)
    }

    /// Puts a packet on its flight to this element, `now` or before now.
    #[inline]
    pub(crate) fn put(
        &mut self,
        now: Time,
        Crossing { flight, due, packet }: Crossing,
        flights: &mut [Flight],
        events: &mut Events,
    ) {
        let state = &mut flights[flight as usize];
        debug_assert!(state.rest.back().is_none_or(|&(last, _)| last < due));
        state.rest.push_back((due, packet));
        if state.rest.len() == 1 {
            // If it was sent by another partition, its bucket may have started.
            let key = self.enter(flight, due, flights).max(Key::new(now, 0));
            self.queue(key, events);
        }
    }

    /// Puts a flight into the bucket of its first packet; returns when it needs an event.
    fn enter(&mut self, flight: u32, due: Key, flights: &mut [Flight]) -> Key {
        let bucket = due.at().as_ps() >> self.shift;
        if bucket < self.first {
            self.late.push(flight);
            return due;
        }
        if bucket - self.first < self.buckets.len() as u64 {
            let place = self.place(bucket);
            self.filled[place / 64] |= 1 << (place % 64);
            flights[flight as usize].next = std::mem::replace(&mut self.buckets[place], flight);
        } else {
            self.far.push(Reverse((due.at().as_ps(), flight)));
        }
        self.start_of(bucket)
    }

    #[inline]
    fn queue(&mut self, due: Key, events: &mut Events) {
        if due < self.queued {
            self.queued = due;
            events.push(Event { key: due, target: self.event });
        }
    }

    /// Its event is due; returns arrivals before anything not yet known, in order, and how many of them are due by
    /// `last`. `None` if an earlier event has superseded it.
    pub(crate) fn begin(
        &mut self,
        key: Key,
        last: Time,
        flights: &mut [Flight],
    ) -> Option<(Vec<Arrival>, usize)> {
        if key != self.queued {
            return None;
        }
        self.queued = Key::NEVER;
        for flight in std::mem::take(&mut self.late) {
            self.is_sorted = false;
            self.take(flight, flights);
        }
        if self.begun.is_empty() {
            // Those before are empty.
            self.first = key.at().as_ps() >> self.shift;
            let end = key.at().as_ps().saturating_add(self.delay) >> self.shift;
            self.take_near(flights);
            while let Some(bucket) = self.next_filled().filter(|&bucket| bucket < end) {
                self.take_bucket(bucket, end, flights);
            }
        }
        let mut begun = std::mem::take(&mut self.begun);
        if !std::mem::replace(&mut self.is_sorted, true) {
            begun.sort_unstable_by_key(|arrival| arrival.due);
        }
        let due = match begun.last() {
            Some(latest) if latest.due.at() > last => {
                begun.partition_point(|arrival| arrival.due.at() <= last)
            }
            _ => begun.len(),
        };
        Some((begun, due))
    }

    /// Puts flights into buckets that are no longer beyond the last one.
    fn take_near(&mut self, flights: &mut [Flight]) {
        let end = self.first + self.buckets.len() as u64;
        while let Some(&Reverse((at, flight))) = self.far.peek()
            && at >> self.shift < end
        {
            self.far.pop();
            self.enter(flight, Key::new(Time::from_ps(at), 0), flights);
        }
    }

    /// Begins a bucket; if only one flight is there, all that it brings before the next bucket or before that at `end`.
    fn take_bucket(&mut self, bucket: u64, end: u64, flights: &mut [Flight]) {
        let place = self.place(bucket);
        self.filled[place / 64] &= !(1 << (place % 64));
        let mut next = std::mem::replace(&mut self.buckets[place], NO_FLIGHT);
        let start = self.begun.len();
        let is_alone = flights[next as usize].next == NO_FLIGHT;
        self.first = bucket + 1;
        if is_alone {
            self.first = self.next_filled().map_or(end, |filled| filled.min(end));
        }
        while next != NO_FLIGHT {
            let flight = next;
            next = std::mem::replace(&mut flights[flight as usize].next, NO_FLIGHT);
            self.take(flight, flights);
        }
        if !is_alone {
            self.begun[start..].sort_unstable_by_key(|arrival| arrival.due);
        }
    }

    /// Takes what a flight brings before the first bucket, and puts it into the bucket of its next packet.
    #[inline]
    fn take(&mut self, flight: u32, flights: &mut [Flight]) {
        let (state, end, shift) = (&mut flights[flight as usize], self.first, self.shift);
        let (End::Ahead(_, input) | End::Here(_, input)) = state.to else { return };
        while let Some((due, packet)) =
            state.rest.pop_front_if(|next| next.0.at().as_ps() >> shift < end)
        {
            self.begun.push(Arrival { due, input, packet: Some(packet) });
        }
        match state.rest.front() {
            Some(&(due, _)) => {
                self.enter(flight, due, flights);
            }
            // Restart at the beginning: a ring with few packets stays in few cache lines.
            None => state.rest.clear(),
        }
    }

    /// The first `received` of those from [`Arrivals::begin`] are done; the others are due later.
    pub(crate) fn end(&mut self, mut begun: Vec<Arrival>, received: usize, events: &mut Events) {
        if received < begun.len() {
            begun.drain(..received);
            self.queue(begun[0].due, events);
        } else {
            begun.clear();
            let far = self.far.peek().map(|&Reverse((at, _))| at >> self.shift);
            if let Some(next) = self.next_filled().or(far) {
                self.queue(self.start_of(next), events);
            }
        }
        // Its memory is used again.
        self.begun = begun;
    }

    /// The first bucket that is not empty.
    fn next_filled(&self) -> Option<u64> {
        let (words, start) = (self.filled.len(), self.place(self.first));
        let before = (1_u64 << (start % 64)) - 1;
        // The first word again at the end: its lowest buckets are the last.
        (0..=words).find_map(|ahead| {
            let word = self.filled[(start / 64 + ahead) & (words - 1)];
            let word = match ahead {
                0 => word & !before,
                _ if ahead == words => word & before,
                _ => word,
            };
            let place = ahead as u64 * 64 + u64::from(word.trailing_zeros());
            (word != 0).then(|| self.first - start as u64 % 64 + place)
        })
    }

    /// Prefetches the first packets.
    pub(crate) fn prefetch(&self, flights: &[Flight]) {
        self.begun.iter().take(PACKET).for_each(Arrival::prefetch);
        let place = self.next_filled().map(|next| self.place(next));
        let first = place.and_then(|place| flights.get(self.buckets[place] as usize));
        let first = first.into_iter().flat_map(|flight| &flight.rest);
        first.take(PACKET).for_each(|(_, packet)| packet.prefetch());
    }

    /// How many have begun; the others are on their flights.
    pub(crate) fn len(&self) -> usize {
        self.begun.len()
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner {
    pub(crate) me: usize,
    /// Whether it is asked for the output of each packet in advance, and whether it prefetches at the last moment.
    pub(crate) looks: bool,
    pub(crate) looks_again: bool,
}

impl Runner {
    #[inline(always)]
    fn last_look(self, arrival: Option<&Arrival>, elements: &[Box<dyn Element>]) {
        if self.looks_again
            && let Some(Arrival { input, packet: Some(packet), .. }) = arrival
        {
            elements[self.me].foresee(Foreseen::Packet(*input, packet), Look::Last);
        }
    }
}

impl World {
    /// Prefetches what an element needs first when it starts to run ahead.
    pub(crate) fn begin_look_ahead(
        &self,
        next: &[Arrival],
        runner: Runner,
        elements: &[Box<dyn Element>],
    ) -> Sends {
        let mut sends = [NOBODY; FORESEEN - FORESEEN_AGAIN];
        next.iter().take(PACKET).for_each(Arrival::prefetch);
        for (place, arrival) in next.iter().take(FORESEEN).enumerate() {
            sends[place % sends.len()] = self.first_look(Some(arrival), runner, elements);
        }
        (0..FORESEEN_AGAIN).for_each(|place| runner.last_look(next.get(place), elements));
        sends
    }

    /// Advances the prefetch of each later packet by one step.
    #[inline(always)]
    pub(crate) fn look_ahead_of(
        &self,
        next: &[Arrival],
        runner: Runner,
        sends: &mut Sends,
        elements: &[Box<dyn Element>],
    ) {
        next.get(PACKET).into_iter().for_each(Arrival::prefetch);
        if !runner.looks {
            return;
        }
        runner.last_look(next.get(FORESEEN_AGAIN), elements);
        self.prefetch_next(sends[0], elements);
        sends[0] = self.first_look(next.get(FORESEEN), runner, elements);
        sends.rotate_left(1);
    }

    /// Returns the edge along which the packet will be sent, and prefetches it.
    #[inline(always)]
    fn first_look(
        &self,
        arrival: Option<&Arrival>,
        runner: Runner,
        elements: &[Box<dyn Element>],
    ) -> u32 {
        let Some(Arrival { input, packet: Some(packet), .. }) = arrival.filter(|_| runner.looks)
        else {
            return NOBODY;
        };
        let output = elements[runner.me].foresee(Foreseen::Packet(*input, packet), Look::First);
        self.prefetch_edge(runner.me, output.map_or(0, |output| output.0.into()))
    }

    /// Prefetches where a packet sent along an edge will be stored, or the element that receives it at once.
    #[inline(always)]
    fn prefetch_next(&self, edge: u32, elements: &[Box<dyn Element>]) {
        match self.edges.get(edge as usize) {
            Some(Edge { delay: Duration::ZERO, to: End::Here(to, _), .. }) => {
                prefetch_lines::<3, _>(&*elements[*to as usize]);
            }
            _ => self.prefetch_flight(edge),
        }
    }
}
