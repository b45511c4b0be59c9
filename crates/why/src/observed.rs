//! An observation of another program, as a ledger.
//!
//! The path is the connection that moved most data, as seen by this end. A resource here is
//! a possible limit, busy for the fraction of time in which it limited; these may overlap, since
//! a program can saturate its CPU while its window is closed. The verdict is [`cause::judge`]'s.

use super::cause::{self, Cause};
use super::pipeline;
use lastmeter_ledger::{
    Confidence, Count, Latency, Ledger, Path, Provenance, Resource, Source, Stage, Times, Totals,
    Verdict,
};
use lastmeter_live::observe::{Observation, Observed, Witnesses};

const CPU: &str = "CPU";
const SLEEP: &str = "the program's own sleep";
const DISK: &str = "disk";
const PIPE: &str = "pipe";
const BUFFER: &str = "send buffer";
const NETWORK: &str = "network";
const WINDOW: &str = "receiver's window";

/// A stage that waits for sockets this share of the time is limited by its connections.
const SOCKET: f64 = 0.5;
/// Seconds between two looks: a connection that was seen once is taken to have lasted that long.
pub(super) const SEEN_MIN: f64 = 0.02;
/// Connections below this fraction of the busiest one's bytes are not shown.
pub(super) const WEIGHTY: u64 = 100;

/// Makes the ledger of `command`.
pub fn ledger(command: &str, seen: &Observation, host: String) -> Ledger {
    let provenance = Provenance {
        experiment: Source { name: "why".to_owned(), hash: lastmeter_lab::digest(command) },
        host: Some(host),
        ..Provenance::new(env!("CARGO_PKG_VERSION"), "L0")
    };
    let paths = weighty(seen).map(path).collect();
    let title = format!("What limited `{command}`");
    let mut ledger = Ledger::new(title, seen.elapsed, paths, resources(seen), provenance);
    ledger.verdict = Some(of_pipeline(seen).unwrap_or_else(|| verdict(seen)));
    ledger.notes = notes(seen);
    super::datagrams::add(&mut ledger, seen);
    ledger
}

/// The connections that carried data; control connections explain nothing.
fn weighty(seen: &Observation) -> impl Iterator<Item = &Observed> {
    let bytes = |one: &Observed| one.sent + one.received;
    let most = seen.connections.iter().map(bytes).max().unwrap_or(0);
    seen.connections.iter().filter(move |one| bytes(one) > most / WEIGHTY)
}

fn verdict(seen: &Observation) -> Verdict {
    let Some(witnesses) = &seen.witnesses else {
        return Verdict {
            resource: None,
            utilisation: None,
            confidence: Confidence::Undecided,
            runner_up: None,
            words: "No TCP connection of the command was seen, so there is no verdict.".to_owned(),
        };
    };
    let finding = cause::judge(witnesses);
    let named = finding.cause.and_then(|cause| resource(cause, witnesses.sends));
    Verdict {
        resource: named.map(str::to_owned),
        utilisation: named.map(|_| finding.share),
        confidence: finding.confidence,
        runner_up: finding
            .next
            .and_then(|cause| resource(cause, witnesses.sends))
            .filter(|next| Some(*next) != named)
            .map(str::to_owned),
        words: finding.words,
    }
}

/// The verdict on a pipeline, if one of its stages holds it up; where that stage is the program with the
/// connections, what limits these is part of it.
fn of_pipeline(seen: &Observation) -> Option<Verdict> {
    let slowest = pipeline::judge(&seen.pipeline)?;
    let stage = slowest.stage.and_then(|place| seen.pipeline.get(place))?;
    let mut words = slowest.words;
    let network = verdict(seen);
    if stage.socket >= SOCKET && network.resource.is_some() {
        words = format!("{words} {}", network.words);
    }
    Some(Verdict {
        resource: Some(PIPE.to_owned()),
        utilisation: Some(slowest.share),
        confidence: slowest.confidence,
        runner_up: None,
        words,
    })
}

/// The row of the resources that stands for a cause; waiting for a reply is no resource.
pub(super) fn resource(cause: Cause, sends: bool) -> Option<&'static str> {
    match cause {
        Cause::SenderSleeps | Cause::ReceiverSleeps => Some(SLEEP),
        Cause::SenderDisk | Cause::ReceiverDisk => Some(DISK),
        Cause::SenderPipe | Cause::ReceiverPipe => Some(PIPE),
        Cause::SenderComputes
        | Cause::SenderCpu
        | Cause::ReceiverComputes
        | Cause::ReceiverCpu
        | Cause::SharedCpu
        | Cause::Throttled
        | Cause::SmallMessages
        | Cause::Softirq => Some(CPU),
        Cause::SendBuffer => Some(BUFFER),
        Cause::ReceiverSlow | Cause::ReceiveBuffer => sends.then_some(WINDOW),
        Cause::LinkRate
        | Cause::Loss
        | Cause::CongestionWindow
        | Cause::Policer
        | Cause::Reordering
        | Cause::AckPath => Some(NETWORK),
        Cause::PacingCap
        | Cause::RoundTrips
        | Cause::Nagle
        | Cause::ConnectionSetUp
        | Cause::NameLookUp
        | Cause::DatagramOverflow
        | Cause::Proxy
        | Cause::NoNetwork => None,
    }
}

/// Whether the program sends on this connection more than it receives.
fn sends(one: &Observed) -> bool {
    one.sent >= one.received
}

fn path(one: &Observed) -> Path {
    let (name, bytes) = match sends(one) {
        true => (format!("{} to {}", one.local, one.remote), one.sent),
        false => (format!("{} to {}", one.remote, one.local), one.received),
    };
    let packets = match sends(one) {
        true => u64::from(one.last.data_segments_out),
        false => u64::from(one.last.segments_in),
    };
    let delivered = Count { packets, bytes };
    let repeated = u64::from(one.last.retransmits);
    let name_of_stage = format!("round trip {}", one.local);
    let stage =
        Stage { wait: Some(Times::mean(one.rtt)), ..Stage::new(name_of_stage, None, delivered) };
    let class = match (sends(one), repeated) {
        (true, 0) => "sends".to_owned(),
        (true, repeated) => format!("sends, {repeated} segments retransmitted"),
        (false, _) => "receives".to_owned(),
    };
    // One that was seen once lasted less than the time between two looks, but nobody knows how much.
    let goodput = bytes as f64 * 8.0 / one.seen.max(SEEN_MIN);
    let latency = Some(Latency { mean: one.rtt, ..Latency::default() });
    Path::new(name, class, vec![stage], Totals { latency, ..Totals::new(delivered, goodput) })
}

fn resources(seen: &Observation) -> Vec<Resource> {
    let Some(w) = &seen.witnesses else { return Vec::new() };
    let Witnesses { sends, run, wait, .. } = *w;
    let all = [
        (SLEEP, "application", w.timer, true),
        (DISK, "application", w.disk, true),
        (PIPE, "application", w.pipe, true),
        // Only the sender's kernel counts these.
        (BUFFER, "buffer", w.send.min(w.send_full.max(w.buffer_limited)), sends),
        (NETWORK, "network", w.congestion_filled.min(w.busy), sends),
        (WINDOW, "buffer", w.window_limited, sends),
    ];
    let mut rows: Vec<Resource> = all
        .into_iter()
        .filter(|(.., known)| *known)
        .map(|(name, kind, share, _)| Resource::new(name, kind, share.clamp(0.0, 1.0), None))
        .collect();
    rows.push(Resource::new(CPU, "cpu", run, Some(wait)));
    rows
}

fn notes(seen: &Observation) -> Vec<String> {
    let mut notes = vec![
        "Each resource's use is the fraction of time in which it may have limited the connections \
         to the host with most data; fractions may overlap."
            .to_owned(),
        format!(
            "Observed from outside in {} samples, taking {:.2} % of a CPU; {} processes, {:.2} s \
             in user mode, {:.2} s in the kernel.",
            seen.looks,
            seen.cost * 100.0,
            seen.processes,
            seen.user,
            seen.system
        ),
    ];
    if !seen.connections.is_empty() {
        let words = "Packets are TCP segments; latency is the smoothed round-trip time.";
        notes.push(words.to_owned());
    }
    let hidden = seen.connections.len() - weighty(seen).count();
    if hidden > 0 {
        notes.push(format!("{hidden} connections that moved hardly any data are left out."));
    }
    if let Some(w) = &seen.witnesses {
        let words = "of the time of the thread that moves the data is not attributed";
        notes.push(format!("{:.0} % {words}.", w.not_attributed * 100.0));
    }
    if seen.connections.first().is_some_and(|one| !sends(one)) {
        let words = "The program receives: what limits the other end only the other end's kernel \
                     can tell.";
        notes.push(words.to_owned());
    }
    notes
}
