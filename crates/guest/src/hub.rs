//! Two ends, the cable between them, and the wall clock.
//!
//! ```text
//! [ guest, adapter ] <== cable ==> [ interface of this machine | adapter, guest ]
//!   one thread: wait for the next due instant, a doorbell, a frame; do what is due; say how late it was
//! ```
//!
//! The machines of both ends advance together, event by event, so a late wake-up changes no instant of the account: it
//! only makes what leaves this process late, which [`Report::lag`] has.

use crate::device::{Device, Interrupt};
use crate::end::{GuestEnd, PortEnd};
use crate::network::Cable;
use lastmeter_base::{Duration, Time};
use lastmeter_engine::Distribution;
use lastmeter_linux::clock::{Epoch, thread_cpu};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::setpriority_process;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_ms(100);
/// The thread's niceness where the kernel allows it: a guest's processor must not keep its adapter waiting.
const PRIORITY: i32 = -20;

/// An end of the cable.
pub enum End {
    /// A guest behind an adapter.
    Guest(Box<GuestEnd>),
    /// An interface of this machine.
    Port(PortEnd),
}

impl End {
    /// The adapter, if there is one.
    pub fn device(&self) -> Option<&Device> {
        match self {
            End::Guest(guest) => Some(&guest.device),
            End::Port(_) => None,
        }
    }
}

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Lateness of what left this process, in the adapters' time: frames and interrupts.
    pub lag: Distribution,
    /// Of these, interrupts.
    pub interrupts: u64,
    /// Seconds of the run, of this machine as are the next two.
    pub elapsed: f64,
    /// Seconds of CPU time.
    pub cpu: f64,
    /// Seconds spent waiting for something to do.
    pub waited: f64,
}

/// Two ends and what is between them.
pub struct Hub {
    /// The ends.
    pub ends: [End; 2],
    /// From each end to the other.
    pub cables: [Cable; 2],
    /// Seconds that a second of the adapters lasts (E-55): a guest's processor, which is not slowed, appears to them
    /// as many times as fast.
    pub slower: u32,
    /// How it goes.
    pub report: Report,
}

impl Hub {
    /// Ends with a cable of this propagation delay.
    pub fn new(ends: [End; 2], propagation: Duration) -> Hub {
        let cables = [Cable::new(propagation), Cable::new(propagation)];
        Hub { ends, cables, slower: 1, report: Report::default() }
    }

    /// When something is due.
    fn ready_at(&self) -> Option<Time> {
        let devices = self.ends.iter().filter_map(|end| end.device()?.ready_at());
        devices.chain(self.cables.iter().filter_map(Cable::ready_at)).min()
    }

    /// Handles everything due by now, in the order in which it became due.
    fn advance(&mut self, epoch: Epoch) {
        let now = epoch.now();
        loop {
            // Hearing may have left some, too.
            self.pass_on(epoch);
            let Some(due) = self.ready_at().filter(|&due| due <= now) else { return };
            for end in &mut self.ends {
                if let End::Guest(guest) = end {
                    guest.advance(due);
                }
            }
            self.pass_on(epoch);
            for at in 0..2 {
                while let Some(arrival) = self.cables[at].take(due) {
                    match &mut self.ends[1 - at] {
                        End::Guest(guest) => guest.arrive(arrival),
                        End::Port(port) => {
                            port.send(arrival.frame);
                            self.report.lag.record(epoch.now().saturating_since(arrival.at));
                        }
                    }
                }
            }
        }
    }

    /// Passes on what has left the adapters, and interrupts their guests.
    fn pass_on(&mut self, epoch: Epoch) {
        for at in 0..2 {
            let End::Guest(guest) = &mut self.ends[at] else { continue };
            guest.device.departures().into_iter().for_each(|d| self.cables[at].carry(d));
            for interrupt in guest.device.interrupts() {
                guest.interrupt(interrupt);
                self.report.interrupts += 1;
                late(&mut self.report.lag, epoch, interrupt);
            }
        }
    }

    /// Handles what has come from outside.
    fn hear(&mut self, epoch: Epoch) {
        for at in 0..2 {
            let port = match &mut self.ends[at] {
                End::Guest(guest) => {
                    guest.hear(epoch.now());
                    continue;
                }
                End::Port(port) => port,
            };
            let mut frames = Vec::new();
            port.take(&mut frames);
            let Some(device) = self.ends[1 - at].device() else { continue };
            let now = epoch.now();
            frames.into_iter().for_each(|frame| self.cables[at].send(now, frame, device.card()));
        }
    }

    /// Sleeps until shortly before something is due, or something comes; `true` when told to stop.
    fn wait(&mut self, epoch: Epoch, spin: Duration, stop: BorrowedFd<'_>) -> bool {
        let now = epoch.now();
        let left = self.ready_at().map_or(SLEEP_MAX, |due| epoch.real(due.saturating_since(now)));
        let sleep = left.saturating_sub(spin).min(SLEEP_MAX);
        let timeout = Timespec { tv_sec: 0, tv_nsec: (sleep.as_ps() / 1000) as _ };
        let mut waits = vec![stop];
        for end in &self.ends {
            match end {
                End::Guest(guest) => waits.extend(guest.waits()),
                End::Port(port) => waits.push(port.waits()),
            }
        }
        let each = waits.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = each.collect();
        let _ = poll(&mut polled, Some(&timeout));
        let stopped = !polled[0].revents().is_empty();
        self.report.waited += epoch.since(now).as_secs_f64();
        stopped
    }

    /// Serves both ends until told to stop.
    pub fn run(mut self, spin: Duration, stop: &OwnedFd) -> Hub {
        let _ = setpriority_process(None, PRIORITY);
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let epoch = Epoch::stretched(self.slower);
        loop {
            let stopped = self.wait(epoch, spin, stop.as_fd());
            self.advance(epoch);
            self.hear(epoch);
            self.advance(epoch);
            if stopped {
                self.report.cpu = thread_cpu();
                self.report.elapsed = epoch.since(Time::START).as_secs_f64();
                return self;
            }
        }
    }

    /// Serves both ends on a thread of its own.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(self, spin: Duration) -> io::Result<Running> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stop = Arc::clone(&bell);
        let name = "lastmeter-guest".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || self.run(spin, &stop))?;
        Ok(Running { bell, thread: Some(thread) })
    }
}

fn late(lag: &mut Distribution, epoch: Epoch, interrupt: Interrupt) {
    lag.record(epoch.now().saturating_since(interrupt.at));
}

/// A hub on its thread; dropping it stops it.
pub struct Running {
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<Hub>>,
}

impl Running {
    /// Stops it; `None` if its thread has panicked.
    pub fn stop(mut self) -> Option<Hub> {
        self.ring();
        self.thread.take()?.join().ok()
    }

    fn ring(&self) {
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
