//! The Vidboard's adaptation layer: AAL5 with a simple checksum instead of the CRC, and the header of the group of
//! scan lines (t-frame) that it carries.
//!
//! ```text
//! frame 4 | first line 2 | lines 2 | width 2 | depth 1 | zero 1 | timestamp 4 | pixels
//! ```
//!
//! Source: the Vidboard in the Aurora report, §3.5.2, which says only that a checksum replaces the CRC. The
//! checksum is our choice: the one's complement sum of 32-bit words, most significant byte first, complemented at
//! the end as in IP; the PDU is a whole number of words. The header's layout is our choice, too.
//!
//! ```
//! use lastmeter_wire::aal::vidboard;
//! let pdu = vidboard::emit(&[9; 640], 0)?;
//! assert_eq!(pdu.len(), 14 * 48, "a line of 640 bytes takes 14 cells");
//! assert_eq!(vidboard::parse(&pdu)?.payload, [9; 640]);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use super::aal5::{CHECK_LEN, Fault, Pdu, tail, take_apart};
use crate::atm::PAYLOAD_LEN;
use crate::error::{Error, split};

/// Bytes before the pixels.
pub const FRAME_HEADER_LEN: usize = 16;

/// The one's complement sum of 32-bit words; up to three bytes at the end count as if padded with zeros.
pub fn sum32(data: &[u8]) -> u32 {
    let (words, rest) = data.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|&word| u64::from(u32::from_be_bytes(word)));
    // The upper half would overflow only after 2^32 words.
    let sum: u64 = words.sum();
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    ((folded & 0xffff_ffff) + (folded >> 32)) as u32
}

/// Whether a PDU ends with the complement of the sum of the preceding words.
pub(super) fn is_intact(pdu: &[u8]) -> bool {
    sum32(pdu) == u32::MAX
}

/// The packet in a complete PDU.
///
/// # Errors
/// If the checksum or the length is wrong, or the length is zero.
pub fn parse(pdu: &[u8]) -> Result<Pdu<'_>, Fault> {
    if is_intact(pdu) { take_apart(pdu) } else { Err(Fault::Check) }
}

/// A complete PDU, for [`super::aal5::Segmenter::segment_pdu`].
///
/// # Errors
/// If the payload is empty or longer than 65,535 bytes.
pub fn emit(payload: &[u8], user: u8) -> Result<Vec<u8>, Error> {
    let (tail, len) = tail(payload, user)?;
    let (whole, _) = payload.as_chunks::<PAYLOAD_LEN>();
    let mut pdu = [whole.as_flattened(), &tail[..len]].concat();
    let check = !sum32(&pdu);
    let at = pdu.len() - CHECK_LEN;
    pdu[at..].copy_from_slice(&check.to_be_bytes());
    Ok(pdu)
}

/// The lines and the frame of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Frame number.
    pub frame: u32,
    /// First scan line of this packet.
    pub line: u16,
    /// Number of scan lines in this packet.
    pub lines: u16,
    /// Pixels per line.
    pub width: u16,
    /// Bits per pixel.
    pub depth: u8,
    /// When the frame was captured, in microseconds of the board's clock.
    pub timestamp: u32,
}

impl FrameHeader {
    /// The header and the pixels after it.
    ///
    /// # Errors
    /// If there are fewer than 16 bytes or the reserved byte is not zero.
    pub fn parse(payload: &[u8]) -> Result<(FrameHeader, &[u8]), Error> {
        let (&bytes, pixels) = split::<FRAME_HEADER_LEN>(payload, "Vidboard frame header")?;
        let [f0, f1, f2, f3, l0, l1, n0, n1, w0, w1, depth, zero, t0, t1, t2, t3] = bytes;
        if zero != 0 {
            return Err(Error::Invalid { what: "Vidboard reserved byte", found: zero.into() });
        }
        let header = FrameHeader {
            frame: u32::from_be_bytes([f0, f1, f2, f3]),
            line: u16::from_be_bytes([l0, l1]),
            lines: u16::from_be_bytes([n0, n1]),
            width: u16::from_be_bytes([w0, w1]),
            depth,
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
        };
        Ok((header, pixels))
    }
    /// The header's bytes.
    pub fn emit(&self) -> [u8; FRAME_HEADER_LEN] {
        let mut bytes = [0; FRAME_HEADER_LEN];
        bytes[..4].copy_from_slice(&self.frame.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.line.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.lines.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.width.to_be_bytes());
        bytes[10] = self.depth;
        bytes[12..].copy_from_slice(&self.timestamp.to_be_bytes());
        bytes
    }
}
