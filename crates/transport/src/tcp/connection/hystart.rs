//! HyStart++: the first slow start ends when round-trip times rise, before a queue overflows.
//!
//! After a rise the window grows at a quarter of the rate for five rounds (conservative slow start); if
//! round-trip times fall below those of the rise, slow start resumes.
//!
//! Source: RFC 9406 §4.2 and §4.3, names as there. It is for the first slow start only.

use crate::tcp::control::Window;
use lastmeter_base::Duration;

/// `MIN_RTT_THRESH` and `MAX_RTT_THRESH`.
const RISE: (Duration, Duration) = (Duration::from_ms(4), Duration::from_ms(16));
/// `MIN_RTT_DIVISOR`: the rise that counts, as a fraction of the round-trip time.
const RISE_PART: u64 = 8;
/// `N_RTT_SAMPLE`: samples of a round before it is judged.
const SAMPLES: u32 = 8;
/// `CSS_GROWTH_DIVISOR`.
const SLOWER: u64 = 4;
/// `CSS_ROUNDS`.
const ROUNDS: u32 = 5;

/// The state of a connection's first slow start.
#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    /// `windowEnd`: the round ends when this is acknowledged.
    round_end: u64,
    /// `lastRoundMinRTT`; `None` for infinity.
    last: Option<Duration>,
    /// `currentRoundMinRTT`.
    current: Option<Duration>,
    /// `rttSampleCount`.
    samples: u32,
    conservative: Option<Conservative>,
}

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// `cssBaselineMinRtt`.
    baseline: Duration,
    /// Those that have ended, with the partial one in which it began.
    rounds: u32,
}

impl HyStart {
    /// Takes a round-trip time.
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.current = Some(self.current.map_or(rtt, |least| least.min(rtt)));
        self.samples += 1;
    }

    /// `bytes` up to `una` of `max` sent are acknowledged: returns by how many the window may grow, and sets its
    /// threshold when slow start is over.
    pub(super) fn acknowledged(
        &mut self,
        una: u64,
        max: u64,
        bytes: u64,
        window: &mut Window,
    ) -> u64 {
        self.judge();
        if una > self.round_end {
            self.round_end = max;
            (self.last, self.current, self.samples) = (self.current, None, 0);
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds >= ROUNDS {
                    window.threshold = window.congestion;
                }
            }
        }
        if self.conservative.is_some() { bytes / SLOWER } else { bytes }
    }

    fn judge(&mut self) {
        let (Some(current), Some(last)) = (self.current, self.last) else { return };
        if self.samples < SAMPLES {
            return;
        }
        match self.conservative {
            Some(Conservative { baseline, .. }) if current < baseline => self.conservative = None,
            Some(_) => {}
            None if current >= last + (last / RISE_PART).clamp(RISE.0, RISE.1) => {
                self.conservative = Some(Conservative { baseline: current, rounds: 0 });
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    /// Rounds of ten segments with these round-trip times in ms: how much each acknowledged segment adds.
    fn growths(rounds: &[u64]) -> (Vec<u64>, Window) {
        let mut window = Window { congestion: 10 * MSS, threshold: u64::MAX, mss: MSS };
        let mut hystart = HyStart::default();
        let mut una = 0;
        let growths = rounds.iter().map(|&rtt| {
            let mut growth = 0;
            for _ in 0..10 {
                una += MSS;
                hystart.sample(Duration::from_ms(rtt));
                growth = hystart.acknowledged(una, una + 10 * MSS - 1, MSS, &mut window);
            }
            growth
        });
        (growths.collect(), window)
    }

    #[test]
    fn a_rise_by_an_eighth_slows_the_growth_and_five_rounds_later_ends_it() {
        let (growths, window) = growths(&[40, 44, 50, 50, 50, 50, 50, 50]);
        // 44 ms is less than 40 + 5; 50 is at least 44 + 5.5.
        assert_eq!(growths[..2], [MSS, MSS]);
        assert!(growths[2..].iter().all(|&growth| growth == MSS / 4), "{growths:?}");
        assert_eq!(window.threshold, window.congestion);
    }

    #[test]
    fn a_rise_that_passes_is_forgotten() {
        let (growths, window) = growths(&[40, 50, 40, 40, 40, 40, 40, 40]);
        assert_eq!((growths[1], growths[3]), (MSS / 4, MSS));
        assert_eq!(window.threshold, u64::MAX);
    }

    #[test]
    fn the_rise_is_at_least_4_and_at_most_16_ms() {
        assert_eq!(growths(&[2, 5]).0[1], MSS);
        assert_eq!(growths(&[2, 6]).0[1], MSS / 4);
        assert_eq!(growths(&[400, 415]).0[1], MSS);
        assert_eq!(growths(&[400, 416]).0[1], MSS / 4);
    }
}
