//! An instance of a class: its own memory, configuration, log, store and counters, and what happens when it fails.
//!
//! ```text
//!            process           trap, time, memory, verdict
//! running ------------> running ------------------------> failed -- reload: after a pause --> running
//!                                                                \- open, closed: until `reload` is called
//! ```
//!
//! A failure costs the batch in which it happened: its requests are all answered by the policy for failures (allowed
//! as they are if it is `open`, else denied), whatever the plugin had decided about some of them. Pauses begin at
//! [`PAUSE`] and double up to [`PAUSE_MAX`]; one that ran for longer than its last pause begins anew. What the plugin
//! put into its store survives.
//!
//! Rows: D-90.

mod batch;

use self::batch::Places;
use crate::abi::Description;
use crate::host::{Class, PATIENCE, Refusal};
use crate::request::{Answer, Answers, Policy, Request, Verdict};
use crate::state::State;
pub use crate::state::{LINE_LEN_MAX, LINES_MAX, LINES_PER_CALL_MAX, QUEUES_MAX, Queue};
use crate::store::Store;
use lastmeter_base::{Duration, Time};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use wasmtime::{Memory, Trap, TypedFunc};

/// The pause before the first reload.
pub const PAUSE: Duration = Duration::from_ms(100);
/// The longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The reason with which requests are denied while a plugin that must not be passed by has failed.
pub const FAILED: u32 = 0;

/// What becomes of requests when a plugin has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fail {
    /// They pass, as if there were no plugin.
    Open,
    /// They are denied.
    Closed,
    /// They are denied until the plugin has been loaded again, after a pause.
    #[default]
    Reload,
}

impl Fail {
    /// By its name.
    pub fn named(name: &str) -> Option<Fail> {
        match name {
            "open" => Some(Fail::Open),
            "closed" => Some(Fail::Closed),
            "reload" => Some(Fail::Reload),
            _ => None,
        }
    }
}

/// How an instance failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It took longer than its ticks.
    Time,
    /// It asked for more memory than it may have.
    Memory,
    /// It called itself too deeply.
    Stack,
    /// It did what WebAssembly forbids.
    Trap(String),
    /// It returned a status other than zero.
    Status(i32),
    /// It gave a verdict that does not fit the request, or changed what is not its own.
    Verdict(String),
    /// It could not be instantiated.
    Start(String),
}

impl Failure {
    /// The name under which it is counted.
    pub fn reason(&self) -> &'static str {
        match self {
            Failure::Time => "time",
            Failure::Memory => "memory",
            Failure::Stack => "stack",
            Failure::Trap(_) => "trap",
            Failure::Status(_) => "status",
            Failure::Verdict(_) => "verdict",
            Failure::Start(_) => "start",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Time => f.write_str("it took too long"),
            Failure::Memory => f.write_str("it asked for too much memory"),
            Failure::Stack => f.write_str("it called itself too deeply"),
            Failure::Trap(what) => write!(f, "it trapped: {what}"),
            Failure::Status(status) => write!(f, "it returned status {status}"),
            Failure::Verdict(what) => f.write_str(what),
            Failure::Start(what) => write!(f, "it did not start: {what}"),
        }
    }
}

/// What an instance did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of `lm_process`.
    pub batches: u64,
    /// Requests that the plugin decided.
    pub requests: u64,
    /// Requests that the policy for failures decided.
    pub unserved: u64,
    /// Times that it was loaded again.
    pub reloads: u64,
    /// Failures, by reason.
    pub failures: BTreeMap<&'static str, u64>,
}

/// What runs.
struct Live {
    store: wasmtime::Store<State>,
    instance: wasmtime::Instance,
    memory: Memory,
    process: TypedFunc<u32, i32>,
}

enum Stage {
    Running(Box<Live>),
    Failed(Box<State>),
    /// Only while it changes between the two.
    Between,
}

/// A plugin with its own memory and configuration.
pub struct Instance {
    name: String,
    class: Arc<Class>,
    fail: Fail,
    config: Vec<u8>,
    stage: Stage,
    since: Time,
    retry: Option<Time>,
    pause: Duration,
    counters: Counters,
    last: Option<Failure>,
}

impl Instance {
    /// An instance of `class`, initialised with `config`. `seed` and `name` determine what `lm_random` returns.
    pub fn new(
        class: Arc<Class>,
        name: &str,
        config: &[u8],
        fail: Fail,
        seed: u64,
        now: Time,
    ) -> Result<Instance, Refusal> {
        let limits = class.limits;
        let state = State::new(limits.memory, limits.elements, seed, name);
        let mut instance = Instance {
            name: name.to_owned(),
            class,
            fail,
            config: config.to_vec(),
            stage: Stage::Failed(Box::new(state)),
            since: now,
            retry: None,
            pause: PAUSE,
            counters: Counters::default(),
            last: None,
        };
        instance.start(now).map_err(|failure| Refusal(failure.to_string()))?;
        Ok(instance)
    }
    /// Its class.
    pub fn class(&self) -> &Arc<Class> {
        &self.class
    }
    /// What it did.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// How it failed last.
    pub fn last_failure(&self) -> Option<&Failure> {
        self.last.as_ref()
    }
    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Running(_))
    }
    /// What it keeps.
    pub fn kept(&self) -> &Store {
        &self.state().store
    }
    /// What `lm_queue` returns from now on: the first [`QUEUES_MAX`] of these, by number.
    pub fn set_queues(&mut self, queues: impl IntoIterator<Item = Option<Queue>>) {
        let known = &mut self.state_mut().queues;
        known.clear();
        known.extend(queues.into_iter().take(QUEUES_MAX));
    }
    /// Takes the lines that it logged, and the number of those that were lost.
    pub fn take_log(&mut self) -> (Vec<String>, u64) {
        let state = self.state_mut();
        (state.log.drain(..).collect(), std::mem::take(&mut state.log_lost))
    }
    fn state(&self) -> &State {
        match &self.stage {
            Stage::Running(live) => live.store.data(),
            Stage::Failed(state) => state,
            Stage::Between => unreachable!("an instance runs or has failed"),
        }
    }
    fn state_mut(&mut self) -> &mut State {
        match &mut self.stage {
            Stage::Running(live) => live.store.data_mut(),
            Stage::Failed(state) => state,
            Stage::Between => unreachable!("an instance runs or has failed"),
        }
    }
    /// Takes what outlives a reload.
    fn rest(&mut self) -> Box<State> {
        let mut state = match std::mem::replace(&mut self.stage, Stage::Between) {
            Stage::Running(live) => Box::new(live.store.into_data()),
            Stage::Failed(state) => state,
            Stage::Between => unreachable!("an instance runs or has failed"),
        };
        state.memory = None;
        state
    }
    /// Instantiates and initialises it.
    fn start(&mut self, now: Time) -> Result<(), Failure> {
        let state = self.rest();
        let store = wasmtime::Store::new(self.class.pre.module().engine(), *state);
        match Live::new(&self.class, store, &self.config, now) {
            Ok(live) => {
                self.stage = Stage::Running(Box::new(live));
                self.since = now;
                Ok(())
            }
            Err((failure, state)) => {
                self.stage = Stage::Failed(state);
                Err(failure)
            }
        }
    }
    /// Loads it again, at once: with fresh memory, and what it kept.
    pub fn reload(&mut self, now: Time) -> Result<(), Failure> {
        self.counters.reloads += 1;
        self.retry = None;
        let result = self.start(now);
        if let Err(failure) = &result {
            self.fail(failure.clone(), now);
        }
        result
    }
    /// Replaces its class, as a new version of the plugin; what it kept stays.
    pub fn replace(&mut self, class: Arc<Class>, now: Time) -> Result<(), Failure> {
        self.class = class;
        self.pause = PAUSE;
        self.reload(now)
    }
    /// Configures it anew while it runs. One that refuses keeps running; its next reload uses what it had accepted.
    pub fn configure(&mut self, config: &[u8], now: Time) -> Result<(), Refusal> {
        let Stage::Running(live) = &mut self.stage else {
            return Err(Refusal("it does not run".to_owned()));
        };
        match live.call_with(&self.class, "lm_configure", config, now) {
            Ok(()) => {
                self.config = config.to_vec();
                Ok(())
            }
            Err(Failure::Status(status)) => {
                Err(Refusal(format!("it refused the configuration with status {status}")))
            }
            Err(failure @ Failure::Start(_)) => Err(Refusal(failure.to_string())),
            Err(failure) => {
                let said = Refusal(failure.to_string());
                self.fail(failure, now);
                Err(said)
            }
        }
    }
    /// What it says about itself, in its own words; at most as long as its room.
    pub fn report(&mut self, now: Time) -> Result<String, Refusal> {
        let Stage::Running(live) = &mut self.stage else {
            return Err(Refusal("it does not run".to_owned()));
        };
        match live.report(&self.class, now) {
            Ok(text) => Ok(text),
            Err(failure @ Failure::Start(_)) => Err(Refusal(failure.to_string())),
            Err(failure) => {
                let said = Refusal(failure.to_string());
                self.fail(failure, now);
                Err(said)
            }
        }
    }
    /// Notes a failure. What ran is given up.
    fn fail(&mut self, failure: Failure, now: Time) {
        let state = self.rest();
        self.stage = Stage::Failed(state);
        *self.counters.failures.entry(failure.reason()).or_insert(0) += 1;
        self.last = Some(failure);
        if self.fail == Fail::Reload {
            if now.saturating_since(self.since) > self.pause {
                self.pause = PAUSE;
            }
            self.retry = Some(now + self.pause);
            self.pause = Duration::from_ps(self.pause.as_ps() * 2).min(PAUSE_MAX);
        }
    }
    /// Answers in the plugin's stead.
    fn answer_unserved(&mut self, requests: &[Request<'_>], answers: &mut Answers) {
        self.counters.unserved += requests.len() as u64;
        let verdict = match self.fail {
            Fail::Open => Verdict::Allow,
            Fail::Closed | Fail::Reload => Verdict::Deny { code: FAILED },
        };
        let end = answers.bytes.len();
        answers.answers.extend(requests.iter().map(|request| Answer {
            verdict,
            mark: request.mark,
            seen: 0,
            data: (end, end),
        }));
    }
}

impl Policy for Instance {
    fn name(&self) -> &str {
        &self.name
    }
    fn process(&mut self, now: Time, requests: &[Request<'_>], answers: &mut Answers) {
        answers.clear();
        for batch in requests.chunks(self.class.description.batch()) {
            if self.retry.is_some_and(|at| at <= now) {
                // What comes of it shows below.
                let _ = self.reload(now);
            }
            let Stage::Running(live) = &mut self.stage else {
                self.answer_unserved(batch, answers);
                continue;
            };
            self.counters.batches += 1;
            let (begin, bytes) = (answers.answers.len(), answers.bytes.len());
            match live.process(&self.class, now, batch, answers) {
                Ok(()) => self.counters.requests += batch.len() as u64,
                Err(failure) => {
                    answers.answers.truncate(begin);
                    answers.bytes.truncate(bytes);
                    self.fail(failure, now);
                    self.answer_unserved(batch, answers);
                }
            }
        }
    }
}

impl Live {
    fn new(
        class: &Class,
        mut store: wasmtime::Store<State>,
        config: &[u8],
        now: Time,
    ) -> Result<Live, (Failure, Box<State>)> {
        store.limiter(|state| state);
        class.limits.grant(&mut store, PATIENCE);
        store.data_mut().begin(now);
        let parts = |store: &mut wasmtime::Store<State>| -> wasmtime::Result<_> {
            let instance = class.pre.instantiate(&mut *store)?;
            let memory = instance.get_memory(&mut *store, crate::abi::MEMORY);
            let memory = memory.ok_or_else(|| wasmtime::Error::msg("it has no memory"))?;
            let process = instance.get_typed_func(&mut *store, "lm_process")?;
            Ok((instance, memory, process))
        };
        let (instance, memory, process) = match parts(&mut store) {
            Ok(parts) => parts,
            Err(error) => {
                return Err((Failure::Start(format!("{error:#}")), Box::new(store.into_data())));
            }
        };
        store.data_mut().memory = Some(memory);
        let mut live = Live { store, instance, memory, process };
        if class.exports.contains(&"lm_init")
            && let Err(failure) = live.call_with(class, "lm_init", config, now)
        {
            return Err((failure, Box::new(live.store.into_data())));
        }
        Ok(live)
    }
    #[inline]
    fn begin(&mut self, class: &Class, times: u64, now: Time) {
        class.limits.grant(&mut self.store, times);
        self.store.data_mut().begin(now);
    }
    /// Calls one of the functions that are not called for requests.
    fn call(
        &mut self,
        class: &Class,
        function: &str,
        arguments: (u32, u32),
        now: Time,
    ) -> Result<i32, Failure> {
        if !class.exports.contains(&function) {
            return Err(Failure::Start(format!("it does not export {function}")));
        }
        self.begin(class, PATIENCE, now);
        let found = self.instance.get_typed_func::<(u32, u32), i32>(&mut self.store, function);
        let found = found.map_err(|error| Failure::Start(format!("{error:#}")))?;
        let result = found.call(&mut self.store, arguments);
        result.map_err(|error| failure(&error, self.store.data()))
    }
    /// Calls a function with a text, which is put into the room.
    fn call_with(
        &mut self,
        class: &Class,
        function: &str,
        text: &[u8],
        now: Time,
    ) -> Result<(), Failure> {
        let (at, len) = (class.description.room, class.description.room_len as usize);
        let room = room(self.memory.data_mut(&mut self.store), class)?;
        let Some(begin) = room.get_mut(..text.len()) else {
            let found = text.len();
            return Err(Failure::Start(format!("{found} bytes of configuration; at most {len}")));
        };
        begin.copy_from_slice(text);
        match self.call(class, function, (at, text.len() as u32), now)? {
            0 => Ok(()),
            status => Err(Failure::Status(status)),
        }
    }
    fn report(&mut self, class: &Class, now: Time) -> Result<String, Failure> {
        let Description { room: at, room_len, .. } = class.description;
        let len = self.call(class, "lm_report", (at, room_len), now)?;
        let room = room(self.memory.data_mut(&mut self.store), class)?;
        let text = usize::try_from(len).ok().and_then(|len| room.get(..len));
        let text = text.ok_or(Failure::Status(len))?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }
    /// One batch, which fits into the room.
    fn process(
        &mut self,
        class: &Class,
        now: Time,
        requests: &[Request<'_>],
        answers: &mut Answers,
    ) -> Result<(), Failure> {
        self.begin(class, 1, now);
        let places = Places::of(&class.description, requests.len());
        places.fill(room(self.memory.data_mut(&mut self.store), class)?, now, requests);
        match self.process.call(&mut self.store, class.description.room) {
            Ok(0) => {}
            Ok(status) => return Err(Failure::Status(status)),
            Err(error) => return Err(failure(&error, self.store.data())),
        }
        places.read(room(self.memory.data_mut(&mut self.store), class)?, requests, answers)
    }
}

/// The part of a plugin's memory that the host fills. Memory never shrinks, so it stays where it was when it was
/// loaded.
fn room<'a>(memory: &'a mut [u8], class: &Class) -> Result<&'a mut [u8], Failure> {
    let Description { room, room_len, .. } = class.description;
    let range = room as usize..room as usize + room_len as usize;
    memory.get_mut(range).ok_or_else(|| Failure::Start("its room is gone".to_owned()))
}

fn failure(error: &wasmtime::Error, state: &State) -> Failure {
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt | Trap::OutOfFuel) => Failure::Time,
        Some(Trap::StackOverflow) => Failure::Stack,
        _ if state.refused_memory => Failure::Memory,
        Some(trap) => Failure::Trap(trap.to_string()),
        None => Failure::Trap(error.root_cause().to_string()),
    }
}

#[cfg(test)]
mod tests;
