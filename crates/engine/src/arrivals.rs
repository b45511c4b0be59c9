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
///                    flights: their packets, each in order
///                      |         |    |
/// [ waiting ]  [ bucket | bucket | ... | bucket ]  [ far ]
///              due soonest                due latest
/// ```
///
/// A few packets wait in one list, which is sorted when the first is due. If there are more, or if one input has a far
/// longer delay than another, they are on flights, and each flight is in the bucket, by time, in which its first packet
/// is due; several buckets go into the shortest delay of an input. The event is at the start of the first such bucket:
/// what is sent from then on arrives a delay later, so the buckets until then are received together, and only packets
/// of several flights in one bucket are sorted.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Most that wait in one list, and for how many picoseconds.
    waits_most: usize,
    soon: u64,
    waiting: Vec<Arrival>,
    /// Whether those are in order.
    is_sorted: bool,
    /// Log2 of the width of a bucket in picoseconds.
    shift: u32,
    /// The first bucket, in widths.
    first: u64,
    /// When its event is due; [`Key::NEVER`] if there is none. Later ones may exist and are harmless.
    queued: Key,
    event: Target,
    pub(crate) runner: Runner,
    /// The shortest delay in picoseconds.
    delay: u64,
    /// The first flight of each bucket, or [`NO_FLIGHT`]; each leads to the next. A power of two of them.
    buckets: Vec<u32>,
    /// Which of them are not empty.
    filled: Vec<u64>,
    /// Flights whose first packet is due beyond the last bucket, by time.
    far: BinaryHeap<Reverse<(u64, u32)>>,
    /// Flights in buckets and beyond.
    flying: usize,
    /// How often it has begun since the last review, and how many packets were received.
    batches: u64,
    received: u64,
}

/// Most that wait in one list, and for how many of the shortest delays: it may be sorted once each.
const WAITS_MOST: usize = 256;
const WAITS_FOR: u64 = 8;
/// None do if the longest delay of an input is so many times the shortest: then most packets are due far ahead.
const DELAYS_DIFFER: u64 = 4;
/// Batches between two reviews, and how many packets they must have on average: fewer are cheaper as events.
const BATCHES: u64 = 4096;
const EACH_LEAST: u64 = 3;
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
    flight: u32,
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
        let differ = longest.as_ps() / DELAYS_DIFFER >= delay;
        Arrivals {
            waits_most: if differ { 0 } else { WAITS_MOST },
            soon: delay.saturating_mul(WAITS_FOR),
            waiting: Vec::new(),
            is_sorted: true,
            shift,
            first: 0,
            queued: Key::NEVER,
            event: Target::flight(event, prefetch),
            runner,
            delay,
            buckets: vec![NO_FLIGHT; buckets],
            filled: vec![0; buckets / 64],
            far: BinaryHeap::new(),
            flying: 0,
            batches: 0,
            received: 0,
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

    /// Puts a packet that was sent `now` or before on its way to an input.
    #[inline]
    pub(crate) fn put(
        &mut self,
        (now, input): (Time, PortId),
        Crossing { flight, due, packet }: Crossing,
        flights: &mut [Flight],
        events: &mut Events,
    ) {
        let at = due.at().as_ps();
        let soon = now.as_ps().saturating_add(self.soon);
        // A packet from another partition may be due in a bucket that has been taken.
        if (self.waiting.len() < self.waits_most && at < soon) || at >> self.shift < self.first {
            self.wait(Arrival { due, input, flight, packet: Some(packet) });
            return self.queue(due, events);
        }
        let state = &mut flights[flight as usize];
        debug_assert!(state.rest.back().is_none_or(|&(last, _)| last < due));
        state.rest.push_back((due, packet));
        if state.rest.len() == 1 {
            self.flying += 1;
            self.enter(flight, due, flights);
            let start = self.start_of(at >> self.shift);
            self.queue(start.max(Key::new(now, 0)), events);
        }
    }

    #[inline(always)]
    fn wait(&mut self, arrival: Arrival) {
        self.is_sorted &= self.waiting.last().is_none_or(|last| last.due < arrival.due);
        self.waiting.push(arrival);
    }

    /// Puts a flight into the bucket of its first packet.
    fn enter(&mut self, flight: u32, due: Key, flights: &mut [Flight]) {
        let bucket = due.at().as_ps() >> self.shift;
        if bucket - self.first < self.buckets.len() as u64 {
            let place = self.place(bucket);
            self.filled[place / 64] |= 1 << (place % 64);
            flights[flight as usize].next = std::mem::replace(&mut self.buckets[place], flight);
        } else {
            self.far.push(Reverse((due.at().as_ps(), flight)));
        }
    }

    #[inline]
    fn queue(&mut self, due: Key, events: &mut Events) {
        if due < self.queued {
            self.queued = due;
            events.push(Event { key: due, target: self.event });
        }
    }

    /// Its event is due; returns arrivals in order, and how many of them come before anything not yet known and by
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
        let mut end = key.at().as_ps().saturating_add(self.delay);
        if self.flying > 0 {
            end = self.take_flights(key.at(), end >> self.shift, flights) << self.shift;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        if !std::mem::replace(&mut self.is_sorted, true) {
            waiting.sort_unstable_by_key(|arrival| arrival.due);
        }
        let is_known = |due: Key| due.at().as_ps() < end && due.at() <= last;
        let known = match waiting.last() {
            Some(latest) if is_known(latest.due) => waiting.len(),
            _ => waiting.partition_point(|arrival| is_known(arrival.due)),
        };
        Some((waiting, known))
    }

    /// Takes all that flights bring in buckets before that at `end`, which it returns; those before `now` are empty.
    fn take_flights(&mut self, now: Time, end: u64, flights: &mut [Flight]) -> u64 {
        self.first = self.first.max(now.as_ps() >> self.shift);
        self.take_near(flights);
        while let Some(bucket) = self.next_filled().filter(|&bucket| bucket < end) {
            self.take_bucket(bucket, end, flights);
        }
        self.first = self.first.max(end);
        end
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
        let start = self.waiting.len();
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
            self.waiting[start..].sort_unstable_by_key(|arrival| arrival.due);
        }
        if let [.., before, first] = &self.waiting[..=start] {
            self.is_sorted &= before.due < first.due;
        }
    }

    /// Takes what a flight brings before the first bucket, and puts it into the bucket of its next packet.
    #[inline]
    fn take(&mut self, flight: u32, flights: &mut [Flight]) {
        let (state, end, shift) = (&mut flights[flight as usize], self.first, self.shift);
        let input = state.input();
        while let Some((due, packet)) =
            state.rest.pop_front_if(|next| next.0.at().as_ps() >> shift < end)
        {
            self.waiting.push(Arrival { due, input, flight, packet: Some(packet) });
        }
        match state.rest.front() {
            Some(&(due, _)) => self.enter(flight, due, flights),
            None => {
                // Restart at the beginning: a ring with few packets stays in few cache lines.
                state.rest.clear();
                self.flying -= 1;
            }
        }
    }

    /// The first `received` of those from [`Arrivals::begin`] are done; the others are due later.
    pub(crate) fn end(&mut self, mut waiting: Vec<Arrival>, received: usize, events: &mut Events) {
        self.batches += 1;
        self.received += received as u64;
        waiting.drain(..received);
        // What it has sent to itself.
        let sent = std::mem::replace(&mut self.waiting, waiting);
        sent.into_iter().for_each(|arrival| self.wait(arrival));
        let first = match self.is_sorted {
            true => self.waiting.first().map(|first| first.due),
            false => self.waiting.iter().map(|arrival| arrival.due).min(),
        };
        first.into_iter().for_each(|due| self.queue(due, events));
        if self.flying > 0 {
            let far = self.far.peek().map(|&Reverse((at, _))| at >> self.shift);
            // What was beyond the last bucket may no longer be.
            let next = [self.next_filled(), far].into_iter().flatten().min();
            next.into_iter().for_each(|next| self.queue(self.start_of(next), events));
        }
    }

    /// Whether it should no longer run ahead, but receive each packet as an event of its own.
    #[inline]
    pub(crate) fn gives_up(&mut self) -> bool {
        if self.batches < BATCHES {
            return false;
        }
        let few = self.received < EACH_LEAST * self.batches;
        (self.batches, self.received) = (0, 0);
        few && self.runner.may_give_up
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
    pub(crate) fn prefetch(&self) {
        self.waiting.iter().take(PACKET).for_each(Arrival::prefetch);
    }

    /// How many wait; the others are on their flights.
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner {
    pub(crate) me: usize,
    /// Whether it is asked for the output of each packet in advance, and whether it prefetches at the last moment.
    pub(crate) looks: bool,
    pub(crate) looks_again: bool,
    /// Whether it may as well receive each packet as an event of its own.
    pub(crate) may_give_up: bool,
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
    /// From now on every packet for an element is an event of its own.
    #[cold]
    pub(crate) fn give_up(&mut self, number: usize) {
        let World { arrivals, flights, edges, events, .. } = self;
        let arrivals = &mut arrivals[number];
        let element = arrivals.runner.me as u32;
        let arrive = |arrival: Arrival| Some((arrival.due, arrival.flight, arrival.packet?));
        let mut all: Vec<_> = arrivals.waiting.drain(..).filter_map(arrive).collect();
        for (index, flight) in (0..).zip(&mut *flights) {
            // Its event has a flight, too, on which there is nothing.
            if let End::Ahead(to, input) = flight.to
                && to as usize == number
                && index != arrivals.event.slot() as u32
            {
                flight.to = End::Here(element, input);
                flight.prefetch = arrivals.event.prefetch;
                flight.next = NO_FLIGHT;
                all.extend(flight.rest.drain(..).map(|(due, packet)| (due, index, packet)));
            }
        }
        for edge in edges {
            if let End::Ahead(to, input) = edge.to
                && to as usize == number
            {
                edge.to = End::Here(element, input);
            }
        }
        // What is left of its event finds nothing to do.
        arrivals.queued = Key::NEVER;
        all.sort_unstable_by_key(|&(due, ..)| due);
        for (due, flight, packet) in all {
            flights[flight as usize].fly(flight, due, packet, events);
        }
    }

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
    pub(crate) fn prefetch_next(&self, edge: u32, elements: &[Box<dyn Element>]) {
        match self.edges.get(edge as usize) {
            Some(Edge { to: End::Next(to, _), .. }) => {
                prefetch_lines::<3, _>(&*elements[*to as usize]);
            }
            Some(Edge { to: End::Ahead(arrivals, _), .. }) => {
                prefetch_lines::<2, _>(&self.arrivals[*arrivals as usize]);
            }
            _ => self.prefetch_flight(edge),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Foresight;
    use lastmeter_base::{Bytes, Stream};

    /// Random packets on flights of different delays: each is received once, in order, at most a delay before it is
    /// due, and none that is due by the end of a step is left.
    fn check(seed: u64, waits_most: usize, longest: u64, gap: u64) {
        let mut stream = Stream::new(seed, "arrivals");
        let delays: Vec<u64> = (0..6).map(|_| 1000 + stream.below(longest)).chain([1000]).collect();
        let ahead = |flight: u32| Flight::new(End::Ahead(0, PortId(flight as u16)), event_of());
        let mut flights: Vec<Flight> = (0..delays.len() as u32).map(ahead).collect();
        let runner = Runner { me: 0, looks: false, looks_again: false, may_give_up: false };
        let range = (Duration::from_ps(1000), Duration::from_ps(1000 + longest));
        let mut arrivals = Arrivals::new(runner, range, flights.len() as u32, event_of());
        arrivals.waits_most = waits_most;
        let mut events = Events::new(false);
        let (mut now, mut last, mut sent) = (0, vec![0; delays.len()], Vec::new());
        let (mut received, mut latest) = (Vec::new(), Key::new(Time::START, 0));
        for order in 1..4000 {
            now += stream.below(gap);
            let until = Time::from_ps(now);
            while let Some(event) = events.pop(until) {
                let begun = arrivals.begin(event.key, until, &mut flights);
                let Some((mut waiting, known)) = begun else { continue };
                // Sometimes one of its timers comes first.
                let take = if stream.chance(0.2) { known.min(2) } else { known };
                for arrival in &mut waiting[..take] {
                    assert!(latest < arrival.due && arrival.due.at() <= until, "{arrival:?}");
                    assert!(arrival.due.at() < event.key.at() + Duration::from_ps(1000));
                    latest = arrival.due;
                    received.push(arrival.due.order());
                    assert!(arrival.packet.take().is_some());
                }
                arrivals.end(waiting, take, &mut events);
            }
            let flight = stream.below(delays.len() as u64) as usize;
            let wait = stream.below(3) * stream.below(5000);
            let due = (now + delays[flight] + wait).max(last[flight] + 1);
            last[flight] = due;
            sent.push((due, order));
            let due = Key::new(Time::from_ps(due), order);
            let crossing = Crossing { flight: flight as u32, due, packet: Packet::new(Bytes(1)) };
            let input = PortId(flight as u16);
            arrivals.put((Time::from_ps(now), input), crossing, &mut flights, &mut events);
        }
        sent.sort_unstable();
        let due: Vec<u64> = sent.iter().take_while(|one| one.0 < now).map(|one| one.1).collect();
        assert!(received.starts_with(&due), "{} of {}", received.len(), due.len());
        let flying: usize = flights.iter().map(Flight::len).sum();
        assert_eq!(received.len() + arrivals.len() + flying, sent.len());
    }

    fn event_of() -> Prefetch {
        Prefetch::new(0, Foresight::None)
    }

    #[test]
    fn packets_arrive_once_and_in_order_whether_they_wait_or_fly() {
        for seed in 0..20 {
            for waits_most in [0, 3, WAITS_MOST] {
                check(seed, waits_most, 2000, 300);
                check(seed, waits_most, 3_000_000, 300);
                check(seed, waits_most, 100_000_000, 30_000);
                // Delays about as long as all buckets.
                check(seed, waits_most, 600_000, 30_000);
                check(seed, waits_most, 1, 100_000);
            }
        }
    }

    #[test]
    fn a_flight_beyond_the_buckets_comes_before_a_later_one_within_them() {
        let runner = Runner { me: 0, looks: false, looks_again: false, may_give_up: false };
        let range = (Duration::from_ps(1000), Duration::from_ps(2000));
        let mut arrivals = Arrivals::new(runner, range, 2, event_of());
        arrivals.waits_most = 0;
        let flight = |to| Flight::new(End::Ahead(0, PortId(to)), event_of());
        let (mut flights, mut events) = (vec![flight(0), flight(1)], Events::new(false));
        // Buckets of 64 ps, 64 of them: the last packet is beyond, and the second no longer when the first is received.
        for (order, (flight, due)) in [(0, 1000), (0, 5440), (1, 5120)].into_iter().enumerate() {
            let due = Key::new(Time::from_ps(due), order as u64);
            let crossing = Crossing { flight, due, packet: Packet::new(Bytes(1)) };
            arrivals.put((Time::START, PortId(0)), crossing, &mut flights, &mut events);
        }
        let (mut received, until) = (Vec::new(), Time::from_ps(10_000));
        while let Some(event) = events.pop(until) {
            let begun = arrivals.begin(event.key, until, &mut flights);
            let Some((waiting, known)) = begun else { continue };
            received.extend(waiting[..known].iter().map(|arrival| arrival.due.at().as_ps()));
            arrivals.end(waiting, known, &mut events);
        }
        assert_eq!(received, [1000, 5120, 5440]);
    }
}
