//! A busy server and its closed connections (N-72 to N-75, Fig 10).

use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::sweep::run;
use lastmeter_base::{Bytes, Duration, NodeId, Time};
use lastmeter_engine::{
    ElementReport, Graph, Outcome, PortId, ResourceInfo, ResourceKind, Serial, StageInfo,
};
use lastmeter_transport::tcp::time_wait::Remedy;
use lastmeter_transport::tcp::{Config, Costs, Exchange, Labels, WebClients, WebServer};

const NAME: &str = "time-wait";
const DELAY: Duration = Duration::from_us(50);

/// A server, its clients, and the length of a run.
#[derive(Clone, Copy)]
struct Case {
    costs: Costs,
    remedy: Remedy,
    linger: Duration,
    clients: u64,
    response: Bytes,
    /// Warm-up, and the measured interval.
    spans: (Duration, Duration),
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    /// Connections per second.
    rate: f64,
    /// Control blocks in `TIME_WAIT` at the server and at the clients.
    server: u64,
    clients: u64,
    failed: u64,
}

fn run(case: &Case) -> Result<Found, Error> {
    let failed = |message: String| Error::Computation { name: NAME, message };
    let outcome = build(case).map_err(|error| failed(error.to_string()))?;
    let count = |element: &str, name: &str| -> Result<u64, Error> {
        let is = |report: &&ElementReport| report.name == element;
        let report = outcome.elements.iter().find(is);
        let counters = report.map_or(&[][..], |report| &report.counters);
        let found = counters.iter().find(|(counter, _)| *counter == name);
        Ok(found.ok_or_else(|| failed(format!("`{element}` does not count `{name}`")))?.1)
    };
    Ok(Found {
        rate: count("server", "served")? as f64 / case.spans.1.as_secs_f64(),
        server: count("server", "lingering")?,
        clients: count("clients", "lingering")?,
        failed: count("clients", "failed")?,
    })
}

fn build(case: &Case) -> Result<Outcome, lastmeter_engine::Error> {
    let mut graph = Graph::new(case.seed);
    let (there, back) = (graph.path("requests", "web"), graph.path("responses", "web"));
    let cpu = ResourceInfo::new("cpu", ResourceKind::Cpu);
    let cpu = graph.resource(cpu);
    let mut stage = |name: &str, resource| graph.stage(StageInfo::new(name.to_owned(), resource));
    let handling = stage("handling", Some(cpu));
    let ways = [stage("there", None), stage("back", None)];
    let exchange = Exchange {
        request: Bytes(300),
        message: Bytes(20),
        response: case.response,
        remedy: case.remedy,
    };
    let config = Config {
        linger: case.linger,
        timeout_min: Duration::from_secs(1),
        sack: false,
        timestamps: false,
        ..Config::modern()
    };
    let labels = |path| Labels { path, class: 0, class_acknowledging: 0 };
    let since = Time::START + case.spans.0;
    let server = WebServer::new(
        (labels(back), NodeId(1)),
        config.clone(),
        (case.costs, exchange),
        (handling, cpu),
        since,
    );
    let server = graph.add("server", server)?;
    let clients =
        WebClients::new((labels(there), NodeId(0)), config, exchange, case.clients as u32);
    let clients = graph.add("clients", clients)?;
    let port = PortId(0);
    graph.connect_after(clients, port, server, port, DELAY, Some(ways[0]))?;
    graph.connect_after(server, port, clients, port, DELAY, Some(ways[1]))?;
    let mut engine = graph.build(1)?;
    engine.run_parallel(since + case.spans.1, &Default::default(), &Serial)?;
    engine.finish()
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let linger: Duration = constants.get("linger")?;
    let costs = Costs {
        segment: constants.get("segment")?,
        request: constants.get("request")?,
        message: constants.get("message")?,
        scan: constants.get("scan")?,
    };
    let (slow, fast): (u64, u64) = (constants.get("clock_sparc")?, constants.get("clock_alpha")?);
    let case = Case {
        costs,
        remedy: Remedy::None,
        linger,
        clients: constants.get("clients")?,
        response: constants.get("response")?,
        spans: (linger * 3, linger),
        seed: setting.seed,
    };
    let scaled = |cost: Duration| cost * slow / fast;
    let alpha = Costs {
        segment: scaled(costs.segment),
        request: scaled(costs.request),
        message: scaled(costs.message),
        // Walking a list waits for memory, which a faster clock does not speed up.
        scan: costs.scan,
    };
    let mut cases: Vec<Case> = Remedy::ALL.map(|remedy| Case { remedy, ..case }).to_vec();
    cases.push(Case { costs: Costs { scan: Duration::ZERO, ..costs }, ..case });
    cases.push(Case { costs: alpha, ..case });
    let found = run::all(&cases, setting.means, run)?;
    let [none, closes, shift, negotiate, free, alpha] = found[..] else {
        unreachable!("a result for each case")
    };
    let percent =
        |id, item: &str, value: f64| Computed::new(id, item, Value::Number(100.0 * value, "%"));
    let few = case.clients;
    let settled = none.rate * linger.as_secs_f64();
    let near = (none.server as f64 / settled - 1.0).abs() < 0.05;
    let mut rows = vec![
        row("N-72/state-accumulates", near && none.clients == 0),
        row("N-72/fewer-connections", none.rate < free.rate),
        percent("N-72", "connections lost to the state", 1.0 - none.rate / free.rate),
        row("N-73/tcp-shift", shift.rate > closes.rate),
        row("N-73/tcp-negotiation", negotiate.rate > closes.rate),
        row("N-73/http-modification", closes.rate > none.rate),
        percent("N-73", "HTTP modification: more connections", closes.rate / none.rate - 1.0),
    ];
    for (item, found) in [
        ("HTTP modification: server state reduced", closes),
        ("TCP shift: server state reduced", shift),
        ("TCP negotiation: server state reduced", negotiate),
    ] {
        // A reset for each client's last connection may still be in flight.
        let reduced = found.server <= few && found.clients > few;
        rows.push(Computed::new("N-73", item, reduced));
    }
    for (item, found) in [("Apache's patch", closes), ("SunOS TCP's shift patch", shift)] {
        let item = format!("{item}: connections that fail");
        let value = Value::Number(found.failed as f64, "connections");
        rows.push(Computed::new("N-74", item, value));
    }
    rows.push(row("N-75", shift.rate >= alpha.rate));
    rows.retain(|row| setting.wants(&row.id));
    Ok(rows)
}
