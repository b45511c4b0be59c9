//! Round robin: whose turn it is.

/// Round robin between queues: a ring that any of them can leave.
#[derive(Debug, Default)]
pub(super) struct Ring {
    links: Vec<Link>,
    head: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    next: usize,
    previous: usize,
    inside: bool,
}

impl Ring {
    /// The queue whose turn it is.
    #[inline]
    pub(super) fn head(&self) -> Option<usize> {
        self.head
    }
    /// Passes the turn on.
    #[inline]
    pub(super) fn rotate(&mut self) {
        self.head = self.head.map(|head| self.links[head].next);
    }
    /// `at` joins at the end.
    #[inline]
    pub(super) fn join(&mut self, at: usize) {
        if at >= self.links.len() {
            self.links.resize(at + 1, Link::default());
        }
        debug_assert!(!self.links[at].inside, "a queue has one turn per round");
        let (previous, next) = match self.head {
            Some(head) => (self.links[head].previous, head),
            None => (at, at),
        };
        self.links[at] = Link { next, previous, inside: true };
        self.links[previous].next = at;
        self.links[next].previous = at;
        self.head.get_or_insert(at);
    }
    /// `at` leaves; if it was its turn, the turn passes on.
    #[inline]
    pub(super) fn leave(&mut self, at: usize) {
        let Link { next, previous, inside } = self.links[at];
        debug_assert!(inside, "only a queue that has joined can leave");
        self.links[previous].next = next;
        self.links[next].previous = previous;
        self.links[at].inside = false;
        if self.head == Some(at) {
            self.head = (next != at).then_some(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_keeps_its_order_as_queues_join_and_leave() {
        let mut ring = Ring::default();
        (0..3).for_each(|at| ring.join(at));
        ring.rotate();
        ring.leave(1);
        assert_eq!(ring.head(), Some(2));
        ring.join(1);
        let order: Vec<_> = (0..4)
            .map(|_| {
                let head = ring.head();
                ring.rotate();
                head
            })
            .collect();
        assert_eq!(order, [Some(2), Some(0), Some(1), Some(2)]);
        (0..3).for_each(|at| ring.leave(at));
        assert_eq!(ring.head(), None);
    }
}
