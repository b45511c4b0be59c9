//! A host's end of many connections, as an element.
//!
//! ```text
//! in 0 --> segments --> [ connection of the flow ] --> segments --> out 0
//!                          ^ application        drops: `no connection`
//! ```
//!
//! All connections share one engine timer, so that the number of events does not grow with the flows.

use super::due::Due;
use super::{Config, Connection, Segment, State};
use lastmeter_base::{Bytes, Duration, FlowId, NodeId, Packet, PathId, Time, prefetch};
use lastmeter_engine::{
    Context, Element, Foreseen, Foresight, Look, PortId, Report, TimerId, Transfer,
};
use std::sync::Arc;

/// An end's application. It reads whatever arrives at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// Waits for a connection and sends nothing; closes when the peer does.
    Sink,
    /// Opens a connection and sends as much as the send buffer takes.
    Source {
        /// When it opens the connection.
        start: Time,
        /// How much it sends before it closes; `None` for unlimited.
        bytes: Option<Bytes>,
        /// The size of a write, and the interval between writes; `None` to fill the buffer.
        paced: Option<(Bytes, Duration)>,
    },
}

/// Labels of packets in addition to their segment.
#[derive(Clone, Copy, Debug)]
pub struct Labels {
    /// The path to which they are accounted.
    pub path: PathId,
    /// The class of packets with data.
    pub class: u8,
    /// The class of packets without.
    pub class_acknowledging: u8,
}

impl Labels {
    /// A packet that carries `segment` of `flow`, with number `seq` of its sender.
    #[inline]
    pub(super) fn packet(
        &self,
        cx: &mut Context<'_>,
        segment: &Segment,
        (flow, destination): (FlowId, NodeId),
        seq: u64,
    ) -> Packet {
        let mut packet = cx.make(self.path, Bytes(segment.packet_len()));
        packet.flow = flow;
        packet.destination = destination;
        packet.seq = seq;
        packet.class = match segment.len {
            0 => self.class_acknowledging,
            _ => self.class,
        };
        packet.ecn = segment.ecn;
        packet.transport = segment.pack();
        packet
    }
}

/// An application's own actions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acts {
    Closes,
    Writes,
    WritesPaced,
}

/// One of the flows; fields used by each segment come first.
#[repr(C)]
struct Slot {
    connection: Connection,
    destination: NodeId,
    /// Most packets sent at once, and the total.
    burst_most: u32,
    sent: u64,
    /// Its entry in the heap; [`Time::MAX`] for none.
    queued: Time,
    /// When the application next acts on its own.
    acts_at: Time,
    /// Bytes that the application has not written yet.
    left: u64,
    acts: Acts,
    application: Application,
    /// When all that its application wrote was acknowledged; [`Time::MAX`] before.
    completed: Time,
}

/// Runs the connections of one host.
pub struct TcpHost {
    labels: Labels,
    config: Arc<Config>,
    /// The number of the first flow; the others follow it.
    first: u32,
    slots: Vec<Slot>,
    /// Whether any of them sends data.
    sends: bool,
    due: Due,
}

impl TcpHost {
    /// A host without connections yet; the first will be that of flow `first`.
    pub fn new(labels: Labels, config: impl Into<Arc<Config>>, first: FlowId) -> TcpHost {
        TcpHost {
            labels,
            config: config.into(),
            first: first.0,
            slots: Vec::new(),
            sends: false,
            due: Due::new(),
        }
    }

    /// Adds the end of the next flow; its packets go to `destination`.
    pub fn add(&mut self, destination: NodeId, application: Application) {
        let (left, acts_at) = match application {
            Application::Sink => (0, Time::MAX),
            Application::Source { start, bytes, .. } => (bytes.map_or(u64::MAX, |b| b.0), start),
        };
        let acts = match application {
            Application::Sink => Acts::Closes,
            Application::Source { paced: None, .. } => Acts::Writes,
            Application::Source { paced: Some(_), .. } => Acts::WritesPaced,
        };
        self.sends |= acts != Acts::Closes;
        let connection = Connection::listen(self.config.clone(), 0);
        self.slots.push(Slot {
            connection,
            application,
            acts,
            destination,
            sent: 0,
            burst_most: 0,
            left,
            acts_at,
            queued: Time::MAX,
            completed: Time::MAX,
        });
    }

    /// The number of its first flow.
    pub fn first(&self) -> FlowId {
        FlowId(self.first)
    }

    /// The connections, in the order of their flows.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().map(|slot| &slot.connection)
    }

    /// Lets the application act, sends what may go, and sets the timer.
    #[inline]
    fn turn(&mut self, cx: &mut Context<'_>, index: usize) {
        let now = cx.now();
        let slot = &mut self.slots[index];
        slot.act(now);
        let mut burst = 0;
        while let Some(segment) = slot.connection.transmit(now) {
            let flow = FlowId(self.first + index as u32);
            let packet = self.labels.packet(cx, &segment, (flow, slot.destination), slot.sent);
            slot.sent += 1;
            burst += 1;
            cx.send(PortId(0), packet);
        }
        slot.burst_most = slot.burst_most.max(burst);
        self.schedule(cx, index);
    }

    #[inline]
    fn schedule(&mut self, cx: &mut Context<'_>, index: usize) {
        let slot = &mut self.slots[index];
        self.due.schedule(cx, index as u32, slot.ready_at(), &mut slot.queued);
    }
}

impl Slot {
    #[inline]
    fn ready_at(&self) -> Time {
        self.connection.ready_at().unwrap_or(Time::MAX).min(self.acts_at)
    }

    #[inline]
    fn act(&mut self, now: Time) {
        let readable = self.connection.readable();
        if readable > 0 {
            self.connection.consume(readable);
        }
        match self.acts {
            Acts::Closes if self.connection.state() == State::CloseWait => self.connection.close(),
            Acts::Closes => {}
            Acts::Writes | Acts::WritesPaced => self.write(now),
        }
    }

    /// Notes when the last byte was acknowledged.
    #[inline]
    fn complete(&mut self, now: Time) {
        if self.left == 0
            && self.completed == Time::MAX
            && let Application::Source { bytes: Some(bytes), .. } = self.application
            && self.connection.acknowledged() >= bytes.0
        {
            self.completed = now;
        }
    }

    /// What became of the connection that it opened; `None` if it opened none.
    fn transfer(&self, path: PathId, flow: FlowId) -> Option<Transfer> {
        let Application::Source { start, .. } = self.application else { return None };
        let opened = !matches!(self.connection.state(), State::Listen);
        opened.then_some(Transfer {
            path,
            flow,
            began: start,
            completed: (self.completed < Time::MAX).then_some(self.completed),
            bytes: self.connection.acknowledged(),
        })
    }

    #[inline]
    fn write(&mut self, now: Time) {
        if self.acts == Acts::WritesPaced {
            self.write_paced(now);
        } else if self.left > 0 {
            self.left -= self.connection.offer(self.left);
        }
        if self.left == 0 {
            self.acts_at = Time::MAX;
            self.connection.close();
        }
    }

    fn write_paced(&mut self, now: Time) {
        let Application::Source { paced: Some((chunk, gap)), .. } = self.application else {
            return;
        };
        while self.acts_at <= now && self.left > 0 {
            self.left -= self.connection.offer(chunk.0.min(self.left));
            // Each deadline is relative to the last one: no drift on a wall clock.
            self.acts_at += gap;
        }
    }
}

impl Element for TcpHost {
    fn start(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.slots.len() {
            let iss = cx.rng().bits() as u32;
            let slot = &mut self.slots[index];
            slot.connection = Connection::listen(self.config.clone(), iss);
            self.schedule(cx, index);
        }
    }

    #[inline]
    fn receive(&mut self, cx: &mut Context<'_>, _port: PortId, packet: Packet) {
        let index = packet.flow.0.wrapping_sub(self.first) as usize;
        let Some(slot) = self.slots.get_mut(index) else {
            return cx.drop(packet, None, "no connection");
        };
        let mut segment = Segment::unpack(&packet.transport);
        segment.ecn = packet.ecn;
        let before = slot.connection.received();
        slot.connection.receive(cx.now(), &segment, &packet.content);
        cx.deliver_useful(packet, slot.connection.received().saturating_sub(before));
        slot.complete(cx.now());
        self.turn(cx, index);
    }

    fn expire(&mut self, cx: &mut Context<'_>, _timer: TimerId) {
        self.due.expired();
        let now = cx.now();
        while let Some((at, index)) = self.due.next(now) {
            let slot = &mut self.slots[index as usize];
            if slot.queued != at {
                continue; // Superseded by an earlier entry.
            }
            slot.queued = Time::MAX;
            if slot.ready_at() > now {
                self.schedule(cx, index as usize);
                continue;
            }
            slot.begin(now, &self.config);
            slot.connection.expire(now);
            self.turn(cx, index as usize);
        }
        self.due.rearm(cx);
    }

    fn foresees(&self) -> Foresight {
        Foresight::Next
    }

    #[inline]
    fn foresee(&self, next: Foreseen<'_>, _look: Look) -> Option<PortId> {
        let index = match next {
            Foreseen::Packet(_, packet) => {
                packet.prefetch_rest();
                packet.flow.0.wrapping_sub(self.first)
            }
            Foreseen::Timer => self.due.first().unwrap_or(u32::MAX),
            Foreseen::Neighbour(_) => return None,
        };
        if let Some(slot) = self.slots.get(index as usize) {
            slot.connection.prefetch(self.sends);
            prefetch(&slot.destination);
        }
        None
    }

    fn report(&self, out: &mut Report) {
        let sum = |value: fn(&Connection) -> u64| self.connections().map(value).sum();
        for (flow, slot) in (self.first..).map(FlowId).zip(&self.slots) {
            slot.transfer(self.labels.path, flow)
                .into_iter()
                .for_each(|transfer| out.transfer(transfer));
        }
        out.count("connections", self.slots.len() as u64);
        out.count("segments", sum(|tcp| tcp.counters().sent));
        out.count("acknowledged", sum(Connection::acknowledged));
        out.count("consumed", sum(Connection::delivered));
        let delivered = self.connections().map(|tcp| tcp.delivered().max(tcp.acknowledged()));
        let delivered: Vec<u64> = delivered.collect();
        out.count("least", delivered.iter().copied().min().unwrap_or(0));
        out.count("most", delivered.iter().copied().max().unwrap_or(0));
        out.count("deviation", deviation(&delivered));
        out.count("retransmissions", sum(|tcp| tcp.counters().retransmissions));
        out.count("recoveries", sum(|tcp| tcp.counters().recoveries));
        out.count("timeouts", sum(|tcp| tcp.counters().timeouts));
        out.count("waited_ps", sum(|tcp| tcp.counters().waited.as_ps()));
        out.count("repairing_ps", sum(|tcp| tcp.counters().repairing.as_ps()));
        let most = self.slots.iter().map(|slot| slot.burst_most).max().unwrap_or(0);
        out.count("burst_most", most.into());
        out.count("reductions", sum(|tcp| tcp.counters().reductions));
        out.count("window", sum(|tcp| tcp.window().congestion));
        let rtt = self.connections().filter_map(|tcp| tcp.rtt().smoothed);
        let (count, total) = rtt.fold((0, Duration::ZERO), |(n, sum), rtt| (n + 1, sum + rtt));
        out.count("rtt_mean_ps", (total / u64::max(count, 1)).as_ps());
    }
}

impl Slot {
    /// Opens the connection when its time has come.
    fn begin(&mut self, now: Time, config: &Arc<Config>) {
        let Application::Source { start, paced, .. } = self.application else { return };
        if self.connection.state() == State::Listen && start <= now {
            let iss = self.connection.initial_sequence();
            self.connection = Connection::connect(now, config.clone(), iss);
            self.acts_at = if paced.is_some() { now } else { Time::MAX };
        }
    }
}

/// The standard deviation of the flows' bytes, rounded down.
fn deviation(values: &[u64]) -> u64 {
    let mean = values.iter().sum::<u64>() as f64 / values.len().max(1) as f64;
    let squares: f64 = values.iter().map(|&value| (value as f64 - mean).powi(2)).sum();
    (squares / values.len().max(1) as f64).sqrt() as u64
}
