//! Profiles of hosts: resources and stages as data, read from `profiles/hosts/NAME.toml`, and of the adapters plugged
//! into them ([`adapter`]).
//!
//! ```text
//! [resources]  cpu = { cpu = {...} }   memory = { bus = {...} }      each with its source
//! [[send]]     stages from the application to the network, in order
//! [[receive]]  stages from the network to the application, in order
//! ```

mod adapter;
pub mod constants;
pub mod device;
pub mod error;

pub(crate) mod pages;
mod port;

pub use adapter::{Link, adapter, link};
pub use port::options as port_options;
pub use port::{LineCard, line_card, port};

use crate::document::{Content, Decoder, Document, Fault, Item, Problem, Shape, join};
use crate::library::Library;
use lastmeter_base::kind::{Family, Nested, Values};
use lastmeter_base::{Cost, Duration, PerByte};
use lastmeter_engine::ResourceKind;
use lastmeter_host::machine::Full;
use lastmeter_host::profile::{Profile, ResourceProfile, StageProfile};
use lastmeter_host::resource::{Discipline, Priority};
use std::any::Any;
use std::sync::Arc;

/// A decoded profile, of the type that the nodes of its kind expect from their site.
pub type Described = Arc<dyn Any + Send + Sync>;

/// Reads the profiles of a folder: the maker of a kind of [`Family::Profile`].
pub struct ProfileKind {
    /// Where they are: `hosts` for `profiles/hosts/NAME.toml`.
    pub folder: &'static str,
    /// The folder of the profile that one of these is read within; `None` if it is complete by itself.
    pub within: Option<&'static str>,
    /// Reads one.
    pub read: fn(&File<'_>) -> Result<Described, Vec<Problem>>,
}

/// The file of a profile.
#[derive(Clone, Copy)]
pub struct File<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// The decoded profile that it is read within.
    pub within: Option<&'a Described>,
    /// Where its kinds come from.
    pub library: &'a dyn Library,
}

impl ProfileKind {
    /// Reads the profile of this name; `None` if there is none.
    ///
    /// # Errors
    /// All errors in it, in the order of the file.
    pub fn find(
        &self,
        name: &str,
        within: Option<&Described>,
        library: &dyn Library,
    ) -> Option<(String, Result<Described, Vec<Problem>>)> {
        let text = library.profile(self.folder, name).ok()?;
        let file = format!("{}/{name}.toml", self.folder);
        let described = (self.read)(&File { name: &file, text: &text, within, library });
        Some((text, described))
    }
}

/// The most resources of a host.
pub const RESOURCES_MAX: usize = 64;
/// The most stages of a host in one direction.
pub const STAGES_MAX: usize = 256;
/// The most times that a byte may cross a bus in one stage.
pub const CROSSINGS_MAX: i64 = 1000;

/// Reads a host profile; messages refer to it as `file_name`.
///
/// # Errors
/// All errors in it, in the order of the file.
///
/// ```
/// use lastmeter_lab::library::Builtin;
/// let text = r#"
/// what = "A host whose processor copies 100 MB/s"
/// source = "made up for this example"
/// [resources]
/// cpu = { cpu = {} }
/// [[send]]
/// name = "copy out"
/// on = "cpu"
/// per-byte = "100 MB/s"
/// [[receive]]
/// name = "copy in"
/// on = "cpu"
/// per-byte = "100 MB/s"
/// "#;
/// let host = lastmeter_lab::profile::host("example.toml", text.as_bytes(), &Builtin).unwrap();
/// assert_eq!(host.send[0].name, "copy out");
/// ```
pub fn host(file_name: &str, text: &[u8], library: &dyn Library) -> Result<Profile, Vec<Problem>> {
    let Document { root, reporter } = changed(file_name, text, library)?;
    let mut decoder = Decoder { reporter, library };
    let shape = Shape {
        what: "the profile",
        params: pages::HOST.params,
        kind: None,
        besides: &["resources", "send", "receive"],
    };
    let (_, values) = decoder.table(&shape, &root, "");
    let source: String = values.given("source").unwrap_or_default();
    let resources = resources(&mut decoder, &root, &source);
    let mut read = Stages { source: &source, resources: &resources, names: Vec::new() };
    // A host may cost nothing on one side.
    let neither = root.get("send").is_none() && root.get("receive").is_none();
    let mut way = |direction| match neither || root.get(direction).is_some() {
        true => read.way(&mut decoder, &root, direction),
        false => Vec::new(),
    };
    let (send, receive) = (way("send"), way("receive"));
    match decoder.reporter.is_empty() {
        true => Ok(Profile {
            what: values.get("what"),
            source,
            resources,
            send,
            receive,
            socket_buffer: values.given("socket-buffer"),
        }),
        false => Err(decoder.reporter.into_problems()),
    }
}

/// The document of a profile with what the library sets in it.
fn changed(file_name: &str, text: &[u8], library: &dyn Library) -> Result<Document, Vec<Problem>> {
    let mut document = Document::parse(file_name, text)?;
    let profile = file_name.strip_suffix(".toml").unwrap_or(file_name);
    library.changes(profile).iter().for_each(|change| change.apply(&mut document));
    Ok(document)
}

fn resources(decoder: &mut Decoder<'_>, root: &Item, source: &str) -> Vec<ResourceProfile> {
    let Some(table) = root.get("resources") else {
        let right = "add [resources] and cpu = { cpu = {} }";
        decoder.report(&root.mark, "resources", Fault::new("there are no resources", right));
        return Vec::new();
    };
    let Some(entries) = table.entries() else {
        let found = format!("found {} where a table is expected", table.content.name());
        let right = "write [resources], and below it a line for each: cpu = { cpu = {} }";
        decoder.report(&table.mark, "resources", Fault::new(found, right));
        return Vec::new();
    };
    if entries.len() > RESOURCES_MAX {
        let found = format!("there are {} resources", entries.len());
        let right = format!("a host has at most {RESOURCES_MAX}");
        decoder.report(&table.mark, "resources", Fault::new(found, right));
    }
    let mut resources = Vec::new();
    for entry in entries.iter().take(RESOURCES_MAX) {
        let key = join("resources", &entry.key);
        let what = format!("`{}`", crate::document::shorten(&entry.key));
        let shape = Shape {
            what: &what,
            params: pages::RESOURCE.params,
            kind: Some(Family::Resource),
            besides: &[],
        };
        if let (Some(kind), values) = decoder.table(&shape, &entry.item, &key) {
            resources.push(resource(&entry.key, &kind, sourced(source, &values)));
        }
    }
    resources
}

/// The source of a resource or a stage: the document, and the part of it that is named, if any.
fn sourced(document: &str, values: &Values) -> String {
    match values.given::<String>("source") {
        Some(own) => format!("{document}; {own}"),
        None => document.to_owned(),
    }
}

fn resource(name: &str, kind: &Nested, source: String) -> ResourceProfile {
    let values = &kind.values;
    let time = |key| values.given::<Duration>(key).unwrap_or(Duration::ZERO);
    let shared = values.given::<String>("arbitration").is_some_and(|how| how == "shared");
    ResourceProfile {
        name: name.to_owned(),
        kind: *kind.maker::<ResourceKind>(),
        memory: values.given("memory").unwrap_or(false),
        units: values.given::<u64>("units").unwrap_or(1) as u32,
        discipline: if shared { Discipline::Share } else { Discipline::Priority },
        context_switch: time("context-switch"),
        interrupt: time("interrupt"),
        per_byte: values.given("rate").unwrap_or(PerByte::ZERO),
        source,
    }
}

/// The state of reading a profile's stages.
struct Stages<'a> {
    /// The source of the profile.
    source: &'a str,
    /// The resources that stages can name.
    resources: &'a [ResourceProfile],
    /// The names of stages so far.
    names: Vec<String>,
}

impl Stages<'_> {
    fn way(
        &mut self,
        decoder: &mut Decoder<'_>,
        root: &Item,
        direction: &str,
    ) -> Vec<StageProfile> {
        let items = stage_items(decoder, root, direction).iter().enumerate();
        let stage = |(index, item): (usize, &Item)| {
            self.stage(decoder, item, &join(direction, &index.to_string()), &["crosses"])
        };
        items.filter_map(stage).collect()
    }

    fn stage(
        &mut self,
        decoder: &mut Decoder<'_>,
        item: &Item,
        key: &str,
        besides: &[&str],
    ) -> Option<StageProfile> {
        let what = item.text("name").map_or("the stage".to_owned(), |name| {
            format!("stage `{}`", crate::document::shorten(name))
        });
        let shape = Shape { what: &what, params: pages::STAGE.params, kind: None, besides };
        let (_, values) = decoder.table(&shape, item, key);
        let name: String = values.given("name")?;
        if self.names.contains(&name) {
            let right = "give each stage of a host a name of its own";
            let fault = Fault::new(format!("two stages are called `{name}`"), right);
            decoder.report(&item.mark, &join(key, "name"), fault);
        }
        self.names.push(name.clone());
        let resource: String = values.given("on")?;
        let place = item.get("on").map_or(&item.mark, |item| &item.mark);
        known_resource(decoder, self.resources, place, &join(key, "on"), &resource);
        let buses = crosses(decoder, item, key, self.resources, &resource);
        Some(stage_of([name, resource, sourced(self.source, &values)], buses, &values))
    }
}

/// The tables of stages in one direction.
fn stage_items<'a>(decoder: &mut Decoder<'_>, root: &'a Item, direction: &str) -> &'a [Item] {
    let items = match root.get(direction) {
        Some(Item { content: Content::List(items), .. }) if !items.is_empty() => items,
        other => {
            let mark = other.map_or(&root.mark, |item| &item.mark).clone();
            let found = format!("there are no stages to {direction}");
            let right = format!("write [[{direction}]] above each stage, with two brackets");
            decoder.report(&mark, direction, Fault::new(found, right));
            return &[];
        }
    };
    if items.len() > STAGES_MAX {
        let found = format!("there are {} stages", items.len());
        let right = format!("a host has at most {STAGES_MAX} in each direction");
        decoder.report(&items[0].mark, direction, Fault::new(found, right));
    }
    &items[..items.len().min(STAGES_MAX)]
}

fn stage_of(
    [name, resource, source]: [String; 3],
    buses: Vec<(String, u32)>,
    values: &Values,
) -> StageProfile {
    let level: u64 = values.get("level");
    let interrupts: u64 = values.get("interrupts");
    let per_packet: Duration = values.get("per-packet");
    let per_interrupt: Duration = values.get("per-interrupt");
    StageProfile {
        name,
        resource,
        priority: match values.get::<String>("priority").as_str() {
            "interrupt" => Priority::Interrupt,
            "softirq" => Priority::Softirq,
            _ => Priority::Thread(level as u8),
        },
        preemptive: values.get("preemptive"),
        cost: Cost {
            per_packet: per_packet + per_interrupt * interrupts,
            per_byte: values.get("per-byte"),
        },
        per_message: values.get("per-message"),
        per_pdu: values.get("per-pdu"),
        random: values.given("random"),
        batch: values.get("batch"),
        interrupts: interrupts as u32,
        buses,
        copies: values.get::<u64>("copies") as u32,
        touches: values.get::<u64>("touches") as u32,
        queue: values.given("queue"),
        full: match values.get::<String>("full").as_str() {
            "block" => Full::Block,
            _ => Full::Drop,
        },
        source,
    }
}

fn known_resource(
    decoder: &mut Decoder<'_>,
    resources: &[ResourceProfile],
    mark: &crate::document::Mark,
    key: &str,
    name: &str,
) -> bool {
    let names = || resources.iter().map(|resource| resource.name.as_str());
    let known = names().any(|known| known == name);
    if !known {
        let list = names().collect::<Vec<_>>().join(", ");
        let right = format!("name one of [resources]: {list}");
        let found = format!("there is no resource `{}`", crate::document::shorten(name));
        decoder.report(mark, key, Fault::unknown(found, right, name, names()));
    }
    known
}

/// `crosses = { memory = 2 }`: how often each byte crosses which bus.
fn crosses(
    decoder: &mut Decoder<'_>,
    item: &Item,
    key: &str,
    resources: &[ResourceProfile],
    primary: &str,
) -> Vec<(String, u32)> {
    let Some(table) = item.get("crosses") else { return Vec::new() };
    let key = join(key, "crosses");
    let right = "say how often each byte crosses which bus: crosses = { memory = 2 }";
    let Some(entries) = table.entries() else {
        let found = format!("found {} where a table is expected", table.content.name());
        decoder.report(&table.mark, &key, Fault::new(found, right));
        return Vec::new();
    };
    let mut buses = Vec::new();
    for entry in entries {
        let key = join(&key, &entry.key);
        if !known_resource(decoder, resources, &entry.mark, &key, &entry.key) {
            continue;
        }
        if entry.key == primary {
            let found =
                format!("`{primary}` serves this stage and cannot be crossed by it as well");
            let right = "leave it out: its cost is per-packet and per-byte";
            decoder.report(&entry.mark, &key, Fault::new(found, right));
            continue;
        }
        match entry.item.content {
            Content::Integer(Some(times), _) if (1..=CROSSINGS_MAX).contains(&times) => {
                buses.push((entry.key.clone(), times as u32));
            }
            _ => {
                let found = format!("{} is not a number of crossings", entry.item.content.name());
                let right = format!("write a whole number from 1 to {CROSSINGS_MAX}");
                decoder.report(&entry.item.mark, &key, Fault::new(found, right));
            }
        }
    }
    buses
}
