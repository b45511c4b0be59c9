//! What is measured of a stream, in a model or live: quality in bursts, how soon it is small enough, which bands
//! arrive.

use crate::stream::Options;
use lastmeter_base::{Bytes, Duration, Rate, Time};
use lastmeter_engine::ElementReport;
use lastmeter_wire::wave::BANDS;

/// A frame as a receiver showed it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shot {
    /// Its number.
    pub frame: u32,
    /// Its PSNR in dB.
    pub psnr: f64,
    /// The bands that came whole, as bits by priority.
    pub bands: u64,
}

/// From one time to another.
pub type Burst = (Duration, Duration);

/// What may wait for a moment: a period of the scaler's profile.
pub const ALLOWED: Duration = Duration::from_ms(50);
const STEP: Duration = Duration::from_ms(10);
/// Frames of a window of the histogram (Fig 8).
pub const WINDOW: usize = 8;
/// The names of the series that a receiver in a model reports: PSNR in thousandths of a dB, whole bands as bits.
pub const SERIES: [&str; 2] = ["psnr", "bands"];

/// Whether a frame begins within a burst.
pub fn in_burst(video: &Options, bursts: &[Burst], frame: u32) -> bool {
    let at = video.begins(frame);
    bursts.iter().any(|&(from, to)| from <= at && at < to)
}

/// The mean PSNR in dB of frames that begin within bursts; 0 if there are none.
pub fn psnr_in_bursts(video: &Options, bursts: &[Burst], shots: &[Shot]) -> f64 {
    let within = shots.iter().filter(|shot| in_burst(video, bursts, shot.frame));
    let (sum, count) = within.fold((0.0, 0.0), |(sum, count), shot| (sum + shot.psnr, count + 1.0));
    sum / f64::max(count, 1.0)
}

/// From the beginning of a burst until what passes, up to the end of the burst, is no more than `granted` and a
/// twentieth, give or take what that is in [`ALLOWED`]; in steps of 10 ms. `passed` is in order.
pub fn settled(passed: &[(Time, Bytes)], burst: Burst, granted: Rate) -> Duration {
    let rate = granted.as_bits() as f64 / 8.0;
    let fits = |from: Duration| {
        let (mut then, mut over) = (from, 0.0);
        passed.iter().all(|(at, len)| {
            let at = at.since_start();
            if !(from..burst.1).contains(&at) {
                return true;
            }
            let gone = (at - then).as_secs_f64() * rate * 1.05;
            (over, then) = (f64::max(over - gone, 0.0) + len.0 as f64, at);
            over <= rate * ALLOWED.as_secs_f64()
        })
    };
    let mut from = burst.0;
    while from < burst.1 && !fits(from) {
        from += STEP;
    }
    from - burst.0
}

/// The rate in bit/s at which a stream arrived from one time to another.
pub fn arrival_rate(arrived: &[(Time, Bytes)], from: Duration, to: Duration) -> f64 {
    let within = arrived.iter().filter(|(at, _)| (from..to).contains(&at.since_start()));
    let bytes: u64 = within.map(|(_, len)| len.0).sum();
    bytes as f64 * 8.0 / (to - from).as_secs_f64()
}

/// How many of 8 frames had each band whole, by window and priority (D-105).
pub fn histogram(shots: &[Shot]) -> Vec<[u8; BANDS]> {
    let window = |shots: &[Shot]| {
        let mut counts = [0; BANDS];
        for (band, count) in counts.iter_mut().enumerate() {
            *count = shots.iter().filter(|shot| shot.bands >> band & 1 == 1).count() as u8;
        }
        counts
    };
    shots.chunks_exact(WINDOW).map(window).collect()
}

/// What a receiver in a model showed of a stream that began with the run; nothing if the run was so long that its
/// series no longer tell one frame from the next.
pub fn shots(video: &Options, report: &ElementReport) -> Option<Vec<Shot>> {
    let of = |name: &str| report.series.iter().find(|series| series.0 == name);
    let ((.., psnr), (.., bands)) = (of(SERIES[0])?, of(SERIES[1])?);
    if psnr.width() > video.begins(1) {
        return None;
    }
    // A step is shorter than a frame, and the frame begins in it.
    let begun = |at: Time| at.since_start().as_secs_f64() * video.rate as f64 - 1e-9;
    let pairs = psnr.steps().zip(bands.steps());
    let shot = |((at, (psnr, _)), (_, (bands, _)))| Shot {
        frame: begun(at).ceil() as u32,
        psnr: psnr as f64 / 1000.0,
        bands,
    };
    Some(pairs.map(shot).collect())
}
