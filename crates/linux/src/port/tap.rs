//! TAP: an interface whose other end is this program.
//!
//! ```text
//! the host's eth0 <--> [ the kernel's queue, 1000 frames ] <--> read, write
//! ```
//!
//! With the offload header the host may leave checksums, and optionally segmentation, to us; without it
//! every frame is complete. A TAP does not report when a frame arrived. Source: the kernel's
//! `Documentation/networking/tuntap.rst`.

use super::memory::{tap_header_size, tap_offloads, tap_request};
use super::offload::{HEADER_LEN, WHOLE, whole};
use super::{Arrival, Counts, FRAME_MAX, FRAME_MIN, Port, refused};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{read, writev};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const IFF_TAP: u16 = 0x2;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUN_F_CSUM: libc::c_ulong = 0x1;
const TUN_F_TSO4: libc::c_ulong = 0x2;
/// The longest unsegmented frame, with its header.
const READ_MAX: usize = HEADER_LEN + 65_536 + 14;

/// What the host may leave to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Offload {
    /// No offload header: nothing.
    None,
    /// Checksums.
    Checksum,
    /// Checksums, and cutting TCP data into segments.
    Segmentation,
}

/// The program's end of a TAP interface.
pub struct Tap {
    fd: OwnedFd,
    header: bool,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

impl Tap {
    /// Creates interface `name` in the network namespace of the calling thread. It goes away with its
    /// descriptor.
    /// Requires `CAP_NET_ADMIN` in the namespace.
    pub fn open(name: &str, offload: Offload) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open("/dev/net/tun", flags, Mode::empty())?;
        let header = if offload == Offload::None { 0 } else { IFF_VNET_HDR };
        tap_request(fd.as_fd(), name, IFF_TAP | IFF_NO_PI | header)?;
        if offload != Offload::None {
            tap_header_size(fd.as_fd(), HEADER_LEN as i32)?;
            let segmentation = if offload == Offload::Segmentation { TUN_F_TSO4 } else { 0 };
            tap_offloads(fd.as_fd(), TUN_F_CSUM | segmentation)?;
        }
        Ok(fd)
    }

    /// A port on such a descriptor.
    pub fn new(fd: OwnedFd, offload: Offload) -> Tap {
        let (buffer, scratch) = (vec![0; READ_MAX], Vec::with_capacity(FRAME_MAX));
        Tap { fd, header: offload != Offload::None, buffer, scratch }
    }
}

impl Port for Tap {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn ready(&mut self) -> bool {
        let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|found| found > 0)
    }

    fn receive(
        &mut self,
        most: usize,
        counts: &mut Counts,
        frame: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        let mut taken = 0;
        while taken < most {
            let len = match read(&self.fd, &mut self.buffer[..]) {
                Ok(len) => len,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            };
            taken += 1;
            let mut hand_over = |bytes: &[u8]| match bytes.len() {
                len if len < FRAME_MIN => counts.truncated += 1,
                len if len > FRAME_MAX => counts.oversized += 1,
                _ => frame(Arrival { parts: [bytes, &[], &[]], age: None }),
            };
            match self.header {
                false => hand_over(&self.buffer[..len]),
                true => {
                    let bytes = &mut self.buffer[..len];
                    if whole(bytes, &mut self.scratch, &mut hand_over).is_err() {
                        counts.garbled += 1;
                    }
                }
            }
        }
        Ok(taken)
    }

    fn send(&mut self, frames: &[Vec<u8>], counts: &mut Counts) -> io::Result<usize> {
        let Some(frame) = frames.first() else { return Ok(0) };
        let parts = [io::IoSlice::new(&WHOLE), io::IoSlice::new(frame)];
        match writev(&self.fd, if self.header { &parts } else { &parts[1..] }) {
            Ok(_) => {
                counts.sent += 1;
                counts.sent_bytes += frame.len() as u64;
                Ok(1)
            }
            Err(error) => {
                let error = error.into();
                if refused(&error, counts) { Ok(1) } else { Err(error) }
            }
        }
    }

    fn overruns(&mut self) -> u64 {
        0 // The interface counts them, in the host's namespace.
    }
}
