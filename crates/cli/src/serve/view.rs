//! Parts of a ledger that a page can show at once, however large the ledger is.

use super::events::{Course, Point};
use lastmeter_ledger::compare::{Comparison, Line};
use lastmeter_ledger::{Ledger, Path, Resource};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Paths and resources in a part.
const PATHS: usize = 20;
const RESOURCES: usize = 50;
/// Stages of a path that are shown; the files have all of a longer one.
const STAGES: usize = 100;
/// Rows of each part of a comparison.
const LINES: usize = 60;
/// What-ifs and series.
const OTHERS: usize = 40;
/// Paths and resources that are plotted.
pub(super) const CURVES: usize = 12;

/// The totals of a ledger, and its paths and resources from these indices on.
pub(super) fn view(ledger: &Ledger, from_path: usize, from_resource: usize) -> Value {
    let sum = |of: fn(&Path) -> u64| ledger.paths.iter().map(of).sum::<u64>();
    let paths: Vec<Value> = ledger.paths.iter().skip(from_path).take(PATHS).map(path).collect();
    let resources: Vec<&Resource> =
        by_use(ledger).into_iter().skip(from_resource).take(RESOURCES).collect();
    let resources: Vec<Value> = resources.into_iter().map(resource).collect();
    json!({
        "title": ledger.title,
        "duration": ledger.duration,
        "totals": {
            "goodput": ledger.goodput(),
            "latency": ledger.latency(),
            "loss": ledger.loss(),
            "offered": sum(|path| path.totals.offered_packets()),
            "delivered": sum(|path| path.totals.delivered.packets),
            "dropped": sum(|path| path.totals.dropped_packets()),
            "held": sum(|path| path.totals.held.unwrap_or(0)),
        },
        "paths": { "from": from_path, "count": ledger.paths.len(), "rows": paths },
        "resources": { "from": from_resource, "count": ledger.resources.len(), "rows": resources },
        "verdict": ledger.verdict,
        "what_ifs": ledger.what_ifs.iter().take(OTHERS).collect::<Vec<_>>(),
        "balance": ledger.balance,
        "provenance": ledger.provenance,
        "notes": ledger.notes,
        "series": ledger.series.iter().take(OTHERS).map(|one| &one.name).collect::<Vec<_>>(),
    })
}

fn path(path: &Path) -> Value {
    json!({
        "name": path.name,
        "class": path.class,
        "totals": path.totals,
        "stages": path.stages.iter().take(STAGES).collect::<Vec<_>>(),
        "stages_count": path.stages.len(),
    })
}

fn resource(resource: &Resource) -> Value {
    let by_stage: BTreeMap<_, _> = resource.by_stage.iter().take(STAGES).collect();
    json!({
        "name": resource.name,
        "kind": resource.kind,
        "units": resource.units,
        "busy": resource.busy,
        "blocked": resource.blocked,
        "idle": resource.idle,
        "by_stage": by_stage,
    })
}

/// Busiest first; equal ones in the order of the ledger.
fn by_use(ledger: &Ledger) -> Vec<&Resource> {
    let mut resources: Vec<&Resource> = ledger.resources.iter().collect();
    let used = |resource: &Resource| resource.utilisation();
    resources.sort_by(|a, b| used(b).total_cmp(&used(a)));
    resources
}

/// Two ledgers side by side, with the change in words.
pub(super) fn comparison(names: [&str; 2], ledgers: [&Ledger; 2]) -> Value {
    let comparison = Comparison::new(names, ledgers);
    let line = |line: &Line| {
        let mut value = serde_json::to_value(line).unwrap_or_default();
        value["change"] = line.change().into();
        value
    };
    let part = |lines: &[Line]| {
        let rows: Vec<Value> = lines.iter().take(LINES).map(line).collect();
        json!({ "count": lines.len(), "rows": rows })
    };
    json!({
        "names": comparison.names,
        "titles": comparison.titles,
        "verdicts": comparison.verdicts,
        "same": comparison.same_experiment,
        "totals": part(&comparison.totals),
        "stages": part(&comparison.stages),
        "resources": part(&comparison.resources),
    })
}

/// Cumulative sums at an instant; the figures of an interval follow from two of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    at: f64,
    delivered: f64,
    latency: f64,
    dropped: f64,
    bytes: Vec<f64>,
    used: Vec<f64>,
    all_bytes: f64,
}

impl Sums {
    pub(super) fn of(ledger: &Ledger) -> Sums {
        let paths = &ledger.paths;
        let bytes = |path: &Path| path.totals.delivered.bytes as f64;
        let packets = |path: &Path| path.totals.delivered.packets as f64;
        let used = |one: &Resource| (one.utilisation()) * ledger.duration;
        Sums {
            at: ledger.duration,
            delivered: paths.iter().map(packets).sum(),
            latency: paths.iter().map(|path| packets(path) * path.totals.latency_mean()).sum(),
            dropped: paths.iter().map(|path| path.totals.dropped_packets() as f64).sum(),
            bytes: paths.iter().take(CURVES).map(bytes).collect(),
            used: ledger.resources.iter().take(CURVES).map(used).collect(),
            all_bytes: paths.iter().map(bytes).sum(),
        }
    }

    /// The figures from `before` until now; `None` where no time has passed.
    pub(super) fn since(&self, before: &Sums) -> Option<Point> {
        let time = self.at - before.at;
        let packets = self.delivered - before.delivered;
        let difference = |now: &[f64], before: &[f64], scale: f64| {
            let before = before.iter().copied().chain(std::iter::repeat(0.0));
            now.iter().zip(before).map(|(now, before)| (now - before) * scale).collect()
        };
        (time > 0.0).then(|| Point {
            at: self.at,
            goodput: (self.all_bytes - before.all_bytes) * 8.0 / time,
            latency: (packets > 0.0).then(|| (self.latency - before.latency) / packets),
            dropped: self.dropped - before.dropped,
            paths: difference(&self.bytes, &before.bytes, 8.0 / time),
            used: difference(&self.used, &before.used, 1.0 / time),
        })
    }
}

/// A course without points: the names of the curves.
pub(super) fn curves(ledger: &Ledger) -> Course {
    let path = |path: &Path| format!("{}, {}", path.name, path.class);
    Course {
        paths: ledger.paths.iter().take(CURVES).map(path).collect(),
        resources: ledger.resources.iter().take(CURVES).map(|one| one.name.clone()).collect(),
        points: Vec::new(),
    }
}
