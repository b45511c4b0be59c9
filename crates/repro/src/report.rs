//! The result of a reproduction: rows, a sheet per experiment, and a summary per system.

use super::folder::{Contradiction, Role};
use super::published::Published;
use crate::Origins;
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of a row's JSON. It changes when a key is removed or changes its meaning.
pub const SCHEMA: &str = "lastmeter.repro/2";

/// A published value and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Always [`SCHEMA`].
    pub schema: &'static str,
    /// The id in the list of published values.
    pub id: String,
    /// Its name, unique among the rows of this id.
    pub item: String,
    /// The published value: a number, the ends of a range, or `true` for a statement.
    pub published: Published,
    /// Our value in the same unit; `None` if nothing was computed. A statement that holds is 1.
    pub measured: Option<f64>,
    /// Relative to the published value, with its sign; none for statements, bounds that hold, and ranges that
    /// contain ours.
    pub error: Option<f64>,
    /// The tolerance, as in `expected.csv`.
    pub tolerance: String,
    /// Whether our value is within it.
    pub pass: bool,
    /// Notes for the reader.
    pub note: String,
    /// The unit of both values, as in the document.
    pub unit: String,
    /// The section of the document.
    pub section: String,
    /// Given, fitted, derived, shape or predicted.
    pub role: Role,
    /// Its experiment.
    pub experiment: String,
    /// Whether the document contradicts itself here.
    pub contradicted: bool,
}

/// The rows of one experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// The name of its folder.
    pub name: String,
    /// The letter of its system.
    pub system: String,
    /// Its title.
    pub title: String,
    /// Its question.
    pub question: String,
    /// The origins of its constants.
    pub constants: Origins,
    /// Contradictions of the document about these rows.
    pub contradictions: Vec<Contradiction>,
    /// Number of rows that only a full run judges, which are missing here.
    pub later: u64,
    /// In the order of `expected.csv`.
    pub rows: Vec<Row>,
}

/// The result of a reproduction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// One per experiment.
    pub sheets: Vec<Sheet>,
}

/// The summary of a system. The headline is its predicted numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The letter.
    pub system: String,
    /// Predicted numbers, and how many of them are within tolerance.
    pub predicted: Tally,
    /// Median of the predicted numbers' absolute errors.
    pub error_median: Option<f64>,
    /// Their 90th percentile.
    pub error_p90: Option<f64>,
    /// Their maximum.
    pub error_worst: Option<f64>,
    /// Statements and bounds.
    pub shapes: Tally,
    /// Numbers derived from given constants.
    pub derived: Tally,
    /// Rows to which a constant was fitted.
    pub fitted: Tally,
    /// Rows that only repeat a constant.
    pub given: Tally,
    /// The origins of the constants.
    pub constants: Origins,
    /// Contradictions within the document.
    pub contradictions: u64,
}

/// Rows of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Their number.
    pub asked: u64,
    /// How many are within tolerance.
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

    /// Predicted numbers per fitted constant; `None` if no constant was fitted.
    pub fn predicted_per_fitted(&self) -> Option<f64> {
        let fitted = self.constants.fitted;
        (fitted > 0).then(|| self.predicted.asked as f64 / fitted as f64)
    }
}

impl Sheet {
    /// A JSON object per row, one per line.
    ///
    /// # Errors
    /// Never for rows of this program.
    pub fn json_lines(&self) -> Result<String, serde_json::Error> {
        self.rows.iter().map(|row| Ok(serde_json::to_string(row)? + "\n")).collect()
    }
}

impl Report {
    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sheets.iter().flat_map(|sheet| &sheet.rows)
    }

    /// Whether every row is within its tolerance.
    pub fn passes(&self) -> bool {
        self.rows().all(|row| row.pass)
    }

    /// A JSON object per row, one per line, and a last line `{"summary": {"A": {...}, ...}}` with the headline of each
    /// system: predicted numbers, errors relative to the published value, shapes and how many hold, fitted constants.
    ///
    /// # Errors
    /// Never for rows of this program.
    pub fn json_lines(&self) -> Result<String, serde_json::Error> {
        let rows = self.sheets.iter().map(Sheet::json_lines);
        rows.chain([Ok(self.json_summary())]).collect()
    }

    /// The last of these lines.
    pub fn json_summary(&self) -> String {
        let last = self.summaries().into_iter().map(|one| (one.system.clone(), one.brief()));
        format!("{}\n", serde_json::json!({ "summary": last.collect::<BTreeMap<_, _>>() }))
    }

    /// The summary of each system, by letter.
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
    // Nearest rank: the error of an actual row.
    let quantile = |share: f64| {
        let rank = (errors.len() as f64 * share).ceil() as usize;
        errors.get(rank.checked_sub(1)?).copied()
    };
    summary.error_median = quantile(0.5);
    summary.error_p90 = quantile(0.9);
    summary.error_worst = quantile(1.0);
    summary
}
