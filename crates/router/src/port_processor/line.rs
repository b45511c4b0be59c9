//! What a port is attached to: an interface, or a null device, which has packets whenever it is asked, and takes all.

use lastmeter_linux::dataplane::{Frame, Frames, Lost, Socket};
use std::os::fd::BorrowedFd;

/// An interface, or none.
#[allow(
    clippy::large_enum_variant,
    reason = "a router has few, and each packet would follow a pointer"
)]
pub enum Line {
    /// An interface of the kernel.
    Socket(Socket),
    /// A null device.
    Null(Null),
}

/// A device without hardware: the frames that it is given, again and again.
pub struct Null {
    arriving: Vec<Vec<u8>>,
    next: usize,
    /// Frames that have departed, and are free with the next call.
    sent: Vec<Frame>,
    /// The last bytes of the Ethernet and the IPv4 destination of each packet that has departed.
    #[cfg(test)]
    pub(super) departed: Vec<(u8, u8)>,
    /// What a program at the port says of all frames that arrive.
    #[cfg(test)]
    pub(super) hint: u32,
    /// Frames that have departed, where they are kept.
    #[cfg(test)]
    pub(super) kept: Option<Vec<Vec<u8>>>,
}

impl Null {
    /// Frames that arrive; none, if packets only leave here.
    pub fn new(arriving: Vec<Vec<u8>>) -> Null {
        Null {
            arriving,
            next: 0,
            sent: Vec::new(),
            #[cfg(test)]
            departed: Vec::new(),
            #[cfg(test)]
            hint: 0,
            #[cfg(test)]
            kept: None,
        }
    }
    fn receive(&mut self, most: usize, frames: &mut Frames, out: &mut Vec<Frame>) -> usize {
        if self.arriving.is_empty() {
            return 0;
        }
        for taken in 0..most {
            let Some(frame) = frames.make(&self.arriving[self.next]) else { return taken };
            #[cfg(test)]
            frames.set_hint(frame, self.hint);
            out.push(frame);
            self.next = if self.next + 1 < self.arriving.len() { self.next + 1 } else { 0 };
        }
        most
    }
}

/// Frames that a null device takes before it has sent them.
const ROOM: usize = 2048;

impl Line {
    /// As [`Socket::fd`].
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Line::Socket(socket) => Some(socket.fd()),
            Line::Null(_) => None,
        }
    }
    /// As [`Socket::receive`].
    #[inline]
    pub(super) fn receive(
        &mut self,
        most: usize,
        frames: &mut Frames,
        out: &mut Vec<Frame>,
    ) -> usize {
        match self {
            Line::Socket(socket) => socket.receive(most, frames, out),
            Line::Null(null) => null.receive(most, frames, out),
        }
    }
    /// As [`Socket::reclaim`].
    #[inline]
    pub(super) fn reclaim(&mut self, frames: &mut Frames) {
        match self {
            Line::Socket(socket) => socket.reclaim(frames),
            Line::Null(null) => {
                for frame in null.sent.drain(..) {
                    #[cfg(test)]
                    null.departed.push((frames.bytes(frame)[5], frames.bytes(frame)[33]));
                    #[cfg(test)]
                    if let Some(kept) = &mut null.kept {
                        kept.push(frames.bytes(frame).to_vec());
                    }
                    frames.free(frame);
                }
            }
        }
    }
    /// As [`Socket::room`].
    pub(super) fn room(&mut self) -> usize {
        match self {
            Line::Socket(socket) => socket.room(),
            Line::Null(null) => ROOM - null.sent.len(),
        }
    }
    /// As [`Socket::waiting`].
    pub(super) fn waiting(&self) -> usize {
        match self {
            Line::Socket(socket) => socket.waiting(),
            Line::Null(null) => null.sent.len(),
        }
    }
    /// As [`Socket::put`].
    #[inline]
    pub(super) fn put(&mut self, frame: Frame) {
        match self {
            Line::Socket(socket) => socket.put(frame),
            Line::Null(null) => null.sent.push(frame),
        }
    }
    /// As [`Socket::flush`].
    ///
    /// # Errors
    /// When the socket itself fails.
    pub(super) fn flush(&mut self) -> std::io::Result<bool> {
        match self {
            Line::Socket(socket) => socket.flush(),
            Line::Null(_) => Ok(true),
        }
    }
    /// As [`Socket::lost`].
    pub(super) fn lost(&self) -> Lost {
        match self {
            Line::Socket(socket) => socket.lost(),
            Line::Null(_) => Lost::default(),
        }
    }
}
