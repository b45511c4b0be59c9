//! Interrupt suspension: while the application finds packets when it polls, interrupts stay disabled (E-106).
//!
//! ```text
//! interrupt, then off --> softirq --> application --> looks itself --> found: off for `suspend`
//!                                                               nothing: off for `interval`, then on
//! ```
//!
//! The suspension ends when the application has not polled for `suspend`: a timer then starts a softirq, so that a
//! slow application still receives its packets.
//!
//! Source: Linux 6.13, `Documentation/networking/napi.rst`, "IRQ suspension"
//! (`irq-suspend-timeout`, with `napi_defer_hard_irqs` and `gro_flush_timeout`).

use super::{Expired, Place, Policy, View};
use lastmeter_base::{Duration, Time};

/// Parameters of suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Packets per poll.
    pub weight: u64,
    /// Longest time without a poll before the kernel polls again.
    pub suspend: Duration,
    /// From a poll that found nothing until interrupts are enabled again.
    pub interval: Duration,
}

impl Options {
    /// Values of the measurements that accompany the kernel's documentation.
    pub const LINUX: Options =
        Options { weight: 64, suspend: Duration::from_ms(20), interval: Duration::from_us(200) };
}

/// Interrupts suspended by an application that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspension {
    options: Options,
    /// Interrupts are disabled until then.
    off_until: Option<Time>,
}

impl Suspension {
    /// With interrupts enabled.
    pub fn new(options: Options) -> Suspension {
        Suspension { options, off_until: None }
    }
}

impl Policy for Suspension {
    fn interrupt_at(&mut self, now: Time, _view: &View) -> Option<Time> {
        match self.off_until {
            Some(_) => None,
            None => Some(now),
        }
    }
    fn interrupted(&mut self, _now: Time, _view: &View) -> Place {
        Place::Softirq
    }
    fn proceed(&mut self, _now: Time, _view: &View, handled: u64) -> bool {
        handled < self.options.weight
    }
    fn finished(&mut self, now: Time, _view: &View, handled: u64) -> Option<Place> {
        let off = if handled > 0 { self.options.suspend } else { self.options.interval };
        self.off_until = Some(now + off);
        None
    }
    fn timer(&self) -> Option<Time> {
        self.off_until
    }
    fn expired(&mut self, _now: Time, view: &View) -> Expired {
        self.off_until = None;
        match view.pending > 0 && !view.application_idle {
            true => Expired::ClockThen(Place::Softirq),
            false => Expired::Nothing,
        }
    }
    fn idle(&mut self, now: Time, view: &View) -> Option<Place> {
        self.off_until?;
        if view.pending > 0 {
            return Some(Place::Application);
        }
        // An empty poll: the suspension becomes a short deferral.
        let soon = now + self.options.interval;
        self.off_until = self.off_until.map(|at| at.min(soon));
        None
    }
}
