//! Polling driven by a clock: each clock interrupt lets a polling thread handle some commands (E-102).
//!
//! ```text
//! clock, every `period` --> interrupt --> polling thread: up to `quota` commands --> sleeps
//!         ^-- missed if the thread is not asleep yet
//! ```
//!
//! Source: Indiresan 1997, §7.2.2, "Timed Polling". "If the polling process executes for the entire period, it
//! misses the next interval": a clock interrupt is lost if the thread is still working.

use super::{Expired, Place, Policy, View};
use lastmeter_base::{Duration, Time};

/// Polls at clock interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    period: Duration,
    quota: u64,
    next: Time,
    awake: bool,
}

impl Timed {
    /// Up to `quota` commands every `period`, which must not be zero.
    pub fn new(period: Duration, quota: u64) -> Timed {
        assert!(!period.is_zero() && quota > 0, "period and quota are more than zero");
        Timed { period, quota, next: Time::START + period, awake: false }
    }
}

impl Policy for Timed {
    fn interrupt_at(&mut self, _now: Time, _view: &View) -> Option<Time> {
        None
    }
    fn proceed(&mut self, _now: Time, _view: &View, handled: u64) -> bool {
        handled < self.quota
    }
    fn finished(&mut self, _now: Time, _view: &View, _handled: u64) -> Option<Place> {
        self.awake = false;
        None
    }
    fn timer(&self) -> Option<Time> {
        Some(self.next)
    }
    fn expired(&mut self, _now: Time, _view: &View) -> Expired {
        self.next += self.period;
        match std::mem::replace(&mut self.awake, true) {
            true => Expired::Clock,
            false => Expired::ClockThen(Place::Thread),
        }
    }
}
