//! The prediction of a transfer as a ledger, to compare with the measured one.

use super::own::{RECEIVER_CORE, SENDER_CORE, SHARED_CORE};
use lastmeter_ledger::{
    Confidence, Count, Latency, Ledger, Path, Provenance, Resource, Source, Stage, Times, Totals,
    Verdict,
};
use lastmeter_live::predict::{self, Prediction, StageCost};
use lastmeter_live::transfer::{Setting, Workload};

/// Makes the ledger of one second of the predicted transfer. A packet of it is one message; the
/// latency is the service time of one message at both ends: a cost model has no queues.
pub fn ledger(setting: &Setting, prediction: &Prediction, profile: Source) -> Ledger {
    let packets = prediction.message_rate.round() as u64;
    let count = Count { packets, bytes: packets * setting.message.0 };
    let stages: Vec<Stage> =
        prediction.stages.iter().map(|cost| stage(setting, cost, count)).collect();
    let mean = stages.iter().map(Stage::mean).sum();
    let text = serde_json::to_string(setting).unwrap_or_default();
    let latency = Some(Latency { mean, ..Latency::default() });
    let totals = Totals { latency, ..Totals::new(count, prediction.goodput) };
    let provenance = Provenance {
        experiment: Source { name: "why".to_owned(), hash: lastmeter_lab::digest(text) },
        profiles: vec![profile],
        ..Provenance::new(env!("CARGO_PKG_VERSION"), "model")
    };
    let resources = resources(&stages, setting, prediction);
    let class = format!("messages of {}", setting.message);
    let path = Path::new(super::own::PATH, class, stages, totals);
    let title = format!("Predicted: a {}", super::words_of(setting));
    let mut ledger = Ledger::new(title, 1.0, vec![path], resources, provenance);
    ledger.verdict = verdict(setting, prediction);
    ledger.notes = prediction.notes.iter().map(|note| super::own::sentence(note)).collect();
    ledger
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
    let copies = cost.part.copies();
    let core = resource(&cost.resource);
    Stage {
        place: super::own::end(core),
        // In a model of constants every message costs the same.
        service: Some(Times { mean: service, p50: Some(service), p99: Some(service) }),
        copies: Some(copies),
        touches: Some(2 * copies),
        ..Stage::new(cost.name.as_str(), Some(core), count)
    }
}

fn resources(stages: &[Stage], setting: &Setting, prediction: &Prediction) -> Vec<Resource> {
    let mut all: Vec<Resource> = Vec::new();
    for stage in stages {
        let Some(name) = &stage.resource else { continue };
        let place = all.iter().position(|one| one.name == *name).unwrap_or_else(|| {
            let place = super::own::end(name);
            all.push(Resource { place, ..Resource::new(name, "cpu", 0.0, None) });
            all.len() - 1
        });
        let share = stage.service.map_or(0.0, |service| service.mean) * prediction.message_rate;
        all[place].by_stage.insert(stage.name.clone(), share);
    }
    let round_trip = setting.workload == Workload::RequestResponse;
    for one in &mut all {
        let busy: f64 = one.by_stage.values().sum();
        // Parallel streams use as many cores as they need.
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
        _ => format!("{name} has the least capacity."),
    };
    Some(Verdict {
        resource: Some(name.to_owned()),
        utilisation: Some(1.0),
        confidence,
        runner_up: next.map(|next| resource(&next.resource).to_owned()),
        words,
    })
}
