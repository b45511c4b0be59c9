//! The ledger as JSON: what programs read, in the documented, versioned schema.

use crate::{Ledger, json_schema};

/// The ledger, one field a line, in the order of the schema; equal ledgers give equal bytes.
///
/// ```
/// use lastmeter_engine::Graph;
/// use lastmeter_lab::close::{Close, close};
/// use lastmeter_ledger::json::to_json;
/// let outcome = Graph::new(1).build(1)?.finish()?;
/// assert!(to_json(&close(&outcome, Close::default())).contains("lastmeter.ledger/1"));
/// # Ok::<(), lastmeter_engine::Error>(())
/// ```
pub fn to_json(ledger: &Ledger) -> String {
    with_line_end(serde_json::to_string_pretty(ledger))
}

/// The schema of that JSON, as it stands in `docs/ledger.schema.json`.
///
/// ```
/// assert!(lastmeter_ledger::json::schema_text().contains("latency_residual"));
/// ```
pub fn schema_text() -> String {
    with_line_end(serde_json::to_string_pretty(&json_schema()))
}

fn with_line_end(text: serde_json::Result<String>) -> String {
    text.expect("maps with text keys and plain numbers always have a JSON") + "\n"
}
