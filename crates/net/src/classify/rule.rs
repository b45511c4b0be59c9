//! Rules: filters, and the verdicts for packets that match.
//!
//! Source: WUCS description of the router, §3.3.

use crate::lookup::{Key, NextHop, Prefix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// Addresses that rules examine.
pub trait Address: Key {
    /// An address of this family.
    fn of(address: IpAddr) -> Option<Self>;
    /// The same address.
    fn ip(self) -> IpAddr;
    /// Eight of its bits, from bit `depth` on.
    fn byte(self, depth: u32) -> usize;
}

impl Address for u32 {
    fn of(address: IpAddr) -> Option<u32> {
        if let IpAddr::V4(address) = address { Some(address.into()) } else { None }
    }
    fn ip(self) -> IpAddr {
        Ipv4Addr::from_bits(self).into()
    }
    #[inline(always)]
    fn byte(self, depth: u32) -> usize {
        (self >> (24 - depth) & 0xff) as usize
    }
}

impl Address for u128 {
    fn of(address: IpAddr) -> Option<u128> {
        if let IpAddr::V6(address) = address { Some(address.into()) } else { None }
    }
    fn ip(self) -> IpAddr {
        Ipv6Addr::from_bits(self).into()
    }
    #[inline(always)]
    fn byte(self, depth: u32) -> usize {
        (self >> (120 - depth) & 0xff) as usize
    }
}

/// The fields of a packet that rules examine: IPv4 or, with 128-bit addresses, IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Header<A = u32> {
    /// IP destination address.
    pub dst: A,
    /// IP source address.
    pub src: A,
    /// Destination port of UDP and TCP, else 0.
    pub dst_port: u16,
    /// Source port of UDP and TCP, else 0.
    pub src_port: u16,
    /// Protocol field of the IP header.
    pub protocol: u8,
    /// The interface that it arrived on, below [`INTERFACES_MAX`].
    pub interface: u16,
}

/// Limit on interface numbers.
pub const INTERFACES_MAX: u16 = 1024;

/// A general match (D-34): destination and source prefixes, ranges of ports, protocol, interface.
///
/// ```
/// use lastmeter_net::classify::{Filter, Header};
/// // §3.3: UDP from port 3456 of 192.168.220/24 to any port of 192.168.200/24.
/// let filter = Filter::general(
///     (0xc0a8_c800, 0xffff_ff00), (0xc0a8_dc00, 0xffff_ff00), 0, 3456, 17,
/// ).expect("the masks are prefixes");
/// let header = Header {
///     dst: 0xc0a8_c809, src: 0xc0a8_dc07, dst_port: 53, src_port: 3456, protocol: 17, interface: 2,
/// };
/// assert!(filter.matches(&header));
/// assert!(!filter.matches(&Header { protocol: 6, ..header }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter<A = u32> {
    /// Destination prefix.
    pub dst: Prefix<A>,
    /// Source prefix.
    pub src: Prefix<A>,
    /// Destination ports.
    pub dst_ports: RangeInclusive<u16>,
    /// Source ports.
    pub src_ports: RangeInclusive<u16>,
    /// The protocol; `None` for any.
    pub protocol: Option<u8>,
    /// The interface on which the packet arrives; `None` for any.
    pub interface: Option<u16>,
}

impl<A: Address> Filter<A> {
    /// Matches every packet.
    pub fn all() -> Filter<A> {
        Filter {
            dst: Prefix::all(),
            src: Prefix::all(),
            dst_ports: 0..=u16::MAX,
            src_ports: 0..=u16::MAX,
            protocol: None,
            interface: None,
        }
    }
    /// Whether a packet matches.
    pub fn matches(&self, header: &Header<A>) -> bool {
        self.dst.contains(header.dst)
            && self.src.contains(header.src)
            && self.dst_ports.contains(&header.dst_port)
            && self.src_ports.contains(&header.src_port)
            && self.protocol.is_none_or(|protocol| protocol == header.protocol)
            && self.interface.is_none_or(|interface| interface == header.interface)
    }
}

impl Filter {
    /// As the router writes it (§3.3): addresses with masks; 0 as a port or as the protocol matches all.
    /// `None` if a mask's ones are not contiguous from the top.
    pub fn general(
        (dst, dst_mask): (u32, u32),
        (src, src_mask): (u32, u32),
        dst_port: u16,
        src_port: u16,
        protocol: u8,
    ) -> Option<Filter> {
        let prefix = |bits: u32, mask: u32| {
            let is_prefix = mask.leading_ones() + mask.trailing_zeros() >= 32;
            is_prefix.then(|| Prefix::new(bits, mask.leading_ones() as u8)).flatten()
        };
        let ports = |port| if port == 0 { 0..=u16::MAX } else { port..=port };
        Some(Filter {
            dst: prefix(dst, dst_mask)?,
            src: prefix(src, src_mask)?,
            dst_ports: ports(dst_port),
            src_ports: ports(src_port),
            protocol: (protocol != 0).then_some(protocol),
            interface: None,
        })
    }
}

/// What happens to a packet (§3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Dropped (D-30).
    Deny,
    /// Forwarded; also if no rule matches (D-31).
    Permit,
    /// Forwarded through the queue reserved for its flow (D-32).
    Reserved {
        /// Which queue.
        queue: u32,
    },
    /// Sent to a plugin first (D-33).
    Active {
        /// Which instance.
        instance: u32,
    },
}

/// The result of classifying a packet (D-29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// What happens to it.
    pub action: Action,
    /// The next hop, if a rule gives one; otherwise the routing table decides.
    pub next_hop: Option<NextHop>,
    /// Whether signalling pinned the route: the routing table may not change it.
    pub pinned: bool,
    /// Whether the management module gets a copy.
    pub copy: bool,
}

impl Verdict {
    /// Forwarded according to the routing table.
    pub const PERMIT: Verdict = Verdict::of(Action::Permit);

    /// An action and nothing else.
    pub const fn of(action: Action) -> Verdict {
        Verdict { action, next_hop: None, pinned: false, copy: false }
    }
}

/// A filter, its verdict, and its priority (D-37).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule<A = u32> {
    /// Which packets.
    pub filter: Filter<A>,
    /// Of all matching rules, the lowest number wins; of equal ones, the first installed.
    pub priority: u32,
    /// What happens to them.
    pub verdict: Verdict,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_examples_of_section_3_3_match_as_described_d_35() {
        let all = u32::MAX;
        let exact = Filter::general((0xc0a8_c802, all), (0xc0a8_dc05, all), 2345, 3456, 17);
        let exact = exact.expect("prefixes");
        let header = Header {
            dst: 0xc0a8_c802,
            src: 0xc0a8_dc05,
            dst_port: 2345,
            src_port: 3456,
            protocol: 17,
            interface: 0,
        };
        assert!(exact.matches(&header));
        for other in [
            Header { dst: 0xc0a8_c803, ..header },
            Header { src: 0xc0a8_dc04, ..header },
            Header { dst_port: 2346, ..header },
            Header { src_port: 0, ..header },
            Header { protocol: 6, ..header },
        ] {
            assert!(!exact.matches(&other), "{other:?}");
        }
        let wide = Filter::general((0xc0a8_c800, all << 8), (0xc0a8_dc00, all << 8), 0, 3456, 17);
        let wide = wide.expect("prefixes");
        assert!(wide.matches(&header) && wide.matches(&Header { dst_port: 9, ..header }));
        assert!(!wide.matches(&Header { src: 0xc0a8_dd05, ..header }));
        assert_eq!(Filter::general((0, 0xff00_ff00), (0, 0), 0, 0, 0), None);
    }
}
