//! Experiments: a network, its traffic, and the duration of the run, read from a TOML file.
//!
//! ```text
//! text, overrides --parse--> Experiment --build--> graph
//!                               |
//!                               '-- or every problem, with file, line and key
//! ```

mod changed;
mod check;
mod live;
mod network;
pub(crate) mod pages;

pub use live::{LIVE_MAX, LiveHost};
pub(crate) use network::Hop;
pub use network::Network;

use crate::document::{
    Content, Decoder, Document, Fault, Item, Mark, Override, Problem, Reporter, Shape, join,
};
use crate::kinds::Registry;
use crate::library::Library;
use crate::profile::error::Error;
use crate::profile::{Described, LineCard};
use changed::Changed;
use lastmeter_base::Duration;
pub use lastmeter_base::kind::FRAMING_MAX;
use lastmeter_base::kind::{Family, Nested, ParamKind, Value, Values};
use lastmeter_engine::site::HostKind;
use lastmeter_host::kind::{self as host, profiled};
use lastmeter_host::profile::Profile;
use lastmeter_host::receive::division::Division;
use lastmeter_ledger::Source;
use std::collections::{BTreeMap, BTreeSet};

/// Most nodes, over all counts.
pub const NODES_MAX: u64 = 20_000;
/// Most members of one counted node.
pub const COUNT_MAX: u64 = NODES_MAX;
/// Most links, over all counts.
pub const LINKS_MAX: u64 = 100_000;
/// Most flows, over all counts: a host tells them apart by ports, of which it has 65536.
pub const FLOWS_MAX: u64 = 50_000;

/// A checked experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its title.
    pub title: String,
    /// The question that it answers.
    pub question: String,
    /// The duration of the run.
    pub duration: Duration,
    /// The beginning of the run that the ledger leaves out.
    pub warm_up: Duration,
    /// The seed of its random streams.
    pub seed: u64,
    /// The first 16 hexadecimal digits of the SHA-256 of its text with all overrides.
    pub hash: String,
    /// Its nodes, as declared.
    pub nodes: Vec<Node>,
    /// Its links, as declared.
    pub links: Vec<Link>,
    /// Its traffic, as declared.
    pub traffic: Vec<Traffic>,
    /// The decoded profiles that its nodes name.
    pub profiles: BTreeMap<Named, Described>,
    /// The names of these profiles and the hashes of their texts.
    pub profile_sources: Vec<Source>,
    /// The texts to which later problems refer.
    pub(crate) reporter: Reporter,
}

/// A node, or several identical ones.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its kind and parameters.
    pub kind: Nested,
    /// How many there are, if it is counted.
    pub count: Option<u64>,
    pub(crate) mark: Mark,
}

/// A link, or several identical ones.
#[derive(Clone, Debug)]
pub struct Link {
    /// The nodes that it connects, in order.
    pub between: Vec<End>,
    /// Its parameters, in the direction in which it is written.
    pub values: Values,
    /// The same in the other direction, if they differ.
    pub back: Option<Values>,
    /// The source of its rate, if a line card states it.
    pub source: Option<String>,
    pub(crate) mark: Mark,
    pub(crate) key: String,
}

impl Link {
    /// Its parameters in a direction.
    pub fn values(&self, back: bool) -> &Values {
        self.back.as_ref().filter(|_| back).unwrap_or(&self.values)
    }
}

/// Traffic from one host to another, or between several identical ones.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The class.
    pub name: String,
    /// The sender.
    pub from: End,
    /// The receiver.
    pub to: End,
    /// Its kind and parameters.
    pub kind: Nested,
    /// The parameters that all traffic has.
    pub values: Values,
    pub(crate) mark: Mark,
    pub(crate) name_mark: Mark,
    pub(crate) kind_mark: Mark,
    /// Its key, for problems found later.
    pub(crate) key: String,
}

/// The node at an end of a link or of traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// As it was written: `s` or `s.3`.
    pub name: String,
    /// The index of the declared node.
    pub node: usize,
    /// The member of a counted node; `None` means each of them.
    pub member: Option<u64>,
}

impl Experiment {
    /// Reads an experiment from the bytes of its file, with overrides.
    ///
    /// # Errors
    /// All errors in it, in the order of the file.
    pub fn parse(
        file_name: &str,
        text: impl AsRef<[u8]>,
        overrides: &[Override],
        library: &dyn Library,
    ) -> Result<Experiment, Vec<Problem>> {
        let text = text.as_ref();
        let mut document = Document::parse(file_name, text)?;
        let (library, own) = Changed::of(overrides, library);
        let library = &library;
        own.iter().for_each(|change| change.apply(&mut document));
        let Document { root, reporter } = document;
        let mut decoder = Decoder { reporter, library };
        let mut experiment = decode(&mut decoder, &root);
        check::experiment(&mut experiment, &mut decoder, &root.mark);
        let mut problems = experiment.load_profiles(library);
        if problems.is_empty() && decoder.reporter.is_empty() {
            problems = library.unused(&experiment);
        }
        experiment.check_divisions(&mut decoder);
        if decoder.reporter.is_empty() && problems.is_empty() {
            experiment.hash = hash(text, overrides);
            experiment.reporter = decoder.reporter;
            return Ok(experiment);
        }
        problems.splice(0..0, decoder.reporter.into_problems());
        Err(problems)
    }

    /// Reads each profile that a node names, and reports its errors.
    fn load_profiles(&mut self, library: &dyn Library) -> Vec<Problem> {
        let kinds = library.kinds();
        let all = self.nodes.iter().flat_map(|node| node.profiles(kinds));
        let all: BTreeSet<Named> = all.map(|(_, named)| named).collect();
        let mut problems = Vec::new();
        // The same profile may be read as part of several others.
        let mut add = |problem: Problem| {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        };
        for named in all {
            let Some((&(folder, ref name), within)) = named.split_last() else { continue };
            let within = self.profiles.get(within);
            // If the enclosing profile could not be read, its own error is enough; an unknown name has already been
            // reported at its place.
            let kind = kinds.profiles(folder);
            let kind = kind.filter(|kind| kind.within.is_some() == within.is_some());
            let Some((text, read)) = kind.and_then(|kind| kind.find(name, within, library)) else {
                continue;
            };
            let source = Source { name: name.clone(), hash: crate::digest(text) };
            if !self.profile_sources.contains(&source) {
                self.profile_sources.push(source);
            }
            match read {
                Ok(described) => drop(self.profiles.insert(named, described)),
                Err(wrong) => wrong.into_iter().for_each(&mut add),
            }
        }
        problems
    }

    /// Reports hosts whose reception policy cannot schedule the stages of their profile.
    fn check_divisions(&self, decoder: &mut Decoder<'_>) {
        let kinds = decoder.library.kinds();
        for node in self.nodes.iter().filter(|node| node.kind.values.has("reception")) {
            let profile = profiled(&node.kind.values);
            let profile = profile.and_then(|param| self.profile(node, param, kinds));
            let profile = profile.and_then(|profile| profile.downcast_ref::<Profile>());
            if let Some(Err((found, right))) = profile.map(Division::of) {
                let key = join(&join("nodes", &node.name), "host.reception");
                decoder.report(&node.mark, &key, Fault::new(found, right));
            }
        }
    }

    /// The decoded profile that a parameter of a node names.
    pub(crate) fn profile(&self, node: &Node, param: &str, kinds: &Registry) -> Option<&Described> {
        let (_, named) = node.profiles(kinds).into_iter().find(|(known, _)| *known == param)?;
        self.profiles.get(&named)
    }
}

impl Node {
    /// The profiles that its parameters name.
    fn profiles(&self, kinds: &Registry) -> Vec<(&'static str, Named)> {
        let values = &self.kind.values;
        let mut all: Vec<(&'static str, Named)> = Vec::new();
        for param in self.kind.page.params {
            let ParamKind::Profile(folder) = param.kind else { continue };
            let Some(name) = values.given::<String>(param.name) else { continue };
            let within = kinds.profiles(folder).and_then(|kind| kind.within);
            let is_within = |(_, named): &&(_, Named)| named.last().map(|last| last.0) == within;
            let within = within.and_then(|_| all.iter().find(is_within));
            let mut named = within.map_or(Named::new(), |(_, named)| named.clone());
            named.push((folder, name));
            all.push((param.name, named));
        }
        all
    }

    /// Whether it is a host, at which traffic begins and ends.
    pub(crate) fn is_host(&self) -> bool {
        self.kind.made_by::<HostKind>().is_some()
    }
}

/// A profile by folder and name, after those that it is read within.
pub type Named = Vec<(&'static str, String)>;

/// The folders of profiles that experiments can name: hosts, adapters, line cards, ...
pub(crate) const HOSTS: &str = "hosts";
pub(crate) const ADAPTERS: &str = "adapters";
pub(crate) const LINKS: &str = "links";

/// The first 16 hexadecimal digits of the SHA-256 of a text and its overrides.
fn hash(text: &[u8], overrides: &[Override]) -> String {
    let mut whole = text.to_vec();
    for change in overrides {
        whole.extend_from_slice(b"\n--set ");
        whole.extend_from_slice(change.text().as_bytes());
    }
    crate::digest(whole)
}

fn decode(decoder: &mut Decoder<'_>, root: &Item) -> Experiment {
    let shape = Shape {
        what: "the experiment",
        params: pages::EXPERIMENT.params,
        kind: None,
        besides: &["nodes", "links", "traffic"],
    };
    let (_, values) = decoder.table(&shape, root, "");
    let nodes = decode_nodes(decoder, root);
    let links = elements(decoder, root, "links")
        .into_iter()
        .enumerate()
        .flat_map(|(index, item)| chains(item).into_iter().map(move |item| (index, item)))
        .filter_map(|(index, item)| decode_link(decoder, &nodes, &item, index))
        .collect();
    let traffic = elements(decoder, root, "traffic")
        .into_iter()
        .enumerate()
        .filter_map(|(index, item)| decode_traffic(decoder, &nodes, item, index))
        .collect();
    Experiment {
        title: values.given("title").unwrap_or_default(),
        question: values.given("question").unwrap_or_default(),
        duration: values.given("duration").unwrap_or(Duration::ZERO),
        warm_up: values.given("warm-up").unwrap_or(Duration::ZERO),
        seed: values.given("seed").unwrap_or(0),
        hash: String::new(),
        nodes,
        links,
        traffic,
        profiles: BTreeMap::new(),
        profile_sources: Vec::new(),
        reporter: Reporter::default(),
    }
}

/// The tables of a list of tables.
pub fn elements<'a>(decoder: &mut Decoder<'_>, root: &'a Item, key: &str) -> Vec<&'a Item> {
    match root.get(key) {
        None => Vec::new(),
        Some(item) if item.is_list() => item.items().iter().collect(),
        Some(item) => {
            let found = format!("found {} where a list is expected", item.content.name());
            let right = format!("write [[{key}]] above each of them, with two brackets");
            decoder.report(&item.mark, key, Fault::new(found, right));
            Vec::new()
        }
    }
}

fn decode_nodes(decoder: &mut Decoder<'_>, root: &Item) -> Vec<Node> {
    let Some(table) = root.get("nodes") else {
        let fault = Fault::new("there are no nodes", "add [nodes] and alice = { host = {} }");
        decoder.report(&root.mark, "nodes", fault);
        return Vec::new();
    };
    let Some(entries) = table.entries() else {
        let right = "write [nodes], and below it a line for each: alice = { host = {} }";
        let found = format!("found {} where a table is expected", table.content.name());
        decoder.report(&table.mark, "nodes", Fault::new(found, right));
        return Vec::new();
    };
    let mut nodes = Vec::new();
    for entry in entries {
        let key = join("nodes", &entry.key);
        check::node_name(decoder, &entry.mark, &key, &entry.key);
        let what = format!("`{}`", crate::document::shorten(&entry.key));
        let shape = Shape {
            what: &what,
            params: pages::NODE.params,
            kind: Some(Family::Node),
            besides: &[],
        };
        let (kind, values) = decoder.table(&shape, &entry.item, &key);
        // A node of an unknown kind still exists, so that links to it are not reported, too.
        let kind = kind.unwrap_or_else(|| Nested::new(&host::KIND, Values::default()));
        let (name, count) = (entry.key.clone(), values.given("count"));
        check::live_host(decoder, &kind, &entry.item, &key, count);
        let mark = entry.mark.clone();
        nodes.push(Node { name, kind, count, mark });
    }
    nodes
}

/// A copy of the link for each chain, if `between` lists several.
fn chains(item: &Item) -> Vec<Item> {
    let chains = item.get("between").map(Item::items).unwrap_or_default();
    if !chains.iter().any(Item::is_list) {
        return vec![item.clone()];
    }
    let with = |link: &Item, chain: &Item| {
        let mut link = link.clone();
        if let Content::Table(entries) = &mut link.content {
            let between = entries.iter_mut().filter(|entry| entry.key == "between");
            between.for_each(|entry| entry.item = chain.clone());
        }
        link
    };
    // What is copied for each chain has one of them, however many there are.
    let one = with(item, &chains[0]);
    chains.iter().map(|chain| with(&one, chain)).collect()
}

fn decode_link(
    decoder: &mut Decoder<'_>,
    nodes: &[Node],
    item: &Item,
    index: usize,
) -> Option<Link> {
    let key = join("links", &index.to_string());
    let params = pages::LINK.params;
    let shape = Shape { what: "the link", params, kind: None, besides: &[pages::BACK.name] };
    let (_, mut values) = decoder.table(&shape, item, &key);
    let source = line_card(decoder, &mut values, item, &key);
    let names: Vec<String> = values.given("between")?;
    let place = item.get("between")?;
    let marks = place.items().iter().map(|item| &item.mark);
    let ends: Vec<Option<End>> = names
        .iter()
        .zip(marks)
        .map(|(name, mark)| check::end(decoder, nodes, mark, &join(&key, "between"), name))
        .collect();
    check::wireless(decoder, &values, item, &key);
    let back = back(decoder, &values, item, &key);
    let between: Vec<End> = ends.into_iter().collect::<Option<_>>()?;
    Some(Link { between, values, back, source, mark: place.mark.clone(), key })
}

/// The values of the other direction.
fn back(decoder: &mut Decoder<'_>, there: &Values, link: &Item, key: &str) -> Option<Values> {
    let item = link.get(pages::BACK.name)?;
    let mut values = there.clone();
    let params = pages::BACK.params;
    let shape = Shape { what: "the way back", params, kind: None, besides: &[] };
    let key = join(key, pages::BACK.name);
    values.extend(decoder.table(&shape, item, &key).1);
    if !values.has("rate") {
        check::wireless(decoder, &values, item, &key);
    }
    Some(values)
}

/// Fills in values that the link does not give from its line card (D-08); returns the source of its rate.
fn line_card(
    decoder: &mut Decoder<'_>,
    values: &mut Values,
    item: &Item,
    key: &str,
) -> Option<String> {
    let name = values.given::<String>("card")?;
    let kind = decoder.library.kinds().profiles(LINKS)?;
    // An unknown name has been reported at its place.
    let (_, card) = kind.find(&name, None, decoder.library)?;
    let card = match card {
        Ok(card) => card,
        Err(problems) => {
            let mark = item.get("card").unwrap_or(item).mark.clone();
            let fault = Fault::new(Error::Problems(problems).to_string(), "fix the profile");
            decoder.report(&mark, &join(key, "card"), fault);
            return None;
        }
    };
    let LineCard { rate, framing, source } = card.downcast_ref()?;
    if !values.has("framing") {
        values.insert("framing", Value::Size(*framing));
    }
    if values.has("rate") {
        return None;
    }
    values.insert("rate", Value::Rate(*rate));
    Some(source.clone())
}

fn decode_traffic(
    decoder: &mut Decoder<'_>,
    nodes: &[Node],
    item: &Item,
    index: usize,
) -> Option<Traffic> {
    let named = item.text("name").map(str::to_owned).filter(|name| !name.is_empty());
    let key = join("traffic", &named.clone().unwrap_or_else(|| index.to_string()));
    let shape = Shape {
        what: "the traffic",
        params: pages::TRAFFIC.params,
        kind: Some(Family::Traffic),
        besides: &[],
    };
    let (kind, values) = decoder.table(&shape, item, &key);
    let mut end = |which: &str| {
        let name: String = values.given(which)?;
        check::host_end(decoder, nodes, &item.get(which)?.mark, &join(&key, which), &name)
    };
    let (from, to) = (end("from"), end("to"));
    check::class(decoder, item, &key);
    check::span(decoder, &values, item, &key);
    let mark = item.get("to").unwrap_or(item).mark.clone();
    let name_mark = item.get("name").unwrap_or(item).mark.clone();
    let kind = kind?;
    let kind_mark = item.get(kind.page.name).unwrap_or(item).mark.clone();
    let (name, from, to) = (named?, from?, to?);
    Some(Traffic { name, from, to, kind, values, mark, name_mark, kind_mark, key })
}
