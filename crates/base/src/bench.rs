//! The description of a benchmark, so that every crate can define its own without reading a clock.
//!
//! A case prepares its input once and then repeats the same work; the caller (the `lastmeter bench`
//! command, or a test on small input) has the clock. The hash of the result prevents the work from being
//! optimised away and shows that two runs did the same.

/// One benchmark.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name on the command line: `wire/aal5`.
    pub name: &'static str,
    /// The unit, as printed before "/s": `packet-hops`, `B`, `lookups`.
    pub unit: &'static str,
    /// One sentence: what is done, on what input.
    pub what: &'static str,
    /// Builds the input, small when `quick`, and returns the work itself.
    pub prepare: fn(quick: bool) -> Box<dyn FnMut() -> Work>,
}

/// The result of one round of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Number of [`Case::unit`]s.
    pub units: u64,
    /// A hash of the result: the same for every round and every machine.
    pub hash: u64,
}

// What passes over memory are measured with: here, where every profile optimises, and never part of a caller.

/// The sum of the 64-bit words of `bytes`.
#[inline(never)]
pub fn sum_words(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8; 8]| u64::from_ne_bytes(*chunk);
    bytes.as_chunks::<8>().0.iter().map(word).fold(0, u64::wrapping_add)
}

/// The Internet checksum of whole words of 32 bits, as a plain loop: the one's complement sum; wider words give the
/// same sum after folding (RFC 1071 §2).
#[inline(never)]
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let word = |chunk: &[u8; 4]| u64::from(u32::from_be_bytes(*chunk));
    let mut sum: u64 = bytes.as_chunks::<4>().0.iter().map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rfc_example_has_its_published_checksum() {
        // RFC 1071 §3: 00 01 f2 03 f4 f5 f6 f7 sums to ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_checksum(&bytes), !0xddf2);
    }
}
