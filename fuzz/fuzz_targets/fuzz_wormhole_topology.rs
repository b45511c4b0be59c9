//! For cargo-fuzz: see ../README.md.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| lastmeter_lan::fuzz::fuzz_wormhole_topology(data));
