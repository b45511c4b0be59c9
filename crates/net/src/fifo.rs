//! A first-in, first-out server: when each packet's service begins and ends is known as soon as it
//! arrives.
//!
//! ```text
//! in 0 --> [ newest | ... | oldest ] --> (resource: time per packet) --> out 0       drops: `full`
//! ```
//!
//! So it needs no timer, and a waiting packet has already been sent, to depart when its service
//! ends. Its counts are those of a [`Server`](crate::server::Server) with a
//! [`DropTail`](crate::queue::DropTail) queue, with half of the events.

use crate::server::Service;
use lastmeter_base::{Bytes, Duration, Packet, Rate, StageId, Time};
use lastmeter_engine::{Context, Element, Meter, PortId, Report, ResourceId};
use std::collections::VecDeque;

/// The service time of the previous packet: most packets have its length, and a division takes longer
/// than a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rate: Rate,
    len: Bytes,
    time: Duration,
}

impl Pace {
    /// For a line of this rate, before its first packet.
    pub fn new(rate: Rate) -> Pace {
        Pace { rate, len: Bytes::ZERO, time: Duration::ZERO }
    }
    /// Time to serialise `len` at the rate.
    #[inline]
    pub fn time_for(&mut self, len: Bytes) -> Duration {
        self.time_at(self.rate, len)
    }
    /// The same at the rate of another line, which is often the rate of the last one.
    #[inline]
    pub fn time_at(&mut self, rate: Rate, len: Bytes) -> Duration {
        if self.len != len || self.rate != rate {
            *self = Pace { rate, len, time: rate.time_for(len) };
        }
        self.time
    }
}

/// The state of a server and its queue, in one and a half cache lines.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Fifo {
    /// When the last known service ends.
    free_at: Time,
    /// When the service of each waiting packet begins, and its length; oldest first. Those whose service has begun are
    /// removed when that matters, several at a time: how many each arrival would remove no processor can predict.
    waiting: VecDeque<(Time, Bytes)>,
    bytes: Bytes,
    waiting_most: u64,
    accepted: u64,
    /// When it was not idle.
    busy: Duration,
    /// When the last packet was accepted: services that began by then do not count as waiting.
    updated: Time,
    moved: Bytes,
}

impl Fifo {
    /// Removes all packets whose service has begun by now.
    #[inline(never)]
    pub(crate) fn settle(&mut self, cx: &Context<'_>) {
        self.begin_services(|begins, updated| begins <= updated || cx.is_past(begins));
    }

    /// An upper bound of the packets that wait, which [`Fifo::settle`] makes exact.
    #[inline]
    pub(crate) fn packets(&self) -> u64 {
        self.waiting.len() as u64
    }
    /// The bytes of these packets.
    #[inline]
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// A packet of `len` arrives; `service` gives its service time, given when that begins. Returns when
    /// service begins and how long it takes.
    #[inline]
    pub fn accept(
        &mut self,
        now: Time,
        len: Bytes,
        service: impl FnOnce(Time) -> Duration,
    ) -> (Time, Duration) {
        let begins = self.free_at.max(now);
        let service = service(begins);
        self.free_at = begins + service;
        // That is `service`, unless it ends beyond the range of time.
        self.busy += self.free_at - begins;
        self.moved += len;
        self.accepted += 1;
        if begins > now {
            self.updated = now;
            if self.packets() >= self.waiting_most {
                self.note_most();
            }
            self.bytes += len;
            self.waiting.push_back((begins, len));
        } else if !self.waiting.is_empty() {
            // Start again at the beginning: a ring with few entries then stays in few cache lines.
            self.waiting.clear();
            self.bytes = Bytes::ZERO;
        }
        (begins, service)
    }

    /// Notes that one packet more waits than those that wait.
    #[inline(never)]
    fn note_most(&mut self) {
        self.begin_services(|begins, updated| begins <= updated);
        self.waiting_most = self.waiting_most.max(self.packets() + 1);
    }

    /// Removes the oldest packets as long as their service has begun, given when it does and [`Fifo::updated`].
    #[inline]
    fn begin_services(&mut self, has_begun: impl Fn(Time, Time) -> bool) {
        let updated = self.updated;
        while let Some((_, len)) = self.waiting.pop_front_if(|next| has_begun(next.0, updated)) {
            self.bytes -= len;
        }
        if self.waiting.is_empty() {
            self.waiting.clear();
        }
    }

    /// When the last known service ends.
    #[inline]
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Reports its work up to the end of a run, for one stage of one resource; returns the number of
    /// packets served.
    pub fn enter(&self, out: &mut Report, stage: StageId, resource: ResourceId) -> u64 {
        let waits = self.waiting.iter().filter(|(begins, _)| *begins > out.now());
        let (packets, bytes) =
            waits.fold((0, Bytes::ZERO), |(n, sum), &(_, len)| (n + 1, sum + len));
        out.waiting(packets);
        let served = self.accepted - packets;
        let busy = self.busy - self.free_at.saturating_since(out.now());
        let until = out.now().max(self.free_at);
        let idle = until.saturating_since(Time::START).saturating_sub(self.busy);
        let stage = (served > 0).then_some((stage, busy));
        out.meter(&Meter::of(resource, out.now(), stage, idle, self.moved - bytes));
        served
    }
    /// The greatest number of waiting packets.
    pub fn waiting_most(&self) -> u64 {
        self.waiting_most
    }
}

/// A queue and the line that serves it. What each packet needs comes first.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Line {
    fifo: Fifo,
    packets_max: u64,
    bytes_max: Bytes,
    stage: StageId,
    resource: ResourceId,
    /// The length that a line served last, and its service time; [`NOTHING`] before the first, and for other
    /// services. Most packets have the length of the previous one, and a division takes longer than a comparison.
    last: (Bytes, Duration),
    service: Service,
    refused: u64,
}

/// The work of several lines together.
#[derive(Debug, Default)]
pub struct Served {
    served: u64,
    refused: u64,
    packets_most: u64,
}

impl Served {
    /// Adds the work of another line.
    pub fn enter(&mut self, out: &mut Report, line: &Line) {
        self.served += line.fifo.enter(out, line.stage, line.resource);
        self.refused += line.refused;
        self.packets_most = self.packets_most.max(line.fifo.waiting_most());
    }
    /// Reports the counters of all.
    pub fn count(&self, out: &mut Report) {
        out.count("served", self.served);
        out.count("refused", self.refused);
        out.count("dropped", 0);
        out.count("packets_most", self.packets_most);
    }
}

impl Line {
    /// As [`FifoServer::new`].
    pub fn new(
        (packets_max, bytes_max): (u64, Bytes),
        service: Service,
        stage: StageId,
        resource: ResourceId,
    ) -> Line {
        let (fifo, refused, last) = (Fifo::default(), 0, NOTHING);
        Line { fifo, service, packets_max, bytes_max, stage, resource, refused, last }
    }

    /// Whether there is no room for a packet of `len` beside those that waited at the last update.
    #[inline]
    fn is_full_for(&self, len: Bytes) -> bool {
        self.fifo.packets() >= self.packets_max || self.fifo.bytes() + len > self.bytes_max
    }

    /// A packet arrives, and leaves through `output`.
    #[inline]
    pub fn receive(&mut self, cx: &mut Context<'_>, output: PortId, mut packet: Packet) {
        let (now, len) = (cx.now(), packet.len);
        if self.is_full_for(len) {
            // Some of those may have left since.
            self.fifo.settle(cx);
            if self.is_full_for(len) {
                self.refused += 1;
                cx.drop(packet, Some(self.stage), "full");
                return;
            }
        }
        packet.entered = now;
        let Line { fifo, service, last, .. } = self;
        let service = |begins| time_for(service, last, (begins, len), cx);
        let (begins, service) = fifo.accept(now, len, service);
        if cx.collecting() {
            packet.visit(self.stage, begins - now, service, Duration::ZERO);
        }
        cx.send_at(output, packet, self.fifo.free_at());
    }
}

/// Serves packets in order of arrival.
#[derive(Debug)]
pub struct FifoServer(Line);

impl FifoServer {
    /// An idle server with a queue of at most `packets_max` packets and `bytes_max` bytes. Its time is
    /// accounted to `stage` and `resource`.
    pub fn new(
        limits: (u64, Bytes),
        service: Service,
        stage: StageId,
        resource: ResourceId,
    ) -> FifoServer {
        FifoServer(Line::new(limits, service, stage, resource))
    }
}

/// Longer than any packet.
const NOTHING: (Bytes, Duration) = (Bytes(u64::MAX), Duration::ZERO);

/// The duration of a service that starts at `begins`; `last` is [`Line::last`].
#[inline]
fn time_for(
    service: &Service,
    last: &mut (Bytes, Duration),
    (begins, len): (Time, Bytes),
    cx: &mut Context<'_>,
) -> Duration {
    if last.0 == len {
        return last.1;
    }
    let time = service.time_for(begins, len, cx.rng());
    if let Service::Line { .. } = service {
        *last = (len, time);
    }
    time
}

impl Element for FifoServer {
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        self.0.receive(cx, PortId(0), packet);
    }
    fn timers(&self) -> u32 {
        0
    }
    fn passes_on(&self) -> bool {
        true
    }
    fn report(&self, out: &mut Report) {
        let mut served = Served::default();
        served.enter(out, &self.0);
        served.count(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::DropTail;
    use crate::server::Server;
    use lastmeter_base::{Draw, PathId, Rate};
    use lastmeter_engine::{
        Graph, Outcome, ResourceInfo, ResourceKind, StageInfo, TimerId, VirtualClock,
    };

    /// Sends bursts at coarse times, so that arrivals often fall on the ends of services.
    struct Bursts(PathId);

    impl Element for Bursts {
        fn start(&mut self, cx: &mut Context<'_>) {
            cx.arm(TimerId(0), Time::START);
        }
        fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
            cx.deliver(packet);
        }
        fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
            for _ in 0..1 + cx.rng().below(3) {
                let len = Bytes(125 * cx.rng().below(4));
                let packet = cx.make(self.0, len);
                cx.send(PortId(0), packet);
            }
            let gap = Duration::from_us(1 + cx.rng().below(4));
            cx.arm(TimerId(0), cx.now() + gap);
        }
    }

    type Make = fn((u64, Bytes), Service, StageId, ResourceId) -> Box<dyn Element>;

    /// Two servers in a row, each with sources of its own before and after it in the graph.
    fn run(
        seed: u64,
        (packets, bytes): (u64, u64),
        service: &Service,
        end: Time,
        server: Make,
    ) -> Outcome {
        let mut graph = Graph::new(seed);
        let path = graph.path("path", "class");
        let mut sources = vec![graph.add("before", Bursts(path)).unwrap()];
        let mut servers = Vec::new();
        let stage = |graph: &mut Graph, name: &str, resource| {
            let name = name.to_owned();
            graph.stage(StageInfo::new(name, resource))
        };
        for name in ["first", "second"] {
            let (kind, units) = (ResourceKind::Wire, 1);
            let resource =
                graph.resource(ResourceInfo { units, ..ResourceInfo::new(name.to_owned(), kind) });
            let stage = stage(&mut graph, name, Some(resource));
            let made = server((packets, Bytes(bytes)), service.clone(), stage, resource);
            servers.push(graph.add_boxed(name.to_owned(), made).unwrap());
        }
        sources.push(graph.add("after", Bursts(path)).unwrap());
        for &source in &sources {
            graph.connect(source, PortId(0), servers[0], PortId(0)).unwrap();
        }
        let delay = Duration::from_us(2);
        let (first, second) = (servers[0], servers[1]);
        let way = Some(stage(&mut graph, "way", None));
        graph.connect_after(first, PortId(0), second, PortId(0), delay, way).unwrap();
        graph.connect(second, PortId(0), sources[0], PortId(0)).unwrap();
        let mut engine = graph.build(1).unwrap();
        engine.run_until(end, &mut VirtualClock::default()).unwrap();
        engine.finish().unwrap()
    }

    #[test]
    fn it_does_what_a_server_of_a_drop_tail_queue_does() {
        let line = Service::Line { rate: Rate::from_gbit(1), framing: Bytes::ZERO };
        let draw = Service::Draw(Draw::Exponential(Duration::from_us(2)));
        for (seed, limits) in [(1, (4, 1 << 20)), (2, (1 << 20, 700)), (3, (0, 0)), (4, (1, 375))] {
            for service in [&line, &draw] {
                // One run ends in the middle of services, the other where services begin.
                for end in [Time::from_ps(3_333_333_333), Time::from_ps(1_000_000_000)] {
                    let fifo =
                        run(seed, limits, service, end, |limits, service, stage, resource| {
                            Box::new(FifoServer::new(limits, service, stage, resource))
                        });
                    let plain = run(seed, limits, service, end, |limits, service, stage, of| {
                        let queue = DropTail::new(limits.0, limits.1);
                        Box::new(Server::new(queue, service, stage, of))
                    });
                    assert_eq!(fifo.elements, plain.elements, "{seed} {service:?} {end}");
                    assert_eq!(fifo.books.resources, plain.books.resources, "{seed} {service:?}");
                    let [fifo_path, path] = [&fifo, &plain].map(|run| &run.books.paths[0]);
                    assert_eq!(fifo_path.latency.sum(), path.latency.sum());
                    let times = |outcome: &Outcome| -> Vec<u128> {
                        outcome.books.paths[0].rows().iter().map(|row| row.time()).collect()
                    };
                    assert_eq!(times(&fifo), times(&plain));
                    assert_eq!(fifo_path.dropped, path.dropped);
                    assert!(limits.0 != 4 || fifo.handled < plain.handled);
                }
            }
        }
    }
}
