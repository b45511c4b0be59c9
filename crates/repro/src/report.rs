//! The result of a reproduction: rows, a sheet per experiment, and a summary per system.

use super::folder::{Contradiction, Role};
use super::published::Published;
use crate::Origins;
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of a row's JSON. It changes when a key changes its meaning or goes away.
pub const SCHEMA: &str = "lastmeter.repro/2";

/// One published value, and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// As in the list of published values.
    pub id: String,
    /// What it is, unique among the rows of this id.
    pub item: String,
    /// What the document says: a number, the two ends of a range, or `true` for a statement.
    pub published: Published,
    /// What we get, in the same unit; `None` where nothing was computed. A statement that holds
    /// is 1.
    pub measured: Option<f64>,
    /// Relative to the published value, with its sign; none for a statement, a bound that holds and a
    /// range that contains ours.
    pub error: Option<f64>,
    /// How near is near enough, as `expected.csv` has it.
    pub tolerance: String,
    /// Whether it is.
    pub pass: bool,
    /// What a reader should know.
    pub note: String,
    /// The unit of both values, as the document has it.
    pub unit: String,
    /// Where the document says so.
    pub section: String,
    /// Whether it was given, fitted, derived, a shape or predicted.
    pub role: Role,
    /// The experiment that it belongs to.
    pub experiment: String,
    /// Whether the document contradicts itself about it.
    pub contradicted: bool,
}

/// The rows of one experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// The name of its folder.
    pub name: String,
    /// The letter of the system that it belongs to.
    pub system: String,
    /// What it is called.
    pub title: String,
    /// What it is meant to answer.
    pub question: String,
    /// Where its constants come from.
    pub constants: Origins,
    /// Where the document contradicts itself about these rows.
    pub contradictions: Vec<Contradiction>,
    /// Rows that only a full run judges and that are left out here.
    pub later: u64,
    /// In the order of `expected.csv`.
    pub rows: Vec<Row>,
}

/// What comes of a reproduction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// One for each experiment.
    pub sheets: Vec<Sheet>,
}

/// A system in one line. What counts is the numbers that were predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The letter.
    pub system: String,
    /// Numbers that were predicted, and which of them are within their tolerance.
    pub predicted: Tally,
    /// Half of the predicted numbers that have an error have no larger one than this.
    pub error_median: Option<f64>,
    /// Nine in ten have no larger one.
    pub error_p90: Option<f64>,
    /// The largest.
    pub error_worst: Option<f64>,
    /// Statements and bounds.
    pub shapes: Tally,
    /// Numbers that follow from given constants.
    pub derived: Tally,
    /// Rows that a constant was fitted to.
    pub fitted: Tally,
    /// Rows that only repeat a constant.
    pub given: Tally,
    /// Where the constants come from.
    pub constants: Origins,
    /// Places where the document contradicts itself.
    pub contradictions: u64,
}

/// Rows of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// How many there are.
    pub asked: u64,
    /// How many are within their tolerance.
    pub right: u64,
}

impl Summary {
    fn brief(&self) -> serde_json::Value {
        serde_json::json!({
            "predicted": self.predicted.asked,
            "median": self.error_median,
            "p90": self.error_p90,
            "worst": self.error_worst,
            "shapes": self.shapes.asked,
            "shapes_right": self.shapes.right,
            "fitted": self.constants.fitted,
        })
    }

    /// Predicted numbers for each fitted constant; `None` where no constant was fitted.
    pub fn predicted_per_fitted(&self) -> Option<f64> {
        let fitted = self.constants.fitted;
        (fitted > 0).then(|| self.predicted.asked as f64 / fitted as f64)
    }
}

impl Report {
    /// Every row.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sheets.iter().flat_map(|sheet| &sheet.rows)
    }

    /// Whether every row is within its tolerance.
    pub fn passes(&self) -> bool {
        self.rows().all(|row| row.pass)
    }

    /// A JSON object a row, a line each, and a last line `{"summary": {"A": {...}, ...}}` with what counts
    /// of each system: predicted numbers, errors relative to the published value, shapes asked and right,
    /// fitted constants.
    ///
    /// # Errors
    /// None that a row of this program can cause.
    pub fn json_lines(&self) -> Result<String, serde_json::Error> {
        let rows = self.rows().map(serde_json::to_string);
        let last = self.summaries().into_iter().map(|one| (one.system.clone(), one.brief()));
        let last = serde_json::json!({ "summary": last.collect::<BTreeMap<_, _>>() });
        rows.chain([Ok(last.to_string())]).map(|line| line.map(|line| line + "\n")).collect()
    }

    /// One for each system, in the order of their letters.
    pub fn summaries(&self) -> Vec<Summary> {
        let mut systems: BTreeMap<&str, Vec<&Sheet>> = BTreeMap::new();
        for sheet in &self.sheets {
            systems.entry(&sheet.system).or_default().push(sheet);
        }
        systems.into_iter().map(|(system, sheets)| summary(system, &sheets)).collect()
    }
}

fn summary(system: &str, sheets: &[&Sheet]) -> Summary {
    let mut summary = Summary { system: system.to_owned(), ..Summary::default() };
    let mut errors = Vec::new();
    for sheet in sheets {
        summary.constants.document += sheet.constants.document;
        summary.constants.assumed += sheet.constants.assumed;
        summary.constants.fitted += sheet.constants.fitted;
        summary.contradictions += sheet.contradictions.len() as u64;
        for row in &sheet.rows {
            let tally = match row.role {
                Role::Given => &mut summary.given,
                Role::Fitted => &mut summary.fitted,
                Role::Derived => &mut summary.derived,
                Role::Shape => &mut summary.shapes,
                Role::Predicted => &mut summary.predicted,
            };
            tally.asked += 1;
            tally.right += u64::from(row.pass);
            errors.extend(row.error.filter(|_| row.role == Role::Predicted).map(f64::abs));
        }
    }
    errors.sort_by(f64::total_cmp);
    // By nearest rank: the error that some row has.
    let quantile = |share: f64| {
        let rank = (errors.len() as f64 * share).ceil() as usize;
        errors.get(rank.checked_sub(1)?).copied()
    };
    summary.error_median = quantile(0.5);
    summary.error_p90 = quantile(0.9);
    summary.error_worst = quantile(1.0);
    summary
}
