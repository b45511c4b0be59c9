//! The runs of a sweep: experiments with settings, and their results.

use super::Placed;
use super::formula::{Node, Template, Val};
use super::scope::{Missing, Scope, Vars};
use crate::compute::Setting;
use crate::{Effort, Error};
use lastmeter_base::{Bytes, Duration, Quantity, Time};
use lastmeter_engine::{Outcome, Serial, TraceKind};
use lastmeter_lab::build::{Changes, build};
use lastmeter_lab::close::close;
use lastmeter_lab::document::{Override, Problem};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::{Builtin, Library, Programs};
use lastmeter_lab::run::{Failure, Runner, Search, Watch, closing, explain};
use lastmeter_ledger::Ledger;
use std::collections::BTreeMap;

/// A run with a value for each of its variables.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(super) run: String,
    pub(super) vars: Vars,
    /// Identifies it.
    pub(super) key: String,
}

impl Instance {
    pub(super) fn new(run: &str, vars: Vars) -> Instance {
        let shown: Vec<String> =
            vars.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Instance { run: run.to_owned(), key: format!("{run}[{}]", shown.join(", ")), vars }
    }
}

/// The results of a run.
pub(crate) struct Found {
    name: String,
    pub(crate) outcome: Outcome,
    /// Results before the end, if the run has `early`.
    pub(super) early: Option<Outcome>,
    /// The ledger, if stages were recorded.
    pub(crate) ledger: Option<Ledger>,
}

impl Found {
    pub(crate) fn missing(&self, what: impl std::fmt::Display) -> Error {
        Error::file(&self.name, 1, what.to_string())
    }

    /// Times of an element's events of this kind, from the trace.
    ///
    /// # Errors
    /// There is no such element, or the trace is incomplete.
    pub(crate) fn times(&self, element: &str, kind: TraceKind) -> Result<Vec<Time>, Error> {
        let elements = &self.outcome.elements;
        let number = elements.iter().position(|report| report.name == element);
        let number = number.ok_or_else(|| self.missing(format!("there is no `{element}`")))?;
        if self.outcome.trace_left_out > 0 {
            return Err(self.missing("the trace was too short for the run"));
        }
        let is = |event: &&lastmeter_engine::TraceEvent| {
            event.element.0 as usize == number && event.kind == kind
        };
        Ok(self.outcome.trace.iter().filter(is).map(|event| event.at).collect())
    }

    /// The ledger.
    ///
    /// # Errors
    /// Nothing was recorded for it.
    pub(crate) fn ledger(&self) -> Result<&Ledger, Error> {
        self.ledger.as_ref().ok_or_else(|| self.missing("write `record = \"stages\"` for a ledger"))
    }
}

impl Setting<'_> {
    /// A run of `repro.toml` with these values of its variables.
    ///
    /// # Errors
    /// There is no such run, or it fails.
    pub(crate) fn run(&self, run: &str, given: &[(&str, Val)]) -> Result<Found, Error> {
        self.run_instance(&self.instance(run, given)?)
    }

    /// The ledger of a run with these values of its variables.
    ///
    /// # Errors
    /// There is no such run, it fails, or it records no ledger.
    pub(crate) fn ledger(&self, run: &str, given: &[(&str, Val)]) -> Result<Ledger, Error> {
        self.run(run, given)?.ledger().cloned()
    }

    /// The experiment of a run, with its settings.
    ///
    /// # Errors
    /// There is no such run, or a setting is wrong.
    pub(crate) fn experiment(&self, run: &str, given: &[(&str, Val)]) -> Result<Experiment, Error> {
        self.experiment_of(&self.instance(run, given)?)
    }

    /// The value of a formula with a run's variables, without running it.
    ///
    /// # Errors
    /// There is no such run, or the formula is wrong.
    pub(crate) fn formula_of(
        &self,
        run: &str,
        given: &[(&str, Val)],
        formula: &str,
    ) -> Result<f64, Error> {
        let (vars, none) = (self.instance(run, given)?.vars, Missing::default());
        let value = Scope::new(self, vars, &none).value(&Node::Name(formula.to_owned()));
        value.and_then(|value| value.number()).map_err(|found| Error::file(formula, 1, found))
    }

    /// A run with these values of its variables; other variables have the first of their own values.
    fn instance(&self, run: &str, given: &[(&str, Val)]) -> Result<Instance, Error> {
        let (sweep, none) = (self.sweep, Missing::default());
        let scope = Scope::new(self, Vars::new(), &none);
        let over = sweep.find(run).map(|run| sweep.over(run)).unwrap_or_default();
        let mut vars: Vars =
            given.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        for (name, values) in over {
            if !given.iter().any(|(known, _)| known == name) {
                let value = scope.value(&values.what);
                let value = value.map_err(|found| sweep.fail(&values.place, found))?;
                vars.extend(value.values().first().map(|value| (name.clone(), value.clone())));
            }
        }
        Ok(Instance::new(run, vars))
    }

    fn experiment_of(&self, instance: &Instance) -> Result<Experiment, Error> {
        let sweep = self.sweep;
        let unknown =
            || Error::unknown("run", &instance.run, sweep.runs.iter().map(|run| run.name.clone()));
        let run = sweep.find(&instance.run).ok_or_else(unknown)?;
        let chain = sweep.chain(run);
        let none = Missing::default();
        let scope = Scope::new(self, instance.vars.clone(), &none);
        let text = |one: &Placed<Template>| {
            scope.text(&one.what).map_err(|found| sweep.fail(&one.place, found))
        };
        let set = |one: &Placed<Template>| Override::parse(&text(one)?).map_err(Error::Problems);
        let all = |sets: &[Placed<Template>]| sets.iter().map(set).collect::<Result<Vec<_>, _>>();
        let (mut sets, mut changes) = (Vec::new(), BTreeMap::<String, Vec<Override>>::new());
        for run in chain.iter().rev() {
            sets.extend(all(&run.set)?);
            for (profile, sets) in &run.profiles {
                changes.entry(text(profile)?).or_default().extend(all(sets)?);
            }
        }
        let library = Changed { profiles: &sweep.profiles, changes };
        let parse = |name: &str, text: &str| {
            Experiment::parse(name, text, &sets, &library).map_err(Error::Problems)
        };
        for run in &chain {
            if let Some((name, text)) = &run.experiment {
                return parse(name, text);
            }
            if let Some(transfer) = &run.transfer {
                let parts = transfer.iter().map(text).collect::<Result<Vec<_>, _>>()?;
                let text = between_two(&parts, &library);
                let text = text.map_err(|found| sweep.fail(&run.place, found))?;
                return parse(&run.name, &text);
            }
        }
        Err(sweep.fail(&run.place, "nothing says what is run"))
    }

    /// Runs an instance.
    ///
    /// # Errors
    /// A setting is wrong, or the model fails.
    pub(super) fn run_instance(&self, instance: &Instance) -> Result<Found, Error> {
        let experiment = self.experiment_of(instance)?;
        let sweep = self.sweep;
        let chain = sweep.find(&instance.run).map(|run| sweep.chain(run)).unwrap_or_default();
        let record = chain.iter().find_map(|run| run.record.as_deref()).unwrap_or_default();
        let failed = |failure: Failure| match failure {
            Failure::Problems(problems) => Error::Problems(problems),
            failure => sweep.fail(&chain[0].place, format!("{}: {failure}", instance.key)),
        };
        let mut early_at = Time::START;
        if let Some(early) = chain.iter().find_map(|run| run.early.as_ref()) {
            let none = Missing::default();
            let scope = Scope::new(self, instance.vars.clone(), &none);
            let seconds = scope.value(&early.what).and_then(|value| value.number());
            let seconds = seconds.map_err(|found| sweep.fail(&early.place, found))?;
            early_at += Duration::from_secs_f64(seconds);
        }
        let library = Sandboxed(self.means.programs);
        let mut built = build(&experiment, &Changes::NONE, &library).map_err(Error::Problems)?;
        built.graph.collecting = matches!(record, "stages" | "verdict");
        built.graph.tracing = record == "trace";
        let end = built.end;
        let engine = |error| failed(Failure::Engine(error));
        let mut running = built.graph.build(1).map_err(engine)?;
        let mut early = None;
        if early_at > Time::START {
            running.run_parallel(early_at, &Default::default(), &Serial).map_err(engine)?;
            early = Some(running.so_far().map_err(engine)?);
        }
        running.run_parallel(end, &Default::default(), &Serial).map_err(engine)?;
        let outcome = running.finish().map_err(engine)?;
        let ledger = match record {
            "stages" => Some(close(&outcome, closing(&experiment))),
            "verdict" => {
                let watch = Watch::default();
                let parallel = self.means.parallel;
                let runner = Runner { parallel, threads: 1, library: &library, watch: &watch };
                Some(explain(&experiment, Search::Exhaustive, 0, runner).map_err(failed)?.ledger)
            }
            _ => None,
        };
        Ok(Found { name: instance.key.clone(), outcome, early, ledger })
    }
}

/// The bundled profiles, and what runs owners' programs.
struct Sandboxed<'a>(Option<&'a dyn Programs>);

impl Library for Sandboxed<'_> {
    fn programs(&self) -> Option<&dyn Programs> {
        self.0
    }
}

/// The bundled profiles and the folder's own, with a run's settings.
struct Changed<'a> {
    profiles: &'a BTreeMap<String, String>,
    changes: BTreeMap<String, Vec<Override>>,
}

impl Library for Changed<'_> {
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        match self.profiles.get(&format!("{folder}/{name}")) {
            Some(text) => Ok(text.clone()),
            None => Builtin.profile(folder, name),
        }
    }
    fn names(&self, folder: &str) -> Vec<String> {
        let own =
            self.profiles.keys().filter_map(|key| key.strip_prefix(folder)?.strip_prefix('/'));
        Builtin.names(folder).into_iter().chain(own.map(str::to_owned)).collect()
    }
    fn changes(&self, profile: &str) -> &[Override] {
        self.changes.get(profile).map_or(&[], Vec::as_slice)
    }
}

/// The text of a transfer between two hosts, from what [`super::TRANSFER`] names.
fn between_two(parts: &[String], library: &Changed<'_>) -> Result<String, String> {
    let [host, adapter, message, packet, length] = parts else { return Err(String::new()) };
    let shown = |problems: Vec<Problem>| -> String {
        problems.iter().map(|problem| problem.render(false)).collect()
    };
    let size = |text: &str| Bytes::parse(text).map_err(|error| error.to_string());
    let pair = Pair::read(host, adapter, library).map_err(shown)?;
    let length = Duration::parse(length).map_err(|error| error.to_string())?;
    pair.experiment(size(message)?, size(packet)?, length).map_err(shown)
}

/// Calls `run` for each item, in parallel, and notifies the observer.
///
/// # Errors
/// The first failure.
pub(crate) fn all<T: Sync, R: Send>(
    items: &[T],
    means: Effort<'_>,
    run: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let mut results: Vec<Option<Result<R, Error>>> = items.iter().map(|_| None).collect();
    means.observer.planned(items.len() as u64);
    let run = &run;
    let mut tasks: Vec<_> = items
        .iter()
        .zip(&mut results)
        .map(|(item, result)| {
            move || {
                *result = Some(run(item));
                means.observer.done();
            }
        })
        .collect();
    let mut tasks: Vec<&mut (dyn FnMut() + Send)> =
        tasks.iter_mut().map(|task| task as &mut (dyn FnMut() + Send)).collect();
    means.parallel.run(&mut tasks);
    let left_out = || Error::Computation { name: "sweep", message: "a run was left out".into() };
    results.into_iter().map(|result| result.ok_or_else(left_out)?).collect()
}
