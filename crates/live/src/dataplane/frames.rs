//! Frames in memory that the kernel and a port processor share, for several interfaces at once: what arrives at one
//! port leaves at another without being copied by us (D-68, D-69).
//!
//! ```text
//! free --> fill ring --> [kernel: arrives] --> receive ring --> ours --> send ring --> [kernel: departs]
//!   ^                                                             |                          |
//!   +---------------------------------------------- dropped ------+------ completion ring ---+
//! ```
//!
//! Each frame is in exactly one place. A port gets frames to receive into only from what is free, so when all of them
//! wait in queues, the kernel drops arrivals before it spends anything on them. Source: the kernel's
//! `Documentation/networking/af_xdp.rst`.

use super::program::{Attached, Shared};
use crate::port::memory::{Memory, bind_xdp_shared};
use crate::sys::{set_words, socket, words};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const SOL_XDP: i32 = 283;
const AF_XDP: i32 = 44;
const MMAP_OFFSETS: i32 = 1;
const RX_RING: i32 = 2;
const TX_RING: i32 = 3;
const UMEM_REG: i32 = 4;
const FILL_RING: i32 = 5;
const COMPLETION_RING: i32 = 6;
const STATISTICS: i32 = 7;
const TX_BUDGET: i32 = 9;

/// Room for a frame, with the bytes before it that the kernel reserves for programs.
pub const CHUNK: usize = 2048;
/// The longest frame.
pub const FRAME_MAX: usize = CHUNK - 256;
/// Entries of each ring.
const ENTRIES: usize = 2048;

/// A frame that is ours: where it is, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where its first byte is.
    pub at: u32,
    /// Its bytes.
    pub len: u16,
}

impl Frame {
    fn chunk(self) -> u32 {
        self.at / CHUNK as u32 * CHUNK as u32
    }
}

/// The memory of a port processor.
#[derive(Debug)]
pub struct Frames {
    memory: Memory,
    free: Vec<u32>,
}

impl Frames {
    /// Room for so many frames.
    ///
    /// # Errors
    /// When there is not so much memory.
    pub fn new(count: usize) -> io::Result<Frames> {
        let memory = Memory::anonymous(count * CHUNK)?;
        let free = (0..count as u32).rev().map(|number| number * CHUNK as u32).collect();
        Ok(Frames { memory, free })
    }
    /// The bytes of a frame.
    #[inline]
    pub fn bytes(&self, frame: Frame) -> &[u8] {
        self.memory.bytes(frame.at as usize, frame.len.into())
    }
    /// The bytes of a frame, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self, frame: Frame) -> &mut [u8] {
        self.memory.bytes_mut(frame.at as usize, frame.len.into())
    }
    /// A frame of our own with these bytes; `None` if none is free, or they are too many.
    pub fn make(&mut self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() > FRAME_MAX {
            return None;
        }
        let chunk = self.free.pop()?;
        // Room before it, as an arriving frame has.
        let frame = Frame { at: chunk + 256, len: bytes.len() as u16 };
        self.bytes_mut(frame).copy_from_slice(bytes);
        Some(frame)
    }
    /// A frame is not needed any more.
    #[inline]
    pub fn free(&mut self, frame: Frame) {
        self.free.push(frame.chunk());
    }
    /// How many are free.
    pub fn free_count(&self) -> usize {
        self.free.len()
    }
}

#[derive(Debug)]
struct Ring {
    memory: Memory,
    producer: usize,
    consumer: usize,
    entries: usize,
    mine: u32,
    /// What the other side had done when it was last asked.
    theirs: u32,
}

impl Ring {
    #[inline]
    fn entry(&self, number: u32, size: usize) -> usize {
        self.entries + (number as usize % ENTRIES) * size
    }
    #[inline]
    fn double(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.memory.bytes(at, 8).try_into().unwrap_or_default())
    }
    /// How many entries we may still put in.
    fn room(&mut self) -> usize {
        self.theirs = self.memory.acquire(self.consumer);
        ENTRIES - self.mine.wrapping_sub(self.theirs) as usize
    }
}

/// Frames lost before we saw them, cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// No room in the receive ring, or no frame to receive into.
    pub overrun: u64,
    /// Descriptors that the kernel refused.
    pub invalid: u64,
}

/// An interface of a port processor.
#[derive(Debug)]
pub struct Socket {
    fill: Ring,
    receive: Ring,
    send: Ring,
    completion: Ring,
    /// Frames that the kernel has to send.
    sending: usize,
    /// Frames that the kernel has to receive into.
    filled: usize,
    /// How many it should have.
    wanted: usize,
    _program: Attached,
    fd: OwnedFd,
}

/// Opens the sockets of interfaces `indices` of this namespace, all with the same memory, which get `wanted` frames
/// each to receive into.
///
/// # Errors
/// When the kernel refuses.
pub fn open(
    frames: &mut Frames,
    shared: &Shared,
    indices: &[u32],
    wanted: usize,
) -> io::Result<Vec<Socket>> {
    let mut sockets: Vec<Socket> = Vec::new();
    for index in indices {
        let fd = socket(AF_XDP, libc::SOCK_RAW, 0)?;
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        if sockets.is_empty() {
            let memory = &frames.memory;
            let ([a, b], [c, d]) = (halves(memory.address()), halves(memory.len() as u64));
            set_words(fd.as_fd(), SOL_XDP, UMEM_REG, &[a, b, c, d, CHUNK as u32, 0, 0, 0])?;
        }
        for ring in [FILL_RING, COMPLETION_RING, RX_RING, TX_RING] {
            set_words(fd.as_fd(), SOL_XDP, ring, &[ENTRIES as u32])?;
        }
        // A kernel without this option sends 32 at a time.
        let _ = set_words(fd.as_fd(), SOL_XDP, TX_BUDGET, &[256]);
        let (offsets, _) = words::<32>(fd.as_fd(), SOL_XDP, MMAP_OFFSETS)?;
        let ring = |place: usize, offset: u64, size: usize| -> io::Result<Ring> {
            let at = |word: usize| offsets[place * 8 + word * 2] as usize;
            let memory = Memory::of_socket(fd.as_fd(), at(2) + ENTRIES * size, offset)?;
            let (producer, consumer, entries) = (at(0), at(1), at(2));
            Ok(Ring { memory, producer, consumer, entries, mine: 0, theirs: 0 })
        };
        let (receive, send) = (ring(0, 0, 16)?, ring(1, 0x8000_0000, 16)?);
        let (fill, completion) = (ring(2, 0x1_0000_0000, 8)?, ring(3, 0x1_8000_0000, 8)?);
        bind_xdp_shared(fd.as_fd(), *index, sockets.first().map(|first| first.fd.as_fd()))?;
        let program = shared.attach(*index, fd.as_fd())?;
        let (sending, filled) = (0, 0);
        let mut made = Socket {
            fill,
            receive,
            send,
            completion,
            sending,
            filled,
            wanted: wanted.min(ENTRIES),
            _program: program,
            fd,
        };
        made.refill(frames);
        sockets.push(made);
    }
    Ok(sockets)
}

impl Socket {
    /// Readable when frames have arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
    /// Takes at most `most` frames that have arrived.
    #[inline]
    pub fn receive(&mut self, most: usize, frames: &mut Frames, out: &mut Vec<Frame>) -> usize {
        let ring = &mut self.receive;
        if ring.theirs == ring.mine {
            ring.theirs = ring.memory.acquire(ring.producer);
        }
        let there = ring.theirs.wrapping_sub(ring.mine) as usize;
        let taken = there.min(most);
        for _ in 0..taken {
            let at = ring.entry(ring.mine, 16);
            let len = (ring.double(at + 8) as u32).min(FRAME_MAX as u32);
            out.push(Frame { at: ring.double(at) as u32, len: len as u16 });
            ring.mine = ring.mine.wrapping_add(1);
        }
        if taken > 0 {
            ring.memory.release(ring.consumer, ring.mine);
            self.filled -= taken;
        }
        if self.filled + 64 <= self.wanted || (taken == 0 && self.filled < self.wanted) {
            self.refill(frames);
        }
        taken
    }
    /// Gives the kernel free frames to receive into, as many as it should have.
    fn refill(&mut self, frames: &mut Frames) {
        let ring = &mut self.fill;
        let more = (self.wanted - self.filled).min(frames.free.len()).min(ring.room());
        for chunk in frames.free.drain(frames.free.len() - more..) {
            let at = ring.entry(ring.mine, 8);
            ring.memory.write(at, &u64::from(chunk).to_ne_bytes());
            ring.mine = ring.mine.wrapping_add(1);
        }
        if more > 0 {
            ring.memory.release(ring.producer, ring.mine);
            self.filled += more;
        }
    }
    /// Takes back frames that have departed.
    #[inline]
    pub fn reclaim(&mut self, frames: &mut Frames) {
        let ring = &mut self.completion;
        let there = ring.memory.acquire(ring.producer);
        let mut back = 0;
        while ring.mine != there {
            let at = ring.entry(ring.mine, 8);
            frames.free.push(ring.double(at) as u32 / CHUNK as u32 * CHUNK as u32);
            ring.mine = ring.mine.wrapping_add(1);
            back += 1;
        }
        if back > 0 {
            ring.memory.release(ring.consumer, ring.mine);
            self.sending -= back;
        }
    }
    /// How many frames can be handed to the kernel now.
    pub fn room(&mut self) -> usize {
        // The completion ring has as many entries: it must not overflow.
        self.send.room().min(ENTRIES - self.sending)
    }
    /// How many frames the kernel has and has not sent.
    pub fn waiting(&self) -> usize {
        self.sending
    }
    /// Hands a frame to the kernel; there must be [`Socket::room`].
    #[inline]
    pub fn put(&mut self, frame: Frame) {
        let ring = &mut self.send;
        let at = ring.entry(ring.mine, 16);
        ring.memory.write(at, &u64::from(frame.at).to_ne_bytes());
        ring.memory.write(at + 8, &u64::from(frame.len).to_ne_bytes());
        ring.mine = ring.mine.wrapping_add(1);
        self.sending += 1;
    }
    /// Tells the kernel to send what was put. Whether the interface is there and up.
    ///
    /// # Errors
    /// When the socket itself fails.
    pub fn flush(&mut self) -> io::Result<bool> {
        self.send.memory.release(self.send.producer, self.send.mine);
        let flags = rustix::net::SendFlags::DONTWAIT;
        match rustix::net::send(&self.fd, &[], flags) {
            Ok(_) => Ok(true),
            Err(error) => match error.raw_os_error() {
                libc::EAGAIN | libc::EBUSY | libc::ENOBUFS => Ok(true),
                libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EIO => Ok(false),
                _ => Err(error.into()),
            },
        }
    }
    /// Frames lost on the way to us or refused, since it was opened.
    pub fn lost(&self) -> Lost {
        let Ok((found, _)) = words::<12>(self.fd.as_fd(), SOL_XDP, STATISTICS) else {
            return Lost::default();
        };
        let count = |at: usize| u64::from(found[at * 2]) | u64::from(found[at * 2 + 1]) << 32;
        Lost { overrun: count(0) + count(3) + count(4), invalid: count(1) + count(2) }
    }
}
