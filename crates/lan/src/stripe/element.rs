//! A trunk of several channels that together carry one stream in each direction.
//!
//! ```text
//! neighbour --> split --> stripe: wire, delay, jitter, loss --> [ FIFO ] --> merge --> neighbour
//!
//! both take part:  host: split --> each stripe: [ network: split --> lanes --> merge ] --> merge :host
//! ```
//!
//! Skew is the time for which a unit that has arrived waits for others: stage `order`.
//!
//! Who takes part (A-59) sets whose processors split and merge, and what looks like one channel: the network's nodes,
//! unseen by the hosts; the hosts, over channels that know nothing of each other; or both, where each of the
//! hosts' stripes is striped again within the network, with markers of its own.

use super::merge::{Merger, Out};
use super::split::{Cell, Sent, Splitter};
use super::{Balance, Sync, Topology, Unit};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Draw, Duration, Packet, Rate, StageId, Time, here, one_way};
use lastmeter_engine::site::{HostKind, NodeKind, Ports, Site, Stage};
use lastmeter_engine::{
    Context, Element, Error, Meter, PortId, Report, ResourceId, ResourceKind, Series, TimerId,
};
use std::collections::{BTreeMap, VecDeque};

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "striped-trunk",
    family: Family::Node,
    what: "Several channels with different delays that carry one stream between two neighbours.",
    ports: "neighbour --> split --> stripes --> [ FIFOs ] --> merge --> neighbour      and back",
    params: &[
        Param::or("stripes", ParamKind::Integer { min: 1, max: 64 }, "4")
            .is("number of channels in each direction"),
        Param::or("rate", ParamKind::Rate, "149.76 Mbit/s").is("rate of each channel"),
        Param::or("delay", ParamKind::Time, "0 s").is("propagation delay of the first channel"),
        Param::or("skew", ParamKind::Time, "0 s")
            .is("additional delay of each channel over the previous one"),
        Param::optional("jitter", ParamKind::Draw, "none").is("additional delay of each unit"),
        Param::or("loss", ParamKind::Number { min: 0.0, max: 1.0 }, "0")
            .is("probability that a unit is lost"),
        Param::or("unit", ParamKind::Choice(&["cell", "pdu", "flow"]), "cell")
            .is("striping unit, which is never split: a packet, all packets of a PDU, a flow"),
        Param::or(
            "synchronise",
            ParamKind::Choice(&["markers", "numbers", "pdu", "none"]),
            "markers",
        )
        .is("how the order is restored"),
        Param::or("marker-every", ParamKind::COUNT, "256").is("rounds between markers"),
        Param::optional("quantum", ParamKind::BUFFER, "one unit")
            .is("bytes per channel and turn, if units differ in length"),
        Param::or("fifo", ParamKind::COUNT, "64")
            .is("capacity of each channel's FIFO against skew, in units"),
        Param::or("takes-part", ParamKind::Choice(&["network", "hosts", "both"]), "network")
            .is("who splits and merges; hosts only if the trunk joins two of them"),
        Param::or("within", ParamKind::Integer { min: 2, max: 16 }, "2")
            .is("lanes of each channel within the network, if both take part"),
        Param::or("host-time", ParamKind::Time, "0 s")
            .is("processor time of a host for each unit that it splits or merges"),
        Param::or("network-time", ParamKind::Time, "0 s").is("the same of a node of the network"),
    ],
    source: "Aurora report, §3.4; Adiseshu et al., SIGCOMM 1996 (markers)",
    deviations: &[
        "The sequence number of a unit, if used, takes one byte; a marker takes a cell.",
        "Lanes within the network share a channel's rate, and restore the order by markers.",
    ],
    counters: &[
        ("carried", "units delivered by the receiver"),
        ("gaps", "gaps reported"),
        ("resynchronised", "times that the receiver lost and regained the order"),
        ("held_most", "most units in a FIFO"),
    ],
    drops: &[
        ("lost", "units that a channel lost"),
        (
            "incomplete",
            "units of a PDU with losses, or units that arrived after they were given up",
        ),
    ],
    example: one_way! {
        "50 ms", "alice" ["trunk" = r#"striped-trunk = { delay = "1 ms", skew = "30 us" }"#] "bob",
        [r#"rate = "1 Gbit/s""#],
        "cells" [r#"constant = { rate = "500 Mbit/s", size = "53 B" }"#]
    },
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let topology = topology(values, site)?;
    let lanes = if topology == Topology::Mixed { values.get::<u64>("within") } else { 1 };
    let wires = 2 * values.get::<u64>("stripes") * lanes;
    let resource = site.units("transmit", "", ResourceKind::Wire, wires as u32);
    let transmit = site.stage("transmit", Some(&resource));
    let propagation = site.stage("propagation", None);
    let order = site.stage("order", None);
    let options = Options::new(values, &transmit, &propagation);
    let stages = Stages { transmit: transmit.id, propagation: propagation.id, order: order.id };
    let mut trunk = Trunk::new(options, stages, resource.id)?;
    if topology == Topology::Mixed {
        let skew = propagation.time(values.get("skew"));
        trunk = trunk.with_lanes(lanes as usize, skew, values.get("marker-every"))?;
    }
    let hosts = ("host-time", "host striping", " hosts");
    let network = ("network-time", "network striping", " nodes");
    let levels = match topology {
        Topology::EndToEnd => vec![(OUTER, hosts)],
        Topology::Internal => vec![(OUTER, network)],
        Topology::Mixed => vec![(OUTER, hosts), (WITHIN, network)],
    };
    for (level, (time, role, suffix)) in levels {
        let time: Duration = values.get(time);
        if time > Duration::ZERO {
            let processors = site.units(role, suffix, ResourceKind::Cpu, 2);
            let stage = site.stage(role, Some(&processors));
            trunk.work[level] = Some(Work::new(stage.time(time), stage.id, processors.id));
        }
    }
    let element = site.add(trunk)?;
    Ok(Ports::each(element, 0..2))
}

/// Where it is split, by who takes part.
///
/// # Errors
/// If hosts should take part, and one of its two neighbours is not a host.
fn topology(values: &Values, site: &Site<'_>) -> Result<Topology, String> {
    let topology = match values.get::<String>("takes-part").as_str() {
        "hosts" => Topology::EndToEnd,
        "both" => Topology::Mixed,
        _ => Topology::Internal,
    };
    let ends = site.between_two()?;
    match ends.iter().find(|end| end.kind.made_by::<HostKind>().is_none()) {
        Some(node) if topology.hosts() => Err(format!(
            "hosts take part, but `{}` is not one: write takes-part = \"network\"",
            node.name
        )),
        _ => Ok(topology),
    }
}

/// Splitting and merging of the stripes, and of the lanes within one.
const OUTER: usize = 0;
const WITHIN: usize = 1;

const MARKER: Bytes = Bytes(53);

/// Parameters of the channels.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rate of each channel.
    pub rate: Rate,
    /// Propagation delay of each channel; there are as many as stripes.
    pub delays: Vec<Duration>,
    /// Additional delay of each unit.
    pub jitter: Option<Draw>,
    /// Probability that a unit is lost.
    pub loss: f64,
    /// The striping unit.
    pub unit: Unit,
    /// How the next channel is chosen.
    pub balance: Balance,
    /// How the order is restored.
    pub sync: Sync,
    /// Capacity of a FIFO in units.
    pub fifo: usize,
}

impl Options {
    /// Parameters from an experiment, whose stages may be changed.
    fn new(values: &Values, transmit: &Stage, propagation: &Stage) -> Options {
        let (delay, skew): (Duration, Duration) = (values.get("delay"), values.get("skew"));
        let stripes = 0..values.get::<u64>("stripes");
        Options {
            rate: transmit.rate(values.get("rate")),
            delays: stripes.map(|place| propagation.time(delay + skew * place)).collect(),
            jitter: values.given("jitter").filter(|_| !propagation.free),
            loss: values.get("loss"),
            unit: match values.get::<String>("unit").as_str() {
                "pdu" => Unit::Pdu,
                "flow" => Unit::Flow,
                _ => Unit::Cell,
            },
            balance: match values.given::<Bytes>("quantum") {
                Some(quantum) => Balance::Surplus { quantum: quantum.0 },
                None => Balance::RoundRobin,
            },
            sync: match values.get::<String>("synchronise").as_str() {
                "none" => Sync::None,
                "numbers" => Sync::Numbers,
                "pdu" => Sync::Pdu,
                _ => Sync::Markers { every: values.get("marker-every") },
            },
            fifo: values.get::<u64>("fifo") as usize,
        }
    }
}

/// What is sent on a channel of the outer splitting; a marker has no packet.
type Carried = (Sent, Option<Packet>);

/// What goes over a wire.
struct Flight {
    stripe: usize,
    carried: Carried,
    /// Within the network: the lane, and what the inner splitting sent; a marker of its own carries nothing.
    within: Option<(usize, Sent)>,
}

/// What comes next.
enum Step {
    /// A processor has taken a packet in, which is split off.
    Split(Packet),
    /// Something is ready for its wire.
    Transmit(Flight),
    /// Something arrives over its wire.
    Arrive(Flight),
    /// The network's node has merged a packet; a host is next.
    Leave(Packet),
}

impl Step {
    fn has_packet(&self) -> bool {
        match self {
            Step::Split(_) | Step::Leave(_) => true,
            Step::Transmit(flight) | Step::Arrive(flight) => flight.carried.1.is_some(),
        }
    }
}

/// One direction.
struct Way {
    splitter: Splitter,
    merger: Merger<(Packet, Time)>,
    /// Units that the splitter holds.
    pending: VecDeque<Packet>,
    /// One for each wire, with the end of its transmission.
    wires: Vec<(Meter, Time)>,
    /// When the last unit of each wire arrives, so that units stay in order.
    last_arrival: Vec<Time>,
    /// The stripes that are split again within the network.
    within: Vec<Within>,
}

/// A stripe that the network splits into lanes.
struct Within {
    splitter: Splitter,
    merger: Merger<(Carried, Time)>,
    /// Packets, without markers of the hosts, that the merger holds.
    packets: usize,
}

/// Processors that split and merge, one at either end.
struct Work {
    time: Duration,
    stage: StageId,
    ends: [(Meter, Time); 2],
}

impl Work {
    fn new(time: Duration, stage: StageId, resource: ResourceId) -> Work {
        Work { time, stage, ends: [0, 1].map(|_| (Meter::new(resource), Time::START)) }
    }

    /// A unit waits for the processor of an end and is processed there: until when.
    fn pass(&mut self, now: Time, end: usize, packet: Option<&mut Packet>, noted: bool) -> Time {
        let (meter, busy_until) = &mut self.ends[end];
        let start = serve(meter, *busy_until, now, self.stage);
        *busy_until = start + self.time;
        if let Some(packet) = packet {
            if noted {
                packet.visit(self.stage, start - packet.entered, self.time, Duration::ZERO);
            }
            packet.entered = *busy_until;
        }
        *busy_until
    }
}

/// A server that is busy until then gets another unit: when it starts.
fn serve(meter: &mut Meter, busy_until: Time, now: Time, stage: StageId) -> Time {
    let start = now.max(busy_until);
    if start > busy_until {
        meter.rest(busy_until);
    }
    if start > busy_until || start == Time::START {
        meter.serve(start, stage);
    }
    start
}

/// A trunk: packets that enter by one of its two ports leave by the other.
pub struct Trunk {
    options: Options,
    ways: [Way; 2],
    /// What comes next, with its direction.
    steps: BTreeMap<(Time, u64), (usize, Step)>,
    planned: u64,
    stages: Stages,
    /// What splitting and merging cost: [`OUTER`], [`WITHIN`].
    work: [Option<Work>; 2],
    skew: Series,
    carried: u64,
    gaps: u64,
    resynchronised: u64,
}

/// The stages of a trunk.
#[derive(Clone, Copy, Debug)]
pub struct Stages {
    /// Transmission on the wires.
    pub transmit: StageId,
    /// Propagation.
    pub propagation: StageId,
    /// Waiting for other units.
    pub order: StageId,
}

const DUE: TimerId = TimerId(0);

impl Trunk {
    /// A trunk whose wires, of both directions, are the units of `resource`.
    ///
    /// # Errors
    /// If unit, synchronisation and FIFO are incompatible.
    pub fn new(options: Options, stages: Stages, resource: ResourceId) -> Result<Trunk, String> {
        let stripes = options.delays.len();
        let Options { unit, balance, sync, fifo, .. } = options;
        let way = || -> Result<Way, String> {
            Ok(Way {
                splitter: Splitter::new(stripes, unit, balance, sync),
                merger: Merger::new(stripes, unit, balance, sync, fifo)?,
                pending: VecDeque::new(),
                wires: (0..stripes).map(|_| (Meter::new(resource), Time::START)).collect(),
                last_arrival: vec![Time::START; stripes],
                within: Vec::new(),
            })
        };
        Ok(Trunk {
            ways: [way()?, way()?],
            options,
            steps: BTreeMap::new(),
            planned: 0,
            stages,
            work: [None, None],
            skew: Series::whole_run(),
            carried: 0,
            gaps: 0,
            resynchronised: 0,
        })
    }

    /// Each stripe is split again within the network, into this many lanes that share its rate and differ by
    /// `skew`.
    fn with_lanes(mut self, lanes: usize, skew: Duration, every: u64) -> Result<Trunk, String> {
        let (unit, balance, sync) = (Unit::Cell, Balance::RoundRobin, Sync::Markers { every });
        let stripes = self.options.delays.len();
        let each = |&delay: &Duration| (0..lanes as u64).map(move |lane| delay + skew * lane);
        self.options.delays = self.options.delays.iter().flat_map(each).collect();
        self.options.rate = self.options.rate.scale_floor(1, lanes as u64);
        for way in &mut self.ways {
            let wire = way.wires[0].clone();
            way.wires = vec![wire; stripes * lanes];
            way.last_arrival = vec![Time::START; stripes * lanes];
            for _ in 0..stripes {
                let merger = Merger::new(lanes, unit, balance, sync, self.options.fifo)?;
                let splitter = Splitter::new(lanes, unit, balance, sync);
                way.within.push(Within { splitter, merger, packets: 0 });
            }
        }
        Ok(self)
    }

    fn plan(&mut self, at: Time, direction: usize, step: Step) {
        self.steps.insert((at, self.planned), (direction, step));
        self.planned += 1;
    }

    fn act(&mut self, cx: &mut Context<'_>, direction: usize, step: Step) {
        match step {
            Step::Split(packet) => self.split(cx, direction, packet),
            Step::Transmit(flight) => self.transmit(cx, direction, flight),
            Step::Arrive(flight) => self.arrive(cx, direction, flight),
            Step::Leave(packet) => self.leave(cx, direction, packet),
        }
    }

    fn split(&mut self, cx: &mut Context<'_>, direction: usize, packet: Packet) {
        let cell = Cell { len: packet.len.0, last: packet.ends, flow: packet.flow.0 };
        let way = &mut self.ways[direction];
        way.pending.push_back(packet);
        for (stripe, sent) in way.splitter.send(cell) {
            self.launch(cx, direction, stripe, sent);
        }
    }

    /// The outer splitting sends this on a stripe.
    fn launch(&mut self, cx: &mut Context<'_>, direction: usize, stripe: usize, sent: Sent) {
        let way = &mut self.ways[direction];
        let packet = match sent {
            Sent::Cell(_) => way.pending.pop_front(),
            Sent::Marker { .. } => None,
        };
        let mut carried = (sent, packet);
        let Some(within) = way.within.get_mut(stripe) else {
            return self.transmit(cx, direction, Flight { stripe, carried, within: None });
        };
        // To the network a marker of the hosts is a unit like any other.
        let len = carried.1.as_ref().map_or(MARKER, |packet| packet.len).0;
        let all = within.splitter.send(Cell { len, last: false, flow: 0 });
        let (now, noted) = (cx.now(), cx.collecting());
        let work = self.work[WITHIN].as_mut();
        let ready = work.map(|work| work.pass(now, direction, carried.1.as_mut(), noted));
        for (lane, sent) in all {
            let own = match sent {
                Sent::Cell(_) => std::mem::replace(&mut carried, (sent, None)),
                Sent::Marker { .. } => (sent, None),
            };
            let flight = Flight { stripe, carried: own, within: Some((lane, sent)) };
            match ready {
                Some(ready) => self.plan(ready, direction, Step::Transmit(flight)),
                None => self.transmit(cx, direction, flight),
            }
        }
    }

    fn transmit(&mut self, cx: &mut Context<'_>, direction: usize, mut flight: Flight) {
        let way = &mut self.ways[direction];
        let wire = match flight.within {
            Some((lane, _)) => flight.stripe * (way.wires.len() / way.within.len()) + lane,
            None => flight.stripe,
        };
        let mut packet = flight.carried.1.take();
        let numbered = Bytes(u64::from(self.options.sync == Sync::Numbers));
        let len = packet.as_ref().map_or(MARKER, |packet| packet.len + numbered);
        let (meter, busy_until) = &mut way.wires[wire];
        let start = serve(meter, *busy_until, cx.now(), self.stages.transmit);
        let end = start + self.options.rate.time_for(len);
        *busy_until = end;
        meter.moved(len);
        let jitter = self.options.jitter.as_ref().map(|jitter| jitter.sample(cx.rng()));
        let arrival = end + self.options.delays[wire] + jitter.unwrap_or(Duration::ZERO);
        let arrival = arrival.max(way.last_arrival[wire]);
        way.last_arrival[wire] = arrival;
        if let Some(packet) = &mut packet
            && cx.collecting()
        {
            packet.visit(self.stages.transmit, start - packet.entered, end - start, Duration::ZERO);
            packet.visit(self.stages.propagation, Duration::ZERO, arrival - end, Duration::ZERO);
        }
        let lost = packet.is_some() && cx.rng().chance(self.options.loss);
        match packet {
            Some(packet) if lost => cx.drop(packet, Some(self.stages.propagation), "lost"),
            packet => {
                flight.carried.1 = packet;
                self.plan(arrival, direction, Step::Arrive(flight));
            }
        }
    }

    fn arrive(&mut self, cx: &mut Context<'_>, direction: usize, flight: Flight) {
        let now = cx.now();
        let Flight { stripe, carried, within } = flight;
        let Some((lane, sent)) = within else {
            return self.merge(cx, direction, stripe, carried, now);
        };
        let inner = &mut self.ways[direction].within[stripe];
        match sent {
            Sent::Marker { round } => inner.merger.marker(lane, round),
            Sent::Cell(_) => {
                inner.packets += usize::from(carried.1.is_some());
                let len = carried.1.as_ref().map_or(MARKER, |packet| packet.len).0;
                inner.merger.cell(lane, sent, (carried, now), len, false);
            }
        }
        while let Some(out) = self.ways[direction].within[stripe].merger.take() {
            match out {
                Out::Cell((carried, came)) | Out::Refused((carried, came)) => {
                    let held = &mut self.ways[direction].within[stripe].packets;
                    *held -= usize::from(carried.1.is_some());
                    self.merge(cx, direction, stripe, carried, came);
                }
                Out::Lost(_) => self.gaps += 1,
                Out::Resynchronised => self.resynchronised += 1,
            }
        }
    }

    /// What came at that time is handed to the outer merging.
    fn merge(
        &mut self,
        cx: &mut Context<'_>,
        direction: usize,
        stripe: usize,
        (sent, packet): Carried,
        came: Time,
    ) {
        let merger = &mut self.ways[direction].merger;
        match (sent, packet) {
            (Sent::Marker { round }, _) => merger.marker(stripe, round),
            (Sent::Cell(_), Some(packet)) => {
                let (len, last) = (packet.len.0, packet.ends);
                merger.cell(stripe, sent, (packet, came), len, last);
            }
            (Sent::Cell(_), None) => {}
        }
        while let Some(out) = self.ways[direction].merger.take() {
            match out {
                Out::Cell((packet, came)) => self.merged(cx, direction, packet, came),
                Out::Refused((packet, _)) => {
                    cx.drop(packet, Some(self.stages.order), "incomplete");
                }
                Out::Lost(_) => self.gaps += 1,
                Out::Resynchronised => self.resynchronised += 1,
            }
        }
    }

    /// A packet that came at that time is in order.
    fn merged(&mut self, cx: &mut Context<'_>, direction: usize, mut packet: Packet, came: Time) {
        let (now, noted) = (cx.now(), cx.collecting());
        self.carried += 1;
        self.skew.record(now, (now - came).as_ps());
        if noted {
            packet.visit(self.stages.order, now - came, Duration::ZERO, Duration::ZERO);
        }
        packet.entered = now;
        // Whoever merges is at the other end.
        let work = self.work[WITHIN].as_mut();
        match work.map(|work| work.pass(now, 1 - direction, Some(&mut packet), noted)) {
            Some(at) => self.plan(at, direction, Step::Leave(packet)),
            None => self.leave(cx, direction, packet),
        }
    }

    fn leave(&mut self, cx: &mut Context<'_>, direction: usize, mut packet: Packet) {
        let (now, noted, end) = (cx.now(), cx.collecting(), 1 - direction);
        let work = self.work[OUTER].as_mut();
        let departs = work.map_or(now, |work| work.pass(now, end, Some(&mut packet), noted));
        cx.send_at(PortId(end as u16), packet, departs);
    }

    fn arm(&self, cx: &mut Context<'_>) {
        if let Some((&(at, _), _)) = self.steps.first_key_value() {
            cx.arm(DUE, at);
        }
    }
}

impl Element for Trunk {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        let (now, noted) = (cx.now(), cx.collecting());
        let direction = usize::from(port.0.min(1));
        packet.entered = now;
        let work = self.work[OUTER].as_mut();
        match work.map(|work| work.pass(now, direction, Some(&mut packet), noted)) {
            Some(at) => self.plan(at, direction, Step::Split(packet)),
            None => self.split(cx, direction, packet),
        }
        self.arm(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        while let Some(first) = self.steps.first_entry().filter(|one| one.key().0 <= cx.now()) {
            let (direction, step) = first.remove();
            self.act(cx, direction, step);
        }
        self.arm(cx);
    }
    fn report(&self, out: &mut Report) {
        let planned = self.steps.values().filter(|(_, step)| step.has_packet()).count();
        let waiting = self.ways.iter().map(|way| {
            let within: usize = way.within.iter().map(|within| within.packets).sum();
            way.pending.len() + way.merger.waiting() + within
        });
        out.held((planned + waiting.sum::<usize>()) as u64);
        let wires = self.ways.iter().flat_map(|way| &way.wires);
        let processors = self.work.iter().flatten().flat_map(|work| &work.ends);
        for (meter, busy_until) in wires.chain(processors) {
            let mut meter = meter.clone();
            if *busy_until <= out.now() {
                meter.rest(*busy_until);
            }
            out.meter(&meter);
        }
        out.count("carried", self.carried);
        out.count("gaps", self.gaps);
        out.count("resynchronised", self.resynchronised);
        let most = self.ways.iter().map(|way| way.merger.depth_max).max().unwrap_or(0);
        out.count("held_most", most as u64);
        out.series("wait for other stripes", "ps", &self.skew);
    }
}
