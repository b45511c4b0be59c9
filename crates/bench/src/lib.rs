//! What pieces cost on this kernel and these processors, apart from any experiment: exchanges of TCP and of DTP,
//! checks of packets, copies, whole units or packets, the models' TCP before the kernel's, adapters' operating points.
//!
//! ```text
//! name --> measurement: value, unit, a peer's value (the published one, the model's), notes
//! ```
//!
//! Those that need namespaces say so if they may not have them. `lastmeter bench` prints them.
//!
//! ```
//! let names: Vec<&str> = lastmeter_bench::all().map(|(name, _)| name).collect();
//! assert!(names.contains(&"dtp/round-trip"));
//! ```

mod auth;
mod auth_udp;
mod channels;
mod copies;
mod delivery;
mod exchange;
mod explain;
mod far;
mod fixes;
mod own_tcp;
pub mod plugpoints;
mod touch;
pub mod tune;
mod units;

use lastmeter_base::bench::Case;
use lastmeter_live::task::Entry;
use serde::{Deserialize, Serialize};

/// Why something could not be measured.
#[derive(Debug)]
pub struct Complaint(pub String);

impl<T: std::fmt::Display> From<T> for Complaint {
    fn from(error: T) -> Complaint {
        Complaint(error.to_string())
    }
}

/// The result of one benchmark; its fields are named as in the JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// Its name.
    pub bench: String,
    /// In `unit`.
    pub value: f64,
    /// As in `packets/s`.
    pub unit: String,
    /// Or lower.
    pub higher_is_better: bool,
    /// What it is compared with; `None` where there is no peer, or it is not installed.
    pub peer: Option<String>,
    /// In `unit`.
    pub peer_value: Option<f64>,
    /// Ours divided by theirs.
    pub ratio: Option<f64>,
    /// Equal for equal work; empty where a live machine was measured.
    pub hash: String,
    /// Whatever else the reader should know.
    pub note: String,
}

impl Measurement {
    /// A value of which more is better, without a peer.
    pub fn new(
        bench: impl Into<String>,
        value: f64,
        unit: impl Into<String>,
        hash: String,
        note: impl Into<String>,
    ) -> Measurement {
        let (bench, unit, note, higher_is_better) = (bench.into(), unit.into(), note.into(), true);
        let (peer, peer_value, ratio) = (None, None, None);
        Measurement { bench, value, unit, higher_is_better, peer, peer_value, ratio, hash, note }
    }
    /// The same of a value of which less is better.
    pub fn lower_is_better(self) -> Measurement {
        Measurement { higher_is_better: false, ..self }
    }
    /// Adds a peer's value.
    pub fn beside(&mut self, peer: &str, value: f64) {
        self.peer = Some(peer.to_owned());
        self.peer_value = Some(value);
        self.ratio = Some(self.value / value);
    }
    /// Adds a peer's value, or why there is none.
    pub fn beside_if_there(&mut self, peer: &str, value: Result<f64, String>) {
        match value {
            Ok(value) => self.beside(peer, value),
            Err(why) => self.note += &format!("; not compared with {peer}: {why}"),
        }
    }
}

/// What every benchmark is given.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// A quick look.
    pub quick: bool,
}

/// Measures.
pub type Bench = fn(&Setting) -> Result<Measurement, Complaint>;

/// What `lastmeter bench` without a name measures, too.
pub fn all() -> impl Iterator<Item = (&'static str, Bench)> {
    let exchanged = exchange::ALL.iter().chain(auth_udp::ALL);
    exchanged.chain(copies::ALL).chain(fixes::ALL).copied()
}

/// What takes long, and is measured only when it is asked for.
pub fn alone() -> impl Iterator<Item = (&'static str, Bench)> {
    let own = own_tcp::ALL.iter().chain(units::ALL);
    let delivered = delivery::ALL.iter().chain(plugpoints::ALL).chain(explain::ALL);
    own.chain(delivered).chain(channels::ALL).copied()
}

/// Cases of code alone.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    auth::CASES.iter().chain(touch::CASES)
}

/// What helper processes do for these.
pub const TASKS: [Entry; 5] =
    [own_tcp::TASK, units::TASK, delivery::TASK, channels::TASK, tune::TASK];
