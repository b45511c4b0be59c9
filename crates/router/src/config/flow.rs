//! `[flows.NAME]`, `[nodes.NAME]`, `[[policies]]`: what individual flows are guaranteed, and routes besides the
//! routing table.

use super::filter::{MATCH_EXAMPLE, general_match, port};
use super::{Port, listed, parsed, place, prefix, texts, unknown, unknown_plugin};
use crate::mpls;
use lastmeter_base::kind::{Param, ParamKind};
use lastmeter_base::{Bytes, Duration, Rate};
use lastmeter_lab::document::{Decoder, Entry, Fault, Item, Shape, join};
use lastmeter_lan::labels::rsvp::machine::Tunnel;
use lastmeter_net::classify;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// Limit on flows.
pub const FLOWS_MAX: usize = 1024;
/// Limit on policies: they are tried one after another.
pub const POLICIES_MAX: usize = 64;
/// Limit on tables besides the main one.
pub const TABLES_MAX: usize = 16;
/// Limit on the nodes of a route.
pub const ROUTE_MAX: usize = 16;

/// A flow with a treatment of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Its packets.
    pub packets: classify::Filter,
    /// The port where they arrive; where the route to their source leads, if absent.
    pub from: Option<u16>,
    /// The share of the lines that it reserves, framing counted in.
    pub rate: Option<Rate>,
    /// What its source may send at once.
    pub burst: Bytes,
    /// Limit on its packets that wait.
    pub queue: u64,
    /// The next router, whatever the routing table says.
    pub via: Option<IpAddr>,
    /// Nodes that it visits, in order.
    pub route: Vec<String>,
    /// Whether it keeps the next router that the routing table has when it is set up.
    pub pinned: bool,
    /// Plugins that its packets pass, in order.
    pub functions: Vec<String>,
    /// How long it stays without being refreshed; for ever, if absent.
    pub ttl: Option<Duration>,
    /// Whether the control processor gets copies of its packets.
    pub copy: bool,
    /// Its packets arrive with this label, instead of matching.
    pub label: Option<u32>,
    /// They leave with this label; [`mpls::NONE`]: without one.
    pub next_label: Option<u32>,
    /// Where its tunnel ends, if RSVP sets one up.
    pub rsvp: Option<Ipv4Addr>,
}

impl Flow {
    /// Its tunnel, if RSVP sets one up.
    pub fn tunnel(&self, nodes: &BTreeMap<String, Node>) -> Option<Tunnel> {
        let address = |node: &String| match nodes.get(node)?.address {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        };
        Some(Tunnel {
            flow: self.name.clone(),
            end: self.rsvp?,
            route: self.route.iter().filter_map(address).collect(),
            rate: self.rate?,
            burst: self.burst,
        })
    }
}

/// Another router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its address on a network of ours.
    pub address: IpAddr,
    /// The control socket where it takes reservations.
    pub control: Option<String>,
}

/// A route that depends on more than the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// First bits of the source.
    pub from: Option<(IpAddr, u8)>,
    /// The port where the packets arrive.
    pub port: Option<u16>,
    /// Their DSCP.
    pub dscp: Option<u8>,
    /// What applies.
    pub to: PolicyTo,
}

/// What a policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyTo {
    /// This next router.
    Via(IpAddr),
    /// This table, by its place among their names; the main one where it has no route.
    Table(usize),
}

const FLOW: &[Param] = &[
    Param::optional("match", ParamKind::Text, "its label")
        .is("source, destination, ports and protocol as ClassBench writes them"),
    Param::optional("label", ParamKind::Integer { min: 16, max: 0xf_ffff }, "what matches")
        .is("the label with which its packets arrive at `from`"),
    Param::optional("next-label", ParamKind::Integer { min: 3, max: 0xf_ffff }, "none")
        .is("the label with which they leave to `via`; 3 is none"),
    Param::optional("rsvp", ParamKind::Text, "no tunnel")
        .is("a router where its tunnel ends: those up to there reserve, too, and tell labels"),
    Param::optional("from", ParamKind::Text, "the port towards its source")
        .is("the port where its packets arrive"),
    Param::optional("rate", ParamKind::Rate, "nothing is reserved")
        .is("what it reserves of the lines, framing counted in"),
    Param::or("burst", ParamKind::Size { min: 1, max: 1 << 20 }, "15 kB")
        .is("what its source may send at once, framing counted in"),
    Param::or("queue", ParamKind::Integer { min: 1, max: 1 << 16 }, "256")
        .is("packets of it that may wait"),
    Param::optional("via", ParamKind::Text, "the routing table says").is("the next router"),
    Param::or("pin", ParamKind::Flag, "false")
        .is("whether it keeps the next router that the routing table has when it is set up"),
    Param::optional("ttl", ParamKind::Time, "for ever")
        .is("how long it stays without being refreshed"),
    Param::or("copy", ParamKind::Flag, "false")
        .is("whether the control processor gets copies of its packets"),
];

const NODE: &[Param] = &[
    Param::required("address", ParamKind::Text).is("its address on a network of this router"),
    Param::optional("control", ParamKind::Text, "it is not asked")
        .is("the control socket of the Lastmeter router there, which is asked to reserve, too"),
];

const POLICY: &[Param] = &[
    Param::optional("from", ParamKind::Text, "any").is("first bits of the source: 10.1.0.0/16"),
    Param::optional("port", ParamKind::Text, "any").is("the port where the packets arrive"),
    Param::optional("dscp", ParamKind::Integer { min: 0, max: 63 }, "any").is("their DSCP"),
    Param::optional("via", ParamKind::Text, "a table").is("the next router"),
    Param::optional("table", ParamKind::Text, "via").is("the table that is looked at first"),
];

/// The names that flows may use.
pub(super) struct Names<'a> {
    pub(super) ports: &'a [String],
    pub(super) plugins: &'a BTreeSet<String>,
    pub(super) nodes: &'a BTreeMap<String, Node>,
}

pub(super) fn flow(decoder: &mut Decoder<'_>, entry: &Entry, names: &Names<'_>) -> Option<Flow> {
    let (key, item) = (join("flows", &entry.key), &entry.item);
    let besides = ["route", "functions"];
    let shape = Shape { what: "a flow", params: FLOW, kind: None, besides: &besides };
    let (_, values) = decoder.table(&shape, item, &key);
    let label = values.given::<u64>("label").map(|label| label as u32);
    let packets = match (values.given::<String>("match"), label) {
        (Some(text), None) => general_match(decoder, item, &join(&key, "match"), &text)?,
        (None, Some(_)) => classify::Filter::all(),
        (Some(_), Some(_)) => {
            let fault = Fault::new("it has both `match` and `label`", "give one of the two");
            decoder.report(&place(item, "label"), &join(&key, "label"), fault);
            return None;
        }
        (None, None) => {
            let fault = Fault::new("it lacks `match`", MATCH_EXAMPLE);
            decoder.report(&entry.mark, &key, fault);
            return None;
        }
    };
    let rsvp = match values.given::<String>("rsvp") {
        None => None,
        Some(text) => Some(parsed(decoder, item, "rsvp", &text, "an address: 10.3.0.1")?),
    };
    let from = match values.given::<String>("from") {
        None => None,
        Some(name) => Some(port(decoder, item, &join(&key, "from"), &name, names.ports)?),
    };
    let via = match values.given::<String>("via") {
        None => None,
        Some(text) => Some(parsed(decoder, item, "via", &text, "an address: 10.2.0.9")?),
    };
    let mut route = Vec::new();
    for (name, mark) in texts(decoder, item, &key, "route") {
        if !names.nodes.contains_key(&name) {
            let known: Vec<&str> = names.nodes.keys().map(String::as_str).collect();
            unknown(decoder, &mark, &join(&key, "route"), ("node", &name), &known);
        }
        route.push(name);
    }
    if via.is_some() && !route.is_empty() {
        let fault = Fault::new("a flow has either `via` or `route`", "give one of the two");
        decoder.report(&place(item, "route"), &join(&key, "route"), fault);
    }
    if route.len() > ROUTE_MAX {
        let right = format!("a route visits at most {ROUTE_MAX}");
        let fault = Fault::new(format!("{} nodes", route.len()), right);
        decoder.report(&place(item, "route"), &join(&key, "route"), fault);
    }
    let mut functions = Vec::new();
    for (name, mark) in texts(decoder, item, &key, "functions") {
        if !names.plugins.contains(&name) {
            unknown_plugin(decoder, &mark, &join(&key, "functions"), &name, names.plugins);
        }
        functions.push(name);
    }
    Some(Flow {
        name: entry.key.clone(),
        packets,
        from,
        rate: values.given("rate"),
        burst: values.get("burst"),
        queue: values.get("queue"),
        via,
        route,
        pinned: values.get("pin"),
        functions,
        ttl: values.given("ttl"),
        copy: values.get("copy"),
        label,
        next_label: values.given::<u64>("next-label").map(|label| label as u32),
        rsvp,
    })
}

/// What labels of flows have to do with each other, and with the rest of them.
pub(super) fn labels(
    decoder: &mut Decoder<'_>,
    root: &Item,
    flows: &[Flow],
    ports: &[Port],
    nodes: &BTreeMap<String, Node>,
) {
    let mut owners: BTreeMap<u32, &str> = BTreeMap::new();
    for flow in flows {
        let at = |key: &str| {
            let own = root.get("flows").and_then(|flows| flows.get(&flow.name));
            own.map_or(root.mark.clone(), |own| place(own, key))
        };
        let mut wrong = |key: &str, found: String, right: &str| {
            let name = join(&join("flows", &flow.name), key);
            decoder.report(&at(key), &name, Fault::new(found, right));
        };
        if let Some(label) = flow.label {
            if let Some(other) = owners.insert(label, &flow.name) {
                wrong("label", format!("it is the label of `{other}`, too"), "give another");
            }
            match flow.from.map(|from| &ports[usize::from(from)]) {
                None => {
                    let right = "say where it arrives: from = \"PORT\"";
                    wrong("label", "a label has a meaning at one port".to_owned(), right);
                }
                Some(port) if !port.labels => {
                    let found = format!("port `{}` takes no labels", port.name);
                    wrong("from", found, &format!("add labels = true to [ports.{}]", port.name));
                }
                Some(_) => {}
            }
            if !flow.route.is_empty() || !flow.functions.is_empty() || flow.copy || flow.pinned {
                let found = "a flow with a label has no route, functions, copies, nor `pin`";
                wrong("label", found.to_owned(), "give `via` alone");
            }
        }
        if let Some(label) = flow.next_label {
            if !mpls::may_be_told(label) {
                wrong("next-label", format!("{label} is no label"), "give 3, or 16 to 1048575");
            }
            if flow.via.is_none() {
                let found = "nobody knows the label".to_owned();
                wrong("next-label", found, "give `via`, the router that told it");
            }
        }
        if flow.rsvp.is_some() {
            if ports.iter().all(|port| !port.labels) {
                let right = "add labels = true to those towards other routers";
                wrong("rsvp", "no port takes labels".to_owned(), right);
            }
            let v6 = |name: &&String| nodes.get(*name).is_some_and(|node| node.address.is_ipv6());
            if let Some(name) = flow.route.iter().find(v6) {
                let found = format!("node `{name}` has an address of IPv6");
                wrong("route", found, "give one of IPv4: tunnels have no others");
            }
            if flow.rate.is_none() {
                wrong("rsvp", "RSVP reserves a rate".to_owned(), "give `rate`");
            }
            if flow.via.is_some() || flow.label.is_some() || flow.next_label.is_some() {
                let found = "RSVP finds the next router and its label".to_owned();
                wrong("rsvp", found, "give neither `via` nor labels; `route` says where it goes");
            }
        }
    }
}

pub(super) fn node(decoder: &mut Decoder<'_>, entry: &Entry) -> Option<Node> {
    let key = join("nodes", &entry.key);
    let shape = Shape { what: "a node", params: NODE, kind: None, besides: &[] };
    let (_, values) = decoder.table(&shape, &entry.item, &key);
    let text: String = values.given("address")?;
    let right = "an address: 10.2.0.9";
    let address = parsed(decoder, &entry.item, "address", &text, right)?;
    Some(Node { address, control: values.given("control") })
}

pub(super) fn policy(
    decoder: &mut Decoder<'_>,
    item: &Item,
    ports: &[String],
    tables: &BTreeSet<String>,
) -> Option<Policy> {
    let shape = Shape { what: "a policy", params: POLICY, kind: None, besides: &[] };
    let (_, values) = decoder.table(&shape, item, "policies");
    let from = match values.given::<String>("from") {
        None => None,
        Some(text) => {
            let found = prefix(&text);
            if found.is_none() {
                let fault = Fault::new(format!("found {text:?}"), "write a prefix: 10.1.0.0/16");
                decoder.report(&place(item, "from"), "policies.from", fault);
            }
            Some(found?)
        }
    };
    let arrives = match values.given::<String>("port") {
        None => None,
        Some(name) => Some(port(decoder, item, "policies.port", &name, ports)?),
    };
    let to = match (values.given::<String>("via"), values.given::<String>("table")) {
        (Some(text), None) => {
            PolicyTo::Via(parsed(decoder, item, "via", &text, "an address: 10.2.0.9")?)
        }
        (None, Some(name)) => match tables.iter().position(|table| *table == name) {
            Some(at) => PolicyTo::Table(at),
            None => {
                let (mark, known) = (place(item, "table"), listed(tables));
                unknown(decoder, &mark, "policies.table", ("table", &name), &known);
                return None;
            }
        },
        _ => {
            let fault = Fault::new("a policy has either `via` or `table`", "give one of the two");
            decoder.report(&item.mark, "policies", fault);
            return None;
        }
    };
    let dscp = values.given::<u64>("dscp").map(|dscp| dscp as u8);
    Some(Policy { from, port: arrives, dscp, to })
}
