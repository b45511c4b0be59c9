//! A simple implementation of the queues, compared with the fast one.

use super::super::allocation::{Allocation, Rule, Shares, Summary};
use super::{Rules, Voqs};
use lastmeter_base::{Bytes, Duration, Rate, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const PORTS: usize = 70; // More than a word of bits.
const PERIOD: Duration = Duration::from_us(500);
const PS: u128 = 1_000_000_000_000;

#[derive(Default)]
struct Queue {
    items: VecDeque<(u64, u64)>,
    rate: u64,
    due: u64,
    owed: u128,
    /// When it became the first of its queue.
    turn: u64,
}

struct Plain {
    allocation: Option<Allocation>,
    queues: BTreeMap<usize, Queue>,
    summary: Summary,
    total: f64,
    turns: u64,
}

impl Plain {
    fn idle_rate(&self, output: usize) -> u64 {
        let rate = |one: Allocation| one.rate(0, output, &self.summary, self.total);
        self.allocation.map_or(u64::MAX, rate)
    }
    fn enqueue(&mut self, now: u64, output: usize, len: u64, item: u64) {
        let rate = self.idle_rate(output);
        let new = || Queue { rate, due: now, ..Queue::default() };
        let queue = self.queues.entry(output).or_insert_with(new);
        queue.items.push_back((len, item));
        if queue.items.len() == 1 && queue.rate > 0 {
            self.turns += 1;
            (queue.due, queue.turn) = (queue.due.max(now), self.turns);
        }
    }
    fn dequeue(&mut self, now: u64) -> Option<(usize, u64, u64)> {
        let due = |queue: &Queue| !queue.items.is_empty() && queue.rate > 0 && queue.due <= now;
        let waiting = self.queues.iter_mut().filter(|(_, queue)| due(queue));
        let (&output, queue) = waiting.min_by_key(|(_, queue)| (queue.due, queue.turn))?;
        let (len, item) = queue.items.pop_front()?;
        self.turns += 1;
        queue.turn = self.turns;
        if self.allocation.is_some() {
            let from = queue.due.max(now.saturating_sub(PERIOD.as_ps()));
            queue.due = from + (u128::from(len) * 8 * PS).div_ceil(queue.rate.into()) as u64;
        } else {
            queue.due = now;
        }
        if self.allocation.is_none() && queue.items.is_empty() {
            self.queues.remove(&output);
        }
        Some((output, len, item))
    }
    fn backlogs(&self) -> Vec<(usize, u64)> {
        let bytes = |queue: &Queue| queue.items.iter().map(|(len, _)| len).sum();
        let all = self.queues.iter().map(|(&output, queue)| (output, bytes(queue)));
        all.filter(|&(_, bytes)| bytes > 0).collect()
    }
    fn allocate(&mut self, now: u64, own: &[(usize, u64)], summary: Summary) {
        let Some(allocation) = self.allocation else { return };
        (self.total, self.summary) = (allocation.total(own.iter().copied(), &summary), summary);
        self.queues.retain(|_, queue| {
            !queue.items.is_empty() || queue.due > now && queue.rate > 0 || queue.owed > 0
        });
        for (&output, queue) in &mut self.queues {
            let told = own.iter().find(|told| told.0 == output).map_or(0, |told| told.1);
            let rate = allocation.rate(told, output, &self.summary, self.total);
            match queue.rate {
                0 => queue.due = now,
                before => {
                    let ahead = u128::from(queue.due.saturating_sub(now));
                    queue.owed = (ahead * u128::from(before)).div_ceil(PS);
                }
            }
            queue.rate = rate;
            if rate > 0 {
                let ahead = (queue.owed * PS).div_ceil(rate.into()) as u64;
                queue.due = if queue.owed > 0 { now + ahead } else { queue.due.min(now) };
                queue.owed = 0;
                self.turns += 1;
                queue.turn = self.turns;
            }
        }
    }
}

proptest! {
    #[test]
    fn queues_send_the_same_as_simple_ones_at_the_same_times(
        rule in prop_oneof![
            Just(None), Just(Some(Rule::Base)),
            (1u64..3000).prop_map(|min| Some(Rule::Responsive { backlog_min: Bytes(min) })),
        ],
        steps in prop::collection::vec(
            (0u64..40, 0usize..PORTS, 1u64..3000, 0u64..100_000_000, 0u64..1 << 20), 1..400),
        narrow in 1usize..PORTS,
    ) {
        let capacity = Rate::from_mbit(140);
        let allocation = rule.map(|rule| Allocation { rule, ports: PORTS, capacity });
        let rules = Rules { allocation, period: PERIOD, room: Bytes::from_mib(64) };
        let mut voqs = Voqs::new(rules.into());
        let empty = Summary::empty(PORTS);
        let total = allocation.map_or(0.0, |one| one.total([], &empty));
        let queues = BTreeMap::new();
        let mut plain = Plain { allocation, queues, summary: empty, total, turns: 0 };
        let (mut now, mut told) = (0, Vec::new());
        for (item, (what, output, len, later, elsewhere)) in steps.into_iter().enumerate() {
            now += later;
            let (at, item, output) = (Time::from_ps(now), item as u64, output % narrow);
            match what {
                0 => {
                    told = voqs.backlogs();
                    prop_assert_eq!(&told, &plain.backlogs());
                }
                1 => {
                    let mut summary = Summary::empty(PORTS);
                    summary.add(told.iter().copied());
                    summary.add([(output, elsewhere)]);
                    summary.output[output] = elsewhere * 1000;
                    if let Some(one) = &allocation {
                        let shares = Shares::new(one, summary.clone());
                        voqs.allocate(at, &told, Arc::new(shares));
                    }
                    plain.allocate(now, &told, summary);
                }
                2..20 => {
                    voqs.enqueue(at, output, Bytes(len), item).unwrap();
                    plain.enqueue(now, output, len, item);
                }
                _ => {
                    let sent = voqs.dequeue(at).map(|(output, len, item)| (output, len.0, item));
                    prop_assert_eq!(sent, plain.dequeue(now));
                }
            }
            if allocation.is_some() {
                let known = plain.queues.get(&output).map(|queue| queue.rate);
                let rate = known.unwrap_or_else(|| plain.idle_rate(output));
                prop_assert_eq!(voqs.rate(output), Some(rate));
            }
        }
    }
}
