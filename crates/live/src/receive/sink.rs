//! A program on a UDP socket that does some work for each datagram.

use super::work::{Work, window};
use super::{Busy, Job, PAYLOAD};
use crate::channel;
use crate::flood::Stamp;
use crate::worker::Reply;
use lastmeter_base::Duration;
use lastmeter_engine::Distribution;
use lastmeter_linux::clock::nanoseconds;
use lastmeter_linux::cores;
use lastmeter_linux::counters::Counters;
use lastmeter_linux::port::Incoming;
use lastmeter_linux::sys;
use lastmeter_linux::{Doing, Result};
use rustix::event::{Timespec, epoll};
use serde::{Deserialize, Serialize};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Datagrams taken by one call, at most.
const BATCH: usize = 32;
/// A merged datagram's bytes.
const MERGED: usize = 65_535;
/// Flows that are counted apart.
pub const FLOWS: usize = 16;
const SO_BUSY_POLL: i32 = 46;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
const UDP_GRO: i32 = 104;
/// How long a receiver waits before it looks at the clock.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(5);

/// What a receiver did in its window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// Datagrams processed, by flow.
    pub flows: Vec<u64>,
    /// Datagrams that the receiver itself refused.
    pub refused: u64,
    /// Seconds from sent to processed: half and 99 of 100 took less.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// Times that it waited, or was interrupted.
    pub wakes: u64,
    /// The share of its core that the receiver had, protocol work within its calls included.
    pub receiver: f64,
    /// The share of its core in softirqs outside programs, and in the kernel's threads.
    pub softirq: f64,
    /// Seconds of the window.
    pub lasted: f64,
}

/// Counts what is processed within the window.
#[derive(Clone, Debug)]
pub struct Tally {
    window: (u64, u64),
    waits: Distribution,
    taken: Taken,
    before: Option<(Counters, f64)>,
    core: usize,
}

impl Tally {
    /// From [`super::WARM`] on.
    pub fn begin(core: usize, lasts: std::time::Duration) -> Tally {
        let taken = Taken { flows: vec![0; FLOWS], ..Taken::default() };
        let (waits, window) = (Distribution::default(), window(lasts));
        Tally { window, waits, taken, before: None, core }
    }

    /// Whether the window is over; its edges are noticed here.
    ///
    /// # Errors
    /// Without /proc/stat.
    #[inline]
    pub fn is_over(&mut self, now: u64) -> Result<bool> {
        if now >= self.window.0 && self.before.is_none() {
            self.before = Some((Counters::now(&[])?, used()?));
        }
        Ok(now >= self.window.1)
    }

    /// A datagram was processed at `now`.
    #[inline]
    pub fn processed(&mut self, stamp: Stamp, now: u64) {
        if self.before.is_some() {
            self.taken.flows[usize::from(stamp.flow) % FLOWS] += 1;
            self.waits.record(Duration::from_ns(now.saturating_sub(stamp.sent)));
        }
    }

    /// The receiver refused a datagram.
    #[inline]
    pub fn refused(&mut self) {
        self.taken.refused += u64::from(self.before.is_some());
    }

    /// The receiver waited, or was interrupted.
    #[inline]
    pub fn woken(&mut self) {
        self.taken.wakes += u64::from(self.before.is_some());
    }

    /// The result.
    ///
    /// # Errors
    /// Without /proc/stat.
    pub fn end(mut self) -> Result<Taken> {
        let lasted = (self.window.1 - self.window.0) as f64 / 1e9;
        let taken = &mut self.taken;
        if let Some((before, used_before)) = &self.before {
            let change = Counters::now(&[])?.since(before);
            taken.receiver = (used()? - used_before) / lasted;
            if let Some(cpu) = change.cpus.get(self.core) {
                taken.softirq = cpu.softirq / lasted;
            }
        }
        taken.lasted = lasted;
        if self.waits.count() > 0 {
            taken.p50 = self.waits.percentile(0.5).as_secs_f64();
            taken.p99 = self.waits.percentile(0.99).as_secs_f64();
        }
        Ok(self.taken)
    }
}

fn used() -> Result<f64> {
    let usage = sys::thread_usage().doing("reading the CPU time used")?;
    Ok(usage.user + usage.system)
}

/// Waits for a socket with an `epoll` of its own that busy-polls.
struct Waits(OwnedFd);

impl Waits {
    fn new(socket: &UdpSocket, busy: Busy) -> Result<Waits> {
        let what = "waiting for a socket with epoll";
        socket.set_nonblocking(true).doing(what)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).doing(what)?;
        epoll::add(&poll, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .doing(what)?;
        sys::busy_poll(poll.as_fd(), busy.lasts, busy.budget as u16).doing(what)?;
        Ok(Waits(poll))
    }

    /// Until there is something, or the clock must be looked at.
    fn wait(&self) -> Result<()> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }];
        let patience = Timespec { tv_sec: 0, tv_nsec: PATIENCE.subsec_nanos().into() };
        match epoll::wait(&self.0, &mut events, Some(&patience)) {
            Err(error) if error != rustix::io::Errno::INTR => {
                Err(error).doing("waiting with epoll")
            }
            _ => Ok(()),
        }
    }
}

/// Runs in the receiver's helper; says when it listens.
pub(crate) fn take(job: &Job, parent: &mut UnixStream) -> Result<Taken> {
    cores::pin(Some(job.core))?;
    let what = "listening for datagrams";
    let socket = UdpSocket::bind((job.address, super::PORT)).doing(what)?;
    socket.set_read_timeout(Some(PATIENCE)).doing(what)?;
    let set = |level, name, value| {
        sys::set_option(socket.as_fd(), level, name, value)
            .doing(|| format!("setting option {name} of a socket"))
    };
    if job.merged {
        set(libc::SOL_UDP, UDP_GRO, 1)?;
    }
    if let Some(busy) = job.busy {
        set(libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)?;
        set(libc::SOL_SOCKET, SO_BUSY_POLL, busy.lasts as i32)?;
        set(libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, busy.budget as i32)?;
    }
    let waits =
        job.busy.filter(|_| job.suspends).map(|busy| Waits::new(&socket, busy)).transpose()?;
    let work = Work::lasting(std::time::Duration::from_nanos(job.work));
    let mut incoming = Incoming::new(BATCH, if job.merged { MERGED } else { PAYLOAD });
    channel::send(parent, &Reply::Done).doing("telling the parent")?;
    let mut tally = Tally::begin(job.core, job.lasts);
    while !tally.is_over(nanoseconds())? {
        tally.woken();
        if let Some(waits) = &waits {
            waits.wait()?;
        }
        let Ok(count) = incoming.receive(socket.as_fd()) else { continue };
        for at in 0..count {
            for payload in incoming.packet(at).chunks(PAYLOAD) {
                work.act();
                if let Some(stamp) = Stamp::parse(payload) {
                    tally.processed(stamp, nanoseconds());
                }
            }
        }
    }
    tally.end()
}
