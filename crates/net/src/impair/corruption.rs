//! Corruption: some packets arrive with bits flipped.

use super::{Judge, PROBABILITY, TOWARD, Verdict, filter};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Stream, Time, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site};

/// Limit on bits flipped in one packet: a packet without content has no more.
const BITS_MAX: u64 = 64;

const PAGE: &Page = &Page {
    name: "corruption",
    family: Family::Node,
    what: "Flips bits of some packets.",
    ports: "any in --> (flipped?) --> link towards the destination",
    params: &[
        Param::required("probability", PROBABILITY).is("that bits of a packet are flipped"),
        Param::or("bits", ParamKind::Integer { min: 1, max: BITS_MAX }, "1")
            .is("number of different bits flipped, anywhere in it"),
        TOWARD,
    ],
    deviations: &["A packet without content is marked instead, and its sink counts it."],
    counters: &[("passed", "packets sent on"), ("corrupted", "those with bits flipped")],
    example: one_way!("noise", "corruption = { probability = 0.01 }"),
    ..Page::at(here!())
};

/// Flips bits of some packets.
#[derive(Clone, Copy, Debug)]
pub struct Corruption {
    /// That bits of a packet are flipped.
    pub probability: f64,
    /// How many.
    pub bits: u32,
}

impl Judge for Corruption {
    const HIT: &'static str = "corrupted";
    fn judge(&mut self, _now: Time, random: &mut Stream) -> Verdict {
        match random.chance(self.probability) {
            true => Verdict::Corrupt(self.bits),
            false => Verdict::Pass,
        }
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let bits: u64 = values.get("bits");
    let corruption = Corruption { probability: values.get("probability"), bits: bits as u32 };
    filter(PAGE, values, site, corruption)
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::super::check::{Trial, binomial_agrees};
    use super::*;

    #[test]
    fn a_sink_counts_what_has_no_content_to_flip() {
        let trial = Trial { packets: 50_000, ..Trial::USUAL };
        let corruption = Corruption { probability: 0.02, bits: 3 };
        let outcome = trial.run(|stage, _| Box::new(Filter::new(corruption, stage)));
        binomial_agrees(outcome.books.paths[0].corrupted, trial.packets, 0.02);
        assert_eq!(outcome.books.delivered, trial.packets);
    }

    #[test]
    fn real_content_has_exactly_that_many_bits_flipped() {
        let trial = Trial { packets: 20_000, content: 100, ..Trial::USUAL };
        let corruption = Corruption { probability: 0.1, bits: 2 };
        let (_, arrivals) = trial.arrivals(|stage, _| Box::new(Filter::new(corruption, stage)));
        let flipped = |arrival: &super::super::check::Arrival| -> u32 {
            arrival.content.iter().map(|byte| (byte ^ arrival.seq as u8).count_ones()).sum()
        };
        assert!(arrivals.iter().all(|arrival| [0, 2].contains(&flipped(arrival))));
        let hit = arrivals.iter().filter(|arrival| flipped(arrival) > 0).count();
        binomial_agrees(hit as u64, trial.packets, 0.1);
    }
}
