//! JPEG of frames, and back.

use super::frame::{Layout, Pixels, SIDE_MAX};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// A baseline JPEG, with the Huffman tables of the standard; colour is 4:2:0, as RTP can carry it.
pub fn jpeg(pixels: &Pixels, quality: u8) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(pixels.bytes.len() / 8);
    let mut encoder = Encoder::new(&mut bytes, quality.clamp(1, 100));
    encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
    let layout = match pixels.layout {
        Layout::Grey => ColorType::Luma,
        Layout::Colour => ColorType::Rgb,
    };
    let encoded = encoder.encode(&pixels.bytes, pixels.width, pixels.height, layout);
    encoded.map_err(|error| format!("JPEG: {error}"))?;
    Ok(bytes)
}

/// The pixels of a JPEG of any size that a frame may have, in colour.
pub fn from_jpeg(bytes: &[u8]) -> Result<Pixels, String> {
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_max_width(SIDE_MAX.into())
        .set_max_height(SIDE_MAX.into());
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let place = |error| format!("JPEG: {error:?}");
    decoder.decode_headers().map_err(place)?;
    let (w, h) = decoder.dimensions().ok_or("JPEG: it has no size")?;
    let bytes = decoder.decode().map_err(place)?;
    if bytes.len() != w * h * 3 {
        return Err("JPEG: pixels are missing".to_owned());
    }
    Ok(Pixels { layout: Layout::Colour, width: w as u16, height: h as u16, bytes })
}
