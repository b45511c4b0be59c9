//! A processor with one handler for each channel, scheduled by the deadlines of their messages
//! (E-79, E-80).
//!
//! ```text
//! messages --> [handler 0 | ... ] \
//! messages --> [handler 1 | ... ]  +--> processor: current by deadline, then best effort --> packets
//! best effort> [handler 2 | ... ] /               checks again after every P packets
//! ```
//!
//! | Parameter         | Unit    | Default | Meaning                                                |
//! |-------------------|---------|---------|--------------------------------------------------------|
//! | `regulation`      | -       | flow control | what early real-time messages may do              |
//! | `packets_between` | packets | 4       | P: packets before a handler yields to a more urgent one |
//! | `switch`          | time    | -       | to switch to another handler                           |
//!
//! A handler inherits the deadline of its current message. Handlers are never interrupted: they yield by
//! themselves (co-operative pre-emption) after P packets and after each message.
//!
//! | Regulation | early messages | yields |
//! |---|---|---|
//! | [`Regulation::FlowControl`] | wait for their logical arrival | every P packets |
//! | [`Regulation::RealTimePriority`] | have priority over best effort, by deadline | every P packets |
//! | [`Regulation::Unregulated`] | the same | when its queue is empty |
//!
//! Source: Indiresan 1997, §6.1, Fig 6.1, §6.4.5.

use super::admission::host::HandlerCosts;
use lastmeter_base::{Bytes, Duration, Time};
use std::collections::VecDeque;

/// What early real-time messages may do (§6.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regulation {
    /// They wait.
    FlowControl,
    /// They have priority over best effort.
    RealTimePriority,
    /// The same, and a handler continues until its queue is empty.
    Unregulated,
}

/// A message for a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The caller's identifier.
    pub id: u64,
    /// Its logical arrival.
    pub logical: Time,
    /// When it is due.
    pub deadline: Time,
    /// The lengths of its packets, at least one.
    pub packets: VecDeque<Bytes>,
}

/// A packet that a handler has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// When.
    pub at: Time,
    /// Which handler.
    pub handler: usize,
    /// Of which message.
    pub message: u64,
    /// Its length.
    pub len: Bytes,
    /// Its message's logical arrival.
    pub logical: Time,
    /// Its message's deadline.
    pub deadline: Time,
    /// Whether it is the last one.
    pub last: bool,
}

#[derive(Debug)]
struct Handler {
    real_time: bool,
    per_message: Duration,
    per_packet: Duration,
    queue: VecDeque<Message>,
    /// Whether the first message has been started.
    begun: bool,
    /// Arrival order of the first message of a best-effort handler, over all handlers.
    order: u64,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    handler: usize,
    /// When the current packet is made.
    done: Time,
    /// Packets left in this turn, including that one.
    left: u64,
}

/// The processor and its handlers.
#[derive(Debug)]
pub struct Handlers {
    regulation: Regulation,
    packets_between: u64,
    switch: Duration,
    handlers: Vec<Handler>,
    turn: Option<Turn>,
    last: Option<usize>,
    orders: u64,
    busy: Duration,
    made: Vec<Made>,
}

impl Handlers {
    /// A processor without handlers.
    pub fn new(regulation: Regulation, packets_between: u64, switch: Duration) -> Handlers {
        Handlers {
            regulation,
            packets_between: packets_between.max(1),
            switch,
            handlers: Vec::new(),
            turn: None,
            last: None,
            orders: 0,
            busy: Duration::ZERO,
            made: Vec::new(),
        }
    }

    /// Adds a handler with these costs per message and packet; returns its number.
    pub fn handler(&mut self, real_time: bool, costs: &HandlerCosts) -> usize {
        self.handlers.push(Handler {
            real_time,
            per_message: costs.per_message,
            per_packet: costs.per_packet,
            queue: VecDeque::new(),
            begun: false,
            order: 0,
        });
        self.handlers.len() - 1
    }

    /// A message arrives at its handler. Panics without packets.
    pub fn message(&mut self, now: Time, handler: usize, message: Message) {
        assert!(!message.packets.is_empty(), "a message without packets");
        self.orders += 1;
        let to = &mut self.handlers[handler];
        if to.queue.is_empty() {
            to.order = self.orders;
        }
        to.queue.push_back(message);
        if self.turn.is_none() {
            self.begin(now);
        }
    }

    /// When something is due next.
    pub fn ready_at(&self) -> Option<Time> {
        match self.turn {
            Some(turn) => Some(turn.done),
            None => {
                let first = |handler: &Handler| handler.queue.front().map(|first| first.logical);
                self.handlers.iter().filter_map(first).min()
            }
        }
    }

    /// Does what is due by `now`; returns the packets made.
    pub fn advance(&mut self, now: Time) -> impl Iterator<Item = Made> + use<> {
        while let Some(due) = self.ready_at().filter(|&due| due <= now) {
            match self.turn {
                Some(turn) => self.finish(turn),
                None => self.begin(due),
            }
        }
        std::mem::take(&mut self.made).into_iter()
    }

    /// Its busy time so far, including the current packet.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// A packet is made.
    fn finish(&mut self, turn: Turn) {
        let orders = &mut self.orders;
        let handler = &mut self.handlers[turn.handler];
        let message = handler.queue.front_mut().expect("a message is being processed");
        let len = message.packets.pop_front().expect("a packet is being processed");
        let last = message.packets.is_empty();
        let (id, logical, deadline) = (message.id, message.logical, message.deadline);
        let (at, made_by) = (turn.done, turn.handler);
        self.made.push(Made { at, handler: made_by, message: id, len, logical, deadline, last });
        if last {
            handler.queue.pop_front();
            handler.begun = false;
            *orders += 1;
            handler.order = *orders;
        }
        let drains = self.regulation == Regulation::Unregulated
            && handler.real_time
            && !handler.queue.is_empty();
        let goes_on = !last && turn.left > 1;
        match goes_on || drains {
            true => self.work(at, made_by, turn.left.saturating_sub(1).max(1)),
            false => {
                self.turn = None;
                self.begin(at);
            }
        }
    }

    /// Switches to the most urgent handler, if any is ready.
    fn begin(&mut self, now: Time) {
        let most = self.handlers.iter().enumerate().filter_map(|(at, handler)| {
            let first = handler.queue.front()?;
            let early = first.logical > now && self.regulation == Regulation::FlowControl;
            match (handler.real_time, early) {
                (true, false) => Some((0, first.deadline, at as u64, at)),
                (true, true) => None,
                (false, _) => Some((1, Time::START, handler.order, at)),
            }
        });
        if let Some((.., at)) = most.min() {
            self.work(now, at, self.packets_between);
        }
    }

    fn work(&mut self, now: Time, at: usize, left: u64) {
        let handler = &mut self.handlers[at];
        let mut cost = handler.per_packet;
        if !handler.begun {
            handler.begun = true;
            cost += handler.per_message;
        }
        if self.last.replace(at) != Some(at) {
            cost += self.switch;
        }
        self.busy += cost;
        self.turn = Some(Turn { handler: at, done: now + cost, left });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }
    fn message(logical: u64, deadline: u64, packets: usize) -> Message {
        let packets = vec![Bytes(4096); packets].into();
        Message { id: 0, logical: at(logical), deadline: at(deadline), packets }
    }
    /// Two channels and best effort, 100 us a packet, 10 us to turn; (handler, microsecond) of each
    /// packet.
    fn run(regulation: Regulation, messages: &[(u64, usize, Message)]) -> Vec<(usize, u64)> {
        let mut processor = Handlers::new(regulation, 4, Duration::from_us(10));
        let costs = HandlerCosts {
            per_message: Duration::ZERO,
            per_packet: Duration::from_us(100),
            switch: Duration::ZERO,
            packets_between: 4,
        };
        for real_time in [true, true, false] {
            processor.handler(real_time, &costs);
        }
        let mut made = Vec::new();
        for (when, handler, message) in messages {
            made.extend(processor.advance(at(*when)));
            processor.message(at(*when), *handler, message.clone());
        }
        made.extend(processor.advance(Time::from_ps(u64::MAX / 2)));
        made.iter().map(|made| (made.handler, made.at.as_ps() / 1_000_000)).collect()
    }

    #[test]
    fn e_80_a_handler_yields_after_four_packets_to_a_more_urgent_one() {
        let messages =
            [(0, 0, message(0, 9_000, 6)), (50, 2, message(0, 0, 1)), (60, 1, message(60, 900, 1))];
        let made = run(Regulation::FlowControl, &messages);
        let expected =
            [(0, 110), (0, 210), (0, 310), (0, 410), (1, 520), (0, 630), (0, 730), (2, 840)];
        assert_eq!(made, expected);
    }

    #[test]
    fn e_94_early_messages_wait_or_go_before_best_effort() {
        let messages = [(0, 0, message(5_000, 9_000, 1)), (0, 2, message(0, 0, 1))];
        assert_eq!(run(Regulation::FlowControl, &messages), [(2, 110), (0, 5_110)]);
        assert_eq!(run(Regulation::RealTimePriority, &messages), [(0, 110), (2, 220)]);
    }

    #[test]
    fn e_94_unregulated_a_handler_empties_its_queue_first() {
        let messages = [
            (0, 0, message(0, 9_000, 6)),
            (0, 0, message(7_000, 20_000, 1)),
            (60, 1, message(60, 900, 1)),
        ];
        let order = |made: Vec<(usize, u64)>| made.iter().map(|m| m.0).collect::<Vec<_>>();
        assert_eq!(order(run(Regulation::Unregulated, &messages)), [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(order(run(Regulation::RealTimePriority, &messages)), [0, 0, 0, 0, 1, 0, 0, 0]);
    }
}
