//! The messages between the server and a run: one line of JSON each, over pipes.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// What to run: the first line that a run reads. Any further line, or the end of its input, tells it to
/// stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// The experiment's name in messages.
    pub(super) name: String,
    /// Its text.
    pub(super) text: String,
    /// The folder that file names in it are relative to, and the one they may not leave; `None` for a
    /// bundled one.
    pub(super) within: Option<(PathBuf, PathBuf)>,
    /// Where the results go.
    pub(super) results: PathBuf,
    /// A tenth of the time, no what-ifs.
    pub(super) quick: bool,
    /// Overrides the experiment's own.
    pub(super) seed: Option<u64>,
    /// Number of threads.
    pub(super) threads: Option<usize>,
    /// Bytes of memory that it may take.
    pub(super) memory: u64,
}

/// What to check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CheckJob {
    /// As of a [`Job`].
    pub(super) name: String,
    /// As of a [`Job`].
    pub(super) text: String,
    /// As of a [`Job`].
    pub(super) within: Option<(PathBuf, PathBuf)>,
    /// As of a [`Job`].
    pub(super) memory: u64,
}

/// What a run reports.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Event {
    /// The text is valid, and it runs.
    Begun { title: String },
    /// Its progress.
    Progress(Progress),
    /// Its results so far.
    Live(Live),
    /// Its results are in the folder.
    Done { figures: Figures, partial: bool, size: u64 },
    /// There is something wrong with the text, or with the model.
    Failed { words: String, problems: Vec<Value> },
}

/// A run's progress: the share of its first run that is done, and how many of its further runs, one for
/// each what-if.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) share: f64,
    pub(super) done: usize,
    pub(super) of: usize,
}

/// The ledger so far: the part that a page shows first, and the new points of the time series.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Live {
    pub(super) view: Value,
    pub(super) course: Course,
}

/// A run's figures over simulated time. Each point covers the time since the one before.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Course {
    /// The paths whose goodput the points contain.
    pub(super) paths: Vec<String>,
    /// The resources whose utilisation the points contain.
    pub(super) resources: Vec<String>,
    /// Points, oldest first.
    pub(super) points: Vec<Point>,
}

/// A step of a [`Course`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    /// Its end, in seconds.
    pub(super) at: f64,
    /// Delivered bits per second, over all paths.
    pub(super) goodput: f64,
    /// Mean latency in seconds of the packets that arrived; `None` where none did.
    pub(super) latency: Option<f64>,
    /// Dropped packets.
    pub(super) dropped: f64,
    /// Delivered bits per second of each path.
    pub(super) paths: Vec<f64>,
    /// Busy and blocked share of each resource.
    pub(super) used: Vec<f64>,
}

/// What the list shows of a run that has results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) duration: f64,
    pub(super) goodput: f64,
    pub(super) latency: f64,
    pub(super) loss: f64,
    pub(super) paths: usize,
    /// The limiting resource, if any.
    pub(super) limits: Option<String>,
}
