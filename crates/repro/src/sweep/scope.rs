//! Names in formulas, and the computation of rows.

use super::formula::{self, Node, Part, Template, Val};
use super::run::{self, Found, Instance};
use super::{Over, Place, Placed, Sweep, measure};
use crate::Error;
use crate::compute::{Computed, Setting, Value, row};
use lastmeter_base::{Bytes, Duration, PerByte, Rate};
use lastmeter_lab::document::Mark;
use std::cell::Cell;

/// Variables with their values; of two with the same name the last one counts.
pub(super) type Vars = Vec<(String, Val)>;

/// Quantities that no run has given yet.
pub(super) type Missing = Cell<Vec<(Instance, Vec<String>)>>;

/// Deepest nesting of named formulas.
const DEPTH_MAX: usize = 16;
/// Most rounds of runs: a run whose variables come from other runs waits for a later round.
const ROUNDS_MAX: usize = 16;

/// The scope in which a formula is evaluated.
pub(super) struct Scope<'a> {
    pub(super) setting: &'a Setting<'a>,
    pub(super) vars: Vars,
    /// The run whose quantities it uses, if any.
    pub(super) found: Option<&'a Found>,
    /// Whether quantities are those before the end of the run.
    early: Cell<bool>,
    depth: Cell<usize>,
    missing: &'a Missing,
}

impl<'a> Scope<'a> {
    pub(super) fn new(setting: &'a Setting<'a>, vars: Vars, missing: &'a Missing) -> Scope<'a> {
        let (early, depth) = (Cell::new(false), Cell::new(0));
        Scope { setting, vars, found: None, early, depth, missing }
    }

    /// Notes that a run is needed.
    fn miss(&self, instance: Instance, quantity: &str) {
        let mut missing = self.missing.take();
        match missing.iter_mut().find(|(known, _)| known.key == instance.key) {
            Some((_, known)) if known.iter().any(|known| known == quantity) => {}
            Some((_, known)) => known.push(quantity.to_owned()),
            None => missing.push((instance, vec![quantity.to_owned()])),
        }
        self.missing.set(missing);
    }

    fn sweep(&self) -> &'a Sweep {
        self.setting.sweep
    }

    /// The value of a formula.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn value(&self, node: &Node) -> Result<Val, String> {
        match node {
            Node::Value(value) => Ok(value.clone()),
            Node::Name(name) => self.named(name),
            Node::Apply(operator, parts) => {
                formula::apply(operator, &self.value(&parts[0])?, &self.value(&parts[1])?)
            }
            Node::Call(name, given) if name == measure::EARLY => {
                let before = self.early.replace(true);
                let value = given.first().map_or(Err(String::new()), |one| self.value(one));
                self.early.set(before);
                value
            }
            Node::Call(name, given) => {
                let given =
                    given.iter().map(|one| self.value(one)).collect::<Result<Vec<_>, _>>()?;
                match measure::FUNCTIONS.iter().any(|function| function.0 == name) {
                    true => {
                        let missing =
                            || format!("`{name}` is a quantity of a run: write RUN.quantity");
                        self.found.ok_or_else(missing)?.measure(name, &given, self.early.get())
                    }
                    false => formula::call(name, &given),
                }
            }
            Node::Of { run, given, quantity } => self.of(run, given, quantity),
        }
    }

    fn named(&self, name: &str) -> Result<Val, String> {
        if let Some((_, value)) = self.vars.iter().rev().find(|(known, _)| known == name) {
            return Ok(value.clone());
        }
        if let Some(formula) = self.sweep().formulas.get(name) {
            if self.depth.get() == DEPTH_MAX {
                return Err(format!("`{name}` needs itself"));
            }
            self.depth.set(self.depth.get() + 1);
            let value = self.value(&formula.what);
            self.depth.set(self.depth.get() - 1);
            return value;
        }
        match name {
            "seed" => Ok(self.setting.seed.into()),
            "full" => Ok(Val::Truth(self.setting.means.full)),
            "none" => Ok(f64::NAN.into()),
            name => self.constant(name).map_err(|error| error.to_string()),
        }
    }

    /// A constant in seconds, bits per second, bytes, seconds per byte, or as a number.
    fn constant(&self, name: &str) -> Result<Val, Error> {
        let constants = self.setting.constants;
        constants.what(name)?;
        let time = constants.get::<Duration>(name).map(|time| time.as_secs_f64().into());
        time.or_else(|_| constants.get::<Rate>(name).map(|rate| rate.as_bits().into()))
            .or_else(|_| constants.get::<Bytes>(name).map(|size| size.0.into()))
            .or_else(|_| {
                constants.get::<PerByte>(name).map(|cost| (cost.as_fs() as f64 / 1e15).into())
            })
            .or_else(|_| constants.get::<u64>(name).map(Val::from))
            .or_else(|_| constants.get::<Vec<u64>>(name).map(Val::from))
    }

    /// A quantity of a run; a list if a variable has several values.
    fn of(&self, name: &str, given: &[(String, Node)], quantity: &str) -> Result<Val, String> {
        let missing = || format!("there is no run `{name}`");
        let run = self.sweep().find(name).ok_or_else(missing)?;
        let (mut all, mut single) = (vec![Vars::new()], true);
        for (variable, values) in self.sweep().over(run) {
            let value = match given.iter().find(|(name, _)| name == variable) {
                Some((_, node)) => self.value(node)?,
                None => match self.vars.iter().rev().find(|(name, _)| name == variable) {
                    Some((_, value)) => value.clone(),
                    None => self.value(&values.what)?,
                },
            };
            single &= !matches!(value, Val::List(_));
            all = each(all, variable, value.values());
        }
        let seed = self.named("seed")?;
        let one = |mut vars: Vars| {
            vars.push(("seed".to_owned(), seed.clone()));
            let instance = Instance::new(&run.name, vars);
            let known = self.setting.kept.get(&instance.key, quantity);
            known.unwrap_or_else(|| {
                self.miss(instance, quantity);
                1.0.into()
            })
        };
        let mut values: Vec<Val> = all.into_iter().map(one).collect();
        match values.pop() {
            Some(value) if single => Ok(value),
            last => Ok(Val::List(values.into_iter().chain(last).collect())),
        }
    }

    /// A name with its formulas evaluated.
    pub(super) fn name(&self, Template(parts): &Template) -> Result<String, String> {
        let part = |part: &Part| match part {
            Part::Text(part) => Ok(part.clone()),
            Part::Formula(node) => self.value(node).map(|value| value.to_string()),
        };
        parts.iter().map(part).collect()
    }

    /// A text with its formulas evaluated. A variable with texts is replaced by that of its value.
    pub(super) fn text(&self, Template(parts): &Template) -> Result<String, String> {
        let mut text = String::new();
        for part in parts {
            match part {
                Part::Text(part) => text += part,
                Part::Formula(node) => {
                    let value = self.value(node)?.to_string();
                    let texts = match node {
                        Node::Name(name) => self.sweep().texts.get(name),
                        _ => None,
                    };
                    text += &match texts {
                        None => value,
                        Some(texts) => {
                            let missing = || format!("there is no text for `{value}`");
                            self.nested(&texts.get(&value).ok_or_else(missing)?.what)?
                        }
                    };
                }
            }
        }
        Ok(text)
    }

    /// A text within a text.
    fn nested(&self, template: &Template) -> Result<String, String> {
        if self.depth.get() == DEPTH_MAX {
            return Err("a text contains itself".to_owned());
        }
        self.depth.set(self.depth.get() + 1);
        let text = self.text(template);
        self.depth.set(self.depth.get() - 1);
        text
    }
}

/// Each set of variables once with each value of one more variable.
pub(super) fn each(all: Vec<Vars>, variable: &str, values: &[Val]) -> Vec<Vars> {
    let with = |vars: &Vars, value: &Val| {
        let mut vars = vars.clone();
        vars.push((variable.to_owned(), value.clone()));
        vars
    };
    all.iter().flat_map(|vars| values.iter().map(move |value| with(vars, value))).collect()
}

/// Formulas with their variables and places.
type Asked<'a> = (&'a Node, Vars, &'a Place);

impl Setting<'_> {
    /// The values of the requested rows that `repro.toml` defines.
    ///
    /// # Errors
    /// What is wrong with a formula or a run, and where.
    pub(crate) fn sweep_rows(&self) -> Result<Vec<Computed>, Error> {
        let sweep = self.sweep;
        let seeds =
            sweep.seeds.map_or(1, |[quick, full]| if self.means.full { full } else { quick });
        let mut named = Vec::new();
        let mut asked: Vec<Asked<'_>> = Vec::new();
        for row in &sweep.rows {
            for vars in self.over(&row.over)? {
                let none = Missing::default();
                let name = Scope::new(self, vars.clone(), &none).name(&row.row.what);
                let name = name.map_err(|found| sweep.fail(&row.row.place, found))?;
                if !self.wants(name.split_once('/').map_or(&name, |(id, _)| id)) {
                    continue;
                }
                for seed in self.seed..self.seed + seeds {
                    let mut vars = vars.clone();
                    vars.push(("seed".to_owned(), seed.into()));
                    asked.push((&row.value.what, vars, &row.value.place));
                }
                named.push((name, &row.value.place));
            }
        }
        let values = self.work_out(&asked)?;
        let rows = named.into_iter().zip(values.chunks(seeds as usize));
        rows.map(|((name, place), values)| {
            let (value, remark) = over_seeds(values).map_err(|found| sweep.fail(place, found))?;
            Ok(row(name, value).with_remark(remark))
        })
        .collect()
    }

    /// Every combination of the values of some variables.
    pub(super) fn over(&self, over: &Over) -> Result<Vec<Vars>, Error> {
        let mut all = vec![Vars::new()];
        for (name, Placed { what, place }) in over {
            let none = Missing::default();
            let value = Scope::new(self, Vars::new(), &none).value(what);
            let value = value.map_err(|found| self.sweep.fail(place, found))?;
            all = each(all, name, value.values());
        }
        Ok(all)
    }

    /// Evaluates all of them.
    fn work_out(&self, asked: &[Asked<'_>]) -> Result<Vec<Val>, Error> {
        self.settle(|missing| {
            let values: Vec<_> = asked
                .iter()
                .map(|(node, vars, place)| {
                    let value = Scope::new(self, vars.clone(), missing).value(node);
                    value.map_err(|found| self.sweep.fail(place, found))
                })
                .collect();
            values.into_iter().collect()
        })
    }

    /// Calls `work`, and again after running whatever it missed.
    pub(super) fn settle<T>(
        &self,
        work: impl Fn(&Missing) -> Result<T, Error>,
    ) -> Result<T, Error> {
        for _ in 0..ROUNDS_MAX {
            let missing = Missing::default();
            let done = work(&missing);
            match missing.into_inner() {
                missing if missing.is_empty() => return done,
                missing => self.run_missing(&missing)?,
            }
        }
        let place = Place { mark: Mark { source: 0, span: 0..0 }, key: String::new() };
        Err(self
            .sweep
            .fail(&place, "runs depend on each other in a circle, or in too long a chain"))
    }

    /// Runs these in parallel, and stores the requested quantities.
    fn run_missing(&self, missing: &[(Instance, Vec<String>)]) -> Result<(), Error> {
        let found = run::all(missing, self.means, |(instance, quantities)| {
            let found = self.run_instance(instance)?;
            let of = |quantity: &String| {
                let formula = &self.sweep.formulas[quantity];
                let missing = Missing::default();
                let scope = Scope::new(self, instance.vars.clone(), &missing);
                let value = Scope { found: Some(&found), ..scope }.value(&formula.what);
                let value = value.map_err(|what| self.sweep.fail(&formula.place, what))?;
                match missing.into_inner().is_empty() {
                    true => Ok(value),
                    false => Err(self
                        .sweep
                        .fail(&formula.place, "a run's quantity cannot use another run")),
                }
            };
            quantities.iter().map(of).collect::<Result<Vec<Val>, Error>>()
        })?;
        for ((instance, quantities), values) in missing.iter().zip(found) {
            for (quantity, value) in quantities.iter().zip(values) {
                self.kept.put(&instance.key, quantity.clone(), value);
            }
        }
        Ok(())
    }
}

/// A row's value from the values of each seed, and their spread.
fn over_seeds(values: &[Val]) -> Result<(Value, String), String> {
    if let Some(holds) = values
        .iter()
        .map(|value| if let Val::Truth(holds) = value { Some(*holds) } else { None })
        .collect::<Option<Vec<bool>>>()
    {
        return Ok((Value::Holds(holds.into_iter().all(|holds| holds)), String::new()));
    }
    let numbers = values.iter().map(Val::number).collect::<Result<Vec<f64>, _>>()?;
    match numbers[..] {
        [number] => Ok((Value::Plain(number), String::new())),
        _ => Ok((Value::Plain(formula::mean(&numbers)), apart(&numbers))),
    }
}

/// The spread of values over seeds; empty if there is none.
pub(crate) fn apart(values: &[f64]) -> String {
    let (least, most) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &value| (a.min(value), b.max(value)));
    let digits = if most.abs() < 10.0 { 2 } else { 1 };
    let [least, most] = [least, most].map(|value| format!("{value:.digits$}"));
    if least == most {
        return String::new();
    }
    format!("mean of {} seeds: {least} to {most}", values.len())
}
