//! The folder of an experiment: `README.md`, `repro.toml`, `expected.csv`.

use super::compute::{self, Compute, Computed, Figures};
use super::published::{Published, Tolerance};
use super::sweep::{self, Sweep};
use lastmeter_base::kind::{Param, ParamKind};
use lastmeter_lab::document::{Content, Decoder, Fault, Item, Shape};
use lastmeter_lab::library;
use lastmeter_lab::profile::constants::{Constants, finish, open};
use lastmeter_lab::profile::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Texts of experiments and profiles, by path from the root of the repository.
///
/// ```
/// use lastmeter_repro::Shelf;
/// let mut shelf = Shelf::builtin();
/// // A text from disk replaces the bundled one.
/// shelf.insert("experiments/mine/README.md", "# Mine\n");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shelf {
    texts: BTreeMap<String, String>,
}

impl Shelf {
    /// The bundled texts.
    pub fn builtin() -> Shelf {
        Shelf { texts: library::texts().into_iter().collect() }
    }

    /// Adds a text, or replaces the one at this path.
    pub fn insert(&mut self, path: &str, text: &str) {
        self.texts.insert(path.to_owned(), text.to_owned());
    }

    /// The text at a path.
    ///
    /// # Errors
    /// There is no such text.
    pub fn text(&self, path: &str) -> Result<&str, Error> {
        let missing = || Error::file(path, 1, "there is no such file");
        self.texts.get(path).map(String::as_str).ok_or_else(missing)
    }

    /// The constants of an experiment that has published values.
    ///
    /// # Errors
    /// There is no such experiment, or its files are wrong.
    pub(crate) fn constants(&self, name: &str) -> Result<Constants, Error> {
        Reproduction::read(self, name).map(|reproduction| reproduction.constants)
    }

    /// All experiments with published values, by name.
    pub(super) fn reproductions(&self) -> Result<Vec<Reproduction>, Error> {
        let name = |path: &String| {
            let name = path.strip_prefix("experiments/")?.strip_suffix("/expected.csv")?;
            (!name.contains('/')).then(|| name.to_owned())
        };
        self.texts.keys().filter_map(name).map(|name| Reproduction::read(self, &name)).collect()
    }
}

/// The contents of an experiment's folder.
pub(super) struct Reproduction {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) question: String,
    pub(super) system: String,
    /// The function for rows that need code.
    pub(super) compute: Option<Compute>,
    pub(super) sweep: Sweep,
    pub(super) figures: Option<Figures>,
    /// Whether owners' programs take part.
    pub(super) plugins: bool,
    pub(super) constants: Constants,
    pub(super) contradictions: Vec<Contradiction>,
    /// Ids of rows that are meaningful only with simulations as long as the document's.
    pub(super) full: Vec<String>,
    pub(super) rows: Vec<Expected>,
}

/// The keys of `repro.toml` other than its tables.
const HEADER: &[Param] = &[
    Param::required("title", ParamKind::Text).is("what it is called"),
    Param::required("question", ParamKind::Text).is("what it is meant to answer"),
    Param::required("system", ParamKind::Text).is("the first letter of its ids"),
    Param::optional("compute", ParamKind::Text, "only `[rows]`").is("the function for other rows"),
    Param::optional("profile", ParamKind::Text, "no profile").is("whose constants it has too"),
    Param::or("plugins", ParamKind::Flag, "false")
        .is("whether owners' programs take part, for which a sandbox is needed"),
];
/// The keys of a contradiction other than its rows.
const CONTRADICTION: &[Param] = &[
    Param::required("document", ParamKind::Text).is("what the document says, and where"),
    Param::required("arithmetic", ParamKind::Text).is("what follows from its own numbers"),
];

/// A contradiction within the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// Ids of the rows that it affects.
    pub rows: Vec<String>,
    /// What the document says, and where.
    pub document: String,
    /// What follows from its own numbers.
    pub arithmetic: String,
}

/// The role of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Repeats a constant of the computation: a check of typing, not a result.
    Given,
    /// A constant was fitted to it.
    Fitted,
    /// Arithmetic from given constants, exact by construction. Agreement shows that the code follows the formula,
    /// and no more.
    Derived,
    /// A statement, or a one-sided bound. If the document gives no threshold, the note says which is ours.
    Shape,
    /// A number with a two-sided tolerance, from a simulation whose constants were not fitted to it.
    Predicted,
}

impl Role {
    /// As written in `expected.csv`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Given => "given",
            Role::Fitted => "fitted",
            Role::Derived => "derived",
            Role::Shape => "shape",
            Role::Predicted => "predicted",
        }
    }
}

/// A row of `expected.csv`.
pub(super) struct Expected {
    pub(super) line: u64,
    pub(super) id: String,
    pub(super) item: String,
    pub(super) key: String,
    pub(super) published: Published,
    pub(super) unit: String,
    pub(super) tolerance: Tolerance,
    pub(super) role: Role,
    pub(super) section: String,
    pub(super) note: String,
}

/// A row as written; the fields are the columns.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    id: String,
    item: String,
    published: String,
    unit: String,
    tolerance: String,
    role: Role,
    section: String,
    note: String,
    #[serde(default)]
    key: String,
}

impl Expected {
    /// Whether `value` is computed for this row.
    pub(super) fn is_of(&self, value: &Computed) -> bool {
        let named = value.key.as_ref().map_or(self.item == value.item, |key| self.key == *key);
        self.id == value.id && named
    }
}

impl Reproduction {
    fn read(shelf: &Shelf, name: &str) -> Result<Reproduction, Error> {
        let place = |file: &str| format!("experiments/{name}/{file}");
        shelf.text(&place("README.md"))?;
        let file = place("repro.toml");
        let (root, mut decoder) = open(&file, shelf.text(&file)?)?;
        let besides = [&["constants", "contradictions", FULL], &sweep::KEYS[..]].concat();
        let shape = Shape { what: "a reproduction", params: HEADER, kind: None, besides: &besides };
        let (_, header) = decoder.table(&shape, &root, "");
        let contradictions = contradictions(&mut decoder, root.get("contradictions"));
        let full = root.get(FULL).map(|item| ids(&mut decoder, item)).unwrap_or_default();
        let mut constants = Constants::default();
        if let Some(profile) = header.given::<String>("profile") {
            let file = format!("profiles/{profile}.toml");
            constants.add_profile(&file, shelf.text(&file)?)?;
        }
        constants.add(&mut decoder, root.get("constants"));
        let beside = |named: &str| {
            let path = match (named.ends_with(".toml"), named.contains('/')) {
                (true, false) => place(named),
                (true, true) => format!("experiments/{named}"),
                (false, _) => format!("experiments/{named}/experiment.toml"),
            };
            shelf.texts.get(&path).cloned()
        };
        let own = place("profiles/");
        let profiles = shelf.texts.iter().filter_map(|(path, text)| {
            let name = path.strip_prefix(&own)?.strip_suffix(".toml")?;
            Some((name.to_owned(), text.clone()))
        });
        let sweep = Sweep::read(&mut decoder, &root, &constants, &beside, profiles.collect());
        let called: Option<String> = header.given("compute");
        if called.is_none() && sweep.is_empty() {
            let fault =
                Fault::new("nothing computes its rows", "write `[rows]`, or `compute = ...`");
            decoder.report(&root.mark, "rows", fault);
        }
        finish(decoder)?;
        let compute = called.as_deref().map(compute::find).transpose()?;
        let figures = called.as_deref().and_then(compute::figures);
        let system: String = header.get("system");
        let csv = place("expected.csv");
        let rows = from_csv(&csv, shelf.text(&csv)?, &system)?;
        let contradicted = contradictions.iter().flat_map(|contradiction| &contradiction.rows);
        let named = contradicted.map(|id| ("a contradiction", id));
        for (who, id) in named.chain(full.iter().map(|id| ("`full`", id))) {
            if !rows.iter().any(|row| row.id == *id) {
                let found = format!("{who} names `{id}`, which {csv} does not have");
                return Err(Error::file(&file, 1, found));
            }
        }
        Ok(Reproduction {
            name: name.to_owned(),
            title: header.get("title"),
            question: header.get("question"),
            system,
            compute,
            sweep,
            figures,
            plugins: header.get("plugins"),
            constants,
            contradictions,
            full,
            rows,
        })
    }

    /// The path of the published values.
    pub(super) fn csv(&self) -> String {
        format!("experiments/{}/expected.csv", self.name)
    }
}

fn contradictions(decoder: &mut Decoder<'_>, list: Option<&Item>) -> Vec<Contradiction> {
    let Some(Content::List(items)) = list.map(|item| &item.content) else { return Vec::new() };
    let shape =
        Shape { what: "a contradiction", params: CONTRADICTION, kind: None, besides: &["rows"] };
    let read = |item: &Item| {
        let (_, values) = decoder.table(&shape, item, "contradictions");
        let rows = item.get("rows").and_then(texts).unwrap_or_default();
        if rows.is_empty() {
            let fault = Fault::new("no rows are named", "write `rows = [\"E-64\"]`");
            decoder.report(&item.mark, "contradictions", fault);
        }
        let (document, arithmetic) = (values.given("document")?, values.given("arithmetic")?);
        Some(Contradiction { rows, document, arithmetic })
    };
    items.iter().filter_map(read).collect()
}

/// The key of `repro.toml` that lists ids.
const FULL: &str = "full";

/// A list of row ids.
fn ids(decoder: &mut Decoder<'_>, item: &Item) -> Vec<String> {
    let found = texts(item).unwrap_or_default();
    if found.is_empty() {
        let fault = Fault::new("no rows are named", "write `full = [\"E-64\"]`");
        decoder.report(&item.mark, FULL, fault);
    }
    found
}

/// The texts of a list, if it has nothing else.
fn texts(item: &Item) -> Option<Vec<String>> {
    let Content::List(items) = &item.content else { return None };
    let text = |item: &Item| match &item.content {
        Content::Text(text) => Some(text.clone()),
        _ => None,
    };
    items.iter().map(text).collect()
}

/// Reads published values. All CSV files are read here.
fn from_csv(file: &str, text: &str, system: &str) -> Result<Vec<Expected>, Error> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let headers =
        reader.headers().map_err(|error| Error::file(file, 1, error.to_string()))?.clone();
    let mut rows: Vec<Expected> = Vec::new();
    for record in reader.records() {
        let line = |at: Option<&csv::Position>| at.map_or(1, csv::Position::line);
        let record =
            record.map_err(|error| Error::file(file, line(error.position()), error.to_string()))?;
        let line = line(record.position());
        let row = record
            .deserialize(Some(&headers))
            .map_err(|error| error.to_string())
            .and_then(|record| expected(line, record, system))
            .map_err(|found| Error::file(file, line, found))?;
        if rows.iter().any(|other| (&other.id, &other.item) == (&row.id, &row.item)) {
            return Err(Error::file(file, line, "this id and item already have a row"));
        }
        let same = |other: &Expected| (&other.id, &other.key) == (&row.id, &row.key);
        if !row.key.is_empty() && rows.iter().any(same) {
            return Err(Error::file(file, line, "this id and key already have a row"));
        }
        rows.push(row);
    }
    Ok(rows)
}

fn expected(line: u64, record: Record, system: &str) -> Result<Expected, String> {
    let Record { id, item, published, unit, tolerance, role, section, note, key } = record;
    if id.strip_prefix(system).is_none_or(|rest| !rest.starts_with('-')) {
        return Err(format!("`{id}` is not of system {system}: ids begin with `{system}-`"));
    }
    if item.is_empty() || section.is_empty() {
        return Err("item and section must not be empty: say what it is and where".to_owned());
    }
    let published = Published::parse(&published)?;
    let tolerance = Tolerance::parse(&tolerance, &unit)?;
    if !tolerance.suits(&published) {
        return Err(format!("tolerance `{tolerance}` does not suit the published value"));
    }
    if matches!(role, Role::Predicted | Role::Derived) && !tolerance.has_two_sides() {
        return Err(format!("a statement cannot be {}: its role is `shape`", role.name()));
    }
    Ok(Expected { line, id, item, key, published, unit, tolerance, role, section, note })
}
