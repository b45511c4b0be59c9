//! A port processor as a node: how experiments describe it, and how it is built.

use super::fpx::{self, Fpx};
use super::{FROM_FABRIC, FROM_LINES, Machine, Names, Options, Passing, Port, Profile};
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Rate, Time, here, one_way};
use lastmeter_engine::site::{Fabric, Inputs, Moves, NodeKind, Outputs, Ports, Site, own};
use lastmeter_engine::{Error, PortId, ResourceKind};

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "port-processor",
    family: Family::Node,
    what: "A port of a router: a card, a bus, a memory and a processor that wait for each other.",
    ports: "line   --> [FIFO] -> memory -> swap, lookup, software -> memory -> fabric
fabric --> [FIFO] -> memory -> swap,         software -> memory -> line
with an FPX: line --> FIPL --> fabric; packets of a class other than 0 --> processor --> FPX
channels that pass: port of the card --> its other port",
    params: &[
        Param::required("profile", ParamKind::Profile("ports")).is("the card"),
        Param::or("line", ParamKind::Rate, "1.2 Gbit/s").is("rate of its line, in cells of 53 B"),
        Param::or("lookup", ParamKind::Flag, "true").is("whether the input side does lookups"),
        Param::or("queueing", ParamKind::Flag, "true")
            .is("whether its processor runs distributed queueing in each period"),
        Param::or("word-swap", ParamKind::Flag, "true")
            .is("whether words of packets are swapped, to work around a fault of the first card"),
        Param::or("fpx", ParamKind::Integer { min: 0, max: 8 }, "0")
            .is("number of lookup engines of an FPX in front of the processor; 0: no FPX"),
        Param::or("loaded-at", ParamKind::Time, "0 s")
            .is("when the FPX's module is loaded; until then the processor looks everything up"),
        Param::optional("passes", ParamKind::Integer { min: 0, max: 255 }, "none")
            .is("class of the packets whose channels the card passes from port to port"),
    ],
    source: "Kuhns et al., Design of a High Performance Dynamically Extensible Router, §2.3, §4.1, \
             §6",
    deviations: &[
        "Packets from a `fabric` take the output side, all others the input side; in the router, \
         the circuit number decides.",
        "Virtual output queues are in the fabric; the queue of a virtual interface is at its link.",
        "Interrupts are part of the software time; cells of two packets never interleave.",
        "Only the engines of an FPX take time; their lookups pass nine nodes each.",
        "What passes from port to port and what comes from memory do not wait for each other: \
         together they are no more than one line brings.",
        "The processor's clock rate does not matter, since its software waits for memory (D-116).",
    ],
    counters: &[
        ("overruns", "packets that lost a cell to a full card"),
        ("plain", "packets that an FPX sent past the processor"),
        ("active", "packets that an FPX sent to the processor"),
        ("back", "packets that came back from the processor to an FPX"),
        ("passed", "packets that the card passed from port to port"),
    ],
    drops: &[
        ("no buffer", "packets that arrived when no buffer was free"),
        ("overrun", "packets that lost a cell because the card was full"),
        ("line full", "packets that arrived faster than the rate of the line"),
        ("lookup full", "packets that an FPX had no room for"),
        ("no module", "packets whose circuit leads to an empty region of an FPX"),
    ],
    example: one_way! {
        "20 ms", "sender" [
            "in" = r#"port-processor = { profile = "spc" }"#,
            "core" = r#"fabric = { rate = "1 Gbit/s" }"#,
            "out" = r#"port-processor = { profile = "spc" }"#,
        ] "receiver",
        [],
        "small packets" [r#"constant = { rate = "25.6 Mbit/s", size = "40 B" }"#]
    },
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind::new(PAGE, &NodeKind::new(build));

/// The line rate when cells arrive on a line.
const CELL: Bytes = Bytes(53);

/// A port with the profile that it names. Swapping reads and writes the memory once each.
fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let profile = site.profile::<Profile>("profile")?;
    site.source = Some(profile.source.clone());
    let pci = site.resource("pci", " pci", ResourceKind::Bus);
    let memory = site.resource("memory", " memory", ResourceKind::Bus);
    let cpu = site.resource("cpu", " cpu", ResourceKind::Cpu);
    let mut moving = |role, resource, touches, memory| {
        let moves = Moves { copies: 0, touches, memory };
        site.moving(role, role, Some(resource), moves)
    };
    let receive = moving("card to memory", &pci, 0, 1);
    let software = moving("software", &cpu, 0, 0);
    let lookup = moving("lookup", &cpu, 0, 0);
    let swap = moving("word swap", &cpu, 1, 2);
    let send = moving("memory to card", &pci, 0, 1);
    let queueing = site.stage("queueing", Some(&cpu));
    let mut options = profile.options.clone().with_memory_speed(memory.speed);
    options.cycle = pci.time(options.cycle);
    options.cell_gap = values.get::<Rate>("line").time_for(CELL);
    let cell_gap = options.cell_gap;
    options.free = [receive.free, send.free];
    options.software = if software.free { Duration::ZERO } else { options.software };
    if lookup.free || !values.get::<bool>("lookup") {
        options.lookup = Duration::ZERO;
    }
    if swap.free || !values.get::<bool>("word-swap") {
        options.swap = None;
    }
    if queueing.free || !values.get::<bool>("queueing") {
        options.clock = None;
    }
    let stages = [receive, software, lookup, swap, send, queueing].map(|stage| stage.id);
    let resources = [pci, memory, cpu].map(|resource| resource.id);
    let machine = Machine::new(options, Names::of(resources, stages));
    let engines = values.get::<u64>("fpx") as usize;
    let (late, fifo) = (values.get::<Duration>("loaded-at"), profile.options.fifo);
    let passing = values.given::<u64>("passes").map(|class| {
        let stage = site.stage("pass", None);
        Passing::new(class as u8, stage.time(cell_gap), fifo, stage.id)
    });
    let fpx = (engines > 0).then(|| lookups(engines, !late.is_zero(), site));
    let mut port = Port::new(machine).with_fpx(fpx).with_passing(passing);
    if engines > 0 && !late.is_zero() {
        port = port.with_control(Time::START + late, fpx::load_fipl(1..=u8::MAX));
    }
    let element = site.add(port)?;
    let side = |kind| if own::<Fabric>(kind).is_some() { FROM_FABRIC } else { FROM_LINES };
    let neighbours = site.neighbours.iter();
    let inputs = neighbours.map(|neighbour| (element, side(neighbour.kind))).collect();
    let outputs = Outputs::Any(vec![(element, PortId(0))]);
    Ok(Ports { inputs: Inputs::Each(inputs), outputs })
}

/// The FPX in front of the processor.
fn lookups(engines: usize, empty: bool, site: &mut Site<'_>) -> Fpx {
    let stage = site.stage("FIPL", None);
    let mut options = fpx::fipl(engines);
    if stage.free {
        (options.cycle, options.period) = (Options::INSTANT, Options::INSTANT);
        (options.handover, options.supply) = (Duration::ZERO, Duration::ZERO);
    }
    match empty {
        true => Fpx::empty(options, fpx::NODES_MOST, stage.id),
        false => Fpx::new(options, fpx::NODES_MOST, stage.id),
    }
}
