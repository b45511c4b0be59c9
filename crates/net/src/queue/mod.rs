//! Queue disciplines: what is kept, and what goes next.
//!
//! To add one: write its file, with its [`Page`] and [`Described::build`], and its line in
//! [`KINDS`].

mod drop_tail;
mod token_bucket;

pub use drop_tail::DropTail;
pub use token_bucket::TokenBucket;

use crate::server::{Server, Service};
use lastmeter_base::kind::{Nested, Page, Values};
use lastmeter_base::{Bytes, Packet, StageId, Time};
use lastmeter_engine::{Element, ResourceId};

/// Every queue discipline that experiments can name.
pub const KINDS: &[Kind] = &[Kind::of::<DropTail>(), Kind::of::<TokenBucket<Box<dyn Queue>>>()];

/// A passive store that decides which packets to keep and which goes next.
///
/// It takes `now` as an argument and owns no timer; the element that serves it does.
pub trait Queue: Send {
    /// Stores the packet, or gives it back: the caller counts and traces the drop.
    ///
    /// # Errors
    /// The packet, where there is no room for it.
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet>;
    /// The next packet, if one may go now.
    fn dequeue(&mut self, now: Time) -> Option<Packet>;
    /// When `dequeue` could next succeed. `None`: not before another `enqueue`.
    fn ready_at(&self, now: Time) -> Option<Time>;
    /// How many packets it holds.
    fn packets(&self) -> u64;
    /// How many bytes they have.
    fn bytes(&self) -> Bytes;
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
}

/// A queue that experiments can name.
pub trait Described: Queue + Sized + 'static {
    /// Its page.
    const PAGE: &'static Page;
    /// Makes one from its parameters, every limit times `buffers`.
    fn build(values: &Values, buffers: Buffers) -> Self;
}

/// By how much every limit of a queue is changed, to see what larger buffers would buy.
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

    /// `limit` changed, at least 1; where there is no limit there still is none.
    pub fn scale(self, limit: u64) -> u64 {
        if limit == u64::MAX {
            return limit;
        }
        let exact = u128::from(limit) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(exact).unwrap_or(u64::MAX).max(1)
    }
}

/// A line of [`KINDS`].
pub struct Kind {
    /// What it is.
    pub page: &'static Page,
    build: fn(&Values, Buffers) -> Box<dyn Queue>,
    serve: fn(&Values, Buffers, Service, StageId, ResourceId) -> Box<dyn Element>,
}

impl Kind {
    /// The kind of `Q`.
    pub const fn of<Q: Described>() -> Kind {
        Kind {
            page: Q::PAGE,
            build: |values, buffers| Box::new(Q::build(values, buffers)),
            // A server of this very queue, because calls through a pointer would cost each hop more
            // than the queue does.
            serve: |values, buffers, service, stage, resource| {
                Box::new(Server::new(Q::build(values, buffers), service, stage, resource))
            },
        }
    }
}

/// The kind that a page describes. Panics where it describes no queue: decoding has checked that.
fn kind(page: &Page) -> &'static Kind {
    let kind = KINDS.iter().find(|kind| kind.page.name == page.name);
    kind.expect("a queue's parameters name a registered queue")
}

/// The queue that an experiment describes.
pub fn build(queue: &Nested, buffers: Buffers) -> Box<dyn Queue> {
    (kind(queue.page).build)(&queue.values, buffers)
}

/// A server of the queue that an experiment describes.
pub fn serve(
    queue: &Nested,
    buffers: Buffers,
    service: Service,
    stage: StageId,
    resource: ResourceId,
) -> Box<dyn Element> {
    (kind(queue.page).serve)(&queue.values, buffers, service, stage, resource)
}
