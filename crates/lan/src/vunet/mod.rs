//! The VuNet: a desk-area network of simple cell switches, of links that map channels, and of applications that
//! open their own connections with cells in the data stream.
//!
//! ```text
//! client --cell, port--> [ FIFOs, crossbar ] --> link: VCI -> new VCI, port --> [ switch ] --> client
//!                                                 ^ cells on the control channel write and read its table
//! ```
//!
//! * [`crossbar`]: the switch, which only moves cells between ports (A-17, A-19).
//! * [`card`]: a link, which maps channels and ports by a table for each direction (A-26 to A-29).
//! * [`half`]: each end of a link by itself, as it runs live, with a wire between them (A-26).
//! * [`channels`]: the channels of a bridge to AN2, which connections use as stripes (A-57, A-62).
//! * [`vci`]: allocation of channels to applications (A-70).
//! * [`connection`]: how an application opens, verifies, refreshes and closes a connection hop by
//!   hop (A-69, A-71).
//! * [`reserve`]: paths that links reserve hop by hop, to compare with that.
//! * [`site`]: switches, links and clients without time, to test all that.
//! * [`edge`]: what the switch leaves to its clients: copies, credits, classes (A-10).
//! * [`discovery`]: how a host discovers the network (A-72).
//! * [`element`]: switch, link and bridges as elements; [`camera`] and [`viewer`] at the ends.
//!
//! Source: Clark, Houh & Tennenhouse (editors), Aurora at MIT, final report, §3.1, §3.4 to §3.6 and §4.1. Cell
//! layouts are those of [`lastmeter_wire::atm::vunet`] and [`lastmeter_wire::control::vunet`], which are our
//! choice where the report gives none.

pub mod camera;
pub mod card;
pub mod channels;
pub mod connection;
pub mod crossbar;
pub mod discovery;
pub mod edge;
pub mod element;
mod ends;
pub mod half;
pub mod reserve;
pub mod site;
pub mod vci;
pub mod viewer;

use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::atm::{Circuit, HEADER_LEN, Header, Interface, PAYLOAD_LEN, PayloadType};
use lastmeter_wire::control::vunet::Control;

/// A cell on the bus of a port: whole words cross it, and what is left of the last one is padding (A-14, A-23).
///
/// ```
/// use lastmeter_lan::vunet::OnBus;
/// let words = |bits| OnBus { cell: 56, bits }.words();
/// assert_eq!((words(32), words(64)), (14, 7));
/// // A cell of 53 bytes takes as many words as one of 56.
/// let atm = OnBus { cell: 53, bits: 64 };
/// assert_eq!((atm.words(), atm.padding()), (7, 3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnBus {
    /// Bytes of a cell.
    pub cell: u64,
    /// Width of the bus, in bits.
    pub bits: u64,
}

impl OnBus {
    /// Words per cell.
    pub fn words(self) -> u64 {
        (self.cell * 8).div_ceil(self.bits.max(1))
    }
    /// Bytes that a cell leaves of its last word.
    pub fn padding(self) -> u64 {
        self.words() * self.bits / 8 - self.cell
    }
    /// How long a cell takes on a port that has this rate with a bus of 32 bits: as many ticks as words.
    pub fn time(self, rate: Rate) -> Duration {
        rate.time_for(Bytes(self.words() * 4))
    }
}

/// The header of data, or of a control cell that travels in the data stream of its channel.
fn header(vci: u16, payload_type: PayloadType) -> [u8; HEADER_LEN] {
    let circuit = Circuit { vpi: 0, vci };
    let header = Header { payload_type, ..Header::data(circuit) };
    header.emit(Interface::Uni).expect("path 0 and any channel fit into a header")
}

/// A cell of user data; `last` if it ends a PDU.
pub fn data_cell(vci: u16, port: u8, last: bool, payload: &[u8; PAYLOAD_LEN]) -> VunetCell {
    let user = PayloadType::User { congested: false, last };
    let mut cell = VunetCell::new(header(vci, user), payload, true);
    cell.set_port(port);
    cell
}

/// A control cell for whatever receives it at the end of `vci`: a link, if that is the control channel. On any
/// other channel its payload type distinguishes it from data (end-to-end OAM).
///
/// # Errors
/// If it has more entries than fit.
pub fn control_cell(
    vci: u16,
    port: u8,
    control: &Control,
) -> Result<VunetCell, lastmeter_wire::Error> {
    let mut cell = VunetCell::new(header(vci, PayloadType::OamEndToEnd), &control.emit()?, true);
    cell.set_port(port);
    Ok(cell)
}

/// A board's answer to a command, which travels on the channel of its video; its payload type distinguishes it
/// from data.
pub fn answer_cell(vci: u16, port: u8, payload: &[u8; PAYLOAD_LEN]) -> VunetCell {
    let mut cell = VunetCell::new(header(vci, PayloadType::OamEndToEnd), payload, true);
    cell.set_port(port);
    cell
}

/// Whether a cell carries no user data.
pub fn is_control(cell: &VunetCell) -> bool {
    let header = Header::parse(cell.header_bytes(), Interface::Uni);
    header.payload_type == PayloadType::OamEndToEnd
}

/// The control message in a cell without user data; `None` for data, or if it is damaged.
pub fn control_in(cell: &VunetCell) -> Option<Control> {
    is_control(cell).then(|| Control::parse(cell.payload()).ok()).flatten()
}
