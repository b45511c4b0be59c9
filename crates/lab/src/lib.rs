//! Experiments: profiles, runs, what-ifs, sweeps.

pub mod build;
pub mod close;
pub mod document;
pub mod experiment;
pub mod explain;
pub mod fuzz;
pub mod historic;
pub mod kinds;
pub mod library;
pub mod livelock;
pub mod manual;
pub mod profile;
pub mod reach;
pub mod replay;
pub mod replicate;
pub mod run;
pub mod schema;
pub mod sweep;
pub mod tap;

pub use lastmeter_engine::Parallel;

use lastmeter_base::bench::Case;
use lastmeter_lan::fabric;
use lastmeter_lan::timed_token::bench::CASES as RING;
use lastmeter_net::{classify, lookup};
use sha2::{Digest, Sha256};

/// The benchmarks of all crates below.
pub fn bench_cases() -> impl Iterator<Item = &'static Case> {
    let net = lastmeter_net::bench::CASES.iter().chain(lastmeter_net::bench::DEPTHS).chain(RING);
    let net = net.chain(lookup::bench::CASES).chain(classify::bench::CASES);
    let net = net.chain(fabric::bench::CASES).chain(fabric::demultiplex::CASES);
    let net = net.chain(lastmeter_host::bench::CASES);
    let net = net.chain(lastmeter_transport::bench::CASES).chain(lastmeter_wave::bench::CASES);
    lastmeter_wire::bench::CASES.iter().chain(net)
}

/// The first 16 hexadecimal digits of the SHA-256 of `bytes`: how results and sources are named.
pub fn digest(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
