//! `lastmeterd router reserve`, and `show flows`.

use super::File;
use super::show::each;
use crate::plugin::fetch::{Wanted, fetch_for, verify_for};
use crate::{Complaint, Report};
use lastmeter_base::Rate;
use lastmeter_router::config::Remote;
use lastmeter_router::control::functions::{Functions, Module};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// How long a code server may take for each file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Code servers, reached through HTTP.
pub(super) struct Server;

fn asked(wanted: &Remote) -> Wanted<'_> {
    let Remote { server, name, version, .. } = wanted;
    let version = version.as_deref();
    // Whoever names a version wants that one, whatever ran before.
    Wanted { server, name, version, rollback: version.is_some(), patience: PATIENCE }
}

impl Functions for Server {
    fn fetch(&self, wanted: &Remote, folder: &Path) -> Result<Module, String> {
        fetch_for(&asked(wanted), &folder.join(&wanted.keys))
    }
    fn verify(
        &self,
        wanted: &Remote,
        folder: &Path,
        code: Vec<u8>,
        signature: String,
    ) -> Result<Module, String> {
        verify_for(&asked(wanted), &folder.join(&wanted.keys), code, signature)
    }
}

#[derive(clap::Args)]
pub(crate) struct Named {
    #[command(flatten)]
    pub(super) file: File,
    /// The flow's name
    pub(super) name: String,
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  lastmeter router reserve router.toml film --rate '5 Mbit/s' --ttl '30 s' \\
    --match '@10.1.0.1/32 10.2.0.2/32 0 : 65535 5004 : 5004 0x11/0xFF'")]
pub(crate) struct Reserve {
    #[command(flatten)]
    file: File,
    /// The flow's name
    name: String,
    /// Its packets: source, destination, ports and protocol as ClassBench writes them
    #[arg(long = "match")]
    packets: String,
    /// The port where they arrive [default: the one towards their source]
    #[arg(long)]
    from: Option<String>,
    /// What it reserves of both lines, framing counted in: `5 Mbit/s`
    #[arg(long)]
    rate: Option<String>,
    /// What its source may send at once: `15 kB`
    #[arg(long)]
    burst: Option<String>,
    /// Packets of it that may wait
    #[arg(long)]
    queue: Option<u64>,
    /// Nodes that it visits, in order: `b,c`
    #[arg(long, value_delimiter = ',')]
    route: Vec<String>,
    /// The next router, whatever the routing table says
    #[arg(long, conflicts_with = "route")]
    via: Option<String>,
    /// The router where a tunnel for it ends, which RSVP sets up: routers as far as that one reserve, too, and its
    /// packets get labels
    #[arg(long, value_name = "ADDRESS", requires = "rate", conflicts_with = "via")]
    rsvp: Option<String>,
    /// Keep the next router that the routing table has now
    #[arg(long)]
    pin: bool,
    /// How long it stays without being refreshed: `30 s` [default: for ever]
    #[arg(long)]
    ttl: Option<String>,
    /// Copy its packets to the control processor
    #[arg(long)]
    copy: bool,
    /// A plugin of the router, or with --server one on that server (NAME or NAME@1.2.0), that its packets pass; several
    /// in this order
    #[arg(long = "function")]
    functions: Vec<String>,
    /// The code server that has the functions
    #[arg(long, requires = "keys")]
    server: Option<String>,
    /// The folder of keys that are trusted, from the router's file on
    #[arg(long)]
    keys: Option<String>,
    /// The configuration of the functions from the server
    #[arg(long, default_value = "")]
    config: String,
}

/// What is asked of the router.
fn question(arguments: &Reserve) -> Value {
    let Reserve { name, packets, from, rate, burst, queue, route, via, rsvp, ttl, .. } = arguments;
    let mut flow = Map::new();
    flow.insert("match".to_owned(), json!(packets));
    for (key, given) in [
        ("from", from),
        ("rate", rate),
        ("burst", burst),
        ("via", via),
        ("rsvp", rsvp),
        ("ttl", ttl),
    ] {
        if let Some(given) = given {
            flow.insert(key.to_owned(), json!(given));
        }
    }
    if let Some(queue) = queue {
        flow.insert("queue".to_owned(), json!(queue));
    }
    if !route.is_empty() {
        flow.insert("route".to_owned(), json!(route));
    }
    for (key, set) in [("pin", arguments.pin), ("copy", arguments.copy)] {
        if set {
            flow.insert(key.to_owned(), json!(true));
        }
    }
    let (mut plugins, mut functions) = (Map::new(), Vec::new());
    for function in &arguments.functions {
        let (Some(server), Some(keys)) = (&arguments.server, &arguments.keys) else {
            functions.push(function.clone());
            continue;
        };
        let (module, version) = match function.split_once('@') {
            Some((module, version)) => (module, Some(version)),
            None => (function.as_str(), None),
        };
        let mut plugin = json!({
            "server": server, "keys": keys, "name": module, "config": arguments.config,
        });
        if let Some(version) = version {
            plugin["version"] = json!(version);
        }
        let own = format!("{name}--{module}");
        plugins.insert(own.clone(), plugin);
        functions.push(own);
    }
    if !functions.is_empty() {
        flow.insert("functions".to_owned(), json!(functions));
    }
    let mut asked = json!({ "reserve": name, "flow": flow });
    if !plugins.is_empty() {
        asked["plugins"] = json!(plugins);
    }
    asked
}

pub(super) fn reserve(arguments: &Reserve) -> Result<Report, Complaint> {
    let answer = arguments.file.ask(&question(arguments))?;
    let text = match answer["refreshed"].is_null() {
        true => granted(&answer, ""),
        false => format!("{} is refreshed\n", arguments.name),
    };
    Ok(Report { text, json: vec![answer], good: true })
}

fn rate(bits: &Value) -> String {
    match bits.as_u64() {
        None | Some(0) => "0 bit/s".to_owned(),
        Some(bits) => Rate::from_bits(bits).to_string(),
    }
}

/// What a router granted, and after it those further on.
fn granted(answer: &Value, indent: &str) -> String {
    let name = answer["reserved"].as_str().unwrap_or("?");
    let mut text = format!("{indent}{name} is set up\n");
    for (what, side) in [("input", &answer["input"]), ("output", &answer["output"])] {
        if let Some(port) = side["port"].as_str() {
            let (taken, most) = (rate(&side["taken"]), rate(&side["reservable"]));
            let free = rate(&side["free"]);
            let _ = writeln!(
                text,
                "{indent}  {what:7} {port}: {taken} of {most} reserved, {free} free"
            );
        }
    }
    if let Some(bound) = answer["delay-bound"].as_f64() {
        let _ = writeln!(text, "{indent}  within its rate it waits at most {:.2} ms", bound * 1e3);
    }
    let next = &answer["next"];
    if let Some(port) = next["port"].as_str() {
        let via = next["via"].as_str().map_or(String::new(), |via| format!(" via {via}"));
        let _ = writeln!(text, "{indent}  leaves by {port}{via}");
    }
    if let Some(label) = answer["tunnel"]["label"].as_u64() {
        let (end, via) = (&answer["tunnel"]["end"], &answer["tunnel"]["via"]);
        let (end, via) = (end.as_str().unwrap_or("?"), via.as_str().unwrap_or("?"));
        let _ = writeln!(text, "{indent}  label {label} to {via}, reserved as far as {end}");
    }
    for stage in each(answer, "stages") {
        let seconds = stage["seconds"].as_f64().unwrap_or(0.0);
        let stage = stage["stage"].as_str().unwrap_or("?");
        let _ = writeln!(text, "{indent}  {stage:28} {:9.2} ms", seconds * 1e3);
    }
    if !answer["then"].is_null() {
        text += &granted(&answer["then"], &format!("{indent}    "));
    }
    text
}

/// Flows and the accounts of ports.
pub(super) fn text(shown: &Value) -> String {
    let mut text = format!(
        "{:16} {:>12} {:20} {:>12} {:>10} {:>8} {:>10}\n",
        "flow", "reserved", "way", "packets", "beyond", "dropped", "most (ms)"
    );
    for flow in each(shown, "flows") {
        let word = |value: &Value| value.as_str().unwrap_or("*").to_owned();
        let reserved = &flow["reserved"];
        let way = match flow["next"]["via"].as_str() {
            Some(via) => format!("{} > {via}", word(&flow["from"])),
            None => format!("{} > {}", word(&flow["from"]), word(&flow["to"])),
        };
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let _ = writeln!(
            text,
            "{:16} {:>12} {:20} {:>12} {:>10} {:>8} {:>10.2}",
            word(&flow["name"]),
            if flow["rate"].is_null() { "-".to_owned() } else { rate(&flow["rate"]) },
            way,
            count(&flow["packets"]),
            count(&reserved["beyond"]),
            count(&reserved["dropped"]),
            reserved["waited-most"].as_f64().unwrap_or(0.0) * 1e3,
        );
        if let Some(left) = flow["seconds-left"].as_f64() {
            let _ = writeln!(text, "    ends in {left:.1} s unless it is refreshed");
        }
        if let Some(why) = flow["waits"].as_str() {
            let _ = writeln!(text, "    waits: {why}");
        }
    }
    for account in each(shown, "accounts").filter(|account| account["taken"] != json!(0)) {
        let word = |key: &str| account[key].as_str().unwrap_or("?").to_owned();
        let _ = writeln!(
            text,
            "{} {}: {} of {} reserved, {} free",
            word("port"),
            word("side"),
            rate(&account["taken"]),
            rate(&account["reservable"]),
            rate(&account["free"]),
        );
    }
    text
}
