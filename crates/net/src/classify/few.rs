//! The search while there are few blocks: it examines all rules, 512 at a time, in order of precedence.
//!
//! The bits of 512 rules in one field are one cache line and one vector, so there is little to save by finding
//! out which of them are worth it: with summaries of 16 rules each, the three kinds of sets in `generate.rs` took
//! 21, 41 and 34 ns per packet with 1,000 rules (1.05, 3.7 and 2.4 words of 64 rules were examined), and take 15, 14
//! and 16 ns this way. Only packets without a match so far take part in the next pass.

use super::Match;
use super::bits::{BLOCK, WORDS, ones};
use super::general::{General, NONE, ROW};
use super::rows::{PART, Part};
use super::rule::{Address, Header};
use pulp::Simd;
use std::hint::select_unpredictable;

/// The bits of a part.
type Words = [u64; PART / 64];

impl<A: Address> General<A> {
    /// The rules of at most [`ROW`] packets.
    #[inline(always)]
    pub(super) fn row_of_few<const N: usize, S: Simd>(
        &self,
        simd: S,
        headers: &[Header<A>],
        found: &mut [Option<Match>],
    ) {
        let (numbers, fields) = (self.numbers::<N>(headers), self.fields());
        let (mut best, mut packets) =
            ([NONE; ROW], std::array::from_fn::<u8, ROW, _>(|at| at as u8));
        let mut going = headers.len().min(ROW);
        for part in 0..self.dst.rows.parts.len() {
            let rows: [&[Part]; N] = std::array::from_fn(|field| &fields[field].parts[part][..]);
            // Which rules match any value of a field, the slot with which each word begins, whether all are in order.
            let (mut any, mut starts, mut sorted) = ([[0; PART / 64]; N], [0; PART / 64], true);
            let blocks = self.bands.iter().skip(part * PART / BLOCK).take(PART / BLOCK);
            let words = blocks.flat_map(|&(_, block)| (0..WORDS).map(move |word| (block, word)));
            for (at, (block, word)) in words.enumerate() {
                starts[at] = (block * BLOCK + word * 64) as u32;
                sorted &= self.sorted >> block & 1 != 0;
                for (any, bits) in any.iter_mut().zip(&self.any[block]) {
                    any[at] = bits.0[word];
                }
            }
            let mut still = 0;
            for at in 0..going {
                let packet = usize::from(packets[at]) % ROW;
                let row = |field: usize| &rows[field][usize::from(numbers[field][packet])].0;
                let rows = std::array::from_fn(row);
                let (hits, filled) = all(simd, rows, &any);
                let slot = match sorted {
                    true => first(&hits, filled, &starts),
                    false => self.least(&hits, &starts),
                };
                best[packet] = select_unpredictable(filled != 0, slot, NONE);
                packets[still % ROW] = packet as u8;
                still += usize::from(filled == 0);
            }
            going = still.min(ROW);
        }
        for (found, slot) in found.iter_mut().zip(best) {
            *found = self.matches[slot as usize];
        }
    }
    /// The first of the rules that match, which are not in order.
    #[cold]
    #[inline(never)]
    fn least(&self, hits: &Words, starts: &[u32; PART / 64]) -> u32 {
        let slots = ones(hits).map(|at| starts[at / 64] + at as u32 % 64);
        slots.min_by_key(|&slot| self.keys[slot as usize]).unwrap_or(NONE)
    }
}

/// The rules that are in each row or match any value of its field, and which words of them are not zero.
#[inline(always)]
fn all<const N: usize, S: Simd>(simd: S, rows: [&Words; N], any: &[Words; N]) -> (Words, u32) {
    // Whether a vector is all words, and a comparison of two has one bit for each word.
    let whole = S::U64_LANES == PART / 64 && size_of::<S::m64s>() == 1;
    let (mut all, mut filled) = ([0; PART / 64], 0);
    let (vectors, _) = S::as_mut_simd_u64s(&mut all);
    for (at, vector) in vectors.iter_mut().enumerate() {
        let mut hits = simd.splat_u64s(u64::MAX);
        for (row, any) in rows.iter().zip(any) {
            let (row, any) = (S::as_simd_u64s(*row).0[at], S::as_simd_u64s(any).0[at]);
            hits = simd.and_u64s(hits, simd.or_u64s(row, any));
        }
        *vector = hits;
        if whole {
            let empty = simd.equal_u64s(hits, simd.splat_u64s(0));
            filled = u32::from(!pulp::bytemuck::cast::<S::m64s, u8>(empty));
        }
    }
    if !whole {
        filled = (0..PART / 64).fold(0, |filled, word| filled | u32::from(all[word] != 0) << word);
    }
    (all, filled)
}
/// The slot of the first bit that is set.
#[inline(always)]
fn first(words: &Words, filled: u32, starts: &[u32; PART / 64]) -> u32 {
    let word = filled.trailing_zeros() as usize % words.len();
    starts[word] + words[word].trailing_zeros()
}
