//! The layout of cells and reassembled PDUs in capture records, as Wireshark reads it.
//!
//! | link type                  | what comes before the data                                     |
//! |----------------------------|----------------------------------------------------------------|
//! | [`LinkType::SUNATM`]       | kind 1, VPI 1, VCI 2; then an AAL5 payload without trailer      |
//! | [`LinkType::ERF`], cells   | time 8, type 1, flags 1, lengths 4, losses 2; ATM header 4, payload 48 |
//! | [`LinkType::ERF`], AAL5    | the same; ATM header 4, then the whole PDU with its trailer     |
//! | [`LinkType::VUNET`]        | nothing: 56 bytes per cell                                      |
//!
//! Source: draft-ietf-opsawg-pcaplinktype; Endace ERF types 3 (ATM) and 4 (AAL5).
//!
//! [`LinkType::SUNATM`]: crate::capture::LinkType::SUNATM
//! [`LinkType::ERF`]: crate::capture::LinkType::ERF
//! [`LinkType::VUNET`]: crate::capture::LinkType::VUNET

use super::{Cell, Circuit, HEADER_LEN};
use crate::error::{Error, fit, split};
use lastmeter_base::Time;

/// Bytes before the payload in a SunATM record.
pub const SUNATM_LEN: usize = 4;
/// Set if the packet was sent rather than received.
const SUNATM_SENT: u8 = 0x80;
/// Bytes before the data in an ERF record.
pub const ERF_LEN: usize = 16;
const ERF_ATM: u8 = 3;
const ERF_AAL5: u8 = 4;
/// Variable length.
const ERF_FLAGS: u8 = 4;

/// Contents of a SunATM packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Unspecified.
    Unknown,
    /// LAN emulation.
    Lane,
    /// RFC 2684 LLC.
    Llc,
    /// Interim local management.
    Ilmi,
    /// Signalling.
    Signalling,
    /// Another number.
    Other(u8),
}

impl Traffic {
    fn from_bits(bits: u8) -> Traffic {
        match bits & 0x0f {
            0 => Traffic::Unknown,
            1 => Traffic::Lane,
            2 => Traffic::Llc,
            5 => Traffic::Ilmi,
            6 => Traffic::Signalling,
            other => Traffic::Other(other),
        }
    }
    fn bits(self) -> u8 {
        match self {
            Traffic::Unknown => 0,
            Traffic::Lane => 1,
            Traffic::Llc => 2,
            Traffic::Ilmi => 5,
            Traffic::Signalling => 6,
            Traffic::Other(other) => other & 0x0f,
        }
    }
}

/// The four bytes before an AAL5 payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sunatm {
    /// Whether the capturing host sent it.
    pub sent: bool,
    /// What it holds.
    pub traffic: Traffic,
    /// Its circuit, at a user interface.
    pub circuit: Circuit,
}

impl Sunatm {
    /// The header and the payload after it.
    ///
    /// # Errors
    /// If there are fewer than four bytes.
    pub fn parse(record: &[u8]) -> Result<(Sunatm, &[u8]), Error> {
        let (&[kind, vpi, v0, v1], payload) = split::<SUNATM_LEN>(record, "SunATM record")?;
        let circuit = Circuit { vpi: vpi.into(), vci: u16::from_be_bytes([v0, v1]) };
        let sent = kind & SUNATM_SENT != 0;
        Ok((Sunatm { sent, traffic: Traffic::from_bits(kind), circuit }, payload))
    }
    /// # Errors
    /// If the path has more than 8 bits.
    pub fn emit(&self) -> Result<[u8; SUNATM_LEN], Error> {
        let vpi: u8 = fit(self.circuit.vpi.into(), 0xff, "SunATM VPI")?;
        let [v0, v1] = self.circuit.vci.to_be_bytes();
        let sent = if self.sent { SUNATM_SENT } else { 0 };
        Ok([sent | self.traffic.bits(), vpi, v0, v1])
    }
}

/// A record with one cell, without its header error control.
pub fn emit_erf_cell(at: Time, cell: &Cell) -> [u8; ERF_LEN + HEADER_LEN + 48] {
    let mut record = [0; ERF_LEN + HEADER_LEN + 48];
    let len = record.len() as u16;
    record[..ERF_LEN].copy_from_slice(&erf_header(at, ERF_ATM, len));
    record[ERF_LEN..ERF_LEN + HEADER_LEN].copy_from_slice(&cell.header_bytes());
    record[ERF_LEN + HEADER_LEN..].copy_from_slice(cell.payload());
    record
}

/// A record with a complete AAL5 PDU, trailer included, after the header of its last cell.
///
/// # Errors
/// If it does not fit into the format's 16-bit length.
pub fn emit_erf_aal5(at: Time, header: [u8; HEADER_LEN], pdu: &[u8]) -> Result<Vec<u8>, Error> {
    let len: u16 = fit(ERF_LEN + HEADER_LEN + pdu.len(), 0xffff, "ERF record length")?;
    Ok([&erf_header(at, ERF_AAL5, len)[..], &header, pdu].concat())
}

fn erf_header(at: Time, kind: u8, len: u16) -> [u8; ERF_LEN] {
    // Seconds in the upper half, binary fractions of a second in the lower half, least significant byte first; all
    // other fields have the most significant byte first.
    let stamp = (u128::from(at.as_ps()) << 32) / 1_000_000_000_000;
    let mut header = [0; ERF_LEN];
    header[..8].copy_from_slice(&(stamp as u64).to_le_bytes());
    header[8] = kind;
    header[9] = ERF_FLAGS;
    header[10..12].copy_from_slice(&len.to_be_bytes());
    header[14..].copy_from_slice(&(len - ERF_LEN as u16).to_be_bytes());
    header
}
