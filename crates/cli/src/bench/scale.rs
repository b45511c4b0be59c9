//! Large graphs under full load: a router's fabric and a fat tree, compared with the chain of ten routers,
//! on one thread and on all, and the memory per port.

use super::engine::{self, Timed};
use super::{Measurement, Setting};
use crate::Complaint;
use lastmeter_base::{Duration, Time};
use lastmeter_engine::{Error, Graph, Serial};
use lastmeter_lan::fabric::bench;
use std::fmt::Write;
use std::process::Command;

type Made = Result<Graph, Error>;

/// A family of graphs that differ in size.
struct Family {
    name: &'static str,
    /// What a port is called.
    unit: &'static str,
    make: fn(usize, u64) -> Made,
    /// Sizes as `make` counts them, each about twice the one before; the last but one is timed, the last is
    /// the largest possible.
    sizes: [usize; 4],
    ports: fn(usize) -> usize,
    /// What a hop is.
    hop: &'static str,
}

const FABRIC: Family = Family {
    name: "engine/fabric",
    unit: "ports",
    make: bench::fabric,
    sizes: [256, 512, 1024, 8192],
    ports: |ports| ports,
    hop: "a hop is a queue and its line, as in the chain: input, trunk, output and link, four \
          for a packet of 1500 B, which is not cut; its 32 cells through three stages would be 96 \
          cell-hops, see fabric/cells",
};

const FAT_TREE: Family = Family {
    name: "engine/fat-tree",
    unit: "hosts",
    make: bench::fat_tree,
    sizes: [10, 12, 16, 64],
    ports: |radix| radix.pow(3) / 4,
    hop: "a hop is a queue and its line, as in the chain: six per packet",
};

/// All benchmarks of scale.
pub(super) const ALL: &[(&str, engine::Bench)] = &[
    ("engine/fabric", |setting| speed(&FABRIC, setting)),
    ("engine/fabric/threads", |setting| threads(&FABRIC, setting)),
    ("engine/fabric/memory", |setting| memory(&FABRIC, setting)),
    ("engine/fabric/largest", |setting| largest(&FABRIC, setting)),
    ("engine/fat-tree", |setting| speed(&FAT_TREE, setting)),
    ("engine/fat-tree/threads", |setting| threads(&FAT_TREE, setting)),
    ("engine/fat-tree/memory", |setting| memory(&FAT_TREE, setting)),
    ("engine/fat-tree/largest", |setting| largest(&FAT_TREE, setting)),
];

/// Runs of each, alternating with the chain so that both see the same machine: other users of a shared
/// cache come and go within seconds. The best of each counts.
const ROUNDS: usize = 9;
const LENGTH: Duration = Duration::from_ms(10);
const LENGTH_QUICK: Duration = Duration::from_ms(1);
/// What the largest size must fit in.
const MEMORY: f64 = 16.0 * 1024.0 * 1024.0 * 1024.0;

/// The size that is timed.
const TIMED: usize = 2;

fn length(setting: &Setting<'_>) -> Duration {
    if setting.quick { LENGTH_QUICK } else { LENGTH }
}

/// One run; only the run is timed, not the building.
fn once(
    family: &Family,
    size: usize,
    parts: usize,
    length: Duration,
    setting: &Setting<'_>,
) -> Result<Timed, Complaint> {
    let failed = |error: Error| Complaint(format!("{}: {error}", family.name));
    let graph = (family.make)(size, setting.seed.unwrap_or(1)).map_err(failed)?;
    let mut engine = graph.build(parts).map_err(failed)?;
    let end = Time::START + length;
    let run = || match parts {
        1 => engine.run_parallel(end, &Default::default(), &Serial),
        _ => engine.run_parallel(end, &Default::default(), setting.threads),
    };
    let (seconds, cpu_seconds) = engine::clocked(parts, run).map_err(failed)?;
    let outcome = engine.finish().map_err(failed)?;
    Ok(Timed { seconds, cpu_seconds, outcome })
}

/// The best of a family's runs in one part, and of the runs it is compared with.
fn best_of_both(
    family: &Family,
    setting: &Setting<'_>,
    beside: impl Fn() -> Result<Timed, Complaint>,
) -> Result<(Timed, Timed), Complaint> {
    let rounds = if setting.quick { 1 } else { ROUNDS };
    let mut best = (None, None);
    for _ in 0..rounds {
        let timed = once(family, family.sizes[TIMED], 1, length(setting), setting)?;
        best = (Some(timed.or_before(best.0)), Some(beside()?.or_before(best.1)));
    }
    best.0.zip(best.1).ok_or_else(|| Complaint("nothing ran".to_owned()))
}

/// Packet-hops per CPU second, compared with the chain's.
fn speed(family: &Family, setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let (timed, chain) = best_of_both(family, setting, || engine::chain_once(setting))?;
    let hops = timed.counter("served");
    let value = hops as f64 / timed.cpu_seconds;
    let chain = chain.counter("served") as f64 / chain.cpu_seconds;
    let ports = (family.ports)(family.sizes[TIMED]);
    let note = format!(
        "{hops} packet-hops through {ports} {} at full load, {} in {:.2} s, {} packets lost, \
         ledger on, one thread; {}",
        family.unit,
        length(setting),
        timed.seconds,
        timed.outcome.books.dropped,
        family.hop,
    );
    let mut result = engine::result(family.name, value, "packet-hops/CPU s", &timed, note);
    result.beside("engine/chain", chain);
    Ok(result)
}

fn threads(family: &Family, setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let count = setting.threads.count();
    let in_parts = || once(family, family.sizes[TIMED], count, length(setting), setting);
    let (one, many) = best_of_both(family, setting, in_parts)?;
    if one.hash() != many.hash() {
        let name = family.name;
        return Err(Complaint(format!("{name}: {count} threads gave a different result than one")));
    }
    let note = format!("{count} threads, same result as on one");
    let name = format!("{}/threads", family.name);
    Ok(engine::result(&name, one.seconds / many.seconds, "times one", &one, note))
}

/// Memory per port, at three sizes; the figure is that of the timed one.
fn memory(family: &Family, setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let mut note = String::from("each in its own process");
    let mut last = None;
    for &size in &family.sizes[..=TIMED] {
        let grown = elsewhere(family, size, setting)?;
        let (ports, each) = ((family.ports)(size), grown.value / 1024.0);
        let _ = write!(note, "; {ports} {}: {each:.1} KiB each", family.unit);
        last = Some(grown);
    }
    let grown = last.ok_or_else(|| Complaint("nothing ran".to_owned()))?;
    Ok(Measurement { bench: format!("{}/memory", family.name), note, ..grown })
}

/// The largest possible size, if it fits.
fn largest(family: &Family, setting: &Setting<'_>) -> Result<Measurement, Complaint> {
    let size = if setting.quick { family.sizes[TIMED] } else { family.sizes[TIMED + 1] };
    let grown = elsewhere(family, size, setting)?;
    let ports = (family.ports)(size);
    let bytes = grown.value * ports as f64;
    let what = if setting.quick { "of a quick run" } else { "the model's limit" };
    let note = format!(
        "{ports} {}, {what}, took {:.2} GiB of 16 GiB; {}",
        family.unit,
        bytes / f64::from(1 << 30),
        grown.note
    );
    if bytes > MEMORY {
        return Err(Complaint(format!("{}: {note}", family.name)));
    }
    let (bench, value) = (format!("{}/largest", family.name), ports as f64);
    let unit = family.unit.to_owned();
    Ok(Measurement { bench, value, unit, higher_is_better: true, note, ..grown })
}

/// Has another process run one size, as this one still holds memory from earlier runs.
fn elsewhere(
    family: &Family,
    size: usize,
    setting: &Setting<'_>,
) -> Result<Measurement, Complaint> {
    let failed = |why: String| Complaint(format!("{} of size {size}: {why}", family.name));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(["bench", family.name, "--json", "--size"]).arg(size.to_string());
    command.args(["--seed", &setting.seed.unwrap_or(1).to_string()]);
    command.args(setting.quick.then_some("--quick"));
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|_| failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Runs one size of a family, and reports by how much this process grew per port.
pub(super) fn alone(
    name: &str,
    size: usize,
    setting: &Setting<'_>,
) -> Result<Measurement, Complaint> {
    let families = [&FABRIC, &FAT_TREE];
    let family = families.into_iter().find(|family| family.name == name).ok_or_else(|| {
        Complaint(format!("`{name}` has no sizes: write {} or {}", FABRIC.name, FAT_TREE.name))
    })?;
    let missing = || Complaint("this system does not report a process's memory".into());
    let before = engine::memory_most().ok_or_else(missing)?;
    let length = if size > family.sizes[TIMED] { LENGTH_QUICK } else { length(setting) };
    let timed = once(family, size, 1, length, setting)?;
    let grown = engine::memory_most().ok_or_else(missing)?.saturating_sub(before);
    let ports = (family.ports)(size);
    let note = format!("{ports} {} at full load, {length} in {:.1} s", family.unit, timed.seconds);
    let unit = format!("B/{}", family.unit.trim_end_matches('s'));
    let each = grown as f64 / ports as f64;
    let result = engine::result(&format!("{name}@{size}"), each, &unit, &timed, note);
    Ok(result.lower_is_better())
}
