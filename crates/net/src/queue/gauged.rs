//! Gauged: a queue that shows elsewhere how much waits in it.
//!
//! ```text
//! in --> [ a queue ] --> out
//!             '--> bytes that wait
//! ```

use super::Queue;
use lastmeter_base::{Bytes, Packet, Time};
use lastmeter_engine::site::Gauge;

/// A queue whose length a plugin in front of it can read.
pub struct Gauged {
    queue: Box<dyn Queue>,
    gauge: Gauge,
}

impl Gauged {
    /// Shows the length of `queue` on `gauge`.
    pub fn new(queue: Box<dyn Queue>, gauge: Gauge) -> Gauged {
        Gauged { queue, gauge }
    }
}

impl Queue for Gauged {
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        let enqueued = self.queue.enqueue(now, packet);
        self.gauge.set(self.queue.bytes());
        enqueued
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        let packet = self.queue.dequeue(now);
        self.gauge.set(self.queue.bytes());
        packet
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        self.queue.ready_at(now)
    }
    fn packets(&self) -> u64 {
        self.queue.packets()
    }
    fn bytes(&self) -> Bytes {
        self.queue.bytes()
    }
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        self.queue.dropped()
    }
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        self.queue.counts(count);
    }
}
