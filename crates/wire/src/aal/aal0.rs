//! AAL0: a cell's 48 bytes of payload are the data, without any protection.
//!
//! ```
//! use lastmeter_wire::aal::aal0;
//! use lastmeter_wire::atm::{Circuit, Header, Interface};
//! let header = Header::data(Circuit { vpi: 0, vci: 62 });
//! let cells = aal0::segment(&header, Interface::Uni, &[1; 50])?;
//! assert_eq!(cells.len(), 2);
//! assert_eq!(cells[1].payload()[..3], [1, 1, 0], "the last cell is filled with zeros");
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use super::aal5::PDU_LEN_MAX;
use crate::atm::{Cell, Header, Interface, PAYLOAD_LEN};
use crate::error::{Error, fit};

/// Splits `data` into cells, the last one filled with zeros. The receiver must know the length.
///
/// # Errors
/// If the header does not fit the interface, or the data is longer than an AAL5 PDU may be.
pub fn segment(header: &Header, at: Interface, data: &[u8]) -> Result<Vec<Cell>, Error> {
    let _: u32 = fit(data.len(), PDU_LEN_MAX as u64, "AAL0 data length")?;
    let header = header.emit(at)?;
    let cells = data.chunks(PAYLOAD_LEN).map(|chunk| {
        let mut payload = [0; PAYLOAD_LEN];
        payload[..chunk.len()].copy_from_slice(chunk);
        Cell::with_header(header, &payload)
    });
    Ok(cells.collect())
}
