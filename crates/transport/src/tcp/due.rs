//! Which of many connections is due next, behind one timer of the engine.
//!
//! Connections' own timers move with nearly every segment, mostly to later: then the heap is left as
//! it is, and an entry that comes up too early is put back. So a connection costs the heap a few
//! steps in each round trip at most, and the engine's events do not grow in number with them.

use lastmeter_base::Time;
use lastmeter_engine::{Context, TimerId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The timer of the engine that speaks for all of them.
pub(super) const TIMER: TimerId = TimerId(0);

/// Deadlines of connections, by their numbers.
#[derive(Debug)]
pub(super) struct Due {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// When the engine's timer is set for.
    armed: Time,
}

impl Due {
    pub(super) fn new() -> Due {
        Due { heap: BinaryHeap::new(), armed: Time::MAX }
    }

    /// Sees to it that connection `index` comes up at `at`; `queued` is the entry that speaks for it,
    /// [`Time::MAX`] for none.
    #[inline]
    pub(super) fn schedule(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        at: Time,
        queued: &mut Time,
    ) {
        if at < *queued {
            *queued = at;
            self.heap.push(Reverse((at, index)));
            if at < self.armed {
                self.armed = at;
                cx.arm(TIMER, at);
            }
        }
    }

    /// Whose entry comes up next.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        self.heap.peek().map(|next| next.0.1)
    }

    /// The engine's timer has expired.
    pub(super) fn expired(&mut self) {
        self.armed = Time::MAX;
    }

    /// An entry whose time has come, taken out. An earlier entry may have taken its place: then
    /// the connection's `queued` is another.
    pub(super) fn next(&mut self, now: Time) -> Option<(Time, u32)> {
        let &Reverse((at, index)) = self.heap.peek().filter(|next| next.0.0 <= now)?;
        self.heap.pop();
        Some((at, index))
    }

    /// Sets the engine's timer for what is due next.
    pub(super) fn rearm(&mut self, cx: &mut Context<'_>) {
        if let Some(&Reverse((at, _))) = self.heap.peek().filter(|next| next.0.0 < self.armed) {
            self.armed = at;
            cx.arm(TIMER, at);
        }
    }
}
