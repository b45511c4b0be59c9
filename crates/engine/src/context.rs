//! An element's interface to the outside world.

use crate::books::DropKey;
use crate::trace::TraceKind;
use crate::world::World;
use crate::{PortId, TimerId};
use lastmeter_base::{Bytes, Packet, PathId, StageId, Stream, Time};

/// Bits of a packet's number that count its element's packets.
const MADE_BITS: u32 = 40;

/// What a handler is given: the time, and the ways to act.
pub struct Context<'a> {
    me: usize,
    world: &'a mut World,
}

impl<'a> Context<'a> {
    #[inline]
    pub(crate) fn new(me: usize, world: &'a mut World) -> Context<'a> {
        Context { me, world }
    }

    /// The instant at which this handler runs.
    #[inline]
    pub fn now(&self) -> Time {
        self.world.now
    }

    /// Sends out of `port`. The peer receives it at this instant, after the handler has returned, or later by
    /// the delay of the edge. If the port is not connected, it is dropped and counted.
    #[inline]
    pub fn send(&mut self, port: PortId, packet: Packet) {
        if let Some(packet) = self.world.pass(self.me, port, packet) {
            self.send_at(port, packet, self.world.now);
        }
    }

    /// Sends out of `port` a packet whose last bit leaves at `departs`, now or later, so that the sender need
    /// not wake up at the departure. Packets leave a port in the order of sending.
    #[inline]
    pub fn send_at(&mut self, port: PortId, packet: Packet, departs: Time) {
        self.trace(TraceKind::Send(port), packet.id);
        if let Some(packet) = self.world.send(self.me, port, packet, departs) {
            self.drop_unconnected(packet);
        }
    }

    #[cold]
    fn drop_unconnected(&mut self, packet: Packet) {
        self.drop(packet, None, "unconnected");
    }

    /// Whether `at` has passed for this element: it is before now, or it is now and a timer that this element
    /// had set for it would have expired before this handler.
    #[inline]
    pub fn is_past(&self, at: Time) -> bool {
        at < self.world.now || (at == self.world.now && self.world.precedes(self.me))
    }

    /// Sets `timer` to expire at `at`, replacing an earlier setting. A past `at` means now.
    #[inline]
    pub fn arm(&mut self, timer: TimerId, at: Time) {
        self.world.arm(self.me, timer.0, at);
    }

    /// Disarms `timer`.
    pub fn disarm(&mut self, timer: TimerId) {
        self.world.disarm(self.me, timer.0);
    }

    /// A new packet of `len`, accounted to `path` from now on.
    #[inline]
    pub fn make(&mut self, path: PathId, len: Bytes) -> Packet {
        let now = self.world.now;
        self.world.books.offer(now, path, len);
        let maker = &mut self.world.makers[self.me];
        let id = u64::from(self.world.places[self.me].id.0) << MADE_BITS | maker.made;
        maker.made += 1;
        let mut packet = self.world.pool.take(len);
        packet.born = now;
        packet.path = path;
        packet.id = id;
        self.trace(TraceKind::Make, id);
        packet
    }

    /// The packet has reached its end and is entered in the books. All of it is useful to an application.
    #[inline]
    pub fn deliver(&mut self, packet: Packet) {
        let useful = packet.len.0;
        self.deliver_useful(packet, useful);
    }

    /// The same for a packet that brings an application only `useful` bytes: with headers, an
    /// acknowledgement, a duplicate, or the one that fills a gap before bytes that came earlier.
    #[inline]
    pub fn deliver_useful(&mut self, packet: Packet, useful: u64) {
        self.trace(TraceKind::Deliver, packet.id);
        self.world.books.deliver(self.world.now, self.me as u32, &packet, useful);
        self.world.pool.give(packet);
    }

    /// Drops the packet, at `stage`, for `reason`.
    pub fn drop(&mut self, packet: Packet, stage: Option<StageId>, reason: &'static str) {
        self.trace(TraceKind::Drop(reason), packet.id);
        self.world.books.drop(&packet, DropKey { stage, reason });
        self.world.pool.give(packet);
    }

    /// Counts a packet that arrived after a later one of its flow.
    pub fn note_reordered(&mut self, path: PathId) {
        self.world.books.paths[path.0 as usize].reordered += 1;
    }

    /// Counts a packet whose content is not what its source sent.
    pub fn note_corrupted(&mut self, path: PathId) {
        self.world.books.paths[path.0 as usize].corrupted += 1;
    }

    /// Counts a new message with a deadline.
    pub fn note_message(&mut self, path: PathId) {
        self.world.books.paths[path.0 as usize].deadlines.made += 1;
    }

    /// Counts such a message as complete at its sink, in time or late.
    pub fn note_arrival(&mut self, path: PathId, in_time: bool) {
        let deadlines = &mut self.world.books.paths[path.0 as usize].deadlines;
        match in_time {
            true => deadlines.met += 1,
            false => deadlines.late += 1,
        }
    }

    /// Whether stages are being recorded; an element need not record visits otherwise.
    #[inline]
    pub fn collecting(&self) -> bool {
        self.world.books.collecting
    }

    /// The element's own random stream, derived from the seed and the element's name.
    #[inline]
    pub fn rng(&mut self) -> &mut Stream {
        &mut self.world.makers[self.me].stream
    }

    #[inline]
    fn trace(&mut self, kind: TraceKind, packet: u64) {
        if self.world.trace.is_some() {
            self.trace_kept(kind, packet);
        }
    }

    #[cold]
    fn trace_kept(&mut self, kind: TraceKind, packet: u64) {
        let (now, cause, id) = (self.world.now, self.world.cause, self.world.places[self.me].id);
        if let Some(trace) = &mut self.world.trace {
            trace.add(now, cause, id, kind, packet);
        }
    }
}
