//! What the model says of an adapter, to be put beside what a guest sees.

use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_host::adapter::description::Description;
use lastmeter_host::adapter::moderation::Moderation;
use lastmeter_host::adapter::pipeline;
use lastmeter_host::adapter::receiver::Receiver;
use lastmeter_host::adapter::transmitter::{Order, Transmitter, Variation, What};

/// A ping of 56 bytes, with its headers.
pub const PING: Bytes = Bytes(98);
/// The longest frame of an Ethernet.
pub const LONGEST: Bytes = Bytes(1514);
/// Messages that a rate is the mean of.
const MESSAGES: usize = 400;
/// Most messages in flight for that.
const DEPTH_MAX: u64 = 64;

/// What frames of one length take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// From the doorbell until the frame has left, on an idle adapter.
    pub out: Duration,
    /// From the other end's first bit until the interrupt, on an idle adapter.
    pub into: Duration,
    /// Frames a second that leave, back to back.
    pub rate: f64,
    /// Frames a second that reach the host's memory, back to back on the network.
    pub into_rate: f64,
}

/// What the model says of frames of `len`; `None` if the adapter has no room for them, or its network never comes.
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate};
/// use lastmeter_guest::predict::predict;
/// use lastmeter_host::adapter::description::Description;
/// let mut card = Description::plain("10 us a message, 8 Mbit/s, an interrupt after 50 us");
/// card.host.per_message = Duration::from_us(10);
/// card.host.coalescing = 64;
/// card.host.coalescing_time = Duration::from_us(50);
/// card.network.rate = Some(Rate::from_bits(8_000_000));
/// card.queueing.depth = 4;
/// let predicted = predict(&card, Bytes(100)).unwrap();
/// assert_eq!((predicted.out, predicted.into), (Duration::from_us(110), Duration::from_us(160)));
/// assert!((predicted.rate - 10_000.0).abs() < 0.1, "the network limits: {}", predicted.rate);
/// assert!((predicted.into_rate - 10_000.0).abs() < 0.1, "both ways: {}", predicted.into_rate);
/// ```
pub fn predict(card: &Description, len: Bytes) -> Option<Predicted> {
    if len > card.buffers.memory {
        return None;
    }
    let mut sender = Transmitter::new(card.clone());
    sender.submit(Time::START, Order::new(0, len)).ok()?;
    let mut left = None;
    while let Some(now) = sender.ready_at() {
        sender.advance(now);
        left = left.or(sender.events().find(|event| event.what == What::TransmitAck));
    }
    let mut receiver = Receiver::new(card.clone());
    let arrival = Time::START + card.wire_time(len);
    if !receiver.arrive(arrival, len) {
        return None;
    }
    let mut done = None;
    while let Some(now) = receiver.ready_at() {
        receiver.advance(now);
        if receiver.announced().is_some() {
            receiver.place(now, &[len]);
        }
        done = done.or(receiver.received().next());
    }
    let done = done?.transfer.to;
    let mut moderation = Moderation::new(card);
    moderation.done(done, false);
    let raised = moderation.ready_at().unwrap_or(done);
    let depth = card.queueing.depth.min(DEPTH_MAX);
    let mean = pipeline::run(card, len, (depth, MESSAGES), Variation::None, 0).mean;
    Some(Predicted {
        out: left?.at - Time::START,
        into: raised - Time::START,
        rate: 1.0 / mean.as_secs_f64().max(1e-12),
        into_rate: into_rate(card, len),
    })
}

/// Frames a second that an adapter takes into the host's memory; what finds no room on it is lost.
fn into_rate(card: &Description, len: Bytes) -> f64 {
    let mut receiver = Receiver::new(card.clone());
    let gap = card.wire_time(len);
    let mut arrival = Time::START + gap;
    let mut ends = Vec::new();
    while ends.len() < MESSAGES {
        match receiver.ready_at() {
            Some(now) if now <= arrival => {
                receiver.advance(now);
                if receiver.announced().is_some() {
                    receiver.place(now, &[len]);
                }
                ends.extend(receiver.received().map(|frame| frame.transfer.to));
            }
            ready => {
                let room = receiver.arrive(arrival, len);
                arrival += gap;
                // Without a wire to wait for, the next comes when there may be room.
                if let (false, Some(ready)) = (room, ready) {
                    arrival = arrival.max(ready);
                }
            }
        }
    }
    let (first, last) = (ends[0], ends[ends.len() - 1]);
    (ends.len() - 1) as f64 / (last - first).as_secs_f64().max(1e-12)
}

/// In words.
pub fn words(card: &Description) -> Option<String> {
    let (ping, long) = (predict(card, PING)?, predict(card, LONGEST)?);
    Some(format!(
        "The model: a ping spends {} on the adapter and its network on its way out and {} on its \
         way in, and frames of {LONGEST} leave at {:.1} Mbit/s at most.",
        ping.out,
        ping.into,
        long.rate * LONGEST.0 as f64 * 8e-6,
    ))
}
