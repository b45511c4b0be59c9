//! A transfer of our own, and its stages, as a ledger.
//!
//! The unit that travels is the application's message: a packet of this ledger is one message.
//!
//! | figure            | from                                                                   |
//! |-------------------|------------------------------------------------------------------------|
//! | service           | each stage's CPU time per message: sampled (L1), or by leaving it out  |
//! | wait at a core    | time that the end was runnable and something else ran                  |
//! | wait in sockets   | bytes not sent and in flight (`TCP_INFO`) over goodput: Little's law   |
//! | blocked           | time asleep in `send`                                                  |
//! | latency, stream   | CPU time of both ends in the whole run, plus these waits               |
//! | latency, requests | from request to answer, by the sender's clock                          |
//! | not attributed    | latency less the stages, and samples that no rule knows                |
//! | residual          | negative where stages overlap, which a round trip does not see         |
//!
//! A receiver that waits for data delays no message, so that time is its core's idle time, not a
//! stage. What cannot be known at this level (percentiles inside the kernel, bytes over memory) is absent.

use super::{interrupts, judgement, waits};
use lastmeter_ledger::figures;
use lastmeter_ledger::{
    Confidence, Count, Latency, Ledger, Path, Place, Provenance, Resource, Source, Stage, Times,
    Totals, WhatIf,
};
use lastmeter_live::namespace::Isolation;
use lastmeter_live::sample::stages::{NOT_ATTRIBUTED, of_core};
use lastmeter_live::stages::{self, Stages};
use lastmeter_live::transfer::{Measurement, Placement, Side, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// The sender's processor.
pub const SENDER_CORE: &str = "sender.core";
/// The receiver's processor.
pub const RECEIVER_CORE: &str = "receiver.core";
/// The processor that both share.
pub const SHARED_CORE: &str = "shared.core";
/// The stage between the ends' cores.
pub const SOCKETS: &str = "queued in sockets";
/// The stage of a sender that computes or sleeps, or of a receiver that does.
pub const SENDER_OWN: &str = "sender's own work";
/// See [`SENDER_OWN`].
pub const RECEIVER_OWN: &str = "receiver's own work";
/// The time of a round trip in which neither end runs.
pub const ASLEEP: &str = "both ends asleep";
/// The one path.
pub(super) const PATH: &str = "sender to receiver";
/// The share of the mean that may be not attributed to a stage in a ledger of high confidence.
const UNATTRIBUTED_MAX: f64 = 0.1;
/// Kernel work for either end, done in either's time.
const EITHER: &str = "kernel, either end";

/// Everything that the ledger of one transfer is made from.
pub struct Account<'a> {
    /// The transfer.
    pub measured: &'a Measurement,
    /// Its stages.
    pub stages: &'a Stages,
    /// Best first.
    pub what_ifs: Vec<WhatIf>,
    /// The machine, in words.
    pub host: String,
    /// The calibration that the what-ifs rest on, if there are any.
    pub profile: Option<Source>,
}

/// Makes the ledger.
pub fn ledger(account: Account<'_>) -> Ledger {
    let m = account.measured;
    let setting = serde_json::to_string(&m.setting).unwrap_or_default();
    let level = if account.stages.sampled { "L1" } else { "L0" };
    let provenance = Provenance {
        experiment: Source { name: "why".to_owned(), hash: lastmeter_lab::digest(setting) },
        profiles: account.profile.into_iter().collect(),
        host: Some(account.host),
        ..Provenance::new(env!("CARGO_PKG_VERSION"), level)
    };
    let title = format!("Why is it not faster? A {}", super::words_of(&m.setting));
    let paths = vec![path(m, account.stages)];
    let resources = resources(m, account.stages);
    let mut ledger = Ledger::new(title, m.elapsed, paths, resources, provenance);
    ledger.balance.packets_residual = lost(m);
    ledger.what_ifs = account.what_ifs;
    ledger.notes = notes(m, account.stages);
    ledger.notes.extend(interrupts::note(m));
    waits::add(&mut ledger, m.sampled.as_ref());
    let mut verdict = judgement::of(m);
    let unknown = unattributed(&ledger);
    if unknown > UNATTRIBUTED_MAX {
        if verdict.confidence == Confidence::High {
            verdict.confidence = Confidence::Medium;
        }
        ledger.notes.push(format!(
            "{:.0} % of the mean is not attributed to a stage, so no confidence is high.",
            unknown * 100.0
        ));
    }
    ledger.verdict = Some(verdict);
    ledger
}

/// The verdict of a short look, before anything is known of the stages.
pub fn first_look(m: &Measurement, host: String, after: f64) -> Ledger {
    let level = if m.sampled.is_some() { "L1" } else { "L0" };
    let provenance = Provenance {
        experiment: Source { name: "why".to_owned(), hash: String::new() },
        host: Some(host),
        partial: true,
        ..Provenance::new(env!("CARGO_PKG_VERSION"), level)
    };
    let title = format!("A first look at a {}", super::words_of(&m.setting));
    let mut ledger = Ledger::new(title, m.elapsed, Vec::new(), Vec::new(), provenance);
    ledger.verdict = Some(judgement::of(m));
    ledger.notes = vec![format!("The first look, after {after:.1} s; refined by what follows.")];
    ledger
}

/// [`first_look`] as a few lines.
pub fn first_words(ledger: &Ledger, m: &Measurement) -> String {
    let Some(verdict) = &ledger.verdict else { return String::new() };
    let note = ledger.notes.first().map_or("", String::as_str);
    let rate = figures::rate(m.goodput.windows.median);
    let sure = format!("{:?}", verdict.confidence).to_lowercase();
    format!("FIRST LOOK  {rate}. {} Confidence {sure}.\n  {note}\n", verdict.words)
}

/// The share of a message's time that is not attributed to a stage.
fn unattributed(ledger: &Ledger) -> f64 {
    let all = ledger.paths.iter().flat_map(|path| &path.stages);
    let unknown: f64 = all.filter(|s| s.name == NOT_ATTRIBUTED).map(Stage::wait_mean).sum();
    let mean = ledger.paths.first().and_then(|path| path.totals.latency).map_or(0.0, |l| l.mean);
    unknown / mean.max(f64::MIN_POSITIVE)
}

/// Difference between the two ends' counts of messages, over the whole run.
fn lost(m: &Measurement) -> i64 {
    let total = |side: &Side| -> u64 {
        side.threads.iter().map(|t| t.samples.last().map_or(0, |s| s.messages)).sum()
    };
    total(&m.sender) as i64 - total(&m.receiver) as i64
}

/// Seconds between two messages of one stream.
fn period(m: &Measurement) -> f64 {
    f64::from(m.setting.streams) / m.message_rate.max(f64::MIN_POSITIVE)
}

/// CPU seconds of an end per message in the whole run.
pub fn run_per_message(m: &Measurement, side: &Side) -> f64 {
    side.run_per_byte.median * m.setting.message.0 as f64
}

fn is_round_trip(m: &Measurement) -> bool {
    m.setting.workload == Workload::RequestResponse
}

/// Seconds that bytes spend in the sender's socket, sent or not, by Little's law.
fn in_sockets(m: &Measurement) -> f64 {
    match is_round_trip(m) {
        true => 0.0, // No queueing.
        false => held(m) / (m.goodput.mean / 8.0).max(f64::MIN_POSITIVE),
    }
}

/// Bytes not sent or in flight, mean.
fn held(m: &Measurement) -> f64 {
    if is_round_trip(m) {
        return 0.0; // At most one message is in flight.
    }
    let tcp = &m.sender.tcp;
    tcp.not_sent + tcp.unacked * f64::from(tcp.segment)
}

fn path(m: &Measurement, found: &Stages) -> Path {
    let messages = (m.message_rate * m.elapsed).round() as u64;
    let bytes = messages * m.setting.message.0;
    let period = period(m);
    let (s, r) = (&m.sender.activity, &m.receiver.activity);
    let mut stages: Vec<Stage> = found.stages.iter().map(|s| stage(m, s, messages)).collect();
    let (sender_core, receiver_core) = cores(m.setting.placement);
    let passed = Count { packets: messages, bytes };
    let own = |name: &str, core: &str, share: f64| Stage {
        place: end(core),
        service: mean(share * period),
        ..Stage::new(name, Some(core), passed)
    };
    if m.sender.application > 0.0 {
        stages.insert(0, own(SENDER_OWN, sender_core, m.sender.application));
    }
    if m.receiver.application > 0.0 {
        stages.push(own(RECEIVER_OWN, receiver_core, m.receiver.application));
    }
    if let Some(first) = stages.first_mut() {
        first.wait = mean(s.wait * period);
        // Between request and answer the sender is blocked because the others work.
        first.blocked = mean(if is_round_trip(m) { 0.0 } else { s.blocked * period });
    }
    if let Some(last) = stages.last_mut() {
        last.wait = mean(last.wait.map_or(0.0, |wait| wait.mean) + r.wait * period);
    }
    let place = stages.iter().position(|s| s.resource.as_deref() == Some(receiver_core));
    let between = match is_round_trip(m) {
        true => {
            let asleep = (1.0 - s.run - s.wait - r.run - r.wait - s.paused - r.paused).max(0.0);
            Stage { wait: mean(asleep * period), ..Stage::new(ASLEEP, None, passed) }
        }
        false => Stage { wait: mean(in_sockets(m)), ..Stage::new(SOCKETS, None, passed) },
    };
    let place = match m.setting.placement {
        Placement::SameCore => stages.len().saturating_sub(1),
        _ => place.unwrap_or(stages.len()),
    };
    stages.insert(place, between);
    let totals = totals(m, found, messages, bytes);
    let known: f64 =
        stages.iter().map(|s| s.wait_mean() + s.service_mean() + s.blocked_mean()).sum();
    let left = totals.latency.map_or(0.0, |latency| latency.mean) - known;
    if left > 0.0 {
        let place = stages.iter().position(|stage| stage.name == NOT_ATTRIBUTED);
        let place = place.unwrap_or_else(|| {
            stages.push(Stage::new(NOT_ATTRIBUTED, None, passed));
            stages.len() - 1
        });
        stages[place].wait = mean(stages[place].wait_mean() + left);
    }
    let class = format!("messages of {}", m.setting.message);
    Path::new(PATH, class, stages, totals)
}

fn mean(seconds: f64) -> Option<Times> {
    Some(Times::mean(seconds.max(0.0)))
}

/// Which end a core belongs to.
pub(super) fn end(core: &str) -> Place {
    let host = match core {
        SENDER_CORE => Some("sender"),
        RECEIVER_CORE => Some("receiver"),
        SHARED_CORE => Some("shared"),
        _ => None,
    };
    Place { host: host.map(str::to_owned), ..Place::default() }
}

/// The names of the ends' processors.
fn cores(placement: Placement) -> (&'static str, &'static str) {
    match placement {
        Placement::SameCore => (SHARED_CORE, SHARED_CORE),
        _ => (SENDER_CORE, RECEIVER_CORE),
    }
}

fn stage(m: &Measurement, found: &stages::Stage, packets: u64) -> Stage {
    let (sender, receiver) = cores(m.setting.placement);
    let copies = u32::from(found.name == stages::COPY_IN || found.name == stages::COPY_OUT);
    // Between hosts of one machine the sender's call carries a packet as far as the receiver's
    // socket; from the wake-up on it is the receiver.
    let passed = Count { packets, bytes: packets * m.setting.message.0 };
    if found.name == NOT_ATTRIBUTED {
        return Stage { wait: mean(found.per_message), ..Stage::new(NOT_ATTRIBUTED, None, passed) };
    }
    let late = found.side == "receiver" || found.name == stages::CROSSING;
    let core = if late { receiver } else { sender };
    Stage {
        place: end(core),
        service: mean(found.per_message),
        copies: Some(copies),
        touches: Some(2 * copies), // A copy reads and writes each byte.
        ..Stage::new(found.name.as_str(), Some(core), passed)
    }
}

fn totals(m: &Measurement, found: &Stages, messages: u64, bytes: u64) -> Totals {
    let waits = (m.sender.activity.wait + m.receiver.activity.wait) * period(m);
    let own = (m.sender.application + m.receiver.application) * period(m);
    // Samples also see softirqs that ran in nobody's time.
    let run = match found.sampled {
        true => found.total,
        false => run_per_message(m, &m.sender) + run_per_message(m, &m.receiver),
    };
    let blocked = m.sender.activity.blocked * period(m);
    let latency = match m.latency {
        Some(l) => Latency { mean: l.mean, p50: Some(l.p50), p99: Some(l.p99), max: Some(l.max) },
        None => Latency { mean: run + waits + own + blocked + in_sockets(m), ..Latency::default() },
    };
    let held = (held(m) / m.setting.message.0 as f64).round() as u64;
    let all = Count { packets: messages + held, bytes: bytes + held * m.setting.message.0 };
    // TCP loses nothing; retransmitted segments are not packets of this ledger.
    Totals {
        offered: Some(all),
        dropped: Some(Count::default()),
        held: Some(held),
        loss: Some(0.0),
        latency: Some(latency),
        ..Totals::new(Count { packets: messages, bytes }, m.goodput.windows.median)
    }
}

/// The processors, with what their time went into.
fn resources(m: &Measurement, found: &Stages) -> Vec<Resource> {
    if let Some(sampled) = m.sampled.as_ref().filter(|_| found.sampled) {
        let parts = |ends: &[bool]| -> BTreeMap<String, f64> {
            let all = || ends.iter().flat_map(|&receiver| of_core(sampled, receiver));
            let total: u64 = all().map(|(_, count)| count).sum();
            let mut parts = BTreeMap::new();
            for (stage, count) in all() {
                *parts.entry(stage).or_insert(0.0) += count as f64 / total.max(1) as f64;
            }
            parts
        };
        if m.setting.placement == Placement::SameCore {
            return vec![core(SHARED_CORE, &[&m.sender, &m.receiver], parts(&[false, true]))];
        }
        return vec![
            core(SENDER_CORE, &[&m.sender], parts(&[false])),
            core(RECEIVER_CORE, &[&m.receiver], parts(&[true])),
        ];
    }
    let share = |name: &str| {
        let stage = found.stages.iter().find(|s| s.name == name);
        stage.map_or(0.0, |s| s.per_message.max(0.0) * m.message_rate)
    };
    if m.setting.placement == Placement::SameCore {
        let total: f64 = found.stages.iter().map(|s| s.per_message.max(0.0)).sum();
        let parts = found
            .stages
            .iter()
            .map(|s| (s.name.clone(), s.per_message.max(0.0) / total.max(f64::MIN_POSITIVE)));
        return vec![core(SHARED_CORE, &[&m.sender, &m.receiver], parts.collect())];
    }
    let one = |name: &str, side: &Side, copy: &str| {
        let own = (share(copy) / (side.activity.run * f64::from(m.setting.streams))).min(1.0);
        let mut parts = BTreeMap::from([(EITHER.to_owned(), 1.0 - own)]);
        if own > 0.0 {
            parts.insert(copy.to_owned(), own);
        }
        core(name, &[side], parts)
    };
    vec![
        one(SENDER_CORE, &m.sender, stages::COPY_IN),
        one(RECEIVER_CORE, &m.receiver, stages::COPY_OUT),
    ]
}

/// A processor, or a few of them; `parts` say how what was busy divides, and sum to one.
fn core(name: &str, sides: &[&Side], parts: BTreeMap<String, f64>) -> Resource {
    let threads = || sides.iter().flat_map(|side| &side.threads);
    let units = threads().map(|t| t.core).collect::<BTreeSet<_>>().len().max(1);
    let sum = |what: fn(&Side) -> f64| -> f64 {
        let all = sides.iter().map(|side| what(side) * side.threads.len() as f64);
        all.sum::<f64>() / units as f64
    };
    let busy = sum(|s| s.activity.run).min(1.0);
    // Our threads wait for each other too; if none of them ran while one waited, other programs
    // did.
    let blocked = sum(|s| s.activity.wait).min(1.0 - busy);
    Resource {
        place: end(name),
        units: units as u32,
        by_stage: parts.into_iter().map(|(stage, part)| (stage, part * busy)).collect(),
        ..Resource::new(name, "cpu", busy, Some(blocked))
    }
}

fn notes(m: &Measurement, found: &Stages) -> Vec<String> {
    let mut notes = Vec::new();
    let how = match m.isolation {
        Isolation::UserNamespace => "two network namespaces of an unprivileged user, a veth pair",
        Isolation::Root => "two network namespaces made as root, a veth pair",
        Isolation::Loopback => "the loopback interface, because namespaces are not permitted here",
    };
    notes.push(format!("Measured between two processes over {how}; kernel {}.", m.kernel));
    notes.push("A packet of this ledger is a message of the application.".to_owned());
    let spread = &m.goodput.windows;
    notes.push(format!(
        "Goodput is the median of {} windows, half of them within {:.1} % of each other; others \
         used {:.2} CPUs meanwhile.",
        spread.samples,
        spread.relative() * 100.0,
        m.others
    ));
    let sure = |s: &stages::Stage| format!("{} ±{:.2} us", s.name, s.uncertainty * 1e6);
    // Errors of shares are alike: the greatest says enough.
    let worst = found.stages.iter().max_by(|a, b| a.uncertainty.total_cmp(&b.uncertainty));
    let words = match found.sampled {
        true => worst.map_or(String::new(), |s| format!("at most {}", sure(s))),
        false => found.stages.iter().map(sure).collect::<Vec<_>>().join("; "),
    };
    notes.push(format!("Uncertainty per message: {words}."));
    if m.setting.placement != Placement::SameCore && !found.sampled {
        let at = |name: &str| found.stages.iter().any(|s| s.name == name && s.side == "both");
        let both: Vec<&str> = stages::NAMES.into_iter().filter(|name| at(name)).collect();
        notes.push(format!(
            "The kernel works for either end in either's time: {} cannot be divided between the \
             cores.",
            both.join("; ")
        ));
    }
    if is_round_trip(m) {
        notes.push(
            "What an end does after its message left costs CPU but adds nothing to the round trip, \
             so the stages may exceed the latency: then the residual is negative."
                .to_owned(),
        );
    }
    if !found.sampled {
        notes.push(format!(
            "The first run repeated at the end cost {:+.2} us per message: drift that the stages \
             may hide.",
            found.residual * 1e6
        ));
    }
    notes.extend(found.notes.iter().map(|note| sentence(note)));
    notes.extend(m.notes.iter().map(|note| sentence(note)));
    notes
}

/// A note as a sentence.
pub(super) fn sentence(note: &str) -> String {
    let mut letters = note.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let end = if note.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_linux::counters::CounterChange;
    use lastmeter_live::statistics::Spread;
    use lastmeter_live::transfer::{Activity, Goodput, Setting, TcpChange, Thread};

    fn spread(value: f64) -> Spread {
        Spread { median: value, low: value, high: value, samples: 25 }
    }

    /// One end that runs `run` of the time; 100 000 messages of 64 KiB a second.
    fn side(run: f64, wait: f64, core: usize) -> Side {
        let message = Setting::PLAIN.message.0 as f64;
        Side {
            activity: Activity { run, wait, paused: 0.0, blocked: 1.0 - run - wait },
            system: run,
            calls: 100_000,
            bytes: 100_000 * Setting::PLAIN.message.0,
            buffer: 1 << 20,
            tcp: TcpChange { not_sent: 2.0 * message, ..TcpChange::default() },
            run_per_byte: spread(run / 1e5 / message),
            threads: vec![Thread { system: run, core, ..Thread::default() }],
            ..Side::default()
        }
    }

    fn measured(placement: Placement) -> Measurement {
        let rate = 1e5 * Setting::PLAIN.message.0 as f64 * 8.0;
        let same = placement == Placement::SameCore;
        Measurement {
            setting: Setting { placement, ..Setting::PLAIN },
            isolation: Isolation::UserNamespace,
            kernel: "6".to_owned(),
            date: 0,
            elapsed: 1.0,
            goodput: Goodput { windows: spread(rate), mean: rate, disturbed: 0 },
            message_rate: 1e5,
            sender: side(if same { 0.6 } else { 0.9 }, 0.05, 0),
            receiver: side(if same { 0.35 } else { 0.7 }, 0.02, usize::from(!same)),
            latency: None,
            counters: CounterChange::default(),
            relay: None,
            foreign: 0.0,
            others: 0.0,
            crowd: 0.0,
            sampled: None,
            notes: Vec::new(),
        }
    }

    fn found(total: f64) -> Stages {
        let part = |name: &str, side: &str, share: f64| stages::Stage {
            name: name.to_owned(),
            class: None,
            side: side.to_owned(),
            per_message: total * share,
            per_byte: 0.0,
            per_packet: 0.0,
            uncertainty: 1e-7,
            method: String::new(),
        };
        let stages = vec![
            part(stages::CALLS, "both", 0.1),
            part(stages::COPY_IN, "sender", 0.2),
            part(stages::REST, "both", 0.5),
            part(stages::COPY_OUT, "receiver", 0.2),
        ];
        Stages { total, stages, residual: 0.0, notes: Vec::new(), sampled: false }
    }

    #[test]
    fn the_books_balance_and_the_shares_of_each_core_sum_to_one() {
        for placement in [Placement::OtherCore, Placement::SameCore] {
            let m = measured(placement);
            let run = m.sender.activity.run + m.receiver.activity.run;
            // The stages of the separate runs cost 1 us less than the whole run.
            let stages = found(run / 1e5 - 1e-6);
            let ledger = ledger(Account {
                measured: &m,
                stages: &stages,
                what_ifs: Vec::new(),
                host: String::new(),
                profile: None,
            });
            let residual = ledger.balance.latency_residual;
            assert!(residual.abs() < 1e-9, "{residual}");
            let left = ledger.paths[0].stages.iter().find(|s| s.name == NOT_ATTRIBUTED).unwrap();
            assert!((left.wait_mean() - 1e-6).abs() < 1e-9, "{left:?}");
            for resource in &ledger.resources {
                let whole = resource.utilisation() + resource.idle;
                assert!((whole - 1.0).abs() < 1e-12, "{resource:?}");
                let parts: f64 = resource.by_stage.values().sum();
                assert!((parts - resource.busy).abs() < 1e-12, "{resource:?}");
            }
            let json = serde_json::to_string(&ledger).unwrap();
            assert_eq!(serde_json::from_str::<Ledger>(&json).unwrap(), ledger);
            // Two messages lie in the socket: 20 us at this rate.
            let queued = ledger.paths[0].stages.iter().find(|s| s.name == SOCKETS).unwrap();
            assert!((queued.wait_mean() - 20e-6).abs() < 1e-12);
        }
    }
}
