//! Pictures in files: PNG is read and written, JPEG is sent as it is.

use crate::Complaint;
use lastmeter_linux::files;
use lastmeter_wire::framebuffer::{DATA_MAX, Operation};
use std::path::Path;

/// Saves pixels as PNG.
pub(super) fn save(path: &Path, (w, h): (u16, u16), pixels: &[u32]) -> Result<(), Complaint> {
    let place = |error: &dyn std::fmt::Display| Complaint(format!("{}: {error}", path.display()));
    let file = std::fs::File::create(path).map_err(|error| place(&error))?;
    let mut encoder = png::Encoder::new(std::io::BufWriter::new(file), w.into(), h.into());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(|error| place(&error))?;
    let rgb: Vec<u8> =
        pixels.iter().flat_map(|pixel| pixel.to_be_bytes().into_iter().skip(1)).collect();
    writer.write_image_data(&rgb).map_err(|error| place(&error))
}

/// A picture as a command draws it: which command, the picture's size, data.
pub(super) type Drawn = (Operation, (u16, u16), Vec<u8>);

/// Loads a picture.
pub(super) fn load(path: &Path) -> Result<Drawn, Complaint> {
    let place = |error: &dyn std::fmt::Display| Complaint(format!("{}: {error}", path.display()));
    let bytes = files::read(path, DATA_MAX)?;
    if bytes.starts_with(&[0xff, 0xd8]) {
        let size = jpeg_size(&bytes).ok_or_else(|| place(&"no size found in this JPEG"))?;
        return Ok((Operation::JPEG, size, bytes));
    }
    let mut decoder = png::Decoder::new(std::io::Cursor::new(&bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|error| place(&error))?;
    let room = reader.output_buffer_size().filter(|room| *room <= DATA_MAX);
    let mut pixels = vec![0; room.ok_or_else(|| place(&"too many pixels"))?];
    let info = reader.next_frame(&mut pixels).map_err(|error| place(&error))?;
    let side = |side: u32| u16::try_from(side).map_err(|_| place(&"too many pixels"));
    let samples = info.color_type.samples();
    let word = |pixel: &[u8]| match *pixel {
        [grey] | [grey, _] => [grey, grey, grey, 0],
        [r, g, b, ..] => [b, g, r, 0],
        [] => [0; 4],
    };
    let data = pixels[..info.buffer_size()].chunks_exact(samples).flat_map(word).collect();
    Ok((Operation::PUT, (side(info.width)?, side(info.height)?), data))
}

/// Width and height of a JPEG, from the header of its frame (ITU-T T.81, section B.2.2).
fn jpeg_size(bytes: &[u8]) -> Option<(u16, u16)> {
    let mut rest = bytes.get(2..)?;
    loop {
        let short = |at: usize| Some(u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]));
        let marker = *rest.get(1)?;
        let is_frame = matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc);
        if is_frame {
            return Some((short(7)?, short(5)?));
        }
        let len = usize::from(short(2)?);
        rest = rest.get(2 + len..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.png");
        let pixels: Vec<u32> = (0..12).map(|at| at * 0x0001_0203).collect();
        assert!(save(&path, (4, 3), &pixels).is_ok());
        let Ok((operation, size, data)) = load(&path) else { panic!("loaded") };
        assert_eq!((operation, size), (Operation::PUT, (4, 3)));
        assert_eq!(lastmeter_wire::framebuffer::pixels(&data).collect::<Vec<_>>(), pixels);
    }

    #[test]
    fn the_size_of_a_jpeg() {
        let comment = [0xff, 0xfe, 0, 4, 1, 2];
        let frame = [0xff, 0xc0, 0, 11, 8, 1, 224, 2, 128, 1, 1, 0x11, 0];
        let bytes = [&[0xff, 0xd8][..], &comment, &frame].concat();
        assert_eq!(jpeg_size(&bytes), Some((640, 480)));
        assert_eq!(jpeg_size(&bytes[..9]), None);
    }
}
