//! Experiments: a network, the traffic through it, and how long it runs, read from a TOML file.
//!
//! ```text
//! text, overrides --parse--> Experiment --build--> graph
//!                               |
//!                               '-- or every problem, with file, line and key
//! ```

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
use crate::library::Library;
use crate::profile;
use lastmeter_base::Duration;
pub use lastmeter_base::kind::FRAMING_MAX;
use lastmeter_base::kind::{Family, Nested, ParamKind, Value, Values};
use lastmeter_host::profile::Profile;
use lastmeter_host::receive::division::Division;
use lastmeter_ledger::Source;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    /// What it is called.
    pub title: String,
    /// What it is meant to answer.
    pub question: String,
    /// How long it runs.
    pub duration: Duration,
    /// What names its random streams.
    pub seed: u64,
    /// The first 16 hexadecimal digits of the SHA-256 of its text with all overrides.
    pub hash: String,
    /// Its nodes, as declared.
    pub nodes: Vec<Node>,
    /// Its links, as declared.
    pub links: Vec<Link>,
    /// Its traffic, as declared.
    pub traffic: Vec<Traffic>,
    /// The profiles that its hosts name, each by the names of the host and of the adapter in it.
    pub profiles: BTreeMap<(String, Option<String>), Arc<Profile>>,
    /// What the other profiles that its nodes name describe, by folder and name.
    pub described: BTreeMap<(&'static str, String), Arc<dyn Any + Send + Sync>>,
    /// The names of all of these and the hashes of their texts.
    pub profile_sources: Vec<Source>,
    /// The texts that later problems point into.
    pub(crate) reporter: Reporter,
}

/// A node, or several that are alike.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Nested,
    /// How many there are, where it is counted.
    pub count: Option<u64>,
    pub(crate) mark: Mark,
}

/// A link, or several that are alike.
#[derive(Clone, Debug)]
pub struct Link {
    /// The nodes that it joins, in order.
    pub between: Vec<End>,
    /// Its parameters.
    pub values: Values,
    pub(crate) mark: Mark,
    pub(crate) key: String,
}

/// Traffic from one host to another, or between several alike.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The class.
    pub name: String,
    /// Who sends.
    pub from: End,
    /// Who receives.
    pub to: End,
    /// What is sent.
    pub kind: Nested,
    /// What all traffic can say.
    pub values: Values,
    pub(crate) mark: Mark,
    pub(crate) name_mark: Mark,
    pub(crate) kind_mark: Mark,
    /// Its key, for problems met later.
    pub(crate) key: String,
}

/// Who stands at an end of a link or of traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// As it was written: `s` or `s.3`.
    pub name: String,
    /// Which of the declared nodes.
    pub node: usize,
    /// Which member of a counted node; `None` for each of them.
    pub member: Option<u64>,
}

impl Experiment {
    /// Reads an experiment from the bytes of its file, with overrides.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file.
    pub fn parse(
        file_name: &str,
        text: impl AsRef<[u8]>,
        overrides: &[Override],
        library: &dyn Library,
    ) -> Result<Experiment, Vec<Problem>> {
        let text = text.as_ref();
        let mut document = Document::parse(file_name, text)?;
        overrides.iter().for_each(|change| change.apply(&mut document));
        let Document { root, reporter } = document;
        let mut decoder = Decoder { reporter, library };
        let mut experiment = decode(&mut decoder, &root);
        check::experiment(&mut experiment, &mut decoder, &root.mark);
        let mut problems = experiment.load_profiles(library);
        experiment.check_divisions(&mut decoder);
        if decoder.reporter.is_empty() && problems.is_empty() {
            experiment.hash = hash(text, overrides);
            experiment.reporter = decoder.reporter;
            return Ok(experiment);
        }
        problems.splice(0..0, decoder.reporter.into_problems());
        Err(problems)
    }

    /// Reads each profile that a host names; says what is wrong with them.
    fn load_profiles(&mut self, library: &dyn Library) -> Vec<Problem> {
        let names: BTreeSet<_> = self.nodes.iter().filter_map(Node::profile).collect();
        let mut problems = Vec::new();
        for (host, adapter) in names {
            match self.load_profile(&host, adapter.as_deref(), library) {
                // A name that is not there has been reported where it stands.
                Ok(None) => {}
                Ok(Some(profile)) => drop(self.profiles.insert((host, adapter), profile.into())),
                Err(wrong) => problems.extend(wrong),
            }
        }
        for &(folder, read) in profile::READERS {
            problems.extend(self.load_described(folder, read, library));
        }
        // The same host may be read for several adapters.
        let mut said = Vec::new();
        problems.retain(|problem| {
            !said.contains(problem) && {
                said.push(problem.clone());
                true
            }
        });
        problems
    }

    /// Says which hosts name a policy that cannot schedule what their profile has them do.
    fn check_divisions(&self, decoder: &mut Decoder<'_>) {
        for node in self.nodes.iter().filter(|node| node.kind.values.has("reception")) {
            let profile = node.profile().and_then(|names| self.profiles.get(&names));
            if let Some(Err((found, right))) = profile.map(|profile| Division::of(profile)) {
                let key = join(&join("nodes", &node.name), "host.reception");
                decoder.report(&node.mark, &key, Fault::new(found, right));
            }
        }
    }

    /// Reads each profile of a folder that nodes name.
    fn load_described(
        &mut self,
        folder: &'static str,
        read: profile::Read,
        library: &dyn Library,
    ) -> Vec<Problem> {
        let names: BTreeSet<String> =
            self.nodes.iter().flat_map(|node| node.profiles(folder)).collect();
        let mut problems = Vec::new();
        for name in names {
            // A name that is not there has been reported where it stands.
            let Ok(text) = library.profile(folder, &name) else { continue };
            match read(&format!("{folder}/{name}.toml"), &text, library) {
                Ok(described) => drop(self.described.insert((folder, name.clone()), described)),
                Err(wrong) => problems.extend(wrong),
            }
            self.name_source(&name, text);
        }
        problems
    }

    fn load_profile(
        &mut self,
        host: &str,
        adapter: Option<&str>,
        library: &dyn Library,
    ) -> Result<Option<Profile>, Vec<Problem>> {
        let Ok(text) = library.profile(HOSTS, host) else { return Ok(None) };
        let profile = profile::host(&format!("{HOSTS}/{host}.toml"), text.as_bytes(), library)?;
        self.name_source(host, text);
        let Some(name) = adapter else { return Ok(Some(profile)) };
        let Ok(text) = library.profile(ADAPTERS, name) else { return Ok(None) };
        let file = format!("{ADAPTERS}/{name}.toml");
        let adapter = profile::adapter(&file, text.as_bytes(), &profile, library)?;
        self.name_source(name, text);
        Ok(Some(profile.with(&adapter)))
    }

    fn name_source(&mut self, name: &str, text: String) {
        let source = Source { name: name.to_owned(), hash: crate::digest(text) };
        if !self.profile_sources.contains(&source) {
            self.profile_sources.push(source);
        }
    }
}

impl Node {
    /// The names of the profiles of a host that has one: its own, and that of its adapter.
    pub(crate) fn profile(&self) -> Option<(String, Option<String>)> {
        let values = &self.kind.values;
        let host = self.kind.page.name == crate::build::host::PAGE.name;
        Some((values.given("profile").filter(|_| host)?, values.given("adapter")))
    }

    /// The names of the profiles of a folder that its parameters name.
    fn profiles(&self, folder: &'static str) -> impl Iterator<Item = String> {
        let values = &self.kind.values;
        let params = self.kind.page.params.iter();
        params
            .filter(move |param| matches!(param.kind, ParamKind::Profile(of) if of == folder))
            .filter_map(|param| values.given(param.name))
    }
}

/// The folders of profiles of hosts, of adapters and of line cards.
pub(crate) const HOSTS: &str = "hosts";
pub(crate) const ADAPTERS: &str = "adapters";
const LINKS: &str = "links";

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
        seed: values.given("seed").unwrap_or(0),
        hash: String::new(),
        nodes,
        links,
        traffic,
        profiles: BTreeMap::new(),
        described: BTreeMap::new(),
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
            let found = format!("{} stands where a list is", item.content.name());
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
        let found = format!("{} stands where a table is", table.content.name());
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
        // A node whose kind is not known is still a node, so that links to it are not wrong too.
        let host = &crate::build::host::KINDS[0];
        let kind = kind.unwrap_or_else(|| Nested::new(host, Values::default()));
        check::host_node(decoder, &kind, &entry.item, &key);
        let (name, count) = (entry.key.clone(), values.given("count"));
        check::live_host(decoder, &kind, &entry.item, &key, count);
        let mark = entry.mark.clone();
        nodes.push(Node { name, kind, count, mark });
    }
    nodes
}

/// The link once for each chain, where `between` lists several.
fn chains(item: &Item) -> Vec<Item> {
    let chains = item.get("between").map(Item::items).unwrap_or_default();
    if !chains.iter().any(Item::is_list) {
        return vec![item.clone()];
    }
    let with = |chain: &Item| {
        let mut link = item.clone();
        if let Content::Table(entries) = &mut link.content {
            let between = entries.iter_mut().filter(|entry| entry.key == "between");
            between.for_each(|entry| entry.item = chain.clone());
        }
        link
    };
    chains.iter().map(with).collect()
}

fn decode_link(
    decoder: &mut Decoder<'_>,
    nodes: &[Node],
    item: &Item,
    index: usize,
) -> Option<Link> {
    let key = join("links", &index.to_string());
    let shape = Shape { what: "the link", params: pages::LINK.params, kind: None, besides: &[] };
    let (_, mut values) = decoder.table(&shape, item, &key);
    line_card(decoder, &mut values, item, &key);
    let names: Vec<String> = values.given("between")?;
    let place = item.get("between")?;
    let marks = place.items().iter().map(|item| &item.mark);
    let ends: Vec<Option<End>> = names
        .iter()
        .zip(marks)
        .map(|(name, mark)| check::end(decoder, nodes, mark, &join(&key, "between"), name))
        .collect();
    check::wireless(decoder, &values, item, &key);
    let between: Vec<End> = ends.into_iter().collect::<Option<_>>()?;
    Some(Link { between, values, mark: place.mark.clone(), key })
}

/// Takes from a line card what the link does not say itself (D-08).
fn line_card(decoder: &mut Decoder<'_>, values: &mut Values, item: &Item, key: &str) {
    let Some(name) = values.given::<String>("card") else { return };
    // A name that is not there has been reported where it stands.
    let Ok(text) = decoder.library.profile(LINKS, &name) else { return };
    match profile::line_card(&format!("{LINKS}/{name}.toml"), &text) {
        Ok((rate, framing)) => {
            if !values.has("rate") {
                values.insert("rate", Value::Rate(rate));
            }
            if !values.has("framing") {
                values.insert("framing", Value::Size(framing));
            }
        }
        Err(error) => {
            let mark = item.get("card").unwrap_or(item).mark.clone();
            let fault = Fault::new(error.to_string(), "mend the profile");
            decoder.report(&mark, &join(key, "card"), fault);
        }
    }
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
