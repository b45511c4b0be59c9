//! Work of a known length, and a second program that counts what it gets done.

use super::WARM;
use lastmeter_linux::Result;
use lastmeter_linux::clock::nanoseconds;
use lastmeter_linux::cores;
use std::hint::black_box;
use std::time::Duration;

/// Niceness of the second program where others are busy, and where not.
const FIRST: i32 = -8;
const LAST: i32 = 19;
/// Steps between two looks at the clock.
const STEPS: u64 = 2000;

/// Work that takes a known time where nothing interrupts it: steps are counted, not time, so that time taken away is
/// not taken for work done.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    steps: u64,
}

fn run(steps: u64, mut state: u64) -> u64 {
    for _ in 0..steps {
        // Xorshift, 64 bits (Marsaglia, Journal of Statistical Software 8(14), 2003, page 4).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

impl Work {
    /// Work of this length: the best of many trials says how many steps that is.
    pub fn lasting(length: Duration) -> Work {
        let mut best = u64::MAX;
        for _ in 0..200 {
            let from = nanoseconds();
            black_box(run(STEPS, black_box(1)));
            best = best.min((nanoseconds() - from).max(1));
        }
        Work { steps: length.as_nanos() as u64 * STEPS / best }
    }

    /// Does it once.
    #[inline]
    pub fn act(self) {
        black_box(run(self.steps, black_box(1)));
    }
}

/// Counts steps a second on `core`, at a far lower priority than the receiver; `first`, at a higher one than others.
pub(crate) fn compete(core: usize, after: Duration, lasts: Duration, first: bool) -> Result<f64> {
    cores::pin(Some(core))?;
    // It is to get only what the receiver leaves.
    let nice = if first { FIRST } else { LAST };
    let _ = rustix::process::setpriority_process(None, nice);
    let _ = std::fs::write("/proc/self/autogroup", nice.to_string());
    let from = nanoseconds() + after.as_nanos() as u64;
    let to = from + lasts.as_nanos() as u64;
    let mut rounds = 0u64;
    loop {
        black_box(run(STEPS, black_box(1)));
        let now = nanoseconds();
        if now >= to {
            return Ok((rounds * STEPS) as f64 / lasts.as_secs_f64());
        }
        rounds += u64::from(now >= from);
    }
}

/// The window in which things count, from now on.
pub(super) fn window(lasts: Duration) -> (u64, u64) {
    let from = nanoseconds() + WARM.as_nanos() as u64;
    (from, from + lasts.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_work_is_twice_the_steps() {
        let work = Work { steps: 10 * STEPS };
        let time = |work: Work| {
            let from = nanoseconds();
            work.act();
            nanoseconds() - from
        };
        let best = |work| (0..50).map(|_| time(work)).min().unwrap_or(0).max(1);
        let ratio = best(Work { steps: 20 * STEPS }) as f64 / best(work) as f64;
        assert!((1.5..2.6).contains(&ratio), "{ratio}");
    }
}
