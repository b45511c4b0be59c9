//! The ring as an element: a port for each station.
//!
//! ```text
//! station i --> in i  [ synchronous | asynchronous ] --> token ... frame --> out j --> station j
//!                                                         drops: `full`, `no station`
//! ```
//!
//! Packets of class 0 are asynchronous, all others synchronous; their destination says which
//! station reads them. One timer: when somebody who waits gets the token or is done.

use super::medium::{Class, Medium, Sent};
use lastmeter_base::{Duration, NodeId, Packet, StageId, Time};
use lastmeter_engine::{Context, Element, Meter, PortId, Report, ResourceId, TimerId};

/// A ring with its stations' queues.
pub struct Ring {
    medium: Medium,
    /// The station that reads packets for each node, by [`NodeId`].
    stations: Vec<Option<usize>>,
    access: StageId,
    propagation: StageId,
    meter: Meter,
    /// When the last frame that was begun ends.
    busy_until: Time,
    /// What is being sent, for the handler that is running.
    sent: Vec<Sent>,
    refused: u64,
}

const TOKEN: TimerId = TimerId(0);

impl Ring {
    /// A ring on which `stations` says who reads packets for each node. Waiting and sending are
    /// accounted to `access` and `resource`, the way to `propagation`.
    pub fn new(
        medium: Medium,
        stations: &[(NodeId, usize)],
        (access, propagation): (StageId, StageId),
        resource: ResourceId,
    ) -> Ring {
        let len = stations.iter().map(|(node, _)| node.0 as usize + 1).max().unwrap_or(0);
        let mut table = vec![None; len];
        stations.iter().for_each(|&(node, station)| table[node.0 as usize] = Some(station));
        Ring {
            medium,
            stations: table,
            access,
            propagation,
            meter: Meter::new(resource),
            busy_until: Time::START,
            sent: Vec::new(),
            refused: 0,
        }
    }

    /// Lets the ring go on to now, and sends what it sends.
    fn advance(&mut self, cx: &mut Context<'_>) {
        let mut all = std::mem::take(&mut self.sent);
        self.medium.advance(cx.now(), |sent| all.push(sent));
        for Sent { mut packet, station, started, ended, .. } in all.drain(..) {
            if started > self.busy_until {
                self.meter.rest(self.busy_until);
            }
            // What follows without a gap is the same time of the same stage.
            if started > self.busy_until || started == Time::START {
                self.meter.serve(started, self.access);
            }
            self.busy_until = ended;
            self.meter.moved(packet.len);
            let to = self.station(&packet).expect("only what has a station is enqueued");
            let way = self.medium.way(station, to);
            if cx.collecting() {
                packet.visit(
                    self.access,
                    started - packet.entered,
                    ended - started,
                    Duration::ZERO,
                );
                packet.visit(self.propagation, Duration::ZERO, way, Duration::ZERO);
            }
            cx.send_at(PortId(to as u16), packet, ended + way);
        }
        self.sent = all;
    }

    fn station(&self, packet: &Packet) -> Option<usize> {
        self.stations.get(packet.destination.0 as usize).copied().flatten()
    }
}

impl Element for Ring {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, packet: Packet) {
        let now = cx.now();
        if self.station(&packet).is_none() {
            cx.drop(packet, Some(self.access), "no station");
            return;
        }
        self.advance(cx);
        let class = if packet.class == 0 { Class::Asynchronous } else { Class::Synchronous };
        if let Err(packet) = self.medium.enqueue(now, port.0.into(), class, packet) {
            self.refused += 1;
            cx.drop(packet, Some(self.access), "full");
        } else if let Some(wake) = self.medium.wake() {
            cx.arm(TOKEN, wake);
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.advance(cx);
        if let Some(wake) = self.medium.wake() {
            cx.arm(TOKEN, wake);
        }
    }
    fn report(&self, out: &mut Report) {
        out.held(self.medium.packets());
        let mut meter = self.meter.clone();
        if self.busy_until <= out.now() {
            meter.rest(self.busy_until);
        }
        out.meter(&meter);
        let [synchronous, asynchronous] = self.medium.services;
        out.count("synchronous", synchronous.frames);
        out.count("asynchronous", asynchronous.frames);
        out.count("refused", self.refused);
        out.count("rotation_max_ps", self.medium.rotations.max.as_ps());
        out.count("rotations_broken", self.medium.rotations.broken);
        out.count("tokens_lost", self.medium.rotations.lost);
    }
}

#[cfg(test)]
mod tests {
    use super::super::medium::Options;
    use super::*;
    use crate::sink::Sink;
    use crate::source::{Flow, Header, Pattern, Sizes, Source, Span};
    use lastmeter_base::{Bytes, Draw, FlowId, Rate};
    use lastmeter_engine::{Graph, Outcome, ResourceInfo, ResourceKind, StageInfo, VirtualClock};

    fn run(stations: usize, gap: Duration) -> Outcome {
        let mut graph = Graph::new(1);
        let options = Options {
            target: Duration::from_ms(1),
            rate: Rate::from_mbit(960),
            hops: vec![Duration::from_us(1); stations],
            allotments: vec![Duration::ZERO; stations],
            token: Duration::ZERO,
            framing: Bytes(8),
            packets_max: 50,
            handler: Duration::from_us(30),
        };
        let medium = Medium::new(options, Time::START).unwrap();
        let info = ResourceInfo { name: "ring".to_owned(), kind: ResourceKind::Wire, units: 1 };
        let resource = graph.resource(info);
        let mut stage = |name: &str, resource| {
            let name = name.to_owned();
            graph.stage(StageInfo { name, resource, copies: 0, touches: 0, memory: 0 })
        };
        let stages = (stage("access", Some(resource)), stage("propagation", None));
        let nodes: Vec<(NodeId, usize)> = (0..stations).map(|i| (NodeId(i as u32), i)).collect();
        let ring = graph.add("ring", Ring::new(medium, &nodes, stages, resource)).unwrap();
        for station in 0..stations {
            let path = graph.path(format!("{station}"), "frames");
            let destination = NodeId(((station + 1 + station % 3) % stations) as u32);
            let flow = Flow { path, flow: FlowId(0), destination, header: Header::PLAIN };
            let sizes = Sizes::Mix(vec![(Bytes(64), 1), (Bytes(1500), 1), (Bytes(9000), 1)]);
            let pattern = Pattern::Gaps { gap: Draw::Exponential(gap), sizes };
            let source =
                graph.add(format!("source {station}"), Source::new(flow, pattern, Span::ALWAYS));
            let sink = graph.add(format!("sink {station}"), Sink::default()).unwrap();
            let port = PortId(station as u16);
            graph.connect(source.unwrap(), PortId(0), ring, port).unwrap();
            graph.connect(ring, port, sink, PortId(0)).unwrap();
        }
        let mut engine = graph.build(1).unwrap();
        engine
            .run_until(Time::START + Duration::from_ms(50), &mut VirtualClock::default())
            .unwrap();
        engine.finish().unwrap()
    }

    #[test]
    fn packets_stages_and_the_ring_balance_with_little_and_with_too_much_to_send() {
        for (stations, gap) in [(2, 5), (5, 900), (16, 10), (16, 3000)] {
            let outcome = run(stations, Duration::from_us(gap));
            let books = &outcome.books;
            assert!(books.delivered > 100, "{stations} {gap}");
            assert!(books.paths.iter().all(|path| path.reordered == 0));
            let busy = books.resources[0].busy() as f64 / outcome.now.as_ps() as f64;
            // Overload leaves what the token needs on its way.
            assert!(busy <= 1.0 - 0.000_5 && (gap > 10 || busy > 0.95), "{stations}: {busy}");
        }
    }
}
