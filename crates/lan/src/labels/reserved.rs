//! The queues of flows with a reservation, in front of a port's own queue.
//!
//! ```text
//!              /-> flow's queue --> head eligible? --yes--> current, by due date --\   1 within their rates
//! reserved ---+                          | no                                      |
//!              \-> ...                   +--> early, by the time it is eligible -+ |   3 beyond them
//! all else ------------> the port's own queue ----------------------------------+-+--> shaper   2 all else
//! ```
//!
//! A packet is eligible when its flow, sending at its rate, would have come to it; it is due when that rate would have
//! sent it. Packets within their rates go first, by due date: the sum of the rates is less than the line's
//! ([`super::admission`]), so each is sent at most one packet of another after it is due. Whatever a flow sends beyond
//! its rate waits until the line is idle otherwise; that does not count against it later.
//!
//! Full: a flow has its own limit on packets, and what arrives beyond is dropped (`queue-full`).
//!
//! Source: Zhang, VirtualClock, SIGCOMM 1990; eligibility after Bennett and Zhang, INFOCOM 1996 (WF2Q). Deviation:
//! packets without a reservation come before those beyond a rate.

use lastmeter_base::{Bytes, Packet, Rate, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What a flow is promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The flow's name.
    pub flow: String,
    /// Its rate, framing included.
    pub rate: Rate,
    /// Limit on its packets that wait.
    pub packets: u64,
}

/// What became of a flow's packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Sent within its rate.
    pub within: u64,
    /// Sent beyond its rate, on an idle line.
    pub beyond: u64,
    /// Bytes sent, from the IP header on.
    pub bytes: u64,
    /// Dropped because its queue was full.
    pub dropped: u64,
    /// The longest time that a packet waited, in picoseconds.
    pub waited_most: u64,
}

#[derive(Debug)]
struct Flow {
    promise: Promise,
    waiting: VecDeque<Packet>,
    /// When its next packet is eligible, if it is there.
    clock: Time,
    counts: Counts,
}

/// The queues of a port's reservations.
#[derive(Debug, Default)]
pub struct Reserved {
    flows: Vec<Flow>,
    /// Heads by the time when they are eligible.
    early: BinaryHeap<Reverse<(Time, usize)>>,
    /// Heads that are eligible, by due date.
    current: BinaryHeap<Reverse<(Time, usize)>>,
    packets: u64,
    bytes: u64,
}

impl Reserved {
    /// For these flows; those of `old` that stay keep their packets, their time and their counts. Packets of the others
    /// are returned.
    pub fn new(promises: Vec<Promise>, mut old: Reserved) -> (Reserved, Vec<Packet>) {
        let mut new = Reserved::default();
        for promise in promises {
            let before = old.flows.iter_mut().find(|flow| flow.promise.flow == promise.flow);
            let (waiting, clock, counts) = match before {
                Some(flow) => (std::mem::take(&mut flow.waiting), flow.clock, flow.counts),
                None => (VecDeque::new(), Time::START, Counts::default()),
            };
            new.packets += waiting.len() as u64;
            new.bytes += waiting.iter().map(|packet| packet.len.0).sum::<u64>();
            new.flows.push(Flow { promise, waiting, clock, counts });
        }
        (0..new.flows.len()).for_each(|at| new.head(at));
        (new, old.flows.into_iter().flat_map(|flow| flow.waiting).collect())
    }
    /// How many packets wait.
    pub fn packets(&self) -> u64 {
        self.packets
    }
    /// How many bytes wait.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// What became of each flow's packets.
    pub fn counts(&self) -> impl Iterator<Item = (&Promise, u64, Counts)> {
        self.flows.iter().map(|flow| (&flow.promise, flow.waiting.len() as u64, flow.counts))
    }
    /// A packet has become its flow's first.
    fn head(&mut self, at: usize) {
        let flow = &self.flows[at];
        if let Some(first) = flow.waiting.front() {
            let eligible = flow.clock.max(first.entered);
            self.early.push(Reverse((eligible, at)));
        }
    }
    /// A packet of flow number `at` arrives, at `packet.entered`.
    ///
    /// # Errors
    /// The packet, if the flow's queue is full.
    pub fn enqueue(&mut self, at: usize, packet: Packet) -> Result<(), Packet> {
        let Some(flow) = self.flows.get_mut(at) else { return Err(packet) };
        if flow.waiting.len() as u64 >= flow.promise.packets {
            flow.counts.dropped += 1;
            return Err(packet);
        }
        self.packets += 1;
        self.bytes += packet.len.0;
        flow.waiting.push_back(packet);
        if flow.waiting.len() == 1 {
            self.head(at);
        }
        Ok(())
    }
    /// The next packet within its flow's rate; `on_line` is what a packet takes on the line. If the line is `idle`
    /// otherwise, one beyond its rate, too.
    pub fn dequeue(
        &mut self,
        now: Time,
        idle: bool,
        on_line: impl Fn(&Packet) -> Bytes,
    ) -> Option<Packet> {
        if self.packets == 0 {
            return None;
        }
        while let Some(&Reverse((eligible, at))) = self.early.peek() {
            if eligible > now {
                break;
            }
            self.early.pop();
            let flow = &self.flows[at];
            if let Some(first) = flow.waiting.front() {
                let due = eligible + flow.promise.rate.time_for(on_line(first));
                self.current.push(Reverse((due, at)));
            }
        }
        let (clock, at, within) = match self.current.pop() {
            Some(Reverse((due, at))) => (Some(due), at, true),
            None if idle => (None, self.early.pop()?.0.1, false),
            None => return None,
        };
        let flow = &mut self.flows[at];
        let packet = flow.waiting.pop_front()?;
        // What it got beyond its rate does not count against it.
        flow.clock = clock.unwrap_or_else(|| now + flow.promise.rate.time_for(on_line(&packet)));
        flow.counts.within += u64::from(within);
        flow.counts.beyond += u64::from(!within);
        flow.counts.bytes += packet.len.0;
        let waited = now.saturating_since(packet.entered).as_ps();
        flow.counts.waited_most = flow.counts.waited_most.max(waited);
        self.packets -= 1;
        self.bytes -= packet.len.0;
        self.head(at);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Duration;
    use proptest::prelude::*;

    fn promise(flow: &str, rate: Rate) -> Promise {
        Promise { flow: flow.to_owned(), rate, packets: 1000 }
    }
    fn of(rates: &[u64]) -> Reserved {
        let promises = rates.iter().enumerate();
        let promises = promises.map(|(at, mbit)| promise(&at.to_string(), Rate::from_mbit(*mbit)));
        Reserved::new(promises.collect(), Reserved::default()).0
    }
    fn packet(now: Time, len: u64, seq: u64) -> Packet {
        let mut packet = Packet::new(Bytes(len));
        (packet.entered, packet.seq) = (now, seq);
        packet
    }
    fn len(packet: &Packet) -> Bytes {
        packet.len
    }

    #[test]
    fn a_flow_beyond_its_rate_waits_for_an_idle_line_and_is_not_punished_later() {
        let mut reserved = of(&[8]);
        let now = Time::START;
        // 1000 bytes take 1 ms at 8 Mbit/s.
        (0..20).for_each(|seq| reserved.enqueue(0, packet(now, 1000, seq)).expect("room"));
        let mut taken = |at: u64, idle: bool| {
            let now = Time::START + Duration::from_us(at);
            reserved.dequeue(now, idle, len).map(|packet| packet.seq)
        };
        assert_eq!(taken(0, false), Some(0));
        assert_eq!(taken(0, false), None, "the next is eligible at 1 ms");
        for seq in 1..10 {
            assert_eq!(taken(10, true), Some(seq), "an idle line takes it");
        }
        assert_eq!(taken(900, false), None);
        assert_eq!(taken(1010, false), Some(10), "its rate goes on from then");
        assert_eq!(taken(2010, false), Some(11));
    }

    #[test]
    fn a_full_queue_refuses_and_a_flow_that_stays_keeps_its_packets() {
        let mut reserved = of(&[1, 1]);
        for seq in 0..1000 {
            reserved.enqueue(1, packet(Time::START, 100, seq)).expect("room");
        }
        assert!(reserved.enqueue(1, packet(Time::START, 100, 0)).is_err());
        assert!(reserved.enqueue(2, packet(Time::START, 100, 0)).is_err(), "no such flow");
        reserved.enqueue(0, packet(Time::START, 100, 7)).expect("room");
        let kept = vec![promise("1", Rate::from_mbit(2))];
        let (mut new, gone) = Reserved::new(kept, reserved);
        assert_eq!((gone.len(), gone[0].seq, new.packets()), (1, 7, 1000));
        assert_eq!(new.counts().map(|(_, _, counts)| counts.dropped).sum::<u64>(), 1);
        assert_eq!(new.dequeue(Time::START, false, len).map(|packet| packet.seq), Some(0));
    }

    proptest! {
        /// Flows that keep within their rates, on a line that has room for all and never lacks other packets: none
        /// waits beyond its bound (the burst at its rate, and a packet of another), and none overtakes its own.
        #[test]
        fn the_bound_of_admission_holds(
            rates in prop::collection::vec(1..30u64, 1..4),
            bursts in prop::collection::vec(1..6u64, 4),
            lens in prop::collection::vec(40..1500u64, 40),
        ) {
            let line = Rate::from_mbit(100);
            let longest = Bytes(1500);
            let mut reserved = of(&rates);
            // Arrivals: each flow sends a burst, then at its rate.
            let mut arrivals = Vec::new();
            for (flow, mbit) in rates.iter().enumerate() {
                let rate = Rate::from_mbit(*mbit);
                let (mut at, mut seq) = (Time::START, 0);
                for (n, own) in lens.iter().enumerate() {
                    if n as u64 >= bursts[flow] {
                        at += rate.time_for(Bytes(*own));
                    }
                    arrivals.push((at, flow, *own, seq));
                    seq += 1;
                }
            }
            arrivals.sort_by_key(|(at, ..)| *at);
            let mut last = vec![None; rates.len()];
            let (mut now, mut next) = (Time::START, 0);
            while next < arrivals.len() || reserved.packets() > 0 {
                while let Some((at, flow, own, seq)) = arrivals.get(next).copied() {
                    if at > now {
                        break;
                    }
                    let mut one = packet(at, own, seq);
                    one.flow = lastmeter_base::FlowId(flow as u32);
                    reserved.enqueue(flow, one).expect("room");
                    next += 1;
                }
                let Some(sent) = reserved.dequeue(now, false, len) else {
                    now += line.time_for(longest);
                    continue;
                };
                now += line.time_for(sent.len);
                let flow = sent.flow.0 as usize;
                prop_assert!(last[flow].is_none_or(|before| before < sent.seq));
                last[flow] = Some(sent.seq);
                let burst: u64 = lens.iter().take(bursts[flow] as usize).sum();
                let bound = Rate::from_mbit(rates[flow]).time_for(Bytes(burst + 1500))
                    + line.time_for(longest) + line.time_for(longest);
                let waited = now.saturating_since(sent.entered);
                prop_assert!(waited <= bound, "{waited:?} {bound:?}");
            }
        }
    }
}
