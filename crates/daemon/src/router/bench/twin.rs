//! A router's twin beside the router: a calibration of this machine, and what is measured for any router's file.
//!
//! ```text
//! calibration: bare at six lengths, and with one thing more each at 60 B --> constants
//! judged:      six other routers, started in turn with those             --> rate beside the twin's
//! beside:      a router's file, its ports put into the namespaces of the bench --> rate, round trips
//! ```
//!
//! Rates are packets for each second of the router's CPU, receiving included, while more is offered than it forwards:
//! what others take of its core does not count. Round trips are those of `ping` through the router, less those to its
//! nearer port; on two cores the sender's own scheduling is in them.

use super::files::{BARE, COMPLETE, Case, Files, RANDOM};
use super::place::{self, Between, NEXT, Place};
use super::search::{self, Several, Starts, highest, in_turn};
use super::{Bench, Complaint, Line, TAIL, WARM, begun};
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

/// Starts of each router of a calibration, unless they disagree or it is a quick look.
const STARTS: usize = 2;
/// What others use of the machine is looked at for so long.
const LOOK: Duration = Duration::from_millis(300);
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

/// Bytes of frames with which a router that has nothing is measured; costs between are on straight lines. Denser where
/// the kernel's memory for a frame gets larger. Only the shortest and the longest are lengths of [`JUDGED`], too.
const LENGTHS: [usize; 6] = [60, 128, 384, 640, 1100, 1514];
const LENGTHS_QUICK: [usize; 3] = [60, 640, 1514];
/// Routers with one thing more, each measured with the shortest frames.
const WITH: [Case; 5] = [
    Case { table: true, ..BARE },
    Case { filters: true, ..BARE },
    Case { fair: true, ..BARE },
    Case { plugin: true, ..BARE },
    Case { split: true, ..BARE },
];
/// Configurations that the twin is judged by: no router of a calibration is measured with the same frames.
const JUDGED: [(&str, Case, usize); 6] = [
    ("router/twin/complete@60", COMPLETE, 60),
    ("router/twin/complete@512", COMPLETE, 512),
    ("router/twin/complete-plugin@60", Case { plugin: true, ..COMPLETE }, 60),
    ("router/twin/table-filters@256", Case { fair: false, ..COMPLETE }, 256),
    ("router/twin/bare@800", BARE, 800),
    ("router/twin/queues-plugin@1514", Case { fair: true, plugin: true, ..BARE }, 1514),
];

/// A router of the bench, and the frames that it is measured with.
#[derive(Clone)]
struct Subject {
    case: Case,
    lengths: Vec<usize>,
}

/// Those of a calibration; the first has nothing.
fn calibrating(quick: bool) -> Vec<Subject> {
    let lengths = if quick { LENGTHS_QUICK.to_vec() } else { LENGTHS.to_vec() };
    let bare = Subject { case: BARE, lengths };
    let with = WITH.map(|case| Subject { case, lengths: vec![LENGTHS[0]] });
    [bare].into_iter().chain(with).collect()
}

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

/// What was found of some routers.
struct Found {
    /// With each length of frames.
    each: Vec<Vec<Several>>,
    /// Round trips through the first when it is idle, in seconds.
    trip: Option<f64>,
}

/// Starts and measures routers in turn.
fn measured(
    bench: &Bench,
    files: &Files,
    subjects: &[Subject],
    quick: bool,
) -> Result<Found, Complaint> {
    let list = files.folder.join(RANDOM);
    let mut trips = Vec::new();
    let each = in_turn(subjects.len(), Starts::of(bench, quick), |number| {
        let Subject { case, lengths } = &subjects[number];
        super::eprint_line(&format!("router {} of {}", number + 1, subjects.len()));
        let mut place = begun(&files.router(*case)?)?;
        if number == 0 {
            trips.extend(idle_trip(&place)?);
        }
        let one = |len: &usize| highest(&mut place, bench.seconds, *len, &[], &list);
        lengths.iter().map(one).collect()
    })?;
    trips.sort_by(f64::total_cmp);
    Ok(Found { each, trip: trips.get(trips.len() / 2).copied() })
}

/// The constants of this machine, from the routers of a calibration.
fn constants(files: &Files, found: &Found, quick: bool) -> Result<Calibration, Complaint> {
    let mut samples = Vec::new();
    for (Subject { case, lengths }, found) in calibrating(quick).into_iter().zip(&found.each) {
        let (config, _, sizes, way) = described(&files.router(case)?)?;
        let features = features(&config, sizes, way);
        for (len, several) in lengths.into_iter().zip(found) {
            let [kernel, own] = costs(&several.fastest());
            let (spread, routers) = (several.spread(), several.starts() as u32);
            samples.push(Sample { features, len: len as f64, kernel, own, spread, routers });
        }
    }
    let costs = Costs::of(&samples, 0.0);
    // Half of an idle round trip is a wake-up and a packet's work.
    let work = costs.packet(&Features::default(), 98.0);
    let wake = found.trip.map_or(0.0, |trip| (trip / 2.0 - work).max(0.0));
    let others = found.each.iter().flatten().map(|several| several.fastest().others);
    let host = Host::here(others.fold(0.0, f64::max), Isolation::Root)?;
    Ok(Costs { wake, ..costs }.calibration(host, &samples))
}

/// The same, with files of its own.
pub(crate) fn calibrate(seconds: f64, quick: bool) -> Result<Calibration, Complaint> {
    let folder = crate::measured::Folder::new(&std::env::temp_dir(), "twin")?;
    let files = Files::write(folder.path(), None, quick, counter()?)?;
    let bench = Bench { name: None, seconds, rounds: STARTS, plugin: None, table: None };
    let found = measured(&bench, &files, &calibrating(quick), quick)?;
    constants(&files, &found, quick)
}

/// The lines of `bench router/twin`: what is measured, beside what the twin says. Routers of the calibration and those
/// that it is judged by are started in turn, so that all meet the same machine.
pub(super) fn lines(bench: &Bench, files: &Files, quick: bool) -> Result<Vec<Line>, Complaint> {
    let wants =
        |name: &str| bench.name.as_ref().is_none_or(|wanted| name.contains(wanted.as_str()));
    let judged: Vec<_> = JUDGED.into_iter().filter(|(name, ..)| wants(name)).collect();
    let mut subjects = calibrating(quick);
    let calibrated = subjects.len();
    subjects
        .extend(judged.iter().map(|(_, case, len)| Subject { case: *case, lengths: vec![*len] }));
    let found = measured(bench, files, &subjects, quick)?;
    let calibration = constants(files, &found, quick)?;
    let costs = Costs::of_calibration(&calibration)?;
    let calm = found.each[..calibrated].iter().flatten().all(Several::is_calm);
    let mut lines = Vec::new();
    for ((name, case, len), found) in judged.into_iter().zip(&found.each[calibrated..]) {
        let (config, text, sizes, way) = described(&files.router(case)?)?;
        let told = Twin::new(&config, &text, sizes, way, costs.clone())?.predict(len as u64)?;
        let several = &found[0];
        let words = told.ledger.verdict.as_ref().map_or("", |verdict| verdict.words.as_str());
        let own = several.fastest();
        let off = (told.rate / own.per_cpu.max(1e-9) - 1.0) * 100.0;
        let calibration = if calm { "" } else { "UNDECIDED: others ran during the calibration; " };
        lines.push(Line {
            name: name.to_owned(),
            value: own.per_cpu,
            unit: "packets/CPU s",
            peer: Some(("the twin", told.rate)),
            note: format!(
                "{calibration}the twin is off by {off:+.1} %; {}, {:.2} cores; {words}",
                several.words(),
                own.cores
            ),
        });
    }
    for line in &mut lines {
        line.note += &format!("; a table of {} prefixes", files.prefixes);
    }
    Ok(lines)
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
        let list = self.folder.path().join(LIST);
        let mut place = begun(&self.folder.path().join(FILE))?;
        let mut trips = vec![idle_trip(&place)?];
        let hosts = place.trip(NEARER)?;
        let found = highest(&mut place, seconds, len, &[], &list)?;
        for load in LOADS {
            let rate = (load * found.rate).max(1.0);
            let source = place.source(len, rate, &list, PROBED + TAIL)?;
            std::thread::sleep(WARM);
            let there = place.trip(BEYOND)?;
            let _ = place::offered(source)?;
            trips.push(there.zip(hosts).map(|(there, hosts)| (there - hosts).max(0.0)));
        }
        let Between { rate, per_cpu, .. } = found;
        Ok(Beside { rate, per_cpu, decided: search::is_calm(&found), trips })
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
    fn nothing_that_the_twin_is_judged_by_is_measured_for_it() {
        for (name, case, len) in JUDGED {
            let mut all = calibrating(false).into_iter().chain(calibrating(true));
            assert!(!all.any(|own| own.case == case && own.lengths.contains(&len)), "{name}");
        }
    }

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
