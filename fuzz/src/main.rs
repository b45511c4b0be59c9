//! Runs every fuzz entry point on mutations of its corpus, on a stable compiler and one core.
//!
//! ```text
//! drive run [COUNT] [NAME]   COUNT inputs (10,000,000) to every target, or to one
//! drive seeds                writes the corpus that the formats themselves can make
//! ```
//!
//! The run is the same every time: input number i of a target depends on nothing but the corpus.
//! A panic prints the target and the number of the input.

mod seeds;

use lastmeter_base::Stream;
use lastmeter_fuzz::targets;
use lastmeter_wire::fuzz::{Target, mutate};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Inputs for each target unless told otherwise.
const COUNT: u64 = 10_000_000;
/// Inputs after which the random stream starts anew, so that one input can be made again quickly.
const BATCH: u64 = 10_000;

fn corpus_folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

fn read_corpus(name: &str) -> std::io::Result<Vec<Vec<u8>>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(corpus_folder(name))?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    files.iter().map(std::fs::read).collect()
}

fn run(target: &Target, count: u64) -> std::io::Result<()> {
    let corpus = read_corpus(target.name)?;
    let start = Instant::now();
    let mut input = Vec::new();
    for batch in 0..count.div_ceil(BATCH) {
        let mut random = Stream::new(batch, target.name);
        for number in batch * BATCH..count.min((batch + 1) * BATCH) {
            mutate(&mut random, &corpus, &mut input);
            let guarded = std::panic::catch_unwind(|| (target.run)(&input));
            if guarded.is_err() {
                eprintln!("{} input {number}: {input:02x?}", target.name);
                std::process::exit(1);
            }
        }
    }
    let took = start.elapsed().as_secs_f64();
    println!("{:24} {count:>10} inputs {took:>7.1} s", target.name);
    Ok(())
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("seeds") => seeds::write(),
        Some("run") => {
            let count = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(COUNT);
            let wanted = |target: &&Target| arguments.get(2).is_none_or(|name| name == target.name);
            targets().filter(wanted).try_for_each(|target| run(target, count))
        }
        _ => {
            eprintln!("usage: drive run [COUNT] [NAME] | drive seeds");
            std::process::exit(2);
        }
    }
}
