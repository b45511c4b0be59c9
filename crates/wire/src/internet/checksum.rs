//! The Internet checksum: in full, while copying, and updated incrementally after a change.
//!
//! All sums are 16-bit one's complement sums, in which 0000 and FFFF are the same number. A [`Sum`] is not
//! complemented; the value in a header is [`Sum::checksum`].
//!
//! Source: RFC 1071 (definition; sums may be taken in any order and width), RFC 1624 (change of a
//! field), RFC 768 and RFC 8200 §8.1 (pseudo-headers).
//!
//! ```
//! use lastmeter_wire::internet::checksum::{Sum, update};
//! // RFC 1071 §3.
//! let sum = Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
//! assert_eq!(sum.value(), 0xddf2);
//! // RFC 1624 §4.
//! assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
//! ```

use crate::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr};

/// 64-bit words added in parallel: enough for the widest vectors in use, few enough that a packet of 64 bytes
/// takes one round.
const LANES: usize = 8;
const BLOCK_LEN: usize = LANES * 8;

/// A one's complement sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u16);

impl Sum {
    /// Zero.
    pub const ZERO: Sum = Sum(0);

    /// The sum of `data`; an odd last byte is padded with a zero.
    pub fn of(data: &[u8]) -> Sum {
        let (blocks, rest) = data.as_chunks::<BLOCK_LEN>();
        let mut lanes = Lanes::default();
        blocks.iter().for_each(|block| lanes.add(block));
        Sum(fold(lanes.total() + of_rest(rest)))
    }
    /// The sum of a word, most significant byte first.
    pub fn word(word: u16) -> Sum {
        Sum(word)
    }
    /// The sum of the pseudo-header of an IPv4 packet.
    pub fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u16) -> Sum {
        let addresses = Sum::of(&src.octets()).and(Sum::of(&dst.octets()));
        addresses.and(Sum(protocol.into())).and(Sum(len))
    }
    /// The sum of the pseudo-header of an IPv6 packet.
    pub fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, len: u32) -> Sum {
        let addresses = Sum::of(&src.octets()).and(Sum::of(&dst.octets()));
        addresses.and(Sum(next_header.into())).and(Sum::of(&len.to_be_bytes()))
    }

    /// This sum plus that of data that follows at an even offset.
    pub fn and(self, other: Sum) -> Sum {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Sum(sum + u16::from(carry))
    }
    /// This sum plus that of data that follows after `len` bytes.
    pub fn and_after(self, len: usize, other: Sum) -> Sum {
        // RFC 1071 §2 (B): shifting data by one byte swaps the bytes of its sum.
        self.and(if len.is_multiple_of(2) { other } else { Sum(other.0.swap_bytes()) })
    }
    /// This sum minus `other`, which was part of it.
    pub fn without(self, other: Sum) -> Sum {
        self.and(Sum(!other.0))
    }

    /// The sum, not complemented.
    pub fn value(self) -> u16 {
        self.0
    }
    /// The value in a header: the complement.
    pub fn checksum(self) -> u16 {
        !self.0
    }
    /// The value in UDP: never zero, which means no checksum (RFC 768).
    pub fn checksum_never_zero(self) -> u16 {
        match !self.0 {
            0 => 0xffff,
            checksum => checksum,
        }
    }
    /// Whether data that includes its checksum is intact: the sum is zero, in either form.
    pub fn is_intact(self) -> bool {
        self.0 == 0xffff
    }
}

/// The checksum after a word that it covers changed from `old` to `new` (RFC 1624 equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !Sum(!checksum).without(Sum(old)).and(Sum(new)).0
}

/// The checksum after a field of even length at an even offset has changed.
pub fn update_field(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    update(checksum, Sum::of(old).0, Sum::of(new).0)
}

/// Copies `src` into `dst` while summing it, so that memory is read once.
///
/// # Errors
/// If the lengths differ; nothing is copied.
#[inline]
pub fn copy(src: &[u8], dst: &mut [u8]) -> Result<Sum, Error> {
    if src.len() != dst.len() {
        let (value, max) = (src.len() as u64, dst.len() as u64);
        return Err(Error::DoesNotFit { what: "data to copy", value, max });
    }
    let (from, from_rest) = src.as_chunks::<BLOCK_LEN>();
    let (to, to_rest) = dst.as_chunks_mut::<BLOCK_LEN>();
    let mut lanes = Lanes::default();
    for (from, to) in from.iter().zip(to) {
        *to = *from;
        lanes.add(from);
    }
    to_rest.copy_from_slice(from_rest);
    Ok(Sum(fold(lanes.total() + of_rest(from_rest))))
}

/// Sums of 32-bit halves in 64 bits each: they would overflow only after 2^32 blocks.
#[derive(Clone, Copy, Default)]
struct Lanes {
    low: [u64; LANES],
    high: [u64; LANES],
}

impl Lanes {
    #[inline(always)]
    fn add(&mut self, block: &[u8; BLOCK_LEN]) {
        let (words, _) = block.as_chunks::<8>();
        for ((low, high), &word) in self.low.iter_mut().zip(&mut self.high).zip(words) {
            // In native byte order: the sum is swapped once at the end (RFC 1071 §2 B).
            let word = u64::from_ne_bytes(word);
            *low = low.wrapping_add(word & 0xffff_ffff);
            *high = high.wrapping_add(word >> 32);
        }
    }
    /// With the most significant byte first, partially folded to about 32 bits.
    fn total(&self) -> u64 {
        let lanes = self.low.iter().chain(&self.high);
        let sum: u128 = lanes.map(|&lane| u128::from(lane)).sum();
        let mut folded = sum;
        while folded > 0xffff {
            folded = (folded & 0xffff) + (folded >> 16);
        }
        u64::from(u16::from_be_bytes((folded as u16).to_ne_bytes()))
    }
}

/// Less than a block.
fn of_rest(rest: &[u8]) -> u64 {
    let (words, last) = rest.as_chunks::<2>();
    let sum: u64 = words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum();
    sum + last.first().map_or(0, |&byte| u64::from(byte) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 §4.1, word by word.
    fn naive(data: &[u8]) -> u16 {
        let words = data.chunks(2).map(|pair| {
            u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
        });
        fold(words.sum())
    }
    /// 0000 and FFFF are the same number.
    fn same(a: u16, b: u16) -> bool {
        a % 0xffff == b % 0xffff
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            data in proptest::collection::vec(any::<u8>(), 0..1000), start in 0usize..9,
        ) {
            let data = data.get(start..).unwrap_or(&[]);
            prop_assert_eq!(Sum::of(data).value(), naive(data));
            let mut copied = vec![0; data.len()];
            prop_assert_eq!(copy(data, &mut copied).unwrap(), Sum::of(data));
            prop_assert_eq!(&copied, data);
            let (head, tail) = data.split_at(start.min(data.len()));
            let parts = Sum::of(head).and_after(head.len(), Sum::of(tail));
            prop_assert!(same(parts.value(), naive(data)));
        }

        #[test]
        fn updates_a_checksum_incrementally(
            mut data in proptest::collection::vec(any::<u8>(), 20..60), at in 0usize..9, new: u16,
        ) {
            let before = Sum::of(&data).checksum();
            let old = u16::from_be_bytes([data[2 * at], data[2 * at + 1]]);
            data[2 * at..2 * at + 2].copy_from_slice(&new.to_be_bytes());
            let after = Sum::of(&data).checksum();
            prop_assert!(same(update(before, old, new), after));
            // RFC 1624 §3: never turns what should be 0000 into FFFF, as long as some data is not zero.
            if data.iter().any(|&byte| byte != 0) {
                prop_assert_eq!(update(before, old, new), after);
            }
        }
    }

    #[test]
    fn sums_the_largest_packet_of_ones() {
        assert!(same(Sum::of(&vec![0xff; 1 << 20]).value(), 0xffff));
    }
}
