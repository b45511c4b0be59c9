//! The interface unit between a ring and an ATM network (J-30).
//!
//! ```text
//! ATM cell --constant header in front--> frame on the ring, whose PDU is the payload of one cell
//! frame of the ring --48 bytes per cell, B-ISDN header copied--> cells
//! ```
//!
//! A station reads a frame from the network like any other, and reassembles PDUs from their cells, like every ATM
//! host. The unit accepts frames on its own channels, which lead into the network. Source: HPL-93-37 §3.2, Fig 4.

use lastmeter_wire::Error;
use lastmeter_wire::atm::{Cell, Header as AtmHeader, Interface};
use lastmeter_wire::jetstream::{self, AddressType, Frame, RID_MAX};
use std::collections::BTreeSet;

/// A unit on the ring.
#[derive(Clone, Debug)]
pub struct AtmUnit {
    rid: u8,
    /// Channels that lead into the network.
    channels: BTreeSet<u16>,
}

impl AtmUnit {
    /// The unit at station `rid`.
    ///
    /// # Errors
    /// If that is not a ring identity.
    pub fn new(rid: u8) -> Result<AtmUnit, Error> {
        match rid <= RID_MAX {
            true => Ok(AtmUnit { rid, channels: BTreeSet::new() }),
            false => Err(Error::Invalid { what: "ring identity", found: rid.into() }),
        }
    }

    /// Opens a channel into the network.
    pub fn open(&mut self, vci: u16) {
        self.channels.insert(vci);
    }

    /// The frame that it sends on the ring for a cell from the network.
    ///
    /// # Errors
    /// None, for a unit with a ring identity.
    pub fn to_ring(&self, cell: &Cell) -> Result<Vec<u8>, Error> {
        jetstream::from_atm(self.rid, cell)
    }

    /// The cells for a passing frame; none if the frame is not for the network.
    ///
    /// # Errors
    /// If the bytes are not a frame, or their PDU is of a layer that needs its own segmentation.
    pub fn to_network(&self, bytes: &[u8]) -> Result<Vec<Cell>, Error> {
        let frame = Frame::parse(bytes)?;
        let mut cells = Vec::new();
        let circuit = AtmHeader::parse(frame.bisdn, Interface::Uni).circuit;
        let mine = frame.header.address_type == AddressType::Vc
            && frame.header.src != self.rid
            && self.channels.contains(&circuit.vci);
        if mine {
            jetstream::to_atm(&frame, &mut cells)?;
        }
        Ok(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Time;
    use lastmeter_wire::aal::aal5;
    use lastmeter_wire::aal::reassembly::{CircuitOptions, Event, Options, Reassembler};
    use lastmeter_wire::atm::Circuit;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn j_30_a_packet_passes_from_ring_to_ring_over_an_atm_network(
            payload in prop::collection::vec(any::<u8>(), 1..3000), local in 0u16..2048,
        ) {
            let vci = jetstream::vci(3, local).unwrap();
            let circuit = Circuit { vpi: 0, vci };
            let (mut near, far) = (AtmUnit::new(1).unwrap(), AtmUnit::new(2).unwrap());
            let pdu = aal5::emit(&payload, 0).unwrap();
            let frame = jetstream::emit_aal5(3, &AtmHeader::data(circuit), &pdu).unwrap();
            prop_assert_eq!(near.to_network(&frame).unwrap(), []);
            near.open(vci);
            let cells = near.to_network(&frame).unwrap();
            prop_assert_eq!(cells.len() * 48, pdu.len());
            // On the other ring each cell is a frame, and the reader reassembles the PDU.
            let mut reassembler = Reassembler::new(Options::default_at(Interface::Uni));
            reassembler.open(circuit, CircuitOptions::AAL5).unwrap();
            for (place, cell) in cells.iter().enumerate() {
                let bytes = far.to_ring(cell).unwrap();
                let frame = Frame::parse(&bytes).unwrap();
                prop_assert_eq!((frame.header.src, frame.pdu.len()), (2, 48));
                let payload_of = frame.pdu.first_chunk().unwrap();
                let read = Cell::with_header(frame.bisdn, payload_of);
                let event = reassembler.receive(Time::START, &read);
                match place + 1 == cells.len() {
                    true => {
                        let Event::Pdu(pdu) = event else { panic!("{event:?}") };
                        prop_assert_eq!(pdu.payload, &payload[..]);
                    }
                    false => prop_assert_eq!(event, Event::Held),
                }
            }
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut unit = AtmUnit::new(1).unwrap();
            (0..=u16::MAX).step_by(7).for_each(|vci| unit.open(vci));
            let _ = unit.to_network(&bytes);
        }
    }

    #[test]
    fn its_own_frames_do_not_return_to_the_network() {
        let mut unit = AtmUnit::new(2).unwrap();
        unit.open(77);
        let cell = Cell::with_header([0, 0, 0x04, 0xd0], &[1; 48]);
        let bytes = unit.to_ring(&cell).unwrap();
        assert_eq!(unit.to_network(&bytes), Ok(Vec::new()));
        assert!(AtmUnit::new(16).is_err());
    }
}
