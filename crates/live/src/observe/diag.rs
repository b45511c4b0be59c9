//! The kernel's socket diagnostics: every TCP connection of this network namespace with its
//! `TCP_INFO`. Formats: `linux/inet_diag.h`, sock_diag(7).

use crate::error::Result;
use crate::netlink::{Message, Netlink, attributes};
use crate::tcp_info::TcpInfo;
use rustix::net::netlink as protocols;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO`, as an attribute and as a bit of the request.
const INFO: u16 = 2;
const INFO_BIT: u8 = 1 << (INFO - 1);
/// Every state except LISTEN, TIME_WAIT and CLOSE: connections that carry or just carried data.
const STATES: u32 = 0xfff & !((1 << 10) | (1 << 6) | (1 << 7));
/// Bytes of `struct inet_diag_msg`.
const ANSWER: usize = 72;

/// A connection as the kernel sees it.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) inode: u32,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Bytes received that the application has not read.
    pub(super) receive_queue: u32,
    pub(super) tcp: TcpInfo,
}

/// The diagnostics socket.
pub(super) struct Diagnostics(Netlink);

impl Diagnostics {
    pub(super) fn open() -> Result<Diagnostics> {
        Netlink::open(Some(protocols::SOCK_DIAG)).map(Diagnostics)
    }

    /// Hands every TCP connection to `each`.
    pub(super) fn look(&mut self, mut each: impl FnMut(Connection)) -> Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut request = [0u8; 56];
            request[0] = family as u8;
            request[1] = libc::IPPROTO_TCP as u8;
            request[2] = INFO_BIT;
            request[4..8].copy_from_slice(&STATES.to_ne_bytes());
            let message = Message::new(SOCK_DIAG_BY_FAMILY, 0).fixed(&request);
            self.0.dump(message, "listing TCP connections", |answer| {
                // A reply without TCP_INFO is a connection that has just closed.
                parse(answer).into_iter().for_each(&mut each);
            })?;
        }
        Ok(())
    }
}

fn parse(answer: &[u8]) -> Option<Connection> {
    if answer.len() < ANSWER {
        return None;
    }
    let word = |at: usize| {
        u32::from_ne_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]])
    };
    let port = |at: usize| u16::from_be_bytes([answer[at], answer[at + 1]]);
    let address = |at: usize| -> IpAddr {
        if i32::from(answer[0]) == libc::AF_INET {
            Ipv4Addr::new(answer[at], answer[at + 1], answer[at + 2], answer[at + 3]).into()
        } else {
            let bytes: [u8; 16] = std::array::from_fn(|i| answer[at + i]);
            Ipv6Addr::from(bytes).into()
        }
    };
    let mut tcp = None;
    attributes(&answer[ANSWER..], |kind, value| {
        if kind == INFO {
            tcp = Some(TcpInfo::parse(value));
        }
    });
    Some(Connection {
        inode: word(68),
        local: SocketAddr::new(address(8), port(4)),
        remote: SocketAddr::new(address(24), port(6)),
        receive_queue: word(56),
        tcp: tcp?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_reply_and_skips_a_truncated_one() {
        let mut answer = vec![0u8; ANSWER];
        answer[0] = libc::AF_INET as u8;
        answer[4..6].copy_from_slice(&443u16.to_be_bytes());
        answer[8..12].copy_from_slice(&[10, 0, 0, 1]);
        answer[68..72].copy_from_slice(&7u32.to_ne_bytes());
        assert!(parse(&answer).is_none(), "no TCP_INFO");
        answer.extend([8, 0, 2, 0, 0, 0, 0, 0]);
        let connection = parse(&answer).unwrap();
        assert_eq!(connection.inode, 7);
        assert_eq!(connection.local.to_string(), "10.0.0.1:443");
        assert!(parse(&answer[..40]).is_none());
    }
}
