//! Deficit round robin that prefers new queues: the turns of FQ-CoDel, FQ-PIE and CAKE.
//!
//! ```text
//! arrival at a queue that is not listed --> [ new ] --> a quantum used up, or found empty --> [ old ] --> found
//! empty: gone
//! ```
//!
//! Source: RFC 8290, §4.1 and §4.2. A queue has used up its credits at zero ("at least a quantum of bytes"; as in
//! Linux), although the same sentence of §4.2 says "negative".

use lastmeter_base::Bytes;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    deficit: i64,
    listed: bool,
}

/// Which queue is served next.
#[derive(Debug, Default)]
pub(super) struct Turns {
    turns: Vec<Turn>,
    pub(super) new: VecDeque<u32>,
    pub(super) old: VecDeque<u32>,
}

impl Turns {
    /// Makes sure that there are turns for this many queues.
    pub(super) fn reach(&mut self, count: usize) {
        self.turns.resize(count, Turn::default());
    }
    /// A packet has arrived at queue `at`; returns whether the queue is new.
    #[inline]
    pub(super) fn arrived(&mut self, at: usize, quantum: Bytes) -> bool {
        let turn = &mut self.turns[at];
        if turn.listed {
            return false;
        }
        *turn = Turn { deficit: quantum.0 as i64, listed: true };
        self.new.push_back(at as u32);
        true
    }
    /// The queue whose turn it is; one that has used up its credits is given its `quantum` and goes last.
    #[inline]
    pub(super) fn next(&mut self, quantum: impl Fn(usize) -> Bytes) -> Option<usize> {
        loop {
            let list = if self.new.is_empty() { &mut self.old } else { &mut self.new };
            let at = *list.front()?;
            let turn = &mut self.turns[at as usize];
            if turn.deficit > 0 {
                return Some(at as usize);
            }
            turn.deficit += quantum(at as usize).0.max(1) as i64;
            list.pop_front();
            self.old.push_back(at);
        }
    }
    /// The queue whose turn it is has sent this much.
    #[inline]
    pub(super) fn sent(&mut self, at: usize, len: Bytes) {
        self.turns[at].deficit -= len.0 as i64;
    }
    /// The queue whose turn it is has nothing to send; returns whether it has left the lists. A new one passes through
    /// the old list once, so that it cannot stay new.
    pub(super) fn found_empty(&mut self) -> bool {
        if let Some(at) = self.new.pop_front() {
            self.old.push_back(at);
            return false;
        }
        if let Some(at) = self.old.pop_front() {
            self.turns[at as usize].listed = false;
        }
        true
    }
    /// All queues are empty, and none is new or old.
    #[cold]
    pub(super) fn forget(&mut self) {
        for at in self.new.drain(..).chain(self.old.drain(..)) {
            self.turns[at as usize].listed = false;
        }
    }
}
