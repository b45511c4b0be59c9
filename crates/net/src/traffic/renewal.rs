//! Renewal: packets with independent random gaps of any distribution.

use super::{Maker, Setting, Traffic, packets, sizes};
use crate::source::Pattern;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Draw, here, one_way};

const PAGE: &Page = &Page {
    name: "renewal",
    family: Family::Traffic,
    what: "Packets with independent random gaps: Pareto, hyper-exponential, geometric, and others.",
    ports: "(random clock) --> out",
    params: &[
        Param::required("gap", ParamKind::Draw).is("time from one packet to the next"),
        Param::required("size", ParamKind::Sizes).is("lengths of the packets"),
    ],
    source: "Cox, Renewal Theory, 1962, section 2.1: an ordinary renewal process",
    deviations: &[
        "The first packet comes one gap after the start, unless the gap is constant.",
        "Gaps, as any time or distribution: \"5 us\"; { exponential = \"5 us\" }; \
         { uniform = [\"1 us\", \"9 us\"] }; { either = [\"1 us\", \"31 us\"], first = 0.9 }; \
         { hyper-exponential = [\"1 us\", \"31 us\"], first = 0.9 }, with one of two means; \
         { geometric = \"5 us\", slot = \"1 us\" }, in whole slots; \
         { pareto = \"5 us\", shape = 1.5 } and { log-normal = \"5 us\", sigma = 1.0 }, with this \
         mean; { mix = [[\"1 us\", 7], [\"9 us\", 1]] }, by weight.",
    ],
    counters: &[("sent", "packets made")],
    example: one_way! {
        "100 ms", "alice" [] "bob",
        [r#"rate = "1 Gbit/s""#],
        "heavy tails" [
        r#"renewal = { gap = { pareto = "20 us", shape = 1.5 }, size = "1500 B" }"#,
        ]
    },
    ..Page::at(here!())
};

/// Its line.
pub(super) const KIND: Kind = Kind::new(PAGE, &packets(&Maker(build)));

fn build(values: &Values, _setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let gap = values.get::<Draw>("gap");
    if gap.mean() <= 0.0 {
        return Err("a mean gap of 0 s is an infinite rate; write a longer one".to_owned());
    }
    Ok(Traffic::Source(Pattern::Gaps { gap, sizes: sizes(values) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Sink;
    use crate::source::{Flow, Header, Sizes, Source, Span};
    use lastmeter_base::{Bytes, Duration, FlowId, NodeId, Time};
    use lastmeter_engine::{Graph, PortId, VirtualClock};

    /// The mean and the variance of the number of packets in an interval in which `MEAN` are expected.
    const MEAN: u64 = 400;
    fn counts(gap: &Draw) -> (f64, f64) {
        const SEEDS: u64 = 2_000;
        let count = |seed| {
            let mut graph = Graph::new(seed);
            let path = graph.path("users", "packets");
            let (flow, destination) = (FlowId(0), NodeId(1));
            let flow = Flow { path, flow, destination, header: Header::PLAIN };
            let sizes = Sizes::Constant(Bytes(100));
            let pattern = Pattern::Gaps { gap: gap.clone(), sizes };
            let source = graph.add("source", Source::new(flow, pattern, Span::ALWAYS)).unwrap();
            let sink = graph.add("sink", Sink::default()).unwrap();
            graph.connect(source, PortId(0), sink, PortId(0)).unwrap();
            let mut engine = graph.build(1).unwrap();
            let end = Time::START + Duration::from_secs_f64(gap.mean()) * MEAN;
            engine.run_until(end, &mut VirtualClock::default()).unwrap();
            engine.finish().unwrap().books.delivered as f64
        };
        let counts: Vec<f64> = (0..SEEDS).map(count).collect();
        let mean = counts.iter().sum::<f64>() / SEEDS as f64;
        let squares = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>();
        (mean, squares / SEEDS as f64)
    }

    /// Cox, section 4.2 and 4.5: N(t) has the mean t / m + (c^2 - 1) / 2 and, for large t, the variance
    /// c^2 t / m, with m the mean of a gap and c^2 its squared coefficient of variation.
    #[test]
    fn counts_are_those_of_a_renewal_process() {
        let us = Duration::from_us;
        let cases = [
            // 2 (p a^2 + q b^2) / m^2 - 1, with means of 4 and 20 us.
            (Draw::HyperExponential(0.75, us(4), us(20)), 2.5),
            // 1 - p, with a slot of a quarter of the mean.
            (Draw::Geometric { mean: us(8), slot: us(2) }, 0.75),
            // exp(sigma^2) - 1.
            (Draw::LogNormal { mean: us(8), sigma: 1.0 }, 1.718),
            // (b - a)^2 / 12 / m^2.
            (Draw::Uniform(us(2), us(14)), 0.1875),
        ];
        for (gap, variation) in cases {
            let (mean, variance) = counts(&gap);
            // Geometric gaps end at slots, and the last counts at the very end: half a packet more.
            let expected = MEAN as f64 + (variation - 1.0) / 2.0;
            assert!((mean - expected).abs() < 2.0, "{gap:?}: {mean} for {expected}");
            let ratio = variance / (variation * MEAN as f64);
            assert!((ratio - 1.0).abs() < 0.15, "{gap:?}: {ratio}");
        }
    }
}
