//! When each packet of a frame leaves, as its receiver wants it: scan lines between pauses, the pause, packets of a
//! burst, the gap between bursts. And the certificate of how well that was kept.
//!
//! No packet holds bytes of two groups of lines; of a JPEG, a share of its bytes counts as lines.

use lastmeter_wire::atm::CELL_LEN;
use lastmeter_wire::camera::{PIECE_LEN, Shape, cells};
use serde_json::{Value, json};
use std::time::Duration;

/// Bytes of a datagram, unless a receiver wants others: an Ethernet frame's without fragments.
pub const PACKET: usize = 1472;
/// The most: of a frame of 9000 bytes.
pub const PACKET_MAX: usize = 8972;
/// The fewest.
pub const PACKET_MIN: usize = 128;
/// The longest pause or gap.
pub const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The longest time for which knobs spread a frame; what would leave later leaves then.
pub const FRAME_TIME_MAX: Duration = Duration::from_secs(10);

/// A packet of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its first byte in the frame.
    pub offset: usize,
    /// Its bytes of the frame.
    pub len: usize,
    /// When it leaves, after the first.
    pub due: Duration,
}

/// The packets of a frame of so many bytes and lines.
pub fn plan(shape: Shape, bytes: usize, lines: u16) -> impl Iterator<Item = Planned> {
    let packet = match usize::from(shape.packet) {
        0 => PACKET,
        wanted => wanted.clamp(PACKET_MIN, PACKET_MAX),
    };
    let room = packet - PIECE_LEN;
    let time = |micros: u32| Duration::from_micros(micros.into()).min(PAUSE_MAX);
    let (pause, gap, burst) = (time(shape.pause), time(shape.gap), u32::from(shape.burst));
    let group = match shape.lines {
        0 => bytes,
        wanted => (bytes * usize::from(wanted)).div_ceil(usize::from(lines.max(1))),
    };
    let group = group.max(1);
    let (mut offset, mut due, mut in_burst) = (0, Duration::ZERO, 0);
    std::iter::from_fn(move || {
        if offset >= bytes {
            return None;
        }
        if offset > 0 && offset % group == 0 && !pause.is_zero() {
            due += pause;
            in_burst = 0;
        } else if burst > 0 && in_burst == burst {
            due += gap;
            in_burst = 0;
        }
        in_burst += 1;
        let end = (offset / group + 1) * group;
        let len = room.min(end - offset).min(bytes - offset);
        let planned = Planned { offset, len, due: due.min(FRAME_TIME_MAX) };
        offset += len;
        Some(planned)
    })
}

/// The most bytes of a frame in a PDU of cells.
pub const PDU_MAX: usize = 60_000;

/// The PDUs of a frame in cells, and its application data units: each a group of lines, as far as it fits; as offset,
/// length, and whether it begins a group.
pub fn pdus(shape: Shape, bytes: usize, lines: u16) -> Vec<(usize, usize, bool)> {
    let group = match shape.lines {
        0 => bytes,
        wanted => (bytes * usize::from(wanted)).div_ceil(usize::from(lines.max(1))),
    };
    let (group, mut found) = (group.max(1), Vec::new());
    for start in (0..bytes).step_by(group) {
        let end = (start + group).min(bytes);
        let parts = (start..end).step_by(PDU_MAX);
        found.extend(parts.map(|at| (at, PDU_MAX.min(end - at), at == start)));
    }
    found
}

/// When cells or fragments leave: bursts of so many, a gap between two, which goes on over the PDUs of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Bursts {
    shape: Shape,
    room: usize,
    sent: usize,
    due: Duration,
}

impl Bursts {
    /// From a frame's beginning.
    pub fn new(shape: Shape) -> Bursts {
        let most = match usize::from(shape.packet) {
            0 => cells::PER_DATAGRAM,
            bytes => (bytes / CELL_LEN).clamp(1, cells::PER_DATAGRAM),
        };
        Bursts { shape, room: most, sent: 0, due: Duration::ZERO }
    }
    /// The same of fragments, each a datagram.
    pub fn of_fragments(shape: Shape) -> Bursts {
        Bursts { room: 1, ..Bursts::new(shape) }
    }
    /// A group of lines begins.
    pub fn pause(&mut self) {
        let pause = Duration::from_micros(self.shape.pause.into()).min(PAUSE_MAX);
        if !pause.is_zero() {
            (self.due, self.sent) = ((self.due + pause).min(FRAME_TIME_MAX), 0);
        }
    }
    /// How many of so many cells the next datagram takes, and when it leaves.
    pub fn take(&mut self, left: usize) -> (usize, Duration) {
        let burst = usize::from(self.shape.burst);
        if burst > 0 && self.sent == burst {
            let gap = Duration::from_micros(self.shape.gap.into()).min(PAUSE_MAX);
            (self.due, self.sent) = ((self.due + gap).min(FRAME_TIME_MAX), 0);
        }
        let fits = if burst == 0 { self.room } else { self.room.min(burst - self.sent) };
        let count = fits.min(left);
        self.sent += count;
        (count, self.due)
    }
}

/// Keeps the gaps of a plan. A packet that leaves late is made up for by at most one gap, so that never more than two
/// bursts follow each other; what it was later, the rest of the frame is, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keeper {
    shift: Duration,
    last: Duration,
}

impl Keeper {
    /// When a packet leaves that the plan has at `due`.
    pub fn target(&self, due: Duration) -> Duration {
        due + self.shift
    }
    /// It left; returns how late.
    pub fn left(&mut self, due: Duration, now: Duration) -> Duration {
        let lag = now.saturating_sub(self.target(due));
        let gap = due.saturating_sub(self.last);
        // Packets of a burst are late together.
        if !gap.is_zero() {
            self.shift += lag.saturating_sub(gap);
        }
        self.last = due;
        lag
    }
}

/// How late packets left: powers of two of microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    bins: [u64; 21],
    longest: Duration,
}

impl Certificate {
    /// A packet left so long after it was due.
    pub fn add(&mut self, lag: Duration) {
        let micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        let bin = (u64::BITS - micros.leading_zeros()) as usize;
        self.bins[bin.min(self.bins.len() - 1)] += 1;
        self.longest = self.longest.max(lag);
    }
    /// Adds another's packets.
    pub fn join(&mut self, other: &Certificate) {
        self.bins.iter_mut().zip(other.bins).for_each(|(own, other)| *own += other);
        self.longest = self.longest.max(other.longest);
    }
    /// Packets that were timed.
    pub fn packets(&self) -> u64 {
        self.bins.iter().sum()
    }
    /// For programs: packets, the longest lag in seconds, and how many were late by less than so many microseconds.
    pub fn value(&self) -> Value {
        let bins = self.bins.iter().enumerate().filter(|(_, count)| **count > 0);
        let bins: Vec<Value> =
            bins.map(|(bin, count)| json!({ "below_us": 1u64 << bin, "packets": count })).collect();
        json!({ "packets": self.packets(), "longest": self.longest.as_secs_f64(), "lag": bins })
    }
}
