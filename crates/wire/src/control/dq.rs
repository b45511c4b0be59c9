//! The cell of distributed queueing: a port broadcasts its backlogs to all ports (D-51, D-124).
//!
//! ```text
//! port 1 | zero 1 | sequence 2 | B(port) 4 | B(port,0) 4 | ... | B(port,7) 4 | zero 8
//! ```
//!
//! Source: WUCS description of the router, §3.6, which gives the content; the layout is our choice. Eight ports
//! and their own output fit into one cell. Backlogs are in bytes, at most 4 GiB.
//!
//! ```
//! use lastmeter_wire::control::dq::Backlogs;
//! let told = Backlogs { port: 3, sequence: 9, output: 1_760_000, inputs: [880_000, 0, 0, 0, 0, 0, 0, 520] };
//! assert_eq!(Backlogs::parse(&told.emit())?, told);
//! # Ok::<(), lastmeter_wire::Error>(())
//! ```

use super::der::PORTS;
use crate::atm::PAYLOAD_LEN;
use crate::error::Error;

/// The circuit on which all ports receive backlogs.
pub const VCI_BACKLOGS: u16 = 63;
/// Bytes in use; zeros follow.
const USED_LEN: usize = 8 + 4 * PORTS as usize;

/// The report of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backlogs {
    /// The reporting port, below [`PORTS`].
    pub port: u8,
    /// The number of the period, from 0, modulo 65536.
    pub sequence: u16,
    /// Bytes waiting at its output.
    pub output: u32,
    /// Bytes waiting at its input for each output.
    pub inputs: [u32; PORTS as usize],
}

impl Backlogs {
    /// # Errors
    /// If there is no such port, or an unused byte is not zero.
    pub fn parse(payload: &[u8; PAYLOAD_LEN]) -> Result<Backlogs, Error> {
        let invalid = |what, found: u8| Error::Invalid { what, found: found.into() };
        if payload[0] >= PORTS {
            return Err(invalid("port of a backlog cell", payload[0]));
        }
        let unused = payload[1..2].iter().chain(&payload[USED_LEN..]);
        if let Some(&byte) = unused.into_iter().find(|&&byte| byte != 0) {
            return Err(invalid("unused bytes of a backlog cell", byte));
        }
        let (words, _) = payload[4..].as_chunks::<4>();
        let mut inputs = [0; PORTS as usize];
        for (input, word) in inputs.iter_mut().zip(&words[1..]) {
            *input = u32::from_be_bytes(*word);
        }
        let sequence = u16::from_be_bytes([payload[2], payload[3]]);
        Ok(Backlogs { port: payload[0], sequence, output: u32::from_be_bytes(words[0]), inputs })
    }

    /// The cell's payload.
    pub fn emit(&self) -> [u8; PAYLOAD_LEN] {
        let mut payload = [0; PAYLOAD_LEN];
        payload[0] = self.port;
        payload[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        let words = std::iter::once(self.output).chain(self.inputs);
        for (bytes, word) in payload[4..].chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_cells_that_no_port_sends() {
        let told = Backlogs { port: 7, sequence: 1, output: 2, inputs: [3; 8] };
        let cell = told.emit();
        let with = |at: usize, byte: u8| {
            let mut cell = cell;
            cell[at] = byte;
            Backlogs::parse(&cell)
        };
        assert_eq!(with(0, 7), Ok(told));
        assert!(with(0, 8).is_err() && with(1, 1).is_err() && with(40, 1).is_err());
        assert!(with(47, 9).is_err());
    }
}
