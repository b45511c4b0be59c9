//! Switches, links and bridges as elements.
//!
//! ```text
//! client in p --> [ FIFO ] --> crossbar --> out port --> [ FIFO of the link that leaves there ]
//! switch A in 0 --> table A->B --> out 1 switch B        and back
//! switch A in 0 --> table A->B --> channel of the entry's port --> out 1 multiplexed line
//! ```
//!
//! Packets hold whole cells; other packets are dropped. What leaves a link is written into the next switch at
//! once; the delay of its fibre is that of the experiment's link in front of it.

use super::OnBus;
use super::card::{Action, Card, Counts, Side};
use super::channels::{self, Channels, LEAVE};
use super::crossbar::{Crossbar, Moved};
use lastmeter_base::kind::{Family, Kind, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, NodeId, Packet, StageId, Time, here};
use lastmeter_engine::site::{self, NodeKind, Ports, Site};
use lastmeter_engine::{
    Context, Element, Error, Meter, PortId, Report, ResourceId, ResourceKind, TimerId,
};
use lastmeter_wire::atm::Cell;
use lastmeter_wire::atm::vunet::{PORT_MAX, VUNET_CELL_LEN, VunetCell};

/// Three switches in a row, with a camera at one end and a workstation at the other.
const EXAMPLE: &str = r#"
duration = "200 ms"
[nodes]
camera = { host = {} }
office = { vunet-switch = { ports = 4 } }
link-1 = { vunet-link = {} }
hall = { vunet-switch = {} }
link-2 = { vunet-link = { restarts-at = "100 ms" } }
laboratory = { vunet-switch = {} }
alpha = { host = {} }
[[links]]
between = ["camera", "office", "link-1", "hall", "link-2", "laboratory"]
rate = "500 Mbit/s"
queue = { drop-tail = { packets = 256 } }
[[links]]
between = ["laboratory", "alpha"]
rate = "232 Mbit/s"
queue = { drop-tail = { packets = 256 } }
[[traffic]]
name = "video"
from = "camera"
to = "alpha"
vidboard = { width = 320, height = 240, verify = "20 ms" }
"#;

/// The page that describes a switch to experiments.
pub const SWITCH: &Page = &Page {
    name: "vunet-switch",
    family: Family::Node,
    what: "The VuNet's switch: moves cells between ports, regardless of channels.",
    ports: "neighbour --> [ FIFO ] --> crossbar --> the port that the cell names --> neighbour",
    params: &[
        Param::or("ports", ParamKind::Integer { min: 1, max: PORT_MAX as u64 + 1 }, "6")
            .is("number of ports; neighbours are attached in the order of their links"),
        Param::or("rate", ParamKind::Rate, "700 Mbit/s")
            .is("rate of each port, in each direction, with a bus of 32 bits"),
        Param::or("cells", ParamKind::COUNT, "256").is("capacity of the FIFO at each input"),
        Param::or("bus", ParamKind::Integer { min: 8, max: 512 }, "32")
            .is("bits of the bus of each port: a word crosses at each tick"),
        Param::or("cell", ParamKind::PACKET, "56 B")
            .is("bytes of a cell on the bus, which takes whole words"),
    ],
    source: "Aurora report, §3.1.1, §4.1.1, §5.4.2",
    deviations: &[
        "The FIFO of an output is the queue of the link that leaves it, and its rate that of the \
         client's clock.",
        "Inputs take turns; the report does not say in which order they are served.",
    ],
    counters: &[
        ("moved", "cells moved"),
        ("full", "cells that arrived at a full FIFO"),
        ("depth_most", "most cells at one input"),
        ("padding", "bytes that crossed only to fill the last word of a cell"),
    ],
    drops: &[
        ("FIFO full", "cells that arrived at a full FIFO"),
        ("no such port", "cells for a port that it does not have"),
        ("not a cell", "packets that are not a cell"),
    ],
    example: EXAMPLE,
    ..Page::at(here!())
};

const CARD_COUNTERS: &[(&str, &str)] = &[
    ("forwarded", "data cells forwarded"),
    ("unknown", "data cells without an entry"),
    ("controls", "control cells received"),
    ("written", "entries set or cleared"),
    ("refused", "writes to entries that belong to others"),
    ("used", "entries in use at the end"),
];

/// Reasons for drops at a link, then those of a bridge and of its channels.
const DROPS: &[(&str, &str)] = &[
    ("not a cell", "packets that are not a cell"),
    ("no table entry", "data cells without an entry"),
    ("damaged control cell", "control cells that cannot be parsed"),
    ("answer to a link", "answers, which are of no use to a link"),
    ("request of nobody", "requests without a sender"),
    ("request without a way back", "requests without a return path"),
    ("answer that does not fit", "requests whose answer does not fit into a cell"),
    ("damaged header", "cells of the ATM network with a wrong header checksum"),
    ("no such channel", "cells for a channel that does not exist"),
    ("channel full", "cells that arrived when the FIFO of their channel was full"),
];
/// How many of them apply to a link.
const LINK_DROPS: usize = 7;

const RESTART: Param = Param::optional("restarts-at", ParamKind::Time, "never")
    .is("when its power is switched off and on, so that it loses its tables");

/// The page that describes a link to experiments.
pub const LINK: &Page = &Page {
    name: "vunet-link",
    family: Family::Node,
    what: "The VuNet's link between two switches: maps each cell's channel, names its next port.",
    ports: "switch A --> table --> switch B      and back",
    params: &[RESTART],
    source: "Aurora report, §3.1.2",
    deviations: &["Entries belong to the token that wrote them."],
    counters: CARD_COUNTERS,
    drops: DROPS.split_at(LINK_DROPS).0,
    example: EXAMPLE,
    ..Page::at(here!())
};

/// The page that describes a bridge to an ATM network to experiments.
pub const BRIDGE: &Page = &Page {
    name: "avlink",
    family: Family::Node,
    what: "The VuNet's bridge to an ATM network: a link with cells of 53 bytes on its other side.",
    ports: "switch --56 B--> table --53 B--> ATM network      and back",
    params: &[RESTART],
    source: "Aurora report, §3.4.1, §4.1.2",
    deviations: &[
        "Entries belong to the token that wrote them.",
        "The ATM network does not change VCIs.",
    ],
    counters: CARD_COUNTERS,
    drops: DROPS.split_at(LINK_DROPS + 1).0,
    example: r#"
duration = "200 ms"
[nodes]
camera = { host = {} }
mit = { vunet-switch = {} }
av-1 = { avlink = {} }
sunshine = { router = {} }
av-2 = { avlink = {} }
bellcore = { vunet-switch = {} }
alpha = { host = {} }
[[links]]
between = ["camera", "mit", "av-1"]
rate = "500 Mbit/s"
queue = { drop-tail = { packets = 256 } }
[[links]]
between = ["av-1", "sunshine", "av-2"]
rate = "149.76 Mbit/s"
delay = "1.5 ms"
[[links]]
between = ["av-2", "bellcore", "alpha"]
rate = "500 Mbit/s"
queue = { drop-tail = { packets = 256 } }
[[traffic]]
name = "video"
from = "camera"
to = "alpha"
vidboard = { width = 320, height = 240 }
"#,
    ..Page::at(here!())
};

/// The page that describes a bridge to an AN2 switch, with its channels, to experiments.
pub const ZEBRA: &Page = &Page {
    name: "zebra",
    family: Family::Node,
    what: "The VuNet's bridge to AN2: a connection leaves by the OC-3c channel that its entry \
           names.",
    ports: "switch --56 B--> table --53 B--> [ FIFO ] channel --> multiplexed line      and back",
    params: &[
        RESTART,
        Param::or("channels", ParamKind::Integer { min: 1, max: PORT_MAX as u64 + 1 }, "4")
            .is("number of channels of AN2's line card"),
        Param::or("rate", ParamKind::Rate, "149.76 Mbit/s").is("rate of each channel"),
        Param::or("cells", ParamKind::COUNT, "256").is("most cells waiting for a channel"),
        Param::or("skew", ParamKind::Time, "0 s")
            .is("additional delay of each channel over the previous one"),
    ],
    source: "Aurora report, §3.4.2, §4.1.2",
    deviations: &[
        "AN2 and its line card with several channels are part of the bridge: the port in an entry \
         is, on this side, the channel. The line of the multiplexer has no limit of its own.",
        "A connection uses the viewer's `channel`, or else channels are assigned in turn.",
        "Entries belong to the token that wrote them. FIFOs and skew are ours; the report gives no \
         figures.",
    ],
    counters: &[
        ("forwarded", "data cells forwarded"),
        ("unknown", "data cells without an entry"),
        ("controls", "control cells received"),
        ("written", "entries set or cleared"),
        ("refused", "writes to entries that belong to others"),
        ("used", "entries in use at the end"),
        ("full", "cells that arrived at a full channel"),
        ("channels_used", "channels that carried a cell"),
    ],
    drops: DROPS,
    example: r#"
duration = "200 ms"
[nodes]
camera = { host = {} }
north = { vunet-switch = {} }
zebra-1 = { zebra = {} }
zebra-2 = { zebra = { skew = "30 us" } }
south = { vunet-switch = {} }
alpha = { host = {} }
beta = { host = {} }
[[links]]
between = ["camera", "north", "zebra-1"]
rate = "700 Mbit/s"
queue = { drop-tail = { packets = 4096 } }
[[links]]
between = ["zebra-1", "zebra-2"]
delay = "1.5 ms"
[[links]]
between = ["zebra-2", "south", "alpha"]
rate = "700 Mbit/s"
queue = { drop-tail = { packets = 4096 } }
[[links]]
between = ["south", "beta"]
rate = "700 Mbit/s"
queue = { drop-tail = { packets = 4096 } }
[[traffic]]
name = "video"
from = "camera"
to = "alpha"
vidboard = { width = 320, height = 240, channel = 3 }
[[traffic]]
name = "another"
from = "camera"
to = "beta"
vidboard = { width = 320, height = 240 }
"#,
    ..Page::at(here!())
};

/// The cell in a packet.
pub(super) fn cell_of(packet: &Packet) -> Option<VunetCell> {
    let whole = packet.content.len() == VUNET_CELL_LEN;
    whole.then(|| VunetCell::parse(&packet.content).ok()).flatten().map(|(cell, _)| cell)
}

/// Puts a cell into a packet.
pub(super) fn put_cell(packet: &mut Packet, cell: &VunetCell) {
    packet.content.clear();
    packet.content.extend_from_slice(&cell.0);
    packet.len = Bytes(VUNET_CELL_LEN as u64);
}

/// The requester that a link answers: whoever sends a control cell writes it into the transport header.
pub(super) fn set_requester(packet: &mut Packet, node: NodeId) {
    packet.transport[0] = u64::from(node.0) + 1;
}

fn requester(packet: &Packet) -> Option<NodeId> {
    packet.transport[0].checked_sub(1).map(|node| NodeId(node as u32))
}

/// The role of a kind in a VuNet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It switches cells.
    Switch,
    /// It connects switches.
    Link,
    /// It connects switches, over several channels.
    Zebra,
}

impl Part {
    /// The role of a node in a VuNet.
    pub(super) fn of(kind: &Nested) -> Option<Part> {
        site::own(kind).copied()
    }
}

/// The kind.
pub const SWITCH_KIND: Kind = Kind::new(SWITCH, &NodeKind { build: switch, own: &Part::Switch });
/// The kind.
pub const LINK_KIND: Kind = Kind::new(LINK, &NodeKind { build: link, own: &Part::Link });
/// The kind.
pub const BRIDGE_KIND: Kind = Kind::new(BRIDGE, &NodeKind { build: bridge, own: &Part::Link });
/// The kind.
pub const ZEBRA_KIND: Kind = Kind::new(ZEBRA, &NodeKind { build: zebra, own: &Part::Zebra });

fn switch(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let ports = values.get::<u64>("ports") as usize;
    let attached = site.neighbours.len();
    if attached > ports {
        return Err(Error::Misfit(format!("{attached} neighbours, but only {ports} ports")));
    }
    let resource = site.units("crossbar", "", ResourceKind::Engine, ports as u32);
    let stage = site.stage("crossbar", Some(&resource));
    let on_bus = OnBus { cell: values.get::<Bytes>("cell").0, bits: values.get("bus") };
    let cell_time = on_bus.time(stage.rate(values.get("rate")));
    let crossbar = Crossbar::new(ports, values.get::<u64>("cells") as usize, cell_time);
    let element = site.add(Switch::new(crossbar, on_bus, stage.id, resource.id))?;
    Ok(Ports::each(element, 0..attached))
}

fn link(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    site.between_two()?;
    let element = site.add(Link::of(values, site.node, false))?;
    Ok(Ports::each(element, 0..2))
}

fn bridge(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let ports = far_and_near(site)?;
    let element = site.add(Link::of(values, site.node, true))?;
    Ok(Ports::each(element, ports))
}

fn zebra(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let ports = far_and_near(site)?;
    let units = values.get::<u64>("channels");
    let resource = site.units("channel", "", ResourceKind::Wire, units as u32);
    let (transmit, skew) = (site.stage("channel", Some(&resource)), site.stage("skew", None));
    let options = channels::Options {
        channels: units as usize,
        rate: transmit.rate(values.get("rate")),
        cells: values.get("cells"),
        skew: skew.time(values.get("skew")),
    };
    let stages = channels::Stages { transmit: transmit.id, skew: skew.id };
    let channels = Channels::new(options, stages, resource.id);
    let element = site.add(Link::of(values, site.node, true).with_channels(channels))?;
    Ok(Ports::each(element, ports))
}

/// The ports of a bridge's neighbours: the switch has port 0.
fn far_and_near(site: &Site<'_>) -> Result<[usize; 2], String> {
    match site.between_two()?.map(|neighbour| Part::of(neighbour.kind) == Some(Part::Switch)) {
        [true, false] => Ok([0, 1]),
        [false, true] => Ok([1, 0]),
        both => {
            let switches = both.iter().filter(|&&is_switch| is_switch).count();
            Err(format!("one of its neighbours is a vunet-switch, not {switches}"))
        }
    }
}

/// A switch; input and output ports have the same numbers.
pub struct Switch {
    crossbar: Crossbar<Packet>,
    on_bus: OnBus,
    stage: StageId,
    /// One for each output, with the end of its last transfer.
    meters: Vec<(Meter, Time)>,
    moved: u64,
    full: u64,
}

const CROSS: TimerId = TimerId(0);

impl Switch {
    /// A switch around a crossbar, whose outputs are the units of `resource`.
    pub fn new(
        crossbar: Crossbar<Packet>,
        on_bus: OnBus,
        stage: StageId,
        resource: ResourceId,
    ) -> Switch {
        let meters = (0..crossbar.ports()).map(|_| (Meter::new(resource), Time::START));
        Switch { meters: meters.collect(), crossbar, on_bus, stage, moved: 0, full: 0 }
    }

    fn advance(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        while let Some(Moved { mut item, output, entered, done }) = self.crossbar.advance(now) {
            self.moved += 1;
            let (meter, busy_until) = &mut self.meters[output];
            if now > *busy_until {
                meter.rest(*busy_until);
            }
            if now > *busy_until || now == Time::START {
                meter.serve(now, self.stage);
            }
            *busy_until = done;
            meter.moved(item.len);
            if cx.collecting() {
                item.visit(self.stage, now - entered, done - now, Duration::ZERO);
            }
            cx.send_at(PortId(output as u16), item, done);
        }
        if let Some(wake) = self.crossbar.ready_at() {
            cx.arm(CROSS, wake);
        }
    }
}

impl Element for Switch {
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, packet: Packet) {
        let Some(cell) = cell_of(&packet) else {
            return cx.drop(packet, Some(self.stage), "not a cell");
        };
        let output = usize::from(cell.port());
        if output >= self.crossbar.ports() {
            return cx.drop(packet, Some(self.stage), "no such port");
        }
        match self.crossbar.enqueue(cx.now(), usize::from(port.0), output, packet) {
            Ok(()) => self.advance(cx),
            Err(packet) => {
                self.full += 1;
                cx.drop(packet, Some(self.stage), "FIFO full");
            }
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.advance(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.crossbar.waiting() as u64);
        for (meter, busy_until) in &self.meters {
            let mut meter = meter.clone();
            if *busy_until <= out.now() {
                meter.rest(*busy_until);
            }
            out.meter(&meter);
        }
        out.count("moved", self.moved);
        out.count("full", self.full);
        out.count("depth_most", self.crossbar.depth_max as u64);
        out.count("padding", self.moved * self.on_bus.padding());
    }
}

/// A link, or a bridge: port 0 is side A, port 1 side B.
pub struct Link {
    card: Card,
    /// Whether side B carries ATM cells.
    bridge: bool,
    restarts_at: Option<Time>,
    /// The channels of a zebra's side B.
    channels: Option<Channels>,
}

impl Link {
    fn of(values: &Values, node: NodeId, bridge: bool) -> Link {
        let restarts_at = values.given::<Duration>("restarts-at").map(|at| Time::START + at);
        Link::new(Card::new(node.0 as u16), bridge, restarts_at)
    }

    /// A link around its cards.
    pub fn new(card: Card, bridge: bool, restarts_at: Option<Time>) -> Link {
        Link { card, bridge, restarts_at, channels: None }
    }

    /// A bridge whose cells leave side B by the channel that their entry's port names.
    pub fn with_channels(self, channels: Channels) -> Link {
        Link { channels: Some(channels), ..self }
    }

    /// The arriving cell, in the VuNet's format.
    fn read(&self, side: Side, packet: &Packet) -> Result<VunetCell, &'static str> {
        if !self.bridge || side == Side::A {
            return cell_of(packet).ok_or("not a cell");
        }
        let (cell, rest) = Cell::parse(&packet.content).map_err(|_| "not a cell")?;
        match (rest.is_empty(), cell.is_intact()) {
            (false, _) => Err("not a cell"),
            (_, false) => Err("damaged header"),
            _ => Ok(VunetCell::from_atm(&cell)),
        }
    }

    fn write(&self, side: Side, packet: &mut Packet, cell: &VunetCell) {
        put_cell(packet, cell);
        if self.bridge && side == Side::B {
            packet.content.clear();
            packet.content.extend_from_slice(&cell.to_atm_checked().0);
            packet.len = Bytes(packet.content.len() as u64);
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, side: Side, mut packet: Packet, cell: &VunetCell) {
        self.write(side, &mut packet, cell);
        match (&mut self.channels, side) {
            (Some(channels), Side::B) => channels.send(cx, cell.port(), packet),
            _ => cx.send(PortId(side as u16), packet),
        }
    }
}

impl Element for Link {
    fn timers(&self) -> u32 {
        2
    }
    fn start(&mut self, cx: &mut Context<'_>) {
        if let Some(at) = self.restarts_at {
            cx.arm(TimerId(0), at);
        }
    }
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        let side = if port.0 == 0 { Side::A } else { Side::B };
        let cell = match self.read(side, &packet) {
            Ok(cell) => cell,
            Err(reason) => return cx.drop(packet, None, reason),
        };
        match self.card.receive(side, cell) {
            Action::Forward(cell) => self.send(cx, side.other(), packet, &cell),
            Action::Taken => cx.deliver(packet),
            Action::Drop(reason) => cx.drop(packet, None, reason),
            Action::Answer(cell) => match requester(&packet) {
                Some(node) => {
                    packet.destination = node;
                    self.send(cx, side, packet, &cell);
                }
                None => cx.drop(packet, None, "request of nobody"),
            },
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        match &mut self.channels {
            Some(channels) if timer == LEAVE => channels.expire(cx),
            _ => self.card.restart(),
        }
    }
    fn report(&self, out: &mut Report) {
        let Counts { forwarded, unknown, controls, written, refused } = self.card.counts();
        let used = self.card.used() as u64;
        for ((name, _), value) in
            CARD_COUNTERS.iter().zip([forwarded, unknown, controls, written, refused, used])
        {
            out.count(name, value);
        }
        if let Some(channels) = &self.channels {
            channels.report(out);
        }
    }
}
