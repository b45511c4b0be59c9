//! An adapter's transmit path as a machine: any adapter that a [`Description`] can describe (E-41 to E-43, E-46,
//! E-50, E-58, E-61).
//!
//! ```text
//! order --> [[ queues ]] host interface --> [[ queues ]] transfer --> [[ queues ]] network --> sent
//!   |            write ack                   address ack                transmit ack
//!   '-- refused: depth, buffers                  |                          |
//!                                                +---- one bank of memory --+   the network goes first
//! ```
//!
//! | field of the description | effect |
//! |---|---|
//! | `queueing.depth` | limit on orders in flight; any beyond that are refused |
//! | `queueing.stages` | 3: interface, transfer and network are concurrent; 2: the last two; 1: none |
//! | `queueing.queues`, `discipline` | the queues in front of transfer and network |
//! | `queueing.at_network` | the discipline in front of the network, if it differs |
//! | `host.queues` | the queues in front of the interface, by class if there are several |
//! | `host.qos` | without it, class and due date are unknown: all orders wait in one queue |
//! | `transfer.mode` | with programmed I/O, the interface takes no other command meanwhile |
//! | `transfer.preemptible`, one bank | the network pre-empts a transfer at the memory |
//! | `transfer.urgent_first` | a more urgent transfer interrupts a less urgent one |
//! | `buffers.memory`, `place`, `overload` | an order without a buffer is dropped, waits, or displaces another |
//! | `network.model` | always available, while a [`Token`] is held, or after a random number of collisions |
//! | `network.synchronisation = poll` | the adapter does nothing else while it sends |
//!
//! A buffer is allocated when the order is submitted and freed when it has been sent. An interrupted transfer
//! resumes with the time left (Fig 5.6, message 2, case 2).
//!
//! Source: Indiresan 1997, §4.2, Figs 4.4 and 5.3, §5.1.3.2. Deviation: the host's processing time may vary
//! ([`Variation`]); the document's equations are for means.

use super::description::{
    self, BufferPlace, Description, NetworkModel, Overload, Synchronisation, TransferMode,
};
use super::engines::{Engines, Place};
use super::token::Token;
use super::waiting::{Rank, Waiting};
use crate::resource::{Discipline, Done, Job, Options, Priority, Resource};
use lastmeter_base::{Bytes, Draw, Duration, StageId, Stream, Time};
use lastmeter_engine::{Meter, ResourceId};
use std::collections::BTreeMap;

/// What the host wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its identifier, unique among those in flight.
    pub id: u64,
    /// Length of the packet.
    pub len: Bytes,
    /// Higher goes first, if there are queues for it; 0 is best effort.
    pub class: u8,
    /// Due date; [`Time::MAX`] for none.
    pub due: Time,
    /// Connection, for buffers that are separate for each.
    pub connection: u32,
}

impl Order {
    /// A best-effort packet.
    pub fn new(id: u64, len: Bytes) -> Order {
        Order { id, len, class: 0, due: Time::MAX, connection: 0 }
    }
}

/// What happens to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The adapter has taken the command.
    WriteAck,
    /// The data is on the adapter.
    AddressAck,
    /// The packet has left.
    TransmitAck,
    /// It had no buffer, or lost its buffer to a more important order.
    Dropped,
    /// It has collided too often.
    GivenUp,
}

/// A report of the adapter to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Time,
    /// Its order.
    pub order: Order,
    /// What.
    pub what: What,
    /// The times of the order's phases, by [`Phase`], as far as it got.
    pub phases: [Span; 4],
}

/// A phase of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When service began.
    pub from: Time,
    /// When service ended.
    pub to: Time,
    /// The service time in between.
    pub served: Duration,
}

/// Why an order is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The pipeline is full; there is room after the next [`What::TransmitAck`].
    Depth,
    /// No buffer is free, and the description says that the connection waits.
    Buffers,
    /// The packet is longer than all buffers together.
    TooLong,
}

/// A phase of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Processing by the host and the interface.
    Host,
    /// Transfer between host memory and adapter memory.
    Transfer,
    /// The part of the network phase that does not use the memory.
    Setup,
    /// The rest of the network phase.
    Network,
}

const PHASES: [Phase; 4] = [Phase::Host, Phase::Transfer, Phase::Setup, Phase::Network];

/// How the host's processing time varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variation {
    /// Constant.
    None,
    /// Exponentially distributed.
    Exponential,
}

/// Orders whose phases are recorded.
const DRAWN: u64 = 4;
/// Most attempts for a message on a shared cable, and most doublings of the backoff.
const ATTEMPTS_MAX: u32 = 16;
const DOUBLINGS_MAX: u32 = 10;
/// Most transfers that may be interrupted at once.
const NESTED_MAX: usize = 200;
/// The network has priority over every transfer.
const FIRST: Priority = Priority::Thread(u8::MAX);

const HOST: usize = 0;
const MEMORY: usize = 1;
const OTHER_BANK: usize = 2;
const LINK: usize = 3;

/// An adapter that sends.
///
/// Two queues, each by due date, on a network of which it may use a tenth (§6.4 of the source):
///
/// ```
/// use lastmeter_base::{Bytes, Duration, Rate, Time};
/// use lastmeter_host::adapter::description::{Description, Discipline, NetworkModel};
/// use lastmeter_host::adapter::transmitter::{Order, Transmitter, What};
/// let (us, ms) = (Duration::from_us, Duration::from_ms);
/// let mut card = Description::plain("two queues on a token network");
/// card.host.qos = true;
/// card.queueing.queues = 2;
/// card.queueing.discipline = Discipline::Edd; // Or Priority for two FIFO queues, or Fifo.
/// card.queueing.depth = 60;
/// card.network.model = NetworkModel::Intermittent { rotation: ms(10), holding: ms(1) };
/// card.network.rate = Some(Rate::from_gbit(1));
/// card.network.processing = us(4); // 48 us on a processor that is 12 times as fast.
/// let mut adapter = Transmitter::new(card);
/// let due = |at| Time::START + at;
/// let order = |id, class, due| Order { class, due, ..Order::new(id, Bytes(4096)) };
/// let orders = [
///     order(0, 0, Time::MAX), // Best effort.
///     order(1, 1, due(ms(40))), // Real time.
///     order(2, 1, due(ms(30))),
/// ];
/// for order in orders {
///     adapter.submit(Time::START, order).unwrap();
/// }
/// let mut sent = Vec::new();
/// while let Some(now) = adapter.ready_at() {
///     adapter.advance(now);
///     let acks = adapter.events().filter(|event| event.what == What::TransmitAck);
///     sent.extend(acks.map(|event| (event.order.id, event.at)));
/// }
/// // The token comes after 9 ms; then each packet takes 4 us and 4096 bytes at 1 Gbit/s, urgent ones first.
/// assert_eq!(sent[0], (2, due(ms(9) + Duration::from_ns(36_768))));
/// assert_eq!(sent.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [2, 1, 0]);
/// ```
pub struct Transmitter {
    card: Description,
    resources: [Resource; 4],
    token: Option<Token>,
    /// Speed-up of each phase, as numerator and denominator.
    speeds: [(u64, u64); 4],
    engines: Option<Engines>,
    /// Orders in flight, by the number of their job.
    orders: BTreeMap<usize, (Order, [Span; 4])>,
    jobs: BTreeMap<u64, usize>,
    submitted: usize,
    /// In front of interface, transfer and network.
    waiting: [Waiting; 3],
    interfacing: bool,
    /// Transfers begun; the last one is running, the others are interrupted.
    transferring: Vec<(usize, Rank)>,
    sending: Option<usize>,
    memory: BTreeMap<u32, Bytes>,
    host: Draw,
    stream: Stream,
    events: Vec<Event>,
    timeline: Vec<(u64, Phase, Time, Time)>,
}

impl Transmitter {
    /// An idle adapter whose host takes the same time for each message.
    pub fn new(card: Description) -> Transmitter {
        Transmitter::varying(card, Variation::None, 0)
    }

    /// The same with a host time that varies.
    pub fn varying(card: Description, variation: Variation, seed: u64) -> Transmitter {
        Transmitter::on(card, variation, Stream::new(seed, "host"))
    }

    /// The same in a graph, with its engines in the books.
    pub fn placed(card: Description, variation: Variation, stream: Stream, place: Place) -> Self {
        let speeds = place.speeds;
        let engines = Some(Engines::new(place));
        Transmitter { speeds, engines, ..Transmitter::on(card, variation, stream) }
    }

    fn on(card: Description, variation: Variation, stream: Stream) -> Transmitter {
        let options = Options {
            units: 1,
            discipline: Discipline::Priority,
            context_switch: Duration::ZERO,
            interrupt: Duration::ZERO,
        };
        let queueing = card.queueing;
        let known = |queues: u64| if card.host.qos { queues } else { 1 };
        let kept =
            |discipline| if card.host.qos { discipline } else { description::Discipline::Fifo };
        let interface = if card.host.queues > 1 {
            description::Discipline::Priority
        } else {
            description::Discipline::Fifo
        };
        let before = [
            Waiting::new(known(card.host.queues), kept(interface)),
            Waiting::new(known(queueing.queues), kept(queueing.discipline)),
            Waiting::new(
                known(queueing.queues),
                kept(queueing.at_network.unwrap_or(queueing.discipline)),
            ),
        ];
        Transmitter {
            resources: [0, 1, 2, 3].map(|id| Resource::new(ResourceId(id), options)),
            token: match card.network.model {
                NetworkModel::PointToPoint | NetworkModel::Statistical { .. } => None,
                NetworkModel::Intermittent { rotation, holding } => {
                    Some(Token::new(rotation, holding))
                }
            },
            speeds: [(1, 1); 4],
            engines: None,
            orders: BTreeMap::new(),
            jobs: BTreeMap::new(),
            submitted: 0,
            waiting: before,
            interfacing: false,
            transferring: Vec::new(),
            sending: None,
            memory: BTreeMap::new(),
            host: match variation {
                Variation::None => Draw::Constant(card.host.per_message),
                Variation::Exponential => Draw::Exponential(card.host.per_message),
            },
            stream,
            events: Vec::new(),
            timeline: Vec::new(),
            card,
        }
    }

    /// Submits an order.
    ///
    /// # Errors
    /// Why the order cannot be accepted now, or ever.
    pub fn submit(&mut self, now: Time, order: Order) -> Result<(), Refusal> {
        debug_assert!(!self.jobs.contains_key(&order.id), "identifiers are unique");
        if self.orders.len() as u64 >= self.card.queueing.depth {
            return Err(Refusal::Depth);
        }
        if order.len > self.card.buffers.memory {
            return Err(Refusal::TooLong);
        }
        if !self.has_buffer(&order) {
            match self.card.buffers.overload {
                Overload::Block => return Err(Refusal::Buffers),
                Overload::Drop => {
                    self.tell(now, order, What::Dropped, Default::default());
                    return Ok(());
                }
                Overload::Priority => {
                    self.displace(now, &order);
                    if !self.has_buffer(&order) {
                        self.tell(now, order, What::Dropped, Default::default());
                        return Ok(());
                    }
                }
            }
        }
        *self.memory.entry(self.account(&order)).or_default() += order.len;
        self.orders.insert(self.submitted, (order, Default::default()));
        self.jobs.insert(order.id, self.submitted);
        self.submitted += 1;
        self.waiting[0].push(order);
        self.start_all(now);
        Ok(())
    }

    /// When the next event is due; `None` while there is nothing to send.
    pub fn ready_at(&self) -> Option<Time> {
        self.resources.iter().filter_map(Resource::ready_at).chain(self.token_next()).min()
    }

    /// The token's next event; never while there is nothing to send.
    fn token_next(&self) -> Option<Time> {
        let wanted = !self.waiting[2].is_empty() || self.sending.is_some();
        self.token.filter(|_| wanted).map(|token| token.next()).filter(|&at| at < Time::MAX)
    }

    /// Handles everything due by `now`, in the order in which it became due.
    pub fn advance(&mut self, now: Time) {
        while let Some(due) = self.ready_at().filter(|&due| due <= now) {
            // What ends exactly with the holding time does not exceed it, so the token goes first.
            if self.token_next() == Some(due) {
                let here = self.token.is_some_and(|token| token.is_here());
                let busy = self.sending.is_some() || !here && !self.waiting[2].is_empty();
                self.token.iter_mut().for_each(|token| token.expire(due, busy));
                self.start_all(due);
                continue;
            }
            let of =
                (0..self.resources.len()).find(|&at| self.resources[at].ready_at() == Some(due));
            if let Some(done) = of.and_then(|at| self.resources[at].complete(due)) {
                self.completed(&done);
            }
        }
    }

    /// Takes the events for the host since the last call.
    pub fn events(&mut self) -> impl Iterator<Item = Event> + use<> {
        std::mem::take(&mut self.events).into_iter()
    }

    /// Orders in flight.
    pub fn outstanding(&self) -> u64 {
        self.orders.len() as u64
    }

    /// Whether the free share of the buffers is below the description's threshold.
    pub fn is_overloaded(&self) -> bool {
        let buffers = &self.card.buffers;
        let used = self.memory.values().map(|bytes| bytes.0).max().unwrap_or(0);
        let free = u128::from(buffers.memory.0.saturating_sub(used)) * 100;
        free < u128::from(buffers.memory.0) * u128::from(buffers.threshold)
    }

    /// What the engines did: interface, transfer and network; empty unless placed in a graph.
    pub fn meters(&self) -> impl Iterator<Item = &Meter> {
        self.engines.iter().flat_map(Engines::meters)
    }

    /// Service time of each phase so far, all orders together.
    pub fn served(&self, phase: Phase) -> Duration {
        let meters = self.resources.iter().flat_map(Resource::meters);
        let stages = meters.flat_map(Meter::by_stage);
        stages.filter(|(stage, _)| *stage == StageId(phase as u32)).map(|&(_, time)| time).sum()
    }

    /// Phases of the first orders: order, phase, start, end (Fig 5.6).
    pub fn timeline(&self) -> &[(u64, Phase, Time, Time)] {
        &self.timeline
    }

    /// The buffer pool of an order.
    fn account(&self, order: &Order) -> u32 {
        match self.card.buffers.place {
            BufferPlace::PerConnection => order.connection,
            BufferPlace::Shared | BufferPlace::Host => 0,
        }
    }

    fn has_buffer(&self, order: &Order) -> bool {
        let used = self.memory.get(&self.account(order)).copied().unwrap_or_default();
        order.len.0 <= self.card.buffers.memory.0.saturating_sub(used.0)
    }

    /// Drops less important orders until `order` has a buffer or none is left to drop.
    fn displace(&mut self, now: Time, order: &Order) {
        while !self.has_buffer(order) {
            let stage = self.waiting.iter().position(|waiting| {
                waiting.last().is_some_and(|last| waiting.rank(last) < waiting.rank(order))
            });
            let Some(lost) = stage.and_then(|stage| self.waiting[stage].pop_last()) else { return };
            let phases = self.forget(&lost);
            self.tell(now, lost, What::Dropped, phases);
        }
    }

    /// Ends an order; returns the times of its phases.
    fn forget(&mut self, order: &Order) -> [Span; 4] {
        let account = self.account(order);
        self.memory.entry(account).and_modify(|used| *used -= order.len);
        if self.memory.get(&account) == Some(&Bytes::ZERO) {
            self.memory.remove(&account);
        }
        let job = self.jobs.remove(&order.id).and_then(|job| self.orders.remove(&job));
        job.map(|(_, phases)| phases).unwrap_or_default()
    }

    fn tell(&mut self, at: Time, order: Order, what: What, phases: [Span; 4]) {
        self.events.push(Event { at, order, what, phases });
    }

    fn job(&mut self, now: Time, resource: usize, job: usize, phase: Phase, work: Duration) {
        let network = matches!(phase, Phase::Setup | Phase::Network);
        let (priority, preemptive) = match phase {
            Phase::Host => (Priority::Thread(0), false),
            Phase::Transfer => {
                let nested = self.transferring.len().min(NESTED_MAX) as u8;
                (Priority::Thread(nested), nested > 1)
            }
            _ => (FIRST, network && self.card.transfer.preemptible && !self.in_turn()),
        };
        let stage = StageId(phase as u32);
        let (numerator, denominator) = self.speeds[phase as usize];
        let work = work.scale_ceil(denominator, numerator);
        let job = Job { id: job << 2 | phase as usize, stage, priority, preemptive, work };
        self.resources[resource].submit(now, job);
    }

    /// Whether the network phase blocks the rest of the adapter.
    fn in_turn(&self) -> bool {
        self.card.queueing.stages < 2 || self.card.network.synchronisation == Synchronisation::Poll
    }

    fn completed(&mut self, done: &Done) {
        let (job, phase, now) = (done.id >> 2, PHASES[done.id & 3], done.at);
        let Some((order, phases)) = self.orders.get_mut(&job) else { return };
        phases[phase as usize] = Span { from: done.started, to: now, served: done.served };
        let (order, phases) = (*order, *phases);
        if order.id < DRAWN {
            self.timeline.push((order.id, phase, done.started, now));
        }
        match phase {
            Phase::Host => {
                self.interfacing = false;
                self.tell(now, order, What::WriteAck, phases);
                self.waiting[1].push(order);
            }
            Phase::Transfer => {
                self.transferring.retain(|&(other, _)| other != job);
                self.tell(now, order, What::AddressAck, phases);
                if self.waiting[2].is_empty() && self.sending.is_none() {
                    self.token.iter_mut().for_each(|token| token.catch_up(now));
                }
                self.waiting[2].push(order);
            }
            Phase::Setup => {
                let (_, rest) = self.card.network_time(order.len);
                let two = self.card.buffers.banks > 1 && !self.in_turn();
                let resource = if two { OTHER_BANK } else { MEMORY };
                self.job(now, resource, job, Phase::Network, rest);
            }
            Phase::Network => {
                self.sending = None;
                self.token.iter_mut().for_each(|token| token.sent(now));
                self.forget(&order);
                self.tell(now, order, What::TransmitAck, phases);
            }
        }
        self.start_all(now);
    }

    /// Begins everything that can begin.
    fn start_all(&mut self, now: Time) {
        if !self.interfacing
            && let Some(order) = self.waiting[0].pop()
        {
            self.interfacing = true;
            let gathering = self.card.gathering_time(order.len);
            let work = self.host.sample(&mut self.stream) + gathering;
            let resource = if self.card.queueing.stages < 3 { MEMORY } else { HOST };
            self.job(now, resource, self.jobs[&order.id], Phase::Host, work);
        }
        if self.may_transfer()
            && let Some(order) = self.waiting[1].pop()
        {
            let job = self.jobs[&order.id];
            self.transferring.push((job, self.waiting[1].rank(&order)));
            let transfer = &self.card.transfer;
            let by_processor = transfer.mode == TransferMode::Pio
                || transfer.mode == TransferMode::Hybrid && order.len <= transfer.pio_max;
            let alone = by_processor && self.card.queueing.stages > 2;
            let work = self.card.transfer_time(order.len);
            self.job(now, if alone { HOST } else { MEMORY }, job, Phase::Transfer, work);
        }
        let may_send = self.token.is_none_or(|token| token.is_here());
        if self.sending.is_none() && may_send {
            match self.waiting[2].pop() {
                Some(order) => match self.access() {
                    Some(access) => {
                        let job = self.jobs[&order.id];
                        self.sending = Some(job);
                        let (free, _) = self.card.network_time(order.len);
                        let resource = if self.in_turn() { MEMORY } else { LINK };
                        self.job(now, resource, job, Phase::Setup, free + access);
                    }
                    None => {
                        let phases = self.forget(&order);
                        self.tell(now, order, What::GivenUp, phases);
                        return self.start_all(now);
                    }
                },
                None => self.token.iter_mut().for_each(|token| token.release(now)),
            }
        }
        self.account_for(now);
    }

    /// The time until the network accepts a message: its collisions, and after the `k`th a random number of slots
    /// below 2^k, at most 2^10 (IEEE 802.3, 4.2.3.2.5). `None` after the 16th.
    fn access(&mut self) -> Option<Duration> {
        let NetworkModel::Statistical { slot, collisions } = self.card.network.model else {
            return Some(Duration::ZERO);
        };
        let mut access = Duration::ZERO;
        for attempt in 1..=ATTEMPTS_MAX {
            if self.stream.below(100) >= collisions {
                return Some(access);
            }
            access += slot * (1 + self.stream.below(1 << attempt.min(DOUBLINGS_MAX)));
        }
        None
    }

    /// Updates the state of the engines from now on.
    fn account_for(&mut self, now: Time) {
        let Some(engines) = &mut self.engines else { return };
        let wanted = [self.interfacing, !self.transferring.is_empty(), self.sending.is_some()];
        let serving = self.resources.iter().flat_map(Resource::serving);
        engines.observe(now, wanted, serving.map(|id| PHASES[id & 3]));
    }

    /// Whether the next transfer may begin: none runs, or it interrupts a less urgent one.
    fn may_transfer(&self) -> bool {
        let Some(&(_, running)) = self.transferring.last() else { return true };
        let more_urgent = |order: &Order| self.waiting[1].rank(order) > running;
        self.card.transfer.urgent_first
            && self.transferring.len() < NESTED_MAX
            && self.waiting[1].peek().is_some_and(more_urgent)
    }
}

#[cfg(test)]
#[path = "transmitter_tests.rs"]
mod tests;
