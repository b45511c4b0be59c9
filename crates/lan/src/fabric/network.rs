//! A fabric in a graph: ports, switches in one or three stages, and the exchange of backlogs.
//!
//! ```text
//! Ingress --S L--> [ Trunk ] --n S L--> [ Outputs: --S L--> queue --L--> ]
//!   `- records -->  Exchange  -- notices --> Ingress
//! ```
//!
//! Up to [`MODULE_MAX`] ports form one switch. More form three stages of switches, with as many ports as there are
//! switches; the middle stage spreads the cells of each packet over all its paths. So the path from an input
//! switch to an output switch is one trunk, and packets contend only for the line to their output.
//! [`super::multistage`] shows that this is valid while no line is overloaded. Memory grows with the ports and
//! their backlogs, not with pairs of ports.

use super::allocation::{Allocation, PORTS_MAX, Rule};
use super::output::{self, Outputs};
use super::port::{
    Board, Directory, Exchange, FORWARD, Ingress, InputOptions, NOTICE, OWN_BACKLOG, PACKETS,
    Place, RECORDS,
};
use super::trunk::Trunk;
use super::voq::Rules;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, NodeId, PathId, Rate, StageId, here};
use lastmeter_engine::site::{Fabric, NodeKind, Ports, Site, Speed, Stage};
use lastmeter_engine::{Error, Graph, PortId, ResourceId, ResourceInfo, ResourceKind};
use std::sync::Arc;

/// Most ports of one switch.
pub const MODULE_MAX: usize = 32;

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "fabric",
    family: Family::Node,
    what: "A router's fabric: virtual output queues, a speed-up, output queues, and distributed \
           queueing.",
    ports: "neighbour --> [ VOQs ] --S L--> (fabric) --S L--> [ output queue ] --L--> neighbour",
    params: &[
        Param::required("rate", ParamKind::Rate).is("L, the rate of every external link"),
        Param::or("speed-up", ParamKind::Number { min: 1.0, max: 64.0 }, "2.0")
            .is("S: the rate of the fabric's lines relative to the links"),
        Param::or("scheduling", ParamKind::Choice(SCHEDULING), "responsive")
            .is("rate control: Eqs 5 and 6, Eqs 1 and 2, none, or an ideal fabric of speed-up N"),
        Param::or("period", ParamKind::Time, "500 us")
            .is("D, from one exchange of backlogs to the next"),
        Param::or("backlog-min", ParamKind::BUFFER, "1500 B")
            .is("Bmin: the artificial backlog of Eq 5"),
        Param::or("transit", ParamKind::Time, "5 us")
            .is("transit time through the fabric; half of it for a record"),
        Param::or("room", ParamKind::BUFFER, "8 MiB")
            .is("buffer of each input, and of each output queue"),
    ],
    source: "Kuhns et al., Design of a High Performance Dynamically Extensible Router, §2, §3.6, \
             §8",
    deviations: &[
        "Ports are the neighbours in the order of their links.",
        "The fabric moves whole packets; cell headers and records use none of its capacity.",
        "Backlogs are summed once for all ports, not by each port.",
    ],
    counters: &[
        ("served", "packets sent on"),
        ("refused", "packets dropped by a full queue"),
        ("packets_most", "longest queue, in packets"),
        ("periods", "times that an input computed its rates"),
        ("summaries", "times that all backlogs were summed"),
    ],
    drops: &[
        ("full", "packets that an input or an output queue had no room for"),
        ("no route", "packets to a destination that is not a neighbour"),
    ],
    example: r#"
duration = "20 ms"
[nodes]
sender = { host = {}, count = 4 }
receiver = { host = {} }
router = { fabric = { rate = "70 Mbit/s" } }
[[links]]
between = ["sender", "router"]
rate = "70 Mbit/s"
[[links]]
between = ["router", "receiver"]
[[traffic]]
name = "overload"
from = "sender"
to = "receiver"
constant = { rate = "60 Mbit/s", size = "520 B" }
"#,
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind { build, own: &Fabric { is_ideal } });

/// A fabric with a port for each neighbour.
fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let count = site.neighbours.len();
    let mut options = Options::of(values, count)?;
    if site.names.is_ideal(site.group) {
        options = options.ideal(count);
    }
    let roles = ["virtual output queue", "transit", "trunk", "fabric output", "output queue"];
    let stages = roles.map(|role| site.own_stage(role, None));
    let [input, transit, trunk, output, queue] = stages;
    // Half of it must be a valid time, too.
    options.transit = transit.time(options.transit).max(Duration::from_ps(2));
    let neighbours: Vec<NodeId> = site.neighbours.iter().map(|neighbour| neighbour.node).collect();
    let mut ports = Vec::with_capacity(count);
    for neighbour in neighbours {
        let mut one = |role, stage: &Stage, kind| {
            let resource = site.towards(role, &format!(" {role} "), neighbour, kind);
            (resource.id, stage.on(&resource).speed())
        };
        ports.push(PortOptions {
            input: one("in", &input, ResourceKind::Engine),
            output: one("line", &output, ResourceKind::Engine),
            link: one("link", &queue, ResourceKind::Wire),
        });
    }
    let records = site.graph.path(site.name, "backlogs");
    let place = site.place("trunk");
    let Site { graph, names, name, group, routes, .. } = site;
    let mut line = |graph: &mut Graph, number: usize| {
        let group = (group != name).then(|| format!("{group} trunk {number}"));
        let place = lastmeter_engine::Place { group, ..place.clone() };
        let info = ResourceInfo::new(format!("{name} trunk {number}"), ResourceKind::Engine);
        let resource = names.resource(graph, ResourceInfo { place, ..info });
        (resource.id, trunk.on(&resource).speed())
    };
    let [input, transit, trunk, output, queue] = stages.map(|stage| stage.id);
    let stages = Stages { input, transit, trunk, output, queue };
    assemble(graph, name, &options, &ports, routes, (stages, records), &mut line).map(Ports::places)
}

const SCHEDULING: &[&str] = &["responsive", "base", "none", "ideal"];

/// Parameters of a fabric.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// L.
    pub link: Rate,
    /// S L.
    pub capacity: Rate,
    /// The equations; `None` without rate control.
    pub rule: Option<Rule>,
    /// D.
    pub period: Duration,
    /// Transit time through the fabric; half of it for a record or a notice.
    pub transit: Duration,
    /// Buffer of an input and of an output.
    pub room: Bytes,
}

impl Options {
    /// Parameters from an experiment, for a fabric of this many ports.
    ///
    /// # Errors
    /// If there are too many ports, or backlogs would be sent before the previous ones had arrived.
    pub fn of(values: &Values, ports: usize) -> Result<Options, String> {
        let link: Rate = values.get("rate");
        let speed_up: f64 = values.get("speed-up");
        let scheduling: String = values.get("scheduling");
        let (period, transit): (Duration, Duration) = (values.get("period"), values.get("transit"));
        let backlog_min = values.get("backlog-min");
        if ports > PORTS_MAX {
            return Err(format!("a fabric has at most {PORTS_MAX} ports, not {ports}"));
        }
        if transit >= period || transit.as_ps() < 2 {
            return Err(format!("`transit` ({transit}) must be shorter than `period` ({period})"));
        }
        let thousandths = (speed_up * 1000.0).round() as u64;
        let (rule, capacity) = match scheduling.as_str() {
            "base" => (Some(Rule::Base), link.scale_floor(thousandths, 1000)),
            "responsive" => {
                (Some(Rule::Responsive { backlog_min }), link.scale_floor(thousandths, 1000))
            }
            _ => (None, link.scale_floor(thousandths, 1000)),
        };
        let options = Options { link, capacity, rule, period, transit, room: values.get("room") };
        Ok(if is_ideal(values) { options.ideal(ports) } else { options })
    }

    /// Ideal output queueing instead: a fabric of speed-up N, which never holds packets back (D-59).
    #[must_use]
    pub fn ideal(self, ports: usize) -> Options {
        Options { rule: None, capacity: self.link.scale_floor(ports as u64, 1), ..self }
    }
}

/// Whether an experiment's fabric is the ideal one.
fn is_ideal(values: &Values) -> bool {
    values.get::<String>("scheduling") == "ideal"
}

/// The parts of a fabric in the books.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// Waiting in a virtual output queue, and the line into the fabric.
    pub input: StageId,
    /// Transit.
    pub transit: StageId,
    /// The trunk between switches.
    pub trunk: StageId,
    /// The line to an output.
    pub output: StageId,
    /// The output queue and its link.
    pub queue: StageId,
}

/// A port's resources and the speed-up of each.
#[derive(Clone, Copy, Debug)]
pub struct PortOptions {
    /// The line into the fabric.
    pub input: (ResourceId, Speed),
    /// The line out of the fabric.
    pub output: (ResourceId, Speed),
    /// The link.
    pub link: (ResourceId, Speed),
}

/// Adds a fabric called `name` to a graph. `nodes` maps ports to nodes, `records` is the path of backlogs, and
/// `trunk` declares the resource of each trunk, if there are any.
///
/// # Errors
/// If a name is taken or the graph is full.
pub fn assemble(
    graph: &mut Graph,
    name: &str,
    options: &Options,
    ports: &[PortOptions],
    nodes: &[(NodeId, usize)],
    (stages, records): (Stages, PathId),
    trunk: &mut dyn FnMut(&mut Graph, usize) -> (ResourceId, Speed),
) -> Result<Vec<Place>, Error> {
    let count = ports.len();
    let directory = Directory::of(nodes);
    let module = if count <= MODULE_MAX { count.max(1) } else { count.isqrt().max(2) };
    let board = Board::new(if options.rule.is_some() { count } else { 0 }, module);
    let allocation =
        options.rule.map(|rule| Allocation { rule, ports: count, capacity: options.capacity });
    let half = options.transit / 2;
    let exchange = match allocation {
        Some(allocation) => {
            let exchange = Exchange::new(allocation, board.clone());
            Some(graph.add(format!("{name} exchange"), exchange)?)
        }
        None => None,
    };
    let scaled = |rate: Rate, (numerator, denominator): Speed| {
        rate.scale_floor(numerator.max(1), denominator.max(1))
    };
    let rules = Rules { allocation, period: options.period, room: options.room };
    let (rules, stage) = (rules.into(), stages.input);
    let of_inputs = Arc::new(InputOptions { rules, directory: directory.clone(), board, stage });
    let mut inputs = Vec::with_capacity(count);
    for (port, what) in ports.iter().enumerate() {
        let line = (scaled(options.capacity, what.input.1), what.input.0);
        let ingress = Ingress::new(port, line, of_inputs.clone());
        let ingress = graph.add(format!("{name} in {port}"), ingress)?;
        if let Some(exchange) = exchange {
            let stage = Some(stages.transit);
            graph.connect_after(ingress, RECORDS, exchange, PortId(0), half, stage)?;
            let own = PortId(port as u16);
            graph.connect_after(exchange, own, ingress, NOTICE, half, stage)?;
        }
        inputs.push(ingress);
    }
    let modules = count.div_ceil(module);
    let members = |number: usize| number * module..count.min((number + 1) * module);
    let mut places = Vec::with_capacity(count);
    let mut last = Vec::with_capacity(modules);
    for number in 0..modules {
        let lines = |what: &PortOptions| {
            let line = (scaled(options.capacity, what.output.1), what.output.0);
            (line, (scaled(options.link, what.link.1), what.link.0))
        };
        let outputs = Outputs::new(output::Options {
            directory: directory.clone(),
            first: number * module,
            ports: ports[members(number)].iter().map(lines).collect(),
            room: options.room,
            tells: allocation.map(|_| (options.period, records)),
            line: stages.output,
            queue: stages.queue,
        });
        let outputs = graph.add(format!("{name} out {number}"), outputs)?;
        let own = members(number).len();
        for (place, port) in members(number).enumerate() {
            if exchange.is_some() {
                let record = PortId((own + place) as u16);
                graph.connect(outputs, record, inputs[port], OWN_BACKLOG)?;
            }
            places.push(((inputs[port], PACKETS), (outputs, PortId(place as u16))));
        }
        last.push(outputs);
    }
    let transit = Some(stages.transit);
    if let [outputs] = last[..] {
        for &input in &inputs {
            let delay = options.transit;
            graph.connect_after(input, FORWARD, outputs, PortId(0), delay, transit)?;
        }
        return Ok(places);
    }
    for number in 0..modules {
        let (resource, speed) = trunk(graph, number);
        let rate = scaled(options.capacity.scale_floor(module as u64, 1), speed);
        let trunk = Trunk::new((rate, module), directory.clone(), stages.trunk, resource);
        let trunk = graph.add(format!("{name} trunk {number}"), trunk)?;
        for port in members(number) {
            graph.connect_after(inputs[port], FORWARD, trunk, PortId(0), half, transit)?;
        }
        for (place, &to) in last.iter().enumerate() {
            let rest = options.transit - half;
            graph.connect_after(trunk, PortId(place as u16), to, PortId(0), rest, transit)?;
        }
    }
    Ok(places)
}
