//! Values between Python and experiment files.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// JSON as Python objects.
pub(crate) fn loads<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}

/// JSON as Python objects, whose values are also attributes.
pub(crate) fn loads_rows<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    let hook = PyDict::new(py);
    hook.set_item("object_hook", row_type(py)?)?;
    py.import("json")?.call_method("loads", (json,), Some(&hook))
}

/// The type of a row: a dict whose values are also attributes.
pub(crate) fn row_type(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("lastmeter.row")?.getattr("Row")
}

/// A value as written in an experiment file.
///
/// >>> from lastmeter import _lastmeter
/// >>> _lastmeter.to_toml({"drop-tail": {"packets": 200}})
/// '{ drop-tail = { packets = 200 } }'
/// >>> _lastmeter.to_toml(["alice", "bob"])
/// '["alice", "bob"]'
#[pyfunction]
pub(crate) fn to_toml(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(if flag.is_true() { "true" } else { "false" }.to_owned());
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        return Ok(value.repr()?.to_string());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(quoted(&text.to_string()));
    }
    if let Ok(table) = value.cast::<PyDict>() {
        let entry = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok(format!("{} = {}", self::key(&key.extract::<String>()?), to_toml(&value)?))
        };
        let entries: Vec<String> = table.iter().map(entry).collect::<PyResult<_>>()?;
        return Ok(match entries.is_empty() {
            true => "{}".to_owned(),
            false => format!("{{ {} }}", entries.join(", ")),
        });
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items: Vec<String> =
            value.try_iter()?.map(|item| to_toml(&item?)).collect::<PyResult<_>>()?;
        return Ok(format!("[{}]", items.join(", ")));
    }
    let found = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "a {found} cannot be a value in an experiment: give text, a number, a flag, a list or a \
         dict"
    )))
}

fn quoted(text: &str) -> String {
    // A JSON string is also a TOML string.
    serde_json::Value::from(text).to_string()
}

fn key(text: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !text.is_empty() && text.chars().all(bare) {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// The overrides of a dict, as for `--set`: text is taken as written, so that `"10 Mbit/s"` is a rate and
/// `"3"` a number.
pub(crate) fn sets(set: Option<&Bound<'_, PyDict>>, seed: Option<u64>) -> PyResult<Vec<String>> {
    let mut sets = Vec::new();
    for (key, value) in set.into_iter().flatten() {
        sets.push(format!("{}={}", key.extract::<String>()?, level(&value)?));
    }
    sets.extend(seed.map(|seed| format!("seed={seed}")));
    Ok(sets)
}

/// One value as written after `KEY=`.
pub(crate) fn level(value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.cast::<PyString>() {
        Ok(text) => Ok(text.to_string()),
        Err(_) => to_toml(value),
    }
}
