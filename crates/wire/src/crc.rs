//! The cyclic redundancy checks of ATM, iSCSI and Myrinet.
//!
//! | name    | polynomial                     | used by                                         |
//! |---------|--------------------------------|-------------------------------------------------|
//! | CRC-32  | 0x04C11DB7, not reflected      | AAL5 (I.363.5); the same as bzip2's             |
//! | CRC-32C | 0x1EDC6F41, reflected          | iSCSI (RFC 7143, section 13.1)                  |
//! | CRC-10  | x^10+x^9+x^5+x^4+x+1           | AAL3/4 and OAM cells (I.363.3, I.610)           |
//! | CRC-8   | x^8+x^2+x+1                    | header error control (I.432), Myrinet           |
//!
//! ```
//! // I.363.5, appendix: forty zero bytes, user byte and indicator zero.
//! let mut pdu = [0; 48];
//! pdu[43] = 40;
//! assert_eq!(lastmeter_wire::crc::crc32(&pdu[..44]), 0x864d_7f99);
//! ```

use crc_fast::{CrcAlgorithm, Digest};

/// The result of [`crc32`] over a message followed by its own CRC, most significant byte first: the register then
/// holds C704DD7B (I.363.5 §9.2), and the result is its complement.
pub const CRC32_RESIDUE: u32 = !0xc704_dd7b;

/// CRC-32 of AAL5: initial value all ones, most significant bit first, complemented.
pub fn crc32(data: &[u8]) -> u32 {
    // The library returns all widths in 64 bits; the upper half is zero here.
    crc_fast::checksum(CrcAlgorithm::Crc32Bzip2, data) as u32
}

/// CRC-32C of iSCSI: initial value all ones, least significant bit first, complemented.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// CRC-32 of AAL5 over data in pieces. Pieces of less than some hundred bytes are slow; if all data is available,
/// use [`crc32`].
#[derive(Clone, Debug)]
pub struct Crc32(Digest);

impl Default for Crc32 {
    fn default() -> Crc32 {
        Crc32(Digest::new(CrcAlgorithm::Crc32Bzip2))
    }
}

impl Crc32 {
    /// Adds `piece`.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }
    /// The CRC of all pieces so far.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

const CRC10_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut value, mut bit) = ((at as u16) << 2, 0);
        while bit < 8 {
            value = if value & 0x200 == 0 { value << 1 } else { (value << 1) ^ 0x233 };
            bit += 1;
        }
        table[at] = value & 0x3ff;
        at += 1;
    }
    table
};

/// CRC-10: initial value zero. Over a message that ends with its own CRC (in its last ten bits) the result is
/// zero.
pub fn crc10(data: &[u8]) -> u16 {
    data.iter().fold(0, |crc, &byte| {
        let index = (crc >> 2) as u8 ^ byte;
        ((crc << 8) & 0x3ff) ^ CRC10_TABLE[usize::from(index)]
    })
}

/// Writes the CRC-10 of all but the last ten bits into the last ten.
pub fn seal10(data: &mut [u8]) {
    let Some((body, [high, low])) = data.split_last_chunk_mut::<2>() else { return };
    // The six bits above the CRC belong to the message: one bit at a time.
    let check = (2..8).rev().fold(crc10(body), |crc, bit| {
        let out = (crc >> 9 ^ u16::from(*high >> bit)) & 1;
        (crc << 1 & 0x3ff) ^ if out == 1 { 0x233 } else { 0 }
    });
    *high = *high & 0xfc | (check >> 8) as u8;
    *low = check as u8;
}

pub(crate) const CRC8_TABLE: [u8; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut value, mut bit) = (at as u8, 0);
        while bit < 8 {
            value = if value & 0x80 == 0 { value << 1 } else { (value << 1) ^ 0x07 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

/// CRC-8: initial value zero, not complemented.
pub fn crc8(data: &[u8]) -> u8 {
    data.iter().fold(0, |crc, &byte| CRC8_TABLE[usize::from(crc ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One bit at a time, as drawn in the standards.
    fn bitwise(data: &[u8], width: u32, polynomial: u64, start: u64) -> u64 {
        let top = 1u64 << (width - 1);
        let bits = data.iter().flat_map(|&byte| (0..8).rev().map(move |bit| byte >> bit & 1));
        let register = bits.fold(start, |register, bit| {
            let out = (register & top != 0) != (bit != 0);
            (register << 1 & (top << 1).wrapping_sub(1)) ^ if out { polynomial } else { 0 }
        });
        register & (top << 1).wrapping_sub(1)
    }

    #[test]
    fn agrees_with_the_check_values_of_the_catalogue() {
        assert_eq!(crc32(b"123456789"), 0xfc89_1918);
        assert_eq!(crc10(b"123456789"), 0x199);
        assert_eq!(crc8(b"123456789"), 0xf4);
    }

    proptest! {
        #[test]
        fn agrees_with_one_bit_at_a_time(
            data in proptest::collection::vec(any::<u8>(), 0..700), cut in 0usize..700,
        ) {
            let naive = !(bitwise(&data, 32, 0x04c1_1db7, 0xffff_ffff) as u32);
            prop_assert_eq!(crc32(&data), naive);
            prop_assert_eq!(u64::from(crc10(&data)), bitwise(&data, 10, 0x233, 0));
            prop_assert_eq!(u64::from(crc8(&data)), bitwise(&data, 8, 0x07, 0));
            let (head, tail) = data.split_at(cut.min(data.len()));
            let mut pieces = Crc32::default();
            pieces.update(head);
            pieces.update(tail);
            prop_assert_eq!(pieces.value(), naive);
            let whole = [&data[..], &naive.to_be_bytes()].concat();
            prop_assert_eq!(crc32(&whole), CRC32_RESIDUE);
            let mut sealed = [&data[..], &[0xff; 2]].concat();
            seal10(&mut sealed);
            prop_assert_eq!(crc10(&sealed), 0);
            prop_assert_eq!(sealed[data.len()] & 0xfc, 0xfc, "the message is unchanged");
        }
    }
}
