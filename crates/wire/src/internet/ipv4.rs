//! IPv4 packets, with options and fragments.
//!
//! ```text
//! version 4 | header length 4 | traffic class 8 | total length 16
//! identification 16 | 0, don't fragment, more fragments | offset 13, in units of 8 bytes
//! time to live 8 | protocol 8 | checksum 16
//! source 32 | destination 32 | options 0..40 bytes
//! ```
//!
//! Parsing checks version, lengths and checksum once; the fields of a [`Packet`] are then valid.
//!
//! Source: RFC 791 §3.1, RFC 1812 §5.2.2 (what to check), RFC 2474 (traffic class).
//!
//! ```
//! use lastmeter_wire::internet::{ipv4::{Header, Packet}, protocol};
//! let header = Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol::UDP);
//! let mut bytes = Vec::new();
//! header.emit(8, &mut bytes)?;
//! bytes.extend([0; 8]);
//! let packet = Packet::parse(&bytes)?;
//! assert_eq!((packet.header(), packet.payload.len()), (header, 8));
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use super::checksum::{Sum, update_field};
use crate::error::{Error, fit, split};
use std::net::Ipv4Addr;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Most bytes of options.
pub const OPTIONS_LEN_MAX: usize = 40;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
/// The largest fragment offset, in units of eight bytes.
pub const FRAGMENT_OFFSET_MAX: u16 = 0x1fff;

/// The fields of a header other than lengths, checksum and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Identification, common to all fragments of a packet.
    pub identification: u16,
    /// Don't fragment.
    pub dont_fragment: bool,
    /// More fragments follow.
    pub more_fragments: bool,
    /// Offset of this fragment, in units of eight bytes.
    pub fragment_offset: u16,
    /// Time to live.
    pub time_to_live: u8,
    /// The protocol of the payload.
    pub protocol: u8,
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
}

impl Header {
    /// The header of a whole packet that must not be fragmented, with 64 hops.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8) -> Header {
        Header {
            traffic_class: 0,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: 64,
            protocol,
            src,
            dst,
        }
    }

    /// Appends the header of a packet with `payload_len` bytes, checksum included.
    ///
    /// # Errors
    /// If the packet would be longer than 65,535 bytes or the offset has more than 13 bits.
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        self.emit_with_options(&[], payload_len, out)
    }

    /// The same with options, which are padded to a whole number of words.
    ///
    /// # Errors
    /// As [`Header::emit`], or if there are more than 40 bytes of options.
    pub fn emit_with_options(
        &self,
        options: &[u8],
        payload_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let _: u32 = fit(options.len(), OPTIONS_LEN_MAX as u64, "IPv4 options")?;
        let header_len = HEADER_LEN + options.len().next_multiple_of(4);
        let payload_max = usize::from(u16::MAX) - header_len;
        let _: u32 = fit(payload_len, payload_max as u64, "IPv4 payload")?;
        let offset = fit::<u16>(
            self.fragment_offset.into(),
            FRAGMENT_OFFSET_MAX.into(),
            "IPv4 fragment offset",
        )?;
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 }
            | if self.more_fragments { MORE_FRAGMENTS } else { 0 };
        let start = out.len();
        out.extend([0x40 | (header_len / 4) as u8, self.traffic_class]);
        out.extend(((header_len + payload_len) as u16).to_be_bytes());
        out.extend(self.identification.to_be_bytes());
        out.extend((flags | offset).to_be_bytes());
        out.extend([self.time_to_live, self.protocol, 0, 0]);
        out.extend(self.src.octets());
        out.extend(self.dst.octets());
        out.extend(options);
        out.resize(start + header_len, 0);
        let checksum = Sum::of(&out[start..]).checksum();
        out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

/// A packet that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    fixed: &'a [u8; HEADER_LEN],
    /// Options and their padding.
    pub options: &'a [u8],
    /// The payload by the total length; padding of the link is cut off. May be truncated if a capture kept only
    /// the start: see [`Packet::parse_start`].
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// # Errors
    /// If version, a length or the checksum is wrong, or bytes are missing.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, Error> {
        let packet = Packet::parse_start(bytes)?;
        let (need, have) = (packet.total_len(), bytes.len());
        if have < need {
            return Err(Error::Truncated { what: "IPv4 packet", need, have });
        }
        Ok(packet)
    }

    /// Parses a packet of which a capture kept at least the header.
    ///
    /// # Errors
    /// As [`Packet::parse`], but the payload may be truncated.
    pub fn parse_start(bytes: &'a [u8]) -> Result<Packet<'a>, Error> {
        let (fixed, rest) = split::<HEADER_LEN>(bytes, "IPv4 header")?;
        let invalid = |what, found: usize| Error::Invalid { what, found: found as u64 };
        if fixed[0] >> 4 != 4 {
            return Err(invalid("IPv4 version", usize::from(fixed[0] >> 4)));
        }
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        let Some(options_len) = header_len.checked_sub(HEADER_LEN) else {
            return Err(invalid("IPv4 header length", header_len));
        };
        let total_len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let Some(payload_len) = total_len.checked_sub(header_len) else {
            return Err(invalid("IPv4 total length", total_len));
        };
        let Some((options, payload)) = rest.split_at_checked(options_len) else {
            let have = bytes.len();
            return Err(Error::Truncated { what: "IPv4 options", need: header_len, have });
        };
        if !Sum::of(&bytes[..header_len]).is_intact() {
            return Err(Error::Corrupt { what: "IPv4 header" });
        }
        Ok(Packet { fixed, options, payload: &payload[..payload.len().min(payload_len)] })
    }

    /// The header's fields.
    pub fn header(&self) -> Header {
        let &[_, traffic_class, _, _, i0, i1, f0, f1, time_to_live, protocol, ..] = self.fixed;
        let flags = u16::from_be_bytes([f0, f1]);
        Header {
            traffic_class,
            identification: u16::from_be_bytes([i0, i1]),
            dont_fragment: flags & DONT_FRAGMENT != 0,
            more_fragments: flags & MORE_FRAGMENTS != 0,
            fragment_offset: flags & FRAGMENT_OFFSET_MAX,
            time_to_live,
            protocol,
            src: self.src(),
            dst: self.dst(),
        }
    }
    /// Source.
    pub fn src(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }
    /// Destination.
    pub fn dst(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }
    /// Length of header and payload on the wire.
    pub fn total_len(&self) -> usize {
        usize::from(u16::from_be_bytes([self.fixed[2], self.fixed[3]]))
    }
    /// Whether this is a fragment.
    pub fn is_fragment(&self) -> bool {
        u16::from_be_bytes([self.fixed[6], self.fixed[7]]) & (MORE_FRAGMENTS | FRAGMENT_OFFSET_MAX)
            != 0
    }
    /// The options one by one; the list ends at a malformed one.
    pub fn each_option(&self) -> Options<'a> {
        Options { rest: self.options }
    }
}

/// An option: its number and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpOption<'a> {
    /// Copied flag, class and number in one byte.
    pub kind: u8,
    /// The data after kind and length.
    pub data: &'a [u8],
}

/// Options one by one: those of IPv4 and TCP have the same format.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<IpOption<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        const END: u8 = 0;
        const NOTHING: u8 = 1;
        let rest = std::mem::take(&mut self.rest);
        let at = rest.iter().position(|&kind| kind != NOTHING)?;
        let rest = &rest[at..];
        match rest {
            [END, ..] => None,
            [kind, len, after @ ..] => {
                let data_len = usize::from(*len).wrapping_sub(2);
                let Some((data, after)) = after.split_at_checked(data_len) else {
                    let what = "option length";
                    return Some(Err(Error::Invalid { what, found: (*len).into() }));
                };
                self.rest = after;
                Some(Ok(IpOption { kind: *kind, data }))
            }
            _ => Some(Err(Error::Truncated { what: "option", need: 2, have: rest.len() })),
        }
    }
}

/// Decrements a packet's time to live and updates its checksum, as a router does.
///
/// # Errors
/// If there is no header, or no hop is left.
pub fn forward(packet: &mut [u8]) -> Result<(), Error> {
    let have = packet.len();
    let Some(fixed) = packet.first_chunk_mut::<HEADER_LEN>() else {
        return Err(Error::Truncated { what: "IPv4 header", need: HEADER_LEN, have });
    };
    let old = [fixed[8], fixed[9]];
    let Some(left) = fixed[8].checked_sub(1).filter(|&left| left > 0) else {
        return Err(Error::Invalid { what: "IPv4 time to live", found: fixed[8].into() });
    };
    fixed[8] = left;
    let checksum = u16::from_be_bytes([fixed[10], fixed[11]]);
    let checksum = update_field(checksum, &old, &[left, old[1]]);
    fixed[10..12].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}
