//! A busy server: who keeps the state of closed connections, and what that costs (N-72 to N-74).

use lastmeter_base::{Bytes, Duration, NodeId, Time};
use lastmeter_engine::{Graph, Outcome, PortId, ResourceInfo, ResourceKind, Serial, StageInfo};
use lastmeter_transport::tcp::time_wait::{Remedy, rate};
use lastmeter_transport::tcp::{Config, Costs, Exchange, Labels, WebClients, WebServer};

const COSTS: Costs = Costs {
    segment: Duration::from_us(500),
    request: Duration::from_ms(8),
    message: Duration::from_ms(1),
    scan: Duration::from_us(20),
};
const CLIENTS: u32 = 8;
const LINGER: Duration = Duration::from_secs(10);
/// What is counted: the last of 30 seconds.
const COUNTED: Duration = Duration::from_secs(10);

fn run(costs: Costs, remedy: Remedy) -> Outcome {
    let mut graph = Graph::new(1);
    let (there, back) = (graph.path("requests", "web"), graph.path("responses", "web"));
    let info = ResourceInfo::new("cpu", ResourceKind::Cpu);
    let resource = graph.resource(info);
    let stage = |name: &str, resource| StageInfo::new(name, resource);
    let handling = graph.stage(stage("handling", Some(resource)));
    let ways = [graph.stage(stage("there", None)), graph.stage(stage("back", None))];
    let exchange =
        Exchange { request: Bytes(300), message: Bytes(20), response: Bytes(1000), remedy };
    let config = Config { linger: LINGER, timeout_min: Duration::from_secs(1), ..Config::modern() };
    let labels = |path| Labels { path, class: 0, class_acknowledging: 0 };
    let since = Time::START + Duration::from_secs(20);
    let server = WebServer::new(
        (labels(back), NodeId(1)),
        config.clone(),
        (costs, exchange),
        (handling, resource),
        since,
    );
    let server = graph.add("server", server).unwrap();
    let clients = WebClients::new((labels(there), NodeId(0)), config, exchange, CLIENTS);
    let clients = graph.add("clients", clients).unwrap();
    let delay = Duration::from_us(50);
    let port = PortId(0);
    graph.connect_after(clients, port, server, port, delay, Some(ways[0])).unwrap();
    graph.connect_after(server, port, clients, port, delay, Some(ways[1])).unwrap();
    let mut engine = graph.build(1).unwrap();
    engine.run_parallel(since + COUNTED, &Default::default(), &Serial).unwrap();
    engine.finish().unwrap()
}

fn count(outcome: &Outcome, element: &str, name: &str) -> u64 {
    let element = outcome.elements.iter().find(|found| found.name == element).unwrap();
    element.counters.iter().find(|(counter, _)| *counter == name).unwrap().1
}

/// N-72, and the formula: state accumulates, and the rate settles where the processor is full.
#[test]
fn the_rate_settles_where_the_list_of_blocks_fills_the_processor() {
    let found = run(COSTS, Remedy::None);
    let served = count(&found, "server", "served") as f64 / COUNTED.as_secs_f64();
    let free = run(Costs { scan: Duration::ZERO, ..COSTS }, Remedy::None);
    let base = COUNTED / count(&free, "server", "served");
    let formula = rate(base, COSTS.scan, LINGER);
    assert!((served / formula - 1.0).abs() < 0.05, "{served} a second, by the formula {formula}");
    let lingering = count(&found, "server", "lingering") as f64;
    assert!((lingering / (served * LINGER.as_secs_f64()) - 1.0).abs() < 0.05, "{lingering} blocks");
    assert_eq!(count(&found, "clients", "lingering"), 0);
}

/// N-73, N-74: each remedy leaves the state with the clients, and the server serves more.
#[test]
fn every_remedy_moves_the_state_to_the_clients_and_serves_more() {
    let served = Remedy::ALL.map(|remedy| {
        let found = run(COSTS, remedy);
        assert_eq!(count(&found, "clients", "failed"), 0, "{remedy:?}");
        let there = count(&found, "server", "lingering");
        let here = count(&found, "clients", "lingering");
        // Resets that are still in flight leave a few.
        let (few, many) = (u64::from(CLIENTS), 100);
        let (most, least) = if remedy == Remedy::None { (here, there) } else { (there, here) };
        assert!(most <= few && least > many, "{remedy:?}: {there} at the server, {here} not");
        count(&found, "server", "served")
    });
    let [none, closes, shift, negotiate] = served;
    assert!(none < closes && closes < shift && shift < negotiate, "{served:?}");
}
