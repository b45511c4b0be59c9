//! A port of a fabric as elements: its virtual output queues, its output queue, and what tells the
//! backlogs of all ports to all.
//!
//! ```text
//! in 0 --> [ Ingress: VOQs, rates ] --> out 0 the fabric
//!           in 1 ^ B(j)   | out 1 record      ^ in 2 notice
//! in 0 --> [ Egress: queue at L ] --> out 0   |
//!               | out 1 B(j), each period     |
//!          [ Exchange ] sums records of all ports, and tells each that it has
//! ```
//!
//! In the document each port receives the records of all ports and sums them; here one place sums
//! them once, because the sums are the same. A record takes time and none of the fabric's capacity.

use super::allocation::{Allocation, Summary};
use super::voq::Voqs;
use crate::fifo::Fifo;
use lastmeter_base::{Bytes, Duration, NodeId, Packet, PathId, Rate, StageId, Time};
use lastmeter_engine::{Context, Element, ElementId, Meter, PortId, Report, ResourceId, TimerId};
use std::sync::{Arc, Mutex, PoisonError};

/// Where packets enter and leave a port of something that is made of many elements.
pub type Place = ((ElementId, PortId), (ElementId, PortId));

/// Which port of the fabric leads to each node, by [`NodeId`].
pub type Directory = Arc<[Option<u32>]>;

/// The port that a packet leaves by.
fn port_of(directory: &Directory, destination: NodeId) -> Option<usize> {
    directory.get(destination.0 as usize).copied().flatten().map(|port| port as usize)
}

/// A record's or a notice's size: one cell.
pub const RECORD_LEN: Bytes = Bytes(53);
/// Where a record says from which port it is, and B(j); where a notice says its number.
const WORD_PORT: usize = 0;
const WORD_BACKLOG: usize = 1;
/// Bytes of a backlog in a record: the output and the bytes.
const ENTRY_LEN: usize = 12;

/// Sums of the last few periods. One is read by all ports while the next are made.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<[Arc<Summary>; BOARD_LEN]>>);

const BOARD_LEN: usize = 4;

impl Board {
    fn put(&self, number: u64, summary: Summary) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places[number as usize % BOARD_LEN] = Arc::new(summary);
    }
    fn get(&self, number: u64) -> Arc<Summary> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places[number as usize % BOARD_LEN].clone()
    }
}

/// What an input is.
pub struct IngressOptions {
    /// The port's number.
    pub port: usize,
    /// Distributed queueing; `None` if it sends what it has.
    pub allocation: Option<Allocation>,
    /// D.
    pub period: Duration,
    /// Room for all outputs together.
    pub room: Bytes,
    /// S L, of the line into the fabric.
    pub capacity: Rate,
    /// Who leaves where.
    pub directory: Directory,
    /// Where sums are read.
    pub board: Board,
}

/// The virtual output queues of a port, and its line into the fabric.
pub struct Ingress {
    options: IngressOptions,
    voqs: Voqs<Packet>,
    /// What the last record said.
    told: Vec<(usize, u64)>,
    free_at: Time,
    stage: StageId,
    meter: Meter,
    served: u64,
    refused: u64,
    packets_most: u64,
    periods: u64,
}

const SEND: TimerId = TimerId(0);
/// Where packets enter an input.
pub const PACKETS: PortId = PortId(0);
/// Where an input hears of its own port's output queue.
pub const OWN_BACKLOG: PortId = PortId(1);
/// Where an input hears that sums are ready.
pub const NOTICE: PortId = PortId(2);
/// Where packets go on to.
pub const FORWARD: PortId = PortId(0);
/// Where records leave.
pub const RECORDS: PortId = PortId(1);

impl Ingress {
    /// An input with nothing in it.
    pub fn new(options: IngressOptions, stage: StageId, resource: ResourceId) -> Ingress {
        Ingress {
            voqs: Voqs::new(options.allocation, options.period, options.room),
            told: Vec::new(),
            free_at: Time::START,
            stage,
            meter: Meter::new(resource),
            served: 0,
            refused: 0,
            packets_most: 0,
            periods: 0,
            options,
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        while self.free_at <= cx.now() {
            let Some((_, len, mut packet)) = self.voqs.dequeue(cx.now()) else { break };
            // The line fell free before now only if it had nothing to do.
            self.meter.rest(self.free_at);
            self.meter.serve(cx.now(), self.stage);
            self.meter.moved(len);
            let service = self.options.capacity.time_for(len);
            self.free_at = cx.now() + service;
            self.served += 1;
            if cx.collecting() {
                let wait = cx.now() - packet.entered;
                packet.visit(self.stage, wait, service, Duration::ZERO);
            }
            cx.send_at(FORWARD, packet, self.free_at);
        }
        if let Some(ready) = self.voqs.ready_at() {
            cx.arm(SEND, ready.max(self.free_at));
        }
    }

    /// Writes this port's backlogs into the record that its output queue began.
    fn record(&mut self, cx: &mut Context<'_>, mut record: Packet) {
        self.told.clear();
        self.told.extend(self.voqs.backlogs());
        record.transport[WORD_PORT] = self.options.port as u64;
        for &(output, bytes) in &self.told {
            record.content.extend((output as u32).to_le_bytes());
            record.content.extend(bytes.to_le_bytes());
        }
        cx.send(RECORDS, record);
    }
}

impl Element for Ingress {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        match port {
            OWN_BACKLOG => self.record(cx, packet),
            NOTICE => {
                let summary = self.options.board.get(packet.transport[WORD_PORT]);
                self.voqs.allocate(cx.now(), &self.told, summary);
                self.periods += 1;
                cx.deliver(packet);
                self.send(cx);
            }
            _ => {
                let Some(output) = port_of(&self.options.directory, packet.destination) else {
                    cx.drop(packet, Some(self.stage), "no route");
                    return;
                };
                packet.entered = cx.now();
                let (now, len) = (cx.now(), packet.len);
                if let Err(packet) = self.voqs.enqueue(now, output, len, packet) {
                    self.refused += 1;
                    cx.drop(packet, Some(self.stage), "full");
                    return;
                }
                self.packets_most = self.packets_most.max(self.voqs.packets());
                self.send(cx);
            }
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.send(cx);
    }
    fn report(&self, out: &mut Report) {
        out.held(self.voqs.packets());
        let mut meter = self.meter.clone();
        if self.free_at <= out.now() {
            meter.rest(self.free_at);
        }
        out.meter(&meter);
        out.count("served", self.served);
        out.count("refused", self.refused);
        out.count("packets_most", self.packets_most);
        out.count("periods", self.periods);
    }
}

/// The output queue of a port and its link. Each period it begins a record.
pub struct Egress {
    fifo: Fifo,
    room: Bytes,
    link: Rate,
    /// D and the path of records, where backlogs are told.
    tells: Option<(Duration, PathId)>,
    next: Time,
    stage: StageId,
    resource: ResourceId,
    refused: u64,
}

const PERIOD: TimerId = TimerId(0);

impl Egress {
    /// An output with nothing in it, at the rate of its link.
    pub fn new(
        link: Rate,
        room: Bytes,
        tells: Option<(Duration, PathId)>,
        stage: StageId,
        resource: ResourceId,
    ) -> Egress {
        let (fifo, next, refused) = (Fifo::default(), Time::START, 0);
        Egress { fifo, room, link, tells, next, stage, resource, refused }
    }
}

impl Element for Egress {
    fn start(&mut self, cx: &mut Context<'_>) {
        if let Some((period, _)) = self.tells {
            self.next = Time::START + period;
            cx.arm(PERIOD, self.next);
        }
    }
    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, mut packet: Packet) {
        let (now, len) = (cx.now(), packet.len);
        self.fifo.settle(cx);
        if self.fifo.bytes() + len > self.room {
            self.refused += 1;
            cx.drop(packet, Some(self.stage), "full");
            return;
        }
        packet.entered = now;
        let (begins, service) = self.fifo.accept(now, len, |_| self.link.time_for(len));
        if cx.collecting() {
            packet.visit(self.stage, begins - now, service, Duration::ZERO);
        }
        cx.send_at(FORWARD, packet, self.fifo.free_at());
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        let Some((period, path)) = self.tells else { return };
        self.fifo.settle(cx);
        let mut record = cx.make(path, RECORD_LEN);
        record.transport[WORD_BACKLOG] = self.fifo.bytes().0;
        cx.send(RECORDS, record);
        self.next += period;
        cx.arm(PERIOD, self.next);
    }
    fn report(&self, out: &mut Report) {
        self.fifo.report(out, self.stage, self.resource);
        out.count("refused", self.refused);
        out.count("packets_most", self.fifo.waiting_most());
    }
}

/// Sums the records of all ports.
pub struct Exchange {
    board: Board,
    records: Vec<Packet>,
    ports: usize,
    number: u64,
}

impl Exchange {
    /// One for so many ports.
    pub fn new(ports: usize, board: Board) -> Exchange {
        Exchange { board, records: Vec::with_capacity(ports), ports, number: 0 }
    }
}

impl Element for Exchange {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, record: Packet) {
        self.records.push(record);
        if self.records.len() < self.ports {
            return;
        }
        let mut summary = Summary::empty(self.ports);
        for record in &self.records {
            let port = record.transport[WORD_PORT] as usize;
            summary.output[port] = record.transport[WORD_BACKLOG];
            summary.add(record.content.chunks_exact(ENTRY_LEN).filter_map(|entry| {
                let (output, bytes) = entry.split_first_chunk::<4>()?;
                let bytes = u64::from_le_bytes(*bytes.first_chunk()?);
                Some((u32::from_le_bytes(*output) as usize, bytes))
            }));
        }
        self.number += 1;
        self.board.put(self.number, summary);
        for mut notice in self.records.drain(..) {
            let port = PortId(notice.transport[WORD_PORT] as u16);
            notice.content.clear();
            notice.transport[WORD_PORT] = self.number;
            cx.send(port, notice);
        }
    }
    fn timers(&self) -> u32 {
        0
    }
    fn report(&self, out: &mut Report) {
        out.held(self.records.len() as u64);
        out.count("summaries", self.number);
    }
}

/// Sends packets out of the port that arithmetic on the fabric's port number gives.
pub struct Switch {
    directory: Directory,
    divide: usize,
    modulo: usize,
}

impl Switch {
    /// One whose output is the fabric's port, divided and then taken modulo.
    pub fn new(directory: Directory, divide: usize, modulo: usize) -> Switch {
        Switch { directory, divide, modulo }
    }
}

impl Element for Switch {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        let port = port_of(&self.directory, packet.destination);
        let port = port.expect("an input passes on only what has a route");
        cx.send(PortId((port / self.divide % self.modulo) as u16), packet);
    }
    fn timers(&self) -> u32 {
        0
    }
}
