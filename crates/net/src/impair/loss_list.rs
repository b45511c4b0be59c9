//! Listed loss: exactly the packets of a list are lost, to study the effect of one loss.

use super::{Judge, TOWARD, Verdict, filter};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Stream, Time, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site};

const PAGE: &Page = &Page {
    name: "loss-list",
    family: Family::Node,
    what: "Loses the packets of a list, by their number in order of arrival.",
    ports: "any in --> (listed?) --> link towards the destination",
    params: &[
        Param::required("packets", ParamKind::Integers { min: 1, max: i64::MAX as u64 })
            .is("numbers of the packets that are lost; the first packet is 1"),
        TOWARD,
    ],
    counters: &[("passed", "packets sent on"), ("lost", "packets lost")],
    drops: &[("lost", "packets of the list")],
    example: one_way!("lossy", "loss-list = { packets = [5, 6, 20] }"),
    ..Page::at(here!())
};

/// Loses the packets of a list.
#[derive(Clone, Debug)]
pub struct LossList {
    /// The numbers to come, in reverse order: the next one is last.
    rest: Vec<u64>,
    seen: u64,
}

impl LossList {
    /// Loses these packets, the first being 1, in any order; repetitions are ignored.
    pub fn new(packets: &[u64]) -> LossList {
        let mut rest = packets.to_vec();
        rest.sort_unstable_by(|a, b| b.cmp(a));
        rest.dedup();
        LossList { rest, seen: 0 }
    }
}

impl Judge for LossList {
    const HIT: &'static str = "lost";
    fn judge(&mut self, _now: Time, _random: &mut Stream) -> Verdict {
        self.seen += 1;
        match self.rest.pop_if(|next| *next == self.seen) {
            Some(_) => Verdict::Drop,
            None => Verdict::Pass,
        }
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let packets: Vec<u64> = values.get("packets");
    filter(PAGE, values, site, LossList::new(&packets))
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::super::check::Trial;
    use super::*;

    #[test]
    fn exactly_the_listed_packets_are_lost() {
        let trial = Trial { packets: 8, ..Trial::USUAL };
        let (_, arrivals) =
            trial.arrivals(|stage, _| Box::new(Filter::new(LossList::new(&[7, 2, 2, 3]), stage)));
        let seqs: Vec<u64> = arrivals.iter().map(|arrival| arrival.seq).collect();
        assert_eq!(seqs, [0, 3, 4, 5, 7]);
    }
}
