//! `lastmeter bench router`: packets for each second of the router's CPU, receiving included, beside the kernel with
//! the same table in the same place.
//!
//! `router/workers-1@60` and `router/workers-2@60` are the same router with a port processor for both ports, and with
//! one for each, the second on the source's core: what a packet costs that crosses from one to the other, and whether
//! two forward more on the wall. ANA §4.1 says that a processor for each port scales until they share something.
//!
//! Rows, D-110, E-133.

mod files;
mod forwarder;
mod full;
mod overload;
mod peer;
mod place;
mod search;
pub(super) mod twin;

use super::{Complaint, Report};
use crate::measured::{Folder, line};
use files::{COMPLETE, Case, Files, KNOWN, RANDOM};
use lastmeter_linux::dataplane::{Generator, Standing, routing::index_of};
use lastmeter_net::lookup::table::{self, IPV4_LENGTHS};
use lastmeter_router::port_processor::null::forward;
use lastmeter_router::port_processor::reception::Receive;
use place::{Between, Place};
use search::{best, measure};
use serde_json::json;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Frames a second that are offered to one worker and to two, the last as fast as the source can: the best counts.
const RATES: &[f64] = &[1.0e6, 2.0e6, 0.0];
/// What a source says when it begins.
const READY: &str = "ready";
/// From its beginning to a measurement's, and how many seconds it goes on after that.
const WARM: Duration = Duration::from_millis(500);
const TAIL: f64 = 0.3;

#[derive(clap::Args)]
pub(crate) struct Bench {
    /// Only benchmarks whose name contains this
    name: Option<String>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Measurements of each, of which the median counts; router/beside and router/twin start each router so often, and
    /// those whose starts disagree up to twice as often, of which the fastest counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The module that every packet passes in router/plugin [default: a counter of our own]
    #[arg(long)]
    plugin: Option<PathBuf>,
    /// A routing table, PREFIX NEXT-HOP on each line, or an MRT dump [default: made up, with the lengths of a full one]
    #[arg(long)]
    table: Option<PathBuf>,
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

#[derive(clap::Args)]
pub(crate) struct Stand {
    /// What
    #[arg(value_enum)]
    what: What,
    /// The interface
    interface: String,
    /// Where a forwarder sends
    to: Option<String>,
}

/// What handles all frames of an interface: in its driver, or a forwarder.
#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Drops them
    Sink,
    /// Forwards them where the kernel's table says
    KernelLookup,
    /// Forwards them by AF_XDP
    FrameForwarder,
    /// Forwards them by packet sockets
    PacketForwarder,
}

/// Leaves a program at an interface until this process is killed.
pub(crate) fn stand(arguments: &Stand) -> Result<Report, Complaint> {
    let index = index_of(&arguments.interface)?;
    let to = arguments.to.as_deref().map(index_of).transpose()?;
    let ready = || {
        let mut out = std::io::stdout();
        writeln!(out, "{READY}").and_then(|()| out.flush())
    };
    let ended = "a forwarder ended";
    let _standing = match (arguments.what, to) {
        (What::Sink, _) => Standing::sink(index)?,
        (What::KernelLookup, _) => Standing::kernel_lookup(index)?,
        (What::FrameForwarder, Some(to)) => {
            forwarder::by_frames(index, to, ready)?;
            return Err(ended.into());
        }
        (What::PacketForwarder, Some(to)) => {
            forwarder::by_packets(index, to, ready)?;
            return Err(ended.into());
        }
        (_, None) => return Err("a forwarder needs two interfaces".into()),
    };
    ready()?;
    loop {
        std::thread::park();
    }
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
    // A call takes some 20 ms beyond its frames: few calls, of a second or less.
    const FRAMES: u32 = 2_000_000;
    /// So many a second are made at the least, as one waits no longer to be due.
    const MADE: f64 = 3e5;
    let frames = match arguments.rate {
        rate if rate > 0.0 => (rate.max(MADE) as u32).min(FRAMES),
        _ => FRAMES,
    };
    while began.elapsed().as_secs_f64() < arguments.seconds {
        source.run(frames)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let rate = source.sent() as f64 / seconds;
    let text = format!("{} frames in {seconds:.2} s\n", source.sent());
    Ok(Report { text, json: vec![json!({ "sent": source.sent(), "rate": rate })], good: true })
}

fn median(mut all: Vec<Between>) -> Between {
    all.sort_by(|a, b| a.per_cpu.total_cmp(&b.per_cpu));
    all[all.len() / 2]
}

/// Starts our router, and waits until it forwards.
fn started(files: &Files, case: Case) -> Result<Place, Complaint> {
    begun(&files.router(case)?)
}

/// The same with this file.
fn begun(file: &Path) -> Result<Place, Complaint> {
    let mut place = Place::new(false)?;
    boot(&mut place, file)?;
    place.threaded()?;
    Ok(place)
}

/// Starts our router there, and waits until it forwards.
fn boot(place: &mut Place, file: &Path) -> Result<(), Complaint> {
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
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The median of some rounds at one rate offered.
fn rounds(
    place: &mut Place,
    bench: &Bench,
    len: usize,
    rate: f64,
    list: &Path,
) -> Result<Between, Complaint> {
    let rounds = (0..bench.rounds).map(|_| measure(place, bench.seconds, len, rate, list));
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
        table: arguments.table.clone(),
    };
    let plugin = match &bench.plugin {
        Some(path) => {
            std::fs::read(path).map_err(|e| Complaint(format!("{}: {e}", path.display())))?
        }
        None => crate::plugin::counter()?,
    };
    let folder = Folder::new(&std::env::temp_dir(), "bench-router")?;
    let files = Files::write(folder.path(), bench.table.as_deref(), quick, plugin)?;
    let wants = |name: &str| bench.name.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let wants_just = |name: &str| bench.name.as_deref() == Some(name);
    let say = |case: &str| eprint_line(case);
    let mut lines = full::lines(&bench, &files, quick)?;
    let mut add = |name: &str, value, unit, peer, note| {
        lines.push(Line { name: name.to_owned(), value, unit, peer, note });
    };
    let cores = |found: &Between| {
        format!("{:.2} M/s on the wall, {:.2} cores", found.rate / 1e6, found.cores)
    };
    if wants("router/workers-1@60") || wants("router/workers-2@60") {
        say("router/workers-1@60");
        let most = |all: &[Between]| all.iter().map(|one| one.rate).fold(0.0, f64::max);
        let all = ours(&bench, &files, COMPLETE, 60, RANDOM, RATES)?;
        let (one, wall) = (best(all.clone()), most(&all));
        add("router/workers-1@60", one.per_cpu, "packets/CPU s", None, cores(&one));
        say("router/workers-2@60");
        let case = Case { split: true, ..COMPLETE };
        let all = ours(&bench, &files, case, 60, RANDOM, RATES)?;
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
    if bench.name.as_ref().is_none_or(|name| name.contains("twin")) {
        lines.extend(twin::lines(&bench, &files, quick)?);
    }
    if lines.is_empty() {
        return Err(Complaint(
            "no benchmark of this name: router/beside (all of full-table@60, plugin@60, fast@60, \
             xdp@60, full-table@1514, kernel, ladder, peer, beside-click@60), twin, overload, \
             overload/polling and so on, workers-1@60, workers-2@60, null@60"
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
    say(&format!("measuring {case}"));
}

/// To whoever watches.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
