//! Messages between the program and its helper processes: JSON prefixed by its length.
//!
//! ```text
//! | length, u32 little endian | JSON |
//! ```

use lastmeter_linux::Error;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The longest message: a minute of samples of eight threads stays well below it.
const MESSAGE_MAX: usize = 64 << 20;

/// Sends `message`.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message).map_err(io::Error::other)?;
    assert!(json.len() <= MESSAGE_MAX, "a message of {} bytes", json.len());
    to.write_all(&(json.len() as u32).to_le_bytes())?;
    to.write_all(&json)
}

/// Receives a message; `None` when the other side is gone.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_MAX {
        return Err(io::Error::other(format!(
            "a message of {length} bytes; at most {MESSAGE_MAX}"
        )));
    }
    let mut json = vec![0; length];
    from.read_exact(&mut json)?;
    serde_json::from_slice(&json).map(Some).map_err(io::Error::other)
}

/// Sends a descriptor, with one byte of data as the kernel requires (unix(7)).
pub(crate) fn send_descriptor(to: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "there is room for one");
    sendmsg(to, &[io::IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a descriptor.
pub(crate) fn receive_descriptor(from: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    recvmsg(from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut found = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    found.next().ok_or_else(|| io::Error::other("the message carries no descriptor"))
}

/// An unexpected reply to the request to `doing`, as an error.
pub(crate) fn instead(doing: &str, found: impl std::fmt::Debug) -> Error {
    Error::Worker { doing: doing.to_owned(), found: format!("{found:?}") }
}
