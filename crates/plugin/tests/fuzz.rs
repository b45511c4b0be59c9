//! The fuzz targets of this crate on their corpus and on mutations of it; `fuzz/` runs for longer.

use lastmeter_plugin::fuzz::TARGETS;
use std::path::Path;

/// Mutations of each; `LASTMETER_MUTATIONS` asks for another number.
const COUNT: u64 = 2000;

#[test]
fn no_target_fails_on_mutations_of_its_corpus() {
    let count = std::env::var("LASTMETER_MUTATIONS").ok().and_then(|count| count.parse().ok());
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        let files = std::fs::read_dir(folder.join(target.name)).unwrap();
        let corpus: Vec<Vec<u8>> =
            files.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        assert!(!corpus.is_empty(), "{} has no corpus", target.name);
        target.try_mutations(&corpus, count.unwrap_or(COUNT));
    }
}
