//! The network as an element, with a port for each host.
//!
//! ```text
//! host i --> in i  [ interface ] --> worm, sometimes blocked --> out j --> host j
//! ```
//!
//! Time beyond that of a packet alone is time blocked. One timer: the next event anywhere.

use super::lan::{Lan, Options, Passed};
use super::routes::{Faults, Routes, Routing};
use super::topology::Topology;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, NodeId, Packet, StageId, Time, here};
use lastmeter_engine::site::{NodeKind, Ports, Resource, Site, Stage};
use lastmeter_engine::{
    Context, Element, Error, Meter, PortId, Report, ResourceId, ResourceKind, TimerId,
};
use std::collections::BTreeMap;

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "wormhole-lan",
    family: Family::Node,
    what: "A network of switches without queues, in which packets are worms that block each other.",
    ports: "neighbour --> [ its interface ] --> source route, blocking --> neighbour",
    params: &[
        Param::required("topology", ParamKind::Text).is(
            "lines `switch s 8`, `cable s t 24 m`, `host NAME s 8 m`; hosts are the neighbours",
        ),
        Param::or("rate", ParamKind::Rate, "640 Mbit/s").is("rate of every channel"),
        Param::or("hop", ParamKind::Time, "550 ns").is("through a switch without contention"),
        Param::or("slack", ParamKind::BUFFER, "80 B").is("capacity of a switch for a blocked worm"),
        Param::optional("timeout", ParamKind::Time, "never")
            .is("after this time, a blocked worm is discarded"),
        Param::or("routes", ParamKind::Choice(&["up-down", "shortest"]), "up-down")
            .is("up*/down* over the levels, or the fewest hops, which may deadlock"),
        Param::or("packets", ParamKind::COUNT, "1000").is("most packets waiting at an interface"),
        Param::or("framing", ParamKind::Size { min: 0, max: 64 }, "8 B")
            .is("route, type and CRC of each packet"),
    ],
    source: "Boden et al., Myrinet, IEEE Micro 15(1), 1995; Touch et al., Netstation and ATOMIC-2, \
             §2, §4.a",
    deviations: &[
        "STOP and GO take no time; the slack includes what is in transit meanwhile.",
        "A worm does not become shorter as switches remove its route bytes.",
    ],
    counters: &[
        ("delivered", "worms that arrived"),
        ("blocked", "worms that were blocked"),
        ("resets", "worms discarded because they were blocked for too long"),
        ("deadlocked", "worms in a deadlock"),
        ("refused", "packets refused by the full queue of an interface"),
    ],
    drops: &[
        ("full", "packets refused by the full queue of an interface"),
        ("no route", "packets to a destination without a route"),
        ("reset", "worms that were blocked for too long"),
    ],
    example: r#"
duration = "10 ms"
[nodes]
office = { host = {}, count = 4 }
server = { host = {} }
[nodes.lan.wormhole-lan]
topology = """
switch east 8
switch west 8
cable east west 24 m
host office.0 east 10 m
host office.1 east 10 m
host office.2 west 10 m
host office.3 west 10 m
host server west 5 m
"""
[[links]]
between = ["office", "lan"]
[[links]]
between = ["server", "lan"]
[[traffic]]
name = "files"
from = "office"
to = "server"
constant = { rate = "150 Mbit/s", size = "8192 B" }
"#,
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

/// A wormhole network of the node's neighbours.
fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let names: Vec<&str> = site.neighbours.iter().map(|neighbour| neighbour.name).collect();
    let mut channels: Vec<Resource> = Vec::with_capacity(names.len());
    let neighbours: Vec<NodeId> = site.neighbours.iter().map(|neighbour| neighbour.node).collect();
    for neighbour in neighbours {
        let channel = site.towards("channel", " channel of ", neighbour, ResourceKind::Wire);
        channels.push(channel);
    }
    let (interface, way) = (site.own_stage("interface", None), site.own_stage("way", None));
    // A channel that is made faster makes all of them faster: they have a common rate.
    let faster = channels.iter().find(|channel| channel.speed != (1, 1));
    let lan = lan(values, &names, &faster.map_or(way, |faster| way.on(faster)))?;
    let channels: Vec<ResourceId> = channels.iter().map(|channel| channel.id).collect();
    let stages = (interface.id, way.id);
    let wormhole = Wormhole::new(lan, &site.routes, stages, &channels, values.get("packets"));
    let element = site.add(wormhole)?;
    Ok(Ports::each(element, 0..names.len()))
}

/// The network that an experiment describes, with a host for each of `names`, in their order.
///
/// # Errors
/// If the topology is wrong, or its hosts are not those linked to it.
fn lan(values: &Values, names: &[&str], way: &Stage) -> Result<(Lan, Vec<usize>), String> {
    let text: String = values.get("topology");
    let topology = Topology::parse(&text).map_err(|error| format!("topology, {error}"))?;
    let place = |name: &&str| {
        let place = topology.hosts().iter().position(|host| host == name);
        place.ok_or_else(|| format!("the topology has no host `{name}`"))
    };
    let hosts: Vec<usize> = names.iter().map(place).collect::<Result<_, _>>()?;
    if let Some(host) = (0..topology.hosts().len()).find(|host| !hosts.contains(host)) {
        return Err(format!("no link leads to host `{}`", topology.hosts()[host]));
    }
    let routing = match values.get::<String>("routes").as_str() {
        "shortest" => Routing::Shortest,
        _ => Routing::UpDown,
    };
    let options = Options {
        rate: way.rate(values.get("rate")),
        hop: values.get("hop"),
        slack: values.get("slack"),
        timeout: values.given("timeout"),
        framing: values.get("framing"),
    };
    let routes = Routes::new(&topology, routing, &Faults::default());
    if routes.missing() > 0 {
        return Err(format!("{} pairs of hosts have no path", routes.missing()));
    }
    Ok((Lan::new(topology, routes, options), hosts))
}

/// The network with its interfaces.
pub struct Wormhole {
    lan: Lan,
    /// The port of each host.
    ports: Vec<usize>,
    /// The host behind each port.
    hosts: Vec<usize>,
    /// The host that packets for each node go to, by [`NodeId`].
    nodes: Vec<Option<usize>>,
    packets: BTreeMap<u64, Packet>,
    next: u64,
    waiting: Vec<u64>,
    packets_max: u64,
    stages: (StageId, StageId),
    /// The times of each host's channel.
    meters: Vec<Meter>,
    free_at: Vec<Time>,
    passed: Vec<Passed>,
    delivered: u64,
    blocked: u64,
    refused: u64,
}

const WAKE: TimerId = TimerId(0);

impl Wormhole {
    /// The network `lan`, whose host at port i is `hosts[i]`; `nodes` maps nodes to ports. Waiting at an interface
    /// is accounted to the first stage, the time in the network to the second, and the time of each host's channel
    /// to its resource.
    pub fn new(
        (lan, hosts): (Lan, Vec<usize>),
        nodes: &[(NodeId, usize)],
        stages: (StageId, StageId),
        resources: &[ResourceId],
        packets_max: u64,
    ) -> Wormhole {
        let len = nodes.iter().map(|(node, _)| node.0 as usize + 1).max().unwrap_or(0);
        let mut table = vec![None; len];
        nodes.iter().for_each(|&(node, port)| table[node.0 as usize] = Some(hosts[port]));
        let mut ports = vec![0; hosts.len()];
        hosts.iter().enumerate().for_each(|(port, &host)| ports[host] = port);
        Wormhole {
            lan,
            ports,
            nodes: table,
            packets: BTreeMap::new(),
            next: 0,
            waiting: vec![0; hosts.len()],
            packets_max,
            stages,
            meters: resources.iter().map(|&resource| Meter::new(resource)).collect(),
            free_at: vec![Time::START; hosts.len()],
            passed: Vec::new(),
            delivered: 0,
            blocked: 0,
            refused: 0,
            hosts,
        }
    }

    fn advance(&mut self, cx: &mut Context<'_>) {
        let mut passed = std::mem::take(&mut self.passed);
        self.lan.advance(cx.now(), &mut |one| passed.push(one));
        for one in passed.drain(..) {
            let mut packet = self.packets.remove(&one.id).expect("each worm has its packet");
            let port = self.ports[one.from];
            self.waiting[port] -= 1;
            self.account(port, &one, packet.len);
            if !one.arrived {
                cx.drop(packet, Some(self.stages.1), "reset");
                continue;
            }
            let blocked = (one.ended - one.started).saturating_sub(one.alone);
            self.delivered += 1;
            self.blocked += u64::from(!blocked.is_zero());
            if cx.collecting() {
                let zero = lastmeter_base::Duration::ZERO;
                packet.visit(self.stages.0, one.started - packet.entered, zero, zero);
                packet.visit(self.stages.1, zero, one.ended - one.started - blocked, blocked);
            }
            cx.send(PortId(self.ports[one.to] as u16), packet);
        }
        self.passed = passed;
        if let Some(wake) = self.lan.ready_at() {
            cx.arm(WAKE, wake.max(cx.now()));
        }
    }

    /// A host's channel was in use from a worm's start to its end at the latest, one worm after another.
    fn account(&mut self, port: usize, one: &Passed, len: Bytes) {
        let started = one.started.max(self.free_at[port]);
        let meter = &mut self.meters[port];
        if started > self.free_at[port] {
            meter.rest(self.free_at[port]);
        }
        if one.ended > started {
            meter.serve(started, self.stages.1);
            self.free_at[port] = one.ended;
        }
        meter.moved(len);
    }
}

impl Element for Wormhole {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        let port = usize::from(port.0);
        let to = self.nodes.get(packet.destination.0 as usize).copied().flatten();
        let Some(to) = to else {
            cx.drop(packet, Some(self.stages.0), "no route");
            return;
        };
        if self.waiting[port] >= self.packets_max {
            self.refused += 1;
            cx.drop(packet, Some(self.stages.0), "full");
            return;
        }
        self.advance(cx);
        packet.entered = cx.now();
        self.next += 1;
        let sent = self.lan.send(cx.now(), self.hosts[port], to, packet.len, self.next);
        if sent.is_err() {
            cx.drop(packet, Some(self.stages.0), "no route");
            return;
        }
        self.waiting[port] += 1;
        self.packets.insert(self.next, packet);
        if let Some(wake) = self.lan.ready_at() {
            cx.arm(WAKE, wake.max(cx.now()));
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.advance(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.packets.len() as u64);
        for (meter, &free_at) in self.meters.iter().zip(&self.free_at) {
            let mut meter = meter.clone();
            if free_at <= out.now() {
                meter.rest(free_at);
            }
            out.meter(&meter);
        }
        out.count("delivered", self.delivered);
        out.count("blocked", self.blocked);
        out.count("resets", self.lan.resets());
        out.count("deadlocked", self.lan.deadlock().map_or(0, |cycle| cycle.len() as u64));
        out.count("refused", self.refused);
    }
}
