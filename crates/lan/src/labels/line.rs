//! What waits in a router for one of its links: a packet leaves it when the wire is free for it, so that nothing waits
//! at the wire itself.
//!
//! ```text
//! messages of RSVP ----------------> [ control ]  --1--\
//! packets with a reservation ------> [ reserved ] --2, 4--+--> wire
//! all else ------------------------> [ rest ]     --3--/        4: reserved, beyond its rate
//! ```

use super::reserved::{Counts, Promise, Reserved};
use lastmeter_base::{Bytes, Packet, Rate, Time};
use lastmeter_net::queue::Queue;
use std::collections::VecDeque;

/// Limit on messages that wait.
const CONTROL_MAX: usize = 1000;

/// A link's queues, and when its wire is free.
pub(super) struct Line {
    /// Of the wire; a link without one is always free.
    rate: Option<Rate>,
    /// What a packet takes on the wire besides its length.
    framing: Bytes,
    control: VecDeque<Packet>,
    reserved: Reserved,
    rest: Box<dyn Queue>,
    free_at: Time,
    /// Counts of flows that have ended.
    past: Counts,
}

impl Line {
    pub(super) fn new(rate: Option<Rate>, framing: Bytes, rest: Box<dyn Queue>) -> Line {
        Line {
            rate,
            framing,
            control: VecDeque::new(),
            reserved: Reserved::default(),
            rest,
            free_at: Time::START,
            past: Counts::default(),
        }
    }
    /// How many packets wait.
    pub(super) fn packets(&self) -> u64 {
        self.control.len() as u64 + self.reserved.packets() + self.rest.packets()
    }
    /// What became of packets with a reservation.
    pub(super) fn counts(&self) -> Counts {
        self.reserved.counts().fold(self.past, |sum, (.., counts)| added(sum, counts))
    }
    /// Other flows have a reservation; packets of those that had one wait with the rest. Those without room are
    /// returned.
    pub(super) fn promise(&mut self, now: Time, promises: Vec<Promise>) -> Vec<Packet> {
        let stays = |flow: &str| promises.iter().any(|promise| promise.flow == flow);
        for (promise, _, counts) in self.reserved.counts() {
            if !stays(&promise.flow) {
                self.past = added(self.past, counts);
            }
        }
        let (new, left) = Reserved::new(promises, std::mem::take(&mut self.reserved));
        self.reserved = new;
        left.into_iter().filter_map(|packet| self.rest.enqueue(now, packet).err()).collect()
    }
    /// A message.
    ///
    /// # Errors
    /// The packet, if there is no room.
    pub(super) fn control(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.control.len() >= CONTROL_MAX {
            return Err(packet);
        }
        self.control.push_back(packet);
        Ok(())
    }
    /// A packet of the flow with this place among the promises.
    ///
    /// # Errors
    /// As with [`Line::control`].
    pub(super) fn reserved(&mut self, at: usize, packet: Packet) -> Result<(), Packet> {
        self.reserved.enqueue(at, packet)
    }
    /// Any other packet.
    ///
    /// # Errors
    /// As with [`Line::control`].
    pub(super) fn rest(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        self.rest.enqueue(now, packet)
    }
    /// A packet that the discipline has dropped.
    pub(super) fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        self.rest.dropped()
    }
    /// The packet that leaves now.
    pub(super) fn next(&mut self, now: Time) -> Option<Packet> {
        if now < self.free_at {
            return None;
        }
        let framing = self.framing;
        let on_line = |packet: &Packet| packet.len + framing;
        let mut next = self.control.pop_front();
        next = next.or_else(|| self.reserved.dequeue(now, false, on_line));
        next = next.or_else(|| self.rest.dequeue(now));
        let packet = next.or_else(|| self.reserved.dequeue(now, true, on_line))?;
        if let Some(rate) = self.rate {
            self.free_at = now + rate.time_for(on_line(&packet));
        }
        Some(packet)
    }
    /// When to look again, if nothing leaves now.
    pub(super) fn next_at(&self, now: Time) -> Option<Time> {
        match self.packets() {
            0 => None,
            _ if now < self.free_at => Some(self.free_at),
            _ => self.rest.ready_at(now),
        }
    }
    /// All that waits, but for what a discipline keeps that paces its packets: the router has stopped.
    pub(super) fn clear(&mut self, now: Time) -> Vec<Packet> {
        let mut all: Vec<Packet> = self.control.drain(..).collect();
        all.extend(self.promise(now, Vec::new()));
        all.extend(std::iter::from_fn(|| self.rest.dequeue(now)));
        all
    }
}

fn added(sum: Counts, counts: Counts) -> Counts {
    Counts {
        within: sum.within + counts.within,
        beyond: sum.beyond + counts.beyond,
        bytes: sum.bytes + counts.bytes,
        dropped: sum.dropped + counts.dropped,
        waited_most: sum.waited_most.max(counts.waited_most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Duration;
    use lastmeter_net::queue::DropTail;

    fn packet(now: Time, len: u64, class: u8) -> Packet {
        let mut packet = Packet::new(Bytes(len));
        (packet.entered, packet.class) = (now, class);
        packet
    }
    fn line() -> Line {
        // 1000 bytes take 1 ms.
        let rate = Some(Rate::from_mbit(8));
        let rest = Box::new(DropTail::new(4, Bytes(u64::MAX)));
        Line::new(rate, Bytes::ZERO, rest)
    }
    fn promise(flow: &str, mbit: u64) -> Promise {
        Promise { flow: flow.to_owned(), rate: Rate::from_mbit(mbit), packets: 3 }
    }

    #[test]
    fn messages_go_first_then_what_is_within_its_rate_then_the_rest_d_43() {
        let (mut line, now) = (line(), Time::START);
        assert!(line.promise(now, vec![promise("film", 2)]).is_empty());
        for (class, queue) in [(3, 0), (3, 0), (1, 1), (1, 1), (1, 1), (0, 2)] {
            let packet = packet(now, 1000, class);
            let room = match queue {
                0 => line.rest(now, packet),
                1 => line.reserved(0, packet),
                _ => line.control(packet),
            };
            room.expect("room");
        }
        let mut sent = Vec::new();
        let mut at = now;
        while let Some(packet) = line.next(at) {
            assert!(line.next(at).is_none(), "the wire is taken");
            sent.push(packet.class);
            at = line.next_at(at).unwrap_or(at);
        }
        // The second reserved packet is within its rate 4 ms after the first one was, the third never.
        assert_eq!(sent, [0, 1, 3, 3, 1, 1]);
        assert_eq!((line.counts().within, line.counts().beyond), (2, 1));
        assert_eq!(at, now + Duration::from_ms(5), "nothing is left to wait for");
    }

    #[test]
    fn what_ends_waits_with_the_rest_and_its_counts_stay_d_43() {
        let (mut line, now) = (line(), Time::START);
        line.promise(now, vec![promise("film", 4), promise("call", 1)]);
        (0..3).for_each(|_| line.reserved(0, packet(now, 1000, 1)).expect("room"));
        assert!(line.reserved(0, packet(now, 1000, 1)).is_err(), "three may wait");
        assert!(line.next(now).is_some());
        (0..3).for_each(|_| line.rest(now, packet(now, 1000, 3)).expect("room"));
        let left = line.promise(now, vec![promise("call", 1)]);
        assert_eq!((left.len(), line.packets()), (1, 4));
        assert_eq!((line.counts().within, line.counts().dropped), (1, 1));
        assert_eq!(line.clear(now).len(), 4);
        assert_eq!(line.packets(), 0);
    }
}
