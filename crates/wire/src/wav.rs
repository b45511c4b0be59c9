//! WAV: sound in a file, as chunks of RIFF. Samples are of 16 bits (PCM), as the audio device has them.
//!
//! ```text
//! "RIFF" | length 4 | "WAVE" | chunks: name 4 | length 4 | bytes, to an even length
//! "fmt "   tag 2 | channels 2 | rate 4 | bytes a second 4 | bytes a frame 2 | bits 2 | ...
//! "data"   samples, little-endian, channels in turn
//! ```
//!
//! Source: Multimedia Programming Interface and Data Specifications 1.0 (IBM, Microsoft, 1991), and
//! WAVEFORMATEXTENSIBLE, whose subformat begins with the tag. A length beyond the end of the file, as written by
//! programs that do not know how long the sound will be, means the end of the file.
//!
//! ```
//! use lastmeter_wire::wav::{Format, header, parse};
//! let format = Format { rate: 48_000, channels: 1 };
//! let bytes = [&header(format, 4)[..], &[1, 0, 255, 255]].concat();
//! assert_eq!(parse(&bytes)?, (format, vec![1, -1]));
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::error::{Error, split};

/// Bytes of a header as [`header`] makes it.
pub const HEADER_LEN: usize = 44;
/// The most chunks that are searched for samples.
pub const CHUNKS_MAX: usize = 64;
/// Samples of a channel in a second: the fewest and the most.
pub const RATES: std::ops::RangeInclusive<u32> = 1000..=192_000;
/// The most channels.
pub const CHANNELS_MAX: u16 = 2;
/// The most bytes of samples: lengths have 32 bits.
pub const DATA_MAX: u32 = u32::MAX - HEADER_LEN as u32;
const PCM: u16 = 1;
const EXTENSIBLE: u16 = 0xfffe;
const BITS: u16 = 16;

/// What samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Samples of a channel in a second.
    pub rate: u32,
    /// Samples of a frame.
    pub channels: u16,
}

fn wrong(what: &'static str, found: impl Into<u64>) -> Error {
    Error::Invalid { what, found: found.into() }
}

fn format(chunk: &[u8]) -> Result<Format, Error> {
    let (head, rest) = split::<16>(chunk, "WAV format")?;
    let two = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let rate = u32::from_le_bytes([4, 5, 6, 7].map(|at| head[at]));
    let (tag, channels, bits) = (two(0), two(2), two(14));
    let tag = match rest {
        // Its length, the bits in use, a mask of channels, and then the subformat.
        [_, _, _, _, _, _, _, _, low, high, ..] if tag == EXTENSIBLE => {
            u16::from_le_bytes([*low, *high])
        }
        _ => tag,
    };
    if tag != PCM {
        return Err(wrong("WAV coding: only PCM is known, which is 1;", tag));
    }
    if bits != BITS {
        return Err(wrong("WAV bits of a sample: only 16 are known;", bits));
    }
    if !(1..=CHANNELS_MAX).contains(&channels) {
        return Err(wrong("WAV channels", channels));
    }
    if !RATES.contains(&rate) {
        return Err(wrong("WAV rate", rate));
    }
    if two(12) != channels * BITS / 8 {
        return Err(wrong("WAV bytes of a frame", two(12)));
    }
    Ok(Format { rate, channels })
}

/// The format and the samples of a file.
///
/// # Errors
/// If it is not a WAV file, or its samples do not have 16 bits.
pub fn parse(bytes: &[u8]) -> Result<(Format, Vec<i16>), Error> {
    let ([r, i, f, f2, _, _, _, _, kind @ ..], mut rest) = split::<12>(bytes, "WAV header")?;
    if [*r, *i, *f, *f2] != *b"RIFF" || kind != b"WAVE" {
        return Err(wrong("WAV first byte", *r));
    }
    let mut found = None;
    for _ in 0..CHUNKS_MAX {
        let ([n0, n1, n2, n3, l0, l1, l2, l3], after) = split::<8>(rest, "WAV chunk")?;
        let name = [*n0, *n1, *n2, *n3];
        let len = u32::from_le_bytes([*l0, *l1, *l2, *l3]) as usize;
        let chunk = &after[..len.min(after.len())];
        match (&name, found) {
            (b"fmt ", _) => found = Some(format(chunk)?),
            (b"data", Some(format)) => {
                // A frame that was cut off is left out.
                let frame = usize::from(format.channels) * 2;
                let whole = &chunk[..chunk.len() / frame * frame];
                let (pairs, _) = whole.as_chunks::<2>();
                return Ok((format, pairs.iter().map(|pair| i16::from_le_bytes(*pair)).collect()));
            }
            (b"data", None) => return Err(wrong("WAV without a format, its samples at", 0u8)),
            _ => {}
        }
        let next = len.saturating_add(len % 2);
        rest = after.get(next..).ok_or(Error::Truncated {
            what: "WAV chunk",
            need: next,
            have: after.len(),
        })?;
    }
    Err(wrong("WAV chunks before its samples", CHUNKS_MAX as u64))
}

/// The header of a file with this many bytes of samples.
pub fn header(format: Format, bytes: u32) -> [u8; HEADER_LEN] {
    let frame = format.channels * BITS / 8;
    let mut out = [0; HEADER_LEN];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"RIFF");
    put(4, &bytes.saturating_add(HEADER_LEN as u32 - 8).to_le_bytes());
    put(8, b"WAVEfmt ");
    put(16, &16u32.to_le_bytes());
    put(20, &PCM.to_le_bytes());
    put(22, &format.channels.to_le_bytes());
    put(24, &format.rate.to_le_bytes());
    put(28, &format.rate.saturating_mul(frame.into()).to_le_bytes());
    put(32, &frame.to_le_bytes());
    put(34, &BITS.to_le_bytes());
    put(36, b"data");
    put(40, &bytes.to_le_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEREO: Format = Format { rate: 44_100, channels: 2 };

    #[test]
    fn other_chunks_are_skipped_and_lengths_from_pipes_mean_the_end() {
        let whole = header(STEREO, u32::MAX);
        // A comment of an odd length, with its padding.
        let remark = b"LIST\x03\0\0\0abc\0";
        let bytes = [&whole[..36], remark, &whole[36..], &[1, 0, 2, 0, 3, 0]].concat();
        assert_eq!(parse(&bytes), Ok((STEREO, vec![1, 2])), "the last frame is cut off");
        let none = [&whole[..12], &whole[36..]].concat();
        assert!(parse(&none).is_err(), "samples before their format");
        assert!(parse(&bytes[..40]).is_err() && parse(&whole[..20]).is_err());
        let many = [&whole[..12], &b"LIST\0\0\0\0".repeat(CHUNKS_MAX)].concat();
        assert!(parse(&many).is_err());
    }

    #[test]
    fn only_samples_of_16_bits_are_taken() {
        let good = header(STEREO, 0);
        let with = |at: usize, value: u16| {
            let mut bytes = good;
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            parse(&bytes).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(with(20, 3).contains("only PCM"), "floats");
        assert!(with(34, 24).contains("only 16"));
        assert!(with(22, 3).contains("channels") && with(22, 0).contains("channels"));
        assert!(with(32, 2).contains("bytes of a frame"));
        assert!(with(26, 0xffff).contains("rate"));
        // The extensible form says it further on.
        let mut long = good.to_vec();
        long[16..20].copy_from_slice(&40u32.to_le_bytes());
        long[20..22].copy_from_slice(&EXTENSIBLE.to_le_bytes());
        long.splice(36..36, [22, 0, 16, 0, 3, 0, 0, 0, 1, 0].into_iter().chain([0; 14]));
        assert_eq!(parse(&long), Ok((STEREO, Vec::new())));
    }
}
