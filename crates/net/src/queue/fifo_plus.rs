//! FIFO+: first in, first out over a whole path: a packet that waited longer at earlier hops goes sooner.
//!
//! ```text
//! in --> [ by arrival - behind ] --> out, behind += wait here - mean wait of its class here
//! ```
//!
//! | Parameter | Unit    | Default  | Meaning                                                  |
//! |-----------|---------|----------|----------------------------------------------------------|
//! | `memory`  | 1       | 0.001    | weight of a packet in the mean wait of its class  (ours) |
//! | `packets` | packets | no limit | limit on packets held                                    |
//! | `bytes`   | size    | no limit | limit on bytes held                                      |
//!
//! Each packet carries in `behind` how much longer than its class's mean it has waited at the
//! hops before. A hop orders packets by when they would have arrived had each of those delayed them by its mean.
//!
//! Source: Clark, Shenker & Zhang, Supporting Real-Time Applications in an Integrated Services Packet
//! Network, SIGCOMM 1992, §6; E-04. Deviation: the paper does not say how the mean is measured; an
//! exponential one, in whole picoseconds, is ours.

use super::due::Agenda;
use super::flows::{BYTES, PACKETS, Room};
use super::red::PROBABILITY;
use super::{Described, FULL, Queue, Site};
use lastmeter_base::kind::{Family, Page, Param, Values};
use lastmeter_base::{Bytes, Packet, Time, here};

/// FIFO+.
#[derive(Debug)]
pub struct FifoPlus {
    agenda: Agenda,
    memory: f64,
    /// Mean wait of each class, in picoseconds.
    mean: Vec<f64>,
}

impl FifoPlus {
    /// Empty.
    pub fn new(memory: f64, room: Room) -> FifoPlus {
        FifoPlus { agenda: Agenda::new(room), memory, mean: vec![0.0; 256] }
    }
}

impl Queue for FifoPlus {
    fn enqueue(&mut self, now: Time, mut packet: Packet) -> Result<(), Packet> {
        if !self.agenda.fits(packet.len) {
            return Err(packet);
        }
        packet.entered = now;
        // An hour of slack keeps the key of a packet that is far behind at the start of a run positive.
        let expected = (now.as_ps().saturating_add(SLACK)).saturating_add_signed(-packet.behind);
        self.agenda.push(Time::from_ps(expected), packet);
        Ok(())
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        let (_, mut packet) = self.agenda.pop()?;
        let wait = now.saturating_since(packet.entered).as_ps();
        let mean = &mut self.mean[usize::from(packet.class)];
        packet.behind = packet.behind.saturating_add(wait as i64 - *mean as i64);
        *mean += self.memory * (wait as f64 - *mean);
        Some(packet)
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
}

/// Added to every key, in picoseconds: an hour.
const SLACK: u64 = 3_600_000_000_000_000;

impl Described for FifoPlus {
    const PAGE: &'static Page = &Page {
        name: "fifo-plus",
        family: Family::Queue,
        what: "FIFO+: in order of arrival, had each earlier hop delayed every packet by its mean.",
        ports: "in --> [ by arrival - behind ] --> out",
        params: &[
            Param::or("memory", PROBABILITY, "0.001")
                .is("weight of a packet in its class's mean wait"),
            PACKETS,
            BYTES,
        ],
        source: "Clark, Shenker & Zhang, SIGCOMM 1992, §6",
        deviations: &["The exponential mean is ours: the paper does not say how to measure it."],
        drops: &[FULL],
        example: one_queue!("fifo-plus = { packets = 50 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> FifoPlus {
        FifoPlus::new(values.get("memory"), Room::from_values(values, site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::check::{self, packet};
    use lastmeter_base::Duration;

    #[test]
    fn a_delayed_packet_goes_before_those_that_arrived_a_little_earlier() {
        let mut queue = FifoPlus::new(0.0, Room::UNLIMITED);
        let at = |us| Time::START + Duration::from_us(us);
        queue.enqueue(at(0), packet(0, 100)).unwrap();
        let mut unlucky = packet(1, 100);
        unlucky.behind = 5_000_000;
        queue.enqueue(at(3), unlucky).unwrap();
        let first = queue.dequeue(at(4)).unwrap();
        // One more microsecond of waiting than expected.
        assert_eq!((first.flow.0, first.behind), (1, 6_000_000));
        assert_eq!(queue.dequeue(at(4)).unwrap().behind, 4_000_000);
    }

    #[test]
    fn accounts_for_every_packet() {
        check::holds(FifoPlus::new(0.01, Room::packets(30)), &check::USUAL);
    }
}
