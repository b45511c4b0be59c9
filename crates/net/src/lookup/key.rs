//! What is looked up: keys of 32, 104 or 128 bits, and prefixes of them.
//!
//! ```
//! use lastmeter_net::lookup::{Concatenated, Key, Prefix};
//! let prefix = Prefix::new(0xc0a8_0000_u32, 16).expect("16 is at most 32");
//! assert!(prefix.contains(0xc0a8_dc05));
//! assert_eq!(Prefix::new(0_u32, 33), None);
//! // The fields of the router's longest-prefix filter, in its order (D-36).
//! let key = Concatenated::new(0xc0a8_c802, 0xc0a8_dc05, 2345, 3456, 17);
//! assert!(Prefix::new(key, 104).expect("at most 104").contains(key));
//! ```

use std::fmt::Debug;

/// A string of bits that is looked up from its most significant end.
pub trait Key: Copy + Ord + Debug + Send + Sync + 'static {
    /// How many bits it has.
    const BITS: u8;
    /// The key, its first bit at the top.
    fn left(self) -> u128;
    /// The key whose bits, the first at the top, these are; bits beyond [`Key::BITS`] are dropped.
    fn from_left(bits: u128) -> Self;
    /// The 64 bits from bit `depth` on, zeros beyond the last.
    fn window(self, depth: u32) -> u64;
}

impl Key for u32 {
    const BITS: u8 = 32;
    fn left(self) -> u128 {
        u128::from(self) << 96
    }
    fn from_left(bits: u128) -> u32 {
        (bits >> 96) as u32
    }
    #[inline(always)]
    fn window(self, depth: u32) -> u64 {
        (u64::from(self) << 32).checked_shl(depth).unwrap_or(0)
    }
}

impl Key for u128 {
    const BITS: u8 = 128;
    fn left(self) -> u128 {
        self
    }
    fn from_left(bits: u128) -> u128 {
        bits
    }
    #[inline(always)]
    fn window(self, depth: u32) -> u64 {
        (self.checked_shl(depth).unwrap_or(0) >> 64) as u64
    }
}

/// Destination, source, destination port, source port, protocol: the 104 bits of the router's
/// longest-prefix filter (WUCS §3.3, D-36), the first at the top of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Concatenated(u128);

impl Concatenated {
    /// The fields, in the filter's order.
    pub fn new(dst: u32, src: u32, dst_port: u16, src_port: u16, protocol: u8) -> Concatenated {
        Concatenated(
            u128::from(dst) << 96
                | u128::from(src) << 64
                | u128::from(dst_port) << 48
                | u128::from(src_port) << 32
                | u128::from(protocol) << 24,
        )
    }
}

impl Key for Concatenated {
    const BITS: u8 = 104;
    fn left(self) -> u128 {
        self.0
    }
    fn from_left(bits: u128) -> Concatenated {
        Concatenated(bits & !(u128::MAX >> Self::BITS))
    }
    #[inline(always)]
    fn window(self, depth: u32) -> u64 {
        self.0.window(depth)
    }
}

/// The first `len` bits of a key; the others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<K> {
    key: K,
    len: u8,
}

impl<K: Key> Prefix<K> {
    /// The prefix of everything.
    pub fn all() -> Prefix<K> {
        Prefix { key: K::from_left(0), len: 0 }
    }
    /// The first `len` bits of `key`, or `None` if it has fewer.
    pub fn new(key: K, len: u8) -> Option<Prefix<K>> {
        (len <= K::BITS).then(|| Prefix { key: K::from_left(key.left() & mask(len)), len })
    }
    /// Its bits, followed by zeros.
    pub fn key(self) -> K {
        self.key
    }
    /// How many bits it has.
    #[expect(clippy::len_without_is_empty, reason = "no prefix is a container")]
    pub fn len(self) -> u8 {
        self.len
    }
    /// The last key that it matches.
    pub fn last(self) -> K {
        K::from_left(self.key.left() | !mask(self.len))
    }
    /// Whether it matches `key`.
    pub fn contains(self, key: K) -> bool {
        (key.left() ^ self.key.left()) & mask(self.len) == 0
    }
}

/// This many ones, from the top.
pub(super) fn mask(len: u8) -> u128 {
    !u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_at_its_depth_and_ends_in_zeros() {
        assert_eq!(0x8000_0001_u32.window(0), 0x8000_0001_0000_0000);
        assert_eq!(0x8000_0001_u32.window(31), 1 << 63);
        assert_eq!((1_u128 << 65 | 1).window(60), 1 << 61);
        assert_eq!(1_u128.window(127), 1 << 63);
    }

    #[test]
    fn concatenated_fields_stand_in_the_filter_s_order() {
        let key = Concatenated::new(1, 2, 3, 4, 5);
        assert_eq!(key.left() >> 24, 1 << 72 | 2 << 40 | 3 << 24 | 4 << 8 | 5);
        assert_eq!(Concatenated::from_left(u128::MAX).left(), u128::MAX << 24);
    }

    #[test]
    fn prefixes_know_their_first_and_last_key() {
        let prefix = Prefix::new(0x0a01_02ff_u32, 24).expect("24 is at most 32");
        assert_eq!((prefix.key(), prefix.last()), (0x0a01_0200, 0x0a01_02ff));
        assert!(!prefix.contains(0x0a01_0300) && Prefix::all().contains(7_u32));
        assert_eq!(Prefix::new(0_u128, 129), None);
    }
}
