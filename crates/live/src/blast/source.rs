//! A source: sends a flow's packets when they are due, and records their lateness.
//!
//! Between departures it sleeps until shortly before the next one and then polls the clock. All packets
//! that are due go to the kernel in one call (`sendmmsg`); where allowed, packets of one size go in trains
//! that the kernel segments (UDP GSO). A packet's lateness counts from when it was due until the kernel
//! accepted it, as in the certificate of a live run.

use super::clock;
use super::header::{self, Header, Kind};
use super::message::SourceJob;
use super::report::SourceReport;
use super::session::Shared;
use super::traffic::{Departure, Format, Pace, Schedule, any_address, headers_len};
use lastmeter_linux::port::Headers;
use lastmeter_linux::sys;
use lastmeter_linux::token;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

/// The most packets or trains in one system call.
const FRAMES: usize = 64;
/// The most packets in one system call.
const PACKETS: usize = 256;
/// The most packets of one train (`UDP_MAX_SEGMENTS` of kernels before 6.9).
const TRAIN: usize = 64;
/// The most bytes of one train: the longest UDP length.
const TRAIN_LEN: usize = 65_507;
/// How long before a departure sleeping ends and polling starts, in nanoseconds: sleeps end late by
/// some tens of microseconds.
const SPIN: u64 = 100_000;
/// The longest sleep, which bounds how late a stop is noticed.
const SLEEP_MAX: u64 = 20_000_000;
/// How long after its end a source may send overdue packets, in nanoseconds.
const GRACE: u64 = 10_000_000;
/// Limit on the missed departures that are counted.
const BEHIND_MAX: usize = 10_000_000;
/// Probes to a sink before giving up, and the timeout of each.
const PROBES: u32 = 20;
const PROBE_WAIT: Duration = Duration::from_millis(100);
/// A source kept up if this share of its departures was at most a millisecond late: the requirement on a
/// live run that sleeps.
const SHARE_MIN: f64 = 0.99;

/// A source that has found its sink.
pub(super) struct Source {
    job: SourceJob,
    run: u64,
    socket: UdpSocket,
    /// Bytes of each packet of a train; `None` where packets go one by one.
    segment: Option<usize>,
}

impl Source {
    /// Opens a socket and probes the sink.
    ///
    /// # Errors
    /// The packets cannot be sent, or the sink does not reply.
    pub(super) fn aim(job: SourceJob, run: u64) -> Result<Source, String> {
        job.traffic.check().map_err(|error| error.to_string())?;
        let ipv6 = job.to.is_ipv6();
        let (low, high) = job.traffic.size.bounds().expect("checked traffic has a size");
        let fits = |size| job.traffic.format.payload(size, ipv6).is_some();
        if !fits(low) || !fits(high) {
            let least = header::LEN + headers_len(ipv6);
            return Err(format!("{low} B to {high} B: a packet to there has at least {least} B"));
        }
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((any_address(ipv6), 0))?;
            socket.connect(job.to)?;
            socket.set_read_timeout(Some(PROBE_WAIT))?;
            Ok(socket)
        };
        let socket = open().map_err(|error| format!("sending to {}: {error}", job.to))?;
        probe(&socket, &job, run)?;
        let mut segment = None;
        match job.traffic.format {
            Format::Aal5 if !ipv6 => {
                let set = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1);
                set.map_err(|error| format!("disabling UDP's checksum: {error}"))?;
            }
            Format::Aal5 => {}
            Format::Udp => {
                let constant = job.traffic.size.constant().filter(|_| job.traffic.offload);
                let len = constant.and_then(|size| Format::Udp.payload(size, ipv6));
                // A kernel without it sends packets one by one.
                segment = len.filter(|&len| set_segment(&socket, len).is_ok());
            }
        }
        Ok(Source { job, run, socket, segment })
    }

    /// Sends from `begin` on, in nanoseconds of this host's clock, until the flow ends or is stopped.
    pub(super) fn run(self, index: usize, begin: u64, shared: &Shared) -> SourceReport {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let begin = begin.saturating_add(self.job.traffic.start.as_ps() / 1000);
        let schedule = Schedule::new(&self.job.traffic, self.job.seed, &self.job.name);
        let mut sending = Sending::new(&self, begin, schedule.clone());
        let ended = match wait(begin, shared) {
            true => sending.run(shared, index),
            false => Ended::Stopped,
        };
        sending.report(ended)
    }
}

fn set_segment(socket: &UdpSocket, len: usize) -> io::Result<()> {
    sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, len as i32)
}

/// A sink answers a probe with the same packet: traffic goes only to those that accept it. The nonce is known to
/// nobody but this process and whoever receives the probe, so nobody can answer for another.
fn probe(socket: &UdpSocket, job: &SourceJob, run: u64) -> Result<(), String> {
    let nonce = token::number().map_err(|error| error.to_string())?;
    let mut found = String::from("no reply");
    for _ in 0..PROBES {
        let header = Header {
            kind: Kind::Probe,
            flow: job.flow,
            len: header::LEN as u16,
            run,
            seq: nonce,
            sent: clock::now(),
        };
        if let Err(error) = socket.send(&header.emit()) {
            found = error.to_string();
        }
        let mut answer = [0; 2 * header::LEN];
        match socket.recv(&mut answer) {
            Ok(len) => {
                let read = Header::parse(&answer[..len]);
                let ours = |read: &Header| {
                    (read.kind, read.run, read.flow, read.seq) == (Kind::Echo, run, job.flow, nonce)
                };
                if read.as_ref().is_ok_and(ours) {
                    return Ok(());
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => {
                found = error.to_string();
                std::thread::sleep(PROBE_WAIT);
            }
        }
    }
    let waited = PROBE_WAIT * PROBES;
    let to = job.to;
    Err(format!("no packet reaches {to} over UDP and back within {waited:?}: {found}"))
}

/// Waits until `at`; returns whether that came before a stop.
fn wait(at: u64, shared: &Shared) -> bool {
    loop {
        if shared.halted() {
            return false;
        }
        let left = at.saturating_sub(clock::now());
        match left {
            0 => return true,
            left if left > SPIN => {
                std::thread::sleep(Duration::from_nanos((left - SPIN).min(SLEEP_MAX)));
            }
            _ => std::hint::spin_loop(),
        }
    }
}

/// How a source ended.
enum Ended {
    Done,
    Stopped,
    Failed(io::Error),
}

/// A source at work.
struct Sending<'a> {
    source: &'a Source,
    begin: u64,
    /// When it ends.
    end: u64,
    schedule: Schedule,
    next: Option<Departure>,
    headers: Headers,
    frames: Vec<Vec<u8>>,
    /// For each frame, its packets: when each was due, in nanoseconds, and its size.
    due: Vec<Vec<(u64, u32)>>,
    /// Frames that are filled.
    used: usize,
    segment: Option<usize>,
    seq: u64,
    report: SourceReport,
    /// Bytes that were to be sent.
    asked: u64,
    within: [u64; 3],
    worst: u64,
    last: u64,
}

impl<'a> Sending<'a> {
    fn new(source: &'a Source, begin: u64, mut schedule: Schedule) -> Sending<'a> {
        let lasts = source.job.traffic.duration.unwrap_or(super::RUN_MAX).as_ps() / 1000;
        Sending {
            source,
            begin,
            end: begin.saturating_add(lasts),
            next: schedule.next(),
            schedule,
            headers: Headers::new(FRAMES),
            frames: (0..FRAMES).map(|_| Vec::new()).collect(),
            due: (0..FRAMES).map(|_| Vec::new()).collect(),
            used: 0,
            segment: source.segment,
            seq: 0,
            report: SourceReport { flow: source.job.flow, ..SourceReport::default() },
            asked: 0,
            within: [0; 3],
            worst: 0,
            last: begin,
        }
    }

    fn paced(&self) -> bool {
        self.source.job.traffic.pace != Pace::Fastest
    }

    fn run(&mut self, shared: &Shared, index: usize) -> Ended {
        while let Some(next) = self.next {
            let due = self.begin.saturating_add(next.at.as_ps() / 1000);
            if !wait(due, shared) {
                return Ended::Stopped;
            }
            let now = clock::now();
            let late = if self.paced() { GRACE } else { 0 };
            if now >= self.end.saturating_add(late) {
                break;
            }
            self.fill(now);
            if let Err(error) = self.send(shared) {
                return Ended::Failed(error);
            }
            shared.sent[index].store(self.report.packets, std::sync::atomic::Ordering::Relaxed);
        }
        Ended::Done
    }

    /// Puts the packets due at `now` into frames.
    fn fill(&mut self, now: u64) {
        let (format, ipv6) = (self.source.job.traffic.format, self.source.job.to.is_ipv6());
        let train = self.segment.map_or(1, |len| TRAIN.min(TRAIN_LEN / len).max(1));
        let mut packets = 0;
        self.used = 0;
        while let Some(next) = self.next {
            let due = self.begin.saturating_add(next.at.as_ps() / 1000);
            let room = self.used > 0 && self.due[self.used - 1].len() < train;
            if due > now || packets == PACKETS || (!room && self.used == FRAMES) {
                break;
            }
            if !room {
                self.frames[self.used].clear();
                self.due[self.used].clear();
                self.used += 1;
            }
            let len = match format {
                Format::Udp => format.payload(next.size, ipv6).expect("sizes were checked"),
                Format::Aal5 => next.size as usize,
            };
            let header = Header {
                kind: Kind::Data,
                flow: self.source.job.flow,
                len: len as u16,
                run: self.source.run,
                seq: self.seq,
                sent: now,
            };
            header::emit(format, &header, &mut self.frames[self.used - 1]);
            self.due[self.used - 1].push((due, next.size));
            self.seq += 1;
            self.asked += u64::from(next.size);
            packets += 1;
            self.next = self.schedule.next();
        }
    }

    /// Hands all frames to the kernel.
    fn send(&mut self, shared: &Shared) -> io::Result<()> {
        let (mut at, mut refusals) = (0, 0);
        while at < self.used {
            let fd = self.source.socket.as_fd();
            match self.headers.send_all(fd, &self.frames[at..self.used]) {
                Ok(sent) => {
                    self.count(at..at + sent);
                    at += sent;
                    refusals = 0;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS) if shared.halted() => return Ok(()),
                    Some(libc::EAGAIN | libc::ENOBUFS) => {
                        let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
                        let soon = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                        let _ = poll(&mut polled, Some(&soon));
                    }
                    Some(libc::EINTR) => {}
                    // An earlier packet's error: this one has not been tried.
                    Some(libc::ECONNREFUSED) if refusals == 0 => refusals += 1,
                    Some(libc::ECONNREFUSED) => {
                        self.report.refused += self.due[at].len() as u64;
                        at += 1;
                        refusals = 0;
                    }
                    // An interface or a path that does not support trains.
                    Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE) if self.segment.is_some() => {
                        self.cut(at)?;
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Continues without trains from frame `at`: the remaining frames are cut into packets.
    fn cut(&mut self, at: usize) -> io::Result<()> {
        let len = self.segment.take().expect("there are trains");
        set_segment(&self.source.socket, 0)?;
        let mut frames = Vec::new();
        let mut due = Vec::new();
        for frame in at..self.used {
            frames.extend(self.frames[frame].chunks(len).map(<[u8]>::to_vec));
            due.extend(self.due[frame].iter().map(|&one| vec![one]));
        }
        let keep = at + frames.len();
        self.frames.splice(at.., frames);
        self.due.splice(at.., due);
        self.frames.resize_with(keep.max(FRAMES), Vec::new);
        self.due.resize_with(keep.max(FRAMES), Vec::new);
        self.used = keep;
        Ok(())
    }

    /// Counts frames that the kernel has accepted.
    fn count(&mut self, frames: std::ops::Range<usize>) {
        self.last = clock::now();
        for &(due, size) in self.due[frames].iter().flatten() {
            self.report.packets += 1;
            self.report.bytes += u64::from(size);
            let lag = self.last.saturating_sub(due);
            self.worst = self.worst.max(lag);
            for (within, limit) in self.within.iter_mut().zip([10_000, 100_000, 1_000_000]) {
                *within += u64::from(lag <= limit);
            }
        }
    }

    fn report(mut self, ended: Ended) -> SourceReport {
        let paced = self.paced();
        if paced && matches!(ended, Ended::Done) {
            let left = self.next.into_iter().chain(&mut self.schedule).take(BEHIND_MAX);
            for missed in left {
                self.report.behind += 1;
                self.asked += u64::from(missed.size);
            }
        }
        let mut elapsed = self.last.saturating_sub(self.begin) as f64 * 1e-9;
        let mut report = self.report;
        report.interrupted = matches!(ended, Ended::Stopped);
        if paced {
            // A packet includes its gap: one that leaves in time does not make the rate too high.
            let planned = self.schedule.reached().as_secs_f64();
            let planned = match self.source.job.traffic.duration {
                Some(most) if report.interrupted => planned.min(most.as_secs_f64()),
                Some(most) if self.source.job.traffic.count.is_none() => most.as_secs_f64(),
                _ => planned,
            };
            let planned = planned.max(1e-9);
            report.intended_rate = Some(self.asked as f64 * 8.0 / planned);
            elapsed = elapsed.max(planned);
            let share = |count: u64| Some(count as f64 / report.packets.max(1) as f64);
            let [ten, hundred, thousand] = self.within;
            report.within_10us = share(ten);
            report.within_100us = share(hundred);
            report.within_1ms = share(thousand);
            report.worst_lag = self.worst as f64 * 1e-9;
        }
        if elapsed > 0.0 {
            report.rate = report.bytes as f64 * 8.0 / elapsed;
            report.packet_rate = report.packets as f64 / elapsed;
        }
        report.offload = self.segment.is_some();
        if let Ended::Failed(error) = ended {
            report.error = Some(error.to_string());
        }
        let on_time = report.within_1ms.is_none_or(|share| share >= SHARE_MIN);
        report.kept_up = on_time
            && report.behind == 0
            && report.refused == 0
            && report.error.is_none()
            && (report.packets > 0 || report.interrupted);
        report
    }
}
