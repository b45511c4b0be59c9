//! Packets that a router generates: ICMP errors (RFC 792, RFC 1812 §4.3; RFC 4443), and the
//! fragments of a packet that is too long for the next link (RFC 791 §2.3).

use super::parse::{Addresses, Seen, v4, v6};
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::internet::icmp::{self, Message};
use lastmeter_wire::internet::{ipv4, ipv6, protocol};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What an error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// TTL or hop limit exceeded.
    Expired,
    /// There is no route.
    NoRoute,
    /// A route or filter prohibits it.
    Prohibited,
    /// The neighbour does not answer.
    NoNeighbour,
    /// Longer than this MTU.
    TooBig(u16),
    /// A source route is refused.
    SourceRoute,
}

/// The addresses of the interface at which the packet arrived; errors come from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Its IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Its IPv6 address of global scope.
    pub v6: Option<Ipv6Addr>,
}

/// The longest error about an IPv4 packet (RFC 1812 §4.3.2.3).
const ERROR_LEN_MAX: usize = 576;
/// The longest error about an IPv6 packet (RFC 4443 §2.4 c).
const ERROR_LEN_MAX_V6: usize = 1280;
/// Hops of packets that the router makes.
const HOPS: u8 = 64;

/// An error about `packet`, as an IP packet; `None` if the port has no address to send it from.
pub fn error(packet: &[u8], seen: &Seen, fault: Fault, own: Own) -> Option<Vec<u8>> {
    match seen.addresses {
        Addresses::V4(src, _) => error_v4(packet, seen, fault, own.v4?, v4(src)),
        Addresses::V6(src, _) => error_v6(packet, seen, fault, own.v6?, v6(src)),
    }
}

fn error_v4(
    packet: &[u8],
    seen: &Seen,
    fault: Fault,
    from: Ipv4Addr,
    to: Ipv4Addr,
) -> Option<Vec<u8>> {
    let (kind, code, rest) = match fault {
        Fault::Expired => (Message::TIME_EXCEEDED, 0, [0; 4]),
        Fault::NoRoute => (Message::UNREACHABLE, 0, [0; 4]),
        Fault::NoNeighbour => (Message::UNREACHABLE, 1, [0; 4]),
        Fault::Prohibited => (Message::UNREACHABLE, 13, [0; 4]),
        Fault::SourceRoute => (Message::UNREACHABLE, 5, [0; 4]),
        Fault::TooBig(mtu) => {
            let [high, low] = mtu.to_be_bytes();
            (Message::UNREACHABLE, 4, [0, 0, high, low])
        }
    };
    let most = ERROR_LEN_MAX - ipv4::HEADER_LEN - icmp::HEADER_LEN;
    let data = &packet[..packet.len().min(seen.len.into()).min(most)];
    let body = Message { kind, code, rest, data }.emit(Sum::ZERO);
    // Network control (RFC 1812 §4.3.2.5), as Linux sends it.
    const CONTROL: u8 = 0xc0;
    let header = ipv4::Header {
        dont_fragment: false,
        traffic_class: CONTROL,
        time_to_live: HOPS,
        ..ipv4::Header::new(from, to, protocol::ICMP)
    };
    let mut bytes = Vec::with_capacity(ERROR_LEN_MAX);
    header.emit(body.len(), &mut bytes).ok()?;
    bytes.extend(body);
    Some(bytes)
}

fn error_v6(
    packet: &[u8],
    seen: &Seen,
    fault: Fault,
    from: Ipv6Addr,
    to: Ipv6Addr,
) -> Option<Vec<u8>> {
    const UNREACHABLE: u8 = 1;
    let (kind, code, rest) = match fault {
        Fault::Expired => (3, 0, [0; 4]),
        Fault::NoRoute => (UNREACHABLE, 0, [0; 4]),
        Fault::Prohibited => (UNREACHABLE, 1, [0; 4]),
        Fault::NoNeighbour => (UNREACHABLE, 3, [0; 4]),
        Fault::TooBig(mtu) => (2, 0, u32::from(mtu).to_be_bytes()),
        Fault::SourceRoute => (4, 0, [0; 4]),
    };
    let most = ERROR_LEN_MAX_V6 - ipv6::HEADER_LEN - icmp::HEADER_LEN;
    let data = &packet[..packet.len().min(seen.len.into()).min(most)];
    let len = icmp::HEADER_LEN + data.len();
    let pseudo = Sum::ipv6(from, to, protocol::ICMPV6, len as u32);
    let body = Message { kind, code, rest, data }.emit(pseudo);
    let header = ipv6::Header { hop_limit: HOPS, ..ipv6::Header::new(from, to, protocol::ICMPV6) };
    let mut bytes = header.emit(body.len()).ok()?.to_vec();
    bytes.extend(body);
    Some(bytes)
}

/// The parts of an IPv4 packet, each at most `mtu` bytes. Options are copied to all parts where they ask for it, and
/// replaced by padding where not (RFC 791 §3.1), so that headers are equally long.
pub fn fragments(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let header_len = usize::from(packet[0] & 15) * 4;
    let Some(step) = mtu.checked_sub(header_len).map(|room| room / 8 * 8).filter(|step| *step > 0)
    else {
        return Vec::new();
    };
    let field = u16::from_be_bytes([packet[6], packet[7]]);
    let (offset, more) = (field & 0x1fff, field & 0x2000 != 0);
    let payload = &packet[header_len..];
    let mut parts = Vec::new();
    for (number, part) in payload.chunks(step).enumerate() {
        let mut bytes = packet[..header_len].to_vec();
        if number > 0 {
            only_copied(&mut bytes[20..]);
        }
        let last = (number + 1) * step >= payload.len();
        let at = offset + (number * step / 8) as u16;
        let flags = if last && !more { 0 } else { 0x2000 };
        bytes[2..4].copy_from_slice(&((header_len + part.len()) as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&(at & 0x1fff | flags).to_be_bytes());
        bytes[10..12].fill(0);
        let sum = Sum::of(&bytes).checksum();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(part);
        parts.push(bytes);
    }
    parts
}

/// Replaces options that are for the first part alone by padding.
fn only_copied(options: &mut [u8]) {
    let mut at = 0;
    while at < options.len() {
        let kind = options[at];
        let len = match kind {
            0 => return,
            1 => 1,
            _ => usize::from(options.get(at + 1).copied().unwrap_or(0)).max(2),
        };
        let end = (at + len).min(options.len());
        if kind & 0x80 == 0 {
            options[at..end].fill(1);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_processor::parse;

    fn packet(len: usize, may_fragment: bool) -> Vec<u8> {
        let header = ipv4::Header {
            dont_fragment: !may_fragment,
            identification: 7,
            ..ipv4::Header::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), protocol::UDP)
        };
        let mut bytes = Vec::new();
        header.emit(len, &mut bytes).expect("fits");
        bytes.extend((0..len).map(|at| at as u8));
        bytes
    }

    fn seen(packet: &[u8]) -> Seen {
        let mut frame = vec![0; 12];
        frame.extend([8, 0]);
        frame.extend(packet);
        parse::parse(&frame).expect("a packet")
    }

    #[test]
    fn an_error_repeats_the_packet_and_says_the_mtu() {
        let packet = packet(1400, false);
        let own = Own { v4: Some([10, 0, 0, 254].into()), v6: None };
        let bytes = error(&packet, &seen(&packet), Fault::TooBig(1280), own).expect("an address");
        assert_eq!(bytes.len(), ERROR_LEN_MAX);
        let ip = ipv4::Packet::parse(&bytes).expect("a packet");
        assert_eq!((ip.src(), ip.dst()), ([10, 0, 0, 254].into(), [10, 0, 0, 1].into()));
        let message = Message::parse(ip.payload, Sum::ZERO).expect("a message");
        assert_eq!((message.kind, message.code, message.rest), (3, 4, [0, 0, 5, 0]));
        assert_eq!(message.data, &packet[..message.data.len()]);
        let nowhere = error(&packet, &seen(&packet), Fault::Expired, Own::default());
        assert_eq!(nowhere, None, "a port without address is silent");
    }

    #[test]
    fn parts_put_together_are_the_packet() {
        for (len, mtu) in [(1480, 576), (1000, 28), (8, 576), (65_000, 1500)] {
            let packet = packet(len, true);
            let mut whole = vec![0; len];
            let parts = fragments(&packet, mtu);
            for (number, part) in parts.iter().enumerate() {
                assert!(part.len() <= mtu);
                let part = ipv4::Packet::parse(part).expect("a packet");
                let header = part.header();
                assert_eq!(header.more_fragments, number + 1 < parts.len());
                assert_eq!(header.identification, 7);
                let at = usize::from(header.fragment_offset) * 8;
                whole[at..at + part.payload.len()].copy_from_slice(part.payload);
            }
            assert_eq!(whole, packet[20..], "{len} bytes over {mtu}");
        }
        assert!(fragments(&packet(100, true), 20).is_empty(), "no room for data");
    }
}
