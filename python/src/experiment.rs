//! Experiments, for Python: read, changed, run.

use crate::ledger::Ledger;
use crate::problem::{complaint, failure, problems, wrong};
use crate::value::{loads, sets};
use crate::watched::{threads, watched};
use lastmeter::world::{self, Disk};
use lastmeter_lab::build::Changes;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment;
use lastmeter_lab::explain::Shuffle;
use lastmeter_lab::run::{self, Explained, Runner, Search, Watch, explain, ledger};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// An experiment: a network, the traffic through it, and how long it runs.
///
/// Made by `load`, `parse` or `Network`; never changed, only copied with changes.
///
/// >>> import lastmeter as lm
/// >>> mm1 = lm.load("mm1", set={"duration": "5 ms"})
/// >>> mm1.duration, mm1.seed
/// (0.005, 1)
/// >>> mm1.change({"traffic.customers.poisson.rate": "1 Gbit/s"}, seed=7).seed
/// 7
/// >>> lm.load("mm1", set={"duration": 5})
/// Traceback (most recent call last):
///     ...
/// lastmeter.Problems: error: duration: `5` has no unit
///  --> --set:1:10
///   |
/// 1 | duration=5
///   |          ^
///   |
/// help: write "5 us" or "5 ms"
#[pyclass(frozen, module = "lastmeter")]
pub(crate) struct Experiment {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) sets: Vec<String>,
    inner: Arc<experiment::Experiment>,
}

impl Experiment {
    pub(crate) fn new(
        py: Python<'_>,
        name: String,
        text: String,
        folder: Option<PathBuf>,
        sets: Vec<String>,
    ) -> PyResult<Experiment> {
        let parse = |set: &String| Override::parse(set).map_err(|wrong| problems(py, &wrong));
        let overrides: Vec<Override> = sets.iter().map(parse).collect::<PyResult<_>>()?;
        let disk = Disk::new(folder.clone());
        let inner = experiment::Experiment::parse(&name, &text, &overrides, &disk)
            .map_err(|wrong| problems(py, &wrong))?;
        Ok(Experiment { name, text, folder, sets, inner: Arc::new(inner) })
    }
}

#[pymethods]
impl Experiment {
    /// Reads a file, a folder with an experiment.toml, or a bundled experiment by its name.
    #[staticmethod]
    #[pyo3(signature = (name, *, set=None, seed=None))]
    fn load(
        py: Python<'_>,
        name: PathBuf,
        set: Option<&Bound<'_, PyDict>>,
        seed: Option<u64>,
    ) -> PyResult<Experiment> {
        let named = name.to_string_lossy();
        let found = world::experiment(&named).map_err(|error| complaint(py, error))?;
        let text = String::from_utf8(found.text)
            .map_err(|_| wrong(py, format!("`{named}` is not UTF-8 text")))?;
        Experiment::new(py, found.name, text, found.folder, sets(set, seed)?)
    }

    /// Reads the text of an experiment file; names of captures are relative to `folder`.
    #[staticmethod]
    #[pyo3(signature = (text, *, name="experiment", folder=None, set=None, seed=None))]
    fn parse(
        py: Python<'_>,
        text: String,
        name: &str,
        folder: Option<PathBuf>,
        set: Option<&Bound<'_, PyDict>>,
        seed: Option<u64>,
    ) -> PyResult<Experiment> {
        Experiment::new(py, name.to_owned(), text, folder, sets(set, seed)?)
    }

    /// A copy with changes, as with `--set`.
    #[pyo3(signature = (set=None, *, seed=None))]
    fn change(
        &self,
        py: Python<'_>,
        set: Option<&Bound<'_, PyDict>>,
        seed: Option<u64>,
    ) -> PyResult<Experiment> {
        let all = self.sets.iter().cloned().chain(sets(set, seed)?).collect();
        Experiment::new(py, self.name.clone(), self.text.clone(), self.folder.clone(), all)
    }

    /// The file, or the name of a bundled experiment.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }
    /// The text that it was read from, without what was changed.
    #[getter]
    fn text(&self) -> &str {
        &self.text
    }
    /// Its title.
    #[getter]
    fn title(&self) -> &str {
        &self.inner.title
    }
    /// The question that it answers.
    #[getter]
    fn question(&self) -> &str {
        &self.inner.question
    }
    /// How long it runs, in simulated seconds.
    #[getter]
    fn duration(&self) -> f64 {
        self.inner.duration.as_secs_f64()
    }
    /// The seed of its random streams.
    #[getter]
    fn seed(&self) -> u64 {
        self.inner.seed
    }
    /// The first 16 hexadecimal digits of the SHA-256 of its text with all changes.
    #[getter]
    fn hash(&self) -> &str {
        &self.inner.hash
    }
    /// The names of its nodes.
    #[getter]
    fn nodes(&self) -> Vec<String> {
        self.inner.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// Runs it once, and with `what_ifs` again with the changes that might help: beginnings of a
    /// long run for the price of a few runs, all of a short one, and with `exhaustive` all of any.
    ///
    /// The interpreter's lock is released meanwhile. `progress` is called periodically with the share
    /// done, from 0 to 1, of the run itself and then of the what-ifs. Ctrl-C or an exception in `progress`
    /// ends the run. `pcap` captures links in files: `{"a->b": "file"}`.
    #[pyo3(signature = (
        *, what_ifs=true, exhaustive=false, quick=false, shuffle_ties=0, threads=None,
        progress=None, pcap=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn run(
        &self,
        py: Python<'_>,
        what_ifs: bool,
        exhaustive: bool,
        quick: bool,
        shuffle_ties: u64,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
        pcap: Option<BTreeMap<String, PathBuf>>,
    ) -> PyResult<Run> {
        let pool = self::threads(py, threads)?;
        let disk = Disk::new(self.folder.clone());
        for (link, path) in pcap.iter().flatten() {
            let tap = format!("{link}={}", path.display());
            disk.add_tap(&tap).map_err(|error| complaint(py, error))?;
        }
        let watch = Watch::default();
        let mut experiment = self.inner.as_ref().clone();
        if quick {
            experiment.duration = experiment.duration / 10;
        }
        let runner =
            Runner { parallel: &pool, threads: pool.count(), library: &disk, watch: &watch };
        let search = if exhaustive { Search::Exhaustive } else { Search::Rounds };
        let work = || match what_ifs && !quick {
            true => explain(&experiment, search, shuffle_ties, runner),
            false => {
                let ledger = ledger(&experiment, runner)?;
                Ok(Explained { ledger, left_out: 0, shuffle: None })
            }
        };
        let tell = |py: Python<'_>| {
            let Some(progress) = &progress else { return Ok(()) };
            let (first, done, runs) = watch.progress();
            let share = if runs == 0 { first } else { done as f64 / runs as f64 };
            progress.call1(py, (share,)).map(drop)
        };
        let explained = watched(py, &watch, tell, work)?.map_err(|error| failure(py, error))?;
        let links: Vec<&str> =
            explained.ledger.resources.iter().map(|resource| resource.name.as_str()).collect();
        disk.check_taps(&links).map_err(|error| complaint(py, error))?;
        let Explained { ledger, left_out, shuffle } = explained;
        Ok(Run { ledger: Arc::new(ledger), left_out, shuffle })
    }

    /// Runs it with changes: factors for the speed of resources, stages at no cost, a factor for all buffers.
    ///
    /// >>> import lastmeter as lm
    /// >>> tandem = lm.load("tandem", set={"duration": "5 ms"})
    /// >>> plain = tandem.run(what_ifs=False).ledger
    /// >>> tandem.what_if(speed={"s1": 2}).latency < plain.latency
    /// True
    #[pyo3(signature = (*, speed=None, free=None, buffers=1.0))]
    fn what_if(
        &self,
        py: Python<'_>,
        speed: Option<BTreeMap<String, f64>>,
        free: Option<Vec<String>>,
        buffers: f64,
    ) -> PyResult<Ledger> {
        let ratio = |times: f64| {
            // Engines use whole numbers; a resolution of a thousandth suffices.
            const PARTS: u64 = 1000;
            let parts = (times * PARTS as f64).round();
            match (1.0..1e12).contains(&parts) {
                true => Ok((parts as u64, PARTS)),
                false => Err(wrong(py, format!("a factor of {times} is out of range"))),
            }
        };
        let faster = speed.into_iter().flatten();
        let changes = Changes {
            speed: faster
                .map(|(name, times)| Ok((name, ratio(times)?)))
                .collect::<PyResult<_>>()?,
            free: free.into_iter().flatten().collect(),
            buffers: ratio(buffers)?,
            ..Changes::NONE
        };
        let disk = Disk::new(self.folder.clone());
        let watch = Watch::default();
        let parallel = &lastmeter_engine::Serial;
        let runner = Runner { parallel, threads: 1, library: &disk, watch: &watch };
        let work = || run::changed(&self.inner, &changes, runner);
        let ledger = watched(py, &watch, |_| Ok(()), work)?;
        ledger.map(Ledger::new).map_err(|error| failure(py, error))
    }

    fn __repr__(&self) -> String {
        format!("<Experiment {}: {}>", self.name, self.inner.title)
    }
}

/// The result of a run.
#[pyclass(frozen, module = "lastmeter")]
pub(crate) struct Run {
    ledger: Arc<lastmeter_ledger::Ledger>,
    left_out: usize,
    shuffle: Option<Shuffle>,
}

#[pymethods]
impl Run {
    /// Its ledger.
    #[getter]
    fn ledger(&self) -> Ledger {
        Ledger { inner: self.ledger.clone() }
    }
    /// Changes that were not tried, because there are too many.
    #[getter]
    fn left_out(&self) -> usize {
        self.left_out
    }
    /// What random orders of simultaneous events changed: `runs`, `tolerance`, `moved`; `None` unless requested.
    #[getter]
    fn shuffle<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let json = self.shuffle.as_ref().map(serde_json::to_string);
        json.map(|json| loads(py, &json.unwrap_or_default())).transpose()
    }
    fn __repr__(&self) -> String {
        format!("<Run of {}>", self.ledger.title)
    }
    fn __str__(&self) -> String {
        Ledger { inner: self.ledger.clone() }.to_text(100, false)
    }
}
