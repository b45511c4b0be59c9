//! Profiles of adapters, read from `profiles/adapters/NAME.toml` together with the host that they are plugged into:
//! their stages may be served by its resources and follow its stages.

use super::{Stages, changed, pages, resources, stage_items};
use crate::document::{
    Content, Decoder, Document, Entry, Fault, Item, Problem, Shape, join, shorten,
};
use crate::library::{Builtin, Library};
use lastmeter_base::kind::ParamKind;
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_host::profile::{
    Adapter, AdapterStage, Part, Profile, ResourceProfile, StageProfile,
};

const SHAPE: Shape<'_> = Shape {
    what: "the adapter",
    params: pages::ADAPTER.params,
    kind: None,
    besides: &["resources", "send", "receive", "constants", "connection"],
};

/// The most parts of a connection besides the adapter.
const PARTS_MAX: usize = 32;

/// Reads the profile of an adapter for `host`; messages refer to it as `file_name`.
///
/// # Errors
/// All errors in it, including those of not fitting the host, in the order of the file.
///
/// ```
/// use lastmeter_lab::{library::Builtin, profile};
/// let host = include_bytes!("../../../../profiles/hosts/hp9000-730.toml");
/// let host = profile::host("host.toml", host, &Builtin).unwrap();
/// let text = include_bytes!("../../../../profiles/adapters/afterburner.toml");
/// let card = profile::adapter("card.toml", text, &host, &Builtin).unwrap();
/// assert_eq!(host.with(&card).send[1].name, "copy to card");
/// ```
pub fn adapter(
    file_name: &str,
    text: &[u8],
    host: &Profile,
    library: &dyn Library,
) -> Result<Adapter, Vec<Problem>> {
    let Document { root, reporter } = changed(file_name, text, library)?;
    let mut decoder = Decoder { reporter, library };
    let (_, values) = decoder.table(&SHAPE, &root, "");
    let source: String = values.given("source").unwrap_or_default();
    let own = own_resources(&mut decoder, &root, host, &source);
    let all: Vec<ResourceProfile> = host.resources.iter().chain(&own).cloned().collect();
    let taken = host.send.iter().chain(&host.receive).map(|stage| stage.name.clone()).collect();
    let mut read = Stages { source: &source, resources: &all, names: taken };
    let send = stages(&mut read, &mut decoder, &root, "send", &host.send);
    let receive = stages(&mut read, &mut decoder, &root, "receive", &host.receive);
    let connection = connection(&mut decoder, &root);
    match decoder.reporter.is_empty() {
        true => Ok(Adapter {
            what: values.get("what"),
            source,
            rate: values.get("rate"),
            delay: values.get("delay"),
            framing: values.get("framing"),
            packet_max: values.get("packet-max"),
            price: values.given("price"),
            power: values.given("power"),
            connection,
            resources: own,
            send,
            receive,
        }),
        false => Err(decoder.reporter.into_problems()),
    }
}

/// The network half of an adapter: its link, without stages. Messages refer to the file as `file_name`.
///
/// ```
/// let text = include_bytes!("../../../../profiles/adapters/jetstream.toml");
/// let link = lastmeter_lab::profile::link("jetstream.toml", text).unwrap();
/// assert_eq!(link.rate.as_bits(), 960_000_000);
/// ```
///
/// # Errors
/// All errors in it, in the order of the file.
pub fn link(file_name: &str, text: &[u8]) -> Result<Link, Vec<Problem>> {
    let Document { root, reporter } = Document::parse(file_name, text)?;
    let mut decoder = Decoder { reporter, library: &Builtin };
    let (_, values) = decoder.table(&SHAPE, &root, "");
    let connection = connection(&mut decoder, &root);
    match decoder.reporter.is_empty() {
        true => Ok(Link {
            what: values.get("what"),
            rate: values.get("rate"),
            delay: values.get("delay"),
            framing: values.get("framing"),
            packet_max: values.get("packet-max"),
            price: values.given("price"),
            power: values.given("power"),
            connection,
        }),
        false => Err(decoder.reporter.into_problems()),
    }
}

/// The link of an adapter, as in its profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// What it is.
    pub what: String,
    /// Its rate.
    pub rate: Rate,
    /// Its propagation delay, from adapter to adapter.
    pub delay: Duration,
    /// The overhead of each packet on the link.
    pub framing: Bytes,
    /// The longest packet.
    pub packet_max: Bytes,
    /// The price of an adapter in dollars, if known.
    pub price: Option<u64>,
    /// Its power in watts, if known.
    pub power: Option<f64>,
    /// What else connects a host to the network.
    pub connection: Vec<Part>,
}

/// The other parts of a host's connection.
fn connection(decoder: &mut Decoder<'_>, root: &Item) -> Vec<Part> {
    let items = match root.get("connection") {
        None => return Vec::new(),
        Some(Item { content: Content::List(items), .. }) => items,
        Some(item) => {
            let fault = Fault::new("this is no list", "write [[connection]], with two brackets");
            decoder.report(&item.mark, "connection", fault);
            return Vec::new();
        }
    };
    if let Some(item) = items.get(PARTS_MAX) {
        let fault = Fault::new("there are too many parts", "join those that are alike");
        decoder.report(&item.mark, "connection", fault);
    }
    let part = |(index, item): (usize, &Item)| {
        let (what, params) = ("the part", pages::CONNECTION.params);
        let shape = Shape { what, params, kind: None, besides: &[] };
        let (_, values) = decoder.table(&shape, item, &join("connection", &index.to_string()));
        Some(Part {
            name: values.given("part")?,
            hosts: values.given("hosts").unwrap_or(1),
            price: values.given("price"),
            power: values.given("power"),
        })
    };
    items.iter().take(PARTS_MAX).enumerate().filter_map(part).collect()
}

/// The adapter's own resources; their names must differ from those of the host.
fn own_resources(
    decoder: &mut Decoder<'_>,
    root: &Item,
    host: &Profile,
    source: &str,
) -> Vec<ResourceProfile> {
    let Some(table) = root.get("resources") else { return Vec::new() };
    let is_taken = |entry: &&Entry| host.resources.iter().any(|known| known.name == entry.key);
    for entry in table.entries().unwrap_or_default().iter().filter(is_taken) {
        let found = format!("the host has a resource `{}` already", shorten(&entry.key));
        let right = "rename it, or leave it out and use the host's";
        decoder.report(&entry.mark, &join("resources", &entry.key), Fault::new(found, right));
    }
    resources(decoder, root, source)
}

fn stages(
    read: &mut Stages<'_>,
    decoder: &mut Decoder<'_>,
    root: &Item,
    direction: &str,
    host: &[StageProfile],
) -> Vec<AdapterStage> {
    let items = stage_items(decoder, root, direction).iter().enumerate();
    items
        .filter_map(|(index, item)| {
            let key = join(direction, &index.to_string());
            let after = after(decoder, item, &key, direction, host);
            let stage = read.stage(decoder, item, &key, &["crosses", "after"])?;
            Some(AdapterStage { after, stage })
        })
        .collect()
}

/// The stage of the host that this one follows directly.
fn after(
    decoder: &mut Decoder<'_>,
    item: &Item,
    key: &str,
    direction: &str,
    host: &[StageProfile],
) -> Option<String> {
    let place = item.get("after")?;
    let key = join(key, "after");
    decoder.value(ParamKind::Text, place, &key)?;
    let name = item.text("after")?.to_owned();
    let known = || host.iter().map(|stage| stage.name.as_str());
    if !known().any(|known| known == name) {
        let found = format!("the host has no stage `{}` to {direction}", shorten(&name));
        let list = known().collect::<Vec<_>>().join(", ");
        let right = format!("name one of {list}, or another host");
        decoder.report(&place.mark, &key, Fault::unknown(found, right, &name, known()));
    }
    Some(name)
}
