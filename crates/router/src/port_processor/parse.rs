//! What a port processor needs to know of a packet, and whether it may be forwarded at all (RFC 1812 §5.2.2, §5.3.7;
//! RFC 8200 §3; RFC 4291 §2).

use super::count::Reason;
use lastmeter_base::Ecn;
use lastmeter_wire::internet::{icmp, protocol};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes before the IP header.
pub const ETHERNET: usize = 14;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// The addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Source and destination.
    V4(u32, u32),
    /// Source and destination.
    V6(u128, u128),
}

/// A packet that may be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where from and where to.
    pub addresses: Addresses,
    /// Source and destination port of TCP and UDP; 0 where there are none, as in later fragments.
    pub ports: (u16, u16),
    /// What is in it.
    pub protocol: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Hops that are left, this one included.
    pub hops: u8,
    /// Bytes of IP.
    pub len: u16,
    /// Whether it is a fragment, first or later.
    pub is_fragment: bool,
    /// Whether it may be cut.
    pub may_fragment: bool,
    /// Whether it has IPv4 options.
    pub has_options: bool,
    /// Whether its options ask for a route of the source's choice.
    pub source_routed: bool,
}

impl Seen {
    /// Tells flows apart: the same for all packets of a flow, and for all fragments of a packet.
    #[inline]
    pub fn hash(&self) -> u64 {
        let mix = |a: u64, b: u64| {
            let product =
                u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
            (product >> 64) as u64 ^ product as u64
        };
        let rest =
            u64::from(self.ports.0) << 32 | u64::from(self.ports.1) << 8 | u64::from(self.protocol);
        let addresses = match self.addresses {
            Addresses::V4(src, dst) => u64::from(src) << 32 | u64::from(dst),
            Addresses::V6(src, dst) => {
                mix((src >> 64) as u64 ^ src as u64, (dst >> 64) as u64 ^ dst as u64)
            }
        };
        mix(addresses, if self.is_fragment { u64::from(self.protocol) } else { rest })
    }
    /// Whether both are of the same flow, told by its addresses, ports and protocol.
    pub fn is_same_flow(&self, other: &Seen) -> bool {
        let flow = |seen: &Seen| {
            let Seen { addresses, ports, protocol, is_fragment, has_options, .. } = *seen;
            (addresses, ports, protocol, is_fragment, has_options)
        };
        flow(self) == flow(other)
    }
    /// Its ECN field.
    pub fn ecn(&self) -> Ecn {
        match self.traffic_class & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// Reads a frame with an IPv4 or IPv6 packet.
///
/// # Errors
/// Why it may not be forwarded.
#[inline]
pub fn parse(frame: &[u8]) -> Result<Seen, Reason> {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => parse_v4(&frame[ETHERNET..]),
        Some([0x86, 0xdd]) => parse_v6(&frame[ETHERNET..]),
        _ => Err(Reason::NotIp),
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) << 16 | u32::from(half(bytes, at + 2))
}

/// Ports of the first fragment of TCP and UDP.
#[inline]
fn ports(kind: u8, payload: &[u8]) -> (u16, u16) {
    let has_ports = kind == protocol::TCP || kind == protocol::UDP;
    match payload.first_chunk::<4>() {
        Some([a, b, c, d]) if has_ports => {
            (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
        }
        _ => (0, 0),
    }
}

#[inline]
fn parse_v4(packet: &[u8]) -> Result<Seen, Reason> {
    let Some(fixed) = packet.first_chunk::<20>() else { return Err(Reason::Truncated) };
    if fixed[0] >> 4 != 4 {
        return Err(Reason::Version);
    }
    let header_len = usize::from(fixed[0] & 15) * 4;
    let len = usize::from(half(fixed, 2));
    if header_len < 20 || len < header_len {
        return Err(Reason::Length);
    }
    let Some(header) = packet.get(..header_len).filter(|_| len <= packet.len()) else {
        return Err(Reason::Truncated);
    };
    let sum: u64 = header.chunks_exact(4).map(|part| u64::from(word(part, 0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let folded = (folded & 0xffff) + (folded >> 16);
    if (folded & 0xffff) + (folded >> 16) != 0xffff {
        return Err(Reason::Checksum);
    }
    let (src, dst) = (word(fixed, 12), word(fixed, 16));
    if is_martian_source(src) || is_martian_destination(dst) {
        return Err(Reason::Martian);
    }
    let fragment = half(fixed, 6);
    let kind = fixed[9];
    let ports = if fragment & OFFSET == 0 { ports(kind, &packet[header_len..len]) } else { (0, 0) };
    Ok(Seen {
        addresses: Addresses::V4(src, dst),
        ports,
        protocol: kind,
        traffic_class: fixed[1],
        hops: fixed[8],
        len: len as u16,
        is_fragment: fragment & (OFFSET | MORE_FRAGMENTS) != 0,
        may_fragment: fragment & 0x4000 == 0,
        has_options: header_len > 20,
        source_routed: header_len > 20 && is_source_routed(&header[20..]),
    })
}

/// Loose or strict source route (RFC 791 §3.1).
fn is_source_routed(mut options: &[u8]) -> bool {
    while let Some(kind) = options.first() {
        match kind {
            0 => return false,
            1 => options = &options[1..],
            131 | 137 => return true,
            _ => match options.get(1) {
                Some(len) if *len >= 2 => options = options.get(usize::from(*len)..).unwrap_or(&[]),
                _ => return false,
            },
        }
    }
    false
}

/// Sources that nobody may have: this host, loopback, multicast, reserved, broadcast (RFC 1812 §5.3.7).
#[inline]
fn is_martian_source(src: u32) -> bool {
    matches!(src >> 24, 0 | 127 | 224..=255)
}

#[inline]
fn is_martian_destination(dst: u32) -> bool {
    matches!(dst >> 24, 0 | 127 | 224..=255)
}

#[inline]
fn parse_v6(packet: &[u8]) -> Result<Seen, Reason> {
    let Some(fixed) = packet.first_chunk::<40>() else { return Err(Reason::Truncated) };
    if fixed[0] >> 4 != 6 {
        return Err(Reason::Version);
    }
    let len = 40 + usize::from(half(fixed, 4));
    if len > packet.len() {
        return Err(Reason::Truncated);
    }
    let address = |at: usize| fixed[at..at + 16].try_into().map_or(0, u128::from_be_bytes);
    let (src, dst) = (address(8), address(24));
    if is_martian_v6(src) || is_martian_v6(dst) {
        return Err(Reason::Martian);
    }
    let kind = fixed[6];
    const FRAGMENT: u8 = 44;
    Ok(Seen {
        addresses: Addresses::V6(src, dst),
        ports: ports(kind, &packet[40..len]),
        protocol: kind,
        traffic_class: fixed[0] << 4 | fixed[1] >> 4,
        hops: fixed[7],
        len: u16::try_from(len).map_err(|_| Reason::Length)?,
        is_fragment: kind == FRAGMENT,
        may_fragment: false,
        has_options: false,
        source_routed: false,
    })
}

/// Unspecified, loopback, multicast, link-local: none of them crosses a router.
#[inline]
fn is_martian_v6(address: u128) -> bool {
    address <= 1 || address >> 120 == 0xff || address >> 118 == 0xfe80 >> 6
}

/// Whether an error may be sent about a packet (RFC 1122 §3.2.2, RFC 4443 §2.4 e): not about an ICMP error, and not
/// about a later fragment.
pub fn deserves_an_answer(packet: &[u8], seen: &Seen) -> bool {
    match seen.addresses {
        Addresses::V4(..) => {
            let header_len = usize::from(packet[0] & 15) * 4;
            let later = half(packet, 6) & OFFSET != 0;
            let is_error = seen.protocol == protocol::ICMP
                && !matches!(
                    packet.get(header_len),
                    Some(&icmp::Message::ECHO | &icmp::Message::ECHO_REPLY | 13..=18)
                );
            !later && !is_error
        }
        Addresses::V6(..) => {
            let is_error =
                seen.protocol == protocol::ICMPV6 && packet.get(40).is_none_or(|kind| *kind < 128);
            !is_error
        }
    }
}

/// As addresses of the standard library.
pub fn v4(address: u32) -> Ipv4Addr {
    Ipv4Addr::from(address)
}
/// As addresses of the standard library.
pub fn v6(address: u128) -> Ipv6Addr {
    Ipv6Addr::from(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_wire::internet::{ethernet, ipv4};

    fn frame(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let header = ethernet::Header {
            dst: [2; 6],
            src: [4; 6],
            tags: Default::default(),
            ethertype: ethernet::ETHERTYPE_IPV4,
        };
        let mut bytes = Vec::new();
        header.emit(&mut bytes).expect("fits");
        let ip = ipv4::Header::new(v4(0x0a01_0001), v4(0xc000_0201), protocol::UDP);
        let mut packet = Vec::new();
        ip.emit(12, &mut packet).expect("fits");
        packet.extend([0x04, 0x00, 0x00, 0x35, 0, 12, 0, 0, 1, 2, 3, 4]);
        change(&mut packet);
        bytes.extend(packet);
        bytes
    }

    /// With a checksum that fits again.
    fn mended(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        frame(|packet| {
            change(packet);
            packet[10..12].fill(0);
            let len = (usize::from(packet[0] & 15) * 4).min(packet.len());
            let sum = lastmeter_wire::internet::checksum::Sum::of(&packet[..len]).checksum();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        })
    }

    #[test]
    fn a_packet_is_read_with_its_ports() {
        let seen = parse(&frame(|_| ())).expect("a packet");
        assert_eq!(seen.addresses, Addresses::V4(0x0a01_0001, 0xc000_0201));
        assert_eq!((seen.ports, seen.len, seen.hops), ((1024, 53), 32, 64));
        assert!(!seen.may_fragment && !seen.is_fragment);
    }

    #[test]
    fn what_rfc_1812_refuses_has_a_reason() {
        let reason = |bytes: &[u8]| parse(bytes).expect_err("refused");
        assert_eq!(reason(&frame(|p| p[8] = 63)), Reason::Checksum);
        assert_eq!(reason(&mended(|p| p[0] = 0x55)), Reason::Version);
        assert_eq!(reason(&mended(|p| p[0] = 0x44)), Reason::Length);
        assert_eq!(reason(&mended(|p| p[3] = 200)), Reason::Truncated);
        assert_eq!(reason(&mended(|p| p[12] = 127)), Reason::Martian);
        assert_eq!(reason(&mended(|p| p[12] = 255)), Reason::Martian);
        assert_eq!(reason(&mended(|p| p[16] = 0)), Reason::Martian);
        assert_eq!(reason(&[0; 14]), Reason::NotIp);
    }

    #[test]
    fn fragments_of_a_packet_belong_to_one_flow() {
        let first = parse(&mended(|p| (p[6], p[7]) = (0x20, 0))).expect("a packet");
        let later = parse(&mended(|p| (p[6], p[7]) = (0, 2))).expect("a packet");
        assert!(first.is_fragment && later.is_fragment);
        assert_eq!((later.ports, first.hash()), ((0, 0), later.hash()));
    }

    #[test]
    fn source_routes_are_seen() {
        let routed = mended(|p| {
            p[0] = 0x46;
            p.splice(20..20, [131, 3, 4, 0]);
            p[3] += 4;
        });
        let seen = parse(&routed).expect("a packet");
        assert!(seen.has_options && seen.source_routed);
    }

    proptest::proptest! {
        #[test]
        fn no_frame_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..120)) {
            if let Ok(seen) = parse(&bytes) {
                let _ = (seen.hash(), deserves_an_answer(&bytes[ETHERNET..], &seen));
            }
        }
    }
}
