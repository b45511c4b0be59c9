//! A running router on the terminal, for programs, and for Prometheus.

use super::Show;
use super::ledger::ledger;
use crate::{Complaint, Report};
use lastmeter_base::Rate;
use lastmeter_ledger::json::to_json;
use lastmeter_ledger::terminal::{Style, render};
use serde_json::{Value, json};
use std::fmt::Write;

pub(super) fn show(arguments: &Show) -> Result<Report, Complaint> {
    let what = arguments.what.join(" ");
    let shown = arguments.file.ask(&json!({ "show": what }))?;
    let json = match what.as_str() {
        "ledger" => serde_json::from_str(&to_json(&ledger(&shown)))?,
        _ => shown.clone(),
    };
    Ok(Report { text: text(&what, &shown)?, json: vec![json], good: true })
}

/// What was asked for, for people.
pub(super) fn text(what: &str, shown: &Value) -> Result<String, Complaint> {
    Ok(match what {
        "ports" => ports(shown),
        "plugins" => plugins(shown),
        "routes" => routes(shown),
        "ledger" => render(&ledger(shown), Style { width: 100, color: false, unicode: true }),
        "flows" => super::flows::text(shown),
        "labels" => super::labels::text(shown),
        "neighbours" => neighbours(shown),
        "processors" => processors(shown),
        "drawing" => super::drawing::drawing(shown),
        "boot" => boot(shown),
        "metrics" => metrics(shown),
        "configuration" => shown.as_str().unwrap_or_default().to_owned(),
        what if what.starts_with("route ") => format!("{shown:#}\n"),
        other => {
            return Err(Complaint(format!(
                "{other:?} cannot be shown: ports, routes, route ADDRESS, flows, labels, \
                 neighbours, processors, drawing, plugins, ledger, boot, metrics, configuration"
            )));
        }
    })
}

pub(super) fn each<'a>(shown: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    shown[list].as_array().into_iter().flatten()
}

fn ports(shown: &Value) -> String {
    let mut text = format!(
        "{:12} {:>5} {:>14} {:>14} {:>12} {:>8}  {}\n",
        "port", "link", "received", "sent", "not sent", "waiting", "why not sent"
    );
    for port in each(shown, "ports") {
        let counts = &port["counts"];
        let reasons: Vec<(String, u64)> = counts
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, count)| {
                Some((name.strip_prefix("dropped/")?.to_owned(), count.as_u64()?))
            })
            .collect();
        let lost: u64 = reasons.iter().map(|(_, count)| count).sum();
        let why: Vec<String> =
            reasons.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let count = |name: &str| counts[name].as_u64().unwrap_or(0);
        let link = if port["up"] == json!(true) { "up" } else { "down" };
        let _ = writeln!(
            text,
            "{:12} {:>5} {:>14} {:>14} {:>12} {:>8}  {}",
            port["name"].as_str().unwrap_or("?"),
            link,
            count("received"),
            count("sent"),
            lost,
            port["waiting"].as_u64().unwrap_or(0),
            why.join(", ")
        );
        if count("overrun") > 0 {
            let _ = writeln!(text, "{:12} {} lost before they were taken", "", count("overrun"));
        }
        if count("fast") > 0 {
            let _ = writeln!(text, "{:12} {} more by the fast path", "", count("fast"));
        }
        if count("hinted") > 0 {
            let _ = writeln!(text, "{:12} {} of known flows, with a hint", "", count("hinted"));
        }
    }
    text
}

fn routes(shown: &Value) -> String {
    let mut text = format!(
        "{} IPv4 and {} IPv6 prefixes in {} bytes; {} in the control processor, \
         {} sets of next routers, \
         {} changes told\n",
        shown["routes"]["v4"],
        shown["routes"]["v6"],
        shown["routes"]["bytes"],
        shown["control"]["routes"],
        shown["control"]["hops"],
        shown["control"]["changes"],
    );
    let steps = &shown["control"]["in-step"];
    let ms = |key: &str| steps[key].as_f64().unwrap_or(0.0) * 1e3;
    if steps["measured"].as_u64() > Some(0) {
        let _ = writeln!(
            text,
            "changes are in all tables after {:.2} ms (mean of {} measured; last {:.2}, \
             at most {:.2})",
            ms("mean"),
            steps["measured"],
            ms("last"),
            ms("most")
        );
    }
    for (family, name) in [("v4", "IPv4"), ("v6", "IPv6")] {
        let lookup = &shown["routes"]["lookup"][family];
        let word = |key: &str| lookup[key].as_str().unwrap_or("?");
        let _ = writeln!(text, "{name} is looked up in {}: {}", word("structure"), word("why"));
    }
    text
}

fn plugins(shown: &Value) -> String {
    let mut text = format!(
        "{:16} {:>12} {:>12} {:>12} {:>9}\n",
        "plugin", "seen", "denied", "changed", "failures"
    );
    for plugin in each(shown, "plugins") {
        let _ = writeln!(
            text,
            "{:16} {:>12} {:>12} {:>12} {:>9}",
            plugin["name"].as_str().unwrap_or("?"),
            plugin["seen"].as_u64().unwrap_or(0),
            plugin["denied"].as_u64().unwrap_or(0),
            plugin["changed"].as_u64().unwrap_or(0),
            plugin["failures"].as_u64().unwrap_or(0)
        );
        for line in plugin["report"].as_str().unwrap_or_default().lines() {
            let _ = writeln!(text, "    {line}");
        }
        if let Some(last) = plugin["last-failure"].as_str() {
            let _ = writeln!(text, "    failed last: {last}");
        }
    }
    text
}

/// Port processors, and what goes from one to another.
fn processors(shown: &Value) -> String {
    let mut text = format!(
        "{:16} {:>6} {:>6} {:>12} {:>12} {:>8}  {}\n",
        "port processor", "core", "busy", "handed over", "taken over", "waiting", "ports"
    );
    for one in each(shown, "processors") {
        let mut core = one["core"].as_u64().map_or("any".to_owned(), |core| core.to_string());
        if one["real-time"] == true {
            core += " rt";
        }
        let elapsed = one["elapsed"].as_f64().unwrap_or(0.0).max(1e-9);
        let busy = 100.0 * one["cpu"].as_f64().unwrap_or(0.0) / elapsed;
        let ports: Vec<&str> = each(one, "ports").filter_map(Value::as_str).collect();
        let count = |key: &str| one[key].as_u64().unwrap_or(0);
        let _ = writeln!(
            text,
            "{:16} {core:>6} {busy:>4.0} % {:>12} {:>12} {:>8}  {}",
            one["name"].as_str().unwrap_or("?"),
            count("handed-over"),
            count("taken-over"),
            count("waiting-inside"),
            ports.join(", ")
        );
        if let Some(why) = one["ended"].as_str() {
            let _ = writeln!(text, "    has ended, its ports are down: {why}");
        }
        if let Some(periods) = one["fabric"]["periods"].as_u64() {
            let late = &one["fabric"]["late"];
            let _ = writeln!(text, "    told its backlogs {periods} times, {late} late");
        }
    }
    text
}

/// What is outside of each port.
fn neighbours(shown: &Value) -> String {
    let mut text = String::new();
    for port in each(shown, "ports") {
        let word = |key: &str| port[key].as_str().unwrap_or("?").to_owned();
        let line = port["line"].as_u64().filter(|line| *line > 0);
        let line = line.map(|line| Rate::from_bits(line).to_string());
        let line = line.unwrap_or_else(|| "of unknown rate".to_owned());
        let (name, interface, mac) = (word("port"), word("interface"), word("mac"));
        let _ = writeln!(text, "{name:12} {interface}, {mac}, {} B, line {line}", port["mtu"]);
        for neighbour in each(port, "neighbours") {
            let word = |key: &str| neighbour[key].as_str().unwrap_or("?").to_owned();
            let _ = writeln!(text, "    {:40} {}", word("address"), word("mac"));
        }
        for router in each(port, "routers") {
            let word = |key: &str| router[key].as_str().unwrap_or("?").to_owned();
            let (system, port, called) = (word("system"), word("port"), word("description"));
            let _ =
                writeln!(text, "    {system} ({}), its port {port} ({called})", word("chassis"));
        }
    }
    text
}

/// The stages of booting, and of each port processor.
pub(super) fn boot(shown: &Value) -> String {
    let stages: Vec<&Value> = shown.as_array().into_iter().flatten().collect();
    let seconds = |of: &Value| of.as_f64().unwrap_or(0.0);
    let all: f64 = stages.iter().map(|stage| seconds(&stage["seconds"])).sum();
    let mut text = format!("ready after {:.1} ms\n", all * 1e3);
    for stage in stages {
        let name = stage["stage"].as_str().unwrap_or("?");
        let _ = writeln!(text, "  {name:16} {:8.1} ms", seconds(&stage["seconds"]) * 1e3);
        let ups: Vec<&Value> = each(stage, "processors").collect();
        for up in ups.iter().filter(|_| ups.len() > 1) {
            let (from, to) = (seconds(&up["began"]) * 1e3, seconds(&up["ended"]) * 1e3);
            let parts = each(up, "stages").map(|part| {
                let name = part["stage"].as_str().unwrap_or("?");
                format!("{name} {:.1} ms", seconds(&part["seconds"]) * 1e3)
            });
            let parts = parts.collect::<Vec<_>>().join(", ");
            let name = up["processor"].as_str().unwrap_or("?");
            let _ = writeln!(text, "    {name:14} from {from:.1} to {to:.1} ms: {parts}");
        }
    }
    text
}

/// In Prometheus's text format.
fn metrics(shown: &Value) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "# TYPE lastmeter_router_packets counter");
    for port in each(shown, "ports") {
        let name = port["name"].as_str().unwrap_or("?");
        for (count, value) in port["counts"].as_object().into_iter().flatten() {
            let _ = writeln!(
                text,
                "lastmeter_router_packets{{port=\"{name}\",count=\"{count}\"}} {value}"
            );
        }
    }
    let _ = writeln!(text, "# TYPE lastmeter_router_waiting gauge");
    for port in each(shown, "ports") {
        let name = port["name"].as_str().unwrap_or("?");
        let _ = writeln!(text, "lastmeter_router_waiting{{port=\"{name}\"}} {}", port["waiting"]);
    }
    let _ = writeln!(text, "# TYPE lastmeter_router_flow_packets counter");
    for flow in each(shown, "flows") {
        let name = flow["name"].as_str().unwrap_or("?");
        for (count, value) in [
            ("packets", &flow["packets"]),
            ("within", &flow["reserved"]["within"]),
            ("beyond", &flow["reserved"]["beyond"]),
            ("dropped", &flow["reserved"]["dropped"]),
        ] {
            if let Some(value) = value.as_u64() {
                let _ = writeln!(
                    text,
                    "lastmeter_router_flow_packets{{flow=\"{name}\",count=\"{count}\"}} {value}"
                );
            }
        }
    }
    let _ = writeln!(text, "# TYPE lastmeter_router_processor_packets counter");
    for one in each(shown, "processors") {
        let name = one["name"].as_str().unwrap_or("?");
        for count in ["handed-over", "taken-over"] {
            let value = one[count].as_u64().unwrap_or(0);
            let _ = writeln!(
                text,
                "lastmeter_router_processor_packets{{processor=\"{name}\",count=\"{count}\"}} \
                 {value}"
            );
        }
    }
    let _ = writeln!(text, "# TYPE lastmeter_router_processor_up gauge");
    for one in each(shown, "processors") {
        let name = one["name"].as_str().unwrap_or("?");
        let up = u8::from(one["ended"].is_null());
        let _ = writeln!(text, "lastmeter_router_processor_up{{processor=\"{name}\"}} {up}");
    }
    let _ = writeln!(text, "# TYPE lastmeter_router_routes gauge");
    for family in ["v4", "v6"] {
        let count = &shown["routes"][family];
        let _ = writeln!(text, "lastmeter_router_routes{{family=\"{family}\"}} {count}");
    }
    let _ = writeln!(text, "# TYPE lastmeter_router_cpu_seconds counter");
    let _ = writeln!(text, "lastmeter_router_cpu_seconds {}", shown["cpu"]);
    text
}
