//! An observation of another program, as a ledger.
//!
//! The path is the connection that moved most data, as seen by this end. A resource here is
//! a possible limit, busy for the fraction of time in which it limited; these may overlap, since
//! a program can saturate its CPU while its window is closed.

use super::judgement;
use lastmeter_ledger::{
    Confidence, Count, Latency, Ledger, Path, Provenance, Resource, Source, Stage, Times, Totals,
    Verdict,
};
use lastmeter_live::limit::Limit;
use lastmeter_live::observe::{Observation, Observed};

const CPU: &str = "CPU";
const SENDER: &str = "sending application";
const RECEIVER: &str = "receiving application";
const BUFFER: &str = "send buffer";
const NETWORK: &str = "network";
const WINDOW: &str = "receiver's window";

/// Connections below this fraction of the busiest one's bytes are not shown.
const WEIGHTY: u64 = 100;

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
    ledger.verdict = Some(verdict(seen));
    ledger.notes = notes(seen);
    ledger
}

/// The connections that carried data; control connections explain nothing.
fn weighty(seen: &Observation) -> impl Iterator<Item = &Observed> {
    let bytes = |one: &Observed| one.sent + one.received;
    let most = seen.connections.iter().map(bytes).max().unwrap_or(0);
    seen.connections.iter().filter(move |one| bytes(one) > most / WEIGHTY)
}

fn verdict(seen: &Observation) -> Verdict {
    let Some(limited) = &seen.limited else {
        return Verdict {
            resource: None,
            utilisation: None,
            confidence: Confidence::Undecided,
            runner_up: None,
            words: "No TCP connection of the command was seen, so there is no verdict.".to_owned(),
        };
    };
    judgement::judged(limited, |limit| match limit {
        Limit::SenderApplication => Some(SENDER),
        Limit::ReceiverApplication => Some(RECEIVER),
        Limit::SendBuffer => Some(BUFFER),
        Limit::Network(_) => Some(NETWORK),
        Limit::ReceiverWindow => Some(WINDOW),
        Limit::SenderCpu | Limit::ReceiverCpu | Limit::SharedCpu => Some(CPU),
        _ => None,
    })
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
    let goodput = bytes as f64 * 8.0 / one.seen.max(f64::MIN_POSITIVE);
    let latency = Some(Latency { mean: one.rtt, ..Latency::default() });
    Path::new(name, class, vec![stage], Totals { latency, ..Totals::new(delivered, goodput) })
}

fn resources(seen: &Observation) -> Vec<Resource> {
    let f = &seen.fractions;
    let all = [
        (SENDER, "application", f.sender_application),
        (BUFFER, "buffer", f.send_buffer),
        (NETWORK, "network", f.network),
        (WINDOW, "buffer", f.receiver_window),
        (RECEIVER, "application", f.receiver_application),
    ];
    let known = seen.connections.first();
    let hidden = |name: &str| known.is_some_and(|one| !sends(one)) && name != RECEIVER;
    // Only the sender's kernel counts these.
    let mut rows: Vec<Resource> = all
        .into_iter()
        .filter(|(name, ..)| known.is_some() && !hidden(name))
        .map(|(name, kind, share)| Resource::new(name, kind, share.clamp(0.0, 1.0), None))
        .collect();
    let run = seen.run.clamp(0.0, 1.0);
    rows.push(Resource::new(CPU, "cpu", run, Some(seen.wait.clamp(0.0, 1.0 - run))));
    rows
}

fn notes(seen: &Observation) -> Vec<String> {
    let mut notes = vec![
        "Each resource's use is the fraction of time in which it limited the connection that moved \
         most data; fractions may overlap."
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
        "Packets are TCP segments; latency is the smoothed round-trip time.".to_owned(),
    ];
    let hidden = seen.connections.len() - weighty(seen).count();
    if hidden > 0 {
        notes.push(format!("{hidden} connections that moved hardly any data are left out."));
    }
    if seen.connections.first().is_some_and(|one| !sends(one)) {
        let words = "The program receives: what limits the other end only the other end's kernel \
                     can tell.";
        notes.push(words.to_owned());
    }
    notes
}
