//! Counts of bytes.

use std::fmt;
use std::ops::SubAssign;

/// A count of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);
    /// `n` times 1024 bytes.
    pub const fn from_kib(n: u64) -> Bytes {
        Bytes(n.checked_mul(1024).expect("too many bytes"))
    }
    /// `n` times 1024 * 1024 bytes.
    pub const fn from_mib(n: u64) -> Bytes {
        Bytes(n.checked_mul(1024 * 1024).expect("too many bytes"))
    }
}

arithmetic!(Bytes, "fewer bytes than none");

impl SubAssign for Bytes {
    #[inline]
    fn sub_assign(&mut self, by: Bytes) {
        *self = *self - by;
    }
}

impl fmt::Display for Bytes {
    /// In binary multiples where that is exact (`64 KiB`), else in decimal ones (`150 kB`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        const DECIMAL: [(u64, &str); 4] =
            [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
        let exact = |&(size, _): &(u64, &str)| {
            self.0 >= size && self.0.is_multiple_of(size) && self.0 / size < 1024
        };
        if let Some((size, unit)) = BINARY.into_iter().find(exact) {
            return write!(f, "{} {unit}", self.0 / size);
        }
        // Packet sizes read best in bytes.
        match self.0 >= 100_000 {
            true => crate::text::write_in(f, self.0, &DECIMAL, DECIMAL[3]),
            false => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_packet_lengths_in_bytes_and_volumes_in_multiples() {
        let cases =
            [(1500, "1500 B"), (65_536, "64 KiB"), (150_000, "150 kB"), (25_600_000, "25.6 MB")];
        for (count, text) in cases {
            assert_eq!(Bytes(count).to_string(), text);
        }
    }
}
