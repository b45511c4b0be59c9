//! A server: one queue, one resource, one packet at a time; a link's transmitter, or any single
//! station of queueing theory.
//!
//! ```text
//! in 0 --> [ queue ] --> (resource: time per packet) --> out 0        drops: `full`
//! ```
//!
//! One timer, whatever the backlog. The next service starts when the last one ended, which on a
//! wall clock may lie before now; so a late wake-up never slows the server down.

use crate::queue::Queue;
use lastmeter_base::{Bytes, Cost, Draw, Duration, Packet, Rate, StageId, Stream, Time};
use lastmeter_engine::{Context, Element, Meter, PortId, Report, ResourceId, TimerId};

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
    /// So much for each packet and each byte.
    Cost(Cost),
    /// A random time, whatever its length.
    Draw(Draw),
}

impl Service {
    #[inline]
    fn time_for(&self, len: Bytes, stream: &mut Stream) -> Duration {
        match self {
            Service::Line { rate, framing } => rate.time_for(len + *framing),
            Service::Cost(cost) => cost.time_for(len),
            Service::Draw(draw) => draw.sample(stream),
        }
    }
}

/// Serves a queue.
pub struct Server<Q> {
    queue: Q,
    service: Service,
    stage: StageId,
    meter: Meter,
    serving: Option<Serving>,
    served: u64,
    refused: u64,
    packets_most: u64,
}

struct Serving {
    packet: Packet,
    started: Time,
    done: Time,
}

const SERVICE: TimerId = TimerId(0);

impl<Q: Queue> Server<Q> {
    /// A server that has nothing to do yet. Its time is accounted to `stage` and `resource`.
    pub fn new(queue: Q, service: Service, stage: StageId, resource: ResourceId) -> Server<Q> {
        Server {
            queue,
            service,
            stage,
            meter: Meter::new(resource),
            serving: None,
            served: 0,
            refused: 0,
            packets_most: 0,
        }
    }

    /// Serves the next packet, if there is one, from `free` on.
    #[inline]
    fn serve(&mut self, cx: &mut Context<'_>, free: Time) {
        if let Some(packet) = self.queue.dequeue(cx.now()) {
            let started = free.max(packet.entered);
            let done = started + self.service.time_for(packet.len, cx.rng());
            self.meter.serve(started, self.stage);
            self.meter.moved(packet.len);
            self.serving = Some(Serving { packet, started, done });
            cx.arm(SERVICE, done);
        } else if let Some(at) = self.queue.ready_at(cx.now()) {
            cx.arm(SERVICE, at); // The queue holds back what it has.
        }
    }
}

impl<Q: Queue> Element for Server<Q> {
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        packet.entered = cx.now();
        if let Err(packet) = self.queue.enqueue(cx.now(), packet) {
            self.refused += 1;
            cx.drop(packet, Some(self.stage), "full");
            return;
        }
        if self.serving.is_none() {
            self.serve(cx, cx.now());
        } else {
            self.packets_most = self.packets_most.max(self.queue.packets());
        }
    }

    #[inline]
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        if self.serving.is_none() {
            self.serve(cx, cx.now());
        }
        while let Some(serving) = self.serving.take_if(|serving| serving.done <= cx.now()) {
            let Serving { mut packet, started, done } = serving;
            if cx.collecting() {
                let wait = started - packet.entered;
                packet.visit(self.stage, wait, done - started, Duration::ZERO);
            }
            self.served += 1;
            cx.send(PortId(0), packet);
            self.serve(cx, done);
            if self.serving.is_none() {
                self.meter.rest(done);
            }
        }
    }

    fn report(&self, out: &mut Report) {
        out.held(self.queue.packets() + u64::from(self.serving.is_some()));
        out.meter(&self.meter);
        out.count("served", self.served);
        out.count("refused", self.refused);
        out.count("packets_most", self.packets_most);
    }
}
