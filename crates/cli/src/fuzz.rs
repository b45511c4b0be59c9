//! Entry points for fuzzing what only the program reads: any bytes in, no panic.

use crate::blast::plan::plan;
use lastmeter_lab::fuzz::refused;
use lastmeter_lab::library::Builtin;
use lastmeter_wire::fuzz::Target;

/// All of them.
pub const TARGETS: &[Target] = &[Target { name: "fuzz_blast_plan", run: fuzz_blast_plan }];

/// A plan: refused, or valid.
pub fn fuzz_blast_plan(bytes: &[u8]) {
    match plan("fuzz.toml", bytes, &Builtin) {
        Err(problems) => refused("fuzz.toml", &problems),
        Ok(plan) => assert!(plan.check().is_ok(), "{plan:?}"),
    }
}
