//! Packets, the record of where each one spent its time, and the pool that they come from.

use crate::{Bytes, Duration, Time};
use std::ops::{Deref, DerefMut};

/// Which path of the ledger a packet belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);
/// Which flow of its path a packet belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);
/// A node of the modelled network, as forwarding tables know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);
/// A stage of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId(pub u32);

/// A packet has one owner at a time; a refusal gives it back.
#[derive(Debug)]
pub struct Packet(Box<Body>);

/// What a packet is made of. Content is optional: most models only need lengths.
#[derive(Debug, Default)]
pub struct Body {
    /// Length on the wire that it is on, or in memory where it is in memory.
    pub len: Bytes,
    /// When its source made it.
    pub born: Time,
    /// Scratch of the element that holds it: usually when it arrived there.
    pub entered: Time,
    /// Where it is going.
    pub destination: NodeId,
    /// The path of the ledger that it is accounted to.
    pub path: PathId,
    /// Its flow within the path.
    pub flow: FlowId,
    /// Its place within the flow, from 0.
    pub seq: u64,
    /// What a sink expects to find: `content_tag(path, flow, seq)`.
    pub tag: u64,
    /// Unique in a run: the element that made it and that element's count.
    pub id: u64,
    /// Stages passed so far.
    pub visits: Vec<Visit>,
    /// Real bytes, where there are any.
    pub content: Vec<u8>,
}

impl Deref for Packet {
    type Target = Body;
    #[inline]
    fn deref(&self) -> &Body {
        &self.0
    }
}
impl DerefMut for Packet {
    #[inline]
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.0
    }
}

impl Packet {
    /// A packet outside any pool, for tests and tools.
    pub fn new(len: Bytes) -> Packet {
        Packet(Box::new(Body { len, ..Body::default() }))
    }

    /// Records that this packet waited for `stage`, was served by it, and was then held up.
    #[inline]
    pub fn visit(&mut self, stage: StageId, wait: Duration, service: Duration, blocked: Duration) {
        self.visits.push(Visit { wait, service, blocked, stage });
    }
}

/// One stage in a packet's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// From arrival until the stage's resource began to serve it.
    pub wait: Duration,
    /// While the resource served it.
    pub service: Duration,
    /// While service was interrupted, or over but the packet could not go on.
    pub blocked: Duration,
    /// Which stage.
    pub stage: StageId,
}

/// Packets that have served and wait to be used again, so that a run does not allocate per packet.
///
/// ```
/// use lastmeter_base::{Bytes, Pool};
/// let mut pool = Pool::default();
/// let packet = pool.take(Bytes(1500));
/// pool.give(packet);
/// assert_eq!(pool.take(Bytes(64)).len, Bytes(64));
/// ```
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Packet>,
}

impl Pool {
    /// More packets than this are given back to the allocator.
    const FREE_MAX: usize = 65_536;

    /// A packet of `len` with every other field at its default.
    #[inline]
    pub fn take(&mut self, len: Bytes) -> Packet {
        match self.free.pop() {
            Some(mut packet) => {
                let mut visits = std::mem::take(&mut packet.visits);
                let mut content = std::mem::take(&mut packet.content);
                visits.clear();
                content.clear();
                *packet.0 = Body { len, visits, content, ..Body::default() };
                packet
            }
            None => Packet::new(len),
        }
    }
    /// Takes a packet back.
    #[inline]
    pub fn give(&mut self, packet: Packet) {
        if self.free.len() < Pool::FREE_MAX {
            self.free.push(packet);
        }
    }
}
