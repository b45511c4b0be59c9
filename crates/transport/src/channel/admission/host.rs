//! Admission to a host: its processor and its link together, with their real costs (E-80).
//!
//! ```text
//! message --> [handler: first packet, further ones, a switch every P packets] --> [link]
//!                    d_cpu, for all but the first P packets ...        ... overlaps d_link
//! ```
//!
//! A handler processes P packets before it checks whether a more urgent one waits; so P packets and a
//! switch are non-preemptible. In general the bounds of both add: d_cpu + d_link <= d.
//!
//! If the processor takes at least as long for any packet as each stage of the link, packets reach the
//! link no closer together than it can send them, so none ever waits there: in Lindley's recursion
//! W' = max(0, W + S - A) stays zero while S <= A, and shorter packets only leave sooner. A message is
//! then complete when its last packet is, one crossing of the link after the processor has made it:
//! d_cpu + (S_1 + S_2 + ...) <= d ([`Pace`]). So admission with a slow processor is less strict than that
//! of two resources in sequence.
//!
//! Source: Indiresan 1997, §6.1; Mehra, Indiresan & Shin, RTAS 1996, for the structure. The equations
//! are ours, from the description of handlers in §6.1; constants are the caller's.

use super::super::contract::Contract;
use super::{Demand, Method, Reservations};
use lastmeter_base::Duration;

/// The costs of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlerCosts {
    /// For each message, in addition to its packets.
    pub per_message: Duration,
    /// For each packet.
    pub per_packet: Duration,
    /// To switch from one handler to another, including the resulting cache misses.
    pub switch: Duration,
    /// P, packets before a handler checks whether another is more urgent; at least 1.
    pub packets_between: u64,
}

impl HandlerCosts {
    /// How long the processor is busy with a message of this many packets, including switches: one to start, and
    /// one for each possible pre-emption.
    pub fn message(&self, packets: u64) -> Duration {
        let turns = packets.div_ceil(self.packets_between.max(1)).max(1);
        self.per_message + self.per_packet * packets + self.switch * turns
    }

    /// How long a handler that has started blocks a more urgent one.
    pub fn blocking(&self) -> Duration {
        self.per_message + self.per_packet * self.packets_between.max(1) + self.switch
    }

    /// A channel's demand on the processor.
    pub fn demand(&self, contract: &Contract) -> Demand {
        Demand { cost: self.message(contract.packets()), interval: contract.interval_min }
    }

    /// A processor with these handlers and no reservations.
    pub fn reservations(&self, method: Method) -> Reservations {
        Reservations::new(method, self.blocking())
    }
}

/// How packets pass from the processor to the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The least time that any handler takes per packet, including best effort.
    pub made_every: Duration,
    /// The most time that a packet takes in each stage of the link.
    pub stages: Vec<Duration>,
}

impl Pace {
    /// Time of the longest packet through all stages, if none can wait there.
    pub fn crossing(&self) -> Option<Duration> {
        let keeps_up = self.stages.iter().all(|&stage| stage <= self.made_every);
        keeps_up.then(|| self.stages.iter().copied().sum())
    }
}

/// The bounds of both resources, if together they are `within` it; reserves nothing.
pub fn bounds(
    processor: (&Reservations, Demand),
    link: (&Reservations, Demand),
    pace: &Pace,
    within: Duration,
) -> Option<(Duration, Duration)> {
    let (cpu, wire) = (processor.0.bound(processor.1)?, link.0.bound(link.1)?);
    let wire = pace.crossing().map_or(wire, |crossing| wire.min(crossing));
    (cpu + wire <= within).then_some((cpu, wire))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::handlers::{Handlers, Message, Regulation};
    use lastmeter_base::{Bytes, Stream, Time};

    /// Whatever messages come, and however long their packets are: what is made on a processor that is
    /// slower than both stages crosses them in the time of the longest packet.
    #[test]
    fn e_80_behind_a_slower_processor_no_packet_waits_for_the_link() {
        let us = Duration::from_us;
        let pace = Pace { made_every: us(354), stages: vec![us(271), us(230)] };
        assert_eq!(pace.crossing(), Some(us(501)));
        assert_eq!(Pace { made_every: us(270), ..pace.clone() }.crossing(), None);
        for seed in 0..50 {
            let mut random = Stream::new(seed, "pace");
            let costs = |per_packet| HandlerCosts {
                per_message: us(146),
                per_packet,
                switch: us(20),
                packets_between: 4,
            };
            let mut handlers = Handlers::new(Regulation::FlowControl, 4, us(20));
            handlers.handler(true, &costs(us(570)));
            handlers.handler(true, &costs(us(570)));
            handlers.handler(false, &costs(us(354)));
            let (mut now, mut made) = (Time::START, Vec::new());
            for id in 0..200 {
                now += us(random.below(9000));
                made.extend(handlers.advance(now));
                let count = 1 + random.below(15);
                let packets = (0..count).map(|_| Bytes(1 + random.below(4096))).collect();
                let logical = now + us(random.below(3000));
                let deadline = logical + us(9000);
                let message = Message { id, logical, deadline, packets };
                handlers.message(now, random.below(3) as usize, message);
            }
            made.extend(handlers.advance(now + us(10_000_000)));
            let (mut first, mut second) = (Time::START, Time::START);
            for made in made {
                let part = |stage: Duration| stage.scale_ceil(made.len.0, 4096);
                first = first.max(made.at) + part(us(271));
                second = second.max(first) + part(us(230));
                assert!(second - made.at <= us(501), "seed {seed}");
            }
        }
    }

    #[test]
    fn e_80_a_coarser_grain_saves_switches_and_admits_tight_deadlines_less() {
        let contract = Contract {
            message_max: Bytes::from_kib(60),
            interval_min: Duration::from_ms(30),
            burst_max: 8,
            packet_max: Bytes::from_kib(4),
            deadline: Duration::from_ms(25),
        };
        let costs = |packets_between| HandlerCosts {
            per_message: Duration::from_us(146),
            per_packet: Duration::from_us(570),
            switch: Duration::from_us(110),
            packets_between,
        };
        let (fine, coarse) = (costs(1), costs(15));
        assert!(fine.message(15) > coarse.message(15));
        assert!(fine.blocking() < coarse.blocking());
        let bound = |costs: HandlerCosts| {
            costs.reservations(Method::Edf).bound(costs.demand(&contract)).unwrap()
        };
        assert_eq!(bound(fine), fine.blocking() + fine.message(15));
        // §6.1: with four packets a turn one message is complete in 10 ms and may start 2.5 ms late.
        let four = costs(4);
        assert!(bound(four) < bound(coarse));
    }
}
