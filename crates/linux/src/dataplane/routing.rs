//! The kernel's links, addresses, neighbours and routes: as they are, and as they change.

use crate::netlink::Message as Request;
use lastmeter_wire::netlink::{self, Message};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const GET_LINK: u16 = 18;
const GET_ADDRESS: u16 = 22;
const GET_ROUTE: u16 = 26;
const GET_NEIGHBOUR: u16 = 30;
const NEW_NEIGHBOUR: u16 = 28;
const DUMP: u16 = 0x300;
/// The kernel keeps so many bytes of changes for us.
const ROOM: usize = 64 << 20;

/// What is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Routes, too; else links, addresses and neighbours.
    pub routes: bool,
}

/// The kernel's state, followed.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
    buffer: Vec<u8>,
    /// Dumps that are still to be asked for, one at a time.
    dumps: Vec<u16>,
    sequence: u32,
}

impl Watch {
    /// Follows this namespace; what is there already is told first.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(follow: Follow) -> io::Result<Watch> {
        const LINK: u32 = 1 << 0;
        const NEIGHBOUR: u32 = 1 << 2;
        const ADDRESS: u32 = 1 << 4;
        const ROUTE: u32 = 1 << 6;
        const ADDRESS_V6: u32 = 1 << 8;
        const ROUTE_V6: u32 = 1 << 10;
        let mut groups = LINK | NEIGHBOUR | ADDRESS | ADDRESS_V6;
        let mut dumps = vec![GET_NEIGHBOUR, GET_ADDRESS, GET_LINK];
        if follow.routes {
            groups |= ROUTE | ROUTE_V6;
            dumps.insert(0, GET_ROUTE);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&fd, ROOM);
        rustix::net::bind(&fd, &rustix::net::netlink::SocketAddrNetlink::new(0, groups))?;
        let mut watch = Watch { fd, buffer: vec![0; 1 << 16], dumps, sequence: 0 };
        watch.dump()?;
        Ok(watch)
    }
    /// Asks for the next dump.
    fn dump(&mut self) -> io::Result<()> {
        if let Some(kind) = self.dumps.pop() {
            self.sequence += 1;
            let request = Request::new(kind, DUMP).fixed(&[0; 16]).finish(0, self.sequence);
            rustix::net::send(&self.fd, &request, SendFlags::empty())?;
        }
        Ok(())
    }
    /// Readable when something has changed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
    /// Whether all that was there at the beginning has been told.
    pub fn is_complete(&self) -> bool {
        self.sequence == u32::MAX
    }
    /// Tells what has changed since the last call, without waiting. `Ok(false)` if the kernel had to forget changes:
    /// begin again with a new watch.
    ///
    /// # Errors
    /// When the socket fails, or the kernel sends what cannot be read.
    pub fn poll(&mut self, mut tell: impl FnMut(Message)) -> io::Result<bool> {
        loop {
            let len = match rustix::net::recv(&self.fd, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((len, _)) => len,
                Err(rustix::io::Errno::AGAIN) => return Ok(true),
                Err(rustix::io::Errno::NOBUFS) => return Ok(false),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut ended = false;
            netlink::each(&self.buffer[..len], |message| match message {
                Message::Done => ended = true,
                other => tell(other),
            })
            .map_err(io::Error::other)?;
            if ended {
                match self.dumps.is_empty() {
                    true => self.sequence = u32::MAX,
                    false => self.dump()?,
                }
            }
        }
    }
}

/// The links and addresses of this namespace as they are now.
///
/// # Errors
/// When the kernel refuses.
pub fn links_and_addresses() -> io::Result<(Vec<netlink::Link>, Vec<netlink::Address>)> {
    let (mut links, mut addresses) = (Vec::new(), Vec::new());
    let mut watch = Watch::new(Follow { routes: false })?;
    while !watch.is_complete() {
        watch.poll(|message| match message {
            Message::Link(true, link) => links.push(link),
            Message::Address(true, address) => addresses.push(address),
            _ => {}
        })?;
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok((links, addresses))
}

/// Asks the kernel to find out a neighbour's Ethernet address; the answer comes through a [`Watch`].
///
/// # Errors
/// When the kernel refuses.
pub fn resolve(interface: u32, address: IpAddr) -> io::Result<()> {
    const USE: u8 = 1;
    const CREATE_OR_REPLACE: u16 = 0x500;
    const DESTINATION: u16 = 1;
    let mut fixed = [0; 12];
    fixed[0] = if address.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 };
    fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
    fixed[10] = USE;
    let request = Request::new(NEW_NEIGHBOUR, CREATE_OR_REPLACE).fixed(&fixed);
    let request = match address {
        IpAddr::V4(v4) => request.attribute(DESTINATION, &v4.octets()),
        IpAddr::V6(v6) => request.attribute(DESTINATION, &v6.octets()),
    };
    let mut netlink = crate::netlink::Netlink::route().map_err(io::Error::other)?;
    netlink.change(request, "looking for a neighbour").map_err(io::Error::other)
}

/// The number of an interface of this namespace.
///
/// # Errors
/// When there is none of this name.
pub fn index_of(name: &str) -> io::Result<u32> {
    crate::link::index_of(name).map_err(io::Error::other)
}
