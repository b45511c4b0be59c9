//! Earliest due date: the run-time scheduler of real-time channels.
//!
//! ```text
//!      /-> current, by deadline ---\   1 current packets, earliest deadline first
//! in --+-> best effort, in order ---+--> 2 best effort
//!      \-> early, by arrival due --/   3 early packets within the horizon of their time
//! ```
//!
//! | Parameter   | Unit    | Default   | Meaning                                                      |
//! |-------------|---------|-----------|--------------------------------------------------------------|
//! | `bound`     | time    | 0         | d: time from a packet's logical arrival to its deadline      |
//! | `horizon`   | time    | 0         | h: how early a packet may be sent                            |
//! | `longest`   | size    | 1500 B    | longest packet assumed by admission; longer ones are dropped |
//! | `admission` | word    | `d-order` | admission test for channels                                  |
//! | `packets`   | packets | no limit  | limit on packets held                                        |
//! | `bytes`     | size    | no limit  | limit on bytes held                                          |
//!
//! A packet with a deadline is a real-time packet; one without (deadline zero) is best effort. The
//! former is early until its logical arrival l = deadline - d. With h = 0 no real-time packet is sent before its time,
//! even if the link idles. Equal deadlines are served first in, first out. A flow that has been
//! admitted here has its own bound ([`Promise`]); if there is such a flow, no packet longer than
//! `longest` may pass, because it would block for longer than admission assumed. (E-22 to E-24)
//!
//! Source: Kandlur, Shin & Ferrari, IEEE TPDS 5(10), 1994, §IV; Indiresan, §3.2.4 (link horizon).
//! Deviation: a late packet is still sent, because the source does not discard it.

use super::due::Due;
use super::flows::{BYTES, PACKETS, Room};
use super::{Described, FULL, Promise, Queue, Site};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, FlowId, Packet, PathId, Time, here};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Earliest due date.
#[derive(Debug)]
pub struct Edd {
    current: BinaryHeap<Reverse<Due>>,
    effort: VecDeque<Packet>,
    early: BinaryHeap<Reverse<Due>>,
    bound: Duration,
    horizon: Duration,
    room: Room,
    /// By path and flow: how long the logical arrival and the deadline here precede the end-to-end deadline.
    promises: BTreeMap<(PathId, FlowId), (Duration, Duration)>,
    /// The longest packet allowed, if a flow has been admitted.
    longest: Bytes,
    dropped: VecDeque<Packet>,
    held: Bytes,
    count: u64,
    late: u64,
}

impl Edd {
    /// Empty.
    pub fn new(bound: Duration, horizon: Duration, room: Room) -> Edd {
        Edd {
            current: BinaryHeap::new(),
            effort: VecDeque::new(),
            early: BinaryHeap::new(),
            bound,
            horizon,
            room,
            promises: BTreeMap::new(),
            longest: Bytes(u64::MAX),
            dropped: VecDeque::new(),
            held: Bytes::ZERO,
            count: 0,
            late: 0,
        }
    }
    /// Keeps these promises, which assume packets of at most `longest`.
    pub fn with_promises(mut self, promises: &[Promise], longest: Bytes) -> Edd {
        let entry =
            |promise: &Promise| ((promise.path, promise.flow), (promise.arrives, promise.due));
        self.promises = promises.iter().map(entry).collect();
        if !promises.is_empty() {
            self.longest = longest;
        }
        self
    }
    /// Logical arrival and deadline of a packet here.
    fn times(&self, packet: &Packet) -> (Time, Time) {
        let promised = match self.promises.is_empty() {
            true => None,
            false => self.promises.get(&(packet.path, packet.flow)),
        };
        let &(arrives, due) = promised.unwrap_or(&(self.bound, Duration::ZERO));
        let before = |time: Duration| packet.deadline.as_ps().saturating_sub(time.as_ps());
        (Time::from_ps(before(arrives)), Time::from_ps(before(due)))
    }
    fn mature(&mut self, now: Time) {
        while self.early.peek().is_some_and(|Reverse(due)| due.key.0 <= now) {
            if let Some(Reverse(Due { key: (_, count), packet })) = self.early.pop() {
                let key = (self.times(&packet).1, count);
                self.current.push(Reverse(Due { key, packet }));
            }
        }
    }
    /// When the first early packet may go.
    fn early_at(&self) -> Option<Time> {
        let Reverse(due) = self.early.peek()?;
        Some(Time::from_ps(due.key.0.as_ps().saturating_sub(self.horizon.as_ps())))
    }
}

impl Queue for Edd {
    fn enqueue(&mut self, _now: Time, packet: Packet) -> Result<(), Packet> {
        if packet.len > self.longest {
            self.dropped.push_back(packet);
            return Ok(());
        }
        let held = self.held + packet.len;
        if self.packets() >= self.room.packets || held > self.room.bytes {
            return Err(packet);
        }
        self.held = held;
        self.count += 1;
        if packet.deadline == Time::START {
            self.effort.push_back(packet);
        } else {
            let key = (self.times(&packet).0, self.count);
            self.early.push(Reverse(Due { key, packet }));
        }
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        self.mature(now);
        let packet = match self.current.pop() {
            Some(Reverse(due)) => due.packet,
            None => match self.effort.pop_front() {
                Some(packet) => packet,
                None if self.early_at()? <= now => self.early.pop()?.0.packet,
                None => return None,
            },
        };
        self.held -= packet.len;
        self.late += u64::from(packet.deadline != Time::START && self.times(&packet).1 < now);
        Some(packet)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        match self.current.is_empty() && self.effort.is_empty() {
            true => self.early_at().map(|at| at.max(now)),
            false => Some(now),
        }
    }
    fn packets(&self) -> u64 {
        (self.current.len() + self.effort.len() + self.early.len()) as u64
    }
    fn bytes(&self) -> Bytes {
        self.held
    }
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        self.dropped.pop_front().map(|packet| (packet, "too long"))
    }
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("late", self.late);
    }
}

impl Described for Edd {
    const PAGE: &'static Page = &Page {
        name: "edd",
        family: Family::Queue,
        what: "Earliest due date, with best effort in between and a horizon for early packets.",
        ports: "in --> [ current ] [ best effort ] [ early ] --> out",
        params: &[
            Param::or("bound", ParamKind::Time, "0 s").is("time from logical arrival to deadline"),
            Param::or("horizon", ParamKind::Time, "0 s").is("how early a packet may be sent"),
            Param::or("longest", ParamKind::PACKET, "1500 B")
                .is("longest packet assumed by admission; longer ones are dropped if there are \
                 channels"),
            Param::or("admission", ParamKind::Choice(&["d-order", "edf"]), "d-order")
                .is("admission test of channels: by response times under fixed \
                 priorities, or exactly"),
            PACKETS,
            BYTES,
        ],
        source: "Kandlur, Shin & Ferrari, IEEE TPDS 5(10), 1994, §IV; Indiresan, §3.2.4",
        counters: &[("late", "real-time packets whose service began after their deadlines")],
        drops: &[FULL, ("too long", "packets longer than admission assumed")],
        example: one_queue!("edd = { packets = 50 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Edd {
        let room = Room::from_values(values, site);
        let edd = Edd::new(values.get("bound"), values.get("horizon"), room);
        edd.with_promises(site.promises, values.get("longest"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};

    fn at(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }
    fn due(flow: u32, us: u64) -> Packet {
        let mut packet = packet(flow, 100);
        packet.deadline = at(us);
        packet
    }

    #[test]
    fn current_packets_go_by_deadline_then_best_effort_then_early_ones_within_the_horizon() {
        let us = Duration::from_us;
        let mut queue = Edd::new(us(10), us(5), Room::UNLIMITED);
        for packet in [packet(0, 100), due(1, 30), due(2, 12), due(3, 11)] {
            queue.enqueue(at(0), packet).unwrap();
        }
        let flow = |packet: Option<Packet>| packet.map(|packet| packet.flow.0);
        assert_eq!(flow(queue.dequeue(at(2))), Some(3));
        assert_eq!(flow(queue.dequeue(at(2))), Some(2));
        assert_eq!(flow(queue.dequeue(at(2))), Some(0));
        assert_eq!(flow(queue.dequeue(at(2))), None);
        assert_eq!(queue.ready_at(at(2)), Some(at(15)));
        assert_eq!(flow(queue.dequeue(at(15))), Some(1));
    }

    /// E-23, E-24: the same end-to-end deadline, and different bounds here.
    #[test]
    fn an_admitted_flow_has_its_own_bound_and_no_packet_longer_than_assumed_passes() {
        let us = Duration::from_us;
        let promise = |flow, arrives, due| Promise {
            path: PathId(0),
            flow: FlowId(flow),
            arrives: us(arrives),
            due: us(due),
        };
        let promises = [promise(1, 90, 60), promise(2, 90, 80)];
        let mut queue =
            Edd::new(us(0), us(0), Room::UNLIMITED).with_promises(&promises, Bytes(100));
        for packet in [due(1, 100), due(2, 100), packet(7, 101)] {
            queue.enqueue(at(0), packet).unwrap();
        }
        assert_eq!(check::victims(&mut queue), [(7, "too long")]);
        assert_eq!((queue.packets(), queue.ready_at(at(0))), (2, Some(at(10))));
        assert!(queue.dequeue(at(9)).is_none());
        // Due at 20 us and at 40 us here.
        let order: Vec<u32> = check::drain(&mut queue, at(10)).iter().map(|p| p.flow.0).collect();
        assert_eq!(order, [2, 1]);
    }

    /// Any feasible set of deadlines is met (Liu & Layland), for unit
    /// packets that are all present at the start.
    #[test]
    fn meets_every_deadline_that_can_be_met() {
        let mut random = lastmeter_base::Stream::new(1, "edd");
        let mut queue = Edd::new(Duration::from_secs(1), Duration::ZERO, Room::UNLIMITED);
        // The n-th deadline in order is at least n + 1, so some order meets them all.
        let mut slots: Vec<u64> = (0..500).map(|n| n + 1 + random.below(5)).collect();
        (0..500).for_each(|n| slots.swap(n, random.below(500) as usize));
        slots.iter().for_each(|&slot| queue.enqueue(at(0), due(0, slot)).unwrap());
        for now in 0..500 {
            assert!(queue.dequeue(at(now)).unwrap().deadline >= at(now + 1));
        }
    }

    #[test]
    fn accounts_for_every_packet() {
        let us = Duration::from_us;
        let options = check::Options { work_conserving: false, ..check::USUAL };
        check::holds(Edd::new(us(90), us(5), Room::packets(30)), &options);
        check::holds(Edd::new(us(100), us(0), Room::UNLIMITED), &check::USUAL);
    }
}
