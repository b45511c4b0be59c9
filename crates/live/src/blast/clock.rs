//! The clock that timestamps packets, and whether two hosts share it.

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock in nanoseconds, shared by all processes of a machine.
#[inline]
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Identifies this clock: the machine's boot, and the time namespace, which may shift it.
pub(super) fn identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    match boot.trim() {
        // A clock without identity is shared with no other host.
        "" => lastmeter_linux::token::random().unwrap_or_default(),
        boot => format!("{boot} {}", namespace.display()),
    }
}
