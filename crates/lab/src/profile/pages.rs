//! The pages of profiles: the parameters of a host, its resources and its stages.

use super::{Described, File, ProfileKind, device, port};
use crate::document::{Fault, Problem, whole_file};
use crate::experiment::{ADAPTERS, HOSTS};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind};
use lastmeter_engine::ResourceKind;
use lastmeter_host::profile::Profile;
use std::sync::Arc;

/// All of them.
pub(crate) static KINDS: &[Kind] = &[
    Kind::new(HOST, &ProfileKind { folder: HOSTS, within: None, read: host }),
    Kind::new(ADAPTER, &ProfileKind { folder: ADAPTERS, within: Some(HOSTS), read: adapter }),
    port::KIND,
    port::LINE_CARD_KIND,
    device::KIND,
    Kind::new(CONNECTION, &()),
    Kind::new(RESOURCE, &()),
    Kind::new(STAGE, &()),
    Kind::new(CPU, &ResourceKind::Cpu),
    Kind::new(BUS, &ResourceKind::Bus),
    Kind::new(ENGINE, &ResourceKind::Engine),
];

fn host(file: &File<'_>) -> Result<Described, Vec<Problem>> {
    Ok(Arc::new(super::host(file.name, file.text.as_bytes(), file.library)?))
}

/// A host with the adapter in it.
fn adapter(file: &File<'_>) -> Result<Described, Vec<Problem>> {
    let host = file.within.and_then(|host| host.downcast_ref::<Profile>());
    let host = host.ok_or_else(|| {
        let fault = Fault::new("an adapter needs a host", "name the profile of its host, too");
        vec![whole_file(file.name, fault)]
    })?;
    let adapter = super::adapter(file.name, file.text.as_bytes(), host, file.library)?;
    Ok(Arc::new(host.with(&adapter)))
}

const TIMES: ParamKind = ParamKind::Integer { min: 0, max: 1000 };
const SOURCE: &str = "source of its constants: document and section, or how they were measured";

pub(crate) const HOST: &Page = &Page {
    name: "host-profile",
    family: Family::Profile,
    what: "A host as data: the resources that its stages compete for, and its stages.",
    ports: "application --[send]--> network        application <--[receive]-- network",
    params: &[
        Param::required("what", ParamKind::Text).is("machine, clock rate, operating system"),
        Param::required("source", ParamKind::Text).is(SOURCE),
        Param::optional("socket-buffer", ParamKind::BUFFER, "not known").is(
            "capacity of a socket for unacknowledged data: it limits the window of the transfers \
             that `why --host` models",
        ),
    ],
    example: EXAMPLE,
    ..Page::at(here!())
};

pub(crate) const ADAPTER: &Page = &Page {
    name: "adapter-profile",
    family: Family::Profile,
    what: "An adapter as data, for `host = { profile = ..., adapter = ... }`: link and stages.",
    ports: "host [send] --> adapter [send] --> link --> adapter [receive] --> host [receive]",
    params: &[
        Param::required("what", ParamKind::Text).is("what it is: card, bus, memory"),
        Param::required("source", ParamKind::Text).is(SOURCE),
        Param::required("rate", ParamKind::Rate).is("bit rate of its link"),
        Param::or("delay", ParamKind::Time, "0 s").is("propagation delay to the next adapter"),
        Param::or(
            "framing",
            ParamKind::Size { min: 0, max: crate::experiment::FRAMING_MAX },
            "0 B",
        )
        .is("overhead of each packet on the link"),
        Param::required("packet-max", ParamKind::PACKET).is("longest packet"),
        Param::optional("price", ParamKind::Integer { min: 1, max: 1_000_000 }, "not known")
            .is("price per host in dollars; `why --host` derives that of a delivered Gbit/s"),
        Param::optional("power", WATTS, "not known").is("power in watts; likewise"),
    ],
    deviations: &[
        "Its stages are those of a host, and may be served by the host's resources and cross the \
         host's buses. `after = \"STAGE\"` places one directly after a stage of the host; without \
         it the stage is next to the network.",
        "`rate`, `delay`, `framing` and `packet-max` describe the transfer that `why --host` \
         models; an experiment describes its own links.",
    ],
    example: ADAPTER_EXAMPLE,
    ..Page::at(here!())
};

const DOLLARS: ParamKind = ParamKind::Number { min: 0.0, max: 1e9 };
const WATTS: ParamKind = ParamKind::Number { min: 0.0, max: 1e6 };

pub(crate) const CONNECTION: &Page = &Page {
    name: "connection",
    family: Family::Profile,
    what: "A part of what connects a host besides its adapter, under [[connection]].",
    ports: "",
    params: &[
        Param::required("part", ParamKind::Text).is("a transceiver, a cable, a switch"),
        Param::or("hosts", ParamKind::Integer { min: 1, max: 1_000_000 }, "1")
            .is("how many hosts share it"),
        Param::optional("price", DOLLARS, "not known").is("price in dollars, for all of them"),
        Param::optional("power", WATTS, "not known").is("power in watts, for all of them"),
        Param::optional("source", ParamKind::Text, "that of the profile").is(SOURCE),
    ],
    source: "HPL-93-37, section 2 (J-02)",
    example: ADAPTER_EXAMPLE,
    ..Page::at(here!())
};

pub(crate) const RESOURCE: &Page = &Page {
    name: "resources",
    family: Family::Profile,
    what: "The table of resources, each under its name: NAME = { KIND = { ... }, source = ... }.",
    ports: "",
    params: &[Param::optional("source", ParamKind::Text, "that of the profile").is(SOURCE)],
    example: EXAMPLE,
    ..Page::at(here!())
};

pub(crate) const STAGE: &Page = &Page {
    name: "stages",
    family: Family::Profile,
    what: "A stage of a host, under [[send]] or [[receive]]: its queue, its resource, its costs.",
    ports: "--> [queue] --> resource (+ bytes over buses) --> next stage",
    params: &[
        Param::required("name", ParamKind::Text).is("unique in the host"),
        Param::required("on", ParamKind::Text).is("the resource that serves it"),
        Param::optional("source", ParamKind::Text, "that of the profile").is(SOURCE),
        Param::or("per-packet", ParamKind::Time, "0 s").is("time on the resource per packet"),
        Param::or("per-byte", ParamKind::PerByte, "0 ns/B").is("time on the resource per byte"),
        Param::or("per-message", ParamKind::Time, "0 s").is(
            "time on the resource per message of the application, divided among its packets by \
             length; the length is the host's `message`, without which each packet is a message",
        ),
        Param::or("per-pdu", ParamKind::Time, "0 s")
            .is("additional time for the last cell of each PDU, if packets are cells"),
        Param::optional("random", ParamKind::Draw, "none")
            .is("random additional time per packet; not at hosts with a `reception`"),
        Param::or("batch", ParamKind::Flag, "false")
            .is("whether an interrupt also handles packets that arrive while it runs"),
        Param::or("per-interrupt", ParamKind::Time, "0 s")
            .is("time on the resource for each of a packet's `interrupts`"),
        Param::or("interrupts", ParamKind::Integer { min: 0, max: 2 }, "0").is(
            "how many interrupts the time per packet covers: a host's `reception` charges it for \
             each interrupt, and for each packet at stages without interrupts",
        ),
        Param::or("priority", ParamKind::Choice(&["thread", "softirq", "interrupt"]), "thread")
            .is("an interrupt has priority over a softirq, and a softirq over all threads"),
        Param::or("level", ParamKind::Integer { min: 0, max: 255 }, "0")
            .is("priority among threads, highest first"),
        Param::or("preemptive", ParamKind::Flag, "false")
            .is("whether it pre-empts lower priorities, which resume later"),
        Param::or("copies", TIMES, "0").is("how often it copies each byte"),
        Param::or("touches", TIMES, "0").is("how often a processor reads or writes each byte"),
        Param::optional("queue", ParamKind::Nested(Family::Queue), "without limit")
            .is("where packets wait for it"),
        Param::or("full", ParamKind::Choice(&["drop", "block"]), "drop")
            .is("whether a packet that finds the queue full is dropped or waits upstream"),
    ],
    source: "Indiresan 1997, section 4.3.4 and Fig 4.4 (E-50)",
    deviations: &[
        "`crosses = { memory = 2 }` says how often each byte crosses which bus, in \
         parallel with the stage's own work; the resource is blocked while it only waits for the \
         bus.",
        "Threads of one level are served in the order in which they became ready, as by a \
         scheduler, and not their packets in order of arrival: a stage that has served a packet \
         goes behind the others that wait.",
    ],
    example: EXAMPLE,
    ..Page::at(here!())
};

const UNITS: Param = Param::or("units", ParamKind::Integer { min: 1, max: 4096 }, "1")
    .is("how many packets it serves at once");
const RATE: ParamKind = ParamKind::PerByte;

pub(crate) const CPU: &Page = &Page {
    name: "cpu",
    family: Family::Resource,
    what: "A processor: interrupts before softirqs before threads, with the cost of switching.",
    ports: "stages --> [by priority] --> core 0 .. core n-1",
    params: &[
        UNITS,
        Param::or("context-switch", ParamKind::Time, "0 s")
            .is("time to switch between threads; each stage is a thread"),
        Param::or("interrupt", ParamKind::Time, "0 s")
            .is("time to enter and leave an interrupt handler"),
    ],
    source: "Indiresan 1997, section 7.2 and Table 7.2",
    example: EXAMPLE,
    ..Page::at(here!())
};

pub(crate) const BUS: &Page = &Page {
    name: "bus",
    family: Family::Resource,
    what: "A memory or I/O bus that the bytes of stages cross.",
    ports: "bytes of stages --> arbitration --> bus",
    params: &[
        Param::required("rate", RATE).is("its throughput: \"800 Mbit/s\" or \"2 ns/B\""),
        Param::or("memory", ParamKind::Flag, "false").is("whether the ledger counts its crossings"),
        Param::or("arbitration", ParamKind::Choice(&["shared", "priority"]), "shared").is(
            "`shared`: short bursts in turn, so that all proceed equally fast; `priority`: one \
             packet at a time, highest priority first",
        ),
    ],
    deviations: &["Round-robin by bursts is modelled as its limit, equal shares."],
    example: EXAMPLE,
    ..Page::at(here!())
};

pub(crate) const ENGINE: &Page = &Page {
    name: "engine",
    family: Family::Resource,
    what: "A DMA engine, a segmentation chip, an adapter's processor: works in parallel with the \
           CPU.",
    ports: "stages --> [by priority] --> unit 0 .. unit n-1",
    params: &[UNITS],
    example: EXAMPLE,
    ..Page::at(here!())
};

/// A whole profile, so that each page shows its part in context.
pub(crate) const EXAMPLE: &str = r#"
what = "A host with one core, DMA, and memory at 1 GB/s"
source = "made up for this page"
[resources]
cpu = { cpu = { context-switch = "5 us", interrupt = "3 us" } }
memory = { bus = { rate = "1 GB/s", memory = true } }
dma = { engine = {} }
[[send]]
name = "copy to kernel"
on = "cpu"
per-packet = "2 us"
crosses = { memory = 2 }
copies = 1
touches = 2
[[send]]
name = "DMA to adapter"
on = "dma"
per-packet = "1 us"
crosses = { memory = 1 }
[[receive]]
name = "DMA from adapter"
on = "dma"
per-packet = "1 us"
crosses = { memory = 1 }
queue = { drop-tail = { packets = 256 } }
[[receive]]
name = "interrupt"
on = "cpu"
per-packet = "4 us"
priority = "interrupt"
preemptive = true
[[receive]]
name = "copy to user"
on = "cpu"
per-packet = "2 us"
crosses = { memory = 2 }
copies = 1
touches = 2
"#;

/// An adapter for the host of [`EXAMPLE`], whose processor moves the data.
pub(crate) const ADAPTER_EXAMPLE: &str = r#"
what = "A card whose memory the processor copies to and from"
source = "made up for this page"
rate = "1 Gbit/s"
framing = "38 B"
packet-max = "1500 B"
price = 200
power = 4
[[connection]]
part = "port of a switch"
hosts = 4
price = 400
power = 10
[resources]
port = { engine = {} }
[[send]]
name = "copy to card"
after = "copy to kernel"
on = "cpu"
per-byte = "100 MB/s"
copies = 1
touches = 2
[[send]]
name = "card sends"
on = "port"
per-byte = "125 MB/s"
[[receive]]
name = "card receives"
on = "port"
per-byte = "125 MB/s"
queue = { drop-tail = { packets = 32 } }
"#;
