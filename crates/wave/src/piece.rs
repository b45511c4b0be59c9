//! The code of a piece of a band: bit-plane by bit-plane, from the highest one, each bit by its neighbours.
//!
//! ```text
//! for each plane:  not yet significant: 0 or 1 (by how many neighbours are), if 1 the sign;  else the next bit
//! ```
//!
//! The code is embedded: what is cut off costs the lowest planes only ([`Code::cut`]). A piece is decoded by itself.
//!
//! Source: the bits and contexts are those of embedded zero-block coders, simplified (Taubman 2000): one pass for each
//! plane, neighbours weighted 2 beside and 1 across.

use crate::bits::{Estimate, Reader, Writer};
use lastmeter_wire::wave::PLANES_MAX;

/// Bytes that a decoder reads ahead of what it has decoded.
const AHEAD: usize = 8;

/// A piece's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Bit-planes of its largest value.
    pub planes: u8,
    /// How many were left out at the bottom.
    pub floor: u8,
    /// The code itself.
    pub bytes: Vec<u8>,
    /// How long it must be for each plane, from the highest.
    ends: Vec<usize>,
}

impl Code {
    /// Leaves planes out until it has at most `len` bytes. Returns whether it has.
    pub fn cut(&mut self, len: usize) -> bool {
        while self.bytes.len() > len && self.floor < self.planes {
            self.floor += 1;
            self.ends.pop();
            let end = self.ends.last().copied().unwrap_or(0);
            self.bytes.truncate(end);
        }
        self.bytes.len() <= len
    }
}

/// What is known of the coefficients, with a margin of one on each side.
struct Map {
    stride: usize,
    /// For each, how many of its neighbours are significant, weighted.
    near: Vec<u8>,
    /// 0 not significant, 1 since this plane or the last, 2 before.
    known: Vec<u8>,
    significant: [Estimate; 13],
    further: [Estimate; 6],
}

impl Map {
    fn new(width: usize, rows: usize) -> Map {
        let stride = width + 2;
        let cells = stride * (rows + 2);
        Map {
            stride,
            near: vec![0; cells],
            known: vec![0; cells],
            significant: Default::default(),
            further: Default::default(),
        }
    }
    fn place(&self, x: usize, y: usize) -> usize {
        (y + 1) * self.stride + x + 1
    }
    /// The estimate for a significant coefficient's next bit.
    #[inline]
    fn next(&mut self, at: usize) -> &mut Estimate {
        let near = match self.near[at] {
            0..=3 => 0,
            4..=8 => 1,
            _ => 2,
        };
        let estimate = 3 * usize::from(self.known[at] - 1) + near;
        self.known[at] = 2;
        &mut self.further[estimate]
    }
    #[inline]
    fn mark(&mut self, at: usize) {
        self.known[at] = 1;
        for middle in [at - self.stride, at, at + self.stride] {
            let weight = if middle == at { 2 } else { 1 };
            self.near[middle - 1] += weight;
            self.near[middle + 1] += weight;
        }
        self.near[at - self.stride] += 2;
        self.near[at + self.stride] += 2;
    }
}

/// Codes quantised coefficients, row by row; magnitudes below 2^15.
pub fn encode(values: &[i32], width: usize) -> Code {
    let most = values.iter().map(|value| value.unsigned_abs()).max().unwrap_or(0);
    let planes = (u32::BITS - most.leading_zeros()).min(PLANES_MAX.into()) as u8;
    let mut map = Map::new(width, values.len() / width.max(1));
    let (mut writer, mut ends) = (Writer::default(), Vec::new());
    for plane in (0..planes).rev() {
        for (y, row) in values.chunks_exact(width).enumerate() {
            let first = map.place(0, y);
            for (at, &value) in (first..).zip(row) {
                let bit = value.unsigned_abs() >> plane & 1 == 1;
                if map.known[at] > 0 {
                    writer.bit(bit, map.next(at));
                    continue;
                }
                writer.bit(bit, &mut map.significant[usize::from(map.near[at])]);
                if bit {
                    writer.even(value < 0);
                    map.mark(at);
                }
            }
        }
        ends.push(writer.written() + AHEAD);
    }
    Code { planes, floor: 0, bytes: writer.finish(), ends }
}

/// Decodes as many coefficients as `values` holds, a multiple of `width`. Any bytes give some values.
pub fn decode(code: &[u8], planes: u8, floor: u8, width: usize, values: &mut [i32]) {
    let mut map = Map::new(width, values.len() / width.max(1));
    let mut reader = Reader::new(code);
    values.fill(0);
    for plane in (floor..planes.min(PLANES_MAX)).rev() {
        for (y, row) in values.chunks_exact_mut(width).enumerate() {
            let first = map.place(0, y);
            for (at, value) in (first..).zip(row) {
                if map.known[at] > 0 {
                    let bit = i32::from(reader.bit(map.next(at))) << plane;
                    *value += if *value < 0 { -bit } else { bit };
                    continue;
                }
                if reader.bit(&mut map.significant[usize::from(map.near[at])]) {
                    let magnitude = 1 << plane;
                    *value = if reader.even() { -magnitude } else { magnitude };
                    map.mark(at);
                }
            }
        }
    }
    if let Some(half) = floor.checked_sub(1) {
        // What was left out is somewhere between.
        let half = 1 << half;
        for value in values {
            *value += half * value.signum();
        }
    }
}

/// Quantises with a dead zone around zero.
#[inline]
pub fn quantise(value: i32, step: u8) -> i32 {
    value / i32::from(step)
}

/// The middle of what is quantised to this.
#[inline]
pub fn restore(value: i32, step: u8) -> i32 {
    value * i32::from(step) + value.signum() * i32::from(step / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = (usize, Vec<i32>)> {
        (1usize..20, 1usize..20).prop_flat_map(|(width, rows)| {
            let value = prop_oneof![3 => -3..=3, 1 => -3000..=3000];
            (Just(width), proptest::collection::vec(value, width * rows))
        })
    }

    proptest! {
        #[test]
        fn what_is_coded_comes_back((width, values) in values()) {
            let code = encode(&values, width);
            let mut back = vec![0; values.len()];
            decode(&code.bytes, code.planes, 0, width, &mut back);
            prop_assert_eq!(back, values);
        }

        #[test]
        fn what_is_cut_off_costs_the_lowest_planes_only((width, values) in values(), len in 0usize..200) {
            let mut code = encode(&values, width);
            prop_assert!(code.cut(len));
            let mut back = vec![0; values.len()];
            decode(&code.bytes, code.planes, code.floor, width, &mut back);
            let lost = 1 << code.floor;
            for (value, back) in values.iter().zip(back) {
                prop_assert!((value - back).abs() < lost, "{} {} {}", value, back, code.floor);
            }
        }

        #[test]
        fn any_bytes_give_some_values(code: Vec<u8>, planes in 0u8..=255, floor in 0u8..=15) {
            let mut values = vec![0; 60];
            decode(&code, planes, floor, 10, &mut values);
            prop_assert!(values.iter().all(|value| value.abs() <= 1 << 16));
        }

        #[test]
        fn a_quantised_value_is_near(value in -4000..=4000, step in 1u8..) {
            let back = restore(quantise(value, step), step);
            prop_assert!((value - back).abs() < i32::from(step).max(1));
        }
    }
}
