//! Hoe's estimate of what a path holds, from the spacing of the first acknowledgements.
//!
//! Acknowledgements of segments that were sent back to back come as far apart as the bottleneck
//! needs for them. The capacity is the median of the slopes between neighbouring acknowledgements;
//! times the first round-trip time it is the threshold at which slow start ends.
//!
//! Source: Hoe, Start-up Dynamics of TCP's Congestion Control and Avoidance Schemes, MIT 1995, and
//! SIGCOMM 1996 §3.3, which takes a least-squares fit over the last acknowledgements. Deviation: the
//! median, because one delayed acknowledgement moves a fit.

use lastmeter_base::Time;

/// Acknowledgements that an estimate needs: three slopes.
const ACKS: usize = 4;

/// The first acknowledgements of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct StartUp {
    /// When each came, and what it acknowledged.
    seen: Vec<(Time, u64)>,
}

impl StartUp {
    /// Takes an acknowledgement of more than one byte up to `position`; gives the capacity in bytes
    /// per second when enough are there.
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
