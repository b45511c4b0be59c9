//! The five calls on sockets of this machine's loopback interface. What is checked does not depend on time.

use super::plan::content;
use super::*;
use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_transport::channel::admission::Method;
use lastmeter_transport::channel::contract::{Contract, Link};
use lastmeter_transport::channel::node::Stream;
use lastmeter_transport::channel::policing::Excess;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// For what comes in milliseconds on an idle machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

const LINK: Link = Link {
    rate: Rate::from_mbit(50),
    per_packet: Duration::ZERO,
    packet_max: Bytes(1250),
    outstanding: 2,
    propagation: Duration::from_us(100),
    horizon: Duration::ZERO,
    skew: Duration::ZERO,
};
const CONTRACT: Contract = Contract {
    message_max: Bytes(5000),
    interval_min: Duration::from_ms(20),
    burst_max: 2,
    packet_max: Bytes(1250),
    deadline: Duration::from_ms(40),
};

/// Three hosts in a line, with this key.
fn line(key: Option<datagram::Key>) -> Vec<Host> {
    // Ports that were free a moment ago.
    let sockets: Vec<UdpSocket> =
        (0..3).map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    let addresses: Vec<SocketAddr> =
        sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    drop(sockets);
    let epoch = Epoch::after(std::time::Duration::ZERO);
    let host = |node: u32| {
        let near = [node.checked_sub(1), (node < 2).then_some(node + 1)].into_iter().flatten();
        let links = near.map(|to| (to, addresses[to as usize], LINK, Method::DOrder)).collect();
        let routes = (0..3).filter(|&to| to != node);
        let routes = routes.map(|to| (to, if to > node { node + 1 } else { node - 1 })).collect();
        let settings = Settings {
            node,
            listen: addresses[node as usize],
            links,
            routes,
            room: Room { channel: 32, data: 64 },
            slots: 200,
            key,
            epoch,
        };
        Host::start(settings).unwrap()
    };
    (0..3).map(host).collect()
}

/// Waits until nothing is reserved anywhere.
fn free(hosts: &[Host]) -> bool {
    let until = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < until {
        if hosts.iter().all(|host| host.reserved() == (0, 200)) {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    false
}

/// E-15, E-18, E-19, E-21: established over a relay, sent in packets, put together again, and released everywhere.
#[test]
fn e_15_five_calls_over_sockets() {
    for key in [None, Some([3; 32])] {
        let hosts = line(key);
        let inbox = hosts[2].init(8).unwrap();
        let channel =
            hosts[0].create(CONTRACT, vec![0, 1, 2], inbox.address(), Excess::Drop).unwrap();
        assert!(hosts.iter().all(|host| host.reserved().0 == 1), "each node has admitted it");
        for (message, len) in [(0, 5000), (1, 3000), (2, 1)] {
            assert_eq!(channel.send(content(message, len)), Ok(message));
            let found = inbox.receive(PATIENCE).unwrap();
            assert_eq!(found.bytes, content(message, len));
            assert_eq!((found.stream, found.message), (Stream::Channel(channel.id()), message));
            assert_eq!(found.due, found.made + CONTRACT.deadline);
            assert!(found.at > found.made, "it takes time");
            assert!(channel.left(message, PATIENCE));
        }
        assert_eq!(channel.send(content(3, 5001)), Err(Unsent::TooLong));
        drop(channel);
        assert!(free(&hosts), "rtc_close frees all");
    }
}

/// E-19: a route with a link that cannot guarantee it keeps nothing of it.
#[test]
fn e_19_what_is_refused_leaves_nothing_reserved() {
    let hosts = line(None);
    let inbox = hosts[2].init(8).unwrap();
    // Each link takes 1.3 ms at least: the first one admits it, the second one does not.
    let tight = Contract { deadline: Duration::from_ms(2), ..CONTRACT };
    let refused = hosts[0].create(tight, vec![0, 1, 2], inbox.address(), Excess::Drop);
    assert_eq!(refused.err(), Some(Refusal::Resources));
    assert!(free(&hosts));
    let nowhere = hosts[0].create(CONTRACT, vec![0, 2, 2], inbox.address(), Excess::Drop);
    assert!(matches!(nowhere.err(), Some(Refusal::Fault(_))));
}

/// E-16, E-17, E-26: of a source far beyond its contract the excess is refused at once, waits, or is sent with a later
/// logical arrival.
#[test]
fn e_26_excess_is_dropped_or_waits_at_its_source() {
    let hosts = line(None);
    let inbox = hosts[2].init(100).unwrap();
    let route = || vec![0, 1, 2];
    let channel = hosts[0].create(CONTRACT, route(), inbox.address(), Excess::Drop).unwrap();
    let sent: Vec<_> = (0..60).map(|message| channel.send(content(message, 5000))).collect();
    assert!(sent.contains(&Err(Unsent::NotPromised)));
    let accepted = sent.iter().filter(|sent| sent.is_ok()).count();
    assert!(accepted >= 8, "32 slots, four packets each: {accepted}");
    let first = (0..8).map(|_| inbox.receive(PATIENCE).unwrap()).collect::<Vec<_>>();
    for (one, next) in first.iter().zip(&first[1..]) {
        assert!(next.made >= one.made + CONTRACT.interval_min, "logical times keep the rate");
    }
    drop(channel);
    while inbox.receive(std::time::Duration::from_millis(100)).is_some() {}
    let patient = hosts[0].create(CONTRACT, route(), inbox.address(), Excess::Delay).unwrap();
    let sent: Vec<_> = (0..12).map(|message| patient.send(content(message, 5000))).collect();
    assert_eq!(sent, (0..12).map(Ok).collect::<Vec<_>>(), "all, after a while");
    for message in 0..12 {
        assert_eq!(inbox.receive(PATIENCE).unwrap().bytes, content(message, 5000));
    }
    drop(patient);
    let relaxed = hosts[0].create(CONTRACT, route(), inbox.address(), Excess::Relax).unwrap();
    let sent: Vec<_> = (0..12).map(|message| relaxed.send(content(message, 5000))).collect();
    assert_eq!(sent, (0..12).map(Ok).collect::<Vec<_>>(), "beyond 32 slots, too");
    let all: Vec<_> = (0..12).map(|_| inbox.receive(PATIENCE).unwrap()).collect();
    assert!(all[11].made >= all[0].made + CONTRACT.interval_min * 11, "it pays with its own time");
}

/// E-34: best effort beside channels, in a queue of its own.
#[test]
fn best_effort_is_delivered_or_dropped_where_there_is_no_room() {
    let hosts = line(None);
    let inbox = hosts[2].init(1000).unwrap();
    for message in 0..200 {
        hosts[0].send_data(inbox.address(), &content(message, 2000), 1250).unwrap();
    }
    let mut received = 0;
    while let Some(found) = inbox.receive(std::time::Duration::from_millis(500)) {
        assert_eq!((found.bytes, found.due), (content(found.message, 2000), Time::MAX));
        assert_eq!(found.stream, Stream::Data(0));
        received += 1;
    }
    let dropped = hosts[0].drops().data + hosts[1].drops().data;
    assert!(received > 0 && received + dropped >= 200, "{received}, {dropped} packets");
    let nowhere = Address { node: 9, queue: 0 };
    assert_eq!(hosts[0].send_data(nowhere, &[1], 9), Err(Unsent::NoLink));
}

/// Strangers, other keys and noise: counted, and nothing else happens.
#[test]
fn datagrams_of_strangers_are_counted_and_ignored() {
    let hosts = line(Some([3; 32]));
    let inbox = hosts[2].init(8).unwrap();
    let channel = hosts[0].create(CONTRACT, vec![0, 1, 2], inbox.address(), Excess::Drop).unwrap();
    let to = hosts[1].address();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let message = lastmeter_transport::channel::message::Message::Release;
    let envelope = lastmeter_transport::channel::message::Envelope {
        from: 0,
        to: 1,
        id: channel.id(),
        message,
    };
    let forged = datagram::Datagram::Control(envelope);
    for bytes in [forged.emit(Some(&[4; 32])), forged.emit(Some(&[3; 32])), vec![1, 2, 3]] {
        socket.send_to(&bytes, to).unwrap();
    }
    let until = std::time::Instant::now() + PATIENCE;
    let wanted = ["length", "stranger", "tag"];
    while std::time::Instant::now() < until
        && !wanted.iter().all(|word| hosts[1].seen().refused.contains_key(*word))
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let refused = hosts[1].seen().refused;
    assert_eq!(refused.into_iter().collect::<Vec<_>>(), wanted.map(|word| (word.to_owned(), 1)));
    assert_eq!(channel.send(content(0, 100)), Ok(0));
    assert!(inbox.receive(PATIENCE).is_some(), "the channel goes on");
}
