//! ICMP messages, for IPv4 and IPv6: type, code, checksum, four bytes, data.
//!
//! Source: RFC 792, RFC 4443 (whose checksum covers a pseudo-header).
//!
//! ```
//! use lastmeter_wire::internet::{checksum::Sum, icmp::Message};
//! let echo = Message { kind: Message::ECHO, code: 0, rest: [0, 1, 0, 2], data: b"ping" };
//! let bytes = echo.emit(Sum::ZERO);
//! assert_eq!(Message::parse(&bytes, Sum::ZERO)?, echo);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use super::checksum::Sum;
use crate::error::{Error, split};

/// Bytes before the data.
pub const HEADER_LEN: usize = 8;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message<'a> {
    /// The type; the numbers differ between IPv4 and IPv6.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// Depends on the type: identifier and sequence, next-hop MTU, ...
    pub rest: [u8; 4],
    /// The data.
    pub data: &'a [u8],
}

impl<'a> Message<'a> {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Echo.
    pub const ECHO: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;

    /// `pseudo` is zero for IPv4, the pseudo-header's sum for IPv6.
    ///
    /// # Errors
    /// If the bytes end early or the checksum is wrong.
    pub fn parse(bytes: &'a [u8], pseudo: Sum) -> Result<Message<'a>, Error> {
        let (&[kind, code, _, _, rest @ ..], data) = split::<HEADER_LEN>(bytes, "ICMP header")?;
        if !Sum::of(bytes).and(pseudo).is_intact() {
            return Err(Error::Corrupt { what: "ICMP message" });
        }
        Ok(Message { kind, code, rest, data })
    }
    /// The message's bytes with its checksum.
    pub fn emit(&self, pseudo: Sum) -> Vec<u8> {
        let mut bytes = [&[self.kind, self.code, 0, 0], &self.rest[..], self.data].concat();
        let checksum = Sum::of(&bytes).and(pseudo).checksum();
        bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}
