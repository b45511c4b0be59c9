//! The clock that stamps packets, and whether two hosts read the same one.

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock in nanoseconds, which all processes of a machine share.
#[inline]
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Which clock this is: that of the machine since it was started, as seen from its time namespace,
/// which may shift it.
pub(super) fn identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    match boot.trim() {
        // Nobody else shares a clock that has no name.
        "" => crate::token::random().unwrap_or_default(),
        boot => format!("{boot} {}", namespace.display()),
    }
}
