//! The program's other commands.

use crate::ledger::Ledger;
use crate::problem::{failure, wrong};
use crate::value::loads;
use crate::watched::{threads, watched};
use lastmeter::route::Tables;
use lastmeter::world::Disk;
use lastmeter_base::{Bytes, Quantity};
use lastmeter_lab::kinds::{self as pages, Registry};
use lastmeter_lab::run::{Runner, Watch};
use lastmeter_live::{calibrate as measure, worker};
use pyo3::prelude::*;
use std::net::IpAddr;
use std::path::PathBuf;

/// The names of the bundled experiments that can be run.
#[pyfunction]
pub(crate) fn experiments() -> Vec<String> {
    lastmeter_lab::library::experiments()
}

/// The parameters of a kind of node, queue or traffic; without a name, of all.
///
/// >>> import lastmeter as lm
/// >>> lm.kinds("drop-tail")["family"]
/// 'queue'
/// >>> lm.kinds("droptail")
/// Traceback (most recent call last):
///     ...
/// lastmeter.Problems: there is no kind `droptail`: did you mean `drop-tail`?
#[pyfunction]
#[pyo3(signature = (name=None))]
pub(crate) fn kinds<'py>(py: Python<'py>, name: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    match name {
        None => loads(py, &Registry::builtin().list_json().to_string())?.get_item("kinds"),
        Some(name) => loads(py, &pages::page_json(page(py, name)?).to_string()),
    }
}

/// The page of a kind as text.
#[pyfunction]
pub(crate) fn kinds_text(py: Python<'_>, name: &str) -> PyResult<String> {
    Ok(pages::page_text(page(py, name)?))
}

fn page(py: Python<'_>, name: &str) -> PyResult<&'static lastmeter_base::kind::Page> {
    Registry::builtin().find(name).map_err(|near| {
        let hint = match near {
            Some(near) => format!("did you mean `{}`?", near.name),
            None => "`kinds()` lists them all".to_owned(),
        };
        wrong(py, format!("there is no kind `{name}`: {hint}"))
    })
}

/// The JSON Schema of experiment files.
#[pyfunction]
pub(crate) fn schema<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    loads(py, &lastmeter_lab::schema::text())
}

/// Looks addresses up in a routing table (text or MRT) and shows how each answer was found.
#[pyfunction]
pub(crate) fn lookup<'py>(
    py: Python<'py>,
    file: PathBuf,
    addresses: Vec<String>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let bytes = std::fs::read(&file)?;
    let tables = py.detach(|| Tables::read(&bytes));
    let tables = tables.map_err(|error| wrong(py, format!("`{}`, {error}", file.display())))?;
    let answer = |text: String| {
        let address: Result<IpAddr, _> = text.parse();
        let address = address.map_err(|_| wrong(py, format!("`{text}` is not an address")))?;
        let json = serde_json::to_string(&tables.explain(address));
        loads(py, &json.unwrap_or_default())
    };
    addresses.into_iter().map(answer).collect()
}

/// Measures this host: memory, system calls, context switches, timers, the path from socket to
/// socket. Takes about 15 s. Returns its constants, and the same as a profile (TOML).
#[pyfunction]
pub(crate) fn calibrate<'py>(py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, String)> {
    let watch = Watch::default();
    let measured = watched(py, &watch, |_| Ok(()), measure::run)?;
    let calibration = measured.map_err(|error| wrong(py, error))?;
    let toml = calibration.to_toml().map_err(|error| wrong(py, error))?;
    let json = serde_json::to_string(&calibration).map_err(|error| wrong(py, error))?;
    Ok((loads(py, &json)?, toml))
}

/// A transfer between two historic hosts, modelled from their profiles, with verdict and what-ifs.
#[pyfunction]
#[pyo3(signature = (host, adapter, *, message="4 KiB", packet="14 KiB"))]
pub(crate) fn historic(
    py: Python<'_>,
    host: &str,
    adapter: &str,
    message: &str,
    packet: &str,
) -> PyResult<Ledger> {
    let size = |text: &str| Bytes::parse(text).map_err(|error| wrong(py, error));
    let (message, packet) = (size(message)?, size(packet)?);
    let (pool, disk, watch) = (threads(py, None)?, Disk::new(None), Watch::default());
    let runner = Runner { parallel: &pool, threads: 1, library: &disk, watch: &watch };
    let work = || lastmeter_lab::historic::historic(host, adapter, message, packet, runner);
    let ledger = watched(py, &watch, |_| Ok(()), work)?;
    ledger.map(Ledger::new).map_err(|error| failure(py, error))
}

/// Runs the program `lastmeter` with these arguments, its name first; returns its exit status.
#[pyfunction]
pub(crate) fn program(py: Python<'_>, arguments: Vec<String>) -> u8 {
    py.detach(|| lastmeter::program(arguments.into_iter().map(Into::into)))
}

/// Sets the command that starts a helper process, which has to import this module.
#[pyfunction]
pub(crate) fn started_by(command: Vec<String>) {
    worker::is_started_by(command.into_iter().map(Into::into).collect());
}
