//! When an adapter interrupts: after a number of packets, or some time after the first of them (E-54, E-60, E-97).
//!
//! ```text
//! packets done   | |  |             interrupt after `coalescing` of them, or after `coalescing-time`
//!                +-------------> !  without a time: once the adapter has no more packets in progress
//! ```

use super::description::{Description, Synchronisation};
use lastmeter_base::{Duration, Time};

/// The interrupts of one queue.
#[derive(Clone, Debug)]
pub struct Moderation {
    packets: u64,
    time: Duration,
    polls: bool,
    pending: u64,
    due: Option<Time>,
}

impl Moderation {
    /// As described, with nothing to report.
    pub fn new(card: &Description) -> Moderation {
        Moderation {
            packets: card.host.coalescing.max(1),
            time: card.host.coalescing_time,
            polls: card.host.synchronisation == Synchronisation::Poll,
            pending: 0,
            due: None,
        }
    }

    /// A packet is done; `more` are in progress.
    pub fn done(&mut self, now: Time, more: bool) {
        if self.polls {
            return;
        }
        self.pending += 1;
        if self.pending >= self.packets {
            self.due = Some(self.due.map_or(now, |due| due.min(now)));
        } else if self.pending == 1 && !self.time.is_zero() {
            self.due = Some(now + self.time);
        }
        self.settle(now, more);
    }

    /// Whether more packets are in progress may have changed.
    pub fn settle(&mut self, now: Time, more: bool) {
        if self.pending > 0 && self.due.is_none() && self.time.is_zero() && !more {
            self.due = Some(now);
        }
    }

    /// When the next interrupt is due.
    pub fn ready_at(&self) -> Option<Time> {
        self.due
    }

    /// Raises the interrupt that is due by now; returns when it was due, and for how many packets.
    pub fn raise(&mut self, now: Time) -> Option<(Time, u64)> {
        let at = self.due.filter(|&due| due <= now)?;
        self.due = None;
        Some((at, std::mem::take(&mut self.pending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }

    fn moderation(packets: u64, time_us: u64) -> Moderation {
        let mut card = Description::plain("a card");
        card.host.coalescing = packets;
        card.host.coalescing_time = Duration::from_us(time_us);
        Moderation::new(&card)
    }

    #[test]
    fn one_packet_per_interrupt_waits_for_nothing() {
        let mut each = moderation(1, 500);
        each.done(us(3), true);
        assert_eq!(each.raise(us(3)), Some((us(3), 1)));
        assert_eq!(each.raise(us(9)), None);
    }

    #[test]
    fn an_interrupt_comes_after_the_time_or_the_packets_whichever_is_first() {
        let mut fifty = moderation(3, 50);
        fifty.done(us(10), false);
        fifty.done(us(30), false);
        assert_eq!((fifty.ready_at(), fifty.raise(us(59))), (Some(us(60)), None));
        assert_eq!(fifty.raise(us(60)), Some((us(60), 2)));
        [70, 71, 72].into_iter().for_each(|at| fifty.done(us(at), false));
        assert_eq!(fifty.raise(us(72)), Some((us(72), 3)));
        fifty.done(us(100), false);
        assert_eq!(fifty.ready_at(), Some(us(150)), "the time begins anew");
    }

    #[test]
    fn without_a_time_it_waits_only_while_more_packets_are_in_progress() {
        let mut idle = moderation(32, 0);
        idle.done(us(1), true);
        idle.done(us(2), true);
        assert_eq!(idle.ready_at(), None);
        idle.settle(us(5), false);
        assert_eq!(idle.raise(us(5)), Some((us(5), 2)));
        idle.settle(us(6), false);
        assert_eq!(idle.ready_at(), None, "nothing to report");
    }

    #[test]
    fn a_host_that_polls_is_not_interrupted() {
        let mut card = Description::plain("a card");
        card.host.synchronisation = Synchronisation::Poll;
        let mut never = Moderation::new(&card);
        never.done(us(1), false);
        assert_eq!(never.ready_at(), None);
    }
}
