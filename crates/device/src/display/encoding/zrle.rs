//! ZRLE (RFC 6143, section 7.7.6): tiles of 64 by 64, each in the shortest of five forms, all in one zlib stream.

use super::zlib::Deflate;
use super::{Canvas, Palette, Source, View, tiles};
use lastmeter_wire::rfb::PixelFormat;

const SIDE: usize = 64;
const RUNS: u8 = 128;
/// Limit on the colours of a palette with runs.
const COLOURS_MAX: usize = 127;

/// The state of a connection.
pub(super) struct Encoder {
    stream: Deflate,
    palette: Palette,
    plain: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        let palette = Palette::new(COLOURS_MAX);
        Encoder { stream: Deflate::default(), palette, plain: Vec::new() }
    }
}

/// Bits of an index into a packed palette.
fn index_bits(colours: usize) -> usize {
    match colours {
        2 => 1,
        3 | 4 => 2,
        _ => 4,
    }
}

/// Calls back with each run of one colour.
fn each_run(tile: View<'_>, mut call: impl FnMut(u32, usize)) {
    let (mut colour, mut len) = (tile.pixels[0], 0);
    for row in tile.rows() {
        let mut rest = row;
        while let Some(first) = rest.first() {
            if *first != colour {
                call(colour, len);
                (colour, len) = (*first, 0);
            }
            let same = rest.iter().take_while(|pixel| **pixel == colour).count();
            len += same;
            rest = &rest[same..];
        }
    }
    call(colour, len);
}

fn put_length(mut len: usize, bytes: &mut Vec<u8>) {
    len -= 1;
    while len >= 255 {
        bytes.push(255);
        len -= 255;
    }
    bytes.push(len as u8);
}

impl Encoder {
    /// Appends the pixels.
    pub(super) fn put(&mut self, format: &PixelFormat, view: View<'_>, bytes: &mut Vec<u8>) {
        self.plain.clear();
        for [x, y, w, h] in tiles(view.w, view.h, SIDE) {
            put_tile(&mut self.palette, format, view.part(x, y, w, h), &mut self.plain);
        }
        let at = bytes.len();
        bytes.extend([0; 4]);
        self.stream.deflate(&self.plain, bytes);
        let len = (bytes.len() - at - 4) as u32;
        bytes[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }
}

fn put_tile(palette: &mut Palette, format: &PixelFormat, tile: View<'_>, bytes: &mut Vec<u8>) {
    if let Some(colour) = tile.solid() {
        bytes.push(1);
        return format.put_compact(format.pixel(colour), bytes);
    }
    palette.clear();
    let (mut runs, mut singles, mut few) = (0, 0, true);
    each_run(tile, |colour, len| {
        (runs, singles) = (runs + 1, singles + usize::from(len == 1));
        few = few && palette.add(colour);
    });
    let (pixel, colours) = (format.compact_len(), palette.colours.len());
    // Bytes before zlib; long runs cost slightly more than estimated here.
    let raw = tile.w * tile.h * pixel;
    let plain_runs = runs * (pixel + 1);
    let table = colours * pixel;
    let indexed_runs = if few { table + 2 * runs - singles } else { usize::MAX };
    let packed = match colours {
        2..=16 if few => table + tile.h * (tile.w * index_bits(colours)).div_ceil(8),
        _ => usize::MAX,
    };
    let best = raw.min(plain_runs).min(indexed_runs).min(packed);
    let put = |colour: u32, bytes: &mut Vec<u8>| format.put_compact(format.pixel(colour), bytes);
    if best == raw {
        bytes.push(0);
        tile.rows().flatten().for_each(|colour| put(*colour, bytes));
    } else if best == packed {
        bytes.push(colours as u8);
        palette.colours.iter().for_each(|colour| put(*colour, bytes));
        let bits = index_bits(colours);
        for row in tile.rows() {
            for part in row.chunks(8 / bits) {
                let join = |byte: usize, colour: &u32| byte << bits | palette.index(*colour);
                let byte = part.iter().fold(0, join);
                bytes.push((byte << (8 - part.len() * bits)) as u8);
            }
        }
    } else if best == indexed_runs {
        bytes.push(RUNS + colours as u8);
        palette.colours.iter().for_each(|colour| put(*colour, bytes));
        each_run(tile, |colour, len| {
            let index = palette.index(colour) as u8;
            if len == 1 {
                bytes.push(index);
            } else {
                bytes.push(index | RUNS);
                put_length(len, bytes);
            }
        });
    } else {
        bytes.push(RUNS);
        each_run(tile, |colour, len| {
            put(colour, bytes);
            put_length(len, bytes);
        });
    }
}

/// Draws the pixels.
pub(super) fn take(
    format: &PixelFormat,
    canvas: &mut Canvas,
    source: &mut impl Source,
) -> Result<(), String> {
    fn one(format: &PixelFormat, source: &mut impl Source) -> Result<u32, String> {
        let bytes = source.take(format.compact_len())?;
        Ok(format.colour(format.get_compact(&bytes).unwrap_or(0)))
    }
    fn length(source: &mut impl Source) -> Result<usize, String> {
        let mut len = 1;
        loop {
            let byte = source.byte()?;
            len += usize::from(byte);
            if byte < 255 {
                return Ok(len);
            }
        }
    }
    for [x, y, w, h] in canvas.tiles(SIDE) {
        let sort = source.byte()?;
        let mut palette = Vec::new();
        let colours = match sort {
            0 | RUNS => 0,
            1 => 1,
            2..=16 => usize::from(sort),
            130.. => usize::from(sort - RUNS),
            _ => return Err(format!("ZRLE: a tile of sort {sort}")),
        };
        for _ in 0..colours {
            palette.push(one(format, source)?);
        }
        let colour = |index: usize| palette.get(index).copied().ok_or("ZRLE: no such colour");
        match sort {
            0 => {
                for at in 0..w * h {
                    canvas.fill(x + at % w, y + at / w, 1, 1, one(format, source)?)?;
                }
            }
            1 => canvas.fill(x, y, w, h, palette[0])?,
            2..=16 => {
                let bits = index_bits(colours);
                for row in 0..h {
                    let bytes = source.take((w * bits).div_ceil(8))?;
                    for column in 0..w {
                        let (byte, at) = (bytes[column * bits / 8], column * bits % 8);
                        let index = usize::from(byte >> (8 - bits - at)) & ((1 << bits) - 1);
                        canvas.fill(x + column, y + row, 1, 1, colour(index)?)?;
                    }
                }
            }
            _ => {
                let mut at = 0;
                while at < w * h {
                    let (run, len) = if sort == RUNS {
                        (one(format, source)?, length(source)?)
                    } else {
                        let index = source.byte()?;
                        let long = index & RUNS != 0;
                        let run = colour(usize::from(index & !RUNS))?;
                        (run, if long { length(source)? } else { 1 })
                    };
                    if at + len > w * h {
                        return Err("ZRLE: a run beyond its tile".to_owned());
                    }
                    for place in at..at + len {
                        canvas.fill(x + place % w, y + place / w, 1, 1, run)?;
                    }
                    at += len;
                }
            }
        }
    }
    Ok(())
}
