//! `lastmeter bench disk`: requests for each second of the server's CPU, over a Unix socket, from memory, beside other
//! servers with the same client.
//!
//! Rows: N-33, N-79.

use super::client::{self, Load};
use crate::measured::{Folder, cpu_of, line};
use crate::{Complaint, Report};
use lastmeter_device::disk::server::{Config, Server};
use lastmeter_plugin::setting::Setting;
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The disk of the benchmark.
const SIZE: &str = "256 MiB";

#[derive(clap::Args)]
pub(crate) struct Bench {
    /// Only benchmarks whose name contains this
    name: Option<String>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measurements of each, of which the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(clap::Args)]
pub(crate) struct Memory {
    /// The socket
    socket: PathBuf,
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
struct Peer {
    name: &'static str,
    child: Child,
    socket: PathBuf,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
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
    let peer = Peer { name, child, socket };
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
    client::fill(&peer.socket, "")?;
    Ok(Some(peer))
}

/// Requests for each second of the server's CPU, and a second.
fn measure(peer: &Peer, load: Load, bench: &Bench) -> Result<(f64, f64), Complaint> {
    let mut all = Vec::new();
    for _ in 0..bench.rounds {
        let (before, began) = (cpu_of(peer.child.id()), Instant::now());
        let done = client::run(&peer.socket, "", load, bench.seconds);
        let done =
            done.map_err(|Complaint(why)| Complaint(format!("{}: {why}", peer.name)))? as f64;
        let cpu = (cpu_of(peer.child.id()) - before).max(0.01);
        all.push((done / cpu, done / began.elapsed().as_secs_f64()));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(all[all.len() / 2])
}

pub(crate) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
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
    let own = start("lastmeter", folder)?.ok_or("lastmeterd cannot be started")?;
    let mut peers = Vec::new();
    for name in ["nbdkit", "qemu-nbd"] {
        peers.extend(start(name, folder)?);
    }
    let (mut text, mut json) = (String::new(), Vec::new());
    let _ = writeln!(text, "{:24} {:>14} {:>24}", "benchmark", "I/Os per CPU s", "beside the best");
    let mut kept = None;
    for depth in [1, 32] {
        for (size, length) in [("4k", 4096), ("64k", 65536)] {
            for (what, write) in [("read", false), ("write", true)] {
                let name = format!("disk/nbd-{what}-{size}@{depth}");
                let base = name == "disk/nbd-read-4k@32" && wants("disk/policy");
                if !(base || wants(&name)) {
                    continue;
                }
                let load = Load { write, length, depth };
                let (value, rate) = measure(&own, load, &bench)?;
                if name == "disk/nbd-read-4k@32" {
                    kept = Some((load, value));
                }
                let mut best: Option<(&str, f64)> = None;
                for peer in &peers {
                    let (other, _) = measure(peer, load, &bench)?;
                    if best.is_none_or(|(_, most)| other > most) {
                        best = Some((peer.name, other));
                    }
                }
                let beside = best.map_or("nobody there".to_owned(), |(peer, other)| {
                    format!("{:.2} x {peer}", value / other)
                });
                let _ = writeln!(text, "{name:24} {value:>14.0} {beside:>24}");
                let note = format!("{rate:.0} a second");
                json.push(line(&name, value, "I/Os per CPU s", best, &note));
            }
        }
    }
    if let Some((load, without)) = kept.filter(|_| wants("disk/policy")) {
        let policy = start("policy", folder)?.ok_or("lastmeterd cannot be started")?;
        let (with, _) = measure(&policy, load, &bench)?;
        let share = with / without;
        let _ = writeln!(text, "{:24} {share:>14.3} {:>24}", "disk/policy", "of the rate without");
        let note = "a policy in WebAssembly on every command; nbd-read-4k@32";
        json.push(line("disk/policy", share, "share", None, note));
    }
    if json.is_empty() {
        return Err(Complaint(
            "no benchmark of this name: nbd-read-4k@1, nbd-write-64k@32, ..., policy".to_owned(),
        ));
    }
    Ok(Report { text, json, good: true })
}
