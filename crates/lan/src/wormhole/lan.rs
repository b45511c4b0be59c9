//! The network in virtual time, worm by worm.
//!
//! At each switch, a worm's head requests the next channel. It gets the channel when no other worm holds it, first
//! come, first served. Until then STOP is sent back, and the rest of the worm is held in the slack of the switches
//! behind it and then stops, on channels that no other worm can use meanwhile. Its tail frees a channel when the
//! last byte has left it: with the head at channel k at `h(k)`, `len` bytes of `t` each and a slack of S, channel
//! i is free at
//!
//! ```text
//! max over k >= i, len > S (k - i), of h(k) + (len - S (k - i)) t
//! ```
//!
//! which is exact for equal rates, apart from the time that STOP and GO take. A worm behind another one in the
//! slack of a switch makes its request when the tail of the first has left, and the slack is counted for each of
//! them. A worm whose head has been blocked for `timeout` is discarded, as by a switch that resets the path.
//! Without a timeout, a cycle of worms that wait for each other is permanent, and is detected.
//!
//! Source: Boden et al., Myrinet, 1995; N-41, N-63: switches have no queues, and worms of different lengths share
//! a channel in proportion to their lengths.

use super::routes::{Path, Routes};
use super::topology::{Channel, End, Topology};
use lastmeter_base::{Bytes, Duration, Rate, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

/// Parameters shared by all channels and switches.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Rate of a channel.
    pub rate: Rate,
    /// From a head's arrival at a switch until it leaves, without contention.
    pub hop: Duration,
    /// Capacity of a switch for a blocked worm.
    pub slack: Bytes,
    /// The time after which a blocked worm is discarded; `None` for never.
    pub timeout: Option<Duration>,
    /// Bytes of each worm besides its payload: route, type, CRC.
    pub framing: Bytes,
}

/// The result of a worm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The number given by its sender.
    pub id: u64,
    /// Its sender.
    pub from: usize,
    /// Its destination.
    pub to: usize,
    /// Its payload.
    pub len: Bytes,
    /// When it was offered to its sender's interface.
    pub offered: Time,
    /// When its head left.
    pub started: Time,
    /// When its tail arrived, or it was discarded.
    pub ended: Time,
    /// How long it would have taken from `started` on without contention.
    pub alone: Duration,
    /// Whether it arrived.
    pub arrived: bool,
}

#[derive(Clone, Debug)]
struct Worm {
    passed: Passed,
    path: Path,
    /// When each channel was granted.
    heads: Vec<Time>,
    /// Channels whose release is scheduled or done, from the first.
    freed: usize,
    /// Whether it waits for channel `heads.len()`.
    blocked: bool,
    /// Whether it waits for the worm in front of it in the same switch to proceed.
    behind: bool,
}

#[derive(Clone, Debug, Default)]
struct ChannelState {
    holder: Option<u64>,
    waiting: VecDeque<u64>,
    /// Worms whose head has reached the far end and whose tail has not left it, in order.
    inside: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A tail has left a channel.
    Free(u64, Channel),
    /// A tail has arrived.
    Arrive(u64),
    /// A head requests its next channel.
    Request(u64),
    /// A worm may have been blocked too long at the channel of this index.
    Timeout(u64, usize),
}

/// The network.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate, Time};
/// use lastmeter_lan::wormhole::lan::{Lan, Options};
/// use lastmeter_lan::wormhole::routes::{Faults, Routing, Routes};
/// use lastmeter_lan::wormhole::topology::Topology;
/// let topology = Topology::parse("switch s 8\nhost a s\nhost b s")?;
/// let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
/// let options = Options {
///     rate: Rate::from_mbit(640),
///     hop: Duration::from_ns(550),
///     slack: Bytes(80),
///     timeout: None,
///     framing: Bytes::ZERO,
/// };
/// let mut lan = Lan::new(topology, routes, options);
/// lan.send(Time::START, 0, 1, Bytes(8000), 7).expect("there is a path");
/// let mut passed = Vec::new();
/// lan.advance(Time::START + Duration::from_ms(1), &mut |one| passed.push(one));
/// // 8000 B at 80 MB/s, and a switch.
/// assert_eq!(passed[0].ended, Time::START + Duration::from_ns(100_550));
/// # Ok::<(), lastmeter_lan::wormhole::topology::TopologyError>(())
/// ```
#[derive(Debug)]
pub struct Lan {
    topology: Topology,
    routes: Routes,
    options: Options,
    now: Time,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    channels: Vec<ChannelState>,
    worms: BTreeMap<u64, Worm>,
    made: u64,
    /// Worms waiting at each host's interface: destination, length, number, time of offer.
    queues: Vec<VecDeque<(usize, Bytes, u64, Time)>>,
    queued: u64,
    /// Hosts that no longer accept anything: the last byte never leaves the switch.
    dead: BTreeSet<usize>,
    deadlock: Option<Vec<u64>>,
    resets: u64,
}

impl Lan {
    /// A network in which nothing moves.
    pub fn new(topology: Topology, routes: Routes, options: Options) -> Lan {
        Lan {
            channels: vec![ChannelState::default(); topology.channels()],
            queues: vec![VecDeque::new(); topology.hosts().len()],
            routes,
            options,
            now: Time::START,
            events: BinaryHeap::new(),
            worms: BTreeMap::new(),
            made: 0,
            queued: 0,
            dead: BTreeSet::new(),
            deadlock: None,
            resets: 0,
            topology,
        }
    }

    /// Offers a worm to its sender's interface, not before the time of the last `advance`.
    ///
    /// # Errors
    /// If there is no path.
    pub fn send(
        &mut self,
        now: Time,
        from: usize,
        to: usize,
        len: Bytes,
        id: u64,
    ) -> Result<(), String> {
        if from == to || self.routes.path(from, to).is_none() {
            let hosts = self.topology.hosts();
            return Err(format!("there is no path from `{}` to `{}`", hosts[from], hosts[to]));
        }
        self.now = self.now.max(now);
        self.queues[from].push_back((to, len, id, self.now));
        self.queued += 1;
        self.start(from);
        Ok(())
    }

    /// A host no longer accepts anything, like one that is switched off but still connected (N-52).
    pub fn kill(&mut self, host: usize) {
        self.dead.insert(host);
    }

    /// New routes from now on; worms in transit keep theirs.
    pub fn set_routes(&mut self, routes: Routes) {
        self.routes = routes;
    }

    /// Advances to `end`, and reports every worm that arrived or was discarded.
    pub fn advance(&mut self, end: Time, tell: &mut impl FnMut(Passed)) {
        while let Some(&Reverse((at, event))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            match event {
                Event::Free(worm, channel) => self.free(worm, channel),
                Event::Request(worm) => self.head_arrives(worm),
                Event::Arrive(worm) => {
                    let mut worm = self.worms.remove(&worm).expect("only an existing worm arrives");
                    worm.passed.ended = at;
                    tell(worm.passed);
                }
                Event::Timeout(worm, place) => self.timeout(worm, place, tell),
            }
        }
        self.now = self.now.max(end);
    }

    /// When the next event is due; `None` if there is none, whatever is blocked.
    pub fn ready_at(&self) -> Option<Time> {
        self.events.peek().map(|&Reverse((at, _))| at)
    }
    /// Worms at interfaces and in transit.
    pub fn held(&self) -> u64 {
        self.queued + self.worms.len() as u64
    }
    /// The worms of a deadlock, by the numbers given by their senders.
    pub fn deadlock(&self) -> Option<&[u64]> {
        self.deadlock.as_deref()
    }
    /// Worms that were discarded.
    pub fn resets(&self) -> u64 {
        self.resets
    }
    /// Its topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }
    /// Time of a worm without contention.
    pub fn alone(&self, path: &Path, len: Bytes) -> Duration {
        let ways: Duration = path.iter().map(|&channel| self.topology.propagation(channel)).sum();
        let switches = path.len() as u64 - 1;
        ways + self.options.hop * switches + self.options.rate.time_for(len + self.options.framing)
    }

    /// Lets a host's next worm request its first channel, if no other worm has.
    fn start(&mut self, host: usize) {
        let first = self.topology.out_of_host(host);
        let state = &self.channels[first];
        if state.holder.is_some() || !state.waiting.is_empty() {
            return;
        }
        let Some((to, len, id, offered)) = self.queues[host].pop_front() else { return };
        self.queued -= 1;
        let now = self.now;
        let path = self.routes.path(host, to).cloned();
        let Some(path) = path else {
            // Routes have changed since; it is discarded.
            self.resets += 1;
            return self.start(host);
        };
        let alone = self.alone(&path, len);
        let (started, ended, arrived) = (now, now, true);
        let passed = Passed { id, from: host, to, len, offered, started, ended, alone, arrived };
        let heads = Vec::with_capacity(path.len());
        let worm = Worm { passed, heads, path, freed: 0, blocked: false, behind: false };
        self.made += 1;
        self.worms.insert(self.made, worm);
        self.request(self.made);
    }

    /// A head has arrived at a switch: it requests its next channel if no worm is in front of it.
    fn head_arrives(&mut self, number: u64) {
        let Some(worm) = self.worms.get_mut(&number) else { return };
        let inside = &mut self.channels[worm.path[worm.heads.len() - 1]].inside;
        inside.push_back(number);
        if inside.front() == Some(&number) {
            return self.request(number);
        }
        worm.behind = true;
        self.look_for_a_cycle(number);
    }

    /// A tail has left the far end of a channel: the next head there makes its request.
    fn tail_leaves(&mut self, number: u64, channel: Channel) {
        let inside = &mut self.channels[channel].inside;
        let first = inside.front() == Some(&number);
        inside.retain(|&other| other != number);
        if let Some(&next) = inside.front().filter(|_| first) {
            self.worms.get_mut(&next).expect("a worm in a switch exists").behind = false;
            self.request(next);
        }
    }

    /// A head requests its next channel.
    fn request(&mut self, number: u64) {
        let Some(worm) = self.worms.get_mut(&number) else { return };
        let place = worm.heads.len();
        let channel = worm.path[place];
        let dead =
            matches!(self.topology.to(channel), End::Host(host) if self.dead.contains(&host));
        let state = &mut self.channels[channel];
        if state.holder.is_none() && state.waiting.is_empty() && !dead {
            state.holder = Some(number);
            self.granted(number);
            return;
        }
        worm.blocked = true;
        state.waiting.push_back(number);
        // Channels whose release no longer depends on the one requested can be freed.
        self.free_channels(number);
        if let Some(timeout) = self.options.timeout {
            self.events.push(Reverse((self.now + timeout, Event::Timeout(number, place))));
        }
        self.look_for_a_cycle(number);
    }

    /// A worm has been granted its next channel.
    fn granted(&mut self, number: u64) {
        let worm = self.worms.get_mut(&number).expect("only an existing worm holds a channel");
        let place = worm.heads.len();
        worm.heads.push(self.now);
        worm.blocked = false;
        if place == 0 {
            worm.passed.started = self.now;
        }
        if place + 1 < worm.path.len() {
            let way = self.topology.propagation(worm.path[place]);
            self.events.push(Reverse((self.now + way + self.options.hop, Event::Request(number))));
        }
        self.free_channels(number);
    }

    /// When the last byte leaves the channel at index `place`, as far as is known.
    fn tail(options: &Options, worm: &Worm, place: usize) -> Time {
        let len = worm.passed.len + options.framing;
        let heads = worm.heads.iter().enumerate().skip(place);
        let at = heads.filter_map(|(k, &head)| {
            let held = options.slack.0 * (k - place) as u64;
            let left = len.0.checked_sub(held).filter(|&left| left > 0)?;
            Some(head + options.rate.time_for(Bytes(left)))
        });
        at.max().expect("the head on a held channel is known")
    }

    /// Frees the channels for which it is known when the tail leaves them.
    fn free_channels(&mut self, number: u64) {
        let options = self.options;
        let worm = self.worms.get_mut(&number).expect("only an existing worm frees channels");
        let granted = worm.heads.len();
        let whole = granted == worm.path.len();
        let len = (worm.passed.len + options.framing).0;
        while worm.freed < granted {
            // A later head matters as long as the slack in between cannot hold the whole worm.
            if !whole && len > options.slack.0 * (granted - worm.freed) as u64 {
                break;
            }
            let at = Lan::tail(&options, worm, worm.freed).max(self.now);
            let channel = worm.path[worm.freed];
            worm.freed += 1;
            self.events.push(Reverse((at, Event::Free(number, channel))));
            if whole && worm.freed == worm.path.len() {
                let way = self.topology.propagation(channel);
                self.events.push(Reverse((at + way, Event::Arrive(number))));
            }
        }
    }

    /// A tail has left a channel: the worm that has waited longest gets it.
    fn free(&mut self, number: u64, channel: Channel) {
        let state = &mut self.channels[channel];
        if state.holder != Some(number) {
            return;
        }
        state.holder = state.waiting.pop_front();
        if let Some(next) = state.holder {
            self.granted(next);
        }
        // The previous channel ends where this one begins.
        let path = self.worms.get(&number).map(|worm| &worm.path);
        let place = path.and_then(|path| path.iter().position(|&other| other == channel));
        if let Some(before) = place.filter(|&place| place > 0).zip(path).map(|(at, p)| p[at - 1]) {
            self.tail_leaves(number, before);
        }
        if let End::Host(host) = self.topology.from(channel) {
            self.start(host);
        }
    }

    fn timeout(&mut self, number: u64, place: usize, tell: &mut impl FnMut(Passed)) {
        let Some(worm) = self.worms.get(&number) else { return };
        if !worm.blocked || worm.heads.len() != place {
            return;
        }
        let mut worm = self.worms.remove(&number).expect("it was just found");
        self.channels[worm.path[place]].waiting.retain(|&waiting| waiting != number);
        self.resets += 1;
        worm.passed.ended = self.now;
        worm.passed.arrived = false;
        tell(worm.passed);
        for &channel in &worm.path[..place] {
            self.free(number, channel);
            self.tail_leaves(number, channel);
        }
    }

    /// Whether the worm that has just begun to wait closes a cycle of waiting worms.
    fn look_for_a_cycle(&mut self, number: u64) {
        if self.deadlock.is_some() {
            return;
        }
        let mut cycle = Vec::new();
        let mut at = number;
        while cycle.len() <= self.worms.len() {
            let Some(worm) = self.worms.get(&at) else { return };
            cycle.push(worm.passed.id);
            let place = worm.heads.len();
            let blocker = match (worm.blocked, worm.behind) {
                (true, _) => self.channels[worm.path[place]].holder,
                (_, true) => self.channels[worm.path[place - 1]].inside.front().copied(),
                _ => return,
            };
            match blocker {
                Some(other) if other == number => {
                    self.deadlock = Some(cycle);
                    return;
                }
                Some(other) => at = other,
                None => return,
            }
        }
    }
}

/// All pairs send to each other, as a test of routes: `rounds` worms of `len` from each host to each other one,
/// all at once. Returns how many arrived, or the worms of a deadlock.
///
/// # Errors
/// The numbers of worms that wait for each other.
pub fn all_to_all(
    topology: &Topology,
    routes: &Routes,
    options: Options,
    len: Bytes,
    rounds: u64,
) -> Result<u64, Vec<u64>> {
    let hosts = topology.hosts().len();
    let mut lan = Lan::new(topology.clone(), routes.clone(), options);
    let mut id = 0;
    for round in 0..rounds {
        for step in 1..hosts {
            for from in 0..hosts {
                id += 1;
                let to = (from + step + round as usize) % hosts;
                // Pairs without a path do not send.
                let _ = lan.send(Time::START, from, to, len, id);
            }
        }
    }
    let mut arrived = 0;
    while let Some(at) = lan.ready_at() {
        lan.advance(at, &mut |passed| arrived += u64::from(passed.arrived));
    }
    match lan.deadlock() {
        Some(cycle) => Err(cycle.to_vec()),
        None => Ok(arrived),
    }
}

/// The paths around a ring in one direction only: routes that can deadlock.
pub fn around(topology: &Topology, switches: &[usize]) -> Routes {
    let hosts = topology.hosts().len();
    let place = |switch: usize| switches.iter().position(|&other| other == switch);
    let next = |at: usize| (at + 1) % switches.len();
    let mut paths: Vec<Option<Path>> = vec![None; hosts * hosts];
    for from in 0..hosts {
        for to in (0..hosts).filter(|&to| to != from) {
            let ends = (place(topology.switch_of(from)), place(topology.switch_of(to)));
            let (Some(mut at), Some(last)) = ends else { continue };
            let mut path = vec![topology.out_of_host(from)];
            let mut found = true;
            while at != last && found {
                let mut way = topology.out_of_switch(switches[at]);
                let channel = way.find(|&(_, other)| other == switches[next(at)]);
                found = channel.is_some();
                path.extend(channel.map(|(channel, _)| channel));
                at = next(at);
            }
            path.push(topology.to_host(to));
            paths[from * hosts + to] = found.then(|| Arc::from(path));
        }
    }
    Routes::of(hosts, paths)
}

#[cfg(test)]
mod tests {
    use super::super::routes::{Faults, Routing};
    use super::*;
    use proptest::prelude::*;

    const OPTIONS: Options = Options {
        rate: Rate::from_mbit(640),
        hop: Duration::from_ns(550),
        slack: Bytes(80),
        timeout: None,
        framing: Bytes::ZERO,
    };

    fn ring(switches: usize) -> Topology {
        let mut ring = Topology::default();
        for switch in 0..switches {
            ring.add_switch(&format!("s{switch}"), 8).unwrap();
            ring.add_host(&format!("h{switch}"), switch, 2).unwrap();
        }
        for switch in 0..switches {
            ring.add_cable(switch, (switch + 1) % switches, 25).unwrap();
        }
        ring
    }

    /// Saturates flows for a while; returns how many worms of each arrived, and the longest time that one took.
    fn saturate(topology: &Topology, flows: &[(usize, usize, u64)]) -> Vec<(u64, Duration)> {
        let routes = Routes::new(topology, Routing::UpDown, &Faults::default());
        let mut lan = Lan::new(topology.clone(), routes, OPTIONS);
        let mut result = vec![(0, Duration::ZERO); flows.len()];
        let end = Time::START + Duration::from_ms(20);
        for (flow, &(from, to, len)) in flows.iter().enumerate() {
            for _ in 0..2 {
                lan.send(Time::START, from, to, Bytes(len), flow as u64).unwrap();
            }
        }
        while let Some(at) = lan.ready_at().filter(|&at| at <= end) {
            let mut done = Vec::new();
            lan.advance(at, &mut |passed| done.push(passed));
            for passed in done {
                let (count, longest) = &mut result[passed.id as usize];
                *count += 1;
                *longest = (*longest).max(passed.ended - passed.started);
                let (from, to, len) = flows[passed.id as usize];
                lan.send(at, from, to, Bytes(len), passed.id).unwrap();
            }
        }
        result
    }

    /// N-63: "the switches lack internal queues", so only the lengths of packets determine the shares.
    #[test]
    fn two_flows_share_a_channel_in_proportion_to_their_packet_lengths() {
        let topology = Topology::parse("switch s 8\nhost a s\nhost b s\nhost c s").unwrap();
        for (long, short) in [(8192, 64), (8192, 8192), (1024, 128)] {
            let passed = saturate(&topology, &[(0, 2, long), (1, 2, short)]);
            let turns = passed[0].0 as f64 / passed[1].0 as f64;
            assert!((turns - 1.0).abs() < 0.02, "they take turns: {passed:?}");
        }
    }

    #[test]
    fn one_flow_has_the_whole_rate_and_the_latency_without_contention() {
        let topology = ring(5);
        let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
        let lan = Lan::new(topology.clone(), routes.clone(), OPTIONS);
        let passed = saturate(&topology, &[(1, 3, 8000)]);
        let alone = lan.alone(routes.path(1, 3).unwrap(), Bytes(8000));
        assert_eq!(passed[0].1, alone);
        // 100 us each.
        assert!(passed[0].0 >= 198, "{passed:?}");
    }

    /// A blocked worm blocks what is behind it: a flow that does not use the busy destination still suffers.
    #[test]
    fn a_blocked_worm_blocks_others() {
        let text = "switch s 8\nswitch t 8\ncable s t\nhost a s\nhost b s\nhost c t\nhost d t\n\
                    host e t\nhost f t";
        let topology = Topology::parse(text).unwrap();
        let free = saturate(&topology, &[(1, 5, 8000)])[0].0;
        // a, c and e send to d; b shares the cable with a, which is blocked while c and e send.
        let flows = [(1, 5, 8000), (0, 3, 8000), (2, 3, 8000), (4, 3, 8000)];
        let held = saturate(&topology, &flows)[0].0;
        assert!(held as f64 <= 0.4 * free as f64, "{held} of {free}");
    }

    #[test]
    fn one_direction_around_a_ring_deadlocks_and_up_down_does_not() {
        let ring = ring(4);
        let switches: Vec<usize> = (0..4).collect();
        let bad = around(&ring, &switches);
        let cycle = all_to_all(&ring, &bad, OPTIONS, Bytes(8192), 3).unwrap_err();
        assert!(cycle.len() >= 2, "{cycle:?}");
        let good = Routes::new(&ring, Routing::UpDown, &Faults::default());
        assert_eq!(all_to_all(&ring, &good, OPTIONS, Bytes(8192), 3), Ok(3 * 3 * 4 - 2 * 4));
        // With a timeout, even bad routes recover.
        let timeout = Options { timeout: Some(Duration::from_ms(50)), ..OPTIONS };
        let mut lan = Lan::new(ring.clone(), bad, timeout);
        let mut id = 0;
        for step in 1..4 {
            for from in 0..4 {
                id += 1;
                lan.send(Time::START, from, (from + step) % 4, Bytes(8192), id).unwrap();
            }
        }
        let mut ended = 0;
        lan.advance(Time::START + Duration::from_secs(2), &mut |_| ended += 1);
        assert!(ended == 12 && lan.held() == 0 && lan.resets() > 0, "{ended} {}", lan.resets());
    }

    /// N-52: "switches lock up" when a host is switched off, unless they discard blocked worms.
    #[test]
    fn a_dead_host_locks_up_its_senders_and_those_behind_them() {
        let text = "switch s 8\nswitch t 8\ncable s t\nhost a s\nhost b s\nhost c t\nhost d t";
        let topology = Topology::parse(text).unwrap();
        let run = |timeout| {
            let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
            let mut lan = Lan::new(topology.clone(), routes, Options { timeout, ..OPTIONS });
            lan.kill(3);
            lan.send(Time::START, 0, 3, Bytes(8192), 1).unwrap();
            let later = Time::START + Duration::from_us(10);
            lan.advance(later, &mut |_| ());
            lan.send(later, 1, 2, Bytes(8192), 2).unwrap();
            let mut arrived = Vec::new();
            lan.advance(Time::START + Duration::from_secs(1), &mut |passed| {
                arrived.extend(passed.arrived.then_some(passed.id));
            });
            arrived
        };
        assert_eq!(run(None), [0; 0], "locked up");
        assert_eq!(run(Some(Duration::from_ms(50))), [2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn with_up_down_routes_every_worm_arrives(
            seed in 0u64..1000, switches in 2usize..9, more in 0usize..8, len in 1u64..9000,
        ) {
            let topology = Topology::random(seed, switches, more);
            let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
            let worms = (2 * switches * (switches - 1)) as u64;
            // In the second round each shift meets its own sender once.
            let own = switches as u64;
            let arrived = all_to_all(&topology, &routes, OPTIONS, Bytes(len), 2);
            prop_assert_eq!(arrived, Ok(worms - own));
        }
    }

    #[test]
    #[ignore = "a million worms: make test-long"]
    fn a_million_worms_pass_without_a_deadlock() {
        for seed in 0..20 {
            let topology = Topology::random(seed, 12, 14);
            let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
            let arrived = all_to_all(&topology, &routes, OPTIONS, Bytes(1000), 400);
            assert!(arrived.is_ok_and(|arrived| arrived > 48_000));
        }
    }
}
