//! The JSON Schema of experiment files, generated from the parameters used to decode them, so that editors complete
//! and check exactly what the program accepts.
//!
//! What a schema cannot express (that names exist, that packets can arrive) only the program checks.

use crate::document::value_or_text_json;
use crate::experiment::pages;
use crate::kinds::Registry;
use lastmeter_base::kind::{Fallback, Family, Page, Param, ParamKind};
use lastmeter_base::{Bytes, Duration, PerByte, Quantity, Rate};
use serde_json::{Map, Value, json};

/// The schema of experiment files with these kinds.
pub fn experiment(registry: &Registry) -> Value {
    let table = |what: &str, params: &[Param], family: Option<Family>| {
        table(registry, what, params, family)
    };
    let mut root = table(pages::EXPERIMENT.what, pages::EXPERIMENT.params, None);
    let mut node = table(pages::NODE.what, pages::NODE.params, Some(Family::Node));
    node["description"] = json!("A node, or several identical ones.");
    let mut link = table(pages::LINK.what, pages::LINK.params, None);
    link["properties"][pages::BACK.name] = table(pages::BACK.what, pages::BACK.params, None);
    let traffic = table(pages::TRAFFIC.what, pages::TRAFFIC.params, Some(Family::Traffic));
    let list = |page: &Page, items: Value| {
        let what = page.what;
        json!({ "type": "array", "description": what, "items": items })
    };
    root["properties"]["nodes"] = json!({
        "type": "object",
        "description": pages::NODE.what,
        "propertyNames": { "pattern": "^[A-Za-z0-9_-]{1,64}$" },
        "additionalProperties": node,
    });
    root["properties"]["links"] = list(pages::LINK, link);
    root["properties"]["traffic"] = list(pages::TRAFFIC, traffic);
    root["required"] = json!(["duration", "nodes"]);
    root["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    root["title"] = json!("Lastmeter experiment");
    root["definitions"] = json!({
        "time": quantity::<Duration>(),
        "size": quantity::<Bytes>(),
        "rate": quantity::<Rate>(),
        "time-per-byte": per_byte(),
        "draw": draw("time"),
        "draw-bytes": draw("size"),
        "sizes": sizes(),
        "queue": table("Where packets wait.", &[], Some(Family::Queue)),
        "reception": table("How packets are received.", &[], Some(Family::Reception)),
    });
    root
}

/// The schema as in the committed file.
pub fn text() -> String {
    format!("{:#}\n", experiment(Registry::builtin()))
}

/// A table with these parameters and, if a family is given, exactly one of its kinds.
fn table(registry: &Registry, what: &str, params: &[Param], family: Option<Family>) -> Value {
    let mut properties: Map<String, Value> =
        params.iter().map(|param| (param.name.to_owned(), parameter(param))).collect();
    let required = params.iter().filter(|param| param.default == Fallback::Required);
    let required: Vec<&str> = required.map(|param| param.name).collect();
    let mut schema = json!({
        "type": "object",
        "description": what,
        "required": required,
        "additionalProperties": false,
    });
    if let Some(family) = family {
        let kinds: Vec<&Page> = registry.family(family).map(|kind| kind.page).collect();
        let one = kinds.iter().map(|page| json!({ "required": [page.name] }));
        schema["oneOf"] = one.collect();
        for page in kinds {
            properties.insert(page.name.to_owned(), table(registry, page.what, page.params, None));
        }
    }
    schema["properties"] = Value::Object(properties);
    schema
}

fn parameter(param: &Param) -> Value {
    let mut schema = match param.kind {
        // Draft 7 ignores siblings of a reference, so each is in a list of one.
        ParamKind::Time => reference("time"),
        ParamKind::Size { .. } => reference("size"),
        ParamKind::Rate => reference("rate"),
        ParamKind::PerByte => reference("time-per-byte"),
        ParamKind::Draw => reference("draw"),
        ParamKind::DrawBytes => reference("draw-bytes"),
        ParamKind::Sizes => reference("sizes"),
        ParamKind::Nested(family) => reference(family.name()),
        ParamKind::Integer { min, max } if max == i64::MAX as u64 => {
            json!({ "type": "integer", "minimum": min })
        }
        ParamKind::Integer { min, max } => {
            json!({ "type": "integer", "minimum": min, "maximum": max })
        }
        ParamKind::Number { min, max } => {
            json!({ "type": "number", "minimum": min, "maximum": max })
        }
        ParamKind::Text | ParamKind::Profile(_) | ParamKind::Node => json!({ "type": "string" }),
        ParamKind::Choice(words) => json!({ "enum": words }),
        ParamKind::Flag => json!({ "type": "boolean" }),
        ParamKind::Integers { min, max } => {
            let item = json!({ "type": "integer", "minimum": min, "maximum": max });
            json!({ "type": "array", "items": item })
        }
        ParamKind::Rates => pairs("time", "rate"),
        ParamKind::Windows => pairs("time", "time"),
        ParamKind::Nodes(min) => names(min),
        ParamKind::Chains => {
            json!({ "anyOf": [names(2), { "type": "array", "items": names(2), "minItems": 1 }] })
        }
    };
    schema["description"] = json!(param.what);
    match param.default {
        Fallback::Written(text) => schema["default"] = value_or_text_json(text),
        Fallback::Absent(text) => {
            schema["description"] = json!(format!("{}; without it: {text}", param.what));
        }
        Fallback::Required => {}
    }
    schema
}

/// A list of node names.
fn names(min: usize) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "minItems": min })
}

/// A list of pairs.
fn pairs(first: &str, second: &str) -> Value {
    let pair = json!({
        "type": "array",
        "items": [reference(first), reference(second)],
        "minItems": 2,
        "maxItems": 2,
    });
    json!({ "type": "array", "items": pair, "minItems": 1 })
}

fn reference(name: &str) -> Value {
    json!({ "allOf": [{ "$ref": format!("#/definitions/{name}") }] })
}

fn units(units: &[(&str, u64)]) -> String {
    units.iter().map(|&(unit, _)| unit).collect::<Vec<_>>().join("|")
}

fn quantity<Q: Quantity>() -> Value {
    json!({
        "type": "string",
        "description": format!("A {} with its unit, like \"10 {}\".", Q::NAME, Q::PROPOSED[0]),
        "pattern": format!("^ *[0-9_]*[.]?[0-9_]*([eE][+-]?[0-9]+)? *({}) *$", units(Q::UNITS)),
    })
}

fn per_byte() -> Value {
    let all = format!("{}|{}", units(PerByte::UNITS), units(Rate::UNITS));
    json!({
        "type": "string",
        "description": "A time per byte, like \"0.5 ns/B\", or the equivalent rate: \"2 GB/s\".",
        "pattern": format!("^ *[0-9_]*[.]?[0-9_]*([eE][+-]?[0-9]+)? *({all}) *$"),
    })
}

/// A distribution of what `one` describes.
fn draw(one: &str) -> Value {
    let value = || reference(one);
    let pair = || json!({ "type": "array", "items": value(), "minItems": 2, "maxItems": 2 });
    let only = |properties: Value| {
        let names: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
        json!({
            "type": "object",
            "required": names,
            "properties": properties,
            "additionalProperties": false,
        })
    };
    let share = json!({ "type": "number", "minimum": 0, "maximum": 1 });
    let number = json!({ "type": "number", "minimum": 0 });
    let weighted = json!([value(), { "type": "integer", "minimum": 1 }]);
    let weighted = json!({ "type": "array", "items": weighted, "minItems": 2, "maxItems": 2 });
    json!({
        "description": format!("A {one} that is always the same, or a distribution."),
        "anyOf": [
            value(),
            only(json!({ "exponential": value() })),
            only(json!({ "uniform": pair() })),
            only(json!({ "either": pair(), "first": share })),
            only(json!({ "hyper-exponential": pair(), "first": share })),
            only(json!({ "geometric": value(), "slot": value() })),
            only(json!({ "pareto": value(), "shape": number })),
            only(json!({ "log-normal": value(), "sigma": number })),
            only(json!({ "mix": { "type": "array", "minItems": 1, "items": weighted } })),
        ],
    })
}

fn sizes() -> Value {
    let size = json!({ "$ref": "#/definitions/size" });
    let weight = json!({ "type": "integer", "minimum": 1 });
    json!({
        "description": "A packet length, or several with their weights.",
        "anyOf": [
            size,
            {
                "type": "array",
                "minItems": 1,
                "items": { "type": "array", "items": [size, weight], "minItems": 2, "maxItems": 2 },
            },
        ],
    })
}
