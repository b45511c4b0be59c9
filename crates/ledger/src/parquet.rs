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
//!
//! Values are SI base units, as in the JSON, and columns are named as its fields are. Pages are
//! compressed with Snappy.

use super::columns::{Columns, Values};
use crate::{Ledger, Path, Times};
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
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 6] =
        [Table::Paths, Table::Stages, Table::Drops, Table::Resources, Table::Uses, Table::WhatIfs];

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
        }
    }
}

/// Writes one table of a ledger as a Parquet file.
///
/// ```
/// use lastmeter_engine::Graph;
/// use lastmeter_lab::close::{Close, close};
/// use lastmeter_ledger::parquet::{Table, write};
/// let outcome = Graph::new(1).build(1)?.finish()?;
/// let mut file = Vec::new();
/// write(&close(&outcome, Close::default()), Table::Stages, &mut file)?;
/// assert_eq!(&file[..4], b"PAR1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If `out` cannot take it.
pub fn write(ledger: &Ledger, table: Table, out: impl Write + Send) -> Result<()> {
    let about = [("lastmeter.schema", &*ledger.schema), ("lastmeter.title", &*ledger.title)];
    table.columns(ledger).write(table.name(), &about, out)
}

/// A table with a row for each of `rows`, beginning with what names the run.
fn begun<T>(ledger: &Ledger, rows: &[T]) -> Columns {
    let provenance = &ledger.provenance;
    let same = |text: &str| Values::Text(rows.iter().map(|_| text.to_owned()).collect());
    let mut columns = Columns::default();
    columns.add("experiment", same(&provenance.experiment.name));
    columns.add("experiment_hash", same(&provenance.experiment.hash));
    columns.add("seed", Values::Count(rows.iter().map(|_| provenance.seed).collect()));
    columns
}

fn times<T>(columns: &mut Columns, name: &str, rows: &[T], value: impl Fn(&T) -> Times) {
    columns.real(&format!("{name}_mean"), rows, |row| value(row).mean);
    columns.real(&format!("{name}_p50"), rows, |row| value(row).p50);
    columns.real(&format!("{name}_p99"), rows, |row| value(row).p99);
}

fn paths(ledger: &Ledger) -> Columns {
    let rows: Vec<&Path> = ledger.paths.iter().collect();
    let mut columns = begun(ledger, &rows);
    columns.text("path", &rows, |path| &path.name);
    columns.text("class", &rows, |path| &path.class);
    columns.count("offered_packets", &rows, |path| path.totals.offered.packets);
    columns.count("offered_bytes", &rows, |path| path.totals.offered.bytes);
    columns.count("delivered_packets", &rows, |path| path.totals.delivered.packets);
    columns.count("delivered_bytes", &rows, |path| path.totals.delivered.bytes);
    columns.count("dropped_packets", &rows, |path| path.totals.dropped.packets);
    columns.count("dropped_bytes", &rows, |path| path.totals.dropped.bytes);
    columns.count("held", &rows, |path| path.totals.held);
    columns.real("goodput", &rows, |path| path.totals.goodput);
    columns.real("loss", &rows, |path| path.totals.loss);
    columns.real("latency_mean", &rows, |path| path.totals.latency.mean);
    columns.real("latency_p50", &rows, |path| path.totals.latency.p50);
    columns.real("latency_p99", &rows, |path| path.totals.latency.p99);
    columns.real("latency_max", &rows, |path| path.totals.latency.max);
    columns.real("jitter", &rows, |path| path.totals.jitter);
    columns.count("reordered", &rows, |path| path.totals.reordered);
    columns.count("corrupted", &rows, |path| path.totals.corrupted);
    columns.real("memory_multiple", &rows, |path| path.totals.memory_multiple);
    let deadlines = |path: &&Path| path.totals.deadlines.unwrap_or_default();
    columns.count("messages", &rows, |path| deadlines(path).made);
    columns.count("deadlines_met", &rows, |path| deadlines(path).met);
    columns.count("deadlines_late", &rows, |path| deadlines(path).late);
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
    columns.count("packets", &rows, |row| row.2.packets);
    columns.count("bytes", &rows, |row| row.2.bytes);
    times(&mut columns, "wait", &rows, |row| row.2.wait);
    times(&mut columns, "service", &rows, |row| row.2.service);
    times(&mut columns, "blocked", &rows, |row| row.2.blocked);
    columns.count("copies", &rows, |row| u64::from(row.2.copies));
    columns.count("touches", &rows, |row| u64::from(row.2.touches));
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
    columns.count("units", &rows, |row| u64::from(row.units));
    columns.real("busy", &rows, |row| row.busy);
    columns.real("blocked", &rows, |row| row.blocked);
    columns.real("idle", &rows, |row| row.idle);
    columns.real("bytes_per_delivered_byte", &rows, |row| row.bytes_per_delivered_byte);
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
    columns.real("predicted", &rows, |row| row.predicted);
    columns.add("measured", Values::RealOrNone(rows.iter().map(|row| row.measured).collect()));
    columns.add("error", Values::RealOrNone(rows.iter().map(|row| row.error).collect()));
    columns.real("gain", &rows, |row| row.gain);
    columns
}
