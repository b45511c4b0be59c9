//! Queue disciplines: what is kept, and what goes next.

mod drop_tail;
mod token_bucket;

pub use drop_tail::DropTail;
pub use token_bucket::TokenBucket;

use lastmeter_base::{Bytes, Packet, Time};

/// A passive store that decides which packets to keep and which goes next.
///
/// It takes `now` as an argument and owns no timer; the element that serves it does.
pub trait Queue: Send {
    /// Stores the packet, or gives it back: the caller counts and traces the drop.
    ///
    /// # Errors
    /// The packet, where there is no room for it.
    fn enqueue(&mut self, now: Time, packet: Packet) -> Result<(), Packet>;
    /// The next packet, if one may go now.
    fn dequeue(&mut self, now: Time) -> Option<Packet>;
    /// When `dequeue` could next succeed. `None`: not before another `enqueue`.
    fn ready_at(&self, now: Time) -> Option<Time>;
    /// How many packets it holds.
    fn packets(&self) -> u64;
    /// How many bytes they have.
    fn bytes(&self) -> Bytes;
}
