//! The pending events, earliest first.
//!
//! ```text
//! due soonest                                                             due latest
//! [ run, sorted | late: what came since ]  [ bucket | bucket | ... | bucket ]  [ far ]
//! ```
//!
//! Few events are one heap: `late`. Many are thrown into buckets by time, unsorted, and a bucket is
//! sorted when its turn comes; so an event costs the same however many there are, and what it costs
//! stays in the nearest cache. What falls before the next bucket goes to `late`, what lies beyond the
//! last to `far`. Whether there are buckets, and how wide they are, follows from the events
//! themselves; the order in which they come out does not depend on it.

use crate::Foresight;
use crate::heap::Heap;
use lastmeter_base::{Time, prefetch};
use std::cmp::{Ordering, Reverse};

/// When an event is due and who wins a tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    at: u64,
    order: u64,
}

impl Key {
    /// Later than every event.
    pub(crate) const NEVER: Key = Key { at: u64::MAX, order: u64::MAX };

    /// `order` tells apart what is due at one instant: see `world::order`.
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
    /// As one number: comparing is two instructions, and choosing the lesser of two needs no branch,
    /// which a processor could not predict.
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

/// A key and what it is for.
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
    pub(crate) asks: Asks,
}

/// Which element asks for memory before an event, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asks(u32);

impl Asks {
    const EARLY: u32 = 1 << 31;
    const LATE: u32 = 1 << 30;

    pub(crate) fn new(element: u32, foresight: Foresight) -> Asks {
        debug_assert!(element < Asks::LATE);
        Asks(match foresight {
            Foresight::None => element,
            Foresight::Next => element | Asks::LATE,
            Foresight::Early => element | Asks::EARLY,
            Foresight::Steps => element | Asks::EARLY | Asks::LATE,
        })
    }
    #[inline(always)]
    pub(crate) fn element(self) -> usize {
        (self.0 & !(Asks::EARLY | Asks::LATE)) as usize
    }
    /// Two events ahead.
    #[inline(always)]
    pub(crate) fn early(self) -> bool {
        self.0 & Asks::EARLY != 0
    }
    /// One event ahead.
    #[inline(always)]
    pub(crate) fn late(self) -> bool {
        self.0 & Asks::LATE != 0
    }
}

impl Target {
    const FLIGHT: u32 = 1 << 31;

    #[inline]
    pub(crate) fn timer(slot: u32, asks: Asks) -> Target {
        debug_assert!(slot < Target::FLIGHT);
        Target { place: slot, asks }
    }
    #[inline]
    pub(crate) fn flight(index: u32, asks: Asks) -> Target {
        debug_assert!(index < Target::FLIGHT);
        Target { place: index | Target::FLIGHT, asks }
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
    /// How many of them there were when they were sorted, where nothing was known ahead.
    loaded: usize,
    /// Below so many of them the next bucket is sorted: [`RUN_LEAST`], none where there are no buckets.
    run_least: usize,
    /// Whatever was pushed before the first bucket since the run was sorted.
    late: Heap,
    buckets: Buckets,
    /// Beyond the last bucket.
    far: Heap,
    /// Pops until the buckets are looked at again.
    check_in: usize,
    /// Pops between the last look and the next, and the earliest event at the last.
    pops: usize,
    since: u64,
}

/// Chains of events by time.
#[derive(Debug)]
struct Buckets {
    /// The first event of each chain; a power of two of them, or none.
    heads: Vec<u32>,
    chained: Vec<Chained>,
    /// The first of the places of `chained` that are free.
    free: u32,
    /// How far the chain of the next bucket has been asked for.
    asked: u32,
    /// How many events there are.
    len: usize,
    /// The width of a bucket is two to this power, in picoseconds.
    shift: u32,
    /// The first bucket begins so many widths after the start; without buckets everything is before.
    first: u64,
}

/// In one line of a cache, never in two.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Chained {
    key: Key,
    target: Target,
    next: u32,
}

/// The end of a chain.
const NONE: u32 = u32::MAX;
/// From so many events on there are buckets, and below so few there are none.
const BUCKETS_FROM: usize = 512;
const BUCKETS_UNTIL: usize = 128;
/// So many events should fall due in the width of a bucket; beyond these others it is chosen anew.
const EACH: u64 = 8;
const EACH_MIN: u64 = 3;
const EACH_MAX: u64 = 24;
/// So many events are known ahead, where there are buckets.
pub(crate) const RUN_LEAST: usize = 12;
/// Pops between two looks at the buckets, at least.
const CHECK_EVERY: usize = 4096;

impl Default for Buckets {
    fn default() -> Buckets {
        let (heads, chained) = (Vec::new(), Vec::new());
        Buckets { heads, chained, free: NONE, asked: NONE, len: 0, shift: 0, first: u64::MAX }
    }
}

impl Default for Events {
    fn default() -> Events {
        Events {
            run: Vec::new(),
            loaded: 0,
            run_least: 0,
            late: Heap::default(),
            buckets: Buckets::default(),
            far: Heap::default(),
            check_in: CHECK_EVERY,
            pops: CHECK_EVERY,
            since: 0,
        }
    }
}

impl Events {
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

    /// Takes out the next event if it is due by `until`.
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

    /// Whether an event that is put down now for `at` will be among those that are known ahead; not if
    /// it comes before all of them, or if none are.
    #[inline]
    pub(crate) fn will_know(&self, at: Time) -> bool {
        at.as_ps() >> self.buckets.shift >= self.buckets.first
    }

    /// What is due after the next `ahead` events, as far as that is known already.
    #[inline]
    pub(crate) fn ahead(&self, ahead: usize) -> Option<Target> {
        let place = self.run.len().checked_sub(ahead + 1)?;
        self.run.get(place).map(|event| event.target)
    }

    /// The next `N` events, the earliest last, if so many are known already.
    #[inline]
    pub(crate) fn known<const N: usize>(&self) -> Option<&[Event; N]> {
        self.run.last_chunk()
    }

    /// Whether the last event taken out was the first of those that are known ahead.
    #[inline]
    pub(crate) fn has_just_loaded(&self) -> bool {
        self.run.len() + 1 == self.loaded
    }

    /// Sorts the next bucket; if nothing is known ahead, the next that is not empty.
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
        // What was known comes first.
        run.rotate_left(known);
        *loaded = if known == 0 { run.len() } else { 0 };
    }

    /// Chooses buckets anew where there should be others.
    #[cold]
    fn look(&mut self) {
        let next = self.first();
        let events = self.run.len() + self.late.len() + self.buckets.len + self.far.len();
        let elapsed = next.at.saturating_sub(self.since).max(1);
        let width = (u128::from(elapsed) * u128::from(EACH) / self.pops as u128) as u64;
        let shift = width.max(1).ilog2();
        let usual = match self.buckets.heads.is_empty() {
            true => events < BUCKETS_FROM,
            false => {
                let each = (self.pops as u128) << self.buckets.shift;
                let each = (each / u128::from(elapsed)) as u64;
                events >= BUCKETS_UNTIL && (EACH_MIN..=EACH_MAX).contains(&each)
            }
        };
        if !usual {
            self.spread(shift, events);
        }
        self.pops = events.max(CHECK_EVERY);
        self.check_in = self.pops;
        self.since = next.at;
    }

    /// Puts all events into buckets of another width; into a heap where they are few.
    fn spread(&mut self, shift: u32, events: usize) {
        let mut all = std::mem::take(&mut self.run);
        self.late.drain_into(&mut all);
        self.far.drain_into(&mut all);
        self.buckets.drain_into(&mut all);
        self.buckets = Buckets::default();
        self.run_least = 0;
        if events >= BUCKETS_FROM {
            self.run_least = RUN_LEAST;
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

    /// Asks for one more event of the next bucket: each says where the one behind it is.
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

    const NOBODY: Asks = Asks(0);

    /// Any mix of calls, beside a plain heap: `spread` is how far ahead events are pushed, `keep` how
    /// many there are in the middle.
    fn compare(seed: u64, spread: impl Fn(&mut Stream) -> u64, keep: usize) {
        let mut stream = Stream::new(seed, "events");
        let mut events = Events::default();
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
            // Times of very different size, as a fast network's beside its retransmission timers.
            compare(seed, |stream| 1 << stream.below(40), keep);
            compare(seed, |stream| 1 << (stream.below(2) * 38), keep);
        }
    }

    #[test]
    fn buckets_follow_the_events_in_number_and_in_width() {
        let mut events = Events::default();
        let push = |events: &mut Events, at: u64, order| {
            let key = Key::new(Time::from_ps(at), order);
            events.push(Event { key, target: Target::timer(0, NOBODY) });
        };
        let run = |events: &mut Events, gap: u64, pops: u64| {
            for order in 0..pops {
                let event = events.pop(Time::MAX).unwrap();
                push(events, event.key.at + gap, order);
            }
        };
        (0..2000).for_each(|n| push(&mut events, n * 1000, n));
        run(&mut events, 2_000_000, 10_000);
        // One every nanosecond.
        assert!(!events.buckets.heads.is_empty());
        let width = 1u64 << events.buckets.shift;
        assert!((4_000..=8_000).contains(&width), "{width}");
        while events.buckets.len + events.run.len() + events.late.len() > 50 {
            events.pop(Time::MAX).unwrap();
        }
        run(&mut events, 2_000_000, 10_000);
        assert!(events.buckets.heads.is_empty());
    }
}
