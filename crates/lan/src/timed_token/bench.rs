//! The benchmarks of `lastmeter bench ring`: a ring of the master and fifteen hosts, all overloaded.

use super::element::Ring;
use super::medium::{Class, Medium, Options};
use lastmeter_base::bench::{Case, Work};
use lastmeter_base::{Bytes, Draw, Duration, FlowId, NodeId, Packet, Rate, Time};
use lastmeter_engine::{
    Graph, Outcome, PortId, ResourceInfo, ResourceKind, StageInfo, VirtualClock,
};
use lastmeter_net::sink::Sink;
use lastmeter_net::source::{Flow, Header, Pattern, Sizes, Source, Span};

const HOSTS: usize = 15;
/// An Ethernet packet with Jetstream's headers.
const LEN: Bytes = Bytes(1_508);
const RUN: Duration = Duration::from_secs(1);
const RUN_QUICK: Duration = Duration::from_ms(20);
const UNIT: &str = "frames";

/// The benchmarks of the ring.
pub const CASES: &[Case] = &[
    Case {
        name: "ring/medium@15",
        unit: UNIT,
        what: "sends frames of 15 hosts with a permanent backlog, without an engine",
        prepare: medium,
    },
    Case {
        name: "ring/engine@15",
        unit: UNIT,
        what: "carries frames from 15 sources at 99 % of the ring's rate to their sinks",
        prepare: |quick| {
            Box::new(move || {
                let outcome = run(if quick { RUN_QUICK } else { RUN }, false);
                Work { units: outcome.books.delivered, hash: outcome.books.made }
            })
        },
    },
    Case {
        name: "ring/ledger@15",
        unit: UNIT,
        what: "the same, with stages and latencies in the books",
        prepare: |quick| {
            Box::new(move || {
                let outcome = run(if quick { RUN_QUICK } else { RUN }, true);
                Work { units: outcome.books.delivered, hash: outcome.books.made }
            })
        },
    },
];

fn ring() -> Medium {
    let options = Options {
        target: Duration::from_ms(1),
        rate: Rate::from_mbit(960),
        hops: vec![Duration::from_ns(1_312); HOSTS + 1],
        allotments: vec![Duration::from_us(20); HOSTS + 1],
        token: Duration::ZERO,
        framing: Bytes::ZERO,
        packets_max: 1_000,
        handler: Duration::from_us(30),
    };
    Medium::new(options, Time::START).expect("a ring of 16 stations is one")
}

fn medium(quick: bool) -> Box<dyn FnMut() -> Work> {
    let mut ring = ring();
    for station in 1..=HOSTS {
        for place in 0..200 {
            let class = if place % 4 == 0 { Class::Synchronous } else { Class::Asynchronous };
            let packet = Packet::new(LEN);
            ring.enqueue(Time::START, station, class, packet).expect("the queue has room");
        }
    }
    let rounds = if quick { 100 } else { 10_000 };
    let mut back = Vec::new();
    let (mut hash, mut first) = (0u64, None);
    Box::new(move || {
        let mut units = 0;
        for _ in 0..rounds {
            let now = ring.ready_at().expect("there is a permanent backlog");
            ring.advance(now, |sent| back.push(sent));
            units += back.len() as u64;
            for sent in back.drain(..) {
                hash = (hash ^ sent.ended.as_ps()).wrapping_mul(0x0100_0000_01b3);
                ring.enqueue(now, sent.station, sent.class, sent.packet)
                    .expect("the queue has room");
            }
        }
        // Later rounds continue where the first one ended, so its hash represents all.
        Work { units, hash: *first.get_or_insert(hash) }
    })
}

fn run(length: Duration, collecting: bool) -> Outcome {
    let mut graph = Graph::new(1);
    graph.collecting = collecting;
    let name = "ring".to_owned();
    let resource = graph.resource(ResourceInfo::new(name, ResourceKind::Wire));
    let mut stage = |name: &str, resource| {
        let name = name.to_owned();
        graph.stage(StageInfo::new(name, resource))
    };
    let stages = (stage("access", Some(resource)), stage("propagation", None));
    let nodes: Vec<(NodeId, usize)> =
        (0..=HOSTS).map(|station| (NodeId(station as u32), station)).collect();
    let ring = graph.add("ring", Ring::new(ring(), &nodes, stages, resource));
    let ring = ring.expect("a name is used once");
    let path = graph.path("hosts", "frames");
    // The token needs 2 % of the rate, so sources at 99 % of it overrun the queues.
    let gap = Rate::from_mbit(960).scale_floor(99, 100).time_for(LEN) * HOSTS as u64;
    for station in 1..=HOSTS {
        let destination = NodeId((station % HOSTS + 1) as u32);
        let header = Header::PLAIN;
        let flow = Flow { path, flow: FlowId(station as u32), destination, header };
        let pattern = Pattern::Gaps { gap: Draw::Constant(gap), sizes: Sizes::Constant(LEN) };
        let span = Span { random_phase: true, ..Span::ALWAYS };
        let source = graph.add(format!("source {station}"), Source::new(flow, pattern, span));
        let sink = graph.add(format!("sink {station}"), Sink::default());
        let port = PortId(station as u16);
        let ends = [(source, ring, port, true), (sink, ring, port, false)];
        for (end, ring, port, sends) in ends {
            let end = end.expect("a name is used once");
            let joined = match sends {
                true => graph.connect(end, PortId(0), ring, port),
                false => graph.connect(ring, port, end, PortId(0)),
            };
            joined.expect("a port is connected once");
        }
    }
    let mut engine = graph.build(1).expect("the graph is small");
    engine.run_until(Time::START + length, &mut VirtualClock::default()).expect("it ends");
    engine.finish().expect("books balance")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_does_the_same_each_time() {
        for case in CASES {
            let (first, second) = ((case.prepare)(true)(), (case.prepare)(true)());
            assert_eq!(first, second, "{}", case.name);
            assert!(first.units > 100, "{}", case.name);
        }
    }
}
