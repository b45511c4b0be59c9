//! Runs seven stations in a row and prints the ledger; with a folder, writes every form of it there.
//!
//! ```text
//! cargo run -p lastmeter-lab --example ledger -- target/ledger
//! ```

use lastmeter_base::{Bytes, Draw, Duration, FlowId, NodeId, Rate, Time};
use lastmeter_engine::{Graph, PortId, ResourceInfo, ResourceKind, StageInfo, VirtualClock};
use lastmeter_lab::close::{Close, close};
use lastmeter_ledger::{Confidence, Ledger, Provenance, Verdict};
use lastmeter_ledger::{html, json, parquet, terminal};
use lastmeter_net::queue::DropTail;
use lastmeter_net::server::{Server, Service};
use lastmeter_net::sink::Sink;
use lastmeter_net::source::{Flow, Header, Pattern, Sizes, Source, Span};
use std::path::Path;

type Failure = Box<dyn std::error::Error>;

/// What serves, what it is, and how long it takes.
const STATIONS: [(&str, &str, ResourceKind, u64); 6] = [
    ("alice.send", "alice.cpu", ResourceKind::Cpu, 3_100),
    ("alice.fetch", "alice.pci", ResourceKind::Bus, 1_600),
    ("alice.transmit", "alice.nic", ResourceKind::Engine, 1_900),
    ("bob.deposit", "bob.pci", ResourceKind::Bus, 1_600),
    ("bob.interrupt", "bob.irq", ResourceKind::Cpu, 2_400),
    ("bob.copy", "bob.cpu", ResourceKind::Cpu, 6_900),
];

fn run() -> Result<Ledger, Failure> {
    let mut graph = Graph::new(7);
    let path = graph.path("alice to bob", "bulk");
    let flow = Flow { path, flow: FlowId(0), destination: NodeId(0), header: Header::PLAIN };
    let gap = Draw::Exponential(Duration::from_ns(7_300));
    let pattern = Pattern::Gaps { gap, sizes: Sizes::Constant(Bytes(1500)) };
    let mut last = graph.add("source", Source::new(flow, pattern, Span::ALWAYS))?;
    let mut stations: Vec<_> = STATIONS
        .iter()
        .map(|&(stage, resource, kind, mean)| {
            let draw = match kind {
                ResourceKind::Cpu => Draw::Exponential(Duration::from_ns(mean)),
                _ => Draw::Constant(Duration::from_ns(mean)),
            };
            (stage, resource, kind, Service::Draw(draw))
        })
        .collect();
    let line = Service::Line { rate: Rate::from_gbit(10), framing: Bytes(38) };
    stations.insert(3, ("link.transmit", "link", ResourceKind::Wire, line));
    let none = StageInfo::new(String::new(), None);
    for (name, resource, kind, service) in stations {
        let resource = graph.resource(ResourceInfo::new(resource.to_owned(), kind));
        let copies = u32::from(kind == ResourceKind::Cpu);
        let stage = graph.stage(StageInfo {
            copies,
            touches: copies,
            memory: 1 + copies,
            ..StageInfo::new(name.to_owned(), Some(resource))
        });
        let queue = DropTail::new(64, Bytes(u64::MAX));
        let next = graph.add(name, Server::new(queue, service, stage, resource))?;
        if name == "bob.deposit" {
            let away = graph.stage(StageInfo { name: "link.propagation".into(), ..none.clone() });
            let delay = Duration::from_us(5);
            graph.connect_after(last, PortId(0), next, PortId(0), delay, Some(away))?;
        } else {
            graph.connect(last, PortId(0), next, PortId(0))?;
        }
        last = next;
    }
    let sink = graph.add("sink", Sink::default())?;
    graph.connect(last, PortId(0), sink, PortId(0))?;
    let mut engine = graph.build(1)?;
    engine.run_until(Time::START + Duration::from_ms(500), &mut VirtualClock::default())?;
    let provenance =
        Provenance { seed: Some(7), level: "model".to_owned(), ..Provenance::default() };
    let title = "1500-byte packets, Poisson, alice to bob".to_owned();
    Ok(close(&engine.finish()?, Close { title, provenance }))
}

fn main() -> Result<(), Failure> {
    let mut ledger = run()?;
    // Utilisation alone, which is why the confidence is low.
    let busiest = ledger.resources.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
    ledger.verdict = busiest.map(|one| Verdict {
        resource: Some(one.name.clone()),
        utilisation: Some(one.busy),
        confidence: Confidence::Low,
        runner_up: None,
        words: format!("{} limits: it is busy {:.1} % of the time.", one.name, one.busy * 100.0),
    });
    let style = terminal::Style { width: 100, color: false, unicode: true };
    #[expect(clippy::print_stdout, reason = "the example's result")]
    {
        print!("{}", terminal::render(&ledger, style));
    }
    let Some(folder) = std::env::args().nth(1) else { return Ok(()) };
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("ledger.html"), html::render(&ledger))?;
    std::fs::write(folder.join("ledger.json"), json::to_json(&ledger))?;
    for table in parquet::Table::ALL {
        let file = folder.join(format!("{}.parquet", table.name()));
        parquet::write(&ledger, table, std::fs::File::create(file)?)?;
    }
    Ok(())
}
