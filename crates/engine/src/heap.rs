//! A heap of events with four children per node.
//!
//! Most handlers re-arm the timer that just expired; so `pop` leaves a hole at the root, which the next
//! `push` fills with a single walk down.

use crate::events::{Event, Key};

#[derive(Debug, Default)]
pub(crate) struct Heap {
    heap: Vec<Event>,
    /// Whether `heap[0]` has been popped and awaits a successor.
    hole: bool,
}

const ARITY: usize = 4;

impl Heap {
    /// The key of the earliest event; [`Key::NEVER`] for none.
    #[inline]
    pub(crate) fn first(&mut self) -> Key {
        if self.hole {
            self.fill();
        }
        self.heap.first().map_or(Key::NEVER, |event| event.key)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.heap.len() - usize::from(self.hole)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
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

    /// Moves all events out, in any order.
    pub(crate) fn drain_into(&mut self, all: &mut Vec<Event>) {
        if std::mem::take(&mut self.hole) {
            self.heap.swap_remove(0);
        }
        all.append(&mut self.heap);
    }

    fn fill(&mut self) {
        self.hole = false;
        let last = self.heap.pop().expect("a hole counts as an element of the heap");
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

/// The index of the earliest of four siblings, found without a branch.
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
