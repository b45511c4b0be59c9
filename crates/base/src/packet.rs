//! Packets, the record of where each one spent its time, and the pool that they come from.

use crate::{Bytes, Duration, Time, prefetch};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// The path in the ledger to which a packet belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);
/// The flow of its path to which a packet belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);
/// A node of the modelled network, as in forwarding tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);
/// A stage of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageId(pub u32);

/// The two bits of explicit congestion notification (RFC 3168 §5; RFC 9331 for `Ect1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable: congestion drops it.
    #[default]
    NotCapable,
    /// ECN-capable, with a scalable congestion control (L4S).
    Ect1,
    /// ECN-capable.
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// Whether it can be marked instead of dropped.
    #[inline]
    pub fn is_capable(self) -> bool {
        self != Ecn::NotCapable
    }
}

/// Most words of a packed transport header.
pub const TRANSPORT_WORDS: usize = 6;

/// A packet has one owner at a time; a refusal gives it back.
#[derive(Debug)]
pub struct Packet(Box<Body>);

/// The fields of a packet. Content is optional: most models only need lengths.
///
/// They are ordered by cache line: the first has what every hop reads and writes, the second the record of
/// the first hops and the third of some more, the fourth what its destination reads. What few models need is
/// elsewhere. A packet that has waited is no longer in a near cache, and each line that a hop touches costs more
/// than all its computation; the thousands in flight have to fit into the next one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Body {
    /// Length on its present wire, or in memory.
    pub len: Bytes,
    /// Scratch field of the element that holds it: usually its arrival time there.
    pub entered: Time,
    /// Where it is going.
    pub destination: NodeId,
    /// The path in the ledger to which it is accounted.
    pub path: PathId,
    /// Its flow within the path.
    pub flow: FlowId,
    /// Its class of service, from 0.
    pub class: u8,
    /// Congestion notification.
    pub ecn: Ecn,
    /// Remaining hops, including this one, if its source knows.
    pub hops: u8,
    /// Whether this cell or fragment is the last one of its packet.
    pub ends: bool,
    /// When its source made it.
    pub born: Time,
    /// Its sequence number within the flow, from 0.
    pub seq: u64,
    /// Unique in a run: the element that made it and that element's count.
    pub id: u64,
    /// Stages passed so far.
    pub visits: Visits,
    inner: Inner,
}

/// What its destination reads; reached through the [`Body`].
#[derive(Default)]
#[repr(C)]
pub struct Inner {
    /// The transport's packed header; zeros where there is none.
    pub transport: [u64; TRANSPORT_WORDS],
    /// What a sink expects to find: `content_tag(path, flow, seq)`.
    pub tag: u64,
    /// Made when something is written to it, and kept when the packet is reused.
    far: Option<Box<Far>>,
}

/// Fields that few models need; reached through the [`Body`].
#[derive(Clone, Debug, Default)]
pub struct Far {
    /// Its deadline at the present stage, or at its destination: set by its source and updated by disciplines
    /// that keep deadlines.
    pub deadline: Time,
    /// How far it is ahead (negative) or behind its class's average so far, in picoseconds: carried from hop to
    /// hop by FIFO+.
    pub behind: i64,
    /// Real bytes, where there are any.
    pub content: Vec<u8>,
}

/// Four cache lines, of which most models use two to four.
const _: () = assert!(size_of::<Body>() == 256);

/// What a packet has there to which nothing was written.
static NOTHING_FAR: Far = Far { deadline: Time::START, behind: 0, content: Vec::new() };

impl Body {
    /// Resets all fields and keeps allocated memory.
    #[inline]
    fn reset(&mut self, new_len: Bytes) {
        let Body { len, entered, destination, path, flow, class, ecn, hops, ends, born, .. } = self;
        (*len, *entered, *born) = (new_len, Time::default(), Time::default());
        (*destination, *path, *flow) = Default::default();
        (*class, *ecn, *hops, *ends) = Default::default();
        let Body { seq, visits, id, inner, .. } = self;
        (*seq, *id) = Default::default();
        visits.clear();
        if !std::mem::replace(&mut visits.inner_is_new, true) {
            (inner.transport, inner.tag) = Default::default();
            inner.far.iter_mut().for_each(|far| far.reset());
        }
    }

    /// Takes over what the destination of another packet would read.
    pub fn copy_inner(&mut self, other: &Body) {
        if other.visits.inner_is_new && self.visits.inner_is_new {
            return;
        }
        self.visits.inner_is_new = false;
        let Inner { transport, tag, far } = &other.inner;
        (self.inner.transport, self.inner.tag) = (*transport, *tag);
        match far {
            Some(far) => self.inner.far.get_or_insert_default().clone_from(far),
            None => self.inner.far.iter_mut().for_each(|far| far.reset()),
        }
    }
}

impl Far {
    fn reset(&mut self) {
        (self.deadline, self.behind) = Default::default();
        self.content.clear();
    }
}

impl Deref for Body {
    type Target = Inner;
    #[inline]
    fn deref(&self) -> &Inner {
        &self.inner
    }
}
impl DerefMut for Body {
    #[inline]
    fn deref_mut(&mut self) -> &mut Inner {
        self.visits.inner_is_new = false;
        &mut self.inner
    }
}
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { transport, tag, .. } = self;
        let mut out = f.debug_struct("Inner");
        out.field("transport", transport).field("tag", tag).field("far", &**self).finish()
    }
}
impl Deref for Inner {
    type Target = Far;
    #[inline]
    fn deref(&self) -> &Far {
        self.far.as_deref().unwrap_or(&NOTHING_FAR)
    }
}
impl DerefMut for Inner {
    #[inline]
    fn deref_mut(&mut self) -> &mut Far {
        self.far.get_or_insert_default()
    }
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

    /// Prefetches what the next hop will read and write.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(&self.0.len);
        prefetch(&self.0.visits.first);
    }

    /// Prefetches the end of its record, which in a long one lies beyond what [`Packet::prefetch`] covers.
    #[inline(always)]
    pub fn prefetch_record(&self) {
        self.0.visits.first.get(self.0.visits.len as usize).into_iter().for_each(prefetch);
    }

    /// Prefetches what its destination will read, and write when the packet is reused, usually at once.
    #[inline(always)]
    pub fn prefetch_rest(&self) {
        prefetch(&self.0.inner);
    }

    /// Records that this packet waited for `stage`, was served by it, and was then held up.
    #[inline(always)]
    pub fn visit(&mut self, stage: StageId, wait: Duration, service: Duration, blocked: Duration) {
        self.visits.push(Visit { wait, service, blocked, stage });
    }
}

/// A packet's visit to one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// From arrival until the stage's resource began to serve it.
    pub wait: Duration,
    /// While the resource served it.
    pub service: Duration,
    /// While service was interrupted, or over but the packet could not leave.
    pub blocked: Duration,
    /// The stage.
    pub stage: StageId,
}

/// A packet's visits so far, packed: most hops neither wait nor block, and the records of thousands of
/// packets in flight have to fit into a cache.
///
/// ```text
/// stage 20 | form 2 | time 42        form 0: only service, which is `time`
///                                    form 1: `time` is the wait, one word of service follows
///                                    form 2: words of wait, service and blocked follow
/// stage 10 | wait 10 | form 2 | wait 18 | service 24        form 3: at most 268 us and 16 us
/// ```
///
/// ```
/// use lastmeter_base::{Duration, StageId, Visit, Visits};
/// let visit = Visit {
///     wait: Duration::from_us(3),
///     service: Duration::from_us(12),
///     blocked: Duration::ZERO,
///     stage: StageId(7),
/// };
/// let mut visits = Visits::default();
/// visits.push(visit);
/// assert_eq!(visits.iter().collect::<Vec<_>>(), [visit]);
/// ```
#[derive(Default)]
#[repr(C)]
pub struct Visits {
    /// Length in words.
    len: u32,
    /// A property of the packet, not of the record, kept here because this cache line has room: nothing has been
    /// written to its [`Inner`] since it was made or reused.
    inner_is_new: bool,
    first: [u64; WORDS_WITHIN],
    /// The words after `first`.
    more: Option<Box<More>>,
}

impl Clone for Visits {
    fn clone(&self) -> Visits {
        let Visits { len, first, more, .. } = self;
        Visits { len: *len, inner_is_new: false, first: *first, more: more.clone() }
    }
}

/// The rest of a long record. It stays with the packet when the packet is reused.
#[derive(Clone, Default)]
struct More {
    words: [u64; WORDS_MORE],
    beyond: Vec<u64>,
}

/// Words of the record within the packet: seven hops with a delay at which it waits briefly; a fat tree has six.
const WORDS_WITHIN: usize = 15;
/// Initial capacity of a longer record, in words.
const WORDS_MORE: usize = 24;

const TIME_BITS: u32 = 42;
const FORM_BITS: u32 = 2;
const STAGE_SHIFT: u32 = TIME_BITS + FORM_BITS;
/// Of form 3: the bit positions of the wait's lower and upper part, the service, and the stage.
const WAIT_LOW_BITS: u32 = 18;
const WAIT_HIGH_BITS: u32 = 10;
const WAIT_BITS: u32 = WAIT_LOW_BITS + WAIT_HIGH_BITS;
const SERVICE_BITS: u32 = TIME_BITS - WAIT_LOW_BITS;
const SHORT_STAGE_SHIFT: u32 = STAGE_SHIFT + WAIT_HIGH_BITS;

impl Visits {
    /// Stage numbers have 20 bits.
    pub const STAGES_MAX: u32 = 1 << (64 - STAGE_SHIFT);

    /// Adds a visit. The stage's number must be below [`Visits::STAGES_MAX`].
    #[inline(always)]
    pub fn push(&mut self, visit: Visit) {
        let (wait, service) = (visit.wait.as_ps(), visit.service.as_ps());
        debug_assert!(visit.stage.0 < Visits::STAGES_MAX, "a stage beyond the millionth");
        let head = |form: u64, time: u64| {
            u64::from(visit.stage.0) << STAGE_SHIFT | form << TIME_BITS | time
        };
        if wait == 0 && service >> TIME_BITS == 0 && visit.blocked.is_zero() {
            self.add(head(0, service));
        } else if wait >> WAIT_BITS == 0
            && service >> SERVICE_BITS == 0
            && visit.stage.0 >> (64 - SHORT_STAGE_SHIFT) == 0
            && visit.blocked.is_zero()
        {
            let upper = u64::from(visit.stage.0) << WAIT_HIGH_BITS | wait >> WAIT_LOW_BITS;
            let lower = (wait & ((1 << WAIT_LOW_BITS) - 1)) << SERVICE_BITS | service;
            self.add(upper << STAGE_SHIFT | 3 << TIME_BITS | lower);
        } else if wait >> TIME_BITS == 0 && visit.blocked.is_zero() {
            self.add(head(1, wait));
            self.add(service);
        } else {
            self.add_all([head(2, 0), wait, service, visit.blocked.as_ps()]);
        }
    }

    #[inline(always)]
    fn add(&mut self, word: u64) {
        let len = self.len as usize;
        match self.first.get_mut(len) {
            Some(place) => *place = word,
            None => self.set_more(len - WORDS_WITHIN, word),
        }
        self.len += 1;
    }

    /// Not inlined, to leave registers for short records in each hop's code.
    #[inline(never)]
    fn set_more(&mut self, at: usize, word: u64) {
        self.more.get_or_insert_default().set(at, word);
    }

    #[cold]
    fn add_all(&mut self, words: [u64; 4]) {
        words.into_iter().for_each(|word| self.add(word));
    }

    /// The visits in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = Visit> + '_ {
        let len = self.len as usize;
        let [more, beyond] = match &self.more {
            Some(more) if len > WORDS_WITHIN => more.words_until(len - WORDS_WITHIN),
            _ => Default::default(),
        };
        let within = &self.first[..len.min(WORDS_WITHIN)];
        Decoded(within.iter().chain(more).chain(beyond).copied())
    }

    /// As [`Visits::iter`], but cheaper for the few visits that most packets have.
    #[inline]
    pub fn iter_few(&self) -> Option<impl Iterator<Item = Visit> + '_> {
        let words = self.first.get(..self.len as usize)?;
        Some(Decoded(words.iter().copied()))
    }

    /// The present end of the record, for [`Visits::rewind`].
    #[inline]
    pub fn mark(&self) -> usize {
        self.len as usize
    }

    /// Forgets all visits since `mark`.
    #[inline]
    pub fn rewind(&mut self, mark: usize) {
        self.len = self.len.min(u32::try_from(mark).unwrap_or(u32::MAX));
    }

    /// Forgets all visits and keeps the memory for them.
    #[inline]
    pub fn clear(&mut self) {
        self.rewind(0);
    }
}

impl More {
    #[inline]
    fn set(&mut self, at: usize, word: u64) {
        match self.words.get_mut(at) {
            Some(place) => *place = word,
            None => self.set_beyond(at - WORDS_MORE, word),
        }
    }
    fn set_beyond(&mut self, at: usize, word: u64) {
        self.beyond.truncate(at);
        self.beyond.push(word);
    }
    /// The first `len` words, in two parts; those beyond stay where they are when a record is rewound.
    fn words_until(&self, len: usize) -> [&[u64]; 2] {
        let beyond = len.saturating_sub(WORDS_MORE);
        [&self.words[..len - beyond], self.beyond.get(..beyond).unwrap_or_default()]
    }
}

/// Iterates over visits, decoding the words of their record.
struct Decoded<I>(I);

impl<I: Iterator<Item = u64>> Iterator for Decoded<I> {
    type Item = Visit;

    #[inline(always)]
    fn next(&mut self) -> Option<Visit> {
        let head = self.0.next()?;
        let mut word = || self.0.next().unwrap_or(0);
        let (upper, time) = (head >> STAGE_SHIFT, head & ((1 << TIME_BITS) - 1));
        let (stage, wait, service, blocked) = match head >> TIME_BITS & ((1 << FORM_BITS) - 1) {
            0 => (upper, 0, time, 0),
            1 => (upper, time, word(), 0),
            2 => (upper, word(), word(), word()),
            _ => {
                let wait = (upper & ((1 << WAIT_HIGH_BITS) - 1)) << WAIT_LOW_BITS;
                let (low, service) = (time >> SERVICE_BITS, time & ((1 << SERVICE_BITS) - 1));
                (upper >> WAIT_HIGH_BITS, wait | low, service, 0)
            }
        };
        Some(Visit {
            wait: Duration::from_ps(wait),
            service: Duration::from_ps(service),
            blocked: Duration::from_ps(blocked),
            stage: StageId(stage as u32),
        })
    }
}

impl fmt::Debug for Visits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Used packets kept for reuse, so that a run does not allocate per packet.
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
    /// Packets beyond this number are returned to the allocator.
    const FREE_MAX: usize = 65_536;

    /// A packet of `len` with every other field at its default.
    #[inline]
    pub fn take(&mut self, len: Bytes) -> Packet {
        match self.free.pop() {
            Some(mut packet) => {
                packet.0.reset(len);
                packet
            }
            None => Packet::new(len),
        }
    }
    /// Returns a packet to the pool.
    #[inline]
    pub fn give(&mut self, packet: Packet) {
        // It is the next to be taken.
        if !packet.0.visits.inner_is_new {
            prefetch(&packet.0.inner);
        }
        if self.free.len() < Pool::FREE_MAX {
            self.free.push(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VISIT: Visit = Visit {
        wait: Duration::from_us(1),
        service: Duration::from_us(2),
        blocked: Duration::ZERO,
        stage: StageId(3),
    };

    #[test]
    fn a_reused_packet_equals_a_new_one() {
        let mut pool = Pool::default();
        let new = format!("{:?}", pool.take(Bytes(9)));
        for round in 0..4 {
            let mut packet = pool.take(Bytes(9));
            assert_eq!(format!("{packet:?}"), new);
            packet.seq = 7;
            packet.visits.push(VISIT);
            if round == 1 {
                packet.transport[2] = 5;
                (packet.tag, packet.behind) = (3, -4);
            }
            if round == 2 {
                packet.content.push(8);
                packet.visits = packet.visits.clone();
                let mut copy = pool.take(Bytes(9));
                copy.copy_inner(&packet);
                assert_eq!((copy.tag, copy.content.as_slice()), (0, [8].as_slice()));
                copy.copy_inner(&pool.take(Bytes(1)));
                assert!(copy.content.is_empty());
            }
            pool.give(packet);
        }
    }

    proptest! {
        #[test]
        fn visits_read_back_as_pushed(
            given in prop::collection::vec(
                (
                    prop_oneof![0u32..2000, 0u32..Visits::STAGES_MAX],
                    prop_oneof![0u64..1 << 29, 0u64..1 << 50],
                    prop_oneof![0u64..1 << 25, any::<u64>()],
                    0u64..3,
                ),
                0..20,
            ),
            kept in 0usize..20,
        ) {
            let given: Vec<Visit> = given
                .into_iter()
                .map(|(stage, wait, service, blocked)| Visit {
                    wait: Duration::from_ps(wait),
                    service: Duration::from_ps(service),
                    blocked: Duration::from_ps(blocked),
                    stage: StageId(stage),
                })
                .collect();
            let mut visits = Visits::default();
            let (before, after) = given.split_at(kept.min(given.len()));
            before.iter().for_each(|&visit| visits.push(visit));
            let mark = visits.mark();
            after.iter().for_each(|&visit| visits.push(visit));
            prop_assert_eq!(visits.iter().collect::<Vec<_>>(), &given[..]);
            visits.rewind(mark);
            prop_assert_eq!(visits.iter().collect::<Vec<_>>(), before);
            visits.push(VISIT);
            prop_assert_eq!(visits.iter().last(), Some(VISIT));
        }
    }
}
