//! Jetstream's circuit table: a RAM with a bit for each of 2^15 circuits, which tells a station in one look-up
//! whether a frame is addressed to it.
//!
//! Four of a VCI's 15 bits are the ring identifier of the host that assigned it, so hosts of a ring never assign
//! the same one. A circuit outside the table, or of another path, belongs to no station.
//!
//! Source: Watson et al., HPL-93-37, §3.2 and §3.4.

use lastmeter_wire::atm::Circuit;
use lastmeter_wire::jetstream::VCI_BITS;

/// Circuits in the table.
pub const CIRCUITS: usize = 1 << VCI_BITS;

/// The circuits that a station receives.
#[derive(Clone, Debug)]
pub struct Circuits(Vec<bool>);

impl Default for Circuits {
    fn default() -> Circuits {
        Circuits(vec![false; CIRCUITS])
    }
}

impl Circuits {
    fn place(circuit: Circuit) -> Option<usize> {
        let vci = usize::from(circuit.vci);
        (circuit.vpi == 0 && vci < CIRCUITS).then_some(vci)
    }
    /// Opens a circuit for reception; `false` if it was open already or cannot be opened.
    pub fn open(&mut self, circuit: Circuit) -> bool {
        Circuits::place(circuit).is_some_and(|place| !std::mem::replace(&mut self.0[place], true))
    }
    /// Whether a frame on this circuit is for this station.
    pub fn reads(&self, circuit: Circuit) -> bool {
        Circuits::place(circuit).is_some_and(|place| self.0[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circuit_is_read_once_it_is_open_and_no_other_is() {
        let mut table = Circuits::default();
        let circuit = |vpi, vci| Circuit { vpi, vci };
        assert!(table.open(circuit(0, 77)) && !table.open(circuit(0, 77)));
        assert!(table.reads(circuit(0, 77)) && !table.reads(circuit(0, 78)));
        assert!(!table.reads(circuit(1, 77)));
        assert!(!table.open(circuit(0, 1 << 15)) && !table.open(circuit(1, 7)));
    }
}
