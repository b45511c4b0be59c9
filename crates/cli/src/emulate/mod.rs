//! Live runs: the same graph between real interfaces, with a certificate that it kept up.
//!
//! ```text
//! experiment --> hosts with `live = true` --> namespaces or attached interfaces
//!           '--> graph, with a port in place of each of them --> ledger with certificate
//! ```
//!
//! Everything else of the experiment is as in a model, traffic between other hosts included.

mod certificate;
pub mod kernel;
mod search;
mod twin;

pub use certificate::Demand;
pub(crate) use certificate::certificate;
pub use search::{Search, Trial, search, trial};
pub use twin::Twin;

use lastmeter_base::Time;
use lastmeter_engine::{Control, Element};
use lastmeter_lab::build::{Changes, LiveEnd, Peer, build_between};
use lastmeter_lab::close::close;
use lastmeter_lab::document::{Fault, Problem};
use lastmeter_lab::experiment::{Experiment, LiveHost};
use lastmeter_lab::explain::{Decides, once};
use lastmeter_lab::library::Library;
use lastmeter_lab::run::{Failure, closing};
use lastmeter_ledger::{Confidence, Ledger, Verdict};
use lastmeter_linux::clock::WaitOptions;
use lastmeter_linux::port::Classes;
use lastmeter_live::flood::Flood;
use lastmeter_live::session::{End, Measured, Program, Session};
use lastmeter_live::site::{HostOptions, Kind};
use std::sync::Arc;

fn refused(error: lastmeter_linux::Error) -> Failure {
    Failure::Live(Box::new(error))
}

/// Options of a live run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The kind of port of created hosts.
    pub kind: Kind,
    /// Hosts attached to existing interfaces: host and interface.
    pub attached: Vec<(String, String)>,
    /// How the clock waits.
    pub manner: WaitOptions,
    /// The requirement of the certificate.
    pub demand: Demand,
    /// Programs: the host (`None` is the first), the words, and whether the run ends with it.
    pub programs: Vec<Started>,
    /// Whether the run is repeated in virtual time and compared.
    pub twin: bool,
    /// Frames generated for the run, from the first host.
    pub flood: Option<Flood>,
}

/// A program that a run starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The host in which it runs; `None` is the first.
    pub host: Option<String>,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Whether the run ends when it does.
    pub leads: bool,
    /// Whether its output is discarded.
    pub silent: bool,
}

/// The result of a live run.
#[derive(Clone, Debug)]
pub struct Report {
    /// With its certificate.
    pub ledger: Ledger,
    /// The comparison with virtual time, if requested.
    pub twin: Option<Twin>,
    /// The leading program's exit status, 128 and the signal's number if a signal ended it, if there was one
    /// and it ended before the run.
    pub status: Option<i32>,
    /// What was measured at the ports.
    pub measured: Measured,
}

/// Runs `experiment` live until its leading program ends, or for the experiment's duration where
/// there is none, or until `control` says so.
///
/// # Errors
/// What is wrong with the experiment or the options, or what the machine refuses.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    library: &dyn Library,
    control: &Arc<Control>,
) -> Result<Report, Failure> {
    let hosts = experiment.live_hosts();
    if hosts.len() < 2 {
        let right = "write live = true for two or more: alice = { host = { live = true } }";
        let found = match hosts.len() {
            0 => "no host is live, and a live run needs two",
            _ => "only one host is live, and a live run needs two",
        };
        return Err(Failure::Problems(experiment.problem_of_nodes(Fault::new(found, right))));
    }
    let session = lastmeter_live::session::Options {
        ends: ends(&hosts, &options.attached)?,
        kind: options.kind,
        wait: options.manner,
        programs: programs(&hosts, &options.programs)?,
        keep: options.twin,
        flood: options.flood.clone().map(|flood| (0, flood)),
    };
    let led = session.programs.iter().any(|program| program.leads);
    let mut session = Session::open(session).map_err(refused)?;
    let mut ends = |LiveEnd { index, node, peers }: LiveEnd| -> Box<dyn Element> {
        let peers = peers.into_iter();
        let peers = peers.map(|Peer { node, path }| lastmeter_linux::port::Peer { node, path });
        let classes = Classes::new(&hosts[index].codes);
        Box::new(session.element(index, node, peers.collect(), classes))
    };
    let built = build_between(experiment, &Changes::NONE, library, Some(&mut ends));
    let mut built = built.map_err(Failure::Problems)?;
    let captures = built.captures();
    let end = if led { Time::MAX } else { built.end };
    let mut engine = built.graph.build(1).map_err(Failure::Engine)?;
    let mut clock = session.start(Arc::clone(control)).map_err(refused)?;
    clock.run(&mut engine, end).map_err(Failure::Engine)?;
    let outcome = engine.finish().map_err(Failure::Engine)?;
    let measured = session.finish(&clock);
    match captures.problems() {
        problems if problems.is_empty() => {}
        problems => return Err(Failure::Problems(problems)),
    }
    let mut ledger = close(&outcome, closing(experiment));
    // Real programs replaced the file's traffic.
    ledger.paths.retain(|path| path.class == "live" || path.totals.offered_packets() > 0);
    ledger.certificate = Some(certificate::certificate(&measured, options.demand));
    ledger.provenance.level = "L0".to_owned();
    ledger.provenance.host = Some(machine());
    ledger.provenance.seed = None;
    // A run ended by its program is complete.
    ledger.provenance.partial = outcome.stopped && !(measured.led && measured.status.is_some());
    ledger.verdict = once(&ledger, Decides::Live);
    if let Some(words) = certificate::broken(&measured) {
        let before = ledger.verdict.take();
        let runner_up = before.as_ref().and_then(|verdict| verdict.runner_up.clone());
        let more = before.map_or_else(String::new, |verdict| format!(" {}", verdict.words));
        ledger.verdict = Some(Verdict {
            resource: None,
            utilisation: None,
            confidence: Confidence::Undecided,
            runner_up,
            words: words + &more,
        });
    }
    ledger.notes = notes(&measured);
    if options.manner.slower > 1 {
        ledger.notes.push(format!(
            "Time was stretched: a second of the experiment lasted {}, so CPUs appear as much \
             faster. All times and rates here are the experiment's; what programs print is by \
             real time.",
            options.manner.slower
        ));
    }
    let replay = || twin::replay(experiment, &measured, outcome.now);
    let twin = options.twin.then(replay).transpose()?;
    ledger.notes.extend(twin.iter().map(Twin::words));
    Ok(Report { ledger, twin, status: measured.status, measured })
}

/// An option that names a host which is not live.
fn unknown(option: &str, name: &str, hosts: &[LiveHost]) -> Failure {
    let known: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    Failure::Problems(vec![Problem {
        file: option.to_owned(),
        line: 1,
        column: 1,
        key: name.to_owned(),
        found: "this is not a live host".to_owned(),
        right: format!("the live hosts are {}", known.join(", ")),
        suggestion: None,
        excerpt: name.to_owned(),
        highlight: 0..name.len(),
    }])
}

fn ends(hosts: &[LiveHost], attached: &[(String, String)]) -> Result<Vec<End>, Failure> {
    let is_host = |name: &String| hosts.iter().any(|host| host.name == *name);
    if let Some((name, _)) = attached.iter().find(|(name, _)| !is_host(name)) {
        return Err(unknown("--attach", name, hosts));
    }
    let end = |host: &LiveHost| {
        let LiveHost { name, address, prefix, .. } = host.clone();
        match attached.iter().find(|(attached, _)| *attached == name) {
            Some((_, interface)) => End::Attached { name, interface: interface.clone() },
            None => End::Made(HostOptions { name, address, prefix }),
        }
    };
    Ok(hosts.iter().map(end).collect())
}

fn programs(hosts: &[LiveHost], started: &[Started]) -> Result<Vec<Program>, Failure> {
    let mut programs = Vec::new();
    for Started { host, words, leads, silent } in started {
        let place = match host {
            None => Some(0),
            Some(name) => hosts.iter().position(|host| host.name == *name),
        };
        let Some(host) = place else {
            return Err(unknown("--in", host.as_deref().unwrap_or_default(), hosts));
        };
        programs.push(Program { host, words: words.clone(), leads: *leads, silent: *silent });
    }
    Ok(programs)
}

/// The machine's name in ledgers.
pub(crate) fn machine() -> String {
    let cores = lastmeter_linux::cores::allowed().map_or(0, |cores| cores.len());
    format!("this machine, {cores} cores")
}

/// Notes on the figures.
fn notes(measured: &Measured) -> Vec<String> {
    let mut notes = vec![
        "A packet is an Ethernet frame: lengths and rates count its header, not its preamble, \
         check sequence and gap, unless the link's `framing` does."
            .to_owned(),
    ];
    if measured.steered {
        notes.push(
            "Packets received by hosts are processed on the other cores (receive packet steering)."
                .to_owned(),
        );
    }
    for line in &measured.lines {
        let counts = line.counts.each();
        let told: Vec<String> = counts
            .iter()
            .filter(|&&(_, count)| count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        let gone = if line.gone { "; it was gone at the end" } else { "" };
        let told = if told.is_empty() { "nothing".to_owned() } else { told.join(", ") };
        notes.push(format!("Port of {}: {told}{gone}.", line.name));
    }
    let deadlines = &measured.deadlines;
    if deadlines.count() > 0 {
        notes.push(format!(
            "{} deadlines were noticed with median lateness {}, p99 {}, worst {}.",
            deadlines.count(),
            deadlines.percentile(0.5),
            deadlines.percentile(0.99),
            deadlines.max(),
        ));
    }
    notes
}
