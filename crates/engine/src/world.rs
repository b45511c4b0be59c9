//! A partition's state except its elements: events, edges, timers, packets in flight, books.

use crate::arrivals::Arrivals;
use crate::books::Books;
use crate::edges::{Crossing, Edge, End, Flight, NO_STAGE};
use crate::ends::{Ending, Ends};
use crate::events::{Event, Events, Key, Prefetch, RUN_LEAST, Target};
use crate::ready::Ready;
use crate::trace::Trace;
use crate::{Element, ElementId, Foreseen, Foresight, Look, PortId};
use lastmeter_base::{
    Duration, Packet, Pool, Stream, Time, address, prefetch, prefetch_address, prefetch_lines,
};
use std::hint::select_unpredictable;

/// The engine's data on an element, needed for each event.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct Place {
    pub(crate) id: ElementId,
    pub(crate) first_edge: u32,
    pub(crate) edges: u32,
    pub(crate) first_timer: u32,
    pub(crate) timers: u32,
    /// Whether it may run ahead. Then everything it sends is an event of its own.
    pub(crate) runs_ahead: bool,
    /// What breaks ties: its origin, and how many events it has caused.
    pub(crate) caused: u64,
}

/// Data only for elements that make packets or draw random numbers.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Maker {
    pub(crate) made: u64,
    pub(crate) stream: Stream,
}

/// A timer. Re-arming to a later time leaves the pending event in place; when that comes up, it is
/// rescheduled. So a timer that moves with every packet costs no heap operation.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Timer {
    pub(crate) owner: u32,
    /// Its owner, or an element to which that sends without delay.
    pub(crate) prefetch: Prefetch,
    /// [`Key::NEVER`] while it is not set.
    pub(crate) due: Key,
    /// When this timer's pending event is due; [`Time::MAX`] if there is none. An older one at the same
    /// instant is harmless.
    pub(crate) queued: Time,
}

const _: () = assert!(size_of::<Timer>() == 32);

/// No element, and no edge.
pub(crate) const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    /// The order of the event being handled.
    pub(crate) cause: u64,
    pub(crate) ready: Ready,
    pub(crate) events: Events,
    pub(crate) edges: Vec<Edge>,
    pub(crate) flights: Vec<Flight>,
    pub(crate) places: Vec<Place>,
    /// By element, as `places`.
    pub(crate) makers: Vec<Maker>,
    pub(crate) timers: Vec<Timer>,
    /// How often any timer was armed or disarmed.
    pub(crate) timer_changes: u64,
    /// Arrivals of each element that may run ahead.
    pub(crate) arrivals: Vec<Arrivals>,
    /// The latest time that any of them has reached.
    pub(crate) ahead_until: Time,
    /// Packets on their way to elements where they end.
    pub(crate) ends: Ends,
    pub(crate) pool: Pool,
    pub(crate) books: Books,
    pub(crate) trace: Option<Trace>,
    /// Packets that cross to each partition.
    pub(crate) outboxes: Vec<Vec<Crossing>>,
    /// When the first packet in `outboxes` is due.
    pub(crate) crosses_at: Time,
    /// If not zero, shuffles the order of simultaneous events.
    pub(crate) salt: u64,
    /// The earliest prefetch of any element.
    pub(crate) foresight: Foresight,
    /// An edge that will soon be used, or [`NOBODY`].
    pub(crate) sends_along: u32,
}

/// How many events ahead each step of a prefetch is done, each step following a pointer from the previous
/// one: the edge or timer, the engine's data on the element, the element, the packet.
const TARGET: usize = 10;
const PLACE: usize = 8;
const ELEMENT: usize = 6;
const PACKET: usize = 5;
const FORESEEN: usize = 3;
const FORESEEN_AGAIN: usize = 1;
const _: () = assert!(TARGET < RUN_LEAST, "the first target to prefetch is known by then");
/// The fields of an order's 64 bits: [`ECHO`], the origin of the event, and the origin's own count.
pub(crate) const ORIGIN_BITS: u32 = 24;
const COUNT_BITS: u32 = 39;
/// Set if an element that may run ahead sends a packet that arrives at the same instant: that comes after all
/// others, because it may have been sent long before or just now.
const ECHO: u64 = 1 << (ORIGIN_BITS + COUNT_BITS);

/// What breaks ties for an element that has caused nothing yet.
pub(crate) const fn caused_by(origin: u32) -> u64 {
    (origin as u64) << COUNT_BITS
}

/// The tie-break of events due at the same instant: the lesser one comes first.
///
/// Between two origins, a hash of the instant picks the order: if the lower origin always won, the same ones
/// of several synchronised connections would always find room in a queue. Events of one origin stay in
/// order. An origin is a hash of the element's name, so nothing here depends on the order in which elements
/// were added, nor on the thread on which an element runs.
#[inline]
fn order(due: Time, caused: u64) -> u64 {
    let hash = due.as_ps().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ORIGIN_BITS);
    // The highest differing bit decides which of a pair is the lesser; no two become equal.
    caused ^ hash << COUNT_BITS
}

impl Place {
    /// The order of the last event that it caused, if that is due at `due`.
    #[inline]
    fn order(&self, salt: u64, due: Time) -> u64 {
        let order = order(due, self.caused);
        match salt {
            0 => order,
            salt => shuffled(order, salt),
        }
    }

    /// When its next event is due, which may be the present instant.
    #[inline]
    fn next_key(&mut self, salt: u64, due: Time, is_now: bool) -> Key {
        let echo = u64::from(is_now) * ECHO;
        Key::new(due, self.next_order(salt, due) | echo)
    }

    /// The order of the next event that it causes.
    #[inline]
    fn next_order(&mut self, salt: u64, due: Time) -> u64 {
        self.caused += 1;
        assert!(self.caused << (64 - COUNT_BITS) != 0, "an element caused 5 10^11 events");
        self.order(salt, due)
    }
}

/// The address of one of `all`.
#[inline(always)]
fn at<T>(all: &[T], index: usize) -> usize {
    address(all) + index * size_of::<T>()
}

impl World {
    /// Whether an event of `me` would come before the one being handled, at the same instant.
    #[inline]
    pub(crate) fn precedes(&self, me: usize) -> bool {
        self.places[me].order(self.salt, self.now) < self.cause
    }

    /// Sends `packet` out of `port` now; returns it if more than that it is received next is to be done.
    #[inline(always)]
    pub(crate) fn pass(&mut self, me: usize, port: PortId, packet: Packet) -> Option<Packet> {
        let Place { first_edge, edges, .. } = self.places[me];
        if u32::from(port.0) < edges
            && let End::Next(to, input) = self.edges[(first_edge + u32::from(port.0)) as usize].to
        {
            self.ready.push((to, input, packet));
            return None;
        }
        Some(packet)
    }

    /// Sends `packet` out of `port` at `departs`; returns it if the port is not connected.
    #[inline]
    pub(crate) fn send(
        &mut self,
        me: usize,
        port: PortId,
        mut packet: Packet,
        departs: Time,
    ) -> Option<Packet> {
        let place = &mut self.places[me];
        if u32::from(port.0) >= place.edges {
            return Some(packet);
        }
        let edge = &self.edges[(place.first_edge + u32::from(port.0)) as usize];
        // A departure beyond the range of time never arrives.
        let at = departs + edge.delay;
        if edge.stage != NO_STAGE {
            packet.visit(edge.stage, Duration::ZERO, edge.delay, Duration::ZERO);
        }
        match edge.to {
            End::Here(to, input) | End::Next(to, input) => {
                let is_now = at <= self.now;
                if is_now && !place.runs_ahead {
                    self.ready.push((to, input, packet));
                    return None;
                }
                let due = place.next_key(self.salt, at, is_now);
                self.flights[edge.flight as usize].fly(edge.flight, due, packet, &mut self.events);
            }
            End::Last(to, input) => {
                let is_now = at <= self.now;
                let due = match is_now && !place.runs_ahead {
                    true if self.ends.len() == 0 => {
                        self.ready.push((to, input, packet));
                        return None;
                    }
                    // After all earlier ones.
                    true => Key::new(at, self.cause),
                    false => place.next_key(self.salt, at, is_now),
                };
                self.ends.put(Ending { due, to, input, packet }, self.now);
            }
            End::There(partition) => {
                let due = Key::new(at, place.next_order(self.salt, at));
                let flight = edge.flight;
                self.cross(partition.into(), Crossing { flight, due, packet });
            }
            End::Ahead(arrivals, input) => {
                let due = Key::new(at, place.next_order(self.salt, at));
                let arriving = Crossing { flight: edge.flight, due, packet };
                let World { now, arrivals: all, flights, events, .. } = self;
                all[arrivals as usize].put((*now, input), arriving, flights, events);
            }
            End::Nowhere => return Some(packet),
        }
        None
    }

    /// Hands a packet to another partition; not inlined, to keep the code of every hop short.
    #[inline(never)]
    fn cross(&mut self, partition: u32, crossing: Crossing) {
        self.crosses_at = self.crosses_at.min(crossing.due.at());
        self.outboxes[partition as usize].push(crossing);
    }

    /// Puts packets from another partition in flight.
    pub(crate) fn take_in(&mut self, crossed: &mut Vec<Crossing>) {
        for crossing in crossed.drain(..) {
            let state = &mut self.flights[crossing.flight as usize];
            match (state.to, crossing) {
                (End::Ahead(arrivals, input), crossing) => {
                    let World { now, arrivals: all, flights, events, .. } = self;
                    all[arrivals as usize].put((*now, input), crossing, flights, events);
                }
                (End::Last(to, input), Crossing { due, packet, .. }) => {
                    self.ends.put(Ending { due, to, input, packet }, self.now);
                }
                (_, Crossing { flight, due, packet }) => {
                    state.fly(flight, due, packet, &mut self.events);
                }
            }
        }
    }

    #[inline]
    pub(crate) fn arm(&mut self, me: usize, timer: u32, at: Time) {
        let place = &mut self.places[me];
        assert!(timer < place.timers, "timer {timer} of an element with {}", place.timers);
        let slot = (place.first_timer + timer) as usize;
        let at = at.max(self.now);
        let key = Key::new(at, place.next_order(self.salt, at));
        self.timer_changes += 1;
        let state = &mut self.timers[slot];
        state.due = key;
        // At the same instant an event of its own comes first anyway, unless ties are shuffled.
        if at < state.queued || (at == state.queued && self.salt != 0) {
            state.queued = at;
            let target = Target::timer(slot as u32, state.prefetch);
            self.events.push(Event { key, target });
        }
    }

    /// When the first of an element's timers is due; [`Key::NEVER`] if none is set.
    #[inline]
    pub(crate) fn first_timer(&self, me: usize) -> Key {
        let Place { first_timer, timers, .. } = self.places[me];
        let own = &self.timers[first_timer as usize..][..timers as usize];
        own.iter().map(|timer| timer.due).min().unwrap_or(Key::NEVER)
    }

    pub(crate) fn disarm(&mut self, me: usize, timer: u32) {
        self.timer_changes += 1;
        let slot = self.places[me].first_timer + timer;
        self.timers[slot as usize].due = Key::NEVER;
    }

    /// Whether this timer is really due; reschedules its event if it was re-armed.
    #[inline]
    pub(crate) fn expires(&mut self, event: Event) -> Option<(u32, u32)> {
        let slot = event.target.slot();
        let timer = &mut self.timers[slot];
        if timer.queued != event.key.at() {
            return None; // Superseded by an earlier event.
        }
        timer.queued = Time::MAX;
        let due = timer.due;
        if due == Key::NEVER {
            return None;
        }
        if due != event.key {
            timer.queued = due.at();
            self.events.push(Event { key: due, target: event.target });
            return None;
        }
        timer.due = Key::NEVER;
        let owner = timer.owner;
        Some((owner, slot as u32 - self.places[owner as usize].first_timer))
    }

    /// Prefetches what the next events will need, one step nearer to the packet with each event: in a large
    /// graph none of it is in a near cache.
    #[inline]
    pub(crate) fn look_ahead(&mut self, elements: &[Box<dyn Element>]) {
        if !self.events.are_known() {
            return;
        }
        if self.events.has_just_loaded() {
            self.look_first(elements);
        }
        let Some(known) = self.events.known::<{ TARGET + 1 }>() else { return };
        let [target, place, element, packet, foreseen, foreseen_again] =
            [TARGET, PLACE, ELEMENT, PACKET, FORESEEN, FORESEEN_AGAIN]
                .map(|ahead| known[TARGET - ahead].target);
        self.prefetch_target(target);
        self.prefetch_packet(packet);
        match self.foresight {
            Foresight::None => {}
            Foresight::Next => {
                if foreseen_again.prefetch.late() {
                    let output = self.foresee(foreseen_again, Look::Last, elements);
                    let from = &self.places[foreseen_again.prefetch.element()];
                    self.prefetch_next(from.first_edge + output, elements);
                }
            }
            Foresight::Early | Foresight::Steps => {
                self.prefetch_place(place, elements);
                self.prefetch_element(element, elements);
                self.prefetch_flight(self.sends_along);
                if foreseen_again.prefetch.late() {
                    self.foresee(foreseen_again, Look::Last, elements);
                }
                self.sends_along = NOBODY;
                if foreseen.prefetch.early() {
                    let output = self.foresee(foreseen, Look::First, elements);
                    self.sends_along = self.prefetch_edge(foreseen.prefetch.element(), output);
                }
            }
        }
    }

    /// The prefetch after a gap in the events known ahead.
    #[inline(never)]
    fn look_first(&self, elements: &[Box<dyn Element>]) {
        let until = |ahead| (0..ahead).filter_map(|ahead| self.events.ahead(ahead));
        until(TARGET).for_each(|target| self.prefetch_target(target));
        until(PACKET).for_each(|target| self.prefetch_packet(target));
        if self.foresight >= Foresight::Early {
            until(PLACE).for_each(|target| self.prefetch_place(target, elements));
            until(ELEMENT).for_each(|target| self.prefetch_element(target, elements));
        }
    }

    #[inline(always)]
    fn prefetch_target(&self, target: Target) {
        let (flight, timer) = (at(&self.flights, target.slot()), at(&self.timers, target.slot()));
        prefetch_address(select_unpredictable(target.is_flight(), flight, timer));
    }

    #[inline(always)]
    fn prefetch_place(&self, target: Target, elements: &[Box<dyn Element>]) {
        for element in [target.prefetch.element(), self.owner_of(target)] {
            prefetch_address(at(&self.places, element));
            prefetch_address(at(elements, element));
        }
    }

    #[inline(always)]
    fn prefetch_element(&self, target: Target, elements: &[Box<dyn Element>]) {
        let (to, by) = (target.prefetch.element(), self.owner_of(target));
        prefetch_lines::<4, _>(&*elements[to]);
        prefetch_lines::<1, _>(&*elements[by]);
        // An element that does not prefetch itself and sends without delay usually makes its packets.
        prefetch_address(at(&self.makers, by));
        prefetch_address(at(&self.timers, self.places[to].first_timer as usize));
    }

    /// The owner of the timer that expires. For a packet's event, some arbitrary timer's: avoids a branch.
    #[inline(always)]
    fn owner_of(&self, target: Target) -> usize {
        let slot = select_unpredictable(target.is_flight(), 0, target.slot());
        self.timers[slot].owner as usize
    }

    #[inline(always)]
    fn prefetch_packet(&self, target: Target) {
        let slot = select_unpredictable(target.is_flight(), target.slot(), 0);
        let Some(flight) = self.flights.get(slot) else { return };
        // The lines that every hop needs, and the record of the first hops.
        let packet = flight.first.as_ref().map_or(address(flight), |packet| address(&**packet));
        prefetch_address(packet);
        prefetch_address(packet + 64);
        // The one due next, after the first arrival.
        prefetch_address(flight.rest.front().map_or(address(flight), address));
    }

    /// Announces an event to an element; returns the output through which it will send: the first, if unknown.
    #[inline(always)]
    fn foresee(&self, target: Target, look: Look, elements: &[Box<dyn Element>]) -> u32 {
        let to = target.prefetch.element();
        let next = match target.as_flight().map(|flight| &self.flights[flight]) {
            Some(Flight { first: Some(packet), to: End::Here(_, input), .. }) => {
                Foreseen::Packet(*input, packet)
            }
            // They are stored elsewhere, if any.
            Some(flight) => return self.look_at_arrivals(flight.to, look),
            None => match self.timers[target.slot()].owner as usize {
                owner if owner == to => Foreseen::Timer,
                owner => {
                    if look == Look::First {
                        self.prefetch_edge(owner, 0);
                    }
                    Foreseen::Neighbour(elements[owner].sends_next())
                }
            },
        };
        elements[to].foresee(next, look).map_or(0, |output| output.0.into())
    }

    /// Prefetches the first arrivals of an element that may run ahead.
    #[inline(never)]
    fn look_at_arrivals(&self, to: End, look: Look) -> u32 {
        if let End::Ahead(arrivals, _) = to
            && look == Look::First
        {
            self.arrivals[arrivals as usize].prefetch();
        }
        0
    }

    /// Prefetches the edge of an element's output; returns its index.
    #[inline(always)]
    pub(crate) fn prefetch_edge(&self, from: usize, output: u32) -> u32 {
        let edge = self.places[from].first_edge + output;
        prefetch_address(at(&self.edges, edge as usize));
        edge
    }

    /// Prefetches where a packet sent along an edge will be stored, if the edge itself has been prefetched.
    #[inline(always)]
    pub(crate) fn prefetch_flight(&self, edge: u32) {
        let edge = self.edges.get(edge as usize);
        let flight = edge.and_then(|edge| self.flights.get(edge.flight as usize));
        flight.into_iter().for_each(prefetch);
    }

    /// Packets in flight or about to be received.
    pub(crate) fn on_the_way(&self) -> u64 {
        let flying: usize = self.flights.iter().map(Flight::len).sum();
        let arriving: usize = self.arrivals.iter().map(Arrivals::len).sum();
        let crossing: usize = self.outboxes.iter().map(Vec::len).sum();
        (flying + arriving + self.ready.len() + self.ends.len() + crossing) as u64
    }
}

/// A bijection of 64 bits, so that shuffled orders stay unique.
fn shuffled(order: u64, salt: u64) -> u64 {
    let value = (order ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ (value >> 32)
}

#[cfg(test)]
mod tests {
    use super::{caused_by, order};
    use lastmeter_base::Time;

    #[test]
    fn each_of_two_origins_comes_first_at_half_of_the_instants() {
        for (a, b) in [(0, 1), (1, 2), (5, 6), (3, 4096), (100, (1 << 24) - 1)] {
            // Instants on typical link grids: 24 us, 1.2 ms, and one of odd picoseconds.
            for step in [24_000_000_u64, 1_200_000_000, 26_881] {
                let wins = (1..=1000_u64).filter(|&n| {
                    let due = Time::from_ps(n * step);
                    order(due, caused_by(a) + 9) < order(due, caused_by(b) + 1)
                });
                let wins = wins.count();
                assert!((400..600).contains(&wins), "{a} and {b} every {step} ps: {wins}");
            }
        }
    }

    #[test]
    fn events_of_one_origin_stay_in_order() {
        let (due, mine) = (Time::from_ps(77), caused_by(5));
        assert!((1..100).all(|n| order(due, mine + n) < order(due, mine + n + 1)));
    }
}
