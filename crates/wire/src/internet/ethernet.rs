//! Ethernet frames, with any VLAN tags.
//!
//! ```text
//! destination 6 | source 6 | { 8100 or 88A8 | tag 2 }* | type or length 2 | payload
//! ```
//!
//! Source: IEEE 802.3-2022 §3.2, 802.1Q-2022 §9. The frame check sequence is not included, as in captures.
//!
//! ```
//! use lastmeter_wire::internet::ethernet::{ETHERTYPE_IPV4, Frame, Header};
//! let header = Header { dst: [2; 6], src: [4; 6], tags: vec![0x0064], ethertype: ETHERTYPE_IPV4 };
//! let mut bytes = Vec::new();
//! header.emit(&mut bytes)?;
//! bytes.extend(b"packet");
//! let frame = Frame::parse(&bytes)?;
//! assert_eq!((frame.header, frame.payload), (header, &b"packet"[..]));
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, fit, split};

/// IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// A VLAN tag follows.
const ETHERTYPE_VLAN: u16 = 0x8100;
/// A provider's VLAN tag (802.1ad) follows.
const ETHERTYPE_PROVIDER: u16 = 0x88a8;
/// Most tags that are parsed; no network has more.
pub const TAGS_MAX: usize = 4;
/// Bytes of the header without tags.
pub const HEADER_LEN: usize = 14;
/// Smaller values are a length.
pub const ETHERTYPE_MIN: u16 = 0x0600;

/// Addresses, tags and type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Destination.
    pub dst: [u8; 6],
    /// Source.
    pub src: [u8; 6],
    /// Priority, drop eligibility and VLAN of each tag, outermost first; all but the last are provider tags.
    pub tags: Vec<u16>,
    /// The type of the payload, or, below [`ETHERTYPE_MIN`], its length.
    pub ethertype: u16,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// The payload, including padding of short frames.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// # Errors
    /// If the bytes end within the header, or there are too many tags.
    pub fn parse(bytes: &'a [u8]) -> Result<Frame<'a>, Error> {
        let (&dst, rest) = split::<6>(bytes, "Ethernet destination")?;
        let (&src, mut rest) = split::<6>(rest, "Ethernet source")?;
        let mut tags = Vec::new();
        loop {
            let (&ethertype, payload) = split::<2>(rest, "Ethernet type")?;
            let ethertype = u16::from_be_bytes(ethertype);
            if ethertype != ETHERTYPE_VLAN && ethertype != ETHERTYPE_PROVIDER {
                return Ok(Frame { header: Header { dst, src, tags, ethertype }, payload });
            }
            let _: u32 = fit(tags.len() + 1, TAGS_MAX as u64, "VLAN tags")?;
            let (&tag, after) = split::<2>(payload, "VLAN tag")?;
            tags.push(u16::from_be_bytes(tag));
            rest = after;
        }
    }
}

impl Header {
    /// Appends the header to `out`.
    ///
    /// # Errors
    /// If there are too many tags or the type is that of a tag; `out` is then unchanged.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let _: u32 = fit(self.tags.len(), TAGS_MAX as u64, "VLAN tags")?;
        if matches!(self.ethertype, ETHERTYPE_VLAN | ETHERTYPE_PROVIDER) {
            let found = self.ethertype.into();
            return Err(Error::Invalid { what: "Ethernet type of a payload", found });
        }
        out.extend(self.dst);
        out.extend(self.src);
        for (at, tag) in self.tags.iter().enumerate() {
            let last = at + 1 == self.tags.len();
            out.extend(if last { ETHERTYPE_VLAN } else { ETHERTYPE_PROVIDER }.to_be_bytes());
            out.extend(tag.to_be_bytes());
        }
        out.extend(self.ethertype.to_be_bytes());
        Ok(())
    }
}
