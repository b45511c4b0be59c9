//! Counters of a port processor: every received packet was sent, has a drop reason, or is held.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! reasons {
    ($($name:ident $text:literal $what:literal,)*) => {
        /// Why a packet was not sent.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $what] $name,)*
        }
        impl Reason {
            /// All of them.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];
            /// Its name in counters and logs.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$name => $text),* }
            }
            /// What it means.
            pub fn what(self) -> &'static str {
                match self { $(Reason::$name => $what),* }
            }
        }
    };
}

reasons!(
    NotIp "not-ip" "neither IPv4 nor IPv6",
    Truncated "truncated" "shorter than its header says",
    Version "version" "a version of IP that does not fit its frame",
    Length "length" "an impossible length",
    Checksum "checksum" "an IPv4 header with a wrong checksum",
    Martian "martian" "an address that cannot be a source or a destination",
    SourceRoute "source-route" "a route of the source's choice, which is refused",
    Expired "expired" "its hops were used up",
    NoRoute "no-route" "no prefix matches its destination",
    Unreachable "unreachable" "a route says that it cannot be reached",
    Blackhole "blackhole" "a route says that it is dropped",
    NoNeighbour "no-neighbour" "the next router did not say its Ethernet address in time",
    TooBig "too-big" "longer than the next link's MTU, and must not be cut",
    Filtered "filtered" "a filter denies it",
    Plugin "plugin" "a plugin denies it",
    NoFrame "no-frame" "no frame was free for an answer or a copy of it",
    QueueFull "queue-full" "its queue was full",
    QueueDrop "queue-drop" "the queue discipline dropped it to make room or to signal congestion",
    LinkDown "link-down" "the interface it should leave by is down",
    InputFull "input-full" "as much as may waits at its input for its output",
    Ended "ended" "the port processor that had it has ended",
    Label "label" "a label that nobody was told, or not at this port",
    Signal "signal" "a message of RSVP for this router, which its control processor has",
    SignalLost "signal-lost" "a message of RSVP beyond those that the control processor takes",
);

/// How many reasons there are.
pub const REASONS: usize = Reason::ALL.len();

/// The counters of a port, written by one thread and read by any.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets received from the interface.
    pub received: AtomicU64,
    /// Bytes of their frames.
    pub received_bytes: AtomicU64,
    /// Packets passed to the interface.
    pub sent: AtomicU64,
    /// Bytes of their frames.
    pub sent_bytes: AtomicU64,
    /// Received packets whose hint was true: neither rules nor tables were asked.
    pub hinted: AtomicU64,
    /// ICMP messages, fragments and copies that the router made because of packets that arrived here.
    pub made: AtomicU64,
    /// Packets waiting to leave through this port.
    pub held: AtomicU64,
    /// Packets that arrived here and were not sent, by reason.
    pub dropped: [AtomicU64; REASONS],
    /// Frames lost before reception, because the port processor was busy.
    pub overrun: AtomicU64,
}

impl Counters {
    /// Adds to a counter; only its own thread writes.
    #[inline]
    pub fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Relaxed) + more, Relaxed);
    }
    /// One more for a reason.
    #[inline]
    pub fn drop(&self, reason: Reason) {
        Counters::add(&self.dropped[reason as usize], 1);
    }
    /// Packets not sent, of all reasons.
    pub fn dropped_sum(&self) -> u64 {
        self.dropped.iter().map(|count| count.load(Relaxed)).sum()
    }
    /// Each counter that is not zero.
    pub fn each(&self) -> Vec<(String, u64)> {
        let plain = [
            ("received", &self.received),
            ("received-bytes", &self.received_bytes),
            ("hinted", &self.hinted),
            ("sent", &self.sent),
            ("sent-bytes", &self.sent_bytes),
            ("made", &self.made),
            ("held", &self.held),
            ("overrun", &self.overrun),
        ];
        let plain = plain.into_iter().map(|(name, count)| (name.to_owned(), count.load(Relaxed)));
        let reasons = Reason::ALL.iter().zip(&self.dropped);
        let reasons = reasons
            .map(|(reason, count)| (format!("dropped/{}", reason.name()), count.load(Relaxed)));
        plain.chain(reasons).filter(|(_, count)| *count > 0).collect()
    }
}

/// Stages of a packet in a port processor, in order.
pub const STAGES: [&str; 8] =
    ["receive", "parse", "classify", "plugins", "lookup", "forward", "send", "cross"];

/// Time that a sample of batches spent in each stage.
#[derive(Debug, Default)]
pub struct Stages {
    /// Nanoseconds, by stage.
    pub spent: [AtomicU64; STAGES.len()],
    /// Packets in the batches that were timed.
    pub packets: AtomicU64,
    /// Nanoseconds between arrival in a batch and the hand-over to the interface, of all sampled packets: in queues.
    pub queued: AtomicU64,
}
