//! `lastmeter bench touch`: integrated layer processing (A-169): copy, decryption and checksum of a data
//! unit in three passes, one per layer, and in one.
//!
//! ```text
//! separate: copy all --> decrypt all in place --> sum all     memory is crossed five times
//! fused:    load a word, decrypt it, add it, store it         memory is crossed twice
//! ```
//!
//! The number after `@` is the unit's length: a cache that holds the unit hides the cost of the passes. The
//! cipher is **insecure**: each word of data is combined with a hash of a counter, the least work that
//! touches it. Both variants give the same bytes and sum, as their hashes show.
//!
//! Source: Aurora report §2.1 (application level framing and integrated layer processing), after Clark and
//! Tennenhouse, Architectural Considerations for a New Generation of Protocols, SIGCOMM 1990.

use lastmeter_base::bench::{Case, Work};

const KEY: u64 = 0x6c61_7374_6d65_7465;
/// Bytes per round: the longest unit.
const TOTAL: usize = 1 << 24;
const TOTAL_QUICK: usize = 1 << 16;

macro_rules! case {
    ($name:literal, $len:literal, $work:expr, $what:literal) => {
        Case { name: $name, unit: "B", what: $what, prepare: |quick| rounds(quick, $len, $work) }
    };
}

/// Both variants, for units of three lengths.
pub(crate) const CASES: &[Case] = &[
    case!("touch/separate@8192", 8192, separate, "copy, decryption, sum: three passes over 8 KiB"),
    case!("touch/separate@262144", 262_144, separate, "three passes over 256 KiB"),
    case!("touch/separate@16777216", 16_777_216, separate, "three passes over 16 MiB"),
    case!("touch/fused@8192", 8192, fused, "copy, decryption, sum in one pass over 8 KiB"),
    case!("touch/fused@262144", 262_144, fused, "one pass over 256 KiB"),
    case!("touch/fused@16777216", 16_777_216, fused, "one pass over 16 MiB"),
];

/// The word of the key stream at `at`: Steele's finaliser over a counter.
#[inline(always)]
fn key_word(at: usize) -> u64 {
    let mut word = KEY.wrapping_add(at as u64);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The sum of 32-bit halves, which folds to the Internet checksum.
#[inline(always)]
fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

fn separate(src: &[u64], dst: &mut [u64]) -> u64 {
    dst.copy_from_slice(src);
    for (at, word) in dst.iter_mut().enumerate() {
        *word ^= key_word(at);
    }
    // Each layer takes the data from the one before; the compiler must not merge the passes.
    std::hint::black_box(&mut *dst).iter().map(|&word| halves(word)).sum()
}

fn fused(src: &[u64], dst: &mut [u64]) -> u64 {
    let mut sum = 0;
    for (at, (from, to)) in src.iter().zip(dst).enumerate() {
        let word = from ^ key_word(at);
        *to = word;
        sum += halves(word);
    }
    sum
}

type Pass = fn(&[u64], &mut [u64]) -> u64;

/// Units of `len` bytes, one after the other.
fn rounds(quick: bool, len: usize, pass: Pass) -> Box<dyn FnMut() -> Work> {
    let total = if quick { TOTAL_QUICK.max(len) } else { TOTAL };
    let words = len / size_of::<u64>();
    let data: Vec<u64> = (0..total as u64 / 8).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
    let mut buffer = vec![0_u64; data.len()];
    Box::new(move || {
        let units = data.chunks_exact(words).zip(buffer.chunks_exact_mut(words));
        let hash = units.fold(0_u64, |hash, (from, to)| {
            hash.rotate_left(1) ^ pass(from, to) ^ to.last().copied().unwrap_or(0)
        });
        Work { units: total as u64, hash }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pass_gives_the_result_of_three_a_169() {
        for [a, b] in [[0, 3], [1, 4]] {
            let [mut a, mut b] = [a, b].map(|case: usize| (CASES[case].prepare)(true));
            assert_eq!(a(), b());
        }
        let src: Vec<u64> = (0..1000).map(|at| at * at).collect();
        let (mut one, mut three) = (vec![0; 1000], vec![0; 1000]);
        assert_eq!(fused(&src, &mut one), separate(&src, &mut three));
        assert_eq!(one, three);
        assert_ne!(one, src);
    }
}
