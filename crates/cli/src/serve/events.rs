//! What the server and a run say to each other: a line of JSON each, over pipes.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// What is to be run: the first line that a run reads. Any further line, and the end of its input,
/// ask it to stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// The experiment's name in messages.
    pub(super) name: String,
    /// Its text.
    pub(super) text: String,
    /// Where names in it start from, and the folder that they may not leave; `None` for a bundled
    /// one.
    pub(super) within: Option<(PathBuf, PathBuf)>,
    /// Where the results go.
    pub(super) results: PathBuf,
    /// A tenth of the time, no what-ifs.
    pub(super) quick: bool,
    /// Instead of the experiment's own.
    pub(super) seed: Option<u64>,
    /// Use so many threads.
    pub(super) threads: Option<usize>,
}

/// What a run says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Event {
    /// The text is in order, and it runs.
    Begun { title: String },
    /// How far it is.
    Progress(Progress),
    /// What has come of it so far.
    Live(Live),
    /// Its results are in the folder.
    Done { figures: Figures, partial: bool, size: u64 },
    /// There is something wrong with the text, or with the model.
    Failed { words: String, problems: Vec<Value> },
}

/// How far a run is: the share of its first run, and how many of how many further runs, one for
/// each what-if.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) share: f64,
    pub(super) done: usize,
    pub(super) of: usize,
}

/// The ledger so far, in the part that a page shows first, and what is new of the course.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Live {
    pub(super) view: Value,
    pub(super) course: Course,
}

/// How a run went over its own time. The figures of a point are of the time since the one before.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Course {
    /// Whose goodput the points have.
    pub(super) paths: Vec<String>,
    /// Whose use the points have.
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
    /// Mean seconds of the packets that arrived; `None` where none did.
    pub(super) latency: Option<f64>,
    /// Dropped packets.
    pub(super) dropped: f64,
    /// Delivered bits per second of each path.
    pub(super) paths: Vec<f64>,
    /// Busy and blocked share of each resource.
    pub(super) used: Vec<f64>,
}

/// What a list says of a run that has results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) duration: f64,
    pub(super) goodput: f64,
    pub(super) latency: f64,
    pub(super) loss: f64,
    pub(super) paths: usize,
    /// What limits it, where something does.
    pub(super) limits: Option<String>,
}
