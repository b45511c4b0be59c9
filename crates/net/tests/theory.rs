//! Queueing theory: what the elements measure, against what the formulas say.
//!
//! Each value is the mean over independent replications; the formula must lie within the 99.9 %
//! confidence interval, and the interval must be narrow, or the test would show nothing.

#![allow(clippy::print_stdout, reason = "measured against formula is worth reading")]

use lastmeter_base::{Bytes, Cost, Draw, Duration, FlowId, NodeId, PerByte, Rate, StageId, Time};
use lastmeter_engine::{
    Graph, Outcome, PortId, ResourceInfo, ResourceKind, StageInfo, VirtualClock,
};
use lastmeter_net::queue::{DropTail, TokenBucket};
use lastmeter_net::server::{Server, Service};
use lastmeter_net::sink::Sink;
use lastmeter_net::source::{Flow, Header, Pattern, Sizes, Source, Span};

const REPLICATIONS: u64 = 16;
/// Student's t for 15 degrees of freedom, two-sided 99.9 %.
const T: f64 = 4.073;

/// Asserts that `formula` lies in the confidence interval of `measure` over seeds.
fn agrees(what: &str, formula: f64, measure: impl Fn(u64) -> f64) {
    agrees_within(what, formula, 0.05, &(1..=REPLICATIONS).map(measure).collect::<Vec<f64>>());
}

/// The same for values already measured, and an interval of at most `width` of the formula.
fn agrees_within(what: &str, formula: f64, width: f64, values: &[f64]) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = T * (variance / n).sqrt();
    println!("{what}: measured {mean:.5} +- {half:.5}, formula {formula:.5}");
    assert!((mean - formula).abs() <= half, "{what}: {mean} +- {half}, not {formula}");
    assert!(half < width * formula, "{what}: +- {half} around {mean} is too wide to tell");
}

fn unlimited() -> DropTail {
    DropTail::new(u64::MAX, Bytes(u64::MAX))
}

fn stage(graph: &mut Graph, name: &str) -> StageId {
    let name = name.to_owned();
    graph.stage(StageInfo::new(name, None))
}

/// Poisson arrivals, one every `gap`, through servers in a row.
fn tandem(seed: u64, gap: Duration, sizes: Sizes, services: &[Service], end: Duration) -> Outcome {
    let mut graph = Graph::new(seed);
    let path = graph.path("source->sink", "poisson");
    let flow = Flow { path, flow: FlowId(0), destination: NodeId(0), header: Header::PLAIN };
    let pattern = Pattern::Gaps { gap: Draw::Exponential(gap), sizes };
    let mut last = graph.add("source", Source::new(flow, pattern, Span::ALWAYS)).unwrap();
    for (index, service) in services.iter().enumerate() {
        let name = format!("server {index}");
        let resource = graph.resource(ResourceInfo::new(name.clone(), ResourceKind::Engine));
        let stage = stage(&mut graph, &name);
        let server = Server::new(unlimited(), service.clone(), stage, resource);
        let server = graph.add(name, server).unwrap();
        graph.connect(last, PortId(0), server, PortId(0)).unwrap();
        last = server;
    }
    let sink = graph.add("sink", Sink::default()).unwrap();
    graph.connect(last, PortId(0), sink, PortId(0)).unwrap();
    let mut engine = graph.build(1).unwrap();
    engine.run_until(Time::START + end, &mut VirtualClock::default()).unwrap();
    engine.finish().unwrap()
}

fn sojourn_us(outcome: &Outcome) -> f64 {
    outcome.books.paths[0].latency.mean() * 1e6
}

const US: Duration = Duration::from_us(1);
const GAP: Duration = Duration::from_ns(1_250); // A load of 0.8 on a server of 1 us.

#[test]
fn m_m_1_sojourn_and_utilisation() {
    let service = [Service::Draw(Draw::Exponential(US))];
    let runs: Vec<Outcome> = (1..=REPLICATIONS)
        .map(|seed| {
            let end = Duration::from_ms(200);
            tandem(seed, GAP, Sizes::Constant(Bytes(1)), &service, end)
        })
        .collect();
    let of_runs = |value: &dyn Fn(&Outcome) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
    // W = 1 / (mu - lambda).
    agrees_within("M/M/1 sojourn", 5.0, 0.05, &of_runs(&sojourn_us));
    let busy =
        |outcome: &Outcome| outcome.books.resources[0].busy() as f64 / outcome.now.as_ps() as f64;
    agrees_within("M/M/1 utilisation", 0.8, 0.01, &of_runs(&busy));
    // The sojourn time is exponential: its 99th percentile is W ln 100.
    let p99 =
        |outcome: &Outcome| outcome.books.paths[0].latency.percentile(0.99).as_secs_f64() * 1e6;
    agrees_within("M/M/1 99th percentile", 5.0 * 100f64.ln(), 0.08, &of_runs(&p99));
}

#[test]
fn m_d_1_wait_is_half_of_m_m_1() {
    let service = [Service::Draw(Draw::Constant(US))];
    // Pollaczek-Khinchine with no variance: Wq = rho / (2 mu (1 - rho)) = 2, and 1 of service.
    agrees("M/D/1 sojourn", 3.0, |seed| {
        let end = Duration::from_ms(100);
        sojourn_us(&tandem(seed, GAP, Sizes::Constant(Bytes(1)), &service, end))
    });
}

#[test]
fn m_g_1_wait_follows_pollaczek_and_khinchine() {
    // 100 bytes with weight 9 and 1000 with weight 1, at 4 ns a byte: 0.4 us or 4 us.
    let sizes = Sizes::Mix(vec![(Bytes(100), 9), (Bytes(1000), 1)]);
    let cost = Cost { per_packet: Duration::ZERO, per_byte: PerByte::from_fs(4_000_000) };
    let (mean, square) = (0.9 * 0.4 + 0.1 * 4.0, 0.9 * 0.16 + 0.1 * 16.0);
    let lambda = 0.8;
    let wait = lambda * square / (2.0 * (1.0 - lambda * mean));
    agrees("M/G/1 sojourn", wait + mean, |seed| {
        let end = Duration::from_ms(150);
        sojourn_us(&tandem(seed, GAP, sizes.clone(), &[Service::Cost(cost)], end))
    });
}

#[test]
fn ten_stations_in_tandem_are_ten_times_one() {
    // Burke 1956: the departures of M/M/1 are Poisson, so each station is an M/M/1 of its own.
    let services = vec![Service::Draw(Draw::Exponential(US)); 10];
    agrees("tandem sojourn", 50.0, |seed| {
        let end = Duration::from_ms(80);
        sojourn_us(&tandem(seed, GAP, Sizes::Constant(Bytes(1)), &services, end))
    });
}

const BURSTS: Duration = Duration::from_ms(500);

/// What an on-off source sends in that time, averaged over some seeds.
fn bursts_send(on: Draw, off: Draw) -> f64 {
    let sent = |seed| {
        let mut graph = Graph::new(seed);
        let path = graph.path("source->sink", "bursts");
        let flow = Flow { path, flow: FlowId(0), destination: NodeId(0), header: Header::PLAIN };
        let sizes = Sizes::Constant(Bytes(1));
        let pattern = Pattern::OnOff { on: on.clone(), off: off.clone(), gap: GAP, sizes };
        let source = graph.add("source", Source::new(flow, pattern, Span::ALWAYS)).unwrap();
        let sink = graph.add("sink", Sink::default()).unwrap();
        graph.connect(source, PortId(0), sink, PortId(0)).unwrap();
        let mut engine = graph.build(1).unwrap();
        engine.run_until(Time::START + BURSTS, &mut VirtualClock::default()).unwrap();
        engine.finish().unwrap().books.paths[0].delivered.packets as f64
    };
    (0..8).map(sent).sum::<f64>() / 8.0
}

#[test]
fn bursts_of_few_gaps_have_as_many_packets_as_their_length_says() {
    // On for a third of the time, whatever a burst's length is in gaps.
    let share = BURSTS.as_secs_f64() / GAP.as_secs_f64() / 3.0;
    for gaps in [1, 5, 50] {
        let on = Duration::from_ps(GAP.as_ps() * gaps);
        let off = Duration::from_ps(GAP.as_ps() * gaps * 2);
        let sent = bursts_send(Draw::Exponential(on), Draw::Exponential(off));
        // Over n bursts, the standard deviation of the mean is about sqrt(2 / 8n).
        assert!((sent / share - 1.0).abs() < 0.03, "bursts of {gaps} gaps: {sent} of {share}");
    }
}

#[test]
fn a_regulated_flow_meets_its_delay_bound_and_comes_close_to_it() {
    // Cruz 1991: a (sigma, rho) flow through a server of rate R >= rho waits at most sigma / R.
    const BURST: Bytes = Bytes(15_000);
    let (rho, line) = (Rate::from_mbit(50), Rate::from_mbit(100));
    let mut graph = Graph::new(3);
    let path = graph.path("source->sink", "bursts");
    let flow = Flow { path, flow: FlowId(0), destination: NodeId(0), header: Header::PLAIN };
    let pattern = Pattern::OnOff {
        on: Draw::Exponential(Duration::from_ms(2)),
        off: Draw::Exponential(Duration::from_ms(4)),
        gap: Duration::from_us(10),
        sizes: Sizes::Constant(Bytes(1000)),
    };
    let source = graph.add("source", Source::new(flow, pattern, Span::ALWAYS)).unwrap();
    let mut last = source;
    let bucket = TokenBucket::new(unlimited(), rho, BURST);
    // The regulator itself adds no delay to what it lets through.
    let instant = Service::Cost(Cost::FREE);
    let names = ["regulator", "link"];
    let info = |name: &str| ResourceInfo::new(name.to_owned(), ResourceKind::Wire);
    let resources = names.map(|name| graph.resource(info(name)));
    let stages = names.map(|name| stage(&mut graph, name));
    let regulator = Server::new(bucket, instant, stages[0], resources[0]);
    let service = Service::Line { rate: line, framing: Bytes::ZERO };
    let link = Server::new(unlimited(), service, stages[1], resources[1]);
    let regulator = graph.add("regulator", regulator).unwrap();
    let link = graph.add("link", link).unwrap();
    for next in [regulator, link] {
        graph.connect(last, PortId(0), next, PortId(0)).unwrap();
        last = next;
    }
    let sink = graph.add("sink", Sink::default()).unwrap();
    graph.connect(last, PortId(0), sink, PortId(0)).unwrap();
    let mut engine = graph.build(1).unwrap();
    engine.run_until(Time::START + Duration::from_secs(5), &mut VirtualClock::default()).unwrap();
    let outcome = engine.finish().unwrap();
    let rows = outcome.books.paths[0].rows();
    let link = rows.iter().find(|row| row.stage == stages[1]).unwrap();
    let longest = link.wait.max() + link.service.max();
    let bound = line.time_for(BURST);
    assert!(longest <= bound, "{longest} of {bound}");
    assert!(longest > bound.scale_ceil(9, 10), "{longest} is far from {bound}: no real test");
}
