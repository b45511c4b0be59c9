//! The ledger, for Python.

use crate::problem::{complaint, wrong};
use crate::table::Table;
use crate::value::{loads, loads_rows};
use lastmeter_ledger as ledger;
use lastmeter_ledger as report;
use lastmeter_ledger::compare::Comparison;
use lastmeter_ledger::figures;
use lastmeter_ledger::parquet::Table as Part;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// The balanced account of a run: where time and throughput went, what limits, what would help.
///
/// >>> import lastmeter as lm
/// >>> ledger = lm.load("mm1", set={"duration": "10 ms"}).run(what_ifs=False).ledger
/// >>> ledger.title
/// 'M/M/1'
/// >>> 6.0e9 < ledger.goodput < 6.8e9      # bit/s
/// True
/// >>> ledger.balance["packets_residual"]
/// 0
#[pyclass(frozen, module = "lastmeter")]
pub(crate) struct Ledger {
    pub(crate) inner: Arc<ledger::Ledger>,
}

impl Ledger {
    pub(crate) fn new(inner: ledger::Ledger) -> Ledger {
        Ledger { inner: Arc::new(inner) }
    }
    fn table(&self, part: Part) -> PyResult<Table> {
        Table::new(part.columns(&self.inner))
    }
    fn part<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        loads_rows(py, &self.to_json())?.get_item(name)
    }
}

#[pymethods]
impl Ledger {
    /// A ledger from its JSON, as printed by `run --json` or in a folder of results.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Ledger> {
        ledger::json::from_json(text).map(Ledger::new).map_err(|error| wrong(py, error))
    }

    /// What was run.
    #[getter]
    fn title(&self) -> &str {
        &self.inner.title
    }
    /// How long the run was, in simulated seconds.
    #[getter]
    fn duration(&self) -> f64 {
        self.inner.duration
    }
    /// Delivered bits per second over all paths.
    #[getter]
    fn goodput(&self) -> f64 {
        self.inner.goodput()
    }
    /// Mean latency over all delivered packets, in seconds.
    #[getter]
    fn latency(&self) -> f64 {
        self.inner.latency()
    }
    /// Dropped packets per offered packet over all paths.
    #[getter]
    fn loss(&self) -> f64 {
        self.inner.loss()
    }
    /// Whether the run was stopped before its end.
    #[getter]
    fn partial(&self) -> bool {
        self.inner.provenance.partial
    }
    /// What limits the paths: `resource`, `utilisation`, `confidence`, `runner_up`, `words`, also as attributes
    /// (`ledger.verdict.words`). Without what-ifs no `resource` is named, and `words` say what is busiest; `None` where
    /// nothing was offered.
    #[getter]
    fn verdict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "verdict")
    }
    /// The residuals of the balance, which should be zero.
    #[getter]
    fn balance<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "balance")
    }
    /// Where the figures come from: version, seed, hashes.
    #[getter]
    fn provenance<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.part(py, "provenance")
    }
    /// Notes on the figures.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.inner.notes.clone()
    }
    /// A row for each path and class: its totals.
    #[getter]
    fn paths(&self) -> PyResult<Table> {
        self.table(Part::Paths)
    }
    /// A row for each stage of each path, in path order.
    #[getter]
    fn stages(&self) -> PyResult<Table> {
        self.table(Part::Stages)
    }
    /// A row for each reason for which a stage dropped packets.
    #[getter]
    fn drops(&self) -> PyResult<Table> {
        self.table(Part::Drops)
    }
    /// A row for each resource.
    #[getter]
    fn resources(&self) -> PyResult<Table> {
        self.table(Part::Resources)
    }
    /// A row for each stage that a resource served.
    #[getter]
    fn uses(&self) -> PyResult<Table> {
        self.table(Part::Uses)
    }
    /// A row for each change, best first.
    #[getter]
    fn what_ifs(&self) -> PyResult<Table> {
        self.table(Part::WhatIfs)
    }

    /// All of it, as in its JSON.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loads(py, &self.to_json())
    }
    /// The documented JSON.
    fn to_json(&self) -> String {
        report::json::to_json(&self.inner)
    }
    /// One HTML file that works offline.
    fn to_html(&self) -> String {
        report::html::render(&self.inner)
    }
    /// As shown in the terminal.
    #[pyo3(signature = (width=100, color=false))]
    pub(crate) fn to_text(&self, width: usize, color: bool) -> String {
        let style = report::terminal::Style { width: width.max(40), color, unicode: true };
        report::terminal::render(&self.inner, style)
    }
    /// This ledger and another side by side, the largest change first: `totals`, `stages`,
    /// `resources` as dicts, and `html` as one file that works offline.
    ///
    /// >>> import lastmeter as lm
    /// >>> mm1 = lm.load("mm1", set={"duration": "5 ms"})
    /// >>> first, second = (mm1.change(seed=n).run(what_ifs=False).ledger for n in (1, 2))
    /// >>> [line["what"] for line in first.compare(second)["totals"][:3]]
    /// ['goodput', 'latency', 'loss']
    #[pyo3(signature = (other, names=("first".to_owned(), "second".to_owned())))]
    fn compare<'py>(
        &self,
        py: Python<'py>,
        other: &Ledger,
        names: (String, String),
    ) -> PyResult<Bound<'py, PyAny>> {
        let comparison = Comparison::new([&names.0, &names.1], [&self.inner, &other.inner]);
        let dict = loads(py, &serde_json::to_string(&comparison).unwrap_or_default())?;
        dict.set_item("html", report::html::compare::render(&comparison))?;
        dict.set_item("text", comparison.text(100))?;
        Ok(dict)
    }
    /// Writes ledger.json, ledger.html and the tables as Parquet into a folder; returns the page's path.
    fn save(&self, py: Python<'_>, folder: PathBuf) -> PyResult<PathBuf> {
        lastmeter::results::write(&folder, &self.inner).map_err(|error| complaint(py, error))
    }

    fn __str__(&self) -> String {
        self.to_text(100, false)
    }
    fn __repr__(&self) -> String {
        let verdict = self.inner.verdict.as_ref();
        let limit = verdict.and_then(|verdict| verdict.resource.as_deref());
        let limit = limit.map_or(String::new(), |name| format!(", {name} limits"));
        let figures = format!(
            "{} of goodput, {} mean latency, {} lost",
            figures::rate(self.goodput()),
            figures::time(self.latency()),
            figures::share(self.loss())
        );
        format!("<Ledger of {}: {figures}{limit}>", self.inner.title)
    }
    fn __eq__(&self, other: &Ledger) -> bool {
        self.inner == other.inner
    }
    fn _repr_html_(&self) -> String {
        // A document of its own, so that its style and a notebook's do not interfere.
        let page = self.to_html().replace('&', "&amp;").replace('"', "&quot;");
        format!(
            "<iframe srcdoc=\"{page}\" style=\"width:100%;height:760px;border:0\" \
             title=\"Ledger\"></iframe>"
        )
    }
}
