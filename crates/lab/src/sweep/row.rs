//! A row: the result of one run of a sweep.

use lastmeter_ledger::Ledger;
use lastmeter_ledger::columns::Columns;
use lastmeter_ledger::parquet::Table;
use serde::{Deserialize, Serialize};

/// One run and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The index of the point in the plan.
    pub point: u64,
    /// The number of the run at this point, from 0.
    pub replicate: u64,
    /// The seed of its random streams.
    pub seed: u64,
    /// The figures, or why there are none.
    pub result: Result<Measures, String>,
    /// A row for each path and class of its ledger; none where a row was read back.
    pub paths: Columns,
}

/// The main figures of a ledger, over all its paths, in SI base units.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Goodput in bit/s.
    pub goodput: f64,
    /// Mean latency of a delivered packet, in seconds.
    pub latency: f64,
    /// The 99th percentile of latency, on the path where it is longest.
    pub latency_p99: f64,
    /// The longest latency.
    pub latency_max: f64,
    /// Mean difference of latency between consecutive packets of a flow, on the worst path.
    pub jitter: f64,
    /// Dropped packets per offered packet.
    pub loss: f64,
    /// Bytes over memory per byte delivered, on the path with most.
    pub memory_multiple: f64,
    /// Packets that sources made.
    pub offered: u64,
    /// Packets that sinks received.
    pub delivered: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// The busy and blocked share of the busiest resource.
    pub busy: f64,
    /// Its name; `None` if there are no resources.
    pub busiest: Option<String>,
}

/// A figure with an interval, for which a sweep can have a target.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Its name for users: `latency-p99`.
    pub name: &'static str,
    /// Its name as a column: `latency_p99`.
    pub column: &'static str,
    /// Its unit in print.
    pub unit: &'static str,
    /// Reads it from the figures.
    pub of: fn(&Measures) -> f64,
}

/// All measures.
pub const MEASURES: [Measure; 8] = [
    measure("goodput", "goodput", "bit/s", |m| m.goodput),
    measure("latency", "latency", "s", |m| m.latency),
    measure("latency-p99", "latency_p99", "s", |m| m.latency_p99),
    measure("latency-max", "latency_max", "s", |m| m.latency_max),
    measure("jitter", "jitter", "s", |m| m.jitter),
    measure("loss", "loss", "", |m| m.loss),
    measure("memory-multiple", "memory_multiple", "", |m| m.memory_multiple),
    measure("busy", "busy", "", |m| m.busy),
];

const fn measure(
    name: &'static str,
    column: &'static str,
    unit: &'static str,
    of: fn(&Measures) -> f64,
) -> Measure {
    Measure { name, column, unit, of }
}

impl Measure {
    /// The measure of this name.
    ///
    /// # Errors
    /// If there is none; the message lists them.
    pub fn find(name: &str) -> Result<&'static Measure, String> {
        MEASURES.iter().find(|measure| measure.name == name).ok_or_else(|| {
            let names = MEASURES.map(|measure| measure.name);
            match crate::document::nearest(name, names) {
                Some(near) => format!("there is no measure `{name}`: did you mean `{near}`?"),
                None => format!("there is no measure `{name}`: it is one of {}", names.join(", ")),
            }
        })
    }
}

impl Measures {
    /// The figures of a ledger.
    pub fn of(ledger: &Ledger) -> Measures {
        let totals = || ledger.paths.iter().map(|path| &path.totals);
        let worst =
            |values: &mut dyn Iterator<Item = Option<f64>>| values.flatten().fold(0.0, f64::max);
        let share = |resource: &&lastmeter_ledger::Resource| resource.utilisation();
        // The first of equally busy resources, so that the result is deterministic.
        let busiest = ledger.resources.iter().rev().max_by(|a, b| share(a).total_cmp(&share(b)));
        Measures {
            goodput: ledger.goodput(),
            latency: ledger.latency(),
            latency_p99: worst(&mut totals().map(|totals| totals.latency?.p99)),
            latency_max: worst(&mut totals().map(|totals| totals.latency?.max)),
            jitter: worst(&mut totals().map(|totals| totals.jitter)),
            loss: ledger.loss(),
            memory_multiple: worst(&mut totals().map(|totals| totals.memory_multiple)),
            offered: totals().map(|totals| totals.offered_packets()).sum(),
            delivered: totals().map(|totals| totals.delivered.packets).sum(),
            dropped: totals().map(|totals| totals.dropped_packets()).sum(),
            busy: busiest.as_ref().map_or(0.0, share),
            busiest: busiest.map(|resource| resource.name.clone()),
        }
    }
}

impl Row {
    /// The row of a run that has a ledger.
    pub(super) fn of(point: u64, replicate: u64, ledger: &Ledger) -> Row {
        let seed = ledger.provenance.seed.unwrap_or_default();
        let paths = Table::Paths.columns(ledger);
        Row { point, replicate, seed, result: Ok(Measures::of(ledger)), paths }
    }
}
