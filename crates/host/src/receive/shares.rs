//! Backoff with exact shares: an interface waits while it is ahead of its reservation (E-125).
//!
//! ```text
//! overloaded, ahead of the others by x --> next interrupt in x, at most `period_max`
//! overloaded, ahead of nobody          --> next interrupt in `period_min`
//! otherwise                            --> at once
//! ```
//!
//! It addresses what Indiresan (1997, §7.4.4) left open about adaptive backoff: the shares depend on the restore
//! factor, and an interface that has not yet backed off takes capacity from one that has. Here there is no restore
//! factor. The host is overloaded when the packets waiting for the application, from all interfaces, fill three
//! quarters of one interface's buffers. So the interface that is ahead waits even if its own buffers are not full,
//! and one that is behind never waits. The host keeps one number per interface: packets received divided by its
//! reservation, as in fair queueing by virtual time.

use super::{Place, Policy, View};
use lastmeter_base::{Duration, Time};

/// Interrupts that enforce shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    period_min: Duration,
    period_max: Duration,
    quota: u64,
    last: Time,
    wait: Duration,
}

impl Shares {
    /// Up to `quota` commands per interrupt. Under overload, the time between interrupts is at least `period_min`
    /// and at most `period_max`.
    pub fn new(period_min: Duration, period_max: Duration, quota: u64) -> Shares {
        Shares { period_min, period_max, quota, last: Time::START, wait: Duration::ZERO }
    }
}

/// Overload threshold for packets that wait for the application, as a share of the buffers of one interface: the
/// same as in adaptive backoff (§7.2.3).
const BACKLOG_MAX: (u64, u64) = (3, 4);

fn overloaded(view: &View) -> bool {
    view.backlog * BACKLOG_MAX.1 > view.buffers * BACKLOG_MAX.0
}

impl Policy for Shares {
    fn interrupt_at(&mut self, now: Time, _view: &View) -> Option<Time> {
        Some((self.last + self.wait).max(now))
    }
    fn interrupted(&mut self, now: Time, _view: &View) -> Place {
        self.last = now;
        Place::Interrupt
    }
    fn proceed(&mut self, _now: Time, view: &View, handled: u64) -> bool {
        handled == 0 || handled < self.quota && view.buffers_free > 0
    }
    fn finished(&mut self, _now: Time, view: &View, _handled: u64) -> Option<Place> {
        self.wait = match overloaded(view) {
            true => view.ahead.max(self.period_min).min(self.period_max),
            false => Duration::ZERO,
        };
        None
    }
}
