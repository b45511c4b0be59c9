//! A node, a queue, a traffic and a host defined outside Lastmeter.
//!
//! ```text
//! Registry::builtin() + with(&HOLD) + with(&DROP_HEAD) + with(&HEARTBEAT) --> Mine, a library
//!                                                                              |
//!                               experiment.toml --parse, build, run, what-if --'
//! ```
//!
//! Each has a page, a function that builds it, and one line that adds it to the registry. Nothing else is needed:
//! messages, schema, `kinds` and what-ifs follow from the page and the site.

#![allow(missing_docs, reason = "the pages document the kinds")]

use lastmeter_base::kind::{Family, Kind, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Draw, Duration, Packet, StageId, Time, here};
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{Context, Element, Error, PortId};
use lastmeter_lab::kinds::Registry;
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_net::queue::{self, Described, Queue};
use lastmeter_net::source::{Pattern, Sizes};
use lastmeter_net::traffic::{Maker, Setting, Traffic, packets};
use std::collections::VecDeque;

/// An experiment that uses all of them.
pub const EXAMPLE: &str = r#"
duration = "1 s"
[nodes]
alice = { host = {} }
line = { hold = { by = "3 ms" } }
bob = { host = { profile = "slow" } }
[[links]]
between = ["alice", "line"]
rate = "1 Mbit/s"
queue = { drop-head = { packets = 4 } }
[[links]]
between = ["line", "bob"]
[[traffic]]
name = "pulse"
from = "alice"
to = "bob"
heartbeat = { every = "10 ms" }
[[traffic]]
name = "load"
from = "alice"
to = "bob"
constant = { rate = "2 Mbit/s", size = "1000 B" }
"#;

// A node: delays every packet.

pub static HOLD: Kind = Kind::new(
    &Page {
        name: "hold",
        family: Family::Node,
        what: "Delays every packet by a constant time.",
        ports: "any in --> (by) --> the link towards the destination",
        params: &[Param::required("by", ParamKind::Time).is("the delay")],
        example: EXAMPLE,
        ..Page::at(here!())
    },
    &NodeKind::new(hold),
);

fn hold(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    let stage = site.stage("hold", None);
    let element = site.add(Hold { by: stage.time(values.get("by")), stage: stage.id })?;
    Ok(Ports::through(element))
}

struct Hold {
    by: Duration,
    stage: StageId,
}

impl Element for Hold {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        if cx.collecting() {
            packet.visit(self.stage, Duration::ZERO, self.by, Duration::ZERO);
        }
        cx.send_at(PortId(0), packet, cx.now() + self.by);
    }
}

// A queue: first in, first out; when full, it drops the oldest packet.

pub static DROP_HEAD: Kind = DropHead::KIND;

struct DropHead {
    packets: VecDeque<Packet>,
    victims: VecDeque<Packet>,
    packets_max: u64,
}

impl Described for DropHead {
    const PAGE: &'static Page = &Page {
        name: "drop-head",
        family: Family::Queue,
        what: "First in, first out; a full queue drops its oldest packet.",
        ports: "in --> [ oldest ... newest ] --> out",
        params: &[Param::required("packets", ParamKind::COUNT).is("its capacity")],
        drops: &[("full", "the oldest packets, when it is full")],
        example: EXAMPLE,
        ..Page::at(here!())
    };
    fn build(values: &Values, site: &queue::Site<'_>) -> DropHead {
        let packets_max = site.buffers.scale(values.get("packets"));
        DropHead { packets: VecDeque::new(), victims: VecDeque::new(), packets_max }
    }
}

impl Queue for DropHead {
    fn enqueue(&mut self, _now: Time, packet: Packet) -> Result<(), Packet> {
        self.packets.push_back(packet);
        if self.packets() > self.packets_max {
            self.victims.extend(self.packets.pop_front());
        }
        Ok(())
    }
    fn dequeue(&mut self, _now: Time) -> Option<Packet> {
        self.packets.pop_front()
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        (!self.packets.is_empty()).then_some(now)
    }
    fn packets(&self) -> u64 {
        self.packets.len() as u64
    }
    fn bytes(&self) -> Bytes {
        self.packets.iter().map(|packet| packet.len).sum()
    }
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        self.victims.pop_front().map(|packet| (packet, "full"))
    }
}

// A traffic: a small packet at regular intervals.

pub static HEARTBEAT: Kind = Kind::new(
    &Page {
        name: "heartbeat",
        family: Family::Traffic,
        what: "A small packet at regular intervals.",
        ports: "(clock) --> out",
        params: &[
            Param::required("every", ParamKind::Time).is("interval between packets"),
            Param::or("size", ParamKind::PACKET, "64 B").is("length of a packet"),
        ],
        counters: &[("sent", "packets made")],
        example: EXAMPLE,
        ..Page::at(here!())
    },
    &packets(&Maker(heartbeat)),
);

fn heartbeat(values: &Values, _setting: &mut Setting<'_>) -> Result<Traffic, String> {
    let gap = Draw::Constant(values.get("every"));
    Ok(Traffic::Source(Pattern::Gaps { gap, sizes: Sizes::Constant(values.get("size")) }))
}

// A host: data.

const SLOW: &str = r#"
what = "A host whose processor copies 10 MB/s"
source = "made up for this example"
[resources]
cpu = { cpu = {} }
[[send]]
name = "copy out"
on = "cpu"
per-byte = "10 MB/s"
[[receive]]
name = "copy in"
on = "cpu"
per-byte = "10 MB/s"
"#;

/// The library of the program, with these kinds and this host.
pub struct Mine(Registry);

impl Default for Mine {
    fn default() -> Mine {
        Mine(Registry::builtin().clone().with(&HOLD).with(&DROP_HEAD).with(&HEARTBEAT))
    }
}

impl Library for Mine {
    fn kinds(&self) -> &Registry {
        &self.0
    }
    fn profile(&self, folder: &str, name: &str) -> Result<String, String> {
        match (folder, name) {
            ("hosts", "slow") => Ok(SLOW.to_owned()),
            _ => Builtin.profile(folder, name),
        }
    }
    fn names(&self, folder: &str) -> Vec<String> {
        let mut names = Builtin.names(folder);
        names.extend((folder == "hosts").then(|| "slow".to_owned()));
        names
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use lastmeter_base::kind::Fallback;
    use lastmeter_engine::{Outcome, Serial};
    use lastmeter_lab::build::{Changes, build};
    use lastmeter_lab::document::Override;
    use lastmeter_lab::experiment::Experiment;
    use lastmeter_lab::schema;

    fn parsed(sets: &[&str], library: &dyn Library) -> Result<Experiment, String> {
        let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).unwrap()).collect();
        Experiment::parse("mine.toml", EXAMPLE, &sets, library).map_err(|problems| {
            problems.iter().map(|problem| problem.render(false)).collect::<String>()
        })
    }

    fn run(changes: &Changes) -> Outcome {
        let mine = Mine::default();
        let experiment = parsed(&[], &mine).unwrap();
        let built = build(&experiment, changes, &mine).map_err(|_| "refused").unwrap();
        let mut engine = built.graph.build(1).unwrap();
        engine.run_parallel(built.end, &Default::default(), &Serial).unwrap();
        engine.finish().unwrap()
    }

    fn mean(outcome: &Outcome, class: &str) -> f64 {
        let place = outcome.paths.iter().position(|path| path.class == class).unwrap();
        outcome.books.paths[place].latency.mean()
    }

    #[test]
    fn kinds_from_outside_run_and_the_books_balance() {
        let outcome = run(&Changes::NONE);
        assert!(outcome.books.delivered > 100 && outcome.books.dropped > 50);
        assert!(outcome.stages.iter().any(|stage| stage.name == "line hold"));
        // Waits behind four packets of 8 ms, is delayed by 3 ms, and is copied.
        assert!((0.010..0.040).contains(&mean(&outcome, "load")), "{}", mean(&outcome, "load"));
    }

    #[test]
    fn what_ifs_apply_through_the_site() {
        let free = Changes { free: ["line hold".to_owned()].into(), ..Changes::NONE };
        let gained = mean(&run(&Changes::NONE), "load") - mean(&run(&free), "load");
        assert!((gained - 3e-3).abs() < 1e-4, "{gained}");
        let roomy = Changes { buffers: (4, 1), ..Changes::NONE };
        assert!(mean(&run(&roomy), "load") > 2.0 * mean(&run(&Changes::NONE), "load"));
    }

    #[test]
    fn messages_pages_and_the_schema_include_them() {
        let mine = Mine::default();
        let wrong = parsed(&["nodes.line.hold.by=3"], &mine).unwrap_err();
        assert!(wrong.contains("has no unit"), "{wrong}");
        let unknown = parsed(&[], &Builtin).unwrap_err();
        assert!(unknown.contains("`line` has no `hold`"), "{unknown}");
        for name in ["hold", "drop-head", "heartbeat"] {
            let page = mine.kinds().find(name).unwrap();
            let needs = page.params.iter().any(|param| param.default == Fallback::Required);
            assert!(needs && Registry::builtin().find(name).is_err(), "{name}");
            assert!(schema::experiment(mine.kinds()).to_string().contains(&format!("\"{name}\"")));
        }
    }
}
