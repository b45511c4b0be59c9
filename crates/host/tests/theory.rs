//! M/G/1 with priorities, pre-emptive and not: measurements of shared resources compared with the formulas
//! (Kleinrock, Queueing Systems II, §3.3 to 3.5; Cobham 1954).

#![allow(clippy::print_stdout, reason = "measurement and formula are worth reading")]

use lastmeter_base::{Bytes, Cost, Draw, Duration, FlowId, NodeId, PerByte, Time};
use lastmeter_engine::{Graph, PortId, ResourceInfo, ResourceKind, StageInfo, VirtualClock};
use lastmeter_host::element::Host;
use lastmeter_host::machine::{Full, Machine, Next, ResourceOptions, Stage};
use lastmeter_host::resource::{Discipline, Options, Priority};
use lastmeter_net::queue::DropTail;
use lastmeter_net::sink::Sink;
use lastmeter_net::source::{Flow, Header, Pattern, Sizes, Source, Span};

const REPLICATIONS: u64 = 16;
/// Student's t for 15 degrees of freedom, two-sided 99.9 %.
const T: f64 = 4.073;

/// A class of customers: arrivals per microsecond, and lengths with weights, served at 4 ns per byte.
struct Class {
    lambda: f64,
    sizes: Vec<(Bytes, u64)>,
}

impl Class {
    fn moment(&self, power: i32) -> f64 {
        let total: u64 = self.sizes.iter().map(|&(_, weight)| weight).sum();
        let term = |&(len, weight): &(Bytes, u64)| {
            weight as f64 / total as f64 * (len.0 as f64 * 0.004).powi(power)
        };
        self.sizes.iter().map(term).sum()
    }
}

fn classes() -> [Class; 2] {
    [
        Class { lambda: 0.5, sizes: vec![(Bytes(50), 1), (Bytes(150), 1)] },
        Class { lambda: 0.3, sizes: vec![(Bytes(100), 4), (Bytes(1000), 1)] },
    ]
}

/// Mean sojourn time of each class in microseconds; class 0 has the highest priority.
fn measure(seed: u64, preemptive: bool) -> [f64; 2] {
    let mut graph = Graph::new(seed);
    let resource = graph.resource(ResourceInfo::new("cpu", ResourceKind::Cpu));
    let options = Options {
        units: 1,
        discipline: Discipline::Priority,
        context_switch: Duration::ZERO,
        interrupt: Duration::ZERO,
    };
    let options = ResourceOptions { id: resource, options, per_byte: PerByte::ZERO };
    let stages = (0..2u8)
        .map(|class| Stage {
            id: graph.stage(StageInfo::new(format!("class {class}"), Some(resource))),
            queue: Box::new(DropTail::new(u64::MAX, Bytes(u64::MAX))),
            full: Full::Drop,
            resource: 0,
            priority: Priority::Thread(1 - class),
            preemptive,
            cost: Cost { per_packet: Duration::ZERO, per_byte: PerByte::from_fs(4_000_000) },
            per_pdu: Duration::ZERO,
            random: None,
            batch: false,
            buses: Vec::new(),
            places: 1,
            next: Next::Exit(PortId(class.into())),
        })
        .collect();
    let host = Host::new(Machine::new(&[options], stages, vec![0, 1]));
    let host = graph.add("host", host).unwrap();
    for (index, class) in classes().into_iter().enumerate() {
        let path = graph.path(format!("class {index}"), "poisson");
        let flow = Flow { path, flow: FlowId(0), destination: NodeId(0), header: Header::PLAIN };
        let gap = Draw::Exponential(Duration::from_secs_f64(1e-6 / class.lambda));
        let pattern = Pattern::Gaps { gap, sizes: Sizes::Mix(class.sizes) };
        let source = Source::new(flow, pattern, Span::ALWAYS);
        let source = graph.add(format!("source {index}"), source).unwrap();
        let sink = graph.add(format!("sink {index}"), Sink::default()).unwrap();
        let port = PortId(index as u16);
        graph.connect(source, PortId(0), host, port).unwrap();
        graph.connect(host, port, sink, PortId(0)).unwrap();
    }
    let mut engine = graph.build(1).unwrap();
    let end = Time::START + Duration::from_ms(200);
    engine.run_until(end, &mut VirtualClock::default()).unwrap();
    let outcome = engine.finish().unwrap();
    [0, 1].map(|path| outcome.books.paths[path].latency.mean() * 1e6)
}

fn agrees(what: &str, formula: [f64; 2], preemptive: bool) {
    let values: Vec<[f64; 2]> = (1..=REPLICATIONS).map(|seed| measure(seed, preemptive)).collect();
    for class in 0..2 {
        let n = values.len() as f64;
        let mean = values.iter().map(|value| value[class]).sum::<f64>() / n;
        let square: f64 = values.iter().map(|value| (value[class] - mean).powi(2)).sum();
        let half = T * (square / (n - 1.0) / n).sqrt();
        let formula = formula[class];
        println!("{what}, class {class}: measured {mean:.5} +- {half:.5}, formula {formula:.5}");
        assert!((mean - formula).abs() <= half, "{what} {class}: {mean} +- {half}, not {formula}");
        assert!(half < 0.05 * formula, "{what} {class}: +- {half} is too wide to tell");
    }
}

#[test]
fn without_preemption_each_class_waits_for_the_residual_service_of_all() {
    let [a, b] = classes();
    let (rho_a, rho_b) = (a.lambda * a.moment(1), b.lambda * b.moment(1));
    let residual = (a.lambda * a.moment(2) + b.lambda * b.moment(2)) / 2.0;
    let first = residual / (1.0 - rho_a) + a.moment(1);
    let second = residual / ((1.0 - rho_a) * (1.0 - rho_a - rho_b)) + b.moment(1);
    agrees("M/G/1 non-pre-emptive", [first, second], false);
}

#[test]
fn with_preemption_the_first_class_is_unaffected_by_the_second() {
    let [a, b] = classes();
    let (rho_a, rho_b) = (a.lambda * a.moment(1), b.lambda * b.moment(1));
    let first = a.moment(1) + a.lambda * a.moment(2) / 2.0 / (1.0 - rho_a);
    let residual = (a.lambda * a.moment(2) + b.lambda * b.moment(2)) / 2.0;
    let second = (b.moment(1) + residual / (1.0 - rho_a - rho_b)) / (1.0 - rho_a);
    agrees("M/G/1 pre-emptive resume", [first, second], true);
}
