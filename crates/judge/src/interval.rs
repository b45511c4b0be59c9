//! One run of an experiment, of which the beginning is left out, and many of them.

use lastmeter_base::{Duration, Time};
use lastmeter_engine::{Outcome, PathBook, Row, VirtualClock};
use lastmeter_lab::build::{Changes, build};
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Builtin;
use lastmeter_repro::{Effort, Error};

/// An experiment from its text, with this set in it.
pub(crate) fn read(text: &str, file: &str, set: &[impl AsRef<str>]) -> Result<Experiment, Error> {
    let set: Result<Vec<Override>, _> =
        set.iter().map(|text| Override::parse(text.as_ref())).collect();
    let set = set.map_err(Error::Problems)?;
    Experiment::parse(file, text, &set, &Builtin).map_err(Error::Problems)
}

/// Does `work` for every task on the threads of `effort`; where it is stopped, what has not begun is
/// left out.
pub(crate) fn each<T: Sync, R: Send>(
    tasks: &[T],
    effort: Effort<'_>,
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<Option<R>>, Error> {
    effort.observer.planned(tasks.len() as u64);
    let mut results: Vec<Option<Result<R, Error>>> = tasks.iter().map(|_| None).collect();
    let mut jobs: Vec<_> = results
        .iter_mut()
        .zip(tasks)
        .map(|(result, task)| {
            let work = &work;
            move || {
                if !effort.observer.stopped() {
                    *result = Some(work(task));
                    effort.observer.done();
                }
            }
        })
        .collect();
    let mut jobs: Vec<&mut (dyn FnMut() + Send)> =
        jobs.iter_mut().map(|job| job as &mut (dyn FnMut() + Send)).collect();
    effort.parallel.run(&mut jobs);
    results.into_iter().map(Option::transpose).collect()
}

/// What happened between two instants of a run.
pub(crate) struct Interval {
    from: Outcome,
    pub(crate) to: Outcome,
}

impl Interval {
    /// Runs an experiment with a seed; what comes before `left_out` is not in it.
    pub(crate) fn run(
        experiment: &Experiment,
        seed: u64,
        left_out: Duration,
    ) -> Result<Interval, Error> {
        let mut experiment = experiment.clone();
        experiment.seed = seed;
        let mut built = build(&experiment, &Changes::NONE, &Builtin).map_err(Error::Problems)?;
        let _captures = built.captures();
        let failed =
            |error: lastmeter_engine::Error| Error::file(&experiment.title, 1, error.to_string());
        let mut engine = built.graph.build(1).map_err(failed)?;
        engine.run_until(Time::START + left_out, &mut VirtualClock::default()).map_err(failed)?;
        let from = engine.so_far().map_err(failed)?;
        engine.run_until(built.end, &mut VirtualClock::default()).map_err(failed)?;
        let to = engine.finish().map_err(failed)?;
        Ok(Interval { from, to })
    }

    pub(crate) fn seconds(&self) -> f64 {
        (self.to.now - self.from.now).as_secs_f64()
    }

    /// By how much a sum over a class of traffic has grown.
    pub(crate) fn grown(&self, class: &str, sum: impl Fn(&Outcome, &PathBook) -> f64) -> f64 {
        let at = self.to.paths.iter().position(|path| path.class == class);
        let at = at.expect("each case names traffic of its file");
        sum(&self.to, &self.to.books.paths[at]) - sum(&self.from, &self.from.books.paths[at])
    }

    /// By how much a sum over the visits of a class to a stage has grown.
    pub(crate) fn at(&self, class: &str, stage: &str, of: fn(&Row) -> f64) -> f64 {
        self.grown(class, |outcome, book| {
            let rows = book.rows();
            let named = |row: &&&Row| outcome.stages[row.stage.0 as usize].name == stage;
            rows.iter().find(named).map_or(0.0, |row| of(row))
        })
    }

    /// By how much a counter of an element, counted from 0, has grown.
    pub(crate) fn counted(&self, element: usize, counter: &str) -> u64 {
        let value = |outcome: &Outcome| {
            let counters = &outcome.elements[element].counters;
            counters.iter().find(|(name, _)| *name == counter).map_or(0, |(_, value)| *value)
        };
        value(&self.to) - value(&self.from)
    }
}
