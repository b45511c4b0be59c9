//! A line: a port, the frames waiting to be sent through it, and their lateness.
//!
//! ```text
//! element --> [ outgoing, due times ] --flush--> port        element <-- receive <-- port
//!                                  by the clock, before it waits
//! ```
//!
//! The element and the clock share it, and run in the same thread: the lock is never contended.

use super::{Arrival, BATCH, Counts, Port};
use crate::clock::Epoch;
use lastmeter_base::{Duration, Time};
use lastmeter_engine::Distribution;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

/// A line that an element and a clock share.
pub type Shared = Arc<Mutex<Line>>;

/// Failures in a row after which a port counts as gone.
const FAILURES_MAX: u64 = 1000;
/// Most frames sent between two readings of the clock: each counts as having left when the last of them
/// has.
const SEND_MAX: usize = 8;
/// Most frames received between two readings of the clock.
const RECEIVE_MAX: usize = 8;
/// Most departures kept for a twin run.
const DEPARTURES_MAX: usize = 4 << 20;

/// When a frame left, and when it was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The host that sent it.
    pub from: u32,
    /// Its index among the frames of that host.
    pub seq: u64,
    /// When it was due.
    pub due: Time,
    /// When the kernel had accepted it.
    pub left: Time,
    /// What it carried.
    pub hash: u64,
}

/// A frame that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// When it is due.
    pub due: Time,
    /// How long it had waited in the kernel before it was seen.
    pub age: Duration,
    /// The host that sent it, and its index among that host's frames.
    pub from: (u32, u64),
    /// What it carries, where departures are kept.
    pub hash: u64,
}

/// A port and its statistics.
pub struct Line {
    /// What it is called in reports.
    pub name: String,
    /// Counts of its frames.
    pub counts: Counts,
    /// Lateness of frames: from when they were due until the kernel accepted them, plus the time for which
    /// they had waited unseen on arrival.
    pub lag: Distribution,
    /// Time spent receiving frames from the kernel.
    pub receiving: std::time::Duration,
    /// Time spent handing frames to the kernel.
    pub sending: std::time::Duration,
    /// Where departures are kept.
    pub departures: Option<Vec<Departure>>,
    port: Box<dyn Port>,
    epoch: Epoch,
    frames: Vec<Vec<u8>>,
    outgoing: Vec<Outgoing>,
    failures_in_a_row: u64,
}

impl Line {
    /// A line of `port`, whose times count from `epoch`.
    pub fn new(name: String, port: Box<dyn Port>, epoch: Epoch) -> Line {
        Line {
            name,
            counts: Counts::default(),
            lag: Distribution::default(),
            receiving: std::time::Duration::ZERO,
            sending: std::time::Duration::ZERO,
            departures: None,
            port,
            epoch,
            frames: vec![Vec::new(); BATCH],
            outgoing: Vec::with_capacity(BATCH),
            failures_in_a_row: 0,
        }
    }

    /// Times count from `epoch` from now on.
    pub fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// Whether frames may have arrived.
    #[inline]
    pub(crate) fn ready(&mut self) -> bool {
        !self.gone() && self.port.ready()
    }

    /// What a clock waits for; `None` once the port is gone.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.gone()).then(|| self.port.fd())
    }

    /// Whether the port has failed for good.
    pub fn gone(&self) -> bool {
        self.failures_in_a_row >= FAILURES_MAX
    }

    /// Receives arrived frames, few enough that departures do not wait long for it.
    pub(crate) fn receive(&mut self, frame: &mut dyn FnMut(Arrival<'_>)) {
        let (epoch, from) = (self.epoch, self.epoch.now());
        let mut received = (0, 0);
        let mut counted = |arrival: Arrival<'_>| {
            received.0 += 1;
            received.1 += arrival.len() as u64;
            let age = arrival.age.map(|age| epoch.modelled(age));
            frame(Arrival { age, ..arrival });
        };
        match self.port.receive(RECEIVE_MAX, &mut self.counts, &mut counted) {
            Ok(0) => return,
            Ok(_) => self.failures_in_a_row = 0,
            Err(_) => self.fail(),
        }
        self.counts.received += received.0;
        self.counts.received_bytes += received.1;
        self.receiving += self.epoch.since(from);
    }

    /// The port has failed once.
    pub(crate) fn fail(&mut self) {
        self.counts.failures += 1;
        self.failures_in_a_row += 1;
    }

    /// Puts a frame into the batch for the next flush. Returns a used buffer in `frame`.
    pub(crate) fn put(&mut self, frame: &mut Vec<u8>, outgoing: Outgoing) {
        if self.outgoing.len() == BATCH {
            self.flush();
        }
        std::mem::swap(&mut self.frames[self.outgoing.len()], frame);
        self.outgoing.push(outgoing);
    }

    /// Whether frames wait to be sent.
    #[inline]
    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends the batch; returns its greatest lateness.
    pub(crate) fn flush(&mut self) -> Duration {
        let mut worst = Duration::ZERO;
        let from = self.epoch.now();
        let mut sent = 0;
        while sent < self.outgoing.len() {
            let frames = &self.frames[sent..self.outgoing.len().min(sent + SEND_MAX)];
            let before = self.counts.sent;
            let dealt = match self.port.send(frames, &mut self.counts) {
                Ok(dealt) => dealt,
                Err(_) => {
                    self.fail();
                    self.counts.unreachable += 1;
                    1
                }
            };
            if self.counts.sent > before {
                let left = self.epoch.now();
                let leaving = self.outgoing[sent..sent + dealt].iter();
                leaving.for_each(|out| worst = worst.max(depart(&mut self.lag, out, left)));
                self.keep(sent..sent + dealt, left);
                self.failures_in_a_row = 0;
            }
            sent += dealt;
        }
        self.outgoing.clear();
        self.sending += self.epoch.since(from);
        worst
    }

    fn keep(&mut self, which: std::ops::Range<usize>, left: Time) {
        let Some(departures) = &mut self.departures else { return };
        for &Outgoing { due, from: (from, seq), hash, .. } in &self.outgoing[which] {
            if departures.len() < DEPARTURES_MAX {
                departures.push(Departure { from, seq, due, left, hash });
            }
        }
    }

    /// Collects the port's lost frames, and returns all that the emulator itself lost here.
    pub fn overruns(&mut self) -> u64 {
        self.counts.overrun += self.port.overruns();
        self.counts.overrun + self.counts.refused
    }
}

#[inline]
fn depart(lag: &mut Distribution, out: &Outgoing, left: Time) -> Duration {
    let late = left.saturating_since(out.due) + out.age;
    lag.record(late);
    late
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{FRAME_MAX, FRAME_MIN};
    use std::collections::VecDeque;
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};

    /// A port that behaves as the test sets it.
    struct Told {
        fd: OwnedFd,
        arriving: VecDeque<Vec<u8>>,
        sends: VecDeque<io::Result<usize>>,
    }

    impl Told {
        fn new(sends: Vec<io::Result<usize>>) -> Told {
            let fd = std::fs::File::open("/dev/null").unwrap().into();
            Told { fd, arriving: VecDeque::new(), sends: sends.into() }
        }
    }

    impl Port for Told {
        fn fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }
        fn ready(&mut self) -> bool {
            !self.arriving.is_empty()
        }
        fn receive(
            &mut self,
            most: usize,
            counts: &mut Counts,
            frame: &mut dyn FnMut(Arrival<'_>),
        ) -> io::Result<usize> {
            let taken = self.arriving.len().min(most);
            for bytes in self.arriving.drain(..taken) {
                match bytes.len() {
                    0..FRAME_MIN => counts.truncated += 1,
                    len if len > FRAME_MAX => counts.oversized += 1,
                    _ => frame(Arrival { parts: [&bytes, &[], &[]], age: None }),
                }
            }
            Ok(taken)
        }
        fn send(&mut self, frames: &[Vec<u8>], counts: &mut Counts) -> io::Result<usize> {
            let sent = self.sends.pop_front().unwrap_or(Ok(frames.len()))?.min(frames.len());
            counts.sent += sent as u64;
            Ok(sent.max(1))
        }
        fn overruns(&mut self) -> u64 {
            0
        }
    }

    fn outgoing(due: Time) -> Outgoing {
        Outgoing { due, age: Duration::ZERO, from: (0, 0), hash: 0 }
    }

    #[test]
    fn a_full_batch_is_sent_before_the_next_frame() {
        let mut line = Line::new("a".into(), Box::new(Told::new(Vec::new())), Epoch::start());
        for _ in 0..BATCH + 1 {
            line.put(&mut vec![0; 60], outgoing(Time::START));
        }
        assert_eq!(line.counts.sent, BATCH as u64);
        assert!(line.has_outgoing());
        line.flush();
        assert_eq!((line.counts.sent, line.lag.count()), (BATCH as u64 + 1, BATCH as u64 + 1));
    }

    #[test]
    fn failures_are_counted_and_only_repeated_ones_end_the_port() {
        let broken = || Err(io::Error::from_raw_os_error(libc::EBADFD));
        let sends = vec![Ok(1), broken(), Ok(1)];
        let mut line = Line::new("a".into(), Box::new(Told::new(sends)), Epoch::start());
        (0..3).for_each(|_| line.put(&mut vec![0; 60], outgoing(Time::START)));
        line.flush();
        let counts = line.counts;
        assert_eq!((counts.sent, counts.failures, counts.unreachable), (2, 1, 1));
        assert!(!line.gone());
        (0..FAILURES_MAX).for_each(|_| line.fail());
        assert!(line.gone() && !line.ready() && line.fd().is_none());
    }

    #[test]
    fn every_bad_frame_has_its_reason() {
        let mut port = Told::new(Vec::new());
        port.arriving = [13, 14, FRAME_MAX, FRAME_MAX + 1, 0].map(|len| vec![0; len]).into();
        let mut line = Line::new("a".into(), Box::new(port), Epoch::start());
        let mut seen = Vec::new();
        line.receive(&mut |arrival| seen.push(arrival.len()));
        let counts = line.counts;
        assert_eq!(seen, [14, FRAME_MAX]);
        assert_eq!((counts.received, counts.truncated, counts.oversized), (2, 2, 1));
    }

    #[test]
    fn lateness_includes_the_wait_before_arrival_and_the_time_to_send() {
        let epoch = Epoch::start();
        let mut line = Line::new("a".into(), Box::new(Told::new(Vec::new())), epoch);
        line.departures = Some(Vec::new());
        let age = Duration::from_ms(3);
        let due = epoch.now();
        line.put(&mut vec![0; 60], Outgoing { age, from: (4, 7), ..outgoing(due) });
        let worst = line.flush();
        assert!(worst >= age && worst == line.lag.max());
        let departure = line.departures.as_ref().unwrap()[0];
        assert_eq!((departure.from, departure.seq, departure.due), (4, 7, due));
        assert!(departure.left >= due);
    }
}
