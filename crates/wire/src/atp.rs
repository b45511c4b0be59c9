//! ATP, the transport protocol of ATOMIC-2: messages in segments of at most a link packet, with one
//! acknowledgement per message.
//!
//! ```text
//! source port 2 | destination port 2 | message 4 | offset 4 | message length 4 | flags 1 | zero 1 |
//! length 2 | data
//! ```
//!
//! Source: ATOMIC-2 report §4.a describes its function; its layout was not published and is our choice.
//!
//! ```
//! use lastmeter_wire::atp::{Kind, Segment};
//! let segment = Segment {
//!     src: 1, dst: 2, message: 3, offset: 8192, message_len: 10_000, kind: Kind::Data, data: &[0; 1808],
//! };
//! assert!(segment.is_last());
//! assert_eq!(Segment::parse(&segment.emit()?)?, segment);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, fit, split};

/// Bytes before the data.
pub const HEADER_LEN: usize = 20;
/// The most data in a segment on Myrinet as used by ATOMIC-2, in bytes.
pub const DATA_LEN_MAX: usize = 8192;

/// The kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Part of a message.
    Data,
    /// The message has arrived completely.
    Ack,
    /// Request to send again from `offset`.
    Nak,
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment<'a> {
    /// The sender's port.
    pub src: u16,
    /// The receiver's port.
    pub dst: u16,
    /// The number of the message.
    pub message: u32,
    /// Offset of this part in the message.
    pub offset: u32,
    /// Length of the message.
    pub message_len: u32,
    /// The kind.
    pub kind: Kind,
    /// The data of this part.
    pub data: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Whether this part ends the message.
    pub fn is_last(&self) -> bool {
        u64::from(self.offset) + self.data.len() as u64 == self.message_len.into()
    }

    /// # Errors
    /// If the bytes end early, the part is outside its message, or the kind is unknown.
    pub fn parse(bytes: &'a [u8]) -> Result<Segment<'a>, Error> {
        let (head, rest) = split::<HEADER_LEN>(bytes, "ATP header")?;
        let &[s0, s1, d0, d1, m0, m1, m2, m3, o0, o1, o2, o3, t0, t1, t2, t3, kind, zero, l0, l1] =
            head;
        let kind = match (kind, zero) {
            (0, 0) => Kind::Data,
            (1, 0) => Kind::Ack,
            (2, 0) => Kind::Nak,
            _ => return Err(Error::Invalid { what: "ATP kind", found: kind.into() }),
        };
        let need = usize::from(u16::from_be_bytes([l0, l1]));
        let need = fit(need, DATA_LEN_MAX as u64, "ATP data")?;
        let data = rest.get(..need).ok_or(Error::Truncated {
            what: "ATP data",
            need,
            have: rest.len(),
        })?;
        let segment = Segment {
            src: u16::from_be_bytes([s0, s1]),
            dst: u16::from_be_bytes([d0, d1]),
            message: u32::from_be_bytes([m0, m1, m2, m3]),
            offset: u32::from_be_bytes([o0, o1, o2, o3]),
            message_len: u32::from_be_bytes([t0, t1, t2, t3]),
            kind,
            data,
        };
        segment.check_place()?;
        Ok(segment)
    }

    /// # Errors
    /// If the data is longer than 8192 bytes or outside its message.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        let len: u16 = fit(self.data.len(), DATA_LEN_MAX as u64, "ATP data")?;
        self.check_place()?;
        let kind = match self.kind {
            Kind::Data => 0,
            Kind::Ack => 1,
            Kind::Nak => 2,
        };
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.data.len());
        bytes.extend(self.src.to_be_bytes());
        bytes.extend(self.dst.to_be_bytes());
        for word in [self.message, self.offset, self.message_len] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend([kind, 0]);
        bytes.extend(len.to_be_bytes());
        bytes.extend(self.data);
        Ok(bytes)
    }

    fn check_place(&self) -> Result<(), Error> {
        let value = u64::from(self.offset) + self.data.len() as u64;
        let max = self.message_len.into();
        let outside = Error::DoesNotFit { what: "ATP segment's end in its message", value, max };
        if value > max { Err(outside) } else { Ok(()) }
    }
}
