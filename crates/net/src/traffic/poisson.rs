//! Poisson: packets independent of one another.

use super::{Maker, Setting, Traffic, gap, packets, sizes};
use crate::source::Pattern;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Draw, here, one_way};

const PAGE: &Page = &Page {
    name: "poisson",
    family: Family::Traffic,
    what: "Packets at random times, with exponential gaps, as from many independent users.",
    ports: "(random clock) --> out",
    params: &[
        Param::required("rate", ParamKind::Rate).is("mean bit rate of the packets"),
        Param::required("size", ParamKind::Sizes).is("lengths of the packets"),
    ],
    source: "Kleinrock, Queueing Systems, Volume 1, 1975, section 2.4",
    deviations: &[
        "Gaps are rounded to whole picoseconds.",
        "The first packet comes one gap after the start, whatever the `phase`.",
    ],
    counters: &[("sent", "packets made")],
    example: one_way! {
        "10 ms", "alice" [] "bob",
        [r#"rate = "1 Gbit/s""#],
        "many users" [
        r#"poisson = { rate = "800 Mbit/s", size = [["64 B", 7], ["576 B", 4], ["1500 B", 1]] }"#,
        ]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, _setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let sizes = sizes(values);
    let gap = Draw::Exponential(gap(values.get("rate"), &sizes));
    Ok(Traffic::Source(Pattern::Gaps { gap, sizes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Sink;
    use crate::source::{Flow, Header, Sizes, Source, Span};
    use lastmeter_base::{Bytes, Duration, FlowId, NodeId, Time};
    use lastmeter_engine::{Graph, PortId, VirtualClock};

    /// How many packets arrive in an interval in which one is expected.
    fn count(seed: u64, random_phase: bool) -> f64 {
        let gap = Duration::from_us(10);
        let mut graph = Graph::new(seed);
        let path = graph.path("users", "packets");
        let destination = NodeId(1);
        let flow = Flow { path, flow: FlowId(0), destination, header: Header::PLAIN };
        let sizes = Sizes::Constant(Bytes(100));
        let pattern = Pattern::Gaps { gap: Draw::Exponential(gap), sizes };
        let start = Time::START + gap;
        let span = Span { start, random_phase, ..Span::ALWAYS };
        let source = graph.add("source", Source::new(flow, pattern, span)).unwrap();
        let sink = graph.add("sink", Sink::default()).unwrap();
        graph.connect(source, PortId(0), sink, PortId(0)).unwrap();
        let mut engine = graph.build(1).unwrap();
        engine.run_until(start + gap, &mut VirtualClock::default()).unwrap();
        engine.finish().unwrap().books.delivered as f64
    }

    #[test]
    fn counts_have_the_mean_and_variance_of_poisson_from_the_start() {
        const SEEDS: u64 = 10_000;
        for random_phase in [false, true] {
            let counts: Vec<f64> = (0..SEEDS).map(|seed| count(seed, random_phase)).collect();
            let mean = counts.iter().sum::<f64>() / SEEDS as f64;
            let variance =
                counts.iter().map(|count| (count - 1.0).powi(2)).sum::<f64>() / SEEDS as f64;
            // Standard errors of a hundredth, and of sqrt(3) hundredths: the fourth central moment is 4.
            assert!((mean - 1.0).abs() < 0.04, "{mean}");
            assert!((variance - 1.0).abs() < 0.07, "{variance}");
        }
    }
}
