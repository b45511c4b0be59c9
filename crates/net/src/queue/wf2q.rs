//! WF2Q+: weighted shares that neither lag behind nor run ahead of a fluid server by more than one
//! packet.
//!
//! ```text
//!                       S <= V                smallest F
//! in --> [ waiting, by S ] --> [ eligible, by F ] --> out      V = max(V + len / weights, least S)
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                          |
//! |-----------|---------|----------|--------------------------------------------------|
//! | `by`      | word    | `flow`   | what gets its own queue: `flow`, `path`, `class` |
//! | `queues`  | queues  | one each | number of queues onto which flows are hashed     |
//! | `weights` | numbers | all 1    | share phi of queue n                             |
//! | `packets` | packets | no limit | limit on packets in all queues                   |
//! | `bytes`   | size    | no limit | limit on bytes in all queues                     |
//! | `each`    | packets | no limit | limit on packets in one queue                    |
//!
//! The head of a newly backlogged queue gets S = max(V, F), one that follows another gets S = F, and
//! F = S + len / weight. The sum of weights in V is that of all queues that were ever used. O(log n).
//!
//! Source: Bennett & Zhang, Hierarchical Packet Fair Queueing Algorithms, SIGCOMM 1996, §3.4, eqs.
//! (27) to (29). Deviation: V counts a packet when its service begins, because a queue is not told when
//! it ends; V is not reset in idle periods, but when 2^60 is passed.

use super::flows::{Bank, Classifier, QUEUES_MAX, of_bank, weight};
use super::stamps::{RESTART, SCALE_BITS, SHARE, ShareOptions, entry, share};
use super::tournament::Tournament;
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Page, Values};
use lastmeter_base::{Packet, Time, here};

/// One server's decisions, without packets; also serves as a node of a tree.
#[derive(Debug)]
pub(super) struct Eligibility {
    v: u64,
    weights: u64,
    /// 2^64 by `weights`, rounded down: a product is several times cheaper than a division.
    reciprocal: u64,
    /// F of each child.
    finish: Vec<u64>,
    waiting: Waiting,
    /// Keys of 64 bits climb twice as fast as those of 128; see [`Eligibility::key`].
    eligible: Tournament<u64>,
    /// The base from which F is counted in keys: at most V and the F of every eligible child.
    base: u64,
}

/// Bits of a key that number the child: those of [`QUEUES_MAX`].
const CHILD_BITS: u32 = QUEUES_MAX.ilog2();
/// Lowest bits of F that a key leaves out: F within 2^-14 byte of each other count as equal.
const ROUND_BITS: u32 = 6;
/// V may lead `base` by this, half a GiB of virtual time. F of the eligible leads V by one share, of at
/// most 2^44 units, so that it fits the 44 bits of a key, which end at 2^50 units.
const LEAD_MAX: u64 = 1 << 49;

/// Children whose S is still ahead of V: a radix heap in hexadecimal digits, because V only rises.
///
/// Level l, digit d holds those whose S differs from V first in digit l (0 is the lowest), where S
/// has d. As V rises, whole levels come due at once, and one bucket is sorted into lower levels; a
/// child moves down at most 15 times, and mostly two or three.
#[derive(Debug)]
struct Waiting {
    v: u64,
    buckets: Vec<Vec<(u64, u32)>>,
    /// Bit d of level l is set while that bucket holds something; bit l of `levels` while one does.
    digits: [u16; Waiting::LEVELS],
    levels: u16,
}

impl Waiting {
    const LEVELS: usize = 16;

    fn new() -> Waiting {
        let buckets = vec![Vec::new(); 16 * Waiting::LEVELS];
        Waiting { v: 0, buckets, digits: [0; Waiting::LEVELS], levels: 0 }
    }
    /// The highest digit in which two different values differ.
    #[inline]
    fn level(a: u64, b: u64) -> usize {
        (a ^ b).ilog2() as usize / 4
    }
    #[inline]
    fn digit(value: u64, level: usize) -> usize {
        (value >> (4 * level)) as usize & 15
    }
    /// Adds a child whose `start` is beyond V.
    #[inline]
    fn push(&mut self, start: u64, at: u32) {
        let level = Waiting::level(start, self.v);
        let digit = Waiting::digit(start, level);
        self.buckets[16 * level + digit].push((start, at));
        self.digits[level] |= 1 << digit;
        self.levels |= 1 << level;
    }
    /// The least S.
    fn least(&self) -> Option<u64> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let first = 16 * level + self.digits[level].trailing_zeros() as usize;
        self.buckets[first].iter().map(|&(start, _)| start).min()
    }
    /// V rises to `v`: hands over all whose S it has reached.
    #[inline]
    fn advance(&mut self, v: u64, mut due: impl FnMut(usize)) {
        if v == self.v {
            return;
        }
        let top = Waiting::level(v, self.v);
        self.v = v;
        let mut levels = self.levels & ((2 << top) - 1);
        while levels != 0 {
            let level = levels.trailing_zeros() as usize;
            levels &= levels - 1;
            // Below the top all are due; at the top, those up to V's own digit may be.
            let last = if level == top { Waiting::digit(v, top) } else { 15 };
            let mut digits = self.digits[level] & ((2u32 << last) - 1) as u16;
            self.digits[level] &= !digits;
            if self.digits[level] == 0 {
                self.levels &= !(1 << level);
            }
            while digits != 0 {
                let bucket = 16 * level + digits.trailing_zeros() as usize;
                digits &= digits - 1;
                let mut children = std::mem::take(&mut self.buckets[bucket]);
                for (start, at) in children.drain(..) {
                    match start <= v {
                        true => due(at as usize),
                        false => self.push(start, at),
                    }
                }
                // The sorted entries went to lower levels, so this bucket's space is still free.
                self.buckets[bucket] = children;
            }
        }
    }
}

impl Eligibility {
    pub(super) fn new() -> Eligibility {
        let eligible = Tournament::new(u64::MAX);
        Eligibility {
            base: 0,
            v: 0,
            weights: 0,
            reciprocal: 0,
            finish: Vec::new(),
            waiting: Waiting::new(),
            eligible,
        }
    }
    /// Adds a child of `weight`.
    pub(super) fn admit(&mut self, weight: u64) {
        self.weights += weight;
        self.reciprocal = u64::MAX / self.weights;
    }
    /// The rise of V by a service of `len`, rounded down by at most two units.
    #[inline]
    fn progress(&self, len: u64) -> u64 {
        ((u128::from(len << SCALE_BITS) * u128::from(self.reciprocal)) >> 64) as u64
    }
    /// Child `at` has something to send, of `len` at first.
    #[inline]
    pub(super) fn activate(&mut self, at: usize, len: u64, weight: u64) {
        let start = self.v.max(*entry(&mut self.finish, at));
        self.queue(at, start, len, weight);
    }
    #[inline]
    fn queue(&mut self, at: usize, start: u64, len: u64, weight: u64) {
        let finish = start + share(len, weight);
        self.finish[at] = finish;
        if start <= self.v {
            self.eligible.set(at, Eligibility::key(self.base, finish, at));
        } else {
            self.waiting.push(start, at as u32);
        }
    }
    /// V rises, and children whose S it has reached become eligible.
    #[inline]
    fn rise(&mut self, v: u64) {
        self.v = self.v.max(v);
        if self.v - self.base > LEAD_MAX {
            self.rebase();
        }
        let (finish, eligible, base) = (&self.finish, &mut self.eligible, self.base);
        self.waiting.advance(self.v, |at| {
            eligible.set(at, Eligibility::key(base, finish[at], at));
        });
    }
    /// F counted from `base`, then the child, in one word that compares by F first.
    #[inline]
    fn key(base: u64, finish: u64, at: usize) -> u64 {
        (finish - base) >> ROUND_BITS << CHILD_BITS | at as u64
    }
    /// Moves the base of keys as far forward as possible. Takes O(n), once per half GiB of virtual time.
    #[cold]
    fn rebase(&mut self) {
        let finish = &self.finish;
        let eligible: Vec<usize> = (0..finish.len()).filter(|&at| self.eligible.has(at)).collect();
        self.base = eligible.iter().map(|&at| finish[at]).min().unwrap_or(self.v).min(self.v);
        self.eligible = Tournament::new(u64::MAX);
        for at in eligible {
            self.eligible.set(at, Eligibility::key(self.base, finish[at], at));
        }
    }
    /// The child to serve next: of the eligible ones, the one with the smallest F.
    #[inline]
    pub(super) fn select(&mut self) -> Option<usize> {
        if self.eligible.best().is_none() {
            self.rise(self.waiting.least()?);
        }
        self.eligible.best().map(|key| (key & ((1 << CHILD_BITS) - 1)) as usize)
    }
    /// The selected child `at` is served `len`; `next` is the length that it sends after that.
    #[inline]
    pub(super) fn serve(&mut self, at: usize, len: u64, next: Option<u64>, weight: u64) {
        match next {
            Some(next) => {
                let start = self.finish[at];
                let v = self.v + self.progress(len);
                if start > v {
                    self.eligible.clear(at);
                }
                self.rise(v);
                self.queue(at, start, next, weight);
            }
            None => {
                self.eligible.clear(at);
                self.rise(self.v + self.progress(len));
            }
        }
    }
    pub(super) fn idle(&mut self) {
        if self.v > RESTART {
            (self.v, self.waiting.v, self.base) = (0, 0, 0);
            self.finish.fill(0);
        }
    }
}

/// Worst-case fair weighted fair queueing.
#[derive(Debug)]
pub struct Wf2q {
    bank: Bank,
    classifier: Classifier,
    weights: Vec<u64>,
    each: u64,
    known: usize,
    server: Eligibility,
}

impl Wf2q {
    /// Empty.
    pub fn new(options: ShareOptions) -> Wf2q {
        Wf2q {
            bank: Bank::new(options.room),
            classifier: Classifier::new(options.by, options.queues),
            weights: options.weights,
            each: options.each,
            known: 0,
            server: Eligibility::new(),
        }
    }
    #[cold]
    fn make(&mut self, at: usize) {
        let count = self.bank.reach(at);
        (self.known..count).for_each(|queue| self.server.admit(weight(&self.weights, queue)));
        self.known = count;
    }
}

impl Queue for Wf2q {
    #[inline]
    fn enqueue(&mut self, _now: Time, packet: Packet) -> Result<(), Packet> {
        let at = self.classifier.queue_of(&packet);
        if at >= self.known {
            self.make(at);
        }
        if !self.bank.fits(packet.len) || self.bank.fifo(at).len() >= self.each {
            return Err(packet);
        }
        if self.bank.fifo(at).is_empty() {
            self.server.activate(at, packet.len.0, weight(&self.weights, at));
        }
        self.bank.push(at, packet);
        Ok(())
    }
    #[inline]
    fn dequeue(&mut self, _now: Time) -> Option<Packet> {
        let at = self.server.select()?;
        let packet = self.bank.pop(at)?;
        let fifo = self.bank.fifo(at);
        let next = (!fifo.is_empty()).then(|| fifo.head_len());
        self.server.serve(at, packet.len.0, next, weight(&self.weights, at));
        if self.bank.packets == 0 {
            self.server.idle();
        }
        Some(packet)
    }
    of_bank!(ready_at, packets, bytes);
}

impl Described for Wf2q {
    const PAGE: &'static Page = &Page {
        name: "wf2q",
        family: Family::Queue,
        what: "WF2Q+: weighted shares, at most one packet behind or ahead of a fluid server.",
        ports: "in --> [ queue per flow ] --> eligible, smallest finish stamp --> out",
        params: &SHARE,
        source: "Bennett & Zhang, SIGCOMM 1996, §3.4",
        deviations: &["Virtual time counts a packet when its service begins."],
        drops: &[FULL],
        example: one_queue!(r#"wf2q = { by = "path", weights = [3, 1], packets = 50 }"#),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Wf2q {
        Wf2q::new(ShareOptions::from_values(values, site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Room;
    use crate::queue::check::{self, packet};
    use lastmeter_base::Stream;
    use proptest::prelude::*;

    proptest! {
        /// Bennett & Zhang, Theorem 4: backlogged queues are within one longest packet of the fluid
        /// server, behind it and before it.
        #[test]
        fn service_is_at_most_one_packet_behind_or_ahead_of_the_fluid_server(
            weights in prop::collection::vec(1u64..9, 2..8), seed in any::<u64>(),
        ) {
            const LEN_MAX: u64 = 1500;
            let mut random = Stream::new(seed, "wf2q");
            let mut queue = Wf2q::new(ShareOptions::weighted(&weights));
            for flow in 0..weights.len() as u32 {
                for _ in 0..2 {
                    queue.enqueue(Time::START, packet(flow, 1 + random.below(LEN_MAX))).unwrap();
                }
            }
            let total: u64 = weights.iter().sum();
            let mut sent = vec![0u64; weights.len()];
            for _ in 0..500 {
                let out = queue.dequeue(Time::START).unwrap();
                sent[out.flow.0 as usize] += out.len.0;
                queue.enqueue(Time::START, packet(out.flow.0, 1 + random.below(LEN_MAX))).unwrap();
                let all = sent.iter().sum::<u64>() as f64;
                for (flow, &bytes) in sent.iter().enumerate() {
                    let share = all * weights[flow] as f64 / total as f64;
                    prop_assert!((bytes as f64 - share).abs() <= LEN_MAX as f64 + 0.01,
                        "queue {flow} of {weights:?} sent {bytes}, its share is {share}");
                }
            }
        }
    }

    /// Bennett & Zhang 1996, Fig. 2: flow 0, with half the link, alternates with the others.
    #[test]
    fn does_not_run_ahead_of_the_fluid_server() {
        let mut weights = vec![10];
        weights.extend([1; 10]);
        let mut queue = Wf2q::new(ShareOptions::weighted(&weights));
        (0..11).for_each(|_| queue.enqueue(Time::START, packet(0, 1000)).unwrap());
        (1..11).for_each(|flow| queue.enqueue(Time::START, packet(flow, 1000)).unwrap());
        let order: Vec<bool> =
            check::drain(&mut queue, Time::START).iter().map(|p| p.flow.0 == 0).collect();
        assert!(order.chunks(2).all(|pair| pair[0] && pair.len() == 1 || pair[0] != pair[1]));
    }

    /// The base of keys moves every half GiB of virtual time; shares do not change.
    #[test]
    fn shares_hold_while_the_base_of_keys_moves() {
        const LEN: u64 = 16 << 20;
        let weights = [1, 2, 5];
        let mut queue = Wf2q::new(ShareOptions::weighted(&weights));
        (0..6).for_each(|n| queue.enqueue(Time::START, packet(n % 3, LEN)).unwrap());
        let (mut sent, mut bases) = ([0u64; 3], std::collections::BTreeSet::new());
        for n in 1..3000u64 {
            let out = queue.dequeue(Time::START).unwrap();
            queue.enqueue(Time::START, packet(out.flow.0, LEN)).unwrap();
            sent[out.flow.0 as usize] += 1;
            bases.insert(queue.server.base);
            for (&sent, weight) in sent.iter().zip(weights) {
                assert!((sent as f64 - (n * weight) as f64 / 8.0).abs() <= 1.001, "{sent} of {n}");
            }
        }
        assert!(bases.len() > 5, "{bases:?}");
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = ShareOptions { room: Room::packets(30), ..ShareOptions::weighted(&[4, 2]) };
        check::holds(Wf2q::new(ShareOptions { each: 8, ..options }), &check::USUAL);
    }
}
