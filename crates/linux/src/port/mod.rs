//! Ports: where frames pass between the kernel and a graph.
//!
//! ```text
//! interface --> [ ring or queue of the kernel ] --> receive --> graph
//! interface <-- send <-- [ outgoing, one batch ] <-- graph
//! ```
//!
//! | kind       | how frames are received and sent                                                |
//! |------------|---------------------------------------------------------------------------------|
//! | [`Packet`] | AF_PACKET, a receive ring shared with the kernel, sent in batches by `sendmmsg` |
//! | [`Tap`]    | a TAP interface of our own, with or without the offload header                  |
//! | [`Xdp`]    | AF_XDP, rings and frames shared with the kernel, copied or not                  |
//!
//! A frame is what an interface carries: from the Ethernet destination to the end of the payload,
//! without preamble, check sequence and gap. A port's failure is counted and retried; every bad frame has
//! a reason in [`Counts`]. Nothing is allocated per frame.

mod channels;
mod element;
mod line;
pub(crate) mod memory;
pub(crate) mod offload;
mod packet;
pub(crate) mod ring;
mod tap;
mod xdp;

pub use channels::{CHANNEL_BITS, CHANNELS, Channels};
pub use element::{Arrivals, Arrived, Classes, Hosts, Peer, PortElement};
pub use line::{Departure, Line, Outgoing, Shared};
pub use memory::{Headers, Incoming};
pub use packet::Packet;
pub use tap::{Offload, Tap};
pub use xdp::Xdp;

use lastmeter_base::Duration;
use std::io;
use std::os::fd::BorrowedFd;

/// The longest frame accepted: a jumbo frame of 9,000 bytes, its header and two tags
/// (IEEE 802.1Q-2022 §9). Longer ones are counted as `oversized`.
pub const FRAME_MAX: usize = 9_000 + 14 + 8;
/// The shortest frame: an Ethernet header (IEEE 802.3-2022 §3.2). Shorter ones are `truncated`.
pub const FRAME_MIN: usize = 14;
/// Most frames waiting before they must be sent.
pub const BATCH: usize = 64;

/// A frame that has arrived, in the parts in which the kernel delivers it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The parts of the frame, in order.
    pub parts: [&'a [u8]; 3],
    /// How long it has waited in the kernel, where the kernel reports its arrival time.
    pub age: Option<Duration>,
}

impl Arrival<'_> {
    /// Bytes of the frame.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Counts of frames at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames handed to the graph.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Frames handed to the kernel.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Shorter than [`FRAME_MIN`].
    pub truncated: u64,
    /// Longer than [`FRAME_MAX`] or the port's buffer.
    pub oversized: u64,
    /// An offload header that does not fit its frame.
    pub garbled: u64,
    /// Arrived while the kernel's ring or queue towards us was full: overruns of the emulator.
    pub overrun: u64,
    /// Refused by the kernel because its queue was full: overruns of the emulator.
    pub refused: u64,
    /// Refused because the interface is down or gone.
    pub unreachable: u64,
    /// Failures of the port itself.
    pub failures: u64,
}

impl Counts {
    /// Each count with its name, for reports.
    pub fn each(&self) -> [(&'static str, u64); 11] {
        [
            ("received", self.received),
            ("received_bytes", self.received_bytes),
            ("sent", self.sent),
            ("sent_bytes", self.sent_bytes),
            ("truncated", self.truncated),
            ("oversized", self.oversized),
            ("garbled", self.garbled),
            ("overrun", self.overrun),
            ("refused", self.refused),
            ("unreachable", self.unreachable),
            ("failures", self.failures),
        ]
    }
}

/// Where frames come from and go to.
pub trait Port: Send {
    /// The descriptor a clock waits for: readable when frames have arrived.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Whether frames have arrived, where that can be seen without a system call; else `true`, to try.
    fn ready(&mut self) -> bool;

    /// How many frames have arrived, or whether any has, where the port cannot say.
    fn waiting(&mut self) -> usize {
        usize::from(self.ready())
    }

    /// Hands at most `most` frames to `frame`, oldest first; returns how many it took from the
    /// kernel, good or bad.
    ///
    /// # Errors
    /// When the port itself fails. Bad frames are counted instead.
    fn receive(
        &mut self,
        most: usize,
        counts: &mut Counts,
        frame: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize>;

    /// Sends frames, oldest first; returns how many the kernel has handled, at least one unless it fails.
    /// Refused ones are counted, not retried.
    ///
    /// # Errors
    /// When the port itself fails.
    fn send(&mut self, frames: &[Vec<u8>], counts: &mut Counts) -> io::Result<usize>;

    /// Frames lost on the way to us since the last call.
    fn overruns(&mut self) -> u64;
}

/// Classifies a failed send: `true` if the frame is at fault, and is counted.
fn refused(error: &io::Error, counts: &mut Counts) -> bool {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => counts.refused += 1,
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EIO) => counts.unreachable += 1,
        Some(libc::EMSGSIZE | libc::EINVAL) => counts.oversized += 1,
        _ => return false,
    }
    true
}
