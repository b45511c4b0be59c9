//! A socket over which messages and file descriptors come. It never waits.

use super::message::{Fault, HEADER, Header, Request};
use crate::socket::Stream;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A message that has come whole.
#[derive(Debug)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// What it says.
    pub payload: Vec<u8>,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
}

impl Message {
    /// The request that it is.
    ///
    /// # Errors
    /// It is none.
    pub fn request(&self) -> Result<Request, Fault> {
        if self.header.is_reply {
            return Err(Fault::Flags(1));
        }
        Request::parse(self.header.command, &self.payload)
    }
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
        let Some((mut bytes, descriptors)) = self.0.receive(length)? else { return Ok(None) };
        let header = bytes.first_chunk().map(Header::parse).transpose();
        let header = header.map_err(|fault| io::Error::new(io::ErrorKind::InvalidData, fault))?;
        let payload = bytes.split_off(HEADER);
        Ok(header.map(|header| Message { header, payload, descriptors }))
    }

    /// Answers a message: the payload, or the number of an error.
    ///
    /// # Errors
    /// The other side has gone, or does not read.
    pub fn reply(&self, to: &Header, answer: Result<&[u8], u32>) -> io::Result<()> {
        let (payload, error) = match answer {
            Ok(payload) => (payload, None),
            Err(number) => (&[][..], Some(number)),
        };
        let size = payload.len();
        let header = Header { size, is_reply: true, no_reply: false, error, ..*to };
        self.0.send(&[&header.emit()[..], payload].concat(), &[])
    }

    /// Sends a request, as QEMU does.
    ///
    /// # Errors
    /// The other side has gone, or does not read.
    pub fn ask(&self, id: u16, request: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (command, payload) = request.emit();
        let size = payload.len();
        let header = Header { id, command, size, is_reply: false, no_reply: false, error: None };
        self.0.send(&[&header.emit()[..], &payload].concat(), fds)
    }

    /// Sends bytes, all at once or not.
    ///
    /// # Errors
    /// The other side has gone, or does not read.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.send(bytes, &[])
    }
}
