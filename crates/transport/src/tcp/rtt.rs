//! The sender's round-trip time estimate and retransmission timeout (RTO).
//!
//! Source: RFC 6298 §2, with the variables' names; times are exact, and the granularity `G` is a
//! parameter.

use super::Config;
use lastmeter_base::Duration;

/// Limit on doublings of the timer: 2^10 times any timer exceeds every maximum.
const BACKOFF_MAX: u8 = 10;

/// The RTO after a retransmitted SYN: 3 s (RFC 6298 §5.7).
const SYN_LOST: Duration = Duration::from_secs(3);

/// Smoothed round-trip time, its variation, and the resulting RTO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// `SRTT`; `None` before the first sample.
    pub smoothed: Option<Duration>,
    /// `RTTVAR`.
    pub variation: Duration,
    /// The shortest sample.
    pub least: Duration,
    timeout: Duration,
    backoff: u8,
}

impl Rtt {
    /// Before any sample.
    pub fn new(config: &Config) -> Rtt {
        Rtt {
            smoothed: None,
            variation: Duration::ZERO,
            least: Duration::MAX,
            timeout: config.timeout_initial,
            backoff: 0,
        }
    }

    /// Takes a sample `R` (RFC 6298 §2.2 and §2.3).
    pub fn sample(&mut self, config: &Config, sample: Duration) {
        self.least = self.least.min(sample);
        let smoothed = match self.smoothed {
            None => {
                self.variation = sample / 2;
                sample
            }
            Some(smoothed) => {
                let error = smoothed.max(sample) - smoothed.min(sample);
                self.variation = (self.variation * 3 + error) / 4;
                (smoothed * 7 + sample) / 8
            }
        };
        self.smoothed = Some(smoothed);
        let margin = config.granularity.max(self.variation * 4);
        self.timeout = (smoothed + margin).clamp(config.timeout_min, config.timeout_max);
        self.backoff = 0;
    }

    /// How long to wait now, doublings included.
    pub fn timeout(&self, config: &Config) -> Duration {
        match self.backoff {
            0 => self.timeout,
            backoff => (self.timeout * (1 << backoff)).min(config.timeout_max),
        }
    }

    /// The timer has expired (RFC 6298 §5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// Data transmission starts after a SYN was retransmitted (RFC 6298 §5.7).
    pub fn begin_again(&mut self, config: &Config) {
        self.timeout = self.timeout.max(SYN_LOST).min(config.timeout_max);
        self.backoff = 0;
    }

    /// Newly sent data was acknowledged: ends the backoff.
    pub fn forget_back_off(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_follows_the_equations_of_rfc_6298() {
        let config = Config { timeout_min: Duration::from_ms(1), ..Config::modern() };
        let mut rtt = Rtt::new(&config);
        assert_eq!(rtt.timeout(&config), Duration::from_secs(1), "(2.1)");
        rtt.sample(&config, Duration::from_ms(100));
        assert_eq!(rtt.timeout(&config), Duration::from_ms(300), "(2.2): R + 4 R/2");
        rtt.sample(&config, Duration::from_ms(180));
        // RTTVAR = 3/4 50 + 1/4 80 = 57.5; SRTT = 7/8 100 + 1/8 180 = 110.
        assert_eq!(rtt.timeout(&config), Duration::from_ms(340), "(2.3)");
        rtt.back_off();
        assert_eq!(rtt.timeout(&config), Duration::from_ms(680), "(5.5)");
        (0..20).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(&config), config.timeout_max);
    }

    #[test]
    fn a_timer_below_the_minimum_is_raised_to_it() {
        let config = Config::modern();
        let mut rtt = Rtt::new(&config);
        (0..100).for_each(|_| rtt.sample(&config, Duration::from_ms(10)));
        assert_eq!(rtt.timeout(&config), config.timeout_min, "(2.4)");
    }
}
