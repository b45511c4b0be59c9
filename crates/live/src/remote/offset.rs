//! How far another host's clock is from ours, and how sure that is.
//!
//! ```text
//! ours    --a-----------b-->      the other answers its time t somewhere between a and b:
//! theirs  ------t---------->      t - b <= theirs - ours <= t - a
//! ```
//!
//! Every exchange bounds the offset, however the path divides the round trip; the tightest bounds of all hold, which
//! are never looser than half the shortest round trip. Between two groups of exchanges the clocks may drift, so bounds
//! are only joined within one, and the drift is what the offset differs by.

use serde::{Deserialize, Serialize};

/// The other clock less ours, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offset {
    /// The middle of what is possible.
    pub seconds: f64,
    /// It is not further off than this, however the path divides the round trip.
    pub error: f64,
    /// The shortest exchange.
    pub round_trip: f64,
}

/// The other clock less ours before and after something.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// Of the monotonic clocks, before.
    pub before: Offset,
    /// After.
    pub after: Offset,
    /// Seconds between.
    pub apart: f64,
    /// Of the wall clocks, after.
    pub wall: Offset,
}

impl Clocks {
    /// The other clock less ours, on average.
    pub fn offset(&self) -> f64 {
        f64::midpoint(self.before.seconds, self.after.seconds)
    }

    /// How far that may be off at any time between, if the drift is steady.
    pub fn error(&self) -> f64 {
        let changed = (self.after.seconds - self.before.seconds).abs();
        self.before.error.max(self.after.error) + changed / 2.0
    }

    /// Seconds that the other clock gains each second, and how far that may be off.
    pub fn drift(&self) -> (f64, f64) {
        let apart = self.apart.max(f64::MIN_POSITIVE);
        let error = self.before.error + self.after.error;
        ((self.after.seconds - self.before.seconds) / apart, error / apart)
    }
}

/// An exchange: sent and answered on our clock, and the other's time between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exchange {
    pub(super) sent: f64,
    pub(super) theirs: f64,
    pub(super) answered: f64,
}

/// From exchanges close together; `None` without any, or where they contradict each other.
pub(super) fn of(exchanges: &[Exchange]) -> Option<Offset> {
    let low = exchanges.iter().map(|e| e.theirs - e.answered).fold(f64::MIN, f64::max);
    let high = exchanges.iter().map(|e| e.theirs - e.sent).fold(f64::MAX, f64::min);
    let round_trip = exchanges.iter().map(|e| e.answered - e.sent).fold(f64::MAX, f64::min);
    (!exchanges.is_empty() && low <= high).then(|| Offset {
        seconds: f64::midpoint(low, high),
        error: (high - low) / 2.0,
        round_trip,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the delays there and back, the true offset is within the error.
        #[test]
        fn the_true_offset_is_within_the_error(
            offset in -1e6..1e6_f64,
            delays in prop::collection::vec((1e-6..0.5_f64, 1e-6..0.5_f64), 1..20),
        ) {
            let mut at = 5.0;
            let exchanges: Vec<Exchange> = delays.iter().map(|(there, back)| {
                let sent = at;
                at += there + back;
                Exchange { sent, theirs: sent + there + offset, answered: at }
            }).collect();
            let found = of(&exchanges).unwrap();
            prop_assert!((found.seconds - offset).abs() <= found.error + 1e-9, "{found:?}");
            let shortest = delays.iter().map(|(there, back)| there + back).fold(f64::MAX, f64::min);
            prop_assert!(found.error <= shortest / 2.0 + 1e-9);
        }
    }

    #[test]
    fn drift_is_what_the_offset_gains_and_widens_the_error() {
        let offset = |seconds, error| Offset { seconds, error, round_trip: 2.0 * error };
        let (before, after) = (offset(100.0, 0.001), offset(100.004, 0.002));
        let clocks = Clocks { before, after, apart: 100.0, wall: after };
        assert!((clocks.offset() - 100.002).abs() < 1e-9);
        assert!((clocks.error() - 0.004).abs() < 1e-9);
        let (drift, error) = clocks.drift();
        assert!((drift - 40e-6).abs() < 1e-9 && (error - 30e-6).abs() < 1e-9);
    }

    #[test]
    fn a_clock_that_was_set_meanwhile_has_no_offset() {
        let exchange = |sent: f64, theirs: f64| Exchange { sent, theirs, answered: sent + 0.001 };
        assert!(of(&[exchange(1.0, 5.0), exchange(2.0, 9.0)]).is_none());
        assert!(of(&[]).is_none());
    }
}
