//! The pending events, earliest first: a heap with four children a node.
//!
//! Elements keep one pending event each, whatever their backlog, so the heap stays small. Most
//! handlers re-arm what just expired; therefore `pop` leaves a hole at the root, which the next
//! `push` fills with a single walk down.

use lastmeter_base::Time;

/// When an event is due and who wins a tie, as one number: comparing is two instructions, and
/// choosing the lesser of two needs no branch, which a processor could not predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    /// Later than every event.
    pub(crate) const NEVER: Key = Key(u128::MAX);

    /// `order` is the origin (24 bits) and the origin's own count (40 bits), or a shuffled form.
    #[inline]
    pub(crate) fn new(at: Time, order: u64) -> Key {
        Key(u128::from(at.as_ps()) << 64 | u128::from(order))
    }
    #[inline]
    pub(crate) fn at(self) -> Time {
        Time::from_ps((self.0 >> 64) as u64)
    }
    #[inline]
    pub(crate) fn order(self) -> u64 {
        self.0 as u64
    }
}

/// A key and what it is for: a timer's slot, or an edge where the high bit is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) key: Key,
    pub(crate) target: Target,
}

/// What becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target(u32);

impl Target {
    const EDGE: u32 = 1 << 31;

    pub(crate) fn timer(slot: u32) -> Target {
        debug_assert!(slot < Target::EDGE);
        Target(slot)
    }
    pub(crate) fn edge(edge: u32) -> Target {
        debug_assert!(edge < Target::EDGE);
        Target(edge | Target::EDGE)
    }
    pub(crate) fn as_edge(self) -> Option<usize> {
        (self.0 & Target::EDGE != 0).then_some((self.0 & !Target::EDGE) as usize)
    }
    pub(crate) fn slot(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: Vec<Event>,
    /// Whether `heap[0]` has been popped and awaits a successor.
    hole: bool,
}

const ARITY: usize = 4;

impl Events {
    /// When the next event is due.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Time> {
        if self.hole {
            self.fill();
        }
        self.heap.first().map(|event| event.key.at())
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        if self.hole {
            self.fill();
        }
        let event = *self.heap.first()?;
        self.hole = true;
        Some(event)
    }

    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        if self.hole {
            self.hole = false;
            self.sink(event);
        } else {
            self.heap.push(event);
            self.rise(event);
        }
    }

    fn fill(&mut self) {
        self.hole = false;
        let last = self.heap.pop().expect("a hole stands for an element of the heap");
        if !self.heap.is_empty() {
            self.sink(last);
        }
    }

    /// Walks `event` down from the root.
    #[inline]
    fn sink(&mut self, event: Event) {
        let heap = &mut self.heap[..];
        let mut hole = 0;
        loop {
            let first = hole * ARITY + 1;
            let (child, least) = match heap.get(first..first + ARITY) {
                Some(children) => {
                    let offset = least_of_four(children);
                    (first + offset, children[offset])
                }
                None => match heap.get(first..).and_then(least_of_few) {
                    Some((offset, least)) => (first + offset, least),
                    None => break,
                },
            };
            if event.key < least.key {
                break;
            }
            heap[hole] = least;
            hole = child;
        }
        heap[hole] = event;
    }

    /// Walks `event` up from the end.
    #[inline]
    fn rise(&mut self, event: Event) {
        let heap = &mut self.heap[..];
        let mut hole = heap.len() - 1;
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if heap[parent].key <= event.key {
                break;
            }
            heap[hole] = heap[parent];
            hole = parent;
        }
        heap[hole] = event;
    }
}

/// Where the earliest of four siblings stands, found without a branch.
#[inline]
fn least_of_four(children: &[Event]) -> usize {
    let key = |offset: usize| children[offset & (ARITY - 1)].key;
    let left = usize::from(key(1) < key(0));
    let right = 2 + usize::from(key(3) < key(2));
    std::hint::select_unpredictable(key(right) < key(left), right, left)
}

fn least_of_few(children: &[Event]) -> Option<(usize, Event)> {
    children.iter().copied().enumerate().min_by_key(|(_, event)| event.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    #[test]
    fn pops_in_the_order_of_a_plain_heap_under_any_mix_of_calls() {
        let mut stream = Stream::new(1, "events");
        let mut events = Events::default();
        let mut plain = BinaryHeap::new();
        for order in 0..20_000 {
            // Few distinct times, so that ties are common.
            let key = Key::new(Time::from_ps(stream.below(50)), order);
            if stream.chance(0.55) {
                events.push(Event { key, target: Target::timer(order as u32) });
                plain.push(Reverse(key));
            } else {
                let expected = plain.pop().map(|Reverse(key)| key);
                assert_eq!(events.pop().map(|event| event.key), expected);
            }
            assert_eq!(events.next(), plain.peek().map(|Reverse(key)| key.at()));
        }
    }
}
