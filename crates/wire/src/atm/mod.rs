//! ATM: cell headers, header error control, cell delineation, and VuNet's cells.

pub mod capture;
mod cell;
pub mod delineation;
mod header;
pub mod hec;
pub mod train;
pub mod vunet;

pub use cell::{CELL_LEN, Cell, Kind, PAYLOAD_LEN};
pub use header::{
    Circuit, HEADER_LEN, Header, Interface, PayloadType, VCI_ILMI, VCI_META_SIGNALLING,
    VCI_OAM_END_TO_END, VCI_OAM_SEGMENT, VCI_PNNI, VCI_SIGNALLING,
};
pub use header::{rewrite_vci, vci};
