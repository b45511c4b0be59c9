//! A busy server and its clients: one connection per request, with real segments.
//!
//! ```text
//! WebClients out 0 --> ... --> in 0 WebServer        one processor, first come first served
//!            in 0 <-- ... <-- out 0                  drops: `no connection`
//! ```
//!
//! Each client opens a connection, sends a request, reads the whole response, and opens the next. The
//! server's processor serves one segment after another: a cost for the segment, one for a request in it,
//! and one for every control block searched to find the segment's own. Blocks are in a list, newest
//! first; a SYN searches all of it. Clients' processors cost nothing: there are many clients.
//!
//! | Parameter | Unit | Meaning |
//! |---|---|---|
//! | `costs` | time | costs on the server's processor |
//! | `remedy` | | which end stays in `TIME_WAIT` ([`time_wait`](super::time_wait)) |
//! | `clients` | | how many there are, each with one connection at a time |
//! | `request`, `message`, `response` | bytes | data on each connection |
//!
//! ```
//! use lastmeter_base::{Bytes, Duration};
//! use lastmeter_transport::tcp::time_wait::Remedy;
//! use lastmeter_transport::tcp::{Costs, Exchange};
//! let costs = Costs {
//!     segment: Duration::from_us(100),
//!     request: Duration::from_ms(9),
//!     message: Duration::from_ms(1),
//!     scan: Duration::from_us(3),
//! };
//! let exchange = Exchange {
//!     request: Bytes(300),
//!     message: Bytes(20),
//!     response: Bytes(1000),
//!     remedy: Remedy::Shift,
//! };
//! assert!(exchange.remedy.server_closes() && costs.message < costs.request);
//! ```
//!
//! Source: Faber, Touch & Yue, INFOCOM 1999; BSD's `in_pcblookup`. Deviation: the one-entry cache of
//! 4.3BSD Reno is left out, as it misses whenever two connections alternate.

use super::due::Due;
use super::host::Labels;
use super::time_wait::Remedy;
use super::{Config, Connection, Ended, Flags, Segment, State};
use lastmeter_base::{Bytes, Duration, FlowId, NodeId, Packet, StageId, Time};
use lastmeter_engine::{Context, Element, Meter, PortId, Report, ResourceId, TimerId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Costs on a server's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Per segment of any kind.
    pub segment: Duration,
    /// Per request, with its response.
    pub request: Duration,
    /// Per message that announces the client's close.
    pub message: Duration,
    /// Per control block searched.
    pub scan: Duration,
}

/// The exchange on each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The request, which fits into a segment.
    pub request: Bytes,
    /// The message that announces the client's close, if any.
    pub message: Bytes,
    /// The response.
    pub response: Bytes,
    /// Which end keeps the state.
    pub remedy: Remedy,
}

/// Connections in the order of their flows, without those that have ended.
struct Blocks<T> {
    /// The flow of the first.
    first: u32,
    all: VecDeque<Option<Box<Block<T>>>>,
    /// How many there are.
    live: usize,
}

struct Block<T> {
    connection: Connection,
    /// Its entry in the heap; [`Time::MAX`] for none.
    queued: Time,
    sent: u64,
    application: T,
}

impl<T> Blocks<T> {
    fn new() -> Blocks<T> {
        Blocks { first: 0, all: VecDeque::new(), live: 0 }
    }
    fn get_mut(&mut self, flow: u32) -> Option<&mut Block<T>> {
        let index = flow.checked_sub(self.first)? as usize;
        self.all.get_mut(index)?.as_deref_mut()
    }
    /// Puts a connection where there is none yet.
    fn insert(&mut self, flow: u32, connection: Connection, application: T) {
        if self.all.is_empty() {
            self.first = flow;
        }
        while flow < self.first {
            self.all.push_front(None);
            self.first -= 1;
        }
        let index = (flow - self.first) as usize;
        while self.all.len() <= index {
            self.all.push_back(None);
        }
        let block = Block { connection, queued: Time::MAX, sent: 0, application };
        self.live += usize::from(self.all[index].replace(Box::new(block)).is_none());
    }
    fn remove(&mut self, flow: u32) {
        let place = flow.checked_sub(self.first).map(|index| index as usize);
        if let Some(place) = place.and_then(|index| self.all.get_mut(index)) {
            self.live -= usize::from(place.take().is_some());
        }
        while self.all.pop_front_if(|block| block.is_none()).is_some() {
            self.first += 1;
        }
    }
    fn iter(&self) -> impl Iterator<Item = &Block<T>> {
        self.all.iter().flatten().map(|block| &**block)
    }
    /// Blocks before that of `flow` in a list, newest first; all if it is not there.
    fn before(&mut self, flow: u32) -> usize {
        if self.get_mut(flow).is_none() {
            return self.live;
        }
        let index = (flow - self.first) as usize;
        self.all.range(index + 1..).flatten().count()
    }
    fn lingering(&self) -> usize {
        self.iter().filter(|block| block.connection.state() == State::TimeWait).count()
    }
}

/// Sends what a connection has to send, and records when it is due next.
fn turn<T>(
    cx: &mut Context<'_>,
    labels: &Labels,
    (flow, destination): (u32, NodeId),
    block: &mut Block<T>,
    due: &mut Due,
) {
    let now = cx.now();
    while let Some(segment) = block.connection.transmit(now) {
        let packet = labels.packet(cx, &segment, (FlowId(flow), destination), block.sent);
        block.sent += 1;
        cx.send(PortId(0), packet);
    }
    let at = block.connection.ready_at().unwrap_or(Time::MAX);
    due.schedule(cx, flow, at, &mut block.queued);
}

/// The timers of connections, and that of the processor.
const PROCESSOR: TimerId = TimerId(1);

/// The server.
pub struct WebServer {
    labels: Labels,
    config: Arc<Config>,
    costs: Costs,
    exchange: Exchange,
    clients: NodeId,
    blocks: Blocks<Serving>,
    due: Due,
    waiting: VecDeque<Packet>,
    stage: StageId,
    meter: Meter,
    /// Counts from here on.
    since: Time,
    served: u64,
    walked: u64,
}

/// A connection's progress at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    Waiting,
    Responded,
}

impl WebServer {
    /// An idle server. Its processor's time is accounted to `stage` and `resource`; it counts connections
    /// from `since` on.
    pub fn new(
        (labels, clients): (Labels, NodeId),
        config: Config,
        (costs, exchange): (Costs, Exchange),
        (stage, resource): (StageId, ResourceId),
        since: Time,
    ) -> WebServer {
        let lingering = exchange.remedy.lingering();
        WebServer {
            labels,
            config: Arc::new(Config { lingering, ..config }),
            costs,
            exchange,
            clients,
            blocks: Blocks::new(),
            due: Due::new(),
            waiting: VecDeque::new(),
            stage,
            meter: Meter::new(resource),
            since,
            served: 0,
            walked: 0,
        }
    }

    /// The processor's time for the first waiting segment.
    fn cost(&mut self, packet: &Packet) -> Duration {
        let before = self.blocks.before(packet.flow.0) as u64;
        self.walked += before;
        let carries = Segment::unpack(&packet.transport).len > 0;
        let block = self.blocks.get_mut(packet.flow.0);
        let content = match block.map(|block| block.application) {
            Some(Serving::Waiting) if carries => self.costs.request,
            Some(Serving::Responded) if carries => self.costs.message,
            _ => Duration::ZERO,
        };
        self.costs.segment + self.costs.scan * before + content
    }

    /// Starts serving the first waiting segment.
    fn begin(&mut self, cx: &mut Context<'_>) {
        let Some(mut packet) = self.waiting.pop_front() else { return };
        let cost = self.cost(&packet);
        let now = cx.now();
        self.meter.serve(now, self.stage);
        self.meter.moved(packet.len);
        if cx.collecting() {
            packet.visit(self.stage, now - packet.entered, cost, Duration::ZERO);
        }
        self.waiting.push_front(packet);
        cx.arm(PROCESSOR, now + cost);
    }

    /// Passes a segment to its connection, and lets the application respond.
    fn handle(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let (now, flow) = (cx.now(), packet.flow.0);
        let segment = Segment::unpack(&packet.transport);
        if segment.has(Flags::SYN) && self.blocks.get_mut(flow).is_none() {
            let iss = cx.rng().bits() as u32;
            let connection = Connection::listen(self.config.clone(), iss);
            self.blocks.insert(flow, connection, Serving::Waiting);
        }
        let Some(block) = self.blocks.get_mut(flow) else {
            return cx.drop(packet, None, "no connection");
        };
        let before = block.connection.received();
        block.connection.receive(now, &segment, &packet.content);
        cx.deliver_useful(packet, block.connection.received().saturating_sub(before));
        let Exchange { request, response, remedy, .. } = self.exchange;
        if block.application == Serving::Waiting && block.connection.readable() >= request.0 {
            block.connection.consume(request.0);
            block.connection.offer(response.0);
            block.application = Serving::Responded;
            self.served += u64::from(now >= self.since);
            if remedy.server_closes() {
                block.connection.close();
            }
        } else if block.application == Serving::Responded {
            block.connection.consume(u64::MAX);
            if block.connection.state() == State::CloseWait {
                block.connection.close();
            }
        }
        self.turn(cx, flow);
    }

    fn turn(&mut self, cx: &mut Context<'_>, flow: u32) {
        let Some(block) = self.blocks.get_mut(flow) else { return };
        turn(cx, &self.labels, (flow, self.clients), block, &mut self.due);
        if block.connection.state() == State::Closed {
            self.blocks.remove(flow);
        }
    }
}

impl Element for WebServer {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        packet.entered = cx.now();
        self.waiting.push_back(packet);
        if self.waiting.len() == 1 {
            self.begin(cx);
        }
    }

    fn expire(&mut self, cx: &mut Context<'_>, timer: TimerId) {
        let now = cx.now();
        if timer == PROCESSOR {
            if let Some(packet) = self.waiting.pop_front() {
                self.handle(cx, packet);
            }
            match self.waiting.is_empty() {
                true => self.meter.rest(now),
                false => self.begin(cx),
            }
            return;
        }
        self.due.expired();
        while let Some((at, flow)) = self.due.next(now) {
            let Some(block) = self.blocks.get_mut(flow).filter(|block| block.queued == at) else {
                continue;
            };
            block.queued = Time::MAX;
            block.connection.expire(now);
            self.turn(cx, flow);
        }
        self.due.rearm(cx);
    }

    fn timers(&self) -> u32 {
        2
    }

    fn report(&self, out: &mut Report) {
        out.held(self.waiting.len() as u64);
        out.meter(&self.meter);
        out.count("served", self.served);
        out.count("blocks", self.blocks.live as u64);
        out.count("lingering", self.blocks.lingering() as u64);
        out.count("walked", self.walked);
    }
}

/// All clients of a server.
pub struct WebClients {
    labels: Labels,
    config: Arc<Config>,
    exchange: Exchange,
    server: NodeId,
    count: u32,
    /// The number of the next connection.
    next: u32,
    blocks: Blocks<u64>,
    due: Due,
    done: u64,
    failed: u64,
}

impl WebClients {
    /// This many clients, which all start at once.
    pub fn new(
        (labels, server): (Labels, NodeId),
        config: Config,
        exchange: Exchange,
        count: u32,
    ) -> WebClients {
        let lingering = exchange.remedy.lingering();
        WebClients {
            labels,
            config: Arc::new(Config { lingering, ..config }),
            exchange,
            server,
            count,
            next: 0,
            blocks: Blocks::new(),
            due: Due::new(),
            done: 0,
            failed: 0,
        }
    }

    fn open(&mut self, cx: &mut Context<'_>) {
        let (flow, iss) = (self.next, cx.rng().bits() as u32);
        self.next += 1;
        let mut connection = Connection::connect(cx.now(), self.config.clone(), iss);
        connection.offer(self.exchange.request.0);
        self.blocks.insert(flow, connection, 0);
        self.turn(cx, flow);
    }

    /// Lets the client of a connection act, and open the next one when done with this.
    fn act(&mut self, cx: &mut Context<'_>, flow: u32) {
        let Exchange { message, response, remedy, .. } = self.exchange;
        let Some(block) = self.blocks.get_mut(flow) else { return };
        let taken = &mut block.application;
        let before = *taken;
        *taken += block.connection.consume(u64::MAX);
        let whole = *taken >= response.0;
        let ends = match remedy.server_closes() {
            true => block.connection.state() == State::CloseWait,
            false => before < response.0 && whole,
        };
        if ends && !remedy.server_closes() {
            block.connection.offer(message.0);
        }
        if ends {
            block.connection.close();
        }
        let failed = block.connection.ended().is_some_and(|why| why != Ended::Done) && !whole;
        self.done += u64::from(ends && whole);
        self.failed += u64::from(failed);
        self.turn(cx, flow);
        if ends || failed {
            self.open(cx);
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>, flow: u32) {
        let Some(block) = self.blocks.get_mut(flow) else { return };
        turn(cx, &self.labels, (flow, self.server), block, &mut self.due);
        if block.connection.state() == State::Closed {
            self.blocks.remove(flow);
        }
    }
}

impl Element for WebClients {
    fn start(&mut self, cx: &mut Context<'_>) {
        (0..self.count).for_each(|_| self.open(cx));
    }

    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        let (now, flow) = (cx.now(), packet.flow.0);
        let Some(block) = self.blocks.get_mut(flow) else {
            return cx.drop(packet, None, "no connection");
        };
        let segment = Segment::unpack(&packet.transport);
        let before = block.connection.received();
        block.connection.receive(now, &segment, &packet.content);
        cx.deliver_useful(packet, block.connection.received().saturating_sub(before));
        self.act(cx, flow);
    }

    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        let now = cx.now();
        self.due.expired();
        while let Some((at, flow)) = self.due.next(now) {
            let Some(block) = self.blocks.get_mut(flow).filter(|block| block.queued == at) else {
                continue;
            };
            block.queued = Time::MAX;
            block.connection.expire(now);
            self.act(cx, flow);
        }
        self.due.rearm(cx);
    }

    fn report(&self, out: &mut Report) {
        out.count("done", self.done);
        out.count("failed", self.failed);
        out.count("blocks", self.blocks.live as u64);
        out.count("lingering", self.blocks.lingering() as u64);
    }
}
