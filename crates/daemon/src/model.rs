//! Plugins in models: `lastmeterd model -- run FILE` is `lastmeter run FILE` with a sandbox.
//!
//! The same modules and the same sandbox as on a device, except that a module which does not end is stopped by a count
//! of its instructions, not by a clock: so a run gives the same result on every machine.

use lastmeter_base::{Duration, Time};
use lastmeter_engine::site::{Asked, Code, Order, Program, Programs, Waiting, Wish};
use lastmeter_plugin::Kind;
use lastmeter_plugin::cost::Cost;
use lastmeter_plugin::expression::Expression;
use lastmeter_plugin::host::{Class, Hash, Host, INSTRUCTIONS_PER_TICK, Limits, Patience};
use lastmeter_plugin::instance::{Fail, Instance, Queue};
use lastmeter_plugin::request::{Answers, Body, Policy, Request, Verdict, flow};
use lastmeter_plugin::setting::{self, EXPRESSION_LEN_MAX};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// Words that a plugin keeps for flows; flows of the same place share one, as on a router.
const MARKS: usize = 1 << 14;
/// Modules that stay compiled between the runs of an experiment and of its what-ifs.
const CLASSES_MAX: usize = 256;
/// Instances at once: those of an experiment's nodes, in as many runs as there are threads.
const INSTANCES: u32 = 1024;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What `lastmeter` was given
    #[arg(last = true, required = true)]
    given: Vec<OsString>,
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    let given = std::iter::once("lastmeter".into()).chain(arguments.given);
    lastmeter::program_with(given, Some(Arc::new(Sandbox::default()))).into()
}

/// Runs plugins in virtual time.
#[derive(Default)]
pub(crate) struct Sandbox(Mutex<Kept>);

/// The host of plugins, made when the first one is wanted.
#[derive(Default)]
struct Kept {
    host: Option<Host>,
    classes: Vec<Arc<Class>>,
}

impl Kept {
    fn class(&mut self, name: &str, module: &[u8]) -> Result<Arc<Class>, String> {
        let host = match &mut self.host {
            Some(host) => host,
            none => {
                let patience = Patience::Instructions(INSTRUCTIONS_PER_TICK);
                let limits = Limits { instances: INSTANCES, patience, ..Limits::default() };
                none.insert(Host::new(limits).map_err(|refusal| refusal.to_string())?)
            }
        };
        let class = host.load(name, module, Some(Kind::Packet));
        let class = class.map_err(|refusal| refusal.to_string())?;
        if !self.classes.iter().any(|known| Arc::ptr_eq(known, &class)) {
            self.classes.truncate(CLASSES_MAX - 1);
            self.classes.push(class.clone());
        }
        Ok(class)
    }
}

impl Programs for Sandbox {
    fn load(&self, order: &Order<'_>) -> Result<Box<dyn Program>, String> {
        let Order { name, code, config, fail, seed } = *order;
        let program = match code {
            Code::Module(module) => {
                let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let class = kept.class(name, module)?;
                let fail = Fail::named(fail)
                    .ok_or(format!("{fail:?} is none of open, closed and reload"))?;
                let instance =
                    Instance::new(class, name, config.as_bytes(), fail, seed, Time::START);
                setting::Program::Module(Box::new(instance.map_err(|error| error.to_string())?))
            }
            Code::Expression(text) if text.len() > EXPRESSION_LEN_MAX => {
                return Err(format!("an expression longer than {EXPRESSION_LEN_MAX} bytes"));
            }
            Code::Expression(text) => {
                let made = Expression::new(name, Kind::Packet, text);
                setting::Program::Expression(made.map_err(|wrong| wrong.describe(text))?)
            }
        };
        Ok(Box::new(Running { program, marks: vec![0; MARKS], answers: Answers::default() }))
    }
    fn measured(&self, module: &[u8], text: &str) -> Result<Duration, String> {
        Cost::parse(text)?.charged(Hash::of(module))
    }
}

/// A plugin of a node.
struct Running {
    program: setting::Program,
    marks: Vec<u64>,
    answers: Answers,
}

impl Program for Running {
    fn decide(&mut self, now: Time, packet: &Asked<'_>, queues: &[Option<Waiting>]) -> Wish {
        if let setting::Program::Module(instance) = &mut self.program {
            instance.set_queues(
                queues.iter().map(|queue| {
                    queue.map(|Waiting { len, share, rate }| Queue { len, share, rate })
                }),
            );
        }
        let Asked { link, arrival, len, bytes } = *packet;
        let flow = flow(bytes);
        let mark = &mut self.marks[flow as usize % MARKS];
        let request = Request {
            body: Body::Packet { interface: link },
            flow,
            arrival,
            mark: *mark,
            length: len,
            data: bytes,
        };
        self.program.process(now, &[request], &mut self.answers);
        let Some(answer) = self.answers.answers.first() else { return Wish::Deny };
        *mark = answer.mark;
        match answer.verdict {
            Verdict::Deny { .. } => Wish::Deny,
            Verdict::Changed => {
                let bytes = self.answers.data(answer).to_vec();
                Wish::Changed { seen: answer.seen as usize, bytes }
            }
            Verdict::ToInterface(to) => Wish::Link(to),
            Verdict::ToFlow(to) => Wish::Flow(to),
            Verdict::Clone(to) => Wish::Copy(to),
            _ => Wish::Pass,
        }
    }
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        let setting::Program::Module(instance) = &self.program else { return };
        let counters = instance.counters();
        count("failed", counters.failures.values().sum());
        count("unserved", counters.unserved);
    }
}
