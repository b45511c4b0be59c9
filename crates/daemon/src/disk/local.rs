//! `lastmeter bench disk --local`: a file read by a program on this host, and the same file read over TCP (NBD) and
//! over UDP (NBD's requests in transactions of DTP), as Netstation compared its disk over UDP with a local one.
//!
//! | medium | what is read |
//! |---|---|
//! | `disk` | blocks that are not in the kernel's memory: each is read once, after the file was dropped from it |
//! | `cache` | blocks that are: a read costs the copy, and over the network the protocol, too |
//!
//! Places are random and differ. Both sides have as many reads in flight: local ones are by a thread each, those of the
//! network are shared by a few connections, as `nbdcopy` does it. Over UDP, 64 KiB are two transactions.
//!
//! Rows: N-34.

use super::client::{self, Load, Place};
use crate::measured::{Bench, Folder, line};
use crate::{Complaint, Report};
use lastmeter_device::disk::datagrams::{LENGTH_MAX, Remote};
use lastmeter_wire::nbd::{Command as Ask, Request};
use rustix::fs::{Advice, fadvise};
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

/// Places of a round, each once, in an order that looks random.
struct Places {
    next: AtomicU64,
    count: u64,
    length: u64,
    until: Instant,
}

impl Places {
    fn new(size: u64, length: u32, seconds: f64) -> Places {
        let (length, until) =
            (u64::from(length), Instant::now() + Duration::from_secs_f64(seconds));
        Places { next: AtomicU64::new(0), count: size / length, length, until }
    }
    /// The next place in bytes; `None` if there are no more, or the time is over.
    fn take(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.count || Instant::now() >= self.until {
            return None;
        }
        // Odd, so that it is a permutation of a power of two.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15 | 1;
        Some(number.wrapping_mul(STEP) % self.count * self.length)
    }
}

/// Reads for each second.
fn rate(done: u64, began: Instant) -> f64 {
    done as f64 / began.elapsed().as_secs_f64()
}

fn local(path: &Path, load: Load, size: u64, seconds: f64) -> Result<f64, Complaint> {
    let places = Places::new(size, load.length, seconds);
    let began = Instant::now();
    let reader = || -> std::io::Result<u64> {
        let file = File::open(path)?;
        fadvise(&file, 0, None, Advice::Random)?;
        let (mut bytes, mut done) = (vec![0; load.length as usize], 0);
        while let Some(place) = places.take() {
            file.read_exact_at(&mut bytes, place)?;
            done += 1;
        }
        Ok(done)
    };
    let done = std::thread::scope(|scope| {
        let all: Vec<_> = (0..load.depth).map(|_| scope.spawn(reader)).collect();
        all.into_iter().map(|one| one.join().expect("it does not panic")).sum::<Result<u64, _>>()
    })?;
    Ok(rate(done, began))
}

fn network(address: SocketAddr, load: Load, size: u64, seconds: f64) -> Result<f64, Complaint> {
    let connections = load.depth.min(CONNECTIONS_MAX);
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(client::open(Place::Address(address), "")?);
    }
    let places = Places::new(size, load.length, seconds);
    let began = Instant::now();
    let reader = |(mut stream, mut reader, _): client::Opened| -> Result<u64, String> {
        let words = |error: std::io::Error| error.to_string();
        let (mut answer, mut done, mut waiting) = (vec![0; 16 + load.length as usize], 0, 0);
        let (flags, command, length) = (0, Ask::READ, load.length);
        loop {
            let mut asked = Vec::new();
            while waiting < load.depth / connections {
                let Some(offset) = places.take() else { break };
                asked.extend(Request { flags, command, cookie: done, offset, length }.emit());
                waiting += 1;
            }
            stream.write_all(&asked).map_err(words)?;
            if waiting == 0 {
                return client::close(&mut stream).map_err(|Complaint(why)| why).map(|()| done);
            }
            reader.read_exact(&mut answer).map_err(words)?;
            if answer[4..8] != [0; 4] {
                return Err("a request was refused".to_owned());
            }
            (done, waiting) = (done + 1, waiting - 1);
        }
    };
    let done = std::thread::scope(|scope| {
        let all: Vec<_> = open.into_iter().map(|one| scope.spawn(move || reader(one))).collect();
        all.into_iter().map(|one| one.join().expect("it does not panic")).sum::<Result<u64, _>>()
    })?;
    Ok(rate(done, began))
}

fn datagrams(address: SocketAddr, load: Load, size: u64, seconds: f64) -> Result<f64, Complaint> {
    let connections = load.depth.min(CONNECTIONS_MAX);
    let length = load.length.min(LENGTH_MAX);
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Remote::greet(address, "", length)?);
    }
    let places = Places::new(size, load.length, seconds);
    let began = Instant::now();
    let reader = |mut remote: Remote| -> Result<u64, String> {
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
            let (place, data) = remote.answer()?;
            let rest = left.get_mut(&place).ok_or("an answer to nothing")?;
            *rest = rest.checked_sub(data.len() as u32).ok_or("more than was asked for")?;
            if *rest == 0 {
                left.remove(&place);
                done += 1;
            }
        }
    };
    let done = std::thread::scope(|scope| {
        let all: Vec<_> = open.into_iter().map(|one| scope.spawn(move || reader(one))).collect();
        all.into_iter().map(|one| one.join().expect("it does not panic")).sum::<Result<u64, _>>()
    })?;
    Ok(rate(done, began))
}

/// Our disk with the file, and its addresses for TCP and UDP.
struct Disk(Child, SocketAddr, SocketAddr);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(folder: &Path) -> Result<Disk, Complaint> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let file = folder.join("disk.toml");
    let datagrams = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let text =
        format!("file = \"disk.img\"\nlisten = \"{address}\"\ndatagrams = \"{datagrams}\"\n");
    std::fs::write(&file, text)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["disk", "run"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    let disk = Disk(command.spawn()?, address, datagrams);
    let began = Instant::now();
    loop {
        match client::open(Place::Address(address), "") {
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
    let disk = serve(folder.path())?;
    let (mut text, mut json) = (String::new(), Vec::new());
    let _ = writeln!(
        text,
        "{:26} {:>12} {:>12} {:>12} {:>9} {:>9} {:>16}",
        "benchmark",
        "over TCP /s",
        "over UDP /s",
        "local /s",
        "TCP share",
        "UDP share",
        "published (UDP)"
    );
    for medium in ["disk", "cache"] {
        for (name, length) in [("4k", 4096), ("64k", 65536)] {
            for depth in [1, 32] {
                let name = format!("{medium}-{name}@{depth}");
                let full = |way: &str| format!("disk/{way}-{name}");
                let named = |part: &String| {
                    ["local", "local-udp"].iter().any(|way| full(way).contains(part.as_str()))
                };
                if arguments.name.as_ref().is_some_and(|part| !named(part)) {
                    continue;
                }
                let load = Load { write: false, length, depth, in_order: false };
                let mut all = [const { Vec::new() }; 3];
                // In turn, so that all see the same hour of the machine.
                for _ in 0..rounds {
                    prepare(&path, medium == "cache")?;
                    all[2].push(local(&path, load, size, seconds)?);
                    prepare(&path, medium == "cache")?;
                    all[0].push(network(disk.1, load, size, seconds)?);
                    prepare(&path, medium == "cache")?;
                    all[1].push(datagrams(disk.2, load, size, seconds)?);
                }
                let [tcp, udp, other] = all.map(middle);
                // The published disk was slower than its network: that compares with `disk`.
                let beside =
                    if medium == "disk" { format!("> {PUBLISHED}") } else { "-".to_owned() };
                let (by_tcp, by_udp) = (tcp / other, udp / other);
                let _ = writeln!(
                    text,
                    "{name:26} {tcp:>12.0} {udp:>12.0} {other:>12.0} {by_tcp:>9.3} {by_udp:>9.3} \
                     {beside:>16}"
                );
                for (way, rate) in [("TCP", tcp), ("UDP", udp)] {
                    let note = format!(
                        "reads over {way} beside reads of the same file; published for UDP and a \
                         disk of its time: more than {PUBLISHED} of the local rate"
                    );
                    let name = full(if way == "UDP" { "local-udp" } else { "local" });
                    json.push(line(&name, rate, "reads/s", Some(("local file", other)), &note));
                }
            }
        }
    }
    if json.is_empty() {
        return Err(Complaint(
            "no benchmark of this name: local-disk-4k@1, local-udp-cache-64k@32, ...".to_owned(),
        ));
    }
    Ok(Report { text, json, good: true })
}
