//! The rows of a sweep as tables: two Parquet data sets, which join by point and replicate.
//!
//! | table   | a row for each                  | columns                                       |
//! |---------|---------------------------------|-----------------------------------------------|
//! | `runs`  | run                             | which run, the factors, figures, why it failed |
//! | `paths` | path and class of each run      | which run, the factors, those of a ledger      |
//!
//! A factor whose values are all numbers, or all quantities of one kind, is a column of numbers in
//! SI base units; any other is text.

use super::factor::{Kind, number};
use super::plan::{Plan, Run};
use super::row::{MEASURES, Measures, Row};
use lastmeter_ledger::columns::{Columns, Values};

/// The table of runs, in the order of the rows.
pub fn runs(plan: &Plan, rows: &[Row]) -> Columns {
    let all: Vec<&Row> = rows.iter().collect();
    let mut columns = which(plan, &all);
    let good = |row: &Row| row.result.clone().ok();
    let count = |of: fn(&Measures) -> u64| {
        Values::CountOrNone(rows.iter().map(|row| good(row).map(|m| of(&m))).collect())
    };
    for measure in &MEASURES {
        let value = |row: &Row| row.result.as_ref().ok().map(measure.of);
        columns.add(measure.column, Values::RealOrNone(rows.iter().map(value).collect()));
    }
    columns.add("offered_packets", count(|m| m.offered));
    columns.add("delivered_packets", count(|m| m.delivered));
    columns.add("dropped_packets", count(|m| m.dropped));
    let busiest = rows.iter().map(|row| good(row).and_then(|m| m.busiest));
    columns.add("busiest", Values::TextOrNone(busiest.collect()));
    let failure = rows.iter().map(|row| row.result.clone().err());
    columns.add("failure", Values::TextOrNone(failure.collect()));
    columns
}

/// The table of paths, in the order of the rows.
pub fn paths(plan: &Plan, rows: &[Row]) -> Columns {
    let each: Vec<&Row> =
        rows.iter().flat_map(|row| std::iter::repeat_n(row, row.paths.rows())).collect();
    let mut columns = which(plan, &each);
    let mut figures = Columns::default();
    for row in rows.iter().filter(|row| row.paths.rows() > 0) {
        let same = figures.append(row.paths.clone());
        same.expect("ledgers of one version have the same columns");
    }
    // The seed is in the run's row already.
    figures.0.retain(|(name, _)| name != "seed");
    columns.0.extend(figures.0);
    columns
}

/// The run of each row, and the values of its factors.
fn which(plan: &Plan, rows: &[&Row]) -> Columns {
    let mut columns = Columns::default();
    columns.count("point", rows, |row| row.point);
    columns.count("replicate", rows, |row| row.replicate);
    columns.count("seed", rows, |row| row.seed);
    for (place, key) in plan.factors.iter().enumerate() {
        let values: Vec<&str> = plan.points.iter().map(|point| point[place].as_str()).collect();
        let of = |row: &&Row| row.point as usize;
        let column = match numbers(&values) {
            Some(numbers) => Values::Real(rows.iter().map(|row| numbers[of(row)]).collect()),
            None => Values::Text(rows.iter().map(|row| plain(values[of(row)])).collect()),
        };
        columns.add(key.clone(), column);
    }
    columns
}

/// A value without its quotes.
pub(super) fn plain(text: &str) -> String {
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    quoted.unwrap_or(text).to_owned()
}

/// Values as numbers in SI base units, if all are of the same kind.
fn numbers(values: &[&str]) -> Option<Vec<f64>> {
    let found: Vec<(f64, Kind)> = values.iter().map(|text| number(text)).collect::<Option<_>>()?;
    let same = |kind: Kind| if kind == Kind::Whole { Kind::Number } else { kind };
    let first = same(found.first()?.1);
    let all = found.iter().all(|&(_, kind)| same(kind) == first);
    all.then(|| found.iter().map(|&(value, kind)| value / kind.smallest_per_si()).collect())
}

/// The rows of a table made by [`runs`], without their paths.
///
/// # Errors
/// If the table does not belong to this plan; says why.
pub fn runs_back(plan: &Plan, columns: &Columns) -> Result<Vec<Row>, String> {
    let lacks = |name: &str| format!("there is no column `{name}` as sweeps write it");
    let count = |name: &str| match columns.get(name) {
        Some(Values::Count(values)) => Ok(values),
        _ => Err(lacks(name)),
    };
    let count_or_none = |name: &str| match columns.get(name) {
        Some(Values::CountOrNone(values)) => Ok(values),
        _ => Err(lacks(name)),
    };
    let real = |name: &str| match columns.get(name) {
        Some(Values::RealOrNone(values)) => Ok(values),
        _ => Err(lacks(name)),
    };
    let text = |name: &str| match columns.get(name) {
        Some(Values::TextOrNone(values)) => Ok(values),
        _ => Err(lacks(name)),
    };
    let (point, replicate, seed) = (count("point")?, count("replicate")?, count("seed")?);
    let (offered, delivered) =
        (count_or_none("offered_packets")?, count_or_none("delivered_packets")?);
    let dropped = count_or_none("dropped_packets")?;
    let (busiest, failure) = (text("busiest")?, text("failure")?);
    let goodput = real("goodput")?;
    let (latency, latency_p99) = (real("latency")?, real("latency_p99")?);
    let (latency_max, jitter) = (real("latency_max")?, real("jitter")?);
    let (loss, memory_multiple, busy) = (real("loss")?, real("memory_multiple")?, real("busy")?);
    let row = |at: usize| {
        let run = Run { point: point[at], replicate: replicate[at] };
        if seed[at] != plan.seed_of(run) {
            return Err(format!("run {} of point {} has another seed", run.replicate, run.point));
        }
        let measures = || {
            Some(Measures {
                goodput: goodput[at]?,
                latency: latency[at]?,
                latency_p99: latency_p99[at]?,
                latency_max: latency_max[at]?,
                jitter: jitter[at]?,
                loss: loss[at]?,
                memory_multiple: memory_multiple[at]?,
                offered: offered[at]?,
                delivered: delivered[at]?,
                dropped: dropped[at]?,
                busy: busy[at]?,
                busiest: busiest[at].clone(),
            })
        };
        let result = match &failure[at] {
            Some(words) => Err(words.clone()),
            None => Ok(measures().ok_or("a run that succeeded lacks a figure")?),
        };
        let paths = Columns::default();
        Ok(Row { point: run.point, replicate: run.replicate, seed: seed[at], result, paths })
    };
    (0..columns.rows()).map(row).collect()
}
