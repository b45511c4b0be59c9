//! A node with the adapters of its links (E-22 to E-25): it knows when a packet begins and ends on each link, but
//! never what time it is.
//!
//! ```text
//! node: schedulers --> [ adapter: P packets, one being sent ] --end--> propagation --> departures
//! ```
//!
//! Its owner calls [`Station::advance`] with the present. What was due before happens at its own instant, so an
//! owner that comes late (a program that was asleep) delays departures, but no decision: lateness does not add up.
//! A model sets the present to [`Station::next_at`]; on real sockets (`lastmeter_rtc`) it is that of a clock.
//!
//! | Parameter | Unit | Default | Meaning |
//! |---|---|---|---|
//! | `links`   | -    | -       | each neighbour's link ([`Link`]): rate, cost of a packet, propagation, P |
//!
//! Deviation: where the link is a real one of the same rate, it would send a packet a second time at that rate. Give it
//! as much more as it has.

use super::contract::Link;
use super::manager::Node as NodeId;
use super::node::{Frame, Node};
use lastmeter_base::Time;
use std::collections::{BTreeMap, VecDeque};

/// A packet on its way to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure<B = ()> {
    /// When its last bit reaches the neighbour.
    pub at: Time,
    /// Which neighbour.
    pub to: NodeId,
    /// The packet, with its logical arrival there.
    pub frame: Frame<B>,
}

struct Adapter<B> {
    link: Link,
    /// What it was given, with the end of each packet.
    given: VecDeque<(Time, Frame<B>)>,
    /// Until when it has something to send.
    busy: Time,
    /// What propagates.
    flying: VecDeque<Departure<B>>,
}

/// A node and its adapters.
pub struct Station<B = ()> {
    /// The node, for the calls of its applications: advance first.
    pub node: Node<B>,
    adapters: BTreeMap<NodeId, Adapter<B>>,
    /// Everything before this instant has been decided.
    decided: Time,
}

impl<B> Station<B> {
    /// A node with idle links.
    pub fn new(node: Node<B>, links: impl IntoIterator<Item = (NodeId, Link)>) -> Station<B> {
        let adapter = |link| {
            let (given, flying) = (VecDeque::new(), VecDeque::new());
            Adapter { link, given, busy: Time::START, flying }
        };
        let adapters = links.into_iter().map(|(to, link)| (to, adapter(link))).collect();
        Station { node, adapters, decided: Time::START }
    }

    /// Does all that is due by `now`.
    pub fn advance(&mut self, now: Time) {
        for (&to, adapter) in &mut self.adapters {
            adapter.advance(&mut self.node, to, (self.decided, now));
        }
        self.decided = self.decided.max(now);
        if self.node.expires_at().is_some_and(|at| at <= now) {
            self.node.expire(now);
        }
    }

    /// A packet that has reached its neighbour by `now`.
    pub fn departure(&mut self, now: Time) -> Option<Departure<B>> {
        let mut adapters = self.adapters.values_mut();
        adapters.find_map(|adapter| adapter.flying.pop_front_if(|flying| flying.at <= now))
    }

    /// When [`Station::advance`] or [`Station::departure`] has something to do. `now` is the present.
    pub fn next_at(&self, now: Time) -> Option<Time> {
        let links = self.adapters.iter().flat_map(|(&to, adapter)| {
            let end = adapter.given.front().map(|given| given.0);
            let flying = adapter.flying.front().map(|flying| flying.at);
            [end, flying, self.node.ready_at(now, to)]
        });
        links.chain([self.node.expires_at()]).flatten().min()
    }
}

impl<B> Adapter<B> {
    /// What happens from one instant to another, in order: packets end, and others begin.
    fn advance(&mut self, node: &mut Node<B>, to: NodeId, (from, until): (Time, Time)) {
        let mut at = from;
        loop {
            let end = self.given.front().map(|given| given.0);
            let ready = node.ready_at(at, to);
            match [end, ready].into_iter().flatten().min() {
                Some(next) if next <= until => at = at.max(next),
                _ => return,
            }
            if let Some((end, mut frame)) = self.given.pop_front_if(|given| given.0 <= at) {
                node.sent(to, &frame);
                frame.logical += node.moves(&frame);
                let at = end + self.link.propagation;
                self.flying.push_back(Departure { at, to, frame });
            }
            while let Some(frame) = node.transmit(at, to) {
                self.busy = self.busy.max(at) + self.link.time_for(frame.len);
                self.given.push_back((self.busy, frame));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::admission::{Method, route::Admission};
    use super::super::manager::{Manager, Times};
    use super::super::node::{Address, Room};
    use super::*;
    use lastmeter_base::{Bytes, Duration, Rate};

    fn at(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }

    /// Node 0 with a link to node 1, on which 1250 bytes take a millisecond.
    fn station() -> Station {
        let link = Link {
            rate: Rate::from_mbit(10),
            per_packet: Duration::ZERO,
            packet_max: Bytes(1250),
            outstanding: 2,
            propagation: Duration::from_us(30),
            horizon: Duration::ZERO,
            skew: Duration::ZERO,
        };
        let times =
            Times { retry: Duration::from_secs(1), remember: Duration::from_secs(9), lease: None };
        let manager = Manager::new(0, [(1, Admission::from((link, Method::Edf)))], 99, times);
        let room = Room { channel: 9, data: 99 };
        Station::new(Node::new(0, manager, [(1, link)], [(1, 1)], room), [(1, link)])
    }

    /// E-22: an owner that sleeps changes when packets leave, and not when they should have.
    #[test]
    fn departures_are_the_same_however_late_the_owner_is() {
        let run = |step: u64| {
            let mut station = station();
            let to = Address { node: 1, queue: 0 };
            let mut seen = Vec::new();
            for us in (0..12_000).step_by(100) {
                if us % step == 0 {
                    station.advance(at(us));
                    seen.extend(std::iter::from_fn(|| station.departure(at(us))));
                }
                if us % 4_000 == 0 {
                    // What arrives happens at the present, after all that was due before.
                    station.advance(at(us));
                    let sizes = (Bytes(2500), Bytes(1250));
                    station.node.send_data(at(us), to, sizes).unwrap();
                }
            }
            station.advance(at(20_000));
            seen.extend(std::iter::from_fn(|| station.departure(at(20_000))));
            seen.into_iter().map(|departure| departure.at).collect::<Vec<_>>()
        };
        let times = run(100);
        assert_eq!(times, [1030, 2030, 5030, 6030, 9030, 10_030].map(at));
        assert_eq!(times, run(700));
        assert_eq!(times, run(4000));
    }

    #[test]
    fn it_says_when_it_is_needed_next() {
        let mut station = station();
        assert_eq!(station.next_at(at(5)), None);
        let to = Address { node: 1, queue: 0 };
        station.advance(at(5));
        station.node.send_data(at(5), to, (Bytes(1250), Bytes(1250))).unwrap();
        assert_eq!(station.next_at(at(5)), Some(at(5)), "it may begin");
        station.advance(at(5));
        assert_eq!(station.next_at(at(5)), Some(at(1005)));
        station.advance(at(1005));
        assert_eq!(
            (station.departure(at(1005)), station.next_at(at(1005))),
            (None, Some(at(1035)))
        );
        assert!(station.departure(at(1035)).is_some());
        assert_eq!(station.next_at(at(1035)), None);
    }
}
