//! `lastmeter repro`: published values, ours beside them.

use crate::threads::Threads;
use crate::{Common, Complaint, Ended, output, results};
use indicatif::{ProgressBar, ProgressStyle};
use lastmeter_judge::theory;
use lastmeter_live::calibrate::Calibration;
use lastmeter_repro::reception::sweep::{self, Curve, Machine};
use lastmeter_repro::reception::{Way, chart, of_1997, of_today};
use lastmeter_repro::{Effort, Observer, Options, Report, Shelf, Style};
use std::path::PathBuf;
use std::time::Duration;

/// Reproduce published tables and figures, ours beside theirs.
///
/// Exits with 1 when a row lies outside its tolerance.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A row (E-64), a system by its letter (A for Aurora; also J, N, D, E), an experiment
    /// (cim-equations), all, or theory
    #[arg(default_value = "all")]
    select: String,
    /// Simulate as long, and as many cases, as the documents did: minutes instead of seconds
    #[arg(long)]
    full: bool,
    /// With `livelock`: every reception policy, of 1997 and of today, on a host of today
    #[arg(long)]
    modern: bool,
    /// With --modern: a host profile written by `lastmeter calibrate --out FILE` [default: a bundled one]
    #[arg(long, value_name = "FILE", requires = "modern")]
    host: Option<PathBuf>,
    /// Write one HTML page here: each table and figure, ours over theirs; with --modern, the chart
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter repro                 everything
  lastmeter repro J               everything published on Jetstream
  lastmeter repro qsdrr --full    one experiment, with all its cases
  lastmeter repro E-64 --json     one row, for programs
  lastmeter repro theory          the simulator beside closed formulas of queueing theory
  lastmeter repro dq-stress --out dq.html
                                  a page that plots the figures and steps through them
  lastmeter repro --out all.html  everything as one page
  lastmeter repro livelock --modern --out livelock.html
                                  every reception policy, then and now, on one chart";

/// How often the bar is redrawn, so that its clock moves during a long run.
const EVERY: Duration = Duration::from_millis(200);

/// Progress through the experiments and their runs, on standard error.
struct Bar(ProgressBar);

impl Bar {
    fn new(experiments: u64) -> Bar {
        let bar = ProgressBar::new(experiments); // Draws nothing without a terminal.
        let style =
            ProgressStyle::with_template("{msg:24} {wide_bar} {pos}/{len}  {elapsed}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(EVERY);
        Bar(bar)
    }
}

impl Observer for Bar {
    fn planned(&self, runs: u64) {
        self.0.inc_length(runs);
    }
    fn done(&self) {
        self.0.inc(1);
    }
}

pub(crate) fn repro(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    if arguments.modern {
        return modern(common, arguments);
    }
    if arguments.select == "theory" {
        return theory(common, arguments);
    }
    let shelf = Shelf::builtin();
    let jobs = lastmeter_repro::plan(&arguments.select, &shelf).map_err(complaint)?;
    let options = Options { seed: common.seed.unwrap_or(1) };
    let threads = Threads::new(common.threads)?;
    let bar = Bar::new(jobs.len() as u64);
    let means = Effort { parallel: &threads, full: arguments.full, observer: &bar };
    let (mut sheets, mut plots, mut drawings) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        bar.0.set_message(job.name().to_owned());
        if arguments.out.is_some() {
            plots.extend(job.plots(options, means).map_err(complaint)?);
            drawings.extend(job.drawings(options, means).map_err(complaint)?);
        }
        sheets.push(job.run_with(options, means).map_err(complaint)?);
        bar.0.inc(1);
    }
    bar.0.finish_and_clear();
    let report = Report { sheets };
    if let Some(path) = &arguments.out {
        let page = lastmeter_repro::html::render(&report, &plots, &drawings);
        results::file(path, page.as_bytes())?;
    }
    match common.json {
        true => output::print(&report.json_lines()?),
        false => output::print(&report.table(style())),
    }
    Ok(if report.passes() { Ended::Done } else { Ended::Short })
}

/// The simulator judged by queueing theory, in as many runs as there is time for.
fn theory(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    if arguments.out.is_some() {
        return Err(Complaint("--out: theory has no page, only a table; use --json".to_owned()));
    }
    let threads = Threads::new(common.threads)?;
    let bar = Bar::new(0);
    bar.0.set_message("theory");
    let means = Effort { parallel: &threads, full: arguments.full, observer: &bar };
    let runs = match (common.quick, arguments.full) {
        (true, _) => theory::RUNS_FEW,
        (_, true) => theory::RUNS_MANY,
        _ => theory::RUNS,
    };
    let report = theory::run(common.seed.unwrap_or(1), runs, means).map_err(complaint)?;
    bar.0.finish_and_clear();
    match common.json {
        true => output::print(&report.json_lines()?),
        false => output::print(&report.table(style())),
    }
    Ok(if report.passes() { Ended::Done } else { Ended::Short })
}

fn style() -> Style {
    Style { width: output::width(), colour: output::colours() }
}

fn complaint(error: lastmeter_repro::Error) -> Complaint {
    match error {
        lastmeter_repro::Error::Problems(problems) => crate::run::rendered(&problems),
        other => Complaint(other.to_string()),
    }
}

/// The bundled host of today.
const MODERN: &str = include_str!("../../../profiles/calibrated/epyc-2-cores.toml");

fn modern(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    if arguments.select != "livelock" {
        return Err(Complaint("--modern requires `lastmeter repro livelock`".to_owned()));
    }
    let text = match &arguments.host {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Complaint(format!("{}: {error}", path.display())))?,
        None => MODERN.to_owned(),
    };
    let calibration = Calibration::from_toml(&text)?;
    let host = &calibration.host;
    let what =
        format!("{}, {} cores, Linux {}, as calibrated", host.model, host.cores, host.kernel);
    let seconds = |name: &str| calibration.si(name).map_err(|error| error.to_string());
    let today = Machine::calibrated(what, &seconds).map_err(Complaint)?;
    let then = Machine::of_1997();
    let ways: Vec<Way> = of_1997().into_iter().chain(of_today()).collect();
    let seed = common.seed.unwrap_or(1);
    let bar = ProgressBar::new((ways.len() + of_1997().len()) as u64);
    let curves = |machine: &Machine, ways: &[Way]| -> Vec<Curve> {
        let one = |way: &Way| {
            bar.set_message(way.name);
            let curve = sweep::curve(machine, way, seed);
            bar.inc(1);
            curve
        };
        ways.iter().map(one).collect()
    };
    let now = curves(&today, &ways);
    let before = curves(&then, &of_1997());
    bar.finish_and_clear();
    if let Some(path) = &arguments.out {
        let page = chart::html(&[(&today, &now), (&then, &before)]);
        results::file(path, page.as_bytes())?;
    }
    match common.json {
        true => {
            output::print(&(sweep::json_lines(&today, &now) + &sweep::json_lines(&then, &before)));
        }
        false => {
            output::print(&chart::table(&today, &now));
            output::print(&chart::table(&then, &before));
        }
    }
    Ok(Ended::Done)
}
