//! A plugin: an owner's program decides about each packet, at a cost, before its link's queue.
//!
//! ```text
//! link i --> [ wait ] --> (processor: cost per packet) --> program --> link j's queue        drops: `denied`, `full`
//!                                                          ^ lm_queue(j): what waits there
//! ```
//!
//! The same module as on a device, in the run's own time and deterministic: its random numbers come from the seed, and
//! an instruction count stops endless loops. The program is asked when the processor starts on a packet. It sees the
//! packet's bytes, if it has any (`replay` with `bytes = true`), else headers as in a capture of the link
//! (`imagine.rs`), with the packet's class as DSCP and its congestion mark.

use crate::imagine;
use crate::impair;
use lastmeter_base::kind::{Family, Kind, Misfit, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::text::Quantity;
use lastmeter_base::{Bytes, Duration, Ecn, NodeId, Packet, StageId, Time, here, one_way};
use lastmeter_engine::site::{
    Asked, Code, Gauge, Granted, NodeKind, Order, Ports, Program, Site, Waiting, Wish, own,
};
use lastmeter_engine::{
    Context, Element, ElementId, Error, Meter, PortId, Report, ResourceKind, TimerId,
};
use std::collections::VecDeque;

/// The longest module; its sandbox has a limit of its own.
const MODULE_LEN_MAX: Bytes = Bytes::from_mib(1);
/// The longest text of a measured cost.
const MEASURED_LEN_MAX: Bytes = Bytes(4096);
/// The word for a cost that `plugin bench --save` has measured.
const MEASURED: &str = "measured";
/// The largest differentiated services code point (DSCP).
const DSCP_MAX: u8 = 63;
/// Shares are counted in parts of a million.
const MILLION: f64 = 1e6;

/// How experiments describe it.
pub const PAGE: &Page = &Page {
    name: "plugin",
    family: Family::Node,
    what: "An owner's program, which decides about each packet: the same module as on a device, \
           in the time of the run.",
    ports: "any in --> [ wait ] --> (cost) --> program --> link towards the destination",
    params: &[
        Param::optional("module", ParamKind::Text, "an `expression`")
            .is("the WebAssembly module, relative to the experiment file"),
        Param::optional("expression", ParamKind::Text, "a `module`")
            .is("a policy in the language of docs/expressions.md, instead"),
        Param::or("config", ParamKind::Text, "").is("what the module is initialised with"),
        Param::or("fail", FAILS, "reload").is("what becomes of packets when the module fails"),
        Param::or("cost", ParamKind::Text, MEASURED)
            .is("how long each packet keeps the processor busy, as \"9 ns\"; `measured`: what \
             `lastmeter plugin bench MODULE --save` found on this machine"),
        Param::or("packets", ParamKind::COUNT, "1000").is("limit on packets that wait for it"),
        Param::or("share", ParamKind::Number { min: 0.000_001, max: 1.0 }, "1").is(
            "what `lm_queue` reports as granted of each line: the link's rate is this share of it, \
             and a queue such as `drr` grants a flow a share of that",
        ),
        Param::optional("toward", ParamKind::Nodes(1), "all, both ways")
            .is("destinations whose packets it sees; the others pass at once"),
    ],
    counters: &[
        ("asked", "packets that it decided about"),
        ("denied", "packets that it dropped"),
        ("changed", "packets whose bytes it changed"),
        ("copied", "copies that it sent"),
        ("failed", "times that it failed"),
        ("unserved", "packets that were decided by `fail`"),
    ],
    drops: &[
        ("denied", "packets that the program denied, or that it could not decide about"),
        ("full", "packets that found too many waiting for it"),
        ("no link", "packets that the program sent to a link that the node does not have"),
        ("no route", "packets whose destination no link leads to"),
    ],
    deviations: &[
        "It is asked about one packet at a time. A device asks about up to 64: there a failure \
         costs more, and packets of a flow that are asked about together have the same mark.",
        "`to flow N` gives a packet the class of service N.",
    ],
    example: one_way! {
        "10 ms", "alice" [
            "gate" = r#"plugin = { expression = "(< length 1000)", cost = "100 ns" }"#,
        ] "bob",
        [r#"rate = "1 Gbit/s""#],
        "transfer" [r#"constant = { rate = "100 Mbit/s", size = [["1500 B", 1], ["64 B", 1]] }"#]
    },
    ..Page::at(here!())
};

/// Marks nodes with an owner's program.
struct Owned;

/// Its line.
pub const KIND: Kind = Kind { page: PAGE, fit, maker: &NodeKind { build, own: &Owned } };

/// The parameter of a host with a plugin.
const IN_HOST: &str = "plugin";
/// What may become of packets when a module fails.
const FAILS: ParamKind = ParamKind::Choice(&["open", "closed", "reload"]);
/// The parameters of a host for a plugin behind its receive stages.
pub const OF_HOST: [Param; 4] = [
    Param::optional(IN_HOST, ParamKind::Text, "none").is(
        "a WebAssembly module that decides about each packet before the applications receive it, \
         as a last receive stage; relative to the experiment file",
    ),
    Param::or("plugin-config", ParamKind::Text, "").is("what the module is initialised with"),
    Param::or("plugin-fail", FAILS, "reload").is("what becomes of packets when it fails"),
    Param::or("plugin-cost", ParamKind::Text, MEASURED)
        .is("its time for each packet on the processor, as for the node `plugin`"),
];

/// Whether a node has an owner's program.
pub fn is_in(kind: &Nested) -> bool {
    own::<Owned>(kind).is_some() || kind.values.has(IN_HOST)
}

/// What an experiment says about a program.
struct Wanted {
    module: Option<String>,
    expression: String,
    config: String,
    fail: String,
    cost: String,
}

impl Wanted {
    fn of(values: &Values) -> Wanted {
        Wanted {
            module: values.given("module"),
            expression: values.given("expression").unwrap_or_default(),
            config: values.get("config"),
            fail: values.get("fail"),
            cost: values.get("cost"),
        }
    }
    fn of_host(values: &Values) -> Option<Wanted> {
        Some(Wanted {
            module: Some(values.given(IN_HOST)?),
            expression: String::new(),
            config: values.get("plugin-config"),
            fail: values.get("plugin-fail"),
            cost: values.get("plugin-cost"),
        })
    }
}

fn fit(values: &Values) -> Result<(), Misfit> {
    let (module, expression) = (values.has("module"), values.has("expression"));
    if module == expression {
        let param = if module { "module" } else { "config" };
        let found = if module { "both a module and an expression" } else { "no program" };
        let right = "give either `module` or `expression`";
        return Err(Misfit::new(param, found.to_owned(), right));
    }
    fit_cost(values, "cost")?;
    if expression && values.get::<String>("cost") == MEASURED {
        let found = "the cost of an expression has not been measured".to_owned();
        return Err(Misfit::new("cost", found, "write a time, as cost = \"20 ns\""));
    }
    Ok(())
}

/// Whether the cost of this parameter can be read.
fn fit_cost(values: &Values, param: &'static str) -> Result<(), Misfit> {
    let cost: String = values.get(param);
    if cost != MEASURED {
        let wrong = |error: String| Misfit::new(param, error, "write a time, as \"9 ns\"");
        Duration::parse(&cost).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(())
}

/// Whether the values of a host's plugin fit each other.
///
/// # Errors
/// If its cost cannot be read.
pub fn fit_host(values: &Values) -> Result<(), Misfit> {
    fit_cost(values, "plugin-cost")
}

/// The program of these values, and what a packet costs it.
///
/// # Errors
/// If it cannot be read, is refused, or has no measured cost.
fn load(wanted: &Wanted, site: &Site<'_>) -> Result<(Box<dyn Program>, Duration), String> {
    let Wanted { module, expression, config, fail, cost } = wanted;
    let programs = site.network.programs().ok_or(
        "this program has no sandbox for plugins: `lastmeter run` starts lastmeterd, which has, \
         where `make devices` has built it",
    )?;
    let bytes = module.as_ref().map(|path| site.read(path, MODULE_LEN_MAX)).transpose()?;
    let code = bytes.as_deref().map_or(Code::Expression(expression), Code::Module);
    let order = Order { name: site.name, code, config, fail, seed: site.seed };
    let program = programs.load(&order)?;
    let cost = match (module, &bytes) {
        (Some(path), Some(bytes)) if cost == MEASURED => {
            let path = format!("{}.cost.toml", path.strip_suffix(".wasm").unwrap_or(path));
            let right = |error| {
                format!(
                    "{error}; give a `cost`, or measure it: lastmeter plugin bench MODULE --save"
                )
            };
            let text = site.read(&path, MEASURED_LEN_MAX).map_err(right)?;
            let text = String::from_utf8(text).map_err(|_| format!("`{path}` is not text"))?;
            programs.measured(bytes, &text).map_err(right)?
        }
        _ => Duration::parse(cost).map_err(|error| error.to_string())?,
    };
    Ok((program, cost))
}

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let resource = site.resource("plugin", "", ResourceKind::Cpu);
    let stage = site.stage("plugin", Some(&resource));
    let links = site.neighbours.len();
    let (program, cost) = match site.names.is_without(site.group) {
        true => (None, Duration::ZERO),
        false => {
            let (program, cost) = load(&Wanted::of(values), site)?;
            (Some(program), stage.time(cost))
        }
    };
    let share: f64 = values.get("share");
    let queues = (0..links).map(|link| {
        let rate = site.network.rate(site.node, link)?;
        Some((site.gauge(link), rate.scale_floor(MILLION as u64, parts(share))))
    });
    let queues = queues.collect::<Vec<_>>();
    let toward: Option<Vec<String>> = values.given("toward");
    let toward = toward.map(|names| site.nodes(&names)).transpose()?;
    let mut routes = Vec::new();
    for &(to, link) in &site.routes {
        let entry = to.0 as usize;
        routes.resize(routes.len().max(entry + 1), None);
        routes[entry] = Some(link as u16);
    }
    let element = Plugged {
        program,
        cost,
        stage: stage.id,
        meter: Some(Meter::new(resource.id)),
        waiting: VecDeque::new(),
        packets_max: values.get("packets"),
        free_at: Time::START,
        queues,
        share: parts(share),
        seen: Vec::new(),
        toward,
        routes,
        links: links as u16,
        counts: Counts::default(),
        bytes: Vec::new(),
    };
    let element = site.add(element)?;
    Ok(Ports::each(element, 0..links))
}

/// The plugin of a host, not yet in its place.
pub struct Hosted {
    program: Option<Box<dyn Program>>,
    /// What each packet costs the processor.
    pub cost: Duration,
}

/// The name of the stage of a host's plugin.
pub const STAGE: &str = "plugin";

/// The plugin that a host's values name, if any.
///
/// # Errors
/// As for the node.
pub fn of_host(values: &Values, site: &Site<'_>) -> Result<Option<Hosted>, Error> {
    let Some(wanted) = Wanted::of_host(values) else { return Ok(None) };
    if site.names.is_without(site.group) {
        return Ok(Some(Hosted { program: None, cost: Duration::ZERO }));
    }
    let (program, cost) = load(&wanted, site)?;
    Ok(Some(Hosted { program: Some(program), cost }))
}

impl Hosted {
    /// Adds it to the graph, in front of the applications: its input and output are 0. If no stage of the host bears
    /// its cost (`charges`), it has a processor of its own.
    ///
    /// # Errors
    /// If the graph is full.
    pub fn add(self, site: &mut Site<'_>, charges: bool) -> Result<ElementId, Error> {
        let resource = charges.then(|| site.resource("plugin", ".plugin", ResourceKind::Cpu));
        let stage = site.stage(STAGE, resource.as_ref());
        let element = Plugged {
            cost: if charges { stage.time(self.cost) } else { Duration::ZERO },
            program: self.program,
            stage: stage.id,
            meter: resource.map(|resource| Meter::new(resource.id)),
            waiting: VecDeque::new(),
            packets_max: u64::MAX,
            free_at: Time::START,
            queues: Vec::new(),
            share: MILLION as u64,
            seen: Vec::new(),
            toward: None,
            routes: vec![Some(0); site.network.len()],
            links: 1,
            counts: Counts::default(),
            bytes: Vec::new(),
        };
        site.graph.add(format!("{} plugin", site.name), element)
    }
}

/// A share in parts of a million.
fn parts(share: f64) -> u64 {
    ((share * MILLION).round() as u64).max(1)
}

#[derive(Debug, Default)]
struct Counts {
    asked: u64,
    denied: u64,
    changed: u64,
    copied: u64,
}

/// A packet that waits, and the link on which it came.
type Arrived = (Packet, u16);

/// A node with a program.
struct Plugged {
    /// Absent in the what-if without it.
    program: Option<Box<dyn Program>>,
    cost: Duration,
    stage: StageId,
    /// Absent where a stage of the host bears the cost.
    meter: Option<Meter>,
    waiting: VecDeque<Arrived>,
    packets_max: u64,
    /// When the processor is done with the last packet.
    free_at: Time,
    /// What waits for each link, and the rate of its whole line.
    queues: Vec<Option<(Gauge, lastmeter_base::Rate)>>,
    share: u64,
    /// The same as the program sees it.
    seen: Vec<Option<Waiting>>,
    toward: Option<Vec<NodeId>>,
    /// The link towards each destination.
    routes: Vec<Option<u16>>,
    links: u16,
    counts: Counts,
    bytes: Vec<u8>,
}

const FREE: TimerId = TimerId(0);

impl Plugged {
    /// Begins with every packet that is due.
    fn serve(&mut self, cx: &mut Context<'_>) {
        while self.free_at <= cx.now() {
            let Some((mut packet, link)) = self.waiting.pop_front() else { return };
            let started = self.free_at.max(packet.entered);
            if let Some(meter) = &mut self.meter {
                if started > self.free_at {
                    meter.rest(self.free_at);
                }
                meter.serve(started, self.stage);
                meter.moved(packet.len);
            }
            self.free_at = started + self.cost;
            if self.meter.is_some() && cx.collecting() {
                packet.visit(self.stage, started - packet.entered, self.cost, Duration::ZERO);
            }
            self.decide(cx, packet, link);
        }
        if !self.waiting.is_empty() {
            cx.arm(FREE, self.free_at);
        }
    }

    fn decide(&mut self, cx: &mut Context<'_>, mut packet: Packet, link: u16) {
        let Some(program) = &mut self.program else { return self.forward(cx, packet, None) };
        self.counts.asked += 1;
        self.seen.clear();
        let (share, queues) = (self.share, self.queues.iter());
        self.seen.extend(queues.map(|queue| {
            let (gauge, rate) = queue.as_ref()?;
            let Granted { len, share: granted } = gauge.granted(&packet);
            Some(Waiting { len, share: granted * share / Granted::WHOLE, rate: *rate })
        }));
        self.bytes.clear();
        match packet.content.is_empty() {
            true => imagine(&packet, &mut self.bytes),
            false => self.bytes.extend_from_slice(&packet.content),
        }
        // A short frame has more bytes than its packet.
        let len = ip_len(&self.bytes).unwrap_or(packet.len.0.min(u32::MAX.into()) as u32);
        let asked = Asked { link, arrival: packet.entered, len, bytes: &self.bytes };
        let to = match program.decide(cx.now(), &asked, &self.seen) {
            Wish::Pass => None,
            Wish::Deny => {
                self.counts.denied += 1;
                return cx.drop(packet, Some(self.stage), "denied");
            }
            Wish::Changed { seen, bytes } => {
                self.counts.changed += 1;
                self.change(&mut packet, seen, &bytes);
                None
            }
            Wish::Link(to) => Some(to),
            Wish::Flow(flow) => {
                packet.class = flow.min(u8::MAX.into()) as u8;
                None
            }
            Wish::Copy(to) => {
                self.counts.copied += 1;
                let copy = impair::copy(cx, &packet);
                self.forward(cx, copy, Some(to));
                None
            }
        };
        self.forward(cx, packet, to);
    }

    /// The packet with other first bytes, and what follows from them.
    fn change(&mut self, packet: &mut Packet, seen: usize, bytes: &[u8]) {
        let seen = seen.min(self.bytes.len());
        let len = (packet.len.0 + bytes.len() as u64).saturating_sub(seen as u64);
        packet.len = Bytes(len.max(1));
        let (ecn, mut class) = marks(bytes).unwrap_or((packet.ecn, packet.class));
        if class == packet.class & DSCP_MAX {
            class = packet.class;
        }
        // A packet without bytes stays so unless more than its marks changed.
        let differs = bytes.iter().zip(&self.bytes[..seen]).enumerate();
        let mut differs = differs.filter(|(at, (new, old))| new != old && !is_mark(*at));
        if !packet.content.is_empty() || bytes.len() != seen || differs.next().is_some() {
            let rest = self.bytes[seen..].iter();
            packet.content = bytes.iter().chain(rest).copied().collect();
        }
        (packet.ecn, packet.class) = (ecn, class);
    }

    /// Sends a packet when the processor is done with it.
    fn forward(&mut self, cx: &mut Context<'_>, packet: Packet, to: Option<u16>) {
        let route = self.routes.get(packet.destination.0 as usize).copied().flatten();
        match to.or(route) {
            Some(link) if link < self.links => {
                cx.send_at(PortId(link), packet, self.free_at.max(cx.now()));
            }
            Some(_) => cx.drop(packet, Some(self.stage), "no link"),
            None => cx.drop(packet, Some(self.stage), "no route"),
        }
    }
}

impl Element for Plugged {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        let concerned =
            self.toward.as_ref().is_none_or(|nodes| nodes.contains(&packet.destination));
        if !concerned {
            let route = self.routes.get(packet.destination.0 as usize).copied().flatten();
            return match route {
                Some(link) => cx.send(PortId(link), packet),
                None => cx.drop(packet, Some(self.stage), "no route"),
            };
        }
        if self.waiting.len() as u64 >= self.packets_max {
            return cx.drop(packet, Some(self.stage), "full");
        }
        packet.entered = cx.now();
        self.waiting.push_back((packet, port.0));
        self.serve(cx);
    }

    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.serve(cx);
    }

    fn report(&self, out: &mut Report) {
        out.held(self.waiting.len() as u64);
        if let Some(mut meter) = self.meter.clone() {
            if self.free_at <= out.now() {
                meter.rest(self.free_at);
            }
            out.meter(&meter);
        }
        let Counts { asked, denied, changed, copied } = self.counts;
        out.count("asked", asked);
        out.count("denied", denied);
        out.count("changed", changed);
        out.count("copied", copied);
        if let Some(program) = &self.program {
            program.counts(&mut |name, value| out.count(name, value));
        }
    }
}

/// The first bytes of a packet that has only a length; its class is in the DSCP, its mark beside it.
fn imagine(packet: &Packet, bytes: &mut Vec<u8>) {
    imagine::imagine(packet, bytes);
    let ecn = match packet.ecn {
        Ecn::NotCapable => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    };
    let class = (packet.class & DSCP_MAX) << 2 | ecn;
    if let Some(byte) = bytes.get_mut(1) {
        *byte = class;
    }
    if let Some(header) = bytes.first_chunk_mut::<20>() {
        // The sum was made for a class of zero (RFC 1624).
        let sum = u32::from(!u16::from_be_bytes([header[10], header[11]])) + u32::from(class);
        let sum = (sum & 0xffff) + (sum >> 16);
        [header[10], header[11]] = (!(sum as u16)).to_be_bytes();
    }
}

/// Whether this byte of an IPv4 header changes with the packet's class or mark.
fn is_mark(at: usize) -> bool {
    matches!(at, 1 | 10 | 11)
}

/// The congestion mark and the class that IP packets carry.
fn marks(bytes: &[u8]) -> Option<(Ecn, u8)> {
    let (first, second) = (bytes.first()?, bytes.get(1)?);
    let class = match first >> 4 {
        4 => *second,
        6 => first << 4 | second >> 4,
        _ => return None,
    };
    let ecn = [Ecn::NotCapable, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(class & 3)];
    Some((ecn, class >> 2))
}

/// The length that an IP packet says it has.
fn ip_len(bytes: &[u8]) -> Option<u32> {
    let at = |at: usize| Some(u32::from(*bytes.get(at)?) << 8 | u32::from(*bytes.get(at + 1)?));
    match bytes.first()? >> 4 {
        4 => at(2),
        6 => at(4).map(|len| len + 40),
        _ => None,
    }
}
