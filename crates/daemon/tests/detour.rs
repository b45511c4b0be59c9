//! Packets that need a plugin leave the fast path and come back, and each of them is accounted for: what the fast path
//! forwarded, what a plugin saw and denied, what was lost before reception and what went to the kernel add up to what
//! came in, by the interface's own count. Needs root, `ip`, `ping`, `ethtool`, `python3`.
//!
//! Rows: D-94, D-127.

use super::router::Net;
use super::{has, said};
use lastmeter_base::Stream;
use lastmeter_wire::internet::checksum::Sum;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

/// Destination ports of the flow whose packets a plugin may deny, and of one that it never sees.
const ACTIVE: u16 = 5001;
const PLAIN: u16 = 5002;
/// The plugin denies packets of this length or more.
const SHORT: usize = 1000;

type Packets = BTreeMap<u16, Vec<u8>>;

/// A UDP packet from a to b, with its number in the header's identification.
fn packet(number: u16, to_port: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x45, 0];
    bytes.extend((len as u16).to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.extend([0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 2]);
    let sum = Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(5000u16.to_be_bytes());
    bytes.extend(to_port.to_be_bytes());
    bytes.extend((len as u16 - 20).to_be_bytes());
    bytes.resize(len, 0);
    bytes
}

/// So many packets of both flows, mixed, and of random lengths.
fn packets(random: &mut Stream, active: u16, plain: u16) -> Packets {
    let mut left = [active, plain];
    let mut all = Packets::new();
    for number in 0..active + plain {
        let is_plain = random.below(u64::from(left[0] + left[1])) >= u64::from(left[0]);
        let at = usize::from(is_plain);
        left[at] -= 1;
        all.insert(number, packet(number, [ACTIVE, PLAIN][at], 28 + random.below(1400) as usize));
    }
    all
}

fn port_of(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[22], packet[23]])
}

/// What the router has counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Where packets arrive.
    received: i64,
    hinted: i64,
    fast: i64,
    overrun: i64,
    to_kernel: i64,
    /// By the plugin.
    seen: i64,
    denied: i64,
    dropped: i64,
    /// Where they leave.
    sent: i64,
    /// Frames that arrived there, as the kernel counts them.
    interface: i64,
}

impl Counts {
    fn of(net: &Net) -> Counts {
        let frames = || {
            let mut ip = Command::new("ip");
            ip.args(["-n", &net.names[1], "-j", "-s", "link", "show", "west"]);
            let told = said(&ip.output().unwrap(), 0);
            let told: Value = serde_json::from_str(&told).unwrap();
            told[0]["stats64"]["rx"]["packets"].as_i64().unwrap()
        };
        // Neighbours may ask for one another at any time: a count between two equal ones is of that moment.
        for _ in 0..50 {
            let before = frames();
            let shown = net.json("ports");
            if frames() != before {
                continue;
            }
            let count = |port: usize, name: &str| {
                shown["ports"][port]["counts"][name].as_i64().unwrap_or(0)
            };
            let plugin = |name: &str| shown["plugins"][0][name].as_i64().unwrap_or(0);
            return Counts {
                received: count(1, "received"),
                hinted: count(1, "hinted"),
                fast: count(1, "fast"),
                overrun: count(1, "overrun"),
                to_kernel: count(1, "to-kernel"),
                seen: plugin("seen"),
                denied: plugin("denied"),
                dropped: count(1, "dropped/plugin"),
                sent: count(0, "sent"),
                interface: before,
            };
        }
        panic!("frames arrive all the time");
    }
    fn since(self, before: Counts) -> Counts {
        Counts {
            received: self.received - before.received,
            hinted: self.hinted - before.hinted,
            fast: self.fast - before.fast,
            overrun: self.overrun - before.overrun,
            to_kernel: self.to_kernel - before.to_kernel,
            seen: self.seen - before.seen,
            denied: self.denied - before.denied,
            dropped: self.dropped - before.dropped,
            sent: self.sent - before.sent,
            interface: self.interface - before.interface,
        }
    }
    /// Of these packets, none is missing or counted twice.
    fn account_for(&self, sent: usize) {
        assert_eq!(self.fast + self.received + self.overrun, sent as i64, "{self:?}");
        let all = self.fast + self.received + self.overrun + self.to_kernel;
        assert_eq!(all, self.interface, "{self:?}");
        assert_eq!(self.dropped, self.denied, "{self:?}");
        // What b answers, as nobody expects these packets there, leaves by the other port.
        assert_eq!(self.received, self.sent + self.dropped, "{self:?}");
    }
}

/// Sends packets and accounts for all; those of the plugin's flow that are too long do not arrive.
fn pass(net: &Net, packets: &Packets, is_active: bool) -> Counts {
    let before = Counts::of(net);
    let arrives =
        |packet: &&Vec<u8>| !is_active || port_of(packet) != ACTIVE || packet.len() < SHORT;
    let wanted = packets.values().filter(arrives).count();
    let arrived = net.pass_once(packets, wanted);
    let counts = Counts::of(net).since(before);
    counts.account_for(packets.len());
    for (number, packet) in packets {
        assert_eq!(arrived.contains_key(number), arrives(&packet), "{number}: {}", packet.len());
    }
    let active = packets.values().filter(|packet| port_of(packet) == ACTIVE).count() as i64;
    let long = packets.len() - wanted;
    let (seen, denied) = if is_active { (active, long as i64) } else { (0, 0) };
    assert_eq!((counts.seen, counts.denied), (seen, denied), "{counts:?}");
    counts
}

/// A few times, until all packets of known flows are handled as such: a busy machine may notice them late.
fn pass_until(net: &Net, packets: &Packets, is_active: bool, holds: impl Fn(&Counts) -> bool) {
    for attempt in 1..=6 {
        let counts = pass(net, packets, is_active);
        println!("attempt {attempt}: {counts:?}");
        if holds(&counts) {
            return;
        }
    }
    panic!("known flows are not known");
}

fn port_processor(net: &Net, signal: &str) {
    let pattern = format!("router port-processor {}", net.file().display());
    said(&Command::new("pkill").args([signal, "-f", &pattern]).output().unwrap(), 0);
}

#[test]
fn packets_of_a_plugin_leave_the_fast_path_and_none_is_missing_d_127_d_94() {
    let Some(mut net) = Net::new("detour") else { return };
    if !has("ethtool") || !has("python3") {
        return;
    }
    // What is redirected to a veth pair arrives if its other end merges packets.
    for name in [&net.names[0], &net.names[2]] {
        let command = ["netns", "exec", name, "ethtool", "-K", "e0", "gro", "on"];
        said(&Command::new("ip").args(command).output().unwrap(), 0);
    }
    net.write(&format!("fast = true\n[plugins.short]\nexpression = '(< length {SHORT})'"));
    net.start();
    net.pings("-c 1 10.2.0.2");
    let mut random = Stream::new(1, "detour");
    let all = packets(&mut random, 300, 200);
    // Nobody asks for the plugin: both flows go on at once.
    pass_until(&net, &all, false, |counts| counts.fast == 500);
    // The plugin's flow leaves the fast path with the command: the plugin sees every packet after it.
    let filter = format!(
        "[{{ match = '@0.0.0.0/0 0.0.0.0/0 0 : 65535 {ACTIVE} : {ACTIVE} 0x11/0xFF', plugin = 'short' }}]"
    );
    said(&net.router("set", &["filters", &filter]), 0);
    // Its packets come with what is known of their flow, and the other flow's go on at once as before (D-94).
    pass_until(&net, &all, true, |counts| (counts.hinted, counts.fast) == (300, 200));
    // While the port processor stands still the other flow goes on; of the plugin's, what finds no room is counted.
    let before = Counts::of(&net);
    port_processor(&net, "-STOP");
    let plain = packets(&mut random, 0, 200);
    assert_eq!(net.pass_once(&plain, 200).len(), 200);
    let active = packets(&mut random, 3000, 0);
    net.send(&active);
    port_processor(&net, "-CONT");
    let began = Instant::now();
    let counts = loop {
        let counts = Counts::of(&net).since(before);
        let is_all = counts.fast + counts.received + counts.overrun >= 3200
            && counts.received == counts.sent + counts.dropped;
        if is_all || began.elapsed() > Duration::from_secs(20) {
            break counts;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    println!("stopped: {counts:?}");
    counts.account_for(3200);
    assert_eq!((counts.fast, counts.seen), (200, counts.received), "{counts:?}");
    assert!(counts.overrun > 0 && counts.received > 0, "{counts:?}");
    // And back.
    said(&net.router("rollback", &[]), 0);
    pass_until(&net, &all, false, |counts| counts.fast == 500);
    assert_eq!(net.json("ledger")["balance"]["packets_residual"], 0);
}

/// Packets of a known flow that arrive elsewhere are not of that flow: the other port may have filters of its own.
#[test]
fn a_known_flow_is_one_of_its_port_d_127() {
    let Some(mut net) = Net::new("spoof") else { return };
    if !has("ethtool") || !has("python3") {
        return;
    }
    for name in [&net.names[0], &net.names[2]] {
        let command = ["netns", "exec", name, "ethtool", "-K", "e0", "gro", "on"];
        said(&Command::new("ip").args(command).output().unwrap(), 0);
    }
    let udp = "match = '@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x11/0xFF'";
    net.write(&format!("fast = true\n[[filters]]\n{udp}\nfrom = 'east'\naction = 'deny'"));
    net.start();
    let _ = net.ping("-c 1 10.2.0.2");
    let mut random = Stream::new(2, "spoof");
    let all = packets(&mut random, 0, 400);
    let fast = |port: usize| -> u64 {
        net.json("ports")["ports"][port]["counts"]["fast"].as_u64().unwrap_or(0)
    };
    let began = Instant::now();
    while fast(1) < 100 {
        assert!(began.elapsed() < Duration::from_secs(30), "the flow is not known");
        let _ = net.pass_once(&all, 400);
    }
    let filtered = || {
        let shown = net.json("ports");
        shown["ports"][0]["counts"]["dropped/filtered"].as_u64().unwrap_or(0)
    };
    let before = filtered();
    net.send_from(2, "east", &all);
    let began = Instant::now();
    while filtered() - before < 400 {
        assert!(began.elapsed() < Duration::from_secs(10), "{} {}", filtered() - before, fast(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fast(0), 0);
}
