//! Drop-tail: first in, first out; packets that do not fit are refused.
//!
//! ```text
//! in --> [ newest | ... | oldest ] --> out          refused if it would exceed either limit
//! ```
//!
//! Rows: D-76.

use super::{Described, FULL, Queue, Site};
use crate::fifo::FifoServer;
use crate::server::{Server, Service};
use lastmeter_base::here;
use lastmeter_base::kind::{Family, Page, Param, ParamKind, Values};
use lastmeter_base::{Bytes, Packet, StageId, Time};
use lastmeter_engine::{Element, ResourceId};
use std::collections::VecDeque;

/// A first-in, first-out queue with two limits.
///
/// ```
/// use lastmeter_base::{Bytes, Packet, Time};
/// use lastmeter_net::queue::{DropTail, Queue};
/// let mut queue = DropTail::new(u64::MAX, Bytes(2000));
/// assert!(queue.enqueue(Time::START, Packet::new(Bytes(1500))).is_ok());
/// assert!(queue.enqueue(Time::START, Packet::new(Bytes(1500))).is_err());
/// ```
#[derive(Debug)]
pub struct DropTail {
    packets: VecDeque<Packet>,
    held: Bytes,
    packets_max: u64,
    bytes_max: Bytes,
}

impl DropTail {
    /// A queue of at most `packets_max` packets and `bytes_max` bytes.
    pub fn new(packets_max: u64, bytes_max: Bytes) -> DropTail {
        DropTail { packets: VecDeque::new(), held: Bytes::ZERO, packets_max, bytes_max }
    }
}

impl Queue for DropTail {
    #[inline]
    fn enqueue(&mut self, _now: Time, packet: Packet) -> Result<(), Packet> {
        let held = self.held + packet.len;
        if self.packets.len() as u64 >= self.packets_max || held > self.bytes_max {
            return Err(packet);
        }
        self.held = held;
        self.packets.push_back(packet);
        Ok(())
    }
    #[inline]
    fn dequeue(&mut self, _now: Time) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.held -= packet.len;
        Some(packet)
    }
    #[inline]
    fn ready_at(&self, now: Time) -> Option<Time> {
        (!self.packets.is_empty()).then_some(now)
    }
    fn packets(&self) -> u64 {
        self.packets.len() as u64
    }
    fn bytes(&self) -> Bytes {
        self.held
    }
}

impl Described for DropTail {
    const PAGE: &'static Page = &Page {
        name: "drop-tail",
        family: Family::Queue,
        what: "First in, first out; a packet that would exceed either limit is dropped.",
        ports: "in --> [ newest | ... | oldest ] --> out",
        params: &[
            Param::optional("packets", ParamKind::COUNT, "no limit").is("limit on packets held"),
            Param::optional("bytes", ParamKind::BUFFER, "no limit").is("limit on bytes held"),
        ],
        drops: &[FULL],
        example: one_queue!("drop-tail = { packets = 20 }"),
        ..Page::at(here!())
    };

    fn build(values: &Values, site: &Site<'_>) -> DropTail {
        let (packets_max, bytes_max) = limits(values, site);
        DropTail::new(packets_max, bytes_max)
    }

    fn serve(
        values: &Values,
        site: &Site<'_>,
        service: Service,
        stage: StageId,
        resource: ResourceId,
    ) -> Box<dyn Element> {
        if site.records_length {
            let server = Server::new(Self::build(values, site), service, stage, resource);
            return Box::new(server.recording_length(true));
        }
        Box::new(FifoServer::new(limits(values, site), service, stage, resource))
    }
}

fn limits(values: &Values, site: &Site<'_>) -> (u64, Bytes) {
    let packets_max = values.given::<u64>("packets").unwrap_or(u64::MAX);
    let bytes_max = values.given::<Bytes>("bytes").unwrap_or(Bytes(u64::MAX));
    (site.buffers.scale(packets_max), Bytes(site.buffers.scale(bytes_max.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(len: u64) -> Packet {
        Packet::new(Bytes(len))
    }

    #[test]
    fn refuses_a_packet_that_does_not_fit() {
        let mut queue = DropTail::new(2, Bytes(3000));
        assert!(queue.enqueue(Time::START, packet(1500)).is_ok());
        assert_eq!(queue.enqueue(Time::START, packet(1501)).unwrap_err().len, Bytes(1501));
        assert!(queue.enqueue(Time::START, packet(1500)).is_ok());
        assert!(queue.enqueue(Time::START, packet(0)).is_err());
    }

    #[test]
    fn keeps_the_order_and_counts_what_it_holds() {
        let mut queue = DropTail::new(u64::MAX, Bytes(u64::MAX));
        (1..=3).for_each(|len| queue.enqueue(Time::START, packet(len)).unwrap());
        assert_eq!((queue.packets(), queue.bytes()), (3, Bytes(6)));
        let lens: Vec<u64> =
            std::iter::from_fn(|| queue.dequeue(Time::START)).map(|packet| packet.len.0).collect();
        assert_eq!(lens, [1, 2, 3]);
        assert_eq!((queue.bytes(), queue.ready_at(Time::START)), (Bytes::ZERO, None));
    }
    #[test]
    fn accounts_for_every_packet() {
        crate::queue::check::holds(DropTail::new(20, Bytes(9_000)), &crate::queue::check::USUAL);
    }
}
