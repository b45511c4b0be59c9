//! Plugins of a router: packets of a batch that pass one, and what becomes of them.

use super::parse::{ETHERNET, Seen, parse};
use crate::config;
use lastmeter_base::Time;
use lastmeter_live::dataplane::{Frame, Frames};
use lastmeter_plugin::expression::Expression;
use lastmeter_plugin::host::Host;
use lastmeter_plugin::instance::{Fail, Instance};
use lastmeter_plugin::request::{Answers, Body, Kind, Policy, Request, Verdict};

/// Words that a plugin keeps for flows; flows of the same place share one.
const MARKS: usize = 1 << 14;

enum Program {
    Module(Box<Instance>),
    Expression(Expression),
}

/// A plugin of this router.
pub struct Plugin {
    /// Its name in `router.toml`.
    pub name: String,
    program: Program,
    marks: Vec<u64>,
    answers: Answers,
    /// Packets that it saw.
    pub seen: u64,
    /// Of these, denied.
    pub denied: u64,
    /// Of these, changed.
    pub changed: u64,
}

/// A packet on its way through a plugin.
#[derive(Clone, Copy, Debug)]
pub struct Passing {
    /// Its frame.
    pub frame: Frame,
    /// What is known of it.
    pub seen: Seen,
    /// Its flow's hash.
    pub hash: u64,
}

/// What a plugin wants done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing in particular.
    Pass,
    /// Dropped.
    Deny,
    /// It has other bytes now, and is seen so.
    Changed(Seen),
    /// Leaves on this port.
    Port(u16),
    /// Joins this flow.
    Flow(u32),
    /// Passes, and a copy leaves on this port.
    Copy(u16),
}

impl Plugin {
    /// Makes one; `read` brings its module.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(
        name: &str,
        setting: &config::Plugin,
        host: &Host,
        now: Time,
        read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Plugin, String> {
        let program = match (&setting.module, &setting.expression) {
            (Some(module), _) => {
                let bytes = read(module)?;
                let class =
                    host.load(name, &bytes, Some(Kind::Packet)).map_err(|e| e.to_string())?;
                let fail = Fail::named(&setting.fail).unwrap_or_default();
                let config = setting.config.as_bytes();
                let made = Instance::new(class, name, config, fail, 1, now);
                Program::Module(Box::new(made.map_err(|refusal| refusal.to_string())?))
            }
            (None, Some(text)) => Program::Expression(
                Expression::new(name, Kind::Packet, text).map_err(|wrong| wrong.describe(text))?,
            ),
            (None, None) => return Err(format!("plugin {name}: neither module nor expression")),
        };
        let (marks, answers) = (vec![0; MARKS], Answers::default());
        Ok(Plugin {
            name: name.to_owned(),
            program,
            marks,
            answers,
            seen: 0,
            denied: 0,
            changed: 0,
        })
    }
    /// Tells it its configuration.
    ///
    /// # Errors
    /// If it refuses.
    pub fn configure(&mut self, config: &str, now: Time) -> Result<(), String> {
        match &mut self.program {
            Program::Module(instance) => {
                instance.configure(config.as_bytes(), now).map_err(|refusal| refusal.to_string())
            }
            Program::Expression(_) => Err("an expression has no configuration".to_owned()),
        }
    }
    /// What it reports of itself.
    pub fn report(&mut self, now: Time) -> String {
        match &mut self.program {
            Program::Module(instance) => instance.report(now).unwrap_or_default(),
            Program::Expression(expression) => expression.form().to_string(),
        }
    }
    /// How often it failed, and the last failure.
    pub fn failures(&self) -> (u64, Option<String>) {
        match &self.program {
            Program::Module(instance) => {
                let failed = instance.counters().failures.values().sum();
                (failed, instance.last_failure().map(ToString::to_string))
            }
            Program::Expression(_) => (0, None),
        }
    }
    /// Asks it about packets that arrived on `port`; one wish for each.
    pub fn pass(
        &mut self,
        now: Time,
        port: u16,
        packets: &[Passing],
        frames: &mut Frames,
        wishes: &mut Vec<Wish>,
    ) {
        wishes.clear();
        let place = |hash: u64| (hash >> 32) as usize % MARKS;
        {
            let requests: Vec<Request<'_>> = packets
                .iter()
                .map(|packet| {
                    let end = ETHERNET + usize::from(packet.seen.len);
                    Request {
                        body: Body::Packet { interface: port },
                        flow: packet.hash,
                        arrival: now,
                        mark: self.marks[place(packet.hash)],
                        length: packet.seen.len.into(),
                        data: &frames.bytes(packet.frame)[ETHERNET..end],
                    }
                })
                .collect();
            match &mut self.program {
                Program::Module(instance) => instance.process(now, &requests, &mut self.answers),
                Program::Expression(one) => one.process(now, &requests, &mut self.answers),
            }
        }
        self.seen += packets.len() as u64;
        for (packet, answer) in packets.iter().zip(&self.answers.answers) {
            self.marks[place(packet.hash)] = answer.mark;
            wishes.push(match answer.verdict {
                Verdict::Deny { .. } => Wish::Deny,
                Verdict::ToInterface(to) => Wish::Port(to),
                Verdict::ToFlow(to) => Wish::Flow(to),
                Verdict::Clone(to) => Wish::Copy(to),
                Verdict::Changed => {
                    let data = self.answers.data(answer);
                    let bytes = &mut frames.bytes_mut(packet.frame)[ETHERNET..];
                    let len = data.len().min(bytes.len());
                    bytes[..len].copy_from_slice(&data[..len]);
                    self.changed += 1;
                    // It is only forwarded as what it is now.
                    parse(frames.bytes(packet.frame)).map_or(Wish::Deny, Wish::Changed)
                }
                _ => Wish::Pass,
            });
            if wishes.last() == Some(&Wish::Deny) {
                self.denied += 1;
            }
        }
    }
}
