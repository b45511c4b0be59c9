//! A run of the page: a process that reads a job, runs it, and reports its progress.

use super::events::{Course, Event, Figures, Job, Live, Progress};
use super::files::Confined;
use super::shelf::TEXT_MAX;
use super::view::{Sums, curves, view};
use crate::threads::Threads;
use crate::{Common, Complaint, Ended, results};
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::run::{Failure, Runner, Search, SoFar, Watch, explain, ledger};
use lastmeter_ledger::Ledger;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often progress is reported, and at most the ledger.
const EVERY: Duration = Duration::from_millis(200);
/// A run whose server is gone ends after this time, whatever it does.
const GRACE: Duration = Duration::from_secs(5);
/// Sampling a run takes at most this fraction (1/N) of its time.
const SHARE: u32 = 20;
/// The file that holds the course.
pub(super) const COURSE: &str = "course.json";

/// Does one job and reports on standard output only.
pub(super) fn work(common: &Common) -> Result<Ended, Complaint> {
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    // Each character of a text takes at most six in JSON; the rest are names.
    input.by_ref().take(8 * TEXT_MAX as u64).read_line(&mut line)?;
    let job: Job = serde_json::from_str(&line)?;
    lastmeter_linux::memory::limit(job.memory)?;
    let watching: Arc<OnceLock<Arc<Watch>>> = Arc::default();
    let sampler = Arc::new(Sampler::new(watching.clone()));
    let follower = sampler.clone();
    let watch = Arc::new(Watch::followed(move |so_far| follower.look(so_far)));
    let _ = watching.set(watch.clone());
    let (stopping, listening) = (watch.clone(), input);
    std::thread::spawn(move || obey(listening, &stopping));
    let threads = Threads::new(job.threads.or(common.threads))?;
    let ended = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        let ticking = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                sampler.tell_progress(&watch);
                std::thread::park_timeout(EVERY);
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&job, &threads, &watch, &sampler)
        }));
        ended.store(true, Ordering::Relaxed);
        ticking.thread().unpark();
        result
    });
    sampler.tell(&match told {
        Ok(Ok(event)) => event,
        Ok(Err(Complaint(words))) => Event::Failed { words, problems: Vec::new() },
        Err(_) => {
            let words = "the model panicked: this is a bug in the program, not in the file";
            Event::Failed { words: words.to_owned(), problems: Vec::new() }
        }
    });
    Ok(Ended::Done)
}

/// Stops the run when told to; ends the process when the server is gone.
fn obey(mut input: impl BufRead, watch: &Watch) {
    let mut line = String::new();
    while input.by_ref().take(64).read_line(&mut line).is_ok_and(|length| length > 0) {
        watch.control.stop();
        line.clear();
    }
    watch.control.stop();
    std::thread::sleep(GRACE);
    std::process::exit(1);
}

fn run(job: &Job, threads: &Threads, watch: &Watch, sampler: &Sampler) -> Result<Event, Complaint> {
    let library = match &job.within {
        None => Confined::bundled(),
        Some((at, root)) => Confined::new(at.clone(), root.clone()),
    };
    let failed = |failure: Failure| match failure {
        Failure::Problems(problems) => Event::Failed {
            words: problems.first().map_or_else(String::new, ToString::to_string),
            problems: problems.iter().filter_map(|p| serde_json::to_value(p).ok()).collect(),
        },
        other => Event::Failed { words: other.to_string(), problems: Vec::new() },
    };
    let seed = job.seed.map(|seed| Override::parse(&format!("seed={seed}"))).transpose();
    let parsed =
        seed.and_then(|seed| Experiment::parse(&job.name, &job.text, seed.as_slice(), &library));
    let mut experiment = match parsed {
        Ok(experiment) => experiment,
        Err(problems) => return Ok(failed(Failure::Problems(problems))),
    };
    if job.quick {
        experiment.duration = experiment.duration / 10;
    }
    sampler.tell(&Event::Begun { title: experiment.title.clone() });
    let runner = Runner { parallel: threads, threads: threads.count(), library: &library, watch };
    let ledger = match job.quick {
        true => ledger(&experiment, runner),
        false => explain(&experiment, Search::Rounds, 0, runner).map(|explained| explained.ledger),
    };
    let ledger = match ledger {
        Ok(ledger) => ledger,
        Err(failure) => return Ok(failed(failure)),
    };
    let figures = figures(&ledger);
    results::write(&job.results, &ledger)?;
    let size = std::fs::metadata(job.results.join(results::JSON))?.len();
    results::save(&job.results, COURSE, &serde_json::to_vec(&sampler.course())?)?;
    Ok(Event::Done { figures, partial: ledger.provenance.partial, size })
}

fn figures(ledger: &Ledger) -> Figures {
    Figures {
        duration: ledger.duration,
        goodput: ledger.goodput(),
        latency: ledger.latency(),
        loss: ledger.loss(),
        paths: ledger.paths.len(),
        limits: ledger.verdict.as_ref().and_then(|verdict| verdict.resource.clone()),
    }
}

/// Samples the run periodically and reports to the server.
struct Sampler {
    watch: Arc<OnceLock<Arc<Watch>>>,
    state: Mutex<Sampling>,
    /// Share of the first run that is done, as the bits of an `f64`.
    share: AtomicU64,
}

struct Sampling {
    course: Course,
    /// Points already reported.
    told: usize,
    sums: Sums,
    looked: Instant,
    cost: Duration,
    last_told: Option<Instant>,
}

impl Sampler {
    fn new(watch: Arc<OnceLock<Arc<Watch>>>) -> Sampler {
        let state = Sampling {
            course: Course::default(),
            told: 0,
            sums: Sums::default(),
            looked: Instant::now(),
            cost: Duration::ZERO,
            last_told: None,
        };
        Sampler { watch, state: Mutex::new(state), share: AtomicU64::new(0) }
    }

    fn look(&self, so_far: &SoFar<'_>) {
        self.share.store(so_far.share.to_bits(), Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let last = so_far.share >= 1.0;
        if !last && state.looked.elapsed() < state.cost * SHARE {
            return;
        }
        let began = Instant::now();
        // An imbalance is reported at the end of the run.
        let Ok(ledger) = so_far.ledger() else { return };
        let sums = Sums::of(&ledger);
        if let Some(point) = sums.since(&state.sums) {
            state.course.points.push(point);
        }
        state.sums = sums;
        if last || state.last_told.is_none_or(|told| told.elapsed() >= EVERY) {
            let names = curves(&ledger);
            let points = state.course.points[state.told..].to_vec();
            let course = Course { points, ..names.clone() };
            self.tell(&Event::Live(Live { view: view(&ledger, 0, 0), course }));
            (state.course.paths, state.course.resources) = (names.paths, names.resources);
            state.told = state.course.points.len();
            state.last_told = Some(Instant::now());
        }
        state.cost = began.elapsed();
        state.looked = Instant::now();
    }

    fn course(&self) -> Course {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).course.clone()
    }

    fn tell_progress(&self, watch: &Watch) {
        let (first, done, of) = watch.progress();
        let share = first.max(f64::from_bits(self.share.load(Ordering::Relaxed)));
        self.tell(&Event::Progress(Progress { share, done, of }));
    }

    /// A server that no longer listens has ended, and then the run ends, too.
    fn tell(&self, event: &Event) {
        let Ok(mut line) = serde_json::to_vec(event) else { return };
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(&line).and_then(|()| out.flush()).is_err()
            && let Some(watch) = self.watch.get()
        {
            watch.control.stop();
        }
    }
}
