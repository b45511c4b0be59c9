//! The ledger's JSON against the schema that documents it.

use crate::{all, golden};
use lastmeter_ledger::json;
use lastmeter_ledger::{Latency, json_schema};
use serde_json::Value;

#[test]
fn the_json_reads_back_as_the_same_ledger() {
    for ledger in all() {
        let back = json::from_json(&json::to_json(&ledger)).unwrap();
        assert!(back == ledger, "{}", ledger.title);
    }
}

#[test]
fn the_published_schema_is_the_schema() {
    golden("../../docs/ledger.schema.json", &json::schema_text());
}

#[test]
fn the_json_is_as_its_schema_says() {
    let schema = json_schema();
    for ledger in all() {
        let value = serde_json::from_str(&json::to_json(&ledger)).unwrap();
        check(&schema, &schema, &value, "ledger");
    }
}

#[test]
#[should_panic(expected = "ledger.verdict")]
fn the_check_rejects_what_the_schema_does_not_allow() {
    let schema = json_schema();
    let mut value: Value = serde_json::from_str(&json::to_json(&all()[0])).unwrap();
    value["verdict"]["confidence"] = "total".into();
    check(&schema, &schema, &value, "ledger");
}

/// Checks a value against the part of JSON Schema that ours uses, and fails on any other part.
fn check(root: &Value, schema: &Value, value: &Value, place: &str) {
    assert!(fits(root, schema, value, place), "{place} does not match the schema: {value}");
}

fn fits(root: &Value, schema: &Value, value: &Value, place: &str) -> bool {
    let words = schema.as_object().unwrap();
    words.iter().all(|(word, says)| match word.as_str() {
        "$schema" | "title" | "description" | "format" | "$defs" => true,
        "$ref" => {
            let pointer = says.as_str().unwrap().trim_start_matches('#');
            fits(root, root.pointer(pointer).unwrap(), value, place)
        }
        "anyOf" | "oneOf" => {
            says.as_array().unwrap().iter().any(|one| fits(root, one, value, place))
        }
        "type" => match says {
            Value::Array(types) => types.iter().any(|one| is(one, value)),
            one => is(one, value),
        },
        "const" => says == value,
        "enum" => says.as_array().unwrap().contains(value),
        "minimum" => value.as_f64().is_none_or(|number| number >= says.as_f64().unwrap()),
        "required" => says.as_array().unwrap().iter().all(|name| {
            value.as_object().is_none_or(|object| object.contains_key(name.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|object| {
            let says = says.as_object().unwrap();
            object.keys().for_each(|name| assert!(says.contains_key(name), "{place}.{name}"));
            object.iter().all(|(name, inner)| {
                check(root, &says[name], inner, &format!("{place}.{name}"));
                true
            })
        }),
        "additionalProperties" => value
            .as_object()
            .is_none_or(|object| object.values().all(|inner| fits(root, says, inner, place))),
        "items" => value.as_array().is_none_or(|list| {
            list.iter().all(|inner| fits(root, says, inner, &format!("{place}[]")))
        }),
        other => panic!("the check does not know `{other}`"),
    })
}

fn is(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("the check does not know the type `{other}`"),
    }
}

/// Written by the program when the schema was at version 1.
#[test]
fn a_ledger_of_version_1_is_read_without_its_false_zeros() {
    let model = json::from_json(include_str!("../version-1/model.json")).unwrap();
    let totals = &model.paths[0].totals;
    assert_eq!((totals.reordered, totals.memory_multiple), (Some(0), Some(0.0)), "counted");
    assert_eq!((model.provenance.seed, model.provenance.host.as_deref()), (Some(1), None));
    let observed = json::from_json(include_str!("../version-1/observed.json")).unwrap();
    let totals = &observed.paths[0].totals;
    assert_eq!((totals.jitter, totals.memory_multiple, totals.reordered), (None, None, None));
    assert!(matches!(totals.latency, Some(Latency { p50: None, p99: None, max: None, .. })));
    assert!(observed.provenance.host.is_some() && observed.provenance.seed.is_none());
    let later = json::to_json(&model).replace("lastmeter.ledger/2", "lastmeter.ledger/3");
    let error = json::from_json(&later).unwrap_err().to_string();
    assert!(error.contains("`lastmeter.ledger/3`; this program reads"), "{error}");
}
