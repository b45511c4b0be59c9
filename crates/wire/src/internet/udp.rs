//! UDP datagrams.
//!
//! Source: RFC 768; RFC 8200 §8.1 for IPv6, where a checksum of zero is not allowed.
//!
//! ```
//! use lastmeter_wire::internet::{checksum::Sum, protocol, udp};
//! let pseudo = |len| Sum::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol::UDP, len);
//! let bytes = udp::emit(1000, 2000, b"data", pseudo)?;
//! let datagram = udp::Datagram::parse(&bytes)?;
//! assert!(datagram.is_intact(pseudo(datagram.len)));
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use super::checksum::Sum;
use crate::error::{Error, fit, split};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// The longest payload that the length field permits.
pub const PAYLOAD_LEN_MAX: usize = 65_535 - HEADER_LEN;

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Length of header and payload on the wire.
    pub len: u16,
    /// The checksum as carried: zero means none.
    pub checksum: u16,
    /// The payload; shorter than `len` says only if a capture kept just the start.
    pub payload: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// # Errors
    /// If bytes are missing or the length is less than a header's.
    pub fn parse(bytes: &'a [u8]) -> Result<Datagram<'a>, Error> {
        let datagram = Datagram::parse_start(bytes)?;
        let (need, have) = (datagram.len.into(), bytes.len());
        if have < need {
            return Err(Error::Truncated { what: "UDP datagram", need, have });
        }
        Ok(datagram)
    }
    /// Parses a datagram of which a capture kept at least the header.
    ///
    /// # Errors
    /// As [`Datagram::parse`], but the payload may be truncated.
    pub fn parse_start(bytes: &'a [u8]) -> Result<Datagram<'a>, Error> {
        let (&[s0, s1, d0, d1, l0, l1, c0, c1], _) = split::<HEADER_LEN>(bytes, "UDP header")?;
        let [src, dst, len, checksum] =
            [[s0, s1], [d0, d1], [l0, l1], [c0, c1]].map(u16::from_be_bytes);
        if usize::from(len) < HEADER_LEN {
            return Err(Error::Invalid { what: "UDP length", found: len.into() });
        }
        let bytes = &bytes[..bytes.len().min(len.into())];
        Ok(Datagram { src, dst, len, checksum, payload: &bytes[HEADER_LEN..], bytes })
    }
    /// Whether the checksum matches; a missing one does.
    pub fn is_intact(&self, pseudo: Sum) -> bool {
        self.checksum == 0 || Sum::of(self.bytes).and(pseudo).is_intact()
    }
}

/// A datagram with its checksum; `pseudo` returns the sum of the pseudo-header for a length.
///
/// # Errors
/// If the payload is too long.
pub fn emit(
    src: u16,
    dst: u16,
    payload: &[u8],
    pseudo: impl FnOnce(u16) -> Sum,
) -> Result<Vec<u8>, Error> {
    let _: u32 = fit(payload.len(), PAYLOAD_LEN_MAX as u64, "UDP payload")?;
    let len = (HEADER_LEN + payload.len()) as u16;
    let mut bytes = Vec::with_capacity(len.into());
    [src, dst, len, 0].iter().for_each(|half| bytes.extend(half.to_be_bytes()));
    bytes.extend(payload);
    let checksum = Sum::of(&bytes).and(pseudo(len)).checksum_never_zero();
    bytes[6..HEADER_LEN].copy_from_slice(&checksum.to_be_bytes());
    Ok(bytes)
}
