//! The ledger as JSON: what programs read and write, in the documented, versioned schema.

use crate::{Ledger, SCHEMA, json_schema};
use serde_json::{Error, Map, Value};

/// The version before [`SCHEMA`], which wrote zeros for unknown figures.
const SCHEMA_1: &str = "lastmeter.ledger/1";

/// The ledger, one field a line, in the order of the schema; equal ledgers give equal bytes.
///
/// ```
/// use lastmeter_ledger::json::{from_json, to_json};
/// use lastmeter_ledger::{Ledger, Provenance};
/// let ledger = Ledger::new("empty", 1.0, Vec::new(), Vec::new(), Provenance::default());
/// assert!(to_json(&ledger).contains("lastmeter.ledger/2"));
/// assert_eq!(from_json(&to_json(&ledger))?, ledger);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn to_json(ledger: &Ledger) -> String {
    with_line_end(serde_json::to_string_pretty(ledger))
}

/// A ledger as one line, for streams of them.
pub fn to_line(ledger: &Ledger) -> String {
    with_line_end(serde_json::to_string(ledger))
}

/// Reads a ledger of this version or the one before.
///
/// # Errors
/// If it is not a ledger, or of a later version.
pub fn from_json(text: &str) -> Result<Ledger, Error> {
    from_value(serde_json::from_str(text)?)
}

/// [`from_json`] of parsed JSON.
///
/// # Errors
/// As [`from_json`].
pub fn from_value(mut value: Value) -> Result<Ledger, Error> {
    if value.get("schema").and_then(Value::as_str) == Some(SCHEMA_1) {
        from_version_1(&mut value);
    }
    let ledger: Ledger = serde_json::from_value(value)?;
    match ledger.schema == SCHEMA {
        true => Ok(ledger),
        false => {
            let found =
                format!("it is of version `{}`; this program reads {SCHEMA}", ledger.schema);
            Err(serde::de::Error::custom(found))
        }
    }
}

/// Converts a ledger of version 1.
///
/// Version 1 had no absent figures: transfers measured from outside (live, without a certificate) had zeros for
/// what could not be known. And the host of a stage or resource was the start of its name, up to the first dot.
fn from_version_1(ledger: &mut Value) {
    ledger["schema"] = SCHEMA.into();
    let level = ledger["provenance"]["level"].as_str().unwrap_or_default();
    let measured = level != "model" && ledger["certificate"].is_null();
    if let Some(provenance) = ledger["provenance"].as_object_mut() {
        drop_if(provenance, "host", |host| host.as_str() == Some(""));
        if measured {
            provenance.remove("seed");
        }
    }
    for resource in items(ledger.get_mut("resources")) {
        let (host, kind) = (host_of(&resource["name"]), resource["kind"].as_str());
        if let Some(host) = host.filter(|_| kind != Some("wire")) {
            resource["host"] = host.into();
        }
        drop_zeros(resource, measured, &["blocked", "bytes_per_delivered_byte"]);
    }
    for path in items(ledger.get_mut("paths")) {
        let totals = &mut path["totals"];
        if totals["delivered"]["packets"] == 0 {
            totals.as_object_mut().map(|totals| totals.remove("latency"));
        }
        drop_zeros(totals, measured, &["jitter", "reordered", "corrupted", "memory_multiple"]);
        if let Some(latency) = totals.get_mut("latency") {
            drop_zeros(latency, measured, &["p50", "p99", "max"]);
        }
        for stage in items(path.get_mut("stages")) {
            for part in ["wait", "service", "blocked"] {
                drop_zeros(&mut stage[part], measured, &["p50", "p99"]);
            }
        }
    }
    if ledger["verdict"]["resource"].is_null() && measured {
        drop_zeros(&mut ledger["verdict"], true, &["utilisation"]);
    }
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

fn host_of(name: &Value) -> Option<String> {
    let (host, rest) = name.as_str()?.split_once('.')?;
    (!host.is_empty() && !rest.is_empty()).then(|| host.to_owned())
}

fn drop_if(object: &mut Map<String, Value>, key: &str, wrong: fn(&Value) -> bool) {
    if object.get(key).is_some_and(wrong) {
        object.remove(key);
    }
}

fn drop_zeros(value: &mut Value, measured: bool, keys: &[&str]) {
    if let Some(object) = value.as_object_mut().filter(|_| measured) {
        keys.iter().for_each(|key| drop_if(object, key, |value| value.as_f64() == Some(0.0)));
    }
}

/// The schema of that JSON, as in `docs/ledger.schema.json`.
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
