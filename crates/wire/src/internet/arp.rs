//! ARP for IPv4 over Ethernet.
//!
//! Source: RFC 826; 28 bytes, hardware type 1, protocol type 0800, lengths 6 and 4.
//!
//! ```
//! use lastmeter_wire::internet::arp::Packet;
//! let request = Packet {
//!     operation: Packet::REQUEST,
//!     sender: ([2; 6], [10, 0, 0, 1].into()),
//!     target: ([0; 6], [10, 0, 0, 2].into()),
//! };
//! assert_eq!(Packet::parse(&request.emit())?, request);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, split};
use std::net::Ipv4Addr;

/// Bytes of a packet.
pub const PACKET_LEN: usize = 28;
/// Ethernet, IPv4, and the lengths of their addresses.
const PREFIX: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// The operation.
    pub operation: u16,
    /// The sender.
    pub sender: ([u8; 6], Ipv4Addr),
    /// The target of the request or reply.
    pub target: ([u8; 6], Ipv4Addr),
}

impl Packet {
    /// Request: who has this address?
    pub const REQUEST: u16 = 1;
    /// Reply: I have it.
    pub const REPLY: u16 = 2;

    /// # Errors
    /// If the bytes end early or are not for IPv4 over Ethernet. Padding after them is ignored.
    pub fn parse(bytes: &[u8]) -> Result<Packet, Error> {
        let (packet, _) = split::<PACKET_LEN>(bytes, "ARP packet")?;
        let (prefix, rest) = split::<6>(packet, "ARP packet")?;
        if *prefix != PREFIX {
            return Err(Error::Invalid { what: "ARP address types", found: prefix[1].into() });
        }
        let (&operation, rest) = split::<2>(rest, "ARP packet")?;
        let (&sender_hardware, rest) = split::<6>(rest, "ARP packet")?;
        let (&sender, rest) = split::<4>(rest, "ARP packet")?;
        let (&target_hardware, rest) = split::<6>(rest, "ARP packet")?;
        let (&target, _) = split::<4>(rest, "ARP packet")?;
        Ok(Packet {
            operation: u16::from_be_bytes(operation),
            sender: (sender_hardware, sender.into()),
            target: (target_hardware, target.into()),
        })
    }
    /// The packet's bytes.
    pub fn emit(&self) -> [u8; PACKET_LEN] {
        let mut bytes = [0; PACKET_LEN];
        bytes[..6].copy_from_slice(&PREFIX);
        bytes[6..8].copy_from_slice(&self.operation.to_be_bytes());
        bytes[8..14].copy_from_slice(&self.sender.0);
        bytes[14..18].copy_from_slice(&self.sender.1.octets());
        bytes[18..24].copy_from_slice(&self.target.0);
        bytes[24..].copy_from_slice(&self.target.1.octets());
        bytes
    }
}
