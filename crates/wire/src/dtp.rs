//! DTP, Netstation's Device Transport Protocol: transactions with a device, one packet in each direction.
//!
//! ```text
//! source session 2 | destination session 2 | sequence 2 | acknowledged 2 | flags 2 | length 2 | data
//! ```
//!
//! Source: ISI final report §3.a describes its function; its layout was not published and is our choice. The data
//! may be followed by link padding, which is removed.
//!
//! ```
//! use lastmeter_wire::dtp::{Flags, Packet};
//! let flags = Flags { request: true, ..Flags::default() };
//! let packet = Packet { src: 1, dst: 2, sequence: 7, acknowledged: 6, flags, data: b"fill" };
//! assert_eq!(Packet::parse(&packet.emit()?)?, packet);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, fit, split};

/// Bytes before the data.
pub const HEADER_LEN: usize = 12;
/// The most data in bytes, limited by the length field.
pub const DATA_LEN_MAX: usize = 65_535;
const FLAGS_KNOWN: u16 = 0xf;

/// The flags of a packet; several may be set, since a response carries an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// Requests a transaction.
    pub request: bool,
    /// Responds to a request.
    pub response: bool,
    /// The acknowledgement number is valid.
    pub ack: bool,
    /// The number after the acknowledged one is missing.
    pub nak: bool,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet<'a> {
    /// The sender's session.
    pub src: u16,
    /// The receiver's session.
    pub dst: u16,
    /// Number of the transaction.
    pub sequence: u16,
    /// The last transaction received in order.
    pub acknowledged: u16,
    /// The flags.
    pub flags: Flags,
    /// Commands or their responses.
    pub data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// # Errors
    /// If the bytes end early or an unknown flag is set.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, Error> {
        let (&[s0, s1, d0, d1, q0, q1, a0, a1, f0, f1, l0, l1], rest) =
            split::<HEADER_LEN>(bytes, "DTP header")?;
        let bits = u16::from_be_bytes([f0, f1]);
        if bits & !FLAGS_KNOWN != 0 {
            return Err(Error::Invalid { what: "DTP flags", found: bits.into() });
        }
        let need = usize::from(u16::from_be_bytes([l0, l1]));
        let data = rest.get(..need).ok_or(Error::Truncated {
            what: "DTP data",
            need,
            have: rest.len(),
        })?;
        let flags = Flags {
            request: bits & 1 != 0,
            response: bits & 2 != 0,
            ack: bits & 4 != 0,
            nak: bits & 8 != 0,
        };
        let [src, dst, sequence, acknowledged] =
            [[s0, s1], [d0, d1], [q0, q1], [a0, a1]].map(u16::from_be_bytes);
        Ok(Packet { src, dst, sequence, acknowledged, flags, data })
    }

    /// # Errors
    /// If the data is longer than 65,535 bytes.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        let len: u16 = fit(self.data.len(), DATA_LEN_MAX as u64, "DTP data")?;
        let flags = u16::from(self.flags.request)
            | u16::from(self.flags.response) << 1
            | u16::from(self.flags.ack) << 2
            | u16::from(self.flags.nak) << 3;
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.data.len());
        for half in [self.src, self.dst, self.sequence, self.acknowledged, flags, len] {
            bytes.extend(half.to_be_bytes());
        }
        bytes.extend(self.data);
        Ok(bytes)
    }
}
