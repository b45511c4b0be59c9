//! Tight: one colour, a palette, true colour or JPEG, with separate zlib streams. Source: the RFB protocol's
//! community specification, section on Tight.
//!
//! Rows: N-29.

use super::zlib::{Deflate, Inflate};
use super::{Canvas, Palette, Source, View, area};
use jpeg_encoder::{ColorType, SamplingFactor};
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
/// Limits on width and height of one encoded rectangle.
const PART: usize = 128;
/// Areas with fewer pixels are never sent as JPEG.
const JPEG_MIN: usize = 1024;
/// Limit on the colours of a palette.
const COLOURS_MAX: usize = 256;

/// The state of a connection.
pub(super) struct Encoder {
    streams: [Deflate; 3],
    palette: Palette,
    plain: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        let streams = std::array::from_fn(|_| Deflate::default());
        Encoder { streams, palette: Palette::new(COLOURS_MAX), plain: Vec::new() }
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
        for y in (0..view.h).step_by(PART) {
            let mut x = 0;
            while x < view.w {
                // Adjacent areas of the same colour are sent as one.
                let mut part = view.part(x, y, PART, PART);
                let solid = part.solid();
                while let Some(colour) = solid {
                    let next = x + part.w;
                    if next == view.w || view.part(next, y, PART, PART).solid() != Some(colour) {
                        break;
                    }
                    part.w += PART.min(view.w - next);
                }
                let (left, top) = (at.x + x as u16, at.y + y as u16);
                let place = Rect { x: left, y: top, w: part.w as u16, h: part.h as u16 };
                bytes.extend(Rectangle { area: area(place), encoding: encoding::TIGHT }.emit());
                match solid {
                    Some(colour) => {
                        bytes.push(FILL);
                        put_pixel(format, colour, bytes);
                    }
                    None => self.put_part(format, quality, part, bytes),
                }
                x += part.w;
                count += 1;
            }
        }
        count
    }
    fn put_part(
        &mut self,
        format: &PixelFormat,
        quality: Option<u8>,
        part: View<'_>,
        bytes: &mut Vec<u8>,
    ) {
        self.palette.clear();
        let mut last = None;
        let few = part
            .rows()
            .flatten()
            .all(|colour| last.replace(*colour) == Some(*colour) || self.palette.add(*colour));
        let colours = self.palette.colours.len();
        self.plain.clear();
        // A palette is worthwhile if it is much shorter than the pixels.
        let stream = if few && colours * 4 <= part.w * part.h {
            let stream = if colours == 2 { TWO } else { INDEXED };
            bytes.extend([FILTER | (stream as u8) << 4, PALETTE, (colours - 1) as u8]);
            self.palette.colours.iter().for_each(|colour| put_pixel(format, *colour, bytes));
            for row in part.rows() {
                if colours == 2 {
                    for eight in row.chunks(8) {
                        let join =
                            |byte: usize, colour: &u32| byte << 1 | self.palette.index(*colour);
                        let byte = eight.iter().fold(0, join) << (8 - eight.len());
                        self.plain.push(byte as u8);
                    }
                } else {
                    self.plain.extend(row.iter().map(|colour| self.palette.index(*colour) as u8));
                }
            }
            stream
        } else {
            let photograph = !few && part.w * part.h >= JPEG_MIN && format.bits >= 16;
            if let Some(jpeg) = quality.filter(|_| photograph).and_then(|q| jpeg(part, q)) {
                bytes.push(JPEG);
                put_length(jpeg.len(), bytes);
                bytes.extend(jpeg);
                return;
            }
            bytes.push((FULL as u8) << 4);
            part.rows().flatten().for_each(|colour| put_pixel(format, *colour, &mut self.plain));
            FULL
        };
        if self.plain.len() < PLAIN_MAX {
            bytes.extend_from_slice(&self.plain);
            return;
        }
        let mut packed = Vec::new();
        self.streams[stream].deflate(&self.plain, &mut packed);
        put_length(packed.len(), bytes);
        bytes.extend(packed);
    }
}

/// Pixels as JPEG.
fn jpeg(view: View<'_>, quality: u8) -> Option<Vec<u8>> {
    let rgb: Vec<u8> = view
        .rows()
        .flatten()
        .flat_map(|pixel| {
            let [_, r, g, b] = pixel.to_be_bytes();
            [r, g, b]
        })
        .collect();
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, quality);
    let fine = if quality > 90 { SamplingFactor::R_4_4_4 } else { SamplingFactor::R_4_2_0 };
    encoder.set_sampling_factor(fine);
    encoder.encode(&rgb, view.w as u16, view.h as u16, ColorType::Rgb).ok()?;
    Some(bytes)
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
                canvas.pixels = from_jpeg(&source.take(len)?, w, h)?;
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
