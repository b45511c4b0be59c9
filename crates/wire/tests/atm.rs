//! Cells: round trips, VuNet's rewriting, delineation of shifted and corrupted streams.

use lastmeter_wire::atm::delineation::{Delineator, Options, Slide, State};
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::atm::{Cell, Circuit, Header, Interface, Kind, PayloadType, rewrite_vci};
use proptest::prelude::*;

fn payload() -> impl Strategy<Value = [u8; 48]> {
    proptest::collection::vec(any::<u8>(), 48).prop_map(|bytes| bytes.try_into().expect("48 bytes"))
}

proptest! {
    #[test]
    fn every_header_round_trips(bytes: [u8; 4]) {
        for at in [Interface::Uni, Interface::Nni] {
            prop_assert_eq!(Header::parse(bytes, at).emit(at).unwrap(), bytes);
        }
    }

    #[test]
    fn rewriting_a_channel_changes_no_other_bit(bytes: [u8; 4], vci: u16) {
        let changed = u32::from_be_bytes(bytes) ^ u32::from_be_bytes(rewrite_vci(bytes, vci));
        prop_assert_eq!(changed & !0x000f_fff0, 0);
        prop_assert_eq!(Header::parse(rewrite_vci(bytes, vci), Interface::Nni).circuit.vci, vci);
    }

    #[test]
    fn vunet_cells_convert_both_ways(header: [u8; 4], data in payload(), vci: u16) {
        let cell = Cell::with_header(header, &data);
        prop_assert_eq!(VunetCell::from_atm(&cell).to_atm(), cell);
        let mut moved = VunetCell::new(header, &data, true);
        prop_assert_eq!(moved.to_atm(), cell);
        let before = moved;
        moved.rewrite_vci(vci);
        prop_assert_eq!(moved.vci(), vci);
        prop_assert_eq!(&moved.0[4..], &before.0[4..], "error control and payload are unchanged");
        prop_assert!(moved.to_atm_checked().is_intact());
    }
}

#[test]
fn delineates_a_shifted_stream_and_loses_sync_after_alpha_wrong_headers() {
    let payload = [0x6a; 48];
    for shift in 0..8u32 {
        let mut delineator = Delineator::new(Options { slide: Slide::Bit, ..Options::I_432 });
        let (mut carry, mut out) = (0u16, Vec::new());
        let mut push = |byte: u8, out: &mut Vec<u8>| {
            let both = carry << 8 | u16::from(byte);
            out.push((both >> shift) as u8);
            carry = byte.into();
        };
        for number in 0..40u32 {
            let mut cell = Cell::with_header((number << 4).to_be_bytes(), &payload);
            if (20..27).contains(&number) {
                cell.0[4] ^= 0xff;
            }
            cell.0.iter().for_each(|&byte| push(byte, &mut out));
        }
        let mut found = Vec::new();
        delineator.receive(&out, |cell| {
            found.push(cell.header(Interface::Uni).circuit.vci);
        });
        let wanted: Vec<u16> = (7..20).chain(34..40).collect();
        // The last bits of the last cell are still in the shift register.
        let wanted = &wanted[..wanted.len() - usize::from(shift > 0)];
        assert_eq!(found, wanted, "shifted by {shift}");
        assert_eq!(delineator.losses, 1);
        assert!(matches!(delineator.state(), State::Sync { .. }));
    }
}

#[test]
fn distinguishes_the_kinds_of_cells() {
    let cell = |vpi, vci, payload_type, clp| {
        let header = Header { gfc: 0, circuit: Circuit { vpi, vci }, payload_type, clp };
        Cell::new(&header, Interface::Uni, &[0; 48]).unwrap().kind(Interface::Uni)
    };
    let user = PayloadType::User { congested: false, last: false };
    assert_eq!(cell(0, 0, user, true), Kind::Idle);
    assert_eq!(cell(0, 0, user, false), Kind::Unassigned);
    assert_eq!(cell(0, 0, PayloadType::OamSegment, true), Kind::PhysicalLayer);
    assert!(matches!(cell(1, 3, user, false), Kind::OamPath { end_to_end: false, .. }));
    assert!(matches!(cell(1, 4, user, false), Kind::OamPath { end_to_end: true, .. }));
    let end_to_end = PayloadType::OamEndToEnd;
    assert!(matches!(cell(1, 42, end_to_end, false), Kind::OamChannel { end_to_end: true, .. }));
    assert!(matches!(cell(1, 42, user, true), Kind::User(_)));
    let management = PayloadType::ResourceManagement;
    assert!(matches!(cell(1, 42, management, false), Kind::ResourceManagement(_)));
    assert!(Cell::IDLE.is_intact());
}

#[test]
fn refuses_a_path_that_the_interface_does_not_have() {
    let header = Header::data(Circuit { vpi: 256, vci: 1 });
    assert!(header.emit(Interface::Uni).is_err());
    assert!(header.emit(Interface::Nni).is_ok());
    let header = Header { gfc: 1, ..header };
    assert!(header.emit(Interface::Nni).is_err());
}
