//! Pixels as a viewer wants them (RFC 6143, section 7.4). Colours here are `0x00RRGGBB`.

use crate::error::Error;

/// Bytes of a format.
pub const FORMAT_LEN: usize = 16;

/// How the bits of a pixel lie. True colour only: no viewer today asks for palettes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelFormat {
    /// Bits of a pixel: 8, 16 or 32.
    pub bits: u8,
    /// Significant bits of a pixel.
    pub depth: u8,
    /// Whether the first byte is the most significant.
    pub big_endian: bool,
    /// The highest value of red, green, blue: one less than a power of two.
    pub max: [u16; 3],
    /// Where red, green, blue begin.
    pub shift: [u8; 3],
}

impl PixelFormat {
    /// Ours: `0x00RRGGBB`, little-endian.
    pub const NATIVE: PixelFormat =
        PixelFormat { bits: 32, depth: 24, big_endian: false, max: [255; 3], shift: [16, 8, 0] };

    /// From its bytes.
    ///
    /// # Errors
    /// If it has palettes, or bits that are not in a pixel.
    pub fn parse(bytes: &[u8; FORMAT_LEN]) -> Result<PixelFormat, Error> {
        let wrong = |what, found: u8| Err(Error::Invalid { what, found: found.into() });
        let [bits, depth, big, colour, ..] = *bytes;
        if !matches!(bits, 8 | 16 | 32) {
            return wrong("RFB bits of a pixel", bits);
        }
        if colour == 0 {
            return wrong("RFB true colour", colour);
        }
        let max = [4, 6, 8].map(|at| u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let shift = [bytes[10], bytes[11], bytes[12]];
        for (max, shift) in max.into_iter().zip(shift) {
            let ones = max.count_ones();
            if max == 0 || max & max.wrapping_add(1) != 0 {
                return Err(Error::Invalid { what: "RFB highest value", found: max.into() });
            }
            if ones + u32::from(shift) > u32::from(bits) {
                return wrong("RFB shift", shift);
            }
        }
        Ok(PixelFormat { bits, depth, big_endian: big != 0, max, shift })
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; FORMAT_LEN] {
        let mut bytes = [0; FORMAT_LEN];
        bytes[..4].copy_from_slice(&[self.bits, self.depth, self.big_endian.into(), 1]);
        for (at, max) in self.max.into_iter().enumerate() {
            bytes[4 + 2 * at..6 + 2 * at].copy_from_slice(&max.to_be_bytes());
        }
        bytes[10..13].copy_from_slice(&self.shift);
        bytes
    }
    /// Bytes of a pixel.
    pub fn width(&self) -> usize {
        usize::from(self.bits / 8)
    }
    /// Bytes of a pixel inside ZRLE: three, if no colour needs the fourth (section 7.7.5).
    pub fn compact_len(&self) -> usize {
        if self.is_compact() { 3 } else { self.width() }
    }
    fn is_compact(&self) -> bool {
        let high = |(max, shift): (&u16, &u8)| max.count_ones() + u32::from(*shift);
        let high = self.max.iter().zip(&self.shift).map(high).max().unwrap_or(0);
        self.bits == 32
            && self.depth <= 24
            && (high <= 24 || self.shift.iter().all(|low| *low >= 8))
    }
    /// Whether three bytes of red, green, blue stand for a pixel inside Tight.
    pub fn is_rgb(&self) -> bool {
        self.bits == 32 && self.depth == 24 && self.max == [255; 3]
    }
    /// The pixel for a colour.
    pub fn pixel(&self, colour: u32) -> u32 {
        if *self == PixelFormat::NATIVE {
            return colour & 0x00ff_ffff;
        }
        let mut pixel = 0;
        for (at, (max, shift)) in self.max.into_iter().zip(self.shift).enumerate() {
            let part = colour >> (16 - 8 * at) & 255;
            pixel |= ((part * u32::from(max) + 127) / 255) << shift;
        }
        pixel
    }
    /// The colour of a pixel.
    pub fn colour(&self, pixel: u32) -> u32 {
        let mut colour = 0;
        for (at, (max, shift)) in self.max.into_iter().zip(self.shift).enumerate() {
            let part = pixel >> shift & u32::from(max);
            let part = (part * 255 + u32::from(max) / 2) / u32::from(max);
            colour |= part << (16 - 8 * at);
        }
        colour
    }
    /// Appends a pixel, as outside ZRLE.
    pub fn put(&self, pixel: u32, bytes: &mut Vec<u8>) {
        let (len, little) = (self.width(), pixel.to_le_bytes());
        if self.big_endian {
            bytes.extend_from_slice(&pixel.to_be_bytes()[4 - len..]);
        } else {
            bytes.extend_from_slice(&little[..len]);
        }
    }
    /// Appends a pixel, as inside ZRLE.
    pub fn put_compact(&self, pixel: u32, bytes: &mut Vec<u8>) {
        if !self.is_compact() {
            return self.put(pixel, bytes);
        }
        let low = self.uses_low();
        let pixel = if low { pixel } else { pixel >> 8 };
        let [a, b, c, _] = pixel.to_le_bytes();
        bytes.extend_from_slice(&if self.big_endian { [c, b, a] } else { [a, b, c] });
    }
    /// Whether the lowest three bytes hold all colours.
    fn uses_low(&self) -> bool {
        self.max.iter().zip(&self.shift).all(|(max, low)| max.count_ones() + u32::from(*low) <= 24)
    }
    /// The pixel at the beginning of `bytes`, as outside ZRLE.
    pub fn get(&self, bytes: &[u8]) -> Option<u32> {
        let bytes = bytes.get(..self.width())?;
        let join = |pixel: u32, byte: &u8| pixel << 8 | u32::from(*byte);
        Some(if self.big_endian {
            bytes.iter().fold(0, join)
        } else {
            bytes.iter().rev().fold(0, join)
        })
    }
    /// The pixel at the beginning of `bytes`, as inside ZRLE.
    pub fn get_compact(&self, bytes: &[u8]) -> Option<u32> {
        if !self.is_compact() {
            return self.get(bytes);
        }
        let [a, b, c] = *bytes.first_chunk::<3>()?;
        let pixel = if self.big_endian { [c, b, a, 0] } else { [a, b, c, 0] }.map(u32::from);
        let pixel = pixel[0] | pixel[1] << 8 | pixel[2] << 16;
        Some(if self.uses_low() { pixel } else { pixel << 8 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RGB565: PixelFormat =
        PixelFormat { bits: 16, depth: 16, big_endian: true, max: [31, 63, 31], shift: [11, 5, 0] };

    proptest! {
        #[test]
        fn colours_survive(colour in 0u32..1 << 24, big_endian: bool, high: bool) {
            let shift = if high { [24, 16, 8] } else { [0, 8, 16] };
            for format in [PixelFormat { big_endian, shift, ..PixelFormat::NATIVE }, PixelFormat::NATIVE] {
                prop_assert_eq!(PixelFormat::parse(&format.emit()), Ok(format));
                let (pixel, mut bytes) = (format.pixel(colour), Vec::new());
                prop_assert_eq!(format.colour(pixel), colour);
                format.put(pixel, &mut bytes);
                prop_assert_eq!((bytes.len(), format.get(&bytes)), (4, Some(pixel)));
                bytes.clear();
                format.put_compact(pixel, &mut bytes);
                prop_assert_eq!((bytes.len(), format.get_compact(&bytes)), (3, Some(pixel)));
            }
        }
        #[test]
        fn any_bytes_are_a_format_or_an_error(bytes: [u8; FORMAT_LEN], colour: u32) {
            if let Ok(format) = PixelFormat::parse(&bytes) {
                let mut written = Vec::new();
                format.put(format.pixel(colour), &mut written);
                prop_assert_eq!(written.len(), format.width());
            }
        }
    }

    #[test]
    fn sixteen_bits() {
        let (mut bytes, pixel) = (Vec::new(), RGB565.pixel(0x00ff_8000));
        RGB565.put(pixel, &mut bytes);
        assert_eq!(bytes, [0b1111_1100, 0b0000_0000]);
        assert_eq!((RGB565.compact_len(), RGB565.get(&bytes)), (2, Some(pixel)));
        assert_eq!(RGB565.colour(pixel) >> 16, 0xff);
    }

    #[test]
    fn impossible_formats_are_refused() {
        for (at, value) in [(0, 24), (3, 0), (5, 0), (10, 25)] {
            let mut bytes = PixelFormat::NATIVE.emit();
            bytes[at] = value;
            assert!(PixelFormat::parse(&bytes).is_err(), "byte {at}");
        }
    }
}
