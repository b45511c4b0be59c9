//! Slow start and congestion avoidance, counting bytes.
//!
//! In congestion avoidance the window grows by one segment when a window's worth of bytes has been
//! acknowledged. Source: RFC 5681 §3.1, RFC 3465 §2.

use super::{Acknowledged, Window};

/// Additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reno {
    /// Bytes acknowledged since the window grew last: `bytes_acked` of RFC 3465 §2.1.
    pub bytes_acked: u64,
}

impl Reno {
    /// The window grows.
    #[inline]
    pub fn acknowledged(&mut self, window: &mut Window, acked: Acknowledged<'_>) {
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            bytes = window.slow_start(bytes, acked.config.growth_max);
            if window.in_slow_start() {
                return;
            }
        }
        self.bytes_acked += bytes;
        if self.bytes_acked >= window.congestion {
            self.bytes_acked -= window.congestion;
            window.congestion += window.mss;
        }
    }

    /// Half of the data in flight (RFC 5681 equation 4).
    pub fn lost(&mut self, window: &Window, flight: u64) -> u64 {
        self.bytes_acked = 0;
        (flight / 2).max(window.least())
    }
}
