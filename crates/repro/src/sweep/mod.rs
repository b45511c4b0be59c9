//! Reproductions as data: what `repro.toml` says of runs, and which of their quantities is which row.
//!
//! ```text
//! [formulas]   named, from constants and from what a run counted
//! [texts.X]    what stands in a setting for each value of a variable X
//! [runs.X]     an experiment, what to set in it, and over which values
//! [rows]       for each row of expected.csv the formula that is its value
//! [plots.X]    figures: a formula for each point
//! ```
//!
//! `experiments/README.md` says what each key means. Where a row needs code, a function of
//! [`crate::compute`] takes its runs from here.

pub(crate) mod formula;
mod measure;
mod plots;
pub(crate) mod run;
mod scope;

use crate::Error;
pub(crate) use formula::mean;
use formula::{FUNCTIONS, Node, Template, Val, Wrong};
use lastmeter_base::kind::{Param, ParamKind};
use lastmeter_lab::document::{Content, Decoder, Entry, Fault, Item, Mark, Reporter, Shape, join};
use lastmeter_lab::profile::constants::Constants;
pub(crate) use scope::apart;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The keys of `repro.toml` that are read here.
pub(crate) const KEYS: [&str; 6] = ["runs", "rows", "plots", "formulas", "texts", "seeds"];
const RUN: &[Param] = &[
    Param::optional("experiment", ParamKind::Text, "that of `like`").is("a file, or a bundled one"),
    Param::optional("like", ParamKind::Text, "no other run")
        .is("the run that it is a variation of"),
    Param::optional("record", ParamKind::Choice(RECORDS), "counters").is("what else is recorded"),
];
const RECORDS: &[&str] = &["stages", "trace", "verdict"];
/// A run like a run like a run.
const LIKE_MAX: usize = 8;
/// Names that every formula knows.
const GIVEN: [&str; 3] = ["seed", "full", "none"];

/// Where something stands.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    mark: Mark,
    key: String,
}

/// A formula or a text with formulas in it, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) what: T,
    place: Place,
}

/// A variable, and the values that it has where nobody gives it one.
type Over = Vec<(String, Placed<Node>)>;

#[derive(Clone, Debug)]
pub(crate) struct Run {
    name: String,
    place: Place,
    /// The file's name and text.
    experiment: Option<(String, String)>,
    like: Option<String>,
    record: Option<String>,
    over: Over,
    set: Vec<Placed<Template>>,
    /// When counters are looked at before the end, in seconds.
    early: Option<Placed<Node>>,
    /// In place of an experiment, a transfer between two hosts: what [`TRANSFER`] names.
    transfer: Option<Vec<Placed<Template>>>,
    /// What is set in profiles, by `hosts/NAME` or `adapters/NAME`.
    profiles: Vec<(Placed<Template>, Vec<Placed<Template>>)>,
}

/// What a transfer between two hosts says, all of it.
const TRANSFER: [&str; 5] = ["host", "adapter", "message", "packet", "length"];

#[derive(Clone, Debug)]
pub(crate) struct Row {
    row: Placed<Template>,
    value: Placed<Node>,
    over: Over,
}

/// What `repro.toml` says of runs and rows.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    reporter: Reporter,
    formulas: BTreeMap<String, Placed<Node>>,
    texts: BTreeMap<String, BTreeMap<String, Placed<Template>>>,
    runs: Vec<Run>,
    rows: Vec<Row>,
    plots: Vec<plots::Drawn>,
    /// Over so many seeds values are means: in a quick run, and in a full one.
    seeds: Option<[u64; 2]>,
    /// Texts of the profiles in the folder, by `hosts/NAME`.
    profiles: BTreeMap<String, String>,
}

/// What runs gave, by run with its variables, and by quantity: figures and rows share it.
#[derive(Debug, Default)]
pub struct RunCache(Mutex<BTreeMap<(String, String), Val>>);

impl RunCache {
    fn get(&self, run: &str, quantity: &str) -> Option<Val> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(run.to_owned(), quantity.to_owned())).cloned()
    }
    fn put(&self, run: &str, quantity: String, value: Val) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((run.to_owned(), quantity), value);
    }
}

impl Sweep {
    /// Reads the tables, and reports what is wrong with them. `file` finds a file of the folder, or
    /// else the text of a bundled experiment; `profiles` are those of the folder.
    pub(crate) fn read(
        decoder: &mut Decoder<'_>,
        root: &Item,
        constants: &Constants,
        file: &dyn Fn(&str) -> Option<String>,
        profiles: BTreeMap<String, String>,
    ) -> Sweep {
        let mut sweep = Sweep { reporter: decoder.reporter.clone(), profiles, ..Sweep::default() };
        let entries = |key: &str| root.get(key).and_then(Item::entries).unwrap_or_default();
        for entry in entries("formulas") {
            let read = formula(decoder, &entry.item, &join("formulas", &entry.key));
            sweep.formulas.extend(read.map(|read| (entry.key.clone(), read)));
        }
        for variable in entries("texts") {
            let key = join("texts", &variable.key);
            let of = |entry: &Entry| {
                let read = template(decoder, &entry.item, &join(&key, &entry.key))?;
                Some((entry.key.clone(), read))
            };
            let texts = variable.item.entries().unwrap_or_default().iter().filter_map(of).collect();
            sweep.texts.insert(variable.key.clone(), texts);
        }
        sweep.runs = entries("runs").iter().map(|entry| run(decoder, entry, file)).collect();
        sweep.rows = entries("rows").iter().filter_map(|entry| row(decoder, entry)).collect();
        let drawn = entries("plots");
        sweep.plots = drawn.iter().filter_map(|entry| plots::read(decoder, entry, drawn)).collect();
        sweep.seeds = root.get("seeds").and_then(|item| seeds(decoder, item));
        sweep.check(decoder, constants);
        sweep
    }

    /// Whether there is nothing to compute.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn fail(&self, place: &Place, found: impl Into<String>) -> Error {
        let mut reporter = self.reporter.clone();
        reporter.report(&place.mark, &place.key, Fault::new(found, ""));
        Error::Problems(reporter.into_problems())
    }

    fn find(&self, name: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.name == name)
    }

    /// A run, then what it is like, and so on to the one that has an experiment.
    fn chain<'a>(&'a self, run: &'a Run) -> Vec<&'a Run> {
        let mut chain = vec![run];
        while let Some(like) =
            chain[chain.len() - 1].like.as_deref().and_then(|name| self.find(name))
        {
            if chain.len() == LIKE_MAX {
                break;
            }
            chain.push(like);
        }
        chain
    }

    /// The variables of a run, those that it inherits first.
    fn over<'a>(&'a self, run: &'a Run) -> Vec<&'a (String, Placed<Node>)> {
        let mut over: Vec<&(String, Placed<Node>)> = Vec::new();
        for one in self.chain(run).into_iter().rev().flat_map(|run| &run.over) {
            match over.iter_mut().find(|(name, _)| *name == one.0) {
                Some(known) => *known = one,
                None => over.push(one),
            }
        }
        over
    }

    /// Reports names that nobody explains, before anything runs.
    fn check(&self, decoder: &mut Decoder<'_>, constants: &Constants) {
        for run in &self.runs {
            let chain = self.chain(run);
            let first = chain[chain.len() - 1];
            let found = match &first.like {
                Some(like) if self.find(like).is_none() => format!("there is no run `{like}`"),
                Some(_) => format!("`{}` is like itself", run.name),
                None if first.experiment.is_none() && first.transfer.is_none() => "nothing says what is run".to_owned(),
                None => continue,
            };
            let right =
                "write `experiment = \"network.toml\"`, or `like = \"...\"` with another run";
            decoder.report(&run.place.mark, &run.place.key, Fault::new(found, right));
        }
        let variables = self.runs.iter().flat_map(|run| &run.over);
        let variables = variables.chain(self.rows.iter().flat_map(|row| &row.over));
        let variables = variables.map(|(name, _)| name.as_str());
        let variables = variables.chain(self.plots.iter().flat_map(plots::Drawn::variables));
        let mut known: BTreeSet<&str> = variables.chain(GIVEN).collect();
        known.extend(self.formulas.keys().map(String::as_str));
        known.extend(constants.names());
        let mut see = |place: &Place, node: &Node| {
            node.visit(&mut |node| {
                if let Some(fault) = self.unknown(node, &known) {
                    decoder.report(&place.mark, &place.key, fault);
                }
            });
        };
        self.formulas.values().for_each(|one| see(&one.place, &one.what));
        let over = |over: &Over, see: &mut dyn FnMut(&Place, &Node)| {
            over.iter().for_each(|(_, one)| see(&one.place, &one.what));
        };
        let texts = self.texts.values().flat_map(BTreeMap::values);
        let changed = self.runs.iter().flat_map(|run| &run.profiles);
        let changed = changed.flat_map(|(profile, sets)| std::iter::once(profile).chain(sets));
        let sets = self.runs.iter().flat_map(|run| run.set.iter().chain(run.transfer.iter().flatten()));
        let sets = sets.chain(changed);
        let rows = self.rows.iter().map(|row| &row.row);
        let drawn: Vec<_> = self.plots.iter().map(plots::Drawn::parts).collect();
        let captions = drawn.iter().flat_map(|(_, texts)| texts.iter().copied());
        drawn.iter().flat_map(|(formulas, _)| formulas).for_each(|one| see(&one.place, &one.what));
        for text in texts.chain(sets).chain(rows).chain(captions) {
            text.what.formulas().for_each(|node| see(&text.place, node));
        }
        for run in &self.runs {
            over(&run.over, &mut see);
            run.early.iter().for_each(|one| see(&one.place, &one.what));
        }
        for row in &self.rows {
            over(&row.over, &mut see);
            see(&row.value.place, &row.value.what);
        }
    }

    /// What of this node nobody explains.
    fn unknown(&self, node: &Node, known: &BTreeSet<&str>) -> Option<Fault> {
        let fault = |what: &str, name: &str, known: Vec<&str>| {
            let right = format!("it can be {}", known.join(", "));
            Some(Fault::unknown(format!("there is no {what} `{name}`"), right, name, known))
        };
        let functions = || FUNCTIONS.iter().chain(measure::FUNCTIONS);
        match node {
            Node::Name(name) if !known.contains(name.as_str()) => {
                fault("constant, variable or formula", name, known.iter().copied().collect())
            }
            Node::Call(name, given) => match functions().find(|function| function.0 == name) {
                Some(&(_, count, gives)) => (given.len() != count).then(|| {
                    let found = format!("`{name}` is given {} values", given.len());
                    Fault::new(found, format!("it takes {count}: {gives}"))
                }),
                None => fault("function", name, functions().map(|function| function.0).collect()),
            },
            Node::Of { run: name, given, quantity } => {
                let runs = || self.runs.iter().map(|run| run.name.as_str()).collect();
                let Some(run) = self.find(name) else { return fault("run", name, runs()) };
                let over = self.over(run);
                let variables: Vec<&str> = over.iter().map(|(name, _)| name.as_str()).collect();
                let strange = given.iter().find(|(name, _)| !variables.contains(&name.as_str()));
                if let Some((name, _)) = strange {
                    return fault("variable of this run", name, variables);
                }
                let formulas = || self.formulas.keys().map(String::as_str).collect();
                let is_known = self.formulas.contains_key(quantity);
                if is_known { None } else { fault("formula", quantity, formulas()) }
            }
            _ => None,
        }
    }
}

/// Reports what is wrong with a text at its place in it.
fn wrong(decoder: &mut Decoder<'_>, item: &Item, key: &str, text: &str, (at, found): Wrong) {
    let Mark { source, span } = item.mark.clone();
    // Between quotes and without escapes a place in the text is one in the file.
    let plain = span.len() == text.len() + 2;
    let span = if plain { span.start + 1 + at..span.start + 1 + at } else { span };
    let right = "a formula is like `100 * slow.goodput / fast.goodput`";
    decoder.report(&Mark { source, span }, key, Fault::new(found, right));
}

fn place(item: &Item, key: &str) -> Place {
    Place { mark: item.mark.clone(), key: key.to_owned() }
}

/// A formula: a text, or a number, or a list of texts and numbers as they are.
fn formula(decoder: &mut Decoder<'_>, item: &Item, key: &str) -> Option<Placed<Node>> {
    fn literal(item: &Item) -> Option<Val> {
        match &item.content {
            Content::Text(text) => Some(text.as_str().into()),
            Content::Integer(Some(number), _) => Some((*number as f64).into()),
            Content::Number(number, _) => Some((*number).into()),
            Content::Flag(flag) => Some(Val::Truth(*flag)),
            _ => None,
        }
    }
    let node = match &item.content {
        Content::Text(text) => match formula::parse(text) {
            Ok(node) => node,
            Err(fault) => {
                wrong(decoder, item, key, text, fault);
                return None;
            }
        },
        Content::List(items) if !items.is_empty() && items.len() <= formula::VALUES_MAX => {
            Node::Value(Val::List(items.iter().map(literal).collect::<Option<_>>()?))
        }
        _ => match literal(item) {
            Some(value) => Node::Value(value),
            None => {
                let found = format!("{} is no formula", item.content.name());
                decoder.report(&item.mark, key, Fault::new(found, "write \"1 + 1\", 2 or [2, 3]"));
                return None;
            }
        },
    };
    Some(Placed { what: node, place: place(item, key) })
}

fn template(decoder: &mut Decoder<'_>, item: &Item, key: &str) -> Option<Placed<Template>> {
    let Content::Text(text) = &item.content else {
        let found = format!("{} stands where a text does", item.content.name());
        decoder.report(&item.mark, key, Fault::new(found, "write \"links.0.rate=$rate bit/s\""));
        return None;
    };
    match Template::parse(text) {
        Ok(what) => Some(Placed { what, place: place(item, key) }),
        Err(fault) => {
            wrong(decoder, item, key, text, fault);
            None
        }
    }
}

fn over(decoder: &mut Decoder<'_>, item: &Item, key: &str) -> Over {
    let key = join(key, "over");
    let entries = item.get("over").and_then(Item::entries).unwrap_or_default();
    let of = |entry: &Entry| {
        Some((entry.key.clone(), formula(decoder, &entry.item, &join(&key, &entry.key))?))
    };
    entries.iter().filter_map(of).collect()
}

fn run(
    decoder: &mut Decoder<'_>,
    Entry { key: name, item, .. }: &Entry,
    file: &dyn Fn(&str) -> Option<String>,
) -> Run {
    let besides = &["over", "set", "early", "transfer", "profiles"];
    let shape = Shape { what: "a run", params: RUN, kind: None, besides };
    let key = join("runs", name);
    let (_, values) = decoder.table(&shape, item, &key);
    let mut experiment = None;
    if let Some(named) = values.given::<String>("experiment") {
        let text = file(&named);
        if text.is_none() {
            let found = format!("there is no `{named}` in the folder, and no bundled experiment");
            let fault = Fault::new(found, "name a file beside this one: \"network.toml\"");
            decoder.report(item.get("experiment").map_or(&item.mark, |at| &at.mark), &key, fault);
        }
        experiment = Some((named, text.unwrap_or_default()));
    }
    let set = item.get("set").map(|sets| templates(decoder, sets, &join(&key, "set")));
    let early = item.get("early").and_then(|one| formula(decoder, one, &join(&key, "early")));
    Run {
        name: name.clone(),
        place: place(item, &key),
        experiment,
        like: values.given("like"),
        record: values.given("record"),
        over: over(decoder, item, &key),
        set: set.unwrap_or_default(),
        early,
        transfer: item.get("transfer").and_then(|one| transfer(decoder, one, &key)),
        profiles: changed_profiles(decoder, item, &key),
    }
}

/// What is set in an experiment or in a profile.
fn templates(decoder: &mut Decoder<'_>, sets: &Item, key: &str) -> Vec<Placed<Template>> {
    sets.items().iter().filter_map(|one| template(decoder, one, key)).collect()
}

fn transfer(decoder: &mut Decoder<'_>, item: &Item, key: &str) -> Option<Vec<Placed<Template>>> {
    let key = join(key, "transfer");
    let shape = Shape { what: "a transfer", params: &[], kind: None, besides: &TRANSFER };
    decoder.table(&shape, item, &key);
    let part = |name: &str| match item.get(name) {
        Some(part) => template(decoder, part, &join(&key, name)),
        None => {
            let right = format!("a transfer says {}", TRANSFER.join(", "));
            let fault = Fault::new(format!("`{name}` is missing"), right);
            decoder.report(&item.mark, &key, fault);
            None
        }
    };
    TRANSFER.into_iter().map(part).collect()
}

fn changed_profiles(
    decoder: &mut Decoder<'_>,
    item: &Item,
    key: &str,
) -> Vec<(Placed<Template>, Vec<Placed<Template>>)> {
    let key = join(key, "profiles");
    let entries = item.get("profiles").and_then(Item::entries).unwrap_or_default();
    let of = |Entry { key: profile, mark, item }: &Entry| {
        let name = Item { mark: mark.clone(), content: Content::Text(profile.clone()) };
        Some((template(decoder, &name, &key)?, templates(decoder, item, &join(&key, profile))))
    };
    entries.iter().filter_map(of).collect()
}

/// A row: `"E-64/mean" = "..."`, or a table where it has variables.
fn row(decoder: &mut Decoder<'_>, entry: &Entry) -> Option<Row> {
    let (key, item) = (join("rows", &entry.key), &entry.item);
    let row = Item { mark: entry.mark.clone(), content: Content::Text(entry.key.clone()) };
    let row = template(decoder, &row, &key)?;
    if item.entries().is_none() {
        return Some(Row { row, value: formula(decoder, item, &key)?, over: Over::new() });
    }
    let shape = Shape { what: "a row", params: &[], kind: None, besides: &["value", "over"] };
    decoder.table(&shape, item, &key);
    let value = formula(decoder, item.get("value").unwrap_or(item), &join(&key, "value"))?;
    Some(Row { row, value, over: over(decoder, item, &key) })
}

fn seeds(decoder: &mut Decoder<'_>, item: &Item) -> Option<[u64; 2]> {
    let count = |item: &Item| match item.content {
        Content::Integer(Some(count @ 1..=1000), _) => Some(count as u64),
        _ => None,
    };
    let found = match item.items() {
        [quick, full] => count(quick).zip(count(full)),
        _ => None,
    };
    if found.is_none() {
        let fault = Fault::new("these are no two numbers", "write `seeds = [3, 10]`");
        decoder.report(&item.mark, "seeds", fault);
    }
    found.map(|(quick, full)| [quick, full])
}
