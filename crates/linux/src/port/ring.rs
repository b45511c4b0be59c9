//! The rings of an AF_XDP socket, shared with the kernel.
//!
//! ```text
//! ring: producer, consumer (words), descriptors (address 8, length 4, options 4, or address 8)
//! ```
//!
//! Source: the kernel's `Documentation/networking/af_xdp.rst`; `linux/if_xdp.h`.

use super::memory::Memory;
use crate::sys::{set_words, words};
use std::io;
use std::os::fd::BorrowedFd;

/// The family and level of AF_XDP sockets, and the options of which more than this module knows.
pub(crate) const AF_XDP: i32 = 44;
pub(crate) const SOL_XDP: i32 = 283;
const MMAP_OFFSETS: i32 = 1;
const RX_RING: i32 = 2;
const TX_RING: i32 = 3;
const UMEM_REG: i32 = 4;
const FILL_RING: i32 = 5;
const COMPLETION_RING: i32 = 6;
const STATISTICS: i32 = 7;

/// How a socket is bound: with another's memory, copying, not copying.
pub(crate) const SHARED: u16 = 1 << 0;
pub(crate) const COPY: u16 = 1 << 1;
pub(crate) const ZERO_COPY: u16 = 1 << 2;

/// Room for a frame, with the bytes before it that the kernel reserves for programs.
pub(crate) const CHUNK: usize = 2048;
pub(crate) const HEADROOM: usize = 256;
/// Entries of each ring.
pub(crate) const ENTRIES: usize = 2048;
/// Bytes of a descriptor with a length, and of one without.
const LONG: usize = 16;
const SHORT: usize = 8;

/// One of the four rings.
#[derive(Debug)]
pub(crate) struct Ring {
    memory: Memory,
    producer: usize,
    consumer: usize,
    entries: usize,
    size: usize,
    /// Our own side's count.
    mine: u32,
    /// The other side's, when it was last asked.
    theirs: u32,
}

/// The rings of a socket.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) receive: Ring,
    pub(crate) send: Ring,
    pub(crate) fill: Ring,
    pub(crate) completion: Ring,
}

/// Gives a socket its memory of frames; others may share it.
pub(crate) fn set_frames(fd: BorrowedFd<'_>, memory: &Memory) -> io::Result<()> {
    let halves = |value: u64| [value as u32, (value >> 32) as u32];
    let ([a, b], [c, d]) = (halves(memory.address()), halves(memory.len() as u64));
    // `struct xdp_umem_reg`: address, length, chunk, headroom, flags, metadata.
    set_words(fd, SOL_XDP, UMEM_REG, &[a, b, c, d, CHUNK as u32, 0, 0, 0])
}

/// Makes the rings of a socket, before it is bound.
pub(crate) fn rings(fd: BorrowedFd<'_>) -> io::Result<Rings> {
    for ring in [FILL_RING, COMPLETION_RING, RX_RING, TX_RING] {
        set_words(fd, SOL_XDP, ring, &[ENTRIES as u32])?;
    }
    // `struct xdp_mmap_offsets`: four rings, each producer, consumer, entries, flags.
    let (offsets, _) = words::<32>(fd, SOL_XDP, MMAP_OFFSETS)?;
    let ring = |place: usize, offset: u64, size: usize| -> io::Result<Ring> {
        let at = |word: usize| offsets[place * 8 + word * 2] as usize;
        let memory = Memory::of_socket(fd, at(2) + ENTRIES * size, offset)?;
        let (producer, consumer, entries) = (at(0), at(1), at(2));
        Ok(Ring { memory, producer, consumer, entries, size, mine: 0, theirs: 0 })
    };
    Ok(Rings {
        receive: ring(0, 0, LONG)?,
        send: ring(1, 0x8000_0000, LONG)?,
        fill: ring(2, 0x1_0000_0000, SHORT)?,
        completion: ring(3, 0x1_8000_0000, SHORT)?,
    })
}

/// Frames that a socket lost since it was opened: for want of room or of frames to receive into; and descriptors
/// that the kernel refused.
pub(crate) fn lost(fd: BorrowedFd<'_>) -> (u64, u64) {
    // `struct xdp_statistics`: dropped, bad descriptors (two), receive ring full, fill ring empty, send ring empty.
    let Ok((found, _)) = words::<12>(fd, SOL_XDP, STATISTICS) else { return (0, 0) };
    let count = |at: usize| u64::from(found[at * 2]) | u64::from(found[at * 2 + 1]) << 32;
    // What finds no frame to be received into is among the dropped: it is not counted twice.
    (count(0) + count(3), count(1) + count(2))
}

impl Ring {
    #[inline]
    fn entry(&self) -> usize {
        self.entries + (self.mine as usize % ENTRIES) * self.size
    }
    /// Whether the kernel has put something into it.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.memory.acquire(self.producer) != self.mine
    }
    /// How many entries the kernel has put into it and we have not taken.
    #[inline]
    pub(crate) fn there(&mut self) -> usize {
        if self.theirs == self.mine {
            self.theirs = self.memory.acquire(self.producer);
        }
        self.theirs.wrapping_sub(self.mine) as usize
    }
    /// The same, with what has come since.
    #[inline]
    pub(crate) fn arrived(&mut self) -> usize {
        self.theirs = self.memory.acquire(self.producer);
        self.theirs.wrapping_sub(self.mine) as usize
    }
    /// Takes an entry that is [`Ring::there`]: where a frame is, and, if the ring says so, its length.
    #[inline]
    pub(crate) fn take(&mut self) -> (u64, u32) {
        let word =
            |at: usize| u64::from_ne_bytes(self.memory.bytes(at, 8).try_into().unwrap_or_default());
        let at = self.entry();
        let taken = (word(at), if self.size == LONG { word(at + 8) as u32 } else { 0 });
        self.mine = self.mine.wrapping_add(1);
        taken
    }
    /// The kernel may use again the entries that were taken.
    #[inline]
    pub(crate) fn taken(&self) {
        self.memory.release(self.consumer, self.mine);
    }
    /// How many entries we may still put in.
    #[inline]
    pub(crate) fn room(&mut self) -> usize {
        self.theirs = self.memory.acquire(self.consumer);
        ENTRIES - self.mine.wrapping_sub(self.theirs) as usize
    }
    /// Puts an entry in; there must be [`Ring::room`].
    #[inline]
    pub(crate) fn put(&mut self, address: u64, len: u32) {
        let at = self.entry();
        self.memory.write(at, &address.to_ne_bytes());
        if self.size == LONG {
            self.memory.write(at + 8, &u64::from(len).to_ne_bytes());
        }
        self.mine = self.mine.wrapping_add(1);
    }
    /// The kernel sees the entries that were put in.
    #[inline]
    pub(crate) fn given(&self) {
        self.memory.release(self.producer, self.mine);
    }
}
