//! Tight: one colour, a palette, true colour or JPEG, with separate zlib streams. Source: the RFB protocol's
//! community specification, section on Tight.
//!
//! An area is looked at in cells. Adjacent cells of the same sort are sent as one rectangle.
//!
//! Rows: N-29.

use super::zlib::{Deflate, Inflate};
use super::{Canvas, Palette, Source, View, area, bits_of, jpeg};
use lastmeter_plugin::request::Rect;
use lastmeter_wire::rfb::{PixelFormat, Rectangle, encoding};

const FILL: u8 = 8 << 4;
const JPEG: u8 = 9 << 4;
/// A filter's number follows.
const FILTER: u8 = 4 << 4;
const PALETTE: u8 = 1;
/// Streams: all colours, two colours, more.
const FULL: usize = 0;
const TWO: usize = 1;
const INDEXED: usize = 2;
/// Shorter data is not compressed.
const PLAIN_MAX: usize = 12;
/// Width and height of a cell. One of fewer rows is wider, one of fewer columns higher, so that there are at most 65535
/// rectangles in an update.
const CELL: usize = 64;
/// Limits on an encoded rectangle of more than one colour: pixels, and pixels of a side, which viewers rely on.
const AREA_MAX: usize = 1 << 16;
const SIDE_MAX: usize = 2048;
/// Areas with fewer pixels are never sent as JPEG.
const JPEG_MIN: usize = 1024;
/// Limit on the colours of a palette.
const COLOURS_MAX: usize = 256;
/// Above this quality, JPEG has the colour of each pixel, not of four together.
const COARSE_MAX: u8 = 90;

/// What a cell has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    One(u32),
    /// Two colours, the lower one first.
    Two(u32, u32),
    /// A palette's, where that is much shorter than the pixels.
    Few,
    Many,
}

/// The state of a connection.
pub(super) struct Encoder {
    streams: [Deflate; 3],
    palette: Palette,
    jpeg: Option<jpeg::Encoder>,
    /// What was sent as JPEG, on the viewer's screen.
    pub(super) lossy: Vec<Rect>,
    /// What is compressed next.
    plain: Vec<u8>,
    /// What was compressed.
    packed: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        let streams = std::array::from_fn(|_| Deflate::default());
        let (palette, plain, packed) = (Palette::new(COLOURS_MAX), Vec::new(), Vec::new());
        Encoder { streams, palette, jpeg: None, lossy: Vec::new(), plain, packed }
    }
}

fn put_pixel(format: &PixelFormat, colour: u32, bytes: &mut Vec<u8>) {
    if format.is_rgb() {
        bytes.extend_from_slice(&colour.to_be_bytes()[1..]);
    } else {
        format.put(format.pixel(colour), bytes);
    }
}

fn pixel_len(format: &PixelFormat) -> usize {
    if format.is_rgb() { 3 } else { format.width() }
}

fn put_length(len: usize, bytes: &mut Vec<u8>) {
    let more = |rest: usize| if rest > 0 { 128 } else { 0 };
    bytes.push((len & 127) as u8 | more(len >> 7));
    if len >> 7 > 0 {
        bytes.push((len >> 7 & 127) as u8 | more(len >> 14));
    }
    if len >> 14 > 0 {
        bytes.push((len >> 14) as u8);
    }
}

/// Appends a bit for each pixel, set for this colour. A row begins with a new byte.
fn put_bits(part: View<'_>, colour: u32, bytes: &mut Vec<u8>) {
    let mut line = [0; SIDE_MAX];
    for row in part.rows() {
        let line = &mut line[..row.len().next_multiple_of(8)];
        if let Some(last) = line.last_chunk_mut::<8>() {
            *last = [0; 8];
        }
        line.iter_mut().zip(row).for_each(|(byte, pixel)| *byte = u8::from(*pixel == colour));
        bytes.extend(line.as_chunks().0.iter().map(|eight| bits_of(*eight)));
    }
}

/// Appends pixels.
fn put_pixels(format: &PixelFormat, part: View<'_>, bytes: &mut Vec<u8>) {
    if !format.is_rgb() {
        part.rows().flatten().for_each(|colour| put_pixel(format, *colour, bytes));
        return;
    }
    for row in part.rows() {
        let start = bytes.len();
        bytes.resize(start + 3 * row.len(), 0);
        let places = bytes[start..].as_chunks_mut::<3>().0.iter_mut();
        places.zip(row).for_each(|(place, colour)| {
            let [_, r, g, b] = colour.to_be_bytes();
            *place = [r, g, b];
        });
    }
}

impl Encoder {
    /// Appends rectangles with their headers; returns their number.
    pub(super) fn put(
        &mut self,
        format: &PixelFormat,
        quality: Option<u8>,
        at: Rect,
        view: View<'_>,
        bytes: &mut Vec<u8>,
    ) -> usize {
        let mut count = 0;
        let side = |other: usize| (CELL * CELL / other.clamp(1, CELL)).min(SIDE_MAX);
        let high = side(view.w);
        for y in (0..view.h).step_by(high) {
            let wide = side(view.h - y);
            let cell = |x: usize| view.part(x, y, wide, high);
            let (mut x, mut ahead) = (0, None);
            while x < view.w {
                let mut part = cell(x);
                let sort = ahead.take().unwrap_or_else(|| self.look(part));
                let limit = match sort {
                    Sort::One(_) => view.w,
                    Sort::Two(..) | Sort::Many => (AREA_MAX / part.h).min(SIDE_MAX),
                    Sort::Few => 0,
                };
                while x + part.w < view.w && part.w < limit {
                    let next = cell(x + part.w);
                    if part.w + next.w > limit {
                        break;
                    }
                    let other = self.look(next);
                    if other != sort {
                        ahead = Some(other);
                        break;
                    }
                    part.w += next.w;
                }
                let (left, top) = (at.x + x as u16, at.y + y as u16);
                let place = Rect { x: left, y: top, w: part.w as u16, h: part.h as u16 };
                bytes.extend(Rectangle { area: area(place), encoding: encoding::TIGHT }.emit());
                if self.put_part(format, quality, part, sort, bytes) {
                    self.lossy.push(place);
                }
                x += part.w;
                count += 1;
            }
        }
        count
    }
    /// What a cell has; of few colours, the palette is kept.
    fn look(&mut self, cell: View<'_>) -> Sort {
        let Some(first) = cell.pixels.first().copied() else { return Sort::One(0) };
        let is_first = |row: &&[u32]| row.iter().fold(0, |all, pixel| all | (pixel ^ first)) == 0;
        let mut rows = cell.rows().skip_while(is_first).peekable();
        let second = rows.peek().and_then(|row| row.iter().find(|pixel| **pixel != first));
        let Some(second) = second.copied() else { return Sort::One(first) };
        let is_either = |row: &[u32]| {
            let other = |pixel: &u32| u32::from(*pixel != first) & u32::from(*pixel != second);
            row.iter().fold(0, |any, pixel| any | other(pixel)) == 0
        };
        if rows.all(is_either) {
            return Sort::Two(first.min(second), first.max(second));
        }
        self.palette.clear();
        let mut last = None;
        let few = cell
            .rows()
            .flatten()
            .all(|colour| last.replace(*colour) == Some(*colour) || self.palette.add(*colour));
        let worth = few && self.palette.colours.len() * 4 <= cell.w * cell.h;
        if worth { Sort::Few } else { Sort::Many }
    }
    /// Whether it is a JPEG.
    fn put_part(
        &mut self,
        format: &PixelFormat,
        quality: Option<u8>,
        part: View<'_>,
        sort: Sort,
        bytes: &mut Vec<u8>,
    ) -> bool {
        self.plain.clear();
        let stream = match sort {
            Sort::One(colour) => {
                bytes.push(FILL);
                put_pixel(format, colour, bytes);
                return false;
            }
            Sort::Two(low, high) => {
                bytes.extend([FILTER | (TWO as u8) << 4, PALETTE, 1]);
                [low, high].into_iter().for_each(|colour| put_pixel(format, colour, bytes));
                put_bits(part, high, &mut self.plain);
                TWO
            }
            Sort::Few => {
                let colours = &self.palette.colours;
                let last = (colours.len() - 1) as u8;
                bytes.extend([FILTER | (INDEXED as u8) << 4, PALETTE, last]);
                colours.iter().for_each(|colour| put_pixel(format, *colour, bytes));
                let (mut colour, mut index) = (colours[0], 0);
                self.plain.extend(part.rows().flatten().map(|pixel| {
                    if *pixel != colour {
                        (colour, index) = (*pixel, self.palette.index(*pixel) as u8);
                    }
                    index
                }));
                INDEXED
            }
            Sort::Many => {
                let photograph = part.w * part.h >= JPEG_MIN && format.bits >= 16;
                if let Some(quality) = quality.filter(|_| photograph) {
                    self.put_jpeg(quality, part, bytes);
                    return true;
                }
                bytes.push((FULL as u8) << 4);
                put_pixels(format, part, &mut self.plain);
                FULL
            }
        };
        if self.plain.len() < PLAIN_MAX {
            bytes.extend_from_slice(&self.plain);
            return false;
        }
        self.packed.clear();
        self.streams[stream].deflate(&self.plain, &mut self.packed);
        put_length(self.packed.len(), bytes);
        bytes.extend_from_slice(&self.packed);
        false
    }
    fn put_jpeg(&mut self, quality: u8, part: View<'_>, bytes: &mut Vec<u8>) {
        let kept = self.jpeg.take().filter(|kept| kept.quality == quality);
        let mut jpeg = kept.unwrap_or_else(|| jpeg::Encoder::new(quality, quality > COARSE_MAX));
        self.packed.clear();
        jpeg.put(part, &mut self.packed);
        self.jpeg = Some(jpeg);
        bytes.push(JPEG);
        put_length(self.packed.len(), bytes);
        bytes.extend_from_slice(&self.packed);
    }
}

/// The pixels of a JPEG of this size, which is checked before anything is decoded.
pub fn from_jpeg(bytes: &[u8], w: usize, h: usize) -> Result<Vec<u32>, String> {
    use zune_jpeg::zune_core::bytestream::ZCursor;
    use zune_jpeg::zune_core::colorspace::ColorSpace;
    use zune_jpeg::zune_core::options::DecoderOptions;
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_max_width(w.max(1))
        .set_max_height(h.max(1));
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| format!("JPEG: {error:?}"))?;
    if decoder.dimensions() != Some((w, h)) {
        return Err(format!("JPEG: not of {w} by {h} pixels"));
    }
    let rgb = decoder.decode().map_err(|error| format!("JPEG: {error:?}"))?;
    if rgb.len() != w * h * 3 {
        return Err("JPEG: pixels are missing".to_owned());
    }
    let word = |rgb: &[u8]| u32::from_be_bytes([0, rgb[0], rgb[1], rgb[2]]);
    Ok(rgb.chunks_exact(3).map(word).collect())
}

/// The state of a connection.
#[derive(Default)]
pub(super) struct Decoder {
    streams: [Inflate; 4],
    /// The first step of the last JPEG's quantiser.
    pub(super) coarseness: Option<u8>,
}

/// The first step of a JPEG's first quantiser.
fn coarseness(jpeg: &[u8]) -> Option<u8> {
    // Its marker, its length, which quantiser it is, its steps.
    let start = jpeg.windows(2).position(|marker| marker == [0xff, 0xdb])?;
    jpeg.get(start + 5).copied()
}

impl Decoder {
    /// Draws the pixels.
    pub(super) fn take(
        &mut self,
        format: &PixelFormat,
        canvas: &mut Canvas,
        source: &mut impl Source,
    ) -> Result<(), String> {
        fn one(format: &PixelFormat, bytes: &[u8]) -> u32 {
            match *bytes {
                [r, g, b] if format.is_rgb() => u32::from_be_bytes([0, r, g, b]),
                _ => format.colour(format.get(bytes).unwrap_or(0)),
            }
        }
        fn length(source: &mut impl Source) -> Result<usize, String> {
            let mut len = 0;
            for shift in [0, 7, 14] {
                let byte = source.byte()?;
                len |= usize::from(if shift == 14 { byte } else { byte & 127 }) << shift;
                if byte & 128 == 0 {
                    break;
                }
            }
            Ok(len)
        }
        let (w, h, pixel) = (canvas.w, canvas.h, pixel_len(format));
        let control = source.byte()?;
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if control >> at & 1 != 0 {
                *stream = Inflate::default();
            }
        }
        match control & 0xf0 {
            FILL => {
                let colour = one(format, &source.take(pixel)?);
                return canvas.fill(0, 0, w, h, colour);
            }
            JPEG => {
                let len = length(source)?;
                let jpeg = source.take(len)?;
                canvas.pixels = from_jpeg(&jpeg, w, h)?;
                self.coarseness = coarseness(&jpeg);
                return Ok(());
            }
            other if other & 128 != 0 => return Err(format!("Tight: compression {other}")),
            _ => {}
        }
        let filter = if control & FILTER != 0 { source.byte()? } else { 0 };
        let mut palette = Vec::new();
        if filter == PALETTE {
            let count = usize::from(source.byte()?) + 1;
            let bytes = source.take(count * pixel)?;
            palette.extend(bytes.chunks_exact(pixel).map(|bytes| one(format, bytes)));
        } else if filter != 0 {
            return Err(format!("Tight: filter {filter} is not used here"));
        }
        let row = match palette.len() {
            0 => w * pixel,
            1 | 2 => w.div_ceil(8),
            _ => w,
        };
        let bytes = if row * h < PLAIN_MAX {
            source.take(row * h)?
        } else {
            let len = length(source)?;
            let packed = source.take(len)?;
            self.streams[usize::from(control >> 4 & 3)].inflate(&packed)?
        };
        if bytes.len() != row * h {
            return Err("Tight: too few or too many pixels".to_owned());
        }
        for at in 0..w * h {
            let (x, y) = (at % w, at / w);
            let line = &bytes[y * row..(y + 1) * row];
            let index = match palette.len() {
                0 => {
                    canvas.pixels[at] = one(format, &line[x * pixel..(x + 1) * pixel]);
                    continue;
                }
                1 | 2 => usize::from(line[x / 8] >> (7 - x % 8) & 1),
                _ => usize::from(line[x]),
            };
            canvas.pixels[at] = *palette.get(index).ok_or("Tight: no such colour")?;
        }
        Ok(())
    }
}
