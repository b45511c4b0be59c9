//! Entry points for fuzzing what this crate's machines read: any bytes in, no panic out.

use crate::machines::framing;
use lastmeter_wire::fuzz::Target;

/// All of them.
pub const TARGETS: &[Target] = &[Target { name: "fuzz_adu_fragments", run: fuzz_adu_fragments }];

/// Fragments of application data units.
pub fn fuzz_adu_fragments(bytes: &[u8]) {
    let mut receiver = framing::Reassembler::default();
    let mut rest = bytes;
    while let Ok((fragment, after)) = framing::parse(rest) {
        let mut again = Vec::new();
        framing::emit(&fragment, &mut again).expect("what was read fits");
        assert_eq!(again, rest[..rest.len() - after.len()]);
        receiver.take(&fragment);
        rest = after;
    }
    receiver.reset();
    let counts = receiver.counts;
    assert!(counts.units + counts.discarded + counts.strays <= 2 * counts.fragments);
}
