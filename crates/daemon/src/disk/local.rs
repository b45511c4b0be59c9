//! `lastmeter bench disk --local`: a file read by a program on this host, and the same file read over TCP (NBD) and
//! over UDP (NBD's requests in transactions of DTP), as Netstation compared its disk over UDP with a local one.
//!
//! | medium | what is read |
//! |---|---|
//! | `disk` | blocks that are not in the kernel's memory: each is read once, after the file was dropped from it |
//! | `cache` | blocks that are: a read costs the copy, and over the network the protocol, too |
//! | `1995` | a disk in time, as slow as one of the document's years (`disk run --model 1995`) on either side |
//!
//! Places are random and differ, or in order. Both sides have as many reads in flight: local ones are by a thread each,
//! those of the network are shared by a few connections, as `nbdcopy` does it. Over UDP, 64 KiB are two transactions,
//! and whoever reads one at a time stays awake for the answer, as long as answers come soon. The CPU time of a read is
//! that of the reader and of the disk's process.
//!
//! Rows: N-34.

use super::client::{self, Load, Place};
use super::model::Model;
use crate::measured::{Bench, Folder, cpu_of, line};
use crate::sandbox::thread as cpu;
use crate::{Complaint, Report};
use lastmeter_device::disk::datagrams::{LENGTH_MAX, Remote};
use lastmeter_device::disk::medium::Medium;
use lastmeter_wire::nbd::{Command as Ask, Request};
use rustix::fs::{Advice, fadvise};
use serde_json::json;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the file: a power of two.
const SIZE: u64 = 256 << 20;
const SIZE_QUICK: u64 = 32 << 20;
/// The published share of the local disk's rate, over UDP (experiments/netstation).
const PUBLISHED: f64 = 0.8;
/// Connections that share a depth, at most.
const CONNECTIONS_MAX: u32 = 8;
/// The model of the third medium.
const MODEL: &str = "1995";
/// A few dozen reads of it.
const MODEL_SECONDS: f64 = 0.5;
/// How long a reader over UDP stays awake for one answer.
const AWAKE: Duration = Duration::from_micros(300);

/// Places of a round, each once, in an order that looks random.
struct Places {
    next: AtomicU64,
    count: u64,
    length: u64,
    in_order: bool,
    until: Instant,
}

impl Places {
    fn new(size: u64, load: Load, seconds: f64) -> Places {
        let (length, in_order) = (u64::from(load.length), load.in_order);
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        Places { next: AtomicU64::new(0), count: size / length, length, in_order, until }
    }
    /// The next place in bytes; `None` if there are no more, or the time is over.
    fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.count || Instant::now() >= self.until {
            return None;
        }
        // Odd, so that it is a permutation of a power of two.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15 | 1;
        let place = if self.in_order { number } else { number.wrapping_mul(STEP) % self.count };
        Some(place * self.length)
    }
}

/// What a reader did, with the CPU time that it took.
type Done = Result<(u64, Duration), Complaint>;

/// What readers did together.
#[derive(Clone, Copy)]
struct Ran {
    /// Reads a second.
    rate: f64,
    /// Seconds of processors for a read: of the readers and, if it is another process, of the disk.
    cpu: f64,
}

/// Has readers work at the same time, each on its own thread.
fn all_of<T: Send>(
    each: impl IntoIterator<Item = T>,
    disk: Option<&Disk>,
    reader: impl Fn(T) -> Result<u64, Complaint> + Sync,
) -> Result<Ran, Complaint> {
    let disk_cpu = || disk.map_or(0.0, |disk| cpu_of(disk.child.id()));
    let (began, before) = (Instant::now(), disk_cpu());
    let one = |part: T| -> Done {
        let before = cpu();
        let done = reader(part)?;
        Ok((done, cpu().saturating_sub(before)))
    };
    let (mut done, mut spent) = (0, Duration::ZERO);
    std::thread::scope(|scope| {
        let all: Vec<_> = each.into_iter().map(|part| scope.spawn(|| one(part))).collect();
        for reader in all {
            let (own, cpu) = reader.join().expect("it does not panic")?;
            (done, spent) = (done + own, spent + cpu);
        }
        Ok::<_, Complaint>(())
    })?;
    let rate = done as f64 / began.elapsed().as_secs_f64();
    let cpu = (spent.as_secs_f64() + disk_cpu() - before) / done.max(1) as f64;
    Ok(Ran { rate, cpu })
}

/// Reads the file with a program here, or the medium that takes as long as a model.
fn local(
    path: &Path,
    model: Option<&Medium>,
    load: Load,
    size: u64,
    seconds: f64,
) -> Result<Ran, Complaint> {
    let places = Places::new(size, load, seconds);
    all_of(0..load.depth, None, |_| {
        let file = File::open(path)?;
        if !load.in_order {
            fadvise(&file, 0, None, Advice::Random)?;
        }
        let (mut bytes, mut done) = (vec![0; load.length as usize], 0);
        while let Some(place) = places.take() {
            match model {
                Some(medium) => medium.read(place, &mut bytes)?,
                None => file.read_exact_at(&mut bytes, place)?,
            }
            done += 1;
        }
        Ok(done)
    })
}

fn network(disk: &Disk, load: Load, size: u64, seconds: f64) -> Result<Ran, Complaint> {
    let connections = load.depth.min(CONNECTIONS_MAX);
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(client::open(Place::Address(disk.stream), "")?);
    }
    let places = Places::new(size, load, seconds);
    all_of(open, Some(disk), |(mut stream, mut reader, _)| {
        let (mut answer, mut done, mut waiting) = (vec![0; 16 + load.length as usize], 0, 0);
        let (flags, command, length) = (0, Ask::READ, load.length);
        loop {
            let mut asked = Vec::new();
            while waiting < load.depth / connections {
                let Some(offset) = places.take() else { break };
                asked.extend(Request { flags, command, cookie: done, offset, length }.emit());
                waiting += 1;
            }
            stream.write_all(&asked)?;
            if waiting == 0 {
                client::close(&mut stream)?;
                return Ok(done);
            }
            reader.read_exact(&mut answer)?;
            if answer[4..8] != [0; 4] {
                return Err(Complaint("a request was refused".to_owned()));
            }
            (done, waiting) = (done + 1, waiting - 1);
        }
    })
}

fn datagrams(disk: &Disk, load: Load, size: u64, seconds: f64) -> Result<Ran, Complaint> {
    // Answers that are in flight on one leave together; long ones need the room of more sockets.
    let most = if load.length > LENGTH_MAX { CONNECTIONS_MAX } else { CONNECTIONS_MAX / 2 };
    let connections = load.depth.min(most);
    let length = load.length.min(LENGTH_MAX);
    let mut open = Vec::new();
    for _ in 0..connections {
        let mut remote = Remote::greet(disk.datagrams, "", length)?;
        if load.depth == 1 {
            remote.stay_awake(AWAKE);
        }
        open.push(remote);
    }
    let places = Places::new(size, load, seconds);
    all_of(open, Some(disk), |mut remote| {
        // Pieces that are still to be asked for, with the place of their read; pieces that a read still waits for.
        let (mut pieces, mut left) = (VecDeque::new(), HashMap::new());
        let mut done = 0;
        loop {
            while left.len() < (load.depth / connections) as usize {
                let Some(place) = places.take() else { break };
                let all =
                    (0..load.length / length).map(|at| (place, place + u64::from(at * length)));
                pieces.extend(all);
                left.insert(place, load.length);
            }
            while let Some((place, at)) = pieces.pop_front() {
                if !remote.ask(place, at, length) {
                    pieces.push_front((place, at));
                    break;
                }
            }
            if left.is_empty() {
                return Ok(done);
            }
            let (place, len) = remote.answer(|place, data| (place, data.len() as u32))?;
            let rest = left.get_mut(&place).ok_or("an answer to nothing")?;
            *rest = rest.checked_sub(len).ok_or("more than was asked for")?;
            if *rest == 0 {
                left.remove(&place);
                done += 1;
            }
        }
    })
}

/// Our disk with the file, and its addresses for TCP and UDP.
struct Disk {
    child: Child,
    stream: SocketAddr,
    datagrams: SocketAddr,
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(folder: &Path, model: Option<&str>) -> Result<Disk, Complaint> {
    let stream = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let name = model.unwrap_or("disk");
    let file = folder.join(format!("{name}.toml"));
    let datagrams = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let text =
        format!("file = \"{name}.img\"\nlisten = \"{stream}\"\ndatagrams = \"{datagrams}\"\n");
    std::fs::write(&file, text)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["disk", "run"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    if let Some(name) = model {
        command.args(["--model", name]);
    }
    let disk = Disk { child: command.spawn()?, stream, datagrams };
    let began = Instant::now();
    loop {
        match client::open(Place::Address(stream), "") {
            Ok((mut stream, ..)) => break client::close(&mut stream)?,
            Err(Complaint(why)) if began.elapsed() > Duration::from_secs(10) => {
                return Err(Complaint(format!("the disk did not begin: {why}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Ok(disk)
}

/// Puts the file out of the kernel's memory, or all of it into it.
fn prepare(path: &Path, cached: bool) -> Result<(), Complaint> {
    let mut file = File::open(path)?;
    match cached {
        true => drop(std::io::copy(&mut file, &mut std::io::sink())?),
        false => fadvise(&file, 0, None, Advice::DontNeed)?,
    }
    Ok(())
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// What is measured: a medium and a load, by name.
fn cells() -> Vec<(&'static str, String, Load)> {
    let mut cells = Vec::new();
    for medium in ["disk", "cache", MODEL] {
        for (size, length) in [("4k", 4096), ("64k", 65536)] {
            for depth in [1, 32] {
                let load = Load { write: false, length, depth, in_order: false };
                cells.push((medium, format!("{medium}-{size}@{depth}"), load));
            }
        }
    }
    let load = Load { write: false, length: 65536, depth: 1, in_order: true };
    cells.push((MODEL, format!("{MODEL}-in-order-64k@1"), load));
    cells
}

pub(super) fn bench(arguments: &Bench, within: &Path, quick: bool) -> Result<Report, Complaint> {
    let (seconds, rounds) = match quick {
        true => (0.2, 1),
        false => (arguments.seconds, arguments.rounds.max(1)),
    };
    let size = if quick { SIZE_QUICK } else { SIZE };
    let folder = Folder::new(within, "disk-local")?;
    let path: PathBuf = folder.path().join("disk.img");
    let mut file = File::create(&path)?;
    let piece: Vec<u8> = (0..1 << 20).map(|at: u32| (at * 7 / 5) as u8).collect();
    (0..size >> 20).try_for_each(|_| file.write_all(&piece))?;
    file.sync_all()?;
    let disk = serve(folder.path(), None)?;
    // What is read of it takes the model's time, so nothing need be there.
    let model = folder.path().join(format!("{MODEL}.img"));
    let medium = Medium::file(&model, Some(SIZE), 512, false)?;
    let in_time = serve(folder.path(), Some(MODEL))?;
    let medium = medium.timed(Model::of(MODEL)?.timing(SIZE)?);
    let (mut text, mut json) = (String::new(), Vec::new());
    let _ = writeln!(
        text,
        "{:24} {:>11} {:>11} {:>11} {:>9} {:>9} {:>9} {:>26}",
        "benchmark",
        "TCP, 1/s",
        "UDP, 1/s",
        "local, 1/s",
        "TCP share",
        "UDP share",
        "published",
        "CPU us: TCP, UDP, local"
    );
    for (kind, name, load) in cells() {
        let full = |way: &str| format!("disk/{way}-{name}");
        let named =
            |part: &String| ["local", "local-udp"].iter().any(|way| full(way).contains(part));
        if arguments.name.as_ref().is_some_and(|part| !named(part)) {
            continue;
        }
        let is_model = kind == MODEL;
        let (disk, model) = if is_model { (&in_time, Some(&medium)) } else { (&disk, None) };
        let size = if is_model { SIZE } else { size };
        let seconds = if is_model { seconds.max(MODEL_SECONDS) } else { seconds };
        let mut all = [const { Vec::new() }; 3];
        // In turn, so that all see the same hour of the machine.
        for _ in 0..rounds {
            prepare(&path, kind != "disk")?;
            all[2].push(local(&path, model, load, size, seconds)?);
            prepare(&path, kind != "disk")?;
            all[0].push(network(disk, load, size, seconds)?);
            prepare(&path, kind != "disk")?;
            all[1].push(datagrams(disk, load, size, seconds)?);
        }
        let [tcp, udp, other] =
            all.each_ref().map(|all| middle(all.iter().map(|ran| ran.rate).collect()));
        let cpu = all.map(|all| 1e6 * middle(all.iter().map(|ran| ran.cpu).collect()));
        // The published disk was slower than its network: that compares with media that are.
        let beside = if kind == "cache" { "-".to_owned() } else { format!("> {PUBLISHED}") };
        let (by_tcp, by_udp) = (tcp / other, udp / other);
        let digits = if is_model { 1 } else { 0 };
        let _ = writeln!(
            text,
            "{name:24} {tcp:>11.digits$} {udp:>11.digits$} {other:>11.digits$} {by_tcp:>9.3} \
             {by_udp:>9.3} {beside:>9} {:>8.1} {:>8.1} {:>8.1}",
            cpu[0], cpu[1], cpu[2]
        );
        for (way, rate, cpu_here) in [("TCP", tcp, cpu[0]), ("UDP", udp, cpu[1])] {
            let note = format!(
                "reads over {way} beside reads of the same file; published for UDP and a disk of \
                 its time: more than {PUBLISHED} of the local rate"
            );
            let name = full(if way == "UDP" { "local-udp" } else { "local" });
            let mut told = line(&name, rate, "reads/s", Some(("local file", other)), &note);
            told["cpu_per_read"] = json!({ "here": cpu_here / 1e6, "local": cpu[2] / 1e6 });
            json.push(told);
        }
    }
    if json.is_empty() {
        return Err(Complaint(
            "no benchmark of this name: local-disk-4k@1, local-udp-1995-in-order-64k@1, ..."
                .to_owned(),
        ));
    }
    Ok(Report { text, json, good: true })
}
