//! For cargo-fuzz: see ../README.md.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| lastmeter::fuzz::fuzz_blast_plan(data));
