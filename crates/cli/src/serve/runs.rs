//! The runs: each is a process that is started, listened to and stopped.

use super::events::{Event, Job, Live, Progress};
use super::route::Named;
use super::shelf::{Shelf, title_of};
use super::site::Fault;
use super::store::{self, Record, Status, Store};
use crate::Complaint;
use hyper::StatusCode;
use lastmeter_base::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// Most runs waiting.
const WAITING_MAX: usize = 32;
/// Longer lines are not events.
const EVENT_MAX: u64 = 64 << 20;
/// A run that was told to stop is killed after this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// The line that tells a run to stop.
const STOP: &[u8] = b"stop\n";
/// Length of the user's note on a run.
const NOTE_MAX: usize = 200;

/// Settings of all runs of this server.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Where results go; `None` for a folder that is deleted when the server ends.
    pub(super) out: Option<PathBuf>,
    pub(super) at_once: usize,
    pub(super) seed: Option<u64>,
    pub(super) quick: bool,
    pub(super) threads: Option<usize>,
    /// Bytes of memory that a run may take.
    pub(super) memory: u64,
}

#[derive(Debug)]
pub(super) struct Runs {
    settings: Settings,
    pub(super) store: Store,
    state: Mutex<State>,
    /// Counts changes, to notify whoever waits for one.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    runs: BTreeMap<u64, Run>,
    /// Counts changes of what the list shows.
    listed: u64,
    closed: bool,
}

#[derive(Debug)]
struct Run {
    record: Record,
    /// Counts its own changes.
    changes: u64,
    progress: Progress,
    live: Option<Live>,
    /// Counts its live views.
    views: u64,
    /// What it will run, while it waits.
    job: Option<Job>,
    process: Option<Process>,
    began: Instant,
}

#[derive(Debug)]
struct Process {
    child: Child,
    input: ChildStdin,
}

/// A page's request to run an experiment.
#[derive(Debug)]
pub(super) struct RunRequest {
    pub(super) named: Named,
    pub(super) text: String,
    pub(super) note: String,
    pub(super) quick: bool,
}

/// What a page has already seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    listed: Option<u64>,
    run: Option<u64>,
    views: u64,
    points: usize,
}

impl Runs {
    /// # Errors
    /// The folder for results cannot be made.
    pub(super) fn new(settings: Settings) -> Result<Arc<Runs>, Complaint> {
        let store = Store::new(settings.out.clone())?;
        let run = |record: Record| (record.id, Run::new(record, None));
        let runs: BTreeMap<u64, Run> = store.records().into_iter().map(run).collect();
        let last = runs.keys().next_back().copied().unwrap_or(0);
        let state = Mutex::new(State { last, runs, ..State::default() });
        Ok(Arc::new(Runs { settings, store, state, changes: watch::Sender::new(0) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of memory that a run may take.
    pub(super) fn memory(&self) -> u64 {
        self.settings.memory
    }

    /// Notifies of every change from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Changes a run and notifies whoever waits; `listed` where this changes the list.
    fn change(&self, id: u64, listed: bool, change: impl FnOnce(&mut Run)) {
        let mut state = self.state();
        if listed {
            state.listed += 1;
        }
        if let Some(run) = state.runs.get_mut(&id) {
            change(run);
            run.changes += 1;
        }
        drop(state);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Starts a run, or queues it.
    ///
    /// # Errors
    /// There are too many already, or its folder cannot be written.
    pub(super) fn begin(
        self: &Arc<Self>,
        request: RunRequest,
        shelf: &Shelf,
    ) -> Result<u64, Fault> {
        let full = |words| Err(Fault::new(StatusCode::TOO_MANY_REQUESTS, words));
        let mut state = self.state();
        let waiting = state.runs.values().filter(|run| run.job.is_some()).count();
        if state.closed || waiting >= WAITING_MAX {
            return full("too many runs are waiting already: stop one");
        }
        if !self.store.has_room(state.runs.len()) {
            return full(
                "the folder of results is full: delete some runs, or choose another folder",
            );
        }
        let RunRequest { named, text, note, quick } = request;
        let quick = quick || self.settings.quick;
        let storage = |Complaint(w)| Fault::new(StatusCode::INSUFFICIENT_STORAGE, w);
        let id = self.store.claim(state.last + 1).map_err(storage)?;
        let record = Record {
            id,
            experiment: key_of(&named),
            title: title_of(&named),
            note: note.chars().filter(|c| !c.is_control()).take(NOTE_MAX).collect(),
            quick,
            stands: Status::Waiting,
            words: String::new(),
            problems: Vec::new(),
            figures: None,
            size: 0,
            began: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            took: 0.0,
        };
        self.store.begin(&record, &text).map_err(storage)?;
        let job = Job {
            name: title_of(&named),
            text,
            within: shelf.library(&named).within().cloned(),
            results: self.store.path(id),
            quick,
            seed: self.settings.seed,
            threads: self.settings.threads,
            memory: self.settings.memory,
        };
        state.last = id;
        state.listed += 1;
        state.runs.insert(id, Run::new(record, Some(job)));
        drop(state);
        self.start_next();
        Ok(id)
    }

    /// Starts waiting runs, as far as there is room.
    fn start_next(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let run_now =
                |run: &&mut Run| matches!(run.record.stands, Status::Running | Status::Stopping);
            let running = state.runs.values_mut().filter(run_now).count();
            let next = state.runs.values_mut().find(|run| run.job.is_some());
            let Some(run) = next.filter(|_| running < self.settings.at_once) else { break };
            let Some(job) = run.job.take() else { break };
            run.record.stands = Status::Running;
            run.began = Instant::now();
            run.changes += 1;
            let id = run.record.id;
            state.listed += 1;
            drop(state);
            let runs = self.clone();
            std::thread::spawn(move || {
                if let Err(Complaint(words)) = runs.supervise(id, &job) {
                    runs.change(id, true, |run| run.fail(words, Vec::new()));
                }
                runs.conclude(id);
                runs.start_next();
            });
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Starts a run's process and listens until it has ended.
    fn supervise(&self, id: u64, job: &Job) -> Result<(), Complaint> {
        let mut command = program();
        let words = store::words_of(&job.results)?;
        command.args(["serve", "--worker"]).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(words);
        let mut child = command
            .spawn()
            .map_err(|error| Complaint(format!("the run cannot be started: {error}")))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(mut input), Some(output)) = (input, output) else {
            return Err(Complaint("the run has no pipes".to_owned()));
        };
        let mut line = serde_json::to_vec(job)?;
        line.push(b'\n');
        // If the process does not listen, its exit status says why.
        let _ = input.write_all(&line).and_then(|()| input.flush());
        self.change(id, false, |run| {
            if run.record.stands == Status::Stopping {
                let _ = input.write_all(STOP);
            }
            run.process = Some(Process { child, input });
        });
        self.listen(id, BufReader::new(output));
        let process = self.state().runs.get_mut(&id).and_then(|run| run.process.take());
        let status = process.map(|mut process| process.child.wait()).transpose()?;
        let over = self.state().runs.get(&id).is_none_or(|run| run.record.stands.is_over());
        if !over {
            let status = status.map_or_else(String::new, |status| format!(" ({status})"));
            let mut words = format!("the run ended without a result{status}");
            let last = self.store.last_words(id);
            if last.contains("memory allocation of") {
                let most = Bytes(self.settings.memory);
                words += &format!(
                    "; it needed more than {most} of memory, which --memory and --at-once decide"
                );
            }
            if !last.is_empty() {
                words += &format!("\n{last}");
            }
            return Err(Complaint(words));
        }
        Ok(())
    }

    fn listen(&self, id: u64, mut output: impl BufRead) {
        let mut line = Vec::new();
        while output.by_ref().take(EVENT_MAX).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            // Anything else that a model printed is not an event.
            if let Ok(event) = serde_json::from_slice::<Event>(&line) {
                self.hear(id, event);
            }
            line.clear();
        }
    }

    fn hear(&self, id: u64, event: Event) {
        match event {
            Event::Begun { title } => self.change(id, true, |run| run.record.title = title),
            Event::Progress(progress) => {
                let same = self.state().runs.get(&id).is_none_or(|run| run.progress == progress);
                if !same {
                    self.change(id, false, |run| run.progress = progress);
                }
            }
            Event::Live(live) => self.change(id, false, |run| run.take(live)),
            Event::Done { figures, partial, size } => self.change(id, true, |run| {
                run.record.stands = if partial { Status::Stopped } else { Status::Done };
                run.record.figures = Some(figures);
                run.record.size = size;
            }),
            Event::Failed { words, problems } => {
                let last = self.store.last_words(id);
                let words = if last.is_empty() { words } else { format!("{words}\n{last}") };
                self.change(id, true, |run| run.fail(words, problems));
            }
        }
    }

    /// Saves a run's record, and makes room.
    fn conclude(&self, id: u64) {
        self.change(id, true, |run| {
            run.record.took = run.began.elapsed().as_secs_f64();
            run.live = None;
        });
        let mut state = self.state();
        if state.closed {
            return;
        }
        if let Some(run) = state.runs.get(&id) {
            // If the record cannot be written, only the next server misses it.
            let _ = self.store.keep(&run.record);
        }
        let records: Vec<&Record> = state.runs.values().map(|run| &run.record).collect();
        for gone in self.store.too_many(&records) {
            state.runs.remove(&gone);
            self.store.forget(gone);
        }
    }

    /// Tells a run to stop and keep its results so far.
    pub(super) fn stop(self: &Arc<Self>, id: u64) -> Result<(), Fault> {
        let mut running = false;
        let mut found = false;
        self.change(id, true, |run| {
            found = true;
            match run.record.stands {
                Status::Waiting => {
                    run.job = None;
                    run.fail("it was stopped before it started".to_owned(), Vec::new());
                }
                Status::Running => {
                    run.record.stands = Status::Stopping;
                    if let Some(process) = &mut run.process {
                        // If it does not listen, it has exited.
                        let _ = process.input.write_all(STOP);
                    }
                    running = true;
                }
                _ => {}
            }
        });
        if running {
            let runs = self.clone();
            std::thread::spawn(move || {
                std::thread::sleep(PATIENCE);
                runs.kill(id);
            });
        }
        if found { Ok(()) } else { Err(unknown()) }
    }

    fn kill(&self, id: u64) {
        if let Some(run) = self.state().runs.get_mut(&id)
            && let Some(process) = &mut run.process
        {
            // It may have exited by itself.
            let _ = process.child.kill();
        }
    }

    /// Deletes a finished run and its results.
    pub(super) fn forget(&self, id: u64) -> Result<(), Fault> {
        let mut state = self.state();
        let run = state.runs.get(&id).ok_or_else(unknown)?;
        if !run.record.stands.is_over() {
            return Err(Fault::new(StatusCode::CONFLICT, "it is still running: stop it first"));
        }
        state.runs.remove(&id);
        state.listed += 1;
        self.store.forget(id);
        drop(state);
        self.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// All of them, newest first.
    pub(super) fn list(&self) -> Vec<Record> {
        self.state().runs.values().rev().map(|run| run.record.clone()).collect()
    }

    /// # Errors
    /// There is no such run.
    pub(super) fn record(&self, id: u64) -> Result<Record, Fault> {
        self.state().runs.get(&id).map(|run| run.record.clone()).ok_or_else(unknown)
    }

    /// What is new since `seen`, in the list and in the run that is followed: events as sent, each with its
    /// name.
    pub(super) fn news(&self, follow: Option<u64>, seen: &mut Seen) -> Vec<(&'static str, Value)> {
        let state = self.state();
        let mut news = Vec::new();
        if seen.listed != Some(state.listed) {
            seen.listed = Some(state.listed);
            let list: Vec<&Record> = state.runs.values().rev().map(|run| &run.record).collect();
            news.push(("runs", json!(list)));
        }
        let Some(id) = follow else { return news };
        let Some(run) = state.runs.get(&id) else {
            if seen.run.take().is_some() || seen.points != usize::MAX {
                seen.points = usize::MAX;
                news.push(("run", json!({ "id": id, "gone": true })));
            }
            return news;
        };
        if seen.run != Some(run.changes) {
            seen.run = Some(run.changes);
            let mut value = json!({
                "id": id,
                "record": run.record,
                "progress": run.progress,
                "elapsed": if run.record.stands.is_over() { run.record.took }
                           else { run.began.elapsed().as_secs_f64() },
            });
            // Progress comes more often than a ledger, and is much smaller.
            if let Some(live) = run.live.as_ref().filter(|_| seen.views != run.views) {
                seen.views = run.views;
                let points = &live.course.points;
                value["view"] = live.view.clone();
                value["course"] = json!({
                    "from": seen.points,
                    "paths": live.course.paths,
                    "resources": live.course.resources,
                    "points": points.get(seen.points..).unwrap_or_default(),
                });
                seen.points = points.len();
            }
            news.push(("run", value));
        }
        news
    }

    /// Stops every run, and deletes results that are not to be kept.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        for run in state.runs.values_mut() {
            run.job = None;
            if let Some(mut process) = run.process.take() {
                let _ = process.child.kill();
                let _ = process.child.wait();
            }
        }
        drop(state);
        self.store.close();
    }
}

impl Run {
    fn new(record: Record, job: Option<Job>) -> Run {
        let (progress, began) = (Progress::default(), Instant::now());
        Run { record, changes: 0, progress, live: None, views: 0, job, process: None, began }
    }

    fn fail(&mut self, words: String, problems: Vec<Value>) {
        self.record.stands = Status::Failed;
        self.record.words = words;
        self.record.problems = problems;
    }

    /// Takes the run's results so far; new points are appended.
    fn take(&mut self, mut live: Live) {
        if let Some(before) = &mut self.live {
            let mut points = std::mem::take(&mut before.course.points);
            points.append(&mut live.course.points);
            live.course.points = points;
        }
        self.live = Some(live);
        self.views += 1;
    }
}

fn unknown() -> Fault {
    Fault::new(StatusCode::NOT_FOUND, "there is no such run")
}

/// An experiment's name as in links.
pub(super) fn key_of(named: &Named) -> String {
    match named {
        Named::Bundled(name) => format!("bundled/{name}"),
        Named::File(parts) => format!("file/{}", parts.join("/")),
    }
}

/// The command that starts this program again. Where an interpreter runs it, that needs the module's name.
pub(super) fn program() -> Command {
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("lastmeter"));
    let name = own.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.starts_with("python") {
        return Command::new(own);
    }
    let python = std::env::var_os("LASTMETER_PYTHON").unwrap_or_else(|| OsString::from("python3"));
    let mut command = Command::new(python);
    command.args(["-m", "lastmeter"]);
    command
}
