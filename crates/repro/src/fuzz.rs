//! Entry points for fuzzing this crate's parsers: no input may cause a panic.

use crate::{Shelf, plan};
use lastmeter_wire::framing;
use lastmeter_wire::fuzz::Target;

/// All entry points.
pub const TARGETS: &[Target] = &[
    Target { name: "fuzz_adu_fragments", run: fuzz_adu_fragments },
    Target { name: "fuzz_repro", run: fuzz_repro },
];

/// A `repro.toml`, with its formulas, beside a published value.
pub fn fuzz_repro(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut shelf = Shelf::default();
    let csv = "id,item,published,unit,tolerance,role,section,note\nX-1,a,1,s,exact,derived,1,\n";
    for (file, text) in [("README.md", ""), ("expected.csv", csv), ("repro.toml", text)] {
        shelf.insert(&format!("experiments/fuzz/{file}"), text);
    }
    if let Err(error) = plan("all", &shelf) {
        assert!(!error.to_string().is_empty(), "an error has a message");
    }
}

/// Fragments of application data units.
pub fn fuzz_adu_fragments(bytes: &[u8]) {
    let mut receiver = framing::Reassembler::default();
    let mut rest = bytes;
    while let Ok((fragment, after)) = framing::parse(rest) {
        let mut again = Vec::new();
        framing::emit(&fragment, &mut again).expect("a parsed fragment can be emitted");
        assert_eq!(again, rest[..rest.len() - after.len()]);
        receiver.take(&fragment);
        rest = after;
    }
    receiver.reset();
    let counts = receiver.counts;
    assert!(counts.units + counts.discarded + counts.strays <= 2 * counts.fragments);
}
