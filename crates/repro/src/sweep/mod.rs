//! Reproductions as data: `repro.toml` lists runs, and which quantity of which run is which row.
//!
//! ```text
//! [formulas]   named, from constants and counters of a run
//! [texts.X]    the text of a setting for each value of a variable X
//! [runs.X]     an experiment, its settings, and the values of its variables
//! [rows]       the formula for each row of expected.csv
//! [plots.X]    figures: a formula for each point
//! ```
//!
//! `experiments/README.md` explains each key. For rows that need code, a function of [`crate::compute`] takes its
//! runs from here.

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
        .is("the run of which it is a variation"),
    Param::optional("record", ParamKind::Choice(RECORDS), "counters").is("what else is recorded"),
];
const RECORDS: &[&str] = &["stages", "trace", "verdict"];
/// The longest chain of runs that are like other runs.
const LIKE_MAX: usize = 8;
/// Names that every formula can use.
const GIVEN: [&str; 3] = ["seed", "full", "none"];

/// A place in the file, for messages.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    mark: Mark,
    key: String,
}

/// A formula or a template, and its place.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) what: T,
    place: Place,
}

/// Variables, each with its default values.
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
    /// When counters are also read before the end, in seconds.
    early: Option<Placed<Node>>,
    /// A transfer between two hosts instead of an experiment: the parts in the order of [`TRANSFER`].
    transfer: Option<Vec<Placed<Template>>>,
    /// Settings in profiles, by `hosts/NAME` or `adapters/NAME`.
    profiles: Vec<(Placed<Template>, Vec<Placed<Template>>)>,
}

/// The parts of a transfer between two hosts, all required.
const TRANSFER: [&str; 5] = ["host", "adapter", "message", "packet", "length"];

#[derive(Clone, Debug)]
pub(crate) struct Row {
    row: Placed<Template>,
    value: Placed<Node>,
    over: Over,
}

/// The runs and rows of a `repro.toml`.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    reporter: Reporter,
    formulas: BTreeMap<String, Placed<Node>>,
    texts: BTreeMap<String, BTreeMap<String, Placed<Template>>>,
    runs: Vec<Run>,
    rows: Vec<Row>,
    plots: Vec<plots::Drawn>,
    /// Number of seeds over which values are averaged: in a quick run, and in a full one.
    seeds: Option<[u64; 2]>,
    /// Texts of the folder's own profiles, by `hosts/NAME`.
    profiles: BTreeMap<String, String>,
}

/// Results of runs, by run with its variables, and by quantity: figures and rows share them.
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
    /// Reads the tables and reports errors. `file` finds a file of the folder or the text of a bundled experiment;
    /// `profiles` are those of the folder.
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

    /// A run, the run it is like, and so on to the one with an experiment.
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

    /// The variables of a run, inherited ones first.
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

    /// Reports unknown names before anything runs.
    fn check(&self, decoder: &mut Decoder<'_>, constants: &Constants) {
        for run in &self.runs {
            let chain = self.chain(run);
            let first = chain[chain.len() - 1];
            let found = match &first.like {
                Some(like) if self.find(like).is_none() => format!("there is no run `{like}`"),
                Some(_) => format!("`{}` is like itself", run.name),
                None if first.experiment.is_none() && first.transfer.is_none() => {
                    "nothing says what is run".to_owned()
                }
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
        let sets =
            self.runs.iter().flat_map(|run| run.set.iter().chain(run.transfer.iter().flatten()));
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

    /// The fault of a node with an unknown name.
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
                    let found = format!("`{name}` has {} arguments", given.len());
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

/// Reports an error at its place within a text.
fn wrong(decoder: &mut Decoder<'_>, item: &Item, key: &str, text: &str, (at, found): Wrong) {
    let Mark { source, span } = item.mark.clone();
    // Between quotes and without escapes, an offset in the text is one in the file.
    let plain = span.len() == text.len() + 2;
    let span = if plain { span.start + 1 + at..span.start + 1 + at } else { span };
    let right = "a formula is like `100 * slow.goodput / fast.goodput`";
    decoder.report(&Mark { source, span }, key, Fault::new(found, right));
}

fn place(item: &Item, key: &str) -> Place {
    Place { mark: item.mark.clone(), key: key.to_owned() }
}

/// A formula: a text, a number, or a list of literal texts and numbers.
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
                let found = format!("{} is not a formula", item.content.name());
                decoder.report(&item.mark, key, Fault::new(found, "write \"1 + 1\", 2 or [2, 3]"));
                return None;
            }
        },
    };
    Some(Placed { what: node, place: place(item, key) })
}

fn template(decoder: &mut Decoder<'_>, item: &Item, key: &str) -> Option<Placed<Template>> {
    let Content::Text(text) = &item.content else {
        let found = format!("a text is expected here, not {}", item.content.name());
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

/// Settings of an experiment or of a profile.
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
            let right = format!("a transfer has {}", TRANSFER.join(", "));
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
        let fault = Fault::new("two numbers are expected here", "write `seeds = [3, 10]`");
        decoder.report(&item.mark, "seeds", fault);
    }
    found.map(|(quick, full)| [quick, full])
}
