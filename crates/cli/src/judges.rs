//! `lastmeter repro theory`, `lastmeter repro ns3` and `lastmeter repro linux`: the simulator beside what is no paper.

use crate::emulate::kernel;
use crate::repro::{Arguments, Bar, complaint, style};
use crate::threads::Threads;
use crate::{Common, Complaint, Ended, bench, output, run};
use lastmeter_engine::Control;
use lastmeter_judge::{linux, ns3, theory};
use lastmeter_repro::{Effort, Observer};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// The simulator judged by queueing theory, in as many runs as there is time for.
pub(crate) fn theory(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    no_page(arguments, "theory")?;
    let threads = Threads::new(common.threads)?;
    let bar = Bar::stopping("theory");
    let means = Effort { parallel: &threads, full: arguments.full, observer: &bar, programs: None };
    let runs = match (common.quick, arguments.full) {
        (true, _) => theory::RUNS_FEW,
        (_, true) => theory::RUNS_MANY,
        _ => theory::RUNS,
    };
    let report = theory::run(common.seed.unwrap_or(1), runs, means).map_err(complaint)?;
    let stopped = bar.end();
    match common.json {
        true => output::print(&report.json_lines()?),
        false => output::print(&report.table(style())),
    }
    Ok(if report.passes() && !stopped { Ended::Done } else { Ended::Short })
}

/// The simulator judged by ns-3, which is run only where it is measured anew.
pub(crate) fn ns3(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    no_page(arguments, "ns3")?;
    let threads = Threads::new(common.threads)?;
    let bar = Bar::stopping("ns3");
    let means = Effort { parallel: &threads, full: false, observer: &bar, programs: None };
    let mut kept = None;
    if let Some(path) = &arguments.measure {
        measure(path, means)?;
        if means.observer.stopped() {
            bar.end();
            return Ok(Ended::Short);
        }
        kept = Some(read(path)?);
    }
    let seeds = if common.quick { ns3::SEEDS_FEW } else { ns3::SEEDS };
    let select = arguments.scenario.as_deref().unwrap_or_default();
    let from = (common.seed.unwrap_or(1), seeds);
    let report = ns3::run(select, from, kept.as_deref(), means).map_err(complaint)?;
    let stopped = bar.end();
    if report.rows.is_empty() && !stopped {
        return Err(Complaint(format!("--scenario: the name of none has `{select}`")));
    }
    match common.json {
        true => output::print(&report.json_lines()?),
        false => output::print(&report.table(style())),
    }
    Ok(if report.passes() && !stopped { Ended::Done } else { Ended::Short })
}

/// The model's TCP judged by Linux's, which sends only where it is measured anew.
pub(crate) fn linux(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    no_page(arguments, "linux")?;
    let threads = Threads::new(common.threads)?;
    let bar = Bar::stopping("linux");
    let means = Effort { parallel: &threads, full: false, observer: &bar, programs: None };
    let select = arguments.scenario.as_deref().unwrap_or_default();
    let mut kept = None;
    if let Some(path) = &arguments.measure {
        measure_linux(common, path, select, &bar)?;
        kept = Some(read(path)?);
    }
    let seeds = if common.quick { linux::SEEDS_FEW } else { linux::SEEDS };
    let from = (common.seed.unwrap_or(1), seeds);
    let report = linux::run(select, from, kept.as_deref(), means).map_err(complaint)?;
    let stopped = bar.end();
    if report.rows.is_empty() && !stopped {
        return Err(Complaint(format!("--scenario: there are no runs of any that has `{select}`")));
    }
    match common.json {
        true => output::print(&report.json_lines()?),
        false => output::print(&report.table(style())),
    }
    Ok(if report.passes() && !stopped { Ended::Done } else { Ended::Short })
}

/// Has Linux send where the file lacks a run, and adds each to it as it comes.
fn measure_linux(common: &Common, path: &Path, select: &str, bar: &Bar) -> Result<(), Complaint> {
    /// A run during which the emulator did not keep up is done again, so often at most.
    const ATTEMPTS: u32 = 3;
    let text = if path.exists() { read(path)? } else { String::new() };
    let missing = linux::missing(&text, select).map_err(complaint)?;
    let complain = |error: std::io::Error| Complaint(format!("{}: {error}", path.display()));
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(complain)?;
    if text.is_empty() {
        file.write_all(linux::HEADER.as_bytes()).map_err(complain)?;
    }
    let kernel = kernel::release();
    bar.planned(missing.len() as u64);
    for (scenario, number) in missing {
        let mut found = None;
        for _ in 0..ATTEMPTS {
            if bar.stopped() {
                return Ok(());
            }
            let control = Arc::new(Control::default());
            found = kernel::measure(&scenario, linux::LEFT_OUT, linux::LASTS, &control)
                .map_err(|failure| run::failed(common, failure))?;
            if found.is_some() {
                break;
            }
        }
        let Some(found) = found else {
            let why = "the emulator did not keep up, or there is no iperf3";
            return Err(Complaint(format!("{}: {why}", scenario.name)));
        };
        let line = linux::line(&scenario.name, number, &kernel, &found);
        file.write_all(line.as_bytes()).map_err(complain)?;
        bar.done();
    }
    Ok(())
}

fn no_page(arguments: &Arguments, judge: &str) -> Result<(), Complaint> {
    match arguments.out {
        Some(_) => Err(Complaint(format!("--out: {judge} has a table and no page; use --json"))),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<String, Complaint> {
    std::fs::read_to_string(path).map_err(|error| Complaint(format!("{}: {error}", path.display())))
}

/// Runs ns-3 where the file lacks a run, and adds each to it as it comes.
fn measure(path: &Path, means: Effort<'_>) -> Result<(), Complaint> {
    let program = bench::ns3_path()?;
    let text = if path.exists() { read(path)? } else { String::new() };
    let complain = |error: std::io::Error| Complaint(format!("{}: {error}", path.display()));
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(complain)?;
    if text.is_empty() {
        file.write_all(ns3::HEADER.as_bytes()).map_err(complain)?;
    }
    let file = Mutex::new(file);
    let ask = |description: &str| {
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut input = child.stdin.take().ok_or("it takes no input")?;
        input.write_all(description.as_bytes()).map_err(|error| error.to_string())?;
        drop(input);
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => String::from_utf8(output.stdout).map_err(|error| error.to_string()),
            false => Err(format!("ns-3 ended with {}", output.status)),
        }
    };
    let keep = |line: &str| {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).map_err(|error| error.to_string())
    };
    ns3::measure(&text, means, &ask, &keep).map_err(complaint)?;
    // The first runs say which cells are to be judged by more.
    ns3::measure(&read(path)?, means, &ask, &keep).map_err(complaint)
}
