//! The ledger as Parquet: what data frames read, of one run or of a thousand.
//!
//! A ledger is several tables, so it is several files, one for each [`Table`]: a single file would
//! be mostly empty columns. Each row carries the experiment, its hash and the seed, so that the
//! files of many runs can be read as one and joined.
//!
//! | table       | a row for each           | joins by                   |
//! |-------------|--------------------------|----------------------------|
//! | `paths`     | path and class           | `path`, `class`            |
//! | `stages`    | stage of a path          | `path`, `class`, `stage`   |
//! | `drops`     | reason at a stage        | `path`, `class`, `stage`   |
//! | `resources` | resource                 | `resource`                 |
//! | `uses`      | stage that a resource served | `resource`, `stage`    |
//! | `what_ifs`  | change                   | -                          |
//! | `latencies` | share of a path's packets | `path`, `class`           |
//! | `series`    | step of a quantity over time | -                      |
//!
//! What was not measured is null. Values are SI base units, as in the JSON, and columns are named as
//! its fields are. Pages are compressed with Snappy.

use super::columns::{Columns, Values};
use crate::{Ledger, Path, Place, Times};
use std::io::{Result, Write};

/// Which part of a ledger a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// A row for each path and class: its totals.
    Paths,
    /// A row for each stage of each path, in path order.
    Stages,
    /// A row for each reason for which a stage of a path dropped.
    Drops,
    /// A row for each resource.
    Resources,
    /// A row for each stage that a resource served.
    Uses,
    /// A row for each change.
    WhatIfs,
    /// A row for each share of each path's distribution of latency.
    Latencies,
    /// A row for each step of each quantity over time.
    Series,
    /// A row for each quantity whose shares of time are known.
    Levels,
    /// A row for each figure over several seeds.
    Estimates,
    /// A row for each counter of each element.
    Counters,
    /// A row for each transfer.
    Transfers,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 12] = [
        Table::Paths,
        Table::Stages,
        Table::Drops,
        Table::Resources,
        Table::Uses,
        Table::WhatIfs,
        Table::Latencies,
        Table::Series,
        Table::Levels,
        Table::Estimates,
        Table::Counters,
        Table::Transfers,
    ];

    /// The name, and what its file should be called, without `.parquet`.
    ///
    /// ```
    /// use lastmeter_ledger::parquet::Table;
    /// assert_eq!(Table::WhatIfs.name(), "what_ifs");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Table::Paths => "paths",
            Table::Stages => "stages",
            Table::Drops => "drops",
            Table::Resources => "resources",
            Table::Uses => "uses",
            Table::WhatIfs => "what_ifs",
            Table::Latencies => "latencies",
            Table::Series => "series",
            Table::Levels => "levels",
            Table::Estimates => "estimates",
            Table::Counters => "counters",
            Table::Transfers => "transfers",
        }
    }

    /// The table of a ledger.
    pub fn columns(self, ledger: &Ledger) -> Columns {
        match self {
            Table::Paths => paths(ledger),
            Table::Stages => stages(ledger),
            Table::Drops => drops(ledger),
            Table::Resources => resources(ledger),
            Table::Uses => uses(ledger),
            Table::WhatIfs => what_ifs(ledger),
            Table::Latencies => latencies(ledger),
            Table::Series => series(ledger),
            Table::Levels => levels(ledger),
            Table::Estimates => estimates(ledger),
            Table::Counters => counters(ledger),
            Table::Transfers => transfers(ledger),
        }
    }
}

/// Writes one table of a ledger as a Parquet file.
///
/// ```
/// use lastmeter_ledger::parquet::{Table, write};
/// use lastmeter_ledger::{Ledger, Provenance};
/// let ledger = Ledger::new("empty", 1.0, Vec::new(), Vec::new(), Provenance::default());
/// let mut file = Vec::new();
/// write(&ledger, Table::Stages, &mut file)?;
/// assert_eq!(&file[..4], b"PAR1");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// If writing to `out` fails.
pub fn write(ledger: &Ledger, table: Table, out: impl Write + Send) -> Result<()> {
    let about = [("lastmeter.schema", &*ledger.schema), ("lastmeter.title", &*ledger.title)];
    table.columns(ledger).write(table.name(), &about, out)
}

/// A table with a row for each of `rows`; its first columns identify the run.
fn begun<T>(ledger: &Ledger, rows: &[T]) -> Columns {
    let provenance = &ledger.provenance;
    let same = |text: &str| Values::Text(rows.iter().map(|_| text.to_owned()).collect());
    let mut columns = Columns::default();
    columns.add("experiment", same(&provenance.experiment.name));
    columns.add("experiment_hash", same(&provenance.experiment.hash));
    columns.add("seed", Values::CountOrNone(rows.iter().map(|_| provenance.seed).collect()));
    columns
}

/// Adds a column of numbers that may be absent.
fn real<T>(columns: &mut Columns, name: &str, rows: &[T], value: impl Fn(&T) -> Option<f64>) {
    columns.add(name, Values::RealOrNone(rows.iter().map(value).collect()));
}

/// Adds a column of counts that may be absent.
fn count<T>(columns: &mut Columns, name: &str, rows: &[T], value: impl Fn(&T) -> Option<u64>) {
    columns.add(name, Values::CountOrNone(rows.iter().map(value).collect()));
}

fn times<T>(columns: &mut Columns, name: &str, rows: &[T], value: impl Fn(&T) -> Option<Times>) {
    real(columns, &format!("{name}_mean"), rows, |row| Some(value(row)?.mean));
    real(columns, &format!("{name}_p50"), rows, |row| value(row)?.p50);
    real(columns, &format!("{name}_p99"), rows, |row| value(row)?.p99);
}

/// Adds each row's host, group, role and source.
fn place<T>(columns: &mut Columns, rows: &[T], value: impl Fn(&T) -> Place) {
    let mut column = |name, part: fn(Place) -> Option<String>| {
        let texts = rows.iter().map(|row| part(value(row)));
        columns.add(name, Values::TextOrNone(texts.collect()));
    };
    column("host", |place| place.host);
    column("group", |place| place.group);
    column("role", |place| place.role);
    column("source", |place| place.source);
}

fn paths(ledger: &Ledger) -> Columns {
    let rows: Vec<&Path> = ledger.paths.iter().collect();
    let mut columns = begun(ledger, &rows);
    columns.text("path", &rows, |path| &path.name);
    columns.text("class", &rows, |path| &path.class);
    count(&mut columns, "offered_packets", &rows, |path| Some(path.totals.offered?.packets));
    count(&mut columns, "offered_bytes", &rows, |path| Some(path.totals.offered?.bytes));
    columns.count("delivered_packets", &rows, |path| path.totals.delivered.packets);
    columns.count("delivered_bytes", &rows, |path| path.totals.delivered.bytes);
    count(&mut columns, "dropped_packets", &rows, |path| Some(path.totals.dropped?.packets));
    count(&mut columns, "dropped_bytes", &rows, |path| Some(path.totals.dropped?.bytes));
    count(&mut columns, "held", &rows, |path| path.totals.held);
    columns.real("goodput", &rows, |path| path.totals.goodput);
    real(&mut columns, "loss", &rows, |path| path.totals.loss);
    real(&mut columns, "latency_mean", &rows, |path| Some(path.totals.latency?.mean));
    real(&mut columns, "latency_p50", &rows, |path| path.totals.latency?.p50);
    real(&mut columns, "latency_p99", &rows, |path| path.totals.latency?.p99);
    real(&mut columns, "latency_max", &rows, |path| path.totals.latency?.max);
    real(&mut columns, "jitter", &rows, |path| path.totals.jitter);
    count(&mut columns, "reordered", &rows, |path| path.totals.reordered);
    count(&mut columns, "corrupted", &rows, |path| path.totals.corrupted);
    real(&mut columns, "memory_multiple", &rows, |path| path.totals.memory_multiple);
    count(&mut columns, "messages", &rows, |path| Some(path.totals.deadlines?.made));
    count(&mut columns, "deadlines_met", &rows, |path| Some(path.totals.deadlines?.met));
    count(&mut columns, "deadlines_late", &rows, |path| Some(path.totals.deadlines?.late));
    columns
}

fn stages(ledger: &Ledger) -> Columns {
    let paths = ledger.paths.iter();
    let rows: Vec<_> = paths
        .flat_map(|path| path.stages.iter().enumerate().map(move |(place, one)| (path, place, one)))
        .collect();
    let mut columns = begun(ledger, &rows);
    columns.text("path", &rows, |row| &row.0.name);
    columns.text("class", &rows, |row| &row.0.class);
    columns.count("place", &rows, |row| row.1 as u64);
    columns.text("stage", &rows, |row| &row.2.name);
    let served_by = rows.iter().map(|row| row.2.resource.clone());
    columns.add("resource", Values::TextOrNone(served_by.collect()));
    place(&mut columns, &rows, |row| row.2.place.clone());
    columns.count("packets", &rows, |row| row.2.packets);
    columns.count("bytes", &rows, |row| row.2.bytes);
    times(&mut columns, "wait", &rows, |row| row.2.wait);
    times(&mut columns, "service", &rows, |row| row.2.service);
    times(&mut columns, "blocked", &rows, |row| row.2.blocked);
    count(&mut columns, "copies", &rows, |row| row.2.copies.map(u64::from));
    count(&mut columns, "touches", &rows, |row| row.2.touches.map(u64::from));
    columns.count("drops", &rows, |row| row.2.drops.values().sum());
    columns
}

fn drops(ledger: &Ledger) -> Columns {
    let stages = ledger.paths.iter().flat_map(|path| path.stages.iter().map(move |s| (path, s)));
    let rows: Vec<_> = stages
        .flat_map(|(path, stage)| stage.drops.iter().map(move |(why, n)| (path, stage, why, *n)))
        .collect();
    let mut columns = begun(ledger, &rows);
    columns.text("path", &rows, |row| &row.0.name);
    columns.text("class", &rows, |row| &row.0.class);
    columns.text("stage", &rows, |row| &row.1.name);
    columns.text("reason", &rows, |row| row.2);
    columns.count("packets", &rows, |row| row.3);
    columns
}

fn resources(ledger: &Ledger) -> Columns {
    let rows: Vec<_> = ledger.resources.iter().collect();
    let mut columns = begun(ledger, &rows);
    columns.text("resource", &rows, |row| &row.name);
    columns.text("kind", &rows, |row| &row.kind);
    place(&mut columns, &rows, |row| row.place.clone());
    columns.count("units", &rows, |row| u64::from(row.units));
    columns.real("busy", &rows, |row| row.busy);
    real(&mut columns, "blocked", &rows, |row| row.blocked);
    columns.real("idle", &rows, |row| row.idle);
    real(&mut columns, "bytes_per_delivered_byte", &rows, |row| row.bytes_per_delivered_byte);
    let limits = |name: &String| {
        let verdict = ledger.verdict.as_ref();
        u64::from(verdict.is_some_and(|verdict| verdict.resource.as_ref() == Some(name)))
    };
    columns.count("limits", &rows, |row| limits(&row.name));
    columns
}

fn uses(ledger: &Ledger) -> Columns {
    let resources = ledger.resources.iter();
    let rows: Vec<_> = resources
        .flat_map(|one| one.by_stage.iter().map(move |(stage, busy)| (one, stage, *busy)))
        .collect();
    let mut columns = begun(ledger, &rows);
    columns.text("resource", &rows, |row| &row.0.name);
    columns.text("stage", &rows, |row| row.1);
    columns.real("busy", &rows, |row| row.2);
    columns
}

fn what_ifs(ledger: &Ledger) -> Columns {
    let rows: Vec<_> = ledger.what_ifs.iter().collect();
    let mut columns = begun(ledger, &rows);
    columns.text("change", &rows, |row| &row.change);
    columns.text("metric", &rows, |row| &row.metric);
    columns.real("baseline", &rows, |row| row.baseline);
    columns.add("predicted", Values::RealOrNone(rows.iter().map(|row| row.predicted).collect()));
    columns.add("measured", Values::RealOrNone(rows.iter().map(|row| row.measured).collect()));
    columns.add("error", Values::RealOrNone(rows.iter().map(|row| row.error).collect()));
    columns.real("gain", &rows, |row| row.gain);
    columns.add("share", Values::RealOrNone(rows.iter().map(|row| row.share).collect()));
    columns
}

fn latencies(ledger: &Ledger) -> Columns {
    let paths = ledger.paths.iter();
    let rows: Vec<_> =
        paths.flat_map(|path| path.latencies.iter().map(move |one| (path, *one))).collect();
    let mut columns = begun(ledger, &rows);
    columns.text("path", &rows, |row| &row.0.name);
    columns.text("class", &rows, |row| &row.0.class);
    columns.real("share", &rows, |row| row.1.share);
    columns.real("latency", &rows, |row| row.1.latency);
    columns
}

fn series(ledger: &Ledger) -> Columns {
    let all = ledger.series.iter();
    let rows: Vec<_> = all.flat_map(|one| one.steps.iter().map(move |step| (one, *step))).collect();
    let mut columns = begun(ledger, &rows);
    columns.text("series", &rows, |row| &row.0.name);
    columns.text("unit", &rows, |row| &row.0.unit);
    columns.real("step", &rows, |row| row.0.step);
    columns.real("at", &rows, |row| row.1.at);
    columns.real("least", &rows, |row| row.1.least);
    columns.real("most", &rows, |row| row.1.most);
    columns
}

fn levels(ledger: &Ledger) -> Columns {
    let rows = &ledger.levels;
    let mut columns = begun(ledger, rows);
    columns.text("quantity", rows, |row| &row.name);
    columns.text("unit", rows, |row| &row.unit);
    columns.real("mean", rows, |row| row.mean);
    columns.real("least", rows, |row| row.least);
    columns.real("p50", rows, |row| row.p50);
    columns.real("p90", rows, |row| row.p90);
    columns.real("p99", rows, |row| row.p99);
    columns.real("most", rows, |row| row.most);
    columns
}

fn estimates(ledger: &Ledger) -> Columns {
    let rows = &ledger.estimates;
    let mut columns = begun(ledger, rows);
    columns.text("of", rows, |row| &row.of);
    columns.text("measure", rows, |row| &row.measure);
    columns.text("unit", rows, |row| &row.unit);
    columns.count("runs", rows, |row| row.runs);
    columns.real("mean", rows, |row| row.mean);
    real(&mut columns, "half_width", rows, |row| row.half_width);
    columns
}

fn counters(ledger: &Ledger) -> Columns {
    let rows = &ledger.counters;
    let mut columns = begun(ledger, rows);
    columns.text("element", rows, |row| &row.element);
    columns.text("counter", rows, |row| &row.name);
    columns.count("value", rows, |row| row.value);
    columns
}

fn transfers(ledger: &Ledger) -> Columns {
    let all = ledger.transfers.iter();
    let rows: Vec<_> = all.flat_map(|one| one.each.iter().map(move |each| (one, *each))).collect();
    let mut columns = begun(ledger, &rows);
    columns.text("traffic", &rows, |row| &row.0.name);
    columns.count("flow", &rows, |row| row.1.flow.into());
    columns.real("began", &rows, |row| row.1.began);
    real(&mut columns, "completed", &rows, |row| row.1.completed);
    columns.count("bytes", &rows, |row| row.1.bytes);
    columns.real("goodput", &rows, |row| row.1.goodput);
    columns
}
