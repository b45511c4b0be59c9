//! `lastmeter bench disk/files`: what a file system's work takes on our disk and on memory of this host, and what the
//! model makes of it: files of 100 KB that are made, read and removed.
//!
//! ```text
//! files -- ext4 -- loop device -- file in memory                                                          (local)
//! files -- ext4 -- loop device -- nbdfuse's file -- NBD over a Unix socket -- our disk, in memory         (here)
//! ```
//!
//! Measured are the rate, the CPU time of the whole machine for a file, and the disk's own for a request. The model
//! has what the same work takes locally, and for each request of the file system what the experiment of client and disk
//! ([`modelled`](super::modelled)) says, one after another.
//!
//! Constants of the model are from single reads and writes of 4 and 128 KiB of nbdfuse's file in the same minute; a
//! request of another length is on the line between them. What the file system has the disk do at the same time, the
//! model has in turn: so it bounds the rate from below.
//!
//! Needs root (mounts, in a namespace of their own that goes with the process), `/dev/fuse`, `nbdfuse` and `mke2fs`.
//!
//! Rows: N-33.

pub(super) mod work;

use self::work::{Phase, Said, Single};
use super::modelled::{Asked, Costs, predict};
use crate::measured::{Bench, Folder, line};
use crate::{Complaint, Report};
use serde_json::json;
use std::fmt::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The disk, and the file beside it.
const SIZE: &str = "256 MiB";
const SIZE_BYTES: u64 = 256 << 20;
/// Files of a round.
const FILES: u32 = 1000;
const FILES_QUICK: u32 = 100;
/// Seconds of each kind of single request.
const SINGLE: f64 = 0.5;
const SINGLE_QUICK: f64 = 0.15;
/// Bytes of a request and of an answer besides data, in NBD.
const HEADERS: [u64; 2] = [28, 16];

/// Our disk in memory, which ends with this.
struct Disk(Child);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(folder: &Path) -> Result<Disk, Complaint> {
    let file = folder.join("disk.toml");
    std::fs::write(&file, format!("memory = true\nsize = \"{SIZE}\"\nsocket = \"disk.sock\"\n"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["disk", "run"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    let disk = Disk(command.spawn()?);
    let began = Instant::now();
    while UnixStream::connect(folder.join("disk.sock")).is_err() {
        if began.elapsed() > Duration::from_secs(10) {
            return Err(Complaint("the disk did not begin".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(disk)
}

/// What a process of its own does, in whose namespace the file systems are mounted.
fn worked(folder: &Path, arguments: &[&str]) -> Result<Said, Complaint> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(std::env::current_exe()?);
    command.args(["disk", "files"]).arg(folder).args(arguments).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("unshare: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Complaint(format!("a file system's work: {}", why.trim())));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Complaint(format!("a file system's work: {error}")))
}

/// Of requests of this length, on the line between the two that were measured.
fn costs(singles: &[Single], write: bool, length: f64) -> Option<Costs> {
    let mut own = singles.iter().filter(|single| single.write == write);
    let (short, long) = (own.next()?, own.next()?);
    let part = (length - short.length as f64) / (long.length as f64 - short.length as f64);
    let at = |of: fn(&Single) -> f64| (of(short) + part * (of(long) - of(short))).max(0.0);
    let (disk, machine, latency) =
        (at(|own| own.disk), at(|own| own.machine), at(|own| own.latency));
    let work = [(machine - disk).max(0.0), disk];
    let delay = (latency - work[0] - work[1]).max(0.0) / 2.0;
    Some(Costs { work, wake: [0.0; 2], delay })
}

/// What the model makes of a phase.
fn predicted(local: &Phase, here: &Phase, singles: &[Single]) -> Result<Phase, Complaint> {
    let (requests, write) = (here.requests as f64, here.name != work::READ);
    let length = here.bytes as f64 / requests.max(1.0);
    let costs = costs(singles, write, length).ok_or("no single request was measured")?;
    let data = length.round() as u64;
    let bytes = match write {
        true => [HEADERS[0] + data, HEADERS[1]],
        false => [HEADERS[0], HEADERS[1] + data],
    };
    let one = predict(costs, None, Asked { bytes, depth: 1, batch: 1 })?;
    Ok(Phase {
        seconds: local.seconds + requests * one.latency,
        machine: local.machine + requests * (costs.work[0] + costs.work[1]),
        disk: requests * one.cpu,
        ..here.clone()
    })
}

/// The round in the middle by its time, of each phase.
fn middle(mut rounds: Vec<Said>, at: usize) -> Option<Phase> {
    rounds.sort_by(|one, other| one.phases[at].seconds.total_cmp(&other.phases[at].seconds));
    rounds.get(rounds.len() / 2).map(|said| said.phases[at].clone())
}

pub(super) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    let rounds = if quick { 1 } else { arguments.rounds.max(1) };
    let files = if quick { FILES_QUICK } else { FILES };
    let single = if quick { SINGLE_QUICK } else { SINGLE };
    let base = Path::new("/dev/shm");
    let folder = Folder::new(base, "disk-files")?;
    let (files_said, image) = (files.to_string(), folder.path().join("local.img"));
    let (mut local, mut here) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        std::fs::File::create(&image)?.set_len(SIZE_BYTES)?;
        let path = image.to_string_lossy().into_owned();
        local.push(worked(folder.path(), &["--files", &files_said, "--local", &path])?);
        std::fs::remove_file(&image)?;
        let disk = serve(folder.path())?;
        let (process, single) = (disk.0.id().to_string(), single.to_string());
        let own = ["--files", &files_said, "--process", &process, "--single", &single];
        here.push(worked(folder.path(), &own)?);
    }
    let mut singles: Vec<Single> = here.iter().flat_map(|said| said.singles.clone()).collect();
    // Both of each kind, of the middle one by time.
    singles.sort_by(|one, other| {
        let key = |own: &Single| (own.write, own.length);
        key(one).cmp(&key(other)).then(one.latency.total_cmp(&other.latency))
    });
    let singles: Vec<Single> =
        singles.chunks(rounds).map(|kind| kind[kind.len() / 2].clone()).collect();
    let (mut text, mut json) = (String::new(), Vec::new());
    let _ = writeln!(
        text,
        "{:8} {:>30} {:>30} {:>24} {:>16}\n{:8} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9} {:>11} \
         {:>12} {:>16}",
        "100 KB",
        "files a second",
        "CPU of the machine, ms a file",
        "of the disk, us a request",
        "requests",
        "files",
        "local",
        "model",
        "here",
        "local",
        "model",
        "here",
        "model",
        "here",
        "of KiB each"
    );
    for at in 0..work::PHASES.len() {
        let (Some(local), Some(here)) = (middle(local.clone(), at), middle(here.clone(), at))
        else {
            return Err(Complaint("a phase was not measured".to_owned()));
        };
        let model = predicted(&local, &here, &singles)?;
        let all = [&local, &model, &here];
        let rates = all.map(|phase| f64::from(files) / phase.seconds);
        let machine = all.map(|phase| phase.machine / f64::from(files));
        let requests = here.requests.max(1) as f64;
        let disk = [&model, &here].map(|phase| phase.disk / requests);
        let _ = writeln!(
            text,
            "{:8} {:>9.0} {:>9.0} {:>10.0} {:>10.3} {:>9.3} {:>9.3} {:>11.1} {:>12.1} {:>16}",
            here.name,
            rates[0],
            rates[1],
            rates[2],
            machine[0] * 1e3,
            machine[1] * 1e3,
            machine[2] * 1e3,
            disk[0] * 1e6,
            disk[1] * 1e6,
            format!("{} of {:.1}", here.requests, here.bytes as f64 / requests / 1024.0),
        );
        let note = "files of 100 KB on ext4; no figure of this is published";
        let name = format!("disk/files-{}", here.name);
        let mut told = line(&name, rates[2], "files/s", Some(("model", rates[1])), note);
        told["local"] = rates[0].into();
        told["cpu_per_file"] =
            json!({ "local": machine[0], "model": machine[1], "here": machine[2] });
        told["disk_cpu_per_request"] = json!({ "model": disk[0], "here": disk[1] });
        (told["requests"], told["bytes"]) = (here.requests.into(), here.bytes.into());
        json.push(told);
    }
    let _ = writeln!(text, "single requests of nbdfuse's file:");
    for single in &singles {
        let _ = writeln!(
            text,
            "{:5} of {:>3} KiB {:>8.1} us, CPU {:>6.1} us, of the disk {:>6.1} us",
            if single.write { "write" } else { "read" },
            single.length >> 10,
            single.latency * 1e6,
            single.machine * 1e6,
            single.disk * 1e6,
        );
    }
    Ok(Report { text, json, good: true })
}
