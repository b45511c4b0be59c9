//! Framebuffer commands: how a program draws on a remote display (Netstation's display device).
//!
//! ```text
//! client: "LMFB" version 1 | token's length 1 | token        server: 0 | width 2 | height 2      or 1: refused
//! command: operation 1 | flags 1 | tag 2 | x 2 | y 2 | width 2 | height 2 | length 4 | data
//! answer:  operation + 128 | status 1 | tag 2 | ... | length 4 | data
//! ```
//!
//! Numbers are big-endian, pixels `B G R 0` (that is, `0x00RRGGBB` little-endian). A command is answered if it reads,
//! or if its flag asks for it. Events (keys, the pointer) have the form of an answer.
//!
//! ```
//! use lastmeter_wire::{framebuffer::{Header, Operation}, rfb::Area};
//! let area = Area { x: 10, y: 20, w: 30, h: 40 };
//! let fill = Header { operation: Operation::FILL, flags: 0, tag: 1, area, length: 4 };
//! assert_eq!(Header::parse(&fill.emit()), fill);
//! ```

use crate::rfb::Area;

/// What a client sends first.
pub const GREETING: [u8; 5] = *b"LMFB\x01";
/// Bytes of a command or answer without its data.
pub const HEADER_LEN: usize = 16;
/// The most data in a command: a screen of 4096 by 4096.
pub const DATA_MAX: usize = 64 << 20;
/// A command with this flag is answered.
pub const ANSWER: u8 = 1;
/// Added to an operation, it marks an answer.
pub const ANSWERED: u8 = 128;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(pub u8);

impl Operation {
    /// Pixels are sent back.
    pub const READ: Operation = Operation(1);
    /// Pixels are replaced; data: a word each.
    pub const PUT: Operation = Operation(2);
    /// Pixels come from elsewhere on the screen; data: x 2, y 2.
    pub const COPY: Operation = Operation(3);
    /// Pixels get one colour; data: a word.
    pub const FILL: Operation = Operation(4);
    /// Pixels are replaced; data: a JPEG of the area's size.
    pub const JPEG: Operation = Operation(5);
    /// Pixels are mixed; data: a word each, with the share of the new colour in its highest byte.
    pub const BLEND: Operation = Operation(6);
    /// Keys and the pointer are sent from now on.
    pub const LISTEN: Operation = Operation(7);
    /// Does nothing: its answer says that all earlier commands are done.
    pub const SYNC: Operation = Operation(8);
    /// An event: a key; data: down 1, pad 3, key 4, client 4.
    pub const KEY: Operation = Operation(9);
    /// An event: the pointer, at the area's corner; data: buttons 1, pad 3, client 4.
    pub const POINTER: Operation = Operation(10);
    /// An event: the clipboard; data: text.
    pub const CUT: Operation = Operation(11);
    /// The viewers' cursor, of the area's size, with its hot spot at the area's corner; data: a word each, visible
    /// where its highest byte is at least 128.
    pub const CURSOR: Operation = Operation(12);
    /// The screen gets the area's size.
    pub const RESIZE: Operation = Operation(13);
    /// An event: the screen has the area's size.
    pub const SIZE: Operation = Operation(14);
}

/// How a command ended.
pub mod status {
    /// Done.
    pub const DONE: u8 = 0;
    /// A policy denied it.
    pub const DENIED: u8 = 1;
    /// It is outside the screen, or its data do not fit its area.
    pub const INVALID: u8 = 2;
    /// A policy allowed only a part of it.
    pub const CLIPPED: u8 = 3;
}

/// A command's or an answer's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it does.
    pub operation: Operation,
    /// [`ANSWER`]; an answer's status.
    pub flags: u8,
    /// Returned in the answer.
    pub tag: u16,
    /// Where.
    pub area: Area,
    /// Bytes of data.
    pub length: u32,
}

impl Header {
    /// From its bytes. Lengths and areas are not checked.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Header {
        Header {
            operation: Operation(bytes[0]),
            flags: bytes[1],
            tag: u16::from_be_bytes([bytes[2], bytes[3]]),
            area: Area::parse(&std::array::from_fn(|at| bytes[4 + at])),
            length: u32::from_be_bytes(std::array::from_fn(|at| bytes[12 + at])),
        }
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        (bytes[0], bytes[1]) = (self.operation.0, self.flags);
        bytes[2..4].copy_from_slice(&self.tag.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.area.emit());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
    /// The answer to it.
    pub fn answer(&self, status: u8, length: u32) -> Header {
        let operation = Operation(self.operation.0 | ANSWERED);
        Header { operation, flags: status, length, ..*self }
    }
}

/// Pixels from their bytes; an incomplete last word is ignored.
pub fn pixels(bytes: &[u8]) -> impl ExactSizeIterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_header_that_is_emitted_alike(bytes: [u8; HEADER_LEN]) {
            prop_assert_eq!(Header::parse(&bytes).emit(), bytes);
        }
    }

    #[test]
    fn pixels_are_little_endian() {
        assert_eq!(pixels(&[1, 2, 3, 0, 9]).collect::<Vec<_>>(), [0x0003_0201]);
    }
}
