//! The prediction of a transfer as a ledger, to stand beside the measured one.

use super::own::{RECEIVER_CORE, SENDER_CORE, SHARED_CORE};
use lastmeter_ledger::{
    Balance, Confidence, Count, Latency, Ledger, Path, Provenance, Resource, SCHEMA, Source, Stage,
    Times, Totals, Verdict,
};
use lastmeter_live::predict::{self, Prediction, StageCost};
use lastmeter_live::transfer::{Setting, Workload};
use std::collections::BTreeMap;

/// Makes the ledger of one second of the predicted transfer. A packet of it is one message; the
/// latency is the service of one message at both ends, for a model of costs knows no queues.
pub fn ledger(setting: &Setting, prediction: &Prediction, profile: Source) -> Ledger {
    let packets = prediction.message_rate.round() as u64;
    let count = Count { packets, bytes: packets * setting.message.0 };
    let stages: Vec<Stage> =
        prediction.stages.iter().map(|cost| stage(setting, cost, count)).collect();
    let mean = stages.iter().map(Stage::mean).sum();
    let text = serde_json::to_string(setting).unwrap_or_default();
    let totals = Totals {
        offered: count,
        delivered: count,
        dropped: Count::default(),
        held: 0,
        goodput: prediction.goodput,
        loss: 0.0,
        latency: Latency { mean, ..Latency::default() },
        jitter: 0.0,
        reordered: 0,
        corrupted: 0,
        memory_multiple: 0.0,
        deadlines: None,
    };
    Ledger {
        schema: SCHEMA.to_owned(),
        title: format!("Predicted: a {}", super::words_of(setting)),
        duration: 1.0,
        resources: resources(&stages, setting, prediction),
        paths: vec![Path {
            name: super::own::PATH.to_owned(),
            class: format!("messages of {}", setting.message),
            stages,
            totals,
            latencies: Vec::new(),
        }],
        verdict: verdict(setting, prediction),
        what_ifs: Vec::new(),
        balance: Balance::default(),
        certificate: None,
        provenance: Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            experiment: Source { name: "why".to_owned(), hash: lastmeter_lab::digest(text) },
            profiles: vec![profile],
            level: "model".to_owned(),
            ..Provenance::default()
        },
        notes: prediction.notes.iter().map(|note| super::own::sentence(note)).collect(),
        series: Vec::new(),
    }
}

fn resource(name: &str) -> &str {
    match name {
        "sender core" => SENDER_CORE,
        "receiver core" => RECEIVER_CORE,
        "core" => SHARED_CORE,
        other => other,
    }
}

fn stage(setting: &Setting, cost: &StageCost, count: Count) -> Stage {
    let work = predict::work_of(setting);
    let service = cost.per_message(&work).max(0.0);
    let copies = u32::from(cost.name.starts_with("copy"));
    Stage {
        name: cost.name.clone(),
        resource: Some(resource(&cost.resource).to_owned()),
        packets: count.packets,
        bytes: count.bytes,
        wait: Times::default(),
        // In a model of constants every message costs the same.
        service: Times { mean: service, p50: service, p99: service },
        blocked: Times::default(),
        copies,
        touches: 2 * copies,
        drops: BTreeMap::new(),
    }
}

fn resources(stages: &[Stage], setting: &Setting, prediction: &Prediction) -> Vec<Resource> {
    let mut all: Vec<Resource> = Vec::new();
    for stage in stages {
        let Some(name) = &stage.resource else { continue };
        let place = all.iter().position(|one| one.name == *name).unwrap_or_else(|| {
            all.push(Resource {
                name: name.clone(),
                kind: "cpu".to_owned(),
                units: 1,
                busy: 0.0,
                blocked: 0.0,
                idle: 1.0,
                by_stage: BTreeMap::new(),
                bytes_per_delivered_byte: 0.0,
            });
            all.len() - 1
        });
        let share = stage.service.mean * prediction.message_rate;
        all[place].by_stage.insert(stage.name.clone(), share);
    }
    let round_trip = setting.workload == Workload::RequestResponse;
    for one in &mut all {
        let busy: f64 = one.by_stage.values().sum();
        // Streams beside each other use as many cores as they need.
        one.units = if round_trip { 1 } else { (busy - 1e-6).ceil().max(1.0) as u32 };
        let units = f64::from(one.units);
        one.by_stage.values_mut().for_each(|share| *share /= units);
        one.busy = (busy / units).min(1.0);
        one.idle = 1.0 - one.busy;
    }
    all
}

fn verdict(setting: &Setting, prediction: &Prediction) -> Option<Verdict> {
    let first = prediction.uses.first()?;
    let next = prediction.uses.get(1);
    let name = resource(&first.resource);
    let lead = 1.0 - next.map_or(0.0, |next| next.utilisation);
    let confidence = match lead {
        lead if lead > 2.0 * prediction.uncertainty => Confidence::High,
        lead if lead > prediction.uncertainty => Confidence::Medium,
        _ => Confidence::Low,
    };
    let words = match setting.workload {
        Workload::RequestResponse => {
            "Each message waits for the answer to the one before.".to_owned()
        }
        _ => format!("{name} would allow least."),
    };
    Some(Verdict {
        resource: Some(name.to_owned()),
        utilisation: 1.0,
        confidence,
        runner_up: next.map(|next| resource(&next.resource).to_owned()),
        words,
    })
}
