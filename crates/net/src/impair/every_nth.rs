//! Periodic loss: every nth packet is lost, which makes small cases exact.

use super::{Judge, TOWARD, Verdict, filter};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Stream, Time, here, one_way};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site};

const PAGE: &Page = &Page {
    name: "every-nth",
    family: Family::Node,
    what: "Loses every nth packet.",
    ports: "any in --> (nth?) --> link towards the destination",
    params: &[
        Param::required("n", ParamKind::COUNT).is("the last of this many packets is lost"),
        TOWARD,
    ],
    counters: &[("passed", "packets sent on"), ("lost", "packets lost")],
    drops: &[("lost", "every nth packet")],
    example: one_way!("lossy", "every-nth = { n = 10 }"),
    ..Page::at(here!())
};

/// Loses the last of every `n` packets.
#[derive(Clone, Copy, Debug)]
pub struct EveryNth {
    n: u64,
    /// Packets since the last loss.
    since: u64,
}

impl EveryNth {
    /// Loses packet `n`, `2n` and so on, counted from 1.
    pub fn new(n: u64) -> EveryNth {
        EveryNth { n, since: 0 }
    }
}

impl Judge for EveryNth {
    const HIT: &'static str = "lost";
    fn judge(&mut self, _now: Time, _random: &mut Stream) -> Verdict {
        self.since += 1;
        if self.since < self.n {
            return Verdict::Pass;
        }
        self.since = 0;
        Verdict::Drop
    }
}

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    filter(PAGE, values, site, EveryNth::new(values.get("n")))
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::super::check::Trial;
    use super::*;

    #[test]
    fn every_third_packet_is_lost() {
        let trial = Trial { packets: 10, ..Trial::USUAL };
        let (outcome, arrivals) =
            trial.arrivals(|stage, _| Box::new(Filter::new(EveryNth::new(3), stage)));
        let seqs: Vec<u64> = arrivals.iter().map(|arrival| arrival.seq).collect();
        assert_eq!(seqs, [0, 1, 3, 4, 6, 7, 9]);
        assert_eq!(outcome.books.dropped, 3);
    }
}
