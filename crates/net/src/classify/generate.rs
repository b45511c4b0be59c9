//! Synthetic rule sets that resemble real ones, and packets for them.
//!
//! Three kinds, as ClassBench has them (Taylor and Turner, INFOCOM 2005): access lists name both ends and a
//! destination port; firewalls have many wildcards, ranges of ports and short prefixes; IP chains lie
//! between. The shares below are our own parameters, chosen to resemble these kinds and not fitted to data.

use super::rule::{Action, Filter, Header, Rule, Verdict};
use crate::lookup::Prefix;
use lastmeter_base::Stream;
use std::ops::RangeInclusive;

/// The composition of a set. Shares are of all rules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Rules that match any source; any destination.
    pub any: [f64; 2],
    /// Of the others, those with a single source; a single destination.
    pub host: [f64; 2],
    /// Rules with one source port; one destination port.
    pub port: [f64; 2],
    /// Rules with a range of source ports; of destination ports.
    pub range: [f64; 2],
    /// Rules for TCP; for UDP; the others match any protocol.
    pub protocol: [f64; 2],
    /// Number of networks that the addresses come from, per thousand rules.
    pub networks: u32,
    /// Number of ports besides the well-known ones.
    pub ports: u32,
}

/// Access list: specific at both ends.
pub const ACCESS_LIST: Kind = Kind {
    name: "acl",
    any: [0.02, 0.01],
    host: [0.4, 0.5],
    port: [0.0, 0.6],
    range: [0.0, 0.15],
    protocol: [0.8, 0.1],
    networks: 60,
    ports: 80,
};
/// Firewall: many wildcards.
pub const FIREWALL: Kind = Kind {
    name: "fw",
    any: [0.3, 0.25],
    host: [0.5, 0.4],
    port: [0.15, 0.35],
    range: [0.25, 0.25],
    protocol: [0.55, 0.25],
    networks: 30,
    ports: 40,
};
/// IP chain: between the two.
pub const IP_CHAIN: Kind = Kind {
    name: "ipc",
    any: [0.1, 0.12],
    host: [0.55, 0.5],
    port: [0.2, 0.4],
    range: [0.08, 0.1],
    protocol: [0.55, 0.25],
    networks: 50,
    ports: 60,
};

/// Ports of services (IANA), and ranges that filters use.
const PORTS: [u16; 20] = [
    20, 21, 22, 23, 25, 53, 80, 110, 123, 135, 139, 143, 161, 389, 443, 445, 993, 1521, 3306, 8080,
];
const RANGES: [RangeInclusive<u16>; 6] =
    [1024..=65535, 0..=1023, 137..=139, 6000..=6063, 5000..=5100, 20..=21];

/// `count` different rules, the first with the highest priority.
pub fn rules(kind: &Kind, count: u32, seed: u64) -> Vec<Rule> {
    let mut random = Stream::new(seed, kind.name);
    let networks = (u64::from(kind.networks) * u64::from(count)).div_ceil(1000).max(1);
    let networks: Vec<u32> = (0..networks).map(|_| random.bits() as u32).collect();
    let others: Vec<u16> = (0..kind.ports).map(|_| random.below(1 << 16) as u16).collect();
    let mut seen = std::collections::BTreeSet::new();
    let mut rules = Vec::new();
    // Small sets with little variety may have fewer different rules than requested.
    for _ in 0..count.saturating_mul(20) {
        if rules.len() == count as usize {
            break;
        }
        let filter = Filter {
            src: address(kind, 0, &networks, &mut random),
            dst: address(kind, 1, &networks, &mut random),
            src_ports: ports(kind, 0, &others, &mut random),
            dst_ports: ports(kind, 1, &others, &mut random),
            protocol: protocol(kind, &mut random),
            interface: None,
        };
        let ports = (*filter.src_ports.start(), *filter.src_ports.end());
        let key = (filter.src, filter.dst, ports, filter.dst_ports.clone().count());
        if seen.insert((key, *filter.dst_ports.start(), filter.protocol)) {
            let action = if random.chance(0.5) { Action::Permit } else { Action::Deny };
            let priority = rules.len() as u32;
            rules.push(Rule { filter, priority, verdict: Verdict::of(action) });
        }
    }
    rules
}

fn address(kind: &Kind, end: usize, networks: &[u32], random: &mut Stream) -> Prefix<u32> {
    if random.chance(kind.any[end]) {
        return Prefix::all();
    }
    let network = networks[random.below(networks.len() as u64) as usize];
    let len = if random.chance(kind.host[end]) { 32 } else { 16 + random.below(15) as u8 };
    // Hosts share their network's first 20 bits or so.
    let host = random.bits() as u32 >> (16 + random.below(5));
    Prefix::new(network & 0xffff_0000 | host, len).expect("at most 32")
}

fn ports(kind: &Kind, end: usize, others: &[u16], random: &mut Stream) -> RangeInclusive<u16> {
    let draw = random.unit();
    if draw < kind.port[end] {
        let among = if random.chance(0.7) { &PORTS[..] } else { others };
        let port = among[random.below(among.len() as u64) as usize];
        return port..=port;
    }
    match draw < kind.port[end] + kind.range[end] {
        true => RANGES[random.below(RANGES.len() as u64) as usize].clone(),
        false => 0..=u16::MAX,
    }
}

fn protocol(kind: &Kind, random: &mut Stream) -> Option<u8> {
    let draw = random.unit();
    let tcp = kind.protocol[0];
    match draw < tcp + kind.protocol[1] {
        true => Some(if draw < tcp { 6 } else { 17 }),
        false => None,
    }
}

/// Packets, each matching a random rule.
pub fn headers(rules: &[Rule], count: usize, seed: u64) -> Vec<Header> {
    let mut random = Stream::new(seed, "headers");
    let mut within = |rule: &Rule| {
        let mut host = |prefix: Prefix<u32>| {
            prefix.key() | random.bits() as u32 & (prefix.last() ^ prefix.key())
        };
        let (src, dst) = (host(rule.filter.src), host(rule.filter.dst));
        let mut port = |ports: &RangeInclusive<u16>| {
            let width = u64::from(ports.end() - ports.start()) + 1;
            ports.start() + random.below(width) as u16
        };
        let (src_port, dst_port) = (port(&rule.filter.src_ports), port(&rule.filter.dst_ports));
        let either = if random.chance(0.5) { 6 } else { 17 };
        let protocol = rule.filter.protocol.unwrap_or(either);
        let interface = rule.filter.interface.unwrap_or(0);
        Header { dst, src, dst_port, src_port, protocol, interface }
    };
    let mut pick = Stream::new(seed, "rules");
    let some = |_| rules.get(pick.below(rules.len().max(1) as u64) as usize).map(&mut within);
    (0..count).filter_map(some).collect()
}
