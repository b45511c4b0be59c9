//! AF_XDP: frames in memory shared with the kernel, passed back and forth through four rings.
//!
//! ```text
//! fill ring  --> kernel --> receive ring      frames 0 .. half
//! send ring  --> kernel --> completion ring   frames half .. all
//!
//! ring: producer, consumer (words), descriptors (address 8, length 4, options 4, or address 8)
//! ```
//!
//! In copy mode, which every interface supports, the kernel copies between its buffers and ours; zero
//! copy is tried first on interfaces that are not ours, because an adapter's driver may support it and
//! veth pairs do not. Source: the kernel's `Documentation/networking/af_xdp.rst`; `linux/if_xdp.h`.

use super::memory::{Memory, bind_xdp};
use super::{Arrival, BATCH, Counts, FRAME_MIN, Port, refused};
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
const COPY: u16 = 1 << 1;
const ZERO_COPY: u16 = 1 << 2;

/// Room for one frame; the kernel reserves 256 bytes before it for programs.
const CHUNK: usize = 2048;
const HEADROOM: usize = 256;
/// Frames in each direction; also entries of each ring.
const FRAMES: usize = 2048;

/// One of the four rings.
struct Ring {
    memory: Memory,
    producer: usize,
    consumer: usize,
    entries: usize,
    /// Our own side's count; the other side's is read when needed.
    mine: u32,
}

impl Ring {
    fn entry(&self, number: u32, size: usize) -> usize {
        self.entries + (number as usize % FRAMES) * size
    }
}

/// An AF_XDP socket with its memory.
pub struct Xdp {
    frames: Memory,
    fill: Ring,
    receive: Ring,
    send: Ring,
    completion: Ring,
    /// Frames of ours that the kernel does not have.
    free: Vec<u64>,
    lost: u64,
    /// Keeps the program attached to the interface.
    _link: OwnedFd,
    fd: OwnedFd,
}

impl Xdp {
    /// A socket, and the link that redirects frames of interface `index` of this namespace to it.
    /// Requires root.
    pub(crate) fn open(index: u32) -> io::Result<(OwnedFd, OwnedFd)> {
        let fd = socket(AF_XDP, libc::SOCK_RAW, 0)?;
        let link = super::bpf::redirect(index, fd.as_fd())?;
        Ok((fd, link))
    }

    /// A port on such a socket.
    pub(crate) fn new(fd: OwnedFd, link: OwnedFd, index: u32, zero_copy: bool) -> io::Result<Xdp> {
        let frames = Memory::anonymous(2 * FRAMES * CHUNK)?;
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        let ([a, b], [c, d]) = (halves(frames.address()), halves(frames.len() as u64));
        // `struct xdp_umem_reg`: address, length, chunk, headroom, flags, metadata.
        set_words(fd.as_fd(), SOL_XDP, UMEM_REG, &[a, b, c, d, CHUNK as u32, 0, 0, 0])?;
        for ring in [FILL_RING, COMPLETION_RING, RX_RING, TX_RING] {
            set_words(fd.as_fd(), SOL_XDP, ring, &[FRAMES as u32])?;
        }
        // `struct xdp_mmap_offsets`: four rings, each producer, consumer, entries, flags.
        let (offsets, _) = words::<32>(fd.as_fd(), SOL_XDP, MMAP_OFFSETS)?;
        let ring = |place: usize, offset: u64, size: usize| -> io::Result<Ring> {
            let at = |word: usize| offsets[place * 8 + word * 2] as usize;
            let memory = Memory::of_socket(fd.as_fd(), at(2) + FRAMES * size, offset)?;
            Ok(Ring { memory, producer: at(0), consumer: at(1), entries: at(2), mine: 0 })
        };
        let (receive, send) = (ring(0, 0, 16)?, ring(1, 0x8000_0000, 16)?);
        let (mut fill, completion) = (ring(2, 0x1_0000_0000, 8)?, ring(3, 0x1_8000_0000, 8)?);
        for frame in 0..FRAMES as u64 {
            give(&mut fill, frame * CHUNK as u64);
        }
        let free = (FRAMES as u64..2 * FRAMES as u64).map(|frame| frame * CHUNK as u64).collect();
        let bound = zero_copy && bind_xdp(fd.as_fd(), index, ZERO_COPY).is_ok();
        if !bound {
            bind_xdp(fd.as_fd(), index, COPY)?;
        }
        Ok(Xdp { frames, fill, receive, send, completion, free, lost: 0, _link: link, fd })
    }

    /// Takes back frames that the kernel has sent.
    fn reclaim(&mut self) {
        let there = self.completion.memory.acquire(self.completion.producer);
        while self.completion.mine != there {
            let at = self.completion.entry(self.completion.mine, 8);
            self.free.push(double(&self.completion.memory, at));
            self.completion.mine = self.completion.mine.wrapping_add(1);
        }
        self.completion.memory.release(self.completion.consumer, self.completion.mine);
    }
}

/// Gives the kernel a frame to receive into.
fn give(fill: &mut Ring, address: u64) {
    let at = fill.entry(fill.mine, 8);
    fill.memory.write(at, &address.to_ne_bytes());
    fill.mine = fill.mine.wrapping_add(1);
    fill.memory.release(fill.producer, fill.mine);
}

fn double(memory: &Memory, at: usize) -> u64 {
    u64::from_ne_bytes(memory.bytes(at, 8).try_into().unwrap_or_default())
}

impl Port for Xdp {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    #[inline]
    fn ready(&mut self) -> bool {
        self.receive.memory.acquire(self.receive.producer) != self.receive.mine
    }

    fn receive(
        &mut self,
        most: usize,
        counts: &mut Counts,
        frame: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        let there = self.receive.memory.acquire(self.receive.producer);
        let mut taken = 0;
        while taken < most && self.receive.mine != there {
            let at = self.receive.entry(self.receive.mine, 16);
            let address = double(&self.receive.memory, at);
            let len = double(&self.receive.memory, at + 8) as u32 as usize;
            match len {
                len if len < FRAME_MIN => counts.truncated += 1,
                len if len > CHUNK - HEADROOM => counts.oversized += 1,
                len => {
                    let bytes = self.frames.bytes(address as usize, len);
                    frame(Arrival { parts: [bytes, &[], &[]], age: None });
                }
            }
            give(&mut self.fill, address / CHUNK as u64 * CHUNK as u64);
            self.receive.mine = self.receive.mine.wrapping_add(1);
            taken += 1;
        }
        self.receive.memory.release(self.receive.consumer, self.receive.mine);
        Ok(taken)
    }

    fn send(&mut self, frames: &[Vec<u8>], counts: &mut Counts) -> io::Result<usize> {
        self.reclaim();
        let (mut put, mut bytes) = (0, 0);
        for frame in frames.iter().take(BATCH) {
            if frame.len() > CHUNK {
                break;
            }
            let Some(address) = self.free.pop() else { break };
            self.frames.write(address as usize, frame);
            let at = self.send.entry(self.send.mine, 16);
            self.send.memory.write(at, &address.to_ne_bytes());
            self.send.memory.write(at + 8, &(frame.len() as u64).to_ne_bytes());
            self.send.mine = self.send.mine.wrapping_add(1);
            put += 1;
            bytes += frame.len() as u64;
        }
        if put == 0 {
            let too_long = frames.first().is_some_and(|frame| frame.len() > CHUNK);
            *(if too_long { &mut counts.oversized } else { &mut counts.refused }) += 1;
            return Ok(1);
        }
        self.send.memory.release(self.send.producer, self.send.mine);
        // The kernel sends when told to; frames it does not get to stay in the ring.
        let flags = rustix::net::SendFlags::DONTWAIT;
        if let Err(error) = rustix::net::send(&self.fd, &[], flags) {
            let error = error.into();
            let mut other = Counts::default();
            if !refused(&error, &mut other) && error.raw_os_error() != Some(libc::EBUSY) {
                return Err(error);
            }
            counts.unreachable += other.unreachable * put as u64;
            if other.unreachable > 0 {
                return Ok(put);
            }
        }
        counts.sent += put as u64;
        counts.sent_bytes += bytes;
        Ok(put)
    }

    fn overruns(&mut self) -> u64 {
        // `struct xdp_statistics`: dropped, bad descriptors (two), receive ring full, fill ring
        // empty, send ring empty; they are cumulative.
        let Ok((found, _)) = words::<12>(self.fd.as_fd(), SOL_XDP, STATISTICS) else { return 0 };
        let count =
            |place: usize| u64::from(found[place * 2]) | u64::from(found[place * 2 + 1]) << 32;
        let lost = count(0) + count(3) + count(4);
        lost - std::mem::replace(&mut self.lost, lost)
    }
}
