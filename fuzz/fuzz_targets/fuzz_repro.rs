//! For cargo-fuzz: see ../README.md.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| lastmeter_repro::fuzz::fuzz_repro(data));
