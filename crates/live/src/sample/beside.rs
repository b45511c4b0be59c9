//! `iperf3`, sampled by `perf record` at the same time.
#![allow(clippy::print_stdout)]

use super::{Class, Prepared, Sampler, classes};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Seconds of both: with some 4000 samples each their standard errors are below 0.8 points.
const SECONDS: &str = "4";
/// Nanoseconds between two samples of `perf`; the sampler's own are 997 us apart.
const PERF_PERIOD: &str = "1009000";
/// By how much the shares may differ.
const POINTS: f64 = 3.0;
/// Where the kernel's addresses begin.
const KERNEL: u64 = 1 << 63;

/// A program that ends with the test.
struct Started(Child);

impl Started {
    fn new(program: &str, arguments: &[&str]) -> Option<Started> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Some(Started(command.spawn().ok()?))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits at most some seconds.
fn in_time(what: &str, mut is: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What `perf script -F pid,ip,sym` says of these processes: a line with the process, then its chain, innermost first.
fn classes_of(script: &str, pids: [u32; 2]) -> BTreeMap<Class, u64> {
    let mut found = BTreeMap::new();
    for sample in script.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let process = lines.next().and_then(|line| line.trim().parse().ok());
        if !process.is_some_and(|pid| pids.contains(&pid)) {
            continue;
        }
        let mut chain = lines.filter_map(|line| {
            let (address, name) = line.trim().split_once(' ')?;
            Some((u64::from_str_radix(address, 16).ok()?, name))
        });
        let in_kernel = |(address, _): &(u64, &str)| *address >= KERNEL;
        let class = match chain.next() {
            None => continue,
            Some(innermost) if !in_kernel(&innermost) => Class::Program,
            Some(innermost) => std::iter::once(innermost)
                .chain(chain.take_while(in_kernel))
                .find_map(|(_, name)| classes::of_function(name))
                .unwrap_or(Class::Unknown),
        };
        *found.entry(class).or_insert(0) += 1;
    }
    found
}

/// One of three looks is enough: what other programs do reaches the two samplers differently.
#[test]
fn the_split_is_that_of_perf_record_within_three_points() {
    let far = (0..3).map(|_| far_apart()).find(Vec::is_empty);
    assert!(far.is_some(), "three times more than {POINTS} points apart, as printed");
}

/// The classes whose shares differ by more than [`POINTS`]; none if they cannot be compared.
fn far_apart() -> Vec<Class> {
    let skip = |why: &str| {
        println!("SKIP: a split beside `perf record`: {why}");
        Vec::new()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let path = file.to_str().unwrap();
    let record = ["record", "-q", "-a", "-g", "-e", "cpu-clock", "-c", PERF_PERIOD, "-o", path];
    let Some(mut perf) = Started::new("perf", &record) else {
        return skip("perf (linux-perf) is required and not installed");
    };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let Some(server) = Started::new("iperf3", &["-s", "-1", "-p", &port]) else {
        return skip("iperf3 is required and not installed");
    };
    let listening = format!(":{:04X} ", port.parse::<u16>().unwrap());
    let sockets = || ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    in_time("iperf3 listens", || sockets().into_iter().flatten().any(|s| s.contains(&listening)));
    let records = || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0);
    in_time("perf records", || records() || !matches!(perf.0.try_wait(), Ok(None)));
    if let Ok(Some(ended)) = perf.0.try_wait() {
        return skip(&format!("perf ended ({ended})"));
    }
    let mut client = Started::new("iperf3", &["-c", "127.0.0.1", "-p", &port, "-t", SECONDS]);
    let client = &mut client.as_mut().unwrap().0;
    let pids = [server.0.id(), client.id()];
    let sampler = match Prepared::new().and_then(|prepared| Sampler::open(prepared, &pids)) {
        Ok(sampler) => sampler,
        Err(why) => return skip(&why),
    };
    sampler.begin().unwrap();
    assert!(client.wait().unwrap().success());
    let sampled = sampler.end().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&perf.0),
        rustix::process::Signal::INT,
    )
    .unwrap();
    perf.0.wait().unwrap();
    let script = Command::new("perf").args(["script", "-F", "pid,ip,sym", "-i", path]).output();
    let script = script.unwrap();
    if !script.status.success() {
        return skip(&format!("perf script: {}", String::from_utf8_lossy(&script.stderr)));
    }
    let theirs = classes_of(&String::from_utf8_lossy(&script.stdout), pids);
    let ours = sampled.groups[0].all().with(&sampled.groups[1].all());
    let all: u64 = theirs.values().sum();
    println!("{} samples, of perf {all}", ours.total());
    assert!(all > 1000 && ours.total() > 1000, "too few samples");
    let mut far = Vec::new();
    for class in Class::ALL {
        let share = 100.0 * ours.of(class) as f64 / ours.total() as f64;
        let by_perf = 100.0 * theirs.get(&class).copied().unwrap_or(0) as f64 / all as f64;
        println!("{:>18}: {share:5.1} %, of perf {by_perf:5.1} %", class.name());
        if (share - by_perf).abs() > POINTS {
            far.push(class);
        }
    }
    println!("{} classes are more than {POINTS} points apart", far.len());
    far
}
