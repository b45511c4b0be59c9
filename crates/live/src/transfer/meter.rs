//! A thread's own measurements during a transfer: periodic samples, totals at the end.

use super::{Sample, Thread};
use lastmeter_linux::sys::{self, ThreadUsage};
use lastmeter_linux::tcp_info::TcpInfo;
use lastmeter_linux::{Doing, Result};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Seconds between samples: fine enough for a median over a second, and at about 5 us a sample
/// (a procfs read, a `getsockopt`) 0.05 % of the thread's time.
pub(crate) const SAMPLE_EVERY: f64 = 0.01;
/// The most samples a thread keeps: ten minutes.
const SAMPLES_MAX: usize = 60_000;

/// Seconds of the monotonic clock, which all processes of the machine share.
pub(crate) fn now() -> f64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// The scheduler's statistics of the calling thread: seconds run, seconds ready but not run.
pub(crate) struct SchedulerClock(File);

impl SchedulerClock {
    pub(crate) fn of_this_thread() -> Result<SchedulerClock> {
        let path = "/proc/thread-self/schedstat";
        File::open(path).doing(|| format!("opening {path}")).map(SchedulerClock)
    }

    /// (run, wait) in seconds.
    pub(crate) fn read(&self) -> Result<(f64, f64)> {
        let mut buffer = [0; 96];
        let len = self.0.read_at(&mut buffer, 0).doing("reading a thread's schedstat")?;
        let text = std::str::from_utf8(&buffer[..len]).unwrap_or("");
        let mut numbers = text.split_ascii_whitespace().map(|w| w.parse::<u64>().unwrap_or(0));
        let mut seconds = || numbers.next().unwrap_or(0) as f64 * 1e-9;
        Ok((seconds(), seconds()))
    }
}

/// Counts one thread's work on one connection.
pub(crate) struct Meter<'a> {
    stream: &'a TcpStream,
    clock: SchedulerClock,
    usage: ThreadUsage,
    next: f64,
    samples: Vec<Sample>,
    /// Bytes moved so far.
    pub(crate) bytes: u64,
    /// Messages finished so far.
    pub(crate) messages: u64,
    /// System calls that moved data.
    pub(crate) calls: u64,
    /// Seconds spent in the application's own delays.
    pub(crate) paused: f64,
    /// Calls between two readings of the clock, so that short messages do not pay for it.
    stride: u32,
    until_look: u32,
    looked: f64,
}

/// Reading the clock costs about 30 ns; once every 20 us is negligible.
const LOOK_EVERY: f64 = 20e-6;
/// The most calls between two readings.
const STRIDE_MAX: u32 = 64;

impl<'a> Meter<'a> {
    pub(crate) fn start(stream: &'a TcpStream) -> Result<Meter<'a>> {
        let mut meter = Meter {
            stream,
            clock: SchedulerClock::of_this_thread()?,
            usage: sys::thread_usage().doing("reading a thread's usage")?,
            next: 0.0,
            samples: Vec::new(),
            bytes: 0,
            messages: 0,
            calls: 0,
            paused: 0.0,
            stride: 1,
            until_look: 1,
            looked: now(),
        };
        meter.sample(now())?;
        Ok(meter)
    }

    /// Called after every system call: sometimes reads the clock, and then returns the time.
    pub(crate) fn tick(&mut self) -> Result<Option<f64>> {
        self.until_look -= 1;
        if self.until_look > 0 {
            return Ok(None);
        }
        let at = now();
        // A call that took long has blocked; the stride then shrinks at once.
        let faster = (at - self.looked) < LOOK_EVERY;
        self.stride = if faster { (self.stride * 2).min(STRIDE_MAX) } else { 1 };
        self.until_look = self.stride;
        self.looked = at;
        if at >= self.next {
            self.sample(at)?;
        }
        Ok(Some(at))
    }

    fn sample(&mut self, at: f64) -> Result<()> {
        let (run, wait) = self.clock.read()?;
        let tcp = TcpInfo::of(self.stream.as_fd())?;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(Sample {
                at,
                bytes: self.bytes,
                messages: self.messages,
                calls: self.calls,
                run,
                wait,
                paused: self.paused,
                tcp,
            });
        }
        self.next = at + SAMPLE_EVERY;
        Ok(())
    }

    pub(crate) fn finish(mut self, latencies: Vec<f64>, copied: Option<f64>) -> Result<Thread> {
        self.sample(now())?;
        let usage = sys::thread_usage().doing("reading a thread's usage")?;
        Ok(Thread {
            user: usage.user - self.usage.user,
            system: usage.system - self.usage.system,
            voluntary: usage.voluntary - self.usage.voluntary,
            involuntary: usage.involuntary - self.usage.involuntary,
            core: rustix::thread::sched_getcpu(),
            latencies,
            zero_copy_copied: copied,
            samples: self.samples,
        })
    }
}

/// The application's own delay; returns how long it took in all, in seconds.
pub(crate) fn pause(pause: super::Pause) -> f64 {
    let from = now();
    match pause {
        super::Pause::None => return 0.0,
        super::Pause::Sleep(d) => {
            std::thread::sleep(std::time::Duration::from_secs_f64(d.as_secs_f64()))
        }
        super::Pause::Work(d) => {
            let until = from + d.as_secs_f64();
            while now() < until {
                std::hint::spin_loop();
            }
        }
    }
    now() - from
}
