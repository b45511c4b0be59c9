//! A server: one queue, one resource, one packet at a time; a link's transmitter, or any single
//! station of queueing theory.
//!
//! ```text
//! in 0 --> [ queue ] --> (resource: time per packet) --> out 0        drops: `full`, the queue's
//! ```
//!
//! It has one timer, whatever the backlog, and none while it is idle: a packet whose service begins is
//! sent at once, to depart when its service ends. The next service starts when the last one ended, which
//! on a wall clock may be before now; so a late wake-up never slows the server down.

use crate::impair::RateTable;
use crate::queue::{self, Queue};
use lastmeter_base::kind::{Family, Kind, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{
    Bytes, Cost, Draw, Duration, Packet, Rate, StageId, Stream, Time, here, one_way,
};
use lastmeter_engine::site::{NodeKind, Ports, Site, Stage};
use lastmeter_engine::{
    Context, Element, Error, Level, Meter, PortId, Report, ResourceId, ResourceKind, TimerId,
};
use std::sync::Arc;

/// How experiments describe it as a node.
pub const PAGE: &Page = &Page {
    name: "station",
    family: Family::Node,
    what: "A queue with one server, which forwards what it has served.",
    ports: "any in --> [ queue ] --> (service) --> link towards the destination",
    params: &[
        Param::required("service", ParamKind::Draw)
            .is("how long each packet keeps the server busy"),
        Param::or("queue", ParamKind::Nested(Family::Queue), "{ drop-tail = {} }")
            .is("where packets wait for it"),
        queue::LENGTH,
    ],
    source: "Kleinrock, Queueing Systems, Volume 1, 1975: with Poisson traffic and exponential \
             service it is M/M/1",
    counters: &[
        ("served", "packets served"),
        ("refused", "packets that the queue had no room for"),
        ("dropped", "packets that the queue accepted and dropped later, or instead of others"),
        ("packets_most", "most packets that waited"),
    ],
    example: one_way! {
        "10 ms", "customers" [
            "desk" = r#"station = { service = { exponential = "1 us" } }"#,
        ] "exit",
        [],
        "customers" [r#"poisson = { rate = "6.4 Gbit/s", size = "1000 B" }"#]
    },
    ..Page::at(here!())
};

/// Its line.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let resource = site.resource("service", "", ResourceKind::Engine);
    let stage = site.stage("service", Some(&resource));
    let service = Service::Draw(values.get("service")).at(&stage);
    let queue: Nested = values.get("queue");
    let place = queue::Site::of(site);
    let place = queue::Site { records_length: values.get("queue-length"), ..place };
    let server = queue::serve(&queue, &place, service, stage.id, resource.id);
    site.add_boxed(server).map(Ports::through)
}

/// How long one packet keeps a server busy.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// As long as its bits, and `framing` more for each packet, take at a line rate.
    Line {
        /// The line rate.
        rate: Rate,
        /// Preamble, check sequence and gap, which take line time but are not part of the packet.
        framing: Bytes,
    },
    /// A time for each packet and for each byte.
    Cost(Cost),
    /// A random time, independent of the length.
    Draw(Draw),
    /// As long as its bits, and `framing` more, take at a rate that changes with time.
    Table {
        /// The rates.
        table: Arc<RateTable>,
        /// As with [`Service::Line`].
        framing: Bytes,
    },
}

impl Service {
    /// The service with the changes of its stage.
    #[must_use]
    pub fn at(self, stage: &Stage) -> Service {
        match self {
            _ if stage.free => Service::Cost(Cost::FREE),
            Service::Line { rate, framing } => Service::Line { rate: stage.rate(rate), framing },
            Service::Cost(Cost { per_packet, per_byte }) => Service::Cost(Cost {
                per_packet: stage.time(per_packet),
                per_byte: stage.per_byte(per_byte),
            }),
            Service::Draw(draw) => Service::Draw(stage.draw(&draw)),
            Service::Table { table, framing } => {
                let (numerator, denominator) = stage.speed();
                let table = RateTable::clone(&table).scale(numerator, denominator);
                Service::Table { table: table.into(), framing }
            }
        }
    }

    #[inline]
    pub(crate) fn time_for(&self, started: Time, len: Bytes, stream: &mut Stream) -> Duration {
        match self {
            Service::Line { rate, framing } => rate.time_for(len + *framing),
            Service::Cost(cost) => cost.time_for(len),
            Service::Draw(draw) => draw.sample(stream),
            Service::Table { table, framing } => table.time_for(started, len + *framing),
        }
    }
}

/// Serves a queue.
pub struct Server<Q> {
    queue: Q,
    service: Service,
    stage: StageId,
    meter: Meter,
    /// When the last service ends. The packets served have already been sent.
    free_at: Time,
    /// Whether the timer is armed, because a packet waits.
    awaited: bool,
    /// When the queue released the packets that it had held back.
    not_before: Time,
    served: u64,
    refused: u64,
    dropped: u64,
    packets_most: u64,
    /// How many packets wait, if that is to be recorded.
    length: Option<Box<Level>>,
}

const FREE: TimerId = TimerId(0);

impl<Q: Queue> Server<Q> {
    /// An idle server. Its time is accounted to `stage` and `resource`.
    pub fn new(queue: Q, service: Service, stage: StageId, resource: ResourceId) -> Server<Q> {
        Server {
            queue,
            service,
            stage,
            meter: Meter::new(resource),
            free_at: Time::START,
            awaited: false,
            not_before: Time::START,
            served: 0,
            refused: 0,
            dropped: 0,
            packets_most: 0,
            length: None,
        }
    }

    /// Records how long the queue had each length.
    #[must_use]
    pub fn recording_length(mut self, records: bool) -> Server<Q> {
        self.length = records.then(Box::default);
        self
    }

    #[inline]
    fn note_length(&mut self, now: Time) {
        if let Some(length) = &mut self.length {
            length.set(now, self.queue.packets());
        }
    }

    /// Accounts for packets that the queue itself has dropped.
    #[inline(always)]
    fn take_dropped(&mut self, cx: &mut Context<'_>) {
        while let Some((packet, reason)) = self.queue.dropped() {
            self.dropped += 1;
            cx.drop(packet, Some(self.stage), reason);
        }
    }

    /// Serves all packets that are due, each from when the server became free.
    #[inline]
    fn serve(&mut self, cx: &mut Context<'_>) {
        while self.free_at <= cx.now() {
            let packet = self.queue.dequeue(cx.now());
            self.take_dropped(cx);
            let Some(mut packet) = packet else { break };
            let started = self.free_at.max(packet.entered).max(self.not_before.min(cx.now()));
            if started > self.free_at {
                self.meter.rest(self.free_at);
            }
            let service = self.service.time_for(started, packet.len, cx.rng());
            self.meter.serve(started, self.stage);
            self.meter.moved(packet.len);
            self.free_at = started + service;
            self.served += 1;
            if cx.collecting() {
                packet.visit(self.stage, started - packet.entered, service, Duration::ZERO);
            }
            cx.send_at(PortId(0), packet, self.free_at);
        }
        if let Some(ready) = self.queue.ready_at(cx.now()) {
            self.awaited = true;
            if ready > cx.now() {
                self.not_before = ready;
            }
            cx.arm(FREE, ready.max(self.free_at));
        }
    }
}

impl<Q: Queue> Element for Server<Q> {
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        packet.entered = cx.now();
        let enqueued = self.queue.enqueue(cx.now(), packet);
        self.take_dropped(cx);
        if let Err(packet) = enqueued {
            self.refused += 1;
            cx.drop(packet, Some(self.stage), "full");
            return;
        }
        // If the server waits only for its queue, the newcomer may be eligible at once.
        if !self.awaited || self.free_at <= cx.now() {
            self.serve(cx);
        } else if self.not_before > self.free_at
            && let Some(ready) = self.queue.ready_at(cx.now())
        {
            // The newcomer may be eligible before the packet that the timer waits for.
            self.not_before = ready.max(self.free_at);
            cx.arm(FREE, self.not_before);
        }
        self.packets_most = self.packets_most.max(self.queue.packets());
        self.note_length(cx.now());
    }

    #[inline]
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.awaited = false;
        self.serve(cx);
        self.note_length(cx.now());
    }

    fn report(&self, out: &mut Report) {
        out.held(self.queue.packets());
        let mut meter = self.meter.clone();
        if self.free_at <= out.now() {
            meter.rest(self.free_at);
        }
        out.meter(&meter);
        out.count("served", self.served);
        out.count("refused", self.refused);
        out.count("dropped", self.dropped);
        out.count("packets_most", self.packets_most);
        if let Some(length) = &self.length {
            out.level("length", "packets", length);
        }
        self.queue.counts(&mut |name, value| out.count(name, value));
    }
}
