//! The formats of the Internet: views that check a packet once and then read fields in place, and values that emit
//! headers with their checksums.

pub mod arp;
pub mod checksum;
pub mod embedded;
pub mod ethernet;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod tcp;
pub mod udp;

/// Protocol numbers of IPv4, and next headers of IPv6.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}
