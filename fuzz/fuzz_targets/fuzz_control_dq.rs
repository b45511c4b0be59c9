//! For cargo-fuzz: see ../README.md.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| lastmeter_wire::fuzz::fuzz_control_dq(data));
