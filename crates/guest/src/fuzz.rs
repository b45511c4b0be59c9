//! Entry points for fuzzing what guests and QEMU send: any bytes in, no panic.

use lastmeter_wire::fuzz::Target;

/// All targets.
pub const TARGETS: &[Target] = &[Target { name: "fuzz_guest_report", run: crate::kit::fuzz }];
