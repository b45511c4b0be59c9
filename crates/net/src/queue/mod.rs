//! Queue disciplines: which packets are kept, and which is sent next.
//!
//! To add one: write its file, with its [`Page`] and [`Described::build`], and its line in
//! [`KINDS`].

/// A page's example: packets with Poisson arrivals wait for a line of 10 Mbit/s in the given queue. The
/// load is 0.9 unless another rate is given.
macro_rules! one_queue {
    ($queue:literal) => {
        one_queue!($queue, "9 Mbit/s")
    };
    ($queue:literal, $rate:literal) => {
        lastmeter_base::one_way! {
            "100 ms", "alice" [] "bob",
            [r#"rate = "10 Mbit/s""#, concat!("queue = { ", $queue, " }")],
            "telemetry" [concat!(r#"poisson = { rate = ""#, $rate, r#"", size = "1500 B" }"#)]
        }
    };
}

mod blue;
mod cake;
mod cbs;
mod cell_discard;
#[cfg(test)]
mod check;
mod codel;
mod drop_tail;
mod drr;
mod dual_pi2;
mod due;
mod edd;
mod fifo_plus;
mod flat;
mod flows;
mod fq_codel;
mod fq_pie;
mod gauged;
mod h_pfq;
mod hop_laxity;
mod hrr;
mod pie;
mod pifo;
mod priority;
mod qsdrr;
mod rcsp;
mod red;
mod ring;
mod scfq;
mod stamps;
mod stop_and_go;
mod tdrr;
mod time_aware;
mod token_bucket;
mod tournament;
mod turns;
mod virtual_clock;
mod wf2q;
mod wfq;

pub use blue::{Blue, BlueOptions};
pub use cake::{Cake, CakeOptions};
pub use cbs::Cbs;
pub use cell_discard::{CellDiscard, CellPolicy};
pub use codel::{Codel, CodelOptions};
pub use drop_tail::DropTail;
pub use drr::{Drr, DrrOptions};
pub use dual_pi2::{DualPi2, DualPi2Options};
pub use edd::Edd;
pub use fifo_plus::FifoPlus;
pub use flat::{FlatOptions, FlatWfq};
pub use flows::{By, End, Room, Unit};
pub use fq_codel::{FqCodel, FqCodelOptions};
pub use fq_pie::{FqPie, FqPieOptions};
pub use gauged::Gauged;
pub use h_pfq::{HPfq, Tree};
pub use hop_laxity::{HopLaxity, Late};
pub use hrr::{Frames, Hrr};
pub use pie::{Pie, PieOptions};
pub use pifo::{Pifo, Rank};
pub use priority::Priority;
pub use qsdrr::{Discard, Qsdrr};
pub use rcsp::{Control, Rcsp, RcspOptions};
pub use red::{Red, RedOptions};
pub use scfq::Scfq;
pub use stamps::ShareOptions;
pub use stop_and_go::StopAndGo;
pub use tdrr::Tdrr;
pub use time_aware::TimeAware;
pub use token_bucket::TokenBucket;
pub use virtual_clock::VirtualClock;
pub use wf2q::Wf2q;
pub use wfq::Wfq;

pub use lastmeter_engine::site::Granted;

use crate::server::{Server, Service};
use lastmeter_base::kind::{Kind, Misfit, Nested, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Duration, FlowId, Packet, PathId, Rate, StageId, Stream, Time};
use lastmeter_engine::site::{Names, Site as NodeSite};
use lastmeter_engine::{Element, ResourceId};
use std::any::TypeId;

/// The drop reason for packets that a queue refuses.
const FULL: (&str, &str) = ("full", "packets that arrived when it was full");
/// The same for queues that drop other packets to make room.
const LONG: (&str, &str) = ("full", "packets longer than the whole buffer");

/// The parameter of links and stations for the length of their queue.
pub const LENGTH: Param = Param::or("queue-length", ParamKind::Flag, "false")
    .is("whether the ledger records the queue's length over time: mean and quantiles");

/// Every queue discipline that experiments can name.
pub static KINDS: &[Kind] = &[
    DropTail::KIND,
    <TokenBucket<Box<dyn Queue>>>::KIND,
    Priority::KIND,
    Drr::KIND,
    Tdrr::KIND,
    Qsdrr::KIND,
    Red::KIND,
    Blue::KIND,
    Codel::KIND,
    FqCodel::KIND,
    Pie::KIND,
    FqPie::KIND,
    Cake::KIND,
    DualPi2::KIND,
    Scfq::KIND,
    VirtualClock::KIND,
    Wfq::KIND,
    Wf2q::KIND,
    HPfq::KIND,
    FlatWfq::KIND,
    Pifo::KIND,
    Edd::KIND,
    FifoPlus::KIND,
    HopLaxity::KIND,
    StopAndGo::KIND,
    Hrr::KIND,
    Rcsp::KIND,
    CellDiscard::KIND,
    Cbs::KIND,
    TimeAware::KIND,
];

/// A passive store that decides which packets to keep and which goes next.
///
/// It takes `now` as an argument and owns no timer; the element that serves it does.
pub trait Queue: Send {
    /// Stores the packet, or returns it: the caller counts and traces the drop.
    ///
    /// # Errors
    /// The packet, if there is no room for it.
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet>;
    /// The next packet, if one may go now.
    fn dequeue(&mut self, now: Time) -> Option<Packet>;
    /// When `dequeue` could next succeed; `None`: not before another `enqueue`.
    fn ready_at(&self, now: Time) -> Option<Time>;
    /// How many packets it holds.
    fn packets(&self) -> u64;
    /// How many bytes they have.
    fn bytes(&self) -> Bytes;
    /// The backlog of this packet's flow, and its share of the line; the packet need not be here. Disciplines without
    /// separate flows report the whole backlog, and grant the whole line.
    fn granted(&self, _packet: &Packet) -> Granted {
        Granted { len: self.bytes(), share: Granted::WHOLE }
    }
    /// A packet that the discipline itself has dropped since the last call, and why: to make room for
    /// another, or because of a standing queue. The server of the queue calls this after each `enqueue`
    /// and `dequeue` until nothing is left, and counts and traces the drops.
    #[inline]
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        None
    }
    /// Reports its counters, under the names explained on its page.
    fn counts(&self, _count: &mut dyn FnMut(&'static str, u64)) {}
}

impl Queue for Box<dyn Queue> {
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        (**self).enqueue(now, packet)
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        (**self).dequeue(now)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        (**self).ready_at(now)
    }
    fn packets(&self) -> u64 {
        (**self).packets()
    }
    fn bytes(&self) -> Bytes {
        (**self).bytes()
    }
    fn granted(&self, packet: &Packet) -> Granted {
        (**self).granted(packet)
    }
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        (**self).dropped()
    }
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        (**self).counts(count);
    }
}

/// A queue that experiments can name.
pub trait Described: Queue + Sized + 'static {
    /// Its page.
    const PAGE: &'static Page;
    /// Its entry in [`KINDS`].
    const KIND: Kind = Kind {
        page: Self::PAGE,
        fit: Self::fit,
        maker: &Maker {
            build: |values, site| Box::new(Self::build(values, site)),
            serve: Self::serve,
            of: TypeId::of::<Self>,
        },
    };
    /// Whether values that are valid on their own are consistent with each other.
    ///
    /// # Errors
    /// If they are not: which is wrong, and what would be right.
    fn fit(_values: &Values) -> Result<(), Misfit> {
        Ok(())
    }
    /// Makes one for a site from its parameters, which [`Described::fit`].
    fn build(values: &Values, site: &Site<'_>) -> Self;
    /// A server for this type of queue: calls through a pointer would cost each hop more than the queue
    /// does.
    fn serve(
        values: &Values,
        site: &Site<'_>,
        service: Service,
        stage: StageId,
        resource: ResourceId,
    ) -> Box<dyn Element> {
        let server = Server::new(Self::build(values, site), service, stage, resource);
        Box::new(server.recording_length(site.records_length))
    }
}

/// The surroundings of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The factor applied to every limit.
    pub buffers: Buffers,
    /// The rate at which it will be served, if that is constant.
    pub rate: Option<Rate>,
    /// Line time of each packet beyond its length.
    pub framing: Bytes,
    /// The promises to flows that pass through it.
    pub promises: &'a [Promise],
    /// The seed of the experiment.
    pub seed: u64,
    /// The name of the element that serves it.
    pub name: &'a str,
    /// Whether to record its length over time.
    pub records_length: bool,
}

impl<'a> Site<'a> {
    /// The queue of a node.
    pub fn of(site: &NodeSite<'a>) -> Site<'a> {
        let buffers = Buffers::of(site.names);
        Site { buffers, seed: site.seed, name: site.name, ..Site::ANYWHERE }
    }
}

impl Site<'_> {
    /// Anywhere, for tests and tools.
    pub const ANYWHERE: Site<'static> = Site {
        buffers: Buffers::UNCHANGED,
        rate: None,
        framing: Bytes::ZERO,
        promises: &[],
        seed: 1,
        name: "queue",
        records_length: false,
    };

    /// The queue's random stream: separate from its server's.
    pub fn stream(&self) -> Stream {
        Stream::new(self.seed, &format!("{}/queue", self.name))
    }
}

/// What admission control has promised to a flow on one link of its route. Its packets carry their end-to-end
/// deadline; at this link they arrive and are due this long before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The path of the ledger.
    pub path: PathId,
    /// The flow within it.
    pub flow: FlowId,
    /// Logical arrival at this link, before the end-to-end deadline.
    pub arrives: Duration,
    /// When the packet should have left this link, before the end-to-end deadline.
    pub due: Duration,
}

/// The factor applied to every limit of a queue, to predict the effect of larger buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Limits are multiplied by this.
    pub numerator: u64,
    /// And divided by this; never zero.
    pub denominator: u64,
}

impl Buffers {
    /// As the experiment says.
    pub const UNCHANGED: Buffers = Buffers { numerator: 1, denominator: 1 };

    /// As changed by a what-if.
    pub fn of(names: &Names) -> Buffers {
        let (numerator, denominator) = names.buffers();
        Buffers { numerator, denominator }
    }

    /// The changed `limit`, at least 1; an unlimited queue stays unlimited.
    pub fn scale(self, limit: u64) -> u64 {
        if limit == u64::MAX {
            return limit;
        }
        let exact = u128::from(limit) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(exact).unwrap_or(u64::MAX).max(1)
    }
}

/// Makes queues of a kind.
pub struct Maker {
    build: fn(&Values, &Site<'_>) -> Box<dyn Queue>,
    serve: fn(&Values, &Site<'_>, Service, StageId, ResourceId) -> Box<dyn Element>,
    of: fn() -> TypeId,
}

/// Whether an experiment describes a queue of this type.
pub fn is<Q: Described>(queue: &Nested) -> bool {
    (queue.maker::<Maker>().of)() == TypeId::of::<Q>()
}

/// The queue that an experiment describes.
pub fn build(queue: &Nested, site: &Site<'_>) -> Box<dyn Queue> {
    (queue.maker::<Maker>().build)(&queue.values, site)
}

/// A server of the queue that an experiment describes.
pub fn serve(
    queue: &Nested,
    site: &Site<'_>,
    service: Service,
    stage: StageId,
    resource: ResourceId,
) -> Box<dyn Element> {
    (queue.maker::<Maker>().serve)(&queue.values, site, service, stage, resource)
}
