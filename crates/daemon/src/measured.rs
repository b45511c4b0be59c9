//! What benchmarks share: their arguments, a folder that is removed at the end, another process's CPU time, and the
//! fields of a result.

use crate::Complaint;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Bench {
    /// Only benchmarks whose name contains this
    pub(crate) name: Option<String>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Measurements of each, of which the median counts
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
}

/// A folder of this process; removed when it is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(within: &Path, name: &str) -> Result<Folder, Complaint> {
        let path = within.join(format!("lastmeter-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A result for programs; `peer` is whom it is compared with, and how well that one did.
pub(crate) fn line(
    name: &str,
    value: f64,
    unit: &str,
    peer: Option<(&str, f64)>,
    note: &str,
) -> Value {
    json!({
        "bench": name,
        "value": value,
        "unit": unit,
        "higher_is_better": true,
        "peer": peer.map(|(peer, _)| peer),
        "peer_value": peer.map(|(_, other)| other),
        "ratio": peer.map(|(_, other)| value / other),
        "hash": null,
        "note": note,
    })
}

/// CPU seconds of all threads of a process, those included that have ended.
pub(crate) fn cpu_of(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    const TICKS: f64 = 100.0;
    (ticks(11) + ticks(12)) / TICKS
}
