//! Independent loss: each packet is lost with the same probability, independently of the others.

use super::{Judge, PROBABILITY, TOWARD, Verdict, filter};
use lastmeter_base::kind::{Family, Kind, Page, Param, Values};
use lastmeter_base::{Stream, Time, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site};

const PAGE: &Page = &Page {
    name: "loss",
    family: Family::Node,
    what: "Loses each packet with the same probability, independently of the others.",
    ports: "any in --> (lost?) --> link towards the destination",
    params: &[Param::required("probability", PROBABILITY).is("that a packet is lost"), TOWARD],
    counters: &[("passed", "packets sent on"), ("lost", "packets lost")],
    drops: &[("lost", "packets that it lost")],
    example: one_way!("radio", r#"loss = { probability = 0.01, toward = ["bob"] }"#),
    ..Page::at(here!())
};

/// Loses packets independently.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// That a packet is lost.
    pub probability: f64,
}

impl Judge for Loss {
    const HIT: &'static str = "lost";
    fn judge(&mut self, _now: Time, random: &mut Stream) -> Verdict {
        match random.chance(self.probability) {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let loss = Loss { probability: values.get("probability") };
    filter(PAGE, values, site, loss)
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::super::check::{Trial, binomial_agrees};
    use super::*;

    #[test]
    fn the_loss_rate_lies_within_binomial_bounds() {
        for (seed, probability) in [(1, 0.001), (2, 0.01), (3, 0.1), (4, 0.5)] {
            let trial = Trial { seed, packets: 100_000, ..Trial::USUAL };
            let outcome = trial.run(|stage, _| Box::new(Filter::new(Loss { probability }, stage)));
            binomial_agrees(outcome.books.dropped, trial.packets, probability);
        }
    }

    #[test]
    fn nothing_is_lost_at_zero_and_everything_at_one() {
        for (probability, lost) in [(0.0, 0), (1.0, 1000)] {
            let trial = Trial { packets: 1000, ..Trial::USUAL };
            let outcome = trial.run(|stage, _| Box::new(Filter::new(Loss { probability }, stage)));
            assert_eq!(outcome.books.dropped, lost);
        }
    }
}
