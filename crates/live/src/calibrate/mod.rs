//! Measures this host: memory, kernel and path, as constants with unit, method and spread.
//!
//! Takes about 20 s. Memory and kernel are measured in a helper process, at high priority where
//! permitted, and the path by reference transfers between two hosts.

mod constant;
pub(crate) mod memory;
mod notice;
mod path;
pub(crate) mod system;

pub use constant::{Calibration, Constant, Host, Value};

use crate::namespace::Hosts;
use crate::transfer::Placement;
use crate::worker::{Reply, Request, Worker, reply};
use lastmeter_linux::cores;
use lastmeter_linux::{Doing, Result};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Deadlines, since the start, for repeating disturbed transfers on different cores and on one core.
/// Undisturbed, it takes about 20 s; the whole must stay below 30 s.
const PATIENCE: [Duration; 2] = [Duration::from_secs(14), Duration::from_secs(26)];

/// The same for a refresh.
const REFRESH_PATIENCE: Duration = Duration::from_secs(6);

/// Measures all constants.
///
/// # Errors
/// When a helper process fails or the kernel refuses something basic.
pub fn run() -> Result<Calibration> {
    let from = Instant::now();
    let mut worker = Worker::spawn()?;
    worker.ask(&Request::Calibrate)?;
    let mut constants =
        reply!(worker, "measure memory and kernel", Reply::Calibrated(constants) => constants);
    drop(worker);
    let mut hosts = Hosts::open(false)?;
    let cores = cores::allowed()?.len();
    let mut found = Vec::new();
    if cores > 1 {
        found.push(path::measure(&mut hosts, Placement::OtherCore, from + PATIENCE[0])?);
    }
    found.push(path::measure(&mut hosts, Placement::SameCore, from + PATIENCE[1])?);
    let others = found.iter().map(|one| one.others).fold(0.0, f64::max);
    let host = Host::here(others, hosts.isolation())?;
    let mut references = BTreeMap::new();
    for one in found {
        constants.extend(one.constants);
        references.extend(one.references);
    }
    let constants = constants.into_iter().collect();
    let mut calibration = Calibration { host, constants, references };
    path::windows(&mut hosts, &mut calibration, from + PATIENCE[1])?;
    Ok(calibration)
}

/// Repeats a few reference transfers for each placement and scales the path's costs accordingly: a
/// machine's speed drifts, above all a virtual one's. Takes two to three seconds. Returns the
/// largest relative change.
///
/// # Errors
/// When a transfer fails.
pub fn refresh(hosts: &mut Hosts, calibration: &mut Calibration) -> Result<f64> {
    let until = Instant::now() + REFRESH_PATIENCE;
    let mut largest = 0.0_f64;
    for placement in [Placement::OtherCore, Placement::SameCore] {
        if placement == Placement::SameCore || calibration.host.cores > 1 {
            largest = largest.max(path::refresh(hosts, calibration, placement, until)?);
        }
    }
    Ok(largest)
}

/// The helper process's measurements.
pub(crate) fn in_worker() -> Result<Vec<(String, Constant)>> {
    let mut constants = Vec::new();
    let core = cores::allowed()?[0];
    cores::pinned(core, || memory::measure(&mut constants))?;
    system::measure(&mut constants)?;
    Ok(constants)
}

/// The name of the processor.
///
/// # Errors
/// If the kernel does not say.
pub fn cpu_model() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo").doing("reading /proc/cpuinfo")?;
    let model = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name.trim(), "model name" | "CPU implementer" | "uarch")
            .then(|| value.trim().to_owned())
    });
    Ok(model.unwrap_or_else(|| "unknown".to_owned()))
}

/// Caches of the first core; none where the kernel does not report them.
fn caches() -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for index in 0..8 {
        let read = |what: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
            fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
        };
        let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size"))
        else {
            break;
        };
        // The kernel writes `48K`.
        let kib = size.strip_suffix('K').and_then(|n| n.parse::<u64>().ok());
        if let Some(kib) = kib {
            found.insert(format!("L{level} {kind}"), Value::Size(kib << 10));
        }
    }
    found
}
