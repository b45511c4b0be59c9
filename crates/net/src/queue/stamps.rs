//! Queues served by stamps: each packet gets a stamp on arrival, and the smallest goes next.
//!
//! Self-clocked fair queueing, VirtualClock and weighted fair queueing differ only in how a stamp is
//! computed; everything else is here. Within a queue stamps rise, so only its head competes.

use super::flows::{
    BY, BYTES, Bank, By, Classifier, EACH, PACKETS, QUEUES, Room, WEIGHTS, of_bank, weight,
};
use super::tournament::Tournament;
use super::{Queue, Site};
use lastmeter_base::kind::{Param, Values};
use lastmeter_base::{Packet, Time};
use std::collections::VecDeque;

/// Virtual time is counted in bytes per unit of weight, times two to this power.
///
/// A stamp has 64 bits, so it can represent a busy period of 16 TB per unit of weight; a stamp is
/// rounded up by less than a millionth of a byte.
pub(super) const SCALE_BITS: u32 = 20;
/// Beyond this, virtual time is reset to zero as soon as nothing waits.
pub(super) const RESTART: u64 = 1 << 60;

/// `len / weight` in virtual time, rounded up.
#[inline]
pub(super) fn share(len: u64, weight: u64) -> u64 {
    let len = len << SCALE_BITS;
    // Most weights are 1, and a division costs more than all the rest.
    if weight == 1 { len } else { len.div_ceil(weight) }
}

/// Number and key in one word that compares by key first.
#[inline]
pub(super) fn keyed(key: u64, at: usize) -> u128 {
    u128::from(key) << 32 | at as u128
}
#[inline]
pub(super) fn unkeyed(key: u128) -> (u64, usize) {
    ((key >> 32) as u64, (key & u128::from(u32::MAX)) as usize)
}

/// How stamps are computed.
pub(super) trait Stamper: Send {
    /// The stamp of a packet of `len` that arrives at queue `at`, or `None` to refuse it.
    fn stamp(&mut self, now: Time, at: usize, len: u64, weight: u64) -> Option<u64>;
    /// The packet with this `stamp` is served.
    fn served(&mut self, _stamp: u64) {}
    /// Nothing waits: stamps may restart from zero.
    fn idle(&mut self) {}
    /// Reports its counters.
    fn counts(&self, _count: &mut dyn FnMut(&'static str, u64)) {}
}

/// The options of all disciplines with weighted queues.
#[derive(Clone, Debug)]
pub struct ShareOptions {
    /// What gets its own queue.
    pub by: By,
    /// The number of queues to hash onto; `None`: one each.
    pub queues: Option<usize>,
    /// Weights; those not listed are 1.
    pub weights: Vec<u64>,
    /// The buffer shared by all.
    pub room: Room,
    /// Limit on packets in one queue.
    pub each: u64,
}

impl ShareOptions {
    /// A queue for each flow, with these weights and no limit.
    pub fn weighted(weights: &[u64]) -> ShareOptions {
        ShareOptions {
            by: By::Flow,
            queues: None,
            weights: weights.to_vec(),
            room: Room::UNLIMITED,
            each: u64::MAX,
        }
    }
    pub(super) fn from_values(values: &Values, site: &Site<'_>) -> ShareOptions {
        ShareOptions {
            by: By::from_values(values),
            queues: values.given::<u64>("queues").map(|queues| queues as usize),
            weights: values.given("weights").unwrap_or_default(),
            room: Room::from_values(values, site),
            each: site.buffers.scale(values.given("each").unwrap_or(u64::MAX)),
        }
    }
}

/// The parameters of [`ShareOptions`].
pub(super) const SHARE: [Param; 6] = [BY, QUEUES, WEIGHTS, PACKETS, BYTES, EACH];

/// Queues served in order of stamps.
#[derive(Debug)]
pub(super) struct Stamped<S> {
    bank: Bank,
    classifier: Classifier,
    weights: Vec<u64>,
    each: u64,
    stamps: Vec<VecDeque<u64>>,
    heads: Tournament<u128>,
    pub(super) stamper: S,
}

impl<S: Stamper> Stamped<S> {
    pub(super) fn new(options: ShareOptions, stamper: S) -> Stamped<S> {
        Stamped {
            bank: Bank::new(options.room),
            classifier: Classifier::new(options.by, options.queues),
            weights: options.weights,
            each: options.each,
            stamps: Vec::new(),
            heads: Tournament::new(u128::MAX),
            stamper,
        }
    }
}

impl<S: Stamper> Queue for Stamped<S> {
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        let at = self.classifier.queue_of(&packet);
        if at >= self.stamps.len() {
            let count = self.bank.reach(at);
            self.stamps.resize_with(count, VecDeque::new);
        }
        if !self.bank.fits(packet.len) || self.bank.fifo(at).len() >= self.each {
            return Err(packet);
        }
        let weight = weight(&self.weights, at);
        let Some(stamp) = self.stamper.stamp(now, at, packet.len.0, weight) else {
            return Err(packet);
        };
        if self.bank.fifo(at).is_empty() {
            self.heads.set(at, keyed(stamp, at));
        }
        self.stamps[at].push_back(stamp);
        self.bank.push(at, packet);
        Ok(())
    }
    fn dequeue(&mut self, _now: Time) -> Option<Packet> {
        let (stamp, at) = unkeyed(self.heads.best()?);
        let packet = self.bank.pop(at);
        let stamps = &mut self.stamps[at];
        stamps.pop_front();
        match stamps.front() {
            Some(&next) => self.heads.set(at, keyed(next, at)),
            None => self.heads.clear(at),
        }
        self.stamper.served(stamp);
        if self.bank.packets == 0 {
            self.stamper.idle();
        }
        packet
    }
    of_bank!(ready_at, packets, bytes);
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        self.stamper.counts(count);
    }
}

/// The entry of queue `at`, created with zero if absent.
#[inline]
pub(super) fn entry(values: &mut Vec<u64>, at: usize) -> &mut u64 {
    if at >= values.len() {
        values.resize(at + 1, 0);
    }
    &mut values[at]
}
