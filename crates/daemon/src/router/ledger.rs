//! A router's account: what a packet costs in each stage, from a sample of batches, and what limits it.

use lastmeter_ledger::{
    Confidence, Count, Counter, Latency, Ledger, Path, Provenance, Resource, Stage, Times, Totals,
    Verdict,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// A core that is busier than this limits the router.
const LIMITING: f64 = 0.9;

/// The ledger of what `show` told.
pub(crate) fn ledger(shown: &Value) -> Ledger {
    let elapsed = shown["elapsed"].as_f64().unwrap_or(0.0).max(1e-9);
    let cpu = shown["cpu"].as_f64().unwrap_or(0.0);
    let sum = |name: &str| -> u64 {
        let ports = shown["ports"].as_array().into_iter().flatten();
        ports.map(|port| port["counts"][name].as_u64().unwrap_or(0)).sum()
    };
    let sent = Count { packets: sum("sent"), bytes: sum("sent-bytes") };
    let arrived = Count { packets: sum("received") + sum("made"), bytes: sum("received-bytes") };
    let mut drops: BTreeMap<String, u64> = BTreeMap::new();
    for port in shown["ports"].as_array().into_iter().flatten() {
        for (name, count) in port["counts"].as_object().into_iter().flatten() {
            if let Some(reason) = name.strip_prefix("dropped/") {
                *drops.entry(reason.to_owned()).or_default() += count.as_u64().unwrap_or(0);
            }
        }
    }
    let held = ["held-for-neighbours", "held-inside"].map(|key| shown[key].as_u64().unwrap_or(0));
    let held = sum("held") + held.iter().sum::<u64>();
    let lost: u64 = drops.values().sum();
    let timed = shown["stages"]["packets"].as_u64().unwrap_or(0).max(1) as f64;
    let spent = |at: usize| shown["stages"]["spent"][at].as_f64().unwrap_or(0.0) / timed / 1e9;
    let names = shown["stages"]["names"].as_array().cloned().unwrap_or_default();
    let mut stages: Vec<Stage> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let name = name.as_str().unwrap_or("?");
        let mut stage = Stage::new(name, Some("core"), sent);
        stage.service = Some(Times::mean(spent(at)));
        stages.push(stage);
    }
    if let Some(last) = stages.last_mut() {
        let queued = shown["stages"]["queued"].as_f64().unwrap_or(0.0) / timed / 1e9;
        last.wait = Some(Times::mean(queued));
    }
    let at = |reason: &str| match reason {
        "filtered" => "classify",
        "plugin" => "plugins",
        "no-route" | "unreachable" | "blackhole" => "lookup",
        "queue-full" | "queue-drop" | "link-down" => "send",
        "input-full" | "ended" => "cross",
        "expired" | "too-big" | "no-neighbour" | "no-frame" => "forward",
        _ => "parse",
    };
    for (reason, count) in drops {
        if count > 0
            && let Some(stage) = stages.iter_mut().find(|stage| stage.name == at(&reason))
        {
            stage.drops.insert(reason, count);
        }
    }
    let mean: f64 = stages.iter().map(Stage::mean).sum();
    let cores = cores(shown, cpu / elapsed);
    let (core, busy) = cores.iter().fold((String::new(), -1.0), |most, (name, busy)| {
        if *busy > most.1 { (name.clone(), *busy) } else { most }
    });
    let own: f64 = stages.iter().map(Stage::service_mean).sum();
    let by_stage: BTreeMap<String, f64> = stages
        .iter()
        .map(|stage| (stage.name.clone(), busy * stage.service_mean() / own.max(1e-12)))
        .collect();
    let most = stages.iter().max_by(|a, b| a.service_mean().total_cmp(&b.service_mean()));
    let most =
        most.map(|stage| (stage.name.clone(), 100.0 * stage.service_mean() / own.max(1e-12)));
    let words = match (busy > LIMITING, most) {
        (true, Some((stage, share))) => {
            format!("{} limits: `{stage}` takes {share:.0} % of its time", whose(&core))
        }
        (true, None) => format!("{} limits", whose(&core)),
        (false, _) => {
            let busiest = if cores.len() > 1 { "busiest core" } else { "core" };
            format!("the router limits nobody: its {busiest} is busy {:.0} %", busy * 100.0)
        }
    };
    let totals = Totals {
        offered: Some(arrived),
        dropped: Some(Count { packets: lost, bytes: 0 }),
        held: Some(held),
        latency: Some(Latency { mean, p50: None, p99: None, max: None }),
        ..Totals::new(sent, sent.bytes as f64 * 8.0 / elapsed)
    };
    let resources = cores.iter().map(|(name, busy)| {
        let by_stage = if cores.len() > 1 { BTreeMap::new() } else { by_stage.clone() };
        Resource { by_stage, ..Resource::new(name, "cpu", *busy, None) }
    });
    let resources = resources.collect();
    let path = Path::new("router", "all packets", stages, totals);
    let provenance = Provenance::new(env!("CARGO_PKG_VERSION"), "L0");
    let mut ledger = Ledger::new("router", elapsed, vec![path], resources, provenance);
    let balance = arrived.packets.cast_signed() - (sent.packets + lost + held).cast_signed();
    ledger.balance.packets_residual = balance;
    let limits = busy > LIMITING;
    ledger.verdict = Some(Verdict {
        resource: limits.then_some(core),
        utilisation: Some(busy),
        confidence: if limits { Confidence::Medium } else { Confidence::Low },
        runner_up: None,
        words,
    });
    ledger.notes.push(format!("stages are the mean of one batch in 16 ({timed:.0} packets)"));
    if sum("fast") > 0 {
        let note =
            format!("{} packets more by the fast path, without a port processor", sum("fast"));
        ledger.notes.push(note);
    }
    if shown["at-one-moment"] == serde_json::json!(false) {
        ledger.notes.push("a port processor did not answer in time: not of one moment".to_owned());
    }
    for port in shown["ports"].as_array().into_iter().flatten() {
        for (name, count) in port["counts"].as_object().into_iter().flatten() {
            let element = port["name"].as_str().unwrap_or("?").to_owned();
            ledger.counters.push(Counter {
                element,
                name: name.clone(),
                value: count.as_u64().unwrap_or(0),
            });
        }
    }
    ledger
}

/// The cores of port processors, and how busy they are: of one alone with all that its process does.
fn cores(shown: &Value, process: f64) -> Vec<(String, f64)> {
    let all: Vec<&Value> = shown["processors"].as_array().into_iter().flatten().collect();
    if all.len() <= 1 {
        return vec![("core".to_owned(), process.min(1.0))];
    }
    let busy = |one: &Value| {
        let elapsed = one["elapsed"].as_f64().unwrap_or(0.0).max(1e-9);
        (one["cpu"].as_f64().unwrap_or(0.0) / elapsed).min(1.0)
    };
    let name = |one: &Value| format!("core of {}", one["name"].as_str().unwrap_or("?"));
    all.into_iter().map(|one| (name(one), busy(one))).collect()
}

fn whose(core: &str) -> String {
    match core {
        "core" => "the port processor's core".to_owned(),
        core => format!("the {core}"),
    }
}
