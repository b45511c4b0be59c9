//! Several datagrams with one system call: those that leave are segments of a long one, which the kernel cuts at the
//! last moment (`UDP_SEGMENT`); those that came together arrive as one (`UDP_GRO`).
//!
//! On the loopback interface nothing is cut in between: sixteen datagrams pass the kernel as one.
#![allow(unsafe_code)]

use crate::sys::set_option;
use std::io::{self, IoSlice};
use std::mem::{size_of_val, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The most datagrams of one call.
pub const TOGETHER_MAX: usize = 64;
/// The most bytes of all of them: what a datagram of IPv4 has room for.
pub const BYTES_MAX: usize = 65_507;

/// The level of UDP's options, and two of them (`linux/udp.h`).
const UDP: i32 = 17;
const SEGMENT: i32 = 103;
const GRO: i32 = 104;
/// Bytes of a control message before its data, for the kernel of a machine of 64 bits.
const CONTROL_HEAD: usize = 16;
/// Words of room for control messages.
const CONTROL_WORDS: usize = 8;
/// Bytes of an address, the longer of both kinds.
const NAME_LEN: usize = 28;

/// An address, as the kernel has it.
#[repr(C, align(8))]
struct Name([u8; NAME_LEN]);

impl Name {
    /// With its length.
    fn of(address: &SocketAddr) -> (Name, libc::socklen_t) {
        let mut bytes = [0; NAME_LEN];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let (family, len) = match address {
            SocketAddr::V4(own) => {
                bytes[4..8].copy_from_slice(&own.ip().octets());
                (libc::AF_INET, 16)
            }
            SocketAddr::V6(own) => {
                bytes[4..8].copy_from_slice(&own.flowinfo().to_ne_bytes());
                bytes[8..24].copy_from_slice(&own.ip().octets());
                bytes[24..28].copy_from_slice(&own.scope_id().to_ne_bytes());
                (libc::AF_INET6, NAME_LEN as libc::socklen_t)
            }
        };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        (Name(bytes), len)
    }
    fn address(&self) -> Option<SocketAddr> {
        let [f0, f1, p0, p1, rest @ ..] = self.0;
        let (family, port) = (u16::from_ne_bytes([f0, f1]), u16::from_be_bytes([p0, p1]));
        let word = |at: usize| [rest[at], rest[at + 1], rest[at + 2], rest[at + 3]];
        match i32::from(family) {
            libc::AF_INET => Some(SocketAddrV4::new(Ipv4Addr::from(word(0)), port).into()),
            libc::AF_INET6 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&rest[4..20]);
                let (flow, scope) = (u32::from_ne_bytes(word(0)), u32::from_ne_bytes(word(20)));
                Some(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope).into())
            }
            _ => None,
        }
    }
}

/// Has a socket take datagrams that come together as one.
///
/// # Errors
/// If the kernel cannot; then it gives one after another, and nothing else changes.
pub fn take_together(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, UDP, GRO, 1)
}

/// What a call received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes.
    pub len: usize,
    /// Bytes of each datagram; the last one may be shorter.
    pub segment: usize,
    /// The sender.
    pub from: Option<SocketAddr>,
}

/// Receives a datagram, or several of one sender; if there is none, waits for it or not.
///
/// # Errors
/// `WouldBlock` if there is none, or the socket's own.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> io::Result<Received> {
    let (mut name, mut control) = (Name([0; NAME_LEN]), [0u64; CONTROL_WORDS]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: `msghdr` is plain data for which all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = NAME_LEN as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: all pointers of the message are to live values of the lengths that it states.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    let told = (message.msg_controllen as usize).min(size_of_val(&control));
    let segment = segment(&control, told).filter(|segment| *segment > 0).unwrap_or(len);
    Ok(Received { len, segment, from: name.address() })
}

/// The length of a datagram, among control messages of so many bytes.
fn segment(control: &[u64; CONTROL_WORDS], told: usize) -> Option<usize> {
    let mut at = 0;
    while (at + 2) * 8 < told {
        let (len, kind) = (usize::try_from(control[at]).ok()?, control[at + 1].to_ne_bytes());
        let [l0, l1, l2, l3, k0, k1, k2, k3] = kind;
        let kind = [[l0, l1, l2, l3], [k0, k1, k2, k3]].map(i32::from_ne_bytes);
        if kind == [UDP, GRO] {
            let [d0, d1, d2, d3, ..] = control[at + 2].to_ne_bytes();
            return usize::try_from(i32::from_ne_bytes([d0, d1, d2, d3])).ok();
        }
        at += len.max(CONTROL_HEAD).div_ceil(8);
    }
    None
}

/// Sends datagrams, all of `segment` bytes but the last, which may be shorter; at most [`TOGETHER_MAX`] with at most
/// [`BYTES_MAX`] bytes. Without an address they go where the socket is connected to.
///
/// # Errors
/// If a datagram of this length would not leave the interface in one piece, or the socket's own. Nothing was sent.
pub fn send(
    socket: BorrowedFd<'_>,
    datagrams: &[IoSlice<'_>],
    segment: u16,
    to: Option<&SocketAddr>,
) -> io::Result<()> {
    let mut name = to.map(Name::of);
    let [s0, s1] = segment.to_ne_bytes();
    let ([u0, u1, u2, u3], [k0, k1, k2, k3]) = (UDP.to_ne_bytes(), SEGMENT.to_ne_bytes());
    let kind = u64::from_ne_bytes([u0, u1, u2, u3, k0, k1, k2, k3]);
    let mut control =
        [CONTROL_HEAD as u64 + 2, kind, u64::from_ne_bytes([s0, s1, 0, 0, 0, 0, 0, 0])];
    // SAFETY: `msghdr` is plain data for which all-zero is a valid value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    if let Some((name, len)) = &mut name {
        message.msg_name = (&raw mut *name).cast();
        message.msg_namelen = *len;
    }
    // An `IoSlice` is an `iovec`, and the kernel only reads what it points at.
    message.msg_iov = datagrams.as_ptr().cast_mut().cast();
    message.msg_iovlen = datagrams.len() as _;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: all pointers of the message are to live values of the lengths that it states.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    fn pair(host: &str) -> Option<(UdpSocket, UdpSocket)> {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind((host, 0)).ok());
        let (one, other) = (one?, other?);
        other.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        Some((one, other))
    }

    #[test]
    fn datagrams_sent_together_arrive_as_they_were_sent() {
        for host in ["127.0.0.1", "::1"] {
            let Some((one, other)) = pair(host) else { continue };
            let to = other.local_addr().expect("an address");
            let all: Vec<Vec<u8>> =
                (0..5u8).map(|at| vec![at; if at < 4 { 40 } else { 7 }]).collect();
            let parts: Vec<IoSlice<'_>> = all.iter().map(|data| IoSlice::new(data)).collect();
            let mut buffer = [0; 65_536];
            send(one.as_fd(), &parts, 40, Some(&to)).expect("sent");
            for data in &all {
                let got = receive(other.as_fd(), &mut buffer, true).expect("received");
                assert_eq!((&buffer[..got.len], got.segment), (&data[..], data.len()));
                assert_eq!(got.from, one.local_addr().ok());
            }
            take_together(other.as_fd()).expect("this kernel can");
            one.connect(to).expect("connected");
            send(one.as_fd(), &parts, 40, None).expect("sent");
            let got = receive(other.as_fd(), &mut buffer, true).expect("received");
            assert_eq!((got.len, got.segment), (167, 40));
            assert_eq!(&buffer[..got.len], all.concat());
            let none = receive(other.as_fd(), &mut buffer, false).expect_err("nothing more");
            assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
            // A single one, as long as there can be.
            let long = vec![9; 65_000];
            send(one.as_fd(), &[IoSlice::new(&long)], 65_000, None).expect("sent");
            let got = receive(other.as_fd(), &mut buffer, true).expect("received");
            assert_eq!((got.len, got.segment), (65_000, 65_000));
        }
    }

    proptest! {
        #[test]
        fn an_address_is_read_as_it_was_written(v4: [u8; 4], v6: [u8; 16], port: u16, more: [u32; 2]) {
            let [flow, scope] = more;
            let four = SocketAddr::from(SocketAddrV4::new(v4.into(), port));
            let six = SocketAddr::from(SocketAddrV6::new(v6.into(), port, flow, scope));
            for address in [four, six] {
                prop_assert_eq!(Name::of(&address).0.address(), Some(address));
            }
        }
    }
}
