//! AAL5: a packet, padding and a trailer, split into cells of which the last is marked.
//!
//! ```text
//! payload 1..65535 | pad 0..47 | user-to-user 1 | indicator 1 | length 2 | CRC-32 4
//! <---------------------------- a multiple of 48 ------------------------------->
//! ```
//!
//! A length of zero aborts: I.363.5 sends it in place of an abandoned PDU, so no user packet is empty.
//! The CRC is computed over the whole PDU at once; [`super::reassembly`] receives.
//!
//! Source: ITU-T I.363.5 (08/96) §9.2; RFC 2684 for the contents.
//!
//! ```
//! use lastmeter_wire::aal::aal5;
//! let pdu = aal5::emit(&[0; 40], 0)?;
//! assert_eq!(pdu[44..], [0x86, 0x4d, 0x7f, 0x99]);
//! assert_eq!(aal5::parse(&pdu)?.payload, [0; 40]);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```
//!
//! Rows: A-06.

use crate::atm::{CELL_LEN, Cell, Header, Interface, PAYLOAD_LEN, PayloadType, hec};
use crate::crc::{CRC32_RESIDUE, Crc32, crc32};
use crate::error::{Error, fit};

/// The longest payload, in bytes.
pub const PAYLOAD_LEN_MAX: usize = 65_535;
/// User-to-user byte, common part indicator, length, CRC.
pub const TRAILER_LEN: usize = 8;
/// The longest PDU: 1366 cells.
pub const PDU_LEN_MAX: usize = pdu_len(PAYLOAD_LEN_MAX);
/// The default MTU of IP over AAL5 (RFC 2225 §7).
pub const MTU_DEFAULT: usize = 9180;
/// Bytes of the CRC at the end of the trailer.
pub(super) const CHECK_LEN: usize = 4;
/// Most bytes that do not come from the payload: the trailer before the CRC, and the padding.
const TAIL_LEN_MAX: usize = 2 * PAYLOAD_LEN;

/// Bytes of the PDU that carries `payload_len` bytes.
pub const fn pdu_len(payload_len: usize) -> usize {
    (payload_len + TRAILER_LEN).next_multiple_of(PAYLOAD_LEN)
}
/// Cells of the PDU that carries `payload_len` bytes.
pub const fn cells(payload_len: usize) -> usize {
    pdu_len(payload_len) / PAYLOAD_LEN
}

/// The fields of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// The packet.
    pub payload: &'a [u8],
    /// User-to-user byte: carried unchanged.
    pub user: u8,
    /// Common part indicator: zero.
    pub indicator: u8,
}

/// What is wrong with a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The CRC does not match.
    Check,
    /// The length does not agree with the number of cells.
    Length,
    /// The length is zero: the sender aborted.
    Abort,
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        match fault {
            Fault::Check => Error::Corrupt { what: "AAL5 PDU" },
            Fault::Length => {
                Error::Invalid { what: "AAL5 length for this number of cells", found: 0 }
            }
            Fault::Abort => Error::Invalid { what: "AAL5 length, which aborts", found: 0 },
        }
    }
}

/// The packet in a complete PDU.
///
/// # Errors
/// If the CRC or the length is wrong, or the sender aborted.
pub fn parse(pdu: &[u8]) -> Result<Pdu<'_>, Fault> {
    if crc32(pdu) != CRC32_RESIDUE {
        return Err(Fault::Check);
    }
    take_apart(pdu)
}

/// The packet in a PDU whose CRC is checked elsewhere.
pub(super) fn take_apart(pdu: &[u8]) -> Result<Pdu<'_>, Fault> {
    let Some((body, &[user, indicator, l0, l1, ..])) = pdu.split_last_chunk::<TRAILER_LEN>() else {
        return Err(Fault::Length);
    };
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    if len == 0 {
        return Err(Fault::Abort);
    }
    if pdu_len(len) != pdu.len() {
        return Err(Fault::Length);
    }
    Ok(Pdu { payload: &body[..len], user, indicator })
}

/// What follows the whole cells of a payload: its remainder, padding, and the trailer without its CRC. Returns the
/// bytes and how many of them are used.
pub(super) fn tail(payload: &[u8], user: u8) -> Result<([u8; TAIL_LEN_MAX], usize), Error> {
    let length: u16 = fit(payload.len(), PAYLOAD_LEN_MAX as u64, "AAL5 payload length")?;
    if payload.is_empty() {
        return Err(Error::Invalid { what: "AAL5 payload length, which would abort", found: 0 });
    }
    let (_, remainder) = payload.as_chunks::<PAYLOAD_LEN>();
    let mut tail = [0; TAIL_LEN_MAX];
    tail[..remainder.len()].copy_from_slice(remainder);
    let len = pdu_len(remainder.len());
    let [l0, l1] = length.to_be_bytes();
    tail[len - TRAILER_LEN..len - CHECK_LEN].copy_from_slice(&[user, 0, l0, l1]);
    Ok((tail, len))
}

/// A complete PDU with the user-to-user byte `user`.
///
/// # Errors
/// If the payload is empty or longer than 65,535 bytes.
pub fn emit(payload: &[u8], user: u8) -> Result<Vec<u8>, Error> {
    let (mut tail, len) = tail(payload, user)?;
    let (whole, _) = payload.as_chunks::<PAYLOAD_LEN>();
    let check = check(whole.as_flattened(), &tail[..len - CHECK_LEN]);
    tail[len - CHECK_LEN..len].copy_from_slice(&check.to_be_bytes());
    Ok([whole.as_flattened(), &tail[..len]].concat())
}

/// CRC of a PDU in two pieces.
fn check(whole: &[u8], tail: &[u8]) -> u32 {
    let mut crc = Crc32::default();
    if !whole.is_empty() {
        crc.update(whole);
    }
    crc.update(tail);
    crc.value()
}

/// Segments packets into the cells of one circuit.
///
/// ```
/// use lastmeter_wire::aal::aal5::Segmenter;
/// use lastmeter_wire::atm::{Circuit, Header, Interface};
/// let header = Header::data(Circuit { vpi: 0, vci: 100 });
/// let segmenter = Segmenter::new(&header, Interface::Uni)?;
/// let mut cells = Vec::new();
/// segmenter.segment(&[0; 1500], 0, &mut cells)?;
/// assert_eq!(cells.len(), 32);
/// # Ok::<(), lastmeter_wire::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Segmenter {
    /// Header and error control of every cell but the last.
    middle: [u8; 5],
    /// The same for the last cell.
    last: [u8; 5],
}

impl Segmenter {
    /// A segmenter for cells with this header; its payload type is replaced, its congestion bit is kept.
    ///
    /// # Errors
    /// If the header does not fit the interface.
    pub fn new(header: &Header, at: Interface) -> Result<Segmenter, Error> {
        let congested = matches!(header.payload_type, PayloadType::User { congested: true, .. });
        let with = |last| -> Result<[u8; 5], Error> {
            let payload_type = PayloadType::User { congested, last };
            let bytes = Header { payload_type, ..*header }.emit(at)?;
            let [a, b, c, d] = bytes;
            Ok([a, b, c, d, hec::hec(bytes)])
        };
        Ok(Segmenter { middle: with(false)?, last: with(true)? })
    }

    /// Appends the cells of one packet to `cells`.
    ///
    /// # Errors
    /// If the payload is empty or longer than 65,535 bytes; `cells` is then unchanged.
    pub fn segment(&self, payload: &[u8], user: u8, cells: &mut Vec<Cell>) -> Result<(), Error> {
        let _ = tail(payload, user)?;
        let start = cells.len();
        // Filled and then overwritten in place: building each cell separately and moving it costs more.
        cells.resize(start + self::cells(payload.len()), Cell([0; CELL_LEN]));
        let written = self.segment_into(payload, user, &mut cells[start..]);
        if written.is_err() {
            cells.truncate(start);
        }
        written.map(|_| ())
    }

    /// Writes the cells of one packet over the first of `cells`, as into an adapter's ring, and returns how many
    /// there are.
    ///
    /// # Errors
    /// If the payload is empty or longer than 65,535 bytes, or there are too few `cells`; they are then unchanged.
    pub fn segment_into(
        &self,
        payload: &[u8],
        user: u8,
        cells: &mut [Cell],
    ) -> Result<usize, Error> {
        let (mut tail, len) = tail(payload, user)?;
        let count = self::cells(payload.len());
        let have = cells.len();
        let Some(cells) = cells.get_mut(..count) else {
            return Err(Error::Truncated {
                what: "room for an AAL5 PDU's cells",
                need: count,
                have,
            });
        };
        let (whole, _) = payload.as_chunks::<PAYLOAD_LEN>();
        let (front, back) = cells.split_at_mut(whole.len());
        // Before the CRC: copying overlaps with fetching the payload, and the CRC then finds it in a near cache.
        self.fill(front, whole);
        let check = check(whole.as_flattened(), &tail[..len - CHECK_LEN]);
        tail[len - CHECK_LEN..len].copy_from_slice(&check.to_be_bytes());
        self.fill(back, tail[..len].as_chunks().0);
        self.mark_last(cells);
        Ok(count)
    }

    /// Appends a complete PDU. Bytes after its last multiple of 48 are not sent.
    pub fn segment_pdu(&self, pdu: &[u8], cells: &mut Vec<Cell>) {
        let (chunks, _) = pdu.as_chunks();
        let start = cells.len();
        cells.resize(start + chunks.len(), Cell([0; CELL_LEN]));
        self.fill(&mut cells[start..], chunks);
        self.mark_last(&mut cells[start..]);
    }

    fn mark_last(&self, cells: &mut [Cell]) {
        if let Some(last) = cells.last_mut() {
            last.0[..self.last.len()].copy_from_slice(&self.last);
        }
    }

    #[inline]
    fn fill(&self, cells: &mut [Cell], chunks: &[[u8; PAYLOAD_LEN]]) {
        for (cell, chunk) in cells.iter_mut().zip(chunks) {
            let (header, payload) = cell.0.split_at_mut(self.middle.len());
            header.copy_from_slice(&self.middle);
            payload.copy_from_slice(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_the_test_vectors_of_the_standard() {
        let counting: Vec<u8> = (1..=40).collect();
        let cases: [(&[u8], u32); 3] =
            [(&[0; 40], 0x864d_7f99), (&[0xff; 40], 0xc55e_457a), (&counting, 0xbf67_1ed0)];
        for (payload, check) in cases {
            assert_eq!(emit(payload, 0).unwrap()[44..], check.to_be_bytes());
        }
    }

    #[test]
    fn counts_the_cells_of_a_packet() {
        let cases = [(40, 1), (41, 2), (88, 2), (89, 3), (1500, 32), (9180, 192), (65_535, 1366)];
        for (len, count) in cases {
            assert_eq!(cells(len), count, "{len} bytes");
        }
    }

    #[test]
    fn refuses_payloads_that_cannot_be_sent() {
        assert!(emit(&[], 0).is_err());
        assert!(emit(&[0; PAYLOAD_LEN_MAX + 1], 0).is_err());
        assert_eq!(emit(&[0; PAYLOAD_LEN_MAX], 0).unwrap().len(), PDU_LEN_MAX);
    }

    #[test]
    fn distinguishes_an_abort_from_a_wrong_length() {
        let mut pdu = emit(&[1; 100], 0).unwrap();
        let at = pdu.len();
        let mut set_length = |length: u16| {
            pdu[at - 6..at - 4].copy_from_slice(&length.to_be_bytes());
            let check = crc32(&pdu[..at - 4]);
            pdu[at - 4..].copy_from_slice(&check.to_be_bytes());
            parse(&pdu).map(|pdu| pdu.payload.len())
        };
        assert_eq!(set_length(0), Err(Fault::Abort));
        assert_eq!(set_length(88), Err(Fault::Length), "88 bytes need one cell fewer");
        assert_eq!(set_length(89), Ok(89));
        assert_eq!(set_length(136), Ok(136));
        assert_eq!(set_length(137), Err(Fault::Length));
    }

    proptest! {
        #[test]
        fn parses_what_it_emits(
            payload in proptest::collection::vec(any::<u8>(), 1..3000), user: u8,
        ) {
            let pdu = emit(&payload, user).unwrap();
            prop_assert_eq!(parse(&pdu).unwrap(), Pdu { payload: &payload, user, indicator: 0 });
            let header = Header::data(crate::atm::Circuit { vpi: 1, vci: 2 });
            let mut cells = Vec::new();
            let segmenter = Segmenter::new(&header, Interface::Uni).unwrap();
            segmenter.segment(&payload, user, &mut cells).unwrap();
            let sent: Vec<u8> = cells.iter().flat_map(|cell| *cell.payload()).collect();
            prop_assert_eq!(sent, pdu);
            prop_assert!(cells.iter().all(Cell::is_intact));
        }
    }
}
