//! The cost of each stage of a transfer, found by leaving it out.
//!
//! At this privilege level nothing inside the kernel can be timed, but parts can be avoided: data can be
//! left uncopied, batches left whole, a second core left unused. The difference in CPU time of both ends
//! is the cost of a stage. Both ends together, because the kernel does some of the receiver's work in the
//! sender's time and vice versa. What cannot be avoided separately is one stage, and is labelled so.
//!
//! On two cores, a change in the speed of one end also changes how often the other sleeps, so differences
//! mix stages with wake-ups. All variants therefore run on one core, without cross-core wake-ups, and the
//! extra cost of two cores is a stage of its own.

use crate::namespace::Hosts;
use crate::predict::work_of;
use crate::sample::Class;
use crate::transfer::{CopyIn, Measurement, Placement, Setting, Workload};
use lastmeter_base::{Bytes, Duration};
use lastmeter_linux::Result;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Measured time of each variant.
const DURATION: Duration = Duration::from_ms(250);
const WARM_UP: Duration = Duration::from_ms(60);
/// How long variants are retried while other programs disturb them.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(8);
/// The shorter message, whose calls are compared with the setting's own.
const SHORTER: u64 = 4;

/// Entering the kernel, at both ends.
pub const CALLS: &str = "calls at both ends";
/// Copying from the sending application into the kernel.
pub const COPY_IN: &str = "copy in";
/// Cutting batches into packets of the MTU.
pub const SEGMENTATION: &str = "segmentation";
/// What cannot be separated at this privilege level.
pub const REST: &str = "TCP, hop, softirq";
/// The extra cost of two cores.
pub const CROSSING: &str = "wake-up, crossing";
/// Copying from the kernel to the receiving application.
pub const COPY_OUT: &str = "copy out";
/// All stages in path order; the calls, which are at both ends, come first.
pub const NAMES: [&str; 6] = [CALLS, COPY_IN, SEGMENTATION, REST, CROSSING, COPY_OUT];

/// One stage's cost in this setting. Seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// `copy out`.
    pub name: String,
    /// What its time goes into, if it is one thing.
    pub class: Option<Class>,
    /// `sender`, `receiver`, or `both` where the kernel works in either's time.
    pub side: String,
    /// CPU time per message.
    pub per_message: f64,
    /// The same per byte.
    pub per_byte: f64,
    /// The same per packet, as it crosses the veth pair.
    pub per_packet: f64,
    /// Standard uncertainty of the time per message, from the spread of the runs.
    pub uncertainty: f64,
    /// How it was measured.
    pub method: String,
}

/// The stages of a setting; they and the residual add up to the measured cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// CPU time of both sides per message, first run.
    pub total: f64,
    /// In path order.
    pub stages: Vec<Stage>,
    /// The same run repeated at the end, minus the first: drift that the stages may hide.
    pub residual: f64,
    /// What could not be separated here, and why.
    pub notes: Vec<String>,
    /// By sampling, at privilege level L1, instead of by leaving out.
    #[serde(default)]
    pub sampled: bool,
}

/// A cost per message with its uncertainty.
#[derive(Clone, Copy, Debug)]
struct Cost {
    sender: f64,
    receiver: f64,
    uncertainty: f64,
}

impl Cost {
    fn of(m: &Measurement) -> Cost {
        let message = m.setting.message.0 as f64;
        let (s, r) = (&m.sender.run_per_byte, &m.receiver.run_per_byte);
        // Consecutive windows are correlated, so half the interquartile range serves as the
        // standard uncertainty of the median.
        let half = |spread: &crate::statistics::Spread| (spread.high - spread.low) / 2.0;
        Cost {
            sender: s.median * message,
            receiver: r.median * message,
            uncertainty: half(s).hypot(half(r)) * message,
        }
    }

    fn total(&self) -> f64 {
        self.sender + self.receiver
    }
}

/// Runs the variants of `setting` and derives its stages. Takes two to ten seconds.
///
/// # Errors
/// As [`Hosts::run`]; delays, rates and relays of the setting are left out.
pub fn measure(hosts: &mut Hosts, setting: &Setting) -> Result<Stages> {
    let base = Setting {
        sender_rate: None,
        relay: None,
        competitor: false,
        sender_pause: crate::transfer::Pause::None,
        receiver_pause: crate::transfer::Pause::None,
        warm_up: WARM_UP,
        duration: DURATION,
        ..setting.clone()
    };
    let mut linkless = match setting.relay {
        Some(_) => Some(Hosts::open(false)?),
        None => None,
    };
    let hosts = linkless.as_mut().unwrap_or(hosts);
    let until = Instant::now() + PATIENCE;
    let mut run = |s: &Setting| hosts.run_quiet(s, until).map(|m| Cost::of(&m));
    let first = run(&base)?;
    let alone = Setting { placement: Placement::SameCore, ..base.clone() };
    let same = if base.placement == Placement::SameCore { first } else { run(&alone)? };
    let mut found = Found { base: &base, first, same, stages: Vec::new(), notes: Vec::new() };
    if setting.relay.is_some() {
        found.notes.push("the stages were measured without the link".to_owned());
    }
    found.crossing();
    if alone.message.0 >= SHORTER {
        let message = Bytes(alone.message.0 / SHORTER);
        found.calls(run(&Setting { message, ..alone.clone() })?);
    }
    if alone.copy_in == CopyIn::Copy {
        found.copy_in(run(&Setting { copy_in: CopyIn::SendFile, ..alone.clone() })?);
    }
    if !alone.offload {
        found.segmentation(run(&Setting { offload: true, ..alone.clone() })?);
    }
    // A reply must be read to be sent.
    if alone.copy_out && alone.workload != Workload::RequestResponse {
        found.copy_out(run(&Setting { copy_out: false, ..alone.clone() })?);
    }
    let last = run(&base)?;
    Ok(found.finish(last))
}

/// The stages found so far.
struct Found<'a> {
    base: &'a Setting,
    /// The setting as it is.
    first: Cost,
    /// The same on one core.
    same: Cost,
    stages: Vec<Stage>,
    notes: Vec<String>,
}

impl Found<'_> {
    fn push(&mut self, name: &str, side: &str, cost: f64, uncertainty: f64, method: String) {
        if cost <= uncertainty {
            let why = if cost < -uncertainty {
                "leaving it out cost more than it saved"
            } else {
                "the difference is within its uncertainty"
            };
            self.notes.push(format!(
                "{name} is not a stage of its own here: {why} ({:+.3} us per message, ± \
                 {:.3} us)",
                cost * 1e6,
                uncertainty * 1e6
            ));
            return;
        }
        self.stage(name, side, cost, uncertainty, method);
    }

    fn stage(&mut self, name: &str, side: &str, cost: f64, uncertainty: f64, method: String) {
        let work = work_of(self.base);
        let packets = if self.base.offload { work.handovers } else { work.segments };
        let class = match name {
            CALLS => Some(Class::Calls),
            COPY_IN | COPY_OUT => Some(Class::Copy),
            _ => None,
        };
        self.stages.push(Stage {
            name: name.to_owned(),
            class,
            side: side.to_owned(),
            per_message: cost,
            per_byte: cost / work.bytes,
            per_packet: cost / packets.max(f64::MIN_POSITIVE),
            uncertainty,
            method,
        });
    }

    /// The saving from leaving a stage out, on one core.
    fn saved(&mut self, name: &str, side: &str, without: Cost, method: &str) {
        let cost = self.same.total() - without.total();
        let uncertainty = self.same.uncertainty.hypot(without.uncertainty);
        self.push(name, side, cost, uncertainty, method.to_owned());
    }

    /// The same bytes in more calls: the extra cost is that of the additional calls.
    fn calls(&mut self, shorter: Cost) {
        let calls = SHORTER as f64;
        let more = calls - 1.0;
        let uncertainty = self.same.uncertainty.hypot(calls * shorter.uncertainty) / more;
        let cost = (calls * shorter.total() - self.same.total()) / more;
        let method = format!(
            "CPU time of both sides for the same bytes in {SHORTER} messages, minus in one, over \
             {more:.0}: two entries to the kernel, socket locks, what a shorter batch costs more"
        );
        self.push(CALLS, "both", cost, uncertainty, method);
    }

    fn copy_in(&mut self, without: Cost) {
        let method = "CPU time of both sides, minus the same sent by reference (sendfile); a lower \
                      bound, since sendfile takes page references instead";
        self.saved(COPY_IN, "sender", without, method);
    }

    fn segmentation(&mut self, whole: Cost) {
        let method = "CPU time of both sides with MTU-sized packets, minus with GSO and TSO, where \
                      batches cross the veth pair whole";
        self.saved(SEGMENTATION, "both", whole, method);
    }

    fn copy_out(&mut self, without: Cost) {
        let method = "CPU time of both sides, minus the same with the data discarded in the kernel \
                      (MSG_TRUNC)";
        self.saved(COPY_OUT, "receiver", without, method);
    }

    fn crossing(&mut self) {
        if self.base.placement == Placement::SameCore {
            return;
        }
        let method = "CPU time of both sides on two cores, minus on one, without cross-core \
                      wake-ups and with data in its cache";
        let cost = self.first.total() - self.same.total();
        let uncertainty = self.same.uncertainty.hypot(self.first.uncertainty);
        self.push(CROSSING, "both", cost, uncertainty, method.to_owned());
    }

    fn finish(mut self, last: Cost) -> Stages {
        let total = self.first.total();
        let known: f64 = self.stages.iter().map(|s| s.per_message).sum();
        let variance: f64 = self.stages.iter().map(|s| s.uncertainty.powi(2)).sum();
        let rest = total - known;
        if rest < 0.0 {
            self.notes.push(format!(
                "the stages overlap: together they exceed the whole by {:.3} us per message",
                -rest * 1e6
            ));
        }
        let method = "the rest of the CPU time of both sides: nothing at this privilege level \
                      separates TCP's own work, the hop through the veth pair and the softirq";
        let uncertainty = variance.sqrt().hypot(self.first.uncertainty);
        self.stage(REST, "both", rest, uncertainty, method.to_owned());
        self.stages.sort_by_key(|s| NAMES.iter().position(|name| *name == s.name));
        let residual = last.total() - total;
        Stages { total, stages: self.stages, residual, notes: self.notes, sampled: false }
    }
}

/// How a stage was measured, for `why --explain STAGE`.
pub fn explain(stage: &Stage) -> String {
    format!(
        "{} ({}): {:.3} us per message, ± {:.3} us. Measured as {}.",
        stage.name,
        stage.side,
        stage.per_message * 1e6,
        stage.uncertainty * 1e6,
        stage.method
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(sender: f64, receiver: f64) -> Cost {
        Cost { sender, receiver, uncertainty: 0.1e-6 }
    }

    #[test]
    fn stages_add_up_to_the_whole() {
        let base = Setting::PLAIN;
        let first = cost(8e-6, 5e-6);
        let same = cost(6e-6, 4e-6);
        let mut found = Found { base: &base, first, same, stages: Vec::new(), notes: Vec::new() };
        found.crossing();
        found.calls(cost(2e-6, 2e-6));
        found.copy_out(cost(6e-6, 3e-6));
        found.copy_in(cost(6.02e-6, 4e-6));
        let stages = found.finish(cost(8.1e-6, 5e-6));
        let sum: f64 = stages.stages.iter().map(|s| s.per_message).sum();
        assert!((sum - stages.total).abs() < 1e-12);
        assert!((stages.residual - 0.1e-6).abs() < 1e-12);
        // Leaving out the copy in saved nothing: a note instead of a stage.
        assert!(stages.stages.iter().all(|s| s.name != "copy in"));
        assert!(stages.notes[0].starts_with("copy in"));
        assert_eq!(stages.stages[0].name, CALLS);
    }
}
