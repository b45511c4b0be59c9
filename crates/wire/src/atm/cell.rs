//! The 53-byte cell.

use super::header::{
    HEADER_LEN, Header, Interface, PayloadType, VCI_OAM_END_TO_END, VCI_OAM_SEGMENT,
};
use super::hec::{hec, syndrome};
use crate::error::{Error, split};

/// Bytes of a cell: header, error control, payload.
pub const CELL_LEN: usize = 53;
/// Bytes of a cell's payload.
pub const PAYLOAD_LEN: usize = 48;

/// A cell as it is sent.
///
/// ```
/// use lastmeter_wire::atm::{Cell, Circuit, Header, Interface, Kind};
/// let header = Header::data(Circuit { vpi: 1, vci: 42 });
/// let cell = Cell::new(&header, Interface::Uni, &[7; 48])?;
/// assert!(cell.is_intact());
/// assert_eq!(cell.kind(Interface::Uni), Kind::User(header));
/// assert_eq!(Cell::IDLE.kind(Interface::Uni), Kind::Idle);
/// # Ok::<(), lastmeter_wire::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell(pub [u8; CELL_LEN]);

/// The purpose of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fills the line when there is nothing to send; inserted by the physical layer.
    Idle,
    /// Carries nothing; inserted by the ATM layer.
    Unassigned,
    /// For the physical layer's own operation and maintenance.
    PhysicalLayer,
    /// Operation and maintenance of a path (F4), by its reserved channel.
    OamPath {
        /// Its header.
        header: Header,
        /// End to end, rather than over one segment.
        end_to_end: bool,
    },
    /// Operation and maintenance of a channel (F5), by its payload type.
    OamChannel {
        /// Its header.
        header: Header,
        /// End to end, rather than over one segment.
        end_to_end: bool,
    },
    /// Resource management.
    ResourceManagement(Header),
    /// Payload type 7.
    Reserved(Header),
    /// User data, including signalling and management channels.
    User(Header),
}

impl Cell {
    /// The cell that fills an idle line: every payload byte 6A (I.432.1 §4.4).
    pub const IDLE: Cell = {
        let mut bytes = [0x6a; CELL_LEN];
        [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]] = [0, 0, 0, 1, 0x52];
        Cell(bytes)
    };

    /// # Errors
    /// If the header does not fit the interface.
    pub fn new(header: &Header, at: Interface, payload: &[u8; PAYLOAD_LEN]) -> Result<Cell, Error> {
        Ok(Cell::with_header(header.emit(at)?, payload))
    }
    /// A cell with an emitted header; its error control is computed.
    pub fn with_header(header: [u8; HEADER_LEN], payload: &[u8; PAYLOAD_LEN]) -> Cell {
        let mut bytes = [0; CELL_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&header);
        bytes[HEADER_LEN] = hec(header);
        bytes[HEADER_LEN + 1..].copy_from_slice(payload);
        Cell(bytes)
    }
    /// The first cell of `bytes` and the rest.
    ///
    /// # Errors
    /// If there are fewer than 53 bytes. The error control is not checked.
    pub fn parse(bytes: &[u8]) -> Result<(Cell, &[u8]), Error> {
        let (cell, rest) = split::<CELL_LEN>(bytes, "ATM cell")?;
        Ok((Cell(*cell), rest))
    }

    /// The header's four bytes.
    #[inline]
    pub fn header_bytes(&self) -> [u8; HEADER_LEN] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }
    /// The header's four bytes and the error control.
    #[inline]
    pub fn checked_header(&self) -> [u8; HEADER_LEN + 1] {
        let [a, b, c, d, check, ..] = self.0;
        [a, b, c, d, check]
    }
    /// The fields of the header.
    pub fn header(&self, at: Interface) -> Header {
        Header::parse(self.header_bytes(), at)
    }
    /// The payload.
    #[inline]
    pub fn payload(&self) -> &[u8; PAYLOAD_LEN] {
        self.0[HEADER_LEN + 1..].first_chunk().expect("a cell holds 48 bytes of payload")
    }
    /// Whether header and error control agree.
    pub fn is_intact(&self) -> bool {
        syndrome(self.checked_header()) == 0
    }

    /// The purpose of the cell, by the header values that I.361 §2.2.1 reserves.
    pub fn kind(&self, at: Interface) -> Kind {
        let header = self.header(at);
        let nowhere = header.circuit.vpi == 0 && header.circuit.vci == 0;
        if nowhere && header.clp {
            // Without GFC bits, so that a UNI's physical-layer cells are distinguished too.
            return match header.payload_type.bits() {
                0 => Kind::Idle,
                _ => Kind::PhysicalLayer,
            };
        }
        if nowhere {
            return Kind::Unassigned;
        }
        match header.payload_type {
            PayloadType::OamSegment => Kind::OamChannel { header, end_to_end: false },
            PayloadType::OamEndToEnd => Kind::OamChannel { header, end_to_end: true },
            PayloadType::ResourceManagement => Kind::ResourceManagement(header),
            PayloadType::Reserved => Kind::Reserved(header),
            PayloadType::User { .. } => match header.circuit.vci {
                VCI_OAM_SEGMENT => Kind::OamPath { header, end_to_end: false },
                VCI_OAM_END_TO_END => Kind::OamPath { header, end_to_end: true },
                _ => Kind::User(header),
            },
        }
    }
}
