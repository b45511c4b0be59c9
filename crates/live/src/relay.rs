//! A path between two interfaces: a token bucket, then a delay line, in each direction.
//!
//! ```text
//! in --> [ policer ]--[ loss ]--[ token bucket: rate, depth ]--[ delay line ]--> out     tail drop when full
//! ```
//!
//! It forwards whole Ethernet frames through packet sockets without parsing them, so the two TCPs talk
//! end to end and see each other's windows; a proxy would terminate the connection and hide them. One
//! thread, no locks. A frame leaves when its delay is over, not before; the certificate is `late_max`,
//! the greatest lateness of a frame.

use crate::worker::Request;
use crate::{channel, namespace};
use lastmeter_linux::link::index_of;
use lastmeter_linux::sys;
use lastmeter_linux::{Doing, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The largest frame: an MTU of 65,535 and the Ethernet header.
const FRAME_MAX: usize = 65_535 + 14;
/// Buffer for frames that arrive while the relay is busy; the kernel may grant less. Small frames have a
/// large overhead: with the usual 208 KiB a window's burst would be lost.
const ARRIVALS: i32 = 4 << 20;
/// Frames taken from one side before turning to the other.
const BATCH: usize = 64;
/// Queue limit before the token bucket, per direction: that of a small switch port.
const QUEUE_MAX: usize = 256 * 1024;
/// Limit of the delay line, per direction; it bounds memory and is not part of the model.
const LINE_MAX: usize = 64 << 20;
/// Where the choice of what is lost begins; any number but 0.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Depth of the token bucket as time at its rate, so that the poll's granularity does not reduce the rate.
const DEPTH: Duration = Duration::from_millis(1);

/// The relay's settings, a way for each direction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// From the sender to the receiver.
    pub(crate) out: Way,
    /// From the receiver to the sender.
    pub(crate) back: Way,
}

/// One direction of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Way {
    /// Seconds from one interface to the other.
    pub delay: f64,
    /// Bits per second; `None` is as fast as it can.
    pub rate: Option<f64>,
    /// Bytes that may wait before the token bucket.
    pub queue: usize,
    /// Share of the frames that are lost, at random.
    pub loss: f64,
    /// Share of the frames that take half as long again as the delay, so that later ones overtake them.
    pub late: f64,
    /// A policer: bits per second, and bytes that may pass at once. It has no queue: what exceeds it is
    /// dropped.
    pub policer: Option<(f64, f64)>,
}

impl Way {
    /// A wire that takes this many seconds.
    pub const fn wire(delay: f64) -> Way {
        Way { delay, rate: None, queue: QUEUE_MAX, loss: 0.0, late: 0.0, policer: None }
    }
}

/// The relay's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Relayed {
    /// Frames forwarded, both directions.
    pub frames: u64,
    /// Frames dropped because the queue before the token bucket was full.
    pub dropped: u64,
    /// Greatest lateness of a frame, in seconds.
    pub late_max: f64,
    /// Mean lateness.
    pub late_mean: f64,
}

struct Direction {
    from: OwnedFd,
    to: OwnedFd,
    way: Way,
    /// The state of the generator that chooses what is lost or late.
    random: u64,
    /// Bytes that the policer lets pass now.
    allowance: f64,
    /// Before the token bucket.
    queue: VecDeque<Vec<u8>>,
    queued: usize,
    /// Tokens: bytes that may leave now, at most the bucket's depth.
    tokens: f64,
    filled: Instant,
    /// After it, with the instant at which each may leave.
    line: VecDeque<(Instant, Vec<u8>)>,
    /// A second line, for those that are late.
    overtaken: VecDeque<(Instant, Vec<u8>)>,
    under_way: usize,
}

impl Direction {
    fn new(from: &OwnedFd, to: &OwnedFd, way: Way) -> Result<Direction> {
        let clone = |fd: &OwnedFd| fd.try_clone().doing("sharing the relay's sockets");
        Ok(Direction {
            from: clone(from)?,
            to: clone(to)?,
            way,
            random: SEED,
            allowance: way.policer.map_or(0.0, |(_, burst)| burst),
            queue: VecDeque::new(),
            queued: 0,
            tokens: 0.0,
            filled: Instant::now(),
            line: VecDeque::new(),
            overtaken: VecDeque::new(),
            under_way: 0,
        })
    }

    /// Takes up to a batch of arrived frames.
    fn take(&mut self, buffer: &mut [u8], stats: &mut Relayed) -> Result<()> {
        for _ in 0..BATCH {
            let len = match recv(&self.from, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((len, _)) => len,
                Err(e) if e == rustix::io::Errno::AGAIN => return Ok(()),
                // The hosts take their interfaces down when they reconfigure them.
                Err(e) if e == rustix::io::Errno::NETDOWN => return Ok(()),
                Err(e) => return Err(e).doing("taking a frame"),
            };
            if !self.passes(len) || self.chance(self.way.loss) {
                stats.dropped += 1;
                continue;
            }
            if self.queued + len > self.way.queue || self.under_way + len > LINE_MAX {
                stats.dropped += 1;
                continue;
            }
            self.queued += len;
            self.queue.push_back(buffer[..len].to_vec());
        }
        Ok(())
    }

    /// Moves frames for which there are tokens into the delay line, and sends what is due.
    fn advance(&mut self, now: Instant, stats: &mut Relayed) {
        let passed = now.duration_since(self.filled).as_secs_f64();
        if let Some((rate, burst)) = self.way.policer {
            self.allowance = (self.allowance + passed * rate / 8.0).min(burst);
        }
        if let Some(rate) = self.way.rate {
            let earned = passed * rate / 8.0;
            let depth = (DEPTH.as_secs_f64() * rate / 8.0).max(FRAME_MAX as f64);
            self.tokens = (self.tokens + earned).min(depth);
        }
        self.filled = now;
        while let Some(frame) = self.queue.front() {
            let len = frame.len() as f64;
            if self.way.rate.is_some() {
                if self.tokens < len {
                    break;
                }
                self.tokens -= len;
            }
            let frame = self.queue.pop_front().expect("the front was just seen");
            self.queued -= frame.len();
            self.under_way += frame.len();
            let late = self.chance(self.way.late);
            let due = now + Duration::from_secs_f64(self.way.delay);
            match late {
                // In its place behind those that it lets pass.
                true => self
                    .overtaken
                    .push_back((due + Duration::from_secs_f64(self.way.delay / 2.0), frame)),
                false => self.line.push_back((due, frame)),
            }
        }
        let due_now =
            |line: &VecDeque<(Instant, Vec<u8>)>| line.front().is_some_and(|(due, _)| *due <= now);
        loop {
            let line = match (due_now(&self.overtaken), due_now(&self.line)) {
                (true, _) => &mut self.overtaken,
                (_, true) => &mut self.line,
                _ => break,
            };
            let (due, frame) = line.pop_front().expect("the front was just seen");
            self.under_way -= frame.len();
            let late = now.duration_since(due).as_secs_f64();
            stats.late_max = stats.late_max.max(late);
            stats.late_mean += late;
            stats.frames += 1;
            // A refusal is a full transmit queue: the frame is lost, as on a wire.
            if send(&self.to, &frame, SendFlags::DONTWAIT).is_err() {
                stats.dropped += 1;
            }
        }
    }

    /// The next instant at which something is due.
    fn next(&self, now: Instant) -> Option<Instant> {
        let due =
            [&self.line, &self.overtaken].into_iter().filter_map(|line| Some(line.front()?.0));
        let tokens = self.queue.front().and_then(|frame| {
            let missing = frame.len() as f64 - self.tokens;
            let rate = self.way.rate?;
            Some(now + Duration::from_secs_f64((missing * 8.0 / rate).max(0.0)))
        });
        due.chain(tokens).min()
    }

    /// Whether the policer lets `len` bytes pass.
    fn passes(&mut self, len: usize) -> bool {
        let passes = self.way.policer.is_none() || self.allowance >= len as f64;
        self.allowance -= if passes { len as f64 } else { 0.0 };
        passes
    }

    /// True in this share of the calls (xorshift64, Marsaglia 2003).
    fn chance(&mut self, share: f64) -> bool {
        if share <= 0.0 {
            return false;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 11) as f64) < share * (1_u64 << 53) as f64
    }
}

/// Forwards until the parent says stop or is gone.
pub(crate) fn run(job: &Job, parent: &mut UnixStream) -> Result<Relayed> {
    let open = |name: &str| {
        let what = || format!("opening a packet socket on {name}");
        let fd = sys::packet_socket(index_of(name)?).doing(what)?;
        sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, ARRIVALS).doing(what)?;
        Ok(fd)
    };
    let (inner, outer) = (open(namespace::RELAY_IN)?, open(namespace::RELAY_OUT)?);
    // A poll that wakes 50 us late would show as jitter of the path.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut directions =
        [Direction::new(&inner, &outer, job.out)?, Direction::new(&outer, &inner, job.back)?];
    channel::send(parent, &crate::worker::Reply::Done).doing("telling the parent")?;
    let mut buffer = vec![0; FRAME_MAX];
    let mut stats = Relayed::default();
    loop {
        let now = Instant::now();
        for direction in &mut directions {
            direction.take(&mut buffer, &mut stats)?;
            direction.advance(now, &mut stats);
        }
        let next = directions.iter().filter_map(|d| d.next(now)).min();
        if wait(&inner, &outer, parent, next)? {
            break;
        }
    }
    // The only request is `Stop`, which is answered with the statistics.
    let _: Option<Request> = channel::receive(parent).doing("listening")?;
    stats.late_mean /= (stats.frames.max(1)) as f64;
    Ok(stats)
}

/// Waits for a frame or `until`; true when the parent has sent a request.
fn wait(
    inner: &OwnedFd,
    outer: &OwnedFd,
    parent: &UnixStream,
    until: Option<Instant>,
) -> Result<bool> {
    let timeout = until.map(|at| {
        let left = at.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    let mut polled = [
        PollFd::new(inner, PollFlags::IN),
        PollFd::new(outer, PollFlags::IN),
        PollFd::new(parent, PollFlags::IN),
    ];
    poll(&mut polled, timeout.as_ref()).doing("waiting for frames")?;
    Ok(!polled[2].revents().is_empty())
}
