//! How long it takes until a change of routes is in effect: from when the control processor heard of it until the
//! tables of all port processors have it (D-40).
//!
//! Changes follow each other faster than anybody wants to wait for each: one is measured at most every 10 ms.

use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The least time between two measurements.
const BETWEEN: Duration = Duration::from_millis(10);

/// What was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InStep {
    measured: u64,
    last: Duration,
    most: Duration,
    sum: Duration,
    at: Option<Instant>,
}

impl InStep {
    /// Whether a change is to be measured.
    pub(super) fn wants(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= BETWEEN)
    }
    /// A change that was heard of then is in effect now.
    pub(super) fn measured(&mut self, heard: Instant) {
        let took = heard.elapsed();
        self.measured += 1;
        (self.last, self.most, self.sum) = (took, self.most.max(took), self.sum + took);
        self.at = Some(Instant::now());
    }
    /// For `show routes`.
    pub(super) fn shown(&self) -> Value {
        json!({
            "measured": self.measured,
            "last": self.last.as_secs_f64(),
            "most": self.most.as_secs_f64(),
            "mean": self.sum.as_secs_f64() / self.measured.max(1) as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_all_measurements_and_the_next_one_waits() {
        let mut steps = InStep::default();
        assert!(steps.wants());
        let heard = Instant::now() - Duration::from_millis(30);
        steps.measured(heard);
        assert!(!steps.wants() || steps.at.is_some_and(|at| at.elapsed() >= BETWEEN));
        steps.measured(Instant::now());
        let shown = steps.shown();
        let seconds = |key: &str| shown[key].as_f64().expect("a number");
        assert_eq!(shown["measured"], 2);
        assert!(seconds("most") >= 0.03 && seconds("last") < seconds("most"), "{shown}");
        assert!(seconds("mean") >= 0.015 && seconds("mean") < seconds("most"), "{shown}");
    }
}
