//! `lastmeter repro`: published values, ours beside them.

use crate::threads::Threads;
use crate::{Common, Complaint, Ended, daemon, judges, output, progress, results};
use indicatif::{ProgressBar, ProgressStyle};
use lastmeter_engine::{Control, in_order};
use lastmeter_live::calibrate::Calibration;
use lastmeter_repro::reception::sweep::{self, Curve, Machine};
use lastmeter_repro::reception::{Way, chart, of_1997, of_today};
use lastmeter_repro::{Effort, Job, Observer, Options, Report, Shelf, Shown, Style};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Reproduce published tables and figures, ours beside theirs.
///
/// Prints each experiment when it is done: a line that sums it up, then the rows outside their tolerance, with --all
/// the others, too. Ctrl-C keeps what is done. Exits with 1 when a row lies outside its tolerance.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A row (E-64), a system by its letter (A for Aurora; also J, N, D, E), an experiment
    /// (cim-equations), all, theory, ns3, or linux
    #[arg(default_value = "all")]
    select: String,
    /// Simulate as long, and as many cases, as the documents did: minutes instead of seconds
    #[arg(long)]
    pub(crate) full: bool,
    /// Show the rows within tolerance, too; a single experiment always shows all of its rows
    #[arg(long)]
    all: bool,
    /// With `livelock`: every reception policy, of 1997 and of today, on a host of today
    #[arg(long)]
    modern: bool,
    /// With --modern: a host profile written by `lastmeter calibrate --out FILE` [default: a bundled one]
    #[arg(long, value_name = "FILE", requires = "modern")]
    host: Option<PathBuf>,
    /// Write one HTML page here: each table and figure, ours over theirs; with --modern, the chart
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// With `ns3` and `linux`: only scenarios whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) scenario: Option<String>,
    /// With `ns3` and `linux`: first run ns-3, or Linux's TCP (100 s a run), where this file lacks a run of it, and
    /// compare with this file; Ctrl-C keeps what there is
    #[arg(long, value_name = "FILE")]
    pub(crate) measure: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter repro                 everything: a line for each experiment, and what fails
  lastmeter repro --all           every row of everything
  lastmeter repro J               everything published on Jetstream
  lastmeter repro qsdrr --full    one experiment, with all its cases
  lastmeter repro E-64 --json     one row, for programs
  lastmeter repro theory          the simulator beside closed formulas of queueing theory
  lastmeter repro ns3 --scenario 'drop-tail 1,'
                                  the simulator beside ns-3, where the room is a bandwidth-delay
                                  product
  lastmeter repro linux           the model's TCP beside Linux's, behind the same emulated link
  lastmeter repro dq-stress --out dq.html
                                  a page that plots the figures and steps through them
  lastmeter repro --out all.html  everything as one page
  lastmeter repro livelock --modern --out livelock.html
                                  every reception policy, then and now, on one chart";

/// How often the bar is redrawn, so that its clock moves during a long run.
const EVERY: Duration = Duration::from_millis(200);

/// Progress through the experiments and their runs, on standard error.
pub(crate) struct Bar {
    bar: ProgressBar,
    control: Arc<Control>,
}

impl Bar {
    fn new(experiments: u64) -> Bar {
        let bar = progress::bar(experiments);
        let style =
            ProgressStyle::with_template("{msg:24} {wide_bar} {pos}/{len}  {elapsed}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(EVERY);
        Bar { bar, control: Arc::default() }
    }

    /// Of runs that Ctrl-C ends, so that what is done is shown; the second Ctrl-C ends the program.
    pub(crate) fn stopping(what: &'static str) -> Bar {
        let bar = Bar::new(0);
        bar.bar.set_message(what);
        progress::stop_on_interrupt(bar.control.clone());
        bar
    }

    /// Goes away; returns whether it was stopped.
    pub(crate) fn end(&self) -> bool {
        self.bar.finish_and_clear();
        if self.control.stopped() {
            output::note("Stopped: this is of the runs that were done.");
        }
        self.control.stopped()
    }
}

impl Observer for Bar {
    fn planned(&self, runs: u64) {
        self.bar.inc_length(runs);
    }
    fn done(&self) {
        self.bar.inc(1);
    }
    fn stopped(&self) -> bool {
        self.control.stopped()
    }
}

pub(crate) fn repro(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    results::prepare_file(arguments.out.as_deref())?;
    if arguments.modern {
        return modern(common, arguments);
    }
    match arguments.select.as_str() {
        "theory" => return judges::theory(common, arguments),
        "ns3" => return judges::ns3(common, arguments),
        "linux" => return judges::linux(common, arguments),
        _ if arguments.measure.is_some() || arguments.scenario.is_some() => {
            let which = "only `lastmeter repro ns3` and `lastmeter repro linux`";
            return Err(Complaint(format!("--measure, --scenario: {which}")));
        }
        _ => {}
    }
    let shelf = Shelf::builtin();
    let mut jobs = lastmeter_repro::plan(&arguments.select, &shelf).map_err(complaint)?;
    if common.programs.is_none() && jobs.iter().any(Job::has_plugins) {
        if jobs.len() == 1 || daemon::is_there() {
            return daemon::hand_over(common);
        }
        let left = jobs.extract_if(.., |job| job.has_plugins()).map(|job| job.name().to_owned());
        let left = left.collect::<Vec<_>>().join(", ");
        output::note(&format!("Without {left}, whose plugins lastmeterd runs: `make devices`."));
    }
    let options = Options { seed: common.seed.unwrap_or(1) };
    let threads = Threads::new(common.threads)?;
    let alone = jobs.len() == 1 || jobs.iter().all(Job::is_of_one_id);
    let shown = if arguments.all || alone { Shown::All } else { Shown::Failing };
    let bar = Bar::stopping("repro");
    bar.bar.inc_length(jobs.len() as u64);
    if !alone && !common.json {
        output::note(&format!(
            "{} experiments, each with its summary {}.",
            jobs.len(),
            if arguments.all {
                "and all of its rows"
            } else {
                "and what fails; --all shows all rows"
            }
        ));
    }
    let programs = common.programs.as_deref();
    let means = Effort { parallel: &threads, full: arguments.full, observer: &bar, programs };
    let work = |job: Job| {
        if bar.control.stopped() {
            return Ok(None);
        }
        bar.bar.set_message(job.name().to_owned());
        let (mut plots, mut drawings) = (Vec::new(), Vec::new());
        if arguments.out.is_some() {
            plots = job.plots(options, means).map_err(complaint)?;
            drawings = job.drawings(options, means).map_err(complaint)?;
        }
        let sheet = job.run_with(options, means);
        // An experiment that was stopped lacks runs: its rows would be those of others.
        if bar.control.stopped() {
            return Ok(None);
        }
        let sheet = sheet.map_err(complaint)?;
        let text = if common.json { sheet.json_lines()? } else { sheet.text(shown, style()) };
        Ok::<_, Complaint>(Some((sheet, text, plots, drawings)))
    };
    let (mut sheets, mut plots, mut drawings, mut failed) = (vec![], vec![], vec![], None);
    in_order(&threads, jobs, work, |done| match done {
        Ok(None) => {}
        Ok(Some((sheet, text, more_plots, more_drawings))) => {
            bar.bar.suspend(|| output::print(&text));
            sheets.push(sheet);
            plots.extend(more_plots);
            drawings.extend(more_drawings);
            bar.bar.inc(1);
        }
        Err(error) => {
            bar.control.stop();
            failed = failed.take().or(Some(error));
        }
    });
    let stopped = bar.end();
    if let Some(error) = failed {
        return Err(error);
    }
    let report = Report { sheets };
    if let Some(path) = &arguments.out {
        let page = lastmeter_repro::html::render(&report, &plots, &drawings);
        results::file(path, page.as_bytes())?;
    }
    match common.json {
        true => output::print(&report.json_summary()),
        false => output::print(&report.closing(style())),
    }
    Ok(if report.passes() && !stopped { Ended::Done } else { Ended::Short })
}

pub(crate) fn style() -> Style {
    Style { width: output::width(), colour: output::colours() }
}

pub(crate) fn complaint(error: lastmeter_repro::Error) -> Complaint {
    match error {
        lastmeter_repro::Error::Problems(problems) => crate::run::rendered(&problems),
        other => Complaint(other.to_string()),
    }
}

/// The bundled host of today.
const MODERN: &str = include_str!("../../../profiles/calibrated/epyc-2-cores.toml");

/// A host of today: that of a calibration, or a bundled one.
pub(crate) fn today(host: Option<&Path>) -> Result<Machine, Complaint> {
    let text = match host {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Complaint(format!("{}: {error}", path.display())))?,
        None => MODERN.to_owned(),
    };
    let calibration = Calibration::from_toml(&text)?;
    let host = &calibration.host;
    let what =
        format!("{}, {} cores, Linux {}, as calibrated", host.model, host.cores, host.kernel);
    let seconds = |name: &str| calibration.si(name).map_err(|error| error.to_string());
    Machine::calibrated(what, &seconds).map_err(Complaint)
}

fn modern(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    if arguments.select != "livelock" {
        return Err(Complaint("--modern requires `lastmeter repro livelock`".to_owned()));
    }
    let today = today(arguments.host.as_deref())?;
    let then = Machine::of_1997();
    let ways: Vec<Way> = of_1997().into_iter().chain(of_today()).collect();
    let seed = common.seed.unwrap_or(1);
    let bar = progress::bar((ways.len() + of_1997().len()) as u64);
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
