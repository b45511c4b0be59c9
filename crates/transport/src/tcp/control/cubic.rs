//! CUBIC: the window follows a cubic function of the time since the last reduction, so that it
//! grows at the same rate whatever the round-trip time.
//!
//! ```text
//! W_cubic(t) = C (t - K)^3 + W_max,   K = cbrt((W_max - cwnd_epoch) / C)        (equations 1, 2)
//! W_est grows by alpha segments acked / cwnd,  alpha = 3 (1 - beta) / (1 + beta)  (equation 4)
//! ```
//!
//! Source: RFC 9438 §4, names as there; windows in segments within this file.

use super::{Acknowledged, Window};
use lastmeter_base::Time;

/// `C`, in segments per second cubed (RFC 9438 §5.1): how fast it grows far from `W_max`.
pub(crate) const C: f64 = 0.4;
/// `beta_cubic` (RFC 9438 §4.6): the factor on a loss.
pub(crate) const BETA: f64 = 0.7;

/// The state of CUBIC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cubic {
    /// `W_max`: the window before the last reduction, in segments.
    pub window_max: f64,
    /// `t_epoch`; `None` until congestion avoidance begins.
    pub epoch: Option<Time>,
    /// `cwnd_epoch`: the window when the epoch began.
    window_epoch: f64,
    /// `cwnd_prior`: the window when `ssthresh` was last set.
    window_prior: f64,
    /// `W_est`: Reno's window.
    estimate: f64,
    /// `K`, in seconds.
    k: f64,
    /// Fraction of a byte by which the window has grown.
    rest: f64,
}

impl Cubic {
    /// `K` of equation 2, in seconds.
    pub fn k(window_max: f64, window_epoch: f64) -> f64 {
        ((window_max - window_epoch).max(0.0) / C).cbrt()
    }
    /// `W_cubic` of equation 1, in segments, `t` seconds after the epoch began.
    pub fn window(t: f64, k: f64, window_max: f64) -> f64 {
        C * (t - k).powi(3) + window_max
    }

    /// The window grows.
    pub fn acknowledged(&mut self, window: &mut Window, acked: Acknowledged<'_>) {
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            bytes = window.slow_start(bytes, acked.config.growth_max);
            if window.in_slow_start() {
                return;
            }
        }
        let mss = window.mss as f64;
        let congestion = window.congestion as f64 / mss;
        let epoch = *self.epoch.get_or_insert_with(|| {
            // After slow start alone there is no W_max yet: the curve starts here (§4.8).
            self.window_max = self.window_max.max(congestion);
            self.window_epoch = congestion;
            self.estimate = congestion;
            self.k = Cubic::k(self.window_max, congestion);
            acked.now
        });
        let segments = bytes as f64 / mss;
        let alpha = match acked.config.catches_up && self.estimate >= self.window_prior {
            true => 1.0,
            false => 3.0 * (1.0 - BETA) / (1.0 + BETA),
        };
        self.estimate += alpha * segments / congestion;
        let t = acked.now.saturating_since(epoch).as_secs_f64();
        let growth = if Cubic::window(t, self.k, self.window_max) < self.estimate {
            // Where Reno would be faster (§4.3).
            (self.estimate - congestion).max(0.0)
        } else {
            let rtt = acked.rtt.smoothed.map_or(0.0, |rtt| rtt.as_secs_f64());
            let ahead = Cubic::window(t + rtt, self.k, self.window_max);
            let target = ahead.clamp(congestion, 1.5 * congestion);
            (target - congestion) / congestion * segments
        };
        let grown = growth * mss + self.rest;
        self.rest = grown.fract();
        window.congestion += grown as u64;
    }

    /// The new threshold after a loss (§4.6), with fast convergence (§4.7).
    pub fn lost(&mut self, _now: Time, window: &Window) -> u64 {
        let congestion = window.congestion as f64 / window.mss as f64;
        self.window_prior = congestion;
        self.window_max = match congestion < self.window_max {
            true => congestion * (1.0 + BETA) / 2.0,
            false => congestion,
        };
        self.epoch = None;
        ((window.congestion as f64 * BETA) as u64).max(window.least())
    }

    /// After a timeout (§4.8): as after a loss, and the curve starts with congestion avoidance.
    pub fn timed_out(&mut self, now: Time, window: &Window) -> u64 {
        self.lost(now, window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Config, Rtt};
    use lastmeter_base::Duration;

    #[test]
    fn beyond_the_window_before_a_loss_the_estimate_catches_up_or_does_not() {
        const MSS: u64 = 1000;
        // A loss at ten segments; then round trips of 10 ms, too short for the cubic function to grow.
        let after = |catches_up: bool, round_trips: u64| {
            let config = Config { catches_up, ..Config::modern() };
            let mut window = Window { congestion: 10 * MSS, threshold: MSS, mss: MSS };
            let (mut cubic, rtt) = (Cubic::default(), Rtt::new(&config));
            window.congestion = cubic.lost(Time::START, &window);
            for round_trip in 0..round_trips {
                let now = Time::START + Duration::from_ms(10 * round_trip);
                for _ in 0..window.congestion / MSS {
                    let acked = Acknowledged { now, bytes: MSS, rtt: &rtt, config: &config };
                    cubic.acknowledged(&mut window, acked);
                }
            }
            window.congestion
        };
        assert_eq!(after(true, 5), after(false, 5), "below it both grow by 0.53 a round trip");
        let (rfc, linux) = (after(true, 25), after(false, 25));
        assert!(rfc > 20 * MSS && linux > 16 * MSS && rfc > linux + 4 * MSS, "{rfc}, {linux}");
    }
}
