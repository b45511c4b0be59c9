//! DCTCP: the window is cut in proportion to the share of marked bytes.
//!
//! ```text
//! alpha = alpha (1 - g) + g M     once per window, M the share of marked bytes        (§3.3)
//! cwnd  = cwnd (1 - alpha / 2)    in a window with marks
//! ```
//!
//! Source: RFC 8257 §3.3; losses as in [`Reno`], §3.5. The receiver's part, which echoes each mark,
//! is the connection's.

use super::{Reno, Window};

/// `g`, the weight of the newest window (RFC 8257 §4.2).
pub(crate) const GAIN: f64 = 1.0 / 16.0;

/// The state of DCTCP.
#[derive(Clone, Debug, PartialEq)]
pub struct Dctcp {
    /// Its growth.
    pub reno: Reno,
    /// `DCTCP.Alpha`: the estimated share of marked bytes.
    pub alpha: f64,
    acked: u64,
    marked: u64,
    /// `DCTCP.WindowEnd`.
    window_end: u64,
}

impl Default for Dctcp {
    /// Alpha starts at 1 (§3.3 step 1), so that the first mark counts like a loss.
    fn default() -> Dctcp {
        Dctcp { reno: Reno::default(), alpha: 1.0, acked: 0, marked: 0, window_end: 0 }
    }
}

impl Dctcp {
    /// Counts acknowledged bytes; updates alpha at the end of a window (§3.3).
    pub fn observed(&mut self, una: u64, max: u64, bytes: u64, marked: bool) {
        self.acked += bytes;
        if marked {
            self.marked += bytes;
        }
        if una <= self.window_end {
            return;
        }
        if self.acked > 0 {
            let share = self.marked as f64 / self.acked as f64;
            self.alpha = self.alpha * (1.0 - GAIN) + GAIN * share;
        }
        (self.acked, self.marked, self.window_end) = (0, 0, max);
    }

    /// The new threshold after a window with marks.
    pub fn marked(&mut self, window: &Window) -> u64 {
        self.reno.bytes_acked = 0;
        let left = window.congestion as f64 * (1.0 - self.alpha / 2.0);
        (left as u64).max(window.least())
    }
}
