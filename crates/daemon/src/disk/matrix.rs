//! `lastmeter bench disk/matrix`: the rate of commands, the time of each, and what it costs the disk's processor, over
//! NBD and iSCSI, each beside the model of both hosts.
//!
//! | cell | model |
//! |---|---|
//! | one at a time, and reads of 4 KiB 32 at a time | fitted: its constants are from these five |
//! | all others | predicted |
//!
//! Constants: what a command costs client and disk one at a time; by how much less 32 at a time cost, which shares a
//! waking of each among them; and what is left of the time of one at a time, which is the way. Short commands are
//! handed over all at once (both ends work off what has come before they send), long ones by themselves.
//!
//! Rows: N-33.

use super::bench::{Measured, measure, servers};
use super::client::Load;
use super::modelled::{Asked, Costs, Predicted, predict};
use crate::measured::{Bench, Folder, line};
use crate::{Complaint, Report};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

const LENGTHS: [(&str, u32); 2] = [("4k", 4096), ("64k", 65536)];
const DEPTHS: [u32; 3] = [1, 4, 32];
/// Commands as long as this, and their answers, wait for those that came with them.
const BATCHED_MAX: u32 = 8192;
/// The depth whose reads of 4 KiB say what a waking costs.
const DEEP: u32 = 32;
/// Bytes of a request and of an answer besides data, in NBD and iSCSI.
const HEADERS: [(&str, [u64; 2]); 2] = [("nbd", [28, 16]), ("iscsi", [48, 48])];

struct Cell {
    name: String,
    load: Load,
    seen: Measured,
}

fn loads() -> impl Iterator<Item = (String, Load)> {
    DEPTHS.into_iter().flat_map(|depth| {
        LENGTHS.into_iter().flat_map(move |(size, length)| {
            [("read", false), ("write", true)].map(|(what, write)| {
                (format!("{what}-{size}@{depth}"), Load { write, length, depth, in_order: false })
            })
        })
    })
}

/// Whether its figures are among those that the constants are from.
fn is_fitted(load: Load) -> bool {
    load.depth == 1 || load.depth == DEEP && load.length == LENGTHS[0].1 && !load.write
}

/// What the model takes a load of this length and direction to cost.
fn costs(cells: &[Cell], load: Load) -> Option<Costs> {
    let find = |length: u32, write: bool, depth: u32| {
        let same = |one: &&Cell| {
            (one.load.length, one.load.write, one.load.depth) == (length, write, depth)
        };
        cells.iter().find(same).map(|cell| cell.seen)
    };
    let alone = find(load.length, load.write, 1)?;
    let (short, deep) = (find(LENGTHS[0].1, false, 1)?, find(LENGTHS[0].1, false, DEEP)?);
    // Alone: work and waking; of a batch: work, and a part of the waking.
    let part = f64::from(DEEP) / f64::from(DEEP - 1);
    let wake = [0, 1].map(|at| (part * (short.cpu[at] - deep.cpu[at])).max(0.0));
    let work = [0, 1].map(|at| (alone.cpu[at] - wake[at]).max(0.0));
    let delay = (alone.mean - alone.cpu[0] - alone.cpu[1]).max(0.0) / 2.0;
    Some(Costs { work, wake, delay })
}

fn told(protocol: &str, cell: &Cell, model: &Predicted) -> Value {
    let fitted = is_fitted(cell.load);
    let note = format!(
        "beside the model of both hosts, {}; no figure of this is published",
        if fitted { "whose constants are from this" } else { "predicted" }
    );
    let name = format!("disk/matrix-{protocol}-{}", cell.name);
    let mut told = line(&name, cell.seen.rate, "I/Os per s", Some(("model", model.rate)), &note);
    told["latency"] = json!({ "mean": cell.seen.mean, "median": cell.seen.median });
    told["cpu_per_io"] = json!({ "client": cell.seen.cpu[0], "server": cell.seen.cpu[1] });
    told["model"] = json!({
        "rate": model.rate,
        "latency": { "mean": model.latency },
        "cpu_per_io": { "server": model.cpu },
        "fitted": fitted,
    });
    told
}

pub(super) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    let bench = Bench {
        name: None,
        seconds: if quick { 0.5 } else { arguments.seconds },
        rounds: if quick { 1 } else { arguments.rounds.max(1) },
    };
    let base =
        if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let folder = Folder::new(&base, "disk-matrix")?;
    let (mut text, mut json) = (String::new(), Vec::new());
    let _ = writeln!(
        text,
        "{:22} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6}",
        "", "I/Os/s", "model", "", "us", "model", "", "CPU us", "model", ""
    );
    for (protocol, headers) in HEADERS {
        let own = servers(protocol, folder.path(), false)?.0;
        let mut cells = Vec::new();
        for (name, load) in loads() {
            cells.push(Cell { name, load, seen: measure(&own, load, &bench)? });
        }
        drop(own);
        for cell in &cells {
            let costs = costs(&cells, cell.load).ok_or("a load was not measured")?;
            let data = u64::from(cell.load.length);
            let bytes = match cell.load.write {
                true => [headers[0] + data, headers[1]],
                false => [headers[0], headers[1] + data],
            };
            let depth = cell.load.depth;
            let batch = if cell.load.length <= BATCHED_MAX { depth } else { 1 };
            let model = predict(costs, None, Asked { bytes, depth, batch })?;
            let seen = &cell.seen;
            let _ = write!(text, "{:22}", format!("{protocol}-{}", cell.name));
            for (own, other, digits) in [
                (seen.rate, model.rate, 0),
                (seen.mean * 1e6, model.latency * 1e6, 1),
                (seen.cpu[1] * 1e6, model.cpu * 1e6, 2),
            ] {
                let off = format!("{:+.0} %", 100.0 * (other / own - 1.0));
                let _ = write!(text, " {own:>9.digits$} {other:>9.digits$} {off:>6}");
            }
            text.push_str(if is_fitted(cell.load) { "  fitted\n" } else { "\n" });
            json.push(told(protocol, cell, &model));
        }
    }
    Ok(Report { text, json, good: true })
}
