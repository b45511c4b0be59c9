//! A router's twin beside the router: a calibration of this machine, and what is measured for any router's file.
//!
//! ```text
//! calibration: bare at 60 and 1514 B, and with one thing more each at 60 B --> constants
//! beside:      a router's file, its ports put into the namespaces of the bench --> rate, round trips
//! ```
//!
//! Rates are packets for each second of the router's CPU, receiving included, while more is offered than it forwards:
//! what others take of its core does not count. Round trips are those of `ping` through the router, less those to its
//! nearer port; on two cores the sender's own scheduling is in them.

use super::place::{self, Between, NEXT, Place};
use super::{Bench, COMPLETE, Case, Complaint, Files, Line, TAIL, WARM, begun, best, rounds};
use crate::plugin::counter;
use lastmeter_lab::library::Builtin;
use lastmeter_linux::load::{self, Load};
use lastmeter_live::calibrate::{Calibration, Host};
use lastmeter_live::namespace::Isolation;
use lastmeter_router::config::Config;
use lastmeter_router::twin::cost::{Costs, Features, Sample};
use lastmeter_router::twin::{LOADS, Sizes, Twin, Way, features};
use std::path::Path;
use std::time::Duration;

/// Frames a second that are offered first: more than a core forwards.
const OFFERED: f64 = 2.0e6;
/// Then so many times what was forwarded: frames that find no room cost the kernel time, which is no part of what a
/// packet costs that is forwarded.
const AGAIN: f64 = 1.1;
/// How often again; a quick look does so once. The run that costs least counts.
const AGAINS: usize = 3;
/// Shorter runs are a quick look.
const SHORT: f64 = 1.0;
/// Measurements of each, of which the median counts, unless it is a quick look.
const ROUNDS: usize = 3;
/// What others use of the machine is looked at for so long.
const LOOK: Duration = Duration::from_millis(300);
/// A router that had less of its core while too much was offered was kept from it.
const KEPT: f64 = 0.8;
/// Round trips are measured while a source runs for so long, in seconds.
const PROBED: f64 = 1.5;
/// Destinations of a router without a table: addresses for benchmarks (RFC 2544).
const DESTINATIONS: u32 = 1 << 16;
const BENCHMARKS: u32 = 0xc612_0000;
/// The host beyond the router, and the router's nearer port.
const BEYOND: &str = "10.2.0.2";
const NEARER: &str = "10.1.0.2";

/// The files of a router in the bench: its own, and the destinations of packets.
const FILE: &str = "router.toml";
const LIST: &str = "destinations.txt";

/// With nothing.
const BARE: Case = Case {
    table: false,
    filters: false,
    fair: false,
    plugin: false,
    fast: false,
    split: false,
    receive: None,
};
/// The runs of a calibration.
const RUNS: [(Case, usize); 7] = [
    (BARE, 60),
    (BARE, 1514),
    (Case { table: true, ..BARE }, 60),
    (Case { filters: true, ..BARE }, 60),
    (Case { fair: true, ..BARE }, 60),
    (Case { plugin: true, ..BARE }, 60),
    (Case { split: true, ..BARE }, 60),
];
/// Configurations that the twin is judged by, none of which is among the runs.
const JUDGED: [(&str, Case, usize); 6] = [
    ("router/twin/complete@60", COMPLETE, 60),
    ("router/twin/complete@512", COMPLETE, 512),
    ("router/twin/complete-plugin@60", Case { plugin: true, ..COMPLETE }, 60),
    ("router/twin/table-filters@256", Case { fair: false, ..COMPLETE }, 256),
    ("router/twin/bare@800", BARE, 800),
    ("router/twin/queues-plugin@1514", Case { fair: true, plugin: true, ..BARE }, 1514),
];

/// What a port's router is, from its file.
fn described(file: &Path) -> Result<(Config, String, Sizes, Way), Complaint> {
    let text = std::fs::read_to_string(file)?;
    let config = Config::parse("router.toml", text.as_bytes(), &Builtin);
    let wrong = |problems: Vec<lastmeter_lab::document::Problem>| {
        Complaint(problems.iter().map(|problem| problem.render(false)).collect())
    };
    let config = config.map_err(wrong)?;
    let sizes = Sizes::of(&config, file.parent().unwrap_or(Path::new(".")))?;
    let port = |name: &str| config.port(name).map(usize::from).ok_or("a port of the bench");
    let way = Way { from: port("west")?, to: port("east")? };
    Ok((config, text, sizes, way))
}

/// Seconds of the kernel and of the router for a packet.
fn costs(found: &Between) -> [f64; 2] {
    let all = 1.0 / found.per_cpu.max(1e-9);
    [all * found.kernel, all * (1.0 - found.kernel)]
}

/// The run of a place that costs least.
fn highest(
    place: &mut Place,
    bench: &Bench,
    len: usize,
    list: &Path,
) -> Result<Between, Complaint> {
    let mut found = rounds(place, bench, len, OFFERED, list)?;
    let mut all = Vec::new();
    for _ in 0..if bench.seconds < SHORT { 1 } else { AGAINS } {
        let offered = (AGAIN * found.rate).clamp(1.0, OFFERED);
        all.push(std::mem::replace(&mut found, rounds(place, bench, len, offered, list)?));
    }
    all.push(found);
    Ok(best(all))
}

/// Round trips through the router when it is idle, less those to its nearer port.
fn idle_trip(place: &Place) -> Result<Option<f64>, Complaint> {
    // The first probes wait for addresses.
    let _ = place.trip(BEYOND)?;
    let hosts = place.trip(NEARER)?;
    let there = place.trip(BEYOND)?;
    Ok(there.zip(hosts).map(|(there, hosts)| (there - hosts).max(0.0)))
}

/// What others use, for a note.
pub(crate) fn others() -> Result<Load, Complaint> {
    Ok(load::others(LOOK)?)
}

/// Measures the constants of this machine.
fn calibrated(bench: &Bench, files: &Files) -> Result<Calibration, Complaint> {
    let used = others()?.used;
    let list = files.folder.join("random.txt");
    let (mut samples, mut trip) = (Vec::new(), None);
    let mut none = Features::default();
    for (case, len) in RUNS {
        super::eprint_line(&format!(
            "run {} of {} for a calibration",
            samples.len() + 1,
            RUNS.len()
        ));
        let file = files.router(case)?;
        let (config, _, sizes, way) = described(&file)?;
        let features = features(&config, sizes, way);
        let mut place = begun(&file)?;
        if samples.is_empty() {
            trip = idle_trip(&place)?;
            none = features;
        }
        let found = highest(&mut place, bench, len, &list)?;
        let [kernel, own] = costs(&found);
        samples.push(Sample { features, len: len as f64, kernel, own });
    }
    // Half of an idle round trip is a wake-up and a packet's work.
    let (costs, errors) = Costs::fit(&samples, 0.0);
    let wake = trip.map_or(0.0, |trip| (trip / 2.0 - costs.packet(&none, 98.0)).max(0.0));
    let host = Host::here(used, Isolation::Root)?;
    Ok(Costs { wake, ..costs }.calibration(host, &samples, errors))
}

/// The same, with files of its own.
pub(crate) fn calibrate(seconds: f64, quick: bool) -> Result<Calibration, Complaint> {
    let folder = crate::measured::Folder::new(&std::env::temp_dir(), "twin")?;
    let files = Files::write(folder.path(), quick, counter()?)?;
    let rounds = if quick { 1 } else { ROUNDS };
    let bench = Bench { name: None, seconds, rounds, plugin: None };
    calibrated(&bench, &files)
}

/// The lines of `bench router/twin`: what is measured, beside what the twin says.
pub(super) fn lines(bench: &Bench, files: &Files, quick: bool) -> Result<Vec<Line>, Complaint> {
    let calibration = calibrated(bench, files)?;
    let costs = Costs::of_calibration(&calibration)?;
    let list = files.folder.join("random.txt");
    let mut lines = Vec::new();
    for (name, case, len) in JUDGED {
        if bench.name.as_ref().is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        super::eprint_line(name);
        let file = files.router(case)?;
        let (config, text, sizes, way) = described(&file)?;
        let told = Twin::new(&config, &text, sizes, way, costs)?.predict(len as u64)?;
        let found = highest(&mut begun(&file)?, bench, len, &list)?;
        let words = told.ledger.verdict.as_ref().map_or("", |verdict| verdict.words.as_str());
        let decided = if is_decided(&found) { "" } else { "UNDECIDED: " };
        lines.push(Line {
            name: name.to_owned(),
            value: found.per_cpu,
            unit: "packets/CPU s",
            peer: Some(("the twin", told.rate)),
            note: format!("{decided}{:.2} cores; {words}", found.cores),
        });
    }
    let (used, run) = (calibration.host.others, if quick { "20,000" } else { "all" });
    for line in &mut lines {
        line.note += &format!("; others used {used:.1} CPUs, a table of {run} prefixes");
    }
    Ok(lines)
}

/// Whether a router that was offered too much had its core for itself.
fn is_decided(found: &Between) -> bool {
    found.cores >= KEPT
}

/// What was measured of a router's file.
pub(crate) struct Beside {
    /// Packets a second on the wall, and for each second of the router's CPU.
    pub(crate) rate: f64,
    pub(crate) per_cpu: f64,
    /// Whether the router had its core for itself.
    pub(crate) decided: bool,
    /// Round trips when idle and at each of [`LOADS`], in seconds.
    pub(crate) trips: Vec<Option<f64>>,
}

/// A router's file in the namespaces of the bench.
pub(crate) struct Placed {
    folder: crate::measured::Folder,
}

impl Placed {
    /// `way` are the names of its ports.
    pub(crate) fn new(text: &str, folder: &Path, way: [&str; 2]) -> Result<Placed, Complaint> {
        let own = crate::measured::Folder::new(&std::env::temp_dir(), "twin-beside")?;
        let mut table: toml::Table = text.parse()?;
        let mut destinations = String::new();
        if let Some(routes) = table.get("table").and_then(toml::Value::as_str) {
            let routes = std::fs::read_to_string(folder.join(routes))?;
            let mut here = String::new();
            for prefix in routes.lines().filter_map(|line| line.split_whitespace().next()) {
                here += &format!("{prefix} {NEXT}\n");
                let address = prefix.split('/').next().unwrap_or(prefix);
                if let Ok(address) = address.parse::<std::net::Ipv4Addr>()
                    && !matches!(address.octets()[0], 0 | 10 | 127 | 224..)
                {
                    destinations += &format!("{address}\n");
                }
            }
            std::fs::write(own.path().join("table.txt"), here)?;
            table.insert("table".to_owned(), "table.txt".into());
        }
        if destinations.is_empty() {
            for at in 0..DESTINATIONS {
                destinations += &format!("{}\n", std::net::Ipv4Addr::from(BENCHMARKS + at));
            }
        }
        std::fs::write(own.path().join(LIST), destinations)?;
        let placed = placed(table, folder, way)?;
        std::fs::write(own.path().join(FILE), toml::to_string(&placed)?)?;
        Ok(Placed { folder: own })
    }

    /// Measures it with frames of so many bytes.
    pub(crate) fn measure(&self, len: usize, seconds: f64) -> Result<Beside, Complaint> {
        let bench = Bench { name: None, seconds, rounds: 1, plugin: None };
        let list = self.folder.path().join(LIST);
        let mut place = begun(&self.folder.path().join(FILE))?;
        let mut trips = vec![idle_trip(&place)?];
        let hosts = place.trip(NEARER)?;
        let found = highest(&mut place, &bench, len, &list)?;
        for load in LOADS {
            let rate = (load * found.rate).max(1.0);
            let source = place.source(len, rate, &list, PROBED + TAIL)?;
            std::thread::sleep(WARM);
            let there = place.trip(BEYOND)?;
            let _ = place::offered(source)?;
            trips.push(there.zip(hosts).map(|(there, hosts)| (there - hosts).max(0.0)));
        }
        let Between { rate, per_cpu, .. } = found;
        Ok(Beside { rate, per_cpu, decided: is_decided(&found), trips })
    }
}

/// A router's file whose two ports are those of the bench; what has to do with others is left out.
fn placed(old: toml::Table, folder: &Path, way: [&str; 2]) -> Result<toml::Table, Complaint> {
    use toml::Value;
    let file = |name: &str| Value::from(folder.join(name).display().to_string());
    let mut new = toml::Table::new();
    for key in ["table", "lookup", "receive", "frames"] {
        new.extend(old.get(key).map(|value| (key.to_owned(), value.clone())));
    }
    if let Some(rules) = old.get("rules").and_then(Value::as_str) {
        new.insert("rules".to_owned(), file(rules));
    }
    let mut ports = toml::Table::new();
    for (name, interface) in way.into_iter().zip(["r0", "r1"]) {
        let port = old.get("ports").and_then(|ports| ports.get(name)?.as_table());
        let mut port = port.ok_or(format!("no port is called {name:?}"))?.clone();
        port.insert("interface".to_owned(), interface.into());
        ports.insert(name.to_owned(), port.into());
    }
    new.insert("ports".to_owned(), ports.into());
    // As the bench has it: the router on core 1, a second port processor beside the source.
    let of = |name: &str| -> Option<String> {
        let all = old.get("processors")?.as_table()?;
        let serves = |one: &Value| {
            one.get("ports")
                .and_then(Value::as_array)
                .is_some_and(|ports| ports.iter().any(|port| port.as_str() == Some(name)))
        };
        all.iter().find(|(_, one)| serves(one)).map(|(own, _)| own.clone())
    };
    if of(way[0]) == of(way[1]) {
        new.insert("core".to_owned(), 1.into());
    } else {
        let mut processors = toml::Table::new();
        for (name, core) in way.into_iter().zip([1i64, 0]) {
            let mut one = toml::Table::new();
            one.insert("ports".to_owned(), vec![Value::from(name)].into());
            one.insert("core".to_owned(), core.into());
            processors.insert(format!("of-{name}"), one.into());
        }
        new.insert("processors".to_owned(), processors.into());
    }
    if let Some(Value::Table(plugins)) = old.get("plugins") {
        let mut plugins = plugins.clone();
        for (_, plugin) in &mut plugins {
            let module = plugin.get("module").and_then(Value::as_str).map(file);
            if let (Some(module), Some(table)) = (module, plugin.as_table_mut()) {
                table.insert("module".to_owned(), module);
            }
        }
        new.insert("plugins".to_owned(), plugins.into());
    }
    let items = |key: &str| old.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let alone =
        |filter: &Value| ["from", "via", "flow"].iter().all(|key| filter.get(key).is_none());
    let filters: Vec<Value> = items("filters").into_iter().filter(alone).collect();
    new.insert("filters".to_owned(), filters.into());
    let mut routes = items("routes");
    routes.retain(|route| route.get("table").is_none());
    for route in routes.iter_mut().filter_map(Value::as_table_mut) {
        route.insert("via".to_owned(), NEXT.into());
    }
    let mut rest = toml::Table::new();
    rest.insert("prefix".to_owned(), "0.0.0.0/0".into());
    rest.insert("via".to_owned(), NEXT.into());
    routes.push(rest.into());
    new.insert("routes".to_owned(), routes.into());
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_put_into_the_namespaces_with_all_that_costs_a_packet_something() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("t.txt"), "192.0.2.0/24 10.7.0.1\n").expect("written");
        std::fs::write(
            folder.path().join("r.txt"),
            "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF\n",
        )
        .expect("written");
        let text = "table = 't.txt'\nrules = 'r.txt'\nfpm = '127.0.0.1:2620'\nkernel-routes = true\n\
            [ports.a]\ninterface = 'eth0'\nplugins = ['x']\n[ports.b]\ninterface = 'eth1'\n\
            rate = '1 Gbit/s'\nqueue = { qsdrr = { queues = 8, packets = 100 } }\n\
            [ports.c]\ninterface = 'eth2'\n[plugins.x]\nexpression = '(< 0 length)'\n\
            [processors.one]\nports = ['a', 'c']\n[processors.two]\nports = ['b']\n\
            [[routes]]\nprefix = '198.51.100.0/24'\nvia = '10.9.0.9'\n\
            [[filters]]\nfrom = 'c'\naction = 'deny'\n\
            match = '@10.9.0.0/16 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF'\n";
        let placed = Placed::new(text, folder.path(), ["a", "b"]);
        let placed = placed.map_err(|complaint| complaint.0).expect("a router");
        let path = placed.folder.path();
        let text = std::fs::read(path.join(FILE)).expect("written");
        let config = Config::parse("router.toml", &text, &Builtin).expect("a router's file");
        let names: Vec<_> = config.ports.iter().map(|p| p.interface.as_str()).collect();
        assert_eq!(names, ["r0", "r1"]);
        assert!(config.fpm.is_none() && !config.kernel_routes && config.filters.is_empty());
        assert_eq!(config.processors.len(), 2);
        assert!(config.routes.iter().all(|route| route.via == NEXT.parse().ok()));
        let sizes = Sizes::of(&config, path).expect("its files");
        assert_eq!(sizes, Sizes { prefixes: 3, filters: 1 });
        let all = features(&config, sizes, Way { from: 0, to: 1 });
        assert_eq!((all.queue, all.plugins, all.cross), (1.0, 1.0, 1.0));
        let list = std::fs::read_to_string(path.join(LIST)).expect("written");
        assert_eq!(list, "192.0.2.0\n");
    }
}
