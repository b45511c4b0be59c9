//! What CPU time went into, by sampling: privilege level L1.
//!
//! ```text
//! CPU 0 clock --ring--+
//! CPU 1 clock --ring--+--> a thread: whose? which class? --> Sampled
//! ```
//!
//! Near every millisecond of a CPU the kernel notes who runs there and its own call chain
//! (perf_event_open(2), software clock: no performance counters, so virtual machines have it, too). Nothing is
//! attached to the program. Where it is allowed the whole machine is sampled, because softirqs run in anybody's
//! time; else the program alone. [`Class`] says what the functions of a chain are counted as.
//!
//! | parameter | |
//! |---|---|
//! | period | 0.997 ms of each CPU's time |
//! | rights | root, `CAP_PERFMON`, or `kernel.perf_event_paranoid` at most 1 with readable /proc/kallsyms |
//! | ring | 512 KiB for each CPU; what finds no room is counted as lost |
//! | cost | see docs/why.md |

#[cfg(test)]
mod beside;
mod classes;
mod record;
pub mod stages;
mod symbols;
mod tally;

pub use classes::Class;
pub use tally::{Counts, Group, Sampled, Share};

use crate::transfer::meter::SchedulerClock;
use crate::waits::Watching;
use lastmeter_linux::Result;
use lastmeter_linux::perf::{Event, PERIOD, Whose};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use symbols::Symbols;
use tally::Tally;

/// Between two readings of the rings.
const READ_EVERY: Duration = Duration::from_millis(100);

/// The sampling of a few groups of processes.
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Looks at what waits, of the first group.
    waits: Option<Watching>,
}

struct Shared {
    /// Changed by the thread, read by anybody.
    now: Mutex<Inner>,
    over: AtomicBool,
}

struct Inner {
    events: Vec<Event>,
    tally: Tally,
    buffer: Vec<u8>,
}

/// The kernel's functions, read before there is anything to sample: that takes a tenth of a second.
pub struct Prepared(Symbols);

impl Prepared {
    /// Reads them; `Err` says in words why this user may not.
    ///
    /// # Errors
    /// See above.
    pub fn new() -> std::result::Result<Prepared, String> {
        Symbols::of_kernel().map(Prepared)
    }
}

impl Sampler {
    /// Prepares to sample these groups of processes and all that they start; `begin` starts it. `Err` says in
    /// words why this user may not.
    ///
    /// # Errors
    /// See above.
    pub fn open(prepared: Prepared, groups: &[u32]) -> std::result::Result<Sampler, String> {
        let cpus = online()?;
        let machine: std::io::Result<Vec<Event>> =
            cpus.iter().map(|&cpu| Event::open(Whose::Machine, cpu)).collect();
        let (events, whole) = match machine {
            Ok(events) => (events, true),
            Err(_) => {
                let all = groups
                    .iter()
                    .flat_map(|&pid| cpus.iter().map(move |&cpu| (Whose::Process(pid), cpu)));
                let opened: std::io::Result<_> =
                    all.map(|(whose, cpu)| Event::open(whose, cpu)).collect();
                (opened.map_err(|error| refused(&error))?, false)
            }
        };
        let tally = Tally::new(prepared.0, groups, whole);
        let inner = Inner { events, tally, buffer: Vec::new() };
        let shared = Arc::new(Shared { now: Mutex::new(inner), over: AtomicBool::new(false) });
        let reader = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("sampling".to_owned()).spawn(move || {
            let clock = SchedulerClock::of_this_thread().ok();
            while !reader.over.load(Ordering::Relaxed) {
                std::thread::park_timeout(READ_EVERY);
                let mut inner = reader.inner();
                inner.read();
                let run = clock.as_ref().and_then(|clock| clock.read().ok());
                inner.tally.reading(run.map_or(0.0, |(run, _)| run));
            }
        });
        let thread = thread.map_err(|error| format!("starting a thread: {error}"))?;
        Ok(Sampler { shared, thread: Some(thread), waits: None })
    }

    /// From now on also looks a few times at what waits, beside the sampling.
    #[must_use]
    pub fn with_waits(mut self) -> Sampler {
        self.waits = Some(Watching::begin());
        self
    }

    /// Starts counting from zero. The CPUs' clocks start one after another, evenly over a period: clocks that ring
    /// together would see each other's interrupts, as one CPU waits for a lock that an interrupted one holds.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin(&self) -> Result<()> {
        let mut inner = self.shared.inner();
        inner.read();
        inner.tally.reset();
        let apart = Duration::from_nanos(PERIOD / inner.events.len().max(1) as u64);
        let begun = Instant::now();
        for (place, event) in (0..).zip(&inner.events) {
            while begun.elapsed() < apart * place {
                std::hint::spin_loop();
            }
            event.count(true)?;
        }
        Ok(())
    }

    /// Stops counting; what was sampled since it began.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn end(&self) -> Result<Sampled> {
        self.waits.iter().for_each(Watching::end);
        let mut inner = self.shared.inner();
        inner.events.iter().try_for_each(|event| event.count(false))?;
        inner.read();
        Ok(self.with_looks(&inner.tally))
    }

    /// What was sampled so far.
    pub fn so_far(&self) -> Sampled {
        let mut inner = self.shared.inner();
        inner.read();
        self.with_looks(&inner.tally)
    }

    /// What was sampled, and what waited in the looks that are over.
    fn with_looks(&self, tally: &Tally) -> Sampled {
        let mut sampled = tally.sampled();
        match self.waits.as_ref().map(Watching::so_far) {
            Some(Ok(Some(seen))) => {
                let group = |process| tally.group(process).filter(|&group| group == 0);
                sampled.waits = Some(seen.waits(&["command"], group, |_| true));
            }
            Some(Err(why)) => sampled.unseen = Some(why),
            Some(Ok(None)) | None => {}
        }
        sampled
    }

    /// Adds processes to the first group: those that were there before the sampling, found elsewhere.
    pub fn follow(&self, pids: &BTreeSet<u32>) {
        self.shared.inner().tally.follow(0, pids.iter().copied());
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn read(&mut self) {
        self.buffer.clear();
        self.events.iter_mut().for_each(|event| event.drain(&mut self.buffer));
        self.tally.take(&self.buffer);
    }
}

/// The CPUs that are there: `0-3,6`.
pub(crate) fn online() -> std::result::Result<Vec<usize>, String> {
    let path = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<usize>().ok()?..=to.parse::<usize>().ok()?)
    };
    Ok(text.trim().split(',').filter_map(range).flatten().take(CPUS_MAX).collect())
}

/// The most CPUs sampled.
const CPUS_MAX: usize = 1024;

/// Why there is no sampling.
fn refused(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "sampling needs root, CAP_PERFMON, or \
             kernel.perf_event_paranoid at most 1"
            .to_owned(),
        Some(libc::ENOSYS) => "this kernel has no sampling clock".to_owned(),
        _ => format!("the sampling clock: {error}"),
    }
}

/// Any bytes as records of a ring: every sample is counted once.
pub(crate) fn fuzz_records(bytes: &[u8]) {
    record::fuzz(bytes);
    tally::fuzz(bytes);
}

/// Any bytes as /proc/kallsyms.
pub(crate) fn fuzz_symbols(bytes: &[u8]) {
    symbols::fuzz(bytes);
}
