//! A zoned disk in the path of the data read from it.
//!
//! ```text
//! host with the files --block--> [ waiting ] --> arm, platter, cache --> network      commands pass unhindered
//! ```
//!
//! | Parameter    | Unit      | Default   | Meaning                                                        |
//! |--------------|-----------|-----------|----------------------------------------------------------------|
//! | `cylinders`  | cylinders | 1962      | the outermost first                                            |
//! | `heads`      | tracks    | 19        | tracks per cylinder                                            |
//! | `sectors`    | sectors   | 108 90 72 | per track in each zone, the outermost first                    |
//! | `turn`       | time      | 14.99 ms  | time of a rotation                                             |
//! | `switch`     | time      | 1 ms      | from the end of a track to the next, which is that far around  |
//! | `near`, `root` | time    | 3.24 ms, 400 us | an arm's way over d cylinders: near + root x sqrt(d)     |
//! | `far`        | cylinders | 383       | from this distance on: `long` + `cylinder` x d                 |
//! | `long`, `cylinder` | time | 8 ms, 8 us | see `far`                                                    |
//! | `controller` | time      | 2.2 ms    | of a read                                                      |
//! | `bus`        | rate      | 80 Mbit/s | between cache and host                                         |
//! | `cache`      | size      | 128 KiB   | what is read ahead; 0 B: nothing                               |
//! | `access`     | word      | sequential | or `random`                                                   |
//! | `from`, `to` | 1         | 0, 1      | the part of the disk that is read, by capacity, outermost first |
//! | `depth`      | reads     | 64        | reads that wait; more are dropped                              |
//!
//! Each packet from the first neighbour, the host that has the files, is a read of as many bytes; packets from the
//! second neighbour pass through. Reads are served in order. The platter never stops: a sector that has just passed
//! comes again after a turn. With a cache, the disk reads ahead after each read until the cache is full.
//!
//! Source: arm, turn, controller and bus: Ruemmler & Wilkes, IEEE Computer 27(3), 1994 (HP 97560). That disk has one
//! zone of 72 sectors; the others are our assumption, for what Netstation's authors saw on disks of 1996: outer zones
//! are faster (N-39). Deviations: a write is not modelled; tracks of a zone boundary are whole.

mod machine;

pub use machine::{Disk, Geometry, Options, Read, SECTOR, Seek};

use lastmeter_base::kind::{Family, Kind, Misfit, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, Packet, StageId, Stream, Time, here};
use lastmeter_engine::site::{NodeKind, Ports, Site};
use lastmeter_engine::{
    Context, Element, Error, Meter, PortId, Report, ResourceId, ResourceKind, TimerId,
};
use std::collections::VecDeque;

/// The page that describes it to experiments.
pub const PAGE: &Page = &Page {
    name: "disk",
    family: Family::Node,
    what: "A disk with zones: the arm, the platter and the cache that each block waits for.",
    ports: "first neighbour --block--> [ waiting ] --> arm, platter, cache --> second, and back",
    params: &[
        Param::or("cylinders", ParamKind::Integer { min: 1, max: 1 << 24 }, "1962")
            .is("cylinders, the outermost first"),
        Param::or("heads", ParamKind::Integer { min: 1, max: 255 }, "19").is("tracks per cylinder"),
        Param::or("sectors", ParamKind::Integers { min: 1, max: 1 << 16 }, "[108, 90, 72]")
            .is("sectors per track in each zone, the outermost first"),
        Param::or("turn", ParamKind::Time, "14.99 ms").is("time of a rotation"),
        Param::or("switch", ParamKind::Time, "1 ms")
            .is("from the end of a track to the beginning of the next"),
        Param::or("near", ParamKind::Time, "3.24 ms")
            .is("seek of d cylinders: near + root sqrt(d)"),
        Param::or("root", ParamKind::Time, "400 us").is("see `near`"),
        Param::or("far", ParamKind::COUNT, "383")
            .is("from this many cylinders on a seek is long + cylinder d"),
        Param::or("long", ParamKind::Time, "8 ms").is("see `far`"),
        Param::or("cylinder", ParamKind::Time, "8 us").is("see `far`"),
        Param::or("controller", ParamKind::Time, "2.2 ms").is("the controller's time for a read"),
        Param::or("bus", ParamKind::Rate, "80 Mbit/s").is("between its cache and the host"),
        Param::optional("cache", ParamKind::BUFFER, "nothing").is("how much it reads ahead"),
        Param::or("access", ParamKind::Choice(&["sequential", "random"]), "sequential")
            .is("where the next block is"),
        Param::or("from", ParamKind::Number { min: 0.0, max: 1.0 }, "0")
            .is("where the part that is read begins, by capacity; 0 is outermost"),
        Param::or("to", ParamKind::Number { min: 0.0, max: 1.0 }, "1").is("where it ends"),
        Param::or("depth", ParamKind::COUNT, "64").is("reads that wait; more are dropped"),
    ],
    source: "Ruemmler & Wilkes, IEEE Computer 27(3), 1994; zones: our assumption",
    deviations: &["Writes are not modelled.", "Reads are served in order of arrival."],
    counters: &[
        ("reads", "blocks read"),
        ("hits", "blocks that were in the cache, or about to be"),
        ("seeks", "reads for which the arm moved"),
    ],
    drops: &[("full", "reads that found too many waiting")],
    example: r#"
duration = "2 s"
[nodes]
client = { host = {} }
arm = { disk = { cache = "128 KiB", to = 0.1 } }
files = { host = {} }
[[links]]
between = ["files", "arm", "client"]
rate = "100 Mbit/s"
[[traffic]]
name = "reads"
from = "client"
to = "files"
bulk = { size = "64 B", window = 2, response = "8 KiB" }
"#,
    ..Page::at(here!())
};

/// The kind.
pub const KIND: Kind = Kind { fit, ..Kind::new(PAGE, &NodeKind::new(build)) };

fn fit(values: &Values) -> Result<(), Misfit> {
    let (from, to): (f64, f64) = (values.get("from"), values.get("to"));
    if from >= to {
        let found = format!("the part that is read begins at {from} and ends at {to}");
        return Err(Misfit::new("to", found, "write an end after the beginning, like to = 1"));
    }
    if values.get::<Duration>("turn").is_zero() {
        return Err(Misfit::new("turn", "it never turns".to_owned(), "write turn = \"14.99 ms\""));
    }
    let sectors: Vec<u64> = values.get("sectors");
    let cylinders: u64 = values.get("cylinders");
    if sectors.is_empty() || sectors.len() as u64 > cylinders {
        let found = format!("{cylinders} cylinders in {} zones", sectors.len());
        return Err(Misfit::new("sectors", found, "write one number for each of some zones"));
    }
    Ok(())
}

fn build(values: &Values, site: &mut Site<'_>) -> Result<Ports, Error> {
    site.between_two()?;
    site.source = Some(PAGE.source.into());
    let resource = site.resource("arm", "", ResourceKind::Engine);
    let stage = site.stage("read", Some(&resource));
    let time = |name: &str| stage.time(values.get(name));
    let options = Options {
        geometry: Geometry {
            cylinders: values.get("cylinders"),
            heads: values.get("heads"),
            sectors: values.get("sectors"),
            turn: time("turn").max(Duration::from_ps(1)),
            switch: time("switch"),
        },
        seek: Seek {
            near: time("near"),
            root: time("root"),
            far: values.get("far"),
            long: time("long"),
            cylinder: time("cylinder"),
        },
        controller: time("controller"),
        bus: stage.rate(values.get("bus")),
        cache: values.given::<Bytes>("cache").unwrap_or(Bytes::ZERO).0 / SECTOR.0,
    };
    let random = values.get::<String>("access") == "random";
    let stream = site.stream("/blocks");
    let part = (values.get("from"), values.get("to"));
    let blocks = Blocks::new(options.geometry.capacity(), part, random.then_some(stream));
    let depth = values.get::<u64>("depth") as usize;
    let element = site.add(Arm::new(Disk::new(options), blocks, depth, stage.id, resource.id))?;
    Ok(Ports::each(element, 0..2))
}

/// Which sectors are read.
#[derive(Debug)]
struct Blocks {
    first: u64,
    sectors: u64,
    next: u64,
    random: Option<Stream>,
}

impl Blocks {
    fn new(capacity: u64, (from, to): (f64, f64), random: Option<Stream>) -> Blocks {
        let at = |share: f64| (capacity as f64 * share) as u64;
        let first = at(from).min(capacity - 1);
        Blocks { first, sectors: (at(to) - first).max(1), next: 0, random }
    }
    /// The first sector of a block of this many, and how many it has.
    fn take(&mut self, sectors: u64) -> (u64, u64) {
        let sectors = sectors.clamp(1, self.sectors);
        let room = self.sectors - sectors + 1;
        let at = match &mut self.random {
            Some(random) => random.below(room),
            None if self.next < room => self.next,
            None => 0,
        };
        self.next = at + sectors;
        (self.first + at, sectors)
    }
}

/// A disk as a node of a graph.
struct Arm {
    disk: Disk,
    blocks: Blocks,
    depth: usize,
    stage: StageId,
    meter: Meter,
    waiting: VecDeque<Packet>,
    /// The read in progress: its packet, when it began and when it is done.
    serving: Option<(Packet, Time, Time)>,
    reads: u64,
    hits: u64,
    seeks: u64,
}

const DONE: TimerId = TimerId(0);
/// The neighbour with the files, and the other.
const FILES: PortId = PortId(0);
const NETWORK: PortId = PortId(1);

impl Arm {
    fn new(disk: Disk, blocks: Blocks, depth: usize, stage: StageId, resource: ResourceId) -> Arm {
        let meter = Meter::new(resource);
        Arm {
            disk,
            blocks,
            depth,
            stage,
            meter,
            waiting: VecDeque::new(),
            serving: None,
            reads: 0,
            hits: 0,
            seeks: 0,
        }
    }
    fn begin(&mut self, cx: &mut Context<'_>) {
        let Some(packet) = self.waiting.pop_front() else {
            return self.meter.rest(cx.now());
        };
        let (sector, sectors) = self.blocks.take(packet.len.0.div_ceil(SECTOR.0));
        let read = self.disk.read(cx.now(), sector, sectors);
        self.reads += 1;
        self.hits += u64::from(read.hit);
        self.seeks += u64::from(!read.seek.is_zero());
        self.meter.serve(cx.now(), self.stage);
        self.meter.moved(packet.len);
        self.serving = Some((packet, cx.now(), read.done));
        cx.arm(DONE, read.done);
    }
}

impl Element for Arm {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        if port != FILES {
            return cx.send(FILES, packet);
        }
        if self.waiting.len() >= self.depth {
            return cx.drop(packet, Some(self.stage), "full");
        }
        packet.entered = cx.now();
        self.waiting.push_back(packet);
        if self.serving.is_none() {
            self.begin(cx);
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        let Some((mut packet, begun, done)) = self.serving.take() else { return };
        if cx.collecting() {
            packet.visit(self.stage, begun - packet.entered, done - begun, Duration::ZERO);
        }
        cx.send(NETWORK, packet);
        self.begin(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.waiting.len() as u64 + u64::from(self.serving.is_some()));
        let mut meter = self.meter.clone();
        if self.serving.is_none() {
            meter.rest(out.now());
        }
        out.meter(&meter);
        out.count("reads", self.reads);
        out.count("hits", self.hits);
        out.count("seeks", self.seeks);
    }
}
