//! Where the time from one frame to the next goes, and so what limits the rate of receivers.
//!
//! ```text
//! wanted -> source -> cpu -> pacing -> network -> receiver -> timing -> wanted
//!           capture   convert, shape    network    decode,     it wants
//!                     policy,                      display     no more yet
//!                     encode
//! ```
//!
//! While nobody wants frames, no time is counted. In the closed loop these follow each other, so the largest part is
//! what to shorten first; the Aurora report names four of them for the Vidboard (§4.3): the camera, the host's timing,
//! the firmware that dithers, and the host that dithers.

use super::gate::STAGES;
use crate::account::Lap;
use lastmeter_ledger::{Confidence, Verdict};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What can limit, and what that means.
pub const LIMITS: [(&str, &str); 6] = [
    ("source", "frames come no faster from the source"),
    ("cpu", "the camera's CPU converts, decides and encodes"),
    ("pacing", "packets are spread as receivers ask"),
    ("network", "the network takes or carries packets no faster"),
    ("receiver", "receivers decode and show no faster"),
    ("timing", "receivers want no more frames"),
];
const TIMING: usize = LIMITS.len() - 1;
/// A lead over the next one by less than this leaves it open which one limits.
const LEAD: f64 = 0.1;

/// Sums of times, shared by all receivers.
#[derive(Debug, Default)]
pub struct Cycle {
    sums: [AtomicU64; LIMITS.len()],
}

impl Cycle {
    /// A frame with the times of its stages, and the time for which no other was wanted.
    pub fn add(&self, lap: &Lap, rest: Duration) {
        let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
        for ((_, resource), seconds) in STAGES.iter().zip(lap.seconds()) {
            if let Some(at) = LIMITS.iter().position(|(name, _)| name == resource) {
                self.sums[at].fetch_add(nanoseconds(seconds), Relaxed);
            }
        }
        self.sums[TIMING].fetch_add(nanoseconds(rest.as_secs_f64()), Relaxed);
    }
    /// The share of each, of the time of all frames.
    pub fn shares(&self) -> [f64; LIMITS.len()] {
        let sums = self.sums.each_ref().map(|sum| sum.load(Relaxed) as f64);
        let total: f64 = sums.iter().sum();
        sums.map(|sum| sum / total.max(1.0))
    }
    /// What limits the rate of receivers; nothing before the first frame.
    pub fn verdict(&self) -> Verdict {
        let shares = self.shares();
        let mut order: Vec<usize> = (0..LIMITS.len()).collect();
        order.sort_by(|one, other| shares[*other].total_cmp(&shares[*one]));
        let (first, next) = (order[0], order[1]);
        let (share, lead) = (shares[first], shares[first] - shares[next]);
        if share == 0.0 {
            return Verdict {
                resource: None,
                utilisation: None,
                confidence: Confidence::Low,
                runner_up: None,
                words: "nobody has asked for a frame".to_owned(),
            };
        }
        let ((name, meaning), (runner_up, _)) = (LIMITS[first], LIMITS[next]);
        let words = format!(
            "{name} sets the rate of frames: {meaning}; {:.0} % of the time from one frame to the \
             next, then {runner_up} {:.0} %",
            share * 100.0,
            shares[next] * 100.0,
        );
        Verdict {
            resource: Some(name.to_owned()),
            utilisation: Some(share),
            confidence: if lead < LEAD { Confidence::Low } else { Confidence::High },
            runner_up: Some(runner_up.to_owned()),
            words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::camera::gate::stage;

    fn verdict(times: &[(usize, u64)], rest: u64) -> Verdict {
        let (account, cycle) = (Account::new("camera", &STAGES, 1), Cycle::default());
        let mut lap = account.begin();
        times.iter().for_each(|(stage, ms)| lap.add(*stage, Duration::from_millis(*ms)));
        cycle.add(&lap, Duration::from_millis(rest));
        cycle.verdict()
    }

    #[test]
    fn a_106_each_of_the_four_bottlenecks_is_named() {
        let named = |times: &[(usize, u64)], rest| verdict(times, rest).resource;
        let host = (stage::DECODE, 5);
        // A camera of 30 frames/s; a host that asks at its own time; firmware that dithers; a host that dithers.
        assert_eq!(named(&[(stage::CAPTURE, 20), host], 2).as_deref(), Some("source"));
        assert_eq!(named(&[(stage::CAPTURE, 2), host], 50).as_deref(), Some("timing"));
        assert_eq!(named(&[(stage::ENCODE, 60), host], 2).as_deref(), Some("cpu"));
        assert_eq!(named(&[(stage::DISPLAY, 40), host], 2).as_deref(), Some("receiver"));
        assert_eq!(named(&[(stage::SHAPE, 40), host], 2).as_deref(), Some("pacing"));
    }

    #[test]
    fn a_close_call_is_told_and_so_is_silence() {
        let close = verdict(&[(stage::CAPTURE, 50), (stage::DECODE, 48)], 0);
        assert_eq!(
            (close.confidence, close.runner_up.as_deref()),
            (Confidence::Low, Some("receiver"))
        );
        assert_eq!(Cycle::default().verdict().resource, None);
    }
}
