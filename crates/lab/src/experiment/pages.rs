//! The pages of what every experiment has: the file itself, links, and the parameters of all nodes and all traffic.

use super::{COUNT_MAX, FRAMING_MAX};
use lastmeter_base::here;
use lastmeter_base::kind::{Fallback, Family, Kind, Page, Param, ParamKind};
use lastmeter_net::queue;

/// All of them.
pub(crate) static KINDS: &[Kind] = &[
    Kind::new(EXPERIMENT, &()),
    Kind::new(NODE, &()),
    Kind::new(LINK, &()),
    Kind::new(BACK, &()),
    Kind::new(TRAFFIC, &()),
];

pub(crate) const EXPERIMENT: &Page = &Page {
    name: "experiment",
    family: Family::Experiment,
    what: "A network, its traffic, and the question that a run answers.",
    ports: "experiment.toml --> nodes, links, traffic --> run --> ledger",
    params: &[
        Param::or("title", ParamKind::Text, "").is("the title of its ledger"),
        Param::or("question", ParamKind::Text, "").is("the question that it answers"),
        Param::required("duration", ParamKind::Time).is("length of the run, in modelled time"),
        Param::or("warm-up", ParamKind::Time, "0 s")
            .is("beginning that the ledger leaves out, except from counters, series and transfers"),
        Param::or("seed", ParamKind::Integer { min: 0, max: i64::MAX as u64 }, "1")
            .is("seed of the random streams; the same seed gives the same result"),
    ],
    deviations: &[
        "Packets on their way at the end of the warm-up count with all of their latency.",
    ],
    example: TWO_HOSTS,
    ..Page::at(here!())
};

pub(crate) const NODE: &Page = &Page {
    name: "nodes",
    family: Family::Experiment,
    what: "The table of nodes, each under its name: NAME = { KIND = { ... }, count = ... }.",
    ports: "",
    params: &[Param::optional("count", ParamKind::Integer { min: 1, max: COUNT_MAX }, "one")
        .is("how many of them: NAME.0, NAME.1, ...; NAME alone means each")],
    example: r#"
duration = "10 ms"
[nodes]
sensor = { host = {}, count = 8 }
gateway = { router = {} }
server = { host = {} }
[[links]]
between = ["sensor", "gateway"]
rate = "10 Mbit/s"
[[links]]
between = ["gateway", "server"]
rate = "100 Mbit/s"
[[traffic]]
name = "readings"
from = "sensor"
to = "server"
constant = { rate = "1 Mbit/s", size = "200 B" }
phase = "random"
"#,
    ..Page::at(here!())
};

pub(crate) const LINK: &Page = &Page {
    name: "links",
    family: Family::Experiment,
    what: "A list of links; each direction has its own queue and wire.",
    ports: "alice --> [ queue ] --> (wire: rate) --> (delay) --> bob      and back",
    params: &[
        Param::required("between", ParamKind::Chains).is(
            "the nodes that it connects; more than two are a chain of equal links, and a list of \
             such lists is several identical chains",
        ),
        Param::optional("rate", ParamKind::Rate, "no wire").is("bits per second of each direction"),
        Param::optional("card", ParamKind::Profile("links"), "`rate` and `framing`").is(
            "the line card at both ends, which sets `rate` and `framing` unless they are given",
        ),
        Param::or("delay", ParamKind::Time, "0 s").is("propagation delay"),
        FRAMING,
        QUEUE,
        queue::LENGTH,
        Param::or("cost", COST, "1")
            .is("cost of each hop: packets take the route with the least sum"),
    ],
    deviations: &["Directions that no traffic takes are not built."],
    counters: &[
        ("served", "packets sent"),
        ("refused", "packets that found the queue full"),
        ("packets_most", "greatest queue length in packets"),
    ],
    example: TWO_HOSTS,
    ..Page::at(here!())
};

const FRAMING: Param =
    Param::optional("framing", ParamKind::Size { min: 0, max: FRAMING_MAX }, "none")
        .is("line time per packet beyond its length: preamble, check sequence, gap");
const QUEUE: Param = Param::optional(
    "queue",
    ParamKind::Nested(Family::Queue),
    "drop-tail of 1000 packets, as in Linux",
)
.is("where packets wait for the wire");
const COST: ParamKind = ParamKind::Integer { min: 1, max: 1_000_000 };

pub(crate) const BACK: &Page = &Page {
    name: "back",
    family: Family::Experiment,
    what: "The other direction of a link, from right to left in `between`, where it differs.",
    ports: "alice <-- (delay) <-- (wire: rate) <-- [ queue ] <-- bob",
    params: &[
        Param::optional("rate", ParamKind::Rate, AS_THERE).is("bits per second"),
        Param::optional("delay", ParamKind::Time, AS_THERE).is("propagation delay"),
        Param { default: Fallback::Absent(AS_THERE), ..FRAMING },
        Param { default: Fallback::Absent(AS_THERE), ..QUEUE },
        Param::optional("cost", COST, AS_THERE)
            .is("cost of each hop; where it differs, packets may return by another route"),
    ],
    example: r#"
duration = "100 ms"
[nodes]
home = { host = {} }
exchange = { host = {} }
[[links]]
between = ["home", "exchange"]
rate = "2 Mbit/s"
delay = "4 ms"
queue = { drop-tail = { packets = 50 } }
back = { rate = "24 Mbit/s", delay = "6 ms" }
[[traffic]]
name = "download"
from = "exchange"
to = "home"
constant = { rate = "20 Mbit/s", size = "1500 B" }
"#,
    ..Page::at(here!())
};
const AS_THERE: &str = "as in the first direction";

pub(crate) const TRAFFIC: &Page = &Page {
    name: "traffic",
    family: Family::Experiment,
    what: "A list of traffic: kind of packets, sender and receiver of each.",
    ports: "from --> ... --> to",
    params: &[
        Param::required("name", ParamKind::Text).is("the class of traffic in the ledger"),
        Param::required("from", ParamKind::Node).is("the host that sends"),
        Param::required("to", ParamKind::Node).is("the host that receives"),
        Param::optional("stream", ParamKind::Text, "its name")
            .is("what its random numbers are drawn by: they stay if it is renamed"),
        Param::or("start", ParamKind::Time, "0 s").is("earliest time of a packet"),
        Param::optional("stop", ParamKind::Time, "the end").is("latest time of a packet"),
        Param::optional("packets", ParamKind::COUNT, "no limit").is("most packets per flow"),
        Param::or("phase", ParamKind::Choice(&["zero", "random"]), "zero").is(
            "when the first packet comes: at once, or after a random part of the first gap; with \
             random gaps always after one of them",
        ),
        Param::or("class", ParamKind::Integer { min: 0, max: 255 }, "0")
            .is("class of service of its packets, for queues that have classes"),
        Param::or("ecn", ParamKind::Choice(&["none", "ect0", "ect1"]), "none")
            .is("whether queues may mark its packets; `ect1`: with a scalable congestion control"),
        Param::optional("deadline", ParamKind::Time, "best effort")
            .is("time from a packet's creation until it is due"),
        Param::optional("hops", ParamKind::Integer { min: 1, max: 255 }, "the links of its route")
            .is("number of hops of its packets, for queues that use it"),
        Param::or("cells", ParamKind::COUNT, "1")
            .is("packets that are the cells of one PDU, for queues that discard whole PDUs"),
    ],
    example: TWO_HOSTS,
    ..Page::at(here!())
};

const TWO_HOSTS: &str = r#"
title = "Two hosts and a router"
question = "What limits the transfer?"
duration = "100 ms"
[nodes]
alice = { host = {} }
r1 = { router = {} }
bob = { host = {} }
[[links]]
between = ["alice", "r1", "bob"]
rate = "1 Gbit/s"
delay = "1 ms"
framing = "38 B"
queue = { drop-tail = { packets = 200 } }
[[traffic]]
name = "transfer"
from = "alice"
to = "bob"
constant = { rate = "18 Mbit/s", size = "1500 B" }
"#;
