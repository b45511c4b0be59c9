//! What source, sink and driver report. SI base units: seconds, bits per second, bytes.

use lastmeter_engine::Distribution;
use serde::{Deserialize, Serialize};

/// What a distribution of times comes down to, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Percentiles {
    /// The mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    pub p999: f64,
    /// The greatest.
    pub max: f64,
}

impl Percentiles {
    /// Of values, if there are any.
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

/// What a source did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceReport {
    /// The flow, by its place in the plan.
    pub flow: u16,
    /// Packets that the kernel took.
    pub packets: u64,
    /// Their sizes.
    pub bytes: u64,
    /// Packets that the kernel refused: nobody listened.
    pub refused: u64,
    /// Packets for which there was no time.
    pub behind: u64,
    /// Bits per second that were to be sent; `None` for as fast as possible.
    pub intended_rate: Option<f64>,
    /// Bits per second that were.
    pub rate: f64,
    /// Packets per second that were.
    pub packet_rate: f64,
    /// The share of departures within 10 us of when they were due; `None` if none was due at a time.
    pub within_10us: Option<f64>,
    /// Within 100 us.
    pub within_100us: Option<f64>,
    /// Within 1 ms.
    pub within_1ms: Option<f64>,
    /// The latest.
    pub worst_lag: f64,
    /// Whether it sent what it should, on time.
    pub kept_up: bool,
    /// Whether the kernel was given many packets at once.
    pub offload: bool,
    /// Whether it was told to stop before its end.
    pub interrupted: bool,
    /// What ended it before its time.
    pub error: Option<String>,
}

/// What a sink counted; see [`super::tally`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkReport {
    /// The flow, by its place in the plan.
    pub flow: u16,
    /// Packets that came, each once.
    pub packets: u64,
    /// Their sizes.
    pub bytes: u64,
    /// Packets that had come before.
    pub duplicated: u64,
    /// Packets that came after one with a greater number.
    pub reordered: u64,
    /// Packets too old to tell whether they had come before.
    pub ancient: u64,
    /// Packets with a wrong length, fill or check.
    pub damaged: u64,
    /// Packets of somebody else.
    pub foreign: u64,
    /// Packets that the kernel dropped because the sink took too long.
    pub overrun: u64,
    /// Bits per second between the first arrival and the last.
    pub rate: f64,
    /// Packets per second between the first arrival and the last.
    pub packet_rate: f64,
    /// Departure to arrival; `None` where the clocks are not the same.
    pub delay: Option<Percentiles>,
    /// RFC 3550 A.8, at the end.
    pub jitter: f64,
    /// How much transit times differ from one packet to the next, of which jitter is the average.
    pub variation: Option<Percentiles>,
}

/// What became of one flow.
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
    /// Packets that did not arrive whole or damaged; `None` where an end has not reported.
    pub lost: Option<u64>,
    /// What its source says; `None` where that was not heard.
    pub source: Option<SourceReport>,
    /// What its sink says; `None` where that was not heard.
    pub sink: Option<SinkReport>,
}

impl FlowOutcome {
    /// Completes the books once both ends have reported: sent = received + damaged + lost.
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

/// What became of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The shape of this: `lastmeter.blast/1`.
    pub schema: &'static str,
    /// Names the random streams.
    pub seed: u64,
    /// Whether every source sent what it should, on time.
    pub kept_up: bool,
    /// Whether every end reported and none was stopped.
    pub complete: bool,
    /// What whoever reads the figures should know first.
    pub notes: Vec<String>,
    /// Each flow.
    pub flows: Vec<FlowOutcome>,
}
