//! A Unix socket over which messages come that say their length, with file descriptors. It never waits.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::error::Error;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Most descriptors with a message.
pub const FDS_MAX: usize = 8;

/// One side of a connection.
#[derive(Debug)]
pub struct Stream {
    stream: UnixStream,
    /// What has come of the next message.
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Stream {
    /// On an accepted connection.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(stream: UnixStream) -> io::Result<Stream> {
        stream.set_nonblocking(true)?;
        Ok(Stream { stream, bytes: Vec::new(), descriptors: Vec::new() })
    }

    /// The next message and what came with it, if all of it has come. `length` reads its header: how long the payload
    /// is.
    ///
    /// # Errors
    /// The other side has gone, or sends what no message is.
    pub fn receive<const HEADER: usize, E: Error + Send + Sync + 'static>(
        &mut self,
        length: impl Fn(&[u8; HEADER]) -> Result<usize, E>,
    ) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
        loop {
            let invalid = |fault| io::Error::new(io::ErrorKind::InvalidData, fault);
            let payload = self.bytes.first_chunk().map(&length).transpose().map_err(invalid)?;
            let whole = HEADER + payload.unwrap_or_default();
            if payload.is_some() && self.bytes.len() == whole {
                let descriptors = std::mem::take(&mut self.descriptors);
                return Ok(Some((std::mem::take(&mut self.bytes), descriptors)));
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
