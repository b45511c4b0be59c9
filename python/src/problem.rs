//! Errors: problems in what the user wrote, each with its place.

use lastmeter::Complaint;
use lastmeter_lab::document::Problem;
use lastmeter_lab::run::Failure;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    lastmeter,
    Problems,
    PyValueError,
    "An experiment, an override, a plan or a name has problems.\n\n\
     `problems` is a list of dicts with the file, line, column and key of each, what was found, \
     and what would be right."
);
create_exception!(
    lastmeter,
    EngineError,
    PyRuntimeError,
    "A bug in the model: books that do not balance, or a run that makes no progress."
);

/// Problems, as people read them and as data.
pub(crate) fn problems(py: Python<'_>, problems: &[Problem]) -> PyErr {
    let text: Vec<String> = problems.iter().map(|problem| problem.render(false)).collect();
    let error = Problems::new_err(text.join("\n\n"));
    let list = serde_json::to_string(problems).unwrap_or_else(|_| "[]".to_owned());
    match crate::value::loads(py, &list) {
        Ok(list) => drop(error.value(py).setattr("problems", list)),
        Err(_) => return error,
    }
    error
}

/// A message as an error without place.
pub(crate) fn wrong(py: Python<'_>, words: impl std::fmt::Display) -> PyErr {
    let error = Problems::new_err(words.to_string());
    // If the list cannot be made, the message still says all.
    let _ = error.value(py).setattr("problems", pyo3::types::PyList::empty(py));
    error
}

/// An error of the program.
pub(crate) fn complaint(py: Python<'_>, Complaint(words): Complaint) -> PyErr {
    wrong(py, words.trim_end())
}

/// Why a run has no ledger.
pub(crate) fn failure(py: Python<'_>, failure: Failure) -> PyErr {
    match failure {
        Failure::Problems(list) => problems(py, &list),
        other => EngineError::new_err(other.to_string()),
    }
}
