//! `lastmeter dq`: distributed queueing on threads, in real time, and what its backlog cells show.
//!
//! Eight ports run on threads of their own, as the processors of the prototype did. They exchange packets
//! and backlog cells, and nothing else; a monitor records the cells, and all figures are drawn from those
//! (D-122, D-124, D-125).

use crate::{Common, Complaint, Ended, output, results};
use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_lan::fabric::model::Options;
use lastmeter_lan::fabric::prototype::{Port, Sent};
use lastmeter_lan::fabric::stress::Load;
use lastmeter_ledger::html;
use lastmeter_repro::dq::{self, Backlogs, Cell};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// Run the stress load of distributed queueing on eight threads, and plot the reported backlogs
///
/// Exits with 1 when the threads reported too many periods late, so that the figures cannot be trusted.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Plot the cells of this capture instead of running anything
    #[arg(long, value_name = "FILE", conflicts_with_all = ["capture", "slow"])]
    replay: Option<PathBuf>,
    /// Write all backlog cells to this pcap file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Write Figs 19 to 21 as one HTML page here
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Slow the experiment down by this factor
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = slow())]
    slow: u32,
}

fn slow() -> impl clap::builder::TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=1000)
}

const EXAMPLES: &str = "\
Examples:
  lastmeter dq                                   the stress load, beside what was published
  lastmeter dq --capture dq.pcap --out dq.html   save the cells and plot the figures
  lastmeter dq --replay dq.pcap                  the same from the cells alone";

/// The longest sleep of a port, in the experiment's own time, before it looks for packets and cells again.
const NAP: Duration = Duration::from_us(100);
/// A period reported more than half a period late counts as late; this share of them may be.
const LATE_MAX: f64 = 0.1;

/// What a port receives.
enum Mail {
    Packet(Bytes),
    Cell(Cell),
}

/// What all threads share.
struct Shared {
    options: Options,
    load: Load,
    began: Instant,
    slow: u32,
    /// The stage of the load, from 0.
    stage: AtomicUsize,
}

impl Shared {
    /// The experiment's own time.
    fn now(&self) -> Time {
        let nanoseconds = self.began.elapsed().as_nanos() / u128::from(self.slow);
        Time::START + Duration::from_ns(u64::try_from(nanoseconds).unwrap_or(u64::MAX / 1000))
    }
}

/// The result of a run.
struct Ran {
    cells: Vec<(Time, Cell)>,
    /// Periods reported, how many of them late, and the worst lateness.
    told: u64,
    late: u64,
    worst: Duration,
    lost: u64,
}

pub(crate) fn dq(common: &Common, arguments: &Arguments) -> Result<Ended, Complaint> {
    results::prepare_file(arguments.out.as_deref())?;
    results::prepare_file(arguments.capture.as_deref())?;
    let (options, mut load) = dq::table().map_err(|error| Complaint(error.to_string()))?;
    let mut kept_up = true;
    let cells: Vec<Backlogs> = match &arguments.replay {
        Some(path) => {
            let fault =
                |error: &dyn std::fmt::Display| Complaint(format!("`{}`: {error}", path.display()));
            let file = std::fs::read(path).map_err(|error| fault(&error))?;
            dq::read(&file).map_err(|error| fault(&error))?
        }
        None => {
            // Long enough for the sources to end and for input 1 to drain.
            load.periods = if common.quick { 450 } else { 1000 };
            let ran = run(options, load, arguments.slow)?;
            if let Some(path) = &arguments.capture {
                results::file(path, &dq::capture(&ran.cells)?)?;
            }
            let share = ran.late as f64 / ran.told.max(1) as f64;
            kept_up = share <= LATE_MAX;
            output::note(&format!(
                "{} of {} periods reported late, worst {}; {} B lost",
                ran.late, ran.told, ran.worst, ran.lost
            ));
            let parsed = ran.cells.iter().map(|(_, cell)| Backlogs::parse(cell));
            parsed.collect::<Result<_, _>>()?
        }
    };
    let samples = dq::samples(&cells, options, load);
    if samples.is_empty() {
        return Err(Complaint("there is no period that all ports have reported".to_owned()));
    }
    if let Some(path) = &arguments.out {
        let page = html::curves("Distributed queueing on threads", &dq::plots(&samples, load));
        results::file(path, page.as_bytes())?;
    }
    for reading in dq::readings(&samples, options, load) {
        output::print(&match common.json {
            true => serde_json::to_string(&reading)?,
            false => format!(
                "{:<20} {:>8.1} {:<8} published {:.1}",
                reading.item, reading.measured, reading.unit, reading.published
            ),
        });
    }
    Ok(if kept_up { Ended::Done } else { Ended::Short })
}

/// Runs the load on one thread per port, and records the cells as they arrive.
fn run(options: Options, load: Load, slow: u32) -> Result<Ran, Complaint> {
    let shared = Shared { options, load, began: Instant::now(), slow, stage: AtomicUsize::new(0) };
    let (boxes, mail): (Vec<_>, Vec<_>) = (0..options.ports).map(|_| channel()).unzip();
    let (monitor, captured) = channel();
    let ports: Vec<Port> =
        (0..options.ports).map(|number| Port::new(options, number)).collect::<Result<_, _>>()?;
    let (mut ran, end) = (
        Ran { cells: Vec::new(), told: 0, late: 0, worst: Duration::ZERO, lost: 0 },
        Time::START + options.period * load.periods,
    );
    std::thread::scope(|scope| {
        let threads: Vec<_> = ports
            .into_iter()
            .zip(mail)
            .enumerate()
            .map(|(number, (port, mail))| {
                let worker = Worker {
                    number,
                    port,
                    mail,
                    boxes: boxes.clone(),
                    monitor: monitor.clone(),
                    next: Time::START,
                };
                let shared = &shared;
                scope.spawn(move || worker.run(shared, end))
            })
            .collect();
        drop(monitor);
        ran.cells.extend(captured);
        for thread in threads {
            // A thread that panics ends the program with its own message.
            let Ok((told, late, worst, lost)) = thread.join() else { continue };
            ran.told += told;
            ran.late += late;
            ran.worst = ran.worst.max(worst);
            ran.lost += lost;
        }
    });
    Ok(ran)
}

/// A port on its thread.
struct Worker {
    number: usize,
    port: Port,
    mail: Receiver<Mail>,
    boxes: Vec<Sender<Mail>>,
    monitor: Sender<(Time, Cell)>,
    /// When its source sends next.
    next: Time,
}

impl Worker {
    /// Runs until the end: periods reported, how many late, the worst lateness, and bytes lost.
    fn run(mut self, shared: &Shared, end: Time) -> (u64, u64, Duration, u64) {
        let period = shared.options.period;
        let (mut told, mut late, mut worst) = (0, 0, Duration::ZERO);
        let mut sent = Vec::new();
        loop {
            let now = shared.now().min(end);
            self.offer(shared, now);
            while let Ok(mail) = self.mail.try_recv() {
                match mail {
                    Mail::Packet(len) => self.port.arrive(now, len),
                    Mail::Cell(cell) => self.port.hear(&cell),
                }
            }
            self.port.advance(now, &mut sent);
            for sent in sent.drain(..) {
                match sent {
                    // A port that has ended takes nothing more.
                    Sent::Packet { output, len } => {
                        drop(self.boxes[output].send(Mail::Packet(len)))
                    }
                    Sent::Cell(cell) => {
                        told += 1;
                        let lateness = now.saturating_since(Time::START + period * told);
                        late += u64::from(lateness > period / 2);
                        worst = worst.max(lateness);
                        let all = self.boxes.iter();
                        all.for_each(|other| drop(other.send(Mail::Cell(cell))));
                        let _ = self.monitor.send((now, cell));
                        self.change_stage(shared, told);
                    }
                }
            }
            if now >= end {
                return (told, late, worst, self.port.lost());
            }
            let idle = self.port.ready_at().saturating_since(shared.now()).min(NAP);
            if !idle.is_zero() {
                let wall = std::time::Duration::from_nanos(idle.as_ps() / 1000) * shared.slow;
                std::thread::sleep(wall);
            }
        }
    }

    /// What the source of this port has sent by now.
    fn offer(&mut self, shared: &Shared, now: Time) {
        let gap = shared.options.link.time_for(shared.load.len);
        while self.next < now {
            let stage = shared.stage.load(Ordering::Relaxed);
            let last = stage + 1 == shared.load.stages;
            let sources = if last { 1 } else { shared.load.sources };
            if self.number < sources {
                self.port.offer(self.next, stage, shared.load.len);
            }
            self.next += gap;
        }
    }

    /// Input 1 ends a stage by the load's rule, at the end of a period.
    fn change_stage(&self, shared: &Shared, told: u64) {
        let stage = shared.stage.load(Ordering::Relaxed);
        if self.number != 0 || stage + 1 == shared.load.stages {
            return;
        }
        let over = match stage {
            0 => told >= shared.load.first,
            _ => self.port.waiting(stage) >= self.port.waiting(stage - 1),
        };
        if over {
            shared.stage.store(stage + 1, Ordering::Relaxed);
        }
    }
}
