//! The result of a sweep, for people and programs: a line for each point, with intervals.

use super::plan::Plan;
use super::row::{MEASURES, Measures, Row};
use super::schedule::Schedule;
use super::statistics::Interval;
use super::table::plain;
use lastmeter_ledger::figures;
use lastmeter_ledger::terminal::{WIDTH_COLUMNS, wrap};
use std::collections::BTreeMap;

/// The version of the JSON of a sweep's result.
const SCHEMA: &str = "lastmeter.sweep/1";
/// The most points in the terminal's table; the data set has all.
const LINES_MAX: usize = 200;

/// A sweep, point by point.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    plan: &'a Plan,
    /// In the order of the plan.
    pub points: Vec<Point>,
    /// How many runs are done.
    pub runs: u64,
    /// How many of them failed.
    pub failed: u64,
    /// Whether every point has all the runs that the plan requires.
    pub complete: bool,
    /// Points whose intervals are still too wide after the greatest number of runs.
    pub wide: Vec<u64>,
}

/// The runs of a point.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Runs that failed.
    pub failed: u64,
    /// The reason of the first failure.
    pub failure: Option<String>,
    /// The interval of each of [`MEASURES`], in their order; `None` if no run has figures.
    pub intervals: Vec<Option<Interval>>,
    /// The resource that was busiest in most runs.
    pub busiest: Option<String>,
}

impl<'a> Report<'a> {
    /// The report of these rows.
    pub fn new(plan: &'a Plan, rows: &[Row], schedule: &Schedule) -> Report<'a> {
        let mut by_point: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            by_point.entry(row.point).or_default().push(row);
        }
        let (runs, failed, _) = schedule.progress();
        let none = Vec::new();
        let point = |point: u64| {
            let mut rows: Vec<&Row> = by_point.get(&point).unwrap_or(&none).clone();
            // Floating-point sums depend on their order.
            rows.sort_by_key(|row| row.replicate);
            Point::of(&rows)
        };
        Report {
            plan,
            points: (0..plan.points.len() as u64).map(point).collect(),
            runs,
            failed,
            complete: schedule.is_done(),
            wide: schedule.wide(),
        }
    }

    /// As text, at most `width` columns wide.
    pub fn table(&self, width: usize) -> String {
        let mut titles: Vec<String> = self.plan.factors.iter().map(|key| short(key)).collect();
        titles.extend(["runs", "goodput", "latency", "p99", "loss", "busiest"].map(str::to_owned));
        let mut lines = vec![titles];
        for (index, point) in self.points.iter().enumerate().take(LINES_MAX) {
            let runs = point.intervals.first().and_then(|i| *i).map_or(0, |i| i.count);
            if runs + point.failed == 0 {
                continue;
            }
            let mut cells: Vec<String> =
                self.plan.points[index].iter().map(|value| plain(value)).collect();
            cells.push((runs + point.failed).to_string());
            for name in ["goodput", "latency", "latency-p99", "loss"] {
                cells.push(point.interval(name).map_or("-".to_owned(), |i| words(name, &i)));
            }
            let busy = point.interval("busy").map_or(0.0, |interval| interval.mean);
            let last = match (&point.failure, &point.busiest) {
                (Some(failure), _) => failure.clone(),
                (None, Some(name)) => format!("{name} {:.0} %", busy * 100.0),
                (None, None) => String::new(),
            };
            cells.push(last);
            lines.push(cells);
        }
        if width < WIDTH_COLUMNS {
            return self.stacked(&lines, width);
        }
        // The least important columns are dropped first.
        for title in ["p99", "loss", "busiest"] {
            let place = lines[0].iter().position(|cell| cell == title);
            if let (true, Some(place)) = (widest(&lines) > width, place) {
                lines.iter_mut().for_each(|line| drop(line.remove(place)));
            }
        }
        let mut text = columns(&lines, width);
        if self.points.len() > LINES_MAX {
            text += &format!("... and {} points more\n", self.points.len() - LINES_MAX);
        }
        text + &self.words()
    }

    /// Each point with its figures below, for narrow terminals.
    fn stacked(&self, lines: &[Vec<String>], width: usize) -> String {
        let factors = self.plan.factors.len();
        let mut text = String::new();
        let mut add = |words: &str, indent: usize| {
            for line in wrap(words, width.saturating_sub(indent).max(20)) {
                text += &format!("{:indent$}{line}\n", "");
            }
        };
        for line in lines.iter().skip(1) {
            let cells = lines[0].iter().zip(line).map(|(title, cell)| format!("{title} {cell}"));
            let cells: Vec<String> = cells.collect();
            let (point, figures) = cells.split_at(factors);
            if !point.is_empty() {
                add(&point.join(", "), 0);
            }
            add(&figures.join(", "), 2);
        }
        if self.points.len() > LINES_MAX {
            add(&format!("... and {} points more", self.points.len() - LINES_MAX), 0);
        }
        add(&self.words(), 0);
        text
    }

    /// In a sentence or two.
    pub fn words(&self) -> String {
        let Report { runs, failed, .. } = self;
        let points = self.points.len();
        let mut words = format!("{runs} runs of {points} points ({})", self.plan.design);
        if *failed > 0 {
            words += &format!(", of which {failed} failed");
        }
        if !self.complete {
            words += "; not complete: `--resume` goes on";
        }
        if let (false, Some(until)) = (self.wide.is_empty(), &self.plan.until) {
            let (wide, most) = (self.wide.len(), until.most);
            words += &format!("; {wide} points are not as precise as requested after {most} runs");
        }
        words + ".\n"
    }

    /// As JSON.
    pub fn json(&self) -> serde_json::Value {
        let point = |(index, point): (usize, &Point)| {
            let values = self.plan.factors.iter().zip(&self.plan.points[index]);
            let factors: BTreeMap<&str, String> =
                values.map(|(key, value)| (key.as_str(), plain(value))).collect();
            let measures: BTreeMap<&str, &Interval> = MEASURES
                .iter()
                .zip(&point.intervals)
                .filter_map(|(measure, interval)| Some((measure.column, interval.as_ref()?)))
                .collect();
            serde_json::json!({
                "point": index,
                "factors": factors,
                "measures": measures,
                "busiest": point.busiest,
                "failed": point.failed,
                "failure": point.failure,
            })
        };
        let points: Vec<_> = self.points.iter().enumerate().map(point).collect();
        serde_json::json!({
            "schema": SCHEMA,
            "experiment": self.plan.experiment,
            "design": self.plan.design,
            "plan": self.plan.hash(),
            "runs": self.runs,
            "failed": self.failed,
            "complete": self.complete,
            "wide": self.wide,
            "points": points,
        })
    }
}

impl Point {
    fn of(rows: &[&Row]) -> Point {
        let good: Vec<&Measures> = rows.iter().filter_map(|row| row.result.as_ref().ok()).collect();
        let interval = |measure: &super::Measure| {
            Interval::of(&good.iter().map(|m| (measure.of)(m)).collect::<Vec<_>>())
        };
        let mut busiest: BTreeMap<&str, u64> = BTreeMap::new();
        for name in good.iter().filter_map(|measures| measures.busiest.as_deref()) {
            *busiest.entry(name).or_default() += 1;
        }
        let failure = rows.iter().find_map(|row| row.result.as_ref().err());
        Point {
            failed: (rows.len() - good.len()) as u64,
            failure: failure.cloned(),
            intervals: MEASURES.iter().map(interval).collect(),
            busiest: busiest.into_iter().rev().max_by_key(|&(_, n)| n).map(|(n, _)| n.to_owned()),
        }
    }

    /// The interval of a measure.
    pub fn interval(&self, name: &str) -> Option<Interval> {
        let place = MEASURES.iter().position(|measure| measure.name == name)?;
        *self.intervals.get(place)?
    }
}

/// A key without the prefix that all keys of its kind share.
fn short(key: &str) -> String {
    const WIDTH: usize = 24;
    let parts: Vec<&str> = key.split('.').collect();
    let mut from = 0;
    while parts[from..].join(".").chars().count() > WIDTH && from + 1 < parts.len() {
        from += 1;
    }
    parts[from..].join(".")
}

/// A mean with its interval, in the measure's unit.
fn words(name: &str, interval: &Interval) -> String {
    let show = |value: f64| match name {
        "goodput" => figures::rate(value),
        "loss" => figures::share(value),
        _ => figures::time(value),
    };
    match interval.half_width {
        None => show(interval.mean),
        Some(_) if interval.mean == 0.0 && interval.deviation == 0.0 => show(0.0),
        Some(half) => {
            let percent = half / interval.mean.abs() * 100.0;
            format!("{} ± {} %", show(interval.mean), figures::significant(percent))
        }
    }
}

/// The width of each column.
fn widths(lines: &[Vec<String>]) -> Vec<usize> {
    let count = lines.first().map_or(0, Vec::len);
    let widest = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    (0..count).map(widest).collect()
}

/// The width of the longest line.
fn widest(lines: &[Vec<String>]) -> usize {
    widths(lines).iter().map(|width| width + 2).sum::<usize>().saturating_sub(2)
}

/// Columns as wide as their widest cell; lines end at `width`.
fn columns(lines: &[Vec<String>], width: usize) -> String {
    let widths = widths(lines);
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let whole = cells.collect::<Vec<_>>().join("  ");
        let cut: String = whole.trim_end().chars().take(width).collect();
        text += cut.trim_end();
        text.push('\n');
    }
    text
}
