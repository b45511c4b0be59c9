//! AF_XDP: frames in memory shared with the kernel, passed back and forth through four rings.
//!
//! ```text
//! fill ring  --> kernel --> receive ring      frames 0 .. half
//! send ring  --> kernel --> completion ring   frames half .. all
//! ```
//!
//! In copy mode, which every interface supports, the kernel copies between its buffers and ours; zero
//! copy is tried first on interfaces that are not ours, because an adapter's driver may support it and
//! veth pairs do not.

use super::memory::{Memory, bind_xdp};
use super::ring::{AF_XDP, CHUNK, COPY, HEADROOM, Rings, ZERO_COPY, lost, rings, set_frames};
use super::{Arrival, BATCH, Counts, FRAME_MIN, Port, refused};
use crate::sys::socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Frames in each direction: as many as a ring has entries.
const FRAMES: usize = super::ring::ENTRIES;

/// An AF_XDP socket with its memory.
pub struct Xdp {
    frames: Memory,
    rings: Rings,
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
    pub fn open(index: u32) -> io::Result<(OwnedFd, OwnedFd)> {
        let fd = socket(AF_XDP, libc::SOCK_RAW, 0)?;
        let link = crate::bpf::redirect(index, fd.as_fd())?;
        Ok((fd, link))
    }

    /// A port on such a socket.
    pub fn new(fd: OwnedFd, link: OwnedFd, index: u32, zero_copy: bool) -> io::Result<Xdp> {
        let frames = Memory::anonymous(2 * FRAMES * CHUNK)?;
        set_frames(fd.as_fd(), &frames)?;
        let mut rings = rings(fd.as_fd())?;
        for frame in 0..FRAMES as u64 {
            rings.fill.put(frame * CHUNK as u64, 0);
        }
        rings.fill.given();
        let free = (FRAMES as u64..2 * FRAMES as u64).map(|frame| frame * CHUNK as u64).collect();
        let bound = zero_copy && bind_xdp(fd.as_fd(), index, ZERO_COPY, None).is_ok();
        if !bound {
            bind_xdp(fd.as_fd(), index, COPY, None)?;
        }
        Ok(Xdp { frames, rings, free, lost: 0, _link: link, fd })
    }

    /// Takes back frames that the kernel has sent.
    fn reclaim(&mut self) {
        let completion = &mut self.rings.completion;
        for _ in 0..completion.there() {
            self.free.push(completion.take().0);
        }
        completion.taken();
    }
}

impl Port for Xdp {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    #[inline]
    fn ready(&mut self) -> bool {
        self.rings.receive.has_more()
    }

    fn waiting(&mut self) -> usize {
        self.rings.receive.arrived()
    }

    fn receive(
        &mut self,
        most: usize,
        counts: &mut Counts,
        frame: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        let taken = self.rings.receive.there().min(most);
        for _ in 0..taken {
            let (address, len) = self.rings.receive.take();
            match len as usize {
                len if len < FRAME_MIN => counts.truncated += 1,
                len if len > CHUNK - HEADROOM => counts.oversized += 1,
                len => {
                    let bytes = self.frames.bytes(address as usize, len);
                    frame(Arrival { parts: [bytes, &[], &[]], age: None });
                }
            }
            self.rings.fill.put(address / CHUNK as u64 * CHUNK as u64, 0);
        }
        self.rings.fill.given();
        self.rings.receive.taken();
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
            self.rings.send.put(address, frame.len() as u32);
            put += 1;
            bytes += frame.len() as u64;
        }
        if put == 0 {
            let too_long = frames.first().is_some_and(|frame| frame.len() > CHUNK);
            *(if too_long { &mut counts.oversized } else { &mut counts.refused }) += 1;
            return Ok(1);
        }
        self.rings.send.given();
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
        let (lost, _) = lost(self.fd.as_fd());
        lost - std::mem::replace(&mut self.lost, lost)
    }
}
