//! Both ends of channels in a graph: the sender, which polices its messages by the contract, and the
//! receiver, which reassembles them (E-15, E-17, E-21, E-26).
//!
//! ```text
//! [ messages -> police -> packets ] out 0 --> links --> in 0 [ reassembly -> in time? ]
//! ```
//!
//! Between them the links keep the guarantees: a packet carries its message's end-to-end deadline, and each
//! link knows how long before that the packet arrives there and is due (`lastmeter_net::queue::Promise`).

use super::contract::Contract;
use super::policing::{Excess, Police, Verdict};
use super::reassembly::{Accepted, Part, Reassembly};
use lastmeter_base::{Bytes, Duration, Ecn, FlowId, NodeId, Packet, PathId, Time, content_tag};
use lastmeter_engine::{Context, Element, PortId, Report, TimerId};
use std::collections::{BTreeMap, VecDeque};

/// Messages of a channel that a receiver keeps open.
const OPEN_MAX: usize = 16;

/// A sender's traffic, and how it keeps to its contract.
#[derive(Clone, Debug)]
pub struct Options {
    /// The contract.
    pub contract: Contract,
    /// Packets that may wait at the first link.
    pub slots: u64,
    /// The latest departure from it after a packet's logical arrival.
    pub leaves: Duration,
    /// What happens to excess messages.
    pub excess: Excess,
    /// From one message to the next.
    pub gap: Duration,
    /// Whether they come in bursts.
    pub bursty: bool,
    /// Whether they wait for their logical arrival.
    pub shaped: bool,
    /// When the first comes.
    pub start: Time,
    /// Whether the first comes after a random fraction of the interval.
    pub random_phase: bool,
    /// No message after this.
    pub stop: Time,
    /// No more messages than this.
    pub messages: u64,
}

/// Labels of its packets.
#[derive(Clone, Copy, Debug)]
pub struct Labels {
    /// The path of the ledger.
    pub path: PathId,
    /// The flow within it.
    pub flow: FlowId,
    /// Where they go.
    pub destination: NodeId,
    /// Class of service.
    pub class: u8,
    /// Number of hops to their destination.
    pub hops: u8,
}

const MADE: TimerId = TimerId(0);
const DUE: TimerId = TimerId(1);

/// A message that may enter: its logical arrival, its length, and how many of its packets have a slot.
#[derive(Clone, Copy, Debug)]
struct Entered {
    logical: Time,
    len: Bytes,
    packets: u64,
}

/// The sending end of a channel.
pub struct Sender {
    options: Options,
    labels: Labels,
    police: Police,
    next: Time,
    made: u64,
    sent: u64,
    seq: u64,
    refused: u64,
    /// Messages that wait for slots.
    waiting: VecDeque<Bytes>,
    /// Messages that wait for their logical arrival.
    early: VecDeque<Entered>,
    /// When slots are freed, and how many.
    taken: VecDeque<(Time, u64)>,
}

impl Sender {
    /// A sender that has not sent yet.
    pub fn new(options: Options, labels: Labels) -> Sender {
        let police = Police::new(options.contract.interval_min, options.slots, options.excess);
        Sender {
            options,
            labels,
            police,
            next: Time::START,
            made: 0,
            sent: 0,
            seq: 0,
            refused: 0,
            waiting: VecDeque::new(),
            early: VecDeque::new(),
            taken: VecDeque::new(),
        }
    }

    /// Admits waiting messages, sends what may go, and arms the timer.
    fn work(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        while let Some((_, packets)) = self.taken.pop_front_if(|taken| taken.0 <= now) {
            (0..packets).for_each(|_| self.police.left());
        }
        while let Some(&len) = self.waiting.front() {
            let count = self.options.contract.cut(len).count() as u64;
            let entered = match self.police.message(now, count) {
                Verdict::Wait => break,
                Verdict::Drop => Entered { logical: now, len, packets: 0 },
                Verdict::Enter { logical, packets } => Entered { logical, len, packets },
            };
            self.waiting.pop_front();
            if entered.packets > 0 {
                let free = entered.logical + self.options.leaves;
                self.taken.push_back((free, entered.packets));
            }
            match self.options.shaped && entered.logical > now {
                true => self.early.push_back(entered),
                false => self.send(cx, entered),
            }
        }
        while let Some(entered) = self.early.pop_front_if(|early| early.logical <= now) {
            self.send(cx, entered);
        }
        let free = self.taken.front().filter(|_| !self.waiting.is_empty()).map(|taken| taken.0);
        let early = self.early.front().map(|early| early.logical);
        if let Some(at) = free.into_iter().chain(early).min() {
            cx.arm(DUE, at);
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, entered: Entered) {
        let Entered { logical, len, packets } = entered;
        let contract = self.options.contract;
        let count = contract.cut(len).count() as u32;
        for (index, len) in contract.cut(len).enumerate() {
            let mut packet = cx.make(self.labels.path, len);
            let index = index as u32;
            packet.flow = self.labels.flow;
            packet.destination = self.labels.destination;
            packet.class = self.labels.class;
            packet.hops = self.labels.hops;
            packet.ecn = Ecn::NotCapable;
            packet.deadline = logical + contract.deadline;
            packet.seq = self.seq;
            packet.tag = content_tag(self.labels.path.0, self.labels.flow.0, self.seq);
            packet.ends = index + 1 == count;
            if u64::from(index) < packets {
                Part { message: self.sent, index, count }.write(&mut packet);
                self.seq += 1;
                cx.send(PortId(0), packet);
            } else {
                self.refused += 1;
                cx.drop(packet, None, "beyond contract");
            }
        }
        self.sent += u64::from(packets > 0);
    }
}

impl Element for Sender {
    fn start(&mut self, cx: &mut Context<'_>) {
        self.next = self.options.start;
        if self.options.random_phase {
            let interval = self.options.contract.interval_min.as_ps();
            self.next += Duration::from_ps(cx.rng().below(interval.max(1)));
        }
        if self.next < self.options.stop && self.options.messages > 0 {
            cx.arm(MADE, self.next);
        }
    }

    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        cx.drop(packet, None, "nobody receives here");
    }

    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        if timer == MADE {
            let burst = match self.options.bursty {
                true => 1 + cx.rng().below(self.options.contract.burst_max),
                false => 1,
            };
            let burst = burst.min(self.options.messages - self.made);
            for _ in 0..burst {
                self.made += 1;
                cx.note_message(self.labels.path);
                self.waiting.push_back(self.options.contract.message_max);
            }
            self.next += self.options.gap * burst;
            if self.made < self.options.messages && self.next < self.options.stop {
                cx.arm(MADE, self.next);
            }
        }
        self.work(cx);
    }

    fn timers(&self) -> u32 {
        2
    }

    fn report(&self, out: &mut Report) {
        out.count("made", self.made);
        out.count("refused", self.refused);
    }
}

/// The receiving ends of channels at a host.
#[derive(Default)]
pub struct Receiver {
    channels: BTreeMap<(PathId, FlowId), (Reassembly, u64)>,
    messages: u64,
    late: u64,
}

impl Receiver {
    /// Takes one more channel.
    pub fn add(&mut self, path: PathId, flow: FlowId) {
        self.channels.insert((path, flow), (Reassembly::new(OPEN_MAX), 0));
    }
}

impl Element for Receiver {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        let (path, flow) = (packet.path, packet.flow);
        if packet.tag != content_tag(path.0, flow.0, packet.seq) {
            cx.note_corrupted(path);
        }
        let known = self.channels.get_mut(&(path, flow)).zip(Part::read(&packet));
        if let Some(((reassembly, next), part)) = known {
            if packet.seq + 1 < *next {
                cx.note_reordered(path);
            }
            *next = (*next).max(packet.seq + 1);
            if let Accepted::Message(_) = reassembly.accept(part, packet.len) {
                let in_time = cx.now() <= packet.deadline;
                self.messages += 1;
                self.late += u64::from(!in_time);
                cx.note_arrival(path, in_time);
            }
        }
        cx.deliver(packet);
    }

    fn timers(&self) -> u32 {
        0
    }

    fn report(&self, out: &mut Report) {
        let channels = || self.channels.values().map(|channel| &channel.0);
        let open: u64 = channels().map(|channel| channel.open() as u64).sum();
        let given_up: u64 = channels().map(Reassembly::given_up).sum();
        out.count("messages", self.messages);
        out.count("late", self.late);
        out.count("incomplete", open + given_up);
    }
}
