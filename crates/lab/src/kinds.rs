//! The registry: every kind that experiments can name, and the page that is printed for one.
//!
//! ```text
//! experiment, host, net, lan, transport, wave: a table each --> Registry <-- with(&KIND)
//!                                                                  |
//!    decoding, checking, building, the schema, `lastmeter kinds`, the manual: all read it
//! ```

use crate::document::nearest;
use crate::experiment::pages;
use crate::profile::{self, ProfileKind};
use lastmeter_base::kind::{Fallback, Family, Kind, Page, Param, ParamKind};
use lastmeter_host::receive;
use lastmeter_net::{impair, queue, traffic};

/// Every kind of this program, by family and in the order in which they are listed.
static TABLES: &[&[Kind]] = &[
    pages::KINDS,
    lastmeter_host::HOSTS,
    lastmeter_net::NODES,
    lastmeter_lan::NODES,
    lastmeter_host::NODES,
    profile::pages::KINDS,
    impair::KINDS,
    queue::KINDS,
    traffic::KINDS,
    lastmeter_transport::TRAFFIC,
    lastmeter_lan::TRAFFIC,
    lastmeter_wave::TRAFFIC,
    receive::kind::KINDS,
];

/// The kinds that experiments can name: those of this program, and any added to them.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    more: Vec<&'static Kind>,
}

static BUILTIN: Registry = Registry { more: Vec::new() };

impl Registry {
    /// The kinds of this program.
    pub fn builtin() -> &'static Registry {
        &BUILTIN
    }

    /// Adds a kind, whose name must be new in its family.
    #[must_use]
    pub fn with(mut self, kind: &'static Kind) -> Registry {
        self.more.push(kind);
        self
    }

    /// Every kind, by family.
    pub fn kinds(&self) -> impl Iterator<Item = &'static Kind> {
        TABLES.iter().copied().flatten().chain(self.more.iter().copied())
    }

    /// Every kind's page.
    pub fn all(&self) -> impl Iterator<Item = &'static Page> {
        self.kinds().map(|kind| kind.page)
    }

    /// All kinds of one family.
    pub fn family(&self, family: Family) -> impl Iterator<Item = &'static Kind> {
        self.kinds().filter(move |kind| kind.page.family == family)
    }

    /// The kind of a family with this name.
    pub(crate) fn in_family(&self, family: Family, name: &str) -> Option<&'static Kind> {
        self.family(family).find(|kind| kind.page.name == name)
    }

    /// The reader of the profiles in a folder.
    pub(crate) fn profiles(&self, folder: &str) -> Option<&'static ProfileKind> {
        let kinds = self.family(Family::Profile);
        let mut readers = kinds.filter_map(|kind| kind.maker.downcast_ref::<ProfileKind>());
        readers.find(|kind| kind.folder == folder)
    }

    /// A kind by its name.
    ///
    /// # Errors
    /// If there is none; suggests a similar name.
    pub fn find(&self, name: &str) -> Result<&'static Page, Option<&'static Page>> {
        let lower = name.to_lowercase();
        self.all().find(|page| page.name == lower).ok_or_else(|| {
            let near = nearest(name, self.all().map(|page| page.name));
            near.and_then(|near| self.all().find(|page| page.name == near))
        })
    }

    /// All kinds with a sentence each, by family.
    pub fn list_text(&self) -> String {
        let mut pages: Vec<&Page> = self.all().collect();
        pages.sort_by_key(|page| (page.family, page.name));
        let mut text = String::new();
        for family in pages.chunk_by(|a, b| a.family == b.family) {
            text += &format!("{}\n", family[0].family.name());
            let rows = family.iter().map(|page| [page.name.to_owned(), page.what.to_owned()]);
            text += &table(rows.collect());
        }
        text + "\n`lastmeter kinds NAME` says more.\n"
    }

    /// All kinds as JSON.
    pub fn list_json(&self) -> serde_json::Value {
        let kinds: Vec<_> = self.all().map(page_json).collect();
        serde_json::json!({ "schema": "lastmeter.kinds/1", "kinds": kinds })
    }
}

/// The page of a kind: a sentence, its ports, parameters, counters, drops, source, deviations, an
/// example, and where it is in the source.
pub fn page_text(page: &Page) -> String {
    let mut text = format!("{} ({})\n\n{}\n", page.name, page.family.name(), page.what);
    if !page.ports.is_empty() {
        text += "\n";
        page.ports.lines().for_each(|line| text += &format!("    {line}\n"));
    }
    if !page.params.is_empty() {
        text += "\nPARAMETERS\n";
        text += &table(page.params.iter().map(said).collect());
    }
    for (title, explained) in [("COUNTERS", page.counters), ("DROPS", page.drops)] {
        if !explained.is_empty() {
            text += &format!("\n{title}\n");
            let rows = explained.iter().map(|&(name, what)| [name.to_owned(), what.to_owned()]);
            text += &table(rows.collect());
        }
    }
    if !page.source.is_empty() {
        text += &format!("\nSOURCE\n    {}\n", page.source);
    }
    if !page.deviations.is_empty() {
        text += "\nDEVIATIONS\n";
        page.deviations.iter().for_each(|deviation| text += &format!("    {deviation}\n"));
    }
    text += "\nEXAMPLE\n";
    page.example.trim().lines().for_each(|line| text += &format!("    {line}\n"));
    text + &format!("\nWritten in {} at line {}.\n", page.place.file, page.place.line)
}

/// A kind as JSON.
pub fn page_json(page: &Page) -> serde_json::Value {
    let params: Vec<_> = page
        .params
        .iter()
        .map(|param| {
            serde_json::json!({
                "name": param.name,
                "kind": written(param.kind),
                "default": default(param),
                "required": param.default == Fallback::Required,
                "what": param.what,
            })
        })
        .collect();
    let [counters, drops] = [page.counters, page.drops]
        .map(|explained| explained.iter().copied().collect::<std::collections::BTreeMap<_, _>>());
    serde_json::json!({
        "schema": "lastmeter.kind/1",
        "name": page.name,
        "family": page.family.name(),
        "what": page.what,
        "parameters": params,
        "counters": counters,
        "drops": drops,
        "source": page.source,
        "deviations": page.deviations,
        "example": page.example,
        "file": page.place.file,
        "line": page.place.line,
    })
}

/// A parameter in words: its name, its type, its default and its meaning.
pub(crate) fn said(param: &Param) -> [String; 4] {
    [param.name.to_owned(), written(param.kind), default(param), param.what.to_owned()]
}

/// What may be written for a parameter, in a few words.
fn written(kind: ParamKind) -> String {
    match kind {
        ParamKind::Size { .. } => "size".to_owned(),
        ParamKind::Integer { min, max } if max == i64::MAX as u64 => format!("number >= {min}"),
        ParamKind::Integer { min, max } => format!("number {min}..{max}"),
        ParamKind::Number { min, max } => format!("number {min}..{max}"),
        ParamKind::Choice(words) => words.join(" | "),
        ParamKind::Flag => "true | false".to_owned(),
        ParamKind::Draw => "time or distribution".to_owned(),
        ParamKind::DrawBytes => "size or distribution".to_owned(),
        ParamKind::Sizes => "size or sizes".to_owned(),
        ParamKind::Nested(family) => format!("a {}", family.name()),
        ParamKind::Profile(folder) => format!("profile of {folder}"),
        ParamKind::Node => "node".to_owned(),
        ParamKind::Integers { min, max } if max == i64::MAX as u64 => format!("numbers >= {min}"),
        ParamKind::Integers { min, max } => format!("numbers {min}..{max}"),
        ParamKind::Nodes(min) => format!("nodes, at least {min}"),
        ParamKind::Chains => "nodes, at least 2".to_owned(),
        kind => crate::document::expected(kind).to_owned(),
    }
}

fn default(param: &Param) -> String {
    match param.default {
        Fallback::Required => "required".to_owned(),
        Fallback::Written("") => "empty".to_owned(),
        Fallback::Written(text) => text.to_owned(),
        Fallback::Absent(text) => text.to_owned(),
    }
}

/// Columns as wide as their widest cell.
fn table<const N: usize>(rows: Vec<[String; N]>) -> String {
    let mut text = String::new();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text += "    ";
        text += cells.join("  ").trim_end();
        text += "\n";
    }
    text
}
