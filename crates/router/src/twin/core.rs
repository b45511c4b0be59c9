//! The core of a port processor as a node of a model: the loop of the live one, in virtual time.
//!
//! ```text
//! link i --> [ ring i: 1024 ] --+
//! link j --> [ ring j: 1024 ] --+--> batch of up to 64 of each: receive, classify ... --> links    drops: `full`
//!                               |    (core: a cost for each packet and byte, by stage)
//!            nothing there: sleeps until a packet arrives
//! ```
//!
//! Packets of a batch leave together, when all of it is done, as they do live. What the kernel does to receive a packet
//! is a stage of the same core; a packet that finds its ring full costs nothing.
//!
//! Not modelled: the kernel's thread that receives runs between batches, not in them; a core that is taken away.

use crate::port_processor::{BATCH, RECEIVING};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Packet, PerByte, StageId, Time, here};
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{Context, Element, Error, Meter, PortId, Report, ResourceKind, TimerId};
use std::collections::VecDeque;

/// Stages of a packet, in order: parameters of the node.
pub const STAGES: [&str; 7] =
    ["receive", "forward", "classify", "plugins", "lookup", "queue", "cross"];
/// Those that have a cost per byte, too.
pub const BYTES: [(&str, usize); 2] = [("receive-bytes", 0), ("forward-bytes", 1)];

/// Its page.
pub const PAGE: &Page = &Page {
    name: "port-processor-core",
    family: Family::Node,
    what: "The core of a live router's port processor: rings, batches, a cost for each stage.",
    ports: "links --> [ rings ] --> batch of up to 64 of each --> links",
    params: &[
        Param::or("receive", ParamKind::Time, "0 s").is("the kernel's work to receive a packet"),
        Param::or("receive-bytes", ParamKind::PerByte, "0 ps/B").is("the same for each byte"),
        Param::or("forward", ParamKind::Time, "0 s").is("parsing, next hop, sending"),
        Param::or("forward-bytes", ParamKind::PerByte, "0 ps/B").is("the same for each byte"),
        Param::or("classify", ParamKind::Time, "0 s").is("the filters"),
        Param::or("plugins", ParamKind::Time, "0 s").is("all plugins that a packet passes"),
        Param::or("lookup", ParamKind::Time, "0 s").is("what a table costs beyond a single route"),
        Param::or("queue", ParamKind::Time, "0 s").is("a queue for each flow, beyond drop-tail"),
        Param::or("cross", ParamKind::Time, "0 s").is("going to another port processor"),
        Param::or("wake", ParamKind::Time, "0 s").is("from a packet's arrival to work on it"),
    ],
    counters: &[("batches", "batches"), ("woken", "how often it was woken up")],
    drops: &[
        ("full", "packets that found their ring full"),
        ("no route", "packets to a destination that none of its links leads to"),
    ],
    example: "",
    ..Page::at(here!())
};

/// Its line, for a registry of one's own.
pub static KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let core = site.resource("core", "", ResourceKind::Cpu);
    let mut stages = Vec::new();
    for (at, name) in STAGES.into_iter().enumerate() {
        let time: Duration = values.get(name);
        let bytes = BYTES.iter().find(|(_, of)| *of == at);
        let per_byte = bytes.map_or(PerByte::ZERO, |(key, _)| values.get(key));
        if time == Duration::ZERO && per_byte == PerByte::ZERO {
            continue;
        }
        let stage = site.stage(name, Some(&core));
        let cost = (stage.time(time), stage.per_byte(per_byte));
        stages.push(Cost { stage: stage.id, packet: cost.0, byte: cost.1 });
    }
    let mut routes = Vec::new();
    for &(to, link) in &site.routes {
        let entry = to.0 as usize;
        routes.resize(routes.len().max(entry + 1), None);
        routes[entry] = Some(link as u16);
    }
    let links = site.neighbours.len();
    let element = site.add(Core {
        rings: (0..links).map(|_| VecDeque::new()).collect(),
        batch: Vec::new(),
        stages,
        routes,
        meter: Meter::new(core.id),
        wake: values.get("wake"),
        state: State::Asleep,
        batches: 0,
        woken: 0,
    })?;
    Ok(Ports::each(element, 0..links))
}

#[derive(Clone, Copy)]
struct Cost {
    stage: StageId,
    packet: Duration,
    byte: PerByte,
}

impl Cost {
    fn of(&self, len: Bytes) -> Duration {
        self.packet + self.byte.time_for(len)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Asleep,
    /// A packet wakes it up.
    Waits,
    /// Works on a batch since then.
    Busy(Time),
}

struct Core {
    rings: Vec<VecDeque<Packet>>,
    batch: Vec<Packet>,
    stages: Vec<Cost>,
    /// The link towards each destination.
    routes: Vec<Option<u16>>,
    meter: Meter,
    wake: Duration,
    state: State,
    batches: u64,
    woken: u64,
}

const DUE: TimerId = TimerId(0);

impl Core {
    /// Begins with what is there.
    fn turn(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        for ring in &mut self.rings {
            let count = ring.len().min(BATCH);
            self.batch.extend(ring.drain(..count));
        }
        if self.batch.is_empty() {
            self.meter.rest(now);
            self.state = State::Asleep;
            return;
        }
        self.batches += 1;
        self.state = State::Busy(now);
        let work: Duration = self.stages.iter().map(|cost| spent(cost, &self.batch)).sum();
        cx.arm(DUE, now + work);
    }
    /// A batch is done: its packets leave.
    fn done(&mut self, cx: &mut Context<'_>, began: Time) {
        serve(&mut self.meter, &self.stages, &self.batch, began, cx.now());
        for mut packet in std::mem::take(&mut self.batch) {
            self.meter.moved(packet.len);
            if cx.collecting() {
                let own: Duration = self.stages.iter().map(|cost| cost.of(packet.len)).sum();
                // It waits in its ring, and for the others of its batch.
                let mut wait = cx.now().saturating_since(packet.entered) - own;
                for cost in &self.stages {
                    packet.visit(cost.stage, wait, cost.of(packet.len), Duration::ZERO);
                    wait = Duration::ZERO;
                }
            }
            match self.routes.get(packet.destination.0 as usize).copied().flatten() {
                Some(link) => cx.send(PortId(link), packet),
                None => cx.drop(packet, None, "no route"),
            }
        }
    }
}

/// The time of a stage for all packets of a batch.
fn spent(cost: &Cost, batch: &[Packet]) -> Duration {
    batch.iter().map(|packet| cost.of(packet.len)).sum()
}

/// Enters a batch that began then, up to now: stage by stage.
fn serve(meter: &mut Meter, stages: &[Cost], batch: &[Packet], began: Time, now: Time) {
    let mut at = began;
    for cost in stages {
        if at >= now {
            break;
        }
        meter.serve(at, cost.stage);
        at += spent(cost, batch);
    }
}

impl Element for Core {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        let ring = &mut self.rings[usize::from(port.0)];
        if ring.len() >= RECEIVING {
            let stage = self.stages.first().map(|cost| cost.stage);
            return cx.drop(packet, stage, "full");
        }
        packet.entered = cx.now();
        ring.push_back(packet);
        if self.state == State::Asleep {
            self.woken += 1;
            self.state = State::Waits;
            cx.arm(DUE, cx.now() + self.wake);
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        if let State::Busy(began) = self.state {
            self.done(cx, began);
        }
        self.turn(cx);
    }
    fn report(&self, out: &mut Report) {
        let waiting = self.rings.iter().map(VecDeque::len).sum::<usize>() + self.batch.len();
        out.held(waiting as u64);
        let mut meter = self.meter.clone();
        if let State::Busy(began) = self.state {
            serve(&mut meter, &self.stages, &self.batch, began, out.now());
        }
        out.meter(&meter);
        out.count("batches", self.batches);
        out.count("woken", self.woken);
    }
}
