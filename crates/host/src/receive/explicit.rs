//! Explicit interrupt management: the host disables and enables the adapter's interrupts (E-103).
//!
//! ```text
//! first command --> interrupt, then off --> up to `quota` commands --> the application
//!                     on again: `interval` later, or when the host is idle, whichever comes first
//! ```
//!
//! Source: Indiresan 1997, §7.2.2, "Explicit Interrupt Management" (`CTRL_HOST_INTR_CTRL_ON`).

use super::{Policy, View};
use lastmeter_base::{Duration, Time};

/// Interrupts that the host disables and enables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explicit {
    quota: u64,
    interval: Duration,
    /// When they are enabled again; `None` while a batch is being handled.
    on_at: Option<Time>,
}

impl Explicit {
    /// Up to `quota` commands per interrupt; interrupts are disabled for at most `interval` after them.
    pub fn new(quota: u64, interval: Duration) -> Explicit {
        Explicit { quota, interval, on_at: Some(Time::START) }
    }
}

impl Policy for Explicit {
    fn interrupt_at(&mut self, now: Time, _view: &View) -> Option<Time> {
        self.on_at.map(|at| at.max(now))
    }
    fn proceed(&mut self, _now: Time, _view: &View, handled: u64) -> bool {
        self.on_at = None;
        handled < self.quota
    }
    fn finished(&mut self, now: Time, _view: &View, _handled: u64) -> Option<super::Place> {
        self.on_at = Some(now + self.interval);
        None
    }
    fn idle(&mut self, now: Time, _view: &View) -> Option<super::Place> {
        self.on_at = self.on_at.map(|at| at.min(now));
        None
    }
}
