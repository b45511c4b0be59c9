//! What is between the load and the guest: QEMU's own adapter, or one that is described.
//!
//! ```text
//! load == stream ==> QEMU's virtio-net                                holds what the guest does not take
//! load == stream ==> cable --> [ the described adapter: vhost-user ]  drops what finds no buffer, and counts it
//! ```

use crate::device::RECEIVE;
use crate::end::{GuestEnd, PortEnd};
use crate::hub::{End, Hub, Running};
use crate::kit::Network;
use lastmeter_base::Duration;
use lastmeter_host::adapter::description::Description;
use lastmeter_linux::port::{Arrival, Counts, Port};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Where the load's stream of frames goes.
pub(super) enum Far {
    /// To QEMU, which is to connect.
    Qemu(UnixListener),
    /// To an adapter that runs: our end of the stream.
    Adapter(Running, UnixStream),
}

impl Far {
    /// For a guest with this adapter, or QEMU's, at a socket of this name; and what the guest is connected to.
    pub(super) fn new(card: Option<&Description>, socket: &Path) -> io::Result<(Far, Network)> {
        let listener = UnixListener::bind(socket)?;
        let Some(card) = card else {
            return Ok((Far::Qemu(listener), Network::Stream(socket.to_owned())));
        };
        let (ours, theirs) = UnixStream::pair()?;
        let guest = End::Guest(Box::new(GuestEnd::new(listener, card.clone())?));
        let port = End::Port(PortEnd::new(Box::new(Frames::new(theirs)?)));
        let running = Hub::new([guest, port], Duration::ZERO).start(Duration::ZERO)?;
        Ok((Far::Adapter(running, ours), Network::VhostUser(socket.to_owned())))
    }

    /// The stream, once QEMU has been started; and the adapter.
    pub(super) fn connected(self) -> io::Result<(UnixStream, Option<Running>)> {
        match self {
            Far::Qemu(listener) => Ok((listener.accept()?.0, None)),
            Far::Adapter(running, stream) => Ok((stream, Some(running))),
        }
    }
}

/// Frames that an adapter has received and lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Frames in the guest's memory.
    pub received: u64,
    /// Frames that found no buffer on the adapter.
    pub lost: u64,
}

/// Ends an adapter; `None` if its thread has panicked.
pub(super) fn end(running: Running) -> Option<Passed> {
    let hub = running.stop()?;
    let account = hub.ends[0].device()?.account();
    let lost = account.lost[RECEIVE].values().sum();
    Some(Passed { received: account.frames[RECEIVE], lost })
}

/// A longer frame is none of the load's.
const FRAME_MAX: usize = 1 << 16;
/// Bytes read at once.
const READ: usize = 1 << 13;

/// The other end of the load's stream: frames, each after its length.
struct Frames {
    stream: UnixStream,
    received: Vec<u8>,
    /// What of a frame that was sent is not written yet.
    unsent: Vec<u8>,
}

impl Frames {
    fn new(stream: UnixStream) -> io::Result<Frames> {
        stream.set_nonblocking(true)?;
        Ok(Frames { stream, received: Vec::new(), unsent: Vec::new() })
    }

    /// Writes what is left; whether nothing is.
    fn push(&mut self) -> io::Result<bool> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Port for Frames {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn ready(&mut self) -> bool {
        true
    }

    fn receive(
        &mut self,
        most: usize,
        _: &mut Counts,
        frame: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<usize> {
        let mut buffer = [0; READ];
        match self.stream.read(&mut buffer) {
            Ok(len) => self.received.extend_from_slice(&buffer[..len]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        let (mut at, mut taken) = (0, 0);
        while taken < most {
            let Some(head) = self.received[at..].first_chunk::<4>() else { break };
            let len = u32::from_be_bytes(*head) as usize;
            if len > FRAME_MAX {
                return Err(io::Error::other("a frame without end"));
            }
            let Some(whole) = self.received.get(at + 4..at + 4 + len) else { break };
            frame(Arrival { parts: [whole, &[], &[]], age: None });
            (at, taken) = (at + 4 + len, taken + 1);
        }
        self.received.drain(..at);
        Ok(taken)
    }

    fn send(&mut self, frames: &[Vec<u8>], counts: &mut Counts) -> io::Result<usize> {
        for frame in frames {
            if !self.push()? {
                counts.refused += 1;
                continue;
            }
            self.unsent = [&(frame.len() as u32).to_be_bytes()[..], frame].concat();
            self.push()?;
            counts.sent += 1;
            counts.sent_bytes += frame.len() as u64;
        }
        Ok(frames.len())
    }

    fn overruns(&mut self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_pass_both_ways_however_they_are_cut() {
        let (mut load, theirs) = UnixStream::pair().unwrap();
        let (mut port, mut counts) = (Frames::new(theirs).unwrap(), Counts::default());
        let mut found = Vec::new();
        for byte in [0, 0, 0, 2, 7, 8, 0, 0, 0, 1, 9] {
            load.write_all(&[byte]).unwrap();
            let mut keep = |arrival: Arrival<'_>| found.push(arrival.parts.concat());
            port.receive(8, &mut counts, &mut keep).unwrap();
        }
        assert_eq!(found, [vec![7, 8], vec![9]]);
        port.send(&[vec![1], vec![2, 3]], &mut counts).unwrap();
        let mut bytes = [0; 11];
        load.read_exact(&mut bytes).unwrap();
        assert_eq!((bytes, counts.sent), ([0, 0, 0, 1, 1, 0, 0, 0, 2, 2, 3], 2));
        load.write_all(&[0xff; 5]).unwrap();
        assert!(port.receive(8, &mut counts, &mut |_| {}).is_err(), "a frame without end");
    }
}
