//! An input of a fabric as an element: its virtual output queues and its line into the fabric; and the exchange of
//! all ports' backlogs.
//!
//! ```text
//! in 0 --> [ Ingress: VOQs, rates ] --> out 0 the fabric
//!           in 1 ^ B(j)   | out 1 record      ^ in 2 notice
//!           (its output)  v                   |
//!          [ Exchange ] collects the records of all ports, and notifies each of them
//! ```
//!
//! In the document, each port receives and sums the records of all ports; here they are summed once, because the
//! sums are equal. A record takes time but none of the fabric's capacity.

use super::allocation::{Allocation, Shares, Summary};
use super::output::Line;
use super::voq::{Rules, Spare, Voqs};
use lastmeter_base::{Bytes, Duration, NodeId, Packet, Rate, StageId, Time};
use lastmeter_engine::{
    Context, Element, ElementId, Foreseen, Foresight, Look, Meter, PortId, Report, ResourceId,
    TimerId,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where packets enter and leave a port of a node made of many elements.
pub type Place = ((ElementId, PortId), (ElementId, PortId));

/// The port of each node, by [`NodeId`]: four bytes each, since every element looks up every packet.
#[derive(Clone, Debug)]
pub struct Directory(Arc<[u32]>);

/// No port for this node.
const NO_PORT: u32 = u32::MAX;

impl Directory {
    /// The routes to these nodes, with their ports.
    pub fn of(nodes: &[(NodeId, usize)]) -> Directory {
        let len = nodes.iter().map(|(node, _)| node.0 as usize + 1).max().unwrap_or(0);
        let mut ports = vec![NO_PORT; len];
        nodes.iter().for_each(|&(node, port)| ports[node.0 as usize] = port as u32);
        Directory(ports.into())
    }
    /// The port by which a packet leaves.
    #[inline]
    pub fn port(&self, destination: NodeId) -> Option<usize> {
        let port = *self.0.get(destination.0 as usize)?;
        (port != NO_PORT).then_some(port as usize)
    }
}

/// Size of a record or a notice: one cell.
pub(super) const RECORD_LEN: Bytes = Bytes(53);
/// Fields of a record: its port, and B(j); of a notice: its period.
const WORD_PORT: usize = 0;
pub(super) const WORD_BACKLOG: usize = 1;

/// Backlogs of the last periods, by the number of the period. Records are summed here when they are sent, and read
/// only after the last record has reached the exchange.
///
/// The ports of a switch report together: one thread runs them all, and none waits for another.
#[derive(Clone, Debug)]
pub struct Board(Arc<Told>);

/// All ports report a period before any reports the next, and are notified of it before any is of the next.
const BOARD_LEN: usize = 2;

#[derive(Debug)]
struct Told {
    ports: usize,
    /// Ports per switch.
    module: usize,
    /// Sums by switch.
    together: Vec<Mutex<Together>>,
    /// Shares computed from the records of all ports, by period.
    shares: Mutex<[Arc<Shares>; BOARD_LEN]>,
}

/// The backlogs of a switch's ports, and their shared scratch memory.
#[derive(Debug)]
#[repr(align(128))]
struct Together {
    told: [Summary; BOARD_LEN],
    spare: Spare<Packet>,
}

impl Board {
    /// An empty table for these ports, in switches of `module` ports.
    pub fn new(ports: usize, module: usize) -> Board {
        let module = module.max(1);
        let told = || Summary { output: vec![0; module], inputs: vec![0; ports] };
        let together = || {
            Mutex::new(Together { told: std::array::from_fn(|_| told()), spare: Spare::default() })
        };
        let together = (0..ports.div_ceil(module)).map(|_| together()).collect();
        Board(Arc::new(Told { ports, module, together, shares: Mutex::default() }))
    }
    /// The memory shared by the ports of a switch, by the number of any of them.
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
    /// All records of a period are in: its slot is cleared for a later period.
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

/// Parameters and state shared by all inputs of a fabric.
pub struct InputOptions {
    /// How queues are served.
    pub rules: Arc<Rules>,
    /// The routes to the ports.
    pub directory: Directory,
    /// Where sums are read.
    pub board: Board,
    /// Queues and lines in the books.
    pub stage: StageId,
}

/// The virtual output queues of a port, and its line into the fabric. The state used for each packet takes four
/// cache lines.
#[repr(C, align(64))]
pub struct Ingress {
    voqs: Voqs<Packet>,
    free_at: Time,
    /// When the timer is due; [`Time::MAX`] if it is not armed.
    armed: Time,
    /// Time per byte on the line into the fabric, if a whole number of picoseconds; otherwise zero.
    byte_time: Duration,
    /// Busy time of that line until `free_at`.
    busy: Duration,
    moved: Bytes,
    served: u64,
    packets_most: u64,
    options: Arc<InputOptions>,
    periodic: Box<Periodic>,
}

const _: () = assert!(size_of::<Ingress>() == 256);

/// State used only when backlogs are exchanged, or at the end.
struct Periodic {
    resource: ResourceId,
    /// S L: the rate of the line into the fabric.
    capacity: Rate,
    port: usize,
    /// The content of the last record, and the number of records.
    told: Vec<(usize, u64)>,
    told_periods: u64,
    periods: u64,
    refused: u64,
}

const SEND: TimerId = TimerId(0);
/// Port for packets into an input.
pub const PACKETS: PortId = PortId(0);
/// Port for records of its own port's output queue.
pub const OWN_BACKLOG: PortId = PortId(1);
/// Port for notices that sums are ready.
pub const NOTICE: PortId = PortId(2);
/// Port for packets into the fabric.
pub const FORWARD: PortId = PortId(0);
/// Port for records.
pub const RECORDS: PortId = PortId(1);

/// See [`Ingress::byte_time`].
fn byte_time(rate: Rate) -> Duration {
    let time = rate.time_for(Bytes(1));
    let is_whole = u128::from(time.as_ps()) * u128::from(rate.as_bits()) == 8 * 1_000_000_000_000;
    if is_whole { time } else { Duration::ZERO }
}

impl Ingress {
    /// The input of a port, empty, with this line into the fabric.
    pub fn new(port: usize, (capacity, resource): Line, options: Arc<InputOptions>) -> Ingress {
        let (told, told_periods, periods, refused) = (Vec::new(), 0, 0, 0);
        Ingress {
            voqs: Voqs::new(options.rules.clone()),
            free_at: Time::START,
            armed: Time::MAX,
            byte_time: byte_time(capacity),
            busy: Duration::ZERO,
            moved: Bytes::ZERO,
            served: 0,
            packets_most: 0,
            options,
            periodic: Box::new(Periodic {
                resource,
                capacity,
                port,
                told,
                told_periods,
                periods,
                refused,
            }),
        }
    }

    /// Time on the line.
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
            let service = self.service(len);
            self.busy += service;
            self.moved += len;
            self.free_at = cx.now() + service;
            self.served += 1;
            if cx.collecting() {
                let wait = cx.now() - packet.entered;
                packet.visit(self.options.stage, wait, service, Duration::ZERO);
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

    /// Adds this port's backlogs to the record begun by its output queue.
    fn record(&mut self, cx: &mut Context<'_>, mut record: Packet) {
        let Periodic { port, told, told_periods, .. } = &mut *self.periodic;
        self.voqs.list_backlogs(told);
        *told_periods += 1;
        let output = record.transport[WORD_BACKLOG];
        self.options.board.tell(*told_periods, *port, output, told);
        record.transport[WORD_PORT] = *port as u64;
        cx.send(RECORDS, record);
    }
}

impl Element for Ingress {
    fn receive(&mut self, cx: &mut Context<'_>, port: PortId, mut packet: Packet) {
        match port {
            OWN_BACKLOG => self.record(cx, packet),
            NOTICE => {
                let Periodic { port, told, periods, .. } = &mut *self.periodic;
                let board = &self.options.board;
                let shares = board.get(packet.transport[WORD_PORT]);
                self.voqs.allocate_in(cx.now(), told, shares, &mut board.of(*port).spare);
                *periods += 1;
                cx.deliver(packet);
                self.send(cx);
            }
            _ => {
                let Some(output) = self.options.directory.port(packet.destination) else {
                    cx.drop(packet, Some(self.options.stage), "no route");
                    return;
                };
                packet.entered = cx.now();
                let (now, len) = (cx.now(), packet.len);
                if let Err(packet) = self.voqs.enqueue(now, output, len, packet) {
                    self.periodic.refused += 1;
                    cx.drop(packet, Some(self.options.stage), "full");
                    return;
                }
                self.packets_most = self.packets_most.max(self.voqs.packets());
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
        // Prefetch the queue's index first, then what it points to.
        match destination.and_then(|node| self.options.directory.port(node)) {
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
        // The line is free only while there is nothing to send.
        let idle = now.since_start() - busy;
        let served = (self.served > 0).then_some((self.options.stage, busy));
        out.meter(&Meter::of(self.periodic.resource, now, served, idle, self.moved));
        out.count("served", self.served);
        out.count("refused", self.periodic.refused);
        out.count("packets_most", self.packets_most);
        out.count("periods", self.periodic.periods);
    }
}

/// Waits for the records of all ports, and notifies each port that the sums are ready.
pub struct Exchange {
    board: Board,
    records: Vec<Packet>,
    allocation: Allocation,
    number: u64,
}

impl Exchange {
    /// An exchange for the ports that these equations are for.
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

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_base::PathId;
    use lastmeter_engine::{Graph, ResourceInfo, ResourceKind, StageInfo, VirtualClock};

    /// Sends five packets at once, and five more after 100 us.
    struct Twice(PathId);

    impl Element for Twice {
        fn start(&mut self, cx: &mut Context<'_>) {
            cx.arm(TimerId(0), Time::START);
            cx.arm(TimerId(1), Time::START + Duration::from_us(100));
        }
        fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
            (0..5).for_each(|_| {
                let packet = cx.make(self.0, Bytes(1500));
                cx.send(PortId(0), packet);
            });
        }
        fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
            cx.deliver(packet);
        }
        fn timers(&self) -> u32 {
            2
        }
    }

    #[test]
    fn the_line_of_an_input_is_busy_while_it_sends() {
        // 6 us per packet.
        for (us, busy, moved) in [(7, 7, 3000), (50, 30, 7500), (115, 45, 12_000)] {
            let mut graph = Graph::new(1);
            let path = graph.path("path", "class");
            let info = ResourceInfo::new("line", ResourceKind::Wire);
            let line = (Rate::from_gbit(2), graph.resource(info));
            let name = "input".to_owned();
            let stage = graph.stage(StageInfo::new(name, None));
            let period = Duration::from_us(500);
            let rules = Rules { allocation: None, period, room: Bytes::from_mib(1) }.into();
            let directory = Directory::of(&[(NodeId(0), 0)]);
            let options = InputOptions { rules, directory, board: Board::new(0, 1), stage };
            let twice = graph.add("twice", Twice(path)).unwrap();
            let ingress = graph.add("in", Ingress::new(0, line, options.into())).unwrap();
            graph.connect(twice, PortId(0), ingress, PACKETS).unwrap();
            graph.connect(ingress, FORWARD, twice, PortId(0)).unwrap();
            let mut engine = graph.build(1).unwrap();
            let end = Time::START + Duration::from_us(us);
            engine.run_until(end, &mut VirtualClock::default()).unwrap();
            let line = &engine.finish().unwrap().books.resources[0];
            let idle = u128::from(us) - busy;
            assert_eq!((line.busy(), line.idle), (busy * 1_000_000, idle * 1_000_000), "{us} us");
            assert_eq!(line.moved, moved, "{us} us");
        }
    }
}
