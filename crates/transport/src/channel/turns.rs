//! Which of many handlers has a real processor: the most urgent one, which yields voluntarily (E-79, E-80).
//!
//! ```text
//! handler of a channel --ask(deadline)--> waits --its turn--> works on P packets --gives way?--> goes on, or waits
//! ```
//!
//! [`super::handlers`] is the same rule where the time of each packet is known beforehand, as in a model: current
//! real-time messages by deadline, then best effort in order. Here the owner of the processor is a thread that works
//! for as long as it takes, and asks after every P packets whether a more urgent one waits. A thread blocks until
//! [`Turns::has`] says that the turn is its own.
//!
//! Source: Indiresan 1997, §6.1 (process-per-channel handlers, cooperative pre-emption).
//!
//! ```
//! use lastmeter_base::{Duration, Time};
//! use lastmeter_transport::channel::turns::Turns;
//! let ms = |n| Some(Time::START + Duration::from_ms(n));
//! let mut turns = Turns::default();
//! let mail = turns.ask(None);
//! assert!(turns.has(mail), "nobody else wants it");
//! let (film, control) = (turns.ask(ms(20)), turns.ask(ms(3)));
//! assert!(turns.gives_way(mail), "the most urgent one has it now, and mail waits");
//! assert!(turns.has(control) && !turns.gives_way(control));
//! turns.end(control);
//! assert!(turns.has(film));
//! turns.end(film);
//! assert!(turns.has(mail));
//! ```

use lastmeter_base::Time;
use std::collections::BTreeSet;

/// A handler's wish for the processor: the class, the deadline, and the order of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    best_effort: bool,
    deadline: Time,
    order: u64,
}

/// The processor, and those who wait for it.
#[derive(Debug, Default)]
pub struct Turns {
    running: Option<Turn>,
    waiting: BTreeSet<Turn>,
    asked: u64,
}

impl Turns {
    /// A handler wants the processor for a message with this deadline; `None`: best effort.
    pub fn ask(&mut self, deadline: Option<Time>) -> Turn {
        self.asked += 1;
        let best_effort = deadline.is_none();
        let deadline = deadline.unwrap_or(Time::MAX);
        let turn = Turn { best_effort, deadline, order: self.asked };
        self.waiting.insert(turn);
        self.next();
        turn
    }

    /// Whether this handler has the processor.
    pub fn has(&self, turn: Turn) -> bool {
        self.running == Some(turn)
    }

    /// Called by the one that has it, after some packets: whether a more urgent one has it now.
    pub fn gives_way(&mut self, turn: Turn) -> bool {
        if !self.has(turn) || self.waiting.first().is_none_or(|first| *first > turn) {
            return false;
        }
        self.waiting.insert(turn);
        self.running = None;
        self.next();
        true
    }

    /// The handler is done, or does not want it any more.
    pub fn end(&mut self, turn: Turn) {
        self.waiting.remove(&turn);
        if self.has(turn) {
            self.running = None;
            self.next();
        }
    }

    fn next(&mut self) {
        if self.running.is_none() {
            self.running = self.waiting.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Duration;
    use proptest::prelude::*;

    proptest! {
        /// There is one owner while anybody waits, and whoever begins is more urgent than all that wait.
        #[test]
        fn e_80_the_most_urgent_handler_has_the_processor(
            steps in prop::collection::vec((0u8..3, 0u64..9), 1..80),
        ) {
            let mut turns = Turns::default();
            let mut all: Vec<Turn> = Vec::new();
            for (step, pick) in steps {
                let owner = all.iter().copied().find(|&turn| turns.has(turn));
                prop_assert_eq!(owner.is_some(), !all.is_empty());
                match (step, owner) {
                    (0, _) => {
                        let deadline = (pick > 0).then(|| Time::START + Duration::from_us(pick));
                        all.push(turns.ask(deadline));
                    }
                    (1, Some(owner)) => {
                        let first = all.iter().min().copied();
                        prop_assert_eq!(turns.gives_way(owner), first != Some(owner));
                        prop_assert!(first.is_some_and(|first| turns.has(first)));
                    }
                    (_, Some(owner)) => {
                        turns.end(owner);
                        all.retain(|&turn| turn != owner);
                        let first = all.iter().min().copied();
                        prop_assert!(first.is_none_or(|first| turns.has(first)));
                    }
                    _ => {}
                }
            }
        }
    }
}
