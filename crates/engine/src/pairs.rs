//! A table by two numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Values by a [`pair`] of numbers: in a switch, a million of them by output and flow.
pub(crate) type Pairs = HashMap<u64, u64, BuildHasherDefault<Multiplied>>;

/// The key of two numbers.
#[inline]
pub(crate) fn pair(first: u32, second: u32) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

/// A hash by one multiplication. The keys come from the model, not from a network, so nobody chooses them to collide.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multiplied(u64);

impl Hasher for Multiplied {
    #[inline]
    fn write_u64(&mut self, key: u64) {
        // Both halves: the upper bits of a key hardly reach the lower one.
        let product = u128::from(self.0 ^ key) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Multiplied, pair};
    use std::collections::HashSet;
    use std::hash::Hasher;

    #[test]
    fn hashes_of_neighbouring_pairs_differ_at_both_ends() {
        let hash = |first, second| {
            let mut hasher = Multiplied::default();
            hasher.write_u64(pair(first, second));
            hasher.finish()
        };
        let all: Vec<u64> = (0..256).flat_map(|a| (0..256).map(move |b| hash(a, b))).collect();
        // A table of twice the size picks places by the lowest bits, and compares the highest seven first.
        let places: HashSet<u64> = all.iter().map(|hash| hash & 0x1_ffff).collect();
        // 65,536 keys thrown at random into 131,072 places fill 51,573 of them.
        assert!(places.len() > 50_000, "{} places", places.len());
        let mut tags = [0; 128];
        all.iter().for_each(|hash| tags[(hash >> 57) as usize] += 1);
        assert!(tags.iter().all(|&count| (300..800).contains(&count)), "{tags:?}");
    }
}
