//! Jetstream: MAC frames that carry a complete AAL5 PDU, or any other, after one ATM cell header.
//!
//! ```text
//! AAL5 frame     Jetstream header 3 | B-ISDN header 4, error control 1 | AAL5 PDU
//! generic frame  Jetstream header 3 | B-ISDN header 4, error control 1 | any PDU up to AAL5's longest
//!
//! kind 4 | CRC present 1 | monitor 1 | address type 2 | DST_RID 4 | SRC_RID 4 | reserved 8
//! ```
//!
//! Eight bytes precede the PDU, so it is aligned to 32 bits. An ATM cell of 53 bytes is a B-ISDN header and a PDU
//! of 48 bytes, so it is a valid frame once a Jetstream header is prepended; this is all that the ATM interface
//! unit does in one direction ([`from_atm`]). In the other direction it splits the PDU into cells with the given
//! header ([`to_atm`]); the "user" bit, always set in a frame, is then set only in the last cell.
//!
//! Source: HPL-93-37 §3.2, figures 3 to 5. The drawings are lost: the order and position of the header's bits, the
//! kinds, and the position of the ring station in a circuit's VCI are our choice.
//!
//! ```
//! use lastmeter_wire::aal::aal5;
//! use lastmeter_wire::atm::{Circuit, Header, Interface};
//! use lastmeter_wire::jetstream::{self, Frame};
//! let bisdn = Header::data(Circuit { vpi: 0, vci: jetstream::vci(3, 9)? });
//! let bytes = jetstream::emit_aal5(3, &bisdn, &aal5::emit(b"one PDU, never in pieces", 0)?)?;
//! let frame = Frame::parse(&bytes)?;
//! assert_eq!(frame.header.src, 3);
//! assert_eq!(aal5::parse(frame.pdu)?.payload, b"one PDU, never in pieces");
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```
//!
//! Rows: J-24, J-25, J-26, J-27, J-28, J-29, J-31, J-32, J-36.

use crate::aal::aal5::PDU_LEN_MAX;
use crate::atm::{Cell, HEADER_LEN, Header as AtmHeader, Interface, PAYLOAD_LEN, PayloadType, hec};
use crate::crc::crc32;
use crate::error::{Error, fit, split};

/// Bytes of the Jetstream header.
pub const JETSTREAM_HEADER_LEN: usize = 3;
/// Bytes of the B-ISDN header with its error control.
pub const BISDN_HEADER_LEN: usize = HEADER_LEN + 1;
/// Bytes before the PDU.
pub const OVERHEAD: usize = JETSTREAM_HEADER_LEN + BISDN_HEADER_LEN;
/// The longest frame.
pub const FRAME_LEN_MAX: usize = OVERHEAD + PDU_LEN_MAX;
/// The largest ring identifier; 0 is the master's.
pub const RID_MAX: u8 = 15;
/// Bits of a VCI that a station looks up: 4 of a ring identifier and 11 that its owner assigns.
pub const VCI_BITS: u32 = 15;
const VCI_LOCAL_BITS: u32 = VCI_BITS - 4;

/// The kind of a frame (our choice of numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A PDU.
    Data,
    /// Assigns ring identifiers to stations; a byte that counts hops follows the header.
    RingUp,
    /// The token; nothing follows the header.
    Token,
}

impl Kind {
    fn bits(self) -> u8 {
        match self {
            Kind::Data => 0,
            Kind::RingUp => 1,
            Kind::Token => 2,
        }
    }
}

/// How a station determines whether a frame is addressed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressType {
    /// By the destination's ring identifier: for management, while no circuit is open.
    Rid,
    /// By the circuit in the B-ISDN header: for data.
    Vc,
}

/// The three bytes of the Jetstream header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The kind of frame.
    pub kind: Kind,
    /// Whether the frame ends with an AAL5 CRC.
    pub crc_present: bool,
    /// Whether it has passed the monitor, which strips it the next time.
    pub monitor: bool,
    /// Which address is used.
    pub address_type: AddressType,
    /// Destination on the ring.
    pub dst: u8,
    /// Source on the ring, which strips the frame.
    pub src: u8,
}

impl Header {
    /// The header and what follows it.
    ///
    /// # Errors
    /// If the bytes end early, or a kind, an address type or the reserved byte is unknown.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), Error> {
        let (&[flags, rids, reserved], rest) =
            split::<JETSTREAM_HEADER_LEN>(bytes, "Jetstream header")?;
        let invalid = |what, found: u8| Err(Error::Invalid { what, found: found.into() });
        let kind = match flags >> 4 {
            0 => Kind::Data,
            1 => Kind::RingUp,
            2 => Kind::Token,
            kind => return invalid("Jetstream kind", kind),
        };
        let address_type = match flags & 3 {
            0 => AddressType::Rid,
            1 => AddressType::Vc,
            kind => return invalid("Jetstream address type", kind),
        };
        if reserved != 0 {
            return invalid("Jetstream reserved byte", reserved);
        }
        let (crc_present, monitor) = (flags & 8 != 0, flags & 4 != 0);
        let (dst, src) = (rids >> 4, rids & 0xf);
        Ok((Header { kind, crc_present, monitor, address_type, dst, src }, rest))
    }

    /// # Errors
    /// If a ring identifier has more than four bits.
    pub fn emit(&self) -> Result<[u8; JETSTREAM_HEADER_LEN], Error> {
        let dst: u8 = fit(self.dst.into(), RID_MAX.into(), "Jetstream DST_RID")?;
        let src: u8 = fit(self.src.into(), RID_MAX.into(), "Jetstream SRC_RID")?;
        let address_type = match self.address_type {
            AddressType::Rid => 0,
            AddressType::Vc => 1,
        };
        let flags = u8::from(self.crc_present) << 3 | u8::from(self.monitor) << 2 | address_type;
        Ok([self.kind.bits() << 4 | flags, dst << 4 | src, 0])
    }

    /// What a station does with a passing frame. `circuit_is_mine` looks up the lower 15 bits of the VCI. `rid` is
    /// the station's own identifier, or `None` before the ring is up, when all frames are read.
    pub fn disposition(&self, rid: Option<u8>, circuit_is_mine: bool) -> Disposition {
        let Some(rid) = rid else { return Disposition { strip: false, read: true } };
        let read = match self.address_type {
            AddressType::Rid => self.dst == rid,
            AddressType::Vc => circuit_is_mine,
        };
        Disposition { strip: self.src == rid, read }
    }
    /// The monitor's action: it marks a frame, or strips one that is already marked.
    pub fn pass_monitor(&mut self) -> bool {
        std::mem::replace(&mut self.monitor, true)
    }
}

/// What a station does with a passing frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// Remove it from the ring: it has returned to its source.
    pub strip: bool,
    /// Copy it to the host.
    pub read: bool,
}

/// A data frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Jetstream's header.
    pub header: Header,
    /// The cell header's four bytes.
    pub bisdn: [u8; HEADER_LEN],
    /// The cell header's error control, as received.
    pub check: u8,
    /// The PDU, of AAL5 or another layer.
    pub pdu: &'a [u8],
}

impl<'a> Frame<'a> {
    /// # Errors
    /// If there are too few or too many bytes, or they are not a data frame.
    pub fn parse(bytes: &'a [u8]) -> Result<Frame<'a>, Error> {
        let (header, rest) = Header::parse(bytes)?;
        if header.kind != Kind::Data {
            let found = header.kind.bits().into();
            return Err(Error::Invalid { what: "Jetstream data frame's kind", found });
        }
        let (&[a, b, c, d, check], pdu) = split::<BISDN_HEADER_LEN>(rest, "B-ISDN header")?;
        let _: u32 = fit(pdu.len(), PDU_LEN_MAX as u64, "Jetstream PDU length")?;
        Ok(Frame { header, bisdn: [a, b, c, d], check, pdu })
    }
    /// The frame's bytes.
    ///
    /// # Errors
    /// If a ring identifier or the PDU is too large.
    pub fn emit(&self) -> Result<Vec<u8>, Error> {
        let _: u32 = fit(self.pdu.len(), PDU_LEN_MAX as u64, "Jetstream PDU length")?;
        Ok([&self.header.emit()?[..], &self.bisdn, &[self.check], self.pdu].concat())
    }
    /// The CRC over the whole PDU, which the receiving card appends to every PDU, AAL5 or not. Over an intact AAL5
    /// PDU it is [`crate::crc::CRC32_RESIDUE`].
    pub fn appended_crc(&self) -> u32 {
        crc32(self.pdu)
    }
}

/// A data frame on circuit `bisdn` from station `src`. The card writes the CRC into the last four bytes of its
/// AAL5 PDU, as for every frame with the CRC-present bit. The "user" bit is set: a PDU is one "cell".
///
/// # Errors
/// If the PDU is not a whole number of cells, or something does not fit into its field.
pub fn emit_aal5(src: u8, bisdn: &AtmHeader, pdu: &[u8]) -> Result<Vec<u8>, Error> {
    let Some((body, _crc)) = pdu.split_last_chunk::<4>() else {
        return Err(Error::Truncated { what: "AAL5 PDU", need: PAYLOAD_LEN, have: pdu.len() });
    };
    if !pdu.len().is_multiple_of(PAYLOAD_LEN) {
        return Err(Error::Invalid { what: "AAL5 PDU's length", found: pdu.len() as u64 });
    }
    let congested = matches!(bisdn.payload_type, PayloadType::User { congested: true, .. });
    let payload_type = PayloadType::User { congested, last: true };
    let bisdn = AtmHeader { payload_type, ..*bisdn }.emit(Interface::Uni)?;
    let header = data_header(src, true);
    let mut bytes = Frame { header, bisdn, check: hec::hec(bisdn), pdu }.emit()?;
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&crc32(body).to_be_bytes());
    Ok(bytes)
}

/// The constant header of data frames from one station.
pub fn data_header(src: u8, crc_present: bool) -> Header {
    let (kind, address_type) = (Kind::Data, AddressType::Vc);
    Header { kind, crc_present, monitor: false, address_type, dst: 0, src }
}

/// From an ATM network onto the ring: prepends a constant header to the cell.
///
/// # Errors
/// If the ring identifier has more than four bits.
pub fn from_atm(src: u8, cell: &Cell) -> Result<Vec<u8>, Error> {
    Ok([&data_header(src, false).emit()?[..], &cell.0].concat())
}

/// From the ring to an ATM network: the PDU in cells, each with the frame's B-ISDN header. Of several cells only
/// the last keeps the "user" bit; a single cell is passed on unchanged.
///
/// # Errors
/// If the PDU is not a whole number of cells, or is of a layer other than AAL5 and longer than one cell, so that
/// it would need that layer's own segmentation.
pub fn to_atm(frame: &Frame<'_>, cells: &mut Vec<Cell>) -> Result<(), Error> {
    let (chunks, rest) = frame.pdu.as_chunks::<PAYLOAD_LEN>();
    if !rest.is_empty() || chunks.is_empty() {
        let found = frame.pdu.len() as u64;
        return Err(Error::Invalid { what: "Jetstream PDU's length for cells", found });
    }
    if chunks.len() > 1 && !frame.header.crc_present {
        let found = chunks.len() as u64;
        return Err(Error::Invalid { what: "cells of a PDU that is not AAL5", found });
    }
    // The "user" bit: the lowest of the payload type.
    const USER_BIT: u8 = 0x02;
    let [a, b, c, d] = frame.bisdn;
    let middle = [a, b, c, d & !USER_BIT];
    let last = chunks.len() - 1;
    cells.extend(chunks.iter().enumerate().map(|(at, chunk)| {
        Cell::with_header(if at == last { frame.bisdn } else { middle }, chunk)
    }));
    Ok(())
}

/// A VCI that no other station of the ring assigns: 1 bit zero, 4 of the owner's ring identifier, 11 of its own
/// choice (the positions are our choice).
///
/// # Errors
/// If either has more bits.
pub fn vci(rid: u8, local: u16) -> Result<u16, Error> {
    let rid: u16 = fit(rid.into(), RID_MAX.into(), "ring identifier")?;
    let local: u16 = fit(local.into(), (1 << VCI_LOCAL_BITS) - 1, "local part of a VCI")?;
    Ok(rid << VCI_LOCAL_BITS | local)
}

/// The station that assigned a VCI.
pub fn vci_owner(vci: u16) -> u8 {
    (vci >> VCI_LOCAL_BITS) as u8 & RID_MAX
}

/// The message that assigns ring identifiers to stations: three bytes of header and the count.
///
/// # Errors
/// If the count has more than four bits: too many stations.
pub fn emit_ring_up(hops: u8) -> Result<[u8; JETSTREAM_HEADER_LEN + 1], Error> {
    let hops = fit(hops.into(), RID_MAX.into(), "Jetstream Hop_Count")?;
    let (kind, address_type) = (Kind::RingUp, AddressType::Rid);
    let header = Header { kind, crc_present: false, monitor: false, address_type, dst: 0, src: 0 };
    let [a, b, c] = header.emit()?;
    Ok([a, b, c, hops])
}

/// The count in such a message.
///
/// # Errors
/// If it is another kind of frame, truncated, or counts too many stations.
pub fn parse_ring_up(bytes: &[u8]) -> Result<u8, Error> {
    let (header, rest) = Header::parse(bytes)?;
    let (&[hops], _) = split::<1>(rest, "RING_UP message")?;
    if header.kind != Kind::RingUp || hops > RID_MAX {
        return Err(Error::Invalid { what: "RING_UP message", found: hops.into() });
    }
    Ok(hops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aal::aal5;
    use crate::atm::Circuit;
    use crate::crc::CRC32_RESIDUE;
    use proptest::prelude::*;

    fn bisdn() -> AtmHeader {
        AtmHeader::data(Circuit { vpi: 0, vci: 77 })
    }

    #[test]
    fn an_atm_cell_is_a_valid_frame_and_converts_back_unchanged() {
        let cell = Cell::new(&bisdn(), Interface::Uni, &[9; 48]).unwrap();
        let bytes = from_atm(4, &cell).unwrap();
        assert_eq!(bytes.len(), 56);
        let frame = Frame::parse(&bytes).unwrap();
        let mut cells = Vec::new();
        to_atm(&frame, &mut cells).unwrap();
        assert_eq!(cells, [cell]);
    }

    #[test]
    fn a_frame_and_the_cells_of_its_pdu_are_equivalent() {
        let pdu = aal5::emit(&[5; 1500], 0).unwrap();
        let bytes = emit_aal5(1, &bisdn(), &pdu).unwrap();
        let frame = Frame::parse(&bytes).unwrap();
        assert_eq!(frame.pdu, pdu, "the card computes the CRC that the PDU already has");
        assert_eq!(frame.appended_crc(), CRC32_RESIDUE);
        let mut cells = Vec::new();
        to_atm(&frame, &mut cells).unwrap();
        let mut wanted = Vec::new();
        let segmenter = aal5::Segmenter::new(&bisdn(), Interface::Uni).unwrap();
        segmenter.segment(&[5; 1500], 0, &mut wanted).unwrap();
        assert_eq!(cells, wanted);
    }

    #[test]
    fn accepts_pdus_of_any_layer_but_cells_of_aal5_only() {
        let long = vec![1; PDU_LEN_MAX + 1];
        let mut frame =
            Frame { header: data_header(1, false), bisdn: [0; 4], check: 0, pdu: &long };
        assert!(frame.emit().is_err());
        frame.pdu = &long[..PDU_LEN_MAX];
        assert_eq!(frame.emit().unwrap().len(), FRAME_LEN_MAX);
        assert!(to_atm(&frame, &mut Vec::new()).is_err(), "not marked as AAL5");
    }

    #[test]
    fn a_frame_is_read_by_its_address_and_stripped_by_its_source() {
        let mut header = data_header(2, true);
        let is = |strip, read| Disposition { strip, read };
        assert_eq!(header.disposition(Some(2), false), is(true, false));
        assert_eq!(header.disposition(Some(3), true), is(false, true));
        header.address_type = AddressType::Rid;
        header.dst = 3;
        assert_eq!(header.disposition(Some(3), false), is(false, true));
        assert_eq!(header.disposition(None, false), is(false, true), "promiscuous at first");
        assert!(!header.pass_monitor());
        assert!(header.pass_monitor(), "the second time around");
    }

    #[test]
    fn stations_never_assign_the_same_circuit() {
        let mut seen = std::collections::BTreeSet::new();
        for rid in 0..=RID_MAX {
            for local in [0, 1, 2047] {
                let vci = vci(rid, local).unwrap();
                assert_eq!(vci_owner(vci), rid);
                assert!(vci < 1 << VCI_BITS && seen.insert(vci));
            }
        }
        assert!(vci(16, 0).is_err() && vci(0, 2048).is_err());
    }

    #[test]
    fn counts_hops_up_to_the_maximum_of_stations() {
        for hops in 0..=RID_MAX {
            assert_eq!(parse_ring_up(&emit_ring_up(hops).unwrap()), Ok(hops));
        }
        assert!(emit_ring_up(16).is_err());
        assert!(parse_ring_up(&[0x20, 0, 0, 1]).is_err(), "a token");
    }

    proptest! {
        #[test]
        fn every_header_that_parses_is_emitted_unchanged(bytes: [u8; 3]) {
            if let Ok((header, _)) = Header::parse(&bytes) {
                prop_assert_eq!(header.emit().unwrap(), bytes);
            }
        }
    }
}
