//! `lastmeter bench disk/pipelined`: a file read and written in blocks of 8 KiB over a network, 1 to 16 at a time,
//! beside the model; ATOMIC-2 gained 30 % with as many requests as fit over 4 at a time, 20 % where a disk was
//! behind it.
//!
//! ```text
//! client --- emulated link (LAN: 640 Mbit/s and 0.5 ms each way; WAN: 155 Mbit/s and 20 ms) --- our disk, in memory
//! ```
//!
//! The LAN is the one of `experiments/atomic2-services`. Constants of the model are what a block takes over the same
//! path when the link takes no time: nothing is from the runs that it is compared with.
//!
//! Rows: N-79, N-80.

use super::bench::{PeerAt, memory_at};
use super::client::{self, Load, Place, Seen};
use super::emulated::{CONTENT, Emulated, FRAMING, Line};
use super::modelled::{Asked, Costs, Link, predict};
use crate::measured::{Bench, Folder, cpu_of, line};
use crate::{Complaint, Report};
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

/// Bytes of a block: NFS's.
const BLOCK: u32 = 8192;
const DEPTHS: &[u32] = &[1, 2, 4, 8, 16];
const DEPTHS_QUICK: &[u32] = &[1, 4, 16];
const LINES: [(&str, Line); 2] = [
    ("lan", Line { rate: 640e6, delay: Duration::from_micros(500) }),
    ("wan", Line { rate: 155e6, delay: Duration::from_millis(20) }),
];
/// A link that takes no time.
const NONE: Line = Line { rate: 1e12, delay: Duration::ZERO };
/// Gains in per cent that are published, of 16 at a time over 4: of the protocol, and of writes to a disk.
const PUBLISHED: [(&str, f64); 2] = [("protocol", 30.0), ("to a disk", 20.0)];
/// Requests at depth 1 before a figure counts.
const REQUESTS_MIN: u64 = 10;

/// One run over a line; none if the machine was too busy to be a link, and what the disk's processor did.
fn run(
    disk: &PeerAt,
    along: Line,
    load: Load,
    seconds: f64,
) -> Result<(Seen, f64, bool), Complaint> {
    let link = Emulated::new(disk.address, along)?;
    let before = cpu_of(disk.id());
    // A run has some requests, however long each takes.
    let least = REQUESTS_MIN as f64 * 2.0 * along.delay.as_secs_f64();
    let seen = client::run(Place::Address(link.address), "", load, seconds.max(least))?;
    let cpu = cpu_of(disk.id()) - before;
    let kept_up = link.end();
    Ok((seen, cpu, kept_up))
}

/// What a block costs where the link takes no time.
fn costs(disk: &PeerAt, write: bool, seconds: f64) -> Result<Costs, Complaint> {
    let load = Load { write, length: BLOCK, depth: 1, in_order: true };
    let (seen, cpu, _) = run(disk, NONE, load, seconds)?;
    let done = seen.done.max(1) as f64;
    let work = [seen.cpu / done, cpu / done];
    let delay = (seen.mean() - work[0] - work[1]).max(0.0) / 2.0;
    Ok(Costs { work, wake: [0.0; 2], delay })
}

pub(super) fn bench(arguments: &Bench, quick: bool) -> Result<Report, Complaint> {
    let (seconds, depths) = if quick { (0.3, DEPTHS_QUICK) } else { (arguments.seconds, DEPTHS) };
    let folder = Folder::new(&std::env::temp_dir(), "disk-pipelined")?;
    let disk = memory_at(folder.path())?;
    let (mut text, mut json) = (String::new(), Vec::new());
    let _ = writeln!(
        text,
        "{:16} {:>14} {:>14} {:>7}",
        "blocks of 8 KiB", "here, Mbit/s", "model, Mbit/s", ""
    );
    for write in [false, true] {
        let what = if write { "write" } else { "read" };
        let alone = costs(&disk, write, seconds)?;
        for (network, along) in LINES {
            let mut rates = Vec::new();
            for depth in depths.iter().copied() {
                let load = Load { write, length: BLOCK, depth, in_order: true };
                let (seen, _, kept_up) = run(&disk, along, load, seconds)?;
                let rate = seen.done as f64 / seen.seconds;
                let data = u64::from(BLOCK);
                let bytes = if write { [28 + data, 16] } else { [28, 16 + data] };
                let costs = Costs { delay: alone.delay + along.delay.as_secs_f64(), ..alone };
                let link = Link { rate: along.rate, framing: (FRAMING as u64, CONTENT as u64) };
                let model = predict(costs, Some(link), Asked { bytes, depth, batch: 1 })?;
                let bits = |rate: f64| rate * f64::from(BLOCK) * 8.0 / 1e6;
                let _ = writeln!(
                    text,
                    "{:16} {:>14.1} {:>14.1} {:>+5.0} %{}",
                    format!("{network} {what} @{depth}"),
                    bits(rate),
                    bits(model.rate),
                    100.0 * (model.rate / rate - 1.0),
                    if kept_up { "" } else { "  UNDECIDED: the machine was late" },
                );
                let name = format!("disk/pipelined-{network}-{what}@{depth}");
                let note = "blocks of 8 KiB over an emulated link, beside the model";
                let mut told = line(&name, rate, "blocks/s", Some(("model", model.rate)), note);
                told["latency"] = json!({ "mean": seen.mean(), "model": model.latency });
                told["kept_up"] = kept_up.into();
                json.push(told);
                rates.push((depth, rate, model.rate));
            }
            let gain = |of: fn(&(u32, f64, f64)) -> f64, more: u32, fewer: u32| {
                let at = |depth: u32| rates.iter().find(|own| own.0 == depth).map_or(0.0, of);
                100.0 * (at(more) / at(fewer) - 1.0)
            };
            for (more, fewer) in [(4, 1), (16, 4)] {
                let _ = write!(
                    text,
                    "    {more} beside {fewer} at a time: here {:+.0} %, model {:+.0} %",
                    gain(|own| own.1, more, fewer),
                    gain(|own| own.2, more, fewer),
                );
                if (more, fewer) == (16, 4) {
                    let said = PUBLISHED.map(|(what, gain)| format!("{gain:+.0} % {what}"));
                    let _ = write!(text, ", published {}", said.join(", "));
                }
                text.push('\n');
            }
        }
    }
    Ok(Report { text, json, good: true })
}
