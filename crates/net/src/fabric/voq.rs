//! The virtual output queues of one input, each served no faster than its rate.
//!
//! ```text
//!      +--> [ output 0 ] --r(0)--+
//! in --+--> [ output 1 ] --r(1)--+--> one at a time, the longest due first
//!      '--> ...                --+
//! ```
//!
//! A queue that has sent `len` bytes is due again `len / r` after it was due before, never after now;
//! it may catch up at most one period of its rate. A queue that has emptied keeps its debt. Without an
//! allocation all queues are due at once, and take turns.
//!
//! Only queues that wait or owe are kept, so that an input of a large fabric costs what it holds and
//! not what it could hold.
//!
//! Source: Kuhns et al., §3.6; the pacing is ours (D-50, D-51).

use super::allocation::{Allocation, Summary};
use lastmeter_base::{Bytes, Duration, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// The queues of one input.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Time};
/// use lastmeter_net::fabric::voq::Voqs;
/// let mut voqs = Voqs::new(None, Duration::from_us(500), Bytes(3000));
/// voqs.enqueue(Time::START, 5, Bytes(1500), 'a').unwrap();
/// voqs.enqueue(Time::START, 5, Bytes(1500), 'b').unwrap();
/// voqs.enqueue(Time::START, 2, Bytes(1500), 'c').unwrap_err(); // full
/// assert_eq!(voqs.backlog(5), Bytes(3000));
/// assert_eq!(voqs.dequeue(Time::START), Some((5, Bytes(1500), 'a')));
/// ```
#[derive(Debug)]
pub struct Voqs<T> {
    allocation: Option<Allocation>,
    /// How long a queue may catch up.
    period: Duration,
    queues: BTreeMap<usize, Voq<T>>,
    /// Queues that wait and have a rate, by when they are due; ties go by turn.
    due: BinaryHeap<Reverse<(Time, u64, usize)>>,
    turns: u64,
    summary: Arc<Summary>,
    total: f64,
    bytes: Bytes,
    bytes_max: Bytes,
    packets: u64,
}

#[derive(Debug)]
struct Voq<T> {
    /// The next packet. Most queues of a large fabric have no other, and need no memory apart for it.
    first: Option<(Bytes, T)>,
    rest: VecDeque<(Bytes, T)>,
    bytes: u64,
    /// In bits per second; 0 if it may not send.
    rate: u64,
    due: Time,
    /// Bits that it owes while it has no rate.
    owed: u128,
}

impl<T> Voqs<T> {
    /// Queues of together at most `bytes_max`; without an `allocation` they are served as they come.
    pub fn new(allocation: Option<Allocation>, period: Duration, bytes_max: Bytes) -> Voqs<T> {
        let ports = allocation.map_or(0, |allocation| allocation.ports);
        let summary = Arc::new(Summary::empty(ports));
        let total = allocation.map_or(0.0, |allocation| allocation.total([], &summary));
        Voqs {
            allocation,
            period,
            queues: BTreeMap::new(),
            due: BinaryHeap::new(),
            turns: 0,
            summary,
            total,
            bytes: Bytes::ZERO,
            bytes_max,
            packets: 0,
        }
    }

    /// Stores what is for `output`, or gives it back.
    ///
    /// # Errors
    /// The item, where there is no room for it.
    pub fn enqueue(&mut self, now: Time, output: usize, len: Bytes, item: T) -> Result<(), T> {
        if self.bytes + len > self.bytes_max {
            return Err(item);
        }
        self.bytes += len;
        self.packets += 1;
        let (allocation, summary, total) = (self.allocation, &self.summary, self.total);
        let queue = self.queues.entry(output).or_insert_with(|| Voq {
            first: None,
            rest: VecDeque::new(),
            bytes: 0,
            rate: allocation.map_or(u64::MAX, |one| one.rate(0, output, summary, total)),
            due: now,
            owed: 0,
        });
        queue.bytes += len.0;
        if queue.first.is_some() {
            queue.rest.push_back((len, item));
            return Ok(());
        }
        queue.first = Some((len, item));
        if queue.rate > 0 {
            // What was due while nobody waited is lost.
            queue.due = queue.due.max(now);
            self.turns += 1;
            self.due.push(Reverse((queue.due, self.turns, output)));
        }
        Ok(())
    }

    /// When the next packet may go.
    pub fn ready_at(&self) -> Option<Time> {
        self.due.peek().map(|&Reverse((due, ..))| due)
    }

    /// The packet that has been due for longest, and the output that it is for.
    pub fn dequeue(&mut self, now: Time) -> Option<(usize, Bytes, T)> {
        let &Reverse((due, _, output)) =
            self.due.peek().filter(|Reverse((due, ..))| *due <= now)?;
        self.due.pop();
        let queue = self.queues.get_mut(&output).expect("what is due is kept");
        let (len, item) = queue.first.take().expect("what is due waits");
        queue.first = queue.rest.pop_front();
        queue.bytes -= len.0;
        self.bytes -= len;
        self.packets -= 1;
        queue.due = match self.allocation {
            None => now,
            Some(_) => {
                // At most a period of catching up.
                let from = due.as_ps().max(now.as_ps().saturating_sub(self.period.as_ps()));
                let gap = (u128::from(len.0) * 8 * PS_PER_SECOND).div_ceil(queue.rate.into());
                Time::from_ps(u64::try_from(u128::from(from) + gap).unwrap_or(u64::MAX))
            }
        };
        if queue.first.is_none() {
            if self.allocation.is_none() {
                self.queues.remove(&output);
            }
        } else {
            self.turns += 1;
            self.due.push(Reverse((queue.due, self.turns, output)));
        }
        Some((output, len, item))
    }

    /// The outputs that have a backlog here, with its bytes.
    pub fn backlogs(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let waiting = self.queues.iter().filter(|(_, queue)| queue.bytes > 0);
        waiting.map(|(&output, queue)| (output, queue.bytes))
    }

    /// Computes all rates anew: `own` is what [`Voqs::backlogs`] gave when `summary` was made.
    pub fn allocate(&mut self, now: Time, own: &[(usize, u64)], summary: Arc<Summary>) {
        let Some(allocation) = self.allocation else { return };
        self.total = allocation.total(own.iter().copied(), &summary);
        self.summary = summary;
        self.queues.retain(|_, queue| {
            queue.first.is_some() || queue.due > now && queue.rate > 0 || queue.owed > 0
        });
        self.due.clear();
        let mut own = own.iter().copied().peekable();
        for (&output, queue) in &mut self.queues {
            while own.next_if(|&(other, _)| other < output).is_some() {}
            let backlog = own.next_if(|&(other, _)| other == output).map_or(0, |(_, bytes)| bytes);
            let rate = allocation.rate(backlog, output, &self.summary, self.total);
            queue.change(now, rate);
            if rate > 0 && queue.first.is_some() {
                self.turns += 1;
                self.due.push(Reverse((queue.due, self.turns, output)));
            }
        }
    }

    /// The rate at which it may send to `output` now, in bits per second; `None` without allocation.
    pub fn rate(&self, output: usize) -> Option<u64> {
        let allocation = self.allocation?;
        let known = self.queues.get(&output).map(|queue| queue.rate);
        Some(known.unwrap_or_else(|| allocation.rate(0, output, &self.summary, self.total)))
    }
    /// What waits for `output`.
    pub fn backlog(&self, output: usize) -> Bytes {
        Bytes(self.queues.get(&output).map_or(0, |queue| queue.bytes))
    }
    /// What waits for all outputs.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }
    /// How many packets wait.
    pub fn packets(&self) -> u64 {
        self.packets
    }
}

impl<T> Voq<T> {
    /// Gives it another rate: what it owes in bits stays, and takes another time.
    fn change(&mut self, now: Time, rate: u64) {
        match self.rate {
            // Nothing was due before there was a rate.
            0 => self.due = now,
            before => {
                let ahead = u128::from(self.due.saturating_since(now).as_ps());
                self.owed = (ahead * u128::from(before)).div_ceil(PS_PER_SECOND);
            }
        }
        self.rate = rate;
        if rate > 0 {
            let ahead = (self.owed * PS_PER_SECOND).div_ceil(rate.into());
            let debt =
                Time::from_ps(u64::try_from(u128::from(now.as_ps()) + ahead).unwrap_or(u64::MAX));
            // One that is late stays late, and catches up.
            self.due = if self.owed > 0 { debt } else { self.due.min(now) };
            self.owed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocation::Rule;
    use super::*;
    use lastmeter_base::Rate;

    const PERIOD: Duration = Duration::from_us(500);

    fn allocation() -> Allocation {
        let rule = Rule::Responsive { backlog_min: Bytes(1000) };
        Allocation { rule, ports: 8, capacity: Rate::from_mbit(140) }
    }

    #[test]
    fn an_idle_fabric_lets_a_queue_send_at_an_equal_share() {
        let mut voqs = Voqs::new(Some(allocation()), PERIOD, Bytes::from_mib(1));
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
    fn a_queue_that_empties_between_packets_is_no_faster() {
        let mut voqs = Voqs::new(Some(allocation()), PERIOD, Bytes::from_mib(1));
        let (mut now, mut sent) = (Time::START, 0u64);
        while now < Time::START + PERIOD * 4 {
            voqs.enqueue(now, 3, Bytes(520), ()).unwrap();
            now += Duration::from_us(10);
            sent += u64::from(voqs.dequeue(now).is_some());
        }
        assert!(sent * 520 * 8 <= 17_500_000 * 4 * 500 / 1_000_000 + 2 * 520 * 8, "{sent}");
    }

    #[test]
    fn without_a_rate_nothing_goes_and_without_an_allocation_queues_take_turns() {
        let base = Allocation { rule: Rule::Base, ..allocation() };
        let mut voqs = Voqs::new(Some(base), PERIOD, Bytes::from_mib(1));
        voqs.enqueue(Time::START, 1, Bytes(520), ()).unwrap();
        assert_eq!((voqs.ready_at(), voqs.dequeue(Time::START + PERIOD)), (None, None));
        let mut free = Voqs::new(None, PERIOD, Bytes::from_mib(1));
        for place in 0..9 {
            free.enqueue(Time::START, place % 3, Bytes(520), place).unwrap();
        }
        let order: Vec<usize> =
            std::iter::from_fn(|| free.dequeue(Time::START).map(|(output, ..)| output)).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_debt_outlives_a_change_of_rates() {
        let mut voqs = Voqs::new(Some(allocation()), PERIOD, Bytes::from_mib(1));
        for _ in 0..3 {
            voqs.enqueue(Time::START, 0, Bytes(1750), ()).unwrap();
        }
        voqs.dequeue(Time::START).unwrap();
        // 1750 B at 17.5 Mbit/s are 800 us. Halfway the rate falls to what one of two backlogs gets.
        let half = Time::START + Duration::from_us(400);
        let own = [(0, 3500)];
        let mut summary = Summary::empty(8);
        summary.add(own);
        summary.output[0] = 1 << 40;
        voqs.allocate(half, &own, Arc::new(summary));
        let rate = voqs.rate(0).unwrap();
        let ahead = (voqs.ready_at().unwrap() - half).as_secs_f64();
        assert!((ahead * rate as f64 - 7000.0).abs() < 2.0, "{ahead} {rate}");
    }
}
