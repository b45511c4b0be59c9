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
            let began = Instant::now();
            while let Some(store) = weak.upgrade() {
                if !store.step(&mut *source, began) {
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
    fn step(&self, source: &mut dyn Source, began: Instant) -> bool {
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
        let interval = self.interval.as_nanos().max(1);
        let mut number = began.elapsed().as_nanos() / interval + 1;
        if !source.is_live() {
            let due = began + Duration::from_nanos((number * interval) as u64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // Whoever waited may have had the frame before this one.
            if self.lock().waiting == 0 {
                return true;
            }
        }
        let (mut at, mut clock) = (Instant::now(), clock());
        let pixels = source.capture(number as u32, clock);
        if source.is_live() {
            // It was waited for: its time is that of its arrival.
            (at, clock) = (Instant::now(), self::clock());
            number = began.elapsed().as_nanos() / interval + 1;
        }
        let mut state = self.lock();
        let good = match pixels {
            Ok(pixels) => {
                let number = number as u32;
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
