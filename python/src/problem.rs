//! Errors: what is wrong with what the user wrote, with the place of each problem.

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
    "Something is wrong with an experiment, an override, a plan or a name.\n\n\
     `problems` is a list of dicts with the file, line, column and key of each, what was found, \
     and what would be right."
);
create_exception!(
    lastmeter,
    EngineError,
    PyRuntimeError,
    "The model is at fault: books that do not balance, or a run that makes no progress."
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

/// A text of ours as an error without place.
pub(crate) fn wrong(py: Python<'_>, words: impl std::fmt::Display) -> PyErr {
    let error = Problems::new_err(words.to_string());
    // A list that cannot be made leaves the words, which say all.
    let _ = error.value(py).setattr("problems", pyo3::types::PyList::empty(py));
    error
}

/// A complaint of the program's.
pub(crate) fn complaint(py: Python<'_>, Complaint(words): Complaint) -> PyErr {
    wrong(py, words.trim_end())
}

/// Why a run gave no ledger.
pub(crate) fn failure(py: Python<'_>, failure: Failure) -> PyErr {
    match failure {
        Failure::Problems(list) => problems(py, &list),
        other => EngineError::new_err(other.to_string()),
    }
}
