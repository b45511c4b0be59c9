//! A switch's bus or channel: one frame at a time, with two priorities.
//!
//! | pre-emption | a priority frame that finds another in transmission |
//! |---|---|
//! | none | waits for its end |
//! | suspension | takes the line at once; the other frame resumes after it |
//! | fragments | takes it once both parts of the other frame are long enough to be frames |
//!
//! A resumed frame repeats some bytes: header, check and gap. Source: HPL-93-37 §3.5
//! ("a priority access path, so that a higher priority frame can temporarily suspend the transfer of a
//! lower priority frame"); IEEE 802.3br-2016 §99 (both parts at least 64 bytes, 24 bytes per fragment).

use lastmeter_base::{Bytes, Duration, Rate, Time};
use std::collections::VecDeque;

/// What a priority frame may do to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// Nothing.
    None,
    /// Suspend it at any byte.
    Suspension,
    /// Cut it if both parts have at least `least` bytes; each further part costs `overhead`.
    Fragments {
        /// Of each part.
        least: Bytes,
        /// Of each part but the first.
        overhead: Bytes,
    },
}

impl Preemption {
    /// The parameters of 802.3br.
    pub const ETHERNET: Preemption =
        Preemption::Fragments { least: Bytes(64), overhead: Bytes(24) };
}

/// A frame on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The caller's number for it.
    pub id: u64,
    /// Its length.
    pub len: Bytes,
    /// Whether it has priority.
    pub priority: bool,
}

/// A completed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Through {
    /// The frame.
    pub frame: Frame,
    /// When it was ready.
    pub ready: Time,
    /// When its first byte was sent.
    pub started: Time,
    /// When its last byte was sent.
    pub ended: Time,
    /// Number of suspensions.
    pub suspended: u32,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    frame: Frame,
    ready: Time,
    started: Option<Time>,
    /// Bytes left to send.
    left: Bytes,
    suspended: u32,
}

/// A line.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate, Time};
/// use lastmeter_repro::machines::switch::line::{Frame, Line, Preemption};
/// let mut line = Line::new(Rate::from_gbit(1), Preemption::Suspension);
/// line.enqueue(Time::START, Frame { id: 0, len: Bytes(65_576), priority: false });
/// let at = Time::START + Duration::from_us(10);
/// line.advance(at, |_| {});
/// line.enqueue(at, Frame { id: 1, len: Bytes(100), priority: true });
/// let mut through = Vec::new();
/// line.advance(Time::START + Duration::from_ms(1), |one| through.push(one.frame.id));
/// assert_eq!(through, [1, 0]);
/// ```
#[derive(Clone, Debug)]
pub struct Line {
    rate: Rate,
    preemption: Preemption,
    ordinary: VecDeque<Transfer>,
    urgent: VecDeque<Transfer>,
    /// The frame in transmission, its start, and its expected end.
    current: Option<(Transfer, Time, Time)>,
    /// No frame may start before this.
    free_at: Time,
}

impl Line {
    /// An idle line.
    pub fn new(rate: Rate, preemption: Preemption) -> Line {
        let (ordinary, urgent) = (VecDeque::new(), VecDeque::new());
        Line { rate, preemption, ordinary, urgent, current: None, free_at: Time::START }
    }

    /// A frame is ready at `now`; the line has been advanced to `now`.
    pub fn enqueue(&mut self, now: Time, frame: Frame) {
        let transfer = Transfer { frame, ready: now, started: None, left: frame.len, suspended: 0 };
        match frame.priority {
            true => self.urgent.push_back(transfer),
            false => self.ordinary.push_back(transfer),
        }
        if frame.priority {
            self.cut(now);
        }
        self.begin(now);
    }

    /// The time of the next event.
    pub fn ready_at(&self) -> Option<Time> {
        self.current.as_ref().map(|&(_, _, until)| until)
    }

    /// Processes all due events, and reports completed frames.
    pub fn advance(&mut self, now: Time, mut through: impl FnMut(Through)) {
        while let Some((mut transfer, since, until)) = self.current.filter(|one| one.2 <= now) {
            self.current = None;
            self.free_at = until;
            let sent = Bytes((self.sent(until - since).0).min(transfer.left.0));
            transfer.left = Bytes(transfer.left.0 - sent.0);
            if transfer.left == Bytes::ZERO {
                let Transfer { frame, ready, started, suspended, .. } = transfer;
                let started = started.expect("what ends has begun");
                through(Through { frame, ready, started, ended: until, suspended });
            } else {
                transfer.suspended += 1;
                if let Preemption::Fragments { overhead, .. } = self.preemption {
                    transfer.left += overhead;
                }
                self.ordinary.push_front(transfer);
            }
            self.begin(until);
        }
    }

    /// Bytes that a line carries in a given time.
    fn sent(&self, time: Duration) -> Bytes {
        Bytes(
            (u128::from(time.as_ps()) * u128::from(self.rate.as_bits()) / 8_000_000_000_000) as u64,
        )
    }

    fn begin(&mut self, now: Time) {
        if self.current.is_some() {
            return;
        }
        let Some(mut next) = self.urgent.pop_front().or_else(|| self.ordinary.pop_front()) else {
            return;
        };
        let since = now.max(self.free_at);
        next.started.get_or_insert(since);
        self.current = Some((next, since, since + self.rate.time_for(next.left)));
    }

    /// Ends the current transmission early, if allowed.
    fn cut(&mut self, now: Time) {
        let Some((transfer, since, until)) = &mut self.current else { return };
        if transfer.frame.priority {
            return;
        }
        let (least, left) = match self.preemption {
            Preemption::None => return,
            Preemption::Suspension => (Bytes::ZERO, transfer.left),
            Preemption::Fragments { least, .. } => (least, transfer.left),
        };
        // The end of the byte in transmission.
        let bits = (now - *since).as_ps();
        let sent = (u128::from(bits) * u128::from(self.rate.as_bits())).div_ceil(8_000_000_000_000);
        let at = Bytes((sent as u64).max(least.0));
        if at + least <= left {
            *until = (*until).min((*since + self.rate.time_for(at)).max(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Stream;

    const KINDS: [Preemption; 3] = [Preemption::None, Preemption::Suspension, Preemption::ETHERNET];

    /// The longest wait of a priority frame among long ones, and all completed frames.
    fn load(preemption: Preemption) -> (Duration, Vec<Through>) {
        let mut random = Stream::new(1, "line");
        let mut line = Line::new(Rate::from_gbit(1), preemption);
        let (mut now, mut all) = (Time::START, Vec::new());
        for id in 0..4000 {
            now += Duration::from_ns(random.below(300_000));
            line.advance(now, |one| all.push(one));
            let priority = random.chance(0.5);
            let len = if priority { 64 + random.below(1000) } else { 64 + random.below(65_000) };
            line.enqueue(now, Frame { id, len: Bytes(len), priority });
        }
        line.advance(Time::START + Duration::from_secs(100), |one| all.push(one));
        let urgent = all.iter().filter(|one| one.frame.priority && alone(one, &all));
        (urgent.map(|one| one.started - one.ready).max().unwrap(), all)
    }

    /// Whether no other priority frame was in its way.
    fn alone(one: &Through, all: &[Through]) -> bool {
        let others = all.iter().filter(|other| other.frame.priority && other.frame != one.frame);
        others.into_iter().all(|other| other.ended <= one.ready || other.ready > one.ready)
    }

    #[test]
    fn j_63_a_frame_of_priority_waits_for_a_whole_one_for_a_byte_or_for_a_fragment() {
        let [whole, byte, fragment] = KINDS.map(|kind| load(kind).0);
        assert!(whole > Duration::from_us(400), "{whole}");
        assert!(byte <= Duration::from_ns(8), "{byte}");
        // 127 bytes, which cannot be cut.
        assert!(fragment > Duration::from_ns(300) && fragment <= Duration::from_ns(1016));
    }

    #[test]
    fn every_frame_goes_through_once_and_whole() {
        for kind in KINDS {
            let (_, all) = load(kind);
            let mut ids: Vec<u64> = all.iter().map(|one| one.frame.id).collect();
            ids.sort_unstable();
            assert_eq!(ids, (0..4000).collect::<Vec<_>>());
            let rate = Rate::from_gbit(1);
            for one in &all {
                let least = rate.time_for(one.frame.len);
                assert!(one.started >= one.ready && one.ended - one.started >= least);
                let cut = kind != Preemption::None && !one.frame.priority;
                assert!(one.suspended == 0 || cut);
            }
            let cut = all.iter().any(|one| one.suspended > 0);
            assert_eq!(cut, kind != Preemption::None);
        }
    }
}
