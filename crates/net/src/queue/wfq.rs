//! Exact weighted fair queueing: packets leave in the order in which a fluid server would finish them.
//!
//! ```text
//! in --> S = max(F of its queue, V), F = S + len / weight --> [ queues ] --> smallest F --> out
//!        V rises by rate / (weights of the queues that the fluid server serves)
//! ```
//!
//! | Parameter | Unit    | Default    | Meaning                                          |
//! |-----------|---------|------------|--------------------------------------------------|
//! | `by`      | word    | `flow`     | what gets its own queue: `flow`, `path`, `class` |
//! | `queues`  | queues  | one each   | number of queues onto which flows are hashed     |
//! | `weights` | numbers | all 1      | share phi of queue n                             |
//! | `packets` | packets | no limit   | limit on packets in all queues                   |
//! | `bytes`   | size    | no limit   | limit on bytes in all queues                     |
//! | `each`    | packets | no limit   | limit on packets in one queue                    |
//! | `rate`    | rate    | the link's | rate C of the fluid server                       |
//!
//! The fluid server is tracked exactly: it serves all backlogged queues at once, in proportion to
//! their weights, and a queue leaves it when V reaches the F of its last packet. Work is carried over in
//! whole units of 2^-20 byte, so that rounding errors do not add up. O(log n) for each packet and each departure
//! from the fluid server.
//!
//! Source: Demers, Keshav & Shenker, SIGCOMM 1989; Parekh & Gallager, IEEE/ACM ToN 1(3), 1993, §III:
//! a packet leaves at most one longest packet's time after the fluid server finishes it (Theorem 1),
//! and no queue's service lags by more than one longest packet (Theorem 2). Deviation: V is not reset
//! when the system empties, which makes the same decisions; it is reset beyond 2^60. If the
//! link has no constant rate and none is given, C is 1 Gbit/s.

use super::drr::queue_of_field;
use super::stamps::{
    RESTART, SCALE_BITS, SHARE, ShareOptions, Stamped, Stamper, entry, keyed, share, unkeyed,
};
use super::tournament::Tournament;
use super::{Described, FULL, Site};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Rate, Time, here};

/// The fluid server.
#[derive(Debug)]
struct Fluid {
    rate: Rate,
    v: u64,
    /// The instant up to which V has been computed.
    at: Time,
    /// Work that is done but not yet in V: 2^-20 bytes times 8e12, below one unit of V.
    carry: u128,
    /// Sum of the weights of the queues that it serves.
    weights: u64,
    /// Last F of each queue, and its weight while it is served.
    finish: Vec<u64>,
    serving: Vec<u64>,
    /// The queues that it serves, by their last F.
    leaving: Tournament<u128>,
}

/// Bits times picoseconds in a byte times a second.
const BYTE_SECOND: u128 = 8_000_000_000_000;

impl Fluid {
    fn new(rate: Rate) -> Fluid {
        Fluid {
            rate,
            v: 0,
            at: Time::START,
            carry: 0,
            weights: 0,
            finish: Vec::new(),
            serving: Vec::new(),
            leaving: Tournament::new(u128::MAX),
        }
    }
    /// Parekh & Gallager, eq. (10) and (11): V up to `now`, past every fluid departure in between.
    fn advance(&mut self, now: Time) {
        let elapsed = now.saturating_since(self.at);
        self.at = self.at.max(now);
        if self.weights == 0 {
            return;
        }
        // At most 2^64 ps * 2^44 bit/s * 2^20.
        let done = u128::from(elapsed.as_ps()) * u128::from(self.rate.as_bits());
        let mut work = (done.min(u128::MAX >> (SCALE_BITS + 1)) << SCALE_BITS) + self.carry;
        while let Some((last, queue)) = self.leaving.best().map(unkeyed) {
            let unit = u128::from(self.weights) * BYTE_SECOND;
            let need = u128::from(last.saturating_sub(self.v)) * unit;
            if need > work {
                self.v += (work / unit) as u64;
                self.carry = work % unit;
                return;
            }
            work -= need;
            self.v = self.v.max(last);
            self.leaving.clear(queue);
            self.weights -= std::mem::take(&mut self.serving[queue]);
        }
        self.carry = 0;
    }
}

impl Stamper for Fluid {
    fn stamp(&mut self, now: Time, at: usize, len: u64, weight: u64) -> Option<u64> {
        self.advance(now);
        let serving = entry(&mut self.serving, at);
        if *serving == 0 {
            *serving = weight;
            self.weights += weight;
        }
        let v = self.v;
        let finish = entry(&mut self.finish, at);
        *finish = (*finish).max(v) + share(len, weight);
        self.leaving.set(at, keyed(*finish, at));
        Some(*finish)
    }
    fn idle(&mut self) {
        if self.v > RESTART && self.weights == 0 {
            self.v = 0;
            self.finish.fill(0);
        }
    }
}

/// Exact weighted fair queueing (PGPS).
#[derive(Debug)]
pub struct Wfq(Stamped<Fluid>);

impl Wfq {
    /// Empty, tracking a fluid server of `rate`.
    pub fn new(options: ShareOptions, rate: Rate) -> Wfq {
        Wfq(Stamped::new(options, Fluid::new(rate)))
    }
}
queue_of_field!(Wfq);

impl Described for Wfq {
    const PAGE: &'static Page = &Page {
        name: "wfq",
        family: Family::Queue,
        what: "Weighted fair queueing: packets leave in the order in which a fluid server would.",
        ports: "in --> [ queue per flow ] --> smallest fluid finish time --> out",
        params: &[
            SHARE[0],
            SHARE[1],
            SHARE[2],
            SHARE[3],
            SHARE[4],
            SHARE[5],
            Param::optional("rate", ParamKind::Rate, "the link's").is("rate of the fluid server"),
        ],
        source: "Parekh & Gallager, IEEE/ACM ToN 1(3), 1993, §III",
        deviations: &["Virtual time is not reset in idle periods, which makes the same decisions."],
        drops: &[FULL],
        example: one_queue!(r#"wfq = { by = "path", weights = [3, 1], packets = 50 }"#),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> Wfq {
        let rate = values.given("rate").or(site.rate).unwrap_or(Rate::from_gbit(1));
        Wfq::new(ShareOptions::from_values(values, site), rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Queue;
    use crate::queue::Room;
    use crate::queue::check::{self, packet};
    use lastmeter_base::{Duration, Packet, Stream};

    /// Bytes a second of the links of these tests: 1 byte a nanosecond.
    const RATE: Rate = Rate::from_gbit(8);
    const LEN_MAX: u64 = 1500;

    /// When a fluid server finishes each packet, in nanoseconds: a simple one that serves all queues a
    /// little at a time, from one event to the next.
    fn fluid(arrivals: &[(u64, usize, u64)], weights: &[u64]) -> Vec<f64> {
        fluid_seen(arrivals, weights, &[]).0
    }

    /// Also the bytes served from each queue by each of the times `seen`, in order.
    fn fluid_seen(
        arrivals: &[(u64, usize, u64)],
        weights: &[u64],
        seen: &[u64],
    ) -> (Vec<f64>, Vec<Vec<f64>>) {
        let mut finished = vec![0.0; arrivals.len()];
        let mut served = vec![0.0; weights.len()];
        let mut views: Vec<Vec<f64>> = Vec::new();
        let mut queues: Vec<std::collections::VecDeque<(usize, f64)>> =
            weights.iter().map(|_| Default::default()).collect();
        let (mut now, mut next) = (0.0, 0);
        loop {
            let busy: f64 = (0..weights.len())
                .filter(|&q| !queues[q].is_empty())
                .map(|q| weights[q] as f64)
                .sum();
            let arrival = arrivals.get(next).map_or(f64::INFINITY, |&(at, ..)| at as f64);
            let ends =
                |q: usize| queues[q].front().map(|&(_, left)| left * busy / weights[q] as f64);
            let end = (0..weights.len()).filter_map(ends).fold(f64::INFINITY, f64::min);
            let view = seen.get(views.len()).map_or(f64::INFINITY, |&at| at as f64);
            if arrival.is_infinite() && end.is_infinite() {
                views.resize(seen.len(), served);
                return (finished, views);
            }
            let step = end.min(arrival - now).min((view - now).max(0.0));
            now += step;
            for q in 0..weights.len() {
                if let Some((id, left)) = queues[q].front_mut() {
                    let share = step * weights[q] as f64 / busy;
                    served[q] += share;
                    *left -= share;
                    if *left < 1e-6 {
                        finished[*id] = now;
                        queues[q].pop_front();
                    }
                }
            }
            if view <= now + 1e-9 {
                views.push(served.clone());
            }
            if arrival <= now + 1e-9 {
                let (_, q, len) = arrivals[next];
                queues[q].push_back((next, len as f64));
                next += 1;
            }
        }
    }

    const WEIGHTS: [u64; 5] = [5, 1, 3, 2, 8];

    /// Packets at loads that empty the queue now and then.
    fn arrivals(count: usize) -> Vec<(u64, usize, u64)> {
        let mut random = Stream::new(1, "wfq");
        let mut now = 0;
        (0..count)
            .map(|n| {
                // A mean of 770 bytes every 820 ns, alternating between overload and low load.
                now += random.below(if n / 500 % 2 == 0 { 1240 } else { 2040 });
                (now, random.below(5) as usize, 40 + random.below(LEN_MAX - 39))
            })
            .collect()
    }

    /// When each packet has left, in nanoseconds, in order of departure.
    fn departures(arrivals: &[(u64, usize, u64)]) -> Vec<(u64, Packet)> {
        // Classes, unlike flows, are numbered as the weights are.
        let by_class =
            ShareOptions { by: super::super::By::Class, ..ShareOptions::weighted(&WEIGHTS) };
        let mut queue = Wfq::new(by_class, RATE);
        let at = |ns| Time::START + Duration::from_ns(ns);
        let (mut free_at, mut next, mut out) = (0u64, 0, Vec::new());
        loop {
            while next < arrivals.len() && (arrivals[next].0 <= free_at || queue.packets() == 0) {
                let (time, flow, len) = arrivals[next];
                free_at = free_at.max(if queue.packets() == 0 { time } else { 0 });
                let mut packet = packet(flow as u32, len);
                packet.id = next as u64;
                queue.enqueue(at(time), packet).unwrap();
                next += 1;
            }
            let Some(packet) = queue.dequeue(at(free_at)) else { return out };
            free_at += packet.len.0;
            out.push((free_at, packet));
        }
    }

    /// Parekh & Gallager, Theorem 1, on 100,000 packets.
    #[test]
    fn no_packet_leaves_later_than_one_packet_after_the_fluid_server() {
        let arrivals = arrivals(100_000);
        let fluid = fluid(&arrivals, &WEIGHTS);
        let late = |(at, packet): &(u64, Packet)| *at as f64 - fluid[packet.id as usize];
        let worst = departures(&arrivals).iter().map(late).fold(f64::MIN, f64::max);
        assert!(worst <= LEN_MAX as f64 + 0.01, "a packet left {worst} ns after the fluid server");
        assert!(worst > 100.0, "too little lag to test anything");
    }

    /// Parekh & Gallager, Theorem 2: at no time has a queue been served more than one longest packet less
    /// than by the fluid server.
    #[test]
    fn no_queue_lags_behind_the_fluid_server_by_more_than_one_packet() {
        let arrivals = arrivals(20_000);
        let departures = departures(&arrivals);
        let times: Vec<u64> = departures.iter().map(|&(at, _)| at).collect();
        let (_, views) = fluid_seen(&arrivals, &WEIGHTS, &times);
        let (mut sent, mut worst) = ([0u64; 5], f64::MIN);
        for ((_, packet), view) in departures.iter().zip(views) {
            // A lag is greatest when the queue's turn comes, which is when another's packet has left.
            sent[usize::from(packet.class)] += packet.len.0;
            for (sent, fluid) in sent.iter().zip(&view) {
                worst = worst.max(fluid - *sent as f64);
            }
        }
        assert!(worst <= LEN_MAX as f64 + 1.0, "a queue lagged by {worst} bytes");
        assert!(worst > 500.0, "too little lag to test anything: {worst}");
    }

    /// Bennett & Zhang 1996, Fig. 2: half the link for flow 0, whose packets WFQ sends back to back.
    #[test]
    fn runs_ahead_of_the_fluid_server_as_bennett_and_zhang_show() {
        let mut weights = vec![10];
        weights.extend([1; 10]);
        let mut queue = Wfq::new(ShareOptions::weighted(&weights), RATE);
        (0..11).for_each(|_| queue.enqueue(Time::START, packet(0, 1000)).unwrap());
        (1..11).for_each(|flow| queue.enqueue(Time::START, packet(flow, 1000)).unwrap());
        (0..10).for_each(|n| assert_eq!(queue.dequeue(Time::START).unwrap().flow.0, 0, "{n}"));
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = ShareOptions { room: Room::packets(30), ..ShareOptions::weighted(&[4, 2]) };
        check::holds(Wfq::new(ShareOptions { each: 8, ..options }, RATE), &check::USUAL);
    }
}
