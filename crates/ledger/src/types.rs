//! The types of the ledger.
//!
//! Its JSON is documented here, in the schema that [`json_schema`] makes from these types, and
//! versioned by [`SCHEMA`]. Values are SI base units (seconds, bits per second, bytes, packets);
//! names carry no unit. Maps are ordered, so that equal runs give equal bytes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the ledger's JSON. It changes when a field changes its meaning or goes away.
pub const SCHEMA: &str = "lastmeter.ledger/1";

/// The balanced account of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What was run, in the experiment's own words.
    pub title: String,
    /// How long the run was, in seconds of its own time.
    pub duration: f64,
    /// One for each path and class of traffic.
    pub paths: Vec<Path>,
    /// Every CPU, bus, engine and wire.
    pub resources: Vec<Resource>,
    /// What limits the paths; `None` where nothing was offered.
    pub verdict: Option<Verdict>,
    /// What each change would buy, best first.
    pub what_ifs: Vec<WhatIf>,
    /// What is left over where there should be nothing.
    pub balance: Balance,
    /// Whether a live run kept up; `None` in a model.
    pub certificate: Option<Certificate>,
    /// Where the figures come from.
    pub provenance: Provenance,
    /// What a reader should know of the figures: how sure they are, what could not be separated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Quantities that elements kept over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
}

/// A quantity over time, such as the rotation time of a ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Whose it is, and what: `ring: rotation`.
    pub name: String,
    /// `s` for a time, else a word.
    pub unit: String,
    /// The length of a step, in seconds.
    pub step: f64,
    /// Steps in which something was seen.
    pub steps: Vec<Step>,
}

/// A step of a [`Series`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// When it begins, in seconds.
    pub at: f64,
    /// The least value in it.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

/// The stages from one application to another, for one class of traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// From where to where.
    pub name: String,
    /// The class of traffic.
    pub class: String,
    /// In path order.
    pub stages: Vec<Stage>,
    /// End to end.
    pub totals: Totals,
    /// How the latency is distributed, from the least share to the greatest; empty where only totals
    /// are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Quantile>,
}

/// The latency that a share of the delivered packets did not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantile {
    /// Of one.
    pub share: f64,
    /// Seconds from source to sink.
    pub latency: f64,
}

/// One step of a path, over the packets that were delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Unique in the ledger.
    pub name: String,
    /// What serves it; `None` for pure delay.
    pub resource: Option<String>,
    /// Visits of delivered packets.
    pub packets: u64,
    /// Bytes of those visits.
    pub bytes: u64,
    /// Seconds from arrival until service began.
    pub wait: Times,
    /// Seconds of service.
    pub service: Times,
    /// Seconds held up in or after service.
    pub blocked: Times,
    /// How often it copies each byte.
    pub copies: u32,
    /// How often a processor reads or writes each byte.
    pub touches: u32,
    /// Packets dropped here, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// A distribution of times, in seconds. The mean is over delivered packets, so that the means of
/// all stages sum to the mean latency; percentiles are over visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// Sum over visits, divided by delivered packets.
    pub mean: f64,
    /// Half of the visits took no longer.
    pub p50: f64,
    /// 99 in 100 took no longer.
    pub p99: f64,
}

/// A path end to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// What sources made.
    pub offered: Count,
    /// What sinks took.
    pub delivered: Count,
    /// What was dropped.
    pub dropped: Count,
    /// What was still on its way at the end.
    pub held: u64,
    /// Delivered bits per second of the run.
    pub goodput: f64,
    /// Dropped packets per offered packet.
    pub loss: f64,
    /// Seconds from source to sink.
    pub latency: Latency,
    /// Mean difference of latency between consecutive packets of a flow, in seconds (RFC 3393).
    pub jitter: f64,
    /// Packets that arrived after a later one of their flow.
    pub reordered: u64,
    /// Packets whose content was not what was sent.
    pub corrupted: u64,
    /// Bytes over memory for each byte delivered.
    pub memory_multiple: f64,
    /// What became of messages that were due at some instant; `None` where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadlines: Option<Deadlines>,
}

/// Messages with deadlines. What was neither in time nor late was dropped, in part or whole, or was
/// still on its way at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deadlines {
    /// Messages that applications made.
    pub made: u64,
    /// Messages that were whole in time.
    pub met: u64,
    /// Messages that were whole too late.
    pub late: u64,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// How many packets.
    pub packets: u64,
    /// How many bytes they had.
    pub bytes: u64,
}

/// Latency, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// Half of the packets took no longer.
    pub p50: f64,
    /// 99 in 100 took no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// What stages compete for. The three shares sum to one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resource {
    /// Unique in the ledger.
    pub name: String,
    /// `cpu`, `bus`, `engine` or `wire`.
    pub kind: String,
    /// How many packets it can serve at once.
    pub units: u32,
    /// Share of the time for which it served.
    pub busy: f64,
    /// Share of the time for which it was taken and could not go on.
    pub blocked: f64,
    /// Share of the time for which it had nothing to do.
    pub idle: f64,
    /// Share of the time for which it served each stage; these sum to `busy`.
    pub by_stage: BTreeMap<String, f64>,
    /// Bytes that it moved for each byte delivered on any path.
    pub bytes_per_delivered_byte: f64,
}

/// What limits the paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The limiting resource; `None` where the data do not decide or nothing limits.
    pub resource: Option<String>,
    /// Its busy and blocked share.
    pub utilisation: f64,
    /// How sure: `high`, `medium`, `low`, or `undecided`.
    pub confidence: Confidence,
    /// The resource that comes next.
    pub runner_up: Option<String>,
    /// In one or two sentences.
    pub words: String,
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Utilisation and sensitivity name the same resource, clearly.
    High,
    /// They name the same resource, closely followed by another.
    Medium,
    /// Only one of them names it.
    Low,
    /// The data do not decide.
    Undecided,
}

/// One change, and what it buys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    /// In words: "`bob.cpu` twice as fast".
    pub change: String,
    /// What is compared: `goodput` (bits per second) or `latency` (mean, seconds), over all paths.
    pub metric: String,
    /// The metric as the run is.
    pub baseline: f64,
    /// The metric that the model predicts with the change.
    pub predicted: f64,
    /// The metric measured with the change applied; `None` where it was not.
    pub measured: Option<f64>,
    /// (predicted - measured) / measured; `None` where it was not applied.
    pub error: Option<f64>,
    /// By how much the change is better than the baseline, as a share of it; may be negative.
    pub gain: f64,
}

/// What is left over where there should be nothing; exactly zero in a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// Greatest difference, over all paths, between mean latency and the sum of stage means, in
    /// seconds.
    pub latency_residual: f64,
    /// Packets made that were neither delivered, dropped nor held.
    pub packets_residual: i64,
}

/// The statement of a live run that it kept up with real time, or that it did not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// Whether it kept up.
    pub kept_up: bool,
    /// Share of departures within 10 us of when they were due.
    pub within_10us: f64,
    /// Share within 20 us.
    pub within_20us: f64,
    /// Share within 100 us.
    pub within_100us: f64,
    /// Share within 1 ms.
    pub within_1ms: f64,
    /// Longest lag, in seconds.
    pub worst_lag: f64,
    /// Packets lost because a queue of the emulator itself was full.
    pub overruns: u64,
    /// Frames that left.
    pub departures: u64,
    /// What share of the departures the certificate asks to be within the tolerance, and how long
    /// that is in seconds.
    pub required: f64,
    /// See `required`.
    pub tolerance: f64,
    /// Share of the frames that the emulator was to carry and did not: lost at its own ports.
    pub shortfall: f64,
    /// CPU seconds used per second.
    pub cpu: f64,
    /// Seconds that a frame costs the emulator: `receive`, `model`, `send`.
    pub stages: BTreeMap<String, f64>,
    /// Lags of departures: how many took at most so many seconds longer than they should.
    pub lags: Vec<Lag>,
    /// In one sentence.
    pub words: String,
}

/// A step of a distribution of lags.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lag {
    /// At most so many seconds.
    pub at_most: f64,
    /// So many departures, those of earlier steps not counted again.
    pub departures: u64,
}

/// Where the figures come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// The version of Lastmeter.
    pub version: String,
    /// The seed of all random streams.
    pub seed: u64,
    /// The experiment's name and the hash of its text with all overrides.
    pub experiment: Source,
    /// Every profile that was used.
    pub profiles: Vec<Source>,
    /// `model`, or the privilege level of a live run: `L0`, `L1`, `L2`.
    pub level: String,
    /// The machine of a live run; empty in a model, whose result depends on no machine.
    pub host: String,
    /// Whether the run was stopped before its end; then all figures are up to `duration`.
    pub partial: bool,
}

/// Something that figures were made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// The first 16 hexadecimal digits of the SHA-256 of its text.
    pub hash: String,
}

impl Ledger {
    /// Delivered bits per second over all paths.
    pub fn goodput(&self) -> f64 {
        self.paths.iter().map(|path| path.totals.goodput).sum()
    }
    /// Mean latency over all delivered packets, in seconds.
    pub fn latency(&self) -> f64 {
        let delivered = |path: &Path| path.totals.delivered.packets as f64;
        let sum: f64 = self.paths.iter().map(|p| delivered(p) * p.totals.latency.mean).sum();
        let packets: f64 = self.paths.iter().map(delivered).sum();
        if packets > 0.0 { sum / packets } else { 0.0 }
    }
    /// Dropped packets per offered packet over all paths.
    pub fn loss(&self) -> f64 {
        let offered: u64 = self.paths.iter().map(|path| path.totals.offered.packets).sum();
        let dropped: u64 = self.paths.iter().map(|path| path.totals.dropped.packets).sum();
        if offered > 0 { dropped as f64 / offered as f64 } else { 0.0 }
    }
}

impl Stage {
    /// Mean seconds that a delivered packet spent here.
    pub fn mean(&self) -> f64 {
        self.wait.mean + self.service.mean + self.blocked.mean
    }
}

/// The schema of the ledger's JSON.
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(Ledger).to_value()
}
