//! One link in virtual time that sends application data units (ADUs) of several priorities.
//!
//! | way | on the line | scheduling decisions |
//! |---|---|---|
//! | [`Way::Whole`] | the unit, a header for each fragment | when a unit ends, or a more urgent one arrives |
//! | [`Way::Continue`] | cells | the same: cells of one unit are sent back to back in between |
//! | [`Way::Cells`] | cells | after each cell, round robin over flows of equal priority |
//! | [`Way::Packets`] | packets of the unit, each with a header | after each packet, in the same way |
//!
//! An interrupted unit resumes where it stopped, before all others of its priority. Units of equal priority never
//! interrupt each other, so at most one unit per priority is in progress.

use lastmeter_base::{Bytes, Duration, Rate, Time};
use std::collections::{BTreeMap, VecDeque};

/// How units share a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Whole units, interrupted after any multiple of `quantum`.
    Whole {
        /// Overhead of each fragment.
        header: Bytes,
        /// Fragment sizes are multiples of this, except for a unit's last one.
        quantum: Bytes,
    },
    /// Cells of 53 bytes with 48 of the unit; all of one unit until a more urgent one arrives (A-171).
    Continue,
    /// Cells of 53 bytes with 48 of the unit.
    Cells,
    /// Packets.
    Packets {
        /// Most of a unit in one packet.
        payload: Bytes,
        /// Header of each packet.
        header: Bytes,
    },
}

const CELL: Bytes = Bytes(53);
const CELL_PAYLOAD: Bytes = Bytes(48);

impl Way {
    /// Line time of part of a unit as one fragment.
    pub fn line(&self, len: Bytes) -> Bytes {
        match *self {
            Way::Whole { header, .. } | Way::Packets { header, .. } => len + header,
            Way::Continue | Way::Cells => Bytes(len.0.div_ceil(CELL_PAYLOAD.0) * CELL.0),
        }
    }
    /// Line time of a whole unit without contention.
    pub fn whole(&self, len: Bytes) -> Bytes {
        match *self {
            Way::Packets { payload, header } => {
                len + Bytes(header.0 * len.0.div_ceil(payload.0.max(1)))
            }
            _ => self.line(len),
        }
    }
    /// The most of a unit that is sent between scheduling decisions.
    fn piece(&self, left: Bytes) -> Bytes {
        match *self {
            Way::Whole { .. } | Way::Continue => left,
            Way::Cells => left.min(CELL_PAYLOAD),
            Way::Packets { payload, .. } => left.min(Bytes(payload.0.max(1))),
        }
    }
    /// Granularity of interruptions within that, if any.
    fn boundary(&self) -> Option<Bytes> {
        match *self {
            Way::Whole { quantum, .. } => Some(Bytes(quantum.0.max(1))),
            Way::Continue => Some(CELL_PAYLOAD),
            Way::Cells | Way::Packets { .. } => None,
        }
    }
}

/// A unit that has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number that it was offered with.
    pub id: u64,
    /// Its length.
    pub len: Bytes,
    /// When it was offered.
    pub offered: Time,
    /// When its first bit left.
    pub started: Time,
    /// When its last bit left.
    pub ended: Time,
    /// The number of fragments.
    pub fragments: u64,
}

#[derive(Clone, Copy, Debug)]
struct Unit {
    sent: Sent,
    flow: u64,
    priority: u8,
    left: Bytes,
}

/// A fragment on the line.
#[derive(Clone, Copy, Debug)]
struct Fragment {
    unit: Unit,
    began: Time,
    ends: Time,
    /// How much of the unit it carries.
    len: Bytes,
}

/// Units of one flow, in order.
#[derive(Debug)]
struct Flow {
    flow: u64,
    units: VecDeque<Unit>,
}

/// Totals of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Scheduling decisions.
    pub decisions: u64,
    /// Units that were interrupted.
    pub interruptions: u64,
    /// Fragments on the line.
    pub fragments: u64,
    /// Bytes of units.
    pub bytes: u64,
    /// Bytes on the line.
    pub line_bytes: u64,
    /// Most units in progress at once.
    pub begun_max: u64,
}

/// The link.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate, Time};
/// use lastmeter_lan::preempt::link::{Link, Way};
/// let way = Way::Whole { header: Bytes(6), quantum: Bytes(64) };
/// let mut link = Link::new(Rate::from_mbit(8), way);
/// let mut sent = Vec::new();
/// link.offer(Time::START, 1, 1, 0, Bytes(64_000));
/// link.advance(Time::START + Duration::from_ms(1), &mut |one| sent.push(one));
/// link.offer(Time::START + Duration::from_ms(1), 2, 2, 7, Bytes(64));
/// link.advance(Time::START + Duration::from_secs(1), &mut |one| sent.push(one));
/// assert_eq!(sent.iter().map(|one| one.id).collect::<Vec<_>>(), [2, 1]);
/// ```
#[derive(Debug)]
pub struct Link {
    rate: Rate,
    way: Way,
    now: Time,
    /// Flows with something to send, by priority; the first is next.
    waiting: BTreeMap<u8, VecDeque<Flow>>,
    fragment: Option<Fragment>,
    begun: u64,
    counts: Counts,
}

impl Link {
    /// An idle link.
    pub fn new(rate: Rate, way: Way) -> Link {
        Link {
            rate,
            way,
            now: Time::START,
            waiting: BTreeMap::new(),
            fragment: None,
            begun: 0,
            counts: Counts::default(),
        }
    }

    /// Offers a unit of a flow; a greater `priority` is more urgent. Units of a flow go in order. `now` must not
    /// be earlier than the last `advance`.
    pub fn offer(&mut self, now: Time, id: u64, flow: u64, priority: u8, len: Bytes) {
        self.now = self.now.max(now);
        // Whole units are served first come, first served.
        let flow = if self.way.boundary().is_some() { id } else { flow };
        let (offered, len) = (self.now, len.max(Bytes(1)));
        let sent = Sent { id, len, offered, started: offered, ended: offered, fragments: 0 };
        self.store(Unit { sent, flow, priority, left: len }, false);
        match self.fragment {
            None => self.begin(),
            Some(running) if priority > running.unit.priority => self.interrupt(),
            Some(_) => {}
        }
    }

    /// Advances to `end`, and reports each unit sent.
    pub fn advance(&mut self, end: Time, tell: &mut impl FnMut(Sent)) {
        while let Some(fragment) = self.fragment.filter(|fragment| fragment.ends <= end) {
            self.now = fragment.ends;
            let mut unit = fragment.unit;
            unit.left -= fragment.len;
            self.counts.bytes += fragment.len.0;
            self.counts.line_bytes += self.way.line(fragment.len).0;
            self.counts.fragments += 1;
            unit.sent.fragments += 1;
            self.fragment = None;
            if unit.left == Bytes::ZERO {
                unit.sent.ended = self.now;
                self.begun -= 1;
                tell(unit.sent);
            } else {
                let interrupted = self.way.boundary().is_some();
                self.counts.interruptions += u64::from(interrupted);
                self.store(unit, true);
                // An interrupted unit is the next of its priority; cells and packets take turns.
                if interrupted {
                    self.waiting.entry(unit.priority).or_default().rotate_right(1);
                }
            }
            self.begin();
        }
        self.now = self.now.max(end);
    }

    /// Enqueues a unit in its flow, at the front or the back.
    fn store(&mut self, unit: Unit, before: bool) {
        let flows = self.waiting.entry(unit.priority).or_default();
        let known = flows.iter_mut().find(|flow| flow.flow == unit.flow);
        match known {
            Some(flow) if before => flow.units.push_front(unit),
            Some(flow) => flow.units.push_back(unit),
            None => flows.push_back(Flow { flow: unit.flow, units: [unit].into() }),
        }
    }

    /// The next unit; its flow goes to the end of the round.
    fn next(&mut self) -> Option<Unit> {
        let flows = self.waiting.values_mut().rev().find(|flows| !flows.is_empty())?;
        let mut flow = flows.pop_front()?;
        let unit = flow.units.pop_front()?;
        if !flow.units.is_empty() {
            flows.push_back(flow);
        }
        Some(unit)
    }

    /// Chooses the next flow to send, if any.
    fn begin(&mut self) {
        let Some(mut unit) = self.next() else { return };
        self.counts.decisions += 1;
        if unit.sent.fragments == 0 {
            unit.sent.started = self.now;
            self.begun += 1;
            self.counts.begun_max = self.counts.begun_max.max(self.begun);
        }
        let len = self.way.piece(unit.left);
        let ends = self.now + self.rate.time_for(self.way.line(len));
        self.fragment = Some(Fragment { unit, began: self.now, ends, len });
    }

    /// Ends the fragment on the line as early as permitted.
    fn interrupt(&mut self) {
        let (Some(step), Some(fragment)) = (self.way.boundary(), &mut self.fragment) else {
            return;
        };
        let gone = (self.now - fragment.began).as_ps();
        let each = self.rate.time_for(match self.way {
            Way::Continue => CELL,
            _ => step,
        });
        let steps = gone.div_ceil(each.as_ps().max(1)).max(1);
        let len = Bytes(step.0.saturating_mul(steps));
        if len < fragment.len {
            fragment.len = len;
            fragment.ends = fragment.began + self.rate.time_for(self.way.line(len));
        }
    }

    /// When the fragment on the line ends.
    pub fn ready_at(&self) -> Option<Time> {
        self.fragment.map(|fragment| fragment.ends)
    }
    /// Time to send a unit without contention.
    pub fn alone(&self, len: Bytes) -> Duration {
        self.rate.time_for(self.way.whole(len))
    }
    /// Its totals.
    pub fn counts(&self) -> Counts {
        self.counts
    }
    /// Units queued or being sent.
    pub fn held(&self) -> u64 {
        let flows = self.waiting.values().flatten();
        let waiting = flows.map(|flow| flow.units.len() as u64).sum::<u64>();
        waiting + u64::from(self.fragment.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: Rate = Rate::from_mbit(155);
    const WAYS: [Way; 4] = [
        Way::Whole { header: Bytes(6), quantum: Bytes(64) },
        Way::Continue,
        Way::Cells,
        Way::Packets { payload: Bytes(1500), header: Bytes(8) },
    ];

    /// Offers units at given times in nanoseconds; returns the units sent, and the link.
    fn run(way: Way, units: &[(u64, u8, u64)]) -> (Vec<Sent>, Link) {
        let mut link = Link::new(RATE, way);
        let mut sent = Vec::new();
        for (id, &(at, priority, len)) in units.iter().enumerate() {
            let at = Time::START + Duration::from_ns(at);
            link.advance(at, &mut |one| sent.push(one));
            link.offer(at, id as u64, id as u64 % 5, priority, Bytes(len));
        }
        link.advance(Time::START + Duration::from_secs(100), &mut |one| sent.push(one));
        (sent, link)
    }

    proptest! {
        #[test]
        fn every_unit_is_sent_once_whole_and_never_faster_than_the_line(
            mut units in prop::collection::vec((0u64..200_000, 0u8..4, 1u64..20_000), 1..40),
        ) {
            units.sort_unstable();
            for way in WAYS {
                let (sent, link) = run(way, &units);
                let mut ids: Vec<u64> = sent.iter().map(|one| one.id).collect();
                ids.sort_unstable();
                prop_assert!(ids.into_iter().eq(0..units.len() as u64));
                let counts = link.counts();
                prop_assert_eq!(counts.bytes, units.iter().map(|unit| unit.2).sum::<u64>());
                prop_assert_eq!(link.held(), 0);
                for one in &sent {
                    let took = one.ended - one.started;
                    // The time of each fragment is rounded up.
                    prop_assert!(took + Duration::from_ps(1) >= link.alone(one.len), "{one:?}");
                }
                let last = sent.iter().map(|one| one.ended).max().unwrap();
                let line = RATE.time_within(Bytes(counts.line_bytes));
                prop_assert!(last.since_start() >= line);
                if way.boundary().is_some() {
                    prop_assert!(counts.begun_max <= 4, "one for each priority");
                    let most = units.len() as u64 + counts.interruptions;
                    prop_assert_eq!(counts.decisions, most);
                    prop_assert!(counts.interruptions < units.len() as u64);
                }
            }
        }
    }

    #[test]
    fn an_urgent_unit_waits_for_a_quantum_and_not_for_a_large_unit() {
        for large in [10_000, 1_000_000] {
            let (sent, link) = run(WAYS[0], &[(0, 0, large), (33_000, 7, 100)]);
            assert_eq!((sent[0].id, sent[1].fragments), (1, 2));
            let waited = sent[0].started - sent[0].offered;
            assert!(waited <= RATE.time_for(Bytes(64 + 6)), "{waited} {large}");
            assert_eq!(link.counts().decisions, 3);
        }
        // A packet blocks for its whole length.
        let (sent, _) = run(WAYS[3], &[(0, 0, 1_000_000), (33_000, 7, 100)]);
        assert!(sent[0].started - sent[0].offered > RATE.time_for(Bytes(70)));
    }

    #[test]
    fn units_of_equal_priority_do_not_interrupt_each_other() {
        let (sent, link) = run(WAYS[0], &[(0, 3, 50_000), (1, 3, 100), (2, 2, 100)]);
        assert_eq!(sent.iter().map(|one| one.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(link.counts().interruptions, 0);
    }
}
