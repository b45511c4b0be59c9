//! `lastmeter bench router`: packets for each second of the router's CPU, receiving included, beside the kernel with
//! the same table in the same place.
//!
//! `router/workers-1@60` and `router/workers-2@60` are the same router with a port processor for both ports, and with
//! one for each, the second on the source's core: what a packet costs that crosses from one to the other, and whether
//! two forward more on the wall. ANA §4.1 says that a processor for each port scales until they share something.
//!
//! Rows, D-108, D-110, E-133.

mod overload;
mod place;
pub(super) mod twin;

use super::{Complaint, Report};
use crate::measured::{Folder, line};
use lastmeter_linux::dataplane::{Generator, routing::index_of};
use lastmeter_net::classify::{generate, text};
use lastmeter_net::lookup::table::{self, IPV4_LENGTHS};
use lastmeter_router::port_processor::null::forward;
use lastmeter_router::port_processor::reception::Receive;
use place::{Between, NEXT, Place};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Destinations of the random traffic.
const DESTINATIONS: usize = 1 << 20;
/// Destinations of traffic whose flows are known.
const KNOWN: usize = 1024;
/// Prefixes of a full table of 2024.
const PREFIXES: usize = 901_899;
/// Frames a second that are offered, the last as fast as the source can: the best of these counts, for both sides.
const RATES: &[f64] = &[1.0e6, 2.0e6, 0.0];
/// What a source says when it begins.
const READY: &str = "ready";
/// From its beginning to a measurement's, and how many seconds it goes on after that.
const WARM: Duration = Duration::from_millis(500);
const TAIL: f64 = 0.3;
/// Filters.
const FILTERS: u32 = 1000;

#[derive(clap::Args)]
pub(crate) struct Bench {
    /// Only benchmarks whose name contains this
    name: Option<String>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Measurements of each, of which the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The module that every packet passes in router/plugin [default: a counter of our own]
    #[arg(long)]
    plugin: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Generate {
    /// The interface
    interface: String,
    /// Bytes of a frame
    #[arg(long)]
    len: usize,
    /// Frames a second; 0 is as fast as possible
    #[arg(long)]
    rate: f64,
    /// How long
    #[arg(long)]
    seconds: f64,
    /// A file of destinations, an address a line
    #[arg(long)]
    destinations: PathBuf,
}

/// Makes frames in the kernel for some time.
pub(crate) fn generate(arguments: &Generate) -> Result<Report, Complaint> {
    let text = std::fs::read_to_string(&arguments.destinations)?;
    let destinations: Vec<u32> = text
        .lines()
        .filter_map(|line| line.parse::<std::net::Ipv4Addr>().ok())
        .map(u32::from)
        .collect();
    let mut template = [0u8; 42];
    template[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    template[12..14].copy_from_slice(&[8, 0]);
    let len = (arguments.len - 14) as u16;
    template[14] = 0x45;
    template[16..18].copy_from_slice(&len.to_be_bytes());
    template[22..24].copy_from_slice(&[64, 17]);
    template[26..30].copy_from_slice(&[10, 1, 0, 1]);
    template[36..38].copy_from_slice(&9u16.to_be_bytes());
    template[38..40].copy_from_slice(&(len - 20).to_be_bytes());
    let index = index_of(&arguments.interface)?;
    let source = Generator::new(index, &template, arguments.len, &destinations, arguments.rate)?;
    // The kernel has all destinations now, which may have taken seconds.
    let mut out = std::io::stdout();
    writeln!(out, "{READY}").and_then(|()| out.flush())?;
    let began = Instant::now();
    // A call takes some milliseconds beyond its frames: few calls.
    const FRAMES: u32 = 2_000_000;
    while began.elapsed().as_secs_f64() < arguments.seconds {
        source.run(FRAMES)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let rate = source.sent() as f64 / seconds;
    let text = format!("{} frames in {seconds:.2} s\n", source.sent());
    Ok(Report { text, json: vec![json!({ "sent": source.sent(), "rate": rate })], good: true })
}

/// What the router is given.
#[derive(Clone, Copy, Default)]
struct Case {
    table: bool,
    filters: bool,
    fair: bool,
    plugin: bool,
    fast: bool,
    /// A port processor for each port.
    split: bool,
    /// When packets are taken from ports; in the router's own way, if absent.
    receive: Option<&'static str>,
}

const COMPLETE: Case = Case {
    table: true,
    filters: true,
    fair: true,
    plugin: false,
    fast: false,
    split: false,
    receive: None,
};

/// Files that all measurements share.
struct Files {
    folder: PathBuf,
    plugin: Vec<u8>,
}

impl Files {
    /// Writes a table of so many prefixes, destinations in it, and filters.
    fn write(folder: &Path, quick: bool, plugin: Vec<u8>) -> Result<Files, Complaint> {
        let table: table::Table<u32> =
            table::generate(if quick { 20_000 } else { PREFIXES }, IPV4_LENGTHS, 1);
        let (mut routes, mut batch) = (String::new(), String::new());
        for (prefix, _) in &table {
            let (key, len): (u32, u8) = (prefix.key(), prefix.len());
            let address = std::net::Ipv4Addr::from(key);
            // Networks of the bench itself, and addresses that nobody may have.
            if matches!(key >> 24, 0 | 10 | 127 | 224..) {
                continue;
            }
            let _ = writeln!(routes, "{address}/{len} {NEXT}");
            let _ = writeln!(batch, "route add {address}/{len} via {NEXT} dev r1");
        }
        std::fs::write(folder.join("table.txt"), routes)?;
        std::fs::write(folder.join("batch.txt"), batch)?;
        let usable = |key: &u32| !matches!(key >> 24, 0 | 10 | 127 | 224..);
        let all = table::addresses(&table, DESTINATIONS, 2);
        let list = |count: usize| {
            let some = all.iter().filter(|key| usable(key)).take(count);
            some.map(|key| format!("{}\n", std::net::Ipv4Addr::from(*key))).collect::<String>()
        };
        std::fs::write(
            folder.join("random.txt"),
            list(if quick { 1 << 16 } else { DESTINATIONS }),
        )?;
        std::fs::write(folder.join("known.txt"), list(KNOWN))?;
        let rules = generate::rules(&generate::ACCESS_LIST, FILTERS, 1);
        std::fs::write(
            folder.join("rules.txt"),
            text::emit(rules.iter().map(|rule| &rule.filter)),
        )?;
        Ok(Files { folder: folder.to_owned(), plugin })
    }
    /// The router's file for a case.
    fn router(&self, case: Case) -> Result<PathBuf, Complaint> {
        let mut text = String::new();
        if case.table {
            text += "table = 'table.txt'\n";
        }
        if case.filters {
            text += "rules = 'rules.txt'\n";
        }
        if case.fast {
            text += "fast = true\n";
        }
        if let Some(receive) = case.receive {
            let _ = writeln!(text, "receive = '{receive}'");
        }
        text += match case.split {
            false => "core = 1\n",
            true => {
                "[processors.west]\nports = ['west']\ncore = 1\n\
                 [processors.east]\nports = ['east']\ncore = 0\n"
            }
        };
        text += "[ports.west]\ninterface = 'r0'\n";
        if case.plugin {
            text += "plugins = ['count']\n";
        }
        text += "[ports.east]\ninterface = 'r1'\n";
        if case.fair {
            text += "queue = { qsdrr = { queues = 1000, packets = 4000 } }\nflows = 1000\n";
        }
        if case.plugin {
            std::fs::write(self.folder.join("count.wasm"), &self.plugin)?;
            text += "[plugins.count]\nmodule = 'count.wasm'\n";
        }
        if !case.table {
            let _ = write!(text, "[[routes]]\nprefix = '0.0.0.0/0'\nvia = '{NEXT}'\n");
        }
        let path = self.folder.join("router.toml");
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

/// Measures at one rate offered; 0 is as fast as possible.
fn measure(
    place: &mut Place,
    bench: &Bench,
    len: usize,
    rate: f64,
    list: &Path,
) -> Result<Between, Complaint> {
    let source = place.source(len, rate, list, bench.seconds + WARM.as_secs_f64() + TAIL)?;
    std::thread::sleep(WARM);
    let before = place.now()?;
    std::thread::sleep(Duration::from_secs_f64(bench.seconds));
    let after = place.now()?;
    let told = place::offered(source)?;
    Ok(Between { offered: told, ..before.until(after) })
}

fn median(mut all: Vec<Between>) -> Between {
    all.sort_by(|a, b| a.per_cpu.total_cmp(&b.per_cpu));
    all[all.len() / 2]
}

/// The kernel with the same table.
fn kernel(bench: &Bench, files: &Files, len: usize, full: bool) -> Result<Between, Complaint> {
    let mut place = Place::new(true)?;
    if full {
        place.routes(&files.folder.join("batch.txt"))?;
    } else {
        std::fs::write(
            files.folder.join("one.txt"),
            format!("route add default via {NEXT} dev r1\n"),
        )?;
        place.routes(&files.folder.join("one.txt"))?;
    }
    place.threaded()?;
    let list = files.folder.join("random.txt");
    let mut all = Vec::new();
    for rate in RATES {
        all.push(rounds(&mut place, bench, len, *rate, &list)?);
    }
    Ok(best(all))
}

/// The measurement with the most packets for each second of CPU.
fn best(all: Vec<Between>) -> Between {
    all.into_iter().max_by(|a, b| a.per_cpu.total_cmp(&b.per_cpu)).expect("a rate was measured")
}

/// Starts our router, and waits until it forwards.
fn started(files: &Files, case: Case) -> Result<Place, Complaint> {
    begun(&files.router(case)?)
}

/// The same with this file.
fn begun(file: &Path) -> Result<Place, Complaint> {
    let mut place = Place::new(false)?;
    let run = place.folder.join("run");
    let (file, run) = (file.to_string_lossy().into_owned(), run.to_string_lossy().into_owned());
    place.router(&["router", "run", &file, "--run", &run])?;
    let socket = Path::new(&run).join("control.sock");
    let began = Instant::now();
    while !socket.exists() {
        if began.elapsed() > Duration::from_secs(60) {
            let log = std::fs::read_to_string(place.folder.join("router.log")).unwrap_or_default();
            return Err(Complaint(format!("the router did not begin: {}", log.trim())));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    place.threaded()?;
    Ok(place)
}

/// The median of some rounds at one rate offered.
fn rounds(
    place: &mut Place,
    bench: &Bench,
    len: usize,
    rate: f64,
    list: &Path,
) -> Result<Between, Complaint> {
    let rounds = (0..bench.rounds).map(|_| measure(place, bench, len, rate, list));
    Ok(median(rounds.collect::<Result<_, _>>()?))
}

/// Our router, at each of the rates.
fn ours(
    bench: &Bench,
    files: &Files,
    case: Case,
    len: usize,
    list: &str,
    rates: &[f64],
) -> Result<Vec<Between>, Complaint> {
    let mut place = started(files, case)?;
    let list = files.folder.join(list);
    rates.iter().map(|rate| rounds(&mut place, bench, len, *rate, &list)).collect()
}

/// ANA §3.1: packets a second of the x-kernel's IP with a null interface, on a 33 MHz R3000.
const NULL_PUBLISHED: f64 = 30_000.0;

/// The forwarder between null devices, with a table of 1000 prefixes: packets for each second of the CPU, and what of.
fn null(bench: &Bench) -> Result<(f64, String), Complaint> {
    let table: table::Table<u32> = table::generate(1000, IPV4_LENGTHS, 1);
    let routes: Vec<_> = table
        .iter()
        .map(|(prefix, _)| (std::net::IpAddr::V4(prefix.key().into()), prefix.len()))
        .collect();
    let usable = |key: &u32| !matches!(key >> 24, 0 | 10 | 127 | 224..);
    let all = table::addresses(&table, KNOWN, 2);
    let to: Vec<std::net::Ipv4Addr> =
        all.into_iter().filter(usable).map(std::net::Ipv4Addr::from).collect();
    let seconds = Duration::from_secs_f64(bench.seconds);
    let found = forward(&routes, &to, seconds)?;
    let shares: Vec<String> = found
        .shares
        .iter()
        .filter(|(_, share)| *share >= 0.01)
        .map(|(stage, share)| format!("{stage} {:.0} %", share * 100.0))
        .collect();
    let ip = found.share_of_ip() * 100.0;
    let note = format!("{ip:.0} % IP (published 50 %): {}", shares.join(", "));
    Ok((found.rate(), note))
}

struct Line {
    name: String,
    value: f64,
    unit: &'static str,
    peer: Option<(&'static str, f64)>,
    note: String,
}

pub(crate) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    let bench = Bench {
        name: arguments.name.clone(),
        seconds: if quick { 0.5 } else { arguments.seconds },
        rounds: if quick { 1 } else { arguments.rounds.max(1) },
        plugin: arguments.plugin.clone(),
    };
    let plugin = match &bench.plugin {
        Some(path) => {
            std::fs::read(path).map_err(|e| Complaint(format!("{}: {e}", path.display())))?
        }
        None => crate::plugin::counter()?,
    };
    let folder = Folder::new(&std::env::temp_dir(), "bench-router")?;
    let files = Files::write(folder.path(), quick, plugin)?;
    let wants = |name: &str| bench.name.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let wants_just = |name: &str| bench.name.as_deref() == Some(name);
    let say = |case: &str| eprint_line(case);
    let mut lines: Vec<Line> = Vec::new();
    let mut add = |name: &str, value, unit, peer, note| {
        lines.push(Line { name: name.to_owned(), value, unit, peer, note });
    };
    let cores = |found: &Between| {
        format!("{:.2} M/s on the wall, {:.2} cores", found.rate / 1e6, found.cores)
    };
    let mut complete = None;
    if wants("router/full-table@60") || wants("router/plugin@60") {
        say("router/full-table@60");
        let mine = best(ours(&bench, &files, COMPLETE, 60, "random.txt", RATES)?);
        complete = Some(mine);
        if wants("router/full-table@60") {
            let peer = kernel(&bench, &files, 60, true)?;
            let note = format!("{}; kernel {}", cores(&mine), cores(&peer));
            add(
                "router/full-table@60",
                mine.per_cpu,
                "packets/CPU s",
                Some(("kernel", peer.per_cpu)),
                note,
            );
        }
    }
    if wants("router/plugin@60") {
        say("router/plugin@60");
        let mine =
            best(ours(&bench, &files, Case { plugin: true, ..COMPLETE }, 60, "random.txt", RATES)?);
        let peer = complete.map(|complete| ("without plugin", complete.per_cpu));
        add("router/plugin@60", mine.per_cpu, "packets/CPU s", peer, cores(&mine));
    }
    for (name, case) in [
        ("router/without-lookup@60", Case { table: false, ..COMPLETE }),
        ("router/without-classifier@60", Case { filters: false, ..COMPLETE }),
        ("router/without-queues@60", Case { fair: false, ..COMPLETE }),
        ("router/bare@60", Case::default()),
    ] {
        if wants(name) {
            say(name);
            let mine = best(ours(&bench, &files, case, 60, "random.txt", RATES)?);
            add(name, mine.per_cpu, "packets/CPU s", None, cores(&mine));
        }
    }
    if wants("router/workers-1@60") || wants("router/workers-2@60") {
        say("router/workers-1@60");
        let most = |all: &[Between]| all.iter().map(|one| one.rate).fold(0.0, f64::max);
        let all = ours(&bench, &files, COMPLETE, 60, "random.txt", RATES)?;
        let (one, wall) = (best(all.clone()), most(&all));
        add("router/workers-1@60", one.per_cpu, "packets/CPU s", None, cores(&one));
        say("router/workers-2@60");
        let case = Case { split: true, ..COMPLETE };
        let all = ours(&bench, &files, case, 60, "random.txt", RATES)?;
        let (two, other) = (best(all.clone()), most(&all));
        let note = format!(
            "{}; at most {:.2} M/s on the wall, {:.2} x that of one",
            cores(&two),
            other / 1e6,
            other / wall
        );
        let peer = Some(("one worker", one.per_cpu));
        add("router/workers-2@60", two.per_cpu, "packets/CPU s", peer, note);
    }
    if wants("router/null@60") {
        say("router/null@60");
        let (found, note) = null(&bench)?;
        let published = Some(("the x-kernel of 1993", NULL_PUBLISHED));
        add("router/null@60", found, "packets/CPU s", published, note);
    }
    if wants("router/fast@60") {
        say("router/fast@60");
        let case = Case { fast: true, filters: false, ..COMPLETE };
        let mine = best(ours(&bench, &files, case, 60, "known.txt", RATES)?);
        let peer = kernel(&bench, &files, 60, false)?;
        add(
            "router/fast@60",
            mine.per_cpu,
            "packets/CPU s",
            Some(("kernel", peer.per_cpu)),
            cores(&mine),
        );
    }
    if wants("router/full-table@1514") {
        say("router/full-table@1514");
        let mine = best(ours(&bench, &files, COMPLETE, 1514, "random.txt", RATES)?);
        let peer = kernel(&bench, &files, 1514, true)?;
        let note = format!(
            "{:.1} Gbit/s a core; kernel {:.1}",
            mine.bits_per_cpu / 1e9,
            peer.bits_per_cpu / 1e9
        );
        add(
            "router/full-table@1514",
            mine.per_cpu,
            "packets/CPU s",
            Some(("kernel", peer.per_cpu)),
            note,
        );
    }
    if bench.name.as_ref().is_none_or(|name| name.contains("overload")) {
        for receive in Receive::NAMES {
            let name = overload::name(receive);
            if !wants(&name) {
                continue;
            }
            if quick && *receive != Receive::NAMES[0] && !wants_just(&name) {
                continue;
            }
            say(&name);
            lines.extend(overload::curve(&bench, &files, receive, quick)?);
        }
    }
    if bench.name.as_ref().is_none_or(|name| name.starts_with("router/twin")) {
        lines.extend(twin::lines(&bench, &files, quick)?);
    }
    if lines.is_empty() {
        return Err(Complaint(
            "no benchmark of this name: twin, full-table@60, plugin@60, fast@60, \
             full-table@1514, overload, overload/polling and so on, without-lookup@60, \
             without-classifier@60, without-queues@60, bare@60, workers-1@60, workers-2@60, null@60"
                .to_owned(),
        ));
    }
    Ok(report(&lines))
}

fn report(lines: &[Line]) -> Report {
    let mut text =
        format!("{:28} {:>12} {:14} {:>22}  {}\n", "benchmark", "value", "unit", "beside", "");
    let mut json = Vec::new();
    for Line { name, value, unit, peer, note } in lines {
        let shown =
            if *value > 1000.0 { format!("{:.3} M", value / 1e6) } else { format!("{value:.3}") };
        let beside =
            peer.map_or(String::new(), |(peer, other)| format!("{:.2} x {peer}", value / other));
        let _ = writeln!(text, "{name:28} {shown:>12} {unit:14} {beside:>22}  {note}");
        json.push(line(name, *value, unit, *peer, note));
    }
    Report { text, json, good: true }
}

fn eprint_line(case: &str) {
    let _ = writeln!(std::io::stderr(), "measuring {case}");
}
