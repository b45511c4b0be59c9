//! AF_PACKET: frames arrive in a ring shared with the kernel and leave in batches.
//!
//! ```text
//! ring: | frame 0 | frame 1 | ... |      each: header of TPACKET_V2, address, frame
//! ```
//!
//! The ring is of version 2, which hands over each frame at once. Version 3 hands over whole blocks, when
//! they are full or after at least a millisecond, ten times what a certificate allows. Source: packet(7);
//! `linux/if_packet.h`; the kernel's
//! `Documentation/networking/packet_mmap.rst`.

use super::memory::{Headers, Memory, packet_socket};
use super::{Arrival, BATCH, Counts, FRAME_MAX, FRAME_MIN, Port, refused};
use crate::sys::{set_words, words};
use lastmeter_base::Duration;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::SystemTime;

const PACKET_RX_RING: i32 = 5;
const PACKET_STATISTICS: i32 = 6;
const PACKET_VERSION: i32 = 10;
const PACKET_QDISC_BYPASS: i32 = 20;
const TPACKET_V2: u32 = 1;

/// Owner of the slot, in `tp_status`.
const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
/// The VLAN tag was stripped from the frame and is in the header.
const STATUS_VLAN: u32 = 1 << 4;
const STATUS_VLAN_TPID: u32 = 1 << 6;

/// Offsets in `struct tpacket2_hdr`.
const LEN: usize = 4;
const LEN_KEPT: usize = 8;
const MAC: usize = 12;
const SECONDS: usize = 16;
const NANOSECONDS: usize = 20;
const TAG: usize = 24;
const TAG_TYPE: usize = 26;
const HEADER_LEN: usize = 32;

/// Room for the kernel's header and its address before a frame: `TPACKET2_HDRLEN`, and 16 bytes for
/// the link-layer header, rounded up.
const BEFORE: usize = 96;
/// Memory for one port's ring.
const RING_LEN: usize = 8 << 20;
const BLOCK_LEN: usize = 1 << 16;
/// Offset of a VLAN tag: after the two addresses.
const TAG_AT: usize = 12;
const TAG_TYPE_DEFAULT: u16 = 0x8100;

/// A packet socket with a receive ring.
pub struct Packet {
    fd: OwnedFd,
    ring: Memory,
    frame_len: usize,
    frames: usize,
    next: usize,
    headers: Headers,
}

impl Packet {
    /// A socket that sees every frame arriving at interface `index` of this namespace.
    /// Requires `CAP_NET_RAW` in the namespace.
    pub fn open(index: u32) -> io::Result<OwnedFd> {
        packet_socket(index)
    }

    /// A port on such a socket, for frames of an interface with this MTU.
    pub fn new(fd: OwnedFd, mtu: u32) -> io::Result<Packet> {
        let room = (mtu as usize + FRAME_MIN + 8).min(FRAME_MAX) + BEFORE;
        let frame_len = room.next_power_of_two();
        let frames = RING_LEN / frame_len;
        let level = libc::SOL_PACKET;
        set_words(fd.as_fd(), level, PACKET_VERSION, &[TPACKET_V2])?;
        let [block, blocks] = [BLOCK_LEN as u32, (RING_LEN / BLOCK_LEN) as u32];
        let request = [block, blocks, frame_len as u32, frames as u32];
        set_words(fd.as_fd(), level, PACKET_RX_RING, &request)?;
        // Frames go straight to the driver; a qdisc would be a second queue.
        set_words(fd.as_fd(), level, PACKET_QDISC_BYPASS, &[1])?;
        let ring = Memory::of_socket(fd.as_fd(), RING_LEN, 0)?;
        Ok(Packet { fd, ring, frame_len, frames, next: 0, headers: Headers::new(BATCH) })
    }

    /// The frame at `at`, or why there is none.
    fn look<'a>(&'a self, at: usize, status: u32, tag: &'a mut [u8; 4]) -> Seen<'a> {
        let header = self.ring.bytes(at, HEADER_LEN);
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let (len, kept, mac) = (word(LEN) as usize, word(LEN_KEPT) as usize, half(MAC) as usize);
        if kept < len || mac + kept > self.frame_len {
            return Seen::Oversized;
        }
        let bytes = self.ring.bytes(at + mac, kept);
        if bytes.len() < FRAME_MIN {
            return Seen::Truncated;
        }
        let (addresses, rest) = bytes.split_at(TAG_AT);
        let parts = match status & STATUS_VLAN {
            0 => [bytes, &[], &[]],
            _ => {
                let known = status & STATUS_VLAN_TPID != 0;
                let tag_type = if known { half(TAG_TYPE) } else { TAG_TYPE_DEFAULT };
                tag[..2].copy_from_slice(&tag_type.to_be_bytes());
                tag[2..].copy_from_slice(&half(TAG).to_be_bytes());
                [addresses, &*tag, rest]
            }
        };
        let stamp = std::time::Duration::new(word(SECONDS).into(), word(NANOSECONDS));
        Seen::Frame(parts, stamp)
    }
}

/// The content of a ring slot.
enum Seen<'a> {
    Frame([&'a [u8]; 3], std::time::Duration),
    Truncated,
    Oversized,
}

impl Port for Packet {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    #[inline]
    fn ready(&mut self) -> bool {
        self.ring.acquire(self.next * self.frame_len) & STATUS_USER != 0
    }

    fn receive(
        &mut self,
        most: usize,
        counts: &mut Counts,
        frame: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        // Timestamps in the ring are of the real-time clock.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut taken = 0;
        while taken < most {
            let at = self.next * self.frame_len;
            let status = self.ring.acquire(at);
            if status & STATUS_USER == 0 {
                break;
            }
            let mut tag = [0; 4];
            match self.look(at, status, &mut tag) {
                Seen::Frame(parts, stamp) => {
                    let age = now.saturating_sub(stamp).as_nanos().min(u64::MAX.into()) as u64;
                    let age = Some(Duration::from_ns(age.min(NANOSECONDS_MAX)));
                    frame(Arrival { parts, age });
                }
                Seen::Truncated => counts.truncated += 1,
                Seen::Oversized => counts.oversized += 1,
            }
            self.ring.release(at, STATUS_KERNEL);
            self.next = (self.next + 1) % self.frames;
            taken += 1;
        }
        Ok(taken)
    }

    fn send(&mut self, frames: &[Vec<u8>], counts: &mut Counts) -> io::Result<usize> {
        match self.headers.send_all(self.fd.as_fd(), frames) {
            Ok(sent) => {
                counts.sent += sent as u64;
                counts.sent_bytes += frames[..sent].iter().map(|f| f.len() as u64).sum::<u64>();
                Ok(sent)
            }
            Err(error) if refused(&error, counts) => Ok(1),
            Err(error) => Err(error),
        }
    }

    fn overruns(&mut self) -> u64 {
        // `struct tpacket_stats`: all packets, and those dropped; reading resets both.
        match words::<2>(self.fd.as_fd(), libc::SOL_PACKET, PACKET_STATISTICS) {
            Ok(([_, drops], 2)) => drops.into(),
            _ => 0,
        }
    }
}

/// The clock may have been stepped since a timestamp; no frame waits for an hour.
const NANOSECONDS_MAX: u64 = 3_600_000_000_000;
