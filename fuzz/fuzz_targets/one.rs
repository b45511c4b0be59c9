//! For cargo-fuzz: the target that the environment variable `TARGET` names; see ../README.md.
#![no_main]

use lastmeter_wire::fuzz::Target;
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("TARGET").unwrap_or_default();
    let target = lastmeter_fuzz::targets().find(|target| target.name == name);
    target.expect("TARGET names a fuzz target: TARGET=fuzz_udp")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
