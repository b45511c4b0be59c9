//! The five calls of Table 3.2, from one application to another over a relay (E-15, E-19, E-21).

use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_transport::channel::admission::{Method, route::Admission};
use lastmeter_transport::channel::contract::{Contract, Link};
use lastmeter_transport::channel::manager::{Event, Manager, Times};
use lastmeter_transport::channel::node::{Address, Frame, Node, Notice, Room, Stream, Unsent};
use lastmeter_transport::channel::reassembly::Part;
use std::collections::BTreeMap;

const LINK: Link = Link {
    rate: Rate::from_mbit(10),
    per_packet: Duration::ZERO,
    packet_max: Bytes(1250),
    outstanding: 2,
    propagation: Duration::from_us(100),
    horizon: Duration::ZERO,
    skew: Duration::ZERO,
};
const ROOM: Room = Room { channel: 32, data: 64 };
const CONTRACT: Contract = Contract {
    message_max: Bytes(5000),
    interval_min: Duration::from_ms(20),
    burst_max: 2,
    packet_max: Bytes(1250),
    deadline: Duration::from_ms(40),
};

fn at(ms: u64) -> Time {
    Time::START + Duration::from_ms(ms)
}

/// Three nodes in a line, their links, and what is on them.
struct Line {
    nodes: Vec<Node>,
    now: Time,
    /// When each link has sent what it sends.
    busy: BTreeMap<(u32, u32), Time>,
    notices: Vec<(u32, Notice)>,
}

impl Line {
    fn new() -> Line {
        let times =
            Times { retry: Duration::from_secs(1), remember: Duration::from_secs(9), lease: None };
        let node = |id: u32| {
            let near: Vec<u32> =
                [id.checked_sub(1), (id < 2).then_some(id + 1)].into_iter().flatten().collect();
            let admission = |&to: &u32| (to, Admission::from((LINK, Method::DOrder)));
            let manager = Manager::new(id, near.iter().map(admission), 200, times);
            let routes = (0..3).filter(|&to| to != id);
            let routes = routes.map(|to| (to, if to > id { id + 1 } else { id - 1 }));
            Node::new(id, manager, near.iter().map(|&to| (to, LINK)), routes, ROOM)
        };
        Line {
            nodes: (0..3).map(node).collect(),
            now: Time::START,
            busy: BTreeMap::new(),
            notices: vec![],
        }
    }

    /// Carries control messages until there are none.
    fn settle(&mut self) {
        loop {
            let all: Vec<_> = self.nodes.iter_mut().flat_map(Node::messages).collect();
            if all.is_empty() {
                break;
            }
            for envelope in all {
                self.nodes[envelope.to as usize].control(self.now, envelope);
            }
        }
        self.listen();
    }

    fn listen(&mut self) {
        for (id, node) in self.nodes.iter_mut().enumerate() {
            self.notices.extend(node.notices().into_iter().map(|notice| (id as u32, notice)));
        }
    }

    /// Sends whatever may be sent, packet by packet, until `end`.
    fn run(&mut self, end: Time) {
        let links = [(0u32, 1u32), (1, 0), (1, 2), (2, 1)];
        loop {
            // Links take turns at the earliest instant at which one of them may begin.
            let ready = links.iter().filter_map(|&(from, to)| {
                let free = self.busy.get(&(from, to)).copied().unwrap_or(Time::START);
                let from_then = self.now.max(free);
                let ready = self.nodes[from as usize].ready_at(from_then, to)?;
                Some((ready.max(from_then), from, to))
            });
            let Some((now, from, to)) = ready.min().filter(|next| next.0 <= end) else { break };
            self.now = now;
            let frame = self.nodes[from as usize].transmit(now, to).expect("it is ready");
            let sent = now + LINK.time_for(frame.len);
            let moves = self.nodes[from as usize].moves(&frame);
            self.nodes[from as usize].sent(to, &frame);
            self.busy.insert((from, to), sent);
            // What is early at the next node waits there, so it may be handed over at once.
            self.nodes[to as usize].arrive(sent + LINK.propagation, frame, moves);
            self.listen();
        }
        self.now = end;
    }
}

#[test]
fn e_15_five_calls_from_one_application_to_another() {
    let mut line = Line::new();
    let (queue, files) = (line.nodes[2].init(8), line.nodes[2].init(100));
    let id = line.nodes[0].create(at(0), CONTRACT, vec![0, 1, 2], queue).unwrap();
    assert_eq!(line.nodes[0].send(at(0), id, Bytes(5000)), Err(Unsent::NoChannel), "not yet");
    line.settle();
    assert!(line.notices.contains(&(0, Notice::Channel(Event::Established(id)))));

    // A burst of two, and best effort from the relay beside it.
    assert_eq!(line.nodes[0].send(at(0), id, Bytes(5000)), Ok(0));
    assert_eq!(line.nodes[0].send(at(0), id, Bytes(3000)), Ok(1));
    assert_eq!(line.nodes[0].send(at(0), id, Bytes(5001)), Err(Unsent::TooLong));
    for _ in 0..40 {
        line.nodes[1].send_data(at(0), files, (Bytes(1250), Bytes(1250))).unwrap();
    }
    line.run(at(100));
    let mut messages = Vec::new();
    while let Some(delivered) = line.nodes[2].receive(queue.queue) {
        messages.push(delivered);
    }
    let ours = &messages;
    assert_eq!(ours.iter().map(|m| m.len).collect::<Vec<_>>(), [Bytes(5000), Bytes(3000)]);
    assert!(ours.iter().all(|m| m.at <= m.due), "{ours:?}");
    assert_eq!(ours.iter().map(|m| m.due).collect::<Vec<_>>(), [at(40), at(60)], "l + d");
    assert_eq!(std::iter::from_fn(|| line.nodes[2].receive(files.queue)).count(), 40);
    let sent = line
        .notices
        .iter()
        .filter(|(node, notice)| *node == 0 && matches!(notice, Notice::Sent { .. }));
    assert_eq!(sent.count(), 2, "rtc_send blocks until its last packet has left");

    line.nodes[0].close(line.now, id);
    line.settle();
    assert_eq!(line.nodes[0].send(line.now, id, Bytes(1)), Err(Unsent::NoChannel));
    for node in &line.nodes {
        assert_eq!(node.manager().held().count(), 0, "rtc_close frees all");
    }
}

#[test]
fn e_15_what_cannot_be_is_said_and_a_full_queue_loses() {
    let mut line = Line::new();
    let queue = line.nodes[2].init(1);
    let greedy = Contract { deadline: Duration::from_ms(9), ..CONTRACT };
    let id = line.nodes[0].create(at(0), greedy, vec![0, 1, 2], queue).unwrap();
    line.settle();
    assert!(line.notices.contains(&(0, Notice::Channel(Event::Refused(id)))));
    let nowhere = Address { node: 7, queue: 0 };
    assert!(line.nodes[0].create(at(0), CONTRACT, vec![0, 1, 2], nowhere).is_err());
    assert_eq!(line.nodes[0].send_data(at(0), nowhere, (Bytes(1), Bytes(1))), Err(Unsent::NoLink));
    // Two messages and room for one.
    for _ in 0..2 {
        line.nodes[0].send_data(at(0), queue, (Bytes(2000), Bytes(1250))).unwrap();
    }
    line.run(at(50));
    assert_eq!(line.nodes[2].receive(0).map(|m| m.len), Some(Bytes(2000)));
    assert_eq!((line.nodes[2].receive(0), line.nodes[2].receive(9)), (None, None));
}

/// A source at ten times its rate: the policer drops, and no other channel is harmed.
#[test]
fn e_15_what_was_not_promised_is_refused() {
    let mut line = Line::new();
    let queue = line.nodes[2].init(100);
    let id = line.nodes[0].create(at(0), CONTRACT, vec![0, 1, 2], queue).unwrap();
    line.settle();
    let outcomes: Vec<_> = (0..40).map(|_| line.nodes[0].send(at(0), id, Bytes(5000))).collect();
    assert_eq!(outcomes.iter().filter(|sent| sent.is_ok()).count(), 8, "32 slots");
    assert!(outcomes.contains(&Err(Unsent::NotPromised)));
    line.run(at(400));
    let all: Vec<_> = std::iter::from_fn(|| line.nodes[2].receive(queue.queue)).collect();
    assert_eq!(all.len(), 8);
    assert!(all.iter().all(|message| message.at <= message.due));
}

/// E-17, E-22, E-26: a neighbour that sends more than the channel's slots, or claims earlier times than the contract
/// allows, harms only that channel; packets from elsewhere are not taken for its own.
#[test]
fn e_22_a_node_on_the_way_does_not_trust_the_one_before() {
    let mut line = Line::new();
    let queue = line.nodes[2].init(8);
    let id = line.nodes[0].create(at(0), CONTRACT, vec![0, 1, 2], queue).unwrap();
    line.settle();
    let relay = &mut line.nodes[1];
    let slots = relay.manager().hop(id).unwrap().slots;
    let frame = |message, logical| Frame {
        stream: Stream::Channel(id),
        to: queue,
        part: Part { message, index: 0, count: 1 },
        len: Bytes(1250),
        logical,
        due: at(40),
        content: (),
    };
    (0..100).for_each(|message| relay.arrive_from(at(0), 0, frame(message, at(0))));
    assert_eq!(relay.drops().broken, 100 - slots);
    relay.arrive_from(at(0), 2, frame(0, at(0)));
    relay.arrive_from(at(0), 0, frame(0, at(5_000)));
    assert_eq!((relay.drops().unknown, relay.drops().broken), (1, 101 - slots));
    // All claimed to be due at once: they leave 20 ms apart.
    for message in 0..slots {
        assert_eq!(relay.ready_at(at(20 * message), 2), Some(at(20 * message)));
        let sent = relay.transmit(at(20 * message), 2).unwrap();
        assert_eq!((sent.part.message, sent.logical), (message, at(20 * message)));
        relay.sent(2, &sent);
        assert_eq!(relay.transmit(at(20 * message), 2), None);
    }
    relay.arrive_from(at(400), 0, frame(99, at(400)));
    assert_eq!(relay.drops().broken, 101 - slots, "slots are free again");
}
