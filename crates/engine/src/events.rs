//! The pending events, earliest first.
//!
//! ```text
//! due soonest                                                             due latest
//! [ run, sorted | late: added since     ]  [ bucket | bucket | ... | bucket ]  [ far ]
//! ```
//!
//! A few dozen events are in one heap: `late`. More are put unsorted into buckets by time, and a bucket is sorted
//! when its turn comes; so the cost of an event does not depend on their number, and the data stays in the
//! nearest cache. Events before the next bucket go to `late`, those beyond the last to `far`. Of many events the next
//! ones are always sorted, so that what they need can be prefetched. Whether there are buckets, and how wide, follows
//! from the events themselves and does not affect their order.

use crate::Foresight;
use crate::heap::Heap;
use lastmeter_base::{Time, prefetch};
use std::cmp::{Ordering, Reverse};

/// When an event is due, and its tie-break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    at: u64,
    order: u64,
}

impl Key {
    /// Later than every event.
    pub(crate) const NEVER: Key = Key { at: u64::MAX, order: u64::MAX };

    /// `order` breaks ties at one instant: see `world::order`.
    #[inline]
    pub(crate) fn new(at: Time, order: u64) -> Key {
        Key { at: at.as_ps(), order }
    }
    #[inline]
    pub(crate) fn at(self) -> Time {
        Time::from_ps(self.at)
    }
    #[inline]
    pub(crate) fn order(self) -> u64 {
        self.order
    }
    /// As one number: comparing takes two instructions, and choosing the lesser of two needs no (unpredictable)
    /// branch.
    #[inline]
    fn as_number(self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.order)
    }
}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
    #[inline]
    fn lt(&self, other: &Key) -> bool {
        self.as_number() < other.as_number()
    }
    #[inline]
    fn le(&self, other: &Key) -> bool {
        self.as_number() <= other.as_number()
    }
}
impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Key) -> Ordering {
        self.as_number().cmp(&other.as_number())
    }
}

/// A key and its target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) key: Key,
    pub(crate) target: Target,
}

/// What becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// A timer's slot, or a flight where the high bit is set.
    place: u32,
    pub(crate) prefetch: Prefetch,
}

/// Which element prefetches before an event, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefetch(u32);

impl Prefetch {
    const EARLY: u32 = 1 << 31;
    const LATE: u32 = 1 << 30;

    pub(crate) fn new(element: u32, foresight: Foresight) -> Prefetch {
        debug_assert!(element < Prefetch::LATE);
        Prefetch(match foresight {
            Foresight::None => element,
            Foresight::Next => element | Prefetch::LATE,
            Foresight::Early => element | Prefetch::EARLY,
            Foresight::Steps => element | Prefetch::EARLY | Prefetch::LATE,
        })
    }
    #[inline(always)]
    pub(crate) fn element(self) -> usize {
        (self.0 & !(Prefetch::EARLY | Prefetch::LATE)) as usize
    }
    /// Two events ahead.
    #[inline(always)]
    pub(crate) fn early(self) -> bool {
        self.0 & Prefetch::EARLY != 0
    }
    /// One event ahead.
    #[inline(always)]
    pub(crate) fn late(self) -> bool {
        self.0 & Prefetch::LATE != 0
    }
}

impl Target {
    const FLIGHT: u32 = 1 << 31;

    #[inline]
    pub(crate) fn timer(slot: u32, prefetch: Prefetch) -> Target {
        debug_assert!(slot < Target::FLIGHT);
        Target { place: slot, prefetch }
    }
    #[inline]
    pub(crate) fn flight(index: u32, prefetch: Prefetch) -> Target {
        debug_assert!(index < Target::FLIGHT);
        Target { place: index | Target::FLIGHT, prefetch }
    }
    #[inline(always)]
    pub(crate) fn is_flight(self) -> bool {
        self.place & Target::FLIGHT != 0
    }
    #[inline(always)]
    pub(crate) fn as_flight(self) -> Option<usize> {
        self.is_flight().then_some(self.slot())
    }
    /// Of its flight or its timer.
    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        (self.place & !Target::FLIGHT) as usize
    }
}

#[derive(Debug)]
pub(crate) struct Events {
    /// Sorted, the earliest last.
    run: Vec<Event>,
    /// Their number when they were sorted, if nothing was known ahead.
    loaded: usize,
    /// With fewer than this the next bucket is sorted: [`RUN_LEAST`]; 1 if nothing need be known ahead; 0 without
    /// buckets.
    run_least: usize,
    /// Whether elements prefetch, and so even few events should be known ahead.
    foreseen: bool,
    /// Events before the first bucket, pushed since the run was sorted.
    late: Heap,
    buckets: Buckets,
    /// Beyond the last bucket.
    far: Heap,
    /// Pops until the buckets are reviewed.
    check_in: usize,
    /// Pops between the last review and the next, and the earliest event at the last.
    pops: usize,
    since: u64,
}

/// Chains of events by time.
#[derive(Debug)]
struct Buckets {
    /// The first event of each chain; a power of two of them, or none.
    heads: Vec<u32>,
    chained: Vec<Chained>,
    /// The first free entry of `chained`.
    free: u32,
    /// How far the chain of the next bucket has been prefetched.
    asked: u32,
    /// Number of events.
    len: usize,
    /// Log2 of the width of a bucket in picoseconds.
    shift: u32,
    /// The start of the first bucket, in widths; without buckets everything is before it.
    first: u64,
}

/// Within one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Chained {
    key: Key,
    target: Target,
    next: u32,
}

/// The end of a chain.
const NONE: u32 = u32::MAX;
/// Buckets are used from this many events on, and given up below the second number.
const BUCKETS_FROM: usize = 40;
const BUCKETS_UNTIL: usize = 16;
/// The next events are known ahead from this many on, and no longer below the second number, unless elements prefetch.
const KNOWN_FROM: usize = 512;
const KNOWN_UNTIL: usize = 128;
/// Target number of events per bucket if the next ones are known ahead, and if not; below a third or above three
/// times that, the width is chosen again.
const EACH: u64 = 8;
const EACH_UNKNOWN: u64 = 4;
/// Events known ahead, if any are.
pub(crate) const RUN_LEAST: usize = 12;
/// Minimum pops between two reviews of the buckets.
const CHECK_EVERY: usize = 4096;

impl Default for Buckets {
    fn default() -> Buckets {
        let (heads, chained) = (Vec::new(), Vec::new());
        Buckets { heads, chained, free: NONE, asked: NONE, len: 0, shift: 0, first: u64::MAX }
    }
}

impl Events {
    /// No events; `foreseen` if elements prefetch for theirs.
    pub(crate) fn new(foreseen: bool) -> Events {
        Events {
            run: Vec::new(),
            loaded: 0,
            run_least: 0,
            foreseen,
            late: Heap::default(),
            buckets: Buckets::default(),
            far: Heap::default(),
            check_in: CHECK_EVERY,
            pops: CHECK_EVERY,
            since: 0,
        }
    }

    /// When the next event is due.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Time> {
        let key = self.first();
        (key != Key::NEVER).then(|| key.at())
    }

    #[inline]
    fn first(&mut self) -> Key {
        if self.run.len() < self.run_least {
            self.load();
        }
        let late = self.late.first();
        self.run.last().map_or(late, |event| if event.key < late { event.key } else { late })
    }

    /// Removes the next event if it is due by `until`.
    #[inline]
    pub(crate) fn pop(&mut self, until: Time) -> Option<Event> {
        self.check_in -= 1;
        if self.check_in == 0 {
            self.look();
        }
        self.buckets.ask();
        if self.run.len() < self.run_least {
            self.load();
        }
        let late = self.late.first();
        match self.run.last() {
            Some(event) if event.key <= late => match event.key.at() <= until {
                true => self.run.pop(),
                false => None,
            },
            _ if late == Key::NEVER || late.at() > until => None,
            _ => self.late.pop(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        let place = event.key.at >> self.buckets.shift;
        match place.checked_sub(self.buckets.first) {
            Some(place) if place < self.buckets.heads.len() as u64 => self.buckets.push(event),
            Some(_) => self.far.push(event),
            None => self.late.push(event),
        }
    }

    /// Whether an event pushed now for `at` will be among those known ahead; not if it precedes all of them, or
    /// if none are.
    #[inline]
    pub(crate) fn will_know(&self, at: Time) -> bool {
        at.as_ps() >> self.buckets.shift >= self.buckets.first
    }

    /// Whether the next events are known ahead.
    #[inline]
    pub(crate) fn are_known(&self) -> bool {
        self.run_least == RUN_LEAST
    }

    /// The target after the next `ahead` events, if known already.
    #[inline]
    pub(crate) fn ahead(&self, ahead: usize) -> Option<Target> {
        let place = self.run.len().checked_sub(ahead + 1)?;
        self.run.get(place).map(|event| event.target)
    }

    /// The next `N` events, the earliest last, if that many are known already.
    #[inline]
    pub(crate) fn known<const N: usize>(&self) -> Option<&[Event; N]> {
        self.run.last_chunk()
    }

    /// Whether the last event removed was the first of those known ahead.
    #[inline]
    pub(crate) fn has_just_loaded(&self) -> bool {
        self.run.len() + 1 == self.loaded
    }

    /// Sorts the next bucket; if nothing is known ahead, the next non-empty one.
    #[inline(never)]
    fn load(&mut self) {
        let Events { run, loaded, late, buckets, far, .. } = self;
        let known = run.len();
        loop {
            if buckets.len == 0 {
                match far.first() {
                    Key::NEVER => return,
                    _ if known > 0 || !late.is_empty() => return,
                    key => buckets.first = key.at >> buckets.shift,
                }
            }
            let end = buckets.first.saturating_add(buckets.heads.len() as u64);
            while far.first() != Key::NEVER && far.first().at >> buckets.shift < end {
                buckets.push(far.pop().expect("there is a first event"));
            }
            buckets.take(run);
            if !run.is_empty() || !late.is_empty() {
                break;
            }
        }
        run[known..].sort_unstable_by_key(|event| Reverse(event.key));
        // Events already known come first.
        run.rotate_left(known);
        *loaded = if known == 0 { run.len() } else { 0 };
    }

    /// Chooses the buckets again if they no longer suit.
    #[cold]
    fn look(&mut self) {
        let next = self.first();
        let events = self.run.len() + self.late.len() + self.buckets.len + self.far.len();
        let elapsed = next.at.saturating_sub(self.since).max(1);
        let least = self.least(events);
        let wanted = if least == RUN_LEAST { EACH } else { EACH_UNKNOWN };
        let width = (u128::from(elapsed) * u128::from(wanted) / self.pops as u128) as u64;
        let shift = width.max(1).ilog2();
        let each = (self.pops as u128) << self.buckets.shift;
        let each = (each / u128::from(elapsed)) as u64;
        let suits = least == 0 || (wanted / 3 + 1..=wanted * 3).contains(&each);
        let usual = least == self.run_least && suits;
        if !usual {
            self.run_least = least;
            self.spread(shift, events);
        }
        self.pops = events.max(CHECK_EVERY);
        self.check_in = self.pops;
        self.since = next.at;
    }

    /// What `run_least` should be with this many events.
    fn least(&self, events: usize) -> usize {
        let buckets = if self.run_least == 0 { BUCKETS_FROM } else { BUCKETS_UNTIL };
        let known = if self.are_known() { KNOWN_UNTIL } else { KNOWN_FROM };
        match events {
            _ if events < buckets => 0,
            _ if self.foreseen || events >= known => RUN_LEAST,
            _ => 1,
        }
    }

    /// Puts all events into buckets of another width; into a heap where they are few.
    fn spread(&mut self, shift: u32, events: usize) {
        let mut all = std::mem::take(&mut self.run);
        self.late.drain_into(&mut all);
        self.far.drain_into(&mut all);
        self.buckets.drain_into(&mut all);
        self.buckets = Buckets::default();
        if self.run_least > 0 {
            let first = all.iter().map(|event| event.key.at).min().unwrap_or(0) >> shift;
            self.buckets.heads = vec![NONE; 2 * events.next_power_of_two()];
            (self.buckets.shift, self.buckets.first) = (shift, first);
        }
        all.into_iter().for_each(|event| self.push(event));
    }
}

impl Buckets {
    #[inline]
    fn push(&mut self, Event { key, target }: Event) {
        let place = (key.at >> self.shift) as usize & (self.heads.len() - 1);
        let chained = Chained { key, target, next: self.heads[place] };
        self.heads[place] = match self.chained.get_mut(self.free as usize) {
            Some(free) => {
                let place = std::mem::replace(&mut self.free, free.next);
                *free = chained;
                place
            }
            None => {
                self.chained.push(chained);
                self.chained.len() as u32 - 1
            }
        };
        self.len += 1;
    }

    /// Prefetches one more event of the next bucket: each links to the one after it.
    #[inline]
    fn ask(&mut self) {
        if let Some(chained) = self.chained.get(self.asked as usize) {
            self.asked = chained.next;
            if let Some(next) = self.chained.get(chained.next as usize) {
                prefetch(next);
            }
        }
    }

    /// Moves the first bucket out; the next becomes the first.
    #[inline]
    fn take(&mut self, run: &mut Vec<Event>) {
        let place = self.first as usize & (self.heads.len() - 1);
        self.first += 1;
        let mut next = std::mem::replace(&mut self.heads[place], NONE);
        while let Some(chained) = self.chained.get_mut(next as usize) {
            run.push(Event { key: chained.key, target: chained.target });
            self.len -= 1;
            let free = std::mem::replace(&mut self.free, next);
            next = std::mem::replace(&mut chained.next, free);
        }
        self.asked = self.heads[self.first as usize & (self.heads.len() - 1)];
        if let Some(next) = self.chained.get(self.asked as usize) {
            prefetch(next);
        }
    }

    fn drain_into(&mut self, all: &mut Vec<Event>) {
        for _ in 0..self.heads.len() {
            self.take(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;
    use std::collections::BinaryHeap;

    const NOBODY: Prefetch = Prefetch(0);

    /// Any mix of calls, compared with a plain heap: `spread` is how far ahead events are pushed, `keep` their
    /// typical number.
    fn compare(seed: u64, spread: impl Fn(&mut Stream) -> u64, keep: usize) {
        let mut stream = Stream::new(seed, "events");
        let mut events = Events::new(seed.is_multiple_of(2));
        let mut plain = BinaryHeap::new();
        let mut now = 0;
        for order in 0..60_000 {
            let pushes = if plain.len() < keep { 0.55 } else { 0.45 };
            if stream.chance(pushes) {
                let key = Key::new(Time::from_ps(now + spread(&mut stream)), order);
                events.push(Event { key, target: Target::timer(order as u32, NOBODY) });
                plain.push(Reverse(key));
            } else {
                let until = Time::from_ps(now + spread(&mut stream));
                let due = plain.peek().filter(|next| next.0.at() <= until).copied();
                let got = events.pop(until);
                assert_eq!(got.map(|event| event.key), due.map(|next| next.0));
                if let (Some(event), Some(Reverse(key))) = (got, due) {
                    assert_eq!(event.target, Target::timer(key.order() as u32, NOBODY));
                    plain.pop();
                    now = key.at().as_ps();
                }
            }
            assert_eq!(events.next(), plain.peek().map(|Reverse(key)| key.at()));
        }
    }

    #[test]
    fn pops_in_the_order_of_a_plain_heap_under_any_mix_of_calls() {
        for (seed, keep) in [(1, 3), (2, 100), (3, 700), (4, 5000)] {
            // Few distinct times, so that ties are common.
            compare(seed, |stream| stream.below(50), keep);
            compare(seed, |stream| stream.below(1 << 30), keep);
            // Times of very different scale, as a fast network's and its retransmission timers'.
            compare(seed, |stream| 1 << stream.below(40), keep);
            compare(seed, |stream| 1 << (stream.below(2) * 38), keep);
        }
    }

    #[test]
    fn buckets_follow_the_events_in_number_and_in_width() {
        let push = |events: &mut Events, at: u64, order| {
            let key = Key::new(Time::from_ps(at), order);
            events.push(Event { key, target: Target::timer(0, NOBODY) });
        };
        // Each event comes again after 2 us.
        let run_with = |events: &mut Events, number: usize| {
            while events.buckets.len + events.run.len() + events.late.len() > number {
                events.pop(Time::MAX).unwrap();
            }
            for order in 0..10_000 {
                let event = events.pop(Time::MAX).unwrap();
                push(events, event.key.at + 2_000_000, order);
            }
        };
        for foreseen in [false, true] {
            let mut events = Events::new(foreseen);
            (0..2000).for_each(|n| push(&mut events, n * 1000, n));
            let mut widths = [2000, 100].map(|number| {
                run_with(&mut events, number);
                assert!(!events.buckets.heads.is_empty());
                assert_eq!(events.are_known(), foreseen || number == 2000);
                // In times between two events.
                (number << events.buckets.shift) as u64 / 2_000_000
            });
            widths[1] *= if foreseen { 1 } else { 2 };
            assert!(widths.iter().all(|width| (4..=8).contains(width)), "{widths:?}");
            run_with(&mut events, 10);
            assert!(events.buckets.heads.is_empty());
        }
    }
}
