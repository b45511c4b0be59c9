//! Every kind that experiments can name, and the page that is printed for one.

use crate::build::host;
use crate::document::nearest;
use crate::experiment::pages;
use crate::profile;
use lastmeter_base::kind::{Fallback, Family, Misfit, Nested, Page, Param, ParamKind};
use lastmeter_host::adapter::element as adapter;
use lastmeter_host::{port_processor, receive};
use lastmeter_lan::fabric::{fat_tree, network as fabric};
use lastmeter_lan::preempt::element as adu_link;
use lastmeter_lan::stripe;
use lastmeter_lan::timed_token::element as ring;
use lastmeter_lan::vunet;
use lastmeter_lan::wormhole::element as wormhole;
use lastmeter_net::{forwarder, impair, queue, sar, server, traffic};
use lastmeter_transport::{channel, tcp};

/// The kinds of nodes.
const NODES: &[&Page] = &[
    host::PAGE,
    forwarder::PAGE,
    server::PAGE,
    ring::PAGE,
    fabric::PAGE,
    fat_tree::PAGE,
    vunet::element::SWITCH,
    vunet::element::LINK,
    vunet::element::BRIDGE,
    vunet::element::ZEBRA,
    stripe::element::PAGE,
    sar::PAGE,
    wormhole::PAGE,
    adu_link::PAGE,
    port_processor::kind::PAGE,
    adapter::PAGE,
];

/// Every kind, by family.
pub fn all() -> impl Iterator<Item = &'static Page> {
    let queues = queue::KINDS.iter().map(|kind| kind.page);
    let traffics = traffic::KINDS.iter().map(|kind| kind.page);
    let impairments = impair::KINDS.iter().map(|kind| kind.page);
    let parts = pages::ALL.iter().chain(NODES).chain(profile::pages::ALL).copied();
    let traffics = traffics.chain([tcp::kind::PAGE, channel::kind::PAGE, vunet::viewer::PAGE]);
    let receptions = receive::kind::KINDS.iter().map(|kind| kind.page);
    parts.chain(impairments).chain(queues).chain(traffics).chain(receptions)
}

/// Every kind of one family.
pub fn family(family: Family) -> impl Iterator<Item = &'static Page> {
    all().filter(move |page| page.family == family)
}

/// A kind of a family by its name.
pub(crate) fn in_family(family: Family, name: &str) -> Option<&'static Page> {
    all().find(|page| page.family == family && page.name == name)
}

/// Whether the values of a kind, each of which fits its parameter, fit each other.
pub(crate) fn fit(kind: &Nested) -> Result<(), Misfit> {
    match kind.page.family {
        Family::Queue => queue::fit(kind),
        Family::Reception => receive::kind::fit(kind),
        Family::Node if kind.values.has("reception") && kind.values.has("profile") => {
            let found = "a host with a profile says there how it receives".to_owned();
            Err(Misfit::new("reception", found, "leave out `profile` or `reception`"))
        }
        _ => Ok(()),
    }
}

/// A kind by its name.
///
/// # Errors
/// The kind that was probably meant, if one is near enough.
pub fn find(name: &str) -> Result<&'static Page, Option<&'static Page>> {
    let lower = name.to_lowercase();
    all().find(|page| page.name == lower).ok_or_else(|| {
        let near = nearest(name, all().map(|page| page.name));
        near.and_then(|near| all().find(|page| page.name == near))
    })
}

/// The page of a kind: a sentence, its ports, parameters, source, deviations, counters, an example,
/// and where it stands in the source.
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
    if !page.counters.is_empty() {
        text += "\nCOUNTERS\n";
        let rows = page.counters.iter().map(|&(name, what)| [name.to_owned(), what.to_owned()]);
        text += &table(rows.collect());
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

/// All kinds with their sentences, by family.
pub fn list_text() -> String {
    let mut pages: Vec<&Page> = all().collect();
    pages.sort_by_key(|page| (page.family, page.name));
    let mut text = String::new();
    for family in pages.chunk_by(|a, b| a.family == b.family) {
        text += &format!("{}\n", family[0].family.name());
        let rows = family.iter().map(|page| [page.name.to_owned(), page.what.to_owned()]);
        text += &table(rows.collect());
    }
    text + "\n`lastmeter kinds NAME` says more.\n"
}

/// A kind for programs.
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
    let counters: std::collections::BTreeMap<_, _> = page.counters.iter().copied().collect();
    serde_json::json!({
        "schema": "lastmeter.kind/1",
        "name": page.name,
        "family": page.family.name(),
        "what": page.what,
        "parameters": params,
        "counters": counters,
        "source": page.source,
        "deviations": page.deviations,
        "example": page.example,
        "file": page.place.file,
        "line": page.place.line,
    })
}

/// All kinds for programs.
pub fn list_json() -> serde_json::Value {
    let kinds: Vec<_> = all().map(page_json).collect();
    serde_json::json!({ "schema": "lastmeter.kinds/1", "kinds": kinds })
}

/// A parameter in words: its name, what may be written, what holds otherwise, what it means.
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
        ParamKind::Sizes => "size or sizes".to_owned(),
        ParamKind::Nested(family) => format!("a {}", family.name()),
        ParamKind::Profile(folder) => format!("profile of {folder}"),
        ParamKind::Node => "node".to_owned(),
        ParamKind::Integers { min, max } if max == i64::MAX as u64 => format!("numbers >= {min}"),
        ParamKind::Integers { min, max } => format!("numbers {min}..{max}"),
        ParamKind::Nodes(min) => format!("nodes, at least {min}"),
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
