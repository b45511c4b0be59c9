//! Reproductions: published tables and figures beside our values.
//!
//! ```text
//! experiments/NAME/repro.toml --constants--> computation --values--+
//!                  expected.csv    --published values-------------------+--> rows --> table, JSON
//! ```
//!
//! Published values are typed by hand from the document and never come from this program. A computation is a
//! function registered by name in [`compute`]: it evaluates formulas or runs whole experiments.
//! `experiments/README.md` explains how to add one.

pub mod compute;
pub mod dq;
mod folder;
pub mod fuzz;
pub mod html;
pub mod machines;
mod published;
pub mod reception;
mod report;
pub mod sweep;
pub mod table;

pub use folder::{Contradiction, Role, Shelf};
pub use lastmeter_lab::profile::constants::{ConstantType, Constants, Origin, Origins};
pub use lastmeter_lab::profile::error::Error;
pub use published::{Published, Tolerance};
pub use report::{Report, Row, SCHEMA, Sheet, Summary, Tally};
pub(crate) use table::cells;
pub use table::{Shown, Style};

use compute::{Computed, Setting};
use folder::{Expected, Reproduction};
use lastmeter_engine::{Parallel, Serial};
use lastmeter_lab::library::Programs;
use lastmeter_ledger::drawing::Drawing;
use lastmeter_ledger::plots::Plot;
use std::collections::BTreeSet;
use sweep::RunCache;

/// Options of all experiments of a reproduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Seed of the random streams of simulations.
    pub seed: u64,
}

/// Observes the progress of a computation with many runs. It changes no value.
pub trait Observer: Sync {
    /// This many more runs are planned.
    fn planned(&self, runs: u64);
    /// A run is done.
    fn done(&self);
    /// Whether to begin no further one.
    fn stopped(&self) -> bool {
        false
    }
}

/// No observer.
impl Observer for () {
    fn planned(&self, _runs: u64) {}
    fn done(&self) {}
}

/// How much a reproduction runs, and how; its values depend only on `full`.
#[derive(Clone, Copy)]
pub struct Effort<'a> {
    /// Provides the threads.
    pub parallel: &'a dyn Parallel,
    /// Whether long simulations have the document's length and cases, and not fewer.
    pub full: bool,
    /// Observes each run.
    pub observer: &'a dyn Observer,
    /// Runs owners' programs (plugins), where there is a sandbox for them.
    pub programs: Option<&'a dyn Programs>,
}

/// What is said where an experiment's plugins cannot run.
pub const NO_PROGRAMS: &str = "it has plugins, and this program has no sandbox for them: \
    `lastmeter repro` starts lastmeterd, which has, where `make devices` has built it";

impl Effort<'_> {
    /// One thread, and computations that take seconds.
    pub const PLAIN: Effort<'static> =
        Effort { parallel: &Serial, full: false, observer: &(), programs: None };
}

impl std::fmt::Debug for Effort<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Effort").field("full", &self.full).finish_non_exhaustive()
    }
}

/// Reproduces a row (`E-64`), a system (`E`), an experiment (`cim-equations`), or `all`; of several experiments those
/// without plugins, which need a sandbox ([`Effort::programs`]).
///
/// ```
/// use lastmeter_repro::{Options, Shelf, run};
/// let report = run("J-18", &Shelf::builtin(), Options { seed: 1 })?;
/// let row = report.rows().next().expect("J-18 has a row");
/// assert_eq!((row.measured, row.pass), (Some(21.0), true));
/// # Ok::<(), lastmeter_repro::Error>(())
/// ```
///
/// # Errors
/// Nothing has the name `select`, a file of an experiment is wrong, or a computation failed.
pub fn run(select: &str, shelf: &Shelf, options: Options) -> Result<Report, Error> {
    let mut jobs = plan(select, shelf)?;
    if jobs.len() > 1 {
        jobs.retain(|job| !job.has_plugins());
    }
    let sheets = jobs.into_iter().map(|job| job.run(options)).collect::<Result<_, _>>()?;
    Ok(Report { sheets })
}

/// An experiment and the rows to reproduce: all, or those of one id.
pub struct Job {
    reproduction: Reproduction,
    id: Option<String>,
    kept: RunCache,
}

/// The jobs for `select`, so that a caller can run them one by one and show intermediate results.
///
/// # Errors
/// Nothing has the name `select`, or a file of an experiment is wrong.
pub fn plan(select: &str, shelf: &Shelf) -> Result<Vec<Job>, Error> {
    let reproductions = shelf.reproductions()?;
    let is = |name: &str| name.eq_ignore_ascii_case(select);
    let all = is("all");
    let has_row = |reproduction: &Reproduction| reproduction.rows.iter().any(|row| is(&row.id));
    let mut names = vec!["all".to_owned()];
    for reproduction in &reproductions {
        names.extend([reproduction.name.clone(), reproduction.system.clone()]);
        names.extend(reproduction.rows.iter().map(|row| row.id.clone()));
    }
    let systems: BTreeSet<String> = reproductions.iter().map(|one| one.system.clone()).collect();
    let experiments: Vec<String> = reproductions.iter().map(|one| one.name.clone()).collect();
    let job = |reproduction: Reproduction| {
        let whole = all || is(&reproduction.name) || is(&reproduction.system);
        let id = (!whole && has_row(&reproduction)).then(|| select.to_owned());
        (whole || id.is_some()).then(|| Job { reproduction, id, kept: RunCache::default() })
    };
    let jobs: Vec<Job> = reproductions.into_iter().filter_map(job).collect();
    match jobs.is_empty() {
        true => Err(match Error::unknown("row, system or experiment", select, names) {
            Error::Unknown { what, name, near, .. } if near.is_empty() => {
                let systems = systems.into_iter().collect::<Vec<_>>().join(", ");
                let experiments = experiments.join(", ");
                let there = format!("the systems are {systems}, the experiments {experiments}");
                Error::Unknown { what, name, near, there }
            }
            error => error,
        }),
        false => Ok(jobs),
    }
}

impl Job {
    /// The experiment's name, for progress.
    pub fn name(&self) -> &str {
        &self.reproduction.name
    }

    /// Whether owners' programs take part in it.
    pub fn has_plugins(&self) -> bool {
        self.reproduction.plugins
    }

    /// Whether it is of the rows of one id only.
    pub fn is_of_one_id(&self) -> bool {
        self.id.is_some()
    }

    /// The document's figures drawn from our runs, if there are any.
    ///
    /// # Errors
    /// The computation failed.
    pub fn plots(&self, options: Options, means: Effort<'_>) -> Result<Vec<Plot>, Error> {
        let setting = self.setting(options, means);
        let figures = self.reproduction.figures;
        let mut plots = figures.map_or(Ok(Vec::new()), |figures| figures(&setting))?;
        plots.extend(setting.sweep_plots()?);
        Ok(plots)
    }

    /// Other drawings of the document, if there are any.
    ///
    /// # Errors
    /// The computation failed.
    pub fn drawings(&self, options: Options, means: Effort<'_>) -> Result<Vec<Drawing>, Error> {
        let Some(drawings) = compute::drawings(self.name()) else { return Ok(Vec::new()) };
        drawings(&self.setting(options, means))
    }

    /// With all rows.
    fn setting<'a>(&'a self, options: Options, means: Effort<'a>) -> Setting<'a> {
        let Reproduction { constants, sweep, .. } = &self.reproduction;
        let (seed, kept) = (options.seed, &self.kept);
        Setting { constants, seed, id: None, later: &[], means, sweep, kept }
    }

    /// Computes the rows, and compares the results with the published values.
    ///
    /// # Errors
    /// The computation failed, or gave a value without a published counterpart.
    pub fn run(self, options: Options) -> Result<Sheet, Error> {
        self.run_with(options, Effort::PLAIN)
    }

    /// As [`Job::run`], with this effort.
    ///
    /// # Errors
    /// As for [`Job::run`].
    pub fn run_with(self, options: Options, means: Effort<'_>) -> Result<Sheet, Error> {
        if self.has_plugins() && means.programs.is_none() {
            let name = self.reproduction.name.clone();
            return Err(Error::file(&format!("experiments/{name}/repro.toml"), 1, NO_PROGRAMS));
        }
        let id_given = self.id.as_deref();
        let long = |of: &str| self.reproduction.full.iter().any(|id| id.eq_ignore_ascii_case(of));
        let means = Effort { full: means.full || id_given.is_some_and(long), ..means };
        let later = if means.full { &[][..] } else { &self.reproduction.full[..] };
        let setting = Setting { id: id_given, later, ..self.setting(options, means) };
        let reproduction = &self.reproduction;
        let mut computed = setting.sweep_rows()?;
        if let Some(compute) = reproduction.compute {
            computed.extend(compute(&setting)?);
        }
        for value in &computed {
            let expected = reproduction.rows.iter().any(|row| row.is_of(value));
            if !expected {
                let name = |id: &str, item: &str, key: Option<&str>| match key {
                    Some(key) => format!("{id}/{key}"),
                    None => format!("{id}, {item}"),
                };
                let (keyed, own) = (value.key.is_some(), value.key.as_deref());
                let item = name(&value.id, &value.item, own);
                let of = |row: &Expected| name(&row.id, &row.item, keyed.then_some(&*row.key));
                let items = reproduction.rows.iter().map(of);
                return Err(Error::unknown("published value", &item, items));
            }
        }
        let rows = reproduction.rows.iter().filter(|row| setting.wants(&row.id));
        let rows: Vec<Row> =
            rows.map(|row| beside(reproduction, row, &computed)).collect::<Result<_, _>>()?;
        let touched = |contradiction: &Contradiction| {
            rows.iter().any(|row| contradiction.rows.contains(&row.id))
        };
        let later = reproduction.rows.iter().filter(|row| later.contains(&row.id)).count();
        let later = later as u64;
        let reproduction = self.reproduction;
        Ok(Sheet {
            later,
            contradictions: reproduction.contradictions.into_iter().filter(touched).collect(),
            constants: reproduction.constants.origins(),
            name: reproduction.name,
            system: reproduction.system,
            title: reproduction.title,
            question: reproduction.question,
            rows,
        })
    }
}

/// The note of a row: the folder's, then the run's.
fn note(published: &str, remark: &str) -> String {
    match (published.is_empty(), remark.is_empty()) {
        (_, true) => published.to_owned(),
        (true, false) => remark.to_owned(),
        (false, false) => format!("{published}; {remark}"),
    }
}

/// A published value with the value computed for it, if there is one.
fn beside(
    reproduction: &Reproduction,
    row: &Expected,
    computed: &[Computed],
) -> Result<Row, Error> {
    let value = computed.iter().find(|value| row.is_of(value));
    let measured = value
        .map(|computed| {
            computed.value.in_unit(&row.unit).ok_or_else(|| {
                let found = computed.value.units().join(", ");
                let message = format!(
                    "{}, {}: the computed value has no `{}`; it can be in {found}",
                    row.id, row.item, row.unit
                );
                Error::file(&reproduction.csv(), row.line, message)
            })
        })
        .transpose()?;
    let judgement = measured.map(|value| row.tolerance.judge(&row.published, value));
    Ok(Row {
        schema: SCHEMA,
        id: row.id.clone(),
        item: row.item.clone(),
        published: row.published.clone(),
        measured: measured.filter(|value| value.is_finite()),
        error: judgement.and_then(|judgement| judgement.error),
        tolerance: row.tolerance.to_string(),
        pass: judgement.is_some_and(|judgement| judgement.pass),
        note: note(&row.note, value.map_or("", |computed| &computed.remark)),
        unit: row.unit.clone(),
        section: row.section.clone(),
        role: row.role,
        experiment: reproduction.name.clone(),
        contradicted: reproduction.contradictions.iter().any(|c| c.rows.contains(&row.id)),
    })
}
