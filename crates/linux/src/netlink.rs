//! A minimal netlink client: build a message, send it, read the acknowledgement or the dump.
//!
//! Used to make links (`NETLINK_ROUTE`) and to inspect other programs' sockets
//! (`NETLINK_SOCK_DIAG`). Formats: RFC 3549 §2.3, `linux/netlink.h`, `linux/rtnetlink.h`.

use crate::error::{Doing, Error, Result};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// A dump's reply comes in parts of at most this size; the kernel never sends more than 32 KiB.
const RECEIVE_BUFFER: usize = 64 * 1024;
/// Bytes of reports that may wait between two readings.
const EVENTS_BUFFER: i32 = 8 << 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 0x1;
/// `NLM_F_ACK`.
const ACK: u16 = 0x4;
/// `NLM_F_ROOT | NLM_F_MATCH`.
const DUMP: u16 = 0x300;
/// `NLM_F_EXCL | NLM_F_CREATE`.
pub(crate) const CREATE: u16 = 0x600;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// A message that is being built: header, fixed part, attributes.
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message of `kind`; `flags` beyond request and acknowledgement, such as `NLM_F_CREATE`.
    pub fn new(kind: u16, flags: u16) -> Message {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        Message { bytes }
    }

    /// Appends the fixed part, which keeps the message aligned to four bytes.
    pub fn fixed(mut self, part: &[u8]) -> Message {
        self.bytes.extend_from_slice(part);
        self.pad();
        self
    }

    /// Appends one attribute.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        self.push_attribute(kind, value);
        self
    }

    /// Appends an attribute with what `inside` appends.
    pub fn nested(mut self, kind: u16, inside: impl FnOnce(Message) -> Message) -> Message {
        let at = self.bytes.len();
        self.push_attribute(kind, &[]);
        self = inside(self);
        let len = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&len.to_ne_bytes());
        self
    }

    fn push_attribute(&mut self, kind: u16, value: &[u8]) {
        let len = (4 + value.len()) as u16;
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(crate) fn finish(mut self, flags: u16, sequence: u32) -> Vec<u8> {
        let flags = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | flags;
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        let len = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// An open netlink socket of the calling thread's network namespace.
pub struct Netlink {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// `netlink::ROUTE` or `netlink::SOCK_DIAG`.
    pub fn open(protocol: Option<Protocol>) -> Result<Netlink> {
        let fd =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
                .doing("opening a netlink socket")?;
        Ok(Netlink { fd, sequence: 0, buffer: vec![0; RECEIVE_BUFFER] })
    }

    /// For links and addresses.
    pub fn route() -> Result<Netlink> {
        Netlink::open(None) // `NETLINK_ROUTE` is zero, the default
    }

    /// One that receives what the kernel multicasts to these groups, a bit each.
    pub fn subscribe(protocol: Protocol, groups: u32) -> Result<Netlink> {
        let netlink = Netlink::open(Some(protocol))?;
        let what = "subscribing to the kernel's reports";
        // The kernel grants what it may; too little shows as lost reports.
        for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
            let _ =
                crate::sys::set_option(netlink.fd.as_fd(), libc::SOL_SOCKET, option, EVENTS_BUFFER);
        }
        rustix::net::bind(&netlink.fd, &SocketAddrNetlink::new(0, groups)).doing(what)?;
        Ok(netlink)
    }

    /// Hands the payload of each report that waits to `each`; how often reports were lost.
    pub fn events(&mut self, mut each: impl FnMut(&[u8])) -> u64 {
        let mut lost = 0;
        loop {
            let len = match recv(&self.fd, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((len, _)) => len,
                Err(rustix::io::Errno::NOBUFS) => {
                    lost += 1;
                    continue;
                }
                Err(_) => return lost,
            };
            let mut rest = &self.buffer[..len];
            while let Some(length) = rest.first_chunk::<4>().filter(|_| rest.len() >= HEADER) {
                let total = (u32::from_ne_bytes(*length) as usize).clamp(HEADER, rest.len());
                each(&rest[HEADER..total]);
                rest = &rest[total.next_multiple_of(4).min(rest.len())..];
            }
        }
    }

    /// Sends `message` and waits for the kernel's acknowledgement.
    pub fn change(&mut self, message: Message, what: &str) -> Result<()> {
        self.exchange(message, ACK, what, |_| ())
    }

    /// Sends `message` and hands the payload of each reply to `each`, until the acknowledgement.
    pub fn ask(&mut self, message: Message, what: &str, each: impl FnMut(&[u8])) -> Result<()> {
        self.exchange(message, ACK, what, each)
    }

    /// Sends `message` as a dump request and hands the payload of each reply to `each`.
    pub fn dump(&mut self, message: Message, what: &str, each: impl FnMut(&[u8])) -> Result<()> {
        self.exchange(message, DUMP, what, each)
    }

    fn exchange(
        &mut self,
        message: Message,
        flags: u16,
        what: &str,
        mut each: impl FnMut(&[u8]),
    ) -> Result<()> {
        self.sequence += 1;
        let bytes = message.finish(flags, self.sequence);
        send(&self.fd, &bytes, SendFlags::empty()).doing(|| what.to_owned())?;
        loop {
            let (len, _) = recv(&self.fd, &mut self.buffer[..], RecvFlags::empty())
                .doing(|| what.to_owned())?;
            let mut rest = &self.buffer[..len];
            while rest.len() >= HEADER {
                let word = |at: usize| {
                    u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]])
                };
                let total = (word(0) as usize).clamp(HEADER, rest.len());
                let kind = u16::from_ne_bytes([rest[4], rest[5]]);
                let payload = &rest[HEADER..total];
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return acknowledged(payload, what),
                    _ if word(8) == self.sequence => each(payload),
                    // A reply to an earlier request that was given up.
                    _ => {}
                }
                rest = &rest[total.next_multiple_of(4).min(rest.len())..];
            }
        }
    }
}

fn acknowledged(payload: &[u8], what: &str) -> Result<()> {
    let code = payload.first_chunk::<4>().map_or(-libc::EPROTO, |b| i32::from_ne_bytes(*b));
    if code == 0 {
        return Ok(());
    }
    let source = std::io::Error::from_raw_os_error(-code);
    Err(Error::System { doing: what.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_wire::netlink::attributes;

    #[test]
    fn nests_and_pads_attributes() {
        let bytes = Message::new(16, CREATE)
            .fixed(&[0; 16])
            .attribute(3, b"a\0")
            .nested(18, |m| m.attribute(1, b"veth"))
            .finish(ACK, 7);
        assert_eq!(bytes.len(), 16 + 16 + 8 + 4 + 8);
        let mut seen = Vec::new();
        attributes(&bytes[32..], |kind, value| seen.push((kind, value.to_vec())));
        assert_eq!(seen[0], (3, b"a\0".to_vec()));
        assert_eq!(seen[1].0, 18);
        attributes(&seen[1].1.clone(), |kind, value| seen.push((kind, value.to_vec())));
        assert_eq!(seen[2], (1, b"veth".to_vec()));
    }
}
