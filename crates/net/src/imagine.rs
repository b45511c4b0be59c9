//! The bytes of a modelled packet, which has a length and none: for captures and for plugins.
//!
//! ```text
//! IPv4 | UDP | sequence number | content tag
//! ```
//!
//! Destination 10.0.x.y is node number x.y, source 10.128.x.y is path number x.y, the source port is the flow, and the
//! payload begins with the sequence number in the flow and the content tag.

use lastmeter_base::Body;
use lastmeter_wire::internet::ipv4;
use std::net::Ipv4Addr;

/// The discard port: no reply.
const PORT: u16 = 9;
const PROTOCOL_UDP: u8 = 17;
const HEADERS_LEN: u64 = 28;

/// Appends the first bytes of a packet of this length: its headers (RFC 791, RFC 768) and 16 bytes of payload, or as
/// many of them as it has.
///
/// ```
/// use lastmeter_base::{Bytes, NodeId, Packet};
/// use lastmeter_net::imagine::imagine;
///
/// let mut packet = Packet::new(Bytes(1500));
/// packet.destination = NodeId(258);
/// let mut bytes = Vec::new();
/// imagine(&packet, &mut bytes);
/// assert_eq!(bytes.len(), 20 + 8 + 16);
/// assert_eq!(bytes[16..20], [10, 0, 1, 2]);
/// ```
pub fn imagine(packet: &Body, bytes: &mut Vec<u8>) {
    let address = |net: u8, number: u32| Ipv4Addr::new(10, net, (number >> 8) as u8, number as u8);
    let (src, dst) = (address(128, packet.path.0), address(0, packet.destination.0));
    let start = bytes.len();
    let len = packet.len.0.clamp(HEADERS_LEN, u16::MAX.into()) as u16;
    let udp_len = len - ipv4::HEADER_LEN as u16;
    let header = ipv4::Header::new(src, dst, PROTOCOL_UDP);
    header.emit(udp_len.into(), bytes).expect("the length was cut to what fits");
    // No checksum: RFC 768 allows it, and there is no payload to sum.
    for half in [packet.flow.0 as u16, PORT, udp_len, 0] {
        bytes.extend(half.to_be_bytes());
    }
    bytes.extend(packet.seq.to_be_bytes());
    bytes.extend(packet.tag.to_be_bytes());
    bytes.truncate(start + packet.len.0 as usize);
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{Bytes, FlowId, NodeId, Packet, PathId};
    use lastmeter_wire::internet::udp;

    #[test]
    fn a_synthetic_packet_has_the_right_length_and_flow() {
        let mut body = Packet::new(Bytes(1500));
        (body.destination, body.path) = (NodeId(258), PathId(3));
        (body.flow, body.seq) = (FlowId(7), 41);
        let mut bytes = Vec::new();
        imagine(&body, &mut bytes);
        let packet = ipv4::Packet::parse_start(&bytes).unwrap();
        assert_eq!(packet.header().dst, Ipv4Addr::new(10, 0, 1, 2));
        let datagram = udp::Datagram::parse_start(packet.payload).unwrap();
        assert_eq!((datagram.src, datagram.len), (7, 1480));
        assert_eq!(datagram.payload[..8], 41u64.to_be_bytes());
    }

    #[test]
    fn a_packet_too_short_for_headers_keeps_its_length() {
        let mut bytes = Vec::new();
        imagine(&Packet::new(Bytes(5)), &mut bytes);
        assert_eq!(bytes.len(), 5);
    }
}
