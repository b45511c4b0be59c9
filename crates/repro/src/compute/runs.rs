//! Networks that computations run: files beside the published values, with something set in them.

use crate::{Error, Means};
use lastmeter_base::Time;
use lastmeter_engine::{Outcome, Parallel, Serial, TraceKind};
use lastmeter_lab::build::{Changes, build};
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Builtin;
use lastmeter_lab::run::{Crew, Failure, Watch, explain};
use lastmeter_ledger::Ledger;

/// A network's file, and who runs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    /// The computation, for messages.
    pub(super) name: &'static str,
    /// The file.
    pub(super) text: &'static str,
    /// Whether stages are recorded.
    pub(super) collecting: bool,
    /// Whether a trace is kept.
    pub(super) tracing: bool,
}

impl File {
    /// Runs it with these settings over it, each as `--set` takes it.
    ///
    /// # Errors
    /// A setting is wrong, or the model is.
    pub(super) fn run(&self, sets: &[String]) -> Result<Found, Error> {
        Ok(self.run_from(sets, Time::START)?.1)
    }

    /// What had come of it at an instant before its end, and at its end.
    ///
    /// # Errors
    /// A setting is wrong, or the model is.
    pub(super) fn run_from(&self, sets: &[String], from: Time) -> Result<(Found, Found), Error> {
        let overrides = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>();
        let overrides = overrides.map_err(Error::Problems)?;
        let experiment = Experiment::parse(self.name, self.text, &overrides, &Builtin)
            .map_err(Error::Problems)?;
        let mut built = build(&experiment, &Changes::NONE, &Builtin).map_err(Error::Problems)?;
        built.graph.collecting = self.collecting;
        built.graph.tracing = self.tracing;
        let end = built.end;
        let failed = |error: lastmeter_engine::Error| Error::Computation {
            name: self.name,
            message: error.to_string(),
        };
        let mut engine = built.graph.build(1).map_err(failed)?;
        let found = |outcome| Found { name: self.name, outcome };
        engine.run_parallel(from, &Default::default(), &Serial).map_err(failed)?;
        let before = found(engine.so_far().map_err(failed)?);
        engine.run_parallel(end, &Default::default(), &Serial).map_err(failed)?;
        Ok((before, found(engine.finish().map_err(failed)?)))
    }
}

impl File {
    /// Runs it as [`File::run`] does, and again with each change: a ledger with its verdict.
    ///
    /// # Errors
    /// A setting is wrong, or the model is.
    pub(super) fn explained(
        &self,
        sets: &[String],
        parallel: &dyn Parallel,
    ) -> Result<Ledger, Error> {
        let overrides = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>();
        let overrides = overrides.map_err(Error::Problems)?;
        let experiment = Experiment::parse(self.name, self.text, &overrides, &Builtin)
            .map_err(Error::Problems)?;
        let watch = Watch::default();
        let crew = Crew { parallel, threads: 1, library: &Builtin, watch: &watch };
        let explained = explain(&experiment, 0, crew).map_err(|failure| match failure {
            Failure::Problems(problems) => Error::Problems(problems),
            failure => Error::Computation { name: self.name, message: failure.to_string() },
        });
        Ok(explained?.ledger)
    }
}

/// What came of a run.
pub(super) struct Found {
    pub(super) name: &'static str,
    pub(super) outcome: Outcome,
}

impl Found {
    fn missing(&self, what: String) -> Error {
        Error::Computation { name: self.name, message: what }
    }

    /// What an element has counted.
    ///
    /// # Errors
    /// It has not, or is not there.
    pub(super) fn count(&self, element: &str, counter: &str) -> Result<u64, Error> {
        let found = self.outcome.elements.iter().find(|report| report.name == element);
        let counters = found.map_or(&[][..], |report| &report.counters);
        let found = counters.iter().find(|(name, _)| *name == counter);
        let missing = || self.missing(format!("`{element}` does not count `{counter}`"));
        Ok(found.ok_or_else(missing)?.1)
    }

    /// When an element did this, by the trace.
    ///
    /// # Errors
    /// It is not there, or the trace is not whole.
    pub(super) fn times(&self, element: &str, kind: TraceKind) -> Result<Vec<Time>, Error> {
        let elements = &self.outcome.elements;
        let number = elements.iter().position(|report| report.name == element);
        let missing = || self.missing(format!("there is no `{element}`"));
        let number = number.ok_or_else(missing)?;
        if self.outcome.trace_left_out > 0 {
            return Err(self.missing("the trace had no room for the run".to_owned()));
        }
        let is = |event: &&lastmeter_engine::TraceEvent| {
            event.element.0 as usize == number && event.kind == kind
        };
        Ok(self.outcome.trace.iter().filter(is).map(|event| event.at).collect())
    }
}

/// Does this with each item, as many at once as there are threads, and tells the observer of each.
///
/// # Errors
/// The first that failed.
pub(super) fn all<T: Sync, R: Send>(
    name: &'static str,
    items: &[T],
    means: Means<'_>,
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
    let left_out = || Error::Computation { name, message: "a run was left out".into() };
    results.into_iter().map(|result| result.ok_or_else(left_out)?).collect()
}
