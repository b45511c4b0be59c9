//! The protocol of an AAL5 packet: LLC/SNAP within the packet, or configured for the circuit.
//!
//! ```text
//! AA AA 03 | 00 00 00 | EtherType 2 | packet                        routed, SNAP
//! FE FE 03 | NLPID 1 ... packet                                     routed, ISO
//! AA AA 03 | 00 80 C2 | PID 2 | 00 00 | Ethernet frame              bridged (PID 1 and 7)
//! AA AA 03 | 00 80 C2 | 00 0E | BPDU                                bridged spanning tree
//! ```
//!
//! Source: RFC 2684 §5 (LLC) and §6 (virtual-circuit multiplexing).
//!
//! ```
//! use lastmeter_wire::aal::encapsulation::Llc;
//! let (llc, packet) = Llc::parse(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 0x45])?;
//! assert_eq!((llc, packet), (Llc::IPV4, &[0x45][..]));
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, split};

/// SNAP's LLC header.
const LLC_SNAP: [u8; 3] = [0xaa, 0xaa, 0x03];
/// The LLC header of routed ISO protocols.
const LLC_ISO: [u8; 3] = [0xfe, 0xfe, 0x03];
/// Organisation of EtherTypes.
const OUI_ETHERTYPE: [u8; 3] = [0, 0, 0];
/// Organisation of bridged media: IEEE 802.1.
const OUI_BRIDGED: [u8; 3] = [0x00, 0x80, 0xc2];
const PID_ETHERNET_WITH_FCS: u16 = 0x0001;
const PID_ETHERNET: u16 = 0x0007;
const PID_BPDU: u16 = 0x000e;
/// Padding that aligns a bridged Ethernet frame.
const BRIDGE_PAD: [u8; 2] = [0, 0];
/// LLC, organisation, protocol.
pub const SNAP_LEN: usize = 8;

/// What follows an LLC header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Llc {
    /// A routed packet of an EtherType.
    Routed(u16),
    /// A routed ISO packet, which starts with its own identifier.
    Iso,
    /// An Ethernet frame.
    Bridged {
        /// Whether its frame check sequence follows it.
        fcs: bool,
    },
    /// A spanning tree message.
    Bpdu,
    /// SNAP with another organisation or protocol.
    Snap {
        /// The organisation.
        oui: [u8; 3],
        /// Its protocol.
        pid: u16,
    },
}

impl Llc {
    /// Routed IPv4.
    pub const IPV4: Llc = Llc::Routed(0x0800);
    /// Routed ARP.
    pub const ARP: Llc = Llc::Routed(0x0806);
    /// Routed IPv6.
    pub const IPV6: Llc = Llc::Routed(0x86dd);

    /// The protocol of the packet, and its bytes. Padding before a frame is skipped whatever its value, since RFC
    /// 2684 §5.2 does not require zeros.
    ///
    /// # Errors
    /// If the bytes end early or the LLC header is neither SNAP's nor ISO's.
    pub fn parse(payload: &[u8]) -> Result<(Llc, &[u8]), Error> {
        let (&llc, rest) = split::<3>(payload, "LLC header")?;
        match llc {
            LLC_ISO => return Ok((Llc::Iso, rest)),
            LLC_SNAP => {}
            [a, b, c] => {
                let found = u32::from_be_bytes([0, a, b, c]).into();
                return Err(Error::Invalid { what: "LLC header", found });
            }
        }
        let (&[o0, o1, o2, p0, p1], rest) = split::<5>(rest, "SNAP header")?;
        let (oui, pid) = ([o0, o1, o2], u16::from_be_bytes([p0, p1]));
        let bridged = |fcs| {
            let (_, frame) = split::<2>(rest, "bridged padding")?;
            Ok((Llc::Bridged { fcs }, frame))
        };
        match (oui, pid) {
            (OUI_ETHERTYPE, ethertype) => Ok((Llc::Routed(ethertype), rest)),
            (OUI_BRIDGED, PID_ETHERNET_WITH_FCS) => bridged(true),
            (OUI_BRIDGED, PID_ETHERNET) => bridged(false),
            (OUI_BRIDGED, PID_BPDU) => Ok((Llc::Bpdu, rest)),
            (oui, pid) => Ok((Llc::Snap { oui, pid }, rest)),
        }
    }

    /// Appends the header to `out`; the packet follows it.
    pub fn emit(self, out: &mut Vec<u8>) {
        let (oui, pid) = match self {
            Llc::Iso => return out.extend(LLC_ISO),
            Llc::Routed(ethertype) => (OUI_ETHERTYPE, ethertype),
            Llc::Bridged { fcs: true } => (OUI_BRIDGED, PID_ETHERNET_WITH_FCS),
            Llc::Bridged { fcs: false } => (OUI_BRIDGED, PID_ETHERNET),
            Llc::Bpdu => (OUI_BRIDGED, PID_BPDU),
            Llc::Snap { oui, pid } => (oui, pid),
        };
        out.extend(LLC_SNAP);
        out.extend(oui);
        out.extend(pid.to_be_bytes());
        if matches!(self, Llc::Bridged { .. }) {
            out.extend(BRIDGE_PAD);
        }
    }
}

/// The protocol of all packets of a circuit, if it is configured and not sent (RFC 2684 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Multiplexed {
    /// A routed packet, directly in the PDU.
    Routed,
    /// An Ethernet frame after two bytes of padding.
    Bridged,
}

impl Multiplexed {
    /// The packet or frame.
    ///
    /// # Errors
    /// If the padding of a bridged frame is truncated.
    pub fn parse(self, payload: &[u8]) -> Result<&[u8], Error> {
        match self {
            Multiplexed::Routed => Ok(payload),
            Multiplexed::Bridged => Ok(split::<2>(payload, "bridged padding")?.1),
        }
    }
    /// Appends what precedes the packet or frame.
    pub fn emit(self, out: &mut Vec<u8>) {
        match self {
            Multiplexed::Routed => {}
            Multiplexed::Bridged => out.extend(BRIDGE_PAD),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_emits() {
        let cases: [(Llc, &[u8]); 7] = [
            (Llc::IPV4, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
            (Llc::IPV6, &[0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd]),
            (Llc::Iso, &[0xfe, 0xfe, 3]),
            (Llc::Bridged { fcs: true }, &[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 1, 0, 0]),
            (Llc::Bridged { fcs: false }, &[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 7, 0, 0]),
            (Llc::Bpdu, &[0xaa, 0xaa, 3, 0, 0x80, 0xc2, 0, 0xe]),
            (Llc::Snap { oui: [8, 0, 7], pid: 0x809b }, &[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b]),
        ];
        for (llc, bytes) in cases {
            let mut out = Vec::new();
            llc.emit(&mut out);
            assert_eq!(out, bytes);
            out.extend([1, 2]);
            assert_eq!(Llc::parse(&out), Ok((llc, &[1, 2][..])));
        }
        assert!(Llc::parse(&[0xaa, 0xaa, 4, 0, 0, 0, 8, 0]).is_err());
    }
}
