//! A fat tree: three levels of equal switches that give every host its full rate to any other.
//!
//! ```text
//!  core      [c 0,0] [c 0,1]  ...        (k/2)^2 switches, one port for each pod
//!               |  \/   |
//!  aggregate [a 0] [a 1] | ...           k/2 for each of k pods
//!               |  \/   |
//!  edge      [e 0] [e 1] | ...           k/2 for each pod, k/2 hosts each
//!            h h   h h
//! ```
//!
//! A packet goes up by digits of its destination, so all of a destination's packets come down one way
//! and stay in order, and a permutation by a constant shift meets no other on any line.
//!
//! Source: Al-Fares, Loukissas & Vahdat, A Scalable, Commodity Data Center Network Architecture,
//! SIGCOMM 2008, §3; routes by destination as in Zahavi's D-mod-k.

use super::network::Speed;
use super::port::{Directory, Place};
use crate::fifo::FifoServer;
use crate::server::Service;
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, NodeId, Packet, Rate, StageId, here};
use lastmeter_engine::{Context, Element, ElementId, Error, Graph, PortId, ResourceId};

/// Most ports of a switch: 65 536 hosts.
pub const RADIX_MAX: u64 = 64;

/// How experiments describe it.
pub const PAGE: &Page = &Page {
    name: "fat-tree",
    family: Family::Node,
    what: "A network of equal switches in three levels, with its neighbours as hosts.",
    ports: "neighbour --> edge --> aggregate --> core --> aggregate --> edge --> neighbour",
    params: &[
        Param::required(
            "radix",
            ParamKind::Integer { min: 2, max: RADIX_MAX },
            "k, ports of a switch, an even number; it has room for k^3 / 4 hosts",
        ),
        Param::required("rate", ParamKind::Rate, "of every line"),
        Param::or("delay", ParamKind::Time, "1 us", "of every line"),
        Param::or("packets", ParamKind::COUNT, "1000", "most that wait for a line"),
    ],
    source: "Al-Fares, Loukissas & Vahdat, SIGCOMM 2008, §3",
    deviations: &[
        "Hosts are the neighbours in the order of their links.",
        "The way up is chosen by the destination, not by flow.",
    ],
    counters: &[
        ("served", "packets sent on"),
        ("refused", "packets that there was no room for"),
        ("packets_most", "most packets that waited"),
    ],
    example: r#"
duration = "1 ms"
[nodes]
near = { host = {}, count = 8 }
far = { host = {}, count = 8 }
[nodes.tree.fat-tree]
radix = 4
rate = "1 Gbit/s"
[[links]]
between = ["near", "tree"]
[[links]]
between = ["far", "tree"]
[[traffic]]
name = "across"
from = "near"
to = "far"
constant = { rate = "900 Mbit/s", size = "1500 B" }
"#,
    place: here!(),
};

/// What a fat tree is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// k.
    pub radix: usize,
    /// Of every line.
    pub rate: Rate,
    /// Of every line.
    pub delay: Duration,
    /// Most that wait for a line.
    pub packets_max: u64,
}

impl Options {
    /// Those of an experiment, for so many hosts.
    ///
    /// # Errors
    /// If switches have an odd number of ports, or there is no room for the hosts.
    pub fn of(values: &Values, hosts: usize) -> Result<Options, String> {
        let radix = values.get::<u64>("radix") as usize;
        let options = Options {
            radix,
            rate: values.get("rate"),
            delay: values.get("delay"),
            packets_max: values.get("packets"),
        };
        if radix % 2 == 1 {
            return Err(format!("{radix} ports cannot be halved"));
        }
        match options.hosts() {
            room if hosts > room => Err(format!("it has room for {room} hosts, not {hosts}")),
            _ => Ok(options),
        }
    }
    /// How many hosts it has room for.
    pub fn hosts(&self) -> usize {
        self.radix.pow(3) / 4
    }
}

/// Where a switch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Of this pod, with this number there.
    Edge(usize, usize),
    Aggregate(usize),
    Core,
}

struct Switch {
    directory: Directory,
    half: usize,
    level: Level,
}

impl Switch {
    /// The output towards a host: downwards from 0, upwards from k/2.
    fn output(&self, host: usize) -> usize {
        let half = self.half;
        let (pod, edge, place) = (host / (half * half), host / half % half, host % half);
        match self.level {
            Level::Edge(own_pod, own) if (pod, edge) == (own_pod, own) => place,
            Level::Edge(..) => half + place,
            Level::Aggregate(own_pod) if pod == own_pod => edge,
            Level::Aggregate(_) => half + edge,
            Level::Core => pod,
        }
    }
}

impl Element for Switch {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        let host = self.directory.get(packet.destination.0 as usize).copied().flatten();
        match host {
            Some(host) => cx.send(PortId(self.output(host as usize) as u16), packet),
            None => cx.drop(packet, None, "no route"),
        }
    }
    fn timers(&self) -> u32 {
        0
    }
}

/// What the ledger calls the lines of all levels.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// Waiting for and using a line.
    pub line: StageId,
    /// The way along a line.
    pub propagation: StageId,
}

/// A switch that is being joined.
struct Joined<'a, 'b> {
    graph: &'a mut Graph,
    name: &'a str,
    options: &'a Options,
    stages: Stages,
    resource: &'a mut dyn FnMut(&mut Graph, String) -> (ResourceId, Speed),
    directory: &'b Directory,
}

impl Joined<'_, '_> {
    fn switch(&mut self, level: Level, name: String) -> Result<ElementId, Error> {
        let half = self.options.radix / 2;
        let switch = Switch { directory: self.directory.clone(), half, level };
        self.graph.add(format!("{} {name}", self.name), switch)
    }

    /// A line from one switch's output to another.
    fn line(&mut self, from: (ElementId, usize), to: ElementId, name: String) -> Result<(), Error> {
        let line = self.server(&name)?;
        self.graph.connect(from.0, PortId(from.1 as u16), line, PortId(0))?;
        let (delay, stage) = (self.options.delay, Some(self.stages.propagation));
        self.graph.connect_after(line, PortId(0), to, PortId(0), delay, stage)
    }

    fn server(&mut self, name: &str) -> Result<ElementId, Error> {
        let name = format!("{} {name}", self.name);
        let (resource, (numerator, denominator)) = (self.resource)(self.graph, name.clone());
        let limits = (self.options.packets_max, Bytes(u64::MAX));
        let rate = self.options.rate.scale_floor(numerator.max(1), denominator.max(1));
        let service = Service::Line { rate, framing: Bytes::ZERO };
        self.graph.add(name, FifoServer::new(limits, service, self.stages.line, resource))
    }
}

/// Adds a fat tree called `name` to a graph, with a place for each of `hosts` hosts. `nodes` says
/// which host is which node, and `resource` declares the resource of each line and says how many
/// times as fast it is.
///
/// # Errors
/// If a name is taken or the graph is full.
pub fn assemble(
    graph: &mut Graph,
    name: &str,
    options: &Options,
    hosts: usize,
    nodes: &[(NodeId, usize)],
    stages: Stages,
    resource: &mut dyn FnMut(&mut Graph, String) -> (ResourceId, Speed),
) -> Result<Vec<Place>, Error> {
    let len = nodes.iter().map(|(node, _)| node.0 as usize + 1).max().unwrap_or(0);
    let mut directory = vec![None; len];
    nodes.iter().for_each(|&(node, host)| directory[node.0 as usize] = Some(host as u32));
    let directory: Directory = directory.into();
    let mut to = Joined { graph, name, options, stages, resource, directory: &directory };
    let half = options.radix / 2;
    let pods = hosts.div_ceil(half * half);
    // With one pod there is nobody to reach through the core.
    let cores = if pods > 1 { half * half } else { 0 };
    let cores: Vec<ElementId> = (0..cores)
        .map(|core| to.switch(Level::Core, format!("core {core}")))
        .collect::<Result<_, _>>()?;
    let mut ports = Vec::with_capacity(hosts);
    for pod in 0..pods {
        let aggregates: Vec<ElementId> = (0..half)
            .map(|one| to.switch(Level::Aggregate(pod), format!("aggregate {pod}.{one}")))
            .collect::<Result<_, _>>()?;
        for (one, &aggregate) in aggregates.iter().enumerate() {
            for place in 0..half {
                let Some(&core) = cores.get(one * half + place) else { continue };
                let up = format!("aggregate {pod}.{one}->core {}", one * half + place);
                to.line((aggregate, half + place), core, up)?;
                let down = format!("core {}->aggregate {pod}.{one}", one * half + place);
                to.line((core, pod), aggregate, down)?;
            }
        }
        for edge in 0..half {
            let members = (pod * half + edge) * half..hosts.min((pod * half + edge + 1) * half);
            if members.is_empty() {
                continue;
            }
            let switch = to.switch(Level::Edge(pod, edge), format!("edge {pod}.{edge}"))?;
            for (one, &aggregate) in aggregates.iter().enumerate() {
                let up = format!("edge {pod}.{edge}->aggregate {pod}.{one}");
                to.line((switch, half + one), aggregate, up)?;
                let down = format!("aggregate {pod}.{one}->edge {pod}.{edge}");
                to.line((aggregate, edge), switch, down)?;
            }
            for (place, host) in members.enumerate() {
                let down = to.server(&format!("to {host}"))?;
                to.graph.connect(switch, PortId(place as u16), down, PortId(0))?;
                let up = to.server(&format!("from {host}"))?;
                let (delay, stage) = (options.delay, Some(stages.propagation));
                to.graph.connect_after(up, PortId(0), switch, PortId(0), delay, stage)?;
                ports.push(((up, PortId(0)), (down, PortId(0))));
            }
        }
    }
    Ok(ports)
}
