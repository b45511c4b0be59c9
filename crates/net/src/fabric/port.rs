//! An input of a fabric as an element: its virtual output queues and its line into the fabric; and what
//! tells the backlogs of all ports to all.
//!
//! ```text
//! in 0 --> [ Ingress: VOQs, rates ] --> out 0 the fabric
//!           in 1 ^ B(j)   | out 1 record      ^ in 2 notice
//!           (its output)  v                   |
//!          [ Exchange ] knows the records of all ports, and tells each that it does
//! ```
//!
//! In the document each port receives the records of all ports and sums them; here they are summed
//! once, because the sums are the same. A record takes time and none of the fabric's capacity.

use super::allocation::{Allocation, Shares, Summary};
use super::voq::{Spare, Voqs};
use lastmeter_base::{Bytes, Duration, NodeId, Packet, Rate, StageId, Time};
use lastmeter_engine::{
    Context, Element, ElementId, Foreseen, Foresight, Look, Meter, PortId, Report, ResourceId,
    TimerId,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where packets enter and leave a port of something that is made of many elements.
pub type Place = ((ElementId, PortId), (ElementId, PortId));

/// Which port leads to each node, by [`NodeId`]: four bytes each, since every element looks here for every
/// packet.
#[derive(Clone, Debug)]
pub struct Directory(Arc<[u32]>);

/// No port leads there.
const NO_PORT: u32 = u32::MAX;

impl Directory {
    /// That of these nodes and their ports.
    pub fn of(nodes: &[(NodeId, usize)]) -> Directory {
        let len = nodes.iter().map(|(node, _)| node.0 as usize + 1).max().unwrap_or(0);
        let mut ports = vec![NO_PORT; len];
        nodes.iter().for_each(|&(node, port)| ports[node.0 as usize] = port as u32);
        Directory(ports.into())
    }
    /// The port that a packet leaves by.
    #[inline]
    pub fn port(&self, destination: NodeId) -> Option<usize> {
        let port = *self.0.get(destination.0 as usize)?;
        (port != NO_PORT).then_some(port as usize)
    }
}

/// A record's or a notice's size: one cell.
pub(super) const RECORD_LEN: Bytes = Bytes(53);
/// Where a record says from which port it is, and a notice of which period; where a record says B(j).
const WORD_PORT: usize = 0;
pub(super) const WORD_BACKLOG: usize = 1;

/// Backlogs of the last periods, by the period's number. What a record says is added up here when it is
/// told, and is known to nobody before the last record has come to the exchange.
///
/// The ports of a switch tell together: one thread runs them all, and none waits for another.
#[derive(Clone, Debug)]
pub struct Board(Arc<Told>);

/// Of a period all have told before anybody tells of the next, and hear before anybody does of the next.
const BOARD_LEN: usize = 2;

#[derive(Debug)]
struct Told {
    ports: usize,
    /// So many ports are a switch.
    module: usize,
    /// By switch.
    together: Vec<Mutex<Together>>,
    /// By all.
    shares: Mutex<[Arc<Shares>; BOARD_LEN]>,
}

/// What the ports of a switch have told, and memory that they lend each other.
#[derive(Debug)]
#[repr(align(128))]
struct Together {
    told: [Summary; BOARD_LEN],
    spare: Spare<Packet>,
}

impl Board {
    /// One for so many ports in switches of `module`, on which nothing has been told.
    pub fn new(ports: usize, module: usize) -> Board {
        let module = module.max(1);
        let told = || Summary { output: vec![0; module], inputs: vec![0; ports] };
        let together = || {
            Mutex::new(Together { told: std::array::from_fn(|_| told()), spare: Spare::default() })
        };
        let together = (0..ports.div_ceil(module)).map(|_| together()).collect();
        Board(Arc::new(Told { ports, module, together, shares: Mutex::default() }))
    }
    /// What the ports of a switch share, by the number of any of them.
    fn of(&self, port: usize) -> MutexGuard<'_, Together> {
        let together = &self.0.together[port / self.0.module];
        together.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn shares(&self) -> MutexGuard<'_, [Arc<Shares>; BOARD_LEN]> {
        self.0.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn tell(&self, period: u64, port: usize, output: u64, inputs: &[(usize, u64)]) {
        let told = &mut self.of(port).told[period as usize % BOARD_LEN];
        told.output[port % self.0.module] = output;
        told.add(inputs.iter().copied());
    }
    fn get(&self, period: u64) -> Arc<Shares> {
        self.shares()[period as usize % BOARD_LEN].clone()
    }
    /// All have told of a period: its place is clear for one to come.
    fn close(&self, period: u64, allocation: &Allocation) {
        let Told { ports, module, .. } = *self.0;
        let mut summary = Summary::empty(ports);
        for first in (0..ports).step_by(module) {
            let told = &mut self.of(first).told[period as usize % BOARD_LEN];
            let outputs = summary.output[first..].iter_mut().zip(&mut told.output);
            outputs.for_each(|(all, own)| *all = std::mem::take(own));
            let inputs = summary.inputs.iter_mut().zip(&mut told.inputs);
            inputs.for_each(|(all, own)| *all += std::mem::take(own));
        }
        self.shares()[period as usize % BOARD_LEN] = Arc::new(Shares::new(allocation, summary));
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

/// The virtual output queues of a port, and its line into the fabric. What comes and goes with each
/// packet takes five lines of a cache.
#[repr(C, align(64))]
pub struct Ingress {
    voqs: Voqs<Packet>,
    free_at: Time,
    /// For when the timer is set; [`Time::MAX`] if it is not.
    armed: Time,
    /// Who leaves where.
    directory: Directory,
    /// How long the line into the fabric takes for a byte, if that are whole picoseconds; zero if not.
    byte_time: Duration,
    stage: StageId,
    packets_most: u32,
    busy: Duration,
    idle: Duration,
    moved: Bytes,
    served: u64,
    periodic: Box<Periodic>,
}

const _: () = assert!(size_of::<Ingress>() == 320);

/// What an input needs when it tells its backlogs and hears those of all, or at the end.
struct Periodic {
    resource: ResourceId,
    /// S L, of the line into the fabric.
    capacity: Rate,
    port: usize,
    board: Board,
    /// What the last record said, and how many there were.
    told: Vec<(usize, u64)>,
    told_periods: u64,
    periods: u64,
    refused: u64,
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

/// See [`Ingress::byte_time`].
fn byte_time(rate: Rate) -> Duration {
    let time = rate.time_for(Bytes(1));
    let is_whole = u128::from(time.as_ps()) * u128::from(rate.as_bits()) == 8 * 1_000_000_000_000;
    if is_whole { time } else { Duration::ZERO }
}

impl Ingress {
    /// An input with nothing in it.
    pub fn new(options: IngressOptions, stage: StageId, resource: ResourceId) -> Ingress {
        let IngressOptions { port, allocation, period, room, capacity, directory, board } = options;
        let (told, told_periods, periods, refused) = (Vec::new(), 0, 0, 0);
        Ingress {
            voqs: Voqs::new(allocation, period, room),
            free_at: Time::START,
            armed: Time::MAX,
            directory,
            byte_time: byte_time(capacity),
            stage,
            packets_most: 0,
            busy: Duration::ZERO,
            idle: Duration::ZERO,
            moved: Bytes::ZERO,
            served: 0,
            periodic: Box::new(Periodic {
                resource,
                capacity,
                port,
                board,
                told,
                told_periods,
                periods,
                refused,
            }),
        }
    }

    /// How long the line takes.
    #[inline]
    fn service(&self, len: Bytes) -> Duration {
        match self.byte_time {
            Duration::ZERO => self.periodic.capacity.time_for(len),
            byte_time => byte_time * len.0,
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        while self.free_at <= cx.now() {
            let Some((_, len, mut packet)) = self.voqs.dequeue(cx.now()) else { break };
            // The line fell free before now only if it had nothing to do.
            self.idle += cx.now() - self.free_at;
            let service = self.service(len);
            self.busy += service;
            self.moved += len;
            self.free_at = cx.now() + service;
            self.served += 1;
            if cx.collecting() {
                let wait = cx.now() - packet.entered;
                packet.visit(self.stage, wait, service, Duration::ZERO);
            }
            cx.send_at(FORWARD, packet, self.free_at);
        }
        if let Some(ready) = self.voqs.ready_at() {
            let at = ready.max(self.free_at);
            if self.armed != at {
                self.armed = at;
                cx.arm(SEND, at);
            }
        }
    }

    /// Tells this port's backlogs in the record that its output queue began.
    fn record(&mut self, cx: &mut Context<'_>, mut record: Packet) {
        let Periodic { port, board, told, told_periods, .. } = &mut *self.periodic;
        self.voqs.list_backlogs(told);
        *told_periods += 1;
        let output = record.transport[WORD_BACKLOG];
        board.tell(*told_periods, *port, output, told);
        record.transport[WORD_PORT] = *port as u64;
        cx.send(RECORDS, record);
    }
}

impl Element for Ingress {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        match port {
            OWN_BACKLOG => self.record(cx, packet),
            NOTICE => {
                let Periodic { port, board, told, periods, .. } = &mut *self.periodic;
                let shares = board.get(packet.transport[WORD_PORT]);
                self.voqs.allocate_in(cx.now(), told, shares, &mut board.of(*port).spare);
                *periods += 1;
                cx.deliver(packet);
                self.send(cx);
            }
            _ => {
                let Some(output) = self.directory.port(packet.destination) else {
                    cx.drop(packet, Some(self.stage), "no route");
                    return;
                };
                packet.entered = cx.now();
                let (now, len) = (cx.now(), packet.len);
                if let Err(packet) = self.voqs.enqueue(now, output, len, packet) {
                    self.periodic.refused += 1;
                    cx.drop(packet, Some(self.stage), "full");
                    return;
                }
                let packets = self.voqs.packets().try_into().unwrap_or(u32::MAX);
                self.packets_most = self.packets_most.max(packets);
                self.send(cx);
            }
        }
    }
    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.armed = Time::MAX;
        self.send(cx);
    }
    fn foresees(&self) -> Foresight {
        Foresight::Steps
    }
    #[inline]
    fn foresee(&self, next: Foreseen<'_>, look: Look) -> Option<PortId> {
        let is_first = look == Look::First;
        if let Foreseen::Timer = next {
            // The queue first, and then its packet.
            match is_first {
                true => self.voqs.prefetch_next(),
                false => self.voqs.next().into_iter().for_each(Packet::prefetch),
            }
            return Some(FORWARD);
        }
        let destination = match next {
            Foreseen::Packet(NOTICE, _) => {
                if !is_first {
                    self.voqs.prefetch_all();
                }
                return None;
            }
            Foreseen::Packet(_, packet) => Some(packet.destination),
            Foreseen::Neighbour(destination) => destination,
            Foreseen::Timer => None,
        };
        // What is known of the queue first, and then what that says where to find.
        match destination.and_then(|node| self.directory.port(node)) {
            output if is_first => self.voqs.prefetch(output),
            Some(output) => self.voqs.prefetch_owed(output),
            None => {}
        }
        Some(FORWARD)
    }
    fn report(&self, out: &mut Report) {
        out.held(self.voqs.packets());
        let now = out.now();
        let busy = self.busy - self.free_at.saturating_since(now);
        let idle = self.idle + now.saturating_since(self.free_at);
        let served = (self.served > 0).then_some((self.stage, busy));
        out.meter(&Meter::of(self.periodic.resource, now, served, idle, self.moved));
        out.count("served", self.served);
        out.count("refused", self.periodic.refused);
        out.count("packets_most", self.packets_most.into());
        out.count("periods", self.periodic.periods);
    }
}

/// Waits for the records of all ports, and says to each that the sums are known.
pub struct Exchange {
    board: Board,
    records: Vec<Packet>,
    allocation: Allocation,
    number: u64,
}

impl Exchange {
    /// One for the ports that these equations are for.
    pub fn new(allocation: Allocation, board: Board) -> Exchange {
        Exchange { board, records: Vec::with_capacity(allocation.ports), allocation, number: 0 }
    }
}

impl Element for Exchange {
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, record: Packet) {
        self.records.push(record);
        if self.records.len() < self.allocation.ports {
            return;
        }
        self.number += 1;
        self.board.close(self.number, &self.allocation);
        for mut notice in self.records.drain(..) {
            let port = PortId(notice.transport[WORD_PORT] as u16);
            notice.transport[WORD_PORT] = self.number;
            cx.send(port, notice);
        }
    }
    fn timers(&self) -> u32 {
        0
    }
    fn is_seldom_busy(&self) -> bool {
        true
    }
    fn report(&self, out: &mut Report) {
        out.held(self.records.len() as u64);
        out.count("summaries", self.number);
    }
}
