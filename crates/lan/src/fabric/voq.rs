//! The virtual output queues of one input, each served at no more than its rate.
//!
//! ```text
//!      +--> [ output 0 ] --r(0)--+
//! in --+--> [ output 1 ] --r(1)--+--> one at a time, longest overdue first
//!      '--> ...                --+
//! ```
//!
//! A queue that has sent `len` bytes is due again `len / r` after it was last due; it may catch up at most one
//! period of its rate. A queue that becomes empty keeps its debt. Without an allocation, all queues are always
//! due, and take turns.
//!
//! Memory is proportional to what is queued and owed, not to the number of possible queues. A queue with a backlog
//! since rates were last computed takes a cache line; one with only a debt takes four bytes. Each pair of ports
//! always takes three bits: 384 KiB for 1024 ports. If every pair has a debt, that is another 4 MiB.
//!
//! Source: Kuhns et al., §3.6; the pacing is ours (D-50, D-51).

mod items;
mod known;
mod schedule;
#[cfg(test)]
mod twin;

use super::allocation::{Allocation, PORTS_MAX, Shares, Summary};
use items::{Items, NONE};
use known::{Known, NO_PLACE, OWED_MAX};
use lastmeter_base::{Bytes, Duration, Time, prefetch, prefetch_end, prefetch_slice};
use schedule::{Due, Schedule};
use std::cmp::Reverse;
use std::sync::Arc;

const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// The queues of one input, for at most [`PORTS_MAX`] outputs.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Time};
/// use lastmeter_lan::fabric::voq::{Rules, Voqs};
/// let rules = Rules { allocation: None, period: Duration::from_us(500), room: Bytes(3000) };
/// let mut voqs = Voqs::new(rules.into());
/// voqs.enqueue(Time::START, 5, Bytes(1500), 'a').unwrap();
/// voqs.enqueue(Time::START, 5, Bytes(1500), 'b').unwrap();
/// voqs.enqueue(Time::START, 2, Bytes(1500), 'c').unwrap_err(); // full
/// assert_eq!(voqs.backlog(5), Bytes(3000));
/// assert_eq!(voqs.dequeue(Time::START), Some((5, Bytes(1500), 'a')));
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct Voqs<T> {
    /// Queues with a backlog and a rate.
    due: Schedule,
    bytes: Bytes,
    turns: u64,
    known: Known,
    /// The first `sorted` are in the order of their outputs; the others are found through the index.
    queues: Vec<Queue<T>>,
    sorted: u16,
    /// The first unused entry of `queues`: only without an allocation.
    unused: u16,
    packets: u32,
    /// The highest rate that `shares` gives this input for an output without backlog.
    idle_rate_most: u64,
    shares: Arc<Shares>,
    /// When rates were last computed.
    since: Time,
    rules: Arc<Rules>,
    /// All packets but the first of each queue.
    rest: Box<Items<T>>,
}

/// Service rules of an input: shared by many, so that they stay in a near cache.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How rates are computed; without this, queues take turns.
    pub allocation: Option<Allocation>,
    /// The longest time that a queue may catch up.
    pub period: Duration,
    /// Buffer shared by all queues of an input.
    pub room: Bytes,
}

/// Scratch memory for [`Voqs::allocate_in`], which swaps its old lists into it.
#[derive(Debug)]
pub struct Spare<T> {
    queues: Vec<Queue<T>>,
    order: Vec<u32>,
    owing: Vec<(u16, u32)>,
}

impl<T> Default for Spare<T> {
    fn default() -> Spare<T> {
        let (queues, order, owing) = Default::default();
        Spare { queues, order, owing }
    }
}

/// A queue that has a backlog, or has had one since rates were last computed.
#[derive(Debug)]
#[repr(align(64))]
struct Queue<T> {
    /// Rate in bits per second; 0 if it may not send.
    rate: u64,
    /// When it is due, in picoseconds; if it has no rate, the bits that it owes.
    value: u64,
    bytes: u64,
    /// The next packet. Most queues of a large fabric have no other.
    first: Option<T>,
    first_len: Bytes,
    /// The last of the other packets.
    tail: u32,
    output: u16,
    /// The previous entry in a chain: of unsorted queues in the same index word, or of unused entries;
    /// [`NO_PLACE`] if it is the first.
    before: u16,
}

const _: () = assert!(PORTS_MAX < NO_PLACE as usize, "places are distinct from `NO_PLACE`");

impl<T> Voqs<T> {
    /// Empty queues.
    pub fn new(rules: Arc<Rules>) -> Voqs<T> {
        let (mut shares, mut idle_rate_most) = (Shares::default(), u64::MAX);
        if let Some(allocation) = &rules.allocation {
            shares = Shares::new(allocation, Summary::default());
            idle_rate_most = allocation.idle_rate_most(allocation.total([], shares.summary()));
        }
        Voqs {
            due: Schedule::default(),
            bytes: Bytes::ZERO,
            turns: 0,
            known: Known::default(),
            queues: Vec::new(),
            sorted: 0,
            unused: NO_PLACE,
            packets: 0,
            idle_rate_most,
            shares: Arc::new(shares),
            since: Time::START,
            rules,
            rest: Box::default(),
        }
    }

    /// Enqueues an item for `output`, or returns it.
    ///
    /// # Errors
    /// The item, if there is no room.
    pub fn enqueue(&mut self, now: Time, output: usize, len: Bytes, item: T) -> Result<(), T> {
        if self.bytes + len > self.rules.room {
            return Err(item);
        }
        self.bytes += len;
        self.packets += 1;
        let place = self.queue(now, output);
        let queue = &mut self.queues[place];
        queue.bytes += len.0;
        if queue.first.is_some() {
            queue.tail = self.rest.put(queue.tail, len, item);
            return Ok(());
        }
        (queue.first, queue.first_len) = (Some(item), len);
        if queue.rate > 0 {
            // An idle queue accumulates no credit.
            queue.value = queue.value.max(now.as_ps());
            self.turns += 1;
            self.due.push(Due::new(queue.value, self.turns, place));
        }
        Ok(())
    }

    /// The place of an output's queue, which is created if there is none.
    #[inline]
    fn queue(&mut self, now: Time, output: usize) -> usize {
        if let Some(place) = self.place(output) {
            return place;
        }
        assert!(output < PORTS_MAX, "a fabric has at most {PORTS_MAX} ports");
        let rate = self.idle_rate(output);
        let value = match self.known.take(output) {
            Some(owed) => value(self.since, rate, owed.into()),
            None if rate > 0 => now.as_ps(),
            None => 0,
        };
        let first_len = Bytes::ZERO;
        let place = match self.unused {
            NO_PLACE => self.queues.len(),
            unused => unused.into(),
        };
        // Both are less than `PORTS_MAX`.
        let before = self.known.add_queue(output, place as u16);
        let (output, tail) = (output as u16, NONE);
        let queue = Queue { rate, value, bytes: 0, first: None, first_len, tail, output, before };
        match self.queues.get_mut(place) {
            Some(unused) => {
                self.unused = unused.before;
                *unused = queue;
            }
            None => self.queues.push(queue),
        }
        place
    }

    /// The place of an output's queue, if it is in `queues`.
    #[inline]
    fn place(&self, output: usize) -> Option<usize> {
        if !self.known.has_queue(output) {
            return None;
        }
        let mut place = self.known.newest(output);
        while let Some(queue) = self.queues.get(usize::from(place)) {
            if usize::from(queue.output) == output {
                return Some(place.into());
            }
            place = queue.before;
        }
        let sorted = &self.queues[..usize::from(self.sorted)];
        sorted.binary_search_by_key(&output, |queue| queue.output.into()).ok()
    }

    /// Removes an unsorted queue.
    fn remove(&mut self, output: usize, place: usize) {
        let before = self.queues[place].before;
        let mut later = self.known.remove_queue(output, place as u16, before);
        while let Some(queue) = self.queues.get_mut(usize::from(later)) {
            later = queue.before;
            if usize::from(later) == place {
                queue.before = before;
                break;
            }
        }
        self.queues[place].before = std::mem::replace(&mut self.unused, place as u16);
    }

    /// The rate of a queue that had no backlog when rates were computed.
    #[inline]
    fn idle_rate(&self, output: usize) -> u64 {
        match self.rules.allocation {
            Some(_) => self.shares.idle_rate(output, self.idle_rate_most),
            None => u64::MAX,
        }
    }

    /// When the next packet may be sent.
    #[inline]
    pub fn ready_at(&self) -> Option<Time> {
        self.due.first().map(Due::at)
    }

    /// Prefetches what [`Voqs::allocate`] reads.
    pub fn prefetch_all(&self) {
        self.known.prefetch_all();
        prefetch_slice(&self.queues);
    }
    /// Prefetches what [`Voqs::enqueue`] reads for an output, or for any.
    #[inline]
    pub fn prefetch(&self, output: Option<usize>) {
        match output {
            Some(output) => self.known.prefetch(output),
            None => self.known.prefetch_words(),
        }
        prefetch_end(&self.queues);
        self.due.prefetch();
    }
    /// Prefetches the debt of an output's queue.
    #[inline]
    pub fn prefetch_owed(&self, output: usize) {
        self.known.prefetch_value(output);
    }
    /// Prefetches the queue that is due next.
    #[inline]
    pub fn prefetch_next(&self) {
        if let Some(due) = self.due.first() {
            prefetch(&self.queues[due.place()]);
            self.due.prefetch();
        }
    }
    /// The next queue that is due.
    #[inline]
    pub fn next(&self) -> Option<&T> {
        self.queues[self.due.first()?.place()].first.as_ref()
    }

    /// The longest overdue packet, and its output.
    #[inline]
    pub fn dequeue(&mut self, now: Time) -> Option<(usize, Bytes, T)> {
        let due = self.due.first().filter(|due| due.at() <= now)?;
        let (due, place) = (due.at(), due.place());
        let queue = &mut self.queues[place];
        let (item, len) = (queue.first.take().expect("a due queue has a packet"), queue.first_len);
        queue.bytes -= len.0;
        self.bytes -= len;
        self.packets -= 1;
        let output = usize::from(queue.output);
        let is_allocated = self.rules.allocation.is_some();
        queue.value = match is_allocated {
            false => now.as_ps(),
            true => {
                // At most a period of catching up.
                let from = due.as_ps().max(now.as_ps().saturating_sub(self.rules.period.as_ps()));
                from.saturating_add(time_for(len.0.saturating_mul(8), queue.rate))
            }
        };
        if queue.tail != NONE {
            let (len, next, tail) = self.rest.take(queue.tail);
            (queue.first, queue.first_len, queue.tail) = (Some(next), len, tail);
            self.turns += 1;
            self.due.replace(Due::new(queue.value, self.turns, place));
        } else {
            self.due.pop();
            if !is_allocated {
                self.remove(output, place);
            }
        }
        Some((output, len, item))
    }

    /// The outputs with a backlog here, in order, and the bytes of each.
    pub fn backlogs(&self) -> Vec<(usize, u64)> {
        let mut waiting = Vec::new();
        self.list_backlogs(&mut waiting);
        waiting
    }
    /// The same in the memory of another list.
    pub fn list_backlogs(&self, into: &mut Vec<(usize, u64)>) {
        into.clear();
        let backlog = |queue: &Queue<T>| (usize::from(queue.output), queue.bytes);
        // The scheduled queues are all of them, unless some have no rate.
        into.extend(self.due.places().map(|place| backlog(&self.queues[place])));
        if into.iter().map(|&(_, bytes)| bytes).sum::<u64>() != self.bytes.0 {
            into.clear();
            into.extend(self.queues.iter().map(backlog).filter(|&(_, bytes)| bytes > 0));
        }
        into.sort_unstable();
    }

    /// Recomputes all rates: `own` is the result of [`Voqs::backlogs`] at the time of the report from which
    /// `shares` was derived.
    pub fn allocate(&mut self, now: Time, own: &[(usize, u64)], shares: Arc<Shares>) {
        self.allocate_in(now, own, shares, &mut Spare::default());
    }

    /// The same in memory that another input has left, which is in a near cache when many inputs recompute their
    /// rates one after another.
    pub fn allocate_in(
        &mut self,
        now: Time,
        own: &[(usize, u64)],
        shares: Arc<Shares>,
        spare: &mut Spare<T>,
    ) {
        let Some(allocation) = self.rules.allocation else { return };
        let total = allocation.total(own.iter().copied(), shares.summary());
        let idle_rate_most = allocation.idle_rate_most(total);
        // Queues with a backlog then have rates of their own.
        for &(output, _) in own {
            if self.known.owes(output) {
                self.queue(now, output);
            }
        }
        self.change(now, own, spare, |own, output| match own {
            0 => shares.idle_rate(output, idle_rate_most),
            _ => allocation.rate(own, output, shares.summary(), total),
        });
        let (before, most) = (&*self.shares, self.idle_rate_most);
        let rate = |output| before.idle_rate(output, most);
        let usual = (most, |group| before.are_idle_rates(group, most));
        self.known.change(now - self.since, rate, usual, &spare.owing);
        (self.since, self.idle_rate_most, self.shares) = (now, idle_rate_most, shares);
    }

    /// Sets the rates of all queues, and sorts by output the queues that have a packet or will have a rate of
    /// their own. Leaves the outputs that owe, also in order, and their debts.
    fn change(
        &mut self,
        now: Time,
        own: &[(usize, u64)],
        spare: &mut Spare<T>,
        rate: impl Fn(u64, usize) -> u64,
    ) {
        let Spare { order, queues: old, owing, .. } = spare;
        let named =
            |(place, queue): (usize, &Queue<T>)| u32::from(queue.output) << 16 | place as u32;
        order.clear();
        order.extend(self.queues.iter().enumerate().map(named));
        order.sort_unstable();
        // The previous capacity, some spare, and rounding so that the allocator sees few sizes.
        let room = (order.len() + order.len() / 8).next_multiple_of(32);
        old.clear();
        old.reserve(room);
        std::mem::swap(&mut self.queues, old);
        let mut due = std::mem::take(&mut self.due).into_room();
        self.turns = 0;
        self.known.clear_queues();
        owing.clear();
        let mut own = own.iter().copied().peekable();
        for (at, place) in order.iter().map(|name| name & 0xffff).enumerate() {
            if let Some(next) = order.get(at + 8) {
                prefetch(&old[(next & 0xffff) as usize]);
            }
            let queue = &mut old[place as usize];
            let (output, waits) = (usize::from(queue.output), queue.first.is_some());
            while own.next_if(|&(other, _)| other < output).is_some() {}
            let backlog = own.next_if(|&(other, _)| other == output).map_or(0, |(_, bytes)| bytes);
            let least = if queue.rate > 0 { now.as_ps() } else { 0 };
            if !waits && queue.value <= least {
                continue;
            }
            let owed = queue.change(now, rate(backlog, output));
            match u32::try_from(owed) {
                Ok(owed) if !waits && backlog == 0 && owed <= OWED_MAX => {
                    owing.push((queue.output, owed));
                }
                _ => {
                    let first = queue.first.take();
                    if waits && queue.rate > 0 {
                        self.turns += 1;
                        let due_first = Due::new(queue.value, self.turns, self.queues.len());
                        due.push(Reverse(due_first));
                    }
                    self.known.set_queue(output);
                    self.queues.push(Queue { first, before: NO_PLACE, ..*queue });
                }
            }
        }
        self.sorted = self.queues.len() as u16; // At most `PORTS_MAX`.
        self.due = Schedule::of(due);
    }

    /// The current rate to `output`, in bits per second; `None` without allocation.
    pub fn rate(&self, output: usize) -> Option<u64> {
        self.rules.allocation.as_ref()?;
        let known = self.place(output).map(|place| self.queues[place].rate);
        Some(known.unwrap_or_else(|| self.idle_rate(output)))
    }
    /// Backlog for `output`.
    pub fn backlog(&self, output: usize) -> Bytes {
        Bytes(self.place(output).map_or(0, |place| self.queues[place].bytes))
    }
    /// Backlog for all outputs.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }
    /// Packets queued.
    pub fn packets(&self) -> u64 {
        self.packets.into()
    }
}

impl<T> Queue<T> {
    /// Changes its rate, and returns how many bits it owes.
    fn change(&mut self, now: Time, rate: u64) -> u64 {
        let late = self.rate > 0 && self.value <= now.as_ps();
        let owed = match self.rate {
            0 => self.value,
            rate => bits_in(self.value.saturating_sub(now.as_ps()), rate),
        };
        // A late queue stays late, and catches up; nothing was due before it had a rate.
        if rate == 0 || owed > 0 || !late {
            self.value = value(now, rate, owed);
        }
        self.rate = rate;
        owed
    }
}

/// When a queue that owes this many bits is due; if it has no rate, the bits.
#[inline]
fn value(now: Time, rate: u64, owed: u64) -> u64 {
    match rate {
        0 => owed,
        _ => now.as_ps().saturating_add(time_for(owed, rate)),
    }
}

/// Time of `bits`, in picoseconds, rounded up.
#[inline]
fn time_for(bits: u64, rate: u64) -> u64 {
    match bits.checked_mul(PS_PER_SECOND) {
        Some(product) => product.div_ceil(rate),
        None => wide(bits, PS_PER_SECOND, rate),
    }
}

/// Bits sent in a time in picoseconds, rounded up.
#[inline]
fn bits_in(time: u64, rate: u64) -> u64 {
    match time.checked_mul(rate) {
        Some(product) => product.div_ceil(PS_PER_SECOND),
        None => wide(time, rate, PS_PER_SECOND),
    }
}

#[cold]
fn wide(one: u64, other: u64, by: u64) -> u64 {
    let quotient = (u128::from(one) * u128::from(other)).div_ceil(by.into());
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::allocation::Rule;
    use super::*;
    use lastmeter_base::Rate;

    const PERIOD: Duration = Duration::from_us(500);

    fn queues<T>(allocation: Option<Allocation>) -> Voqs<T> {
        Voqs::new(Arc::new(Rules { allocation, period: PERIOD, room: Bytes::from_mib(1) }))
    }

    fn allocation() -> Allocation {
        let rule = Rule::Responsive { backlog_min: Bytes(1000) };
        Allocation { rule, ports: 8, capacity: Rate::from_mbit(140) }
    }

    #[test]
    fn an_idle_fabric_lets_a_queue_send_at_an_equal_share() {
        let mut voqs = queues(Some(allocation()));
        for number in 0..100 {
            voqs.enqueue(Time::START, 3, Bytes(520), number).unwrap();
        }
        let mut now = Time::START;
        for number in 0..100 {
            now = now.max(voqs.ready_at().unwrap());
            assert_eq!(voqs.dequeue(now).unwrap().2, number);
        }
        // 99 gaps of 520 B at 17.5 Mbit/s.
        let rate = 99.0 * 520.0 * 8.0 / now.since_start().as_secs_f64();
        assert!((rate / 17.5e6 - 1.0).abs() < 1e-5, "{rate}");
        assert_eq!((voqs.packets(), voqs.bytes()), (0, Bytes::ZERO));
    }

    #[test]
    fn a_queue_that_empties_between_packets_is_not_faster() {
        let mut voqs = queues(Some(allocation()));
        let (mut now, mut sent) = (Time::START, 0u64);
        while now < Time::START + PERIOD * 4 {
            voqs.enqueue(now, 3, Bytes(520), ()).unwrap();
            now += Duration::from_us(10);
            sent += u64::from(voqs.dequeue(now).is_some());
        }
        assert!(sent * 520 * 8 <= 17_500_000 * 4 * 500 / 1_000_000 + 2 * 520 * 8, "{sent}");
    }

    #[test]
    fn without_a_rate_nothing_is_sent_and_without_an_allocation_queues_take_turns() {
        let base = Allocation { rule: Rule::Base, ..allocation() };
        let mut voqs = queues(Some(base));
        voqs.enqueue(Time::START, 1, Bytes(520), ()).unwrap();
        assert_eq!((voqs.ready_at(), voqs.dequeue(Time::START + PERIOD)), (None, None));
        let mut free = queues(None);
        for place in 0..9 {
            free.enqueue(Time::START, place % 3, Bytes(520), place).unwrap();
        }
        let order: Vec<usize> =
            std::iter::from_fn(|| free.dequeue(Time::START).map(|(output, ..)| output)).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_debt_outlives_a_change_of_rates() {
        let mut voqs = queues(Some(allocation()));
        for _ in 0..3 {
            voqs.enqueue(Time::START, 0, Bytes(1750), ()).unwrap();
        }
        voqs.dequeue(Time::START).unwrap();
        // 1750 B at 17.5 Mbit/s take 800 us. Halfway, the rate falls to that of one of two backlogs.
        let half = Time::START + Duration::from_us(400);
        let own = [(0, 3500)];
        let mut summary = Summary::empty(8);
        summary.add(own);
        summary.output[0] = 1 << 40;
        voqs.allocate(half, &own, Arc::new(Shares::new(&allocation(), summary)));
        let rate = voqs.rate(0).unwrap();
        let ahead = (voqs.ready_at().unwrap() - half).as_secs_f64();
        assert!((ahead * rate as f64 - 7000.0).abs() < 2.0, "{ahead} {rate}");
    }
}
