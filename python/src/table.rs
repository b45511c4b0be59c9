//! Tables through the Arrow C data interface: polars, pandas, pyarrow and DuckDB read them without copying.

use crate::value::row_type;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_array::{RecordBatchIterator, cast::AsArray};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Schema};
use lastmeter_ledger::columns::{Columns, Values};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyIterator, PyList};
use std::sync::Arc;

/// A table: named columns in SI base units.
///
/// Anything that supports Arrow reads it without copying: `polars.DataFrame(table)`,
/// `pyarrow.table(table)`, `duckdb.sql("from table")`, or the shortcuts below.
///
/// >>> import lastmeter as lm
/// >>> stages = lm.load("mm1", set={"duration": "1 ms"}).run(what_ifs=False).ledger.stages
/// >>> stages.columns[:4]
/// ['experiment', 'experiment_hash', 'seed', 'path']
/// >>> stages["stage"]
/// ['station service']
/// >>> [row.stage for row in stages]
/// ['station service']
#[pyclass(frozen, module = "lastmeter")]
pub(crate) struct Table {
    batch: RecordBatch,
}

impl Table {
    /// The table of these columns, without copying.
    pub(crate) fn new(columns: Columns) -> PyResult<Table> {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) =
            columns.0.into_iter().map(array).unzip();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        let fault = |error: arrow_schema::ArrowError| PyRuntimeError::new_err(error.to_string());
        Ok(Table { batch: batch.map_err(fault)? })
    }
}

fn array((name, values): (String, Values)) -> (Field, ArrayRef) {
    let nullable =
        matches!(values, Values::TextOrNone(_) | Values::CountOrNone(_) | Values::RealOrNone(_));
    let array: ArrayRef = match values {
        Values::Text(values) => Arc::new(StringArray::from(values)),
        Values::TextOrNone(values) => Arc::new(StringArray::from(values)),
        Values::Flag(values) => Arc::new(BooleanArray::from(values)),
        Values::Count(values) => Arc::new(PrimitiveArray::<UInt64Type>::from(values)),
        Values::CountOrNone(values) => Arc::new(PrimitiveArray::<UInt64Type>::from(values)),
        Values::Real(values) => Arc::new(PrimitiveArray::<Float64Type>::from(values)),
        Values::RealOrNone(values) => Arc::new(PrimitiveArray::<Float64Type>::from(values)),
    };
    (Field::new(name, array.data_type().clone(), nullable), array)
}

#[pymethods]
impl Table {
    /// The names of its columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// A column as a list.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let column = self.batch.column_by_name(name);
        let column = column.ok_or_else(|| {
            let known = self.columns().join(", ");
            PyKeyError::new_err(format!("there is no column `{name}`; the columns are {known}"))
        })?;
        match column.data_type() {
            DataType::Utf8 => PyList::new(py, column.as_string::<i32>().iter()),
            DataType::Boolean => PyList::new(py, column.as_boolean().iter()),
            DataType::UInt64 => PyList::new(py, column.as_primitive::<UInt64Type>().iter()),
            _ => PyList::new(py, column.as_primitive::<Float64Type>().iter()),
        }
    }

    /// Its columns as lists, by name.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for name in self.columns() {
            dict.set_item(&name, self.__getitem__(py, &name)?)?;
        }
        Ok(dict)
    }

    /// Its rows, one after another.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.rows(py)?.try_iter()
    }

    /// Its rows as dicts whose values are also attributes: `row.stage`.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let names = self.columns();
        let columns = names.iter().map(|name| self.__getitem__(py, name));
        let columns: Vec<Bound<'_, PyList>> = columns.collect::<PyResult<_>>()?;
        let (rows, row) = (PyList::empty(py), row_type(py)?);
        for at in 0..self.batch.num_rows() {
            let row = row.call0()?;
            for (name, column) in names.iter().zip(&columns) {
                row.set_item(name, column.get_item(at)?)?;
            }
            rows.append(row)?;
        }
        Ok(rows)
    }

    /// As a `polars.DataFrame`.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.call_method1("DataFrame", (slf,))
    }

    /// As a `pyarrow.Table`.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    /// As a `pandas.DataFrame`; with pyarrow installed, without an intermediate copy as lists.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match py.import("pyarrow") {
            Ok(_) => Table::to_arrow(slf)?.call_method0("to_pandas"),
            Err(_) => py.import("pandas")?.call_method1("DataFrame", (slf.get().to_dict(py)?,)),
        }
    }

    /// The Arrow PyCapsule protocol: the table as a stream of one batch.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol lets a producer ignore a requested schema.
        drop(requested_schema);
        let batches = [Ok(self.batch.clone())];
        let reader = RecordBatchIterator::new(batches, self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The Arrow PyCapsule protocol: the names and types of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema_ref().as_ref());
        let schema = schema.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __repr__(&self) -> String {
        let (rows, columns) = (self.batch.num_rows(), self.columns().join(", "));
        format!("<Table: {rows} rows of {columns}; .to_pandas(), .to_polars(), .rows()>")
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        const ROWS_MAX: usize = 60;
        let mut html = String::from("<table><thead><tr>");
        let names = self.columns();
        let escape =
            |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        names.iter().for_each(|name| html += &format!("<th>{}</th>", escape(name)));
        html += "</tr></thead><tbody>";
        let columns = names.iter().map(|name| self.__getitem__(py, name));
        let columns: Vec<Bound<'_, PyList>> = columns.collect::<PyResult<_>>()?;
        for at in 0..self.batch.num_rows().min(ROWS_MAX) {
            html += "<tr>";
            for column in &columns {
                html += &format!("<td>{}</td>", escape(&column.get_item(at)?.str()?.to_string()));
            }
            html += "</tr>";
        }
        html += "</tbody></table>";
        if self.batch.num_rows() > ROWS_MAX {
            html += &format!("<p>... {} rows in all</p>", self.batch.num_rows());
        }
        Ok(html)
    }
}
