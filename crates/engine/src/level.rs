//! A whole number over time: how long it had which value.

use crate::Distribution;
use lastmeter_base::{Duration, Time};

/// A quantity such as the length of a queue, and for how long it had each value. Quantiles up to 63 are exact.
///
/// ```
/// use lastmeter_base::{Duration, Time};
/// use lastmeter_engine::Level;
/// let at = |us| Time::START + Duration::from_us(us);
/// let mut length = Level::default();
/// length.set(at(30), 2);
/// length.set(at(40), 0);
/// let lasted = length.until(at(100));
/// assert_eq!(lasted.percentile(0.95).as_ps(), 2);
/// assert_eq!(lasted.sum() as f64 / lasted.count() as f64, 0.2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Level {
    value: u64,
    since: Time,
    /// Values, each as often as it lasted picoseconds.
    lasted: Distribution,
}

impl Level {
    /// From `now` on it is `value`.
    #[inline]
    pub fn set(&mut self, now: Time, value: u64) {
        self.settle(now);
        self.value = value;
    }

    /// The values until `now`, each counted once for each picosecond that it lasted.
    pub fn until(&self, now: Time) -> Distribution {
        let mut level = self.clone();
        level.settle(now);
        level.lasted
    }

    #[inline]
    fn settle(&mut self, now: Time) {
        let lasted = now.saturating_since(self.since).as_ps();
        self.lasted.record_many(Duration::from_ps(self.value), lasted);
        self.since = now.max(self.since);
    }
}
