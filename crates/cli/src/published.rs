//! What documents published, beside what the models say: for benchmarks that put a device of today beside both.

use lastmeter_repro::{Options, Shelf, run};

/// A published value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its name.
    pub item: String,
    /// As it is printed.
    pub published: String,
    /// Ours, in the same unit.
    pub model: Option<f64>,
}

/// The values of a row by its id (`A-104`); the models run now.
///
/// # Errors
/// If nothing has this id, or a model failed.
///
/// ```
/// let values = lastmeter::published::of("J-18").unwrap();
/// assert_eq!((values[0].published.as_str(), values[0].model), ("21", Some(21.0)));
/// ```
pub fn of(id: &str) -> Result<Vec<Value>, String> {
    let report = run(id, &Shelf::builtin(), Options { seed: 1 })
        .map_err(|error| format!("{id}: {error}"))?;
    let value = |row: &lastmeter_repro::Row| Value {
        item: row.item.clone(),
        published: row.published.to_string(),
        model: row.measured,
    };
    Ok(report.rows().map(value).collect())
}
