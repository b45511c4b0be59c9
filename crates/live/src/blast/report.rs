//! Reports of source, sink and driver. SI base units: seconds, bits per second, bytes.

use lastmeter_engine::Distribution;
use serde::{Deserialize, Serialize};

/// A summary of a distribution of times, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Percentiles {
    /// The mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

impl Percentiles {
    /// Of values; `None` without any.
    pub(crate) fn of(values: &Distribution) -> Option<Percentiles> {
        let at = |share| values.percentile(share).as_secs_f64();
        (values.count() > 0).then(|| Percentiles {
            mean: values.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: values.max().as_secs_f64(),
        })
    }
}

/// A source's report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceReport {
    /// The flow, by its index in the plan.
    pub flow: u16,
    /// Packets that the kernel accepted.
    pub packets: u64,
    /// Their sizes.
    pub bytes: u64,
    /// Packets that the kernel refused: nobody listened.
    pub refused: u64,
    /// Packets not sent for lack of time.
    pub behind: u64,
    /// Intended rate in bits per second; `None` for as fast as possible.
    pub intended_rate: Option<f64>,
    /// Achieved rate in bits per second.
    pub rate: f64,
    /// Achieved rate in packets per second.
    pub packet_rate: f64,
    /// The share of departures at most 10 us late; `None` for as fast as possible.
    pub within_10us: Option<f64>,
    /// At most 100 us late.
    pub within_100us: Option<f64>,
    /// At most 1 ms late.
    pub within_1ms: Option<f64>,
    /// Greatest lateness.
    pub worst_lag: f64,
    /// Whether it sent everything, on time.
    pub kept_up: bool,
    /// Whether packets were sent in batches (UDP GSO).
    pub offload: bool,
    /// Whether it was told to stop before its end.
    pub interrupted: bool,
    /// The error that ended it early.
    pub error: Option<String>,
}

/// A sink's report; see [`super::tally`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkReport {
    /// The flow, by its index in the plan.
    pub flow: u16,
    /// Packets received, without duplicates.
    pub packets: u64,
    /// Their sizes.
    pub bytes: u64,
    /// Duplicates.
    pub duplicated: u64,
    /// Packets received after one with a greater sequence number.
    pub reordered: u64,
    /// Packets too old to tell whether they are duplicates.
    pub ancient: u64,
    /// Packets with a wrong length, fill or check.
    pub damaged: u64,
    /// Packets of other flows.
    pub foreign: u64,
    /// Packets that the kernel dropped because the sink fell behind.
    pub overrun: u64,
    /// Bits per second between the first arrival and the last.
    pub rate: f64,
    /// Packets per second between the first arrival and the last.
    pub packet_rate: f64,
    /// One-way delay; `None` where the clocks differ.
    pub delay: Option<Percentiles>,
    /// RFC 3550 A.8, at the end.
    pub jitter: f64,
    /// Differences of transit time from one packet to the next; jitter is their running average.
    pub variation: Option<Percentiles>,
}

/// The result of one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// What is in its packets.
    pub format: &'static str,
    /// Packets sent, as far as is known.
    pub sent: u64,
    /// Packets received, as far as is known.
    pub received: u64,
    /// Packets that did not arrive, not even damaged; `None` where an end has not reported.
    pub lost: Option<u64>,
    /// Its source's report; `None` where that is missing.
    pub source: Option<SourceReport>,
    /// Its sink's report; `None` where that is missing.
    pub sink: Option<SinkReport>,
}

impl FlowOutcome {
    /// Computes the loss once both ends have reported: sent = received + damaged + lost.
    pub(crate) fn close(&mut self) {
        if let Some(source) = &self.source {
            self.sent = source.packets;
        }
        if let Some(sink) = &self.sink {
            self.received = sink.packets;
        }
        if let (Some(source), Some(sink)) = (&self.source, &self.sink) {
            let arrived = sink.packets.saturating_add(sink.damaged);
            self.lost = Some(source.packets.saturating_sub(arrived));
        }
    }
}

/// The result of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The schema: `lastmeter.blast/1`.
    pub schema: &'static str,
    /// The seed of the random streams.
    pub seed: u64,
    /// Whether every source sent everything, on time.
    pub kept_up: bool,
    /// Whether every end reported and none was stopped.
    pub complete: bool,
    /// Notes to read before the figures.
    pub notes: Vec<String>,
    /// Each flow.
    pub flows: Vec<FlowOutcome>,
}
