//! A fat tree: three levels of identical switches that give every host its full rate to any other.
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
//! The path up follows digits of the destination, so all packets to a destination take the same path down and stay
//! in order, and a permutation by a constant shift has no contention on any line.
//!
//! Source: Al-Fares, Loukissas & Vahdat, A Scalable, Commodity Data Center Network Architecture,
//! SIGCOMM 2008, §3; routes by destination as in Zahavi's D-mod-k.

use super::port::{Directory, Place};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, NodeId, Packet, Rate, StageId, here, prefetch_lines};
use lastmeter_engine::site::{NodeKind, Ports, Site, Speed};
use lastmeter_engine::{
    Context, Element, ElementId, Error, Foreseen, Foresight, Graph, Look, PortId, Report,
    ResourceId, ResourceInfo, ResourceKind,
};
use lastmeter_net::fifo::{FifoServer, Line, Served};
use lastmeter_net::server::Service;

/// Most ports of a switch: 65 536 hosts.
pub const RADIX_MAX: u64 = 64;

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "fat-tree",
    family: Family::Node,
    what: "A network of identical switches in three levels, with its neighbours as hosts.",
    ports: "neighbour --> edge --> aggregate --> core --> aggregate --> edge --> neighbour",
    params: &[
        Param::required("radix", ParamKind::Integer { min: 2, max: RADIX_MAX })
            .is("k, the number of ports of a switch, even; there is room for k^3 / 4 hosts"),
        Param::required("rate", ParamKind::Rate).is("rate of every line"),
        Param::or("delay", ParamKind::Time, "1 us").is("propagation delay of every line"),
        Param::or("packets", ParamKind::COUNT, "1000").is("capacity of each line's queue"),
    ],
    source: "Al-Fares, Loukissas & Vahdat, SIGCOMM 2008, §3",
    deviations: &[
        "Hosts are the neighbours in the order of their links.",
        "The path up is chosen by destination, not by flow (no ECMP).",
    ],
    counters: &[
        ("served", "packets sent on"),
        ("refused", "packets dropped by a full queue"),
        ("packets_most", "longest queue, in packets"),
    ],
    drops: &[
        ("full", "packets that arrived when the queue of the line was full"),
        ("no route", "packets to a destination that is not a neighbour"),
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
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

/// A fat tree whose hosts are the neighbours.
fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let hosts = site.neighbours.len();
    let mut options = Options::of(values, hosts)?;
    let (line, propagation) = (site.own_stage("line", None), site.own_stage("propagation", None));
    options.delay = propagation.time(options.delay);
    let place = site.place("line");
    let Site { graph, names, name, group, routes, .. } = site;
    let mut resource = |graph: &mut Graph, of: &str| {
        let group = (group != name).then(|| format!("{group} {of}"));
        let info = ResourceInfo::new(format!("{name} {of}"), ResourceKind::Wire);
        let place = lastmeter_engine::Place { group, ..place.clone() };
        let resource = names.resource(graph, ResourceInfo { place, ..info });
        (resource.id, line.on(&resource).speed())
    };
    let stages = Stages { line: line.id, propagation: propagation.id };
    let made = assemble(graph, name, &options, hosts, routes, stages, &mut resource);
    made.map(Ports::places)
}

/// Parameters of a fat tree.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// k.
    pub radix: usize,
    /// Rate of every line.
    pub rate: Rate,
    /// Propagation delay of every line.
    pub delay: Duration,
    /// Capacity of each line's queue.
    pub packets_max: u64,
}

impl Options {
    /// Parameters from an experiment, for this number of hosts.
    ///
    /// # Errors
    /// If switches have an odd number of ports, or there is no room for all hosts.
    pub fn of(values: &Values, hosts: usize) -> Result<Options, String> {
        let radix = values.get::<u64>("radix") as usize;
        let options = Options {
            radix,
            rate: values.get("rate"),
            delay: values.get("delay"),
            packets_max: values.get("packets"),
        };
        if radix % 2 == 1 {
            return Err(format!("`radix` must be even, not {radix}"));
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

/// Position of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// In this pod, with this number there.
    Edge(usize, usize),
    Aggregate(usize),
    Core,
}

/// A switch and the lines that its outputs lead to.
struct Switch {
    directory: Directory,
    half: usize,
    level: Level,
    lines: Vec<Option<Line>>,
}

impl Switch {
    /// The output towards a host: down from 0, up from k/2.
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
    /// The output by which a packet leaves, if there is a route.
    fn output_of(&self, packet: &Packet) -> Option<usize> {
        let host = self.directory.port(packet.destination)?;
        let output = self.output(host);
        matches!(self.lines.get(output), Some(Some(_))).then_some(output)
    }
}

impl Element for Switch {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        let output = self.output_of(&packet);
        match output.and_then(|output| Some((output, self.lines[output].as_mut()?))) {
            Some((output, line)) => line.receive(cx, PortId(output as u16), packet),
            None => cx.drop(packet, None, "no route"),
        }
    }
    fn timers(&self) -> u32 {
        0
    }
    fn runs_ahead(&self) -> bool {
        true
    }
    fn foresees(&self) -> Foresight {
        Foresight::Early
    }
    fn foresee(&self, next: Foreseen<'_>, _look: Look) -> Option<PortId> {
        let Foreseen::Packet(_, packet) = next else { return None };
        packet.prefetch_record();
        let output = self.output_of(packet)?;
        self.lines[output].iter().for_each(prefetch_lines::<2, _>);
        Some(PortId(output as u16))
    }
    fn report(&self, out: &mut Report) {
        let mut served = Served::default();
        self.lines.iter().flatten().for_each(|line| served.enter(out, line));
        served.count(out);
    }
}

/// Stages and resources of the lines of all levels, in the books.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// Waiting for and using a line.
    pub line: StageId,
    /// Propagation along a line.
    pub propagation: StageId,
}

/// A tree under construction.
struct Joined<'a> {
    graph: &'a mut Graph,
    name: &'a str,
    options: &'a Options,
    stages: Stages,
    resource: &'a mut dyn FnMut(&mut Graph, &str) -> (ResourceId, Speed),
    directory: Directory,
    switches: Vec<(String, Switch)>,
    /// The edge from a switch's output to another switch.
    ways: Vec<((usize, usize), usize)>,
}

impl Joined<'_> {
    /// A switch without lines; returns its number.
    fn switch(&mut self, level: Level, name: String) -> usize {
        let (directory, half) = (self.directory.clone(), self.options.radix / 2);
        let lines = (0..self.options.radix).map(|_| None).collect();
        let switch = Switch { directory, half, level, lines };
        self.switches.push((format!("{} {name}", self.name), switch));
        self.switches.len() - 1
    }

    /// A line from one switch's output to another.
    fn way(&mut self, from: (usize, usize), to: usize, name: &str) {
        self.line(from, name);
        self.ways.push((from, to));
    }

    /// A line from a switch's output.
    fn line(&mut self, (from, output): (usize, usize), name: &str) {
        let (limits, service, resource) = self.resource(name);
        let line = Line::new(limits, service, self.stages.line, resource);
        self.switches[from].1.lines[output] = Some(line);
    }

    /// Queue, rate and resource of a line.
    fn resource(&mut self, name: &str) -> ((u64, Bytes), Service, ResourceId) {
        let (resource, (numerator, denominator)) = (self.resource)(self.graph, name);
        let limits = (self.options.packets_max, Bytes(u64::MAX));
        let rate = self.options.rate.scale_floor(numerator.max(1), denominator.max(1));
        (limits, Service::Line { rate, framing: Bytes::ZERO }, resource)
    }

    /// The line from a host, which is not a switch's output.
    fn host_line(&mut self, host: usize) -> Result<ElementId, Error> {
        let name = format!("from {host}");
        let (limits, service, resource) = self.resource(&name);
        let line = FifoServer::new(limits, service, self.stages.line, resource);
        self.graph.add(format!("{} {name}", self.name), line)
    }

    /// Adds the switches to the graph.
    fn connect(&mut self) -> Result<Vec<ElementId>, Error> {
        let Joined { graph, options, stages, switches, ways, .. } = self;
        let add = |(name, switch)| graph.add(name, switch);
        let ids = switches.drain(..).map(add).collect::<Result<Vec<_>, _>>()?;
        for ((from, output), to) in ways.drain(..) {
            let (from, output, input) = (ids[from], PortId(output as u16), PortId(0));
            let (delay, stage) = (options.delay, Some(stages.propagation));
            graph.connect_after(from, output, ids[to], input, delay, stage)?;
        }
        Ok(ids)
    }
}

/// Adds a fat tree called `name` to a graph, with a port for each of `hosts` hosts. `nodes` maps hosts to nodes;
/// `resource` declares the resource of each line and returns its speed-up.
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
    resource: &mut dyn FnMut(&mut Graph, &str) -> (ResourceId, Speed),
) -> Result<Vec<Place>, Error> {
    let directory = Directory::of(nodes);
    let (switches, ways) = (Vec::new(), Vec::new());
    let mut tree = Joined { graph, name, options, stages, resource, directory, switches, ways };
    let half = options.radix / 2;
    let pods = hosts.div_ceil(half * half);
    // With one pod the core is unused.
    let cores = if pods > 1 { half * half } else { 0 };
    let cores: Vec<usize> =
        (0..cores).map(|core| tree.switch(Level::Core, format!("core {core}"))).collect();
    let mut ports = Vec::with_capacity(hosts);
    for pod in 0..pods {
        let aggregates: Vec<usize> = (0..half)
            .map(|one| tree.switch(Level::Aggregate(pod), format!("aggregate {pod}.{one}")))
            .collect();
        for (one, &aggregate) in aggregates.iter().enumerate() {
            for place in 0..half {
                let Some(&core) = cores.get(one * half + place) else { continue };
                let up = format!("aggregate {pod}.{one}->core {}", one * half + place);
                tree.way((aggregate, half + place), core, &up);
                let down = format!("core {}->aggregate {pod}.{one}", one * half + place);
                tree.way((core, pod), aggregate, &down);
            }
        }
        for edge in 0..half {
            let members = (pod * half + edge) * half..hosts.min((pod * half + edge + 1) * half);
            if members.is_empty() {
                continue;
            }
            let switch = tree.switch(Level::Edge(pod, edge), format!("edge {pod}.{edge}"));
            for (one, &aggregate) in aggregates.iter().enumerate() {
                let up = format!("edge {pod}.{edge}->aggregate {pod}.{one}");
                tree.way((switch, half + one), aggregate, &up);
                let down = format!("aggregate {pod}.{one}->edge {pod}.{edge}");
                tree.way((aggregate, edge), switch, &down);
            }
            for (place, host) in members.enumerate() {
                tree.line((switch, place), &format!("to {host}"));
                ports.push((tree.host_line(host)?, (switch, place)));
            }
        }
    }
    let ids = tree.connect()?;
    let mut places = Vec::with_capacity(hosts);
    for (up, (switch, place)) in ports {
        let (delay, stage) = (options.delay, Some(stages.propagation));
        graph.connect_after(up, PortId(0), ids[switch], PortId(0), delay, stage)?;
        places.push(((up, PortId(0)), (ids[switch], PortId(place as u16))));
    }
    Ok(places)
}
