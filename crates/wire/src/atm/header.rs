//! The ATM cell header, at the user and at the network interface.
//!
//! ```text
//! UNI  GFC 4 | VPI 8  | VCI 16 | PT 3 | CLP 1        NNI  VPI 12 | VCI 16 | PT 3 | CLP 1
//! ```
//!
//! Source: ITU-T I.361 (02/99) §2.2 and §2.3; reserved VCIs from I.361 table 2 and ATM Forum
//! af-ilmi-0065 and af-pnni-0055.

use crate::error::Error;

/// Bytes of the header without its error control.
pub const HEADER_LEN: usize = 4;
/// Meta-signalling.
pub const VCI_META_SIGNALLING: u16 = 1;
/// Operation and maintenance of a path, per segment (F4).
pub const VCI_OAM_SEGMENT: u16 = 3;
/// Operation and maintenance of a path, end to end (F4).
pub const VCI_OAM_END_TO_END: u16 = 4;
/// Signalling.
pub const VCI_SIGNALLING: u16 = 5;
/// Interim local management.
pub const VCI_ILMI: u16 = 16;
/// Routing between private networks.
pub const VCI_PNNI: u16 = 18;

/// Which of the two header layouts a link uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// Between a user and the network: 4 bits of flow control, 8 bits of path.
    Uni,
    /// Between two nodes of the network: 12 bits of path.
    Nni,
}

/// A virtual circuit on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Circuit {
    /// VPI, 8 bits at a user interface and 12 within the network.
    pub vpi: u16,
    /// VCI.
    pub vci: u16,
}

/// The payload type, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadType {
    /// User data.
    User {
        /// Passed through a congested node (EFCI).
        congested: bool,
        /// ATM-user-to-ATM-user indication: the last cell of an AAL5 PDU.
        last: bool,
    },
    /// Operation and maintenance of a channel, per segment (F5).
    OamSegment,
    /// Operation and maintenance of a channel, end to end (F5).
    OamEndToEnd,
    /// Resource management.
    ResourceManagement,
    /// Not defined.
    Reserved,
}

impl PayloadType {
    /// From the lower three bits of `bits`.
    pub fn from_bits(bits: u8) -> PayloadType {
        match bits & 7 {
            4 => PayloadType::OamSegment,
            5 => PayloadType::OamEndToEnd,
            6 => PayloadType::ResourceManagement,
            7 => PayloadType::Reserved,
            user => PayloadType::User { congested: user & 2 != 0, last: user & 1 != 0 },
        }
    }
    /// As three bits.
    pub fn bits(self) -> u8 {
        match self {
            PayloadType::User { congested, last } => u8::from(congested) << 1 | u8::from(last),
            PayloadType::OamSegment => 4,
            PayloadType::OamEndToEnd => 5,
            PayloadType::ResourceManagement => 6,
            PayloadType::Reserved => 7,
        }
    }
}

/// A cell header without its error control.
///
/// ```
/// use lastmeter_wire::atm::{Circuit, Header, Interface};
/// let header = Header::data(Circuit { vpi: 0, vci: 5 });
/// assert_eq!(header.emit(Interface::Uni)?, [0x00, 0x00, 0x00, 0x50]);
/// assert_eq!(Header::parse([0x00, 0x00, 0x00, 0x50], Interface::Uni), header);
/// # Ok::<(), lastmeter_wire::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Generic flow control, 4 bits, absent at a network interface.
    pub gfc: u8,
    /// The circuit.
    pub circuit: Circuit,
    /// The type of the payload.
    pub payload_type: PayloadType,
    /// Cell loss priority: cells with this set are dropped first.
    pub clp: bool,
}

impl Header {
    /// The header of user data without congestion, not the last cell of a PDU.
    pub fn data(circuit: Circuit) -> Header {
        let payload_type = PayloadType::User { congested: false, last: false };
        Header { gfc: 0, circuit, payload_type, clp: false }
    }

    /// Any four bytes are a valid header.
    pub fn parse(bytes: [u8; HEADER_LEN], at: Interface) -> Header {
        let word = u32::from_be_bytes(bytes);
        let (gfc, vpi) = match at {
            Interface::Uni => ((word >> 28) as u8, (word >> 20) as u16 & 0xff),
            Interface::Nni => (0, (word >> 20) as u16),
        };
        Header {
            gfc,
            circuit: Circuit { vpi, vci: (word >> 4) as u16 },
            payload_type: PayloadType::from_bits((word >> 1) as u8),
            clp: word & 1 != 0,
        }
    }

    /// # Errors
    /// If the path has more bits than the interface permits, or flow control is set where there is none.
    pub fn emit(&self, at: Interface) -> Result<[u8; HEADER_LEN], Error> {
        let (gfc_max, vpi_max) = match at {
            Interface::Uni => (0xf, 0xff),
            Interface::Nni => (0, 0xfff),
        };
        let (value, max) = (u64::from(self.circuit.vpi), vpi_max);
        if value > max {
            return Err(Error::DoesNotFit { what: "ATM header VPI", value, max });
        }
        let (value, max) = (u64::from(self.gfc), gfc_max);
        if value > max {
            return Err(Error::DoesNotFit { what: "ATM header GFC", value, max });
        }
        let word = u32::from(self.gfc) << 28
            | u32::from(self.circuit.vpi) << 20
            | u32::from(self.circuit.vci) << 4
            | u32::from(self.payload_type.bits()) << 1
            | u32::from(self.clp);
        Ok(word.to_be_bytes())
    }
}

/// Changes the VCI in a header and leaves every other bit unchanged.
pub fn rewrite_vci(header: [u8; HEADER_LEN], vci: u16) -> [u8; HEADER_LEN] {
    let word = u32::from_be_bytes(header);
    (word & !(0xffff << 4) | u32::from(vci) << 4).to_be_bytes()
}

/// The VCI in a header, at either interface.
pub fn vci(header: [u8; HEADER_LEN]) -> u16 {
    (u32::from_be_bytes(header) >> 4) as u16
}
