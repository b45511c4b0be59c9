//! The path's constants: a few reference transfers for each placement, and a fit through them.
//!
//! The cost of a message on each side is modelled as
//!
//! ```text
//! cost = per-call + per-byte x bytes + per-handover x handovers + per-batch x batches
//!        + per-segment x segments
//! ```
//!
//! where a *handover* is a batch that goes through TCP, the veth pair and the softirq to the
//! receiver, with the resulting acknowledgement and wake-up; further batches of the same send find the
//! receiver awake; segments count only where batches are cut into packets before the veth pair.
//! [`crate::predict::work_of`] counts them. The fit's error at each reference is stored with it, see
//! [`crate::reference`]. None of the reference settings is used for validation.

use super::constant::{Calibration, Constant, Value};
use crate::namespace::Hosts;
use crate::predict::{self, placement_name, predict};
use crate::reference::{self, Point, Reference};
use crate::sample;
use crate::stages::{COPY_IN, COPY_OUT};
use crate::statistics::Spread;
use crate::transfer::{CopyIn, Measurement, Placement, Setting, Workload};
use lastmeter_base::{Bytes, Duration};
use lastmeter_linux::Result;
use std::time::Instant;

/// Measured time of one reference transfer: windows of 4 ms.
const DURATION: Duration = Duration::from_ms(100);
/// Warm-up: long enough for slow start and for buffer growth, which takes longest.
const WARM_UP: Duration = Duration::from_ms(60);
/// Passes over the reference transfers; the cheaper run of each counts, since any disturbance adds to a
/// run, and lasts longer than one.
const ROUNDS: usize = 2;

/// Message, MTU, batches stay whole.
const REFERENCES: [(u64, u32, bool); 23] = [
    (384, 1500, true),
    (768, 1500, true),
    (1536, 1500, true),
    (3 << 10, 1500, true),
    (6 << 10, 1500, true),
    (12 << 10, 1500, true),
    (24 << 10, 1500, true),
    (40 << 10, 1500, true),
    (60 << 10, 1500, true),
    (80 << 10, 1500, true),
    (96 << 10, 1500, true),
    (144 << 10, 1500, true),
    (192 << 10, 1500, true),
    (384 << 10, 1500, true),
    (768 << 10, 1500, true),
    (1536 << 10, 1500, true),
    (6 << 10, 9000, true),
    (48 << 10, 9000, true),
    (12 << 10, 800, false),
    (48 << 10, 800, false),
    (24 << 10, 1500, false),
    (96 << 10, 1500, false),
    (96 << 10, 6000, false),
];
/// Those repeated before predictions.
const ANCHORS: [(u64, u32, bool); 5] = [
    (768, 1500, true),
    (6 << 10, 1500, true),
    (60 << 10, 1500, true),
    (384 << 10, 1500, true),
    (24 << 10, 1500, false),
];
/// The message used to measure copying.
const VARIANT: u64 = 96 << 10;
/// Measured time of the transfer that is sampled for that.
const SAMPLED: Duration = Duration::from_ms(800);
/// Fewer samples than this say nothing of copies.
const SAMPLES_MIN: u64 = 200;
/// Runs with and without copies where nothing can be sampled.
const OMITTED_ROUNDS: usize = 4;

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
#[derive(Clone, Copy)]
struct Costs {
    sender: f64,
    receiver: f64,
    /// Load of other programs meanwhile, in CPUs.
    others: f64,
}

/// The cheapest run of each of `points`, in their order.
fn cheapest(
    hosts: &mut Hosts,
    placement: Placement,
    points: &[(u64, u32, bool)],
    until: Instant,
) -> Result<Vec<(Setting, Costs)>> {
    let mut best: Vec<Option<(Setting, Costs)>> = vec![None; points.len()];
    for _ in 0..ROUNDS {
        for (best, point) in best.iter_mut().zip(points) {
            let setting = reference(placement, *point);
            let m = hosts.run_quiet(&setting, until)?;
            let message = setting.message.0 as f64;
            let next = Costs {
                sender: m.sender.run_per_byte.median * message,
                receiver: m.receiver.run_per_byte.median * message,
                others: m.others + m.crowd,
            };
            let sum = |costs: &Costs| costs.sender + costs.receiver;
            if best.as_ref().is_none_or(|(_, best)| sum(&next) < sum(best)) {
                *best = Some((setting, next));
            }
        }
    }
    Ok(best.into_iter().flatten().collect())
}

/// One side of what [`cheapest`] found.
fn side(all: &[(Setting, Costs)], cost: fn(&Costs) -> f64) -> Vec<Point> {
    all.iter().map(|(setting, c)| Point { setting: setting.clone(), cost: cost(c) }).collect()
}

/// What was found on one placement, by name.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) constants: Vec<(String, Constant)>,
    pub(crate) references: Vec<(String, Vec<Reference>)>,
    /// Load of other programs: three of four runs that count had less.
    pub(crate) others: f64,
}

/// All constants of the path for this placement; noisy runs are repeated until `until`.
pub(crate) fn measure(hosts: &mut Hosts, placement: Placement, until: Instant) -> Result<Found> {
    let place = placement_name(placement);
    let prefix = format!("path.{place}");
    let mut found = Found::default();
    let copy_out = copies(hosts, placement, until, &prefix, &mut found.constants)?;
    let all = cheapest(hosts, placement, &REFERENCES, until)?;
    // One thread that happens to be ready while a run begins is half a CPU by this count, so not the maximum.
    found.others = Spread::of(all.iter().map(|(_, costs)| costs.others).collect()).high;
    if placement == Placement::SameCore {
        // One core does the work of both, and the side that a softirq is charged to is arbitrary.
        found.fit(place, "both", &side(&all, |c| c.sender + c.receiver), copy_out);
    } else {
        found.fit(place, "sender", &side(&all, |c| c.sender), 0.0);
        found.fit(place, "receiver", &side(&all, |c| c.receiver), copy_out);
    }
    round_trip(hosts, placement, until, &prefix, &mut found.constants)?;
    Ok(found)
}

impl Found {
    /// Fits and names the factors.
    fn fit(&mut self, place: &str, side: &str, points: &[Point], copy: f64) {
        let fitted = reference::fit(points, copy);
        let method = format!(
            "CPU time per message of {} reference transfers (384 B to 1.5 MiB, MTU 800 to 9000, \
             GSO on and off); least squares on calls, bytes, handovers, batches and segments",
            points.len()
        );
        let names = ["per-call", "per-byte", "per-handover", "per-batch", "per-segment"];
        for (name, factor) in names.into_iter().zip(fitted.factors) {
            let value =
                if name == "per-byte" { Value::PerByte(factor) } else { Value::Time(factor) };
            let constant = Constant::new(value, fitted.error, points.len(), &*method);
            self.constants.push((format!("path.{place}.{side}.{name}"), constant));
        }
        self.references.push((format!("{place}.{side}"), fitted.references));
    }
}

/// A message and buffers with which a window fills, and the resulting constant: the large ones have one or
/// two windows per message.
const WINDOWS: [(Placement, u64, u64, &str); 3] = [
    (Placement::OtherCore, 48 << 10, 24 << 10, "path.other-core.per-window"),
    (Placement::SameCore, 3 << 10, 24 << 10, "path.same-core.per-window.small"),
    (Placement::SameCore, 24 << 10, 24 << 10, "path.same-core.per-window.large"),
];

/// The cost of a full window: the time of a transfer with small buffers beyond its prediction without that
/// cost.
pub(crate) fn windows(
    hosts: &mut Hosts,
    calibration: &mut Calibration,
    until: Instant,
) -> Result<()> {
    let several = calibration.host.cores > 1;
    for (placement, message, buffer, name) in WINDOWS {
        if placement == Placement::OtherCore && !several {
            continue;
        }
        let buffer = Some(Bytes(buffer));
        let plain = reference(placement, (message, 1500, true));
        let setting = Setting { send_buffer: buffer, receive_buffer: buffer, ..plain };
        let m = hosts.run_quiet(&setting, until)?;
        let method = "time of a transfer with full windows beyond its prediction without them, \
                      per window of a message";
        let zero = Constant::new(Value::Time(0.0), 0.0, 1, method);
        for (.., name) in WINDOWS.iter().filter(|(other, ..)| *other == placement) {
            calibration.constants.entry((*name).to_owned()).or_insert_with(|| zero.clone());
        }
        let without = predict(calibration, &setting)?.goodput;
        let bits = message as f64 * 8.0;
        let beyond = (bits / m.goodput.windows.median - bits / without).max(0.0);
        let turns = message as f64 / predict::window(&setting).unwrap_or(message as f64);
        let spread = m.goodput.windows.relative();
        let constant = Constant::new(Value::Time(beyond / turns), spread, 1, method);
        calibration.constants.insert(name.to_owned(), constant);
    }
    Ok(())
}

/// Repeats some of the reference transfers, as a machine's speed drifts, and scales the others
/// accordingly; returns the largest relative change.
pub(crate) fn refresh(
    hosts: &mut Hosts,
    calibration: &mut Calibration,
    placement: Placement,
    until: Instant,
) -> Result<f64> {
    let place = placement_name(placement);
    let all = cheapest(hosts, placement, &ANCHORS, until)?;
    let sides = [
        ("sender", side(&all, |c| c.sender)),
        ("receiver", side(&all, |c| c.receiver)),
        ("both", side(&all, |c| c.sender + c.receiver)),
    ];
    let mut largest = 0.0_f64;
    for (side, again) in sides {
        if let Some(references) = calibration.references.get_mut(&format!("{place}.{side}")) {
            largest = largest.max(reference::refresh(references, &again));
        }
    }
    Ok(largest)
}

/// The cost of copying per byte, sampled where that is allowed, else by leaving it out; returns that of the copy
/// out.
fn copies(
    hosts: &mut Hosts,
    placement: Placement,
    until: Instant,
    prefix: &str,
    into: &mut Vec<(String, Constant)>,
) -> Result<f64> {
    let with = reference(placement, (VARIANT, 1500, true));
    let found = match hosts.sample() {
        Ok(()) => {
            let m = hosts.run_quiet(&Setting { duration: SAMPLED, ..with.clone() }, until);
            hosts.stop_sampling();
            sampled_copies(&m?)
        }
        Err(_) => None,
    };
    let [copy_in, copy_out] = match found {
        Some(found) => found,
        None => omitted_copies(hosts, &with, until)?,
    };
    let per_byte = copy_out.value.si();
    into.push((format!("{prefix}.copy-in"), copy_in));
    into.push((format!("{prefix}.copy-out"), copy_out));
    Ok(per_byte)
}

/// The copy in and the copy out of a sampled transfer; `None` if too little was sampled.
fn sampled_copies(m: &Measurement) -> Option<[Constant; 2]> {
    let found = sample::stages::stages(m)?;
    let samples = m.sampled.as_ref().map_or(0, |sampled| sampled.all().total());
    let copy = |name: &str| {
        let stage = found.stages.iter().find(|stage| stage.name == name)?;
        let spread = stage.uncertainty / stage.per_message;
        let method = "CPU time per byte of messages of 96 KiB, times the share of samples of the \
                      CPU's clock in the kernel's copies";
        Some(Constant::new(Value::PerByte(stage.per_byte), spread, samples as usize, method))
    };
    (samples >= SAMPLES_MIN).then_some([copy(COPY_IN)?, copy(COPY_OUT)?])
}

/// The same by leaving each out: runs with and without, in turn, of which the cheapest count.
fn omitted_copies(hosts: &mut Hosts, with: &Setting, until: Instant) -> Result<[Constant; 2]> {
    let settings = [
        with.clone(),
        Setting { copy_in: CopyIn::SendFile, ..with.clone() },
        Setting { copy_out: false, ..with.clone() },
    ];
    let mut costs = [const { Vec::new() }; 3];
    for _ in 0..OMITTED_ROUNDS {
        for (costs, setting) in costs.iter_mut().zip(&settings) {
            let m = hosts.run_quiet(setting, until)?;
            costs.push(m.sender.run_per_byte.median + m.receiver.run_per_byte.median);
        }
    }
    let cheapest = |costs: &Vec<f64>| costs.iter().copied().fold(f64::INFINITY, f64::min);
    let [both, no_in, no_out] = [0, 1, 2].map(|variant| cheapest(&costs[variant]));
    let spread: f64 = costs.into_iter().map(|costs| Spread::of(costs).relative()).sum();
    let constant = |without: f64, how: &str| {
        let method = format!(
            "CPU time per byte of both sides, messages of 96 KiB, minus the same {how}; zero if \
             that saves nothing"
        );
        let saved = Value::PerByte((both - without).max(0.0));
        Constant::new(saved, spread, 2 * OMITTED_ROUNDS, method)
    };
    Ok([
        constant(no_in, "sent by reference (sendfile) instead of copied in"),
        constant(no_out, "discarded in the kernel (MSG_TRUNC) instead of copied out"),
    ])
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
    let method = "request and reply of 64 B, median time from send to receive";
    let spread = (latency.p90 - latency.p50) / latency.p50;
    let constant = Constant::new(Value::Time(latency.p50), spread, latency.count, method);
    into.push((format!("{prefix}.round-trip"), constant));
    Ok(())
}
