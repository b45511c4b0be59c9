//! The interface between a plugin and its host: names, layouts and limits of `lastmeter:request/1`.
//!
//! ```text
//! lm_plugin -> description (32 bytes)          room -> header (16 bytes)
//!   0  magic     "LMRQ"                          0  number of requests
//!   4  version   1 (u16)                         4  kind
//!   6  kinds     a bit for each (u16)            8  now, in ns (u64)
//!   8  address of the room                      16  descriptors (64 bytes each)
//!  12  length of the room                       ..  data of each request, one slot each
//!  16  bytes of data wanted for each request
//!  20  reserved, zero (12 bytes)
//! ```
//!
//! All numbers are little-endian, and `u32` where not stated. `docs/plugin-interface.md` is the reference.
//!
//! Rows: D-92.

use crate::request::Kind;
use std::fmt;

/// The module that plugins import from.
pub const INTERFACE: &str = "lastmeter:request/1";
/// What the names of all versions begin with.
pub const INTERFACE_STEM: &str = "lastmeter:request/";
/// The version of the interface.
pub const VERSION: u16 = 1;
/// Begins a description.
pub const MAGIC: [u8; 4] = *b"LMRQ";
/// Length of a description.
pub const DESCRIPTION_LEN: usize = 32;
/// Length of the header of a batch.
pub const HEADER_LEN: usize = 16;
/// Length of a descriptor.
pub const DESCRIPTOR_LEN: usize = 64;
/// The largest number of requests in a batch.
pub const BATCH_MAX: usize = 64;
/// The most bytes of data that a plugin may ask for with each request: a frame of 1024 by 1024 pixels of 32 bits.
pub const WANTED_MAX: u32 = 4 << 20;

/// The type of a value that crosses the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// `i32`
    I32,
    /// `i64`
    I64,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Number::I32 => "i32",
            Number::I64 => "i64",
        })
    }
}

/// A function of the interface.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// The types of its parameters.
    pub parameters: &'static [Number],
    /// The type of its result.
    pub result: Option<Number>,
    /// Whether each plugin must export it.
    pub required: bool,
}

const fn function(
    name: &'static str,
    parameters: &'static [Number],
    result: Option<Number>,
    required: bool,
) -> Function {
    Function { name, parameters, result, required }
}

use Number::{I32, I64};

/// What a plugin exports.
pub const EXPORTS: &[Function] = &[
    function("lm_process", &[I32], Some(I32), true),
    function("lm_init", &[I32, I32], Some(I32), false),
    function("lm_configure", &[I32, I32], Some(I32), false),
    function("lm_report", &[I32, I32], Some(I32), false),
];

/// What a plugin may import, from [`INTERFACE`].
pub const IMPORTS: &[Function] = &[
    function("lm_now", &[], Some(I64), false),
    function("lm_log", &[I32, I32], None, false),
    function("lm_random", &[], Some(I64), false),
    function("lm_queue", &[I32, I32], Some(I32), false),
    function("lm_store_get", &[I32, I32, I32, I32], Some(I32), false),
    function("lm_store_put", &[I32, I32, I32, I32], Some(I32), false),
];

/// The exported memory.
pub const MEMORY: &str = "memory";
/// The exported constant with the address of the description.
pub const PLUGIN: &str = "lm_plugin";

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        for (number, parameter) in self.parameters.iter().enumerate() {
            write!(f, "{}{parameter}", if number > 0 { ", " } else { "" })?;
        }
        f.write_str(")")?;
        self.result.map_or(Ok(()), |result| write!(f, " -> {result}"))
    }
}

/// The kinds of request that a plugin handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    /// The bits of all kinds that exist.
    const ALL: u16 = 0b1111;
    /// One kind.
    pub const fn of(kind: Kind) -> Kinds {
        Kinds(1 << (kind as u16 - 1))
    }
    /// Whether a kind is among them.
    pub const fn has(self, kind: Kind) -> bool {
        self.0 & Kinds::of(kind).0 != 0
    }
    /// As they stand in a description.
    pub const fn bits(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Kind::ALL.into_iter().filter(|kind| self.has(*kind)).map(Kind::name).collect();
        f.write_str(&names.join(", "))
    }
}

/// What a plugin states about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// The kinds of request that it handles.
    pub kinds: Kinds,
    /// The address of the memory that the host fills.
    pub room: u32,
    /// Its length.
    pub room_len: u32,
    /// Bytes of data that it wants with each request.
    pub wanted: u32,
}

impl Description {
    /// Reads a description from a plugin's memory of `memory_len` bytes; the error says what would be right.
    pub fn parse(bytes: &[u8; DESCRIPTION_LEN], memory_len: usize) -> Result<Description, String> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        if bytes[..4] != MAGIC {
            return Err(format!("`{PLUGIN}` points at no description: it begins with \"LMRQ\""));
        }
        if u16_at(4) != VERSION {
            let found = u16_at(4);
            return Err(format!("made for version {found} of the interface; this is {VERSION}"));
        }
        let kinds = Kinds(u16_at(6));
        if kinds.0 == 0 || kinds.0 & !Kinds::ALL != 0 {
            return Err(format!(
                "kinds {:#06b}: 1 is packet, 2 block, 4 framebuffer, 8 frame, or a sum of these",
                kinds.0
            ));
        }
        let description =
            Description { kinds, room: u32_at(8), room_len: u32_at(12), wanted: u32_at(16) };
        if bytes[20..].iter().any(|byte| *byte != 0) {
            return Err("the reserved bytes of the description must be zero".to_owned());
        }
        if description.wanted > WANTED_MAX {
            let wanted = description.wanted;
            return Err(format!("{wanted} bytes of data for each request; at most {WANTED_MAX}"));
        }
        if !description.room.is_multiple_of(8) {
            return Err(format!("the room at {:#x} must be aligned to 8", description.room));
        }
        let end = u64::from(description.room) + u64::from(description.room_len);
        if end > memory_len as u64 {
            return Err(format!(
                "the room ends at {end:#x}, outside of the memory ({memory_len:#x})"
            ));
        }
        let least = HEADER_LEN + DESCRIPTOR_LEN + description.slot();
        if (description.room_len as usize) < least {
            let room_len = description.room_len;
            return Err(format!(
                "a room of {room_len} bytes holds no request; at least {least}, for {BATCH_MAX} \
                 requests {}",
                HEADER_LEN + BATCH_MAX * (DESCRIPTOR_LEN + description.slot())
            ));
        }
        Ok(description)
    }
    /// As it stands in memory.
    pub fn emit(&self) -> [u8; DESCRIPTION_LEN] {
        let mut bytes = [0; DESCRIPTION_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.kinds.0.to_le_bytes());
        for (at, value) in [(8, self.room), (12, self.room_len), (16, self.wanted)] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }
    /// Bytes kept for the data of each request.
    pub fn slot(&self) -> usize {
        (self.wanted as usize).next_multiple_of(8)
    }
    /// Requests that fit into a batch.
    pub fn batch(&self) -> usize {
        let fit = (self.room_len as usize - HEADER_LEN) / (DESCRIPTOR_LEN + self.slot());
        fit.min(BATCH_MAX)
    }
}

/// Where the fields of a descriptor stand.
pub mod field {
    /// `u8`: the kind of request.
    pub const KIND: usize = 0;
    /// `u8`: the verdict, written by the plugin; zero before.
    pub const VERDICT: usize = 1;
    /// `u16`: the operation of a block or framebuffer command, the pixel format of a frame.
    pub const OPERATION: usize = 2;
    /// `u32`: an argument of the verdict; for a frame, at first, its quality.
    pub const CODE: usize = 4;
    /// `u32`: length of the whole request.
    pub const LENGTH: usize = 8;
    /// `u32`: address of its data.
    pub const OFFSET: usize = 12;
    /// `u32`: bytes of data that are there; written with the verdict `changed`.
    pub const CAPTURED: usize = 16;
    /// `u32`: bytes that may be there.
    pub const ROOM: usize = 20;
    /// `u64`: the flow, session or client.
    pub const FLOW: usize = 24;
    /// `u64`: when it arrived, in ns.
    pub const ARRIVAL: usize = 32;
    /// `u64`: the plugin's own word for this flow; the plugin may write it.
    pub const MARK: usize = 40;
    /// `u16`: the interface on which a packet arrived.
    pub const INTERFACE: usize = 48;
    /// `u64`: the first logical block.
    pub const LBA: usize = 48;
    /// `u32`: the number of blocks.
    pub const BLOCKS: usize = 56;
    /// `u32`: who asks.
    pub const INITIATOR: usize = 60;
    /// `u16` each: a rectangle.
    pub const X: usize = 48;
    /// See [`X`].
    pub const Y: usize = 50;
    /// See [`X`].
    pub const W: usize = 52;
    /// See [`X`].
    pub const H: usize = 54;
    /// `u16`: where a copy comes from.
    pub const FROM_X: usize = 56;
    /// See [`FROM_X`].
    pub const FROM_Y: usize = 58;
    /// `u32`: the encoding of an update, the symbol of a key, the buttons of a pointer.
    pub const VALUE: usize = 60;
    /// `u16`: the width of the whole frame.
    pub const WIDTH: usize = 56;
    /// `u16`: its height.
    pub const HEIGHT: usize = 58;
    /// `u32`: its number.
    pub const NUMBER: usize = 60;
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Description =
        Description { kinds: Kinds(1), room: 1024, room_len: 8208, wanted: 64 };

    #[test]
    fn a_description_is_read_as_it_was_written() {
        assert_eq!(Description::parse(&GOOD.emit(), 65_536), Ok(GOOD));
        assert_eq!(GOOD.batch(), 64);
    }

    #[test]
    fn a_description_that_is_wrong_is_refused_with_what_is_right() {
        let refused = |change: fn(&mut [u8; 32]), word: &str| {
            let mut bytes = GOOD.emit();
            change(&mut bytes);
            let said = Description::parse(&bytes, 65_536).unwrap_err();
            assert!(said.contains(word), "{said}");
        };
        refused(|bytes| bytes[0] = 0, "LMRQ");
        refused(|bytes| bytes[4] = 0, "version 0 of the interface; this is 1");
        refused(|bytes| bytes[6] = 16, "4 framebuffer");
        refused(|bytes| bytes[6] = 0, "1 is packet");
        refused(|bytes| bytes[8] = 1, "aligned");
        refused(|bytes| bytes[11] = 0xff, "outside");
        refused(|bytes| bytes[13] = 0, "holds no request");
        refused(|bytes| bytes[19] = 0xff, "at most 4194304");
        refused(|bytes| bytes[31] = 1, "reserved");
    }
}
