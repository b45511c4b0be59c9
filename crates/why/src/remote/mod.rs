//! What was seen at both ends of a connection, each on its own host, as one ledger with one verdict.
//!
//! ```text
//! sender's host                              receiver's host
//! [ program ]-->[ waiting to be sent ]--( network )-->[ unread ]-->[ program ]
//! ```
//!
//! | figure | from |
//! |---|---|
//! | waiting to be sent | mean bytes written and not sent, over the rate: Little's law |
//! | network, there | mean bytes that had left and not arrived, over the rate, if the clocks are known well |
//! | network, until acknowledged | where they are not: mean bytes in flight by the sender's kernel, over the rate |
//! | unread | mean bytes that had arrived and were not read, over the rate |
//! | sent, repeated, for nothing | the sender's kernel |
//! | arrived, out of order | the receiver's kernel |
//! | verdict | [`cause::joined`]: what each side says, and what only both together show |
//!
//! A packet is a segment; the delay is that of a byte. The time of each end's thread is a path of its own.

mod network;

use super::cause::{self, Cause, Finding};
use super::{account, observed};
use lastmeter_ledger::figures;
use lastmeter_ledger::{Ledger, Path, Place, Provenance, Resource, Series, Source, Verdict};
use lastmeter_live::observe::{Observation, Observed};
use lastmeter_live::remote::{Clocks, Seen};
use lastmeter_live::transfer::{Setting, Workload};
use std::net::SocketAddr;

/// The side whose program sends most.
pub const SENDER: &str = "sender";
/// The other one.
pub const RECEIVER: &str = "receiver";
/// Resources in use for less than this share of the time have no row.
const SHOWN: f64 = 0.005;
/// The most connections that have a path of their own.
const PATHS_MAX: usize = 8;

/// One end.
#[derive(Clone, Copy)]
pub struct End<'a> {
    /// Its host's name.
    pub name: &'a str,
    /// Its processor and kernel.
    pub machine: &'a str,
    /// What was seen there.
    pub seen: &'a Seen,
}

/// Both ends of the same connections.
pub struct Both<'a> {
    /// What was run, in words.
    pub title: String,
    /// The driver's.
    pub ours: End<'a>,
    /// The agent's, by its own clock.
    pub theirs: End<'a>,
    /// How far that is from ours.
    pub clocks: &'a Clocks,
}

/// A connection as its sender and as its receiver saw it.
struct Pair<'a> {
    sender: &'a Observed,
    receiver: &'a Observed,
}

/// A setting in words, for titles; the path is not part of it.
pub fn words(setting: &Setting) -> String {
    let what = match setting.workload {
        Workload::Stream => "Stream of messages",
        Workload::RequestResponse => "Requests and responses",
        Workload::SmallMessages => "Messages, each sent at once,",
    };
    let mut words = format!("{what} of {}", setting.message);
    let buffers = [("send", setting.send_buffer), ("receive", setting.receive_buffer)];
    for (name, size) in buffers {
        words += &size.map_or(String::new(), |size| format!(", {name} buffer {size}"));
    }
    match setting.streams {
        1 => words,
        several => format!("{words}, {several} connections"),
    }
}

/// The ledger, or why there is none: the ends have no connection in common.
///
/// # Errors
/// See above, in words for the user.
pub fn ledger(both: &Both<'_>) -> Result<Ledger, String> {
    let Both { ours, theirs, clocks, .. } = both;
    let we_send = sends(&ours.seen.observation);
    let shifted = shifted(&theirs.seen.observation, clocks.offset());
    let theirs_shifted = Seen { observation: shifted, ..theirs.seen.clone() };
    let theirs = End { seen: &theirs_shifted, ..*theirs };
    let [sender, receiver] = if we_send { [*ours, theirs] } else { [theirs, *ours] };
    let pairs = pairs(&sender.seen.observation, &receiver.seen.observation);
    let Some(main) = pairs.first() else {
        return Err(format!(
            "{} saw no other end of these connections: addresses are translated on the way, they \
             lead elsewhere, or its process is in another network namespace",
            both.theirs.name
        ));
    };
    let found = Findings::of(sender.seen, receiver.seen, clocks.error());
    let network = network::of(main, &sender, &receiver, clocks);
    let sides = [(SENDER, side(&sender)), (RECEIVER, side(&receiver))];
    let mut paths = connections(&pairs, &network);
    let mut resources = Vec::new();
    let (mut series, mut notes) = (Vec::new(), found.notes(&sender, &receiver));
    notes.extend(network.notes);
    for (name, ledger) in sides {
        paths.extend(ledger.paths.into_iter().map(|path| of_side(name, path)));
        resources.extend(ledger.resources.into_iter().map(|one| resource_of_side(name, one)));
        let named = |one: Series| Series { name: format!("{name}: {}", one.name), ..one };
        series.extend(ledger.series.into_iter().map(named));
        notes.extend(ledger.notes.into_iter().map(|note| format!("At the {name}: {note}")));
    }
    let sampled = sender.seen.sampled.is_some() && receiver.seen.sampled.is_some();
    let host = format!(
        "{SENDER} {}: {}; {RECEIVER} {}: {}",
        sender.name, sender.machine, receiver.name, receiver.machine
    );
    let provenance = Provenance {
        experiment: Source { name: "why".to_owned(), hash: lastmeter_lab::digest(&both.title) },
        host: Some(host),
        ..Provenance::new(env!("CARGO_PKG_VERSION"), if sampled { "L1" } else { "L0" })
    };
    let elapsed = ours.seen.observation.elapsed;
    let mut ledger = Ledger::new(both.title.clone(), elapsed, paths, resources, provenance);
    ledger.verdict = Some(found.verdict());
    (ledger.series, ledger.counters, ledger.notes) = (series, network.counters, notes);
    Ok(ledger)
}

/// Whether this end sends on its connection with most data.
fn sends(seen: &Observation) -> bool {
    seen.connections.first().is_none_or(|one| one.sent >= one.received)
}

/// What was seen by another clock, by ours.
fn shifted(seen: &Observation, offset: f64) -> Observation {
    let mut seen = seen.clone();
    if let Some(witnesses) = &mut seen.witnesses {
        witnesses.at.0 -= offset;
    }
    for mark in seen.connections.iter_mut().flat_map(|one| &mut one.marks) {
        mark.at -= offset;
    }
    seen
}

/// An end's address without the detour over version 6 that a socket of both versions takes.
fn plain(text: &str) -> Option<SocketAddr> {
    let at: SocketAddr = text.parse().ok()?;
    Some(SocketAddr::new(at.ip().to_canonical(), at.port()))
}

/// The connections that both saw and that carried data, those with most first.
fn pairs<'a>(sender: &'a Observation, receiver: &'a Observation) -> Vec<Pair<'a>> {
    let other = |one: &Observed| {
        let ends = (plain(&one.remote)?, plain(&one.local)?);
        receiver
            .connections
            .iter()
            .find(|far| plain(&far.local).zip(plain(&far.remote)).is_some_and(|far| far == ends))
    };
    let bytes = |one: &Observed| one.sent.saturating_add(one.received);
    let most = sender.connections.iter().map(bytes).max().unwrap_or(0);
    let weighty = sender.connections.iter().filter(|one| bytes(one) > most / observed::WEIGHTY);
    weighty.filter_map(|one| Some(Pair { sender: one, receiver: other(one)? })).collect()
}

/// What each side says, and both.
struct Findings {
    sender: Finding,
    receiver: Finding,
    both: Finding,
}

impl Findings {
    fn of(sender: &Seen, receiver: &Seen, clock: f64) -> Findings {
        let (out, back) = (&sender.observation.witnesses, &receiver.observation.witnesses);
        let judged = |w: &Option<_>| w.as_ref().map_or_else(cause::unseen, cause::judge);
        let (sender, receiver) = (judged(out), judged(back));
        let both = cause::joined((out.as_ref(), &sender), (back.as_ref(), &receiver), clock);
        Findings { sender, receiver, both }
    }

    fn verdict(&self) -> Verdict {
        let named = self.both.cause.and_then(|cause| self.resource(cause));
        let next = self.both.next.and_then(|cause| self.resource(cause));
        Verdict {
            utilisation: named.as_ref().map(|_| self.both.share),
            runner_up: next.filter(|next| Some(next) != named.as_ref()),
            resource: named,
            confidence: self.both.confidence,
            words: match self.both.cause {
                // Its words do not say whose.
                Some(cause @ (Cause::SharedCpu | Cause::Throttled | Cause::Softirq)) => {
                    format!("At the {}: {}", self.side(cause), self.both.words)
                }
                _ => self.both.words.clone(),
            },
        }
    }

    /// Where a cause is.
    fn side(&self, cause: Cause) -> &'static str {
        use Cause::*;
        match cause {
            ReceiverSleeps | ReceiverDisk | ReceiverPipe | ReceiverComputes | ReceiverCpu => {
                RECEIVER
            }
            SharedCpu | Throttled | Softirq if self.sender.cause != Some(cause) => RECEIVER,
            _ => SENDER,
        }
    }

    /// The row of the resources that stands for a cause.
    fn resource(&self, cause: Cause) -> Option<String> {
        observed::resource(cause, true).map(|name| format!("{}: {name}", self.side(cause)))
    }

    /// What each side says by itself, and what may not be seen.
    fn notes(&self, sender: &End<'_>, receiver: &End<'_>) -> Vec<String> {
        let mut notes = vec![
            format!("The sender's side alone: {}", self.sender.words),
            format!("The receiver's side alone: {}", self.receiver.words),
        ];
        for (side, end) in [(SENDER, sender), (RECEIVER, receiver)] {
            let witnesses = end.seen.observation.witnesses.as_ref();
            if witnesses.is_some_and(cause::is_hidden) {
                notes.push(format!(
                    "At the {side} only the socket's counters are known: the user who looks there \
                     may not see the process that has it."
                ));
            }
            notes.extend(end.seen.busy.iter().map(|words| format!("At the {side}: {words}")));
            if let Some(why) = &end.seen.unsampled {
                notes.push(format!("At the {side} CPU time is not divided, because {why}."));
            }
        }
        notes
    }
}

/// What was seen at one end as a ledger of its own, of which only the thread's time, the resources and remarks on
/// these are kept.
fn side(end: &End<'_>) -> Ledger {
    let seen = &end.seen.observation;
    let mut ledger = observed::ledger(end.name, seen, end.machine.to_owned());
    let processes = match seen.processes {
        0 => "no process was seen".to_owned(),
        count => format!(
            "{}, {:.2} s in user mode, {:.2} s in the kernel",
            if count == 1 { "one process".to_owned() } else { format!("{count} processes") },
            seen.user,
            seen.system
        ),
    };
    let cost = 100.0 * seen.cost;
    ledger.notes = vec![format!("{} looks, taking {cost:.2} % of a CPU; {processes}.", seen.looks)];
    account::add(&mut ledger, seen, end.seen.sampled.as_ref());
    ledger.paths.retain(|path| path.name == account::PATH);
    // What plays no part at this end would hide what does.
    let knows_cpu = seen.processes > 0;
    ledger.resources.retain(|one| match one.kind.as_str() {
        "cpu" => knows_cpu,
        _ => one.utilisation() >= SHOWN,
    });
    ledger
}

fn at(side: &str) -> Place {
    Place { host: Some(side.to_owned()), ..Place::default() }
}

fn of_side(side: &str, mut path: Path) -> Path {
    path.name = format!("{side}: {}", path.name);
    for stage in &mut path.stages {
        stage.name = format!("{side}: {}", stage.name);
        stage.resource = stage.resource.take().map(|name| format!("{side}: {name}"));
        stage.place = at(side);
    }
    path
}

fn resource_of_side(side: &str, mut resource: Resource) -> Resource {
    resource.name = format!("{side}: {}", resource.name);
    resource.place = at(side);
    resource.by_stage = std::mem::take(&mut resource.by_stage)
        .into_iter()
        .map(|(stage, share)| (format!("{side}: {stage}"), share))
        .collect();
    resource
}

/// A path for each connection, those with most data first.
fn connections(pairs: &[Pair<'_>], network: &network::Network) -> Vec<Path> {
    let several = pairs.len() > 1;
    let path = |(place, pair): (usize, &Pair<'_>)| {
        let there = network.delays.filter(|_| place == 0).map(|delays| delays.there);
        network::path(pair, there, several)
    };
    pairs.iter().take(PATHS_MAX).enumerate().map(path).collect()
}

/// A time with a fitting unit and its error.
fn near(seconds: f64, error: f64) -> String {
    format!("{} ±{}", figures::time(seconds), figures::time(error))
}

#[cfg(test)]
mod tests;
