//! What other programs use of the machine.

use crate::counters::Counters;
use crate::error::Result;
use std::time::{Duration, Instant};

/// From this share of the CPUs on, the machine is busy, and figures are those of a busy machine.
const BUSY: f64 = 0.25;

/// CPUs in use, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// CPUs in use.
    pub used: f64,
    /// CPUs.
    pub cpus: usize,
}

impl Load {
    /// Whether others use so much that figures are not this machine's own.
    pub fn is_busy(&self) -> bool {
        self.used > BUSY * self.cpus as f64
    }
}

/// Looks for a while, in which the caller uses next to nothing.
///
/// # Errors
/// Without /proc/stat.
pub fn others(look: Duration) -> Result<Load> {
    let (from, before) = (Instant::now(), Counters::now(&[])?);
    std::thread::sleep(look);
    let change = Counters::now(&[])?.since(&before);
    let used = change
        .cpus
        .iter()
        .map(|cpu| cpu.user + cpu.system + cpu.interrupt + cpu.softirq + cpu.steal);
    let used = used.sum::<f64>() / from.elapsed().as_secs_f64();
    Ok(Load { used, cpus: change.cpus.len() })
}

/// A sentence where the machine is busy.
pub fn words(load: Load) -> Option<String> {
    load.is_busy().then(|| {
        format!(
            "BUSY: other programs use {:.1} of {} CPUs; rates are those of a busy machine.",
            load.used, load.cpus
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_cpus_is_busy() {
        assert!(words(Load { used: 0.4, cpus: 2 }).is_none());
        assert!(words(Load { used: 1.6, cpus: 2 }).is_some_and(|words| words.contains("1.6 of 2")));
    }
}
