//! When each packet of a frame leaves, as its receiver wants it: scan lines between pauses, the pause, packets of a
//! burst, the gap between bursts. And the certificate of how well that was kept.
//!
//! No packet holds bytes of two groups of lines; of a JPEG, a share of its bytes counts as lines.

use lastmeter_wire::camera::{PIECE_LEN, Shape};
use serde_json::{Value, json};
use std::time::Duration;

/// The most bytes of a datagram: an Ethernet frame's without fragments.
pub const PACKET_MAX: usize = 1472;
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
        0 => PACKET_MAX,
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
        if offset > 0 && offset % group == 0 {
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
