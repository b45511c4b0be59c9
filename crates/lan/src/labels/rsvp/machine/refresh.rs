//! What a router does with time: refreshes that are due, and what was not refreshed.

use super::{Ground, Key, LIFETIME, Machine, Path, REFRESH, REFRESH_MAX, REFRESH_MIN};
use lastmeter_base::{Duration, Time};

impl Machine {
    /// Refreshes what is due, and ends what was not refreshed.
    pub fn advance(&mut self, now: Time, ground: &mut dyn Ground) {
        let keys: Vec<Key> = self.paths.keys().copied().collect();
        for key in keys {
            let Some(path) = self.paths.get(&key) else { continue };
            if path.until.is_some_and(|until| until <= now) {
                self.counts.expired += 1;
                self.remove(key, "its path was not refreshed", ground);
                continue;
            }
            if path.told.is_some_and(|told| told.until <= now) {
                self.counts.expired += 1;
                self.unreserve(key, "its reservation was not refreshed", ground);
            }
            let Some(path) = self.paths.get(&key) else { continue };
            let (path_due, resv_due) = (path.path_at <= now, path.resv_at <= now && path.admitted);
            if path_due && !path.ends_here() {
                self.onward(now, key, ground);
            }
            if resv_due {
                self.back(now, key, ground);
            }
        }
    }

    /// When [`Machine::advance`] has something to do, if no message comes before.
    pub fn due(&self) -> Option<Time> {
        let of = |path: &Path| {
            let onward = (!path.ends_here()).then_some(path.path_at);
            let back = path.admitted.then_some(path.resv_at);
            let told = path.told.map(|told| told.until);
            [path.until, told, onward, back].into_iter().flatten().min()
        };
        self.paths.values().filter_map(of).min()
    }

    /// Until when something holds that is refreshed with this period.
    pub(super) fn until(now: Time, refresh: Option<u32>) -> Time {
        let refresh = refresh.unwrap_or(REFRESH).clamp(REFRESH_MIN, REFRESH_MAX);
        now + Duration::from_ms(refresh.into()).scale_ceil(LIFETIME.0, LIFETIME.1)
    }
    /// When to refresh next.
    pub(super) fn later(&mut self, now: Time) -> Time {
        let ps = self.refresh.as_ps();
        now + Duration::from_ps(ps / 2 + self.random.below(ps))
    }
    pub(super) fn refresh_ms(&self) -> u32 {
        u32::try_from(self.refresh.as_ps() / 1_000_000_000).unwrap_or(REFRESH_MAX)
    }
}
