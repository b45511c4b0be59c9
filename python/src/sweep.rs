//! Sweeps, for Python: a plan as data, the work here, and the same on other machines.

use crate::experiment::Experiment;
use crate::problem::{complaint, problems, wrong};
use crate::table::Table;
use crate::value::{level, loads};
use crate::watched::{threads, watched};
use lastmeter::Complaint;
use lastmeter::sweep::{Folder, local};
use lastmeter::world::Disk;
use lastmeter_engine::Serial;
use lastmeter_lab::run::{Runner, Watch};
use lastmeter_lab::sweep::{self, Factor, Report, Request, Row, Run, Schedule, Until, design};
use lastmeter_ledger::columns::Columns;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Everything that the rows of a sweep depend on, as data: the same plan gives the same rows.
///
/// >>> import lastmeter as lm
/// >>> plan = lm.Plan.make(
/// ...     lm.load("mm1", set={"duration": "1 ms"}),
/// ...     {"traffic.customers.poisson.rate": ["1 Gbit/s", "4 Gbit/s"]}, seeds=3)
/// >>> plan.points
/// [{'traffic.customers.poisson.rate': '1 Gbit/s'}, {'traffic.customers.poisson.rate': '4 Gbit/s'}]
/// >>> lm.Plan.from_json(plan.to_json()).hash == plan.hash
/// True
#[pyclass(frozen, module = "lastmeter")]
pub(crate) struct Plan {
    inner: sweep::Plan,
}

fn factor(key: &str, values: &Bound<'_, PyAny>) -> PyResult<Result<Factor, String>> {
    if let Ok(text) = values.cast::<PyString>() {
        return Ok(Factor::parse(&format!("{key}={text}")));
    }
    let levels = values.try_iter()?.map(|value| level(&value?)).collect::<PyResult<_>>()?;
    Ok(Factor::of(key, levels))
}

#[pymethods]
impl Plan {
    /// Plans a sweep of an experiment over factors: lists of values, or text as in `--over KEY=...`
    /// (`"1 ms..1 s log / 4"`). `design` is `grid`, `zip`, `random` or `lhs`, the last two with
    /// `count` points. Each value is checked before anything runs.
    #[staticmethod]
    #[pyo3(signature = (
        experiment, over, *, design="grid", count=None, seeds=None, until=None, most=None,
        seed=None, quick=false
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn make(
        py: Python<'_>,
        experiment: &Experiment,
        over: &Bound<'_, PyDict>,
        design: &str,
        count: Option<u64>,
        seeds: Option<u64>,
        until: Option<&str>,
        most: Option<u64>,
        seed: Option<u64>,
        quick: bool,
    ) -> PyResult<Plan> {
        let fault = |words: String| wrong(py, words);
        let mut factors = Vec::new();
        for (key, values) in over {
            factors.push(factor(&key.extract::<String>()?, &values)?.map_err(fault)?);
        }
        let drawn = seed.unwrap_or(1);
        let count = || count.ok_or_else(|| fault(format!("`{design}` requires `count`")));
        let (points, words) = match design {
            "grid" => (design::grid(&factors), "grid".to_owned()),
            "zip" => (design::list(&factors), "values taken together".to_owned()),
            "random" => {
                (design::random(&factors, count()?, drawn), format!("random, seed {drawn}"))
            }
            "lhs" => {
                let words = format!("Latin hypercube, seed {drawn}");
                (design::latin(&factors, count()?, drawn), words)
            }
            other => {
                return Err(fault(format!(
                    "`{other}` is not a design: write grid, zip, random or lhs"
                )));
            }
        };
        let until = until.map(Until::parse).transpose().map_err(fault)?;
        let request = Request {
            experiment: experiment.name.clone(),
            text: experiment.text.clone(),
            folder: match &experiment.folder {
                Some(folder) => Some(std::path::absolute(folder)?.display().to_string()),
                None => None,
            },
            sets: experiment.sets.clone(),
            points: points.map_err(fault)?,
            factors,
            design: words,
            seed,
            replicates: seeds,
            until: until.map(|until| Until { most: most.unwrap_or(until.most), ..until }),
            quick,
        };
        let disk = Disk::new(experiment.folder.clone());
        let inner = sweep::Plan::new(request, &disk).map_err(|list| problems(py, &list))?;
        Ok(Plan { inner })
    }

    /// A plan from its JSON.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Plan> {
        let inner = sweep::Plan::from_json(text).map_err(|words| wrong(py, words))?;
        Ok(Plan { inner })
    }
    /// The plan as JSON.
    fn to_json(&self) -> String {
        self.inner.to_json()
    }
    /// The first 16 hexadecimal digits of the SHA-256 of its JSON.
    #[getter]
    fn hash(&self) -> String {
        self.inner.hash()
    }
    /// The values of the factors at each point.
    #[getter]
    fn points<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let point = |values: &Vec<String>| {
            let dict = PyDict::new(py);
            for (key, value) in self.inner.factors.iter().zip(values) {
                dict.set_item(key, value)?;
            }
            Ok(dict)
        };
        self.inner.points.iter().map(point).collect()
    }
    /// These runs (point, replicate) as a task for another machine: text for `run_task`, with only the part of
    /// the plan that it needs.
    fn task(&self, py: Python<'_>, runs: Vec<(u64, u64)>) -> PyResult<String> {
        let mut numbers: Vec<u64> = runs.iter().map(|&(point, _)| point).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let point = |&number: &u64| {
            let point = self.inner.points.get(number as usize).cloned();
            point.ok_or_else(|| wrong(py, format!("there is no point {number}")))
        };
        let points = numbers.iter().map(point).collect::<PyResult<_>>()?;
        let place = |number: u64| numbers.iter().position(|&known| known == number).unwrap_or(0);
        let runs = runs.iter().map(|&(point, replicate)| (place(point) as u64, replicate));
        let task = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "plan": sweep::Plan { points, ..self.inner.clone() },
            "numbers": numbers,
            "runs": runs.collect::<Vec<_>>(),
        });
        Ok(task.to_string())
    }
    /// The experiment of one run, for closer inspection.
    fn experiment(&self, py: Python<'_>, point: u64, replicate: u64) -> PyResult<Experiment> {
        let sets = self.inner.sets_of(Run { point, replicate });
        let folder = self.inner.folder.as_ref().map(PathBuf::from);
        let (name, text) = (self.inner.experiment.clone(), self.inner.text.clone());
        Experiment::new(py, name, text, folder, sets)
    }
    fn __len__(&self) -> usize {
        self.inner.points.len()
    }
    fn __repr__(&self) -> String {
        let plan = &self.inner;
        format!("<Plan of {}: {} points, {}>", plan.experiment, plan.points.len(), plan.design)
    }
}

/// Executes the runs of a task from `Plan.task`, one after another, and returns their rows for `Sweep.enter`:
/// what a cluster's machine does.
#[pyfunction]
pub(crate) fn run_task(py: Python<'_>, task: &str) -> PyResult<Vec<u8>> {
    let fault = |words: &str| wrong(py, format!("this is not a task of a sweep: {words}"));
    let task: serde_json::Value =
        serde_json::from_str(task).map_err(|error| fault(&error.to_string()))?;
    if task["version"] != env!("CARGO_PKG_VERSION") {
        let (here, there) = (env!("CARGO_PKG_VERSION"), &task["version"]);
        return Err(wrong(
            py,
            format!("this machine has lastmeter {here}, the sweep's has {there}"),
        ));
    }
    let plan = sweep::Plan::from_json(&task["plan"].to_string()).map_err(|words| fault(&words))?;
    let numbers: Vec<u64> = serde_json::from_value(task["numbers"].clone())
        .map_err(|error| fault(&error.to_string()))?;
    let runs: Vec<(u64, u64)> =
        serde_json::from_value(task["runs"].clone()).map_err(|error| fault(&error.to_string()))?;
    if numbers.len() != plan.points.len() {
        return Err(fault("its points have no numbers"));
    }
    // A cluster's worker is not a main thread, so its signals cannot be checked.
    let rows = py.detach(|| {
        let disk = Disk::new(plan.folder.as_ref().map(PathBuf::from));
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: &disk, watch: &watch };
        let one = |(point, replicate): (u64, u64)| {
            let number = *numbers.get(point as usize)?;
            let row = plan.run(Run { point, replicate }, runner)?;
            Some(Row { point: number, ..row })
        };
        runs.into_iter().filter_map(one).collect::<Vec<Row>>()
    });
    serde_json::to_vec(&rows).map_err(|error| wrong(py, error))
}

/// A sweep: its plan, the runs done, and where its rows are saved.
///
/// Usually made by `sweep`. With a folder, flushed rows are in its data set.
#[pyclass(frozen, module = "lastmeter")]
pub(crate) struct Sweep {
    plan: sweep::Plan,
    schedule: Mutex<Schedule>,
    saved: Mutex<Saved>,
}

struct Saved {
    folder: Option<Folder>,
    rows: Vec<Row>,
    /// Rows from this index on are not in the folder yet.
    written: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sweep {
    fn new(plan: sweep::Plan, schedule: Schedule, folder: Option<Folder>, rows: Vec<Row>) -> Sweep {
        let written = rows.len();
        let saved = Mutex::new(Saved { folder, rows, written });
        Sweep { plan, schedule: Mutex::new(schedule), saved }
    }

    fn with_report<T>(&self, look: impl FnOnce(&Report<'_>) -> T) -> T {
        let schedule = locked(&self.schedule);
        let saved = locked(&self.saved);
        look(&Report::new(&self.plan, &saved.rows, &schedule))
    }

    fn sorted(&self) -> Vec<Row> {
        let mut rows = locked(&self.saved).rows.clone();
        rows.sort_by_key(|row| (row.point, row.replicate));
        rows
    }
}

#[pymethods]
impl Sweep {
    /// Starts the sweep of a plan; with `out`, creates the folder of its data set.
    #[staticmethod]
    #[pyo3(signature = (plan, out=None))]
    fn begin(py: Python<'_>, plan: &Plan, out: Option<PathBuf>) -> PyResult<Sweep> {
        let plan = plan.inner.clone();
        let folder = out.map(|out| Folder::create(&out, plan.clone())).transpose();
        let folder = folder.map_err(|error| complaint(py, error))?;
        let schedule = Schedule::new(&plan);
        Ok(Sweep::new(plan, schedule, folder, Vec::new()))
    }
    /// Opens the sweep in a folder, to continue or to read it.
    #[staticmethod]
    fn open(py: Python<'_>, out: PathBuf) -> PyResult<Sweep> {
        let (folder, rows) = Folder::open(&out).map_err(|error| complaint(py, error))?;
        let plan = folder.plan().clone();
        let schedule = Schedule::resume(&plan, &rows).map_err(|words| wrong(py, words))?;
        Ok(Sweep::new(plan, schedule, Some(folder), rows))
    }

    /// Does the remaining runs, on all cores or the given number of threads. `progress` is called
    /// periodically with the number of runs done and expected.
    #[pyo3(signature = (*, threads=None, progress=None))]
    fn work(
        &self,
        py: Python<'_>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let pool = self::threads(py, threads)?;
        let disk = Disk::new(self.plan.folder.as_ref().map(PathBuf::from));
        let watch = Watch::default();
        let runner =
            Runner { parallel: &pool, threads: pool.count(), library: &disk, watch: &watch };
        let work = || -> Result<(), Complaint> {
            let mut saved = locked(&self.saved);
            let added = local(&self.plan, &self.schedule, saved.folder.as_mut(), runner)?;
            saved.rows.extend(added);
            saved.written = saved.rows.len();
            Ok(())
        };
        let tell = |py: Python<'_>| {
            let Some(progress) = &progress else { return Ok(()) };
            let (done, _, expected) = locked(&self.schedule).progress();
            progress.call1(py, (done, expected)).map(drop)
        };
        watched(py, &watch, tell, work)?.map_err(|error| complaint(py, error))
    }

    /// Takes up to `count` runs (point, replicate) for another machine; fewer where the rest depend on runs not
    /// done yet.
    fn take(&self, count: usize) -> Vec<(u64, u64)> {
        let mut schedule = locked(&self.schedule);
        let next = std::iter::from_fn(|| schedule.take()).take(count);
        next.map(|run| (run.point, run.replicate)).collect()
    }
    /// Returns runs that were taken and will not be done.
    fn give_back(&self, runs: Vec<(u64, u64)>) {
        let mut schedule = locked(&self.schedule);
        // The last one given back is the next one taken.
        for (point, replicate) in runs.into_iter().rev() {
            schedule.give_back(Run { point, replicate });
        }
    }
    /// Enters the rows from `run_task`, each exactly once.
    fn enter(&self, py: Python<'_>, rows: &[u8]) -> PyResult<usize> {
        let rows: Vec<Row> = serde_json::from_slice(rows).map_err(|error| wrong(py, error))?;
        let mut schedule = locked(&self.schedule);
        let mut saved = locked(&self.saved);
        let count = rows.len();
        for row in rows {
            schedule.enter(&row).map_err(|words| wrong(py, words))?;
            saved.rows.push(row);
        }
        Ok(count)
    }
    /// Writes the rows that are not in the folder yet.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let mut saved = locked(&self.saved);
        let Saved { folder, rows, written } = &mut *saved;
        if let Some(folder) = folder {
            folder.add(&rows[*written..]).map_err(|error| complaint(py, error))?;
        }
        *written = rows.len();
        Ok(())
    }
    /// Writes the rows that are not in the folder yet, and the result of each point.
    fn conclude(&self, py: Python<'_>) -> PyResult<()> {
        self.flush(py)?;
        let schedule = locked(&self.schedule);
        let saved = locked(&self.saved);
        match &saved.folder {
            Some(folder) => folder
                .conclude(&Report::new(&self.plan, &saved.rows, &schedule))
                .map_err(|error| complaint(py, error)),
            None => Ok(()),
        }
    }

    /// Runs done, runs failed, and runs expected so far.
    #[getter]
    fn progress(&self) -> (u64, u64, u64) {
        locked(&self.schedule).progress()
    }
    /// Whether every point has all the runs that the plan requires.
    #[getter]
    fn done(&self) -> bool {
        locked(&self.schedule).is_done()
    }
    /// The plan.
    #[getter]
    fn plan(&self) -> Plan {
        Plan { inner: self.plan.clone() }
    }
    /// A row for each run: its identity, the factors, figures over all paths, why it failed.
    #[getter]
    fn runs(&self) -> PyResult<Table> {
        Table::new(sweep::runs(&self.plan, &self.sorted()))
    }
    /// A row for each path and class of the runs done since the sweep was started or opened; the data
    /// set in the folder has all.
    #[getter]
    fn paths(&self) -> PyResult<Table> {
        let columns = sweep::paths(&self.plan, &self.sorted());
        Table::new(if columns.rows() > 0 { columns } else { Columns::default() })
    }
    /// The result as in its JSON: for each measure of each point, a mean with its 95 % confidence interval.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = self.with_report(|report| report.json().to_string());
        loads(py, &json)
    }
    /// A line for each point.
    #[pyo3(signature = (width=100))]
    fn to_text(&self, width: usize) -> String {
        self.with_report(|report| report.table(width))
    }
    fn __str__(&self) -> String {
        self.to_text(100)
    }
    fn __repr__(&self) -> String {
        let (done, failed, expected) = self.progress();
        format!("<Sweep of {}: {done} of {expected} runs, {failed} failed>", self.plan.experiment)
    }
}
