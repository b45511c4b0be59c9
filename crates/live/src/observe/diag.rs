//! The kernel's socket diagnostics: every TCP connection of this network namespace with its
//! `TCP_INFO`. Formats: `linux/inet_diag.h`, sock_diag(7).

use lastmeter_linux::netlink::{Message, Netlink};
use lastmeter_linux::tcp_info::TcpInfo;
use lastmeter_linux::{Doing, Result};
use lastmeter_wire::netlink::attributes;
use rustix::net::netlink as protocols;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO`, as an attribute and as a bit of the request.
const INFO: u16 = 2;
const INFO_BIT: u8 = 1 << (INFO - 1);
/// `INET_DIAG_SKMEMINFO`: memory that the socket uses, and its limits.
const MEMORY: u16 = 7;
/// `SK_MEMINFO_DROPS`, a word of it.
const DROPS: usize = 8;
const MEMORY_BIT: u8 = 1 << (MEMORY - 1);
/// `INET_DIAG_VEGASINFO`, the bit that asks for the state of any congestion control, and
/// `INET_DIAG_BBRINFO`, the attribute that BBR answers with.
const CONTROL_BIT: u8 = 1 << (3 - 1);
const BBR: u16 = 16;
/// What is asked of a TCP connection.
const EXTENSIONS: u8 = INFO_BIT | MEMORY_BIT | CONTROL_BIT;
/// Every state except LISTEN, TIME_WAIT and CLOSE: connections that carry or just carried data.
const STATES: u32 = 0xfff & !((1 << 10) | (1 << 6) | (1 << 7));
/// A UDP socket is in the state of an established connection when it has a peer, else in that of a closed one.
const DATAGRAM_STATES: u32 = 1 << 1 | 1 << 7;
/// `TCP_SYN_SENT`.
const SYN_SENT: u8 = 2;
/// Bytes of `struct inet_diag_msg`.
const ANSWER: usize = 72;

/// What identifies a connection to the kernel: `struct inet_diag_sockid` and its version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) family: u8,
    pub(super) bytes: [u8; 48],
}

/// A connection as the kernel sees it.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) id: Id,
    pub(super) inode: u32,
    /// The TCP handshake is not over.
    pub(super) connecting: bool,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Bytes received that the application has not read.
    pub(super) receive_queue: u32,
    pub(super) tcp: TcpInfo,
    pub(super) memory: Memory,
    /// Bits per second that BBR takes the path to carry; `None` under another congestion control.
    pub(super) bbr_rate: Option<f64>,
}

/// `SK_MEMINFO`, in bytes of memory, which is more than the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// Received and not read.
    pub(super) receive: u32,
    /// `SO_RCVBUF`, or what the kernel made of it.
    pub(super) receive_max: u32,
    /// To be sent or not acknowledged.
    pub(super) send: u32,
    /// `SO_SNDBUF`, or what the kernel made of it.
    pub(super) send_max: u32,
}

impl Memory {
    fn parse(bytes: &[u8]) -> Memory {
        let word = |index: usize| {
            let at = bytes.get(4 * index..).and_then(|b| b.first_chunk::<4>());
            at.map_or(0, |b| u32::from_ne_bytes(*b))
        };
        Memory { receive: word(0), receive_max: word(1), send: word(5), send_max: word(3) }
    }
}

/// A UDP socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Datagrams {
    pub(super) inode: u32,
    pub(super) local_port: u16,
    /// 0 without a peer.
    pub(super) remote_port: u16,
    pub(super) memory: Memory,
    /// Datagrams that found its buffer full, since it was opened (`SK_MEMINFO_DROPS`).
    pub(super) drops: u32,
}

/// The sockets that read from one network namespace.
pub(super) struct Diagnostics {
    sockets: Netlink,
    /// For its queueing disciplines.
    pub(super) route: Option<Netlink>,
}

impl Diagnostics {
    pub(super) fn open() -> Result<Diagnostics> {
        let sockets = Netlink::open(Some(protocols::SOCK_DIAG))?;
        Ok(Diagnostics { sockets, route: Netlink::route().ok() })
    }

    /// Those of the network namespace in which process `pid` is. A socket stays in the namespace in
    /// which it was opened, so a thread enters it, opens the socket, and ends.
    pub(super) fn open_in(pid: u32) -> Result<Diagnostics> {
        within(pid, Diagnostics::open)
    }

    /// Hands every TCP connection to `each`.
    pub(super) fn list(&mut self, mut each: impl FnMut(Connection)) -> Result<()> {
        self.dump(libc::IPPROTO_TCP, EXTENSIONS, STATES, |answer| {
            // A reply without TCP_INFO is a connection that has just closed.
            parse(answer).into_iter().for_each(&mut each);
        })
    }

    /// Hands these TCP connections to `each`; returns those that no longer are there.
    pub(super) fn ask(&mut self, ids: &[Id], mut each: impl FnMut(Connection)) -> Vec<Id> {
        let mut one = |id: &Id| {
            let mut request = request(id.family, libc::IPPROTO_TCP, EXTENSIONS, STATES);
            request[8..].copy_from_slice(&id.bytes);
            let message = Message::new(SOCK_DIAG_BY_FAMILY, 0).fixed(&request);
            let each = |answer: &[u8]| parse(answer).into_iter().for_each(&mut each);
            self.sockets.ask(message, "asking for a socket", each)
        };
        ids.iter().filter(|id| one(id).is_err()).copied().collect()
    }

    /// Hands every UDP socket to `each`.
    pub(super) fn datagrams(&mut self, mut each: impl FnMut(Datagrams)) -> Result<()> {
        self.dump(libc::IPPROTO_UDP, MEMORY_BIT, DATAGRAM_STATES, |answer| {
            datagrams(answer).into_iter().for_each(&mut each);
        })
    }

    fn dump(
        &mut self,
        protocol: i32,
        extensions: u8,
        states: u32,
        mut each: impl FnMut(&[u8]),
    ) -> Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let request = request(family as u8, protocol, extensions, states);
            let message = Message::new(SOCK_DIAG_BY_FAMILY, 0).fixed(&request);
            self.sockets.dump(message, "listing sockets", &mut each)?;
        }
        Ok(())
    }
}

/// `struct inet_diag_req_v2`, of any socket.
fn request(family: u8, protocol: i32, extensions: u8, states: u32) -> [u8; 56] {
    let mut request = [0; 56];
    request[..3].copy_from_slice(&[family, protocol as u8, extensions]);
    request[4..8].copy_from_slice(&states.to_ne_bytes());
    request
}

/// Opens something in the network namespace of process `pid`, in a thread that enters it and ends.
pub(super) fn within<T: Send + 'static>(pid: u32, open: fn() -> Result<T>) -> Result<T> {
    let path = format!("/proc/{pid}/ns/net");
    let file = std::fs::File::open(&path).doing(|| format!("opening {path}"))?;
    let entered = std::thread::spawn(move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .doing("entering the program's network namespace")?;
        open()
    });
    entered.join().expect("it does not panic")
}

/// A UDP socket; `None` if the answer is too short.
fn datagrams(answer: &[u8]) -> Option<Datagrams> {
    let bytes = answer.first_chunk::<ANSWER>()?;
    let inode = u32::from_ne_bytes([bytes[68], bytes[69], bytes[70], bytes[71]]);
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (local_port, remote_port) = (port(4), port(6));
    let mut one = Datagrams { inode, local_port, remote_port, memory: Memory::default(), drops: 0 };
    attributes(&answer[ANSWER..], |kind, value| {
        if kind == MEMORY {
            one.memory = Memory::parse(value);
            let drops = value.get(4 * DROPS..).and_then(|b| b.first_chunk::<4>());
            one.drops = drops.map_or(0, |b| u32::from_ne_bytes(*b));
        }
    });
    Some(one)
}

pub(super) fn parse(answer: &[u8]) -> Option<Connection> {
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
    let (mut tcp, mut memory, mut bbr_rate) = (None, Memory::default(), None);
    attributes(&answer[ANSWER..], |kind, value| match kind {
        INFO => tcp = Some(TcpInfo::parse(value)),
        BBR => {
            // `struct tcp_bbr_info`: the low and the high half of bytes per second come first.
            let half = |at: usize| {
                let bytes = value.get(at..)?.first_chunk::<4>()?;
                Some(f64::from(u32::from_ne_bytes(*bytes)))
            };
            bbr_rate = half(0).zip(half(4)).map(|(low, high)| 8.0 * (low + high * 2f64.powi(32)));
        }
        MEMORY => memory = Memory::parse(value),
        _ => {}
    });
    Some(Connection {
        id: Id { family: answer[0], bytes: *answer[4..].first_chunk()? },
        inode: word(68),
        connecting: answer[1] == SYN_SENT,
        local: SocketAddr::new(address(8), port(4)),
        remote: SocketAddr::new(address(24), port(6)),
        receive_queue: word(56),
        tcp: tcp?,
        memory,
        bbr_rate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_udp_socket_has_ports_a_queue_and_drops() {
        let mut answer = vec![0_u8; ANSWER];
        answer[4..6].copy_from_slice(&443_u16.to_be_bytes());
        answer[68..72].copy_from_slice(&7_u32.to_ne_bytes());
        assert!(datagrams(&answer[..40]).is_none());
        let words = [500_u32, 1000, 0, 2000, 0, 60, 0, 0, 9];
        answer.extend([4 + 36, 0, MEMORY as u8, 0]);
        answer.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        let one = datagrams(&answer).unwrap();
        assert_eq!((one.inode, one.local_port, one.remote_port, one.drops), (7, 443, 0, 9));
        assert_eq!((one.memory.receive, one.memory.send_max), (500, 2000));
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes: Vec<u8>, more: [u8; ANSWER]) {
            let long: Vec<u8> = more.into_iter().chain(bytes.iter().copied()).collect();
            for answer in [&bytes, &long] {
                assert_eq!(datagrams(answer).is_some(), answer.len() >= ANSWER);
                let _ = parse(answer);
            }
        }
    }

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
