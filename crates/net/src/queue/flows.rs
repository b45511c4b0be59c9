//! Flows and their queues: common to every discipline with many queues.
//!
//! ```text
//! packet --> classifier --> queue 3 [ newest | ... | oldest ]      all share one buffer
//! ```
//!
//! With `queues` given, flows are hashed onto that many queues and may share one, as with the 64
//! datagram queues of the Washington University router; without it each flow has its own.

use super::Site;
use super::tournament::Tournament;
use lastmeter_base::kind::{Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet};
use std::collections::VecDeque;

/// Limit on the queues of one discipline; further flows share them.
pub(super) const QUEUES_MAX: usize = 1 << 20;

/// What identifies a flow.
pub(super) const BY: Param = Param::or("by", ParamKind::Choice(&["flow", "path", "class"]), "flow")
    .is("what gets its own queue: each flow, each path of the ledger, or each class of service");
/// How many queues.
pub(super) const QUEUES: Param = Param::optional(
    "queues",
    ParamKind::Integer { min: 1, max: QUEUES_MAX as u64 },
    "one for each",
)
.is("number of queues onto which flows are hashed; classes beyond the last share it");
/// Weights.
pub(super) const WEIGHTS: Param =
    Param::optional("weights", ParamKind::Integers { min: 1, max: WEIGHT_MAX }, "all alike")
        .is("weights of the queues, in order; those not listed have 1");
/// The largest weight.
pub(super) const WEIGHT_MAX: u64 = 1 << 20;
/// Room in packets.
pub(super) const PACKETS: Param =
    Param::optional("packets", ParamKind::COUNT, "no limit").is("limit on packets in all queues");
/// Room in bytes.
pub(super) const BYTES: Param =
    Param::optional("bytes", ParamKind::BUFFER, "no limit").is("limit on bytes in all queues");
/// Room of each queue.
pub(super) const EACH: Param =
    Param::optional("each", ParamKind::COUNT, "no limit").is("limit on packets in one queue");

/// What identifies a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Path and flow.
    Flow,
    /// The path alone.
    Path,
    /// The class of service.
    Class,
}

impl By {
    pub(super) fn from_values(values: &Values) -> By {
        match values.get::<String>("by").as_str() {
            "path" => By::Path,
            "class" => By::Class,
            _ => By::Flow,
        }
    }
}

/// Finds the queue of a packet.
#[derive(Clone, Debug)]
pub(super) struct Classifier {
    by: By,
    queues: Option<usize>,
    /// Keys and their queues, if each has its own: open addressing, a power of two.
    slots: Vec<(u64, u32)>,
    known: usize,
    /// The last key and its queue: packets arrive in trains.
    last: (u64, u32),
}

const FREE: u32 = u32::MAX;

impl Classifier {
    pub(super) fn new(by: By, queues: Option<usize>) -> Classifier {
        Classifier { by, queues, slots: vec![(0, FREE); 16], known: 0, last: (0, FREE) }
    }
    pub(super) fn from_values(values: &Values) -> Classifier {
        Classifier::new(
            By::from_values(values),
            values.given::<u64>("queues").map(|queues| queues as usize),
        )
    }
    /// The queue of `packet`, below [`QUEUES_MAX`].
    #[inline]
    pub(super) fn queue_of(&mut self, packet: &Packet) -> usize {
        match self.key_of(packet) {
            Ok(key) => self.queue_of_key(key),
            Err(queue) => queue,
        }
    }
    /// The key by which the queue of `packet` is found, or that queue itself.
    #[inline]
    fn key_of(&self, packet: &Packet) -> Result<u64, usize> {
        match self.by {
            By::Flow => Ok(u64::from(packet.path.0) << 32 | u64::from(packet.flow.0)),
            By::Path => Ok(u64::from(packet.path.0)),
            By::Class => {
                let last = self.queues.unwrap_or(usize::MAX) - 1;
                Err(usize::from(packet.class).min(last))
            }
        }
    }
    /// The queue of `packet`, if its flow has one already.
    pub(super) fn find(&self, packet: &Packet) -> Option<usize> {
        let key = match self.key_of(packet) {
            Ok(key) => key,
            Err(queue) => return Some(queue),
        };
        if let Some(queues) = self.queues {
            return Some(spread(key, queues));
        }
        let mask = self.slots.len() - 1;
        let mut at = hash(key) as usize & mask;
        // At least half of the slots are free.
        while self.slots[at].1 != FREE {
            if self.slots[at].0 == key {
                return Some(self.slots[at].1 as usize);
            }
            at = (at + 1) & mask;
        }
        None
    }
    /// The queue of this key.
    #[inline]
    pub(super) fn queue_of_key(&mut self, key: u64) -> usize {
        match self.queues {
            Some(queues) => spread(key, queues),
            None => self.own(key),
        }
    }
    #[inline]
    fn own(&mut self, key: u64) -> usize {
        if self.last.0 == key && self.last.1 != FREE {
            return self.last.1 as usize;
        }
        let mask = self.slots.len() - 1;
        let mut at = hash(key) as usize & mask;
        loop {
            let (found, queue) = self.slots[at];
            if queue == FREE {
                break self.add(key, at);
            }
            if found == key {
                self.last = (key, queue);
                break queue as usize;
            }
            at = (at + 1) & mask;
        }
    }
    #[cold]
    fn add(&mut self, key: u64, at: usize) -> usize {
        if self.known >= QUEUES_MAX {
            return hash(key) as usize % QUEUES_MAX;
        }
        let queue = self.known;
        self.slots[at] = (key, queue as u32);
        self.known += 1;
        if 2 * self.known > self.slots.len() {
            let old = std::mem::take(&mut self.slots);
            self.slots = vec![(0, FREE); 2 * old.len()];
            let mask = self.slots.len() - 1;
            for (key, queue) in old.into_iter().filter(|&(_, queue)| queue != FREE) {
                let mut at = hash(key) as usize & mask;
                while self.slots[at].1 != FREE {
                    at = (at + 1) & mask;
                }
                self.slots[at] = (key, queue);
            }
        }
        queue
    }
}

/// One of this many queues.
#[inline]
fn spread(key: u64, queues: usize) -> usize {
    ((u128::from(hash(key)) * queues as u128) >> 64) as usize
}

/// SplitMix64's finaliser: each bit of the key affects all bits of the hash.
fn hash(key: u64) -> u64 {
    let key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// Limits on the packets and bytes that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Most packets.
    pub packets: u64,
    /// Most bytes.
    pub bytes: Bytes,
}

impl Room {
    /// No limit.
    pub const UNLIMITED: Room = Room { packets: u64::MAX, bytes: Bytes(u64::MAX) };

    pub(super) fn from_values(values: &Values, site: &Site<'_>) -> Room {
        let packets = values.given::<u64>("packets").unwrap_or(u64::MAX);
        let bytes = values.given::<Bytes>("bytes").unwrap_or(Bytes(u64::MAX));
        let (packets, bytes) = (site.buffers.scale(packets), site.buffers.scale(bytes.0));
        Room { packets, bytes: Bytes(bytes) }
    }
    /// A limit in packets alone.
    pub fn packets(packets: u64) -> Room {
        Room { packets, bytes: Bytes(u64::MAX) }
    }
}

/// The weight of each queue; 1 beyond those listed.
pub(super) fn weight(weights: &[u64], queue: usize) -> u64 {
    weights.get(queue).copied().unwrap_or(1).max(1)
}

/// The end of a queue from which packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The oldest packet, so that its sender detects the loss sooner.
    Front,
    /// The newest packet.
    Tail,
}

impl End {
    /// From the parameter `drop`.
    pub(super) fn from_values(values: &Values) -> End {
        match values.get::<String>("drop").as_str() {
            "tail" => End::Tail,
            _ => End::Front,
        }
    }
}

/// The unit in which the lengths of queues are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// From the parameter `unit`.
    pub(super) fn from_values(values: &Values) -> Unit {
        match values.get::<String>("unit").as_str() {
            "bytes" => Unit::Bytes,
            _ => Unit::Packets,
        }
    }
}

/// One first-in, first-out queue of many.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    /// With their lengths, so that reading a length does not fetch the packet from memory.
    packets: VecDeque<(u64, Packet)>,
    bytes: u64,
    /// When it was last served or became non-empty, in the bank's count.
    served: u32,
}

impl Fifo {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.packets.len() as u64
    }
    #[inline]
    pub(super) fn head(&self) -> Option<&Packet> {
        self.packets.front().map(|(_, packet)| packet)
    }
    #[inline]
    pub(super) fn head_len(&self) -> u64 {
        self.packets.front().map_or(0, |&(len, _)| len)
    }
    #[inline]
    pub(super) fn length(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Packets => self.len(),
            Unit::Bytes => self.bytes,
        }
    }
}

/// Queues that share one buffer.
#[derive(Debug)]
pub(super) struct Bank {
    fifos: Vec<Fifo>,
    pub(super) packets: u64,
    pub(super) bytes: Bytes,
    pub(super) room: Room,
    unit: Unit,
    longest: Option<Tournament<u64>>,
    shortest: Option<Tournament<u64>>,
    /// Whether these two are kept: from when the buffer is half full until it is empty. Before, nobody asks often.
    is_ranked: bool,
    /// Incremented each time a queue is served or becomes non-empty; wraps.
    turn: u32,
    victims: VecDeque<(Packet, &'static str)>,
}

/// The position of the length in a rank.
const TURN_BITS: u32 = 32;

impl Bank {
    pub(super) fn new(room: Room) -> Bank {
        Bank {
            fifos: Vec::new(),
            packets: 0,
            bytes: Bytes::ZERO,
            room,
            unit: Unit::Packets,
            longest: None,
            shortest: None,
            is_ranked: false,
            turn: 0,
            victims: VecDeque::new(),
        }
    }
    /// Also keeps track of the longest queue, and, with `shortest`, of the shortest.
    pub(super) fn ranked(room: Room, unit: Unit, shortest: bool) -> Bank {
        let tree = || Tournament::new(u64::MAX);
        let shortest = shortest.then(tree);
        Bank { unit, longest: Some(tree()), shortest, ..Bank::new(room) }
    }
    /// Makes sure that queue `at` exists; returns the number of queues.
    #[inline]
    pub(super) fn reach(&mut self, at: usize) -> usize {
        if at >= self.fifos.len() {
            self.fifos.resize_with(at + 1, Fifo::default);
        }
        self.fifos.len()
    }
    /// Bytes in queue `at`, which may not exist yet.
    pub(super) fn bytes_in(&self, at: usize) -> Bytes {
        Bytes(self.fifos.get(at).map_or(0, |fifo| fifo.bytes))
    }
    #[inline]
    pub(super) fn fifo(&self, at: usize) -> &Fifo {
        &self.fifos[at]
    }
    #[inline]
    pub(super) fn fits(&self, len: Bytes) -> bool {
        self.packets < self.room.packets && self.bytes + len <= self.room.bytes
    }
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.packets > self.room.packets || self.bytes > self.room.bytes
    }
    #[inline]
    pub(super) fn push(&mut self, at: usize, packet: Packet) {
        self.packets += 1;
        self.bytes += packet.len;
        if self.fifos[at].is_empty() {
            self.note_turn(at);
        }
        let fifo = &mut self.fifos[at];
        fifo.bytes += packet.len.0;
        fifo.packets.push_back((packet.len.0, packet));
        self.rank(at);
    }
    #[inline]
    pub(super) fn pop(&mut self, at: usize) -> Option<Packet> {
        self.note_turn(at);
        self.take(at, End::Front)
    }
    #[inline]
    fn note_turn(&mut self, at: usize) {
        self.turn = self.turn.wrapping_add(1);
        self.fifos[at].served = self.turn;
    }
    #[inline]
    fn take(&mut self, at: usize, end: End) -> Option<Packet> {
        let fifo = &mut self.fifos[at];
        let (len, packet) = match end {
            End::Front => fifo.packets.pop_front(),
            End::Tail => fifo.packets.pop_back(),
        }?;
        fifo.bytes -= len;
        self.packets -= 1;
        self.bytes -= Bytes(len);
        self.rank(at);
        Some(packet)
    }
    #[inline]
    fn rank(&mut self, at: usize) {
        if self.is_ranked {
            self.rank_one(at);
            self.is_ranked = self.packets > 0;
        } else if self.longest.is_some() && self.is_half_full() {
            self.rank_all();
        }
    }
    #[inline]
    fn is_half_full(&self) -> bool {
        self.packets > self.room.packets / 2 || self.bytes.0 > self.room.bytes.0 / 2
    }
    #[inline]
    fn rank_one(&mut self, at: usize) {
        let (by_longest, by_shortest) = (self.key(at, true), self.key(at, false));
        if let Some(longest) = &mut self.longest {
            longest.set(at, by_longest);
        }
        if let Some(shortest) = &mut self.shortest {
            shortest.set(at, by_shortest);
        }
    }
    /// Nothing has been ranked since the buffer was empty.
    #[cold]
    fn rank_all(&mut self) {
        self.is_ranked = true;
        for at in 0..self.fifos.len() {
            if !self.fifos[at].is_empty() {
                self.rank_one(at);
            }
        }
    }
    /// The less, the longer the queue, or the shorter; of equal ones, the one served longest ago has the least.
    #[inline]
    fn key(&self, at: usize, of_longest: bool) -> u64 {
        let fifo = &self.fifos[at];
        // A length beyond 32 bits ranks as the greatest.
        let most = u64::from(u32::MAX - 1);
        let length = fifo.length(self.unit).min(most);
        let length = if of_longest { most - length } else { length };
        if fifo.is_empty() { u64::MAX } else { length << TURN_BITS | u64::from(fifo.served) }
    }
    /// The queues that are not empty.
    fn others(&self, but: Option<usize>) -> impl Iterator<Item = usize> {
        let all = 0..self.fifos.len();
        all.filter(move |at| Some(*at) != but && !self.fifos[*at].is_empty())
    }
    /// The longest queue; of equal ones, the one served longest ago.
    #[inline]
    pub(super) fn longest(&self) -> Option<usize> {
        let tree = self.longest.as_ref()?;
        match self.is_ranked {
            true => tree.winner(),
            false => self.others(None).min_by_key(|at| self.key(*at, true)),
        }
    }
    /// The length of the shortest non-empty queue other than `at`.
    pub(super) fn shortest_except(&self, at: usize) -> Option<u64> {
        let tree = self.shortest.as_ref()?;
        let key = match self.is_ranked {
            true => tree.best_except(at),
            false => self.others(Some(at)).map(|other| self.key(other, false)).min(),
        };
        key.map(|key| key >> TURN_BITS)
    }
    /// Drops a packet of queue `at`, to be returned by [`Bank::dropped`].
    pub(super) fn drop_from(&mut self, at: usize, end: End, reason: &'static str) {
        if let Some(packet) = self.take(at, end) {
            self.victims.push_back((packet, reason));
        }
    }
    /// Returns a packet that was never, or is no longer, in a queue.
    pub(super) fn discard(&mut self, packet: Packet, reason: &'static str) {
        self.victims.push_back((packet, reason));
    }
    #[inline]
    pub(super) fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        self.victims.pop_front()
    }
}

/// Methods of [`Queue`](super::Queue) for disciplines that keep all their packets in a
/// [`Bank`], their field `bank`; `ready_at` is that of work-conserving ones.
macro_rules! of_bank {
    (ready_at) => {
        #[inline]
        fn ready_at(&self, now: lastmeter_base::Time) -> Option<lastmeter_base::Time> {
            (self.bank.packets > 0).then_some(now)
        }
    };
    (packets) => {
        fn packets(&self) -> u64 {
            self.bank.packets
        }
    };
    (bytes) => {
        fn bytes(&self) -> lastmeter_base::Bytes {
            self.bank.bytes
        }
    };
    (dropped) => {
        #[inline]
        fn dropped(&mut self) -> Option<(lastmeter_base::Packet, &'static str)> {
            self.bank.dropped()
        }
    };
    ($($method:ident),+) => {
        $(of_bank!($method);)+
    };
}
pub(super) use of_bank;

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::{FlowId, PathId};
    use proptest::prelude::*;

    fn packet(path: u32, flow: u32) -> Packet {
        let mut packet = Packet::new(Bytes(100));
        (packet.path, packet.flow) = (PathId(path), FlowId(flow));
        packet
    }

    #[test]
    fn each_flow_has_its_own_queue_and_keeps_it() {
        let mut classifier = Classifier::new(By::Flow, None);
        for round in 0..2 {
            for flow in 0..1000 {
                assert_eq!(classifier.queue_of(&packet(0, flow)), flow as usize, "{round}");
            }
        }
        assert_eq!(classifier.queue_of(&packet(1, 0)), 1000);
    }

    #[test]
    fn hashing_spreads_flows_over_all_queues() {
        let mut classifier = Classifier::new(By::Flow, Some(64));
        let mut counts = [0u32; 64];
        (0..6400).for_each(|flow| counts[classifier.queue_of(&packet(0, flow))] += 1);
        assert!(counts.iter().all(|count| (60..=150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_class_beyond_the_last_queue_shares_it() {
        let mut classifier = Classifier::new(By::Class, Some(3));
        let mut packet = packet(0, 0);
        packet.class = 9;
        assert_eq!(classifier.queue_of(&packet), 2);
    }

    proptest! {
        /// Ranks are kept only from half full to empty: what is found in between is the same.
        #[test]
        fn the_longest_and_the_shortest_queue_are_those_that_a_scan_finds(
            steps in prop::collection::vec((0usize..5, 0u8..3), 1..80),
        ) {
            let mut bank = Bank::ranked(Room::packets(6), Unit::Packets, true);
            bank.reach(4);
            for (at, step) in steps {
                match step {
                    0 if !bank.fifo(at).is_empty() => drop(bank.pop(at)),
                    _ => bank.push(at, Packet::new(Bytes(100))),
                }
                let lengths: Vec<u64> = (0..5).map(|at| bank.fifo(at).len()).collect();
                let longest = lengths.iter().max().copied().filter(|&length| length > 0);
                prop_assert_eq!(bank.longest().map(|at| lengths[at]), longest);
                let oldest = (0..5).filter(|&at| Some(lengths[at]) == longest);
                prop_assert_eq!(bank.longest(), oldest.min_by_key(|&at| bank.fifo(at).served));
                let others = (0..5).filter(|&other| other != at && lengths[other] > 0);
                let shortest = others.map(|other| lengths[other]).min();
                prop_assert_eq!(bank.shortest_except(at), shortest);
            }
        }
    }
}
