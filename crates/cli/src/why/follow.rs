//! What is printed while a command is followed.
//!
//! | | |
//! |---|---|
//! | plain | its first verdict, on standard error, as the command may use standard output |
//! | `--json` | a ledger a second, a line each; the last line is the whole one |
//! | `--watch` | the verdict and what the thread does, drawn anew each second where that is a terminal |

use crate::{Common, output};
use lastmeter_ledger as report;
use lastmeter_ledger::{Confidence, Ledger};
use std::io::{IsTerminal, Write};

/// The first verdict is of this many seconds, unless it is undecided.
const FIRST: f64 = 0.9;
/// Until a verdict that stays undecided is said, too.
const FIRST_MAX: f64 = 1.9;
/// Lines of a drawing.
const LINES_MAX: usize = 12;

/// The printing.
pub(super) struct Follow {
    json: bool,
    watch: bool,
    said: bool,
    /// Lines of the last drawing.
    drawn: usize,
}

impl Follow {
    /// Seconds between two ledgers.
    pub(super) const EVERY: f64 = 1.0;

    pub(super) fn new(common: &Common, watch: bool) -> Follow {
        Follow { json: common.json, watch, said: false, drawn: 0 }
    }

    /// Prints what is due of the ledger so far.
    pub(super) fn show(&mut self, ledger: &Ledger) {
        if self.json {
            let mut so_far = ledger.clone();
            so_far.provenance.partial = true;
            output::print(&report::json::to_line(&so_far));
            return;
        }
        if self.watch {
            self.draw(&lines(ledger));
            return;
        }
        let decided = ledger.verdict.as_ref();
        let decided = decided.is_some_and(|verdict| verdict.confidence != Confidence::Undecided);
        let due = ledger.duration >= if decided { FIRST } else { FIRST_MAX };
        if due && !self.said {
            self.said = true;
            output::note(&lines(ledger)[0]);
        }
    }

    /// Draws lines over those of the last time where that is a terminal, else below them.
    fn draw(&mut self, lines: &[String]) {
        let mut out = std::io::stderr().lock();
        let back = match out.is_terminal() {
            true if self.drawn > 0 => format!("\x1b[{}A\x1b[J", self.drawn),
            _ => String::new(),
        };
        self.drawn = lines.len();
        // Whoever closes standard error does not want to see it.
        let _ = writeln!(out, "{back}{}", lines.join("\n"));
    }
}

/// The verdict so far, then what the thread did over time.
fn lines(ledger: &Ledger) -> Vec<String> {
    let words = ledger.verdict.as_ref().map_or(String::new(), |verdict| {
        let sure = format!("{:?}", verdict.confidence).to_lowercase();
        format!("{} Confidence {sure}.", verdict.words)
    });
    let first = format!("AFTER {:.1} s  {words}", ledger.duration);
    let state = |series: &report::Series| {
        let last = series.steps.last().map_or(0.0, |step| step.most);
        let mean = series.steps.iter().map(|step| step.most).sum::<f64>()
            / series.steps.len().max(1) as f64;
        format!("  {:<44} {mean:>4.0} % of the time, {last:>4.0} % now", series.name)
    };
    std::iter::once(first).chain(ledger.series.iter().map(state)).take(LINES_MAX).collect()
}
