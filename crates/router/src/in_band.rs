//! A reservation that the first packet of a flow carries through routers, so that no round trip comes before it (D-49).
//!
//! ```text
//! source --data, the first with the option--> r1 --> r2 --> destination: each forwards at once, and admits meanwhile;
//!                                                           what follows finds the rule
//! r2 refuses: --> destination and --> source, a packet of its own with the option: whoever granted takes it back
//! ```
//!
//! The option of IPv4 has a number for experiments (158, RFC 4727; copied into fragments, ignored by those who do not
//! know it):
//!
//! ```text
//! 158 | 12 | version 1 | what: 0 set up, 1 over, 2 refused | kbit/s (4 B) | burst / 64 B (2 B) | seconds (1 B) | 0
//! ```
//!
//! What it reserves is for packets of UDP or TCP with the same addresses and ports. It is soft state: gone after so
//! many seconds, unless a packet with the option passes again. A refusal is a packet of the protocol for experiments
//! (253, RFC 3692) whose payload is the flow: source and destination address, their ports, protocol.
//!
//! Source: the description of the router names such a set-up as planned, §10, without a protocol; this one is ours.

use crate::port_processor::parse::{Addresses, Seen};
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_wire::internet::checksum::Sum;
use lastmeter_wire::internet::protocol;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// The option.
pub const OPTION: u8 = 158;
/// Its length.
pub const OPTION_LEN: usize = 12;
const VERSION: u8 = 1;
/// The protocol of refusals.
pub const REFUSALS: u8 = 253;
/// Bytes of a flow in a refusal.
const FLOW_LEN: usize = 13;
/// Units of the option's fields.
const RATE: u64 = 1000;
const BURST: u64 = 64;
/// Hops of refusals.
const HOPS: u8 = 64;
const HEADER_LEN: usize = 20;

/// What is said of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// It wants a reservation, or still does.
    SetUp,
    /// It ends.
    Over,
    /// A router has refused it.
    Refused,
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Flow {
    /// Its source.
    pub src: Ipv4Addr,
    /// Its destination.
    pub dst: Ipv4Addr,
    /// Their ports.
    pub ports: (u16, u16),
    /// UDP or TCP.
    pub protocol: u8,
}

impl Flow {
    /// Its name among a router's flows.
    pub fn name(&self) -> String {
        let Flow { src, dst, ports, protocol } = self;
        let text = format!("in-band-{src}-{}-{dst}-{}-{protocol}", ports.0, ports.1);
        text.replace('.', "-")
    }
    /// As a filter of `router.toml`.
    pub fn filter(&self) -> String {
        let Flow { src, dst, ports: (from, to), protocol } = self;
        format!("@{src}/32 {dst}/32 {from} : {from} {to} : {to} {protocol:#04x}/0xFF")
    }
}

/// What a packet asks of routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// What is said.
    pub what: What,
    /// Of which flow.
    pub flow: Flow,
    /// Kilobits a second.
    pub kbits: u32,
    /// 64 bytes.
    pub bursts: u16,
    /// Seconds.
    pub seconds: u8,
}

impl Asked {
    /// What is reserved.
    pub fn rate(&self) -> Rate {
        Rate::from_bits(u64::from(self.kbits) * RATE)
    }
    /// What its source may send at once.
    pub fn burst(&self) -> Bytes {
        Bytes(u64::from(self.bursts) * BURST)
    }
    /// How long it stays.
    pub fn ttl(&self) -> Duration {
        Duration::from_ms(u64::from(self.seconds) * 1000)
    }
    /// The option.
    pub fn option(&self) -> [u8; OPTION_LEN] {
        let what = match self.what {
            What::SetUp => 0,
            What::Over => 1,
            What::Refused => 2,
        };
        let [a, b, c, d] = self.kbits.to_be_bytes();
        let [e, f] = self.bursts.to_be_bytes();
        [OPTION, OPTION_LEN as u8, VERSION, what, a, b, c, d, e, f, self.seconds, 0]
    }
    /// A packet that says to `to` that it is refused.
    pub fn refusal(&self, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let len = HEADER_LEN + OPTION_LEN + FLOW_LEN;
        let mut packet = vec![0; HEADER_LEN];
        packet[0] = 0x40 | ((HEADER_LEN + OPTION_LEN) / 4) as u8;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        (packet[8], packet[9]) = (HOPS, REFUSALS);
        packet[12..16].copy_from_slice(&from.octets());
        packet[16..20].copy_from_slice(&to.octets());
        packet.extend(Asked { what: What::Refused, ..*self }.option());
        let sum = Sum::of(&packet).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let Flow { src, dst, ports, protocol } = self.flow;
        packet.extend([src.octets(), dst.octets()].concat());
        packet.extend([ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
        packet.push(protocol);
        packet
    }
}

/// The option among those of a header.
fn option(mut options: &[u8]) -> Option<&[u8]> {
    loop {
        match options {
            [0, ..] | [] => return None,
            [1, rest @ ..] => options = rest,
            [kind, len, ..] if *len >= 2 => {
                let (own, rest) = options.split_at_checked(usize::from(*len))?;
                if *kind == OPTION {
                    return Some(own);
                }
                options = rest;
            }
            _ => return None,
        }
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// What a packet of IPv4 with options asks, if it does.
pub fn parse(packet: &[u8], seen: &Seen) -> Option<Asked> {
    let Addresses::V4(src, dst) = seen.addresses else { return None };
    if !seen.has_options || seen.is_fragment {
        return None;
    }
    let header_len = usize::from(packet.first()? & 15) * 4;
    let own = option(packet.get(HEADER_LEN..header_len)?)?;
    let own: &[u8; OPTION_LEN] = own.try_into().ok().filter(|own: &&[u8; 12]| own[2] == VERSION)?;
    let what = match own[3] {
        0 => What::SetUp,
        1 => What::Over,
        2 => What::Refused,
        _ => return None,
    };
    let flow = match what {
        What::Refused if seen.protocol == REFUSALS => {
            let flow = packet.get(header_len..usize::from(seen.len))?.first_chunk::<FLOW_LEN>()?;
            let address = |at: usize| Ipv4Addr::from([0, 1, 2, 3].map(|byte| flow[at + byte]));
            let ports = (half(flow, 8), half(flow, 10));
            Flow { src: address(0), dst: address(4), ports, protocol: flow[12] }
        }
        What::Refused => return None,
        _ => {
            let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
            Flow { src, dst, ports: seen.ports, protocol: seen.protocol }
        }
    };
    let known = flow.protocol == protocol::UDP || flow.protocol == protocol::TCP;
    let kbits = u32::from(half(own, 4)) << 16 | u32::from(half(own, 6));
    let asked = Asked { what, flow, kbits, bursts: half(own, 8), seconds: own[10] };
    let is_whole = what != What::SetUp || (kbits > 0 && asked.bursts > 0 && asked.seconds > 0);
    (known && is_whole).then_some(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_processor::parse;
    use proptest::prelude::*;

    fn framed(packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0]);
        frame.extend(packet);
        frame
    }
    fn read(packet: &[u8]) -> Option<Asked> {
        let frame = framed(packet);
        let seen = parse::parse(&frame).ok()?;
        super::parse(packet, &seen)
    }
    /// A datagram of its flow with these options.
    fn datagram(asked: &Asked, options: &[u8]) -> Vec<u8> {
        let mut packet = asked.refusal(asked.flow.src, asked.flow.dst)[..HEADER_LEN].to_vec();
        packet.extend(options);
        let header_len = packet.len();
        packet[0] = 0x40 | (header_len / 4) as u8;
        packet[9] = asked.flow.protocol;
        packet[2..4].copy_from_slice(&(header_len as u16 + 8).to_be_bytes());
        packet[10..12].fill(0);
        let sum = Sum::of(&packet).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let (from, to) = asked.flow.ports;
        packet.extend([from.to_be_bytes(), to.to_be_bytes(), [0, 8], [0, 0]].concat());
        packet
    }

    prop_compose! {
        fn asked()(
            what in 0..2u8, src in 0x0100_0000..0x0aff_ffffu32, dst in 0x0b00_0000..0x0cff_ffffu32,
            ports in any::<(u16, u16)>(), tcp in any::<bool>(), kbits in 1..u32::MAX,
            bursts in 1..u16::MAX, seconds in 1..u8::MAX,
        ) -> Asked {
            let protocol = if tcp { protocol::TCP } else { protocol::UDP };
            let flow = Flow { src: src.into(), dst: dst.into(), ports, protocol };
            let what = if what == 0 { What::SetUp } else { What::Over };
            Asked { what, flow, kbits, bursts, seconds }
        }
    }

    proptest! {
        /// What is written is read, also behind other options; a refusal names the flow.
        #[test]
        fn what_a_packet_asks_is_read_as_it_was_written_d_49(asked in asked()) {
            prop_assert_eq!(read(&datagram(&asked, &asked.option())), Some(asked));
            let behind = [&[1, 1, 148, 4, 0, 0, 1, 1][..], &asked.option()].concat();
            prop_assert_eq!(read(&datagram(&asked, &behind)), Some(asked));
            let refused = read(&asked.refusal([10, 0, 0, 1].into(), asked.flow.src));
            prop_assert_eq!(refused, Some(Asked { what: What::Refused, ..asked }));
        }

        /// No header does harm, and nothing is asked without the option.
        #[test]
        fn no_packet_panics(
            asked in asked(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        ) {
            let mut packet = datagram(&asked, &asked.option());
            let has_options = true;
            let frame = framed(&packet);
            let seen = parse::parse(&frame).expect("a packet");
            for (at, to) in changes {
                *at.get_mut(&mut packet) = to;
            }
            let _ = super::parse(&packet, &Seen { has_options, ..seen });
            let _ = super::parse(&packet[..packet.len() / 2], &seen);
            prop_assert_eq!(read(&datagram(&asked, &[1; 12])), None);
        }
    }

    #[test]
    fn a_flow_is_named_and_filtered_as_the_router_s_file_does() {
        let flow = Flow {
            src: [10, 1, 0, 1].into(),
            dst: [10, 3, 0, 2].into(),
            ports: (5000, 5004),
            protocol: 17,
        };
        assert_eq!(flow.name(), "in-band-10-1-0-1-5000-10-3-0-2-5004-17");
        assert_eq!(flow.filter(), "@10.1.0.1/32 10.3.0.2/32 5000 : 5000 5004 : 5004 0x11/0xFF");
    }
}
