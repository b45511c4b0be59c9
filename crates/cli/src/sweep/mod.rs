//! `lastmeter sweep`: an experiment, many times.

mod folder;
mod work;

pub use folder::Folder;
pub use work::local;

use crate::threads::Threads;
use crate::world::{self, Disk};
use crate::{Common, Complaint, Ended, daemon, output, progress, run};
use indicatif::ProgressBar;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::run::{Runner, Watch, has_plugins};
use lastmeter_lab::sweep::{Factor, Plan, Report, Request, Row, Schedule, Until, design};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Run an experiment many times, with different values and seeds.
///
/// Every combination of the values of all `--over` is a point; `--zip`, `--random` and `--lhs` choose
/// points otherwise. Each point is run with `--seeds` seeds, the same at all points, or until a
/// confidence interval is narrow enough. Uses all cores. With `--out`, rows are saved as Parquet files
/// while the sweep runs; Ctrl-C keeps them, and `--resume` continues.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The file, the folder, or the name of a bundled experiment; optional with --resume
    #[arg(required_unless_present = "resume")]
    experiment: Option<String>,
    /// What varies: KEY=VALUE,VALUE or KEY=LOW..HIGH or KEY=LOW..HIGH log, with `/ N` for N values
    #[arg(long = "over", value_name = "KEY=VALUES")]
    overs: Vec<String>,
    /// Override one value in all runs; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Combine the first values of all --over, then the second ones, and so on
    #[arg(long, conflicts_with_all = ["random", "lhs"])]
    zip: bool,
    /// Draw N random points
    #[arg(long, value_name = "N", conflicts_with = "lhs")]
    random: Option<u64>,
    /// Draw N points of a Latin hypercube
    #[arg(long, value_name = "N")]
    lhs: Option<u64>,
    /// Run each point with N seeds [default: 1, or 5 with --until]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Repeat until the 95 % confidence interval is this narrow: 'goodput 2 %', 'latency 5 us'
    #[arg(long, value_name = "MEASURE WIDTH")]
    until: Option<String>,
    /// With --until: give up on a point after N runs [default: 200]
    #[arg(long, value_name = "N", requires = "until")]
    most: Option<u64>,
    /// Write plan.json, sweep.json and the data sets runs/ and paths/ into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Continue the sweep in --out
    #[arg(long, requires = "out")]
    resume: bool,
    /// Run on a cluster: the address of a Dask scheduler, `local:N`, or `slurm:N` for N jobs
    #[arg(long, value_name = "ADDRESS", requires = "out")]
    cluster: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  lastmeter sweep mm1 --over traffic.customers.poisson.rate='1 Gbit/s..7 Gbit/s / 7' --seeds 5
  lastmeter sweep first-path --over links.0.queue.drop-tail.packets=20,50,200 \\
                             --over traffic.stream.constant.rate='10 Mbit/s,18 Mbit/s' --out out
  lastmeter sweep dumbbell --over links.1.delay='1 ms..100 ms log' --lhs 20 --quick
  lastmeter sweep mm1 --over traffic.customers.poisson.rate='6.4 Gbit/s' --until 'latency 2 %'
  lastmeter sweep --resume --out out";

/// A sweep that is about to start or continue.
struct Prepared {
    plan: Plan,
    folder: Option<Folder>,
    rows: Vec<Row>,
}

pub(crate) fn sweep(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    if let Some(named) = &arguments.experiment {
        let found = world::experiment(named)?;
        if lacks_sandbox(common, &found.name, &found.text, Disk::new(found.folder)) {
            return daemon::hand_over(common);
        }
    }
    let Prepared { plan, mut folder, mut rows } = begin(common, arguments)?;
    let disk = Disk::new(plan.folder.as_ref().map(PathBuf::from));
    if lacks_sandbox(common, &plan.experiment, plan.text.as_bytes(), disk) {
        // It continues the sweep in the folder.
        drop(folder);
        return daemon::hand_over(common);
    }
    let out = arguments.out.as_deref();
    if let (Some(address), Some(out)) = (&arguments.cluster, out) {
        drop(folder);
        return cluster(common, address, out);
    }
    let schedule = Schedule::resume(&plan, &rows)?;
    let (before, ..) = schedule.progress();
    let schedule = Mutex::new(schedule);
    let disk = Disk::new(plan.folder.as_ref().map(PathBuf::from)).with(common.programs.clone());
    let threads = Threads::new(common.threads)?;
    let watch = Arc::new(Watch::default());
    let runner =
        Runner { parallel: &threads, threads: threads.count(), library: &disk, watch: &watch };
    let look = |bar: &ProgressBar| {
        let (done, failed, expected) =
            schedule.lock().unwrap_or_else(PoisonError::into_inner).progress();
        bar.set_length(expected);
        bar.set_position(done);
        bar.set_message(match failed {
            0 => format!("{done} of {expected} runs"),
            _ => format!("{done} of {expected}, {failed} failed"),
        });
    };
    let bar = progress::bar(1).with_position(before);
    let added =
        progress::drawn(&watch, bar, look, || local(&plan, &schedule, folder.as_mut(), runner));
    rows.extend(added?);
    let schedule = schedule.into_inner().unwrap_or_else(PoisonError::into_inner);
    let report = Report::new(&plan, &rows, &schedule);
    if let Some(folder) = &folder {
        folder.conclude(&report)?;
    }
    match common.json {
        true => output::print(&format!("{:#}", report.json())),
        false => output::print(&report.table(output::width())),
    }
    if let Some(out) = out {
        output::note(&format!("Written to {}", out.display()));
    }
    let done = report.complete && report.failed == 0 && report.wide.is_empty();
    Ok(if done { Ended::Done } else { Ended::Short })
}

/// Whether an experiment has plugins, which only another program can run.
fn lacks_sandbox(common: &Common, name: &str, text: &[u8], disk: Disk) -> bool {
    common.programs.is_none()
        && Experiment::parse(name, text, &[], &disk).is_ok_and(|parsed| has_plugins(&parsed))
}

/// The plan from the arguments, or from the folder.
fn begin(common: &Common, arguments: &Arguments) -> Result<Prepared, Complaint> {
    let asked = match &arguments.experiment {
        Some(named) => Some(plan(common, arguments, named)?),
        None if arguments.overs.is_empty() => None,
        None => return Err(Complaint("--over requires an experiment: name it too".to_owned())),
    };
    match (&arguments.out, asked) {
        (Some(out), asked) if arguments.resume && Folder::is_there(out) => {
            let (folder, rows) = Folder::open(out)?;
            let plan = folder.plan().clone();
            if let Some(other) = asked.filter(|asked| *asked != plan) {
                let out = out.display();
                return Err(Complaint(format!(
                    "`{out}` holds another sweep ({}, {} points, {} seeds from {}); this would be \
                     ({}, {} points, {} seeds from {}): omit the experiment to continue that one",
                    plan.design,
                    plan.points.len(),
                    plan.replicates,
                    plan.seed,
                    other.design,
                    other.points.len(),
                    other.replicates,
                    other.seed,
                )));
            }
            Ok(Prepared { plan, folder: Some(folder), rows })
        }
        (Some(out), Some(plan)) => {
            let folder = Folder::create(out, plan.clone())?;
            Ok(Prepared { plan, folder: Some(folder), rows: Vec::new() })
        }
        (None, Some(plan)) => Ok(Prepared { plan, folder: None, rows: Vec::new() }),
        (Some(out), None) => {
            Err(Complaint(format!("there is no sweep in `{}` to continue", out.display())))
        }
        (None, None) => Err(Complaint("name an experiment".to_owned())),
    }
}

fn plan(common: &Common, arguments: &Arguments, named: &str) -> Result<Plan, Complaint> {
    let found = world::experiment(named)?;
    let factors: Vec<Factor> =
        arguments.overs.iter().map(|text| Factor::parse(text)).collect::<Result<_, _>>()?;
    // Points are drawn from a stream of their own, seeded by --seed.
    let drawn = common.seed.unwrap_or(1);
    let (points, words) = match (arguments.zip, arguments.random, arguments.lhs) {
        (true, ..) => (design::list(&factors)?, "values taken together".to_owned()),
        (_, Some(count), _) => {
            (design::random(&factors, count, drawn)?, format!("random, seed {drawn}"))
        }
        (.., Some(count)) => {
            (design::latin(&factors, count, drawn)?, format!("Latin hypercube, seed {drawn}"))
        }
        _ => (design::grid(&factors)?, "grid".to_owned()),
    };
    let until = arguments.until.as_deref().map(Until::parse).transpose()?;
    let most = arguments.most;
    let until = until.map(|until| Until { most: most.unwrap_or(until.most), ..until });
    let text = String::from_utf8(found.text)
        .map_err(|_| Complaint(format!("`{named}` is not UTF-8 text")))?;
    let folder = found.folder.as_deref().map(absolute).transpose()?;
    let request = Request {
        experiment: found.name,
        text,
        folder: folder.map(|folder| folder.display().to_string()),
        sets: arguments.sets.clone(),
        factors,
        points,
        design: words,
        seed: common.seed,
        replicates: arguments.seeds,
        until,
        quick: common.quick,
    };
    let disk = Disk::new(found.folder);
    Plan::new(request, &disk).map_err(|problems| run::complaint(common, &problems))
}

/// Absolute, so that a sweep can be continued from any working directory.
fn absolute(folder: &Path) -> Result<PathBuf, Complaint> {
    std::path::absolute(folder)
        .map_err(|error| Complaint(format!("`{}`: {error}", folder.display())))
}

/// The Python package talks to clusters; it continues the sweep in the folder.
fn cluster(common: &Common, address: &str, out: &Path) -> Result<Ended, Complaint> {
    let python = std::env::var_os("LASTMETER_PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = std::process::Command::new(&python);
    command.args(["-m", "lastmeter.cluster"]).arg(out).arg(address);
    if common.json {
        command.arg("--json");
    }
    let status = command.status().map_err(|error| {
        Complaint(format!("cannot run `{}`: {error}", python.to_string_lossy()))
    })?;
    match status.code() {
        Some(0) => Ok(Ended::Done),
        Some(code) => Ok(Ended::Status(u8::try_from(code).unwrap_or(2))),
        None => Ok(Ended::Short),
    }
}
