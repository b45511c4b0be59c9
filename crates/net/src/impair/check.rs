//! Trials of impairments: packets at a constant rate through one element, and what arrived.

use crate::sink::Sink;
use crate::source::{Flow, Header, Pattern, Sizes, Source, Span};
use lastmeter_base::{Bytes, Draw, Duration, FlowId, NodeId, Packet, StageId, Time};
use lastmeter_engine::{
    Clock, Context, Element, Graph, Outcome, PortId, ResourceId, ResourceInfo, ResourceKind,
    StageInfo, VirtualClock, Wake,
};
use std::sync::{Arc, Mutex};

/// A trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) seed: u64,
    pub(super) packets: u64,
    /// Bytes of content, each of which is the packet's number in the flow.
    pub(super) content: usize,
    pub(super) gap: Duration,
    pub(super) len: Bytes,
    /// Whether the clock wakes up late, as a wall clock does.
    pub(super) late: bool,
    /// Whether the element has a wire.
    pub(super) wire: bool,
}

/// What arrived, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at: Time,
    pub(super) born: Time,
    pub(super) seq: u64,
    pub(super) content: Vec<u8>,
}

/// Fills packets with content, and passes them on.
struct Fill(usize);

impl Element for Fill {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        let byte = packet.seq as u8;
        packet.content.resize(self.0, byte);
        cx.send(PortId(0), packet);
    }
}

/// Records passing packets.
struct Probe(Arc<Mutex<Vec<Arrival>>>);

impl Element for Probe {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        self.0.lock().unwrap().push(Arrival {
            at: cx.now(),
            born: packet.born,
            seq: packet.seq,
            content: packet.content.clone(),
        });
        cx.send(PortId(0), packet);
    }
}

/// A virtual clock that oversleeps by up to 3 ms, which is many gaps.
struct Late(Time, u64);

impl Clock for Late {
    fn wait(&mut self, deadline: Option<Time>) -> Wake {
        self.1 = self.1.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let deadline = deadline.expect("a run has an end");
        self.0 = self.0.max(deadline + Duration::from_us((self.1 >> 33) % 3000));
        Wake::At(self.0)
    }
}

impl Trial {
    pub(super) const USUAL: Trial = Trial {
        seed: 1,
        packets: 1000,
        content: 0,
        gap: Duration::from_us(100),
        len: Bytes(1500),
        late: false,
        wire: false,
    };

    pub(super) fn run(
        &self,
        make: impl FnOnce(StageId, ResourceId) -> Box<dyn Element>,
    ) -> Outcome {
        self.run_to(NodeId(0), make)
    }

    pub(super) fn run_to(
        &self,
        destination: NodeId,
        make: impl FnOnce(StageId, ResourceId) -> Box<dyn Element>,
    ) -> Outcome {
        self.arrivals_to(destination, make).0
    }

    pub(super) fn arrivals(
        &self,
        make: impl FnOnce(StageId, ResourceId) -> Box<dyn Element>,
    ) -> (Outcome, Vec<Arrival>) {
        self.arrivals_to(NodeId(0), make)
    }

    fn arrivals_to(
        &self,
        destination: NodeId,
        make: impl FnOnce(StageId, ResourceId) -> Box<dyn Element>,
    ) -> (Outcome, Vec<Arrival>) {
        let mut graph = Graph::new(self.seed);
        // A late clock delivers late, so latencies and stages differ; only counts are compared.
        graph.collecting = !self.late;
        let path = graph.path("source->sink", "trial");
        let flow = Flow { path, flow: FlowId(0), destination, header: Header::PLAIN };
        let sizes = Sizes::Constant(self.len);
        let pattern = Pattern::Gaps { gap: Draw::Constant(self.gap), sizes };
        let span = Span { packets: self.packets, ..Span::ALWAYS };
        let source = graph.add("source", Source::new(flow, pattern, span)).unwrap();
        let fill = graph.add("fill", Fill(self.content)).unwrap();
        let name = "trial".to_owned();
        // Without units: an element without a wire has no time to account for.
        let units = u32::from(self.wire);
        let resource = graph.resource(ResourceInfo {
            units,
            ..ResourceInfo::new(name.clone(), ResourceKind::Wire)
        });
        let stage = StageInfo::new(name, None);
        let stage = graph.stage(stage);
        let trial = graph.add_boxed("trial".to_owned(), make(stage, resource)).unwrap();
        let list = Arc::new(Mutex::new(Vec::new()));
        let probe = graph.add("probe", Probe(Arc::clone(&list))).unwrap();
        let sink = graph.add("sink", Sink::default()).unwrap();
        for (from, output, to) in [
            (source, 0, fill),
            (fill, 0, trial),
            (trial, 0, probe),
            (trial, 1, probe),
            (probe, 0, sink),
        ] {
            graph.connect(from, PortId(output), to, PortId(0)).unwrap();
        }
        let mut engine = graph.build(1).unwrap();
        let end = Time::START + self.gap * self.packets + Duration::from_secs(10);
        match self.late {
            true => engine.run_until(end, &mut Late(Time::START, self.seed)).unwrap(),
            false => engine.run_until(end, &mut VirtualClock::default()).unwrap(),
        }
        let outcome = engine.finish().unwrap();
        let arrivals = std::mem::take(&mut *list.lock().unwrap());
        (outcome, arrivals)
    }
}

/// Packets that reached the end.
pub(super) fn packets_to(outcome: &Outcome) -> u64 {
    outcome.books.delivered
}

/// Asserts that `hits` of `trials` lie within four standard deviations of a binomial's mean.
pub(super) fn binomial_agrees(hits: u64, trials: u64, probability: f64) {
    let (n, k) = (trials as f64, hits as f64);
    let bound = 4.0 * (n * probability * (1.0 - probability)).sqrt();
    let mean = n * probability;
    assert!((k - mean).abs() <= bound, "{k} of {n}, not {mean} +- {bound}");
}
