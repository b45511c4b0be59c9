//! `lastmeter repro`: what was published, and ours beside it.

use crate::{Common, Complaint, Ended, output};
use indicatif::ProgressBar;
use lastmeter_lab::repro::{self, Options, Report, Shelf, Style};

/// Reproduce published tables and figures, ours beside theirs.
///
/// Exits with 1 when a row lies outside its tolerance.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A row (E-64), a system (A, J, N, D, E), an experiment (cim-equations), or all
    #[arg(default_value = "all")]
    select: String,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter repro                 everything
  lastmeter repro J               what the document on Jetstream publishes
  lastmeter repro E-64 --json     one row, for programs";

pub(crate) fn repro(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    let shelf = Shelf::builtin();
    let jobs = repro::plan(&arguments.select, &shelf).map_err(complaint)?;
    let options = Options { seed: common.seed.unwrap_or(1) };
    let bar = ProgressBar::new(jobs.len() as u64); // Draws nothing without a terminal.
    let mut sheets = Vec::new();
    for job in jobs {
        bar.set_message(job.name().to_owned());
        sheets.push(job.run(options).map_err(complaint)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report { sheets };
    match common.json {
        true => output::print(&report.json_lines()?),
        false => {
            let style = Style { width: output::width(), colour: output::colours() };
            output::print(&report.table(style));
        }
    }
    Ok(if report.passes() { Ended::Done } else { Ended::Short })
}

fn complaint(error: repro::Error) -> Complaint {
    match error {
        repro::Error::Problems(problems) => crate::run::rendered(&problems),
        other => Complaint(other.to_string()),
    }
}
