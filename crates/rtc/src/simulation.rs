//! The model of a live run: the same stations, managers and sources in virtual time, on hosts that take no time.

use crate::part::{Received, Sent};
use crate::plan::{Flow, Plan, SLOTS, Source};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_engine::Distribution;
use lastmeter_transport::channel::admission::route::Admission;
use lastmeter_transport::channel::contract::Link;
use lastmeter_transport::channel::manager::{Manager, Times};
use lastmeter_transport::channel::message::{ChannelId, Event, Node as NodeId};
use lastmeter_transport::channel::node::{Node, Notice};
use lastmeter_transport::channel::station::Station;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How long after the last message some may still arrive.
const LAST: Duration = Duration::from_secs(2);

/// What a flow did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// At its source.
    pub sent: Sent,
    /// At its end.
    pub received: Received,
}

struct Simulation<'a> {
    plan: &'a Plan,
    stations: Vec<Station>,
    sources: Vec<Source>,
    channels: Vec<Option<ChannelId>>,
    outcomes: Vec<Outcome>,
    delays: Vec<Distribution>,
    /// The next messages of each flow, and events of each station.
    due: BinaryHeap<Reverse<(Time, usize, Due)>>,
    /// When each station is woken up.
    wakes: Vec<Time>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Station,
    Message(u64),
}

/// What each flow does.
pub fn run(plan: &Plan) -> Vec<Outcome> {
    let count = plan.flows.len();
    let mut simulation = Simulation {
        plan,
        stations: (0..plan.nodes.len() as NodeId).map(|node| station(plan, node)).collect(),
        sources: (0..count).map(|flow| Source::new(plan, flow)).collect(),
        channels: vec![None; count],
        outcomes: vec![Outcome::default(); count],
        delays: vec![Distribution::default(); count],
        due: BinaryHeap::new(),
        wakes: vec![Time::MAX; plan.nodes.len()],
    };
    for flow in 0..count {
        let address = plan.address(flow);
        simulation.stations[address.node as usize].node.init(usize::MAX);
    }
    (0..count).for_each(|flow| simulation.establish(flow));
    (0..count).for_each(|flow| simulation.schedule(flow));
    let end = Time::START + crate::plan::BEGINS + Duration::from_ps(plan.length) + LAST;
    while let Some(Reverse((at, which, due))) = simulation.due.pop() {
        if at > end {
            break;
        }
        match due {
            Due::Station if simulation.wakes[which] == at => {
                simulation.wakes[which] = Time::MAX;
                simulation.carry(at, which);
            }
            // It was woken up before.
            Due::Station => {}
            Due::Message(count) => simulation.message(at, which, count),
        }
    }
    simulation.finish()
}

/// A node of a plan, with its adapters.
pub(crate) fn station<B>(plan: &Plan, node: NodeId) -> Station<B> {
    let links = || plan.neighbours(node).map(|(to, line, _)| (to, plan.links[line].link()));
    let admission = links().map(|(to, link)| (to, Admission::from(link)));
    // Nothing is lost here, and hosts do not die.
    let times =
        Times { retry: Duration::from_secs(1), remember: Duration::from_secs(60), lease: None };
    let manager = Manager::new(node, admission, SLOTS, times);
    let plain = || links().map(|(to, (link, _))| (to, link)).collect::<Vec<(NodeId, Link)>>();
    Station::new(Node::new(node, manager, plain(), plan.routes(node), plan.rooms()), plain())
}

impl Simulation<'_> {
    /// Establishes a channel, or not.
    fn establish(&mut self, flow: usize) {
        let Some((contract, excess)) = self.plan.flows[flow].contract() else {
            self.outcomes[flow].sent.established = true;
            return;
        };
        let Flow { from, to, .. } = self.plan.flows[flow];
        let Some(route) = self.plan.route(from, to) else { return };
        let place = (route, self.plan.address(flow));
        let node = &mut self.stations[from as usize].node;
        let Ok(id) = node.create_policed(Time::START, contract, place, excess) else { return };
        loop {
            let messages: Vec<_> =
                self.stations.iter_mut().flat_map(|station| station.node.messages()).collect();
            if messages.is_empty() {
                break;
            }
            for envelope in messages {
                self.stations[envelope.to as usize].node.control(Time::START, envelope);
            }
        }
        let notices = self.stations[from as usize].node.notices();
        let established = notices.contains(&Notice::Channel(Event::Established(id)));
        self.channels[flow] = established.then_some(id);
        self.outcomes[flow].sent.established = established;
    }

    fn schedule(&mut self, flow: usize) {
        if let Some((at, count)) = self.sources[flow].next() {
            self.due.push(Reverse((at, flow, Due::Message(count))));
        }
    }

    /// Messages of a flow.
    fn message(&mut self, now: Time, flow: usize, count: u64) {
        let (from, len) = (self.plan.flows[flow].from, self.plan.flows[flow].message_len());
        let (address, len) = (self.plan.address(flow), Bytes(len as u64));
        let is_channel = self.plan.flows[flow].contract().is_some();
        let station = &mut self.stations[from as usize];
        station.advance(now);
        for _ in 0..count {
            let sent = &mut self.outcomes[flow].sent;
            sent.made += 1;
            let done = match (is_channel, self.channels[flow]) {
                (true, Some(id)) => station.node.send(now, id, len).is_ok(),
                (true, None) => false,
                (false, _) => station.node.send_data(now, address, (len, len)).is_ok(),
            };
            sent.refused += u64::from(!done);
        }
        self.schedule(flow);
        self.carry(now, from as usize);
    }

    /// What a station has to do now, and what arrives by it.
    fn carry(&mut self, now: Time, which: usize) {
        let station = &mut self.stations[which];
        station.advance(now);
        station.node.notices();
        let departures: Vec<_> = std::iter::from_fn(|| station.departure(now)).collect();
        self.wake(now, which);
        for departure in departures {
            let to = departure.to as usize;
            self.stations[to].advance(now);
            self.stations[to].node.arrive_from(now, which as NodeId, departure.frame);
            self.stations[to].advance(now);
            self.take(to);
            self.wake(now, to);
        }
    }

    fn wake(&mut self, now: Time, which: usize) {
        let next = self.stations[which].next_at(now).map(|next| next.max(now));
        if let Some(next) = next.filter(|&next| next < self.wakes[which]) {
            self.wakes[which] = next;
            self.due.push(Reverse((next, which, Due::Station)));
        }
    }

    /// Takes what has come to a host.
    fn take(&mut self, node: usize) {
        let notices = self.stations[node].node.notices();
        let queues = notices.into_iter().filter_map(|notice| match notice {
            Notice::Arrived { queue } => Some(queue),
            _ => None,
        });
        for queue in queues {
            let Some(found) = self.stations[node].node.receive(queue) else { continue };
            let here = |flow: &usize| {
                let address = self.plan.address(*flow);
                (address.node as usize, address.queue) == (node, queue)
            };
            let Some(flow) = (0..self.plan.flows.len()).find(here) else { continue };
            let received = &mut self.outcomes[flow].received;
            received.messages += 1;
            received.missed += u64::from(found.at > found.due);
            self.delays[flow].record(found.at.saturating_since(found.made));
        }
    }

    fn finish(mut self) -> Vec<Outcome> {
        for (outcome, delays) in self.outcomes.iter_mut().zip(&self.delays) {
            outcome.received.delays(delays);
        }
        self.outcomes
    }
}
