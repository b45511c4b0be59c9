//! The ledger of a receiving host: the work of its CPU, the bottleneck, and the gain of other reception policies.

use super::{Setup, Way};
use lastmeter_base::{Draw, Duration, FlowId, NodeId, Time};
use lastmeter_engine::{
    Error, Graph, Place, PortId, ResourceInfo, ResourceKind, StageInfo, VirtualClock,
};
use lastmeter_host::element::Host;
use lastmeter_host::receive::{Named, Stages};
use lastmeter_lab::close::{Close, close};
use lastmeter_lab::livelock::{livelock, shares_of};
use lastmeter_ledger::{Confidence, Ledger, Provenance, Resource, Verdict, WhatIf};
use lastmeter_net::sink::Sink;
use lastmeter_net::source::{Flow, Header, Pattern, Sizes, Source, Span};

/// The host's name in the ledger, and its CPU's.
const HOST: &str = "host";
const CPU: &str = "host.cpu";
/// Below this utilisation a CPU has capacity left.
const FULL: f64 = 0.99;

/// A ledger and its key numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// With verdict, and a what-if for each other policy.
    pub ledger: Ledger,
    /// CPU utilisation by reception: interrupts, polls and protocol.
    pub reception: f64,
    /// CPU utilisation by the application.
    pub application: f64,
}

/// Runs `way` at `rate` packets per second for `length`, and each of `others` for comparison.
///
/// # Errors
/// The books do not balance: a fault of the model.
pub fn explain(
    setup: &Setup,
    (way, others): (&Way, &[Way]),
    unit: Duration,
    rate: f64,
    length: Duration,
) -> Result<Explained, Error> {
    let mut ledger = run(setup, way, unit, rate, length)?;
    let (reception, application) = shares(&ledger);
    ledger.verdict = Some(verdict(&ledger, way, reception, application));
    let baseline = ledger.goodput();
    for other in others.iter().filter(|other| other.name != way.name) {
        let predicted = run(setup, other, unit, rate, length)?.goodput();
        ledger.what_ifs.push(WhatIf {
            change: format!("{} instead", other.name),
            metric: "goodput".to_owned(),
            baseline,
            predicted: Some(predicted),
            measured: None,
            error: None,
            gain: if baseline > 0.0 { predicted / baseline - 1.0 } else { predicted },
            share: None,
        });
    }
    ledger.what_ifs.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    Ok(Explained { ledger, reception, application })
}

/// One run in the engine, so that its books are balanced like those of any other run.
fn run(
    setup: &Setup,
    way: &Way,
    unit: Duration,
    rate: f64,
    length: Duration,
) -> Result<Ledger, Error> {
    let mut graph = Graph::new(1);
    let place = |role| Place { host: Some(HOST.to_owned()), role: Some(role), ..Place::default() };
    let cpu = ResourceInfo::new(CPU, ResourceKind::Cpu);
    let cpu = graph.resource(ResourceInfo { place: place("cpu"), ..cpu });
    let stages = Stages::NAMES.map(|Named { name, role, on_cpu }| {
        let info = StageInfo::new(format!("{HOST} {name}"), on_cpu.then_some(cpu));
        graph.stage(StageInfo { place: place(role), ..info })
    });
    let path = graph.path("network to application", "packets");
    let header = Header::PLAIN;
    let flow = Flow { path, flow: FlowId(0), destination: NodeId(0), header };
    let gap = Draw::Constant(super::gap(rate));
    let pattern = Pattern::Gaps { gap, sizes: Sizes::Constant(setup.len) };
    let span = Span::ALWAYS;
    let source = graph.add("source", Source::new(flow, pattern, span))?;
    let host = setup.named(cpu, stages, vec![(way.interface)(setup, unit)]);
    let host = graph.add("host", Host::new(host))?;
    let sink = graph.add("sink", Sink::default())?;
    graph.connect(source, PortId(0), host, PortId(0))?;
    graph.connect(host, PortId(0), sink, PortId(0))?;
    let mut engine = graph.build(1)?;
    engine.run_until(Time::START + length, &mut VirtualClock::default())?;
    let title = format!("{} at {rate:.0} packets/s", way.name);
    let provenance = Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: Some(1),
        level: "model".to_owned(),
        ..Provenance::default()
    };
    Ok(close(&engine.finish()?, Close { title, provenance }))
}

/// CPU utilisation by reception and by the application.
fn shares(ledger: &Ledger) -> (f64, f64) {
    ledger.resources.iter().find(|r| r.name == CPU).map_or((0.0, 0.0), shares_of)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn verdict(ledger: &Ledger, way: &Way, reception: f64, application: f64) -> Verdict {
    if let Some(verdict) = livelock(ledger) {
        let words = verdict.words.replace(CPU, &format!("with {}, {CPU}", way.name));
        return Verdict { words, ..verdict };
    }
    let used = ledger.resources.first().map_or(0.0, Resource::utilisation);
    let (resource, words) = match used >= FULL {
        false => (None, format!("Nothing limits: the CPU is in use for {}.", percent(used))),
        true => (
            Some(CPU.to_owned()),
            format!(
                "{CPU} limits: {} for reception and {} for the application.",
                percent(reception),
                percent(application)
            ),
        ),
    };
    let confidence = Confidence::High;
    Verdict { resource, utilisation: Some(used), confidence, runner_up: None, words }
}
