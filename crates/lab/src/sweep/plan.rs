//! The plan of a sweep: everything that its rows depend on, as data.

use super::design::Points;
use super::factor::Factor;
use super::row::{Measure, Row};
use crate::document::{Override, Problem};
use crate::experiment::Experiment;
use crate::library::Library;
use crate::run::{Failure, Runner, ledger};
use serde::{Deserialize, Serialize};

/// The version of a plan's JSON. It changes when a field changes its meaning or is removed.
pub const SCHEMA: &str = "lastmeter.sweep-plan/1";
/// The most points of a sweep.
pub const POINTS_MAX: u64 = 1_000_000;
/// The most runs of one point.
pub const REPLICATES_MAX: u64 = 100_000;
/// Default number of runs of a point before its interval is first checked.
const REPLICATES_UNTIL: u64 = 5;
/// Default number of runs of a point after which it is given up.
const MOST: u64 = 200;

/// Everything that the rows of a sweep depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The experiment's name in messages.
    pub experiment: String,
    /// The text of the experiment.
    pub text: String,
    /// The folder to which the paths of its captures are relative; `None` for a bundled experiment.
    pub folder: Option<String>,
    /// The overrides of all runs, as in `--set`.
    pub sets: Vec<String>,
    /// The keys that vary.
    pub factors: Vec<String>,
    /// Values of the factors, for each point, as in `--set`.
    pub points: Points,
    /// How the points were chosen, in words.
    pub design: String,
    /// The seed of the first replicate; the others follow.
    pub seed: u64,
    /// Runs of each point, or with `until` those before the first check.
    pub replicates: u64,
    /// If set, points are run until an interval is narrow enough.
    pub until: Option<Until>,
    /// Whether each run is a tenth as long.
    pub quick: bool,
}

/// When a point has been run often enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// The measure.
    pub measure: String,
    /// The width that its interval must reach.
    pub width: Width,
    /// Runs after which the point is given up.
    pub most: u64,
}

/// The width that a 95 % confidence interval must reach: half of it, to either side of the mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Width {
    /// A share of the mean.
    Relative(f64),
    /// In the measure's SI base unit.
    Absolute(f64),
}

/// One run of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    /// The index of the point.
    pub point: u64,
    /// The number of the run at this point, from 0.
    pub replicate: u64,
}

impl Until {
    /// Reads `goodput 2 %` or `latency 5 us`.
    ///
    /// # Errors
    /// Says what is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Until, String> {
        let right = "write a measure and a width, like 'goodput 2 %' or 'latency 5 us'";
        let (name, width) = text.trim().split_once(' ').ok_or(format!("`{text}`: {right}"))?;
        let measure = Measure::find(name)?;
        let width = width.trim();
        let wrong = || format!("`{width}` is not a width of {name}: {right}");
        let width = match width.strip_suffix('%') {
            Some(percent) => {
                Width::Relative(percent.trim().parse::<f64>().map_err(|_| wrong())? / 100.0)
            }
            None => {
                use super::factor::{Kind, number};
                let (value, kind) = number(width).ok_or_else(wrong)?;
                let fits = match measure.unit {
                    "s" => kind == Kind::Time,
                    "bit/s" => kind == Kind::Rate,
                    _ => matches!(kind, Kind::Whole | Kind::Number),
                };
                Width::Absolute(fits.then(|| value / kind.smallest_per_si()).ok_or_else(wrong)?)
            }
        };
        let (Width::Relative(size) | Width::Absolute(size)) = width;
        match size > 0.0 && size.is_finite() {
            true => Ok(Until { measure: name.to_owned(), width, most: MOST }),
            false => Err(wrong()),
        }
    }
}

/// The request for a plan.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The experiment's name in messages.
    pub experiment: String,
    /// The text of the experiment.
    pub text: String,
    /// The folder to which the paths of its captures are relative.
    pub folder: Option<String>,
    /// The overrides of all runs.
    pub sets: Vec<String>,
    /// The factors.
    pub factors: Vec<Factor>,
    /// Values of the factors, for each point.
    pub points: Points,
    /// How the points were chosen, in words.
    pub design: String,
    /// The seed of the first replicate; `None` for the experiment's own.
    pub seed: Option<u64>,
    /// Runs of each point; `None` for one, or five with `until`.
    pub replicates: Option<u64>,
    /// If set, points are run until an interval is narrow enough.
    pub until: Option<Until>,
    /// Whether each run is a tenth as long.
    pub quick: bool,
}

impl Plan {
    /// Checks a request by reading the experiment with each value of each factor, and makes a plan of it.
    ///
    /// ```
    /// use lastmeter_lab::library::{Builtin, experiment};
    /// use lastmeter_lab::sweep::{Factor, Plan, Request, design};
    /// let factors = vec![Factor::parse("traffic.customers.poisson.rate=1 Gbit/s,2 Gbit/s")?];
    /// let points = design::grid(&factors)?;
    /// let text = experiment("mm1").expect("it is bundled").to_owned();
    /// let request = Request { experiment: "mm1".into(), text, factors, points, ..Request::default() };
    /// let plan = Plan::new(request, &Builtin).map_err(|problems| problems[0].to_string())?;
    /// assert_eq!((plan.points.len(), plan.seed), (2, 1));
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// All errors in the experiment, a key, or a value.
    pub fn new(request: Request, library: &dyn Library) -> Result<Plan, Vec<Problem>> {
        let Request { experiment, text, folder, sets, factors, points, design, .. } = request;
        let Request { seed, replicates, until, quick, .. } = request;
        let least = if until.is_some() { REPLICATES_UNTIL } else { 1 };
        let mut plan = Plan {
            schema: SCHEMA.to_owned(),
            experiment,
            text,
            folder,
            sets,
            factors: factors.iter().map(|factor| factor.key.clone()).collect(),
            points,
            design,
            seed: 0,
            replicates: replicates.unwrap_or(least).clamp(1, REPLICATES_MAX),
            until,
            quick,
        };
        if let Some(until) = &mut plan.until {
            // An interval needs two values.
            plan.replicates = plan.replicates.max(2);
            until.most = until.most.clamp(plan.replicates, REPLICATES_MAX);
        }
        plan.check_factors()?;
        plan.seed = match seed {
            Some(seed) => seed,
            None => plan.read(&plan.sets, library)?.seed,
        };
        for factor in &factors {
            for level in factor.samples() {
                let set = format!("{}={level}", factor.key);
                let sets: Vec<String> = plan.sets.iter().cloned().chain([set]).collect();
                plan.read(&sets, library)?;
            }
        }
        Ok(plan)
    }

    /// A plan as [`Plan::to_json`] writes it.
    ///
    /// # Errors
    /// If it is not a plan, or one of another version.
    pub fn from_json(text: &str) -> Result<Plan, String> {
        let plan: Plan = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let fits = plan.points.iter().all(|point| point.len() == plan.factors.len());
        match () {
            () if plan.schema != SCHEMA => {
                Err(format!("this is `{}`, not `{SCHEMA}`", plan.schema))
            }
            () if !fits => Err("a point does not have a value for each factor".to_owned()),
            () if plan.points.len() as u64 > POINTS_MAX => Err("too many points".to_owned()),
            () if !(1..=REPLICATES_MAX).contains(&plan.replicates) => {
                Err(format!("{} replicates; 1 to {REPLICATES_MAX} are possible", plan.replicates))
            }
            () => match &plan.until {
                Some(until) => Measure::find(&until.measure).map(|_| plan),
                None => Ok(plan),
            },
        }
    }

    /// The plan as JSON; equal plans give equal bytes.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("text and plain numbers always have a JSON") + "\n"
    }

    /// The first 16 hexadecimal digits of the SHA-256 of its JSON.
    pub fn hash(&self) -> String {
        crate::digest(self.to_json())
    }

    fn check_factors(&self) -> Result<(), Vec<Problem>> {
        let problem = |text: String| Override::parse(&text).map(drop);
        for (place, key) in self.factors.iter().enumerate() {
            problem(format!("{key}=0"))?;
            let twice = self.factors[..place].contains(key);
            if twice || key == "seed" {
                let (found, right) = match twice {
                    true => ("varies twice", "give all its values at once, with commas"),
                    false => ("is varied by replicates", "use --seeds N instead"),
                };
                return Err(vec![crate::document::of_option("--over", key, found, right)]);
            }
        }
        Ok(())
    }

    /// The overrides of a run.
    pub fn sets_of(&self, run: Run) -> Vec<String> {
        let values = self.points.get(run.point as usize).map_or(&[][..], Vec::as_slice);
        let own = self.factors.iter().zip(values).map(|(key, value)| format!("{key}={value}"));
        let seed = format!("seed={}", self.seed_of(run));
        self.sets.iter().cloned().chain(own).chain([seed]).collect()
    }

    /// The seed of a run.
    pub fn seed_of(&self, run: Run) -> u64 {
        // Experiments accept seeds up to the greatest signed number.
        self.seed.wrapping_add(run.replicate) & (i64::MAX as u64)
    }

    fn read(&self, sets: &[String], library: &dyn Library) -> Result<Experiment, Vec<Problem>> {
        let overrides: Vec<Override> =
            sets.iter().map(|set| Override::parse(set)).collect::<Result<_, _>>()?;
        let mut experiment = Experiment::parse(&self.experiment, &self.text, &overrides, library)
            .map_err(|problems| {
            problems.into_iter().map(|one| self.at_factor(one)).collect::<Vec<_>>()
        })?;
        if self.quick {
            experiment.duration = experiment.duration / 10;
        }
        Ok(experiment)
    }

    /// A problem with an override that a factor made is one of `--over`.
    fn at_factor(&self, mut problem: Problem) -> Problem {
        let key = problem.excerpt.split_once('=').map_or("", |(key, _)| key);
        if problem.file == "--set" && self.factors.iter().any(|factor| factor == key) {
            problem.file = "--over".to_owned();
        }
        problem
    }

    /// The experiment of a run, for examining it more closely.
    ///
    /// # Errors
    /// All errors in it.
    pub fn experiment_of(
        &self,
        run: Run,
        library: &dyn Library,
    ) -> Result<Experiment, Vec<Problem>> {
        self.read(&self.sets_of(run), library)
    }

    /// Does one run, in this thread; `None` if it was stopped. A failed run is also a row, with the reason.
    pub fn run(&self, run: Run, runner: Runner<'_>) -> Option<Row> {
        let Run { point, replicate } = run;
        let result = self.experiment_of(run, runner.library).map_err(Failure::Problems);
        match result.and_then(|experiment| ledger(&experiment, Runner { threads: 1, ..runner })) {
            Ok(ledger) if ledger.provenance.partial => None,
            Ok(ledger) => Some(Row::of(point, replicate, &ledger)),
            Err(failure) => {
                let words = match &failure {
                    Failure::Problems(problems) => {
                        problems.first().map_or_else(String::new, Problem::to_string)
                    }
                    other => other.to_string(),
                };
                let paths = Default::default();
                let seed = self.seed_of(run);
                Some(Row { point, replicate, seed, result: Err(words), paths })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_is_a_share_or_has_the_unit_of_its_measure() {
        let width = |text: &str| Until::parse(text).map(|until| until.width);
        assert_eq!(width("goodput 2 %"), Ok(Width::Relative(0.02)));
        assert_eq!(width("latency 5 us"), Ok(Width::Absolute(5e-6)));
        assert_eq!(width("goodput 1 Mbit/s"), Ok(Width::Absolute(1e6)));
        assert_eq!(width("loss 0.001"), Ok(Width::Absolute(0.001)));
        for wrong in ["goodput", "goodput 0 %", "goodput 5 us", "latency 5", "loss -1 %", "los 1 %"]
        {
            assert!(width(wrong).is_err(), "{wrong}");
        }
        assert!(width("gooodput 1 %").unwrap_err().contains("did you mean `goodput`?"));
    }
}
