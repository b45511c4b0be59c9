//! Split virtqueues: what a guest offers, and what the device has used.
//!
//! ```text
//! descriptors  | address, 8 B | length, 4 B | flags, 2 B | next, 2 B |  x length
//! available    | flags, 2 B | index, 2 B | head, 2 B x length |
//! used         | flags, 2 B | index, 2 B | head, 4 B; bytes written, 4 B; x length |
//! ```
//!
//! Whatever the guest writes there, a chain has at most as many descriptors as the ring, all its bytes are in the
//! guest's memory, and each index is below the ring's length; else the ring is broken, and is used no more.
//!
//! Source: Virtual I/O Device (VIRTIO) Version 1.2, section 2.7. Indirect descriptors are understood; event indices,
//! packed rings and other byte orders than little endian are not offered.

use crate::memory::{Memory, Outside};
use std::fmt;

/// The longest ring (VIRTIO 1.2, 2.7).
pub const LENGTH_MAX: u32 = 32_768;
/// Most bytes of a chain: a packet of 64 KiB with headers.
pub const CHAIN_BYTES_MAX: u64 = 1 << 17;
const DESCRIPTOR: u64 = 16;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const NO_INTERRUPT: u16 = 1;

/// Why a ring is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// An address is not in the guest's memory.
    Outside(Outside),
    /// The length is no power of two, or too great.
    Length(u32),
    /// More is offered than the ring has room for.
    Index(u16),
    /// A descriptor that the ring or the table does not have.
    Descriptor(u32),
    /// A chain longer than its ring: a loop.
    Loop,
    /// A chain of more than [`CHAIN_BYTES_MAX`].
    Bytes(u64),
    /// A table inside a table, an empty one, or one in the middle of a chain.
    Table,
}

impl From<Outside> for Broken {
    fn from(outside: Outside) -> Broken {
        Broken::Outside(outside)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Outside(outside) => outside.fmt(f),
            Broken::Length(length) => write!(f, "a ring of {length} descriptors"),
            Broken::Index(index) => write!(f, "an index that jumps by {index}"),
            Broken::Descriptor(number) => write!(f, "descriptor {number}, which does not exist"),
            Broken::Loop => f.write_str("a chain longer than its ring"),
            Broken::Bytes(bytes) => {
                write!(f, "a chain of {bytes} bytes, at most {CHAIN_BYTES_MAX}")
            }
            Broken::Table => f.write_str("a table of descriptors in the wrong place"),
        }
    }
}

/// A piece of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Whether the device writes it; else it reads it.
    pub writable: bool,
}

/// What the guest offers as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its first descriptor, by which it is given back.
    pub head: u16,
    /// Its pieces, in order.
    pub pieces: Vec<Piece>,
}

impl Chain {
    /// Bytes that the device may read, or write.
    pub fn room(&self, writable: bool) -> u64 {
        let pieces = self.pieces.iter().filter(|piece| piece.writable == writable);
        pieces.map(|piece| u64::from(piece.len)).sum()
    }

    /// Copies out its readable bytes from the `skip`th on, as far as there is room; returns how many.
    ///
    /// # Errors
    /// Memory that has gone meanwhile.
    pub fn read(&self, memory: &Memory, skip: u64, into: &mut [u8]) -> Result<usize, Outside> {
        let mut done = 0;
        self.each(false, skip, into.len(), |address, len| {
            memory.read(address, &mut into[done..done + len])?;
            done += len;
            Ok(())
        })?;
        Ok(done)
    }

    /// Copies into its writable bytes from the `skip`th on, as far as there is room; returns how many.
    ///
    /// # Errors
    /// Memory that has gone meanwhile.
    pub fn write(&self, memory: &Memory, skip: u64, bytes: &[u8]) -> Result<usize, Outside> {
        let mut done = 0;
        self.each(true, skip, bytes.len(), |address, len| {
            memory.write(address, &bytes[done..done + len])?;
            done += len;
            Ok(())
        })?;
        Ok(done)
    }

    /// Calls `copy` for each part of a range of its bytes.
    fn each(
        &self,
        writable: bool,
        mut skip: u64,
        mut left: usize,
        mut copy: impl FnMut(u64, usize) -> Result<(), Outside>,
    ) -> Result<(), Outside> {
        for piece in self.pieces.iter().filter(|piece| piece.writable == writable) {
            let from = skip.min(u64::from(piece.len));
            skip -= from;
            let len = left.min((u64::from(piece.len) - from) as usize);
            if len > 0 {
                copy(piece.address + from, len)?;
                left -= len;
            }
        }
        Ok(())
    }
}

/// Where a ring is, in the guest's addresses, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of descriptors.
    pub length: u32,
    /// The table of descriptors.
    pub descriptors: u64,
    /// What the guest offers.
    pub available: u64,
    /// What the device has used.
    pub used: u64,
}

/// A ring in use.
#[derive(Clone, Debug)]
pub struct Ring {
    place: Place,
    /// The next chain to take.
    next: u16,
    /// The next place to give one back.
    used: u16,
}

impl Ring {
    /// A ring that begins at `base`; the used index is the guest's.
    ///
    /// # Errors
    /// It is not in the guest's memory, or its length is wrong.
    pub fn new(place: Place, base: u16, memory: &Memory) -> Result<Ring, Broken> {
        let Place { length, descriptors, available, used } = place;
        if !length.is_power_of_two() || length > LENGTH_MAX {
            return Err(Broken::Length(length));
        }
        memory.check(descriptors, (u64::from(length) * DESCRIPTOR) as usize)?;
        memory.check(available, 4 + 2 * length as usize)?;
        memory.check(used, 4 + 8 * length as usize)?;
        memory.load(available + 2)?;
        Ok(Ring { place, next: base, used: memory.load(used + 2)? })
    }

    /// The next chain to take: where to begin after a stop.
    pub fn base(&self) -> u16 {
        self.next
    }

    /// The index up to which the guest offers chains.
    ///
    /// # Errors
    /// It is further than the ring is long.
    pub fn offered(&self, memory: &Memory) -> Result<u16, Broken> {
        let index = memory.load(self.place.available + 2)?;
        let jump = index.wrapping_sub(self.next);
        if u32::from(jump) > self.place.length { Err(Broken::Index(jump)) } else { Ok(index) }
    }

    /// Takes the next chain, unless `limit` is reached.
    ///
    /// # Errors
    /// The chain is wrong.
    pub fn take(&mut self, memory: &Memory, limit: u16) -> Result<Option<Chain>, Broken> {
        if self.next == limit {
            return Ok(None);
        }
        let slot = u64::from(self.next) % u64::from(self.place.length);
        let mut head = [0; 2];
        memory.read(self.place.available + 4 + 2 * slot, &mut head)?;
        let head = u16::from_le_bytes(head);
        let pieces = self.pieces(memory, head)?;
        self.next = self.next.wrapping_add(1);
        Ok(Some(Chain { head, pieces }))
    }

    fn pieces(&self, memory: &Memory, head: u16) -> Result<Vec<Piece>, Broken> {
        let mut pieces = Vec::new();
        let mut bytes = 0;
        let (mut table, mut length, mut at) =
            (self.place.descriptors, self.place.length, u32::from(head));
        let mut is_inside = false;
        // A chain, with its table, is no longer than the ring; one more is for the descriptor of the table.
        for _ in 0..=self.place.length {
            if at >= length {
                return Err(Broken::Descriptor(at));
            }
            let (piece, flags, next) = descriptor(memory, table + u64::from(at) * DESCRIPTOR)?;
            if flags & INDIRECT != 0 {
                let count = piece.len / DESCRIPTOR as u32;
                let whole = u64::from(piece.len).is_multiple_of(DESCRIPTOR);
                let wrong = is_inside || count == 0 || !whole || flags & NEXT != 0;
                if wrong || !pieces.is_empty() || count > self.place.length {
                    return Err(Broken::Table);
                }
                memory.check(piece.address, piece.len as usize)?;
                (table, length, at, is_inside) = (piece.address, count, 0, true);
                continue;
            }
            bytes += u64::from(piece.len);
            if bytes > CHAIN_BYTES_MAX {
                return Err(Broken::Bytes(bytes));
            }
            memory.check(piece.address, piece.len as usize)?;
            pieces.push(piece);
            if flags & NEXT == 0 {
                return Ok(pieces);
            }
            at = u32::from(next);
        }
        Err(Broken::Loop)
    }

    /// Gives a chain back, of which the device has written `written` bytes. The guest sees it only after
    /// [`Ring::publish`].
    ///
    /// # Errors
    /// Memory that has gone meanwhile.
    pub fn give(&mut self, memory: &Memory, head: u16, written: u32) -> Result<(), Broken> {
        let slot = u64::from(self.used) % u64::from(self.place.length);
        let mut element = [0; 8];
        element[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        element[4..].copy_from_slice(&written.to_le_bytes());
        memory.write(self.place.used + 4 + 8 * slot, &element)?;
        self.used = self.used.wrapping_add(1);
        Ok(())
    }

    /// Lets the guest see what was given back.
    ///
    /// # Errors
    /// Memory that has gone meanwhile.
    pub fn publish(&self, memory: &Memory) -> Result<(), Broken> {
        Ok(memory.store(self.place.used + 2, self.used)?)
    }

    /// Whether the guest wants an interrupt now; asked after [`Ring::publish`].
    ///
    /// # Errors
    /// Memory that has gone meanwhile.
    pub fn wants_interrupt(&self, memory: &Memory) -> Result<bool, Broken> {
        Ok(memory.load(self.place.available)? & NO_INTERRUPT == 0)
    }
}

/// A descriptor: its piece, its flags, the next one.
fn descriptor(memory: &Memory, address: u64) -> Result<(Piece, u16, u16), Outside> {
    let mut bytes = [0; DESCRIPTOR as usize];
    memory.read(address, &mut bytes)?;
    let [a, b, c, d, e, f, g, h, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
    let address = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let len = u32::from_le_bytes([l0, l1, l2, l3]);
    let flags = u16::from_le_bytes([f0, f1]);
    let piece = Piece { address, len, writable: flags & WRITE != 0 };
    Ok((piece, flags, u16::from_le_bytes([n0, n1])))
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
