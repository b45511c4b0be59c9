//! Progress by steps, on standard error where that is a terminal.

use crate::progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// How often the bar is drawn.
const EVERY: Duration = Duration::from_millis(100);

/// A bar with a name for each step.
pub(super) struct Steps(ProgressBar);

impl Steps {
    /// A bar of this many steps.
    pub(super) fn new(count: u64) -> Steps {
        let bar = progress::bar(count);
        let style = ProgressStyle::with_template("{msg:36} {wide_bar} {pos}/{len}  {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(EVERY);
        Steps(bar)
    }

    /// Begins the next one.
    pub(super) fn next(&self, what: &'static str) {
        self.0.set_message(what);
        self.0.inc(1);
    }

    /// Hides the bar while `f` prints.
    pub(super) fn aside(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
