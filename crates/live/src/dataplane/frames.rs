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
//!
//! Rows: N-61.

use super::program::{Attached, Shared};
use crate::port::memory::{Memory, bind_xdp};
use crate::port::ring::{
    self, AF_XDP, CHUNK, COPY, ENTRIES, HEADROOM, Rings, SHARED, SOL_XDP, rings, set_frames,
};
use crate::sys::{set_words, socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest frame.
pub const FRAME_MAX: usize = CHUNK - HEADROOM;

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
        let frame = Frame { at: chunk + HEADROOM as u32, len: bytes.len() as u16 };
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
    rings: Rings,
    /// Frames that the kernel has to send.
    sending: usize,
    /// Frames that the kernel has to receive into.
    filled: usize,
    /// How many it should have.
    wanted: usize,
    _program: Attached,
    fd: OwnedFd,
}

/// Opens the sockets of interfaces of this namespace, given by their numbers and Ethernet addresses, all with the same
/// memory. Each gets `wanted` frames to receive into.
///
/// # Errors
/// When the kernel refuses.
pub fn open(
    frames: &mut Frames,
    shared: &Shared,
    interfaces: &[(u32, [u8; 6])],
    wanted: usize,
) -> io::Result<Vec<Socket>> {
    const SEND_BUDGET: i32 = 9;
    let mut sockets: Vec<Socket> = Vec::new();
    for (index, mac) in interfaces {
        let fd = socket(AF_XDP, libc::SOCK_RAW, 0)?;
        if sockets.is_empty() {
            set_frames(fd.as_fd(), &frames.memory)?;
        }
        let rings = rings(fd.as_fd())?;
        // A kernel without this option sends 32 at a time.
        let _ = set_words(fd.as_fd(), SOL_XDP, SEND_BUDGET, &[256]);
        let other = sockets.first().map(|first| first.fd.as_fd());
        bind_xdp(fd.as_fd(), *index, if other.is_some() { SHARED } else { COPY }, other)?;
        let program = shared.attach(*index, *mac, fd.as_fd())?;
        let wanted = wanted.min(ENTRIES);
        let mut made = Socket { rings, sending: 0, filled: 0, wanted, _program: program, fd };
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
        let taken = self.rings.receive.there().min(most);
        for _ in 0..taken {
            let (at, len) = self.rings.receive.take();
            out.push(Frame { at: at as u32, len: len.min(FRAME_MAX as u32) as u16 });
        }
        if taken > 0 {
            self.rings.receive.taken();
            self.filled -= taken;
        }
        if self.filled + 64 <= self.wanted || (taken == 0 && self.filled < self.wanted) {
            self.refill(frames);
        }
        taken
    }
    /// Gives the kernel free frames to receive into, as many as it should have.
    fn refill(&mut self, frames: &mut Frames) {
        let fill = &mut self.rings.fill;
        let more = (self.wanted - self.filled).min(frames.free.len()).min(fill.room());
        for chunk in frames.free.drain(frames.free.len() - more..) {
            fill.put(chunk.into(), 0);
        }
        if more > 0 {
            fill.given();
            self.filled += more;
        }
    }
    /// Takes back frames that have departed.
    #[inline]
    pub fn reclaim(&mut self, frames: &mut Frames) {
        let completion = &mut self.rings.completion;
        let back = completion.there();
        for _ in 0..back {
            frames.free.push(completion.take().0 as u32 / CHUNK as u32 * CHUNK as u32);
        }
        if back > 0 {
            completion.taken();
            self.sending -= back;
        }
    }
    /// How many frames can be handed to the kernel now.
    pub fn room(&mut self) -> usize {
        // The completion ring has as many entries: it must not overflow.
        self.rings.send.room().min(ENTRIES - self.sending)
    }
    /// How many frames the kernel has and has not sent.
    pub fn waiting(&self) -> usize {
        self.sending
    }
    /// Hands a frame to the kernel; there must be [`Socket::room`].
    #[inline]
    pub fn put(&mut self, frame: Frame) {
        self.rings.send.put(frame.at.into(), frame.len.into());
        self.sending += 1;
    }
    /// Tells the kernel to send what was put. Whether the interface is there and up.
    ///
    /// # Errors
    /// When the socket itself fails.
    pub fn flush(&mut self) -> io::Result<bool> {
        self.rings.send.given();
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
        let (overrun, invalid) = ring::lost(self.fd.as_fd());
        Lost { overrun, invalid }
    }
}
