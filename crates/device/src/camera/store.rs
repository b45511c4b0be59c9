//! The newest frame of a source. It is captured only while somebody waits for it, unless the source cannot stop.
//!
//! Rows: A-47.

use super::frame::Frame;
use super::source::Source;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

#[derive(Default)]
struct State {
    newest: Option<Arc<Frame>>,
    waiting: usize,
    captured: u64,
    /// Why there will be no more.
    ended: Option<String>,
}

/// Shared by the thread that captures and those that send.
pub struct Store {
    state: Mutex<State>,
    changed: Condvar,
    /// Time from one frame to the next.
    pub interval: Duration,
}

/// When the next frame is captured: an interval after the last one, or at once if that is over. So whoever asks after a
/// pause does not wait.
struct Ticks {
    interval: Duration,
    last: Instant,
    number: u32,
}

impl Ticks {
    fn new(now: Instant, interval: Duration) -> Ticks {
        Ticks { interval, last: now.checked_sub(interval).unwrap_or(now), number: 0 }
    }
    fn due(&self, now: Instant) -> Instant {
        let next = self.last + self.interval;
        // A thread that wakes late keeps its step.
        if now > next + self.interval { now } else { next }
    }
    /// The number of the frame that is captured then: those that nobody asked for count, too.
    fn take(&mut self, at: Instant) -> u32 {
        let since = at.saturating_duration_since(self.last).as_secs_f64();
        let steps = (since / self.interval.as_secs_f64().max(1e-9)).round().clamp(1.0, 1e9);
        (self.last, self.number) = (at, self.number.wrapping_add(steps as u32));
        self.number
    }
}

/// Microseconds since 1970.
pub fn clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Store {
    /// Captures on a thread of its own, which ends with the store.
    pub fn start(source: Box<dyn Source>, interval: Duration) -> Arc<Store> {
        let store = Arc::new(Store { state: Mutex::default(), changed: Condvar::new(), interval });
        let weak = Arc::downgrade(&store);
        std::thread::spawn(move || {
            let mut source = source;
            let mut ticks = Ticks::new(Instant::now(), interval);
            while let Some(store) = weak.upgrade() {
                if !store.step(&mut *source, &mut ticks) {
                    return;
                }
            }
        });
        store
    }
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Captures a frame if one is wanted; false if there are no more.
    fn step(&self, source: &mut dyn Source, ticks: &mut Ticks) -> bool {
        const LOOK: Duration = Duration::from_millis(200);
        {
            let state = self.lock();
            if state.waiting == 0 && !source.is_live() {
                // Wakes now and then to see whether the store is still there.
                let waited = self.changed.wait_timeout(state, LOOK);
                let state = waited.unwrap_or_else(PoisonError::into_inner).0;
                if state.waiting == 0 {
                    return true;
                }
            }
        }
        let mut number = 0;
        if !source.is_live() {
            let due = ticks.due(Instant::now());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // Whoever waited may have had the frame before this one.
            if self.lock().waiting == 0 {
                return true;
            }
            number = ticks.take(due);
        }
        let (mut at, mut clock) = (Instant::now(), clock());
        let pixels = source.capture(number, clock);
        if source.is_live() {
            // It was waited for: its time is that of its arrival.
            (at, clock) = (Instant::now(), self::clock());
            number = ticks.take(at);
        }
        let mut state = self.lock();
        let good = match pixels {
            Ok(pixels) => {
                state.newest = Some(Arc::new(Frame { number, clock, began: at, pixels }));
                state.captured += 1;
                true
            }
            Err(why) => {
                state.ended = Some(why);
                false
            }
        };
        self.changed.notify_all();
        good
    }
    /// The first frame after number `after` that is not older than a frame's interval; `None` if there is none in time.
    ///
    /// # Errors
    /// If the source has ended.
    pub fn next(
        &self,
        after: Option<u32>,
        patience: Duration,
    ) -> Result<Option<Arc<Frame>>, String> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        let oldest = Instant::now().checked_sub(self.interval);
        state.waiting += 1;
        let found = loop {
            let fits = |frame: &&Arc<Frame>| {
                after != Some(frame.number) && oldest.is_none_or(|oldest| frame.began >= oldest)
            };
            if let Some(frame) = state.newest.as_ref().filter(fits) {
                break Ok(Some(frame.clone()));
            }
            if let Some(why) = &state.ended {
                break Err(why.clone());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Ok(None);
            }
            self.changed.notify_all();
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting -= 1;
        found
    }
    /// Frames captured since it began.
    pub fn captured(&self) -> u64 {
        self.lock().captured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_step_and_one_after_a_pause_is_captured_at_once() {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let mut ticks = Ticks::new(began, ms(40));
        assert_eq!((ticks.due(began), ticks.take(began)), (began, 1));
        // Woken 15 ms late, it keeps its step.
        let due = ticks.due(began + ms(55));
        assert_eq!((due, ticks.take(due)), (began + ms(40), 2));
        let asked = began + ms(1000);
        assert_eq!((ticks.due(asked), ticks.take(asked)), (asked, 26));
        assert_eq!(ticks.due(asked + ms(1)), asked + ms(40));
    }
}
