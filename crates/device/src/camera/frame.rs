//! A frame: its pixels, and how they are cropped and scaled.
//!
//! Rows: A-46.

use lastmeter_plugin::request::Rect;
use std::time::Instant;

/// The longest side.
pub const SIDE_MAX: u16 = 4096;

/// How pixels lie in memory: bytes of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A byte.
    Grey = 1,
    /// Red, green, blue.
    Colour = 3,
}

impl Layout {
    /// What policies see: 1 grey, 2 colour.
    pub fn number(self) -> u16 {
        if self == Layout::Grey { 1 } else { 2 }
    }
}

/// Pixels, line after line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// How they lie.
    pub layout: Layout,
    /// Pixels of a line.
    pub width: u16,
    /// Lines.
    pub height: u16,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A frame as its source captured it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Counts the source's frames, also those that nobody asked for.
    pub number: u32,
    /// Microseconds since 1970.
    pub clock: u64,
    /// When its capture began.
    pub began: Instant,
    /// Its pixels.
    pub pixels: Pixels,
}

impl Pixels {
    /// Black.
    pub fn new(layout: Layout, width: u16, height: u16) -> Pixels {
        let len = usize::from(width) * usize::from(height) * layout as usize;
        Pixels { layout, width, height, bytes: vec![0; len] }
    }
    /// All of them.
    pub fn whole(&self) -> Rect {
        Rect { x: 0, y: 0, w: self.width, h: self.height }
    }
    /// A line.
    fn row(&self, y: u16) -> &[u8] {
        let len = usize::from(self.width) * self.layout as usize;
        &self.bytes[usize::from(y) * len..][..len]
    }
    /// The same picture in another layout. Luminance is that of ITU-R BT.601.
    pub fn convert(&self, layout: Layout) -> Pixels {
        let bytes = match (self.layout, layout) {
            (Layout::Colour, Layout::Grey) => {
                let grey = |rgb: &[u8; 3]| {
                    let [r, g, b] = rgb.map(u32::from);
                    ((r * 77 + g * 150 + b * 29 + 128) >> 8) as u8
                };
                self.bytes.as_chunks::<3>().0.iter().map(grey).collect()
            }
            (Layout::Grey, Layout::Colour) => {
                self.bytes.iter().flat_map(|grey| [*grey; 3]).collect()
            }
            _ => self.bytes.clone(),
        };
        Pixels { layout, bytes, ..*self }
    }
    /// A part of it, scaled down: each pixel is the mean of those that it stands for. The part lies within, and is not
    /// smaller than the result.
    pub fn part(&self, part: Rect, width: u16, height: u16) -> Pixels {
        assert!(part.within(self.whole()) && width <= part.w && height <= part.h, "a part");
        let mut out = Pixels::new(self.layout, width, height);
        let depth = self.layout as usize;
        if (width, height) == (part.w, part.h) {
            let len = usize::from(width) * depth;
            for (y, to) in out.bytes.chunks_mut(len.max(1)).enumerate() {
                let from = &self.row(part.y + y as u16)[usize::from(part.x) * depth..][..len];
                to.copy_from_slice(from);
            }
            return out;
        }
        let (wide, high) = (usize::from(width), usize::from(height));
        let span = |at: usize, count: usize, of: u16, from: u16| {
            let of = usize::from(of);
            usize::from(from) + at * of / count..usize::from(from) + (at + 1) * of / count
        };
        for y in 0..high {
            let rows = span(y, high, part.h, part.y);
            for x in 0..wide {
                let columns = span(x, wide, part.w, part.x);
                let count = (rows.len() * columns.len()).max(1) as u32;
                let mut sums = [0u32; 3];
                for row in rows.clone() {
                    let line = &self.row(row as u16)[columns.start * depth..columns.end * depth];
                    for pixel in line.chunks_exact(depth) {
                        sums.iter_mut().zip(pixel).for_each(|(sum, byte)| *sum += u32::from(*byte));
                    }
                }
                let at = (y * wide + x) * depth;
                for (to, sum) in out.bytes[at..at + depth].iter_mut().zip(sums) {
                    *to = (sum / count) as u8;
                }
            }
        }
        out
    }
}
