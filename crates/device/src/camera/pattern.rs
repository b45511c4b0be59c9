//! The test pattern: bars of colour, a moving block, and in digits the frame's number and the time of its capture,
//! which receivers can read back.
//!
//! ```text
//! 0000001234              number
//! 1764032640123456        microseconds since 1970
//! ```

use super::frame::{Layout, Pixels};

/// Digits of the number.
const NUMBER_LEN: usize = 10;
/// Digits of the time.
const CLOCK_LEN: usize = 16;
/// A digit is five by seven dots; a dot's width goes between two.
const WIDTH: usize = 6;
const HEIGHT: usize = 7;
/// Lines between number and time, in dots.
const STEP: usize = 9;
/// The narrowest pattern: the digits of the time with a margin, a pixel a dot.
pub const WIDTH_MIN: u16 = 100;
/// The lowest pattern.
pub const HEIGHT_MIN: u16 = 24;

/// Dots of the digits, line by line; the leftmost dot has the value 16.
const DIGITS: [[u8; HEIGHT]; 10] = [
    [0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110],
    [0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110],
    [0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111],
    [0b11110, 0b00001, 0b00001, 0b01110, 0b00001, 0b00001, 0b11110],
    [0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010],
    [0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110],
    [0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110],
    [0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000],
    [0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110],
    [0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100],
];

/// Pixels of a dot's side.
fn dot(width: u16) -> usize {
    (usize::from(width) / usize::from(WIDTH_MIN)).clamp(1, 6)
}

/// Calls `each` with the centre of each dot of the digits, as place among digits and dots: x, y, line, digit, row, dot.
fn dots(width: u16, mut each: impl FnMut(usize, usize, (usize, usize, usize, usize))) {
    let side = dot(width);
    for (line, len) in [NUMBER_LEN, CLOCK_LEN].into_iter().enumerate() {
        for digit in 0..len {
            for row in 0..HEIGHT {
                for column in 0..5 {
                    let x = (2 + digit * WIDTH + column) * side;
                    let y = (2 + line * STEP + row) * side;
                    each(x, y, (line, digit, row, column));
                }
            }
        }
    }
}

/// Draws patterns of one size.
#[derive(Clone, Debug)]
pub struct Pattern {
    bars: Pixels,
}

impl Pattern {
    /// Of at least [`WIDTH_MIN`] by [`HEIGHT_MIN`] pixels.
    pub fn new(layout: Layout, width: u16, height: u16) -> Pattern {
        const BARS: [[u8; 3]; 8] = [
            [191, 191, 191],
            [191, 191, 0],
            [0, 191, 191],
            [0, 191, 0],
            [191, 0, 191],
            [191, 0, 0],
            [0, 0, 191],
            [32, 32, 32],
        ];
        let mut bars = Pixels::new(Layout::Colour, width, height);
        let wide = usize::from(width);
        for (at, pixel) in bars.bytes.chunks_exact_mut(3).enumerate() {
            let (x, y) = (at % wide, at / wide);
            // A slope within each bar, so that pictures are not empty for an encoder.
            let shade = ((x * 3 + y * 5) % 61) as u8;
            let bar = BARS[x * BARS.len() / wide];
            pixel.iter_mut().zip(bar).for_each(|(to, of)| *to = of.saturating_add(shade / 2));
        }
        // What is behind the digits.
        let side = dot(width);
        let (to, bottom) = ((CLOCK_LEN * WIDTH + 4) * side, (STEP + HEIGHT + 4) * side);
        for y in 0..bottom.min(usize::from(height)) {
            let row = &mut bars.bytes[y * wide * 3..][..to.min(wide) * 3];
            row.fill(0);
        }
        Pattern { bars: if layout == Layout::Grey { bars.convert(layout) } else { bars } }
    }
    /// A frame. The block moves with its number.
    pub fn draw(&self, number: u32, clock: u64) -> Pixels {
        let mut pixels = self.bars.clone();
        let (wide, high) = (usize::from(pixels.width), usize::from(pixels.height));
        let depth = pixels.layout as usize;
        let mut fill = |x: usize, y: usize, side: usize| {
            for row in y..(y + side).min(high) {
                let from = (row * wide + x.min(wide)) * depth;
                let len = side.min(wide - x.min(wide)) * depth;
                pixels.bytes[from..from + len].fill(255);
            }
        };
        let side = high / 8;
        fill(number as usize * 8 % wide, high - side - side / 2, side);
        let text = [format!("{:010}", number), format!("{:016}", clock % 10u64.pow(16))];
        let text = text.map(String::into_bytes);
        let side = dot(self.bars.width);
        dots(self.bars.width, |x, y, (line, digit, row, column)| {
            let value = usize::from(text[line][digit] - b'0');
            if DIGITS[value][row] & (16 >> column) != 0 {
                fill(x, y, side);
            }
        });
        pixels
    }
}

/// The number and the time in a picture of a pattern that was not cropped or scaled. `None` where a digit cannot be
/// read.
pub fn read(pixels: &Pixels) -> Option<(u32, u64)> {
    if pixels.width < WIDTH_MIN || pixels.height < HEIGHT_MIN {
        return None;
    }
    let (wide, depth, side) =
        (usize::from(pixels.width), pixels.layout as usize, dot(pixels.width));
    let mut found = [[[0u8; HEIGHT]; CLOCK_LEN]; 2];
    dots(pixels.width, |x, y, (line, digit, row, column)| {
        let at = ((y + side / 2) * wide + x + side / 2) * depth;
        if pixels.bytes.get(at).is_some_and(|byte| *byte > 127) {
            found[line][digit][row] |= 16 >> column;
        }
    });
    let value = |shape: &[u8; HEIGHT]| DIGITS.iter().position(|digit| digit == shape);
    let number = |shapes: &[[u8; HEIGHT]]| {
        shapes.iter().try_fold(0u64, |number, shape| Some(number * 10 + value(shape)? as u64))
    };
    Some((u32::try_from(number(&found[0][..NUMBER_LEN])?).ok()?, number(&found[1])?))
}
