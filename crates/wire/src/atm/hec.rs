//! Header error control: one byte that delineates cells and corrects single-bit errors.
//!
//! | mode       | no error            | one bit wrong         | more bits wrong      |
//! |------------|---------------------|-----------------------|----------------------|
//! | correction | accept              | correct, go to detection | discard, go to detection |
//! | detection  | accept, go to correction | discard          | discard              |
//!
//! Source: ITU-T I.432.1 (02/99) §4.3.2, with the coset 01010101 added before sending.
//!
//! ```
//! use lastmeter_wire::atm::hec::{Checked, Receiver, hec};
//! let mut receiver = Receiver::default();
//! let mut header = [0, 0, 0, 0x50, hec([0, 0, 0, 0x50])];
//! header[1] ^= 0x10;
//! assert_eq!(receiver.check(header), Checked::Corrected([0, 0, 0, 0x50]));
//! ```

use super::HEADER_LEN;
use crate::crc::CRC8_TABLE;

/// Added to the CRC so that bit slips are detected in a run of zeros.
pub const COSET: u8 = 0x55;
/// Bits of a header with its error control.
const BITS: usize = 40;

/// `TABLES[i]` is the contribution of a byte followed by `i` others: the CRC is linear, so the four contributions
/// are looked up in parallel and added.
const TABLES: [[u8; 256]; HEADER_LEN] = {
    let mut tables = [CRC8_TABLE; HEADER_LEN];
    let mut place = 1;
    while place < HEADER_LEN {
        let mut at = 0;
        while at < 256 {
            tables[place][at] = CRC8_TABLE[tables[place - 1][at] as usize];
            at += 1;
        }
        place += 1;
    }
    tables
};

/// The error control byte of a header.
#[inline]
pub fn hec(header: [u8; HEADER_LEN]) -> u8 {
    let [a, b, c, d] = header.map(usize::from);
    TABLES[3][a] ^ TABLES[2][b] ^ TABLES[1][c] ^ TABLES[0][d] ^ COSET
}

/// Zero if header and error control agree.
#[inline]
pub fn syndrome(header: [u8; 5]) -> u8 {
    let [a, b, c, d, check] = header;
    hec([a, b, c, d]) ^ check
}

/// The bit that a syndrome identifies if only one is wrong, counted from the first one sent.
const BLAMED: [Option<u8>; 256] = {
    let mut blamed = [None; 256];
    let mut bit = 0;
    while bit < BITS {
        let value = 0x80u8 >> (bit % 8);
        // A wrong bit of the HEC itself is its own syndrome.
        let syndrome = if bit < 32 { TABLES[3 - bit / 8][value as usize] } else { value };
        blamed[syndrome as usize] = Some(bit as u8);
        bit += 1;
    }
    blamed
};

/// The result of checking a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It was correct.
    Accepted,
    /// One bit was wrong; this is the corrected header.
    Corrected([u8; HEADER_LEN]),
    /// The cell must be discarded.
    Discarded,
}

/// The receiver's two modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receiver {
    /// Detection mode: the last header had an error, so this one is not corrected.
    pub detecting: bool,
    /// Never corrects: for links with burst errors.
    pub detect_only: bool,
    /// Headers corrected.
    pub corrected: u64,
    /// Cells discarded.
    pub discarded: u64,
}

impl Receiver {
    /// Checks one header with its error control.
    #[inline]
    pub fn check(&mut self, header: [u8; 5]) -> Checked {
        let syndrome = syndrome(header);
        if syndrome == 0 {
            self.detecting = false;
            return Checked::Accepted;
        }
        let may_correct = !self.detecting && !self.detect_only;
        self.detecting = true;
        match BLAMED[usize::from(syndrome)] {
            Some(bit) if may_correct => {
                self.corrected += 1;
                let mut repaired = header;
                repaired[usize::from(bit / 8)] ^= 0x80 >> (bit % 8);
                let [a, b, c, d, _] = repaired;
                Checked::Corrected([a, b, c, d])
            }
            _ => {
                self.discarded += 1;
                Checked::Discarded
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_test_vectors_of_the_standard() {
        let cases = [
            (0x0000_0000, 0x55),
            (0x0000_0001, 0x52),
            (0x0000_0050, 0xe2),
            (0xffff_ffff, 0x8b),
            (0x8000_0000u32, 0x64),
        ];
        for (header, check) in cases {
            assert_eq!(hec(header.to_be_bytes()), check, "{header:08x}");
        }
    }

    fn sent(header: u32) -> u64 {
        u64::from(header) << 8 | u64::from(hec(header.to_be_bytes()))
    }
    fn received(bits: u64) -> [u8; 5] {
        let [_, _, _, a, b, c, d, e, ..] = bits.to_be_bytes();
        [a, b, c, d, e]
    }

    #[test]
    fn corrects_every_single_bit_error_and_then_only_detects() {
        for header in [0, 0x50, 0xffff_ffff, 0x1234_5678] {
            for bit in 0..BITS {
                let mut receiver = Receiver::default();
                let wrong = received(sent(header) ^ 1 << bit);
                assert_eq!(receiver.check(wrong), Checked::Corrected(header.to_be_bytes()));
                assert_eq!(receiver.check(wrong), Checked::Discarded);
                assert_eq!(receiver.check(received(sent(header))), Checked::Accepted);
                assert!(!receiver.detecting);
            }
        }
    }

    #[test]
    fn detects_every_double_bit_and_miscorrects_none() {
        let blamed = BLAMED.iter().flatten().count();
        assert_eq!(blamed, BITS, "forty different syndromes for forty bits");
        for first in 0..BITS {
            for second in 0..first {
                let wrong = received(sent(0x1234_5678) ^ 1 << first ^ 1 << second);
                let mut receiver = Receiver { detecting: true, ..Receiver::default() };
                assert_eq!(receiver.check(wrong), Checked::Discarded);
                // The code has distance 4: two wrong bits never look like one.
                let mut receiver = Receiver::default();
                assert_eq!(receiver.check(wrong), Checked::Discarded);
            }
        }
    }
}
