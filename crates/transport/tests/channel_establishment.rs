//! Establishment under loss, duplication, reordering and node failures (E-19, E-20): every state of
//! small systems, and random runs of large ones. Nothing is ever leaked or reserved twice.

use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
use lastmeter_transport::channel::admission::{Method, route::Admission};
use lastmeter_transport::channel::contract::{Contract, Link};
use lastmeter_transport::channel::manager::{
    ChannelId, Envelope, Event, Manager, Message, Node, Times,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

const LINK: Link = Link {
    rate: Rate::from_mbit(10),
    per_packet: Duration::ZERO,
    packet_max: Bytes(1250),
    outstanding: 1,
    propagation: Duration::ZERO,
    horizon: Duration::ZERO,
    skew: Duration::ZERO,
};
/// 1 ms of every link in 10 ms; a message waits for one packet.
const CONTRACT: Contract = Contract {
    message_max: Bytes(1250),
    interval_min: Duration::from_ms(10),
    burst_max: 1,
    packet_max: Bytes(1250),
    deadline: Duration::from_ms(30),
};
/// Half of a link: two of them do not fit.
const LARGE: Contract = Contract { message_max: Bytes(6250), ..CONTRACT };
const SLOTS: u64 = 100;

/// A line of nodes, each with a link to its neighbours.
fn line(nodes: Node, times: Times) -> Vec<Manager> {
    let manager = |node: Node| {
        let near = [node.checked_sub(1), (node + 1 < nodes).then_some(node + 1)];
        let links =
            near.into_iter().flatten().map(|to| (to, Admission::from((LINK, Method::DOrder))));
        Manager::new(node, links, SLOTS, times)
    };
    (0..nodes).map(manager).collect()
}

/// What each application knows of its channel.
type Known = BTreeMap<ChannelId, Event>;

/// Nothing is reserved twice: what a node claims to hold is what its links and slots say.
fn booked_once(managers: &[Manager], alive: &dyn Fn(Node) -> bool) {
    for (node, manager) in managers.iter().enumerate().filter(|&(node, _)| alive(node as Node)) {
        let held: Vec<_> = manager.held().collect();
        let links = [(node as Node).wrapping_sub(1), node as Node + 1];
        let promised: u64 = links
            .iter()
            .filter_map(|&to| manager.link(to))
            .map(|link| {
                assert!(link.reservations.utilisation() < 1.0);
                link.reservations.channels()
            })
            .sum();
        assert_eq!(promised, held.iter().filter(|held| held.1.is_some()).count() as u64);
        if held.is_empty() {
            assert_eq!(manager.slots(), SLOTS, "slots of node {node}");
        }
    }
}

/// When nothing is left to happen: every node that holds something is on the route of an established
/// channel, and every node on that route holds it.
fn nothing_leaked(
    managers: &[Manager],
    routes: &BTreeMap<ChannelId, Vec<Node>>,
    known: &Known,
    closed: &BTreeSet<ChannelId>,
    alive: &dyn Fn(Node) -> bool,
) {
    let stands = |id: &ChannelId| {
        alive(id.source)
            && !closed.contains(id)
            && matches!(known.get(id), Some(Event::Established(_)))
    };
    for (node, manager) in managers.iter().enumerate().filter(|&(node, _)| alive(node as Node)) {
        for (id, _, committed) in manager.held() {
            assert!(stands(&id), "node {node} holds {id:?}, known as {:?}", known.get(&id));
            assert!(committed, "node {node} still asks for {id:?}");
        }
    }
    for (id, route) in routes.iter().filter(|(id, _)| stands(id)) {
        for &node in route {
            assert!(alive(node), "{id:?} stands over a dead node");
            let held = managers[node as usize].held().any(|held| held.0 == *id);
            assert!(held, "node {node} does not hold {id:?}");
        }
    }
    for id in routes.keys().filter(|id| alive(id.source) && !closed.contains(id)) {
        assert!(known.contains_key(id), "nobody was told of {id:?}");
    }
}

/// A state of a small system, and what may still go wrong.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    managers: Vec<Manager>,
    messages: Vec<Envelope>,
    known: Known,
    closed: BTreeSet<ChannelId>,
    dead: Option<Node>,
    /// Neighbours that do not know yet.
    unaware: Vec<Node>,
    losses: u8,
    copies: u8,
    again: u8,
    may_die: bool,
    may_close: bool,
}

const HARD: Times = Times { retry: Duration::ZERO, remember: Duration::MAX, lease: None };

impl State {
    fn collect(&mut self) {
        for node in 0..self.managers.len() {
            let (messages, events) = (self.managers[node].messages(), self.managers[node].events());
            if self.dead != Some(node as Node) {
                self.messages.extend(messages);
                for event in events {
                    let (Event::Established(id) | Event::Refused(id) | Event::Broken(id)) = event;
                    let earlier = self.known.insert(id, event);
                    let later = matches!(event, Event::Broken(_));
                    assert!(earlier.is_none() || later, "{earlier:?} then {event:?}");
                }
            }
        }
        self.messages.sort();
    }

    fn deliver(&mut self, at: usize) {
        let envelope = self.messages.remove(at);
        if self.dead != Some(envelope.to) {
            self.managers[envelope.to as usize].receive(Time::START, envelope);
            self.collect();
        }
    }

    fn kill(&mut self, node: Node) {
        self.dead = Some(node);
        self.may_die = false;
        let near = [node.checked_sub(1), Some(node + 1)];
        let exists = |&near: &Node| (near as usize) < self.managers.len();
        self.unaware = near.into_iter().flatten().filter(exists).collect();
    }

    fn tell(&mut self, at: usize) {
        let node = self.unaware.remove(at);
        let dead = self.dead.expect("somebody is dead");
        self.managers[node as usize].neighbour_lost(Time::START, dead);
        self.collect();
    }

    /// Every state that one step leads to.
    fn steps(&self) -> Vec<State> {
        let mut steps = Vec::new();
        let mut step = |change: &dyn Fn(&mut State)| {
            let mut next = self.clone();
            change(&mut next);
            steps.push(next);
        };
        for at in 0..self.messages.len() {
            // Of equal messages one is enough.
            if at > 0 && self.messages[at] == self.messages[at - 1] {
                continue;
            }
            step(&|next| next.deliver(at));
            if self.losses > 0 {
                step(&|next| {
                    next.messages.remove(at);
                    next.losses -= 1;
                });
            }
            if self.copies > 0 {
                step(&|next| {
                    next.copies -= 1;
                    let copy = next.messages[at].clone();
                    next.messages.insert(at, copy);
                });
            }
        }
        for node in 0..self.managers.len() {
            if self.again > 0 && self.dead != Some(node as Node) {
                step(&|next| {
                    next.again -= 1;
                    next.managers[node].expire(Time::START);
                    next.collect();
                });
            }
            if self.may_die {
                step(&|next| next.kill(node as Node));
            }
        }
        for at in 0..self.unaware.len() {
            step(&|next| next.tell(at));
        }
        if self.may_close && self.dead != Some(0) {
            step(&|next| {
                next.may_close = false;
                let id = ChannelId { source: 0, local: 0 };
                next.closed.insert(id);
                next.managers[0].close(Time::START, id);
                next.collect();
            });
        }
        steps
    }

    /// Lets everything happen that still has to, fairly.
    fn settle(mut self) -> State {
        for _ in 0..200 {
            while !self.messages.is_empty() {
                self.deliver(0);
            }
            while !self.unaware.is_empty() {
                self.tell(0);
            }
            for node in 0..self.managers.len() {
                if self.dead != Some(node as Node) {
                    self.managers[node].expire(Time::START);
                }
            }
            self.collect();
            if self.messages.is_empty() {
                return self;
            }
        }
        panic!("it never comes to rest: {:?}", self.messages);
    }

    fn alive(&self) -> impl Fn(Node) -> bool + use<> {
        let dead = self.dead;
        move |node| dead != Some(node)
    }
}

/// Visits every reachable state, and counts them.
fn explore(start: State, routes: &BTreeMap<ChannelId, Vec<Node>>) -> usize {
    let mut seen = HashSet::new();
    let mut left = vec![start];
    while let Some(state) = left.pop() {
        booked_once(&state.managers, &state.alive());
        let rest = state.clone().settle();
        booked_once(&rest.managers, &rest.alive());
        nothing_leaked(&rest.managers, routes, &rest.known, &rest.closed, &rest.alive());
        for next in state.steps() {
            if seen.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    seen.len()
}

/// Channels of `contracts`, from end to end of a line, the second in the other direction if `both`.
fn start(
    nodes: Node,
    contracts: &[Contract],
    losses: u8,
    copies: u8,
    again: u8,
) -> (State, BTreeMap<ChannelId, Vec<Node>>) {
    let mut state = State {
        managers: line(nodes, HARD),
        messages: Vec::new(),
        known: Known::new(),
        closed: BTreeSet::new(),
        dead: None,
        unaware: Vec::new(),
        losses,
        copies,
        again,
        may_die: true,
        may_close: true,
    };
    let mut routes = BTreeMap::new();
    for (n, &contract) in contracts.iter().enumerate() {
        let from = n as Node % (nodes - 1);
        let route: Vec<Node> = (from..nodes).collect();
        let id = state.managers[from as usize].create(Time::START, contract, route.clone());
        routes.insert(id.expect("the route is valid"), route);
    }
    state.collect();
    (state, routes)
}

#[test]
fn e_19_one_channel_over_three_nodes_in_every_state() {
    let (state, routes) = start(3, &[CONTRACT], 1, 1, 1);
    let states = explore(state, &routes);
    assert!(states > 500, "{states} states");
}

#[test]
fn e_19_two_that_compete_over_three_nodes_in_every_state() {
    let (state, routes) = start(3, &[LARGE, LARGE], 1, 0, 0);
    let states = explore(state, &routes);
    assert!(states > 1_500, "{states} states");
}

#[test]
#[ignore = "minutes: make test-long"]
fn e_19_larger_systems_in_every_state() {
    for (nodes, contracts, [losses, copies, again]) in [
        (3, &[LARGE, LARGE][..], [1, 1, 1]),
        (3, &[LARGE, LARGE][..], [2, 0, 2]),
        (4, &[CONTRACT][..], [1, 1, 1]),
        (5, &[CONTRACT][..], [1, 0, 1]),
    ] {
        let (state, routes) = start(nodes, contracts, losses, copies, again);
        let states = explore(state, &routes);
        assert!(states > 0, "{nodes} nodes, {} channels", contracts.len());
        assert!(states > 1_500, "{states} states");
    }
}

/// A large system in time: random delays, losses, duplicates, failures.
fn random_run(seed: u64, lease: Option<Duration>) {
    let mut random = Stream::new(seed, "establishment");
    let ms = Duration::from_ms;
    let nodes = 3 + random.below(8) as Node;
    let times = Times { retry: ms(20), remember: Duration::from_secs(30), lease };
    let mut managers = line(nodes, times);
    let mut routes = BTreeMap::new();
    let mut known = Known::new();
    let mut closed = BTreeSet::new();
    let mut dead: BTreeSet<Node> = BTreeSet::new();
    let mut wire: BTreeMap<(Time, u64), Envelope> = BTreeMap::new();
    let mut losses: Vec<(Time, Node, Node)> = Vec::new();
    let mut count = 0;
    let mut now = Time::START;
    let calm = Time::START + Duration::from_secs(2);
    let end = Time::START + Duration::from_secs(12);
    while now < end {
        let wild = now < calm;
        if wild && random.chance(0.2) {
            let from = random.below(u64::from(nodes) - 1) as Node;
            let to = from + 1 + random.below(u64::from(nodes - from - 1)) as Node;
            let route: Vec<Node> = match random.chance(0.5) {
                true => (from..=to).collect(),
                false => (from..=to).rev().collect(),
            };
            if !dead.contains(&route[0]) {
                let contract = if random.chance(0.3) { LARGE } else { CONTRACT };
                let source = &mut managers[route[0] as usize];
                let id = source.create(now, contract, route.clone()).expect("the route is valid");
                routes.insert(id, route);
            }
        }
        if wild
            && random.chance(0.05)
            && let Some(&id) = routes.keys().next_back()
        {
            closed.insert(id);
            managers[id.source as usize].close(now, id);
        }
        if wild && dead.len() < 2 && random.chance(0.004) {
            let node = random.below(u64::from(nodes)) as Node;
            dead.insert(node);
            if lease.is_none() {
                for near in [node.wrapping_sub(1), node + 1] {
                    losses.push((now + ms(random.below(300)), near, node));
                }
            }
        }
        for manager in 0..nodes {
            let (messages, events) =
                (managers[manager as usize].messages(), managers[manager as usize].events());
            if dead.contains(&manager) {
                continue;
            }
            for event in events {
                let (Event::Established(id) | Event::Refused(id) | Event::Broken(id)) = event;
                known.insert(id, event);
            }
            for envelope in messages {
                let copies = match random.below(10) {
                    0 | 1 if wild => 0,
                    2 if wild => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    count += 1;
                    let at = now + Duration::from_us(1 + random.below(30_000));
                    wire.insert((at, count), envelope.clone());
                }
            }
        }
        losses.retain(|&(at, near, node)| {
            if at <= now && near < nodes && !dead.contains(&near) {
                managers[near as usize].neighbour_lost(now, node);
            }
            at > now
        });
        while let Some(entry) = wire.first_entry().filter(|entry| entry.key().0 <= now) {
            let envelope = entry.remove();
            if !dead.contains(&envelope.to) {
                managers[envelope.to as usize].receive(now, envelope);
            }
        }
        for node in (0..nodes).filter(|node| !dead.contains(node)) {
            managers[node as usize].expire(now);
        }
        now += ms(5);
        booked_once(&managers, &|node| !dead.contains(&node));
    }
    nothing_leaked(&managers, &routes, &known, &closed, &|node| !dead.contains(&node));
}

#[test]
fn e_20_large_systems_leak_nothing_in_random_runs() {
    (0..60).for_each(|seed| random_run(seed, None));
}

#[test]
fn e_20_with_soft_state_nobody_need_be_told_of_deaths() {
    (0..60).for_each(|seed| random_run(seed, Some(Duration::from_ms(800))));
}

#[test]
fn e_18_slack_is_shared_and_what_does_not_fit_is_refused_and_freed() {
    let (mut state, _) = start(3, &[CONTRACT], 0, 0, 0);
    state.may_die = false;
    let mut state = state.settle();
    let id = ChannelId { source: 0, local: 0 };
    assert_eq!(state.known[&id], Event::Established(id));
    let bounds: Vec<_> = state.managers[..2].iter().flat_map(|m| m.held().map(|h| h.1)).collect();
    // 1 ms and 1 ms of blocking at each; 26 ms are left, but no bound exceeds the interval.
    assert_eq!(bounds, [Some(Duration::from_ms(10)); 2]);
    for n in 0..2 {
        state.managers[1].create(Time::START, LARGE, vec![1, 2]).unwrap();
        state.collect();
        state = state.settle();
        let id = ChannelId { source: 1, local: n };
        let expected = if n == 0 { Event::Established(id) } else { Event::Refused(id) };
        assert_eq!(state.known[&id], expected);
    }
    state.managers[0].close(Time::START, id);
    state.collect();
    let state = state.settle();
    assert_eq!(state.managers[0].slots(), SLOTS);
    assert!(state.managers.iter().all(|m| m.held().all(|held| held.0 != id)));
}

#[test]
fn nonsense_from_the_network_is_refused() {
    let mut manager = line(3, HARD).remove(1);
    let id = ChannelId { source: 0, local: 7 };
    let request = |contract, route: Vec<Node>, at| Message::Request {
        contract,
        route,
        at,
        left: Duration::from_ms(9),
        horizon: Duration::ZERO,
    };
    let nothing = Contract { packet_max: Bytes::ZERO, ..CONTRACT };
    for message in [
        request(CONTRACT, vec![0, 1, 2], 9),
        request(CONTRACT, vec![0, 1, 2], 2),
        request(CONTRACT, vec![1], 0),
        request(CONTRACT, vec![0; 1000], 1),
        request(nothing, vec![0, 1, 2], 1),
        request(CONTRACT, vec![0, 1, 5], 1),
    ] {
        manager.receive(Time::START, Envelope { from: 0, to: 1, id, message });
        let sent: Vec<Message> = manager.messages().into_iter().map(|e| e.message).collect();
        assert_eq!(sent, [Message::Reject]);
        assert_eq!(manager.held().count(), 0);
    }
}
