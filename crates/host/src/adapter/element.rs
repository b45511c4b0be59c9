//! A transmitting adapter, as an element (E-38, E-76, E-126).
//!
//! ```text
//! any in --> [ the driver's queue ] --> interface --> transfer --> network --> out 0
//!            drops: `full`              '-- at most `depth` messages --'
//!            the queue's own; on the adapter `no buffer`, `longer than the buffers`,
//!            `too many collisions`
//! ```
//!
//! A packet is sent as a message of its class, due at the packet's deadline. It leaves the driver's queue when the
//! adapter accepts it. While `depth` messages are in flight, or no buffer is free and the description says that
//! the connection waits, packets wait in the driver.

use super::description::Description;
use super::engines::Place;
use super::transmitter::{Order, Refusal, Span, Transmitter, Variation, What};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Packet, StageId, Stream, here};
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{Context, Element, Error, PortId, Report, ResourceKind, TimerId};
use lastmeter_net::queue::{self, Queue};
use std::collections::BTreeMap;

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "adapter",
    family: Family::Node,
    what: "The transmit side of a network adapter, from its description in five sections.",
    ports: "any in --> [ driver ] --> (interface, transfer, network) --> link towards the \
            destination",
    params: &[
        Param::required("device", ParamKind::Profile("devices")).is("its description"),
        Param::optional("depth", ParamKind::Integer { min: 1, max: 65_536 }, "as described")
            .is("messages in flight at once"),
        Param::optional("banks", ParamKind::Integer { min: 1, max: 16 }, "as described")
            .is("banks of memory with a bus of their own"),
        Param::or("simple-interface", ParamKind::Flag, "false")
            .is("whether a message needs only one command and one response"),
        Param::or("host", ParamKind::Choice(&["constant", "exponential"]), "constant")
            .is("distribution of the host's processing time"),
        Param::or("processors", ParamKind::Integer { min: 1, max: 1_000_000 }, "1")
            .is("speed-up factor of all processors"),
        Param::or("queue", ParamKind::Nested(Family::Queue), "{ drop-tail = {} }")
            .is("the driver's queue"),
    ],
    source: "Indiresan 1997, sections 4.2, 4.3 and 5.2, and the sources of the description",
    deviations: &["Incoming packets do not pass through it: a host's `reception` models them."],
    counters: &[
        ("sent", "packets sent"),
        ("refused", "packets that the full queue of the driver refused"),
        ("dropped", "packets that the queue or the adapter dropped"),
    ],
    drops: &[
        ("full", "packets that the driver's queue had no room for"),
        ("longer than the buffers", "packets longer than the adapter's buffers"),
        ("no buffer", "packets that the adapter had no buffer for"),
        ("too many collisions", "packets given up after too many collisions"),
    ],
    example: r#"
duration = "200 ms"
[nodes]
host = { host = {} }
card = { adapter = { device = "cim", depth = 2, queue = { drop-tail = { packets = 4 } } } }
peer = { host = {} }
[[links]]
between = ["host", "card", "peer"]
[[traffic]]
name = "messages"
from = "host"
to = "peer"
constant = { rate = "16 Mbit/s", size = "4096 B" }
"#,
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

/// The names of the phases, each with its engine.
const PHASES: [(&str, usize); 4] =
    [("interface", 0), ("transfer", 1), ("set-up", 2), ("network", 2)];

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let described = site.profile::<Description>("device")?;
    site.source = Some(described.source.clone());
    let card = as_written(&described, values);
    let variation = match values.get::<String>("host").as_str() {
        "exponential" => Variation::Exponential,
        _ => Variation::None,
    };
    let queue = queue::build(&values.get("queue"), &queue::Site::of(site));
    let engines = ["interface", "transfer", "network"]
        .map(|role| site.resource(role, &format!(".{role}"), ResourceKind::Engine));
    let stages = PHASES.map(|(role, engine)| site.stage(role, Some(&engines[engine])));
    let place = Place {
        engines: engines.map(|engine| engine.id),
        stages: stages.map(|stage| stage.id),
        speeds: stages.map(|stage| stage.speed()),
    };
    let stream = site.stream("/host");
    let element = site.add(Adapter::new(card, variation, stream, queue, place))?;
    Ok(Ports::through(element))
}

/// The description with the experiment's overrides applied.
fn as_written(described: &Description, values: &Values) -> Description {
    let mut card = described.with_faster_processors(values.get("processors"));
    if values.get("simple-interface") {
        card = card.with_simple_interface();
    }
    if let Some(depth) = values.given("depth") {
        card.queueing.depth = depth;
    }
    if let Some(banks) = values.given("banks") {
        card.buffers.banks = banks;
    }
    card
}

/// An adapter as a node of a graph.
pub struct Adapter {
    card: Transmitter,
    driver: Box<dyn Queue>,
    /// A packet taken from the queue that the adapter could not yet accept.
    next: Option<Packet>,
    packets: BTreeMap<u64, Packet>,
    numbers: u64,
    depth: u64,
    stages: [StageId; 4],
    sent: u64,
    refused: u64,
    dropped: u64,
}

const DUE: TimerId = TimerId(0);

impl Adapter {
    /// An idle adapter.
    pub fn new(
        card: Description,
        variation: Variation,
        stream: Stream,
        driver: Box<dyn Queue>,
        place: Place,
    ) -> Adapter {
        let (depth, stages) = (card.queueing.depth, place.stages);
        Adapter {
            card: Transmitter::placed(card, variation, stream, place),
            driver,
            next: None,
            packets: BTreeMap::new(),
            numbers: 0,
            depth,
            stages,
            sent: 0,
            refused: 0,
            dropped: 0,
        }
    }

    fn lose(&mut self, cx: &mut Context<'_>, packet: Packet, reason: &'static str) {
        self.dropped += 1;
        cx.drop(packet, Some(self.stages[0]), reason);
    }

    /// Moves packets from the driver's queue while the adapter has room.
    fn give(&mut self, cx: &mut Context<'_>) {
        while self.card.outstanding() < self.depth {
            let packet = self.next.take().or_else(|| self.driver.dequeue(cx.now()));
            while let Some((packet, reason)) = self.driver.dropped() {
                self.lose(cx, packet, reason);
            }
            let Some(packet) = packet else { return };
            let order = Order {
                id: self.numbers,
                len: packet.len,
                class: packet.class,
                due: packet.deadline,
                connection: packet.path.0 << 16 ^ packet.flow.0,
            };
            match self.card.submit(cx.now(), order) {
                Ok(()) => {
                    self.packets.insert(order.id, packet);
                    self.numbers += 1;
                }
                Err(Refusal::TooLong) => self.lose(cx, packet, "longer than the buffers"),
                Err(Refusal::Depth | Refusal::Buffers) => {
                    self.next = Some(packet);
                    return;
                }
            }
        }
    }

    /// Acts on what the adapter has reported.
    fn take(&mut self, cx: &mut Context<'_>) {
        for event in self.card.events() {
            let reason = match event.what {
                What::WriteAck | What::AddressAck => continue,
                What::TransmitAck => None,
                What::Dropped => Some("no buffer"),
                What::GivenUp => Some("too many collisions"),
            };
            let Some(mut packet) = self.packets.remove(&event.order.id) else { continue };
            if let Some(reason) = reason {
                self.lose(cx, packet, reason);
                continue;
            }
            self.sent += 1;
            if cx.collecting() {
                visits(&mut packet, &event.phases, &self.stages);
            }
            cx.send(PortId(0), packet);
        }
    }

    fn act(&mut self, cx: &mut Context<'_>) {
        self.card.advance(cx.now());
        self.take(cx);
        self.give(cx);
        // The new order may have been dropped, or may have displaced another.
        self.take(cx);
        let ready = match self.next {
            None if self.card.outstanding() < self.depth => self.driver.ready_at(cx.now()),
            _ => None,
        };
        match self.card.ready_at().into_iter().chain(ready).min() {
            Some(at) => cx.arm(DUE, at),
            None => cx.disarm(DUE),
        }
    }
}

/// Records the phases of a packet in it: each waits from the end of the previous one.
fn visits(packet: &mut Packet, phases: &[Span; 4], stages: &[StageId; 4]) {
    let mut before = packet.entered;
    for (span, &stage) in phases.iter().zip(stages) {
        let blocked = (span.to - span.from).saturating_sub(span.served);
        packet.visit(stage, span.from - before, span.served, blocked);
        before = span.to;
    }
}

impl Element for Adapter {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        // Events due before the arrival are handled first.
        self.card.advance(cx.now());
        packet.entered = cx.now();
        if let Err(packet) = self.driver.enqueue(cx.now(), packet) {
            self.refused += 1;
            cx.drop(packet, Some(self.stages[0]), "full");
        }
        while let Some((packet, reason)) = self.driver.dropped() {
            self.lose(cx, packet, reason);
        }
        self.act(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.act(cx);
    }
    fn report(&self, out: &mut Report) {
        let waiting = self.driver.packets() + u64::from(self.next.is_some());
        out.held(waiting + self.packets.len() as u64);
        self.card.meters().for_each(|meter| out.meter(meter));
        out.count("sent", self.sent);
        out.count("refused", self.refused);
        out.count("dropped", self.dropped);
    }
}
