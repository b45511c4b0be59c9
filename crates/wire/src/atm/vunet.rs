//! VuNet's 56-byte cells, and their conversion by AVlink.
//!
//! ```text
//! word 0: ATM header 4 | word 1: error control 1, zero 2, zero 4 bits, port 4 bits
//!                      | words 2 to 13: payload 48
//! ```
//!
//! The cell has fourteen words of 32 bits, so a port of 32 or 64 bits moves whole words. No hop checks the error
//! control; the source may precompute it so that a link to an ATM network need not. A link looks up a cell's VCI,
//! replaces it, and leaves every other bit unchanged.
//!
//! The device that writes a cell into a switch selects the output port with four bits; a link takes them from its
//! table (§3.1.2).
//!
//! Source: the VuNet description in the Aurora report, §3.1. The order of the bytes within word 1
//! is our choice: error control first, so that the first five bytes are those of an ATM cell, and
//! the port last.
//!
//! ```
//! use lastmeter_wire::atm::{Cell, vunet::VunetCell};
//! let cell = VunetCell::from_atm(&Cell::IDLE);
//! assert_eq!(cell.0.len(), 56);
//! assert_eq!(cell.to_atm(), Cell::IDLE);
//! ```

use super::header::{HEADER_LEN, rewrite_vci, vci};
use super::hec::hec;
use super::{CELL_LEN, Cell, PAYLOAD_LEN};
use crate::error::{Error, split};

/// Bytes of a VuNet cell.
pub const VUNET_CELL_LEN: usize = 56;
/// Offset of its error control, if computed.
const CHECK_AT: usize = HEADER_LEN;
/// Offset of the port by which it leaves the switch.
const PORT_AT: usize = CHECK_AT + 3;
/// The largest port number: the tables of links have four bits for it.
pub const PORT_MAX: u8 = 0xf;
/// Offset of its payload.
const PAYLOAD_AT: usize = VUNET_CELL_LEN - PAYLOAD_LEN;

/// A cell as VuNet switches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VunetCell(pub [u8; VUNET_CELL_LEN]);

impl VunetCell {
    /// A cell with its error control computed in advance, or zero instead.
    pub fn new(
        header: [u8; HEADER_LEN],
        payload: &[u8; PAYLOAD_LEN],
        precompute: bool,
    ) -> VunetCell {
        let mut bytes = [0; VUNET_CELL_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&header);
        bytes[CHECK_AT] = if precompute { hec(header) } else { 0 };
        bytes[PAYLOAD_AT..].copy_from_slice(payload);
        VunetCell(bytes)
    }
    /// The first cell of `bytes` and the rest.
    ///
    /// # Errors
    /// If there are fewer than 56 bytes.
    pub fn parse(bytes: &[u8]) -> Result<(VunetCell, &[u8]), Error> {
        let (cell, rest) = split::<VUNET_CELL_LEN>(bytes, "VuNet cell")?;
        Ok((VunetCell(*cell), rest))
    }
    /// The header's four bytes.
    pub fn header_bytes(&self) -> [u8; HEADER_LEN] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }
    /// The payload.
    pub fn payload(&self) -> &[u8; PAYLOAD_LEN] {
        self.0[PAYLOAD_AT..].first_chunk().expect("a cell holds 48 bytes of payload")
    }
    /// The VCI that a link looks up.
    pub fn vci(&self) -> u16 {
        vci(self.header_bytes())
    }

    /// Gives the cell another VCI, as a link does. All other bits are unchanged, including error control computed
    /// in advance: it belongs to the header that leaves VuNet.
    pub fn rewrite_vci(&mut self, vci: u16) {
        let header = rewrite_vci(self.header_bytes(), vci);
        self.0[..HEADER_LEN].copy_from_slice(&header);
    }

    /// The port by which it leaves the switch.
    pub fn port(&self) -> u8 {
        self.0[PORT_AT] & PORT_MAX
    }
    /// Sets the port by which it leaves the next switch; the lower four bits are used.
    pub fn set_port(&mut self, port: u8) {
        self.0[PORT_AT] = port & PORT_MAX;
    }

    /// ATM to VuNet: the three bytes after the error control are zero.
    pub fn from_atm(cell: &Cell) -> VunetCell {
        let mut bytes = [0; VUNET_CELL_LEN];
        let split = HEADER_LEN + 1;
        bytes[..split].copy_from_slice(&cell.0[..split]);
        bytes[PAYLOAD_AT..].copy_from_slice(&cell.0[split..]);
        VunetCell(bytes)
    }
    /// VuNet to ATM, with the error control that the source computed.
    pub fn to_atm(&self) -> Cell {
        let mut bytes = [0; CELL_LEN];
        let split = HEADER_LEN + 1;
        bytes[..split].copy_from_slice(&self.0[..split]);
        bytes[split..].copy_from_slice(self.payload());
        Cell(bytes)
    }
    /// VuNet to ATM, with the error control computed here, as in AVlink for cells whose VCI has changed on the
    /// way.
    pub fn to_atm_checked(&self) -> Cell {
        Cell::with_header(self.header_bytes(), self.payload())
    }
}
