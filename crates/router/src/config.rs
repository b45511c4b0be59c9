//! `router.toml`: a router's ports, routes, filters, plugins.
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

use crate::port_processor::output::FRAMING;
use lastmeter_base::kind::{Family, Nested, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Rate};
use lastmeter_lab::document::{
    Content, Decoder, Document, Entry, Fault, Item, Mark, Problem, Shape, join,
};
use lastmeter_lab::experiment::elements;
use lastmeter_lab::library::Library;
use lastmeter_live::dataplane::program::PORTS_MAX;
use lastmeter_plugin::setting::Setting;
use lastmeter_wire::netlink::masked;
use std::collections::BTreeMap;
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
    /// Whether the kernel's routes are followed.
    pub kernel_routes: bool,
    /// Whether known flows are forwarded by a program in the driver.
    pub fast: bool,
    /// Limit on frames in queues, beyond those in the ports' rings.
    pub frames: usize,
    /// The core of the port processor; any if absent.
    pub core: Option<usize>,
    /// Filters in order; the first that matches decides.
    pub filters: Vec<Filter>,
    /// A file of filters as ClassBench writes them; they permit what they match.
    pub rules: Option<String>,
    /// Plugins by name.
    pub plugins: BTreeMap<String, Setting>,
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
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination's first bits.
    pub prefix: IpAddr,
    /// How many.
    pub len: u8,
    /// The next router; packets are dropped if absent.
    pub via: Option<IpAddr>,
}

/// A filter.
#[derive(Clone, Debug)]
pub struct Filter {
    /// What it matches, as a line of ClassBench's format.
    pub filter: lastmeter_net::classify::Filter,
    /// What happens.
    pub action: Action,
}

/// What a filter does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drops.
    Deny,
    /// Forwards.
    Permit,
    /// Sends through a plugin.
    Plugin(String),
}

const ROUTER: &[Param] = &[
    Param::optional("fpm", ParamKind::Text, "none")
        .is("address and port on which FRR's `dplane_fpm_nl` finds the router: 127.0.0.1:2620"),
    Param::or("kernel-routes", ParamKind::Flag, "false")
        .is("whether routes in the kernel's main table are followed, too"),
    Param::optional("table", ParamKind::Text, "none")
        .is("a file of routes, each on a line: prefix and next hop"),
    Param::optional("rules", ParamKind::Text, "none")
        .is("a file of filters in ClassBench's format, which permit what they match"),
    Param::or("fast", ParamKind::Flag, "false")
        .is("whether known flows are forwarded in the driver, past the port processor"),
    Param::or("frames", ParamKind::Integer { min: 1024, max: 1 << 20 }, "8192")
        .is("frames that may wait in queues, all ports together"),
    Param::optional("core", ParamKind::Integer { min: 0, max: 4095 }, "any")
        .is("the core on which the port processor runs"),
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
];

const ROUTE: &[Param] = &[
    Param::required("prefix", ParamKind::Text).is("addresses that it is for: 192.0.2.0/24"),
    Param::optional("via", ParamKind::Text, "packets are dropped").is("the next router's address"),
];

const FILTER: &[Param] = &[
    Param::required("match", ParamKind::Text)
        .is("source, destination, ports and protocol as ClassBench writes them"),
    Param::or("action", ParamKind::Choice(&["deny", "permit"]), "permit").is("what happens"),
    Param::optional("plugin", ParamKind::Text, "none").is("a plugin that decides instead"),
];

const PLUGIN: &[Param] = &[
    Param::optional("module", ParamKind::Text, "an expression").is("the file of its module"),
    Param::optional("expression", ParamKind::Text, "a module").is("a policy of a few words"),
    Param::or("config", ParamKind::Text, "").is("what it is initialised with"),
    Param::or("fail", ParamKind::Choice(&["open", "closed", "reload"]), "reload")
        .is("what becomes of packets when it fails"),
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
    /// The number of a port.
    pub fn port(&self, name: &str) -> Option<u16> {
        self.ports.iter().position(|port| port.name == name).map(|at| at as u16)
    }
}

fn decode(decoder: &mut Decoder<'_>, root: &Item) -> Config {
    let besides = ["ports", "routes", "filters", "plugins"];
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
    let plugins: BTreeMap<String, Setting> = named(decoder, root, "plugins")
        .into_iter()
        .filter_map(|entry| plugin(decoder, entry).map(|made| (entry.key.clone(), made)))
        .collect();
    if plugins.len() > PLUGINS_MAX {
        let found = format!("{} plugins", plugins.len());
        let fault = Fault::new(found, format!("a router has at most {PLUGINS_MAX}"));
        decoder.report(&place(root, "plugins"), "plugins", fault);
    }
    let mut ports: Vec<Port> = named(decoder, root, "ports")
        .into_iter()
        .filter_map(|entry| port(decoder, entry, &plugins))
        .collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    if ports.is_empty() || ports.len() > PORTS_MAX as usize {
        let found = format!("a router has 1 to {PORTS_MAX} ports, and this has {}", ports.len());
        decoder.report(&root.mark, "ports", Fault::new(found, PORT_EXAMPLE));
    }
    let routes = elements(decoder, root, "routes").into_iter();
    let routes = routes.filter_map(|item| route(decoder, item)).collect();
    let filters = elements(decoder, root, "filters").into_iter();
    let filters = filters.filter_map(|item| filter(decoder, item, &plugins)).collect();
    Config {
        ports,
        routes,
        table: values.given("table"),
        fpm,
        kernel_routes: values.given("kernel-routes").unwrap_or(false),
        fast: values.given("fast").unwrap_or(false),
        frames: values.given::<u64>("frames").unwrap_or(8192) as usize,
        core: values.given::<u64>("core").map(|core| core as usize),
        filters,
        rules: values.given("rules"),
        plugins,
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

fn port(
    decoder: &mut Decoder<'_>,
    entry: &Entry,
    plugins: &BTreeMap<String, Setting>,
) -> Option<Port> {
    let key = join("ports", &entry.key);
    let shape = Shape { what: "a port", params: PORT, kind: None, besides: &["plugins"] };
    let (_, values) = decoder.table(&shape, &entry.item, &key);
    let mut passes = Vec::new();
    if let Some(item) = entry.item.get("plugins") {
        for part in item.items() {
            match &part.content {
                Content::Text(name) if plugins.contains_key(name) => passes.push(name.clone()),
                Content::Text(name) => unknown_plugin(decoder, &part.mark, &key, name, plugins),
                _ => {
                    let fault = Fault::new("not a name", "write plugins = [\"NAME\"]");
                    decoder.report(&part.mark, &join(&key, "plugins"), fault);
                }
            }
        }
    }
    Some(Port {
        name: entry.key.clone(),
        interface: values.given("interface")?,
        rate: rate(&values),
        framing: values.given("framing").unwrap_or(FRAMING),
        queue: values.given("queue"),
        flows: values.given::<u64>("flows").unwrap_or(1024) as u32,
        plugins: passes,
    })
}

fn rate(values: &Values) -> Option<Rate> {
    values.given("rate")
}

fn unknown_plugin(
    decoder: &mut Decoder<'_>,
    mark: &Mark,
    key: &str,
    name: &str,
    plugins: &BTreeMap<String, Setting>,
) {
    let known: Vec<&str> = plugins.keys().map(String::as_str).collect();
    let right = match known.is_empty() {
        true => format!("add [plugins.{name}]"),
        false => format!("the plugins are {}", known.join(", ")),
    };
    let fault = Fault::unknown(format!("there is no plugin `{name}`"), right, name, known);
    decoder.report(mark, key, fault);
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
    Some(Route { prefix, len, via })
}

fn filter(
    decoder: &mut Decoder<'_>,
    item: &Item,
    plugins: &BTreeMap<String, Setting>,
) -> Option<Filter> {
    let shape = Shape { what: "a filter", params: FILTER, kind: None, besides: &[] };
    let (_, values) = decoder.table(&shape, item, "filters");
    let text: String = values.given("match")?;
    let filter = match lastmeter_net::classify::text::parse(&text) {
        Ok(found) if found.len() == 1 => found.into_iter().next()?,
        Ok(_) => {
            let fault = Fault::new("not one filter", FILTER_EXAMPLE);
            decoder.report(&place(item, "match"), "filters.match", fault);
            return None;
        }
        Err(error) => {
            let fault = Fault::new(error.reason, FILTER_EXAMPLE);
            decoder.report(&place(item, "match"), "filters.match", fault);
            return None;
        }
    };
    let action = match values.given::<String>("plugin") {
        Some(name) if plugins.contains_key(&name) => Action::Plugin(name),
        Some(name) => {
            unknown_plugin(decoder, &place(item, "plugin"), "filters.plugin", &name, plugins);
            return None;
        }
        None if values.get::<String>("action") == "deny" => Action::Deny,
        None => Action::Permit,
    };
    Some(Filter { filter, action })
}

const FILTER_EXAMPLE: &str = "write match = \"@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\": \
     source, destination, source ports, destination ports, protocol";

fn plugin(decoder: &mut Decoder<'_>, entry: &Entry) -> Option<Setting> {
    let key = join("plugins", &entry.key);
    let shape = Shape { what: "a plugin", params: PLUGIN, kind: None, besides: &[] };
    let (_, values) = decoder.table(&shape, &entry.item, &key);
    let module: Option<String> = values.given("module");
    let expression: Option<String> = values.given("expression");
    if module.is_some() == expression.is_some() {
        let fault = Fault::new("a plugin is a module or an expression", "give one of the two");
        decoder.report(&entry.mark, &key, fault);
        return None;
    }
    let (name, fail) = (Some(entry.key.clone()), Some(values.get("fail")));
    Some(Setting { name, module, expression, config: values.get("config"), fail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_lab::library::Builtin;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse("router.toml", text.as_bytes(), &Builtin).map_err(|problems| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })
    }

    const TWO: &str = "[ports.west]\ninterface = 'eth0'\n[ports.east]\ninterface = 'eth1'\n";

    #[test]
    fn ports_are_in_the_order_of_their_names() {
        let config = parse(TWO).expect("a router");
        assert_eq!((config.port("east"), config.port("west")), (Some(0), Some(1)));
        assert_eq!(config.ports[1].interface, "eth0");
        assert_eq!(config.ports[0].flows, 1024);
    }

    #[test]
    fn each_mistake_is_told_at_its_line() {
        let wrong = |text: &str| parse(&format!("{TWO}{text}")).expect_err("a mistake");
        let told = wrong("rat = '1 Gbit/s'");
        assert!(told.contains("router.toml:5:1") && told.contains("did you mean `rate`"), "{told}");
        let told = wrong("[[routes]]\nprefix = '192.0.2.0/33'");
        assert!(told.contains("router.toml:6:10: routes.prefix"), "{told}");
        let told = wrong("plugins = ['dscq']\n[plugins.dscp]\nmodule = 'dscp.wasm'");
        assert!(told.contains("did you mean `dscp`"), "{told}");
        let told = wrong("[[filters]]\nmatch = 'all'");
        assert!(told.contains("filters.match") && told.contains("source ports"), "{told}");
        let open = parse(&format!("fpm = '0.0.0.0:2620'\n{TWO}")).expect_err("open to all");
        assert!(open.contains("no authentication") && open.contains("1:7"), "{open}");
        let told = wrong("[plugins.x]\nconfig = 'a'");
        assert!(told.contains("a module or an expression"), "{told}");
        assert!(parse("").expect_err("no ports").contains("has 0"));
        assert!(wrong("queue = { qsdr = {} }").contains("qsdrr"));
    }

    #[test]
    fn prefixes_lose_the_bits_beyond_their_length() {
        assert_eq!(prefix("192.0.2.9/24"), Some(("192.0.2.0".parse().expect("an address"), 24)));
        assert_eq!(prefix("2001:db8::1/129"), None);
    }
}
