//! Where time comes from: the only difference between a model and a live run.

use lastmeter_base::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why a clock returned. Time may have gone on beyond the deadline meanwhile: events that are due
/// by the instant given are handled in order, each at its own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It is now this time, and the deadline has been reached.
    At(Time),
    /// It is now this time, and a port has input.
    Input(Time),
    /// The run shall end now.
    Stop,
}

/// Waits for deadlines; a live clock waits for input as well.
pub trait Clock {
    /// Waits for `deadline`, or without one for input alone.
    fn wait(&mut self, deadline: Option<Time>) -> Wake;

    /// Whether it is at every deadline at once. Then it is not asked for each, only now and then.
    fn jumps(&self) -> bool {
        false
    }
}

/// Lets somebody outside a run watch it and end it.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    now: AtomicU64,
}

impl Control {
    /// Asks the run to end soon; what it has done until then is kept.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Whether the run was asked to end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
    /// How far the run had come when it last said so.
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
    /// A clock that tells `control` how far it is and ends when told to.
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
