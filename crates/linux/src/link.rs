//! Interfaces of a network namespace: veth pairs, addresses, MTU, offloads.

use crate::error::{Doing, Result, wrong};
use crate::netlink::{CREATE, Message, Netlink};
use crate::sys;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

/// The smallest packet that IPv4 requires every host to accept (RFC 791 §3.1).
pub const MTU_MIN: u32 = 576;
/// The largest MTU of a veth pair: an IPv4 packet's length field has 16 bits.
pub const MTU_MAX: u32 = 65_535;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const IFLA_MTU: u16 = 4;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_PID: u16 = 19;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// `ETHTOOL_SRXCSUM`, `ETHTOOL_STXCSUM`, `ETHTOOL_STSO`, `ETHTOOL_SGSO`, `ETHTOOL_SGRO`.
const SET_TRANSMIT_CHECKSUM: u32 = 0x17;
const SET_TSO: u32 = 0x1f;
const SET_GSO: u32 = 0x24;
const SET_GRO: u32 = 0x2c;

/// `struct ifinfomsg`: interface `index` with `flags`, of which those in `change` count.
fn interface_part(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut part = [0; 16];
    part[4..8].copy_from_slice(&index.to_ne_bytes());
    part[8..12].copy_from_slice(&flags.to_ne_bytes());
    part[12..16].copy_from_slice(&change.to_ne_bytes());
    part
}

fn zero_terminated(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// Makes a veth pair: `name` here, `peer_name` in the network namespace of process `peer`.
pub fn make_pair(name: &str, peer_name: &str, peer: u32, mtu: u32) -> Result<()> {
    let message = Message::new(RTM_NEWLINK, CREATE)
        .fixed(&interface_part(0, 0, 0))
        .attribute(IFLA_IFNAME, &zero_terminated(name))
        .attribute(IFLA_MTU, &mtu.to_ne_bytes())
        .nested(IFLA_LINKINFO, |m| {
            m.attribute(IFLA_INFO_KIND, b"veth").nested(IFLA_INFO_DATA, |m| {
                m.nested(VETH_INFO_PEER, |m| {
                    m.fixed(&interface_part(0, 0, 0))
                        .attribute(IFLA_IFNAME, &zero_terminated(peer_name))
                        .attribute(IFLA_MTU, &mtu.to_ne_bytes())
                        .attribute(IFLA_NET_NS_PID, &peer.to_ne_bytes())
                })
            })
        });
    Netlink::route()?.change(message, &format!("making the veth pair {name}"))
}

/// The kernel's counters of an interface, by their index in `struct rtnl_link_stats64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Count {
    /// Frames that the stack got from it.
    Received = 0,
    /// Frames from the stack for which it had no room.
    SendDropped = 7,
}

/// A count of the kernel for interface `name`.
pub fn count(name: &str, count: Count) -> Result<u64> {
    const RTM_GETLINK: u16 = 18;
    const IFLA_STATS64: u16 = 23;
    let at = count as usize * size_of::<u64>();
    let index = index_of(name)?;
    let message = Message::new(RTM_GETLINK, 0).fixed(&interface_part(0, 0, 0));
    let mut found = 0;
    Netlink::route()?.dump(message, &format!("reading the counts of {name}"), |payload| {
        let mine = payload.get(4..8).is_some_and(|bytes| bytes == index.to_ne_bytes());
        let Some(rest) = payload.get(16..).filter(|_| mine) else { return };
        lastmeter_wire::netlink::attributes(rest, |kind, value| {
            let bytes = value.get(at..at + 8).and_then(|b| b.try_into().ok());
            if let (IFLA_STATS64, Some(bytes)) = (kind, bytes) {
                found = u64::from_ne_bytes(bytes);
            }
        });
    })?;
    Ok(found)
}

fn control_socket() -> Result<OwnedFd> {
    socket(AddressFamily::INET, SocketType::DGRAM, None)
        .doing("opening a socket to configure interfaces")
}

/// The index of interface `name` in this namespace.
pub fn index_of(name: &str) -> Result<u32> {
    netdevice::name_to_index(control_socket()?, name)
        .doing(|| format!("looking for the interface {name}"))
}

/// Sets the MTU and brings `name` up.
pub fn bring_up(name: &str, mtu: Option<u32>) -> Result<()> {
    let up = libc::IFF_UP as u32;
    let mut message = Message::new(RTM_NEWLINK, 0).fixed(&interface_part(index_of(name)?, up, up));
    if let Some(mtu) = mtu {
        check_mtu(mtu)?;
        message = message.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    }
    Netlink::route()?.change(message, &format!("bringing {name} up with MTU {mtu:?}"))
}

/// Rejects an MTU that a veth pair cannot have.
pub fn check_mtu(mtu: u32) -> Result<()> {
    match (MTU_MIN..=MTU_MAX).contains(&mtu) {
        true => Ok(()),
        false => wrong("mtu", format!("{mtu} B"), format!("between {MTU_MIN} B and {MTU_MAX} B")),
    }
}

/// Gives `name` the address `address`/`prefix`.
pub fn add_address(name: &str, address: Ipv4Addr, prefix: u8) -> Result<()> {
    let mut part = [0u8; 8];
    part[0] = libc::AF_INET as u8;
    part[1] = prefix;
    part[4..8].copy_from_slice(&index_of(name)?.to_ne_bytes());
    let message = Message::new(RTM_NEWADDR, CREATE)
        .fixed(&part)
        .attribute(IFA_LOCAL, &address.octets())
        .attribute(IFA_ADDRESS, &address.octets());
    Netlink::route()?.change(message, &format!("giving {name} the address {address}/{prefix}"))
}

/// Offloads of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Offloads {
    /// One descriptor may carry many segments: TSO and GSO.
    pub segmentation: bool,
    /// Arriving segments are merged before the stack sees them.
    pub gro: bool,
    /// Checksums are left to the hardware, which on a veth pair means they are skipped.
    pub checksum: bool,
}

impl Offloads {
    /// Sets the offloads of `interface`.
    pub fn apply(self, interface: &str) -> Result<()> {
        let fd = control_socket()?;
        let set = |command, on: bool, what: &str| {
            sys::ethtool(fd.as_fd(), interface, command, u32::from(on)).doing(|| {
                format!("switching {what} of {interface} {}", if on { "on" } else { "off" })
            })
        };
        // Segmentation needs checksum offload, so the order depends on the direction.
        if self.checksum {
            set(SET_TRANSMIT_CHECKSUM, true, "transmit checksum offload")?;
        }
        set(SET_GSO, self.segmentation, "GSO")?;
        if self.checksum {
            set(SET_TSO, self.segmentation, "TSO")?;
        } else {
            set(SET_TSO, false, "TSO")?;
            set(SET_TRANSMIT_CHECKSUM, false, "transmit checksum offload")?;
        }
        set(SET_GRO, self.gro, "GRO")?;
        Ok(())
    }
}
