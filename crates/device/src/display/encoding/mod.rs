//! Encodings of rectangles of pixels: encoders with the state of a connection, and decoders.

mod hextile;
mod jpeg;
mod tight;
mod zlib;
mod zrle;

pub use tight::from_jpeg;
pub use zlib::INFLATED_MAX;

use lastmeter_plugin::request::Rect;
use lastmeter_wire::rfb::{Area, PixelFormat, Rectangle, encoding};

/// Width and height of the rectangle as sent.
pub fn area(rect: Rect) -> Area {
    Area { x: rect.x, y: rect.y, w: rect.w, h: rect.h }
}

/// The area as it is judged.
pub fn rect(area: Area) -> Rect {
    Rect { x: area.x, y: area.y, w: area.w, h: area.h }
}

/// Pixels of a rectangle inside a larger array.
#[derive(Clone, Copy)]
struct View<'a> {
    pixels: &'a [u32],
    /// Pixels from one row to the next.
    stride: usize,
    w: usize,
    h: usize,
}

impl<'a> View<'a> {
    fn part(&self, x: usize, y: usize, w: usize, h: usize) -> View<'a> {
        let (w, h) = (w.min(self.w - x), h.min(self.h - y));
        View { pixels: &self.pixels[y * self.stride + x..], stride: self.stride, w, h }
    }
    fn rows(&self) -> impl Iterator<Item = &'a [u32]> {
        let (pixels, stride, w) = (self.pixels, self.stride, self.w);
        (0..self.h).map(move |y| &pixels[y * stride..y * stride + w])
    }
    /// Its one colour, if it has only one.
    fn solid(&self) -> Option<u32> {
        let first = *self.pixels.first()?;
        // In whole rows, which the compiler compares many pixels at a time.
        let same = |row: &[u32]| row.iter().fold(0, |all, pixel| all | (pixel ^ first)) == 0;
        self.rows().all(same).then_some(first)
    }
}

/// The bits of eight bytes that are 0 or 1, the first one's highest.
fn bits_of(bytes: [u8; 8]) -> u8 {
    // The product's highest byte has each of them, and nothing is carried into it.
    const GATHER: u64 = 0x8040_2010_0804_0201;
    (u64::from_le_bytes(bytes).wrapping_mul(GATHER) >> 56) as u8
}

/// Colours of a tile, if there are few.
struct Palette {
    colours: Vec<u32>,
    /// Open addressing; a slot holds the number of a colour, plus one.
    places: [u16; Palette::PLACES],
    most: usize,
}

impl Palette {
    const PLACES: usize = 1024;
    fn new(most: usize) -> Palette {
        Palette { colours: Vec::with_capacity(most), places: [0; Palette::PLACES], most }
    }
    fn clear(&mut self) {
        self.colours.clear();
        self.places.fill(0);
    }
    fn place(&self, colour: u32) -> usize {
        let mut place = (colour.wrapping_mul(0x9e37_79b1) >> 22) as usize;
        loop {
            match self.places[place] {
                0 => return place,
                number if self.colours[usize::from(number) - 1] == colour => return place,
                _ => place = (place + 1) % Palette::PLACES,
            }
        }
    }
    /// False if there are too many.
    fn add(&mut self, colour: u32) -> bool {
        let place = self.place(colour);
        if self.places[place] == 0 {
            if self.colours.len() == self.most {
                return false;
            }
            self.colours.push(colour);
            self.places[place] = self.colours.len() as u16;
        }
        true
    }
    fn index(&self, colour: u32) -> usize {
        usize::from(self.places[self.place(colour)]).saturating_sub(1)
    }
}

/// A connection's encoders.
pub struct Encoder {
    /// The viewer's pixel format.
    pub format: PixelFormat,
    /// One of raw, hextile, Tight, ZRLE.
    encoding: i32,
    /// JPEG quality, from 1 to 100; `None`: lossless.
    pub quality: Option<u8>,
    zrle: zrle::Encoder,
    tight: tight::Encoder,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder {
            format: PixelFormat::NATIVE,
            encoding: encoding::RAW,
            quality: None,
            zrle: zrle::Encoder::default(),
            tight: tight::Encoder::default(),
        }
    }
}

impl Encoder {
    /// The viewer supports these, the preferred first. JPEG is used if it requests a quality, at most `quality`; with 0
    /// never.
    pub fn choose(&mut self, understood: &[i32], quality: u8) {
        let ours = [encoding::ZRLE, encoding::TIGHT, encoding::HEXTILE, encoding::RAW];
        let found = understood.iter().find(|number| ours.contains(number));
        self.encoding = *found.unwrap_or(&encoding::RAW);
        let level = |number: &i32| {
            let level = number - encoding::QUALITY_0;
            (0..10).contains(&level).then_some(level as u8)
        };
        // As in other servers: 0 is poor, 9 is nearly as good as the original.
        const QUALITIES: [u8; 10] = [15, 29, 41, 42, 62, 77, 79, 86, 92, 100];
        let wanted = understood.iter().find_map(level).filter(|_| quality > 0);
        self.quality = wanted.map(|level| QUALITIES[usize::from(level)].min(quality));
    }
    /// What was sent as JPEG since this was cleared, on the viewer's screen.
    pub fn lossy(&mut self) -> &mut Vec<Rect> {
        &mut self.tight.lossy
    }
    /// The encoding in use.
    pub fn encoding(&self) -> i32 {
        self.encoding
    }
    /// Appends a rectangle's header and pixels, split into several rectangles if necessary; returns their number.
    /// `at` is its position on the viewer's screen.
    pub fn put(&mut self, at: Rect, pixels: &[u32], bytes: &mut Vec<u8>) -> usize {
        let view = View { pixels, stride: at.w.into(), w: at.w.into(), h: at.h.into() };
        if self.encoding == encoding::TIGHT {
            return self.tight.put(&self.format, self.quality, at, view, bytes);
        }
        bytes.extend(Rectangle { area: area(at), encoding: self.encoding }.emit());
        match self.encoding {
            encoding::ZRLE => self.zrle.put(&self.format, view, bytes),
            encoding::HEXTILE => hextile::put(&self.format, view, bytes),
            _ => put_raw(&self.format, view, bytes),
        }
        1
    }
}

fn put_raw(format: &PixelFormat, view: View<'_>, bytes: &mut Vec<u8>) {
    bytes.reserve(view.w * view.h * format.width());
    for row in view.rows() {
        if *format == PixelFormat::NATIVE {
            bytes.extend(row.iter().flat_map(|pixel| pixel.to_le_bytes()));
        } else {
            row.iter().for_each(|colour| format.put(format.pixel(*colour), bytes));
        }
    }
}

/// Where a decoder's bytes come from.
pub trait Source {
    /// The next bytes.
    ///
    /// # Errors
    /// If there are no more.
    fn take(&mut self, len: usize) -> Result<Vec<u8>, String>;
    /// The next byte.
    ///
    /// # Errors
    /// If there are no more.
    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }
}

impl Source for &[u8] {
    fn take(&mut self, len: usize) -> Result<Vec<u8>, String> {
        let (now, rest) = self.split_at_checked(len).ok_or("pixels end too early")?;
        *self = rest;
        Ok(now.to_vec())
    }
}

/// A connection's decoders.
#[derive(Default)]
pub struct Decoder {
    zrle: zlib::Inflate,
    tight: tight::Decoder,
}

impl Decoder {
    /// How coarse the last JPEG was, if there was one: the first step of its quantiser.
    pub fn coarseness(&self) -> Option<u8> {
        self.tight.coarseness
    }
    /// The colours of a rectangle whose header has been read.
    ///
    /// # Errors
    /// What is wrong with its bytes.
    pub fn take(
        &mut self,
        format: &PixelFormat,
        rectangle: Rectangle,
        source: &mut impl Source,
    ) -> Result<Vec<u32>, String> {
        let (w, h) = (usize::from(rectangle.area.w), usize::from(rectangle.area.h));
        let mut canvas = Canvas { pixels: vec![0; w * h], w, h };
        match rectangle.encoding {
            encoding::RAW => {
                let bytes = source.take(w * h * format.width())?;
                for (pixel, bytes) in canvas.pixels.iter_mut().zip(bytes.chunks(format.width())) {
                    *pixel = format.colour(format.get(bytes).ok_or("pixels end too early")?);
                }
            }
            encoding::HEXTILE => hextile::take(format, &mut canvas, source)?,
            encoding::ZRLE => {
                let len = source.take(4)?;
                let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]);
                let bytes = self.zrle.inflate(&source.take(len as usize)?)?;
                zrle::take(format, &mut canvas, &mut &bytes[..])?;
            }
            encoding::TIGHT => self.tight.take(format, &mut canvas, source)?,
            other => return Err(format!("encoding {other} is not known")),
        }
        Ok(canvas.pixels)
    }
}

/// The target of a decoder.
struct Canvas {
    pixels: Vec<u32>,
    w: usize,
    h: usize,
}

impl Canvas {
    fn fill(&mut self, x: usize, y: usize, w: usize, h: usize, colour: u32) -> Result<(), String> {
        if x + w > self.w || y + h > self.h {
            return Err("a rectangle outside of its tile".to_owned());
        }
        for row in y..y + h {
            self.pixels[row * self.w + x..row * self.w + x + w].fill(colour);
        }
        Ok(())
    }
    /// Tiles of this side length: x, y, w, h.
    fn tiles(&self, side: usize) -> Vec<[usize; 4]> {
        tiles(self.w, self.h, side)
    }
}

/// Tiles of an area, row by row: x, y, w, h.
fn tiles(w: usize, h: usize, side: usize) -> Vec<[usize; 4]> {
    let columns =
        |y: usize| (0..w).step_by(side).map(move |x| [x, y, side.min(w - x), side.min(h - y)]);
    (0..h).step_by(side).flat_map(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::damage::RECTANGLES_MAX;
    use proptest::prelude::*;

    /// Pictures with few colours, many, runs and noise.
    fn picture() -> impl Strategy<Value = (u16, u16, Vec<u32>)> {
        let side = prop_oneof![1u16..10, 1u16..150];
        (side.clone(), side, 0u8..6, any::<u64>()).prop_map(|(w, h, sort, seed)| {
            // Some are long and narrow.
            let long = |side: u16, other: u16| if other < 10 { side * 8 } else { side };
            let (w, h) = (long(w, h), long(h, w));
            let mut state = seed | 1;
            let mut random = move || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u32
            };
            let count = usize::from(w) * usize::from(h);
            let colours: Vec<u32> = (0..200).map(|_| random() & 0x00ff_ffff).collect();
            let pixels = (0..count).map(|at| match sort {
                0 => colours[0],
                1 => colours[random() as usize % 2],
                2 => colours[random() as usize % 9],
                3 => colours[at / 37 % 200],
                4 => random() & 0x00ff_ffff,
                _ => {
                    if at % usize::from(w) < 40 {
                        colours[at / 700 % 3]
                    } else {
                        colours[random() as usize % 150]
                    }
                }
            });
            (w, h, pixels.collect())
        })
    }

    const FORMATS: [PixelFormat; 4] = [
        PixelFormat::NATIVE,
        PixelFormat { shift: [8, 16, 24], big_endian: true, ..PixelFormat::NATIVE },
        PixelFormat {
            bits: 16,
            depth: 16,
            big_endian: false,
            max: [31, 63, 31],
            shift: [11, 5, 0],
        },
        PixelFormat { bits: 8, depth: 8, big_endian: false, max: [7, 7, 3], shift: [0, 3, 6] },
    ];

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(pictures in proptest::collection::vec(picture(), 1..3)) {
            for number in [encoding::RAW, encoding::HEXTILE, encoding::ZRLE, encoding::TIGHT] {
                for format in FORMATS {
                    let mut encoder = Encoder { format, ..Encoder::default() };
                    encoder.choose(&[-1000, number], 100);
                    prop_assert_eq!(encoder.encoding(), number);
                    let mut decoder = Decoder::default();
                    for (w, h, pixels) in &pictures {
                        let at = Rect { x: 3, y: 5, w: *w, h: *h };
                        let mut bytes = Vec::new();
                        let count = encoder.put(at, pixels, &mut bytes);
                        let decoded = decode(&mut decoder, &format, at, count, &bytes)?;
                        let expected: Vec<u32> =
                            pixels.iter().map(|colour| format.colour(format.pixel(*colour))).collect();
                        prop_assert!(decoded == expected, "encoding {} {:?}", number, format);
                    }
                }
            }
        }
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes: Vec<u8>, at in 0usize..4, w in 0u16..70, h in 0u16..70) {
            let number = [encoding::RAW, encoding::HEXTILE, encoding::ZRLE, encoding::TIGHT][at];
            for format in FORMATS {
                let rectangle = Rectangle { area: Area { x: 0, y: 0, w, h }, encoding: number };
                let _ = Decoder::default().take(&format, rectangle, &mut &bytes[..]);
            }
        }
    }

    /// The picture that rectangles inside `at` make.
    fn decode(
        decoder: &mut Decoder,
        format: &PixelFormat,
        at: Rect,
        count: usize,
        mut bytes: &[u8],
    ) -> Result<Vec<u32>, TestCaseError> {
        let mut picture = vec![u32::MAX; usize::from(at.w) * usize::from(at.h)];
        for _ in 0..count {
            let (head, rest) = bytes.split_first_chunk().expect("a rectangle");
            bytes = rest;
            let rectangle = Rectangle::parse(head);
            let part = rect(rectangle.area);
            prop_assert!(part.within(at));
            let pixels =
                decoder.take(format, rectangle, &mut bytes).map_err(TestCaseError::fail)?;
            for (row, pixels) in pixels.chunks(part.w.into()).enumerate() {
                let (y, x) = (usize::from(part.y - at.y) + row, usize::from(part.x - at.x));
                let start = y * usize::from(at.w) + x;
                picture[start..start + usize::from(part.w)].copy_from_slice(pixels);
            }
        }
        prop_assert!(bytes.is_empty(), "nothing is left over");
        Ok(picture)
    }

    /// However an update is split, its rectangles can be counted in 16 bits.
    #[test]
    fn rectangles_are_few_enough_to_be_counted() {
        const SIDE_MAX: usize = crate::display::screen::SIDE_MAX as usize;
        for (w, h) in [(SIDE_MAX, 16), (16, SIDE_MAX), (80, 80), (65, 65), (1040, 1040)] {
            // Cells of a few colours, which are never joined.
            let pixel = |x: usize, y: usize| (x / 8 * 7 + y / 8 * 13) as u32;
            let pixels: Vec<u32> = (0..h).flat_map(|y| (0..w).map(move |x| pixel(x, y))).collect();
            let mut encoder = Encoder::default();
            encoder.choose(&[encoding::TIGHT], 0);
            let at = Rect { x: 0, y: 0, w: w as u16, h: h as u16 };
            let count = encoder.put(at, &pixels, &mut Vec::new());
            let most = RECTANGLES_MAX.min(SIDE_MAX * SIDE_MAX / (w * h));
            assert!(count * most <= usize::from(u16::MAX), "{w} by {h}: {count} rectangles");
        }
    }

    #[test]
    fn bits_are_gathered() {
        for byte in 0..=255u8 {
            assert_eq!(bits_of(std::array::from_fn(|at| byte >> (7 - at) & 1)), byte);
        }
    }

    #[test]
    fn photographs_are_sent_as_jpeg() {
        let mut encoder = Encoder::default();
        encoder.choose(&[encoding::TIGHT, encoding::QUALITY_0 + 9], 100);
        let at = Rect { x: 0, y: 0, w: 64, h: 64 };
        let pixels: Vec<u32> =
            (0..4096u32).map(|at| (at % 64 * 4) << 16 | (at / 64 * 4) << 8 | 128).collect();
        let mut bytes = Vec::new();
        let count = encoder.put(at, &pixels, &mut bytes);
        assert!(bytes.len() < 4096 * 3, "{} bytes", bytes.len());
        let seen = decode(&mut Decoder::default(), &PixelFormat::NATIVE, at, count, &bytes)
            .expect("sound");
        let far = |at: u32| {
            (0..4096)
                .map(|pixel| {
                    let part = |colours: &[u32]| (colours[pixel] >> at & 255) as i32;
                    (part(&seen) - part(&pixels)).abs()
                })
                .max()
        };
        assert!([0, 8, 16].into_iter().all(|at| far(at) < Some(12)), "close to the original");
    }
}
