//! An adaptive binary range coder: bits with estimated probabilities to bytes and back.
//!
//! A range is cut in proportion to the probability of the two values, and the part of the actual one is kept; carries
//! are resolved as in Martin, Range encoding, 1979, with the byte that may still change held back. Each estimate adapts
//! fast at first. Bytes of zero at the end are left out: the decoder reads zeros beyond the end, however far.

/// Below this the range is widened by a byte.
const WIDEN: u32 = 1 << 24;
/// Bits of a probability that are used.
const USED: u32 = 12;
/// How fast an estimate adapts, by the bits it has seen; the last goes on.
const RATES: [u8; 8] = [1, 2, 3, 3, 4, 4, 4, 5];

/// The estimated probability that a bit is 0.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    zero: u16,
    seen: u8,
}

impl Default for Estimate {
    fn default() -> Estimate {
        Estimate { zero: 1 << 15, seen: 0 }
    }
}

impl Estimate {
    /// The part of `range` for 0: at least 1, and less than `range`.
    #[inline]
    fn part(self, range: u32) -> u32 {
        (range >> USED) * u32::from(self.zero >> (16 - USED))
    }
    #[inline]
    fn adapt(&mut self, bit: bool) {
        let rate = RATES[usize::from(self.seen)];
        if bit {
            self.zero -= self.zero >> rate;
        } else {
            self.zero += (u16::MAX - self.zero) >> rate;
        }
        self.seen = (self.seen + 1).min(RATES.len() as u8 - 1);
    }
}

/// Bits to bytes.
#[derive(Debug)]
pub struct Writer {
    low: u64,
    range: u32,
    held: u8,
    /// Bytes held back, the first of them `held`, the others 0xff; 0 before the first one.
    holds: usize,
    bytes: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer { low: 0, range: u32::MAX, held: 0, holds: 0, bytes: Vec::new() }
    }
}

impl Writer {
    /// A bit, by its estimate.
    #[inline]
    pub fn bit(&mut self, bit: bool, estimate: &mut Estimate) {
        let part = estimate.part(self.range);
        estimate.adapt(bit);
        if bit {
            self.low += u64::from(part);
            self.range -= part;
        } else {
            self.range = part;
        }
        self.widen();
    }
    /// A bit of which nothing is known.
    #[inline]
    pub fn even(&mut self, bit: bool) {
        self.range >>= 1;
        if bit {
            self.low += u64::from(self.range);
        }
        self.widen();
    }
    #[inline]
    fn widen(&mut self) {
        while self.range < WIDEN {
            self.range <<= 8;
            self.shift();
        }
    }
    fn shift(&mut self) {
        let carry = (self.low >> 32) as u8;
        let next = (self.low >> 24) as u8;
        if carry == 1 || next != 0xff || self.holds == 0 {
            if self.holds > 0 {
                self.bytes.push(self.held.wrapping_add(carry));
                self.bytes.resize(self.bytes.len() + self.holds - 1, 0xff_u8.wrapping_add(carry));
            }
            (self.held, self.holds) = (next, 0);
        }
        self.holds += 1;
        self.low = (self.low & 0x00ff_ffff) << 8;
    }
    /// Bytes so far; a decoder that has 8 more of the following ones decodes all bits so far.
    pub fn written(&self) -> usize {
        self.bytes.len() + self.holds
    }
    /// The code.
    pub fn finish(mut self) -> Vec<u8> {
        // The number in the range that ends with most zeros.
        let end = self.low + u64::from(self.range) - 1;
        let rounded = |bits: u32| (self.low + ((1 << bits) - 1)) >> bits << bits;
        let best = (0..=32).rev().map(rounded).find(|&number| number <= end);
        self.low = best.unwrap_or(self.low);
        for _ in 0..5 {
            self.shift();
        }
        while self.bytes.last() == Some(&0) {
            self.bytes.pop();
        }
        self.bytes
    }
}

/// Bytes to bits.
#[derive(Debug)]
pub struct Reader<'a> {
    code: u32,
    range: u32,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// From any bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        let mut reader = Reader { code: 0, range: u32::MAX, bytes };
        for _ in 0..4 {
            reader.code = reader.code << 8 | reader.byte();
        }
        reader
    }
    #[inline]
    fn byte(&mut self) -> u32 {
        match self.bytes {
            [] => 0,
            &[first, ref rest @ ..] => {
                self.bytes = rest;
                first.into()
            }
        }
    }
    /// The next bit, by its estimate.
    #[inline]
    pub fn bit(&mut self, estimate: &mut Estimate) -> bool {
        let part = estimate.part(self.range);
        let bit = self.code >= part;
        estimate.adapt(bit);
        if bit {
            self.code -= part;
            self.range -= part;
        } else {
            self.range = part;
        }
        self.widen();
        bit
    }
    /// The next bit, of which nothing is known.
    #[inline]
    pub fn even(&mut self) -> bool {
        self.range >>= 1;
        let bit = self.code >= self.range;
        if bit {
            self.code -= self.range;
        }
        self.widen();
        bit
    }
    #[inline]
    fn widen(&mut self) {
        while self.range < WIDEN {
            self.range <<= 8;
            self.code = self.code << 8 | self.byte();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_come_back(bits: Vec<(bool, u8)>) {
            let (mut writer, mut estimates) = (Writer::default(), [Estimate::default(); 4]);
            for &(bit, context) in &bits {
                match context % 5 {
                    4 => writer.even(bit),
                    at => writer.bit(bit, &mut estimates[usize::from(at)]),
                }
            }
            let bytes = writer.finish();
            let (mut reader, mut estimates) = (Reader::new(&bytes), [Estimate::default(); 4]);
            for &(bit, context) in &bits {
                let read = match context % 5 {
                    4 => reader.even(),
                    at => reader.bit(&mut estimates[usize::from(at)]),
                };
                prop_assert_eq!(read, bit);
            }
        }
    }

    #[test]
    fn codes_may_begin_with_ones_and_carry() {
        for seed in 0..300 {
            let mut stream = lastmeter_base::Stream::new(seed, "bits");
            // At first what is least expected, so that some codes begin with bytes of ones.
            let likely = |n: usize| if n < 30 { 1.0 } else { [0.02, 0.5, 0.98][n % 3] };
            let bits: Vec<bool> = (0..3000).map(|n| stream.chance(likely(n))).collect();
            let (mut writer, mut estimates) = (Writer::default(), [Estimate::default(); 3]);
            for (n, &bit) in bits.iter().enumerate() {
                writer.bit(bit, &mut estimates[n % 3]);
            }
            let bytes = writer.finish();
            let (mut reader, mut estimates) = (Reader::new(&bytes), [Estimate::default(); 3]);
            for (n, &bit) in bits.iter().enumerate() {
                assert_eq!(reader.bit(&mut estimates[n % 3]), bit, "seed {seed}, bit {n}");
            }
        }
    }

    #[test]
    fn rare_bits_cost_little() {
        let (mut writer, mut estimate) = (Writer::default(), Estimate::default());
        for n in 0..80_000 {
            writer.bit(n % 100 == 0, &mut estimate);
        }
        // 0.081 bits each are the least for 1 in 100.
        assert!(writer.finish().len() < 1100);
    }
}
