//! The router of a model as a node that experiments can name: its page, and its place in a network.

use super::admission::Admission;
use super::element::{Asks, LabelRouter, Options, Windows};
use super::ground::{Here, LINKS_MAX, NODES_MAX, OWN, Peer, router};
use super::line::Line;
use super::rsvp::machine::Tunnel;
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{NodeId, Rate};
use lastmeter_engine::Error;
use lastmeter_engine::site::{NodeKind, Ports, Site, Speaks, own};
use lastmeter_net::queue;
use std::collections::BTreeMap;

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "label-router",
    family: Family::Node,
    what: "Reserves its links hop by hop (RSVP), and forwards what is reserved by labels (MPLS).",
    ports: "host         --> [ label pushed ]  --> label-router
label-router --> [ label swapped ] --> label-router
label-router --> [ label popped ]  --> host",
    params: &[
        Param::optional("to", ParamKind::Node, "no tunnel begins here")
            .is("host for whose packets it asks for a tunnel, to the last label-router before it"),
        Param::optional("rate", ParamKind::Rate, "none; `to` needs one")
            .is("what the tunnel reserves of each link, framing included"),
        Param::or("burst", ParamKind::BUFFER, "3000 B").is("what may come at once, as it is told"),
        Param::optional("class", ParamKind::Integer { min: 0, max: 255 }, "all")
            .is("class of the packets that go by the tunnel"),
        Param::optional("via", ParamKind::Nodes(1), "the routes")
            .is("label-routers that the tunnel visits, in order"),
        Param::optional("asked", ParamKind::Windows, "always").is("when the tunnel is asked for"),
        Param::optional("down", ParamKind::Windows, "never")
            .is("when it is without power: it forgets all, says nothing, and loses what comes"),
        Param::or("refresh", ParamKind::Time, "30 s")
            .is("mean time between refreshes, from 50 ms to 600 s; RFC 2205 has 30 s"),
        Param::or("reservable", ParamKind::Number { min: 0.0, max: 1.0 }, "0.8")
            .is("share of each link that may be reserved"),
        Param::or("waiting", ParamKind::COUNT, "100")
            .is("limit on the packets of a flow with a reservation that wait for a link"),
        Param::or("queue", ParamKind::Nested(Family::Queue), "{ drop-tail = { packets = 1000 } }")
            .is("where packets without a reservation wait for a link"),
    ],
    source: "RFC 2205, RFC 2210, RFC 3209, RFC 3031, RFC 3032; Decasper et al., the router of \
             Washington University, which names RSVP and MPLS among its protocols",
    deviations: &[
        "One tunnel may begin at each router; its label has hops of its own.",
        "The link behind a tunnel's end is not part of it.",
        "Links without a rate have nothing to reserve.",
        "A message or a packet takes no time but that of the links.",
        "Labels and the messages' headers count, what tells them apart does not.",
    ],
    counters: &[
        ("forwarded", "packets sent on by their destination"),
        ("pushed", "packets that got a label"),
        ("swapped", "packets sent on by their label"),
        ("popped", "packets whose label ended"),
        ("within", "packets sent within a reserved rate"),
        ("beyond", "packets sent beyond it, as nothing else waited"),
        ("waited", "longest wait of a packet with a reservation, in nanoseconds"),
        ("sent", "messages sent"),
        ("heard", "messages received"),
        ("wrong", "messages that RSVP does not allow, or of unknown paths"),
        ("expired", "paths and reservations that were not refreshed"),
        ("refused", "reservations for which a link had not the rate"),
        ("ups", "how often the tunnel that begins here came up"),
        ("denied", "how often it heard why that tunnel cannot be, or ends"),
        ("paths", "paths at the end"),
        ("reserved", "reservations at the end"),
    ],
    drops: &[
        ("label", "packets with a label that is not known at their link"),
        ("hops", "packets whose label had passed too many routers"),
        ("malformed", "packets for this router that are no messages and have no label"),
        ("no route", "packets to a destination that no link leads to"),
        ("full", "packets that found their queue full"),
        ("down", "packets that it lost without power"),
    ],
    example: r#"
duration = "200 ms"
[nodes]
alice = { host = {} }
west = { label-router = { to = "bob", rate = "4 Mbit/s", refresh = "50 ms" } }
middle = { label-router = { refresh = "50 ms" } }
east = { label-router = { refresh = "50 ms" } }
bob = { host = {} }
[[links]]
between = ["alice", "west", "middle", "east", "bob"]
rate = "10 Mbit/s"
delay = "1 ms"
[[traffic]]
name = "film"
from = "alice"
to = "bob"
constant = { rate = "3 Mbit/s", size = "1000 B" }
"#,
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind { build, own: &Speaks });

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let links = site.neighbours.len();
    if links > LINKS_MAX {
        return Err(format!("it has {links} links, at most {LINKS_MAX} have addresses").into());
    }
    if site.network.len() > NODES_MAX as usize {
        return Err(format!("of a network, at most {NODES_MAX} nodes have addresses").into());
    }
    let asks = asks(values, site)?;
    let leads_to = site.leads_to();
    let peers = (0..links).map(|link| peer(site, link).filter(|_| leads_to.contains(&link)));
    let peers = peers.collect();
    let routes: BTreeMap<NodeId, u16> =
        site.routes.iter().map(|&(to, link)| (to, link as u16)).collect();
    let (mut lines, mut accounts) = (Vec::new(), Vec::new());
    for link in 0..links {
        let (to, group) = (site.neighbours[link].name, site.neighbours[link].group);
        let rate = site.network.rate(site.node, link);
        // As the link will be built: a what-if changes both.
        let rate = rate.map(|rate| site.names.rate(&format!("{}->{to}", site.name), rate));
        let is_free = site.names.is_free(&format!("{}->{group} transmit", site.group));
        let framing = site.network.framing(site.node, link);
        let rest = queue::build(&values.get("queue"), &queue::Site::of(site));
        lines.push(Line::new(rate.filter(|_| !is_free), framing, rest));
        accounts.push((to, rate));
    }
    let share: f64 = values.get("reservable");
    let admission = Admission::new(accounts.iter().map(|&(to, rate)| (to, rate, share)));
    let sorted = |name| {
        let mut windows: Windows = values.given(name).unwrap_or_default();
        windows.sort_unstable();
        windows
    };
    let random = site.stream(" rsvp");
    let path = site.graph.path(site.name, "rsvp");
    let stage = site.stage("queue", None).id;
    let element = site.add(LabelRouter::new(Options {
        asks,
        asked: values.has("asked").then(|| sorted("asked")),
        down: sorted("down"),
        refresh: values.get("refresh"),
        waiting: values.get("waiting"),
        here: Here::new(site.node, peers, routes, admission),
        lines,
        random,
        path,
        stage,
    }))?;
    Ok(Ports::each(element, 0..links))
}

/// The tunnel that is to begin at a site.
fn asks(values: &Values, site: &Site<'_>) -> Result<Option<Asks>, String> {
    let Some(name) = values.given::<String>("to") else { return Ok(None) };
    let rate: Rate = values.given("rate").ok_or("it has `to`, and no `rate` to reserve")?;
    let [to] = site.nodes(std::slice::from_ref(&name))?[..] else { return Ok(None) };
    if !site.routes.iter().any(|&(known, _)| known == to) {
        return Err(format!("no traffic leaves it towards `{name}`"));
    }
    let speaks = |node: NodeId| own::<Speaks>(site.network.kind(node)).is_some();
    let way = site.network.way(site.node, to);
    let end = way.into_iter().skip(1).rev().find(|&node| speaks(node));
    let end = end.ok_or_else(|| format!("no other label-router is on the way to `{name}`"))?;
    let via = site.nodes(&values.given::<Vec<String>>("via").unwrap_or_default())?;
    if let Some(&other) = via.iter().find(|&&node| !speaks(node)) {
        return Err(format!("`{}` in `via` is no label-router", site.network.name(other)));
    }
    let tunnel = Tunnel {
        flow: OWN.to_owned(),
        end: router(end),
        route: via.into_iter().map(router).collect(),
        rate,
        burst: values.get("burst"),
    };
    let class = values.given::<u64>("class").map(|class| class as u8);
    Ok(Some(Asks { tunnel, to, class }))
}

/// The label-router at the other end of a link. Nodes between them that have no other links are part of it.
fn peer(site: &Site<'_>, link: usize) -> Option<Peer> {
    let (mut before, mut node) = (site.node, site.neighbours[link].node);
    for _ in 0..site.network.len() {
        let kind = site.network.kind(node);
        kind.made_by::<NodeKind>().filter(|_| node != site.node)?;
        let around = site.network.neighbours(node);
        if own::<Speaks>(kind).is_some() {
            // Of several links between two routers, each has the same place among them at both ends.
            let is_first = before == site.node;
            let same = site.neighbours[..link].iter().filter(|other| other.node == node);
            let nth = if is_first { same.count() } else { 0 };
            let mut there = (0u16..).zip(&around).filter(|(_, other)| other.node == before);
            return there.nth(nth).map(|(link, _)| Peer { node, link });
        }
        let [one, other] = around.as_slice() else { return None };
        let next = if one.node == before { other.node } else { one.node };
        (before, node) = (node, next);
    }
    None
}
