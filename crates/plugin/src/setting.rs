//! A policy as an owner writes it in a device's file: a module or an expression, and what happens when it fails.
//!
//! ```toml
//! [[policy]]
//! name = "first half"
//! expression = "(within lba 0 4096)"
//!
//! [[policy]]
//! module = "range-v1.wasm"         # beside the file that names it
//! config = "first=0 blocks=4096"
//! fail = "closed"                  # open, closed or reload (default)
//! ```

use crate::expression::Expression;
use crate::host::Host;
use crate::instance::{Fail, Instance, Queue};
use crate::request::{Answers, Kind, Policy, Request};
use lastmeter_base::Time;
use serde::Deserialize;

/// The longest expression.
pub const EXPRESSION_LEN_MAX: usize = 64 << 10;

/// One policy of an owner. Exactly one of `module` and `expression` is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Setting {
    /// Its name, for logs and ledgers; the module's or `expression` if absent.
    pub name: Option<String>,
    /// The module's file, relative to the file that names it.
    pub module: Option<String>,
    /// A policy in the small language of `docs/expressions.md`.
    pub expression: Option<String>,
    /// What the module is initialised with.
    pub config: String,
    /// `open`, `closed` or `reload`.
    pub fail: Option<String>,
}

impl Setting {
    /// What it is called.
    pub fn name(&self) -> &str {
        let module = self.module.as_deref().map(|path| path.trim_end_matches(".wasm"));
        self.name.as_deref().or(module).unwrap_or("expression")
    }
    /// Makes the policy. `read` brings a module's bytes, once they are trusted; `seed` determines what the module's
    /// random numbers are.
    ///
    /// # Errors
    /// What is wrong with it, with its name.
    pub fn program(
        &self,
        host: &Host,
        kind: Kind,
        seed: u64,
        now: Time,
        read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Program, String> {
        let name = self.name();
        let place = |words: String| format!("policy {name:?}: {words}");
        match (&self.module, &self.expression) {
            (Some(module), None) => {
                let made = self.instance(module, host, kind, seed, now, read);
                Ok(Program::Module(Box::new(made.map_err(place)?)))
            }
            (None, Some(text)) if text.len() > EXPRESSION_LEN_MAX => {
                Err(place(format!("longer than {EXPRESSION_LEN_MAX} bytes")))
            }
            (None, Some(text)) => {
                let expression = Expression::new(name, kind, text);
                Ok(Program::Expression(expression.map_err(|wrong| place(wrong.describe(text)))?))
            }
            _ => Err(place("give either `module` or `expression`".to_owned())),
        }
    }
    fn instance(
        &self,
        module: &str,
        host: &Host,
        kind: Kind,
        seed: u64,
        now: Time,
        read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Instance, String> {
        let fail = match self.fail.as_deref() {
            None => Fail::default(),
            Some(text) => Fail::named(text)
                .ok_or(format!("`fail` is {text:?}: one of open, closed and reload"))?,
        };
        let bytes = read(module)?;
        let class =
            host.load(self.name(), &bytes, Some(kind)).map_err(|error| error.to_string())?;
        Instance::new(class, self.name(), self.config.as_bytes(), fail, seed, now)
            .map_err(|error| error.to_string())
    }
}

/// A policy that runs.
pub enum Program {
    /// A module.
    Module(Box<Instance>),
    /// An expression.
    Expression(Expression),
}

impl Program {
    /// What it reports of itself: an expression, its text.
    pub fn report(&mut self, now: Time) -> String {
        match self {
            Program::Module(instance) => instance.report(now).unwrap_or_default(),
            Program::Expression(expression) => expression.form().to_string(),
        }
    }
    /// Whether it asks about queues.
    pub fn asks_queues(&self) -> bool {
        matches!(self, Program::Module(instance) if instance.class().asks_queues)
    }
    /// What `lm_queue` returns from now on, by number.
    pub fn set_queues(&mut self, queues: impl IntoIterator<Item = Option<Queue>>) {
        if let Program::Module(instance) = self {
            instance.set_queues(queues);
        }
    }
    /// How often it failed, and how it failed last.
    pub fn failures(&self) -> (u64, Option<String>) {
        match self {
            Program::Module(instance) => {
                let last = instance.last_failure().map(ToString::to_string);
                (instance.counters().failures.values().sum(), last)
            }
            Program::Expression(_) => (0, None),
        }
    }
}

impl Policy for Program {
    fn process(&mut self, now: Time, requests: &[Request<'_>], answers: &mut Answers) {
        match self {
            Program::Module(instance) => instance.process(now, requests, answers),
            Program::Expression(expression) => expression.process(now, requests, answers),
        }
    }
    fn name(&self) -> &str {
        match self {
            Program::Module(instance) => instance.name(),
            Program::Expression(expression) => expression.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Limits;
    use crate::request::{Body, Verdict, block};

    fn policy(text: &str) -> Result<Program, String> {
        let setting: Setting = toml::from_str(text).expect("a setting");
        let host = Host::new(Limits { instances: 1, ..Limits::default() }).expect("a host");
        let read = |name: &str| Err(format!("{name}: no such file"));
        setting.program(&host, Kind::Block, 1, Time::from_ps(0), &read)
    }

    #[test]
    fn an_expression_decides() {
        let mut policy = policy("expression = '(within lba 0 8)'").expect("a policy");
        assert_eq!(policy.name(), "expression");
        let mut verdict = |lba| {
            let body = Body::Block { operation: block::READ, lba, blocks: 4, initiator: 0 };
            let now = Time::from_ps(0);
            let request = Request { body, flow: 0, arrival: now, mark: 0, length: 0, data: &[] };
            let mut answers = Answers::default();
            policy.process(now, &[request], &mut answers);
            answers.answers[0].verdict
        };
        assert_eq!(verdict(4), Verdict::Allow);
        assert!(matches!(verdict(5), Verdict::Deny { .. }));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let wrong = |text: &str| policy(text).err().expect("an error");
        assert!(wrong("").contains("either `module` or `expression`"));
        assert!(
            wrong("name = 'x'\nexpression = '(within lbx 0 8)'").contains("policy \"x\": line 1")
        );
        assert!(wrong("module = 'a.wasm'").contains("policy \"a\": a.wasm: no such file"));
        assert!(wrong("module = 'a.wasm'\nfail = 'ajar'").contains("one of open, closed"));
    }
}
