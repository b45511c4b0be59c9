//! A trunk of several channels that together carry one stream in each direction.
//!
//! ```text
//! neighbour --> split --> stripe: wire, delay, jitter, loss --> [ FIFO ] --> merge --> neighbour
//! ```
//!
//! Skew is the time for which a unit that has arrived waits for others: stage `order`.

use super::merge::{Merger, Out};
use super::split::{Cell, Sent, Splitter};
use super::{Balance, Sync, Unit};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Draw, Duration, Packet, Rate, StageId, Time, here, one_way};
use lastmeter_engine::site::{NodeKind, Ports, Site, Stage};
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
    ],
    source: "Aurora report, §3.4; Adiseshu et al., SIGCOMM 1996 (markers)",
    deviations: &["The sequence number of a unit, if used, takes one byte; a marker takes a cell."],
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
    site.between_two()?;
    let units = 2 * values.get::<u64>("stripes") as u32;
    let resource = site.units("transmit", "", ResourceKind::Wire, units);
    let transmit = site.stage("transmit", Some(&resource));
    let propagation = site.stage("propagation", None);
    let order = site.stage("order", None);
    let options = Options::new(values, &transmit, &propagation);
    let stages = Stages { transmit: transmit.id, propagation: propagation.id, order: order.id };
    let element = site.add(Trunk::new(options, stages, resource.id)?)?;
    Ok(Ports::each(element, 0..2))
}

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

/// What is in flight on a channel; a marker has no packet.
struct Flight {
    stripe: usize,
    sent: Sent,
    packet: Option<(Packet, Time)>,
}

/// One direction.
struct Way {
    splitter: Splitter,
    merger: Merger<(Packet, Time)>,
    /// Units that the splitter holds.
    pending: VecDeque<Packet>,
    /// One for each channel, with the end of its transmission.
    wires: Vec<(Meter, Time)>,
    /// When the last unit of each channel arrives, so that units stay in order.
    last_arrival: Vec<Time>,
}

/// A trunk: packets that enter by one of its two ports leave by the other.
pub struct Trunk {
    options: Options,
    ways: [Way; 2],
    flights: BTreeMap<(Time, u64), (usize, Flight)>,
    launched: u64,
    stages: Stages,
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

const ARRIVE: TimerId = TimerId(0);

impl Trunk {
    /// A trunk whose channels, of both directions, are the units of `resource`.
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
            })
        };
        Ok(Trunk {
            ways: [way()?, way()?],
            options,
            flights: BTreeMap::new(),
            launched: 0,
            stages,
            skew: Series::whole_run(),
            carried: 0,
            gaps: 0,
            resynchronised: 0,
        })
    }

    fn launch(&mut self, cx: &mut Context<'_>, direction: usize, stripe: usize, sent: Sent) {
        let now = cx.now();
        let way = &mut self.ways[direction];
        let packet = match sent {
            Sent::Cell(_) => way.pending.pop_front(),
            Sent::Marker { .. } => None,
        };
        let numbered = Bytes(u64::from(self.options.sync == Sync::Numbers));
        let len = packet.as_ref().map_or(MARKER, |packet| packet.len + numbered);
        let (meter, busy_until) = &mut way.wires[stripe];
        let start = now.max(*busy_until);
        if start > *busy_until {
            meter.rest(*busy_until);
        }
        if start > *busy_until || start == Time::START {
            meter.serve(start, self.stages.transmit);
        }
        let end = start + self.options.rate.time_for(len);
        *busy_until = end;
        meter.moved(len);
        let jitter = self.options.jitter.as_ref().map(|jitter| jitter.sample(cx.rng()));
        let arrival = end + self.options.delays[stripe] + jitter.unwrap_or(Duration::ZERO);
        let arrival = arrival.max(way.last_arrival[stripe]);
        way.last_arrival[stripe] = arrival;
        let mut packet = packet;
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
                let flight =
                    Flight { stripe, sent, packet: packet.map(|packet| (packet, arrival)) };
                self.flights.insert((arrival, self.launched), (direction, flight));
                self.launched += 1;
            }
        }
    }

    fn arrive(&mut self, cx: &mut Context<'_>, direction: usize, flight: Flight) {
        let now = cx.now();
        let Flight { stripe, sent, packet } = flight;
        let merger = &mut self.ways[direction].merger;
        match (sent, packet) {
            (Sent::Marker { round }, _) => merger.marker(stripe, round),
            (Sent::Cell(_), Some((packet, came))) => {
                let (len, last) = (packet.len.0, packet.ends);
                merger.cell(stripe, sent, (packet, came), len, last);
            }
            (Sent::Cell(_), None) => {}
        }
        while let Some(out) = self.ways[direction].merger.take() {
            match out {
                Out::Cell((mut packet, came)) => {
                    self.carried += 1;
                    self.skew.record(now, (now - came).as_ps());
                    if cx.collecting() {
                        packet.visit(self.stages.order, now - came, Duration::ZERO, Duration::ZERO);
                    }
                    cx.send(PortId(1 - direction as u16), packet);
                }
                Out::Refused((packet, _)) => {
                    cx.drop(packet, Some(self.stages.order), "incomplete");
                }
                Out::Lost(_) => self.gaps += 1,
                Out::Resynchronised => self.resynchronised += 1,
            }
        }
    }

    fn arm(&self, cx: &mut Context<'_>) {
        if let Some((&(at, _), _)) = self.flights.first_key_value() {
            cx.arm(ARRIVE, at);
        }
    }
}

impl Element for Trunk {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        let direction = usize::from(port.0.min(1));
        packet.entered = cx.now();
        let cell = Cell { len: packet.len.0, last: packet.ends, flow: packet.flow.0 };
        let way = &mut self.ways[direction];
        way.pending.push_back(packet);
        for (stripe, sent) in way.splitter.send(cell) {
            self.launch(cx, direction, stripe, sent);
        }
        self.arm(cx);
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        while let Some(first) = self.flights.first_entry().filter(|one| one.key().0 <= cx.now()) {
            let (direction, flight) = first.remove();
            self.arrive(cx, direction, flight);
        }
        self.arm(cx);
    }
    fn report(&self, out: &mut Report) {
        let flying = self.flights.values().filter(|(_, flight)| flight.packet.is_some()).count();
        let waiting: usize =
            self.ways.iter().map(|way| way.pending.len() + way.merger.waiting()).sum();
        out.held((flying + waiting) as u64);
        for (meter, busy_until) in self.ways.iter().flat_map(|way| &way.wires) {
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
