//! Packets on their way to elements where they end.
//!
//! ```text
//! due soonest                                                    due latest
//! [ bucket | bucket | ... | bucket ] [ row ] [ row ] ... [ row ]  [ beyond ]
//!  a row, thrown into its buckets      each as long as all buckets
//! ```
//!
//! A packet for such an element affects nothing else, so it is not an event. It waits unsorted in a bucket
//! with others due at about the same time; the bucket is sorted when it has ended, and its packets are then
//! received, each at its instant, one after each event, so that their memory is prefetched in time.

use crate::PortId;
use crate::events::Key;
use lastmeter_base::{Packet, Time};
use std::cmp::Reverse;

/// A packet that will be received where it ends.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) due: Key,
    pub(crate) to: u32,
    pub(crate) input: PortId,
    pub(crate) packet: Packet,
}

#[derive(Debug)]
pub(crate) struct Ends {
    /// Those to be received next, the earliest last.
    due: Vec<Ending>,
    /// When the first bucket ends; [`Time::MAX`] if nothing waits.
    next_ends: Time,
    /// The first bucket: its time divided by the width.
    next: u64,
    buckets: Vec<Vec<Ending>>,
    /// Each row at its number modulo [`ROWS`]; that of the buckets is empty.
    rows: Vec<Vec<Ending>>,
    beyond: Vec<Ending>,
    /// Log2 of the width of a bucket in picoseconds.
    shift: u32,
    len: usize,
    /// The first row of [`ROWS`], and how many packets have been taken since it started.
    since: u64,
    taken: u64,
}

/// Log2 of the buckets in a row.
const ROW_BITS: u32 = 8;
const ROWS: u64 = 64;
/// Target number of packets per bucket, up to twice that; beyond the second limit the width is chosen again.
const EACH: u64 = 4;
const EACH_MAX: u64 = 32;
/// The width before anything is known, 66 ns, and the greatest, 1 s.
const SHIFT_FIRST: u32 = 16;
const SHIFT_MAX: u32 = 40;
/// How many packets ahead one is prefetched.
const AHEAD: usize = 4;
/// The same for data that the packet points to.
const RECORD_AHEAD: usize = 2;

impl Default for Ends {
    fn default() -> Ends {
        Ends {
            due: Vec::new(),
            next_ends: Time::MAX,
            next: 0,
            buckets: (0..1 << ROW_BITS).map(|_| Vec::new()).collect(),
            rows: (0..ROWS).map(|_| Vec::new()).collect(),
            beyond: Vec::new(),
            shift: SHIFT_FIRST,
            len: 0,
            taken: 0,
            since: 0,
        }
    }
}

impl Ends {
    /// Number of packets.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a bucket has ended at an instant.
    #[inline]
    pub(crate) fn has_ended(&self, at: Time) -> bool {
        at >= self.next_ends
    }

    /// Puts a packet on its way.
    #[inline]
    pub(crate) fn put(&mut self, ending: Ending, now: Time) {
        if self.len == 0 {
            // Packets added later are usually due later.
            self.begin(ending.due.at());
        } else if ending.due.at().as_ps() >> self.shift < self.next {
            self.begin_again(now);
        }
        self.len += 1;
        self.throw(ending);
    }

    /// A packet is due before the first bucket, so the buckets restart at the present instant; otherwise
    /// earlier packets would wait for that bucket.
    #[cold]
    fn begin_again(&mut self, now: Time) {
        let mut waiting = self.take_all();
        self.begin(now);
        waiting.drain(..).for_each(|ending| self.throw(ending));
    }

    /// All packets in buckets, rows, or beyond.
    fn take_all(&mut self) -> Vec<Ending> {
        let mut all = std::mem::take(&mut self.beyond);
        self.rows.iter_mut().chain(&mut self.buckets).for_each(|part| all.append(part));
        all
    }

    #[inline]
    fn throw(&mut self, ending: Ending) {
        let bucket = (ending.due.at().as_ps() >> self.shift).max(self.next);
        let row = bucket >> ROW_BITS;
        if row == self.next >> ROW_BITS {
            self.buckets[bucket as usize & ((1 << ROW_BITS) - 1)].push(ending);
        } else if row < self.since + ROWS {
            self.rows[(row % ROWS) as usize].push(ending);
        } else {
            self.beyond.push(ending);
        }
    }

    /// Starts when all buckets and rows are empty.
    fn begin(&mut self, at: Time) {
        self.set_next(at.as_ps() >> self.shift);
        self.since = self.next >> ROW_BITS;
        self.taken = 0;
    }

    fn set_next(&mut self, next: u64) {
        self.next = next;
        self.next_ends = Time::from_ps(next.saturating_add(1).saturating_mul(1 << self.shift));
    }

    /// The next packet to be received; prefetches a later one.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Ending> {
        let next = self.due.pop()?;
        let later = |ahead| self.due.len().checked_sub(ahead).and_then(|at| self.due.get(at));
        if let Some(later) = later(AHEAD) {
            later.packet.prefetch();
        }
        if let Some(later) = later(RECORD_AHEAD) {
            later.packet.prefetch_record();
        }
        self.len -= 1;
        if self.len == 0 {
            self.next_ends = Time::MAX;
        }
        Some(next)
    }

    /// Takes the next packets: of a bucket that has ended by `until`, or, if `all` due by then must be received,
    /// of one that has not. None may be left from before. Returns whether there are any now.
    pub(crate) fn load(&mut self, until: Time, all: bool) -> bool {
        debug_assert!(self.due.is_empty(), "one bucket at a time");
        while self.due.is_empty() && self.len > 0 {
            let bucket = &mut self.buckets[self.next as usize & ((1 << ROW_BITS) - 1)];
            if until < self.next_ends {
                if all {
                    self.due.extend(bucket.extract_if(.., |ending| ending.due.at() <= until));
                }
                break;
            }
            std::mem::swap(bucket, &mut self.due);
            self.taken += self.due.len() as u64;
            self.set_next(self.next.saturating_add(1));
            if self.next & ((1 << ROW_BITS) - 1) == 0 {
                self.turn(until);
            } else if self.is_crowded() {
                self.spread((self.due.len() as u64, 1), until);
            }
        }
        // Packets sent by one handler without delay have equal keys, and stay in order.
        self.due.reverse();
        self.due.sort_by_key(|ending| Reverse(ending.due));
        let first = self.due.len().saturating_sub(AHEAD);
        self.due[first..].iter().for_each(|ending| ending.packet.prefetch());
        !self.due.is_empty()
    }

    /// A row has ended: distributes the next non-empty one over buckets, if it has started by `until`. A row that
    /// has not ended is not skipped, because more packets may still be added to it.
    fn turn(&mut self, until: Time) {
        let rows = self.next >> ROW_BITS..self.since + ROWS;
        let mut filled = rows.filter(|row| !self.rows[(row % ROWS) as usize].is_empty());
        let Some(row) = filled.next().filter(|_| self.taken < EACH_MAX * self.passed()) else {
            return self.spread((self.taken, self.passed()), until);
        };
        let now = until.as_ps() >> self.shift;
        if now >> ROW_BITS < row {
            return self.set_next(now.max(self.next));
        }
        self.set_next(row << ROW_BITS);
        let mut waiting = std::mem::take(&mut self.rows[(row % ROWS) as usize]);
        waiting.drain(..).for_each(|ending| self.throw(ending));
        self.rows[(row % ROWS) as usize] = waiting;
    }

    /// Buckets passed since the first row started.
    fn passed(&self) -> u64 {
        self.next - (self.since << ROW_BITS)
    }

    /// Whether one bucket had so many packets that the width should change, and enough to pay for that.
    fn is_crowded(&self) -> bool {
        let taken = self.due.len() as u64;
        taken > EACH_MAX && taken * 8 > self.len as u64
    }

    /// Restarts the rows with the first packet, with the width that would have suited the `taken` packets in
    /// that many buckets; at most twice as wide as before, since many may follow few.
    fn spread(&mut self, (taken, buckets): (u64, u64), until: Time) {
        let wanted = EACH * buckets.max(1);
        let wider = (wanted.ilog2() as i32 - taken.max(1).ilog2() as i32).min(1);
        self.shift = self.shift.saturating_add_signed(wider).min(SHIFT_MAX);
        let waiting = self.take_all();
        if let Some(first) = waiting.iter().map(|ending| ending.due.at()).min() {
            self.begin(first.min(until));
        }
        waiting.into_iter().for_each(|ending| self.throw(ending));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{Bytes, Stream};

    fn ending(at: u64, order: u64) -> Ending {
        let due = Key::new(Time::from_ps(at), order);
        Ending { due, to: 0, input: PortId(0), packet: Packet::new(Bytes(1)) }
    }

    /// Whatever the times, every packet ends once, in order, and none is missing at the end of a step.
    fn check(
        seed: u64,
        steps: f64,
        gap: impl Fn(&mut Stream) -> u64,
        ahead: impl Fn(&mut Stream) -> u64,
    ) {
        let mut stream = Stream::new(seed, "ends");
        let (mut ends, mut waiting) = (Ends::default(), Vec::new());
        let (mut now, mut last) = (0, Key::new(Time::START, 0));
        for order in 1..20_000 {
            let ending = ending(now + ahead(&mut stream), order);
            waiting.push(ending.due);
            ends.put(ending, Time::from_ps(now));
            now += gap(&mut stream);
            let (at, all) = (Time::from_ps(now), stream.chance(steps));
            if !all && !ends.has_ended(at) {
                continue;
            }
            while ends.load(at, all) {
                while let Some(Ending { due, .. }) = ends.next() {
                    assert!(last < due && due.at() <= at, "{last:?} {due:?} at {at}");
                    last = due;
                    let place = waiting.iter().position(|&one| one == due).expect("once");
                    waiting.swap_remove(place);
                }
            }
            assert_eq!(ends.len(), waiting.len());
            assert!(!all || waiting.iter().all(|due| due.at() > at));
        }
        // Nothing waits for longer than a bucket and the pause before it.
        let late = waiting.iter().filter(|due| due.at().as_ps() < now).count();
        assert!(late <= 1000, "{late} packets ended and were not received");
    }

    #[test]
    fn packets_end_once_and_in_order_however_far_apart() {
        check(1, 0.05, |stream| stream.below(20_000), |stream| stream.below(1_000_000));
        check(2, 0.05, |stream| stream.below(100), |stream| 1_000_000 + stream.below(30));
        check(3, 0.05, |stream| stream.below(1 << 44), |stream| stream.below(1 << 45));
        // Many at once after a long pause, and some far behind all others.
        let gap = |stream: &mut Stream| if stream.chance(0.001) { 1 << 36 } else { 10 };
        check(4, 0.05, gap, |stream| 1 << stream.below(40));
        // The first is due far behind all others, and what comes meanwhile does not wait for it.
        let is_first = std::cell::Cell::new(true);
        let ahead = |_: &mut Stream| if is_first.replace(false) { 1 << 62 } else { 9000 };
        check(6, 0.0, |_| 10_000, ahead);
        check(5, 0.05, gap, |stream| stream.below(2) << stream.below(50));
    }
}
