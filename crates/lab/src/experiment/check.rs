//! Checks that parameters alone cannot make: that names exist, that counts match, that packets can arrive.

use super::live;
use super::{
    End, Experiment, FLOWS_MAX, Item, LINKS_MAX, LIVE_MAX, NODES_MAX, Network, Node, Traffic,
};

use crate::document::{Decoder, Fault, Mark, join, shorten};
use lastmeter_base::Duration;
use lastmeter_base::kind::{Nested, Values};
use lastmeter_engine::site::HostKind;
use std::collections::{BTreeMap, BTreeSet};

const NAME_LEN_MAX: usize = 64;

/// A node's name must be one that links and overrides can refer to.
pub(super) fn node_name(decoder: &mut Decoder<'_>, mark: &Mark, key: &str, name: &str) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(allowed) {
        let found = format!("`{}` cannot be the name of a node", shorten(name));
        let right = "use letters, digits, `-` and `_`, at most 64 of them";
        decoder.report(mark, key, Fault::new(found, right));
    }
}

/// A live host's address must be valid, and only a live host may have one.
pub(super) fn live_host(
    decoder: &mut Decoder<'_>,
    kind: &Nested,
    item: &Item,
    key: &str,
    count: Option<u64>,
) {
    let Some(host) = item.get(kind.page.name).filter(|_| kind.made_by::<HostKind>().is_some())
    else {
        return;
    };
    let (Some(text), Some(place)) = (live::address(&kind.values), host.get("address")) else {
        return;
    };
    let fault = match live::parse(&text) {
        Err(right) => Fault::new(format!("`{}` is not an address", shorten(&text)), right),
        Ok(_) if kind.values.given("live") != Some(true) => {
            let found = "a host that is not live cannot have an address".to_owned();
            Fault::new(found, "add live = true, or leave it out")
        }
        Ok(_) if count.is_some_and(|count| count > 1) => {
            let found = "several hosts cannot share an address".to_owned();
            Fault::new(found, "leave it out: each gets its own")
        }
        Ok(_) => return,
    };
    decoder.report(&place.mark, &join(&join(key, kind.page.name), "address"), fault);
}

/// A class must fit in the tables of a ledger.
pub(super) fn class(decoder: &mut Decoder<'_>, item: &Item, key: &str) {
    let (Some(name), Some(place)) = (item.text("name"), item.get("name")) else { return };
    let printable = !name.trim().is_empty() && !name.chars().any(char::is_control);
    if !printable || name.len() > NAME_LEN_MAX {
        let found = format!("`{}` cannot be the name of traffic", shorten(name));
        let right = "write a word or a few, at most 64 letters";
        decoder.report(&place.mark, &join(key, "name"), Fault::new(found, right));
    }
}

/// Finds a node by name, with or without a member's number.
pub(super) fn end(
    decoder: &mut Decoder<'_>,
    nodes: &[Node],
    mark: &Mark,
    key: &str,
    name: &str,
) -> Option<End> {
    // The file is refused anyway, and a search among many names takes long.
    if decoder.reporter.is_full() {
        return None;
    }
    // A name with a dot is invalid, which is reported where it is declared.
    let whole = nodes.iter().any(|node| node.name == name);
    let parts = name.split_once('.').filter(|_| !whole);
    let (group, member) = parts.map_or((name, None), |(g, m)| (g, Some(m)));
    let Some(node) = nodes.iter().position(|node| node.name == group) else {
        let known = nodes.iter().map(|node| node.name.as_str());
        const SHOWN_MAX: usize = 12;
        let mut right: Vec<&str> = known.clone().take(SHOWN_MAX).collect();
        if nodes.len() > SHOWN_MAX {
            right.push("...");
        }
        let right = match right.is_empty() {
            true => "declare it below [nodes]".to_owned(),
            false => format!("the nodes are {}; or declare it below [nodes]", right.join(", ")),
        };
        let found = format!("there is no node `{}`", shorten(name));
        decoder.report(mark, key, Fault::unknown(found, right, group, known));
        return None;
    };
    let end = |member| Some(End { name: name.to_owned(), node, member });
    let Some(member) = member else { return end(None) };
    let number: Option<u64> = member.parse().ok().filter(|n: &u64| n.to_string() == member);
    match (nodes[node].count, number) {
        (Some(count), Some(member)) if member < count => end(Some(member)),
        (count, _) => {
            let right = match count {
                Some(count) => format!("there are {group}.0 to {group}.{}", count - 1),
                None => {
                    format!("`{group}` is a single node: write \"{group}\", or give it a count")
                }
            };
            let found = format!("there is no node `{}`", shorten(name));
            decoder.report(mark, key, Fault::new(found, right));
            None
        }
    }
}

/// Finds a node that can send and receive.
pub(super) fn host_end(
    decoder: &mut Decoder<'_>,
    nodes: &[Node],
    mark: &Mark,
    key: &str,
    name: &str,
) -> Option<End> {
    let end = end(decoder, nodes, mark, key, name)?;
    if nodes[end.node].is_host() {
        return Some(end);
    }
    let kind = nodes[end.node].kind.page.name;
    let found = format!("`{name}` is a {kind}, which neither sends nor receives traffic");
    let right = "name a host, or make one and link it there";
    decoder.report(mark, key, Fault::new(found, right));
    None
}

/// Queueing needs a rate.
pub(super) fn wireless(decoder: &mut Decoder<'_>, values: &Values, item: &Item, key: &str) {
    if item.get("rate").is_some() || item.get("card").is_some() {
        return;
    }
    let queue = values.given::<Nested>("queue").is_some();
    let framing = values.given::<lastmeter_base::Bytes>("framing").is_some();
    for (name, given) in [("queue", queue), ("framing", framing)] {
        if let (true, Some(place)) = (given, item.get(name)) {
            let found = format!("a link without a rate cannot have a {name}");
            let right = "add rate = \"1 Gbit/s\", or leave this out";
            decoder.report(&place.mark, &join(key, name), Fault::new(found, right));
        }
    }
}

/// Traffic ends after it begins.
pub(super) fn span(decoder: &mut Decoder<'_>, values: &Values, item: &Item, key: &str) {
    let start = values.given::<Duration>("start").unwrap_or(Duration::ZERO);
    if let (Some(stop), Some(place)) = (values.given::<Duration>("stop"), item.get("stop"))
        && stop < start
    {
        let found = format!("it stops at {stop}, before it starts at {start}");
        let right = "both count from the start of the run";
        decoder.report(&place.mark, &join(key, "stop"), Fault::new(found, right));
    }
}

/// Checks the experiment as a whole, as far as its parts could be decoded.
pub(super) fn experiment(experiment: &mut Experiment, decoder: &mut Decoder<'_>, root: &Mark) {
    let sound = decoder.reporter.is_empty();
    if experiment.duration.is_zero() && sound {
        let fault = Fault::new("the duration is zero", "write duration = \"1 s\"");
        decoder.report(root, "duration", fault);
    }
    if experiment.warm_up >= experiment.duration && !experiment.duration.is_zero() {
        let found = format!("the warm-up takes {}, the whole run", experiment.warm_up);
        let fault = Fault::new(found, "make it shorter than the duration");
        decoder.report(root, "warm-up", fault);
    }
    let live = experiment.nodes.iter().filter(|node| node.kind.values.given("live") == Some(true));
    let live: u64 = live.map(|node| node.count.unwrap_or(1)).sum();
    if live > LIVE_MAX as u64 {
        let found = format!("there are {live} live hosts, counts included");
        let fault = Fault::new(found, format!("there may be {LIVE_MAX}"));
        decoder.report(root, "nodes", fault);
    }
    // Between live hosts, real programs send.
    if experiment.traffic.is_empty() && live < 2 && sound {
        let right = "add [[traffic]] with name, from, to and a kind, like \
                     constant = { rate = \"1 Mbit/s\", size = \"1500 B\" }";
        decoder.report(root, "traffic", Fault::new("nothing is sent", right));
    }
    names_once(experiment, decoder);
    if !sizes(experiment, decoder, root) {
        return;
    }
    counts(experiment, decoder);
    if decoder.reporter.is_empty() {
        let network = Network::new(experiment);
        joined_once(experiment, &network, decoder);
        reachable(experiment, &network, decoder);
        live_reachable(experiment, &network, decoder, root);
    }
}

/// Every live host must have a route to every other, and an address of its own.
fn live_reachable(
    experiment: &Experiment,
    network: &Network,
    decoder: &mut Decoder<'_>,
    root: &Mark,
) {
    let live = network.live(experiment);
    for &to in &live {
        let towards = network.towards(to);
        if let Some(&from) = live.iter().find(|&&from| from != to && towards[from].is_none()) {
            let (from, to) = (&network.nodes[from].name, &network.nodes[to].name);
            let found = format!("there is no path from the live host `{from}` to `{to}`");
            let right = "add the missing link; routers forward, hosts do not";
            decoder.report(root, "links", Fault::new(found, right));
            return;
        }
    }
    let mut addresses = BTreeMap::new();
    for host in experiment.live_hosts() {
        if let Some(other) = addresses.insert(host.address, host.name.clone()) {
            let found = format!("`{other}` and `{}` both have {}", host.name, host.address);
            let fault = Fault::new(found, "give each live host its own address");
            decoder.report(root, "nodes", fault);
            return;
        }
    }
}

/// Classes must have different names.
fn names_once(experiment: &Experiment, decoder: &mut Decoder<'_>) {
    let mut names = BTreeSet::new();
    for traffic in &experiment.traffic {
        if !names.insert(traffic.name.as_str()) {
            let found = format!("two kinds of traffic are called `{}`", shorten(&traffic.name));
            let right = "give each its own name: it is the class in the ledger";
            decoder.report(&traffic.name_mark, &traffic.key, Fault::new(found, right));
        }
    }
}

fn sizes(experiment: &Experiment, decoder: &mut Decoder<'_>, root: &Mark) -> bool {
    let count = |end: &End| match end.member {
        Some(_) => 1,
        None => experiment.nodes[end.node].count.unwrap_or(1),
    };
    let pairs = |a: &End, b: &End| count(a).max(count(b));
    let nodes = experiment.nodes.iter().map(|node| node.count.unwrap_or(1)).sum();
    let links = |link: &super::Link| -> u64 {
        link.between.windows(2).map(|pair| pairs(&pair[0], &pair[1])).sum()
    };
    let links = experiment.links.iter().map(links).sum();
    let flows = experiment.traffic.iter().map(|entry| pairs(&entry.from, &entry.to)).sum();
    let limits: [(&str, u64, u64); 3] =
        [("nodes", nodes, NODES_MAX), ("links", links, LINKS_MAX), ("traffic", flows, FLOWS_MAX)];
    let mut fits = true;
    for (key, number, limit) in limits.into_iter().filter(|&(_, number, limit)| number > limit) {
        let what = if key == "traffic" { "flows" } else { key };
        let found = format!("there are {number} {what}, counts included");
        decoder.report(root, key, Fault::new(found, format!("there may be {limit}")));
        fits = false;
    }
    fits
}

/// Counted nodes are paired one to one, or one with all.
fn counts(experiment: &Experiment, decoder: &mut Decoder<'_>) {
    for link in &experiment.links {
        let key = join(&link.key, "between");
        for pair in link.between.windows(2) {
            match overlap(&pair[0], &pair[1]) {
                true => {
                    let found = format!("it joins `{}` to itself", pair[0].name);
                    let fault = Fault::new(found, "name two different nodes");
                    decoder.report(&link.mark, &key, fault);
                }
                false => count_pair(experiment, decoder, &link.mark, &key, &pair[0], &pair[1]),
            }
        }
    }
    for Traffic { from, to, mark, key, .. } in &experiment.traffic {
        match overlap(from, to) {
            true => {
                let found = format!("`{}` sends to itself", from.name);
                decoder.report(mark, &join(key, "to"), Fault::new(found, "name another host"));
            }
            false => count_pair(experiment, decoder, mark, &join(key, "to"), from, to),
        }
    }
}

fn overlap(a: &End, b: &End) -> bool {
    a.node == b.node && (a.member.is_none() || b.member.is_none() || a.member == b.member)
}

fn count_pair(
    experiment: &Experiment,
    decoder: &mut Decoder<'_>,
    mark: &Mark,
    key: &str,
    a: &End,
    b: &End,
) {
    let count = |end: &End| match end.member {
        Some(_) => 1,
        None => experiment.nodes[end.node].count.unwrap_or(1),
    };
    let (a_count, b_count) = (count(a), count(b));
    if a_count != b_count && a_count > 1 && b_count > 1 {
        let found = format!("{a_count} `{}` cannot pair with {b_count} `{}`", a.name, b.name);
        let right = "give both the same count, or one side a single node";
        decoder.report(mark, key, Fault::new(found, right));
    }
}

/// Two links between the same nodes: the second would never be used.
fn joined_once(experiment: &Experiment, network: &Network, decoder: &mut Decoder<'_>) {
    let mut joined = BTreeMap::new();
    for hop in &network.hops {
        if joined.insert((hop.from, hop.to), hop.link).is_some() {
            let (from, to) = (&network.nodes[hop.from].name, &network.nodes[hop.to].name);
            let found = format!("`{from}` and `{to}` are joined twice");
            let right = "leave one link out: all packets would take the first";
            let link = &experiment.links[hop.link];
            decoder.report(&link.mark, &join(&link.key, "between"), Fault::new(found, right));
            return;
        }
    }
}

/// Every flow needs a route, and its responses a route back; links are bidirectional, so one check is enough.
fn reachable(experiment: &Experiment, network: &Network, decoder: &mut Decoder<'_>) {
    let mut ways: BTreeMap<usize, Vec<Option<usize>>> = BTreeMap::new();
    const KEPT_MAX: usize = 64;
    for traffic in &experiment.traffic {
        for (from, to) in network.pairs(experiment, &traffic.from, &traffic.to) {
            if ways.len() > KEPT_MAX {
                ways.clear();
            }
            let towards = ways.entry(to).or_insert_with(|| network.towards(to));
            if towards[from].is_none() {
                unreachable_end(network, decoder, traffic, from, to);
                break;
            }
        }
    }
}

fn unreachable_end(
    network: &Network,
    decoder: &mut Decoder<'_>,
    traffic: &Traffic,
    from: usize,
    to: usize,
) {
    let lonely = [from, to].into_iter().find(|&node| network.leaving[node].is_empty());
    let (from, to) = (&network.nodes[from].name, &network.nodes[to].name);
    let right = match lonely {
        Some(node) => format!("`{}` has no link: add one", network.nodes[node].name),
        None => "add the missing link; routers forward, hosts do not".to_owned(),
    };
    let found = format!("there is no path from `{from}` to `{to}`");
    decoder.report(&traffic.mark, &join(&traffic.key, "to"), Fault::new(found, right));
}
