//! Hop-Laxity: the packet with the least time left per remaining hop goes first.
//!
//! ```text
//! in --> [ by now + (deadline - now) / hops ] --> out, hops -= 1        late: sent or dropped
//!        [ packets without deadline, in order ] --> out while no other waits
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                      |
//! |-----------|---------|----------|--------------------------------------------------------------|
//! | `late`    | word    | `drop`   | what happens to packets past their deadlines: `drop`, `send` |
//! | `packets` | packets | no limit | limit on packets held                                        |
//! | `bytes`   | size    | no limit | limit on bytes held                                          |
//!
//! A packet carries its deadline for arrival and the number of remaining hops, this
//! one included. Its laxity, the time left, is divided evenly among them: the instant at which its share
//! for this hop is used up orders the queue. A packet without deadline (zero) is best effort and is sent
//! when nothing else waits; one with zero hops is on its last. Equal instants are served first in, first
//! out. A packet that is late when its turn comes is of no use to its receiver. O(log n).
//!
//! Source: Schulzrinne, Kurose & Towsley, An Evaluation of Scheduling Mechanisms for Providing
//! Best-Effort, Real-Time Communication in Wide-Area Networks, INFOCOM 1994; E-04. Deviation: the share
//! is computed once, at arrival, so that a heap can keep the order. The ratio of laxity to hops of two
//! waiting packets with different numbers of hops may change order later; that of their instants does not.

use super::due::Agenda;
use super::flows::{BYTES, PACKETS, Room};
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, Time, here};
use std::collections::VecDeque;

/// What happens to a packet that is past its deadline when its turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It is dropped.
    Drop,
    /// It is still sent.
    Send,
}

/// Hop-Laxity.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Packet, Time};
/// use lastmeter_net::queue::{HopLaxity, Late, Queue, Room};
/// let mut queue = HopLaxity::new(Late::Send, Room::UNLIMITED);
/// for (ms, hops) in [(10, 1), (30, 6)] {
///     let mut packet = Packet::new(Bytes(1500));
///     (packet.deadline, packet.hops) = (Time::START + Duration::from_ms(ms), hops);
///     queue.enqueue(Time::START, packet)?;
/// }
/// // 30 ms for six hops are 5 ms for each, less than 10 ms for one.
/// assert_eq!(queue.dequeue(Time::START).map(|packet| packet.hops), Some(5));
/// # Ok::<(), Packet>(())
/// ```
#[derive(Debug)]
pub struct HopLaxity {
    agenda: Agenda,
    late: Late,
    victims: VecDeque<(Packet, &'static str)>,
}

impl HopLaxity {
    /// Empty.
    pub fn new(late: Late, room: Room) -> HopLaxity {
        HopLaxity { agenda: Agenda::new(room), late, victims: VecDeque::new() }
    }
    /// When a packet's share of its laxity is used up; those without deadline come last.
    fn due(now: Time, packet: &Packet) -> Time {
        match packet.deadline {
            Time::START => Time::MAX,
            deadline => {
                let laxity = deadline.saturating_since(now) / u64::from(packet.hops.max(1));
                // Packets that are already late are ordered by how late they are.
                if laxity.is_zero() { deadline.min(now) } else { now + laxity }
            }
        }
    }
}

impl Queue for HopLaxity {
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        if !self.agenda.fits(packet.len) {
            return Err(packet);
        }
        self.agenda.push(HopLaxity::due(now, &packet), packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        while let Some((_, mut packet)) = self.agenda.pop() {
            let late = packet.deadline != Time::START && packet.deadline < now;
            if late && self.late == Late::Drop {
                self.victims.push_back((packet, "late"));
                continue;
            }
            packet.hops = packet.hops.saturating_sub(1);
            return Some(packet);
        }
        None
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        (self.agenda.packets() > 0).then_some(now)
    }
    fn packets(&self) -> u64 {
        self.agenda.packets()
    }
    fn bytes(&self) -> Bytes {
        self.agenda.bytes
    }
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        self.victims.pop_front()
    }
}

impl Described for HopLaxity {
    const PAGE: &'static Page = &Page {
        name: "hop-laxity",
        family: Family::Queue,
        what: "Hop-Laxity: the least time to the deadline per remaining hop goes first.",
        ports: "in --> [ by now + (deadline - now) / hops ] --> out, hops -= 1",
        params: &[
            Param::or("late", ParamKind::Choice(&["drop", "send"]), "drop")
                .is("what happens to packets past their deadlines"),
            PACKETS,
            BYTES,
        ],
        source: "Schulzrinne, Kurose & Towsley, INFOCOM 1994",
        deviations: &["A hop's share is computed at arrival, not again at each departure."],
        drops: &[FULL, ("late", "packets whose deadline passed while they waited")],
        example: one_queue!("hop-laxity = { packets = 50 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> HopLaxity {
        let late = match values.get::<String>("late").as_str() {
            "send" => Late::Send,
            _ => Late::Drop,
        };
        HopLaxity::new(late, Room::from_values(values, site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, drain, packet, victims};
    use lastmeter_base::Duration;
    use proptest::prelude::*;

    fn at(us: u64) -> Time {
        Time::START + Duration::from_us(us)
    }
    fn due(flow: u32, us: u64, hops: u8) -> Packet {
        let mut packet = packet(flow, 100);
        (packet.deadline, packet.hops) = (at(us), hops);
        packet
    }

    #[test]
    fn the_least_laxity_per_hop_goes_first_and_best_effort_last() {
        let mut queue = HopLaxity::new(Late::Send, Room::UNLIMITED);
        // 12, 10 and 20 us for this hop, and no deadline.
        for packet in [packet(0, 100), due(1, 12, 1), due(2, 40, 4), due(3, 60, 3)] {
            queue.enqueue(at(0), packet).unwrap();
        }
        let order: Vec<(u32, u8)> =
            drain(&mut queue, at(1)).iter().map(|packet| (packet.flow.0, packet.hops)).collect();
        assert_eq!(order, [(2, 3), (1, 0), (3, 2), (0, 0)]);
    }

    #[test]
    fn late_packets_are_dropped_or_sent_as_configured() {
        for (late, sent, dropped) in [(Late::Drop, 1, 1), (Late::Send, 2, 0)] {
            let mut queue = HopLaxity::new(late, Room::UNLIMITED);
            queue.enqueue(at(0), due(0, 5, 1)).unwrap();
            queue.enqueue(at(0), due(1, 50, 1)).unwrap();
            assert_eq!(drain(&mut queue, at(10)).len(), sent);
            assert_eq!(victims(&mut queue).len(), dropped);
        }
    }

    proptest! {
        /// At every departure, no packet that arrived at the same time has less laxity per hop.
        #[test]
        fn of_packets_that_arrived_together_the_most_urgent_leaves_first(
            kinds in prop::collection::vec((1u64..500, 1u8..9), 1..40),
        ) {
            let mut queue = HopLaxity::new(Late::Send, Room::UNLIMITED);
            for &(us, hops) in &kinds {
                queue.enqueue(at(0), due(0, us, hops)).unwrap();
            }
            let ratio = |packet: &Packet| {
                let hops = u64::from(packet.hops) + 1;
                packet.deadline.since_start().as_ps() / hops
            };
            let ratios: Vec<u64> = drain(&mut queue, at(0)).iter().map(ratio).collect();
            prop_assert!(ratios.is_sorted(), "{ratios:?}");
        }
    }

    #[test]
    fn accounts_for_every_packet() {
        let options = check::Options { work_conserving: false, ..check::USUAL };
        check::holds(HopLaxity::new(Late::Drop, Room::packets(30)), &options);
        check::holds(HopLaxity::new(Late::Send, Room::UNLIMITED), &check::USUAL);
    }
}
