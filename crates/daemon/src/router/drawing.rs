//! A drawing of a running router: where control comes from, and which way packets take (D-18).
//!
//! ```text
//! control   router.toml, FRR at 127.0.0.1:2620
//!               |
//!           control processor: 12 routes ---- changes ----> tables of all port processors
//! data      one (core 0)
//!             --> west (eth0) --> parse --> classify 2 filters --> lookup --+
//!             <-- west (eth0) <-- line 100 Mbit/s <-- qsdrr <---------------+
//! ```

use super::show::each;
use lastmeter_base::Rate;
use serde_json::Value;
use std::fmt::Write;

fn words(of: &Value) -> Vec<&str> {
    of.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The drawing, of what was told of the router's state.
pub(super) fn drawing(shown: &Value) -> String {
    let own = &shown["drawing"];
    let mut text = format!("control   {}\n", words(&own["sources"]).join(", "));
    let (v4, v6) = (&shown["routes"]["v4"], &shown["routes"]["v6"]);
    let _ = writeln!(text, "              |");
    let _ = writeln!(
        text,
        "          control processor: {} routes ---- changes ----> all port processors: {v4} IPv4, \
         {v6} IPv6 prefixes",
        shown["control"]["routes"]
    );
    let _ = writeln!(text, "              |");
    let fabric = own["fabric"] == Value::Bool(true);
    let several = each(shown, "processors").count() > 1;
    for (at, one) in each(shown, "processors").enumerate() {
        let title = if at == 0 { "data" } else { "" };
        let core =
            one["core"].as_u64().map_or("any core".to_owned(), |core| format!("core {core}"));
        let name = one["name"].as_str().unwrap_or("?");
        let state = one["ended"].as_str().map_or(String::new(), |why| format!(", ended: {why}"));
        let _ = writeln!(text, "{title:8}  port processor {name} ({core}{state})");
        for port in words(&one["ports"]) {
            draw_port(&mut text, shown, port);
        }
        if several || fabric {
            let way =
                if fabric { "virtual output queues, rates by backlogs" } else { "batches of 64" };
            let _ = writeln!(
                text,
                "              +==== {way} ====> other ports: {} handed over, {} taken over",
                one["handed-over"], one["taken-over"]
            );
        }
    }
    text
}

fn draw_port(text: &mut String, shown: &Value, name: &str) {
    let own = &shown["drawing"];
    let is_it = |port: &&Value| port["name"] == *name;
    let (Some(port), Some(state)) =
        (each(own, "ports").find(is_it), each(shown, "ports").find(is_it))
    else {
        return;
    };
    let interface = port["interface"].as_str().unwrap_or("?");
    let count = |key: &str| state["counts"][key].as_u64().unwrap_or(0);
    let mut way = Vec::new();
    if own["fast"] == Value::Bool(true) {
        way.push("fast path: known flows".to_owned());
    }
    way.push("parse".to_owned());
    let flows = own["flows"].as_array().map_or(0, Vec::len);
    let filters = own["filters"].as_u64().unwrap_or(0);
    let mut rules = Vec::new();
    if flows > 0 {
        rules.push(format!("{flows} flows"));
    }
    if filters > 0 {
        rules.push(format!("{filters} filters"));
    }
    rules.extend(own["rules"].as_str().map(str::to_owned));
    if !rules.is_empty() {
        way.push(format!("classify by {}", rules.join(", ")));
    }
    way.extend(words(&port["plugins"]).iter().map(|plugin| format!("plugin {plugin}")));
    if own["policies"].as_u64() > Some(0) {
        way.push(format!("{} policies", own["policies"]));
    }
    way.push("lookup".to_owned());
    let _ = writeln!(
        text,
        "            --> {name} ({interface}), {} received --> {} --+",
        count("received"),
        way.join(" --> ")
    );
    let rate = port["line"].as_u64().filter(|line| *line > 0);
    let rate = rate.map_or("its own rate".to_owned(), |line| Rate::from_bits(line).to_string());
    let mut back = vec![format!("line of {rate}")];
    back.push(format!("{}, {} waiting", port["queue"].as_str().unwrap_or("?"), state["waiting"]));
    back.extend(words(&port["departing"]).iter().rev().map(|plugin| format!("plugin {plugin}")));
    let link = if state["up"] == Value::Bool(true) { "" } else { ", down" };
    let _ = writeln!(
        text,
        "            <-- {name} ({interface}{link}), {} sent <-- {} <--+",
        count("sent"),
        back.join(" <-- ")
    );
}
