//! `lastmeter bench disk`: requests for each second of the server's CPU, from memory, beside other servers with the
//! same client: NBD over a Unix socket beside nbdkit and qemu-nbd, iSCSI over TCP beside tgt. Each line also has the
//! rate, the time from request to answer, and the CPU time of both for a request.
//!
//! Rows: N-33, N-79.

use super::client::{self, Load, Place};
use super::initiator;
use crate::measured::{Bench, Folder, cpu_of, line};
use crate::{Complaint, Report};
use lastmeter_device::disk::server::{Config, Iscsi, Server};
use lastmeter_plugin::setting::Setting;
use serde_json::json;
use std::fmt::Write;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The disk of the benchmark.
const SIZE: &str = "256 MiB";
const SIZE_BYTES: u64 = 256 << 20;
/// The target, ours and tgt's.
const TARGET: &str = "iqn.2026-11.local.lastmeter:disk";

#[derive(clap::Args)]
pub(crate) struct Memory {
    /// The socket
    socket: PathBuf,
    /// The address for iSCSI
    #[arg(long)]
    portal: Option<SocketAddr>,
    /// With a policy on every command, in WebAssembly
    #[arg(long)]
    policy: bool,
}

/// The policy of the benchmark: all of the disk.
const POLICY: &str = "(or (= operation flush) (within lba 0 1000000000))";

/// Serves memory until it is killed.
pub(crate) fn memory(arguments: &Memory) -> Result<Report, Complaint> {
    use lastmeter_device::access::{ANYONE, Client};
    use lastmeter_plugin::Kind;
    use lastmeter_plugin::expression::Expression;
    let sandbox = crate::sandbox::Ticking::new(lastmeter_plugin::host::Limits::default())?;
    let folder = arguments.socket.parent().unwrap_or(Path::new("."));
    let mut config = Config {
        memory: true,
        size: Some(SIZE.to_owned()),
        socket: Some(arguments.socket.clone()),
        iscsi: arguments.portal.map(|portal| Iscsi { listen: Some(portal), ..Iscsi::default() }),
        ..Config::default()
    };
    if arguments.policy {
        let expression = Expression::new("all", Kind::Block, POLICY);
        let module = expression.map_err(|wrong| wrong.describe(POLICY))?.compile();
        std::fs::write(folder.join("all.wasm"), module)?;
        let setting = Setting { module: Some("all.wasm".to_owned()), ..Setting::default() };
        config.policies.insert("all".to_owned(), setting);
        let client = Client { policies: vec!["all".to_owned()], ..Client::default() };
        config.clients.insert(ANYONE.to_owned(), client);
    }
    let disk = config.disk(folder, sandbox.host.clone())?;
    let _server = Server::start(&config, folder, disk, |_| ())?;
    loop {
        std::thread::park();
    }
}

/// A server that is measured.
pub(super) struct Peer {
    name: &'static str,
    child: Child,
    socket: PathBuf,
    /// For iSCSI: its address, and the number of its logical unit.
    portal: Option<(SocketAddr, u64)>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Our disk in memory, at an address of TCP.
pub(super) struct PeerAt {
    child: Child,
    pub(super) address: SocketAddr,
}

impl PeerAt {
    /// The process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PeerAt {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts our disk at an address, with all of it written; its file is in the folder.
pub(super) fn memory_at(folder: &Path) -> Result<PeerAt, Complaint> {
    let (address, file) = (free()?, folder.join("disk.toml"));
    std::fs::write(&file, format!("memory = true\nsize = \"{SIZE}\"\nlisten = \"{address}\"\n"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["disk", "run"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    let peer = PeerAt { child: command.spawn()?, address };
    let began = Instant::now();
    while let Err(Complaint(why)) = client::fill(Place::Address(address), "") {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(Complaint(format!("the disk did not begin: {why}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(peer)
}

/// Starts a server; `None` if it is not installed.
fn start(name: &'static str, folder: &Path) -> Result<Option<Peer>, Complaint> {
    let socket = folder.join(format!("{name}.sock"));
    let own = std::env::current_exe()?;
    let file = folder.join("qemu.img");
    let mut command = match name {
        "nbdkit" => {
            let mut command = Command::new("nbdkit");
            command.args(["--foreground", "--unix"]).arg(&socket).args(["memory", "256M"]);
            command
        }
        "qemu-nbd" => {
            // In memory, too: /dev/shm is a file system in memory.
            std::fs::File::create(&file)?.set_len(256 << 20)?;
            let mut command = Command::new("qemu-nbd");
            command.args([
                "--persistent",
                "--shared=8",
                "--format=raw",
                "--cache=writeback",
                "--socket",
            ]);
            command.arg(&socket).arg(&file);
            command
        }
        other => {
            let mut command = Command::new(own);
            command.args(["disk", "memory"]).arg(&socket);
            if other == "policy" {
                command.arg("--policy");
            }
            command
        }
    };
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(child) = child else { return Ok(None) };
    let peer = Peer { name, child, socket, portal: None };
    let began = Instant::now();
    // A client that goes before it was greeted ends some servers.
    let greeted = || -> std::io::Result<()> {
        let mut stream = std::os::unix::net::UnixStream::connect(&peer.socket)?;
        stream.read_exact(&mut [0; 18])
    };
    while greeted().is_err() {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(Complaint(format!("{name} did not begin")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    client::fill(Place::Socket(&peer.socket), "")?;
    Ok(Some(peer))
}

/// An address that nobody uses.
fn free() -> Result<SocketAddr, Complaint> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Starts a target of iSCSI; `None` if it is not installed, or cannot be set up.
fn start_target(name: &'static str, folder: &Path) -> Result<Option<Peer>, Complaint> {
    let (portal, socket) = (free()?, folder.join(format!("{name}.sock")));
    // tgt is told by another program what it serves; this is where the two meet.
    let meeting = (std::process::id() % 30_000 + 1000).to_string();
    let mut command = match name {
        "tgt" => {
            let mut command = Command::new("tgtd");
            command.args(["-f", "-C", &meeting, "--iscsi", &format!("portal={portal}")]);
            command
        }
        _ => {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["disk", "memory"]).arg(&socket).args(["--portal", &portal.to_string()]);
            if name == "policy" {
                command.arg("--policy");
            }
            command
        }
    };
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(child) = child else { return Ok(None) };
    let unit = u64::from(name == "tgt");
    let mut peer = Peer { name, child, socket, portal: Some((portal, unit)) };
    let began = Instant::now();
    while TcpStream::connect(portal).is_err() {
        // It cannot run here, for want of rights.
        if peer.child.try_wait()?.is_some() && name == "tgt" {
            return Ok(None);
        }
        if began.elapsed() > Duration::from_secs(10) {
            return Err(Complaint(format!("{name} did not begin")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    if name == "tgt" {
        let file = folder.join("tgt.img");
        std::fs::File::create(&file)?.set_len(SIZE_BYTES)?;
        let file = file.to_string_lossy().into_owned();
        let target = ["--mode", "target", "--tid", "1"];
        let unit =
            ["--mode", "logicalunit", "--tid", "1", "--lun", "1", "--op", "new", "-b", &file];
        for arguments in [
            [&target[..], &["--op", "new", "-T", TARGET]].concat(),
            unit.to_vec(),
            [&target[..], &["--op", "bind", "-I", "ALL"]].concat(),
        ] {
            let mut tgtadm = Command::new("tgtadm");
            tgtadm.args(["-C", &meeting, "--lld", "iscsi"]).args(arguments);
            if !tgtadm.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success() {
                return Ok(None);
            }
        }
    }
    initiator::fill(portal, TARGET, unit, SIZE_BYTES)?;
    Ok(Some(peer))
}

/// What a load was like.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    /// Requests a second.
    pub(super) rate: f64,
    /// Seconds from request to answer, on average and of the median.
    pub(super) mean: f64,
    pub(super) median: f64,
    /// Seconds of the client's processor and of the server's for a request.
    pub(super) cpu: [f64; 2],
}

impl Measured {
    /// Requests for each second of the server's CPU.
    fn efficiency(&self) -> f64 {
        1.0 / self.cpu[1]
    }
}

/// The median run by the server's CPU time.
pub(super) fn measure(peer: &Peer, load: Load, bench: &Bench) -> Result<Measured, Complaint> {
    let mut all = Vec::new();
    for _ in 0..bench.rounds {
        let before = cpu_of(peer.child.id());
        let seen = match peer.portal {
            None => client::run(Place::Socket(&peer.socket), "", load, bench.seconds),
            Some((portal, unit)) => {
                initiator::run(portal, TARGET, unit, SIZE_BYTES, load, bench.seconds)
            }
        };
        let seen = seen.map_err(|Complaint(why)| Complaint(format!("{}: {why}", peer.name)))?;
        let cpu = (cpu_of(peer.child.id()) - before).max(0.01);
        let done = seen.done.max(1) as f64;
        all.push(Measured {
            rate: done / seen.seconds,
            mean: seen.mean(),
            median: seen.median(),
            cpu: [seen.cpu / done, cpu / done],
        });
    }
    all.sort_by(|a, b| a.cpu[1].total_cmp(&b.cpu[1]));
    Ok(all[all.len() / 2])
}

/// The load under which a policy is measured.
const POLICED: Load = Load { write: false, length: 4096, depth: 32, in_order: false };

/// The measurement of a policy on every command.
fn policed(protocol: &str) -> &'static str {
    if protocol == "iscsi" { "disk/iscsi-policy" } else { "disk/policy" }
}

/// Requests for each second of CPU of a server with a policy, as a share of those of one without: the median of pairs
/// that are measured one after the other, so that what else the machine does disturbs both.
fn share(with: &Peer, without: &Peer, bench: &Bench) -> Result<f64, Complaint> {
    let once = Bench { name: None, seconds: bench.seconds, rounds: 1 };
    let mut shares = Vec::new();
    for _ in 1..2 * bench.rounds {
        let alone = measure(without, POLICED, &once)?.efficiency();
        shares.push(measure(with, POLICED, &once)?.efficiency() / alone);
    }
    shares.sort_by(f64::total_cmp);
    Ok(shares[shares.len() / 2])
}

/// The measurements of a protocol that are wanted.
fn cells(protocol: &str, bench: &Bench) -> Vec<(String, Load)> {
    let wants = |name: &str| bench.name.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let mut cells = Vec::new();
    for depth in [1, 32] {
        for (size, length) in [("4k", 4096), ("64k", 65536)] {
            for (what, write) in [("read", false), ("write", true)] {
                let name = format!("disk/{protocol}-{what}-{size}@{depth}");
                if wants(&name) {
                    cells.push((name, Load { write, length, depth, in_order: false }));
                }
            }
        }
    }
    cells
}

/// Our server, and those beside it if they are wanted.
pub(super) fn servers(
    protocol: &str,
    folder: &Path,
    peers: bool,
) -> Result<(Peer, Vec<Peer>), Complaint> {
    let missing = "lastmeterd cannot be started";
    if protocol == "iscsi" {
        let own = start_target("lastmeter", folder)?.ok_or(missing)?;
        let other = if peers { start_target("tgt", folder)? } else { None };
        return Ok((own, other.into_iter().collect()));
    }
    let own = start("lastmeter", folder)?.ok_or(missing)?;
    let mut others = Vec::new();
    for name in ["nbdkit", "qemu-nbd"].into_iter().filter(|_| peers) {
        others.extend(start(name, folder)?);
    }
    Ok((own, others))
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    bench: Bench,
    /// Beside a local file, in this folder; `disk/local` as the name does the same in the system's temporary folder
    #[arg(long)]
    local: Option<PathBuf>,
}

pub(crate) fn bench(arguments: &Arguments, quick: bool) -> Result<Report, Complaint> {
    let Arguments { bench: arguments, local } = arguments;
    let part = |text: &str| arguments.name.as_ref().is_some_and(|name| name.contains(text));
    if part("matrix") {
        return super::matrix::bench(arguments, quick);
    }
    if part("separation") {
        return crate::separation::bench(arguments, quick);
    }
    if part("pipelined") {
        return super::pipelined::bench(arguments, quick);
    }
    if part("files") {
        return super::files::bench(arguments, quick);
    }
    if let Some(folder) = local.clone().or_else(|| part("local").then(std::env::temp_dir)) {
        return super::local::bench(arguments, &folder, quick);
    }
    let bench = Bench {
        name: arguments.name.clone(),
        seconds: if quick { 0.5 } else { arguments.seconds },
        rounds: if quick { 1 } else { arguments.rounds.max(1) },
    };
    let base =
        if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let folder = Folder::new(&base, "disk")?;
    let folder = folder.path();
    let wants = |name: &str| bench.name.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let (mut text, mut json) = (String::new(), Vec::new());
    let _ = writeln!(
        text,
        "{:24} {:>14} {:>24} {:>10} {:>10} {:>9} {:>9}",
        "benchmark",
        "I/Os per CPU s",
        "beside the best",
        "I/Os per s",
        "us, median",
        "client us",
        "server us"
    );
    for protocol in ["nbd", "iscsi"] {
        let cells = cells(protocol, &bench);
        let name = policed(protocol);
        if cells.is_empty() && !wants(name) {
            continue;
        }
        let (own, peers) = servers(protocol, folder, !cells.is_empty())?;
        for (name, load) in cells {
            let seen = measure(&own, load, &bench)?;
            let value = seen.efficiency();
            let mut best: Option<(&str, f64)> = None;
            for peer in &peers {
                let other = measure(peer, load, &bench)?.efficiency();
                if best.is_none_or(|(_, most)| other > most) {
                    best = Some((peer.name, other));
                }
            }
            let beside = best.map_or("nobody there".to_owned(), |(peer, other)| {
                format!("{:.2} x {peer}", value / other)
            });
            let [median, client, server] =
                [seen.median, seen.cpu[0], seen.cpu[1]].map(|seconds| seconds * 1e6);
            let _ = writeln!(
                text,
                "{name:24} {value:>14.0} {beside:>24} {:>10.0} {median:>10.1} {client:>9.2} \
                 {server:>9.2}",
                seen.rate,
            );
            let note = format!("{:.0} a second", seen.rate);
            let mut told = line(&name, value, "I/Os per CPU s", best, &note);
            told["rate"] = seen.rate.into();
            told["latency"] = json!({ "mean": seen.mean, "median": seen.median });
            told["cpu_per_io"] = json!({ "client": seen.cpu[0], "server": seen.cpu[1] });
            json.push(told);
        }
        if wants(name) {
            let policy = match protocol {
                "iscsi" => start_target("policy", folder)?,
                _ => start("policy", folder)?,
            };
            let share = share(&policy.ok_or("lastmeterd cannot be started")?, &own, &bench)?;
            let _ = writeln!(text, "{name:24} {share:>14.3} {:>24}", "of the rate without");
            let note = format!("a policy in WebAssembly on every command; {protocol}-read-4k@32");
            json.push(line(name, share, "share", None, &note));
        }
    }
    if json.is_empty() {
        return Err(Complaint(
            "no benchmark of this name: nbd-read-4k@1, iscsi-write-64k@32, ..., policy".to_owned(),
        ));
    }
    Ok(Report { text, json, good: true })
}
