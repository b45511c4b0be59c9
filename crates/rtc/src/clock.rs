//! The clock of channels: time since an instant that all hosts of a network agree on.

use lastmeter_base::Time;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest that a datagram waits in the kernel, in nanoseconds.
const AGE_MAX: u64 = 5_000_000_000;

/// The instant that [`Time::START`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Whether by the clock that hosts synchronise (with PTP or NTP); else by the monotonic one, which all programs
    /// of one machine share.
    pub real: bool,
    /// In nanoseconds of that clock.
    pub at: u64,
}

impl Epoch {
    /// This long from now, on the clock that the programs of this machine share.
    pub fn after(wait: Duration) -> Epoch {
        let at = nanoseconds(ClockId::Monotonic).saturating_add(wait.as_nanos() as u64);
        Epoch { real: false, at }
    }

    /// The present; the start itself if it is yet to come.
    #[inline]
    pub fn now(self) -> Time {
        let clock = if self.real { ClockId::Realtime } else { ClockId::Monotonic };
        Time::from_ps(nanoseconds(clock).saturating_sub(self.at).saturating_mul(1000))
    }

    /// When something was that the kernel stamped with its real-time clock; the present if that clock was set since.
    pub(crate) fn stamped(self, stamp: u64) -> Time {
        let age = nanoseconds(ClockId::Realtime).saturating_sub(stamp);
        let now = self.now();
        match age < AGE_MAX {
            true => Time::from_ps(now.as_ps().saturating_sub(age * 1000)),
            false => now,
        }
    }

    /// Sleeps until then.
    pub fn sleep_until(self, at: Time) {
        let clock = if self.real { ClockId::Realtime } else { ClockId::Monotonic };
        loop {
            let until = self.at.saturating_add(at.as_ps().div_ceil(1000));
            let left = until.saturating_sub(nanoseconds(clock));
            if left == 0 {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left));
        }
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}
