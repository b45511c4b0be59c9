//! Classes of service of real packets: their code points lead to the leaves of a link-sharing tree (A-149, A-150),
//! beside the kernel's own tree (HTB) on the same load.

use super::{go, in_time, is_installed, options, parse, shell};
use lastmeter::emulate::{Options, Report};
use lastmeter_linux::port::Offload;
use lastmeter_live::site::Kind;
use rustix::net::sockopt;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Tells the program of these tests to send the load.
pub(super) const SEND: &str = "LASTMETER_TEST_MARKED";

/// Code points of the four services: assured forwarding 1 to 4 (RFC 2597 §6).
const CODES: [u8; 4] = [10, 18, 26, 34];
/// Their shares of the link, by hand: A has half of it, divided 30 to 20; B the other half, 10 to 40.
const SHARES: [f64; 4] = [30.0, 20.0, 10.0, 40.0];
/// How long the load lasts, and what is counted of it.
const LASTS: Duration = Duration::from_millis(900);
const COUNTED: std::ops::Range<f64> = 0.2..0.8;
/// UDP payload, and packets of each service in a second: each could fill the link of 20 Mbit/s alone.
const PAYLOAD: usize = 958;
const RATE: f64 = 2600.0;

const TREE: &str = r#"
title = "A link shared by two agencies"
duration = "3 s"
[nodes]
alice = { host = { live = true, dscp = [10, 18, 26, 34] } }
bob = { host = { live = true } }
[[links]]
between = ["alice", "bob"]
rate = "20 Mbit/s"
delay = "1 ms"
queue = { h-pfq = { parents = [0, 0, 1, 1, 2, 2], weights = [50, 50, 30, 20, 10, 40], each = 50 } }
"#;

/// The same tree for the kernel's interface, in front of a link that is no bottleneck.
const HTB: &str = "set -e
class() { tc class add dev eth0 parent $1 classid $2 htb rate $3 ceil 20mbit quantum 1514; }
leaf() { class $1 $2 $3; tc qdisc add dev eth0 parent $2 pfifo limit 50; }
filter() { tc filter add dev eth0 parent 1: protocol ip u32 match ip dsfield $1 0xfc flowid $2; }
tc qdisc add dev eth0 root handle 1: htb default 22
class 1: 1:1 20mbit
class 1:1 1:10 10mbit; leaf 1:10 1:11 6mbit; leaf 1:10 1:12 4mbit
class 1:1 1:20 10mbit; leaf 1:20 1:21 2mbit; leaf 1:20 1:22 8mbit
filter 0x28 1:11; filter 0x48 1:12; filter 0x68 1:21; filter 0x88 1:22";

/// Sends the load: the helper in the first host.
pub(super) fn send() {
    let socket = |code: u8| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect("10.77.0.2:9").unwrap();
        socket.set_nonblocking(true).unwrap();
        sockopt::set_ip_tos(&socket, code << 2).unwrap();
        socket
    };
    let sockets = CODES.map(socket);
    let (start, mut sent) = (Instant::now(), 0u64);
    while start.elapsed() < LASTS {
        let due = (start.elapsed().as_secs_f64() * RATE) as u64;
        while sent < due {
            // A full queue refuses: that is the point.
            sockets.iter().for_each(|socket| drop(socket.send(&[0; PAYLOAD])));
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

fn sender(before: &str) -> lastmeter::emulate::Started {
    let program = std::env::current_exe().unwrap();
    shell("alice", &format!("{before}\n{SEND}=1 exec {}", program.display()), true)
}

/// The share of each service of what left for bob, in per cent.
fn shares(report: &Report) -> [f64; 4] {
    let arrivals = &report.measured.arrivals[0];
    let class = |seq: u64| arrivals.get(seq as usize).map(|arrived| usize::from(arrived.class));
    let left: Vec<(f64, usize)> = report.measured.departures[1]
        .iter()
        .filter_map(|one| Some((one.due.since_start().as_secs_f64(), class(one.seq)?)))
        .filter(|&(_, class)| class < CODES.len())
        .collect();
    let from = left.first().map_or(0.0, |&(at, _)| at);
    let mut counts = [0.0; 4];
    left.iter()
        .filter(|&&(at, _)| COUNTED.contains(&(at - from)))
        .for_each(|&(_, class)| counts[class] += 1.0);
    let all: f64 = counts.iter().sum();
    counts.map(|count| 100.0 * count / all.max(1.0))
}

fn near(shares: [f64; 4], points: f64) -> bool {
    shares.iter().zip(SHARES).all(|(got, share)| (got - share).abs() < points)
}

pub(super) fn packets_reach_every_leaf_of_a_tree_and_the_kernel_beside_shares_alike() {
    let kind = Kind::Tap(Offload::Checksum);
    let ours = go(&parse(TREE, &[]), &Options { programs: vec![sender("")], ..options(kind) });
    assert_eq!(ours.status, Some(0));
    let ours = shares(&ours);
    println!("  tree of fair queues: {ours:.1?} %, by hand {SHARES:?}");
    in_time!(near(ours, 1.5), "{ours:?}");
    if !is_installed("tc") {
        return;
    }
    let sets = ["links.0.rate=1 Gbit/s", "links.0.queue={ drop-tail = { packets = 1000 } }"];
    let theirs = Options { programs: vec![sender(HTB)], ..options(kind) };
    let theirs = go(&parse(TREE, &sets), &theirs);
    if theirs.status != Some(0) {
        return println!("SKIP: this kernel has no HTB");
    }
    let theirs = shares(&theirs);
    println!("  HTB of this kernel:  {theirs:.1?} %");
    in_time!(near(theirs, 5.0), "{theirs:?}");
}
