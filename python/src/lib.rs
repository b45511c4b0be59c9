//! The glue between Lastmeter and Python: the module `lastmeter._lastmeter` behind the package `lastmeter`.
//!
//! | module       | gives Python                                            |
//! |--------------|---------------------------------------------------------|
//! | `experiment` | experiments, runs, what-ifs                             |
//! | `ledger`     | the ledger, its tables, its pages                       |
//! | `table`      | tables through the Arrow C data interface               |
//! | `sweep`      | plans, and the work of a sweep here or on other machines |
//! | `reproduce`  | published values, ours beside them                      |
//! | `element`    | packets, and elements written in Python                 |
//! | `graph`      | graphs of elements, some of them written in Python      |
//! | `verbs`      | the program's other commands                            |
//! | `watched`    | long work: without the interpreter's lock, with Ctrl-C  |

mod element;
mod experiment;
mod graph;
mod ledger;
mod problem;
mod reproduce;
mod sweep;
mod table;
mod value;
mod verbs;
mod watched;

use pyo3::prelude::*;

/// The native part of `lastmeter`; use the package, whose names are documented.
#[pymodule]
mod _lastmeter {
    #[pymodule_export]
    use super::element::{Context, Packet};
    #[pymodule_export]
    use super::experiment::{Experiment, Run};
    #[pymodule_export]
    use super::graph::Graph;
    #[pymodule_export]
    use super::ledger::Ledger;
    #[pymodule_export]
    use super::problem::{EngineError, Problems};
    #[pymodule_export]
    use super::reproduce::{Reproduction, repro};
    #[pymodule_export]
    use super::sweep::{Plan, Sweep, run_task};
    #[pymodule_export]
    use super::table::Table;
    #[pymodule_export]
    use super::value::to_toml;
    #[pymodule_export]
    use super::verbs::{
        calibrate, experiments, historic, kinds, kinds_text, lookup, program, schema, started_by,
    };

    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Measurements run in helper processes, which import this module again.
        lastmeter::enter_if_asked();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
