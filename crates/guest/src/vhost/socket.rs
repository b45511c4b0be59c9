//! A socket over which messages and file descriptors come. It never waits.

use super::message::{FDS_MAX, Fault, HEADER, Header, Request, answer};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io;
use std::mem::MaybeUninit;
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
pub struct Socket {
    stream: UnixStream,
    /// What has come of the next message.
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Socket {
    /// On an accepted connection.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(stream: UnixStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        Ok(Socket { stream, bytes: Vec::new(), descriptors: Vec::new() })
    }

    /// The next message, if all of it has come.
    ///
    /// # Errors
    /// The other side has gone, or sends what no message is.
    pub fn receive(&mut self) -> io::Result<Option<Message>> {
        loop {
            let invalid = |fault: Fault| io::Error::new(io::ErrorKind::InvalidData, fault);
            let header = self.bytes.first_chunk::<HEADER>().map(Header::parse);
            let header = header.transpose().map_err(invalid)?;
            let whole = HEADER + header.map_or(0, |header| header.size);
            if let Some(header) = header
                && self.bytes.len() == whole
            {
                let bytes = std::mem::take(&mut self.bytes);
                let descriptors = std::mem::take(&mut self.descriptors);
                let request = Request::parse(header.request, &bytes[HEADER..]);
                let Header { request: number, needs_reply, .. } = header;
                return Ok(Some(Message { request, number, needs_reply, descriptors }));
            }
            if !self.read(whole - self.bytes.len())? {
                return Ok(None);
            }
        }
    }

    /// Reads up to so many bytes; `false` if there are none now.
    fn read(&mut self, most: usize) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; most];
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = match recvmsg(&self.stream, &mut parts, &mut control, flags) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            received => received?.bytes,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.descriptors.len() > FDS_MAX {
            return Err(io::Error::other("more file descriptors than any message has"));
        }
        self.bytes.extend_from_slice(&bytes[..received]);
        Ok(true)
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
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("more file descriptors than any message has"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&self.stream, &[io::IoSlice::new(bytes)], &mut control, flags)? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(io::Error::other("the other side does not read")),
        }
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
