//! Admission to a host: its processor and its link together, with what they really cost (E-80).
//!
//! ```text
//! message --> [handler: first packet, further ones, a switch every P packets] --> [link]
//!                    d_cpu, for all but the first P packets ...        ... overlaps d_link
//! ```
//!
//! A handler works on P packets before it looks whether a more urgent one waits; so P packets and a
//! switch are what cannot be called back. The link begins when the first P packets are through, so
//! the bounds of both add, less nothing: d_cpu + d_link <= d.
//!
//! Source: Indiresan 1997, §6.1; Mehra, Indiresan & Shin, RTAS 1996, for the shape. The equations
//! are ours, from what §6.1 says of handlers; constants are the caller's.

use super::super::contract::Contract;
use super::{Demand, Method, Reservations};
use lastmeter_base::Duration;

/// What a handler costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandlerCosts {
    /// For each message, besides its packets.
    pub per_message: Duration,
    /// For each packet.
    pub per_packet: Duration,
    /// To turn from one handler to another, with the misses in the cache that follow.
    pub switch: Duration,
    /// P, packets before a handler looks whether another is more urgent; at least 1.
    pub packets_between: u64,
}

impl HandlerCosts {
    /// How long the processor is busy with a message of so many packets, switches included: one to
    /// begin, and one each time it may have been turned away.
    pub fn message(&self, packets: u64) -> Duration {
        let turns = packets.div_ceil(self.packets_between.max(1)).max(1);
        self.per_message + self.per_packet * packets + self.switch * turns
    }

    /// For how long a handler that has begun keeps a more urgent one waiting.
    pub fn blocking(&self) -> Duration {
        self.per_message + self.per_packet * self.packets_between.max(1) + self.switch
    }

    /// What a channel wants of the processor.
    pub fn demand(&self, contract: &Contract) -> Demand {
        Demand { cost: self.message(contract.packets()), interval: contract.interval_min }
    }

    /// A processor with these handlers and nothing promised.
    pub fn reservations(&self, method: Method) -> Reservations {
        Reservations::new(method, self.blocking())
    }
}

/// The bounds of both resources, if together they keep `within`; nothing is reserved.
pub fn bounds(
    processor: (&Reservations, Demand),
    link: (&Reservations, Demand),
    within: Duration,
) -> Option<(Duration, Duration)> {
    let (cpu, wire) = (processor.0.bound(processor.1)?, link.0.bound(link.1)?);
    (cpu + wire <= within).then_some((cpu, wire))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::Bytes;

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
        // §6.1: with four packets a turn one message is through in 10 ms and may begin 2.5 ms late.
        let four = costs(4);
        assert!(bound(four) < bound(coarse));
    }
}
