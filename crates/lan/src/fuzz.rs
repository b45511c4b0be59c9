//! Entry points for fuzzing the text parsers of this crate: no input causes a panic, and what parses is emitted
//! unchanged.

use crate::vunet::vci::SharedFile;
use crate::wormhole::topology::Topology;
use lastmeter_wire::fuzz::Target;

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "fuzz_vci_file", run: fuzz_vci_file },
    Target { name: "fuzz_wormhole_topology", run: fuzz_wormhole_topology },
];

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

/// Topologies of wormhole networks.
pub fn fuzz_wormhole_topology(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Topology::parse(text) {
        Err(error) => assert!(error.line > 0 && !error.reason.is_empty()),
        Ok(topology) => assert_eq!(Topology::parse(&topology.emit()), Ok(topology)),
    }
}
