//! The Internet's formats: views that check a packet once and then read fields where they lie, and
//! values that emit headers with their checksums.

pub mod checksum;
pub mod embedded;

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
