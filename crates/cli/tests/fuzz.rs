//! Every fuzz target of every crate on its corpus and on mutations of it.

use lastmeter_wire::fuzz::Target;
use std::path::Path;

/// Targets, and mutations for each: few, to take seconds; `fuzz/` runs for longer.
const ALL: [(&[Target], u64); 9] = [
    (lastmeter_wire::fuzz::TARGETS, 4000),
    (lastmeter_net::fuzz::TARGETS, 2000),
    (lastmeter_lan::fuzz::TARGETS, 2000),
    (lastmeter_repro::fuzz::TARGETS, 2000),
    (lastmeter_live::fuzz::TARGETS, 2000),
    (lastmeter_rtc::fuzz::TARGETS, 2000),
    (lastmeter_guest::fuzz::TARGETS, 2000),
    (lastmeter_lab::fuzz::TARGETS, 300),
    (lastmeter::fuzz::TARGETS, 300),
];

/// The target's inputs, in the order of their names.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn no_target_fails_on_mutations_of_its_corpus() {
    for (target, count) in
        ALL.into_iter().flat_map(|(all, count)| all.iter().map(move |one| (one, count)))
    {
        target.try_mutations(&corpus(target), count);
    }
}
