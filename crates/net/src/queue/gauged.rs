//! Gauged: a queue that publishes its backlog, and what it grants.
//!
//! ```text
//! in --> [ a queue ] --> out
//!             '--> bytes of a flow that wait, its share
//! ```

use super::Queue;
use lastmeter_base::{Bytes, Packet, Time};
use lastmeter_engine::site::{Gauge, Granted};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A queue whose state a plugin in front of it can read.
pub struct Gauged(Arc<Mutex<Box<dyn Queue>>>);

impl Gauged {
    /// Shows the state of `queue` on `gauge`.
    pub fn new(queue: Box<dyn Queue>, gauge: &Gauge) -> Gauged {
        let queue = Arc::new(Mutex::new(queue));
        let seen = Arc::clone(&queue);
        gauge.connect(move |packet| own(&seen).granted(packet));
        Gauged(queue)
    }
}

/// Queue and reader are in one thread: neither waits for the other.
fn own(queue: &Mutex<Box<dyn Queue>>) -> MutexGuard<'_, Box<dyn Queue>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue for Gauged {
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet> {
        own(&self.0).enqueue(now, packet)
    }
    fn dequeue(&mut self, now: Time) -> Option<Packet> {
        own(&self.0).dequeue(now)
    }
    fn ready_at(&self, now: Time) -> Option<Time> {
        own(&self.0).ready_at(now)
    }
    fn packets(&self) -> u64 {
        own(&self.0).packets()
    }
    fn bytes(&self) -> Bytes {
        own(&self.0).bytes()
    }
    fn granted(&self, packet: &Packet) -> Granted {
        own(&self.0).granted(packet)
    }
    fn dropped(&mut self) -> Option<(Packet, &'static str)> {
        own(&self.0).dropped()
    }
    fn counts(&self, count: &mut dyn FnMut(&'static str, u64)) {
        own(&self.0).counts(count);
    }
}
