//! A table of channels in front of an interface's ring: the number in a frame says which program it is for, and whether
//! anybody wants it.
//!
//! ```text
//! frame: addresses 12 | type 2 | channel 2, of which 15 bits count | data
//!
//! channel --> [ table of 32768 ] open --> AF_XDP's ring
//!                                closed --> counted, dropped before the kernel's stack sees it
//! frames of other types ---------------> kernel
//! ```
//!
//! The table is memory that is read at the number: one look, whether one channel is open or all. Jetstream's card had
//! it in RAM between its ring and its host (HPL-93-37, §3.4: 15 bits); here an XDP program has it.
//!
//! Rows: J-49.

use crate::bpf::{self, Hook, If, Kind, Map, PASS, Program, Size, sockets, to_socket};
use crate::sys::socket;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bits of a channel's number.
pub const CHANNEL_BITS: u32 = 15;
/// How many channels there are.
pub const CHANNELS: u32 = 1 << CHANNEL_BITS;

const LOOKUP: i32 = 1;
const DROP: i32 = 1;
/// The context's fields.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
/// Registers.
const CONTEXT: u8 = 6;
const STACK: u8 = 10;
/// Where a frame has its type and its channel, and how many bytes it must have for that.
const TYPE_AT: i16 = 12;
const CHANNEL_AT: i16 = 14;
const HEAD_LEN: i32 = 16;

/// Which channels are open, shared with the program at the interface.
#[derive(Debug)]
pub struct Channels {
    open: Map<4, 8>,
    refused: Map<4, 8>,
}

impl Channels {
    /// All closed: a socket for a ring of interface `index`, and the link that redirects frames of this Ethernet type
    /// to it if their channel is open. Requires root.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn before(index: u32, ethertype: u16) -> io::Result<(Channels, OwnedFd, OwnedFd)> {
        let fd = socket(super::ring::AF_XDP, libc::SOCK_RAW, 0)?;
        let channels =
            Channels { open: Map::new(Kind::Array, CHANNELS)?, refused: Map::new(Kind::Array, 1)? };
        let program = channels.program(&sockets(fd.as_fd())?, ethertype).load_xdp()?;
        let link = bpf::attach(index, program.as_fd(), Hook::Stack)?;
        Ok((channels, fd, link))
    }

    /// Opens a channel, or closes it.
    ///
    /// # Errors
    /// Of a number with more bits, or when the kernel refuses.
    pub fn set(&self, channel: u16, open: bool) -> io::Result<()> {
        self.open.insert(&u32::from(channel).to_ne_bytes(), &u64::from(open).to_ne_bytes())
    }

    /// Frames of channels that were closed.
    pub fn refused(&self) -> u64 {
        self.refused.get(&[0; 4]).map_or(0, u64::from_ne_bytes)
    }

    fn program(&self, sockets: &Map<4, 4>, ethertype: u16) -> Program {
        let mut p = Program::default();
        let (other, closed) = (p.label(), p.label());
        p.copy(CONTEXT, 1);
        p.load(Size::Word, 2, CONTEXT, DATA);
        p.load(Size::Word, 3, CONTEXT, DATA_END);
        p.copy(4, 2);
        p.add(4, HEAD_LEN);
        p.go_if_register(4, If::Above, 3, other);
        p.load(Size::Half, 5, 2, TYPE_AT);
        p.swap_half(5);
        p.go_if(5, If::NotEqual, ethertype.into(), other);
        p.load(Size::Half, 5, 2, CHANNEL_AT);
        p.swap_half(5);
        p.and(5, CHANNELS as i32 - 1);
        p.store(Size::Word, STACK, -4, 5);
        p.map(1, self.open.fd());
        p.copy(2, STACK);
        p.add(2, -4);
        p.call(LOOKUP);
        p.go_if(0, If::Equal, 0, closed);
        p.load(Size::Double, 1, 0, 0);
        p.go_if(1, If::Equal, 0, closed);
        to_socket(&mut p, CONTEXT, sockets);
        p.place(closed);
        p.map_value(1, self.refused.fd(), 0);
        p.set(2, 1);
        p.add_to_memory(1, 0, 2);
        p.set(0, DROP);
        p.exit();
        p.place(other);
        p.set(0, PASS);
        p.exit();
        p
    }
}
