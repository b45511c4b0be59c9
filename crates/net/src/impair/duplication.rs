//! Duplication: some packets arrive twice.

use super::{Judge, PROBABILITY, TOWARD, Verdict, filter};
use lastmeter_base::kind::{Family, Kind, Page, Param, Values};
use lastmeter_base::{Stream, Time, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site};

const PAGE: &Page = &Page {
    name: "duplication",
    family: Family::Node,
    what: "Sends some packets on twice, the copy right behind the original.",
    ports: "any in --> (twice?) --> link towards the destination",
    params: &[
        Param::required("probability", PROBABILITY).is("that a packet is sent on twice"),
        TOWARD,
    ],
    deviations: &["A copy is a packet of its own in the books, and counts as offered."],
    counters: &[
        ("passed", "packets received and sent on"),
        ("duplicated", "packets followed by a copy"),
    ],
    example: one_way!("wan", "duplication = { probability = 0.01 }"),
    ..Page::at(here!())
};

/// Sends some packets twice.
#[derive(Clone, Copy, Debug)]
pub struct Duplication {
    /// That a packet is sent twice.
    pub probability: f64,
}

impl Judge for Duplication {
    const HIT: &'static str = "duplicated";
    fn judge(&mut self, _now: Time, random: &mut Stream) -> Verdict {
        match random.chance(self.probability) {
            true => Verdict::Twice,
            false => Verdict::Pass,
        }
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let duplication = Duplication { probability: values.get("probability") };
    filter(PAGE, values, site, duplication)
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::super::check::{Trial, binomial_agrees};
    use super::*;

    #[test]
    fn copies_are_equal_and_follow_at_once() {
        let trial = Trial { packets: 50_000, content: 40, ..Trial::USUAL };
        let duplication = Duplication { probability: 0.1 };
        let (outcome, arrivals) =
            trial.arrivals(|stage, _| Box::new(Filter::new(duplication, stage)));
        let copies = arrivals.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        assert_eq!(copies, arrivals.len() as u64 - trial.packets);
        binomial_agrees(copies, trial.packets, 0.1);
        let book = &outcome.books.paths[0];
        assert_eq!((book.reordered, book.corrupted), (0, 0));
        assert_eq!(outcome.books.made, trial.packets + copies);
    }
}
