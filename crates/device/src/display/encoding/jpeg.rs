//! Baseline JPEG (ITU-T T.81) of pixels as a screen has them, with the standard's Huffman tables. Colour is sent for
//! each pixel (4:4:4), or for four at a time (4:2:0).
//!
//! ```text
//! pixels -> rows of luma and chroma -> cosine transform -> quantise -> Huffman -> bytes
//! ```
//!
//! An encoder is kept for many pictures, so its tables are made once. Blocks lie side by side, so that loops go over
//! many columns; sums and products have 16 bits: compilers make vector instructions of them. The transform is that of
//! Arai, Agui and Nakajima (1988), whose factors are part of the quantiser's.
//!
//! A camera's frames are encoded by a library. Here it took more than twice the time, which is most of what a film
//! costs a display: it makes its tables for each area, and reads pixels one by one.
//!
//! Rows: N-29.

use super::{View, bits_of};

/// Width and height of a block.
const SIDE: usize = 8;
/// Columns of blocks that are transformed together.
const WIDE: usize = 64;
/// Blocks side by side: rows of samples, or, transposed, of levels.
type Blocks = [[i16; WIDE]; SIDE];

/// Levels of blocks, transposed.
#[derive(Clone)]
struct Levels {
    blocks: Blocks,
    /// Of each row, a bit for each that is not 0, the first one highest.
    some: [[u8; WIDE / SIDE]; SIDE],
}

impl Levels {
    const NONE: Levels = Levels { blocks: [[0; WIDE]; SIDE], some: [[0; WIDE / SIDE]; SIDE] };
}

/// Natural order by zigzag order (figure A.6 of the standard).
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// The same in the first of blocks that are transposed, as the transform leaves them.
const TRANSPOSED: [u16; 64] = {
    let (mut order, mut at) = ([0; 64], 0);
    while at < 64 {
        let natural = ZIGZAG[at] as usize;
        order[at] = (natural % SIDE * WIDE + natural / SIDE) as u16;
        at += 1;
    }
    order
};

/// Of a row of a transposed block, a bit for each level that is not 0, the first one highest: the same as bits in
/// zigzag order, the first one lowest.
static ORDERED: [[u64; 256]; SIDE] = {
    let (mut table, mut at) = ([[0; 256]; SIDE], 0);
    while at < 64 {
        let (row, bit) = (ZIGZAG[at] as usize % SIDE, 7 - ZIGZAG[at] as usize / SIDE);
        let mut byte = 0;
        while byte < 256 {
            table[row][byte] |= ((byte >> bit & 1) as u64) << at;
            byte += 1;
        }
        at += 1;
    }
    table
};

/// Quantisation of luma and chroma at quality 50, in natural order (tables K.1 and K.2).
const STEPS: [[u8; 64]; 2] = [
    [
        16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69,
        56, 14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81,
        104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
    ],
    [
        17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99,
        99, 47, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    ],
];

/// How many codes of each length, and their symbols: of differences of means, of luma and chroma (tables K.3 and K.4).
const DC: [([u8; 16], [u8; 12]); 2] = [
    ([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ([0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
];

/// Of runs of zeros with the size of what follows (tables K.5 and K.6).
const AC: [([u8; 16], [u8; 162]); 2] = [
    (
        [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125],
        [
            0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51,
            0x61, 0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1,
            0x15, 0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18,
            0x19, 0x1a, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39,
            0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57,
            0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75,
            0x76, 0x77, 0x78, 0x79, 0x7a, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92,
            0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,
            0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3,
            0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8,
            0xd9, 0xda, 0xe1, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1, 0xf2,
            0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
        ],
    ),
    (
        [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119],
        [
            0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07,
            0x61, 0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09,
            0x23, 0x33, 0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25,
            0xf1, 0x17, 0x18, 0x19, 0x1a, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38,
            0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56,
            0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74,
            0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89,
            0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5,
            0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba,
            0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6,
            0xd7, 0xd8, 0xd9, 0xda, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf2,
            0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
        ],
    ),
];

/// Symbols: sixteen zeros, and nothing but zeros to the block's end.
const ZEROS: usize = 0xf0;
const END: usize = 0;

/// The largest level that has a code.
const LEVEL_MAX: u32 = 1023;

/// A code and its length, by its symbol.
type Codes = [(u16, u8); 256];

fn codes(lengths: &[u8; 16], symbols: &[u8]) -> Codes {
    let mut codes = [(0, 0); 256];
    let (mut code, mut symbols) = (0, symbols.iter());
    for (len, count) in (1..).zip(lengths) {
        for symbol in symbols.by_ref().take((*count).into()) {
            codes[usize::from(*symbol)] = (code, len);
            code += 1;
        }
        code <<= 1;
    }
    codes
}

/// A quantiser, in the order of transposed blocks.
struct Quantiser {
    /// Half of each step, which rounds.
    halves: [[u16; WIDE]; SIDE],
    /// 65536 by each step.
    shares: [[u16; WIDE]; SIDE],
}

impl Quantiser {
    fn new(steps: &[u8; 64]) -> Quantiser {
        // What the transform leaves to be divided by: 8, twice as samples are twice as large, and a factor each way.
        let factor = |at: usize| match at {
            0 => 1.0,
            at => (at as f64 * std::f64::consts::PI / 16.0).cos() * std::f64::consts::SQRT_2,
        };
        let step =
            |x: usize, y: usize| 16.0 * f64::from(steps[y * SIDE + x]) * factor(x) * factor(y);
        let each = |value: &dyn Fn(f64) -> f64| {
            std::array::from_fn(|x| {
                std::array::from_fn(|y| value(step(x, y % SIDE)).round() as u16)
            })
        };
        Quantiser { halves: each(&|step| step / 2.0), shares: each(&|step| 65536.0 / step) }
    }
    fn quantise(&self, levels: &mut Levels) {
        let tables = self.halves.iter().zip(&self.shares);
        for ((row, some), (halves, shares)) in
            levels.blocks.iter_mut().zip(&mut levels.some).zip(tables)
        {
            let mut bits = [0; WIDE];
            for (((level, half), share), bit) in
                row.iter_mut().zip(halves).zip(shares).zip(&mut bits)
            {
                let sign = *level >> 15;
                let size = (*level ^ sign).wrapping_sub(sign) as u16;
                let steps = (u32::from(size.wrapping_add(*half)) * u32::from(*share)) >> 16;
                *level = (steps.min(LEVEL_MAX) as i16 ^ sign).wrapping_sub(sign);
                *bit = u8::from(steps != 0);
            }
            let eights = bits.as_chunks().0.iter();
            eights.zip(some).for_each(|(eight, some)| *some = bits_of(*eight));
        }
    }
}

/// A product with a factor in 1/65536.
fn share(value: i16, factor: i16) -> i16 {
    ((i32::from(value) * i32::from(factor)) >> 16) as i16
}

/// The transform of each column.
fn columns(from: &Blocks, to: &mut Blocks) {
    // In 1/65536, or what they differ from 1 by: cosine of 4/16 pi; of 6/16 pi; the difference and the sum of those of
    // 2/16 and 6/16 pi.
    const C4_LESS_1: i16 = -19195;
    const C6: i16 = 25080;
    const C2_LESS_C6_LESS_1: i16 = -30068;
    const C2_AND_C6_LESS_1: i16 = 20091;
    let sum = i16::wrapping_add;
    let difference = i16::wrapping_sub;
    let turned = |value: i16| sum(value, share(value, C4_LESS_1));
    for at in 0..WIDE {
        let (a, b, c, d) = (from[0][at], from[1][at], from[2][at], from[3][at]);
        let (e, f, g, h) = (from[4][at], from[5][at], from[6][at], from[7][at]);
        let outer = [sum(a, h), sum(b, g), sum(c, f), sum(d, e)];
        let inner = [difference(d, e), difference(c, f), difference(b, g), difference(a, h)];
        let even = [sum(outer[0], outer[3]), sum(outer[1], outer[2])];
        let odd = [difference(outer[0], outer[3]), difference(outer[1], outer[2])];
        to[0][at] = sum(even[0], even[1]);
        to[4][at] = difference(even[0], even[1]);
        let both = turned(sum(odd[0], odd[1]));
        to[2][at] = sum(odd[0], both);
        to[6][at] = difference(odd[0], both);
        let low = sum(inner[0], inner[1]);
        let middle = turned(sum(inner[1], inner[2]));
        let high = sum(inner[2], inner[3]);
        let both = share(difference(low, high), C6);
        let low = sum(sum(low, share(low, C2_LESS_C6_LESS_1)), both);
        let high = sum(sum(high, share(high, C2_AND_C6_LESS_1)), both);
        let (plus, minus) = (sum(inner[3], middle), difference(inner[3], middle));
        to[5][at] = sum(minus, low);
        to[3][at] = difference(minus, low);
        to[1][at] = sum(plus, high);
        to[7][at] = difference(plus, high);
    }
}

/// The transform of blocks, transposed.
fn transform(samples: &Blocks, levels: &mut Blocks) {
    let (mut half, mut turned) = ([[0; WIDE]; SIDE], [[0; WIDE]; SIDE]);
    columns(samples, &mut half);
    for left in (0..WIDE).step_by(SIDE) {
        for y in 0..SIDE {
            for x in 0..SIDE {
                turned[x][left + y] = half[y][left + x];
            }
        }
    }
    columns(&turned, levels);
}

/// Bits on their way to bytes.
struct Bits<'a> {
    bytes: &'a mut Vec<u8>,
    held: u64,
    free: u32,
}

impl Bits<'_> {
    fn put(&mut self, value: u32, len: u32) {
        if len <= self.free {
            self.held = self.held << len | u64::from(value);
            self.free -= len;
            return;
        }
        let left = len - self.free;
        self.flush(self.held << self.free | u64::from(value >> left));
        // Higher bits than are left are shifted out later.
        self.held = value.into();
        self.free = u64::BITS - left;
    }
    fn flush(&mut self, word: u64) {
        let bytes = word.to_be_bytes();
        // Whether a byte may have all bits set: then a zero follows.
        let full = word & !word.wrapping_add(0x0101_0101_0101_0101) & 0x8080_8080_8080_8080;
        match full {
            0 => self.bytes.extend_from_slice(&bytes),
            _ => bytes.iter().for_each(|byte| self.byte(*byte)),
        }
    }
    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
        if byte == 0xff {
            self.bytes.push(0);
        }
    }
    /// The rest, filled up with ones.
    fn end(mut self) {
        let odd = (u64::BITS - self.free) % 8;
        if odd > 0 {
            self.put((1 << (8 - odd)) - 1, 8 - odd);
        }
        let held = u64::BITS - self.free;
        (0..held / 8).rev().for_each(|at| self.byte((self.held >> (8 * at)) as u8));
    }
    /// A symbol and a number: how many bits the number has is part of the symbol.
    fn level(&mut self, codes: &Codes, run: usize, level: i16) {
        let size = u16::BITS - level.unsigned_abs().leading_zeros();
        let value = u32::from(level.wrapping_add(level >> 15) as u16) & ((1 << size) - 1);
        let (code, len) = codes[(run << 4 | size as usize) & 0xff];
        self.put(u32::from(code) << size | value, u32::from(len) + size);
    }
    /// A block's levels.
    fn block(&mut self, group: &Levels, number: usize, before: &mut i16, [dc, ac]: &[Codes; 2]) {
        let levels = &group.blocks.as_flattened()[number * SIDE..];
        let mean = levels[0];
        self.level(dc, 0, mean.wrapping_sub(std::mem::replace(before, mean)));
        let rows = ORDERED.iter().zip(&group.some);
        let bits = rows.map(|(table, some)| table[usize::from(some[number])]);
        let (mut last, mut some) = (0, bits.fold(0, |all, bits| all | bits) & !1);
        while some != 0 {
            let at = some.trailing_zeros() as usize;
            let mut run = at - last - 1;
            while run > 15 {
                let (code, len) = ac[ZEROS];
                self.put(code.into(), len.into());
                run -= 16;
            }
            self.level(ac, run, levels[usize::from(TRANSPOSED[at])]);
            (last, some) = (at, some & (some - 1));
        }
        if last < 63 {
            let (code, len) = ac[END];
            self.put(code.into(), len.into());
        }
    }
}

fn channels(pixel: u32) -> [i16; 3] {
    [(pixel >> 16 & 255) as i16, (pixel >> 8 & 255) as i16, (pixel & 255) as i16]
}

/// Luma, twice as large as in the standard, and around 0.
fn luma(pixels: &[u32], samples: &mut [i16]) {
    for (sample, pixel) in samples.iter_mut().zip(pixels) {
        let [r, g, b] = channels(*pixel);
        let whole = (r as u16).wrapping_mul(77).wrapping_add((g as u16).wrapping_mul(150));
        let whole = whole.wrapping_add((b as u16).wrapping_mul(29)).wrapping_add(64);
        *sample = ((whole >> 7) as i16).wrapping_sub(256);
    }
}

/// Both chromas of a colour, twice as large as in the standard.
fn chroma([r, g, b]: [i16; 3]) -> [i16; 2] {
    let less = |own: i16, one: i16, other: i16| {
        own.wrapping_mul(128).wrapping_sub(one).wrapping_sub(other).wrapping_add(64) >> 7
    };
    let blue = less(b, r.wrapping_mul(43), g.wrapping_mul(85));
    let red = less(r, g.wrapping_mul(107), b.wrapping_mul(21));
    [blue, red]
}

fn chromas(pixels: &[u32], blues: &mut [i16], reds: &mut [i16]) {
    for ((pixel, blue), red) in pixels.iter().zip(blues).zip(reds) {
        [*blue, *red] = chroma(channels(*pixel));
    }
}

/// One chroma for four pixels.
fn shared_chromas(above: &[u32], below: &[u32], blues: &mut [i16], reds: &mut [i16]) {
    let fours = above.as_chunks::<2>().0.iter().zip(below.as_chunks::<2>().0);
    for (((above, below), blue), red) in fours.zip(blues).zip(reds) {
        // Red and blue are added in one word: each has 16 bits.
        let both = |pixel: u32| pixel & 0x00ff_00ff;
        let ends = both(above[0]) + both(above[1]) + both(below[0]) + both(below[1]);
        let green = |pixel: u32| pixel >> 8 & 255;
        let middle = green(above[0]) + green(above[1]) + green(below[0]) + green(below[1]);
        let mean = |sum: u32| ((sum + 2) >> 2) as i16;
        [*blue, *red] = chroma([mean(ends >> 16), mean(middle), mean(ends & 0xffff)]);
    }
}

/// An encoder.
pub(super) struct Encoder {
    /// From 1 to 100.
    pub(super) quality: u8,
    /// Whether each pixel has its colour.
    fine: bool,
    /// All before a picture's pixels, and where its size is.
    head: Vec<u8>,
    size_at: usize,
    /// Of luma and chroma.
    quantisers: [Quantiser; 2],
    codes: [[Codes; 2]; 2],
    /// Pixels of a line, filled up to whole blocks, and the one before.
    lines: [Vec<u32>; 2],
    /// Luma and chromas of a row of blocks, by rows.
    samples: [Vec<i16>; 3],
    /// Their levels.
    levels: [Vec<Levels>; 3],
}

impl Encoder {
    /// With a colour for each pixel (`fine`), or for four.
    pub(super) fn new(quality: u8, fine: bool) -> Encoder {
        let quality = quality.clamp(1, 100);
        // As all encoders have it, so that a quality means the same everywhere.
        let scale = match u32::from(quality) {
            low @ ..50 => 5000 / low,
            high => 200 - 2 * high,
        };
        let scaled = |step: u8| ((u32::from(step) * scale + 50) / 100).clamp(1, 255) as u8;
        let steps = STEPS.map(|steps| steps.map(scaled));
        let mut head = vec![0xff, 0xd8];
        let mut segment = |kind: u8, data: &[u8]| {
            head.extend([0xff, kind]);
            head.extend((data.len() as u16 + 2).to_be_bytes());
            head.extend_from_slice(data);
            head.len() - data.len()
        };
        segment(0xe0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
        for (number, steps) in (0..).zip(&steps) {
            let order = ZIGZAG.map(|at| steps[usize::from(at)]);
            segment(0xdb, &[&[number][..], &order].concat());
        }
        // 8 bits, height and width, three components: number, samples each way, quantiser.
        let sampling = if fine { 0x11 } else { 0x22 };
        let size_at =
            segment(0xc0, &[8, 0, 0, 0, 0, 3, 1, sampling, 0, 2, 0x11, 1, 3, 0x11, 1]) + 1;
        for number in 0..2u8 {
            let ((lengths, symbols), (long, many)) =
                (&DC[usize::from(number)], &AC[usize::from(number)]);
            segment(0xc4, &[&[number][..], lengths, symbols].concat());
            segment(0xc4, &[&[0x10 | number][..], long, many].concat());
        }
        // Three components with their codes; all levels.
        segment(0xda, &[3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]);
        let codes = [0, 1].map(|at: usize| {
            let ((lengths, symbols), (long, many)) = (&DC[at], &AC[at]);
            [codes(lengths, symbols), codes(long, many)]
        });
        let quantisers = [Quantiser::new(&steps[0]), Quantiser::new(&steps[1])];
        let (lines, samples, levels) = Default::default();
        Encoder { quality, fine, head, size_at, quantisers, codes, lines, samples, levels }
    }
    /// Appends a picture of at most 65535 pixels along each side.
    pub(super) fn put(&mut self, view: View<'_>, bytes: &mut Vec<u8>) {
        let head = bytes.len();
        bytes.extend_from_slice(&self.head);
        let size = &mut bytes[head + self.size_at..][..4];
        size[..2].copy_from_slice(&(view.h as u16).to_be_bytes());
        size[2..].copy_from_slice(&(view.w as u16).to_be_bytes());
        let mut bits = Bits { bytes, held: 0, free: u64::BITS };
        let mut before = [0; 3];
        let unit = if self.fine { SIDE } else { 2 * SIDE };
        let share = unit / SIDE;
        for top in (0..view.h).step_by(unit) {
            self.sample(view, top);
            self.quantise();
            let [luma, blues, reds] = &self.levels;
            // Groups of a row of luma's blocks: with shared colours there are two rows.
            let across = luma.len() / share;
            for left in (0..view.w).step_by(unit) {
                for (row, column) in (0..share).flat_map(|row| (0..share).map(move |it| (row, it)))
                {
                    let x = left + column * SIDE;
                    let group = &luma[row * across + x / WIDE];
                    bits.block(group, x % WIDE / SIDE, &mut before[0], &self.codes[0]);
                }
                let x = left / share;
                for (before, levels) in before[1..].iter_mut().zip([blues, reds]) {
                    bits.block(&levels[x / WIDE], x % WIDE / SIDE, before, &self.codes[1]);
                }
            }
        }
        bits.end();
        bytes.extend([0xff, 0xd9]);
    }
    /// Luma and chromas of a row of blocks. Beyond the picture's edges its last pixels are repeated.
    fn sample(&mut self, view: View<'_>, top: usize) {
        let unit = if self.fine { SIDE } else { 2 * SIDE };
        let share = unit / SIDE;
        // Whole groups of blocks, of chromas, too.
        let wide = view.w.next_multiple_of(WIDE * share);
        let [own_luma, blues, reds] = &mut self.samples;
        own_luma.resize(wide * unit, 0);
        blues.resize(wide / share * SIDE, 0);
        reds.resize(wide / share * SIDE, 0);
        for row in 0..unit {
            let start = (top + row).min(view.h - 1) * view.stride;
            let pixels = &view.pixels[start..start + view.w];
            let [line, other] = &mut self.lines;
            std::mem::swap(line, other);
            line.clear();
            line.extend_from_slice(pixels);
            line.resize(wide, pixels[view.w - 1]);
            luma(line, &mut own_luma[row * wide..(row + 1) * wide]);
            let at = row / share * (wide / share)..(row / share + 1) * (wide / share);
            if self.fine {
                chromas(line, &mut blues[at.clone()], &mut reds[at]);
            } else if row % 2 == 1 {
                shared_chromas(other, line, &mut blues[at.clone()], &mut reds[at]);
            }
        }
    }
    /// The levels of these samples.
    fn quantise(&mut self) {
        let mut blocks = [[0; WIDE]; SIDE];
        let rows = if self.fine { [1, 1, 1] } else { [2, 1, 1] };
        let kinds = [&self.quantisers[0], &self.quantisers[1], &self.quantisers[1]];
        for (at, (samples, levels)) in self.samples.iter().zip(&mut self.levels).enumerate() {
            let wide = samples.len() / (rows[at] * SIDE);
            levels.resize(rows[at] * wide / WIDE, Levels::NONE);
            let groups = samples
                .chunks_exact(wide * SIDE)
                .flat_map(|row| (0..wide).step_by(WIDE).map(move |left| (row, left)));
            for ((row, left), levels) in groups.zip(levels) {
                for (blocks, line) in blocks.iter_mut().zip(row.chunks_exact(wide)) {
                    blocks.copy_from_slice(&line[left..left + WIDE]);
                }
                transform(&blocks, &mut levels.blocks);
                kinds[at].quantise(levels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::from_jpeg;
    use super::*;
    use jpeg_encoder::{ColorType, SamplingFactor};
    use proptest::prelude::*;

    /// Waves with noise, and at the right a chequerboard of all colours.
    fn picture(w: usize, h: usize) -> Vec<u32> {
        let pixel = |x: usize, y: usize| {
            let noise = (x * 7919 + y * 104_729) % 13;
            let wave = |at: usize| {
                let angle = (x * (at + 3) + y * (7 - at)) as f64 / 40.0;
                (120.0 + 90.0 * angle.sin()) as usize + noise
            };
            let square = ((x / 4 + y / 4) * 0x0047_3521) & 0x00ff_ffff;
            if x > 3 * w / 4 { square } else { wave(0) << 16 | wave(1) << 8 | wave(2) }
        };
        (0..h).flat_map(|y| (0..w).map(move |x| pixel(x, y) as u32)).collect()
    }

    /// The ratio of the largest square of a channel to the mean square of an error, in decibels.
    fn likeness(seen: &[u32], wanted: &[u32]) -> f64 {
        let square = |(a, b): (&u32, &u32)| -> f64 {
            channels(*a).iter().zip(channels(*b)).map(|(a, b)| f64::from(a - b).powi(2)).sum()
        };
        let sum: f64 = seen.iter().zip(wanted).map(square).sum();
        10.0 * (255.0 * 255.0 * 3.0 * seen.len() as f64 / sum.max(1.0)).log10()
    }

    fn encoded(w: usize, h: usize, pixels: &[u32], quality: u8, fine: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        Encoder::new(quality, fine).put(View { pixels, stride: w, w, h }, &mut bytes);
        bytes
    }

    /// As near to the original as what the crate `jpeg-encoder` makes of it, and as short (N-29).
    #[test]
    fn pictures_are_as_good_as_a_librarys() {
        let (w, h) = (208, 120);
        let pixels = picture(w, h);
        let rgb: Vec<u8> =
            pixels.iter().flat_map(|it| it.to_be_bytes().into_iter().skip(1)).collect();
        for (quality, fine) in
            [10, 30, 60, 80, 90, 95].into_iter().flat_map(|it| [(it, true), (it, false)])
        {
            let own = encoded(w, h, &pixels, quality, fine);
            let mut other = Vec::new();
            let mut encoder = jpeg_encoder::Encoder::new(&mut other, quality);
            let factor = if fine { SamplingFactor::R_4_4_4 } else { SamplingFactor::R_4_2_0 };
            encoder.set_sampling_factor(factor);
            encoder.encode(&rgb, w as u16, h as u16, ColorType::Rgb).expect("encoded");
            let like =
                [&own, &other].map(|it| likeness(&from_jpeg(it, w, h).expect("sound"), &pixels));
            assert!(like[0] > like[1] - 0.5, "{quality} {fine}: {like:?} dB");
            assert!(own.len() as f64 <= 1.05 * other.len() as f64, "{quality} {fine}");
        }
    }

    proptest! {
        /// Pictures of every size, with edges inside of blocks.
        #[test]
        fn any_pixels_are_encoded(w in 1usize..40, h in 1usize..40, seed: u32, quality in 1u8..=100, fine: bool) {
            let noise = |at: u32| (at ^ seed).wrapping_mul(0x9e37_79b1).rotate_left(15).wrapping_mul(seed | 1);
            for pixels in [
                vec![seed; w * h],
                (0..(w * h) as u32).map(noise).collect::<Vec<u32>>(),
                (0..(w * h) as u32).map(|at| if noise(at) & 1 == 0 { 0 } else { !0 }).collect(),
            ] {
                let bytes = encoded(w, h, &pixels, quality, fine);
                let seen = from_jpeg(&bytes, w, h).map_err(TestCaseError::fail)?;
                prop_assert_eq!(seen.len(), w * h);
                if quality > 90 && pixels.iter().all(|it| *it == pixels[0]) {
                    prop_assert!(likeness(&seen, &pixels) > 40.0);
                }
            }
        }
    }
}
