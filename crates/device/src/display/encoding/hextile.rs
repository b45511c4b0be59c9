//! Hextile (RFC 6143, section 7.7.4): tiles of 16 by 16, a background and rectangles on it.

use super::{Canvas, Palette, Source, View, put_raw, tiles};
use lastmeter_wire::rfb::PixelFormat;

const SIDE: usize = 16;
const RAW: u8 = 1;
const BACKGROUND: u8 = 2;
const FOREGROUND: u8 = 4;
const RECTANGLES: u8 = 8;
const COLOURED: u8 = 16;

/// Appends the pixels.
pub(super) fn put(format: &PixelFormat, view: View<'_>, bytes: &mut Vec<u8>) {
    let mut palette = Palette::new(SIDE * SIDE);
    for [x, y, w, h] in tiles(view.w, view.h, SIDE) {
        let tile = view.part(x, y, w, h);
        let raw = w * h * format.width();
        let start = bytes.len();
        if let Some(colour) = tile.solid() {
            bytes.push(BACKGROUND);
            format.put(format.pixel(colour), bytes);
            continue;
        }
        palette.clear();
        tile.rows().flatten().for_each(|colour| {
            palette.add(*colour);
        });
        // The most frequent of the first few colours is the background.
        let background = palette
            .colours
            .iter()
            .take(4)
            .max_by_key(|colour| tile.rows().flatten().filter(|pixel| pixel == colour).count());
        let background = background.copied().unwrap_or(0);
        let one = palette.colours.len() == 2;
        bytes.push(BACKGROUND | RECTANGLES | if one { FOREGROUND } else { COLOURED });
        format.put(format.pixel(background), bytes);
        if one {
            let other = palette.colours.iter().find(|colour| **colour != background);
            format.put(format.pixel(*other.unwrap_or(&0)), bytes);
        }
        let count_at = bytes.len();
        bytes.push(0);
        let mut count = 0;
        let mut done = [0u16; SIDE];
        for y in 0..h {
            for x in 0..w {
                let colour = tile.pixels[y * tile.stride + x];
                if colour == background || done[y] >> x & 1 != 0 {
                    continue;
                }
                let same = |x: usize, y: usize| {
                    tile.pixels[y * tile.stride + x] == colour && done[y] >> x & 1 == 0
                };
                let wide = (x..w).take_while(|x| same(*x, y)).count();
                let high = (y..h).take_while(|y| (x..x + wide).all(|x| same(x, *y))).count();
                for row in &mut done[y..y + high] {
                    *row |= (((1u32 << wide) - 1) << x) as u16;
                }
                if !one {
                    format.put(format.pixel(colour), bytes);
                }
                bytes.extend([(x << 4 | y) as u8, ((wide - 1) << 4 | (high - 1)) as u8]);
                count += 1;
            }
        }
        bytes[count_at] = count as u8;
        if count > 255 || bytes.len() - start > raw {
            bytes.truncate(start);
            bytes.push(RAW);
            put_raw(format, tile, bytes);
        }
    }
}

/// Draws the pixels.
pub(super) fn take(
    format: &PixelFormat,
    canvas: &mut Canvas,
    source: &mut impl Source,
) -> Result<(), String> {
    let (mut background, mut foreground) = (0, 0);
    let pixel = |source: &mut dyn FnMut(usize) -> Result<Vec<u8>, String>| {
        let bytes = source(format.width())?;
        Ok::<u32, String>(format.colour(format.get(&bytes).unwrap_or(0)))
    };
    for [x, y, w, h] in canvas.tiles(SIDE) {
        let sort = source.byte()?;
        if sort & RAW != 0 {
            let bytes = source.take(w * h * format.width())?;
            for (at, bytes) in bytes.chunks_exact(format.width()).enumerate() {
                let colour = format.colour(format.get(bytes).unwrap_or(0));
                canvas.fill(x + at % w, y + at / w, 1, 1, colour)?;
            }
            continue;
        }
        if sort & BACKGROUND != 0 {
            background = pixel(&mut |len| source.take(len))?;
        }
        if sort & FOREGROUND != 0 {
            foreground = pixel(&mut |len| source.take(len))?;
        }
        canvas.fill(x, y, w, h, background)?;
        if sort & RECTANGLES == 0 {
            continue;
        }
        for _ in 0..source.byte()? {
            let colour = match sort & COLOURED {
                0 => foreground,
                _ => pixel(&mut |len| source.take(len))?,
            };
            let (place, size) = (source.byte()?, source.byte()?);
            let half = |byte: u8| (usize::from(byte >> 4), usize::from(byte & 15));
            let ((left, top), (wide, high)) = (half(place), half(size));
            if left + wide + 1 > w || top + high + 1 > h {
                return Err("hextile: a rectangle outside of its tile".to_owned());
            }
            canvas.fill(x + left, y + top, wide + 1, high + 1, colour)?;
        }
    }
    Ok(())
}
