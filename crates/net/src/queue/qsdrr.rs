//! Queue-state deficit round robin: a full buffer keeps dropping from one queue until that is the
//! shortest.
//!
//! ```text
//! in --> [ queue per flow ] --> deficit round robin --> out
//!
//! discard queue D:   none --full--> longest --full, D longer than another--> D drops again
//!                                      ^------full, D is the shortest, or empty------|
//! ```
//!
//! Parameters are those of `drr`, and:
//!
//! | Parameter | Unit | Default  | Meaning                                               |
//! |-----------|------|----------|-------------------------------------------------------|
//! | `discard` | word | `stored` | drop `stored` packets, or refuse at `arrival`  (ours) |
//! | `forget`  | time | never    | time without a drop after which D is forgotten (ours) |
//!
//! With this hysteresis, few flows lose packets in each congestion episode, so that senders do not
//! synchronise and the link does not run dry. "Shortest" is re-evaluated for each packet to drop: D stays
//! while it is longer than the shortest of the others. With `discard = "arrival"`, no stored packet is
//! ever dropped: when an arrival finds no room, the longest queue is put into the
//! discard state, in which it refuses arrivals until it is the shortest; an arrival to another
//! queue that finds no room is refused as well.
//!
//! Source: Kantawala & Turner for the Washington University router (D-73 to D-87), §4.1 and §7.1;
//! arrival variants after WUCSE-2003-41. Deviations: the end, unit and reset rule are not given, hence
//! parameters; defaults (front, packets, never) are ours, and so is the wording of the arrival rule.

use super::drr::{DROP, DrrOptions, QUANTUM, Rounds, UNIT, Victim, queue_of_field};
use super::flows::{BY, BYTES, Bank, PACKETS, QUEUES, Unit, WEIGHTS};
use super::{Described, LONG, Site};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Time};

/// The same queue drops until it is the shortest.
#[derive(Debug)]
struct Persistent {
    unit: Unit,
    discard: Option<usize>,
    /// Whether arrivals are refused, instead of stored packets being dropped.
    arrival: bool,
    /// With `arrival`: which queues are in the discard state.
    discarding: Vec<bool>,
    forget: Option<Duration>,
    last_drop: Time,
}

impl Persistent {
    fn new(unit: Unit, discard: Discard, forget: Option<Duration>) -> Persistent {
        Persistent {
            unit,
            discard: None,
            arrival: discard == Discard::Arrival,
            discarding: Vec::new(),
            forget,
            last_drop: Time::START,
        }
    }
    fn is_shortest(&self, at: usize, bank: &Bank) -> bool {
        let length = bank.fifo(at).length(self.unit);
        bank.shortest_except(at).is_some_and(|shortest| length <= shortest)
    }
}

impl Victim for Persistent {
    const REASON: &'static str = "discard queue";
    fn pick(&mut self, now: Time, bank: &Bank) -> usize {
        let calm = now.saturating_since(self.last_drop);
        self.last_drop = now;
        let kept = self.discard.filter(|&at| {
            let forgotten = self.forget.is_some_and(|forget| calm > forget);
            !forgotten && !bank.fifo(at).is_empty() && !self.is_shortest(at, bank)
        });
        let longest = || bank.longest().expect("a buffer that is too full is not empty");
        *self.discard.insert(kept.unwrap_or_else(longest))
    }
    fn refuses(&mut self, _now: Time, at: usize, len: Bytes, bank: &Bank) -> bool {
        if !self.arrival {
            return false;
        }
        if at >= self.discarding.len() {
            self.discarding.resize(at + 1, false);
        }
        if self.discarding[at] {
            if !bank.fifo(at).is_empty() && !self.is_shortest(at, bank) {
                return true;
            }
            self.discarding[at] = false;
        }
        if bank.fits(len) {
            return false;
        }
        if let Some(longest) = bank.longest() {
            if longest >= self.discarding.len() {
                self.discarding.resize(longest + 1, false);
            }
            self.discarding[longest] = true;
        }
        true
    }
}

/// What a full buffer drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// A packet of the discard queue that is stored.
    Stored,
    /// Arrivals to queues in the discard state.
    Arrival,
}

/// Queue-state deficit round robin.
#[derive(Debug)]
pub struct Qsdrr(Rounds<Persistent>);

impl Qsdrr {
    /// Empty. The discard queue is forgotten after `forget` without a drop, or never.
    pub fn new(options: DrrOptions, discard: Discard, forget: Option<Duration>) -> Qsdrr {
        let victim = Persistent::new(options.unit, discard, forget);
        Qsdrr(Rounds::new(options, true, victim))
    }
}
queue_of_field!(Qsdrr);

impl Described for Qsdrr {
    const PAGE: &'static Page = &Page {
        name: "qsdrr",
        family: Family::Queue,
        what: "Deficit round robin; a full buffer drops from one queue until that is the shortest.",
        ports: "in --> [ queue per flow ] --> deficit round robin --> out",
        params: &[
            BY,
            QUEUES,
            QUANTUM,
            WEIGHTS,
            PACKETS,
            BYTES,
            UNIT,
            DROP,
            Param::or("discard", ParamKind::Choice(&["stored", "arrival"]), "stored")
                .is("whether stored packets are dropped, or arrivals to the discard queue refused"),
            Param::optional("forget", ParamKind::Time, "never")
                .is("time without a drop after which the discard queue is chosen again"),
        ],
        source: "Kantawala & Turner, Washington University: D-73 to D-87, §4.1, §7.1",
        deviations: &[
            "The source does not give the end, unit or reset rule; the defaults are ours.",
            "The rule of `arrival` follows the abstract of WUCSE-2003-41; its wording is ours.",
        ],
        drops: &[LONG, ("discard queue", "packets dropped from the discard queue")],
        example: one_queue!("qsdrr = { packets = 50 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Qsdrr {
        let discard = match values.get::<String>("discard").as_str() {
            "arrival" => Discard::Arrival,
            _ => Discard::Stored,
        };
        let victim = Persistent::new(Unit::from_values(values), discard, values.given("forget"));
        Qsdrr(Rounds::from_values(values, site, true, victim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Queue;
    use crate::queue::check::{self, packet, victims};

    /// Which flows lose packets when flow 2 sends seven more into a full buffer of nine.
    fn sequence(lengths: [usize; 3]) -> Vec<u32> {
        let mut queue = Qsdrr::new(DrrOptions::each(9), Discard::Stored, None);
        for (flow, &length) in lengths.iter().enumerate() {
            let put = |_| queue.enqueue(Time::START, packet(flow as u32, 1500)).unwrap();
            (0..length).for_each(put);
        }
        (0..7).for_each(|_| queue.enqueue(Time::START, packet(2, 1500)).unwrap());
        victims(&mut queue).into_iter().map(|(flow, _)| flow).collect()
    }

    /// D-71: the longest queue drops, and keeps dropping until it is the shortest.
    #[test]
    fn victims_come_in_the_sequences_of_the_specification() {
        assert_eq!(sequence([5, 3, 1]), [0, 0, 2, 2, 2, 2, 2]);
        assert_eq!(sequence([6, 2, 1]), [0, 0, 0, 0, 2, 2, 2]);
    }

    /// D-72: flows that share a queue lose together.
    #[test]
    fn several_flows_may_share_a_queue() {
        let lost = |queues| {
            let options = DrrOptions { queues, ..DrrOptions::each(9) };
            let mut queue = Qsdrr::new(options, Discard::Stored, None);
            for flow in [0, 0].into_iter().chain([1; 12]) {
                queue.enqueue(Time::START, packet(flow, 1500)).unwrap();
            }
            victims(&mut queue).into_iter().map(|(flow, _)| flow).collect::<Vec<_>>()
        };
        assert_eq!(lost(None), [1, 1, 1, 1, 1], "the other has its own queue");
        assert_eq!(lost(Some(1)), [0, 0, 1, 1, 1], "the oldest of both go first");
    }

    #[test]
    fn a_single_queue_is_both_longest_and_shortest_and_drops() {
        let mut queue = Qsdrr::new(DrrOptions::each(2), Discard::Stored, None);
        (0..4).for_each(|_| queue.enqueue(Time::START, packet(0, 1500)).unwrap());
        assert_eq!(victims(&mut queue).len(), 2);
    }

    #[test]
    fn a_forgotten_discard_queue_is_chosen_again() {
        let after = |forget| {
            let mut queue = Qsdrr::new(DrrOptions::each(9), Discard::Stored, forget);
            for (flow, count) in [(0, 5), (1, 4), (2, 1)] {
                (0..count).for_each(|_| queue.enqueue(Time::START, packet(flow, 9)).unwrap());
            }
            // Flow 0 has lost one and holds four; this makes flow 1 the longest.
            let later = Time::START + Duration::from_secs(1);
            queue.enqueue(later, packet(1, 9)).unwrap();
            victims(&mut queue).into_iter().map(|(flow, _)| flow).collect::<Vec<_>>()
        };
        assert_eq!(after(None), [0, 0]);
        assert_eq!(after(Some(Duration::from_ms(100))), [0, 1]);
    }

    #[test]
    fn at_arrival_the_longest_queue_is_refused_until_it_is_the_shortest() {
        let mut queue = Qsdrr::new(DrrOptions::each(4), Discard::Arrival, None);
        for flow in [0, 0, 0, 1] {
            queue.enqueue(Time::START, packet(flow, 1500)).unwrap();
        }
        let refused = |queue: &mut Qsdrr, flow| {
            queue.enqueue(Time::START, packet(flow, 1500)).unwrap();
            !victims(queue).is_empty()
        };
        assert!(refused(&mut queue, 1), "no room, so flow 0 enters the discard state");
        assert_eq!(queue.dequeue(Time::START).unwrap().flow.0, 0);
        assert!(refused(&mut queue, 0), "room, but flow 0 is in the discard state");
        assert!(!refused(&mut queue, 1), "and flow 1 is not");
        assert_eq!(queue.dequeue(Time::START).unwrap().flow.0, 1);
        assert!(refused(&mut queue, 0), "two packets against one");
        assert_eq!(queue.dequeue(Time::START).unwrap().flow.0, 0);
        assert!(!refused(&mut queue, 0), "as short as flow 1");
    }

    #[test]
    fn accounts_for_every_packet() {
        for discard in [Discard::Stored, Discard::Arrival] {
            check::holds(Qsdrr::new(DrrOptions::each(20), discard, None), &check::USUAL);
            let forget = Some(Duration::from_us(50));
            let bytes = DrrOptions { unit: Unit::Bytes, ..DrrOptions::each(30) };
            check::holds(Qsdrr::new(bytes, discard, forget), &check::USUAL);
        }
    }
}
