//! Two ledgers side by side: what changed, largest change first.
//!
//! Paths are matched by name and class, stages by name within their path, resources by name. What
//! only one ledger has is listed, and not compared.

use super::figures;
use crate::terminal::{WIDTH_COLUMNS, paint};
use crate::{Ledger, Path, Stage};
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of the JSON. It changes when a key changes its meaning or is removed.
pub const SCHEMA: &str = "lastmeter.comparison/1";

/// The quantity of a figure, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Seconds.
    Time,
    /// Bits per second.
    Rate,
    /// A fraction.
    Share,
    /// Packets.
    Packets,
    /// A number without unit.
    Number,
}

impl Kind {
    /// Its SI unit; empty where it has none.
    pub fn unit(self) -> &'static str {
        match self {
            Kind::Time => "s",
            Kind::Rate => "bit/s",
            Kind::Packets => "packets",
            Kind::Share | Kind::Number => "",
        }
    }
    /// The value as text for readers.
    pub(crate) fn words(self, value: f64) -> String {
        match self {
            Kind::Time => figures::time(value),
            Kind::Rate => figures::rate(value),
            Kind::Share => figures::share(value),
            Kind::Packets => figures::count(value as u64),
            Kind::Number => figures::significant(value),
        }
    }
}

/// One figure of both ledgers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The path, stage or resource.
    pub of: String,
    /// Which figure: `goodput`, `busy`.
    pub what: String,
    /// Its quantity.
    pub kind: Kind,
    /// In the first ledger; `None` if absent there.
    pub first: Option<f64>,
    /// In the second.
    pub second: Option<f64>,
}

impl Line {
    /// How much more the second is; `None` where one is missing.
    pub fn difference(&self) -> Option<f64> {
        Some(self.second? - self.first?)
    }

    /// The change in words: in percent, for shares in points.
    pub fn change(&self) -> String {
        let Some(difference) = self.difference() else {
            return match (self.first, self.second) {
                (Some(_), None) => "gone".to_owned(),
                _ => "new".to_owned(),
            };
        };
        let first = self.first.unwrap_or(0.0);
        match self.kind {
            _ if difference == 0.0 => "same".to_owned(),
            Kind::Share => format!("{:+.1} points", difference * 100.0),
            _ if first == 0.0 => "from none".to_owned(),
            _ => figures::gain(difference / first),
        }
    }
}

/// Two ledgers side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// Their names.
    pub names: [String; 2],
    /// Their titles.
    pub titles: [String; 2],
    /// What limits each, in words; empty where there is no verdict.
    pub verdicts: [String; 2],
    /// Whether both are of the same experiment with the same changes and seed.
    pub same_experiment: bool,
    /// Of all paths together and of each.
    pub totals: Vec<Line>,
    /// Mean time at each stage, largest change first.
    pub stages: Vec<Line>,
    /// Busy and blocked share of each resource, largest change first.
    pub resources: Vec<Line>,
}

impl Comparison {
    /// Compares `second` with `first`, under these names.
    ///
    /// ```
    /// use lastmeter_ledger::compare::Comparison;
    /// use lastmeter_ledger::{Ledger, Provenance};
    /// let ledger = Ledger::new("empty", 1.0, Vec::new(), Vec::new(), Provenance::default());
    /// let same = Comparison::new(["a", "b"], [&ledger, &ledger]);
    /// assert!(same.totals.iter().all(|line| line.change() == "same"));
    /// ```
    pub fn new(names: [&str; 2], ledgers: [&Ledger; 2]) -> Comparison {
        let verdict = |ledger: &Ledger| {
            ledger.verdict.as_ref().map_or_else(String::new, |verdict| verdict.words.clone())
        };
        let [first, second] = ledgers;
        let origin = |ledger: &Ledger| {
            let provenance = &ledger.provenance;
            (provenance.experiment.hash.clone(), provenance.seed)
        };
        Comparison {
            schema: SCHEMA,
            names: names.map(str::to_owned),
            titles: ledgers.map(|ledger| ledger.title.clone()),
            verdicts: ledgers.map(verdict),
            same_experiment: origin(first) == origin(second),
            totals: totals(ledgers),
            stages: by_change(stages(ledgers)),
            resources: by_change(resources(ledgers)),
        }
    }

    /// As text, at most `width` columns wide.
    pub fn text(&self, width: usize) -> String {
        let mut text = String::new();
        for (place, letter) in ["A", "B"].into_iter().enumerate() {
            let title = format!("{}: {}", self.names[place], self.titles[place]);
            for (at, line) in wrapped(&title, width).into_iter().enumerate() {
                text += &format!("{}  {line}\n", if at == 0 { letter } else { " " });
            }
            if !self.verdicts[place].is_empty() {
                for line in wrapped(&self.verdicts[place], width) {
                    text += &format!("   {line}\n");
                }
            }
        }
        if self.same_experiment {
            text += "Both are of the same experiment, changes and seed.\n";
        }
        let parts = [
            ("TOTALS", &self.totals),
            ("STAGES, mean time of a delivered packet", &self.stages),
            ("RESOURCES, busy and blocked", &self.resources),
        ];
        for (title, lines) in parts {
            text += &format!("\n{title}\n{}", table(lines, width));
        }
        // Names come from outside and must not control the terminal.
        text.replace(|c: char| c.is_control() && c != '\n', " ")
    }
}

fn line(of: &str, what: &str, kind: Kind, first: Option<f64>, second: Option<f64>) -> Line {
    Line { of: of.to_owned(), what: what.to_owned(), kind, first, second }
}

fn totals(ledgers: [&Ledger; 2]) -> Vec<Line> {
    let [first, second] = ledgers;
    let whole = |what, kind, of: fn(&Ledger) -> f64| {
        line("all paths", what, kind, Some(of(first)), Some(of(second)))
    };
    let mut lines = vec![
        whole("goodput", Kind::Rate, Ledger::goodput),
        whole("latency", Kind::Time, Ledger::latency),
        whole("loss", Kind::Share, Ledger::loss),
    ];
    type Figure = (&'static str, Kind, fn(&Path) -> Option<f64>);
    const FIGURES: [Figure; 6] = [
        ("goodput", Kind::Rate, |path| Some(path.totals.goodput)),
        ("delivered", Kind::Packets, |path| Some(path.totals.delivered.packets as f64)),
        ("latency", Kind::Time, |path| Some(path.totals.latency?.mean)),
        ("latency, 99 %", Kind::Time, |path| path.totals.latency?.p99),
        ("loss", Kind::Share, |path| path.totals.loss),
        ("memory multiple", Kind::Number, |path| path.totals.memory_multiple),
    ];
    let key = |path: &Path| format!("{}, {}", path.name, path.class);
    let paths = ledgers.map(|ledger| ledger.paths.iter().map(|path| (key(path), path)).collect());
    for (name, [first, second]) in matched(paths) {
        for (what, kind, of) in FIGURES {
            let (first, second) = (first.and_then(of), second.and_then(of));
            if first.or(second).is_some() {
                lines.push(line(&name, what, kind, first, second));
            }
        }
    }
    lines
}

fn stages(ledgers: [&Ledger; 2]) -> Vec<Line> {
    let all = ledgers.map(|ledger| {
        let of = |path: &'_ Path, stage: &Stage| format!("{} ({})", stage.name, path.class);
        let paths = ledger.paths.iter();
        paths
            .flat_map(|path| path.stages.iter().map(move |stage| (of(path, stage), stage)))
            .collect()
    });
    let mean = |stage: &Stage| stage.mean();
    let pair = |(name, [first, second]): (String, [Option<&Stage>; 2])| {
        line(&name, "mean time", Kind::Time, first.map(mean), second.map(mean))
    };
    matched(all).into_iter().map(pair).collect()
}

fn resources(ledgers: [&Ledger; 2]) -> Vec<Line> {
    let all = ledgers.map(|ledger| {
        let of = |one: &crate::Resource| (one.name.clone(), one.utilisation());
        ledger.resources.iter().map(of).collect()
    });
    let pair = |(name, [first, second]): (String, [Option<f64>; 2])| {
        line(&name, "in use", Kind::Share, first, second)
    };
    matched(all).into_iter().map(pair).collect()
}

/// Pairs entries of the same name: in the order of the first ledger, then those only in the second.
fn matched<T: Copy>(both: [Vec<(String, T)>; 2]) -> Vec<(String, [Option<T>; 2])> {
    let [first, second] = both;
    let mut others: BTreeMap<String, T> = second.iter().cloned().collect();
    let mut pairs: Vec<(String, [Option<T>; 2])> = first
        .into_iter()
        .map(|(name, value)| {
            let other = others.remove(&name);
            (name, [Some(value), other])
        })
        .collect();
    for (name, value) in second {
        if others.remove(&name).is_some() {
            pairs.push((name, [None, Some(value)]));
        }
    }
    pairs
}

/// Largest change first; an entry of only one ledger counts as wholly changed.
fn by_change(mut lines: Vec<Line>) -> Vec<Line> {
    let size = |line: &Line| (line.second.unwrap_or(0.0) - line.first.unwrap_or(0.0)).abs();
    lines.sort_by(|a, b| size(b).total_cmp(&size(a)));
    lines
}

/// Lines beside a letter.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    paint::wrap(text, width.saturating_sub(3).max(20))
}

/// A name with its figures below, for narrow terminals.
fn stacked(line: &Line, name: &str, width: usize) -> String {
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), |v| line.kind.words(v));
    let figures =
        format!("A {}, B {}, change {}", cell(line.first), cell(line.second), line.change());
    let names = paint::wrap_name(name, width.saturating_sub(2).max(20));
    let figures = paint::wrap(&figures, width.saturating_sub(4).max(20));
    let names = names.into_iter().map(|one| format!("  {one}\n"));
    names.chain(figures.into_iter().map(|one| format!("    {one}\n"))).collect()
}

fn table(lines: &[Line], width: usize) -> String {
    const NUMBERS: usize = 46;
    let name = |line: &Line| format!("{}: {}", line.of, line.what);
    if width < WIDTH_COLUMNS {
        return lines.iter().map(|line| stacked(line, &name(line), width)).collect();
    }
    let longest = lines.iter().map(|line| name(line).chars().count()).max().unwrap_or(0);
    let room = width.saturating_sub(NUMBERS + 2).max(16);
    let names = longest.clamp(2, room);
    let mut text = format!("  {:<names$} {:>14} {:>14} {:>14}\n", "", "A", "B", "change");
    for line in lines {
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |v| line.kind.words(v));
        let full = name(line);
        // The end of a long name distinguishes its figure from the next.
        let cut = full.chars().count().saturating_sub(names);
        let shown: String = match cut {
            0 => full,
            _ => format!("…{}", full.chars().skip(cut + 1).collect::<String>()),
        };
        let (first, second, change) = (cell(line.first), cell(line.second), line.change());
        text += &format!("  {shown:<names$} {first:>14} {second:>14} {change:>14}\n");
    }
    text
}
