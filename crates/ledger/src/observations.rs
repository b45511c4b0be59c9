//! What elements recorded besides the path: quantities over time, counters, what became of connections.

use crate::Latency;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most transfers of one traffic that a ledger lists one by one.
pub const TRANSFERS_MAX: usize = 10_000;

/// A quantity over time, such as the rotation time of a ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Whose it is, and what: `ring: rotation`.
    pub name: String,
    /// `s` for a time, else a noun such as `station`.
    pub unit: String,
    /// The length of a step, in seconds.
    pub step: f64,
    /// Steps with at least one observation.
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

/// What an element counted during the run: retransmissions, marks, timeouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counter {
    /// The element.
    pub element: String,
    /// What it counts; `lastmeter kinds NAME` says what that means.
    pub name: String,
    /// How many.
    pub value: u64,
}

/// For how long a quantity had which value: the share of the time counts, not how often it changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// Of which element, and what: `alice->bob: length`.
    pub name: String,
    /// `packets`, `s`.
    pub unit: String,
    /// Its mean over time.
    pub mean: f64,
    /// The least.
    pub least: f64,
    /// What it did not exceed for half of the time.
    pub p50: f64,
    /// For nine tenths of it.
    pub p90: f64,
    /// For 99 hundredths of it.
    pub p99: f64,
    /// The greatest.
    pub most: f64,
}

/// A figure over several runs that differ only by their seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The path and class, the resource, the level or the traffic; or `all paths`.
    pub of: String,
    /// `goodput`, `latency`, `loss`, `busy`, `mean`.
    pub measure: String,
    /// Its unit; empty for a share.
    pub unit: String,
    /// How many runs have it.
    pub runs: u64,
    /// Its mean over these.
    pub mean: f64,
    /// Half the width of the mean's 95 % confidence interval (Student's t); absent for a single run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
}

/// The latency that a share of the delivered packets did not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantile {
    /// Between 0 and 1.
    pub share: f64,
    /// Seconds from source to sink.
    pub latency: f64,
}

/// The transfers of one traffic: connections from opening to the acknowledgement of their last byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transfers {
    /// The traffic.
    pub name: String,
    /// How many began.
    pub begun: u64,
    /// How many of these completed.
    pub completed: u64,
    /// Bytes acknowledged.
    pub bytes: u64,
    /// Seconds from the start to the last byte, of those that completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Latency>,
    /// Goodput of a transfer while it lasted.
    pub goodput: Rates,
    /// Jain's index of these goodputs: 1 if all are equal, 1/n if one has all (DEC-TR-301, 1984).
    pub fairness: f64,
    /// The first [`TRANSFERS_MAX`], in the order of their flows.
    pub each: Vec<Transfer>,
}

/// Rates of several, in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// The least.
    pub least: f64,
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub most: f64,
}

/// One transfer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    /// The number of its flow.
    pub flow: u32,
    /// When it began, in seconds.
    pub began: f64,
    /// When its last byte was acknowledged, in seconds; absent if that was not before the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<f64>,
    /// Bytes acknowledged.
    pub bytes: u64,
    /// Bits per second from its start to its completion or the end of the run.
    pub goodput: f64,
}

impl Transfer {
    /// One that began at `began`, in a run of `duration` seconds.
    pub fn new(flow: u32, began: f64, completed: Option<f64>, bytes: u64, duration: f64) -> Self {
        let lasted = completed.unwrap_or(duration) - began;
        let goodput = if lasted > 0.0 { bytes as f64 * 8.0 / lasted } else { 0.0 };
        Transfer { flow, began, completed, bytes, goodput }
    }
}

impl Transfers {
    /// What these transfers have in common.
    ///
    /// ```
    /// use lastmeter_ledger::{Rates, Transfer, Transfers};
    /// let each = vec![
    ///     Transfer::new(0, 0.0, Some(1.0), 125_000, 2.0),
    ///     Transfer::new(1, 1.0, None, 375_000, 2.0),
    /// ];
    /// let transfers = Transfers::new("files", each);
    /// assert_eq!((transfers.begun, transfers.completed), (2, 1));
    /// assert_eq!(transfers.goodput, Rates { least: 1e6, mean: 2e6, most: 3e6 });
    /// assert_eq!(transfers.fairness, 0.8);
    /// ```
    pub fn new(name: impl Into<String>, mut each: Vec<Transfer>) -> Transfers {
        let lasted = |one: &Transfer| one.completed.map(|at| at - one.began);
        let mut times: Vec<f64> = each.iter().filter_map(lasted).collect();
        times.sort_by(f64::total_cmp);
        // The least time that at least this share did not exceed.
        let rank = |share: f64| ((times.len() as f64 * share).ceil() as usize).max(1) - 1;
        let completion = (!times.is_empty()).then(|| Latency {
            mean: times.iter().sum::<f64>() / times.len() as f64,
            p50: Some(times[rank(0.5)]),
            p99: Some(times[rank(0.99)]),
            max: times.last().copied(),
        });
        let number = each.len().max(1) as f64;
        let rates = || each.iter().map(|one| one.goodput);
        let (sum, squares) = (rates().sum::<f64>(), rates().map(|rate| rate * rate).sum::<f64>());
        let least = rates().fold(f64::INFINITY, f64::min);
        let goodput = Rates {
            least: if least.is_finite() { least } else { 0.0 },
            mean: sum / number,
            most: rates().fold(0.0, f64::max),
        };
        let (begun, bytes) = (each.len() as u64, each.iter().map(|one| one.bytes).sum());
        each.truncate(TRANSFERS_MAX);
        Transfers {
            name: name.into(),
            begun,
            completed: times.len() as u64,
            bytes,
            completion,
            goodput,
            fairness: if squares > 0.0 { sum * sum / (number * squares) } else { 1.0 },
            each,
        }
    }
}
