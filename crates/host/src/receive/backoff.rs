//! Adaptive backoff: the adapter interrupts less often while the host signals overload (E-104).
//!
//! | state            | host signals overload          | host signals low load             |
//! |------------------|--------------------------------|-----------------------------------|
//! | normal, period 0 | period = `period_min`          | -                                 |
//! | backed off       | period x `factor`, at most max | period x `restore`; normal if less than min |
//!
//! The host signals overload when fewer than a quarter of the interface's buffers are free, and leaves the
//! interrupt handler at once; otherwise it signals low load when it leaves. There is one signal per interrupt; the
//! document does not say how often it signals.
//!
//! Source: Indiresan 1997, §7.2.3 and §7.4.2 (`CTRL_BACKOFF_ENABLE`).

use super::{Place, Policy, View};
use lastmeter_base::{Duration, Time};

/// The parameters of `CTRL_BACKOFF_ENABLE`, and the quota per interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// `I_min`: the first and shortest period.
    pub period_min: Duration,
    /// `I_max`: the longest period.
    pub period_max: Duration,
    /// `b`, more than 1, as numerator and denominator.
    pub factor: (u64, u64),
    /// `r`, less than 1, as numerator and denominator.
    pub restore: (u64, u64),
    /// `Q`: most commands per interrupt.
    pub quota: u64,
}

/// The share of the buffers that must be free: a quarter (§7.2.3, "chosen empirically").
pub const FREE_MIN: (u64, u64) = (1, 4);

/// Interrupts that become less frequent under overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    parameters: Parameters,
    period: Duration,
    last: Option<Time>,
}

impl Backoff {
    /// In normal mode. Panics if a factor is on the wrong side of 1, or `period_min` is zero.
    pub fn new(parameters: Parameters) -> Backoff {
        let Parameters { factor, restore, period_min, .. } = parameters;
        assert!(
            factor.0 > factor.1 && restore.0 < restore.1,
            "the period must be able to grow and to shrink"
        );
        assert!(!period_min.is_zero(), "a period of zero does not grow");
        Backoff { parameters, period: Duration::ZERO, last: None }
    }

    /// The period: zero in normal mode.
    ///
    /// ```
    /// use lastmeter_base::Duration;
    /// use lastmeter_host::receive::backoff::{Backoff, Parameters};
    /// let mut adapter = Backoff::new(Parameters {
    ///     period_min: Duration::from_ms(1),
    ///     period_max: Duration::from_ms(20),
    ///     factor: (3, 2),
    ///     restore: (4, 5),
    ///     quota: 12,
    /// });
    /// adapter.indicate(true);
    /// adapter.indicate(true);
    /// assert_eq!(adapter.period(), Duration::from_us(1_500));
    /// adapter.indicate(false);
    /// adapter.indicate(false);
    /// assert_eq!(adapter.period(), Duration::ZERO); // 0.96 ms is less than `period_min`.
    /// ```
    pub fn period(&self) -> Duration {
        self.period
    }

    /// The host signals overload, or low load.
    pub fn indicate(&mut self, overload: bool) {
        let Parameters { period_min, period_max, factor, restore, .. } = self.parameters;
        self.period = match overload {
            true if self.period.is_zero() => period_min,
            true => self.period.scale_ceil(factor.0, factor.1).min(period_max),
            false => self.period.scale_ceil(restore.0, restore.1),
        };
        if self.period < period_min {
            self.period = Duration::ZERO;
        }
    }
}

/// Whether so few buffers are free that the host is overloaded.
pub(super) fn overloaded(view: &View) -> bool {
    view.buffers_free * FREE_MIN.1 < view.buffers * FREE_MIN.0
}

impl Policy for Backoff {
    fn interrupt_at(&mut self, now: Time, _view: &View) -> Option<Time> {
        let due = self.last.map_or(now, |last| last + self.period);
        Some(due.max(now))
    }
    fn interrupted(&mut self, now: Time, _view: &View) -> Place {
        self.last = Some(now);
        Place::Interrupt
    }
    fn proceed(&mut self, _now: Time, view: &View, handled: u64) -> bool {
        handled < self.parameters.quota && (handled == 0 || !overloaded(view))
    }
    fn finished(&mut self, _now: Time, view: &View, _handled: u64) -> Option<Place> {
        self.indicate(overloaded(view));
        None
    }
}
