//! Entry points for fuzzing the text parsers of this crate: no input causes a panic, and what parses is emitted
//! unchanged.

use crate::paths::{step, strip};
use crate::vunet::card::{ENTRIES, Side};
use crate::vunet::half::{Fate, Half};
use crate::vunet::vci::{Block, SharedFile};
use crate::wormhole::topology::Topology;
use lastmeter_wire::atm::PAYLOAD_LEN;
use lastmeter_wire::atm::train::{CELLS_MAX, Train};
use lastmeter_wire::atm::vunet::VunetCell;
use lastmeter_wire::control::reservation::Message;
use lastmeter_wire::fuzz::Target;

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "fuzz_path_header", run: fuzz_path_header },
    Target { name: "fuzz_vci_file", run: fuzz_vci_file },
    Target { name: "fuzz_vunet_link", run: fuzz_vunet_link },
    Target { name: "fuzz_wormhole_topology", run: fuzz_wormhole_topology },
];

/// A packet that carries its path, at as many routers as it has places: each reads what is there, and changes nothing
/// else.
pub fn fuzz_path_header(bytes: &[u8]) {
    let mut packet = bytes.to_vec();
    let mut steps = 0;
    while step(&mut packet, 7).is_ok() {
        steps += 1;
    }
    assert!(steps <= bytes.len() && packet.len() == bytes.len());
    if let Some(inputs) = strip(&mut packet) {
        assert!(steps <= inputs.len());
        assert_eq!(packet, bytes[bytes.len() - packet.len()..]);
    }
}

/// The file in which applications of a host allocate their channels.
pub fn fuzz_vci_file(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match SharedFile::parse(text) {
        Err(error) => assert!(!error.is_empty()),
        Ok(mut file) => {
            assert_eq!(SharedFile::parse(&file.emit()).as_ref(), Ok(&file));
            if let Some(vcis) = file.allocate(7, 3) {
                assert!(vcis.iter().all(|&vci| file.owner_of(vci) == Some(7)));
                assert_eq!(file.give_back(7, &vcis), Ok(()));
            }
        }
    }
}

/// A datagram that reaches either side of half a link: each of its cells has one fate, nothing written belongs to two
/// tokens, and the table stays within its bound.
pub fn fuzz_vunet_link(bytes: &[u8]) {
    if let Some(payload) = bytes.first_chunk::<PAYLOAD_LEN>()
        && let Ok(message) = Message::parse(payload)
    {
        assert_eq!(message.emit().as_ref(), Ok(payload));
    }
    let Ok(train) = Train::parse(bytes) else { return };
    let cells: Vec<VunetCell> = train.cells().filter_map(Result::ok).collect();
    assert!(train.len() <= CELLS_MAX && cells.len() <= train.len());
    let labels = Block { first: u16::MAX - 2, count: 3 };
    let mut halves = [Side::A, Side::B].map(|side| Half::reserving(1, side, labels));
    for (place, cell) in cells.into_iter().enumerate() {
        let near = place % 2;
        if let Fate::Wire(cell) = halves[near].from_switch(cell)
            && let Fate::Wire(cell) = halves[1 - near].from_wire(cell)
        {
            assert!(!matches!(halves[near].from_wire(cell), Fate::Wire(_)));
        }
    }
    assert!(halves.iter().all(|half| half.used() <= ENTRIES));
}

/// Topologies of wormhole networks.
pub fn fuzz_wormhole_topology(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Topology::parse(text) {
        Err(error) => assert!(error.line > 0 && !error.reason.is_empty()),
        Ok(topology) => assert_eq!(Topology::parse(&topology.emit()), Ok(topology)),
    }
}
