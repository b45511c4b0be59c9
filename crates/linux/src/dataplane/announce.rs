//! Frames of one kind on one interface, beside whatever else uses it: for protocols between neighbours.

use crate::sys::{packet_socket_of, set_words};
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A socket for the frames of one type on an interface.
#[derive(Debug)]
pub struct Announcer {
    fd: OwnedFd,
}

impl Announcer {
    /// For frames with this type of payload that are sent to `group` on the interface of this number.
    ///
    /// # Errors
    /// When the kernel refuses: it takes root.
    pub fn open(index: u32, ethertype: u16, group: [u8; 6]) -> io::Result<Announcer> {
        const SOL_PACKET: i32 = 263;
        const PACKET_ADD_MEMBERSHIP: i32 = 1;
        const MULTICAST: [u8; 2] = 0u16.to_ne_bytes();
        const ADDRESS_LEN: [u8; 2] = 6u16.to_ne_bytes();
        let fd = packet_socket_of(index, ethertype)?;
        // `struct packet_mreq`: interface, kind, length of the address, eight bytes for it.
        let word = |bytes: [u8; 4]| u32::from_ne_bytes(bytes);
        let ([x, y], [z, w]) = (MULTICAST, ADDRESS_LEN);
        let [a, b, c, d, e, f] = group;
        let request = [index, word([x, y, z, w]), word([a, b, c, d]), word([e, f, 0, 0])];
        set_words(fd.as_fd(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request)?;
        Ok(Announcer { fd })
    }
    /// Sends a frame.
    ///
    /// # Errors
    /// When the interface is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.fd, frame, SendFlags::DONTWAIT).map(drop)?;
        Ok(())
    }
    /// The next frame that has arrived, without waiting: its length, of which as much is in `room` as fits.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::net::recv(&self.fd, room, RecvFlags::DONTWAIT) {
            Ok((len, _)) => Ok(Some(len)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
