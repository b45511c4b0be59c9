//! How experiments describe a port processor.

use lastmeter_base::here;
use lastmeter_base::kind::{Family, Page, Param, ParamKind};

/// How experiments describe it.
pub const PAGE: &Page = &Page {
    name: "port-processor",
    family: Family::Node,
    what: "A port of a router: a card, a bus, a memory and a processor that wait for each other.",
    ports: "line   --> [FIFO] -> memory -> swap, lookup, software -> memory -> fabric
fabric --> [FIFO] -> memory -> swap,         software -> memory -> line
with an FPX: line --> FIPL --> fabric; packets of a class other than 0 --> processor, no lookup
drops: `no buffer`, `overrun`, `line full`, `lookup full`",
    params: &[
        Param::required("profile", ParamKind::Profile("ports"), "the card that it is"),
        Param::or("line", ParamKind::Rate, "1.2 Gbit/s", "at which its card takes cells of 53 B"),
        Param::or("lookup", ParamKind::Flag, "true", "whether the input side looks next hops up"),
        Param::or(
            "queueing",
            ParamKind::Flag,
            "true",
            "whether its processor works for distributed queueing in each period",
        ),
        Param::or(
            "word-swap",
            ParamKind::Flag,
            "true",
            "whether words of packets are swapped, which a fault of the first card makes necessary",
        ),
        Param::or(
            "fpx",
            ParamKind::Integer { min: 0, max: 8 },
            "0",
            "lookup engines of an FPX in front of the processor; 0: there is none",
        ),
    ],
    source: "Kuhns et al., Design of a High Performance Dynamically Extensible Router, §2.3, §4.1, \
             §6",
    deviations: &[
        "What comes from a `fabric` takes the output side, everything else the input side: in the \
         router the circuit's number says which.",
        "Virtual output queues stand in the fabric, a virtual interface's queue at its link.",
        "Interrupts are part of the software's time; cells of two packets never interleave.",
        "An FPX has no delay but that of its engines, whose lookups pass nine nodes; packets do \
         not come back to it from the processor.",
        "The processor's clock does not matter: its software waits for the memory (D-116).",
    ],
    counters: &[
        ("overruns", "packets that lost a cell for which the card had no room"),
        ("plain", "packets that an FPX sent past the processor"),
        ("active", "packets that an FPX sent to the processor"),
    ],
    example: r#"
duration = "20 ms"
[nodes]
sender = { host = {} }
in = { port-processor = { profile = "spc" } }
core = { fabric = { rate = "1 Gbit/s" } }
out = { port-processor = { profile = "spc" } }
receiver = { host = {} }
[[links]]
between = ["sender", "in", "core", "out", "receiver"]
[[traffic]]
name = "small packets"
from = "sender"
to = "receiver"
constant = { rate = "25.6 Mbit/s", size = "40 B" }
"#,
    place: here!(),
};
