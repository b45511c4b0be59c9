//! A socket over which messages and file descriptors come. It never waits.

use super::message::{Fault, HEADER, Header, Request, answer};
use crate::socket::Stream;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A message that has come whole.
#[derive(Debug)]
pub struct Message {
    /// What it says.
    pub request: Result<Request, Fault>,
    /// Its number.
    pub number: u32,
    /// Whether a reply is wanted in any case.
    pub needs_reply: bool,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// One side of a session.
#[derive(Debug)]
pub struct Socket(Stream);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// On an accepted connection.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(stream: UnixStream) -> io::Result<Socket> {
        Stream::new(stream).map(Socket)
    }

    /// The next message, if all of it has come.
    ///
    /// # Errors
    /// The other side has gone, or sends what no message is.
    pub fn receive(&mut self) -> io::Result<Option<Message>> {
        let length = |bytes: &[u8; HEADER]| Header::parse(bytes).map(|header| header.size);
        let Some((bytes, descriptors)) = self.0.receive(length)? else { return Ok(None) };
        let header = bytes.first_chunk().map(Header::parse).transpose();
        let header = header.map_err(|fault| io::Error::new(io::ErrorKind::InvalidData, fault))?;
        Ok(header.map(|header| {
            let request = Request::parse(header.request, &bytes[HEADER..]);
            let Header { request: number, needs_reply, .. } = header;
            Message { request, number, needs_reply, descriptors }
        }))
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// The other side has gone, or does not read.
    pub fn reply(&self, request: u32, payload: &[u8]) -> io::Result<()> {
        self.send(&answer(request, payload), &[])
    }

    /// Sends a request, as QEMU does.
    ///
    /// # Errors
    /// The other side has gone, or does not read.
    pub fn ask(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (request, payload) = request.emit();
        let header = Header { request, needs_reply: false, size: payload.len() };
        self.send(&[&header.emit(false)[..], &payload].concat(), fds)
    }

    /// Sends bytes, all at once or not.
    ///
    /// # Errors
    /// The other side has gone, or does not read.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.0.send(bytes, fds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::io::Write;

    #[test]
    fn a_message_comes_whole_with_its_descriptors_however_it_is_cut() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut socket = Socket::new(ours).unwrap();
        let (number, payload) = Request::SetFeatures(7).emit();
        let header = Header { request: number, needs_reply: true, size: payload.len() };
        for byte in [&header.emit(false)[..], &payload].concat() {
            assert!(socket.receive().unwrap().is_none());
            theirs.write_all(&[byte]).unwrap();
        }
        let message = socket.receive().unwrap().unwrap();
        assert_eq!((message.request, message.needs_reply), (Ok(Request::SetFeatures(7)), true));
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        let peer = Socket::new(theirs).unwrap();
        peer.ask(&Request::SetKick(1, true), &[event.as_fd()]).unwrap();
        peer.ask(&Request::SetOwner, &[]).unwrap();
        let kick = socket.receive().unwrap().unwrap();
        assert_eq!((kick.request, kick.descriptors.len()), (Ok(Request::SetKick(1, true)), 1));
        let owner = socket.receive().unwrap().unwrap();
        assert_eq!((owner.request, owner.descriptors.len()), (Ok(Request::SetOwner), 0));
        drop(peer);
        assert!(socket.receive().is_err(), "the other side has gone");
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[0xff; 64]).unwrap();
        assert!(Socket::new(ours).unwrap().receive().is_err());
    }
}
