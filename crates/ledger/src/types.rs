//! The types of the ledger.
//!
//! Its JSON is documented here, in the schema that [`json_schema`] makes from these types, and versioned by
//! [`SCHEMA`]. What was not measured is absent: a zero is a measured zero. Values are SI base units (seconds, bits
//! per second, bytes, packets); names carry no unit. Maps are ordered, so that equal runs give equal bytes.
//!
//! Rows: A-68.

use crate::{Connection, Counter, Estimate, Level, Quantile, Series, Transfers, Waits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the ledger's JSON. It changes when a field changes its meaning or is removed.
pub const SCHEMA: &str = "lastmeter.ledger/2";

/// The balanced account of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What was run, in the experiment's own words.
    pub title: String,
    /// How long the run was, in seconds of its own time, without its warm-up.
    pub duration: f64,
    /// Seconds at the beginning that this account leaves out, except from counters, series and transfers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<f64>,
    /// One for each path and class of traffic.
    pub paths: Vec<Path>,
    /// Every CPU, bus, engine and wire.
    pub resources: Vec<Resource>,
    /// What limits the paths; `None` if nothing was offered.
    pub verdict: Option<Verdict>,
    /// What each change would buy, best first.
    pub what_ifs: Vec<WhatIf>,
    /// Residuals, which should be zero.
    pub balance: Balance,
    /// Whether a live run kept up; `None` in a model.
    pub certificate: Option<Certificate>,
    /// Where the figures come from.
    pub provenance: Provenance,
    /// Remarks on the figures: their uncertainty, what could not be separated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Quantities that elements recorded over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// For how long quantities had which value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Level>,
    /// Figures over several seeds, of which this ledger is the first; none if there was one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimates: Vec<Estimate>,
    /// What elements counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<Counter>,
    /// What became of connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<Transfers>,
    /// What connects a host of it to the network, and what that costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// How long data and threads waited between the stages, by the kernel's tracepoints; absent where not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
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
    /// How the latency is distributed, from the least share to the greatest; empty where only totals are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Quantile>,
}

/// One step of a path, over the packets that were delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Unique in the ledger.
    pub name: String,
    /// What serves it; `None` for pure delay.
    pub resource: Option<String>,
    /// Its host, group, role and source.
    #[serde(flatten)]
    pub place: Place,
    /// Visits of delivered packets.
    pub packets: u64,
    /// Bytes of those visits.
    pub bytes: u64,
    /// Seconds from arrival until service began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Times>,
    /// Seconds of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Times>,
    /// Seconds blocked during or after service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Times>,
    /// How often it copies each byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// How often a processor reads or writes each byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touches: Option<u32>,
    /// Packets dropped here, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// Where a stage or a resource belongs in the model, so that nothing has to be parsed from its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// The node that it belongs to; absent for a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The name that it shares with its counterparts at the other members of a counted node: `s.cpu` for
    /// `s.3.cpu`; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its role: `reception`, `application`, `propagation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Where its constants come from: document and table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// A distribution of times, in seconds. The mean is over delivered packets, so that the means of
/// all stages sum to the mean latency; percentiles are over visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// Sum over visits, divided by delivered packets.
    pub mean: f64,
    /// The median visit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// The 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
}

impl Times {
    /// A mean whose percentiles are not known.
    pub fn mean(mean: f64) -> Times {
        Times { mean, p50: None, p99: None }
    }
}

/// A path end to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// What sources sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<Count>,
    /// What sinks received.
    pub delivered: Count,
    /// What was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Count>,
    /// What was still in flight at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// Bits per second of the run that reached applications: without headers, acknowledgements and duplicates
    /// of transports that have them.
    pub goodput: f64,
    /// Dropped packets per offered packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Seconds from source to sink; absent where nothing was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Mean difference of latency between consecutive packets of a flow, in seconds (RFC 3393).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// Packets that arrived after a later one of their flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordered: Option<u64>,
    /// Packets whose content differs from what was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupted: Option<u64>,
    /// Bytes that cross memory per byte delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_multiple: Option<f64>,
    /// Messages with deadlines, met or missed; `None` if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadlines: Option<Deadlines>,
}

/// Messages with deadlines. The rest, neither in time nor late, was dropped, in part or whole, or
/// still in flight at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deadlines {
    /// Messages that applications sent.
    pub made: u64,
    /// Messages complete before their deadline.
    pub met: u64,
    /// Messages complete after their deadline.
    pub late: u64,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// How many packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Latency, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// The median packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    /// The 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// The longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

impl Totals {
    /// Packets delivered at a goodput in bit/s; everything else is unknown.
    pub fn new(delivered: Count, goodput: f64) -> Totals {
        Totals {
            offered: None,
            delivered,
            dropped: None,
            held: None,
            goodput,
            loss: None,
            latency: None,
            jitter: None,
            reordered: None,
            corrupted: None,
            memory_multiple: None,
            deadlines: None,
        }
    }
    /// Mean seconds from source to sink; zero where nothing was delivered.
    pub fn latency_mean(&self) -> f64 {
        self.latency.map_or(0.0, |latency| latency.mean)
    }
    /// Packets dropped, as far as is known.
    pub fn dropped_packets(&self) -> u64 {
        self.dropped.map_or(0, |dropped| dropped.packets)
    }
    /// Packets that sources sent; those delivered if that is not known.
    pub fn offered_packets(&self) -> u64 {
        self.offered.unwrap_or(self.delivered).packets
    }
}

/// What stages compete for. The three shares sum to one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resource {
    /// Unique in the ledger.
    pub name: String,
    /// `cpu`, `bus`, `engine` or `wire`.
    pub kind: String,
    /// Its host, group, role and source.
    #[serde(flatten)]
    pub place: Place,
    /// How many packets it can serve at once.
    pub units: u32,
    /// Share of the time for which it served.
    pub busy: f64,
    /// Share of the time for which it was occupied and could not proceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<f64>,
    /// Share of the time for which it had nothing to do.
    pub idle: f64,
    /// Share of the time for which it served each stage; these sum to `busy`.
    pub by_stage: BTreeMap<String, f64>,
    /// The same by the role of the stages, as far as they have one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_role: BTreeMap<String, f64>,
    /// Bytes that it moved for each byte delivered on any path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_delivered_byte: Option<f64>,
}

impl Resource {
    /// A resource of which only the utilisation is known, as shares of the time.
    pub fn new(name: impl Into<String>, kind: &str, busy: f64, blocked: Option<f64>) -> Resource {
        Resource {
            name: name.into(),
            kind: kind.to_owned(),
            place: Place::default(),
            units: 1,
            busy,
            blocked,
            idle: (1.0 - busy - blocked.unwrap_or(0.0)).max(0.0),
            by_stage: BTreeMap::new(),
            by_role: BTreeMap::new(),
            bytes_per_delivered_byte: None,
        }
    }
    /// Utilisation: share of the time for which it was busy or blocked.
    pub fn utilisation(&self) -> f64 {
        self.busy + self.blocked.unwrap_or(0.0)
    }
    /// The name that it shares with its counterparts, else its own.
    pub fn group(&self) -> &str {
        self.place.group.as_deref().unwrap_or(&self.name)
    }
}

/// What limits the paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The limiting resource; `None` if the data are inconclusive or nothing limits.
    pub resource: Option<String>,
    /// Its busy and blocked share; absent where no resource is named and none is known to be busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
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
    /// They name the same resource, with another close behind.
    Medium,
    /// Only one of them names it.
    Low,
    /// The data are inconclusive.
    Undecided,
}

/// One change, and what it buys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    /// In words: "`bob.cpu` twice as fast".
    pub change: String,
    /// What is compared: `goodput` (bits per second) or `latency` (mean, seconds), over all paths.
    pub metric: String,
    /// The metric of this run.
    pub baseline: f64,
    /// The metric that the model predicts with the change; `None` where no model that holds is known.
    pub predicted: Option<f64>,
    /// The metric measured with the change applied; `None` where it was not.
    pub measured: Option<f64>,
    /// (predicted - measured) / measured; `None` where either is missing.
    pub error: Option<f64>,
    /// By how much the change is better than the baseline, as a share of it; may be negative. Measured where the
    /// change was applied, else predicted.
    pub gain: f64,
    /// The share of the run that was repeated with the change to predict it; absent where it was all or nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// Residuals, which should be zero; exactly zero in a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// Greatest difference, over all paths, between mean latency and the sum of stage means, in seconds.
    pub latency_residual: f64,
    /// Packets sent that were neither delivered, dropped nor held.
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
    /// The share of departures that must be within the tolerance, and the tolerance in seconds.
    pub required: f64,
    /// See `required`.
    pub tolerance: f64,
    /// Share of frames that the emulator lost at its own ports.
    pub shortfall: f64,
    /// CPU seconds used per second.
    pub cpu: f64,
    /// Seconds that a frame costs the emulator: `receive`, `model`, `send`.
    pub stages: BTreeMap<String, f64>,
    /// Histogram of how late departures were.
    pub lags: Vec<Lag>,
    /// In one sentence.
    pub words: String,
}

/// A step of a distribution of lags.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lag {
    /// Upper bound, in seconds.
    pub at_most: f64,
    /// Departures in this step alone.
    pub departures: u64,
}

/// Where the figures come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// The version of Lastmeter.
    pub version: String,
    /// The seed of all random streams; absent in a live run, which draws none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The experiment's name and the hash of its text with all overrides.
    pub experiment: Source,
    /// Every profile that was used.
    pub profiles: Vec<Source>,
    /// `model`, or the privilege level of a live run: `L0`, `L1`, `L2`.
    pub level: String,
    /// The machine of a live run; absent in a model, whose result is the same on all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether the run was stopped early; then all figures are up to `duration`.
    pub partial: bool,
}

/// An input that figures were computed from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// The first 16 hexadecimal digits of the SHA-256 of its text.
    pub hash: String,
}

impl Stage {
    /// A stage of which only the packets that passed are known so far.
    pub fn new(name: impl Into<String>, resource: Option<&str>, passed: Count) -> Stage {
        Stage {
            name: name.into(),
            resource: resource.map(str::to_owned),
            place: Place::default(),
            packets: passed.packets,
            bytes: passed.bytes,
            wait: None,
            service: None,
            blocked: None,
            copies: None,
            touches: None,
            drops: BTreeMap::new(),
        }
    }
    /// Mean seconds that a delivered packet spent here, as far as is known.
    pub fn mean(&self) -> f64 {
        self.wait_mean() + self.service_mean() + self.blocked_mean()
    }
    /// Mean seconds until service began; zero where it is not known.
    pub fn wait_mean(&self) -> f64 {
        self.wait.map_or(0.0, |times| times.mean)
    }
    /// Mean seconds of service; zero where it is not known.
    pub fn service_mean(&self) -> f64 {
        self.service.map_or(0.0, |times| times.mean)
    }
    /// Mean seconds blocked; zero where it is not known.
    pub fn blocked_mean(&self) -> f64 {
        self.blocked.map_or(0.0, |times| times.mean)
    }
}

impl Provenance {
    /// Of a run at this level: `model`, or the privilege level of a live run.
    pub fn new(version: &str, level: &str) -> Provenance {
        Provenance { version: version.to_owned(), level: level.to_owned(), ..Provenance::default() }
    }
}

impl Ledger {
    /// What packets balance to, in words.
    pub(crate) fn equation(&self) -> &'static str {
        match self.warm_up {
            None => "offered = delivered + dropped + held",
            Some(_) => "offered + in flight after the warm-up = delivered + dropped + held",
        }
    }

    /// The account of a run over `duration` seconds: the only constructor. It computes the residual of latency;
    /// the residual of packets, and all that follows from other runs, is added by the caller.
    ///
    /// ```
    /// use lastmeter_ledger::{Count, Latency, Ledger, Path, Provenance, Stage, Times, Totals};
    /// let passed = Count { packets: 10, bytes: 15_000 };
    /// let service = Some(Times::mean(12e-6));
    /// let stage = Stage { service, ..Stage::new("a->b transmit", Some("a->b"), passed) };
    /// let latency = Some(Latency { mean: 12e-6, p50: None, p99: None, max: None });
    /// let totals = Totals { latency, ..Totals::new(passed, 1.2e8) };
    /// let path = Path::new("a->b", "bulk", vec![stage], totals);
    /// let ledger = Ledger::new("A link", 1e-3, vec![path], Vec::new(), Provenance::new("1", "model"));
    /// assert_eq!(ledger.balance.latency_residual, 0.0);
    /// ```
    pub fn new(
        title: impl Into<String>,
        duration: f64,
        paths: Vec<Path>,
        resources: Vec<Resource>,
        provenance: Provenance,
    ) -> Ledger {
        let latency_residual = paths.iter().map(Path::residual).fold(0.0, larger);
        Ledger {
            schema: SCHEMA.to_owned(),
            title: title.into(),
            duration,
            warm_up: None,
            paths,
            resources,
            verdict: None,
            what_ifs: Vec::new(),
            balance: Balance { latency_residual, packets_residual: 0 },
            certificate: None,
            provenance,
            notes: Vec::new(),
            series: Vec::new(),
            levels: Vec::new(),
            estimates: Vec::new(),
            counters: Vec::new(),
            transfers: Vec::new(),
            connection: None,
            waits: None,
        }
    }
    /// Goodput over all paths, in bit/s.
    pub fn goodput(&self) -> f64 {
        self.paths.iter().map(|path| path.totals.goodput).sum()
    }
    /// Mean latency over all delivered packets, in seconds; zero where nothing was delivered.
    pub fn latency(&self) -> f64 {
        let delivered = |path: &Path| path.totals.delivered.packets as f64;
        let sum: f64 = self.paths.iter().map(|p| delivered(p) * p.totals.latency_mean()).sum();
        let packets: f64 = self.paths.iter().map(delivered).sum();
        if packets > 0.0 { sum / packets } else { 0.0 }
    }
    /// Dropped packets per offered packet over all paths.
    pub fn loss(&self) -> f64 {
        let offered: u64 = self.paths.iter().map(|path| path.totals.offered_packets()).sum();
        let dropped: u64 = self.paths.iter().map(|path| path.totals.dropped_packets()).sum();
        if offered > 0 { dropped as f64 / offered as f64 } else { 0.0 }
    }
}

/// The residual with the greater magnitude.
fn larger(a: f64, b: f64) -> f64 {
    if b.abs() > a.abs() { b } else { a }
}

/// Floating-point error of an exact balance, in seconds, at most.
const ROUNDING: f64 = 1e-12;

impl Path {
    /// A path of which only the totals of latency are known.
    pub fn new(
        name: impl Into<String>,
        class: impl Into<String>,
        stages: Vec<Stage>,
        totals: Totals,
    ) -> Path {
        Path { name: name.into(), class: class.into(), stages, totals, latencies: Vec::new() }
    }
    /// Mean latency that no stage accounts for, in seconds; negative if the stages sum to more.
    fn residual(&self) -> f64 {
        let stages: f64 = self.stages.iter().map(Stage::mean).sum();
        let left = self.totals.latency.map_or(0.0, |latency| latency.mean - stages);
        if left.abs() < ROUNDING { 0.0 } else { left }
    }
}

/// The schema of the ledger's JSON.
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(Ledger).to_value()
}
