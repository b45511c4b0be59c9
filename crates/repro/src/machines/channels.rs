//! Links, channels and floods simulated in exact time, to check that guarantees hold.
//!
//! ```text
//! messages -> police -> [discipline | adapter, FIFO] ==link==> [discipline | adapter] ==> delivered
//!                             ^ best effort, flood
//! ```
//!
//! A packet carries the logical arrival l and its deadline at its present link; at the next link they are
//! l' = l + d + propagation + skew and l' + d' (§3.2.4; Kandlur, Shin & Ferrari 1994). Times are those of the
//! source's clock, which a node converts to its own ([`Network::clock`]). A link can have any discipline, so the
//! same traffic can be compared under others; [`Outcome`] counts late packets, per link and at the destination.
//!
//! Exact: the only costs are those in [`Link`], and every time is in whole picoseconds.

use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_engine::Distribution;
use lastmeter_transport::channel::contract::{Contract, Link};
use lastmeter_transport::channel::policing::{Excess, Police, Verdict};
use lastmeter_transport::channel::scheduler::{Options, Scheduler};
use std::collections::{BinaryHeap, VecDeque};

/// The owner of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The channel with this number.
    Channel(usize),
    /// The best-effort flow with this number.
    BestEffort(usize),
}

/// A packet in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its flow.
    pub owner: Owner,
    /// Its length.
    pub len: Bytes,
    /// When its message arrived from the application.
    pub made: Time,
    /// The logical arrival of its message at the source.
    pub born: Time,
    /// Its logical arrival at the present link.
    pub logical: Time,
    /// Its deadline at that link.
    pub deadline: Time,
    /// The index of the present link in its route.
    pub hop: usize,
    /// Its arrival at that link.
    pub entered: Time,
    /// Whether it is the last packet of its message.
    pub last: bool,
}

/// A link's scheduling discipline.
pub trait Discipline {
    /// A packet arrives.
    fn enqueue(&mut self, now: Time, item: Item);
    /// The next packet for the adapter, if one is eligible now.
    fn dequeue(&mut self, now: Time) -> Option<Item>;
    /// The adapter has sent its oldest packet.
    fn sent(&mut self, now: Time);
    /// When `dequeue` could next succeed if nothing arrives and nothing is sent.
    fn ready_at(&self, now: Time) -> Option<Time>;
}

impl Discipline for Scheduler<Item> {
    fn enqueue(&mut self, _now: Time, item: Item) {
        match item.owner {
            Owner::Channel(_) => self.enqueue_real_time(item.logical, item.deadline, item),
            Owner::BestEffort(_) => self.enqueue_best_effort(item),
        }
    }
    fn dequeue(&mut self, now: Time) -> Option<Item> {
        Scheduler::dequeue(self, now)
    }
    fn sent(&mut self, _now: Time) {
        Scheduler::sent(self);
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        Scheduler::ready_at(self, now)
    }
}

/// A running channel.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Its contract.
    pub contract: Contract,
    /// Its route.
    pub route: Vec<usize>,
    /// Its local bound at each link.
    pub bounds: Vec<Duration>,
    /// Slots for waiting packets at the source.
    pub slots: u64,
    /// What happens to excess messages.
    pub excess: Excess,
}

/// Counts of a flow's messages and packets.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Messages made by the application.
    pub messages: u64,
    /// Packets made of them.
    pub packets: u64,
    /// Messages delivered in full.
    pub delivered: u64,
    /// Packets dropped by the policer or by a full queue.
    pub dropped: u64,
    /// Packets that left a link after their deadline there, counted per link.
    pub late_at_links: u64,
    /// Messages delivered after logical arrival + deadline.
    pub late: u64,
    /// Packets that arrived at the destination after their message's deadline.
    pub late_packets: u64,
    /// Packets that arrived at the destination.
    pub arrived: u64,
    /// Latency of delivered messages: from logical arrival, or for best effort from arrival.
    pub latency: Distribution,
    /// Queueing delay at the first link.
    pub occupancy: Distribution,
    /// Bytes that arrived at the destination.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Message { channel: usize, len: Bytes },
    BestEffort { flow: usize, len: Bytes },
    Arrive(Item),
    Sent { link: usize },
    Wake { link: usize },
}

/// An event; the earliest is the greatest, and of equal ones the first scheduled.
struct Pending {
    at: Time,
    order: u64,
    event: Event,
}
impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Pending {}
impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Pending {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

struct Station {
    link: Link,
    discipline: Box<dyn Discipline>,
    /// Packets of the adapter; the first is in transmission.
    adapter: VecDeque<Item>,
    /// A best-effort packet of this length is always waiting here.
    flood: Option<(usize, Bytes)>,
    /// The clock offset of the link's node.
    ahead: Duration,
    wake: Option<Time>,
}

struct BestEffort {
    route: Vec<usize>,
    packet_max: Bytes,
    /// Room for waiting packets at the first link, and how many wait.
    room: u64,
    held: u64,
}

/// Links and their traffic.
pub struct Network {
    stations: Vec<Station>,
    channels: Vec<Channel>,
    police: Vec<Police>,
    waiting: Vec<VecDeque<(Time, Bytes)>>,
    efforts: Vec<BestEffort>,
    /// Counts of channels, in order.
    pub outcomes: Vec<Outcome>,
    /// Counts of best-effort flows, in order.
    pub effort_outcomes: Vec<Outcome>,
    events: BinaryHeap<Pending>,
    order: u64,
    now: Time,
}

impl Network {
    /// Links with the scheduler of real-time channels.
    pub fn new(links: &[Link]) -> Network {
        Network::with(links, |link| {
            let options = Options { horizon: link.horizon, outstanding: link.outstanding };
            Box::new(Scheduler::new(options))
        })
    }

    /// Links each with a `discipline` of its own.
    pub fn with(
        links: &[Link],
        mut discipline: impl FnMut(&Link) -> Box<dyn Discipline>,
    ) -> Network {
        let station = |&link: &Link| Station {
            link,
            discipline: discipline(&link),
            adapter: VecDeque::new(),
            flood: None,
            ahead: Duration::ZERO,
            wake: None,
        };
        Network {
            stations: links.iter().map(station).collect(),
            channels: Vec::new(),
            police: Vec::new(),
            waiting: Vec::new(),
            efforts: Vec::new(),
            outcomes: Vec::new(),
            effort_outcomes: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            now: Time::START,
        }
    }

    /// Adds a channel and returns its number. Panics unless it has one bound for each link of its route.
    pub fn channel(&mut self, channel: Channel) -> usize {
        assert_eq!(channel.route.len(), channel.bounds.len(), "a bound for each link");
        let interval = channel.contract.interval_min;
        self.police.push(Police::new(interval, channel.slots, channel.excess));
        self.waiting.push(VecDeque::new());
        self.outcomes.push(Outcome::default());
        self.channels.push(channel);
        self.channels.len() - 1
    }

    /// Adds a best-effort flow with at most `room` packets waiting at its first link; returns its number.
    pub fn best_effort(&mut self, route: Vec<usize>, packet_max: Bytes, room: u64) -> usize {
        self.efforts.push(BestEffort { route, packet_max, room, held: 0 });
        self.effort_outcomes.push(Outcome::default());
        self.efforts.len() - 1
    }

    /// From now on a best-effort packet of this length is always waiting at `link`.
    pub fn flood(&mut self, link: usize, len: Bytes) {
        let flow = self.best_effort(vec![link], len, u64::MAX);
        self.stations[link].flood = Some((flow, len));
        self.at(self.now, Event::BestEffort { flow, len });
    }

    /// Sets the clock of the node before `link` `ahead` of the slowest clock (E-13: HARTS kept clocks within 1 ms,
    /// §3.1.2). Must be called before the run.
    pub fn clock(&mut self, link: usize, ahead: Duration) {
        self.stations[link].ahead = ahead;
    }

    /// The application of `channel` makes a message at `at`.
    pub fn message(&mut self, at: Time, channel: usize, len: Bytes) {
        self.at(at, Event::Message { channel, len });
    }

    /// A best-effort message arrives at `at`.
    pub fn effort(&mut self, at: Time, flow: usize, len: Bytes) {
        self.at(at, Event::BestEffort { flow, len });
    }

    /// Runs until `end`, or until no events are left.
    pub fn run(&mut self, end: Time) {
        while self.events.peek().is_some_and(|next| next.at <= end) {
            let Some(Pending { at, event, .. }) = self.events.pop() else { return };
            self.now = at;
            self.handle(event);
        }
        if end < Time::MAX {
            self.now = end;
        }
    }

    fn at(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.events.push(Pending { at, order: self.order, event });
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Message { channel, len } => {
                let outcome = &mut self.outcomes[channel];
                outcome.messages += 1;
                outcome.packets += self.channels[channel].contract.cut(len).count() as u64;
                self.waiting[channel].push_back((self.now, len));
                self.offer(channel);
            }
            Event::BestEffort { flow, len } => self.best_effort_message(flow, len),
            Event::Arrive(item) => self.arrive(item),
            Event::Sent { link } => self.sent(link),
            Event::Wake { link } => {
                self.stations[link].wake = None;
                self.serve(link);
            }
        }
    }

    /// Admits a channel's first messages, as far as its policer allows.
    fn offer(&mut self, channel: usize) {
        let Channel { contract, route, bounds, .. } = &self.channels[channel];
        let (first, bound, contract) = (route[0], bounds[0], *contract);
        while let Some(&(made, len)) = self.waiting[channel].front() {
            let count = contract.cut(len).count() as u64;
            let (logical, enter) = match self.police[channel].message(self.now, count) {
                Verdict::Wait => break,
                Verdict::Drop => (self.now, 0),
                Verdict::Enter { logical, packets } => (logical, packets),
            };
            self.waiting[channel].pop_front();
            self.outcomes[channel].dropped += count - enter;
            for (n, len) in contract.cut(len).take(enter as usize).enumerate() {
                let item = Item {
                    owner: Owner::Channel(channel),
                    len,
                    made,
                    born: logical,
                    logical,
                    deadline: logical + bound,
                    hop: 0,
                    entered: self.now,
                    last: n as u64 + 1 == count,
                };
                self.stations[first].discipline.enqueue(self.now, item);
            }
        }
        self.serve(first);
    }

    fn best_effort_message(&mut self, flow: usize, len: Bytes) {
        let effort = &mut self.efforts[flow];
        let first = effort.route[0];
        let most = effort.packet_max.0.max(1);
        let count = len.0.div_ceil(most).max(1);
        let enter = count.min(effort.room.saturating_sub(effort.held));
        effort.held += enter;
        let outcome = &mut self.effort_outcomes[flow];
        outcome.messages += 1;
        outcome.packets += count;
        outcome.dropped += count - enter;
        for n in 0..enter {
            let item = Item {
                owner: Owner::BestEffort(flow),
                len: Bytes((len.0 - n * most).min(most)),
                made: self.now,
                born: self.now,
                logical: self.now,
                deadline: Time::MAX,
                hop: 0,
                entered: self.now,
                last: n + 1 == count,
            };
            self.stations[first].discipline.enqueue(self.now, item);
        }
        self.serve(first);
    }

    fn route(&self, owner: Owner) -> &[usize] {
        match owner {
            Owner::Channel(channel) => &self.channels[channel].route,
            Owner::BestEffort(flow) => &self.efforts[flow].route,
        }
    }

    /// A packet has crossed a link: it is at the next one, or at its destination.
    fn arrive(&mut self, mut item: Item) {
        if item.hop < self.route(item.owner).len() {
            let link = self.route(item.owner)[item.hop];
            item.entered = self.now;
            let (source, own) = self.clocks(&item, link);
            item.logical = shifted(item.logical, source, own);
            item.deadline = shifted(item.deadline, source, own);
            self.stations[link].discipline.enqueue(self.now, item);
            self.serve(link);
            return;
        }
        let (outcome, due) = match item.owner {
            Owner::Channel(channel) => {
                let due = item.born + self.channels[channel].contract.deadline;
                (&mut self.outcomes[channel], due)
            }
            Owner::BestEffort(flow) => (&mut self.effort_outcomes[flow], Time::MAX),
        };
        outcome.bytes += item.len.0;
        outcome.arrived += 1;
        outcome.late_packets += u64::from(self.now > due);
        if item.last {
            outcome.delivered += 1;
            outcome.late += u64::from(self.now > due);
            outcome.latency.record(self.now.saturating_since(item.born));
        }
    }

    /// Two clock offsets: that of a packet's source, in whose time its times are given, and that of the node before
    /// `link`, which reads them.
    fn clocks(&self, item: &Item, link: usize) -> (Duration, Duration) {
        (self.stations[self.route(item.owner)[0]].ahead, self.stations[link].ahead)
    }

    /// Moves eligible packets to a link's adapter.
    fn serve(&mut self, link: usize) {
        let now = self.now;
        while let Some(item) = self.stations[link].discipline.dequeue(now) {
            let station = &mut self.stations[link];
            station.adapter.push_back(item);
            let (flood, alone) = (station.flood, station.adapter.len() == 1);
            if alone {
                self.begin(link);
            }
            if let (Some((flow, len)), Owner::BestEffort(of)) = (flood, item.owner)
                && of == flow
            {
                let next = Item { made: now, born: now, logical: now, entered: now, len, ..item };
                self.stations[link].discipline.enqueue(now, next);
            }
        }
        let station = &mut self.stations[link];
        if let Some(at) = station.discipline.ready_at(now)
            && station.wake.is_none_or(|wake| at < wake)
        {
            station.wake = Some(at);
            self.at(at, Event::Wake { link });
        }
    }

    fn begin(&mut self, link: usize) {
        let station = &self.stations[link];
        if let Some(item) = station.adapter.front() {
            let busy = station.link.time_for(item.len);
            self.at(self.now + busy, Event::Sent { link });
        }
    }

    /// The adapter has sent its first packet.
    fn sent(&mut self, link: usize) {
        let station = &mut self.stations[link];
        let mut item = station.adapter.pop_front().expect("what was sent was there");
        station.discipline.sent(self.now);
        let (propagation, skew) = (station.link.propagation, station.link.skew);
        let taken = self.now - item.entered;
        let late = self.now > item.deadline;
        // Times for the next node are in the source's time again.
        let (source, own) = self.clocks(&item, link);
        item.logical = shifted(item.logical, own, source);
        match item.owner {
            Owner::Channel(channel) => {
                let outcome = &mut self.outcomes[channel];
                outcome.late_at_links += u64::from(late);
                let (first, bounds) = (item.hop == 0, &self.channels[channel].bounds);
                item.logical = item.logical + bounds[item.hop] + propagation + skew;
                item.hop += 1;
                if let Some(&bound) = bounds.get(item.hop) {
                    item.deadline = item.logical + bound;
                }
                if first {
                    outcome.occupancy.record(taken);
                    self.police[channel].left();
                }
                self.at(self.now + propagation, Event::Arrive(item));
                self.begin(link);
                self.serve(link);
                if first && !self.waiting[channel].is_empty() {
                    self.offer(channel);
                }
            }
            Owner::BestEffort(flow) => {
                if item.hop == 0 {
                    self.efforts[flow].held = self.efforts[flow].held.saturating_sub(1);
                    self.effort_outcomes[flow].occupancy.record(taken);
                }
                item.hop += 1;
                self.at(self.now + propagation, Event::Arrive(item));
                self.begin(link);
                self.serve(link);
            }
        }
    }
}

/// When a clock with offset `own` shows what one with offset `source` showed at `at`.
fn shifted(at: Time, source: Duration, own: Duration) -> Time {
    match at {
        Time::MAX => at,
        _ => Time::from_ps((at + source).as_ps().saturating_sub(own.as_ps())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{Rate, Stream};
    use lastmeter_transport::channel::admission::{Method, route};

    /// Three links of 10 Mbit/s whose nodes' clocks are up to 1 ms apart, filled as far as admission with `skew`
    /// allows: returns packets late at a link or at the destination.
    fn late_with_clocks(skew: Duration, seed: u64) -> u64 {
        let link = Link {
            rate: Rate::from_mbit(10),
            per_packet: Duration::ZERO,
            packet_max: Bytes(1250),
            outstanding: 1,
            propagation: Duration::from_us(10),
            horizon: Duration::ZERO,
            skew,
        };
        let mut links = vec![route::Admission::from((link, Method::Edf)); 3];
        let mut network = Network::new(&[link; 3]);
        let mut random = Stream::new(seed, "clocks");
        (0..3).for_each(|at| network.clock(at, Duration::from_us(random.below(1001))));
        let (first, rounds) = (Time::START + Duration::from_ms(100), 40);
        for _ in 0..30 {
            let hops = 1 + random.below(3) as usize;
            let from = random.below(4 - hops as u64) as usize;
            let interval = Duration::from_ms(10 + random.below(30));
            let path: Vec<usize> = (from..from + hops).collect();
            let due = |deadline: Duration| Contract {
                message_max: Bytes(1250),
                interval_min: interval,
                burst_max: 1,
                packet_max: Bytes(1250),
                deadline,
            };
            // The tightest deadline that they can guarantee, without slack.
            let found = (1..400).map(|n| due(Duration::from_us(100) * n)).find_map(|contract| {
                let bounds = route::establish(&mut links, &path, &contract).ok()?;
                Some((contract, bounds))
            });
            let Some((contract, bounds)) = found else { continue };
            let channel = Channel { contract, route: path, bounds, slots: 8, excess: Excess::Drop };
            let channel = network.channel(channel);
            for n in 0..rounds {
                network.message(first + interval * n, channel, Bytes(1250));
            }
        }
        (0..3).for_each(|at| network.flood(at, Bytes(1250)));
        network.run(first + Duration::from_secs(3));
        network.outcomes.iter().map(|of| of.late_at_links + of.late_packets).sum()
    }

    #[test]
    fn e_13_clocks_1_ms_apart_break_no_promise_that_reckons_with_them() {
        let skew = Duration::from_ms(1);
        assert_eq!((0..60).map(|seed| late_with_clocks(skew, seed)).sum::<u64>(), 0);
        let forgotten: u64 = (0..60).map(|seed| late_with_clocks(Duration::ZERO, seed)).sum();
        assert!(forgotten > 0, "without the term the same clocks make packets late");
    }

    #[test]
    fn e_24_a_packet_that_is_early_at_a_relay_waits_for_its_logical_arrival() {
        // 1 us a packet at each of two links, bounds of 5 us, no horizon.
        let link = Link {
            rate: Rate::from_gbit(8),
            per_packet: Duration::ZERO,
            packet_max: Bytes(1000),
            outstanding: 1,
            propagation: Duration::from_us(2),
            horizon: Duration::ZERO,
            skew: Duration::ZERO,
        };
        let us = Duration::from_us;
        let contract = Contract {
            message_max: Bytes(1000),
            interval_min: us(20),
            burst_max: 1,
            packet_max: Bytes(1000),
            deadline: us(14),
        };
        let latency = |horizon: u64| {
            let mut network = Network::new(&[Link { horizon: us(horizon), ..link }; 2]);
            let channel = network.channel(Channel {
                contract,
                route: vec![0, 1],
                bounds: vec![us(5); 2],
                slots: 8,
                excess: Excess::Drop,
            });
            network.message(Time::START, channel, Bytes(1000));
            network.run(Time::MAX);
            assert_eq!((network.outcomes[0].delivered, network.outcomes[0].late), (1, 0));
            network.outcomes[0].latency.max()
        };
        // 1 + 2 in transit; l' = 7 us: it waits from 3 to 7, or to 7 - h, then 1 + 2.
        assert_eq!((latency(0), latency(3), latency(9)), (us(10), us(7), us(6)));
    }
}
