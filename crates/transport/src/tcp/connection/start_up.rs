//! Hoe's estimate of a path's bandwidth-delay product, from the spacing of the first acknowledgements.
//!
//! Acknowledgements of back-to-back segments are spaced by the bottleneck's service time. The capacity is
//! the median of the slopes between neighbouring acknowledgements; times the first round-trip time it is
//! the threshold at which slow start ends.
//!
//! Source: Hoe, Start-up Dynamics of TCP's Congestion Control and Avoidance Schemes, MIT 1995, and
//! SIGCOMM 1996 §3.3, which uses a least-squares fit over the last acknowledgements. Deviation: the
//! median, because one delayed acknowledgement distorts a fit.

use super::hystart::HyStart;
use crate::tcp::Config;
use lastmeter_base::Time;

/// Acknowledgements required for an estimate: three slopes.
const ACKS: usize = 4;

/// What watches the first slow start of a connection.
#[derive(Clone, Debug)]
pub(super) enum StartUp {
    Capacity(Capacity),
    HyStart(HyStart),
}

impl StartUp {
    pub(super) fn of(config: &Config) -> Option<StartUp> {
        match (config.hystart, config.estimates_start) {
            (true, _) => Some(StartUp::HyStart(HyStart::default())),
            (false, true) => Some(StartUp::Capacity(Capacity::default())),
            (false, false) => None,
        }
    }
}

/// The first acknowledgements of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Capacity {
    /// The time of each, and the position it acknowledged.
    seen: Vec<(Time, u64)>,
}

impl Capacity {
    /// Takes an acknowledgement of more than one byte up to `position`; returns the capacity in bytes per
    /// second once there are enough.
    pub(super) fn acknowledged(&mut self, now: Time, position: u64) -> Option<f64> {
        self.seen.push((now, position));
        if self.seen.len() < ACKS {
            return None;
        }
        let mut slopes: Vec<f64> = self
            .seen
            .windows(2)
            .filter_map(|pair| {
                let gap = pair[1].0.saturating_since(pair[0].0).as_secs_f64();
                (gap > 0.0).then(|| (pair[1].1 - pair[0].1) as f64 / gap)
            })
            .collect();
        slopes.sort_by(f64::total_cmp);
        slopes.get(slopes.len() / 2).copied()
    }
}
