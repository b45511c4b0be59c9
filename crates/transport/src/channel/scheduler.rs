//! The run-time scheduler of a link: three queues, a horizon, and few packets outstanding (E-22 to
//! E-25).
//!
//! ```text
//!             /-> 1 current: logical arrival is past; by deadline -\
//! packets ---+--> 2 best effort: in order --------------------------+--> adapter, at most P
//!             \-> 3 early: by logical arrival; only within h -------/
//! ```
//!
//! | Parameter     | Unit | Default | Meaning                                                    |
//! |---------------|------|---------|------------------------------------------------------------|
//! | `horizon`     | time | 0       | how early an early packet may go; 0: not work-conserving   |
//! | `outstanding` | -    | 2       | most packets in the adapter                                |
//!
//! It has no timer: after each change its owner calls [`Scheduler::ready_at`]. Ties are first in, first out.
//! [`super::policing`] limits how much a channel may hold.
//!
//! Source: Kandlur, Shin & Ferrari, IEEE TPDS 5(10), 1994, §IV; Indiresan 1997, §3.2.4.
//! Deviation: none in order. `lastmeter_net::queue::Edd` is the same order for one link whose packets
//! all have one bound; here each channel has its own at each link, and the adapter's capacity is limited.
//!
//! ```
//! use lastmeter_base::{Duration, Time};
//! use lastmeter_transport::channel::scheduler::{Options, Scheduler};
//! let ms = |n| Time::START + Duration::from_ms(n);
//! let options = Options { horizon: Duration::ZERO, outstanding: 2 };
//! let mut link = Scheduler::new(options);
//! link.enqueue_real_time(ms(5), ms(20), "early");
//! link.enqueue_best_effort("mail");
//! link.enqueue_real_time(ms(0), ms(9), "video");
//! assert_eq!(link.dequeue(ms(1)), Some("video"));
//! assert_eq!(link.dequeue(ms(1)), Some("mail"));
//! assert_eq!(link.dequeue(ms(5)), None, "two are outstanding");
//! link.sent();
//! assert_eq!((link.dequeue(ms(4)), link.ready_at(ms(4))), (None, Some(ms(5))));
//! assert_eq!(link.dequeue(ms(5)), Some("early"));
//! ```

use lastmeter_base::{Duration, Time};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// How a link is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// h.
    pub horizon: Duration,
    /// P, at least 1.
    pub outstanding: u64,
}

/// A real-time packet that waits.
#[derive(Debug)]
struct Waiting<P> {
    /// The sort key: its deadline when current, its logical arrival when early.
    at: Time,
    order: u64,
    deadline: Time,
    packet: P,
}

impl<P> PartialEq for Waiting<P> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl<P> Eq for Waiting<P> {}
impl<P> PartialOrd for Waiting<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<P> Ord for Waiting<P> {
    /// The earliest is the greatest, for a max-heap.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// The scheduler of one link.
#[derive(Debug)]
pub struct Scheduler<P> {
    current: BinaryHeap<Waiting<P>>,
    best_effort: VecDeque<P>,
    early: BinaryHeap<Waiting<P>>,
    options: Options,
    outstanding: u64,
    order: u64,
}

impl<P> Scheduler<P> {
    /// An empty scheduler. Panics if `outstanding` is 0.
    pub fn new(options: Options) -> Scheduler<P> {
        assert!(options.outstanding > 0, "a link that may send nothing");
        Scheduler {
            current: BinaryHeap::new(),
            best_effort: VecDeque::new(),
            early: BinaryHeap::new(),
            options,
            outstanding: 0,
            order: 0,
        }
    }

    /// A real-time packet with its logical arrival and its deadline at this link.
    pub fn enqueue_real_time(&mut self, logical: Time, deadline: Time, packet: P) {
        self.order += 1;
        self.early.push(Waiting { at: logical, order: self.order, deadline, packet });
    }

    /// A best-effort packet.
    pub fn enqueue_best_effort(&mut self, packet: P) {
        self.best_effort.push_back(packet);
    }

    /// The packet to give to the adapter now, if one may go.
    pub fn dequeue(&mut self, now: Time) -> Option<P> {
        if self.outstanding >= self.options.outstanding {
            return None;
        }
        while self.early.peek().is_some_and(|waiting| waiting.at <= now) {
            let waiting = self.early.pop()?;
            self.current.push(Waiting { at: waiting.deadline, ..waiting });
        }
        let packet = match self.current.pop() {
            Some(waiting) => waiting.packet,
            None => match self.best_effort.pop_front() {
                Some(packet) => packet,
                None if self.early_at()? <= now => self.early.pop()?.packet,
                None => return None,
            },
        };
        self.outstanding += 1;
        Some(packet)
    }

    /// The adapter has sent a packet.
    pub fn sent(&mut self) {
        self.outstanding = self.outstanding.checked_sub(1).expect("only what was given is sent");
    }

    /// When [`Scheduler::dequeue`] could next succeed; `None`: not before something is enqueued or sent.
    pub fn ready_at(&self, now: Time) -> Option<Time> {
        if self.outstanding >= self.options.outstanding {
            return None;
        }
        match self.current.is_empty() && self.best_effort.is_empty() {
            true => self.early_at().map(|at| at.max(now)),
            false => Some(now),
        }
    }

    /// Packets that wait: current, best effort, early, as of the last call with a time.
    pub fn waiting(&self) -> [usize; 3] {
        [self.current.len(), self.best_effort.len(), self.early.len()]
    }

    /// When the first early packet may go.
    fn early_at(&self) -> Option<Time> {
        let horizon = self.options.horizon.as_ps();
        self.early.peek().map(|first| Time::from_ps(first.at.as_ps().saturating_sub(horizon)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }

    #[test]
    fn e_24_with_a_horizon_an_idle_link_sends_early_packets_but_never_before_best_effort() {
        let options = Options { horizon: Duration::from_us(10), outstanding: 9 };
        let mut link = Scheduler::new(options);
        link.enqueue_real_time(at(15), at(50), 'e');
        assert_eq!((link.dequeue(at(4)), link.ready_at(at(4))), (None, Some(at(5))));
        link.enqueue_best_effort('b');
        assert_eq!((link.dequeue(at(5)), link.dequeue(at(5))), (Some('b'), Some('e')));
    }

    /// The write semaphore: at most two, and the choice is made when one has left.
    #[test]
    fn e_25_no_more_than_two_are_beyond_recall() {
        let mut link = Scheduler::new(Options { horizon: Duration::ZERO, outstanding: 2 });
        (0..4).for_each(|n| link.enqueue_best_effort(n));
        assert_eq!(
            [link.dequeue(at(0)), link.dequeue(at(0)), link.dequeue(at(0))],
            [Some(0), Some(1), None]
        );
        link.enqueue_real_time(at(0), at(9), 7);
        assert_eq!(link.ready_at(at(1)), None);
        link.sent();
        assert_eq!((link.dequeue(at(1)), link.dequeue(at(1))), (Some(7), None));
    }

    proptest! {
        /// The definition, on lists: current by deadline, then best effort, then early within h.
        #[test]
        fn e_23_serves_as_the_definition_says(
            steps in prop::collection::vec((0u8..4, 0u64..40, 0u64..40), 1..80), horizon in 0u64..20,
        ) {
            let options = Options { horizon: Duration::from_us(horizon), outstanding: u64::MAX };
            let mut link = Scheduler::new(options);
            let mut naive: Vec<(u64, Option<(u64, u64)>)> = Vec::new();
            let mut now = 0;
            for (n, (step, first, second)) in steps.into_iter().enumerate() {
                let n = n as u64;
                match step {
                    0 => {
                        link.enqueue_best_effort(n);
                        naive.push((n, None));
                    }
                    1 | 2 => {
                        let (logical, deadline) = (now + first, now + first + second);
                        link.enqueue_real_time(at(logical), at(deadline), n);
                        naive.push((n, Some((logical, deadline))));
                    }
                    _ => {
                        now += first / 4;
                        let class = |&(n, times): &(u64, Option<(u64, u64)>)| match times {
                            Some((logical, deadline)) if logical <= now => Some((0, deadline, n)),
                            None => Some((1, 0, n)),
                            Some((logical, _)) if logical <= now + horizon => {
                                Some((2, logical, n))
                            }
                            Some(_) => None,
                        };
                        let next = naive.iter().filter_map(class).min().map(|(.., n)| n);
                        let ready = link.ready_at(at(now)) == Some(at(now));
                        prop_assert_eq!(ready, next.is_some());
                        prop_assert_eq!(link.dequeue(at(now)), next);
                        naive.retain(|&(n, _)| Some(n) != next);
                    }
                }
                prop_assert_eq!(link.waiting().iter().sum::<usize>(), naive.len());
            }
        }
    }
}
