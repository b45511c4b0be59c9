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
//! Several port processors use one memory, of which each owns a part. A frame that leaves by another's port is lent to
//! it ([`Frames::lend`]) and goes home when it has departed ([`Frames::take_foreign`]); nothing is copied:
//!
//! ```text
//! owner --Lent--> other port processor --send ring, completion ring--> Returned --> owner
//! ```
//!
//! Rows: N-61.

use super::program::{Attached, HINT, Interface, Shared};
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
    /// The same with so many bytes more in front of it, whatever they are; `None` if there is no room.
    #[inline]
    pub fn with_front(self, bytes: u16) -> Option<Frame> {
        let room = self.at as usize % CHUNK;
        (room >= usize::from(bytes))
            .then(|| Frame { at: self.at - u32::from(bytes), len: self.len + bytes })
    }
}

/// The memory of a port processor.
#[derive(Debug)]
pub struct Frames {
    memory: Memory,
    free: Vec<u32>,
    /// Its own chunks: the first, and how many bytes they are.
    first: u32,
    len: u32,
    /// Where the chunks of each port processor begin, and where the last ones end.
    starts: Vec<u32>,
    /// Chunks that may be used here, a bit for each of the memory.
    here: Vec<u64>,
    /// Chunks of others that are not needed here any more, by owner.
    foreign: Vec<Vec<u32>>,
}

/// A frame on its way to another port processor, which alone may use it.
#[derive(Debug)]
pub struct Lent(Frame);

/// Frames on their way to their owner.
#[derive(Debug)]
pub struct Returned(Vec<u32>);

impl Frames {
    /// Room for so many frames.
    ///
    /// # Errors
    /// When there is not so much memory.
    pub fn new(count: usize) -> io::Result<Frames> {
        let mut all = Frames::shared(&[count])?;
        all.pop().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
    /// One memory for several port processors, which own so many frames each.
    ///
    /// # Errors
    /// When there is not so much memory.
    pub fn shared(counts: &[usize]) -> io::Result<Vec<Frames>> {
        let all: usize = counts.iter().sum();
        let memory = Memory::anonymous(all * CHUNK)?;
        let mut starts = vec![0];
        for count in counts {
            starts.push(starts.last().copied().unwrap_or(0) + (count * CHUNK) as u32);
        }
        let owners = starts.windows(2).map(|own| {
            let (first, end) = (own[0], own[1]);
            let mut frames = Frames {
                memory: memory.share(),
                free: (first..end).step_by(CHUNK).rev().collect(),
                first,
                len: end - first,
                starts: starts.clone(),
                here: vec![0; all.div_ceil(64)],
                foreign: vec![Vec::new(); counts.len()],
            };
            (first..end).step_by(CHUNK).for_each(|chunk| frames.mark(chunk, true));
            frames
        });
        Ok(owners.collect())
    }
    fn bit(chunk: u32) -> (usize, u64) {
        let number = chunk as usize / CHUNK;
        (number / 64, 1 << (number % 64))
    }
    fn mark(&mut self, chunk: u32, here: bool) {
        let (word, bit) = Frames::bit(chunk);
        match here {
            true => self.here[word] |= bit,
            false => self.here[word] &= !bit,
        }
    }
    fn is_here(&self, frame: Frame) -> bool {
        let (word, bit) = Frames::bit(frame.chunk());
        self.here[word] & bit != 0
    }
    /// The bytes of a frame.
    #[inline]
    pub fn bytes(&self, frame: Frame) -> &[u8] {
        debug_assert!(self.is_here(frame), "a frame is used where it is");
        self.memory.bytes(frame.at as usize, frame.len.into())
    }
    /// The bytes of a frame, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self, frame: Frame) -> &mut [u8] {
        debug_assert!(self.is_here(frame), "a frame is used where it is");
        self.memory.bytes_mut(frame.at as usize, frame.len.into())
    }
    /// What the program at the port said of a frame that has just arrived, once; 0 is nothing. It may also be what it
    /// said of an earlier frame in the same place, so whoever gets it checks it.
    #[inline]
    pub fn take_hint(&mut self, frame: Frame) -> u32 {
        debug_assert!(self.is_here(frame), "a frame is used where it is");
        let at = frame.at as usize;
        if at % CHUNK < HINT {
            return 0;
        }
        let bytes = self.memory.bytes_mut(at - HINT, HINT);
        let hint = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if hint != 0 {
            bytes.fill(0);
        }
        hint
    }
    /// Says of a frame what the program at a port would.
    pub fn set_hint(&mut self, frame: Frame, hint: u32) {
        if frame.at as usize % CHUNK >= HINT {
            self.memory.write(frame.at as usize - HINT, &hint.to_ne_bytes());
        }
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
        self.give(frame.chunk());
    }
    #[inline]
    fn give(&mut self, chunk: u32) {
        if chunk.wrapping_sub(self.first) < self.len {
            self.free.push(chunk);
        } else {
            self.give_back(chunk);
        }
    }
    /// Another's chunk is not needed here any more.
    fn give_back(&mut self, chunk: u32) {
        self.mark(chunk, false);
        let owner = self.starts.partition_point(|start| *start <= chunk) - 1;
        self.foreign[owner].push(chunk);
    }
    /// How many are free.
    pub fn free_count(&self) -> usize {
        self.free.len()
    }
    /// Hands a frame over to another port processor: it must not be used here again.
    #[inline]
    pub fn lend(&mut self, frame: Frame) -> Lent {
        self.mark(frame.chunk(), false);
        Lent(frame)
    }
    /// Takes a frame over from another port processor with the same memory.
    #[inline]
    pub fn accept(&mut self, Lent(frame): Lent) -> Frame {
        self.mark(frame.chunk(), true);
        frame
    }
    /// How many frames are to go home to a port processor.
    pub fn foreign_count(&self, owner: usize) -> usize {
        self.foreign[owner].len()
    }
    /// Frames that go home to a port processor.
    pub fn take_foreign(&mut self, owner: usize) -> Returned {
        Returned(std::mem::take(&mut self.foreign[owner]))
    }
    /// Frames that could not be sent home yet.
    pub fn keep_foreign(&mut self, owner: usize, Returned(chunks): Returned) {
        self.foreign[owner].extend(chunks);
    }
    /// Own frames that have come home.
    pub fn come_home(&mut self, Returned(chunks): Returned) {
        for chunk in chunks {
            self.mark(chunk, true);
            self.free.push(chunk);
        }
    }
    /// All own frames are free again: no socket is open, and none of them is elsewhere.
    pub fn reset(&mut self) {
        self.free = (self.first..self.first + self.len).step_by(CHUNK).rev().collect();
    }
    /// All frames of others are to go home, wherever they are. Nobody may use them here any more, nor may the kernel:
    /// the sockets are closed.
    pub fn surrender(&mut self) {
        let (first, end) = (self.first, self.first + self.len);
        for chunk in (0..self.starts[self.starts.len() - 1]).step_by(CHUNK) {
            let (word, bit) = Frames::bit(chunk);
            if self.here[word] & bit != 0 && !(first..end).contains(&chunk) {
                self.give_back(chunk);
            }
        }
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

/// Opens the sockets of ports, all with the same memory. Each gets `wanted` frames to receive into.
///
/// # Errors
/// When the kernel refuses.
pub fn open(
    frames: &mut Frames,
    shared: &Shared,
    interfaces: &[Interface],
    wanted: usize,
) -> io::Result<Vec<Socket>> {
    const SEND_BUDGET: i32 = 9;
    let mut sockets: Vec<Socket> = Vec::new();
    for interface in interfaces {
        let fd = socket(AF_XDP, libc::SOCK_RAW, 0)?;
        if sockets.is_empty() {
            set_frames(fd.as_fd(), &frames.memory)?;
        }
        let rings = rings(fd.as_fd())?;
        // A kernel without this option sends 32 at a time.
        let _ = set_words(fd.as_fd(), SOL_XDP, SEND_BUDGET, &[256]);
        let other = sockets.first().map(|first| first.fd.as_fd());
        bind_xdp(fd.as_fd(), interface.index, if other.is_some() { SHARED } else { COPY }, other)?;
        let program = shared.attach(*interface, fd.as_fd())?;
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
            frames.give(completion.take().0 as u32 / CHUNK as u32 * CHUNK as u32);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_was_lent_keeps_its_bytes_and_goes_home() {
        let mut all = Frames::shared(&[3, 100, 2]).expect("memory");
        let mut last = all.pop().expect("three");
        let mut first = all.remove(0);
        assert_eq!((first.free_count(), last.free_count()), (3, 2));
        let frame = first.make(b"packet").expect("room");
        let lent = first.lend(frame);
        let frame = last.accept(lent);
        assert_eq!(last.bytes(frame), b"packet");
        last.bytes_mut(frame)[0] = b'P';
        last.free(frame);
        assert_eq!((last.free_count(), last.foreign_count(0), first.free_count()), (2, 1, 2));
        first.come_home(last.take_foreign(0));
        assert_eq!(first.free_count(), 3);
        // Who ends gives back what it has of others, wherever it is.
        for _ in 0..2 {
            let frame = first.make(b"x").expect("room");
            let lent = first.lend(frame);
            let _ = last.accept(lent);
        }
        let _own = last.make(b"own").expect("room");
        last.surrender();
        assert_eq!(
            (last.foreign_count(0), last.foreign_count(1), last.foreign_count(2)),
            (2, 0, 0)
        );
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "where it is")]
    fn a_frame_that_was_lent_is_not_used_by_who_lent_it() {
        let mut frames = Frames::new(1).expect("memory");
        let frame = frames.make(b"packet").expect("room");
        let _lent = frames.lend(frame);
        let _ = frames.bytes(frame);
    }
}
