//! Elements that only pass packets on run ahead of the others, together with those behind them, and nothing changes.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use lastmeter_base::{Bytes, Duration, Packet, PathId, StageId, Stream, Time};
use lastmeter_engine::{
    Context, Control, Element, ElementId, Graph, Outcome, PortId, Report, Serial, StageInfo,
    TimerId,
};
use std::sync::Arc;

/// Hops after which a switch drops a packet.
const HOPS: u8 = 20;

fn us(us: u64) -> Duration {
    Duration::from_us(us)
}

fn at(n: u64) -> Time {
    Time::START + us(n)
}

/// Sends at coarse times, so that ties between elements are common.
struct Source(PathId);

impl Element for Source {
    fn start(&mut self, cx: &mut Context<'_>) {
        cx.arm(TimerId(0), Time::START);
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        cx.deliver(packet);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        let mut packet = cx.make(self.0, Bytes(100));
        packet.hops = HOPS;
        packet.seq = cx.rng().bits();
        cx.send(PortId(0), packet);
        let gap = us(1 + cx.rng().below(6));
        cx.arm(TimerId(0), cx.now() + gap);
    }
}

/// Sends each packet through one of its outputs.
struct Switch {
    outputs: u64,
    passed: u64,
    passes_on: bool,
}

impl Element for Switch {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        self.passed += 1;
        packet.hops -= 1;
        if packet.hops == 0 {
            return cx.drop(packet, None, "hops");
        }
        packet.seq = packet.seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.passed;
        let output = (packet.seq >> 33) % self.outputs;
        cx.send(PortId(output as u16), packet);
    }
    fn timers(&self) -> u32 {
        0
    }
    fn passes_on(&self) -> bool {
        self.passes_on
    }
    fn report(&self, out: &mut Report) {
        out.count("passed", self.passed);
    }
}

/// A line with a short queue: one microsecond for each packet.
struct Line {
    stage: StageId,
    free_at: Time,
    full: u64,
    passes_on: bool,
}

impl Element for Line {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        let begins = self.free_at.max(cx.now());
        // One more fits if a timer of this element for now would have expired.
        let most = us(4 + u64::from(cx.is_past(cx.now())));
        if begins > cx.now() + most {
            self.full += 1;
            return cx.drop(packet, Some(self.stage), "full");
        }
        self.free_at = begins + us(1);
        packet.visit(self.stage, begins - cx.now(), us(1), Duration::ZERO);
        cx.send_at(PortId(0), packet, self.free_at);
    }
    fn timers(&self) -> u32 {
        0
    }
    fn passes_on(&self) -> bool {
        self.passes_on
    }
    fn report(&self, out: &mut Report) {
        out.count("full", self.full);
    }
}

/// Switches, each with lines behind some of its outputs, in a random network. Some lines have no delay, some have two
/// inputs, and some outputs lead to an element that does more than pass packets on.
fn network(seed: u64, passes_on: bool, tracing: bool) -> Graph {
    let mut stream = Stream::new(seed, "network");
    let mut graph = Graph::new(seed);
    graph.tracing = tracing;
    let path = graph.path("path", "class");
    let odd = stream.below(3) == 0;
    let outputs: Vec<u64> = (0..2 + stream.below(4)).map(|_| 1 + stream.below(3)).collect();
    let switch = |(index, &outputs): (usize, &u64)| {
        let element = Switch { outputs, passed: 0, passes_on };
        graph.add(format!("switch {index}"), element).unwrap()
    };
    let switches: Vec<ElementId> = outputs.iter().enumerate().map(switch).collect();
    let sources: Vec<ElementId> = (0..1 + stream.below(4))
        .map(|index| graph.add(format!("source {index}"), Source(path)).unwrap())
        .collect();
    let any = |stream: &mut Stream, all: &[ElementId]| all[stream.below(all.len() as u64) as usize];
    let delay = |stream: &mut Stream| match odd && stream.below(8) == 0 {
        true => Duration::ZERO,
        false => us([1, 1, 2, 3, 40][stream.below(5) as usize]),
    };
    for (index, &source) in sources.iter().enumerate() {
        let way = graph.stage(StageInfo::new(format!("first way {index}"), None));
        let (to, delay) = (any(&mut stream, &switches), delay(&mut stream).max(us(1)));
        graph.connect_after(source, PortId(0), to, PortId(0), delay, Some(way)).unwrap();
    }
    let mut lines = Vec::new();
    for (index, (&switch, &outputs)) in switches.iter().zip(&outputs).enumerate() {
        for output in 0..outputs {
            let port = PortId(output as u16);
            let to = match stream.below(8) {
                0 if odd && !lines.is_empty() => any(&mut stream, &lines),
                1 if odd => any(&mut stream, &sources),
                _ => {
                    let name = format!("line {index} {output}");
                    let stage = graph.stage(StageInfo::new(name.clone(), None));
                    let (free_at, full) = (Time::START, 0);
                    let line = graph.add(name, Line { stage, free_at, full, passes_on }).unwrap();
                    lines.push(line);
                    let way = graph.stage(StageInfo::new(format!("way {index} {output}"), None));
                    let last = stream.below(3) == 0;
                    let to = any(&mut stream, if last { &sources } else { &switches });
                    let delay = delay(&mut stream);
                    graph.connect_after(line, PortId(0), to, PortId(0), delay, Some(way)).unwrap();
                    line
                }
            };
            graph.connect(switch, port, to, PortId(0)).unwrap();
        }
    }
    graph
}

/// Runs until `end` in steps of `step`, in at most so many parts.
fn run(graph: Graph, parts: usize, step: u64, end: u64) -> Outcome {
    let mut engine = graph.build(parts).unwrap();
    for end in (step..).step_by(step as usize).take_while(|&at| at < end).chain([end]) {
        engine.run_parallel(at(end), &Arc::new(Control::default()), &Serial).unwrap();
    }
    engine.finish().unwrap()
}

fn assert_same(one: &Outcome, other: &Outcome, what: &str) {
    let mut pairs = one.trace.iter().zip(&other.trace);
    assert_eq!(pairs.find(|(one, other)| one != other), None, "{what}");
    assert_eq!(one.trace.len(), other.trace.len(), "{what}");
    assert_eq!((one.handled, one.held), (other.handled, other.held), "{what}");
    assert_eq!(one.elements, other.elements, "{what}");
    let [one, other] = [one, other].map(|run| &run.books.paths[0]);
    assert_eq!((one.offered, one.delivered), (other.offered, other.delivered), "{what}");
    assert_eq!((one.last_delivered, &one.dropped), (other.last_delivered, &other.dropped));
    assert_eq!((&one.latency, &one.variation), (&other.latency, &other.variation), "{what}");
    let times = |book: &lastmeter_engine::PathBook| {
        book.rows().iter().map(|row| (row.stage, row.time(), row.passed)).collect::<Vec<_>>()
    };
    assert_eq!(times(one), times(other), "{what}");
}

#[test]
fn running_ahead_together_changes_no_result() {
    let mut delivered = 0;
    for seed in 0..150 {
        for tracing in [true, false] {
            let plain = run(network(seed, false, tracing), 1, 400, 400);
            delivered += plain.books.delivered;
            for (parts, step) in [(1, 400), (1, 7), (2, 400), (3, 50)] {
                let ahead = run(network(seed, true, tracing), parts, step, 400);
                let what = format!("seed {seed}, {parts} parts, steps of {step} us");
                assert_same(&plain, &ahead, &what);
            }
        }
    }
    assert!(delivered > 10_000, "{delivered}");
}

#[test]
fn receiving_events_again_where_batches_are_small_changes_no_result() {
    // Long enough for thousands of batches, of a packet or two each.
    const END: u64 = 12_000;
    for seed in 0..12 {
        let plain = run(network(seed, false, false), 1, END, END);
        for (parts, step) in [(1, END), (1, 1001), (2, END)] {
            let ahead = run(network(seed, true, false), parts, step, END);
            assert_same(&plain, &ahead, &format!("seed {seed}, {parts} parts, steps of {step} us"));
        }
    }
}
