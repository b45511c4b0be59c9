//! A medium that takes as long as another one would (N-39): each read and write is done no earlier than a model says.
//!
//! ```text
//! command --> model: done at --> the file itself --> wait until then --> answer
//! ```
//!
//! Commands reach the model in the order in which they reach the medium, whoever sent them. What takes longer here than
//! in the model is late; the model's next command begins no later for that.

use lastmeter_base::Time;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A command, as a model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Writes, else reads.
    pub write: bool,
    /// The first byte.
    pub at: u64,
    /// Bytes, at least one.
    pub length: u64,
}

/// A model of a medium.
pub trait Timing: Send {
    /// When it has done a command that comes at `now`, not before an earlier one.
    fn done(&mut self, now: Time, access: Access) -> Time;
}

/// The last part of a wait, in which the thread does not sleep: the kernel wakes it later than it asked for.
const AWAKE: Duration = Duration::from_micros(120);

/// The clock of a model ends here, in nanoseconds: a hundred days of picoseconds are left for what it adds.
const NOW_MAX: u64 = u64::MAX / 2000;

/// A model and its clock.
pub(super) struct Timed {
    model: Mutex<Box<dyn Timing>>,
    began: Instant,
}

impl fmt::Debug for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timed").finish_non_exhaustive()
    }
}

impl Timed {
    pub(super) fn new(model: Box<dyn Timing>) -> Timed {
        Timed { model: Mutex::new(model), began: Instant::now() }
    }
    /// When a command that comes now is done.
    pub(super) fn due(&self, access: Access) -> Instant {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX).min(NOW_MAX);
        let now = Time::START + lastmeter_base::Duration::from_ns(now);
        let done = model.done(now, access).saturating_since(Time::START);
        self.began + Duration::from_nanos(done.as_ps() / 1000)
    }
}

/// Waits until then.
pub(super) fn wait(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        match left.checked_sub(AWAKE) {
            _ if left.is_zero() => return,
            Some(rest) if !rest.is_zero() => std::thread::sleep(rest),
            _ => std::thread::yield_now(),
        }
    }
}
