//! `show labels`: what becomes of packets with labels, and what RSVP has set up.

use super::show::each;
use lastmeter_base::Rate;
use serde_json::Value;
use std::fmt::Write;

/// Flows with labels, and paths of RSVP.
pub(super) fn text(shown: &Value) -> String {
    let mut text = format!(
        "{:>8} {:10} {:>8} {:22} {:>12} {:>12} {}\n",
        "label", "from", "next", "to", "reserved", "packets", "flow"
    );
    let number = |value: &Value| value.as_u64().map_or("-".to_owned(), |number| number.to_string());
    let word = |value: &Value, absent: &str| value.as_str().unwrap_or(absent).to_owned();
    let is_labelled =
        |flow: &&Value| ["label", "next-label", "rsvp"].iter().any(|key| !flow[*key].is_null());
    for flow in each(shown, "flows").filter(is_labelled) {
        let to = match (flow["next"]["via"].as_str(), flow["next"]["port"].as_str()) {
            (Some(via), Some(port)) => format!("{port} > {via}"),
            _ => "as it is addressed".to_owned(),
        };
        let rate = flow["rate"].as_u64().filter(|rate| *rate > 0);
        let _ = writeln!(
            text,
            "{:>8} {:10} {:>8} {to:22} {:>12} {:>12} {}",
            number(&flow["label"]),
            word(&flow["from"], "*"),
            number(&flow["next-label"]),
            rate.map_or("-".to_owned(), |rate| Rate::from_bits(rate).to_string()),
            flow["packets"].as_u64().unwrap_or(0),
            word(&flow["name"], "?"),
        );
        if let Some(why) = flow["waits"].as_str() {
            let _ = writeln!(text, "    waits: {why}");
        }
    }
    let rsvp = &shown["rsvp"];
    for path in each(rsvp, "paths") {
        let _ = writeln!(
            text,
            "tunnel {} of {} to {}: from {}, to {}{}",
            path["tunnel"],
            word(&path["begin"], "?"),
            word(&path["end"], "?"),
            word(&path["before"], "here"),
            word(&path["behind"], "here"),
            if path["admitted"] == Value::Bool(true) { "" } else { ", not reserved" },
        );
    }
    let _ = writeln!(
        text,
        "RSVP: {} messages received, {} refused, {} sent; {} times something was not refreshed",
        rsvp["received"], rsvp["wrong"], rsvp["sent"], rsvp["expired"]
    );
    text
}
