//! The sandbox of a running daemon: a host of plugins, and the thread that advances its epoch.

use crate::Complaint;
use lastmeter_base::{Duration, Time};
use lastmeter_plugin::host::{Host, Limits, Ticker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The interval of the epoch.
const TICK: std::time::Duration = std::time::Duration::from_millis(1);

/// A host whose epoch advances until it is dropped: with the clock on the wall, but never faster than this program's
/// CPU time, so that a plugin is not blamed for time in which the kernel ran something else.
pub(crate) struct Ticking {
    pub(crate) host: Arc<Host>,
    began: std::time::Instant,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticking {
    pub(crate) fn new(limits: Limits) -> Result<Ticking, Complaint> {
        let host = Arc::new(Host::new(limits)?);
        let stop = Arc::<AtomicBool>::default();
        let thread = {
            let (ticker, stop): (Ticker, _) = (host.ticker(), stop.clone());
            std::thread::spawn(move || {
                let mut due = cpu() + TICK;
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(TICK);
                    if cpu() >= due {
                        ticker.tick();
                        due = cpu() + TICK;
                    }
                }
            })
        };
        Ok(Ticking { host, began: std::time::Instant::now(), stop, thread: Some(thread) })
    }
    /// Time since it began.
    pub(crate) fn now(&self) -> Time {
        Time::from_ps(0) + Duration::from_secs_f64(self.began.elapsed().as_secs_f64())
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// CPU time that this program has used.
pub(crate) fn cpu() -> std::time::Duration {
    used(rustix::time::ClockId::ProcessCPUTime)
}

/// CPU time that this thread has used.
pub(crate) fn thread() -> std::time::Duration {
    used(rustix::time::ClockId::ThreadCPUTime)
}

fn used(clock: rustix::time::ClockId) -> std::time::Duration {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    std::time::Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
