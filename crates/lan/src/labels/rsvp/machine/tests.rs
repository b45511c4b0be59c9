//! Routers in a row, with lines that lose messages.

use super::*;
use proptest::prelude::*;

const REFRESH: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_ms(10);
const KINDS: [Kind; 6] =
    [Kind::Path, Kind::Resv, Kind::PathErr, Kind::ResvErr, Kind::PathTear, Kind::ResvTear];

/// A router of the row: port 0 is towards the first, port 1 towards the last.
struct Router {
    at: u8,
    room: u64,
    reserved: BTreeMap<String, Admit>,
    states: BTreeMap<String, State>,
    out: Vec<(u16, Ipv4Addr, Vec<u8>)>,
}

/// The address of a router on the line behind router `line`; `end` 1 or 2.
fn address(line: u8, end: u8) -> Ipv4Addr {
    [10, 0, line, end].into()
}

impl Ground for Router {
    fn is_own(&self, asked: Ipv4Addr) -> bool {
        asked == address(self.at, 1) || (self.at > 0 && asked == address(self.at - 1, 2))
    }
    fn address(&self, port: u16) -> Option<Ipv4Addr> {
        match port {
            0 => self.at.checked_sub(1).map(|line| address(line, 2)),
            _ => Some(address(self.at, 1)),
        }
    }
    fn way(&mut self, to: Ipv4Addr) -> Option<(u16, Ipv4Addr)> {
        let [10, 0, line, _] = to.octets() else { return None };
        match line.cmp(&self.at) {
            std::cmp::Ordering::Equal => Some((1, to)),
            std::cmp::Ordering::Greater => Some((1, address(self.at, 2))),
            std::cmp::Ordering::Less if line + 1 == self.at => Some((0, to)),
            std::cmp::Ordering::Less => Some((0, address(self.at - 1, 1))),
        }
    }
    fn admit(&mut self, wanted: &Admit) -> Result<(), String> {
        let others = self.reserved.values().filter(|own| own.flow != wanted.flow);
        let taken: u64 = others.map(|own| own.rate.as_bits()).sum();
        if taken + wanted.rate.as_bits() > self.room {
            return Err("no room".to_owned());
        }
        self.reserved.insert(wanted.flow.clone(), wanted.clone());
        Ok(())
    }
    fn has(&self, flow: &str) -> bool {
        self.reserved.contains_key(flow)
    }
    fn release(&mut self, flow: &str, _why: &str) {
        assert!(self.reserved.remove(flow).is_some(), "{flow} was reserved");
    }
    fn tell(&mut self, flow: &str, state: Option<State>) {
        match state {
            Some(state) => drop(self.states.insert(flow.to_owned(), state)),
            None => drop(self.states.remove(flow)),
        }
    }
    fn send(&mut self, port: u16, to: Ipv4Addr, packet: Vec<u8>) {
        self.out.push((port, to, packet));
    }
}

struct Row {
    routers: Vec<Option<(Machine, Router)>>,
    now: Time,
    loss: f64,
    random: Stream,
}

impl Row {
    fn new(count: u8, loss: f64, seed: u64) -> Row {
        let mut row = Row {
            routers: (0..count).map(|_| None).collect(),
            now: Time::START,
            loss,
            random: Stream::new(seed, "row"),
        };
        (0..count).for_each(|at| row.start(at));
        row
    }
    /// A router begins with nothing.
    fn start(&mut self, at: u8) {
        let room = 10_000_000;
        let (reserved, states, out) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let machine = Machine::new(self.random.bits(), REFRESH);
        let router = Router { at, room, reserved, states, out };
        self.routers[usize::from(at)] = Some((machine, router));
    }
    fn at(&mut self, at: u8) -> &mut (Machine, Router) {
        self.routers[usize::from(at)].as_mut().expect("it runs")
    }
    fn begin(&mut self, tunnel: &Tunnel) {
        let now = self.now;
        let (machine, router) = self.at(0);
        machine.begin(now, tunnel, router);
    }
    fn state(&mut self) -> Option<State> {
        self.at(0).1.states.get("film").cloned()
    }
    fn runs(&mut self, for_so_long: Duration) {
        let until = self.now + for_so_long;
        while self.now < until {
            self.now += STEP;
            let now = self.now;
            for (machine, router) in self.routers.iter_mut().flatten() {
                machine.advance(now, router);
                assert!(machine.due().is_none_or(|due| due > now), "all is done that was due");
            }
            self.deliver();
        }
    }
    /// Until nobody has anything to send.
    fn deliver(&mut self) {
        loop {
            let mut sent = Vec::new();
            for (_, router) in self.routers.iter_mut().flatten() {
                let at = router.at;
                sent.extend(router.out.drain(..).map(|(port, to, packet)| (at, port, to, packet)));
            }
            if sent.is_empty() {
                return;
            }
            for (at, port, to, packet) in sent {
                let way = self.at(at).1.way(to);
                assert_eq!(way, Some((port, to)), "to what is next to it");
                let there = if port == 0 { at.checked_sub(1) } else { Some(at + 1) };
                let lost = self.random.chance(self.loss);
                let there = there.filter(|_| !lost).and_then(|there| {
                    self.routers.get_mut(usize::from(there)).and_then(Option::as_mut)
                });
                let Some((machine, router)) = there else { continue };
                // Nobody has an address that a stranger made up.
                if !router.is_own(to) {
                    continue;
                }
                let read = ipv4::Packet::parse(&packet).expect("a packet");
                assert!(router.is_own(read.dst()) || super::super::is_alert(&packet));
                machine.receive(self.now, 1 - port, &packet, router);
            }
        }
    }
    /// Each label is told to the router before, from the first router on; how many routers have reserved.
    fn reserved(&mut self) -> usize {
        let mut expected = match self.state() {
            Some(State::Up(port, next, label)) => {
                assert_eq!((port, next), (1, address(0, 2)));
                Some(label)
            }
            _ => None,
        };
        let mut count = 0;
        for (_, router) in self.routers.iter().flatten().skip(1) {
            for own in router.reserved.values() {
                count += 1;
                assert_eq!((own.from, own.label >= LABEL_FIRST), (0, true));
                if expected.is_some() {
                    assert_eq!(Some(own.label), expected, "router {}", router.at);
                }
                expected = own.next.map(|(_, label)| label);
            }
        }
        count
    }
}

fn tunnel(last: u8, mbit: u64) -> Tunnel {
    Tunnel {
        flow: "film".to_owned(),
        end: address(last - 1, 2),
        route: Vec::new(),
        rate: Rate::from_mbit(mbit),
        burst: Bytes(15_000),
    }
}

#[test]
fn a_tunnel_is_set_up_at_once_with_labels_from_its_end_and_torn_down_at_once_d_43() {
    let mut row = Row::new(5, 0.0, 1);
    row.begin(&tunnel(4, 6));
    row.deliver();
    assert!(matches!(row.state(), Some(State::Up(..))), "{:?}", row.state());
    assert_eq!(row.reserved(), 4);
    let own = row.at(2).1.reserved.values().next().cloned().expect("reserved");
    assert_eq!((own.rate, own.burst), (Rate::from_mbit(6), Bytes(15_000)));
    assert_eq!(row.at(4).1.reserved.values().next().expect("reserved").next, None);
    // It stays while it is refreshed, and nothing is changed by that.
    let before = row.state();
    row.runs(REFRESH.scale_ceil(20, 1));
    assert_eq!((row.state(), row.reserved()), (before, 4));
    let (machine, router) = row.at(0);
    machine.end("film", router);
    row.deliver();
    assert_eq!((row.state(), row.reserved()), (None, 0));
    for (machine, _) in row.routers.iter().flatten() {
        assert!(machine.paths.is_empty() && machine.labels.is_empty());
        assert_eq!((machine.counts.wrong, machine.counts.expired), (0, 0));
    }
}

#[test]
fn a_router_without_room_refuses_and_both_ends_take_it_back_d_43() {
    let mut row = Row::new(5, 0.0, 2);
    row.at(2).1.room = 5_000_000;
    row.begin(&tunnel(4, 6));
    row.deliver();
    let Some(State::Asked(Some(why))) = row.state() else { panic!("{:?}", row.state()) };
    assert_eq!(why, "router 10.0.1.2: it has not the bandwidth (RSVP error 1, 2)");
    // The end took back what it had granted, and so did the router before it; nobody else had.
    assert_eq!(row.reserved(), 0);
    // When there is room, the next refreshes find it.
    row.at(2).1.room = 7_000_000;
    row.runs(REFRESH.scale_ceil(6, 1));
    assert!(matches!(row.state(), Some(State::Up(..))), "{:?}", row.state());
    assert_eq!(row.reserved(), 4);
}

#[test]
fn a_router_that_is_started_again_is_told_all_by_refreshes_d_43() {
    let mut row = Row::new(4, 0.0, 3);
    row.begin(&tunnel(3, 6));
    row.deliver();
    let before = row.state();
    row.start(1);
    row.runs(REFRESH.scale_ceil(6, 1));
    assert!(matches!(row.state(), Some(State::Up(..))) && row.state() != before);
    assert_eq!(row.reserved(), 3);
    // What was taken from a router by its owner comes back, too.
    row.at(2).1.reserved.clear();
    row.runs(REFRESH.scale_ceil(3, 1));
    assert_eq!(row.reserved(), 3);
    // One that is gone for good is missed on both sides.
    row.routers[1] = None;
    row.runs(REFRESH.scale_ceil(6, 1));
    let Some(State::Asked(Some(why))) = row.state() else { panic!("{:?}", row.state()) };
    assert!(why.contains("not refreshed"), "{why}");
    row.runs(REFRESH.scale_ceil(6, 1));
    assert_eq!(row.reserved(), 0);
    assert!(row.at(3).0.paths.is_empty());
}

#[test]
fn a_router_that_ends_says_so_to_both_sides_d_43() {
    let mut row = Row::new(4, 0.0, 6);
    row.begin(&tunnel(3, 6));
    row.deliver();
    assert_eq!(row.reserved(), 3);
    let (machine, router) = row.at(1);
    machine.leave(router);
    row.deliver();
    row.routers[1] = None;
    assert_eq!(row.state(), Some(State::Asked(Some("it was released behind".to_owned()))));
    assert_eq!(row.reserved(), 0);
    for at in [2, 3] {
        let (machine, _) = row.at(at);
        assert!(machine.paths.is_empty() && machine.counts.expired == 0);
    }
}

#[test]
fn a_route_is_followed_step_by_step_or_refused_d_43() {
    let mut row = Row::new(5, 0.0, 4);
    // Router 3 by its further address, then the end.
    row.begin(&Tunnel { route: vec![address(3, 1)], ..tunnel(4, 1) });
    row.deliver();
    assert_eq!(row.reserved(), 4);
    let (machine, router) = row.at(0);
    machine.end("film", router);
    row.deliver();
    // A step that is nobody's.
    row.begin(&Tunnel { route: vec![[192, 0, 2, 1].into()], ..tunnel(4, 1) });
    let Some(State::Asked(Some(why))) = row.state() else { panic!("{:?}", row.state()) };
    assert_eq!(why, "no route leads to 192.0.2.1");
    row.begin(&Tunnel { route: vec![address(0, 2), [192, 0, 2, 1].into()], ..tunnel(4, 1) });
    row.deliver();
    let Some(State::Asked(Some(why))) = row.state() else { panic!("{:?}", row.state()) };
    assert!(why.starts_with("router 10.0.0.2: it has no route"), "{why}");
    // What others send: a route that begins elsewhere, or whose strict step is no neighbour.
    let session = Session { end: address(3, 2), tunnel: 9, extended: address(0, 1) };
    let hop = Some(Hop { address: address(0, 1), handle: 7 });
    let sender = Some(Sender { from: address(0, 1), path: 1 });
    let (rate, bucket, peak, shortest, longest) = (1e5, 1500.0, 1e6, 20, 1500);
    let traffic = Some(Traffic { rate, bucket, peak, shortest, longest });
    let mut complaint = |route: &[Ipv4Addr], payload: u16| {
        let step = |address: &Ipv4Addr| Step { loose: false, address: *address, len: 32 };
        let route = Some(route.iter().map(step).collect());
        let path = Message::new(Kind::Path, session);
        let path = Message { hop, sender, traffic, route, payload: Some(payload), ..path };
        let mut packet = Vec::new();
        let (header, bytes) =
            (ipv4::Header::new(address(0, 1), session.end, PROTOCOL), path.emit());
        header.emit_with_options(&ALERT, bytes.len(), &mut packet).expect("fits");
        packet.extend(bytes);
        let now = row.now;
        let (machine, router) = row.at(1);
        machine.receive(now, 0, &packet, router);
        let (_, to, said) = router.out.pop().expect("an answer");
        assert_eq!(to, address(0, 1));
        let said = Message::parse(ipv4::Packet::parse(&said).expect("a packet").payload);
        let fault = said.expect("a message").fault.expect("a fault");
        (fault.code, fault.value)
    };
    assert_eq!(complaint(&[address(1, 2)], PAYLOAD_IP), (24, 4));
    assert_eq!(complaint(&[address(0, 2), address(3, 2)], PAYLOAD_IP), (24, 2));
    assert_eq!(complaint(&[address(0, 2), address(0, 1)], PAYLOAD_IP), (24, 5));
    assert_eq!(complaint(&[], 0x0801), (24, 10));
}

#[test]
fn nothing_is_sent_to_a_host_that_a_stranger_names_as_its_hop_d_43() {
    let session = Session { end: address(3, 2), tunnel: 9, extended: address(0, 1) };
    let (rate, bucket, peak, shortest, longest) = (1e5, 1500.0, 1e6, 20, 1500);
    let traffic = Traffic { rate, bucket, peak, shortest, longest };
    let sender = Some(Sender { from: address(0, 1), path: 1 });
    // Not of this network, of the network at the other port, and the router's own.
    for stranger in [[0, 0, 0, 1].into(), [192, 0, 2, 1].into(), address(1, 2), address(0, 2)] {
        for kind in [Kind::Path, Kind::Resv] {
            let mut row = Row::new(2, 0.0, 7);
            let message = Message {
                hop: Some(Hop { address: stranger, handle: 7 }),
                sender,
                traffic: Some(traffic),
                wanted: Some(Wanted { traffic, guaranteed: None }),
                label: Some(LABEL_FIRST),
                payload: Some(PAYLOAD_IP),
                ..Message::new(kind, session)
            };
            let (header, bytes) =
                (ipv4::Header::new(address(0, 1), session.end, PROTOCOL), message.emit());
            let mut packet = Vec::new();
            header.emit_with_options(&ALERT, bytes.len(), &mut packet).expect("fits");
            packet.extend(bytes);
            let (machine, router) = row.at(1);
            machine.receive(Time::START, 0, &packet, router);
            assert!(router.out.is_empty() && machine.paths.is_empty(), "{kind:?} {stranger}");
            assert_eq!((machine.counts.wrong, machine.counts.sent), (1, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is lost: a tunnel comes up, and when its beginning is gone, nothing of it stays.
    #[test]
    fn soft_state_comes_and_goes_whatever_is_lost_d_43(
        seed in any::<u64>(), loss in 0.0..0.3f64, count in 3..6u8,
    ) {
        let mut row = Row::new(count, loss, seed);
        row.begin(&tunnel(count - 1, 3));
        let mut tries = 0;
        while !matches!(row.state(), Some(State::Up(..))) {
            row.runs(REFRESH);
            tries += 1;
            prop_assert!(tries < 100, "{:?}", row.state());
        }
        row.routers[0] = None;
        row.loss = 0.0;
        row.runs(REFRESH.scale_ceil(7 * u64::from(count), 1));
        for (machine, router) in row.routers.iter().flatten() {
            prop_assert!(router.reserved.is_empty() && machine.paths.is_empty());
            prop_assert!(machine.labels.is_empty());
        }
    }

    /// Messages of strangers, in any order, of many tunnels: the state has a bound, and what is reserved has a path.
    #[test]
    fn no_sequence_of_messages_panics_or_leaves_more_than_paths(
        steps in prop::collection::vec((0..6usize, 0..4u16, 0..3u32, any::<[u8; 5]>()), 1..300),
    ) {
        let mut row = Row::new(2, 0.0, 5);
        for (kind, tunnel, label, [port, hops, change, at, to]) in steps {
            let session = Session { end: address(3, 2), tunnel, extended: address(0, 1) };
            let mut message = Message::new(KINDS[kind], session);
            message.hops = hops;
            let port = u16::from(port % 2);
            let neighbour = if port == 0 { address(0, 1) } else { address(1, 2) };
            message.hop = Some(Hop { address: neighbour, handle: 1 });
            message.sender = Some(Sender { from: address(0, 1), path: 1 });
            let (rate, bucket, peak, shortest, longest) = (1e5, 1500.0, 1e6, 20, 1500);
            let traffic = Traffic { rate, bucket, peak, shortest, longest };
            message.traffic = Some(traffic);
            message.wanted = Some(Wanted { traffic, guaranteed: None });
            message.fault = Some(Fault { at: neighbour, flags: 0, code: 1, value: 2 });
            (message.label, message.payload) = (Some(label * 20), Some(PAYLOAD_IP));
            let mut bytes = message.emit();
            if change % 8 == 0 {
                let at = usize::from(at) % bytes.len();
                bytes[at] = to;
                bytes[2..4].fill(0);
            }
            let header = ipv4::Header::new(neighbour, address(0, 2), PROTOCOL);
            let mut packet = Vec::new();
            header.emit(bytes.len(), &mut packet).expect("fits");
            packet.extend(bytes);
            let now = row.now;
            let (machine, router) = row.at(1);
            machine.receive(now, port, &packet, router);
            prop_assert!(machine.paths.len() <= PATHS_MAX && router.out.len() <= 8);
            router.out.clear();
            for flow in router.reserved.keys() {
                let has = |path: &Path| path.flow == *flow && path.admitted;
                prop_assert!(machine.paths.values().any(has));
            }
            row.now += STEP;
        }
        row.runs(Duration::from_secs(200));
        let (machine, router) = row.at(1);
        prop_assert!(machine.paths.is_empty() && router.reserved.is_empty());
        prop_assert!(machine.labels.is_empty());
    }
}
