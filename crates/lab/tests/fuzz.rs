//! Every fuzz target on its corpus and on some thousand mutations of it.

#![allow(clippy::unwrap_used, reason = "a test that fails may say so by panicking")]

use lastmeter_base::Stream;
use lastmeter_lab::fuzz::TARGETS;
use lastmeter_wire::fuzz::mutate;

/// Mutations for each target: seconds matter here, the long runs are the driver's.
const COUNT: usize = 300;

#[test]
fn no_target_fails_on_mutations_of_its_corpus() {
    for target in TARGETS {
        let folder = format!("{}/../../fuzz/corpus/{}", env!("CARGO_MANIFEST_DIR"), target.name);
        let mut files: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{folder} is empty");
        let corpus: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        corpus.iter().for_each(|member| (target.run)(member));
        let mut random = Stream::new(0, target.name);
        let mut input = Vec::new();
        for _ in 0..COUNT {
            mutate(&mut random, &corpus, &mut input);
            (target.run)(&input);
        }
    }
}
