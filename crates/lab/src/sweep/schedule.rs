//! The next run of a sweep, considering those already done.

use super::plan::{Plan, Run, Until, Width};
use super::row::{Measure, Row};
use super::statistics::Interval;
use crate::run::Runner;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

/// The factor by which a point's runs grow until its interval is checked again.
const GROWTH: f64 = 1.25;

/// The state of a sweep: a machine that gives the next run and is told of each that is done.
///
/// A point's interval is checked when all runs planned for it are done, in whatever order: which runs are made depends
/// on the plan alone.
#[derive(Debug)]
pub struct Schedule {
    until: Option<(Until, &'static Measure)>,
    points: Vec<State>,
    ready: VecDeque<Run>,
    taken: u64,
    done: u64,
    failed: u64,
}

/// The state of a point.
#[derive(Clone, Debug, Default)]
struct State {
    /// The result of each planned replicate.
    found: Vec<Found>,
    done: u64,
    finished: bool,
    /// Whether its interval is still too wide after the greatest number of runs.
    wide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    Nothing,
    Failed,
    Value(f64),
}

impl Schedule {
    /// The schedule of a plan with nothing done.
    pub fn new(plan: &Plan) -> Schedule {
        let until = plan.until.as_ref().and_then(|until| {
            let measure = Measure::find(&until.measure).ok()?;
            Some((until.clone(), measure))
        });
        let mut schedule = Schedule {
            until,
            points: vec![State::default(); plan.points.len()],
            ready: VecDeque::new(),
            taken: 0,
            done: 0,
            failed: 0,
        };
        // All first replicates, then all second ones: a sweep that is stopped has some of every point.
        (0..plan.points.len() as u64).for_each(|point| schedule.plan(point, plan.replicates));
        schedule.ready.make_contiguous().sort_by_key(|run| (run.replicate, run.point));
        schedule
    }

    /// The schedule of a plan with these rows done.
    ///
    /// # Errors
    /// If a row does not belong to this plan, or appears twice.
    pub fn resume(plan: &Plan, rows: &[Row]) -> Result<Schedule, String> {
        let mut schedule = Schedule::new(plan);
        let mut rows: Vec<&Row> = rows.iter().collect();
        // In this order each row has been planned when it is entered.
        rows.sort_by_key(|row| (row.replicate, row.point));
        for row in rows {
            schedule.enter(row)?;
        }
        let Schedule { points, ready, .. } = &mut schedule;
        ready.retain(|run| {
            points[run.point as usize].found[run.replicate as usize] == Found::Nothing
        });
        Ok(schedule)
    }

    /// Plans runs of a point until there are `count`.
    fn plan(&mut self, point: u64, count: u64) {
        let state = &mut self.points[point as usize];
        let from = state.found.len() as u64;
        state.found.resize(count as usize, Found::Nothing);
        self.ready.extend((from..count).map(|replicate| Run { point, replicate }));
    }

    /// The next run; `None` if it depends on a run that is still in progress, or all are done.
    pub fn take(&mut self) -> Option<Run> {
        let run = self.ready.pop_front()?;
        self.taken += 1;
        Some(run)
    }

    /// Returns a run that was taken but not done.
    pub fn give_back(&mut self, run: Run) {
        self.taken -= 1;
        self.ready.push_front(run);
    }

    /// Enters the result of a run.
    ///
    /// # Errors
    /// If the run does not belong to this plan or has been entered already; then nothing changes.
    pub fn enter(&mut self, row: &Row) -> Result<(), String> {
        let Row { point, replicate, .. } = *row;
        let value = match (&row.result, &self.until) {
            (Err(_), _) => Found::Failed,
            (Ok(measures), Some((_, measure))) => Found::Value((measure.of)(measures)),
            (Ok(_), None) => Found::Value(0.0),
        };
        let state = self.points.get_mut(point as usize);
        let found = state
            .and_then(|state| Some((state.found.get_mut(replicate as usize)?, &mut state.done)));
        let Some((found, done)) = found else {
            return Err(format!("run {replicate} of point {point} does not belong to this plan"));
        };
        if *found != Found::Nothing {
            return Err(format!("run {replicate} of point {point} appears twice"));
        }
        *found = value;
        *done += 1;
        self.done += 1;
        self.failed += u64::from(value == Found::Failed);
        self.taken = self.taken.saturating_sub(1);
        self.look(point);
        Ok(())
    }

    /// Once all planned runs of a point are done, decides whether it needs more.
    fn look(&mut self, point: u64) {
        let state = &mut self.points[point as usize];
        if state.finished || state.done < state.found.len() as u64 {
            return;
        }
        let values: Vec<f64> = state.values();
        let Some((until, _)) = &self.until else {
            state.finished = true;
            return;
        };
        // A point that failed once will fail again.
        if values.len() < state.found.len() || until.is_narrow(&values) {
            state.finished = true;
            return;
        }
        if state.done >= until.most {
            state.finished = true;
            state.wide = true;
            return;
        }
        let next = ((state.done as f64 * GROWTH).ceil() as u64).min(until.most);
        self.plan(point, next);
    }

    /// Whether everything is done.
    pub fn is_done(&self) -> bool {
        self.points.iter().all(|state| state.finished)
    }

    /// The number of runs in progress.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The number of runs done, of failed ones, and an estimate of the total: the runs that a point needs grow with the
    /// square of the factor by which its interval is too wide.
    pub fn progress(&self) -> (u64, u64, u64) {
        let expected = self.points.iter().map(|state| state.expected(self.until.as_ref())).sum();
        (self.done, self.failed, expected)
    }

    /// The points whose intervals are still too wide after the greatest number of runs.
    pub fn wide(&self) -> Vec<u64> {
        (0..).zip(&self.points).filter(|(_, state)| state.wide).map(|(point, _)| point).collect()
    }
}

impl State {
    fn values(&self) -> Vec<f64> {
        let value = |found: &Found| match found {
            Found::Value(value) => Some(*value),
            Found::Nothing | Found::Failed => None,
        };
        self.found.iter().filter_map(value).collect()
    }

    fn expected(&self, until: Option<&(Until, &'static Measure)>) -> u64 {
        let planned = self.found.len() as u64;
        let Some((until, _)) = until.filter(|_| !self.finished) else { return planned };
        match until.excess(&self.values()) {
            Some(excess) => {
                planned.max((self.done as f64 * excess * excess) as u64).min(until.most)
            }
            None => planned,
        }
    }
}

impl Until {
    /// The factor by which the interval of `values` is too wide; `None` if there is no interval.
    fn excess(&self, values: &[f64]) -> Option<f64> {
        let interval = Interval::of(values)?;
        let half = interval.half_width?;
        let allowed = match self.width {
            Width::Relative(share) => share * interval.mean.abs(),
            Width::Absolute(width) => width,
        };
        Some(if half <= allowed { 1.0 } else { half / allowed.max(f64::MIN_POSITIVE) })
    }

    pub(crate) fn is_narrow(&self, values: &[f64]) -> bool {
        self.excess(values).is_some_and(|excess| excess <= 1.0)
    }
}

/// Does the runs of a sweep, as many at once as the runner has threads, until all are done or the runner's watch is
/// stopped. Each row is passed to `keep`, from any thread, before that thread's next run; stopping loses no row
/// that was kept.
///
/// # Errors
/// The first error of `keep`, which ends the sweep.
pub fn work(
    plan: &Plan,
    schedule: &Mutex<Schedule>,
    runner: Runner<'_>,
    keep: &(dyn Fn(Row) -> Result<(), String> + Sync),
) -> Result<(), String> {
    let changed = Condvar::new();
    let failure: Mutex<Option<String>> = Mutex::new(None);
    let control = &runner.watch.control;
    let worker = || {
        let mut state = schedule.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if control.stopped() {
                break;
            }
            let Some(run) = state.take() else {
                if state.taken() == 0 {
                    break;
                }
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let row = plan.run(run, runner);
            state = schedule.lock().unwrap_or_else(PoisonError::into_inner);
            let entered = match &row {
                Some(row) => state.enter(row),
                None => {
                    state.give_back(run);
                    Ok(())
                }
            };
            changed.notify_all();
            drop(state);
            if let Err(words) = entered.and_then(|()| row.map_or(Ok(()), keep)) {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(words);
                control.stop();
            }
            state = schedule.lock().unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        // Waiting threads must see that no more runs will come.
        changed.notify_all();
    };
    let mut workers: Vec<_> = (0..runner.threads.max(1)).map(|_| worker).collect();
    let mut tasks: Vec<&mut (dyn FnMut() + Send)> =
        workers.iter_mut().map(|worker| worker as &mut (dyn FnMut() + Send)).collect();
    runner.parallel.run(&mut tasks);
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(words) => Err(words),
        None => Ok(()),
    }
}
