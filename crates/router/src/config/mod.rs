//! `router.toml`: a router's ports, routes, filters, flows, plugins.
//!
//! ```toml
//! [ports.west]
//! interface = "eth0"
//!
//! [ports.east]
//! interface = "eth1"
//! rate = "1 Gbit/s"
//! queue = { qsdrr = { queues = 1000, packets = 4000 } }
//!
//! [[routes]]
//! prefix = "192.0.2.0/24"
//! via = "10.2.0.9"
//! ```
//!
//! It is decoded as experiments are: every error with its line and what would be right.

mod filter;
mod flow;
mod processor;

pub use filter::{Action, Filter, Packets, first_bits};
pub use flow::{FLOWS_MAX, Flow, Node, POLICIES_MAX, Policy, PolicyTo, ROUTE_MAX, TABLES_MAX};
pub use processor::{Fabric, PROCESSORS_MAX, Processor, ROOM};

use crate::port_processor::output::FRAMING;
use crate::port_processor::reception::Receive;
use crate::port_processor::structure::Lookup;
use lastmeter_base::kind::{Family, Nested, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_lab::document::{
    Content, Decoder, Document, Entry, Fault, Item, Mark, Problem, Shape, join,
};
use lastmeter_lab::experiment::elements;
use lastmeter_lab::library::Library;
use lastmeter_linux::dataplane::program::PORTS_MAX;
use lastmeter_plugin::index::{Version, is_name};
use lastmeter_plugin::setting::Setting;
use lastmeter_wire::netlink::masked;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Limit on the plugins of a router.
pub const PLUGINS_MAX: usize = 64;

/// A router as its file describes it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Ports in the order of their names.
    pub ports: Vec<Port>,
    /// Routes that do not come from a routing protocol.
    pub routes: Vec<Route>,
    /// A file of routes, one a line: prefix and next hop.
    pub table: Option<String>,
    /// The address to which FRR's `dplane_fpm_nl` connects.
    pub fpm: Option<SocketAddr>,
    /// Silence of FRR after which routes that it has not announced since connecting are removed.
    pub stale_routes: Duration,
    /// Whether the kernel's routes are followed.
    pub kernel_routes: bool,
    /// Whether ports say who they are, and listen to routers that do.
    pub lldp: bool,
    /// Whether known flows are forwarded by a program in the driver.
    pub fast: bool,
    /// Limit on frames in queues, beyond those in the ports' rings.
    pub frames: usize,
    /// Port processors in the order of their names; each port has one.
    pub processors: Vec<Processor>,
    /// Whether port processors start one after the other.
    pub in_turn: bool,
    /// Distributed queueing between ports, if they have it.
    pub fabric: Option<Fabric>,
    /// Filters in order; the first that matches decides.
    pub filters: Vec<Filter>,
    /// A file of filters as ClassBench writes them; they permit what they match.
    pub rules: Option<String>,
    /// Plugins by name.
    pub plugins: BTreeMap<String, Setting>,
    /// Where plugins come from that are fetched from a code server, by the plugin's name.
    pub remotes: BTreeMap<String, Remote>,
    /// Flows with a treatment of their own, in the order of their names.
    pub flows: Vec<Flow>,
    /// Routers that routes of flows name.
    pub nodes: BTreeMap<String, Node>,
    /// Routes by more than the destination; the first that matches applies.
    pub policies: Vec<Policy>,
    /// The names of tables besides the main one.
    pub tables: BTreeSet<String>,
    /// The structure of the main one.
    pub lookup: Lookup,
    /// When packets are taken from ports.
    pub receive: Receive,
    /// Time between refreshes of what RSVP has set up.
    pub refresh: Duration,
}

/// A module on a code server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remote {
    /// `http://HOST:PORT` or `https://HOST/FOLDER`.
    pub server: String,
    /// Its name there.
    pub name: String,
    /// Its version; the newest, if absent.
    pub version: Option<String>,
    /// The folder of keys that are trusted.
    pub keys: String,
}

/// A port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The kernel's name of its interface.
    pub interface: String,
    /// Departures are shaped to this rate; the interface's own if absent.
    pub rate: Option<Rate>,
    /// Line time of a packet beyond its bytes.
    pub framing: Bytes,
    /// The output queue.
    pub queue: Option<Nested>,
    /// Number of flows distinguished, by a hash of their addresses and ports.
    pub flows: u32,
    /// Plugins for every packet that arrives here.
    pub plugins: Vec<String>,
    /// Plugins for every packet that leaves here.
    pub departing: Vec<String>,
    /// The share of its line that flows may reserve, in each direction.
    pub reservable: f64,
    /// Whether packets that arrive here may set up their flows.
    pub in_band: bool,
    /// Whether packets with labels, and messages of RSVP, are taken here.
    pub labels: bool,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination's first bits.
    pub prefix: IpAddr,
    /// How many.
    pub len: u8,
    /// The next router; packets are dropped if absent.
    pub via: Option<IpAddr>,
    /// The table; the main one, if absent.
    pub table: Option<String>,
}

const ROUTER: &[Param] = &[
    Param::optional("fpm", ParamKind::Text, "none")
        .is("address and port on which FRR's `dplane_fpm_nl` finds the router: 127.0.0.1:2620"),
    Param::or("stale-routes", ParamKind::Time, "10 s")
        .is("silence of FRR after which routes go that it has not announced since it connected"),
    Param::or("kernel-routes", ParamKind::Flag, "false")
        .is("whether routes in the kernel's main table are followed, too"),
    Param::optional("table", ParamKind::Text, "none")
        .is("a file of routes, each on a line: prefix and next hop"),
    Param::optional("rules", ParamKind::Text, "none")
        .is("a file of filters in ClassBench's format, which permit what they match"),
    Param::or("lldp", ParamKind::Flag, "false")
        .is("whether ports say who they are, and listen to routers that do (IEEE 802.1AB)"),
    Param::or("fast", ParamKind::Flag, "false")
        .is("whether known flows are forwarded in the driver, past the port processor"),
    Param::or("frames", ParamKind::Integer { min: 1024, max: 1 << 20 }, "8192")
        .is("frames that may wait in queues, all ports together"),
    Param::or("lookup", ParamKind::Choice(Lookup::NAMES), "auto")
        .is("the structure of the routing table: arrays (`direct`), or the faster one as measured"),
    Param::optional("core", ParamKind::Integer { min: 0, max: 4095 }, "any")
        .is("the core on which the port processor runs"),
    Param::or("receive", ParamKind::Choice(Receive::NAMES), "mixed")
        .is("when packets are taken from ports: our own way, or a policy of the receivers' models"),
    Param::or("refresh", ParamKind::Time, "30 s")
        .is("time between refreshes of what RSVP has set up, on average"),
    Param::or("start", ParamKind::Choice(&["together", "in-turn"]), "together")
        .is("whether port processors start at the same time, or one after the other"),
];

const PORT: &[Param] = &[
    Param::required("interface", ParamKind::Text).is("the kernel's name of the interface"),
    Param::optional("rate", ParamKind::Rate, "the interface's own")
        .is("the rate to which departures are shaped"),
    Param::optional("framing", ParamKind::Size { min: 0, max: 1500 }, "38 B, as on Ethernet")
        .is("line time of a packet beyond its bytes from the IP header on, for the shaper"),
    Param::optional("queue", ParamKind::Nested(Family::Queue), "drop-tail of 1000 packets")
        .is("where packets wait to leave"),
    Param::or("flows", ParamKind::Integer { min: 1, max: 1 << 16 }, "1024")
        .is("flows that the queue tells apart, by a hash of addresses, ports and protocol"),
    Param::or("reservable", ParamKind::Number { min: 0.0, max: 1.0 }, "0.8")
        .is("the share of its line that flows may reserve, in each direction"),
    Param::or("in-band", ParamKind::Flag, "false").is(
        "whether packets that arrive here may set up their flows, and routers here refuse them",
    ),
    Param::or("labels", ParamKind::Flag, "false").is(
        "whether packets with labels (MPLS) and messages of RSVP are taken here, not by the kernel",
    ),
];

const ROUTE: &[Param] = &[
    Param::required("prefix", ParamKind::Text).is("addresses that it is for: 192.0.2.0/24"),
    Param::optional("via", ParamKind::Text, "packets are dropped").is("the next router's address"),
    Param::optional("table", ParamKind::Text, "the main one")
        .is("the table that it belongs to, which policies name"),
];

const PLUGIN: &[Param] = &[
    Param::optional("module", ParamKind::Text, "an expression").is("the file of its module"),
    Param::optional("expression", ParamKind::Text, "a module").is("a policy of a few words"),
    Param::or("config", ParamKind::Text, "").is("what it is initialised with"),
    Param::or("fail", ParamKind::Choice(&["open", "closed", "reload"]), "reload")
        .is("what becomes of packets when it fails"),
    Param::optional("server", ParamKind::Text, "a file")
        .is("a code server that has its module: http://127.0.0.1:8400"),
    Param::optional("name", ParamKind::Text, "as here").is("its name on the code server"),
    Param::optional("version", ParamKind::Text, "the newest").is("its version there: 1.2.0"),
    Param::optional("keys", ParamKind::Text, "none are trusted")
        .is("the folder of the owners' keys, one of which signed it"),
];

impl Config {
    /// Reads a router's file.
    ///
    /// # Errors
    /// All errors in it.
    pub fn parse(name: &str, text: &[u8], library: &dyn Library) -> Result<Config, Vec<Problem>> {
        let Document { root, reporter } = Document::parse(name, text)?;
        let mut decoder = Decoder { reporter, library };
        let config = decode(&mut decoder, &root);
        if decoder.reporter.is_empty() {
            return Ok(config);
        }
        Err(decoder.reporter.into_problems())
    }
    /// The port processor of each port, by its number.
    pub fn owners(&self) -> Vec<usize> {
        let owner = |port: u16| {
            self.processors.iter().position(|own| own.ports.contains(&port)).unwrap_or(0)
        };
        (0..self.ports.len() as u16).map(owner).collect()
    }
    /// The number of a port.
    pub fn port(&self, name: &str) -> Option<u16> {
        self.ports.iter().position(|port| port.name == name).map(|at| at as u16)
    }
}

fn decode(decoder: &mut Decoder<'_>, root: &Item) -> Config {
    let besides = [
        "ports",
        "routes",
        "filters",
        "plugins",
        "flows",
        "nodes",
        "policies",
        "processors",
        "fabric",
    ];
    let shape = Shape { what: "the router", params: ROUTER, kind: None, besides: &besides };
    let (_, values) = decoder.table(&shape, root, "");
    let fpm = values.given::<String>("fpm").and_then(|text| {
        let right = "an address and a port: 127.0.0.1:2620";
        parsed::<SocketAddr>(decoder, root, "fpm", &text, right)
    });
    // Anyone who can connect to it controls the routes.
    if fpm.is_some_and(|address| !address.ip().is_loopback()) {
        let fault = Fault::new("FPM has no authentication", "give a loopback address: 127.0.0.1");
        decoder.report(&place(root, "fpm"), "fpm", fault);
    }
    let (mut plugins, mut remotes) = (BTreeMap::new(), BTreeMap::new());
    for entry in named(decoder, root, "plugins") {
        let Some((setting, remote)) = plugin(decoder, entry) else { continue };
        plugins.insert(entry.key.clone(), setting);
        remotes.extend(remote.map(|remote| (entry.key.clone(), remote)));
    }
    at_most(decoder, root, "plugins", plugins.len(), PLUGINS_MAX);
    let plugin_names: BTreeSet<String> = plugins.keys().cloned().collect();
    let mut ports: Vec<Port> = named(decoder, root, "ports")
        .into_iter()
        .filter_map(|entry| port(decoder, entry, &plugin_names))
        .collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    if ports.is_empty() || ports.len() > PORTS_MAX as usize {
        let found = format!("a router has 1 to {PORTS_MAX} ports, and this has {}", ports.len());
        decoder.report(&root.mark, "ports", Fault::new(found, PORT_EXAMPLE));
    }
    let port_names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
    let names: Vec<&str> = port_names.iter().map(String::as_str).collect();
    let processors = processor::processors(decoder, root, &values, &names);
    let fabric = processor::fabric(decoder, root, &ports);
    let routes = elements(decoder, root, "routes").into_iter();
    let routes: Vec<Route> = routes.filter_map(|item| route(decoder, item)).collect();
    let tables: BTreeSet<String> = routes.iter().filter_map(|route| route.table.clone()).collect();
    at_most(decoder, root, "routes", tables.len(), TABLES_MAX);
    let nodes: BTreeMap<String, Node> = named(decoder, root, "nodes")
        .into_iter()
        .filter_map(|entry| flow::node(decoder, entry).map(|node| (entry.key.clone(), node)))
        .collect();
    let names = flow::Names { ports: &port_names, plugins: &plugin_names, nodes: &nodes };
    let entries = named(decoder, root, "flows");
    at_most(decoder, root, "flows", entries.len(), FLOWS_MAX);
    let mut flows: Vec<Flow> =
        entries.iter().filter_map(|entry| flow::flow(decoder, entry, &names)).collect();
    flows.sort_by(|a, b| a.name.cmp(&b.name));
    flow::labels(decoder, root, &flows, &ports, &nodes);
    let flow_names: BTreeSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
    let names = filter::Names { ports: &port_names, plugins: &plugin_names, flows: &flow_names };
    let filters = elements(decoder, root, "filters").into_iter();
    let filters = filters.filter_map(|item| filter::filter(decoder, item, &names)).collect();
    let policies = elements(decoder, root, "policies");
    at_most(decoder, root, "policies", policies.len(), POLICIES_MAX);
    let policies = policies.into_iter();
    let policies =
        policies.filter_map(|item| flow::policy(decoder, item, &port_names, &tables)).collect();
    Config {
        ports,
        routes,
        table: values.given("table"),
        fpm,
        stale_routes: values.get("stale-routes"),
        kernel_routes: values.given("kernel-routes").unwrap_or(false),
        lldp: values.given("lldp").unwrap_or(false),
        fast: values.given("fast").unwrap_or(false),
        frames: values.given::<u64>("frames").unwrap_or(8192) as usize,
        processors,
        in_turn: values.given::<String>("start").is_some_and(|start| start == "in-turn"),
        fabric,
        filters,
        rules: values.given("rules"),
        plugins,
        remotes,
        flows,
        nodes,
        policies,
        tables,
        lookup: Lookup::named(&values.get::<String>("lookup")).unwrap_or_default(),
        receive: Receive::named(&values.get::<String>("receive")).unwrap_or_default(),
        refresh: values.get("refresh"),
    }
}

fn at_most(decoder: &mut Decoder<'_>, root: &Item, what: &str, count: usize, most: usize) {
    if count > most {
        let fault = Fault::new(format!("{count} {what}"), format!("a router has at most {most}"));
        decoder.report(&place(root, what), what, fault);
    }
}

const PORT_EXAMPLE: &str = "add [ports.west] and below it interface = \"eth0\"";

/// The entries of a table of tables.
fn named<'a>(decoder: &mut Decoder<'_>, root: &'a Item, key: &str) -> Vec<&'a Entry> {
    let Some(item) = root.get(key) else { return Vec::new() };
    let Some(entries) = item.entries() else {
        let found = format!("found {} where a table is expected", item.content.name());
        let right = format!("write [{key}.NAME] above each of them");
        decoder.report(&item.mark, key, Fault::new(found, right));
        return Vec::new();
    };
    entries.iter().collect()
}

fn parsed<T: std::str::FromStr>(
    decoder: &mut Decoder<'_>,
    table: &Item,
    key: &str,
    text: &str,
    right: &str,
) -> Option<T> {
    let value = text.parse().ok();
    if value.is_none() {
        let mark = place(table, key);
        decoder.report(&mark, key, Fault::new(format!("found {text:?}"), format!("write {right}")));
    }
    value
}

fn place(table: &Item, key: &str) -> Mark {
    table.get(key).map_or(&table.mark, |item| &item.mark).clone()
}

/// The texts of a list, each with its place.
fn texts(decoder: &mut Decoder<'_>, table: &Item, key: &str, list: &str) -> Vec<(String, Mark)> {
    let Some(item) = table.get(list) else { return Vec::new() };
    if !item.is_list() {
        let fault = Fault::new("not a list", format!("write {list} = [\"NAME\"]"));
        decoder.report(&item.mark, &join(key, list), fault);
    }
    let mut all = Vec::new();
    for part in item.items() {
        if let Content::Text(name) = &part.content {
            all.push((name.clone(), part.mark.clone()));
        } else {
            let fault = Fault::new("not a name", format!("write {list} = [\"NAME\"]"));
            decoder.report(&part.mark, &join(key, list), fault);
        }
    }
    all
}

fn port(decoder: &mut Decoder<'_>, entry: &Entry, plugins: &BTreeSet<String>) -> Option<Port> {
    let key = join("ports", &entry.key);
    let besides = ["plugins", "departing"];
    let shape = Shape { what: "a port", params: PORT, kind: None, besides: &besides };
    let (_, values) = decoder.table(&shape, &entry.item, &key);
    let mut passed = |list: &str| {
        let mut passes = Vec::new();
        for (name, mark) in texts(decoder, &entry.item, &key, list) {
            if !plugins.contains(&name) {
                unknown_plugin(decoder, &mark, &join(&key, list), &name, plugins);
            }
            passes.push(name);
        }
        passes
    };
    let (plugins, departing) = (passed("plugins"), passed("departing"));
    Some(Port {
        name: entry.key.clone(),
        interface: values.given("interface")?,
        rate: rate(&values),
        framing: values.given("framing").unwrap_or(FRAMING),
        queue: values.given("queue"),
        flows: values.given::<u64>("flows").unwrap_or(1024) as u32,
        plugins,
        departing,
        reservable: values.get("reservable"),
        in_band: values.get("in-band"),
        labels: values.get("labels"),
    })
}

fn rate(values: &Values) -> Option<Rate> {
    values.given("rate")
}

/// Names for a message.
fn listed(names: &BTreeSet<String>) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Reports a name of something that is not there.
fn unknown(
    decoder: &mut Decoder<'_>,
    mark: &Mark,
    key: &str,
    (what, name): (&str, &str),
    known: &[&str],
) {
    let right = match (known.is_empty(), what) {
        (true, "table") => "add [[routes]] with this table".to_owned(),
        (true, _) => format!("add [{what}s.{name}]"),
        (false, _) => format!("the {what}s are {}", known.join(", ")),
    };
    let found = format!("there is no {what} `{name}`");
    let fault = Fault::unknown(found, right, name, known.iter().copied());
    decoder.report(mark, key, fault);
}

fn unknown_plugin(
    decoder: &mut Decoder<'_>,
    mark: &Mark,
    key: &str,
    name: &str,
    plugins: &BTreeSet<String>,
) {
    unknown(decoder, mark, key, ("plugin", name), &listed(plugins));
}

/// `192.0.2.0/24` as address and length.
pub fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, len) = text.split_once('/')?;
    let (address, len): (IpAddr, u8) = (address.parse().ok()?, len.parse().ok()?);
    let most = if address.is_ipv4() { 32 } else { 128 };
    (len <= most).then(|| (masked(address, len), len))
}

fn route(decoder: &mut Decoder<'_>, item: &Item) -> Option<Route> {
    let shape = Shape { what: "a route", params: ROUTE, kind: None, besides: &[] };
    let (_, values) = decoder.table(&shape, item, "routes");
    let text: String = values.given("prefix")?;
    let Some((prefix, len)) = prefix(&text) else {
        let fault = Fault::new(format!("found {text:?}"), "write a prefix: 192.0.2.0/24");
        decoder.report(&place(item, "prefix"), "routes.prefix", fault);
        return None;
    };
    let via = match values.given::<String>("via") {
        None => None,
        Some(text) => Some(parsed(decoder, item, "via", &text, "an address: 10.2.0.9")?),
    };
    Some(Route { prefix, len, via, table: values.given("table") })
}

fn plugin(decoder: &mut Decoder<'_>, entry: &Entry) -> Option<(Setting, Option<Remote>)> {
    let key = join("plugins", &entry.key);
    let shape = Shape { what: "a plugin", params: PLUGIN, kind: None, besides: &[] };
    let (_, values) = decoder.table(&shape, &entry.item, &key);
    let mut module: Option<String> = values.given("module");
    let expression: Option<String> = values.given("expression");
    let server: Option<String> = values.given("server");
    let sources = [&module, &expression, &server].iter().filter(|source| source.is_some()).count();
    if sources != 1 {
        let found = "a plugin is a module, an expression, or from a code server";
        decoder.report(&entry.mark, &key, Fault::new(found, "give one of the three"));
        return None;
    }
    let remote = match server {
        None => None,
        Some(server) => Some(remote(decoder, entry, &values, server)?),
    };
    if remote.is_some() {
        module = Some(cached(&entry.key));
    }
    let (name, fail) = (Some(entry.key.clone()), Some(values.get("fail")));
    let setting = Setting { name, module, expression, config: values.get("config"), fail };
    Some((setting, remote))
}

/// Where a module from a code server is kept, in the folder of a router's sockets.
pub fn cached(plugin: &str) -> String {
    format!("modules/{plugin}.wasm")
}

fn remote(
    decoder: &mut Decoder<'_>,
    entry: &Entry,
    values: &Values,
    server: String,
) -> Option<Remote> {
    let key = join("plugins", &entry.key);
    let mut wrong = |at: &str, found: String, right: &str| {
        let mark = if at.is_empty() { entry.mark.clone() } else { place(&entry.item, at) };
        let key = if at.is_empty() { key.clone() } else { join(&key, at) };
        decoder.report(&mark, &key, Fault::new(found, right));
        None
    };
    if !server.starts_with("http://") && !server.starts_with("https://") {
        return wrong("server", format!("found {server:?}"), "write http://HOST:PORT");
    }
    // The name of its file.
    if !is_name(&entry.key) {
        let found = format!("{:?} from a code server", entry.key);
        return wrong("", found, "call it by lower-case letters, digits and `-`");
    }
    let name = values.given::<String>("name").unwrap_or_else(|| entry.key.clone());
    if !is_name(&name) {
        return wrong(
            "name",
            format!("found {name:?}"),
            "write lower-case letters, digits and `-`",
        );
    }
    let version: Option<String> = values.given("version");
    if version.as_deref().is_some_and(|text| Version::parse(text).is_none()) {
        let found = format!("found {:?}", version.unwrap_or_default());
        return wrong("version", found, "write a version: 1.2.0");
    }
    let Some(keys) = values.given::<String>("keys") else {
        let found = "nobody's signature is trusted".to_owned();
        return wrong("", found, "add keys = \"FOLDER\", where the owners' public keys are");
    };
    Some(Remote { server, name, version, keys })
}

#[cfg(test)]
mod tests;
