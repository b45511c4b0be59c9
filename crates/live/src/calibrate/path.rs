//! The path's constants: a few reference transfers on each placement, and a fit through them.
//!
//! What a message costs on each side is taken to be
//!
//! ```text
//! cost = per-call + per-byte x bytes + per-handover x handovers + per-batch x batches
//!        + per-segment x segments
//! ```
//!
//! where a *handover* is a batch that goes through TCP, the veth pair and the softirq to the
//! receiver, with the acknowledgement and the wake-up that come of it; further batches of the same
//! send find the receiver awake; segments count only where batches are cut into packets before the
//! veth pair. [`crate::predict::work_of`] counts them.
//! None of the reference settings is one of the validation's.

use super::constant::{Constant, Value};
use crate::error::Result;
use crate::fit;
use crate::namespace::Hosts;
use crate::predict::{placement_name, work_of};
use crate::transfer::{CopyIn, Measurement, Placement, Setting, Workload};
use lastmeter_base::{Bytes, Duration};
use std::time::Instant;

/// Measured time of one reference transfer: windows of 8 ms.
const DURATION: Duration = Duration::from_ms(200);
/// Slow start and buffer growth, which takes longest, are over by then.
const WARM_UP: Duration = Duration::from_ms(60);

/// Message, MTU, batches stay whole.
const REFERENCES: [(u64, u32, bool); 11] = [
    (384, 1500, true),
    (1536, 1500, true),
    (6 << 10, 1500, true),
    (24 << 10, 1500, true),
    (96 << 10, 1500, true),
    (384 << 10, 1500, true),
    (6 << 10, 9000, true),
    (48 << 10, 9000, true),
    (12 << 10, 800, false),
    (32 << 10, 1500, false),
    (96 << 10, 4000, false),
];
/// The column of the fit that counts bytes.
const BYTES: usize = 1;
/// The message with which copying is taken away.
const VARIANT: u64 = 96 << 10;

fn reference(placement: Placement, (message, mtu, offload): (u64, u32, bool)) -> Setting {
    Setting {
        message: Bytes(message),
        mtu,
        offload,
        placement,
        warm_up: WARM_UP,
        duration: DURATION,
        ..Setting::PLAIN
    }
}

/// Seconds of CPU per message on both sides.
fn costs(m: &Measurement) -> (f64, f64) {
    let message = m.setting.message.0 as f64;
    (m.sender.run_per_byte.median * message, m.receiver.run_per_byte.median * message)
}

/// Everything about the path with this placement, by name; noisy runs are repeated until `until`.
/// Returns how much others used the machine in the noisiest run that counts.
pub(crate) fn measure(
    hosts: &mut Hosts,
    placement: Placement,
    until: Instant,
    into: &mut Vec<(String, Constant)>,
) -> Result<f64> {
    let prefix = format!("path.{}", placement_name(placement));
    let copy_out = copies(hosts, placement, until, &prefix, into)?;
    let (mut rows, mut sender, mut receiver) = (Vec::new(), Vec::new(), Vec::new());
    let mut others = 0.0_f64;
    for point in REFERENCES {
        let setting = reference(placement, point);
        let m = hosts.run_quiet(&setting, until)?;
        others = others.max(m.others + m.crowd);
        let work = work_of(&setting);
        rows.push(vec![1.0, work.bytes, work.handovers, work.batches, work.segments]);
        let (s, r) = costs(&m);
        sender.push(s);
        receiver.push(r);
    }
    if placement == Placement::SameCore {
        // One core pays for both, and which side's time a softirq is charged to is chance.
        let sums: Vec<f64> = sender.iter().zip(&receiver).map(|(s, r)| s + r).collect();
        push_fit(&format!("{prefix}.both"), &rows, &sums, copy_out, into);
    } else {
        push_fit(&format!("{prefix}.sender"), &rows, &sender, 0.0, into);
        push_fit(&format!("{prefix}.receiver"), &rows, &receiver, copy_out, into);
    }
    round_trip(hosts, placement, until, &prefix, into)?;
    Ok(others)
}

/// Fits and names the factors. `copy` is what is known to be per byte already: left to the fit alone,
/// whole batches would take it, because most bytes travel in them.
fn push_fit(
    prefix: &str,
    rows: &[Vec<f64>],
    times: &[f64],
    copy: f64,
    into: &mut Vec<(String, Constant)>,
) {
    let rest = |(row, time): (&Vec<f64>, &f64)| (time - copy * row[BYTES]).max(time / 10.0);
    let rests: Vec<f64> = rows.iter().zip(times).map(rest).collect();
    let mut fit = fit::relative(rows, &rests);
    fit.factors[BYTES] += copy;
    let method = format!(
        "CPU time per message of {} reference transfers (384 B to 384 KiB, MTU 800 to 9000, GSO on \
         and off); least squares on calls, bytes, handovers, batches and segments",
        rows.len()
    );
    let names = ["per-call", "per-byte", "per-handover", "per-batch", "per-segment"];
    for (name, factor) in names.into_iter().zip(fit.factors) {
        let value = if name == "per-byte" { Value::PerByte(factor) } else { Value::Time(factor) };
        let spread = (fit.error * 1e4).round() / 1e4;
        let samples = rows.len() as u32;
        let constant = Constant { value, method: method.clone(), spread, samples };
        into.push((format!("{prefix}.{name}"), constant));
    }
}

/// What copying costs per byte, by leaving it away; returns the copy out.
fn copies(
    hosts: &mut Hosts,
    placement: Placement,
    until: Instant,
    prefix: &str,
    into: &mut Vec<(String, Constant)>,
) -> Result<f64> {
    let with = reference(placement, (VARIANT, 1500, true));
    let total = |m: &Measurement| m.sender.run_per_byte.median + m.receiver.run_per_byte.median;
    let both = hosts.run_quiet(&with, until)?;
    let no_out = hosts.run_quiet(&Setting { copy_out: false, ..with.clone() }, until)?;
    let no_in = hosts.run_quiet(&Setting { copy_in: CopyIn::SendFile, ..with }, until)?;
    let spread = |m: &Measurement| m.sender.run_per_byte.relative();
    let mut copy_out = 0.0;
    let variants = [
        ("copy-out", &no_out, "discarded in the kernel (MSG_TRUNC) instead of copied out"),
        ("copy-in", &no_in, "sent by reference (sendfile) instead of copied in"),
    ];
    for (name, without, how) in variants {
        let saved = (total(&both) - total(without)).max(0.0);
        if name == "copy-out" {
            copy_out = saved;
        }
        let method = format!(
            "CPU time per byte of both sides, messages of 96 KiB, minus the same {how}; zero if \
             that saves nothing"
        );
        let constant = Constant {
            value: Value::PerByte(saved),
            method,
            spread: ((spread(&both) + spread(without)) * 1e4).round() / 1e4,
            samples: 2,
        };
        into.push((format!("{prefix}.{name}"), constant));
    }
    Ok(copy_out)
}

fn round_trip(
    hosts: &mut Hosts,
    placement: Placement,
    until: Instant,
    prefix: &str,
    into: &mut Vec<(String, Constant)>,
) -> Result<()> {
    let workload = Workload::RequestResponse;
    let plain = reference(placement, (64, 1500, true));
    let m = hosts.run_quiet(&Setting { workload, ..plain }, until)?;
    let Some(latency) = m.latency else { return Ok(()) };
    let constant = Constant {
        value: Value::Time(latency.p50),
        method: "request and answer of 64 B, median time from send to receive".to_owned(),
        spread: (((latency.p90 - latency.p50) / latency.p50) * 1e4).round() / 1e4,
        samples: latency.count as u32,
    };
    into.push((format!("{prefix}.round-trip"), constant));
    Ok(())
}
