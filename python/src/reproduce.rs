//! Reproductions, for Python: published values, ours beside them.

use crate::problem::{problems, wrong};
use crate::table::Table;
use crate::value::loads;
use crate::watched::{threads, watched};
use lastmeter_lab::run::Watch;
use lastmeter_ledger::columns::{Columns, Values};
use lastmeter_repro::{Effort, Error, Options, Report, Row, Shelf, Style, plan};
use pyo3::prelude::*;
use std::sync::Mutex;

/// The result of a reproduction: a row for each published value.
#[pyclass(frozen, module = "lastmeter")]
pub(crate) struct Reproduction {
    report: Report,
}

fn error(py: Python<'_>, error: Error) -> PyErr {
    match error {
        Error::Problems(list) => problems(py, &list),
        other => wrong(py, other),
    }
}

/// Reproduces published tables and figures: a row (`E-64`), a system (`A`, `J`, `N`, `D`, `E`), an
/// experiment (`cim-equations`), or `all`.
///
/// `progress` is called periodically with the share of the experiments done.
///
/// >>> import lastmeter as lm
/// >>> row = lm.repro("J-18").rows.rows()[0]
/// >>> row["published"], row["measured"], row["pass"]
/// ('21', 21.0, True)
#[pyfunction]
#[pyo3(signature = (select="all", *, seed=1, full=false, threads=None, progress=None))]
pub(crate) fn repro(
    py: Python<'_>,
    select: &str,
    seed: u64,
    full: bool,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Reproduction> {
    let mut jobs = plan(select, &Shelf::builtin()).map_err(|fault| error(py, fault))?;
    // There is no sandbox for plugins in this package.
    if jobs.len() > 1 {
        jobs.retain(|job| !job.has_plugins());
    }
    let pool = self::threads(py, threads)?;
    let watch = Watch::default();
    let (count, done) = (jobs.len().max(1), Mutex::new(0_usize));
    let work = || {
        let mut sheets = Vec::new();
        for job in jobs {
            // Checked between experiments: a computation cannot be interrupted.
            if watch.control.stopped() {
                break;
            }
            let means = Effort { parallel: &pool, full, observer: &(), programs: None };
            sheets.push(job.run_with(Options { seed }, means)?);
            *done.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
        }
        Ok(Report { sheets })
    };
    let tell = |py: Python<'_>| {
        let Some(progress) = &progress else { return Ok(()) };
        let done = *done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        progress.call1(py, (done as f64 / count as f64,)).map(drop)
    };
    let report = watched(py, &watch, tell, work)?;
    Ok(Reproduction { report: report.map_err(|fault| error(py, fault))? })
}

#[pymethods]
impl Reproduction {
    /// A row for each published value: `id`, `item`, `published`, `measured`, `error`, `tolerance`,
    /// `pass`, `unit`, `section`, `role`, `note`, `experiment`, `contradicted`.
    #[getter]
    fn rows(&self) -> PyResult<Table> {
        let rows: Vec<&Row> = self.report.rows().collect();
        let word = |value: &dyn Fn(&Row) -> serde_json::Value| -> Values {
            let text = |row: &&Row| match value(row) {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            };
            Values::Text(rows.iter().map(text).collect())
        };
        let number = |value: &dyn Fn(&Row) -> Option<f64>| {
            Values::RealOrNone(rows.iter().map(|row| value(row)).collect())
        };
        let flag =
            |value: fn(&Row) -> bool| Values::Flag(rows.iter().map(|row| value(row)).collect());
        let json = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default();
        let mut columns = Columns::default();
        columns.text("id", &rows, |row| &row.id);
        columns.text("item", &rows, |row| &row.item);
        columns.add("published", word(&|row| row.published.to_string().into()));
        columns.add("measured", number(&|row| row.measured));
        columns.add("error", number(&|row| row.error));
        columns.text("tolerance", &rows, |row| &row.tolerance);
        columns.add("pass", flag(|row| row.pass));
        columns.text("unit", &rows, |row| &row.unit);
        columns.text("section", &rows, |row| &row.section);
        columns.add("role", word(&|row| json(serde_json::to_value(row.role))));
        columns.text("note", &rows, |row| &row.note);
        columns.text("experiment", &rows, |row| &row.experiment);
        columns.add("contradicted", flag(|row| row.contradicted));
        Table::new(columns)
    }
    /// Whether every row is within its tolerance.
    #[getter]
    fn passes(&self) -> bool {
        self.report.passes()
    }
    /// A dict for each system: the number of rows of each role and how many are right; the median, p90 and worst
    /// error of predicted numbers; constants.
    #[getter]
    fn summaries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &serde_json::to_string(&self.report.summaries()).unwrap_or_default())
    }
    /// One JSON object per row, one per line.
    fn to_json_lines(&self) -> String {
        self.report.json_lines().unwrap_or_default()
    }
    /// One HTML file that works offline: each table and figure, ours over theirs.
    fn to_html(&self) -> String {
        lastmeter_repro::html::render(&self.report, &[], &[])
    }
    /// As shown in the terminal.
    #[pyo3(signature = (width=100))]
    fn to_text(&self, width: usize) -> String {
        self.report.table(Style { width, colour: false })
    }
    fn __str__(&self) -> String {
        self.to_text(100)
    }
    fn __repr__(&self) -> String {
        let rows = self.report.rows().count();
        let good = self.report.rows().filter(|row| row.pass).count();
        format!("<Reproduction: {good} of {rows} rows>")
    }
}
