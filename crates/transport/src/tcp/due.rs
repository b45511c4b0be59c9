//! Which of many connections is due next, behind one timer of the engine.
//!
//! Connections' timers move with nearly every segment, mostly to later: then the heap is left unchanged,
//! and an entry that comes up too early is put back. So a connection costs at most a few heap operations
//! per round trip, and the number of engine events does not grow with connections.

use lastmeter_base::Time;
use lastmeter_engine::{Context, TimerId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The engine's timer for all of them.
pub(super) const TIMER: TimerId = TimerId(0);

/// Deadlines of connections, by their numbers.
#[derive(Debug)]
pub(super) struct Due {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// When the engine's timer will expire.
    armed: Time,
}

impl Due {
    pub(super) fn new() -> Due {
        Due { heap: BinaryHeap::new(), armed: Time::MAX }
    }

    /// Schedules connection `index` at `at`; `queued` is its entry in the heap, [`Time::MAX`] for none.
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

    /// Removes an entry whose time has come. It may have been superseded by an earlier one: then the
    /// connection's `queued` differs.
    pub(super) fn next(&mut self, now: Time) -> Option<(Time, u32)> {
        let &Reverse((at, index)) = self.heap.peek().filter(|next| next.0.0 <= now)?;
        self.heap.pop();
        Some((at, index))
    }

    /// Sets the engine's timer for the next entry.
    pub(super) fn rearm(&mut self, cx: &mut Context<'_>) {
        if let Some(&Reverse((at, _))) = self.heap.peek().filter(|next| next.0.0 < self.armed) {
            self.armed = at;
            cx.arm(TIMER, at);
        }
    }
}
