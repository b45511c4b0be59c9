//! The source of time: the only difference between a model and a live run.

use lastmeter_base::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why a clock returned. Time may have passed the deadline: events due by the given instant are handled in
/// order, each at its own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It is now this time, and the deadline has been reached.
    At(Time),
    /// It is now this time, and a port has input.
    Input(Time),
    /// The run must end now.
    Stop,
}

/// Waits for deadlines; a live clock also waits for input.
pub trait Clock {
    /// Waits for `deadline`, or without one only for input.
    fn wait(&mut self, deadline: Option<Time>) -> Wake;

    /// Whether it jumps to every deadline. Then it is called only every so many events.
    fn jumps(&self) -> bool {
        false
    }
}

/// Lets other threads watch a run and end it.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    now: AtomicU64,
}

impl Control {
    /// Requests the run to end soon; its results so far are kept.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Whether the run was requested to end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
    /// The run's last reported progress.
    pub fn now(&self) -> Time {
        Time::from_ps(self.now.load(Ordering::Relaxed))
    }
    pub(crate) fn reached(&self, now: Time) {
        self.now.fetch_max(now.as_ps(), Ordering::Relaxed);
    }
}

/// Jumps straight to each deadline.
#[derive(Debug, Default)]
pub struct VirtualClock {
    control: Option<Arc<Control>>,
}

impl VirtualClock {
    /// A clock that reports progress to `control` and ends when told to.
    pub fn watched(control: Arc<Control>) -> VirtualClock {
        VirtualClock { control: Some(control) }
    }
}

impl Clock for VirtualClock {
    fn wait(&mut self, deadline: Option<Time>) -> Wake {
        if let (Some(control), Some(now)) = (&self.control, deadline) {
            control.reached(now);
            if control.stopped() {
                return Wake::Stop;
            }
        }
        deadline.map_or(Wake::Stop, Wake::At)
    }

    fn jumps(&self) -> bool {
        true
    }
}
