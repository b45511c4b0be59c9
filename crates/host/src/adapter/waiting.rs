//! The queues in front of one stage of an adapter, and which order goes next (E-41).
//!
//! | discipline | queues | order of service |
//! |---|---|---|
//! | FIFO | 1 | first come, first served |
//! | FIFO | more | round robin over classes, first come, first served within each |
//! | priority | any | highest class first, then first come, first served |
//! | EDD | any | highest class first, then earliest due date, then first come, first served |
//!
//! Classes beyond the last queue share the last. Source: Indiresan 1997, §4.2.2, §4.3.3.

use super::description::Discipline;
use super::transmitter::Order;
use lastmeter_base::Time;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The urgency of an order: its queue, then its due date if that counts. The greater goes first.
pub(super) type Rank = (usize, Reverse<Time>);

pub(super) struct Waiting {
    discipline: Discipline,
    queues: Vec<BTreeMap<(Time, u64), Order>>,
    /// The next FIFO queue in the round robin.
    turn: usize,
    arrivals: u64,
}

impl Waiting {
    pub(super) fn new(queues: u64, discipline: Discipline) -> Waiting {
        let queues = (0..queues.max(1)).map(|_| BTreeMap::new()).collect();
        Waiting { discipline, queues, turn: 0, arrivals: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.iter().all(BTreeMap::is_empty)
    }

    pub(super) fn rank(&self, order: &Order) -> Rank {
        let due = if self.discipline == Discipline::Edd { order.due } else { Time::START };
        match self.discipline {
            Discipline::Fifo => (0, Reverse(due)),
            _ => (self.queue_of(order), Reverse(due)),
        }
    }

    fn queue_of(&self, order: &Order) -> usize {
        usize::from(order.class).min(self.queues.len() - 1)
    }

    pub(super) fn push(&mut self, order: Order) {
        let (Reverse(due), at) = (self.rank(&order).1, self.queue_of(&order));
        self.arrivals += 1;
        self.queues[at].insert((due, self.arrivals), order);
    }

    /// The queue that goes next.
    fn front(&self) -> Option<usize> {
        let has = |&at: &usize| !self.queues[at].is_empty();
        match self.discipline {
            Discipline::Fifo => {
                let all = self.queues.len();
                (0..all).map(|by| (self.turn + by) % all).find(has)
            }
            _ => (0..self.queues.len()).rev().find(has),
        }
    }

    pub(super) fn peek(&self) -> Option<&Order> {
        self.queues[self.front()?].values().next()
    }

    pub(super) fn pop(&mut self) -> Option<Order> {
        let at = self.front()?;
        self.turn = at + 1;
        self.queues[at].pop_first().map(|(_, order)| order)
    }

    /// The order that would go last.
    pub(super) fn last(&self) -> Option<&Order> {
        self.queues.iter().find(|queue| !queue.is_empty())?.values().next_back()
    }

    /// Removes that one.
    pub(super) fn pop_last(&mut self) -> Option<Order> {
        let queue = self.queues.iter_mut().find(|queue| !queue.is_empty())?;
        queue.pop_last().map(|(_, order)| order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{Bytes, Duration};

    fn order(id: u64, class: u8, due_ms: u64) -> Order {
        let due = Time::START + Duration::from_ms(due_ms);
        Order { class, due, ..Order::new(id, Bytes(100)) }
    }

    fn served(discipline: Discipline, queues: u64) -> Vec<u64> {
        let mut waiting = Waiting::new(queues, discipline);
        for order in [order(0, 0, 9), order(1, 0, 4), order(2, 1, 8), order(3, 1, 2)] {
            waiting.push(order);
        }
        std::iter::from_fn(|| waiting.pop().map(|order| order.id)).collect()
    }

    #[test]
    fn e_41_each_discipline_has_its_own_order() {
        assert_eq!(served(Discipline::Fifo, 1), [0, 1, 2, 3]);
        assert_eq!(served(Discipline::Fifo, 2), [0, 2, 1, 3]);
        assert_eq!(served(Discipline::Priority, 1), [0, 1, 2, 3]);
        assert_eq!(served(Discipline::Priority, 2), [2, 3, 0, 1]);
        assert_eq!(served(Discipline::Edd, 1), [3, 1, 2, 0]);
        assert_eq!(served(Discipline::Edd, 2), [3, 2, 1, 0]);
    }

    #[test]
    fn e_46_the_least_important_order_has_the_lowest_class_and_the_latest_due_date() {
        let mut waiting = Waiting::new(2, Discipline::Edd);
        [order(0, 0, 9), order(1, 0, 4), order(2, 1, 10)].into_iter().for_each(|o| waiting.push(o));
        assert_eq!(waiting.pop_last().map(|order| order.id), Some(0));
        assert_eq!(waiting.pop_last().map(|order| order.id), Some(1));
        assert_eq!(waiting.pop_last().map(|order| order.id), Some(2));
    }
}
