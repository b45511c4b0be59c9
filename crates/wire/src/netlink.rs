//! Linux's netlink messages about routes, neighbours, links and addresses, as the kernel sends them and as FRR sends
//! them in FPM frames.
//!
//! ```text
//! FPM frame:  version 1 | type 1 | length 2 (big-endian, with this header) | netlink messages
//! netlink:    length 4 | type 2 | flags 2 | sequence 4 | port 4 | fixed part | attributes, each on 4 bytes
//! attribute:  length 2 | type 2 | value
//! ```
//!
//! Numbers of netlink are in the host's byte order. Sources: RFC 3549 §2; `linux/netlink.h`, `linux/rtnetlink.h`;
//! FRR's `fpm/fpm.h`. Attributes that are not needed here are skipped.
//!
//! ```
//! use lastmeter_wire::netlink::{Message, each};
//! let mut seen = 0;
//! each(&[16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], |message| {
//!     assert_eq!(message, Message::Done);
//!     seen += 1;
//! })?;
//! assert_eq!(seen, 1);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of a message's header.
pub const HEADER_LEN: usize = 16;
/// Bytes of an FPM frame's header.
pub const FPM_HEADER_LEN: usize = 4;
/// The most gateways of a route that are kept.
pub const GATEWAYS_MAX: usize = 64;

const DONE: u16 = 3;
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const NEW_NEIGHBOUR: u16 = 28;
const DELETE_NEIGHBOUR: u16 = 29;
const INET: u8 = 2;
const INET6: u8 = 10;

/// Where packets of a route go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gateway {
    /// The router's address; absent if the destination itself is on the link.
    pub address: Option<IpAddr>,
    /// The kernel's number of the interface; 0 if it is not named.
    pub interface: u32,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination's first bits; those beyond `len` are zero.
    pub prefix: IpAddr,
    /// How many bits.
    pub len: u8,
    /// The routing table; 254 is the main one.
    pub table: u32,
    /// 1 forwards, 6 drops, 7 answers unreachable, 8 prohibited; 2 is an address of this host.
    pub kind: u8,
    /// Who made it: 2 the kernel, 11 FRR's zebra, 186 BGP, 188 OSPF.
    pub protocol: u8,
    /// Lower is better.
    pub metric: u32,
    /// The next hops, all in use at once.
    pub gateways: Vec<Gateway>,
}

/// A neighbour on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// The link.
    pub interface: u32,
    /// Its Ethernet address, if that is known.
    pub mac: Option<[u8; 6]>,
    /// The kernel's state: 0x02 reachable, 0x04 stale, 0x20 failed, 0x80 permanent.
    pub state: u16,
}

impl Neighbour {
    /// The address with which it can be reached now.
    pub fn reachable(&self) -> Option<[u8; 6]> {
        const USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x80;
        self.mac.filter(|_| self.state & USABLE != 0)
    }
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number.
    pub interface: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// The longest IP packet.
    pub mtu: u32,
    /// Whether it is up, with a carrier.
    pub up: bool,
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its interface.
    pub interface: u32,
    /// The address.
    pub address: IpAddr,
    /// The length of its network's prefix.
    pub len: u8,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A route is new or has changed (`true`), or is gone.
    Route(bool, Route),
    /// A neighbour, likewise.
    Neighbour(bool, Neighbour),
    /// An interface, likewise.
    Link(bool, Link),
    /// An address, likewise.
    Address(bool, Address),
    /// The end of a dump.
    Done,
    /// An error number of the kernel, negative, or 0 for success.
    Answer(i32),
    /// Anything else.
    Other(u16),
}

/// Hands each message in `bytes` to `tell`, in order.
///
/// # Errors
/// At the first message that ends early or has an impossible length; those before it were handed over.
pub fn each(mut bytes: &[u8], mut tell: impl FnMut(Message)) -> Result<(), Error> {
    while !bytes.is_empty() {
        let have = bytes.len();
        if have < HEADER_LEN {
            return Err(Error::Truncated { what: "netlink header", need: HEADER_LEN, have });
        }
        let total = word(bytes, 0) as usize;
        if total < HEADER_LEN {
            return Err(Error::Invalid { what: "netlink length", found: total as u64 });
        }
        if total > have {
            return Err(Error::Truncated { what: "netlink message", need: total, have });
        }
        tell(message(half(bytes, 4), &bytes[HEADER_LEN..total])?);
        bytes = &bytes[total.next_multiple_of(4).min(have)..];
    }
    Ok(())
}

/// The first FPM frame in `bytes`: its messages, and how long it is. `None` if it is not whole yet.
///
/// # Errors
/// If it is not an FPM frame: the stream is then out of step.
pub fn fpm(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Error> {
    let Some(&[version, kind, high, low]) = bytes.first_chunk::<FPM_HEADER_LEN>() else {
        return Ok(None);
    };
    if version != 1 || kind != 1 {
        let found = u64::from(version) << 8 | u64::from(kind);
        return Err(Error::Invalid { what: "FPM version and type", found });
    }
    let len = usize::from(u16::from_be_bytes([high, low]));
    if len < FPM_HEADER_LEN {
        return Err(Error::Invalid { what: "FPM length", found: len as u64 });
    }
    Ok(bytes.get(FPM_HEADER_LEN..len).map(|messages| (messages, len)))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]))
}
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

/// Hands the type and value of each attribute in `bytes` to `tell`; ends at one whose length is impossible.
pub fn attributes<'a>(mut bytes: &'a [u8], mut tell: impl FnMut(u16, &'a [u8])) {
    while bytes.len() >= 4 {
        let (len, kind) = (usize::from(half(bytes, 0)), half(bytes, 2));
        if len < 4 || len > bytes.len() {
            return;
        }
        // The two top bits say how the value is encoded.
        tell(kind & 0x3fff, &bytes[4..len]);
        bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
    }
}

fn fixed<'a>(what: &'static str, body: &'a [u8], need: usize) -> Result<&'a [u8], Error> {
    body.get(need..).ok_or(Error::Truncated { what, need, have: body.len() })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|b| IpAddr::V4(Ipv4Addr::from(*b))),
        16 => bytes.first_chunk::<16>().map(|b| IpAddr::V6(Ipv6Addr::from(*b))),
        _ => None,
    }
}

fn message(kind: u16, body: &[u8]) -> Result<Message, Error> {
    Ok(match kind {
        NEW_ROUTE | DELETE_ROUTE => match route(body)? {
            Some(route) => Message::Route(kind == NEW_ROUTE, route),
            None => Message::Other(kind),
        },
        NEW_NEIGHBOUR | DELETE_NEIGHBOUR => {
            let rest = fixed("netlink neighbour", body, 12)?;
            let (mut found, mut mac) = (None, None);
            attributes(rest, |kind, value| match kind {
                1 => found = address(value),
                2 => mac = value.first_chunk::<6>().copied(),
                _ => {}
            });
            match found {
                Some(address) => {
                    let (interface, state) = (word(body, 4), half(body, 8));
                    let neighbour = Neighbour { address, interface, mac, state };
                    Message::Neighbour(kind == NEW_NEIGHBOUR, neighbour)
                }
                None => Message::Other(kind),
            }
        }
        NEW_LINK | DELETE_LINK => {
            let rest = fixed("netlink link", body, 16)?;
            const UP: u32 = 0x1;
            const LOWER_UP: u32 = 0x1_0000;
            let up = word(body, 8) & (UP | LOWER_UP) == UP | LOWER_UP;
            let mut link =
                Link { interface: word(body, 4), name: String::new(), mac: None, mtu: 0, up };
            attributes(rest, |kind, value| match kind {
                1 => link.mac = value.first_chunk::<6>().copied(),
                3 => {
                    let name = value.strip_suffix(b"\0").unwrap_or(value);
                    link.name = String::from_utf8_lossy(name).into_owned();
                }
                4 => link.mtu = word(value, 0),
                _ => {}
            });
            Message::Link(kind == NEW_LINK, link)
        }
        NEW_ADDRESS | DELETE_ADDRESS => {
            let rest = fixed("netlink address", body, 8)?;
            let (mut own, mut peer) = (None, None);
            attributes(rest, |kind, value| match kind {
                1 => peer = address(value),
                2 => own = address(value),
                _ => {}
            });
            match own.or(peer) {
                Some(address) => {
                    let found = Address { interface: word(body, 4), address, len: body[1] };
                    Message::Address(kind == NEW_ADDRESS, found)
                }
                None => Message::Other(kind),
            }
        }
        DONE => Message::Done,
        ERROR => Message::Answer(word(fixed_word(body)?, 0).cast_signed()),
        other => Message::Other(other),
    })
}

fn fixed_word(body: &[u8]) -> Result<&[u8], Error> {
    let what = "netlink answer";
    body.get(..4).ok_or(Error::Truncated { what, need: 4, have: body.len() })
}

fn route(body: &[u8]) -> Result<Option<Route>, Error> {
    let rest = fixed("netlink route", body, 12)?;
    let (family, len) = (body[0], body[1]);
    let (all, bits) = match family {
        INET => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 32),
        INET6 => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
        _ => return Ok(None),
    };
    if len > bits {
        return Err(Error::Invalid { what: "netlink prefix length", found: len.into() });
    }
    let mut route = Route {
        prefix: all,
        len,
        table: body[4].into(),
        kind: body[7],
        protocol: body[5],
        metric: 0,
        gateways: Vec::new(),
    };
    let mut single = Gateway { address: None, interface: 0 };
    attributes(rest, |kind, value| match kind {
        1 => {
            if let Some(found) = address(value).filter(|found| found.is_ipv4() == all.is_ipv4()) {
                route.prefix = found;
            }
        }
        4 => single.interface = word(value, 0),
        5 => single.address = address(value),
        18 => single.address = via(value).or(single.address),
        6 => route.metric = word(value, 0),
        15 => route.table = word(value, 0),
        9 => route.gateways = gateways(value),
        _ => {}
    });
    if route.gateways.is_empty() && single != (Gateway { address: None, interface: 0 }) {
        route.gateways.push(single);
    }
    route.prefix = masked(route.prefix, len);
    Ok(Some(route))
}

/// `struct rtvia`: a gateway of another family.
fn via(value: &[u8]) -> Option<IpAddr> {
    address(value.get(2..)?)
}

/// `struct rtnexthop`, several.
fn gateways(mut bytes: &[u8]) -> Vec<Gateway> {
    let mut all = Vec::new();
    while bytes.len() >= 8 && all.len() < GATEWAYS_MAX {
        let len = usize::from(half(bytes, 0));
        if len < 8 || len > bytes.len() {
            break;
        }
        let mut gateway = Gateway { address: None, interface: word(bytes, 4) };
        attributes(&bytes[8..len], |kind, value| match kind {
            5 => gateway.address = address(value),
            18 => gateway.address = via(value).or(gateway.address),
            _ => {}
        });
        all.push(gateway);
        bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
    }
    all
}

/// A prefix without the bits beyond its length.
pub fn masked(prefix: IpAddr, len: u8) -> IpAddr {
    match prefix {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn netlink(kind: u16, body: &[Vec<u8>]) -> Vec<u8> {
        let body: Vec<u8> = body.concat();
        let mut bytes = (HEADER_LEN as u32 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER_LEN, 0);
        bytes.extend(body);
        bytes
    }

    /// `struct rtmsg` of an IPv4 route of this length, by BGP.
    fn rtmsg(len: u8) -> Vec<u8> {
        vec![2, len, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0]
    }

    fn all(bytes: &[u8]) -> Vec<Message> {
        let mut told = Vec::new();
        each(bytes, |message| told.push(message)).expect("whole messages");
        told
    }

    #[test]
    fn a_change_may_come_as_two_messages_in_one_frame() {
        let body = [rtmsg(24), attribute(1, &[192, 0, 2, 9]), attribute(5, &[10, 0, 0, 1])];
        let mut messages = netlink(DELETE_ROUTE, &body[..2]);
        messages.extend(netlink(NEW_ROUTE, &body));
        let mut frame = vec![1, 1];
        frame.extend((FPM_HEADER_LEN as u16 + messages.len() as u16).to_be_bytes());
        frame.extend(&messages);
        assert_eq!(fpm(&frame[..frame.len() - 1]), Ok(None), "not whole yet");
        let (inside, len) = fpm(&frame).expect("a frame").expect("whole");
        assert_eq!(len, frame.len());
        let told = all(inside);
        let [Message::Route(false, gone), Message::Route(true, route)] = &told[..] else {
            panic!("{told:?}");
        };
        let prefix = "192.0.2.0".parse::<IpAddr>().expect("an address");
        assert_eq!((gone.prefix, gone.len, route.prefix), (prefix, 24, prefix), "bits are cleared");
        let address = "10.0.0.1".parse().ok();
        assert_eq!(route.gateways, [Gateway { address, interface: 0 }]);
        assert_eq!((route.protocol, route.kind, route.table), (186, 1, 254));
    }

    #[test]
    fn several_gateways_are_kept_with_their_interfaces() {
        let mut hops = Vec::new();
        for number in 1..=3u8 {
            let inside = attribute(5, &[10, 0, 0, number]);
            hops.extend((8 + inside.len() as u16).to_ne_bytes());
            hops.extend([0, 0]);
            hops.extend(u32::from(number).to_ne_bytes());
            hops.extend(inside);
        }
        let told = all(&netlink(NEW_ROUTE, &[rtmsg(0), attribute(9, &hops)]));
        let Message::Route(true, route) = &told[0] else { panic!("{told:?}") };
        let numbers: Vec<u32> = route.gateways.iter().map(|gateway| gateway.interface).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(route.gateways[2].address, "10.0.0.3".parse().ok());
    }

    #[test]
    fn an_attribute_that_claims_too_much_ends_the_walk() {
        let mut count = 0;
        attributes(&[200, 0, 1, 0, 0, 0], |_, _| count += 1);
        assert_eq!(count, 0);
    }

    #[test]
    fn what_is_cut_or_impossible_is_an_error() {
        let whole = netlink(NEW_ROUTE, &[rtmsg(24), attribute(1, &[192, 0, 2, 0])]);
        for len in 1..whole.len() {
            assert!(each(&whole[..len], |_| ()).is_err(), "{len}");
        }
        assert!(each(&netlink(NEW_ROUTE, &[rtmsg(33)]), |_| ()).is_err());
        assert!(fpm(&[2, 1, 0, 4]).is_err() && fpm(&[1, 1, 0, 3]).is_err());
    }
}
