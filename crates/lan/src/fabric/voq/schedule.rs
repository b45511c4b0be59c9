//! When each queue is due, and which is next.

use lastmeter_base::{Time, prefetch, prefetch_end};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// When a queue is due, its turn and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    at: u64,
    turn: u64,
}

impl Due {
    const PLACE_BITS: u32 = 16;
    /// After all that are due at a given time.
    const NEVER: Due = Due { at: u64::MAX, turn: u64::MAX };

    pub(super) fn new(at: u64, turn: u64, place: usize) -> Due {
        debug_assert!(turn < 1 << (64 - Due::PLACE_BITS), "10^14 turns");
        Due { at, turn: turn << Due::PLACE_BITS | place as u64 }
    }
    pub(super) fn at(self) -> Time {
        Time::from_ps(self.at)
    }
    pub(super) fn place(self) -> usize {
        self.turn as usize & ((1 << Due::PLACE_BITS) - 1)
    }
    /// As one number, so that comparing needs no branch.
    #[inline]
    fn as_number(self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.turn)
    }
}

impl PartialOrd for Due {
    #[inline]
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    #[inline]
    fn cmp(&self, other: &Due) -> Ordering {
        self.as_number().cmp(&other.as_number())
    }
}

/// Queues by the time at which they are due; ties go by turn. The first is known without reading the others.
#[derive(Debug)]
pub(super) struct Schedule {
    first: Due,
    others: BinaryHeap<Reverse<Due>>,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule { first: Due::NEVER, others: BinaryHeap::new() }
    }
}

impl Schedule {
    /// The entries, in any order.
    pub(super) fn of(dues: Vec<Reverse<Due>>) -> Schedule {
        let mut schedule = Schedule { first: Due::NEVER, others: dues.into() };
        schedule.pop();
        schedule
    }
    /// An empty schedule that reuses this memory.
    pub(super) fn into_room(self) -> Vec<Reverse<Due>> {
        let mut room = self.others.into_vec();
        room.clear();
        room
    }
    #[inline]
    pub(super) fn first(&self) -> Option<Due> {
        (self.first != Due::NEVER).then_some(self.first)
    }
    /// The places of all queues, in any order.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        let others = self.others.iter().map(|due| due.0.place());
        self.first().map(Due::place).into_iter().chain(others)
    }
    #[inline]
    pub(super) fn push(&mut self, due: Due) {
        if self.first == Due::NEVER {
            self.first = due;
        } else {
            self.others.push(Reverse(self.first.max(due)));
            self.first = self.first.min(due);
        }
    }
    #[inline]
    pub(super) fn pop(&mut self) {
        self.first = self.others.pop().map_or(Due::NEVER, |due| due.0);
    }
    /// Pops and pushes.
    #[inline]
    pub(super) fn replace(&mut self, due: Due) {
        self.first = match self.others.peek_mut() {
            Some(mut next) if next.0 < due => std::mem::replace(&mut *next, Reverse(due)).0,
            _ => due,
        };
    }
    /// Prefetches what these operations read.
    #[inline]
    pub(super) fn prefetch(&self) {
        let others = self.others.as_slice();
        others.iter().take(1).for_each(prefetch);
        prefetch_end(others);
    }
}
