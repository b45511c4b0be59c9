//! The ring as an element, with a port for each station.
//!
//! ```text
//! station i --> in i  [ synchronous | asynchronous ] --> token ... frame --> out j --> station j
//!                                         drops: `full`, `no station`, `off the ring`
//! ```
//!
//! Packets of class 0 are asynchronous, unless all packets of their station are synchronous; all others are
//! synchronous. A packet's destination determines the station that reads it. One timer: when a waiting station
//! gets the token or is done. With faults there is a second timer, for the next fault or repair.

use super::faults::{Faults, Part, Rates, Wiring};
use super::medium::{Class, Medium, Options, STATIONS_MAX, Sent};
use lastmeter_base::kind::{FRAMING_MAX, Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::text::shorten;
use lastmeter_base::{Bytes, Duration, NodeId, Packet, StageId, Time, here};
use lastmeter_engine::site::{NodeKind, Ports, Site, Stage};
use lastmeter_engine::{
    Context, Element, Error, Meter, PortId, Report, ResourceId, ResourceKind, Series, TimerId,
};

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "timed-token-ring",
    family: Family::Node,
    what: "A ring whose stations take turns to transmit by a timed token, as in Jetstream.",
    ports: "neighbour --> [ its queue ] --> token, frame --> neighbour towards the destination",
    params: &[
        Param::or("target", ParamKind::Time, "1 ms").is("TTRT, the target token rotation time"),
        Param::or("rate", ParamKind::Rate, "960 Mbit/s").is("rate of the ring"),
        Param::or("hop", ParamKind::Time, "1 us")
            .is("delay from each station to the next, cable included"),
        Param::or("framing", ParamKind::Size { min: 0, max: FRAMING_MAX }, "8 B")
            .is("headers that the ring adds to each packet"),
        Param::or("allotment", ParamKind::Time, "0 s")
            .is("synchronous time per rotation for each station in `synchronous`"),
        Param::optional("synchronous", ParamKind::Nodes(1), "none")
            .is("neighbours whose packets are all synchronous"),
        Param::or("packets", ParamKind::COUNT, "1000")
            .is("capacity of a station's queues, per class"),
        Param::optional("faults", ParamKind::Time, "never")
            .is("mean time from the repair of a host, link or hub to its next fault"),
        Param::or("repair", ParamKind::Time, "1 s").is("mean time from a fault to its repair"),
        Param::or("wiring", ParamKind::Choice(&["ring", "hub"]), "ring")
            .is("ring: any fault takes the whole ring down; hub: a hub bypasses faults"),
    ],
    source: "Watson et al., HPL-93-37, 1993, §3.1, §3.5; ISO 9314-2 §8",
    deviations: &[
        "Stations are the neighbours in the order of their links; the first is the master, which \
         never fails.",
        "The ring is up from the start; after a fault or a repair it comes up once FW0, FW1 and \
         RING_UP have gone around. Frames in transmission at a fault still arrive.",
    ],
    counters: &[
        ("synchronous", "synchronous frames sent"),
        ("asynchronous", "asynchronous frames sent"),
        ("refused", "packets dropped by a full queue"),
        ("rotation_max_ps", "the longest rotation, in picoseconds"),
        ("rotations_broken", "tokens that arrived later than twice the target"),
        ("tokens_lost", "tokens that were lost"),
        ("interruptions", "times that the set of stations on the ring changed"),
    ],
    drops: &[
        ("full", "packets refused by the full queue of their station"),
        ("no station", "packets whose destination is not on the ring"),
        (OFF, "packets from or to a station that a fault cut off"),
    ],
    example: r#"
duration = "20 ms"
[nodes]
host = { host = {}, count = 4 }
camera = { host = {} }
[nodes.lan.timed-token-ring]
allotment = "50 us"
synchronous = ["camera"]
[[links]]
between = ["host", "lan"]
[[links]]
between = ["camera", "lan"]
[[traffic]]
name = "bulk"
from = "host.0"
to = "host.2"
constant = { rate = "900 Mbit/s", size = "9000 B" }
[[traffic]]
name = "video"
from = "camera"
to = "host.1"
constant = { rate = "20 Mbit/s", size = "1500 B" }
"#,
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

/// The shortest mean time between faults that is accepted.
const FAULTS_MIN: Duration = Duration::from_us(1);

/// A ring of the node's neighbours, in the order of their links.
fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let named: Vec<String> = values.given("synchronous").unwrap_or_default();
    let neighbours = site.neighbours.iter();
    let synchronous: Vec<bool> =
        neighbours.map(|neighbour| named.iter().any(|name| neighbour.is_called(name))).collect();
    let resource = site.resource("access", "", ResourceKind::Wire);
    let access = site.own_stage("access", Some(&resource));
    let propagation = site.own_stage("propagation", None);
    let between = values.given::<Duration>("faults");
    if between.is_some_and(|between| between < FAULTS_MIN) {
        let found = format!("`faults` below {FAULTS_MIN} would never let the ring come up");
        return Err(Error::Misfit(found));
    }
    if !named.is_empty() && !synchronous.contains(&true) {
        return Err(Error::Misfit(format!("`{}` is not a neighbour", shorten(&named[0]))));
    }
    let medium = medium(values, &synchronous, &access, &propagation)?;
    let stages = (access.id, propagation.id);
    let ring = Ring::new(medium, &site.routes, stages, resource.id);
    let ring = ring.with_synchronous(synchronous);
    let ring = ring.with_faults(values, site.stream(": faults").bits());
    let element = site.add(ring)?;
    Ok(Ports::each(element, 0..site.neighbours.len()))
}

/// The ring, with a station for each entry of `synchronous`, which says whether all packets of that station are
/// synchronous.
///
/// # Errors
/// If there are too few or too many stations, or the ring latency exceeds the target.
fn medium(
    values: &Values,
    synchronous: &[bool],
    access: &Stage,
    propagation: &Stage,
) -> Result<Medium, String> {
    let stations = synchronous.len();
    if stations > STATIONS_MAX {
        return Err(format!("a ring has 2 to {STATIONS_MAX} stations, not {stations}"));
    }
    let allotment: Duration = values.get("allotment");
    let packets: u64 = values.get("packets");
    // On a ring without latency the token would circulate forever in zero time.
    let hop = if propagation.free { Duration::from_ps(1) } else { values.get("hop") };
    let options = Options {
        target: values.get("target"),
        rate: access.rate(values.get("rate")),
        hops: vec![hop; stations],
        allotments: synchronous
            .iter()
            .map(|&synchronous| if synchronous { allotment } else { Duration::ZERO })
            .collect(),
        token: Duration::ZERO,
        framing: values.get::<Bytes>("framing"),
        packets_max: usize::try_from(packets).unwrap_or(usize::MAX),
        // In an experiment no token is lost.
        handler: Duration::ZERO,
    };
    Medium::new(options, Time::START)
}

/// A ring with its stations' queues.
pub struct Ring {
    medium: Medium,
    /// The station that reads packets for each node, by [`NodeId`].
    stations: Vec<Option<usize>>,
    access: StageId,
    propagation: StageId,
    meter: Meter,
    /// End of the last frame begun.
    busy_until: Time,
    /// Frames being sent, for the running handler.
    sent: Vec<Sent>,
    refused: u64,
    /// Stations whose packets are all synchronous.
    synchronous: Vec<bool>,
    faults: Option<(Faults, Wiring)>,
    interruptions: u64,
    /// Number of hosts on the ring over time, if any can leave it.
    on_ring: Series,
}

const TOKEN: TimerId = TimerId(0);
const FAULT: TimerId = TimerId(1);
/// Reason for dropping a packet of or for a host that is not on the ring.
const OFF: &str = "off the ring";

/// Rounds of signals before the token: FW0, FW1 and RING_UP.
const AROUND: u64 = 3;

impl Ring {
    /// A ring in which `stations` says which station reads packets for each node. Waiting and sending are
    /// accounted to `access` and `resource`, propagation to `propagation`.
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
            synchronous: Vec::new(),
            faults: None,
            interruptions: 0,
            on_ring: Series::whole_run(),
        }
    }

    /// The same ring, on which all packets of these stations are synchronous.
    pub fn with_synchronous(self, synchronous: Vec<bool>) -> Ring {
        Ring { synchronous, ..self }
    }

    /// The same ring, with the experiment's faults of hosts, links and hub, if any.
    pub fn with_faults(self, values: &Values, seed: u64) -> Ring {
        let hosts = self.medium.stations() - 1;
        let wiring = match values.get::<String>("wiring").as_str() {
            "hub" => Wiring::Hub,
            _ => Wiring::Ring,
        };
        let faults = values.given("faults").map(|between| {
            let rates = Rates { between, repair: values.get("repair") };
            (Faults::new(hosts, rates, seed, Time::START), wiring)
        });
        Ring { faults, ..self }
    }

    /// Faults and repairs; the ring comes up with the remaining stations.
    fn reconnect(&mut self, cx: &mut Context<'_>) {
        let Some((faults, wiring)) = &mut self.faults else { return };
        let now = cx.now();
        while faults.advance(now).is_some() {}
        let hosts = faults.reach(*wiring);
        let hub_works = *wiring == Wiring::Hub && !faults.is_broken(Part::Hub);
        let (next, works) = (faults.ready_at(), hub_works || hosts.contains(&true));
        let members: Vec<bool> = std::iter::once(works).chain(hosts).collect();
        cx.arm(FAULT, next);
        if members.iter().enumerate().all(|(at, &member)| self.medium.is_member(at) == member) {
            return;
        }
        self.advance(cx);
        self.interruptions += 1;
        let up = now + self.medium.latency() * AROUND;
        for packet in self.medium.bring_up(&members, up) {
            cx.drop(packet, Some(self.access), OFF);
        }
        let connected = members[1..].iter().filter(|&&member| member).count();
        self.on_ring.record(now, connected as u64);
        match self.medium.ready_at() {
            Some(wake) => cx.arm(TOKEN, wake),
            None => cx.disarm(TOKEN),
        }
    }

    /// Advances the ring to the present, and sends its frames.
    fn advance(&mut self, cx: &mut Context<'_>) {
        let mut all = std::mem::take(&mut self.sent);
        self.medium.advance(cx.now(), |sent| all.push(sent));
        for Sent { mut packet, station, started, ended, .. } in all.drain(..) {
            if started > self.busy_until {
                self.meter.rest(self.busy_until);
            }
            // Frames without a gap between them are one period of the same stage.
            if started > self.busy_until || started == Time::START {
                self.meter.serve(started, self.access);
            }
            self.busy_until = ended;
            self.meter.moved(packet.len);
            let to = self.station(&packet).expect("only packets with a station are enqueued");
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
            match self.medium.is_member(to) {
                true => cx.send_at(PortId(to as u16), packet, ended + way),
                false => cx.drop(packet, Some(self.access), OFF),
            }
        }
        self.sent = all;
    }

    fn station(&self, packet: &Packet) -> Option<usize> {
        self.stations.get(packet.destination.0 as usize).copied().flatten()
    }
}

impl Element for Ring {
    fn timers(&self) -> u32 {
        2
    }
    fn start(&mut self, cx: &mut Context<'_>) {
        if let Some((faults, _)) = &self.faults {
            self.on_ring.record(cx.now(), self.medium.stations() as u64 - 1);
            cx.arm(FAULT, faults.ready_at());
        }
    }
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, packet: Packet) {
        let now = cx.now();
        if self.station(&packet).is_none() {
            cx.drop(packet, Some(self.access), "no station");
            return;
        }
        self.advance(cx);
        let station = usize::from(port.0);
        if !self.medium.is_member(station) {
            cx.drop(packet, Some(self.access), OFF);
            return;
        }
        let synchronous = self.synchronous.get(station).copied().unwrap_or(false);
        let class = match packet.class {
            0 if !synchronous => Class::Asynchronous,
            _ => Class::Synchronous,
        };
        if let Err(packet) = self.medium.enqueue(now, station, class, packet) {
            self.refused += 1;
            cx.drop(packet, Some(self.access), "full");
        } else if let Some(wake) = self.medium.ready_at() {
            cx.arm(TOKEN, wake);
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        if timer == FAULT {
            return self.reconnect(cx);
        }
        self.advance(cx);
        if let Some(wake) = self.medium.ready_at() {
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
        out.count("interruptions", self.interruptions);
        if self.faults.is_some() {
            out.series("hosts on the ring", "hosts", &self.on_ring);
        }
        out.series("rotation of the token", "ps", &self.medium.rotation_times);
        out.series("who has the token", "station", &self.medium.holders);
    }
}

#[cfg(test)]
mod tests {
    use super::super::medium::Options;
    use super::*;
    use lastmeter_base::Rate;
    use lastmeter_base::{Draw, FlowId};
    use lastmeter_engine::{Graph, Outcome, ResourceInfo, ResourceKind, StageInfo, VirtualClock};
    use lastmeter_net::sink::Sink;
    use lastmeter_net::source::{Flow, Header, Pattern, Sizes, Source, Span};

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
        let info = ResourceInfo::new("ring", ResourceKind::Wire);
        let resource = graph.resource(info);
        let mut stage = |name: &str, resource| {
            let name = name.to_owned();
            graph.stage(StageInfo::new(name, resource))
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
    fn packets_stages_and_the_ring_balance_at_low_load_and_in_overload() {
        for (stations, gap) in [(2, 5), (5, 900), (16, 10), (16, 3000)] {
            let outcome = run(stations, Duration::from_us(gap));
            let books = &outcome.books;
            assert!(books.delivered > 100, "{stations} {gap}");
            assert!(books.paths.iter().all(|path| path.reordered == 0));
            let busy = books.resources[0].busy() as f64 / outcome.now.as_ps() as f64;
            // Overload costs only the overhead of the token.
            assert!(busy <= 1.0 - 0.000_5 && (gap > 10 || busy > 0.95), "{stations}: {busy}");
        }
    }
}
