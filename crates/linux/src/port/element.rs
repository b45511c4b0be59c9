//! A port as an element: frames become packets with content, and packets frames.
//!
//! ```text
//! interface --> frames --> out 0 (one packet for each host that the frame is for)
//! interface <-- frames <-- in 0
//! ```
//!
//! The element works on layer 2: it looks up the host with a frame's destination address, learned from
//! the frames that the host sent; broadcast frames, and frames for unknown addresses, go to every other
//! host, as in a bridge (IEEE 802.1D-2004 §7.8). So ARP crosses the modelled network like any other
//! frame.
//!
//! A packet's length is that of its frame: with the Ethernet header, without preamble, check sequence
//! and gap. Its flow is a hash of addresses and ports, so that fair queues see flows; its ECN bits are
//! those of the frame, and a queue's mark is written into it (RFC 3168 §5, checksum by RFC 1624). Its class is
//! decided by its differentiated-services code point (RFC 2474 §3), so that packets reach every leaf of a
//! link-sharing tree (A-149, A-150).
//!
//! The packet's `tag` is the time in picoseconds for which the frame had waited unseen.

use super::line::{Outgoing, Shared};
use super::offload::{folded, sum};
use lastmeter_base::{Bytes, Duration, Ecn, FlowId, NodeId, Packet, PathId, Time};
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most addresses learned; frames to further ones are flooded.
const ADDRESSES_MAX: usize = 4096;
/// Number of distinct flow identifiers.
const FLOWS: u32 = 1024;

/// The learned addresses of hosts.
#[derive(Debug, Default)]
pub struct Hosts {
    of_address: BTreeMap<[u8; 6], NodeId>,
}

impl Hosts {
    fn learn(&mut self, address: [u8; 6], host: NodeId) {
        let is_single = address[0] & 1 == 0;
        let room = self.of_address.len() < ADDRESSES_MAX || self.of_address.contains_key(&address);
        if is_single && room && self.of_address.get(&address) != Some(&host) {
            self.of_address.insert(address, host);
        }
    }
}

/// Another host, and the path of the ledger that leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The host's node.
    pub node: NodeId,
    /// The ledger's path from here to there.
    pub path: PathId,
}

/// The class of a packet, by its code point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes([u8; 64]);

impl Classes {
    /// Class n has the n-th code point; packets with any other have the class after the last. Without code points, all
    /// have class 0.
    pub fn new(codes: &[u8]) -> Classes {
        let mut of_code = [codes.len() as u8; 64];
        for (class, &code) in codes.iter().enumerate().rev() {
            of_code[usize::from(code) & 63] = class as u8;
        }
        Classes(of_code)
    }
    fn of(&self, code: u8) -> u8 {
        self.0[usize::from(code) & 63]
    }
}

/// A frame that arrived, kept for a twin run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// When the graph saw it.
    pub at: Time,
    /// Its only destination, as an index in the list of peers; `None` for all of them.
    pub peer: Option<u16>,
    /// Its length.
    pub len: u32,
    /// Its flow.
    pub flow: u32,
    /// Its ECN bits.
    pub ecn: Ecn,
    /// Its class.
    pub class: u8,
    /// What it carried.
    pub hash: u64,
}

/// Most arrivals kept for a twin run.
const ARRIVALS_MAX: usize = 4 << 20;

/// What arrived, kept for a twin run.
pub type Arrivals = Arc<Mutex<Vec<Arrived>>>;

/// The element of one host's port.
pub struct PortElement {
    line: Shared,
    me: NodeId,
    peers: Vec<Peer>,
    hosts: Arc<Mutex<Hosts>>,
    classes: Classes,
    keep: Option<Arrivals>,
    seq: u64,
}

impl PortElement {
    /// The element of host `me`, which can reach `peers`; `hosts` is shared by all of a run, and
    /// `keep` is where arrivals are kept for a twin.
    pub fn new(
        line: Shared,
        me: NodeId,
        peers: Vec<Peer>,
        hosts: Arc<Mutex<Hosts>>,
        classes: Classes,
        keep: Option<Arrivals>,
    ) -> PortElement {
        PortElement { line, me, peers, hosts, classes, keep, seq: 0 }
    }

    fn take(&mut self, cx: &mut Context<'_>) {
        let line = Arc::clone(&self.line);
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        if !line.ready() {
            return;
        }
        line.receive(&mut |arrival| {
            let mut first = None;
            let seen = Seen::of(arrival.parts);
            let class = self.classes.of(seen.code);
            let peer = self.peer(&seen);
            let peers = match peer {
                Some(peer) => &self.peers[usize::from(peer)..=usize::from(peer)],
                None => &self.peers[..],
            };
            for &Peer { node, path } in peers {
                let mut packet = cx.make(path, Bytes(arrival.len() as u64));
                arrival.parts.iter().for_each(|part| packet.content.extend_from_slice(part));
                packet.destination = node;
                packet.flow = seen.flow;
                packet.ecn = seen.ecn;
                packet.seq = self.seq;
                packet.tag = arrival.age.map_or(0, Duration::as_ps);
                packet.hops = 0;
                packet.class = class;
                packet.deadline = cx.now();
                first.get_or_insert_with(|| self.keep.as_ref().map(|_| hash(&packet.content)));
                packet.entered = cx.now();
                cx.send(PortId(0), packet);
            }
            if let (Some(keep), Some(Some(hash))) = (&self.keep, first) {
                let mut keep = keep.lock().unwrap_or_else(PoisonError::into_inner);
                if keep.len() < ARRIVALS_MAX {
                    let (at, len) = (cx.now(), arrival.len() as u32);
                    let Seen { flow, ecn, .. } = seen;
                    keep.push(Arrived { at, peer, len, flow: flow.0, ecn, class, hash });
                }
            }
            self.seq += 1;
        });
    }

    /// Where a frame goes: to one peer, or to all.
    fn peer(&self, seen: &Seen) -> Option<u16> {
        if let [_] = self.peers.as_slice() {
            return Some(0);
        }
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.learn(seen.src, self.me);
        let node = *hosts.of_address.get(&seen.dst)?;
        self.peers.iter().position(|peer| peer.node == node).map(|place| place as u16)
    }
}

impl Element for PortElement {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        if packet.ecn == Ecn::Ce {
            mark(&mut packet.content);
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = line.departures.is_some();
        let outgoing = Outgoing {
            due: cx.now(),
            age: Duration::from_ps(packet.tag),
            from: (packet.path.0, packet.seq),
            hash: if kept { hash(&packet.content) } else { 0 },
        };
        line.put(&mut packet.content, outgoing);
        drop(line);
        cx.deliver(packet);
    }

    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        if timer == TimerId::INPUT {
            self.take(cx);
        }
    }

    fn takes_input(&self) -> bool {
        true
    }

    fn report(&self, out: &mut Report) {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.counts.each().iter().for_each(|&(name, value)| out.count(name, value));
    }
}

/// What is parsed from a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) dst: [u8; 6],
    pub(crate) src: [u8; 6],
    pub(crate) flow: FlowId,
    pub(crate) ecn: Ecn,
    /// Differentiated services.
    pub(crate) code: u8,
}

impl Seen {
    /// Parses as much of a frame as there is; the rest counts as unknown.
    pub(crate) fn of(parts: [&[u8]; 3]) -> Seen {
        // A VLAN tag that the kernel stripped is in the second part; IP follows in the third.
        let [first, tag, last] = parts;
        let address = |at: usize| -> [u8; 6] {
            first.get(at..at + 6).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
        };
        let rest = if tag.is_empty() { first.get(12..) } else { Some(last) }.unwrap_or_default();
        let (flow, service) = internet(rest).unwrap_or_default();
        let ecn = match service & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        };
        Seen { dst: address(0), src: address(6), flow, ecn, code: service >> 2 }
    }
}

/// Flow, and type of service or traffic class, starting from the EtherType.
fn internet(bytes: &[u8]) -> Option<(FlowId, u8)> {
    let (kind, ip) = bytes.split_first_chunk::<2>()?;
    let (service, addresses, protocol, ports) = match u16::from_be_bytes(*kind) {
        0x0800 => {
            let header = usize::from(ip.first()? & 0xf) * 4;
            // Only the first fragment has ports; ignoring them keeps all fragments in one flow.
            let is_whole = ip.get(6)? & 0x3f == 0 && *ip.get(7)? == 0;
            let ports = if is_whole { ip.get(header..header + 4) } else { None };
            (*ip.get(1)?, ip.get(12..20)?, *ip.get(9)?, ports)
        }
        0x86dd => {
            let class = ip.first()? << 4 | ip.get(1)? >> 4;
            (class, ip.get(8..40)?, *ip.get(6)?, ip.get(40..44))
        }
        _ => return None,
    };
    let has_ports = matches!(protocol, 6 | 17 | 132);
    let ends = mix(u64::from(protocol), addresses);
    let mixed = ports.filter(|_| has_ports).map_or(ends, |ports| mix(ends, ports));
    Some((FlowId((mixed >> 32) as u32 % FLOWS), service))
}

/// Writes "congestion experienced" into an IPv4 header behind a plain Ethernet header.
fn mark(frame: &mut [u8]) {
    const TYPE_AND_SERVICE: usize = 14;
    const CHECKSUM: usize = 24;
    if frame.get(12..14) != Some(&[0x08, 0x00]) || frame.len() < 34 || frame[15] & 3 == 3 {
        return;
    }
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let before = word(frame, TYPE_AND_SERVICE);
    frame[15] |= 3;
    let after = word(frame, TYPE_AND_SERVICE);
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let total = u64::from(!word(frame, CHECKSUM)) + u64::from(!before) + u64::from(after);
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&folded(total).to_be_bytes());
    debug_assert!(frame.len() >= 34 && sum(&frame[14..16]) > 0);
}

/// A hash of a frame's content.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    mix(bytes.len() as u64, bytes)
}

/// Hashes bytes, eight at a time; not cryptographic.
fn mix(start: u64, bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |state: u64, word: u64| {
        let state = (state ^ word).wrapping_mul(ODD);
        state ^ (state >> 29)
    };
    let mut chunks = bytes.chunks_exact(8);
    let mut state = start.wrapping_add(1).wrapping_mul(ODD);
    for chunk in &mut chunks {
        state = step(state, u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    step(state, u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(service: u8, port: u8) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, service, 0, 48, 0, 7, 0x40, 0, 64, 17, 0, 0]);
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, port, 0, 53, 0, 8, 0, 0]);
        let checksum = folded(sum(&bytes[14..34]));
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    #[test]
    fn a_mark_is_written_with_its_checksum() {
        let mut bytes = frame(2, 9);
        assert_eq!(Seen::of([&bytes, &[], &[]]).ecn, Ecn::Ect0);
        mark(&mut bytes);
        assert_eq!(Seen::of([&bytes, &[], &[]]).ecn, Ecn::Ce);
        assert_eq!(folded(sum(&bytes[14..34])), 0);
    }

    #[test]
    fn a_150_a_code_point_decides_the_class() {
        let of = |classes: &Classes, code: u8| {
            classes.of(Seen::of([&frame(code << 2 | 1, 9), &[], &[]]).code)
        };
        let classes = Classes::new(&[46, 10, 0]);
        assert_eq!([46, 10, 0, 8].map(|code| of(&classes, code)), [0, 1, 2, 3]);
        assert_eq!([46, 0].map(|code| of(&Classes::new(&[]), code)), [0, 0]);
        // ICMP, which has no ports.
        let mut ping = frame(46 << 2, 9);
        ping[23] = 1;
        assert_eq!(Seen::of([&ping, &[], &[]]).code, 46);
        // IPv6, with traffic class 0xb8: expedited forwarding.
        let mut ipv6 = vec![2; 12];
        ipv6.extend([0x86, 0xdd, 0x6b, 0x80, 0, 0, 0, 8, 17, 64]);
        ipv6.extend([1; 40]);
        assert_eq!(Seen::of([&ipv6, &[], &[]]).code, 46);
    }

    #[test]
    fn flows_differ_by_ports_but_not_by_a_vlan_tag() {
        let (a, b) = (frame(0, 1), frame(0, 2));
        let flow = |parts| Seen::of(parts).flow;
        assert_ne!(flow([&a, &[], &[]]), flow([&b, &[], &[]]));
        assert_eq!(flow([&a, &[], &[]]), flow([&a[..12], &[0x81, 0, 0, 5], &a[12..]]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0usize..3,
        ) {
            if bytes.len() > 14 {
                bytes[12..14].copy_from_slice([[8, 0], [0x86, 0xdd], [0, 0]][kind].as_slice());
            }
            let _ = Seen::of([&bytes, &[], &[]]);
            mark(&mut bytes);
        }
    }
}
