//! Closing the books of a model run: from the engine's outcome to the ledger.

use lastmeter_engine::{Count as EngineCount, Distribution, Outcome, PathBook, Row};
use lastmeter_ledger::{
    Count, Counter, Deadlines, Latency, Ledger, Level, Path, Place, Provenance, Quantile, Resource,
    Series, Stage, Step, Times, Totals, Transfer, Transfers,
};
use std::collections::BTreeMap;

/// What a ledger contains besides the figures from the books.
#[derive(Clone, Debug, Default)]
pub struct Close {
    /// What was run.
    pub title: String,
    /// Where the figures come from.
    pub provenance: Provenance,
}

/// Makes the ledger of a run, without verdict and what-ifs.
pub fn close(outcome: &Outcome, close: Close) -> Ledger {
    let duration = (outcome.now - outcome.since).as_secs_f64();
    let paths: Vec<Path> = outcome
        .paths
        .iter()
        .zip(&outcome.books.paths)
        .map(|(info, book)| Path {
            name: info.name.clone(),
            class: info.class.clone(),
            stages: stages(outcome, book),
            totals: totals(outcome, book, duration),
            latencies: latencies(&book.latency),
        })
        .collect();
    let made = outcome.books.made as i64;
    let found = (outcome.books.delivered + outcome.books.dropped + outcome.held) as i64;
    let provenance = Provenance { partial: outcome.stopped, ..close.provenance };
    let mut ledger = Ledger::new(close.title, duration, paths, resources(outcome), provenance);
    ledger.balance.packets_residual = made - found;
    ledger.warm_up = Some(outcome.since.since_start().as_secs_f64()).filter(|time| *time > 0.0);
    ledger.levels = levels(outcome);
    ledger.series = series(outcome);
    ledger.counters = counters(outcome);
    ledger.transfers = transfers(outcome);
    ledger
}

/// The place of a stage or resource, as the ledger writes it.
fn place(place: &lastmeter_engine::Place) -> Place {
    let lastmeter_engine::Place { host, group, role, source } = place.clone();
    Place { host, group, role: role.map(str::to_owned), source }
}

fn series(outcome: &Outcome) -> Vec<Series> {
    let all = outcome.elements.iter().flat_map(|element| {
        element.series.iter().map(move |(name, unit, series)| (&element.name, name, *unit, series))
    });
    all.map(|(element, name, unit, series)| {
        let (unit, value): (_, fn(u64) -> f64) = match unit {
            "ps" => ("s", |value| value as f64 * 1e-12),
            "mdB" => ("dB", |value| value as f64 * 1e-3),
            // Of a set, how many it has.
            "set of bands" => ("bands", |value| f64::from(value.count_ones())),
            other => (other, |value| value as f64),
        };
        let step = |(at, (least, most)): (lastmeter_base::Time, (u64, u64))| {
            let (one, other) = (value(least), value(most));
            let at = at.since_start().as_secs_f64();
            Step { at, least: one.min(other), most: one.max(other) }
        };
        Series {
            name: format!("{element}: {name}"),
            unit: unit.to_owned(),
            step: series.width().as_secs_f64(),
            steps: series.steps().map(step).collect(),
        }
    })
    .collect()
}

fn levels(outcome: &Outcome) -> Vec<Level> {
    let all = outcome.elements.iter();
    let all = all.flat_map(|element| element.levels.iter().map(move |one| (element, one)));
    all.filter(|(_, (_, _, lasted))| lasted.count() > 0)
        .map(|(element, (name, unit, lasted))| {
            let (unit, scale) = if *unit == "ps" { ("s", 1e-12) } else { (*unit, 1.0) };
            let at = |share| lasted.percentile(share).as_ps() as f64 * scale;
            Level {
                name: format!("{}: {name}", element.name),
                unit: unit.to_owned(),
                mean: lasted.sum() as f64 / lasted.count() as f64 * scale,
                least: lasted.min().as_ps() as f64 * scale,
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                most: lasted.max().as_ps() as f64 * scale,
            }
        })
        .collect()
}

fn counters(outcome: &Outcome) -> Vec<Counter> {
    let all = outcome.elements.iter();
    let all = all.flat_map(|element| element.counters.iter().map(move |one| (element, *one)));
    all.map(|(element, (name, value))| Counter {
        element: element.name.clone(),
        name: name.to_owned(),
        value,
    })
    .collect()
}

/// By class of traffic, whichever hosts they are between.
fn transfers(outcome: &Outcome) -> Vec<Transfers> {
    let end = outcome.now.since_start().as_secs_f64();
    let mut by_class: BTreeMap<&str, Vec<Transfer>> = BTreeMap::new();
    for one in outcome.elements.iter().flat_map(|element| &element.transfers) {
        let seconds = |time: lastmeter_base::Time| time.since_start().as_secs_f64();
        let completed = one.completed.map(seconds);
        by_class.entry(&outcome.paths[one.path.0 as usize].class).or_default().push(Transfer::new(
            one.flow.0,
            seconds(one.began),
            completed,
            one.bytes,
            end,
        ));
    }
    by_class.into_iter().map(|(name, each)| Transfers::new(name, each)).collect()
}

fn stages(outcome: &Outcome, book: &PathBook) -> Vec<Stage> {
    let delivered = book.delivered.packets;
    let mut drops: BTreeMap<Option<u32>, BTreeMap<String, u64>> = BTreeMap::new();
    for (key, count) in &book.dropped {
        let by_reason = drops.entry(key.stage.map(|stage| stage.0)).or_default();
        *by_reason.entry(key.reason.to_owned()).or_default() += count.packets;
    }
    let mut stages: Vec<Stage> = book
        .rows()
        .into_iter()
        .map(|row| {
            let dropped = drops.remove(&Some(row.stage.0)).unwrap_or_default();
            stage(outcome, row, delivered, dropped)
        })
        .collect();
    // Stages that dropped everything, and drops outside any stage, come last.
    for (stage, by_reason) in drops {
        let info = stage.map(|stage| &outcome.stages[stage as usize]);
        let resource = info.and_then(|info| info.resource).map(|id| resource_name(outcome, id));
        let name = info.map_or("elsewhere", |info| &info.name);
        stages.push(Stage {
            place: info.map(|info| place(&info.place)).unwrap_or_default(),
            copies: info.map(|info| info.copies),
            touches: info.map(|info| info.touches),
            drops: by_reason,
            ..Stage::new(name, resource.as_deref(), Count::default())
        });
    }
    stages
}

fn stage(outcome: &Outcome, row: &Row, delivered: u64, drops: BTreeMap<String, u64>) -> Stage {
    let info = &outcome.stages[row.stage.0 as usize];
    let resource = info.resource.map(|id| resource_name(outcome, id));
    let passed = Count { packets: row.passed.packets, bytes: row.passed.bytes };
    Stage {
        place: place(&info.place),
        wait: Some(times(&row.wait, delivered)),
        service: Some(times(&row.service, delivered)),
        blocked: Some(times(&row.blocked, delivered)),
        copies: Some(info.copies),
        touches: Some(info.touches),
        drops,
        ..Stage::new(info.name.as_str(), resource.as_deref(), passed)
    }
}

fn resource_name(outcome: &Outcome, id: lastmeter_engine::ResourceId) -> String {
    outcome.resources[id.0 as usize].name.clone()
}

fn times(distribution: &Distribution, delivered: u64) -> Times {
    Times {
        mean: distribution.sum() as f64 / delivered.max(1) as f64 / 1e12,
        p50: Some(distribution.percentile(0.5).as_secs_f64()),
        p99: Some(distribution.percentile(0.99).as_secs_f64()),
    }
}

fn totals(outcome: &Outcome, book: &PathBook, duration: f64) -> Totals {
    let count = |count: EngineCount| Count { packets: count.packets, bytes: count.bytes };
    let dropped = book.dropped_total();
    let offered = book.offered.packets.max(1) as f64;
    let crossings: u128 = book
        .rows()
        .iter()
        .map(|row| {
            let info = &outcome.stages[row.stage.0 as usize];
            u128::from(info.memory) * u128::from(row.passed.bytes)
        })
        .sum();
    let goodput = match duration > 0.0 {
        true => book.useful as f64 * 8.0 / duration,
        false => 0.0,
    };
    let latency = Latency {
        mean: book.latency.mean(),
        p50: Some(book.latency.percentile(0.5).as_secs_f64()),
        p99: Some(book.latency.percentile(0.99).as_secs_f64()),
        max: Some(book.latency.max().as_secs_f64()),
    };
    Totals {
        offered: Some(count(book.offered)),
        dropped: Some(count(dropped)),
        held: Some(book.held()),
        loss: Some(dropped.packets as f64 / offered),
        latency: (book.delivered.packets > 0).then_some(latency),
        jitter: Some(book.variation.mean()),
        reordered: Some(book.reordered),
        corrupted: Some(book.corrupted),
        memory_multiple: Some(crossings as f64 / book.delivered.bytes.max(1) as f64),
        deadlines: match book.deadlines {
            lastmeter_engine::Deadlines { made: 0, met: 0, late: 0 } => None,
            lastmeter_engine::Deadlines { made, met, late } => Some(Deadlines { made, met, late }),
        },
        ..Totals::new(count(book.delivered), goodput)
    }
}

/// Shares of packets whose latency is kept: enough to draw the distribution, and its tail.
const SHARES: [f64; 15] =
    [0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

fn latencies(latency: &Distribution) -> Vec<Quantile> {
    let at = |share| Quantile { share, latency: latency.percentile(share).as_secs_f64() };
    if latency.count() == 0 { Vec::new() } else { SHARES.map(at).to_vec() }
}

fn resources(outcome: &Outcome) -> Vec<Resource> {
    let delivered: u128 =
        outcome.books.paths.iter().map(|book| u128::from(book.delivered.bytes)).sum();
    outcome
        .resources
        .iter()
        .zip(&outcome.books.resources)
        .map(|(info, used)| {
            let elapsed =
                u128::from((outcome.now - outcome.since).as_ps()) * u128::from(info.units);
            let share = |time: u128| time as f64 / elapsed.max(1) as f64;
            let stage_name = |stage: u32| outcome.stages[stage as usize].name.clone();
            let by_stage =
                used.by_stage.iter().map(|(stage, &busy)| (stage_name(stage.0), share(busy)));
            let mut by_role: BTreeMap<String, f64> = BTreeMap::new();
            for (stage, busy) in &used.by_stage {
                if let Some(role) = outcome.stages[stage.0 as usize].place.role {
                    *by_role.entry(role.to_owned()).or_default() += share(*busy);
                }
            }
            Resource {
                name: info.name.clone(),
                kind: info.kind.name().to_owned(),
                place: place(&info.place),
                units: info.units,
                busy: share(used.busy()),
                blocked: Some(share(used.blocked)),
                idle: share(used.idle),
                by_stage: by_stage.collect(),
                by_role,
                bytes_per_delivered_byte: Some(used.moved as f64 / delivered.max(1) as f64),
            }
        })
        .collect()
}
