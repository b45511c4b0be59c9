//! FQ-PIE: a queue for each flow under PIE, served by a deficit round robin that prefers new flows.
//!
//! ```text
//!      /-> (drop or mark with p0) --> queue 0 [ ... ] -\      new queues first, one quantum each;
//! in --+-> (drop or mark with p1) --> queue 1 [ ... ] --+--> then old queues in turn
//!      \-> ...                                         -/
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                            |
//! |-----------|---------|----------|----------------------------------------------------|
//! | `queues`  | queues  | 1024     | number of queues onto which flows are hashed       |
//! | `by`      | word    | `flow`   | what is hashed                                     |
//! | `quantum` | size    | 1514 B   | bytes served per turn                              |
//! | `target`  | time    | 15 ms    | of PIE                                             |
//! | `update`  | time    | 15 ms    | of PIE                                             |
//! | `burst`   | time    | 150 ms   | of PIE                                             |
//! | `alpha`   | 1/s     | 0.125    | of PIE                                             |
//! | `beta`    | 1/s     | 1.25     | of PIE                                             |
//! | `mark`    | 1       | 0.1      | below this p packets are marked, not dropped       |
//! | `mean`    | size    | 1500 B   | up to two of these may wait in a queue without drops |
//! | `ecn`     | flag    | false    | mark if both ends support ECN                      |
//! | `packets` | packets | 10240    | limit on packets in all queues                     |
//! | `bytes`   | size    | 32 MiB   | limit on bytes in all queues                       |
//!
//! When full, the arrival is dropped. (D-79)
//!
//! Source: the discipline `fq_pie` of Linux since 5.6, tc-fq_pie(8), which runs the PIE of RFC 8033 on each queue of
//! RFC 8290. Deviations: those of `pie` and `fq-codel`; a queue's probability is not updated by a timer: updates that
//! have fallen due are made when a packet arrives or leaves.

use super::drr::QUANTUM;
use super::flows::{BY, Bank, By, Classifier, QUEUES_MAX, Room, of_bank};
use super::pie::{self, Law, PieOptions};
use super::red::{ECN, MARKED};
use super::turns::Turns;
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Fallback, Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, Stream, Time, here};

/// Options of FQ-PIE; see the table above.
#[derive(Clone, Debug)]
pub struct FqPieOptions {
    /// What is hashed.
    pub by: By,
    /// The number of queues; `None`: one for each flow.
    pub queues: Option<usize>,
    /// Bytes served per turn.
    pub quantum: Bytes,
    /// PIE's options, for each queue; `room` is the limit on all queues together.
    pub pie: PieOptions,
}

impl FqPieOptions {
    /// The values of Linux.
    pub fn usual() -> FqPieOptions {
        FqPieOptions {
            by: By::Flow,
            queues: Some(1024),
            quantum: Bytes(1514),
            pie: PieOptions {
                room: Room { packets: 10_240, bytes: Bytes::from_mib(32) },
                ..PieOptions::RFC_8033
            },
        }
    }
}

/// Queues under PIE.
#[derive(Debug)]
pub struct FqPie {
    bank: Bank,
    classifier: Classifier,
    laws: Vec<Law>,
    turns: Turns,
    quantum: Bytes,
    options: PieOptions,
    random: Stream,
    marked: u64,
}

impl FqPie {
    /// Empty, drawing from `random`.
    pub fn new(options: FqPieOptions, random: Stream) -> FqPie {
        FqPie {
            bank: Bank::new(options.pie.room),
            classifier: Classifier::new(options.by, options.queues),
            laws: Vec::new(),
            turns: Turns::default(),
            quantum: options.quantum,
            options: options.pie,
            random,
            marked: 0,
        }
    }
}

impl Queue for FqPie {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        let at = self.classifier.queue_of(&packet);
        if at >= self.laws.len() {
            let count = self.bank.reach(at);
            self.laws.resize_with(count, || Law::new(now, &self.options));
            self.turns.reach(count);
        }
        let law = &mut self.laws[at];
        law.catch_up(now, &self.options);
        if !self.bank.fits(packet.len) {
            law.overflowed();
            return Err(packet);
        }
        let waiting = self.bank.bytes_in(at);
        if !law.admits(&self.options, waiting, &mut self.random, &mut packet, &mut self.marked) {
            self.bank.discard(packet, pie::REASON);
            return Ok(());
        }
        packet.entered = now;
        self.bank.push(at, packet);
        self.turns.arrived(at, self.quantum);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        loop {
            let at = self.turns.next(|_| self.quantum)?;
            let law = &mut self.laws[at];
            law.catch_up(now, &self.options);
            let packet = self.bank.pop(at);
            law.departed(now, packet.as_ref(), self.bank.bytes_in(at));
            match packet {
                Some(packet) => {
                    self.turns.sent(at, packet.len);
                    return Some(packet);
                }
                None => drop(self.turns.found_empty()),
            }
        }
    }
    of_bank!(ready_at, packets, bytes, dropped);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        count("marked", self.marked);
    }
}

impl Described for FqPie {
    const PAGE: &'static Page = &Page {
        name: "fq-pie",
        family: Family::Queue,
        what: "FQ-PIE: a queue for each flow under PIE; new queues go first.",
        ports: "in --> (drop or mark with p) --> [ queue per flow ] --> new ones, then old --> out",
        params: &[
            BY,
            Param::or("queues", ParamKind::Integer { min: 1, max: QUEUES_MAX as u64 }, "1024")
                .is("number of queues onto which flows are hashed"),
            Param { default: Fallback::Written("1514 B"), ..QUANTUM },
            pie::OWN[0],
            pie::OWN[1],
            pie::OWN[2],
            pie::OWN[3],
            pie::OWN[4],
            pie::OWN[5],
            pie::OWN[6],
            ECN,
            Param::or("packets", ParamKind::COUNT, "10240").is("limit on packets in all queues"),
            Param::or("bytes", ParamKind::BUFFER, "32 MiB").is("limit on bytes in all queues"),
        ],
        source: "fq_pie of Linux, tc-fq_pie(8); RFC 8033, §4; RFC 8290, §4.2",
        deviations: &[
            "The hash has no random key, because runs must be repeatable.",
            "Updates of p that fall due between a flow's packets are made at the next one.",
        ],
        counters: &[MARKED],
        drops: &[FULL, ("pie", "packets dropped at random")],
        example: one_queue!("fq-pie = {}"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> FqPie {
        let options = FqPieOptions {
            quantum: values.get("quantum"),
            pie: PieOptions::from_values(values, site),
            ..FqPieOptions::usual()
        };
        let classifier = Classifier::from_values(values);
        FqPie { classifier, ..FqPie::new(options, site.stream()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet, victims};
    use lastmeter_base::Duration;

    fn queue(options: FqPieOptions) -> FqPie {
        FqPie::new(FqPieOptions { queues: None, ..options }, Stream::new(1, "fq-pie"))
    }
    fn at(ms: u64) -> Time {
        Time::START + Duration::from_ms(ms)
    }

    /// D-79: RFC 8290 §4.2, as for FQ-CoDel.
    #[test]
    fn d_79_a_sparse_flow_goes_before_heavy_ones() {
        let mut queue = queue(FqPieOptions::usual());
        (0..20).for_each(|n| queue.enqueue(at(0), packet(n % 2, 1500)).unwrap());
        (0..6).for_each(|_| drop(queue.dequeue(at(0))));
        queue.enqueue(at(0), packet(9, 100)).unwrap();
        assert_eq!(queue.dequeue(at(0)).unwrap().flow.0, 9);
    }

    /// Each queue has its own probability: only the flow with a standing queue loses packets, and its delay
    /// comes down to about the target.
    #[test]
    fn only_the_flow_with_a_standing_queue_loses_packets() {
        let mut queue = queue(FqPieOptions::usual());
        let (mut lost, mut delay) = (Vec::new(), Duration::ZERO);
        for ms in 0..20_000 {
            // The line sends a packet a millisecond; the first flow offers 1.2, the other a twentieth.
            let extra = u64::from(ms % 5 == 0);
            (0..=extra).for_each(|_| queue.enqueue(at(ms), packet(0, 1500)).unwrap());
            if ms % 20 == 0 {
                queue.enqueue(at(ms), packet(1, 100)).unwrap();
            }
            if let Some(out) = queue.dequeue(at(ms)).filter(|out| out.flow.0 == 0) {
                delay = at(ms).saturating_since(out.entered);
            }
            lost.extend(victims(&mut queue));
        }
        assert!(lost.len() > 1000 && lost.iter().all(|&(flow, why)| (flow, why) == (0, "pie")));
        assert!(delay > Duration::from_ms(5) && delay < Duration::from_ms(45), "{delay}");
    }

    #[test]
    fn accounts_for_every_packet() {
        let pie = PieOptions {
            target: Duration::from_us(5),
            update: Duration::from_us(10),
            burst: Duration::ZERO,
            room: Room::packets(30),
            ecn: true,
            ..PieOptions::RFC_8033
        };
        let options = FqPieOptions { pie, ..FqPieOptions::usual() };
        check::holds(queue(options.clone()), &check::USUAL);
        let hashed = FqPieOptions { queues: Some(3), quantum: Bytes(300), ..options };
        check::holds(FqPie::new(hashed, Stream::new(2, "fq-pie")), &check::USUAL);
    }
}
