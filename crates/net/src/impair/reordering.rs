//! Reordering: some packets are held back until others have overtaken them.
//!
//! ```text
//! any in --+------------------------------+--> out 0
//!          '--> [ held back for a few ] --'
//! ```
//!
//! A held-back packet follows the last packet that overtakes it, or leaves after `wait`
//! if too few come. While as many are held as may be, further packets pass.

use super::{PROBABILITY, TOWARD, stand};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Duration, Packet, StageId, Time, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};
use std::collections::VecDeque;

/// Most packets that are held back at once; the next ones pass.
const HELD_MAX: usize = 65_536;
/// Most packets that may overtake one.
const DISTANCE_MAX: u64 = 65_536;

const PAGE: &Page = &Page {
    name: "reordering",
    family: Family::Node,
    what: "Holds some packets back until others have overtaken them.",
    ports: "any in --> (held back?) --> link towards the destination",
    params: &[
        Param::required("probability", PROBABILITY).is("that a packet is held back"),
        Param::or("distance", ParamKind::Integer { min: 1, max: DISTANCE_MAX }, "1")
            .is("packets that overtake it"),
        Param::or("wait", ParamKind::Time, "50 ms").is("longest time it waits for them"),
        TOWARD,
    ],
    deviations: &["A packet that is held back does not itself overtake any."],
    counters: &[
        ("passed", "packets that were not held back"),
        ("overtaken", "packets that others overtook"),
        ("waited", "packets that left because too few came"),
    ],
    example: one_way!("wan", "reordering = { probability = 0.01, distance = 3 }"),
    ..Page::at(here!())
};

/// Its options; see the page.
#[derive(Clone, Copy, Debug)]
pub struct ReorderingOptions {
    /// That a packet is held back.
    pub probability: f64,
    /// Packets that overtake it; at least 1.
    pub distance: u64,
    /// The longest time it waits for them.
    pub wait: Duration,
}

/// Holds packets back.
pub struct Reordering {
    options: ReorderingOptions,
    stage: StageId,
    /// In order of arrival, which also orders both limits: the number of the passing packet that each
    /// follows, when it leaves anyway, and the packet.
    held: VecDeque<(u64, Time, Packet)>,
    passed: u64,
    overtaken: u64,
    waited: u64,
}

const WAITED: TimerId = TimerId(0);

impl Reordering {
    /// Holds nothing yet. The time that packets are held back is accounted to `stage`.
    pub fn new(options: ReorderingOptions, stage: StageId) -> Reordering {
        Reordering { options, stage, held: VecDeque::new(), passed: 0, overtaken: 0, waited: 0 }
    }

    /// Lets go of the first, if it has been overtaken often enough or has waited long enough.
    fn release(&mut self, cx: &mut Context<'_>) {
        while let Some(&(follows, until, _)) = self.held.front() {
            match (follows <= self.passed, until <= cx.now()) {
                (true, _) => self.overtaken += 1,
                (false, true) => self.waited += 1,
                (false, false) => break,
            }
            let (_, _, mut packet) = self.held.pop_front().expect("the first has been seen");
            let held = cx.now() - packet.entered;
            packet.visit(self.stage, held, Duration::ZERO, Duration::ZERO);
            cx.send(PortId(0), packet);
        }
        match self.held.front() {
            Some(&(_, until, _)) => cx.arm(WAITED, until),
            None => cx.disarm(WAITED),
        }
    }
}

impl Element for Reordering {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        let ReorderingOptions { probability, distance, wait } = self.options;
        packet.entered = cx.now();
        if cx.rng().chance(probability) && self.held.len() < HELD_MAX {
            self.held.push_back((self.passed + distance, cx.now() + wait, packet));
        } else {
            self.passed += 1;
            packet.visit(self.stage, Duration::ZERO, Duration::ZERO, Duration::ZERO);
            cx.send(PortId(0), packet);
        }
        self.release(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.release(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.held.len() as u64);
        out.count("passed", self.passed);
        out.count("overtaken", self.overtaken);
        out.count("waited", self.waited);
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let options = ReorderingOptions {
        probability: values.get("probability"),
        distance: values.get("distance"),
        wait: values.get("wait"),
    };
    let stage = site.stage(PAGE.name, None);
    stand(values, site, Box::new(Reordering::new(options, stage.id)))
}

#[cfg(test)]
mod tests {
    use super::super::check::{Trial, binomial_agrees};
    use super::*;

    const OPTIONS: ReorderingOptions =
        ReorderingOptions { probability: 0.05, distance: 3, wait: Duration::from_ms(5) };

    #[test]
    fn a_packet_is_overtaken_by_as_many_as_it_should_be() {
        let trial = Trial { packets: 20_000, ..Trial::USUAL };
        let (outcome, arrivals) =
            trial.arrivals(|stage, _| Box::new(Reordering::new(OPTIONS, stage)));
        let seqs: Vec<u64> = arrivals.iter().map(|arrival| arrival.seq).collect();
        assert_eq!(seqs.len() as u64, trial.packets);
        // One that follows a later one was held back, and three that were not arrived in between.
        let mut highest = None;
        let held: Vec<usize> = (0..seqs.len())
            .filter(|&at| {
                let late = highest.is_some_and(|highest| seqs[at] < highest);
                highest = highest.max(Some(seqs[at]));
                late
            })
            .collect();
        for &at in &held {
            let later = (0..at).rev().take(50).filter(|&before| seqs[before] > seqs[at]);
            let passed = later.filter(|before| !held.contains(before)).count();
            assert_eq!(passed, 3, "{} at {at}", seqs[at]);
        }
        assert_eq!(outcome.books.paths[0].reordered, held.len() as u64);
        binomial_agrees(held.len() as u64, trial.packets, 0.05);
    }

    #[test]
    fn without_others_it_leaves_after_its_wait() {
        let options = ReorderingOptions { probability: 1.0, ..OPTIONS };
        for late in [false, true] {
            let trial = Trial { packets: 50, late, ..Trial::USUAL };
            let (_, arrivals) =
                trial.arrivals(|stage, _| Box::new(Reordering::new(options, stage)));
            assert_eq!(arrivals.len(), 50);
            let waits = arrivals.iter().map(|one| one.at - one.born);
            match late {
                false => waits.for_each(|wait| assert_eq!(wait, options.wait)),
                true => waits.for_each(|wait| assert!(wait >= options.wait)),
            }
        }
    }
}
