//! Pieces of frames in ATM cells, as the Vidboard sent them, and these in datagrams.
//!
//! ```text
//! piece -> PDU of the Vidboard's adaptation layer -> cells of 53 bytes -> up to 27 cells a datagram
//! ```
//!
//! The VCI comes from the session. A datagram that is lost costs the pieces whose cells it carried, and if it carried a
//! last cell, the next piece, too.
//!
//! Source: Aurora report, §3.5.2; that cells travel in datagrams is our choice.
//!
//! ```
//! use lastmeter_wire::camera::cells::{Cells, datagram, segment};
//! let mut cells = Vec::new();
//! segment(7, b"lines of a frame", &mut cells)?;
//! let mut got = Vec::new();
//! Cells::new(7).receive(&datagram(&cells), |piece| got = piece.to_vec())?;
//! assert_eq!(got, b"lines of a frame");
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use crate::aal::aal5::Segmenter;
use crate::aal::reassembly::{CircuitOptions, Event, Options, Reassembler};
use crate::aal::vidboard;
use crate::atm::{CELL_LEN, Cell, Circuit, Header, Interface};
use crate::error::Error;
use lastmeter_base::{Bytes, Time};

/// The most cells of a datagram: those that fit into an Ethernet frame.
pub const PER_DATAGRAM: usize = 27;
/// VCIs below this are reserved for other purposes.
const VCI_MIN: u32 = 32;

/// The circuit of a session.
fn circuit(session: u32) -> Circuit {
    let vci = VCI_MIN + session % (u32::from(u16::MAX) + 1 - VCI_MIN);
    Circuit { vpi: 0, vci: u16::try_from(vci).unwrap_or(u16::MAX) }
}

/// Appends the cells of a piece.
///
/// # Errors
/// If the piece is empty or longer than 65,535 bytes.
pub fn segment(session: u32, piece: &[u8], cells: &mut Vec<Cell>) -> Result<(), Error> {
    let segmenter = Segmenter::new(&Header::data(circuit(session)), Interface::Uni)?;
    segmenter.segment_pdu(&vidboard::emit(piece, 0)?, cells);
    Ok(())
}

/// Cells as a datagram.
pub fn datagram(cells: &[Cell]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.0).collect()
}

/// Puts the pieces of a session together.
#[derive(Debug)]
pub struct Cells {
    reassembler: Reassembler,
}

impl Cells {
    /// For one session.
    pub fn new(session: u32) -> Cells {
        let most = Options {
            memory: Bytes(1 << 18),
            circuits_max: 1,
            ..Options::default_at(Interface::Uni)
        };
        let mut reassembler = Reassembler::new(most);
        let opened = reassembler.open(circuit(session), CircuitOptions::VIDBOARD);
        debug_assert!(opened.is_ok(), "the first circuit");
        Cells { reassembler }
    }
    /// Takes a datagram; calls `piece` with each piece that it completes.
    ///
    /// # Errors
    /// If it is not made of whole cells, or of too many.
    pub fn receive(&mut self, datagram: &[u8], mut piece: impl FnMut(&[u8])) -> Result<(), Error> {
        let (cells, rest) = datagram.as_chunks::<CELL_LEN>();
        if !rest.is_empty() || cells.is_empty() || cells.len() > PER_DATAGRAM {
            let what = "camera's datagram of cells: its length";
            return Err(Error::Invalid { what, found: datagram.len() as u64 });
        }
        for cell in cells {
            if let Event::Pdu(pdu) = self.reassembler.receive(Time::START, &Cell(*cell)) {
                piece(pdu.payload);
            }
        }
        Ok(())
    }
}
