//! Cells in a datagram: what a port of a VuNet switch and its client exchange where the wire is a packet network.
//!
//! ```text
//! magic 2 | form 1 | count 1 | number of the first cell 4 | 1 to 64 cells of 56 bytes, or of 53
//! ```
//!
//! The number counts the cells sent before on this wire, so that the receiver knows how many were lost on it. A
//! datagram with 64 cells fits into a page of memory, and two bursts of a Vidboard into a datagram. The layout is our
//! choice.
//!
//! ```
//! use lastmeter_wire::atm::{Cell, train::{Form, Train}, vunet::VunetCell};
//! let cells = [VunetCell::from_atm(&Cell::IDLE); 3];
//! let bytes = Train::emit(Form::Vunet, 7, &cells)?;
//! let train = Train::parse(&bytes)?;
//! assert_eq!((train.number, train.len()), (7, 3));
//! assert!(train.cells().all(|cell| cell == Ok(cells[0])));
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use super::vunet::{VUNET_CELL_LEN, VunetCell};
use super::{CELL_LEN, Cell};
use crate::error::{Error, fit, split};

/// Most cells in a datagram.
pub const CELLS_MAX: usize = 64;
/// Bytes before the cells.
pub const TRAIN_HEADER_LEN: usize = 8;
/// The longest datagram.
pub const TRAIN_MAX: usize = TRAIN_HEADER_LEN + CELLS_MAX * VUNET_CELL_LEN;
const MAGIC: [u8; 2] = *b"VN";

/// How the cells are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// As the VuNet switches them, with their ports.
    Vunet,
    /// As an ATM network carries them, with header error control and without ports.
    Atm,
}

impl Form {
    fn bits(self) -> u8 {
        match self {
            Form::Vunet => 1,
            Form::Atm => 2,
        }
    }
    /// Bytes of a cell.
    pub fn cell_len(self) -> usize {
        match self {
            Form::Vunet => VUNET_CELL_LEN,
            Form::Atm => CELL_LEN,
        }
    }
}

/// The cells of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train<'a> {
    /// How they are written.
    pub form: Form,
    /// Cells sent before on this wire, modulo 2^32.
    pub number: u32,
    bytes: &'a [u8],
}

impl<'a> Train<'a> {
    /// # Errors
    /// If it is anything else than a header and that many whole cells.
    pub fn parse(datagram: &'a [u8]) -> Result<Train<'a>, Error> {
        let (header, bytes) = split::<TRAIN_HEADER_LEN>(datagram, "VuNet datagram")?;
        let &[m0, m1, form, count, n0, n1, n2, n3] = header;
        if [m0, m1] != MAGIC {
            let found = u16::from_be_bytes([m0, m1]).into();
            return Err(Error::Invalid { what: "VuNet datagram's magic number", found });
        }
        let form = match form {
            1 => Form::Vunet,
            2 => Form::Atm,
            _ => return Err(Error::Invalid { what: "VuNet cell form", found: form.into() }),
        };
        let cells = usize::from(count);
        if cells == 0 || cells > CELLS_MAX {
            return Err(Error::Invalid { what: "VuNet cells in a datagram", found: count.into() });
        }
        let (need, have) = (cells * form.cell_len(), bytes.len());
        if have < need {
            return Err(Error::Truncated { what: "VuNet datagram", need, have });
        }
        if have > need {
            let found = (have - need) as u64;
            return Err(Error::Invalid { what: "VuNet datagram's bytes after its cells", found });
        }
        Ok(Train { form, number: u32::from_be_bytes([n0, n1, n2, n3]), bytes })
    }

    /// Number of cells.
    #[allow(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.form.cell_len()
    }

    /// The cells; an ATM cell with a wrong header is an error.
    pub fn cells(&self) -> impl Iterator<Item = Result<VunetCell, Error>> + use<'a> {
        let form = self.form;
        self.bytes.chunks_exact(form.cell_len()).map(move |bytes| match form {
            Form::Vunet => VunetCell::parse(bytes).map(|(cell, _)| cell),
            Form::Atm => match Cell::parse(bytes)?.0 {
                cell if cell.is_intact() => Ok(VunetCell::from_atm(&cell)),
                _ => Err(Error::Corrupt { what: "ATM cell header" }),
            },
        })
    }

    /// A datagram with these cells; the header error control of ATM cells is computed.
    ///
    /// # Errors
    /// If there are more cells than fit.
    pub fn emit(form: Form, number: u32, cells: &[VunetCell]) -> Result<Vec<u8>, Error> {
        let count: u8 = fit(cells.len(), CELLS_MAX as u64, "VuNet cells in a datagram")?;
        let mut bytes = Vec::with_capacity(TRAIN_HEADER_LEN + cells.len() * form.cell_len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[form.bits(), count]);
        bytes.extend_from_slice(&number.to_be_bytes());
        for cell in cells {
            match form {
                Form::Vunet => bytes.extend_from_slice(&cell.0),
                Form::Atm => bytes.extend_from_slice(&cell.to_atm_checked().0),
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_cells_come_out_of_a_datagram_as_they_went_in(
            number: u32, bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), 56), 1..=64),
        ) {
            let cells: Vec<VunetCell> =
                bytes.iter().map(|bytes| VunetCell::parse(bytes).unwrap().0).collect();
            let datagram = Train::emit(Form::Vunet, number, &cells).unwrap();
            prop_assert!(datagram.len() <= TRAIN_MAX);
            let train = Train::parse(&datagram).unwrap();
            prop_assert_eq!(train.number, number);
            let again: Vec<VunetCell> = train.cells().map(Result::unwrap).collect();
            prop_assert_eq!(&again, &cells);
            // An ATM network keeps the header and the payload, and loses the port.
            let datagram = Train::emit(Form::Atm, number, &cells).unwrap();
            for (after, cell) in Train::parse(&datagram).unwrap().cells().zip(&cells) {
                let after = after.unwrap();
                prop_assert_eq!(after.header_bytes(), cell.header_bytes());
                prop_assert_eq!((after.payload(), after.port()), (cell.payload(), 0));
            }
        }

        #[test]
        fn any_bytes_are_refused_or_whole_cells(
            mut bytes in prop::collection::vec(any::<u8>(), 0..4000), header: bool, count in 0u8..80,
        ) {
            if header && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&[b'V', b'N', 1 + count % 2, count]);
            }
            if let Ok(train) = Train::parse(&bytes) {
                prop_assert!((1..=CELLS_MAX).contains(&train.len()));
                prop_assert_eq!(bytes.len(), TRAIN_HEADER_LEN + train.len() * train.form.cell_len());
                prop_assert_eq!(train.cells().count(), train.len());
            }
        }
    }

    #[test]
    fn a_damaged_atm_cell_is_an_error_and_its_neighbours_are_not() {
        let cells = [VunetCell::from_atm(&Cell::IDLE); 3];
        let mut bytes = Train::emit(Form::Atm, 0, &cells).unwrap();
        bytes[TRAIN_HEADER_LEN + CELL_LEN + 1] ^= 0x10;
        let good: Vec<bool> =
            Train::parse(&bytes).unwrap().cells().map(|cell| cell.is_ok()).collect();
        assert_eq!(good, [true, false, true]);
        assert!(Train::emit(Form::Vunet, 0, &[cells[0]; 65]).is_err());
    }
}
