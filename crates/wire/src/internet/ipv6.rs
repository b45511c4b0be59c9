//! IPv6 packets, and the extension headers before their payload.
//!
//! ```text
//! version 4 | traffic class 8 | flow label 20 | payload length 16 | next header 8 | hop limit 8
//! source 128 | destination 128
//! ```
//!
//! Source: RFC 8200 §3 and §4. Jumbograms (RFC 2675) are not supported.
//!
//! ```
//! use lastmeter_wire::internet::{ipv6::{Header, Packet}, protocol};
//! let header = Header::new("fd00::1".parse()?, "fd00::2".parse()?, protocol::UDP);
//! let mut bytes = header.emit(3)?.to_vec();
//! bytes.extend([1, 2, 3]);
//! let packet = Packet::parse(&bytes)?;
//! assert_eq!((packet.header, packet.upper()?.protocol), (header, protocol::UDP));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::error::{Error, fit, split};
use std::net::Ipv6Addr;

/// Bytes of the header.
pub const HEADER_LEN: usize = 40;
/// Most extension headers that are skipped.
pub const EXTENSIONS_MAX: usize = 8;
const FLOW_LABEL_MAX: u32 = 0xf_ffff;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// The fields of a header other than the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Next header: the type of what follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
}

impl Header {
    /// A header without traffic class or flow label, with 64 hops.
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8) -> Header {
        Header { traffic_class: 0, flow_label: 0, next_header, hop_limit: 64, src, dst }
    }
    /// The header of a packet with `payload_len` bytes, extension headers included.
    ///
    /// # Errors
    /// If the payload is longer than 65,535 bytes or the label has more than 20 bits.
    pub fn emit(&self, payload_len: usize) -> Result<[u8; HEADER_LEN], Error> {
        let len: u16 = fit(payload_len, u16::MAX.into(), "IPv6 payload")?;
        let label: u32 = fit(self.flow_label as usize, FLOW_LABEL_MAX.into(), "IPv6 flow label")?;
        let mut bytes = [0; HEADER_LEN];
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | label;
        bytes[..4].copy_from_slice(&word.to_be_bytes());
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        (bytes[6], bytes[7]) = (self.next_header, self.hop_limit);
        bytes[8..24].copy_from_slice(&self.src.octets());
        bytes[24..].copy_from_slice(&self.dst.octets());
        Ok(bytes)
    }
}

/// A packet that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The header.
    pub header: Header,
    /// Length of everything after the header on the wire.
    pub payload_len: usize,
    /// Extension headers and payload; shorter than `payload_len` only after [`Packet::parse_start`].
    pub payload: &'a [u8],
}

/// The payload of a packet after its extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper<'a> {
    /// Its protocol.
    pub protocol: u8,
    /// Its bytes.
    pub payload: &'a [u8],
    /// Offset of a fragment in units of eight bytes, and whether more follow.
    pub fragment: Option<(u16, bool)>,
}

impl<'a> Packet<'a> {
    /// # Errors
    /// If the version is wrong or bytes are missing.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, Error> {
        let packet = Packet::parse_start(bytes)?;
        let (need, have) = (packet.payload_len, packet.payload.len());
        if have < need {
            return Err(Error::Truncated { what: "IPv6 payload", need, have });
        }
        Ok(packet)
    }
    /// Parses a packet of which a capture kept at least the header.
    ///
    /// # Errors
    /// As [`Packet::parse`], but the payload may be truncated.
    pub fn parse_start(bytes: &'a [u8]) -> Result<Packet<'a>, Error> {
        let (&fixed, rest) = split::<HEADER_LEN>(bytes, "IPv6 header")?;
        let [w0, w1, w2, w3, l0, l1, next_header, hop_limit, addresses @ ..] = fixed;
        let word = u32::from_be_bytes([w0, w1, w2, w3]);
        if word >> 28 != 6 {
            return Err(Error::Invalid { what: "IPv6 version", found: (word >> 28).into() });
        }
        let (&src, dst) = split::<16>(&addresses, "IPv6 header")?;
        let (&dst, _) = split::<16>(dst, "IPv6 header")?;
        let header = Header {
            traffic_class: (word >> 20) as u8,
            flow_label: word & FLOW_LABEL_MAX,
            next_header,
            hop_limit,
            src: src.into(),
            dst: dst.into(),
        };
        let payload_len = usize::from(u16::from_be_bytes([l0, l1]));
        Ok(Packet { header, payload_len, payload: &rest[..rest.len().min(payload_len)] })
    }

    /// Skips the extension headers.
    ///
    /// # Errors
    /// If one is truncated, or there are more than [`EXTENSIONS_MAX`].
    pub fn upper(&self) -> Result<Upper<'a>, Error> {
        let (mut protocol, mut payload) = (self.header.next_header, self.payload);
        let mut fragment = None;
        for _ in 0..=EXTENSIONS_MAX {
            let len = match protocol {
                HOP_BY_HOP | ROUTING | DESTINATION | FRAGMENT => {
                    let (&[next, len, o0, o1], _) = split::<4>(payload, "IPv6 extension header")?;
                    let fragments = protocol == FRAGMENT;
                    protocol = next;
                    if fragments {
                        let offset = u16::from_be_bytes([o0, o1]);
                        fragment = Some((offset >> 3, offset & 1 != 0));
                    }
                    if fragments { 8 } else { 8 * (usize::from(len) + 1) }
                }
                _ => return Ok(Upper { protocol, payload, fragment }),
            };
            let have = payload.len();
            payload = payload.get(len..).ok_or(Error::Truncated {
                what: "IPv6 extension header",
                need: len,
                have,
            })?;
            // What follows the fragment header is not the start of a packet.
            if fragment.is_some_and(|(offset, _)| offset > 0) {
                return Ok(Upper { protocol, payload, fragment });
            }
        }
        Err(Error::Invalid { what: "IPv6 extension headers", found: EXTENSIONS_MAX as u64 + 1 })
    }
}
