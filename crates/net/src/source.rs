//! Sources that do not respond to the network: at a constant rate, at random, in bursts, or as recorded in
//! a capture.
//!
//! ```text
//! (gaps, sizes) --> out 0
//! ```
//!
//! Each deadline is relative to the last deadline, not to now: no drift on a wall clock.

use lastmeter_base::{
    Bytes, Draw, Duration, Ecn, FlowId, NodeId, Packet, PathId, Stream, Time, content_tag,
};
use lastmeter_engine::site::Records;
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};

/// The labels of a source's packets.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The path that they are accounted to.
    pub path: PathId,
    /// The flow within the path.
    pub flow: FlowId,
    /// Where they go.
    pub destination: NodeId,
    /// What queues on the way read.
    pub header: Header,
}

/// The fields of a flow's packets that queues read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Class of service.
    pub class: u8,
    /// Congestion notification.
    pub ecn: Ecn,
    /// Time from creation until a packet is due; `None` for best effort.
    pub deadline: Option<Duration>,
    /// Number of hops; 0 if that is not known.
    pub hops: u8,
    /// Number of packets that are the cells of one PDU, which the last one ends; at least 1.
    pub cells: u64,
}

impl Header {
    /// Class 0, not ECN-capable, no deadline, each packet whole.
    pub const PLAIN: Header =
        Header { class: 0, ecn: Ecn::NotCapable, deadline: None, hops: 0, cells: 1 };

    #[inline]
    fn write(&self, now: Time, packet: &mut Packet) {
        packet.class = self.class;
        packet.ecn = self.ecn;
        packet.hops = self.hops;
        packet.deadline = self.deadline.map_or(Time::START, |after| now + after);
        // Most PDUs are one packet, and a division costs more than all the rest.
        packet.ends = self.cells <= 1 || (packet.seq + 1).is_multiple_of(self.cells);
    }
}

impl Flow {
    /// Makes packet `seq` of this flow.
    #[inline]
    pub(crate) fn packet(&self, cx: &mut Context<'_>, seq: u64, len: Bytes) -> Packet {
        let mut packet = cx.make(self.path, len);
        packet.flow = self.flow;
        packet.destination = self.destination;
        packet.seq = seq;
        packet.tag = content_tag(self.path.0, self.flow.0, seq);
        self.header.write(cx.now(), &mut packet);
        packet
    }
}

/// When the next packet comes, and how long it is.
pub enum Pattern {
    /// Gaps drawn independently: constant rate, Poisson, or any other. Poisson packets begin with a gap,
    /// whatever the phase.
    Gaps {
        /// From one packet to the next.
        gap: Draw,
        /// Their lengths.
        sizes: Sizes,
    },
    /// Bursts at a constant rate, with silence in between. A gap cut off by the end of a burst continues in
    /// the next one. So a mean burst of `n` gaps has `n` packets, and a burst shorter than a gap may have
    /// none.
    OnOff {
        /// Length of a burst.
        on: Draw,
        /// Length of a silence.
        off: Draw,
        /// From one packet of a burst to the next.
        gap: Duration,
        /// Their lengths.
        sizes: Sizes,
    },
    /// Times since the start, and lengths, from a capture; ends where it ends.
    Replay(Box<dyn Iterator<Item = (Duration, Bytes)> + Send>),
    /// The same with the bytes of each packet.
    Recorded(Records),
}

/// Packet lengths.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All the same.
    Constant(Bytes),
    /// Drawn from a list, each with its share of the total weight.
    Mix(Vec<(Bytes, u64)>),
}

impl Sizes {
    /// One length.
    #[inline]
    pub fn sample(&self, stream: &mut Stream) -> Bytes {
        match self {
            Sizes::Constant(len) => *len,
            Sizes::Mix(mix) => {
                let total = mix.iter().map(|&(_, weight)| weight).sum();
                let mut left = stream.below(total);
                for &(len, weight) in mix {
                    match left.checked_sub(weight) {
                        Some(rest) => left = rest,
                        None => return len,
                    }
                }
                unreachable!("a draw lies below the total weight")
            }
        }
    }
    /// The mean length in bytes.
    pub fn mean(&self) -> f64 {
        match self {
            Sizes::Constant(len) => len.0 as f64,
            Sizes::Mix(mix) => {
                let total: u64 = mix.iter().map(|&(_, weight)| weight).sum();
                let sum: u64 = mix.iter().map(|&(len, weight)| len.0 * weight).sum();
                sum as f64 / total as f64
            }
        }
    }
}

/// Sends one flow.
pub struct Source {
    flow: Flow,
    pattern: Pattern,
    /// When the next packet is due; `None` when there will be no more.
    next: Option<Time>,
    /// The length that a capture gives the next packet.
    next_len: Bytes,
    /// The bytes that it gives it.
    next_bytes: Vec<u8>,
    /// When the present burst ends.
    burst_end: Time,
    start: Time,
    /// A first gap drawn anew, so that many sources are not in phase.
    random_phase: bool,
    stop: Time,
    limit: u64,
    sent: u64,
}

/// When a source starts and stops.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Not before this.
    pub start: Time,
    /// Whether the first packet comes after a random part of the first gap.
    pub random_phase: bool,
    /// Not after this.
    pub stop: Time,
    /// No more packets than this.
    pub packets: u64,
}

impl Span {
    /// From the start, without end.
    pub const ALWAYS: Span =
        Span { start: Time::START, random_phase: false, stop: Time::MAX, packets: u64::MAX };
}

const NEXT: TimerId = TimerId(0);
/// Limit on bursts in a row without a packet; with shorter bursts, the rate is not kept.
const SILENT_BURSTS_MAX: u32 = 100_000;

impl Source {
    /// A source that has not sent yet.
    pub fn new(flow: Flow, pattern: Pattern, span: Span) -> Source {
        Source {
            flow,
            pattern,
            next: None,
            next_len: Bytes::ZERO,
            next_bytes: Vec::new(),
            burst_end: Time::START,
            start: span.start,
            random_phase: span.random_phase,
            stop: span.stop,
            limit: span.packets,
            sent: 0,
        }
    }

    /// When the packet after the one due at `last` is due; notes its length if a capture has it.
    #[inline]
    fn following(&mut self, last: Time, stream: &mut Stream) -> Option<Time> {
        match &mut self.pattern {
            Pattern::Gaps { gap, .. } => Some(last + gap.sample(stream)),
            Pattern::OnOff { on, off, gap, .. } => {
                let (mut begin, mut left) = (last, *gap);
                for _ in 0..SILENT_BURSTS_MAX {
                    let burst = self.burst_end.saturating_since(begin);
                    if left < burst {
                        break;
                    }
                    left = left - burst;
                    begin = self.burst_end + off.sample(stream);
                    self.burst_end = begin + on.sample(stream);
                }
                Some(begin + left)
            }
            Pattern::Replay(records) => {
                let (since_start, len) = records.next()?;
                self.next_len = len;
                Some(last.max(self.start + since_start))
            }
            Pattern::Recorded(records) => {
                let (since_start, len, bytes) = records.next()?;
                (self.next_len, self.next_bytes) = (len, bytes);
                Some(last.max(self.start + since_start))
            }
        }
    }

    #[inline]
    fn len(&self, stream: &mut Stream) -> Bytes {
        match &self.pattern {
            Pattern::Gaps { sizes, .. } | Pattern::OnOff { sizes, .. } => sizes.sample(stream),
            Pattern::Replay(_) | Pattern::Recorded(_) => self.next_len,
        }
    }

    fn first(&mut self, stream: &mut Stream) -> Option<Time> {
        match &self.pattern {
            Pattern::Replay(_) | Pattern::Recorded(_) => self.following(self.start, stream),
            Pattern::Gaps { gap: Draw::Constant(gap), .. } => Some(match self.random_phase {
                true => self.start + Duration::from_ps(stream.below(gap.as_ps().max(1))),
                false => self.start,
            }),
            // Gaps are memoryless: a packet at the start, or after part of a gap, would be one more than
            // the rate allows.
            Pattern::Gaps { gap, .. } => Some(self.start + gap.sample(stream)),
            Pattern::OnOff { on, off, .. } => {
                let wait = if self.random_phase { off.sample(stream) } else { Duration::ZERO };
                let start = self.start + wait;
                self.burst_end = start + on.sample(stream);
                Some(start)
            }
        }
    }

    fn arm(&self, cx: &mut Context<'_>) {
        if let Some(next) = self.next.filter(|&next| next <= self.stop && self.sent < self.limit) {
            cx.arm(NEXT, next);
        }
    }
}

impl Element for Source {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.next = self.first(cx.rng());
        self.arm(cx);
    }
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        cx.drop(packet, None, "sent to a source");
    }
    #[inline]
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        while let Some(due) = self.next.filter(|&due| due <= cx.now()) {
            if self.sent >= self.limit || due > self.stop {
                return;
            }
            let len = self.len(cx.rng());
            let mut packet = self.flow.packet(cx, self.sent, len);
            self.sent += 1;
            if !self.next_bytes.is_empty() {
                packet.content.append(&mut self.next_bytes);
            }
            cx.send(PortId(0), packet);
            self.next = self.following(due, cx.rng());
        }
        self.arm(cx);
    }
    fn report(&self, out: &mut Report) {
        out.count("sent", self.sent);
    }
}
