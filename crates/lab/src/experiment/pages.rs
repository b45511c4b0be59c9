//! The pages of what every experiment has: the file itself, links, and what all nodes and all
//! traffic can have.

use super::{COUNT_MAX, FRAMING_MAX};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind};

/// All of them.
pub(crate) static KINDS: &[Kind] = &[
    Kind::new(EXPERIMENT, &()),
    Kind::new(NODE, &()),
    Kind::new(LINK, &()),
    Kind::new(TRAFFIC, &()),
];

pub(crate) const EXPERIMENT: &Page = &Page {
    name: "experiment",
    family: Family::Experiment,
    what: "A network, the traffic through it, and the question that a run answers.",
    ports: "experiment.toml --> nodes, links, traffic --> run --> ledger",
    params: &[
        Param::or("title", ParamKind::Text, "").is("what it is called in its ledger"),
        Param::or("question", ParamKind::Text, "").is("what it is meant to answer"),
        Param::required("duration", ParamKind::Time).is("how long it runs, in its own time"),
        Param::or("seed", ParamKind::Integer { min: 0, max: i64::MAX as u64 }, "1")
            .is("names the random streams; the same seed gives the same result"),
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
        .is("so many of them: NAME.0, NAME.1, ...; NAME alone means each")],
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
    what: "A list of links; each direction of each has its own queue and wire.",
    ports: "alice --> [ queue ] --> (wire: rate) --> (delay) --> bob      and back",
    params: &[
        Param::required("between", ParamKind::Chains).is(
            "the nodes that it joins; more than two are a chain of equal links, and a list of such \
             lists are chains that are alike",
        ),
        Param::optional("rate", ParamKind::Rate, "no wire").is("bits per second of each direction"),
        Param::optional("card", ParamKind::Profile("links"), "what `rate` and `framing` say").is(
            "the line card at both ends, whose rate and framing it has where these are not written",
        ),
        Param::or("delay", ParamKind::Time, "0 s").is("from one end to the other"),
        Param::optional("framing", ParamKind::Size { min: 0, max: FRAMING_MAX }, "none")
            .is("line time for each packet that is not part of it: preamble, check sequence, gap"),
        Param::optional(
            "queue",
            ParamKind::Nested(Family::Queue),
            "drop-tail of 1000 packets, as Linux has it",
        )
        .is("where packets wait for the wire"),
    ],
    deviations: &["Directions that no traffic takes are not built."],
    counters: &[
        ("served", "packets sent"),
        ("refused", "packets that the queue had no room for"),
        ("packets_most", "most packets that waited"),
    ],
    example: TWO_HOSTS,
    ..Page::at(here!())
};

pub(crate) const TRAFFIC: &Page = &Page {
    name: "traffic",
    family: Family::Experiment,
    what: "A list of traffic; each says who sends what kind of packets to whom.",
    ports: "from --> ... --> to",
    params: &[
        Param::required("name", ParamKind::Text).is("the class of traffic, as the ledger calls it"),
        Param::required("from", ParamKind::Node).is("the host that sends"),
        Param::required("to", ParamKind::Node).is("the host that receives"),
        Param::or("start", ParamKind::Time, "0 s").is("not before this"),
        Param::optional("stop", ParamKind::Time, "the end").is("not after this"),
        Param::optional("packets", ParamKind::COUNT, "no limit")
            .is("no more than so many, per flow"),
        Param::or("phase", ParamKind::Choice(&["zero", "random"]), "zero")
            .is("when the first packet comes: at once, or after a random part of the first gap"),
        Param::or("class", ParamKind::Integer { min: 0, max: 255 }, "0")
            .is("class of service of its packets, for queues that have classes"),
        Param::or("ecn", ParamKind::Choice(&["none", "ect0", "ect1"]), "none")
            .is("whether queues may mark its packets: `ect1` by the law of scalable senders"),
        Param::optional("deadline", ParamKind::Time, "best effort")
            .is("after being made its packets are due so long"),
        Param::optional("hops", ParamKind::Integer { min: 1, max: 255 }, "the links of its way")
            .is("hops that its packets have to go, for queues that ask"),
        Param::or("cells", ParamKind::COUNT, "1")
            .is("so many packets are the cells of a larger one, for queues that discard it whole"),
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
