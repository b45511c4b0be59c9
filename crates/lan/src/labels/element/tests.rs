//! A label router between two neighbours: what it does with their messages, their labels, and any other bytes.

use super::super::ground::{Peer, router};
use super::super::rsvp::PROTOCOL;
use super::super::rsvp::message::{
    Hop, Kind as Message, Message as Body, PAYLOAD_IP, Sender, Session, Traffic,
};
use super::*;
use lastmeter_base::Rate;
use lastmeter_engine::{Graph, StageInfo, VirtualClock};
use lastmeter_net::queue::DropTail;
use lastmeter_wire::internet::ipv4;
use proptest::prelude::*;

const HERE: NodeId = NodeId(5);

/// Sends these to a router, each from the link of its number, and takes what comes back.
struct Neighbours(PathId, Vec<(u16, NodeId, Vec<u8>)>);

impl Element for Neighbours {
    fn start(&mut self, cx: &mut Context<'_>) {
        for (port, destination, content) in &self.1 {
            let mut packet = cx.make(self.0, Bytes(content.len() as u64 + 20));
            packet.destination = *destination;
            packet.content.extend_from_slice(content);
            cx.send(PortId(*port), packet);
        }
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        cx.deliver(packet);
    }
}

/// What a router between nodes 4 and 6, with a host at its third link, does with these: dropped packets by reason,
/// and its counters.
fn run(
    sent: Vec<(u16, NodeId, Vec<u8>)>,
) -> (BTreeMap<&'static str, u64>, BTreeMap<&'static str, u64>) {
    let mut graph = Graph::new(1);
    let path = graph.path("neighbours", "any");
    let peer = |node, link| Some(Peer { node: NodeId(node), link });
    let rate = Some(Rate::from_mbit(10));
    let fresh = Admission::new(["a", "b", "c"].map(|name| (name, rate, 0.8)));
    let routes = [(4, 0), (6, 1), (7, 2)].map(|(to, link)| (NodeId(to), link)).into();
    let peers = vec![peer(4, 1), peer(6, 0), None];
    let rest = || Box::new(DropTail::new(1000, Bytes(u64::MAX)));
    let router = LabelRouter::new(Options {
        asks: None,
        asked: None,
        down: Vec::new(),
        refresh: Duration::from_ms(50),
        waiting: 100,
        here: Here::new(HERE, peers, routes, fresh),
        lines: (0..3).map(|_| Line::new(rate, Bytes::ZERO, rest())).collect(),
        random: Stream::new(1, "router"),
        path: graph.path("router", "rsvp"),
        stage: graph.stage(StageInfo::new("queue".to_owned(), None)),
    });
    let router = graph.add("router", router).expect("a name");
    let neighbours = graph.add("neighbours", Neighbours(path, sent)).expect("a name");
    for port in (0..3).map(PortId) {
        graph.connect(neighbours, port, router, port).expect("free");
        graph.connect(router, port, neighbours, port).expect("free");
    }
    let mut engine = graph.build(1).expect("it fits");
    let end = Time::START + Duration::from_secs(2);
    engine.run_until(end, &mut VirtualClock::default()).expect("it runs");
    let outcome = engine.finish().expect("every packet is accounted for");
    let mut dropped = BTreeMap::new();
    for (key, count) in outcome.books.paths.iter().flat_map(|path| &path.dropped) {
        *dropped.entry(key.reason).or_default() += count.packets;
    }
    let own = outcome.elements.iter().find(|one| one.name == "router").expect("the router");
    (dropped, own.counters.iter().copied().collect())
}

/// A PATH of node 4 for a tunnel to node 6, or to the router itself.
fn path_message(end: NodeId) -> Vec<u8> {
    let from = Ipv4Addr::new(10, 0, 4, 2);
    let session = Session { end: router(end), tunnel: 1, extended: from };
    let (rate, bucket, peak, shortest, longest) = (1e5, 1500.0, 1e6, 20, 1500);
    let body = Body {
        hop: Some(Hop { address: from, handle: 1 }),
        sender: Some(Sender { from, path: 1 }),
        traffic: Some(Traffic { rate, bucket, peak, shortest, longest }),
        payload: Some(PAYLOAD_IP),
        refresh: Some(50),
        ..Body::new(Message::Path, session)
    };
    let (mut packet, body) = (Vec::new(), body.emit());
    let header = ipv4::Header::new(from, session.end, PROTOCOL);
    header.emit(body.len(), &mut packet).expect("fits");
    packet.extend(body);
    packet
}
fn labelled(label: u32, ttl: u8) -> Vec<u8> {
    let mut packet = Packet::new(Bytes(100));
    push(&mut packet, label, HERE);
    rewrite(&mut packet.content, Shim { label, class: 0, bottom: true, ttl });
    packet.content.clone()
}

#[test]
fn a_path_that_ends_here_is_reserved_and_gone_when_nobody_refreshes_it_d_43() {
    // Only its first refreshes last: 5.25 times 50 ms.
    let (dropped, counts) = run(vec![(0, HERE, path_message(HERE))]);
    assert!(dropped.is_empty(), "{dropped:?}");
    assert_eq!((counts["heard"], counts["expired"]), (1, 1));
    assert_eq!((counts["paths"], counts["reserved"]), (0, 0));
    // RESV, and its refreshes in 262.5 ms.
    assert!((4..12).contains(&counts["sent"]), "{}", counts["sent"]);
}

#[test]
fn what_is_not_for_it_as_it_is_says_why_it_is_dropped_d_43() {
    let known = |content: Vec<u8>, port, to| run(vec![(port, to, content)]).0;
    assert_eq!(known(labelled(1 << 19, 9), 0, HERE), [("label", 1)].into());
    assert_eq!(known(vec![0x88, 0x47, 1], 0, HERE), [("label", 1)].into());
    assert_eq!(known(vec![1, 2, 3], 1, HERE), [("malformed", 1)].into());
    assert_eq!(known(Vec::new(), 1, HERE), [("malformed", 1)].into());
    // Hosts send neither.
    assert_eq!(known(labelled(1 << 19, 9), 2, HERE), [("malformed", 1)].into());
    assert_eq!(known(path_message(HERE), 2, HERE), [("malformed", 1)].into());
    assert_eq!(known(Vec::new(), 0, NodeId(9)), [("no route", 1)].into());
    // A message at the wrong link, and bytes that only begin as one.
    for (port, content) in [(1, path_message(HERE)), (0, vec![0x45; 40])] {
        let (dropped, counts) = run(vec![(port, HERE, content)]);
        assert!(dropped.is_empty() && counts["wrong"] == 1 && counts["paths"] == 0);
    }
}

proptest! {
    #[test]
    fn a_label_goes_on_and_off_d_43(
        content in prop::collection::vec(any::<u8>(), 0..40),
        to: u32,
        label in 0..=mpls::LABEL_MAX,
    ) {
        let mut packet = Packet::new(Bytes(1000));
        packet.content.extend_from_slice(&content);
        packet.destination = NodeId(to);
        push(&mut packet, label, HERE);
        prop_assert_eq!((packet.len, packet.destination), (Bytes(1004), HERE));
        let (shim, behind) = read(&packet.content).expect("a label");
        prop_assert_eq!((shim.label, shim.ttl, behind), (label, HOPS, NodeId(to)));
        rewrite(&mut packet.content, Shim { ttl: 3, ..shim });
        prop_assert_eq!(read(&packet.content), Some((Shim { ttl: 3, ..shim }, NodeId(to))));
        pop(&mut packet);
        prop_assert_eq!((packet.len, packet.destination), (Bytes(1000), NodeId(to)));
        prop_assert_eq!(&packet.content, &content);
    }

    /// Whatever neighbours send, nothing panics and every packet is accounted for.
    #[test]
    fn any_bytes_from_neighbours_are_accounted_for_d_43(
        sent in prop::collection::vec(
            (
                0..3u16,
                3..8u32,
                0..5u8,
                any::<[u8; 8]>(),
                prop::collection::vec(any::<u8>(), 0..60),
            ),
            1..40,
        ),
    ) {
        let content = |kind: u8, change: [u8; 8], bytes: Vec<u8>| {
            let mut content = match kind {
                0 => bytes,
                1 => [&LABELLED[..], &bytes].concat(),
                2 => {
                    let label = [0, change[0] & 15, change[1], change[2]];
                    labelled(u32::from_be_bytes(label), change[3])
                }
                3 => path_message(HERE),
                _ => path_message(NodeId(6)),
            };
            if let Some(at) = usize::from(change[4]).checked_rem(content.len()) {
                // Half of them as they are.
                content[at] ^= if change[5] > 127 { change[6] } else { 0 };
            }
            content
        };
        let sent = sent.into_iter().map(|(port, to, kind, change, bytes)| {
            (port, NodeId(to), content(kind, change, bytes))
        });
        let (_, counts) = run(sent.collect());
        // Nothing that was asked for once only is still there.
        prop_assert_eq!((counts["paths"], counts["reserved"]), (0, 0));
    }
}
