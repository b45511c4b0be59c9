//! Where packets leave: a queue discipline of the models, a shaper, the interface.
//!
//! ```text
//! frame + flow --> [ queue discipline ] ----> shaper --> interface
//!            |        drops, marks       |
//!            +---> [ reserved flows ] ---+
//! ```
//!
//! The discipline sees a packet of the models whose sequence number is the place of its frame.

use super::count::{Counters, Reason};
use super::line::Line;
use super::parse::ETHERNET;
use lastmeter_base::{Bytes, Duration, Ecn, FlowId, Packet, Pool, Rate, Time};
use lastmeter_lan::labels::reserved::{Promise, Reserved};
use lastmeter_linux::dataplane::{Frame, Frames};
use lastmeter_net::queue::{Granted, Queue};
use lastmeter_plugin::instance;
use lastmeter_wire::internet::checksum::update_field;
use std::sync::atomic::Ordering::Relaxed;

/// Line time of a packet beyond its bytes: Ethernet header, preamble, check sequence, gap (IEEE 802.3).
pub const FRAMING: Bytes = Bytes(ETHERNET as u64 + 24);
/// For how long a line whose packets waited makes up for a thread that the system kept from running: more would be a
/// burst that no line makes.
const LATE_MAX: Duration = Duration::from_ms(50);
/// How far a shaper may be ahead, since a thread cannot wake up for each packet.
pub const BURST: Duration = Duration::from_us(200);

/// The metadata of a queued packet.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// Its frame.
    pub frame: Frame,
    /// Its flow, for disciplines with a queue per flow.
    pub flow: u32,
    /// Its class, by the first three bits of its DSCP.
    pub class: u8,
    /// Its ECN field.
    pub ecn: Ecn,
}

/// The output side of a port.
pub struct Output {
    queue: Box<dyn Queue>,
    /// Flows with a reservation.
    pub reserved: Reserved,
    rate: Option<Rate>,
    framing: Bytes,
    /// When the line is free again.
    free_at: Time,
    /// Whether the interface is up.
    pub up: bool,
}

fn frame_of(packet: &Packet) -> Frame {
    Frame { at: packet.seq as u32, len: packet.len.0 as u16 }
}

impl Output {
    /// With this queue; departures are shaped to `rate`.
    pub fn new(queue: Box<dyn Queue>, rate: Option<Rate>) -> Output {
        let (reserved, free_at) = (Reserved::default(), Time::START);
        Output { queue, reserved, rate, framing: FRAMING, free_at, up: true }
    }
    /// Replaces the shaper's rate, and the line time of a packet beyond its bytes.
    pub fn set_line(&mut self, rate: Option<Rate>, framing: Bytes) {
        (self.rate, self.framing) = (rate, framing);
    }
    /// What this flow has in the queue, and what the queue grants it of the line; nothing is known of a line that is
    /// not shaped.
    pub fn granted(&self, flow: u32, class: u8, pool: &mut Pool) -> Option<instance::Queue> {
        let rate = self.rate?;
        let mut packet = pool.take(Bytes::ZERO);
        (packet.flow, packet.class) = (FlowId(flow), class);
        let Granted { len, share } = self.queue.granted(&packet);
        pool.give(packet);
        Some(instance::Queue { len, share, rate })
    }
    /// Replaces the queue; waiting packets move to the new one, as far as there is room.
    pub fn set_queue(
        &mut self,
        now: Time,
        queue: Box<dyn Queue>,
        pool: &mut Pool,
        frames: &mut Frames,
        count: &Counters,
    ) {
        let mut old = std::mem::replace(&mut self.queue, queue);
        // Disciplines that hold packets until an instant release them at that instant.
        let mut at = now;
        while old.packets() > 0 {
            if let Some(packet) = old.dequeue(at) {
                if let Err(packet) = self.queue.enqueue(now, packet) {
                    lose(packet, Reason::QueueFull, pool, frames, count);
                }
            } else if let Some(later) = old.ready_at(at).filter(|later| *later > at) {
                at = later;
            } else {
                break;
            }
        }
        while let Some((packet, _)) = old.dropped() {
            lose(packet, Reason::QueueDrop, pool, frames, count);
        }
        self.drops(pool, frames, count);
    }
    /// Replaces the flows with a reservation; packets of those that have none any more join the queue.
    pub fn set_reserved(
        &mut self,
        now: Time,
        promises: Vec<Promise>,
        pool: &mut Pool,
        frames: &mut Frames,
        count: &Counters,
    ) {
        let old = std::mem::take(&mut self.reserved);
        let (reserved, gone) = Reserved::new(promises, old);
        self.reserved = reserved;
        for packet in gone {
            if let Err(packet) = self.queue.enqueue(now, packet) {
                lose(packet, Reason::QueueFull, pool, frames, count);
            }
        }
        self.drops(pool, frames, count);
    }
    /// How many packets wait.
    pub fn waiting(&self) -> u64 {
        self.queue.packets() + self.reserved.packets()
    }
    /// How many bytes wait.
    pub fn waiting_bytes(&self) -> u64 {
        self.queue.bytes().0 + self.reserved.bytes()
    }
    /// Queues a packet; of a reservation, in the queue with its number.
    #[inline]
    pub fn enqueue(
        &mut self,
        now: Time,
        leaving: Leaving,
        reservation: Option<u32>,
        pool: &mut Pool,
        frames: &mut Frames,
        count: &Counters,
    ) {
        let mut packet = pool.take(Bytes(leaving.frame.len.into()));
        packet.seq = leaving.frame.at.into();
        packet.flow = FlowId(leaving.flow);
        packet.class = leaving.class;
        packet.ecn = leaving.ecn;
        packet.entered = now;
        packet.born = now;
        if self.waiting() == 0 && self.free_at < now {
            self.free_at = now;
        }
        let queued = match reservation {
            None => self.queue.enqueue(now, packet),
            Some(number) => self.reserved.enqueue(number as usize, packet),
        };
        if let Err(packet) = queued {
            lose(packet, Reason::QueueFull, pool, frames, count);
        }
        self.drops(pool, frames, count);
    }
    /// The next packet to leave: of a flow within its reservation, of the queue, of a flow beyond it.
    #[inline]
    fn next(&mut self, now: Time) -> Option<Packet> {
        let framing = self.framing;
        let on_line =
            |packet: &Packet| Bytes(packet.len.0.saturating_sub(ETHERNET as u64)) + framing;
        self.reserved
            .dequeue(now, false, on_line)
            .or_else(|| self.queue.dequeue(now))
            .or_else(|| self.reserved.dequeue(now, true, on_line))
    }
    fn drops(&mut self, pool: &mut Pool, frames: &mut Frames, count: &Counters) {
        while let Some((packet, _)) = self.queue.dropped() {
            lose(packet, Reason::QueueDrop, pool, frames, count);
        }
    }
    /// Passes packets to the interface, as many as it accepts and the shaper allows; returns how many, and their
    /// total waiting time in nanoseconds.
    pub fn drain(
        &mut self,
        now: Time,
        line: &mut Line,
        pool: &mut Pool,
        frames: &mut Frames,
        count: &Counters,
    ) -> (u64, u64) {
        if line.waiting() > 0 {
            line.reclaim(frames);
        }
        let (mut sent, mut bytes, mut queued) = (0, 0, 0);
        if self.waiting() > 0 {
            let room = line.room();
            // It has had packets since it was free: they would be on their way.
            let late = now.saturating_since(self.free_at).min(LATE_MAX);
            let earliest = Time::from_ps(now.as_ps() - late.as_ps());
            while (sent as usize) < room {
                if self.rate.is_some() && self.free_at > now + BURST {
                    break;
                }
                let Some(packet) = self.next(now) else {
                    // What the discipline keeps back does not keep the line waiting.
                    self.free_at = self.free_at.max(now);
                    break;
                };
                let frame = frame_of(&packet);
                if packet.ecn == Ecn::Ce {
                    mark(frames.bytes_mut(frame));
                }
                if let Some(rate) = self.rate {
                    let begin = self.free_at.max(earliest);
                    let bytes = u64::from(frame.len).saturating_sub(ETHERNET as u64);
                    self.free_at = begin + rate.time_for(Bytes(bytes) + self.framing);
                }
                queued += now.saturating_since(packet.entered).as_ps() / 1000;
                pool.give(packet);
                if !self.up {
                    frames.free(frame);
                    count.drop(Reason::LinkDown);
                    continue;
                }
                line.put(frame);
                sent += 1;
                bytes += u64::from(frame.len);
            }
            self.drops(pool, frames, count);
        }
        if sent > 0 || line.waiting() > 0 {
            // The kernel sends some frames with each call; the rest stays in its ring and needs another call.
            if let Ok(up) = line.flush() {
                self.up = up;
            }
            line.reclaim(frames);
        }
        if sent > 0 {
            Counters::add(&count.sent, sent);
            Counters::add(&count.sent_bytes, bytes);
        }
        count.held.store(self.waiting(), Relaxed);
        (sent, queued)
    }
    /// When it can next send a waiting packet; `None` if none waits.
    pub fn ready_at(&self, now: Time) -> Option<Time> {
        let queue = match self.reserved.packets() {
            0 if self.queue.packets() == 0 => return None,
            0 => self.queue.ready_at(now)?,
            // If nothing else does, one of these may leave.
            _ => now,
        };
        let line = match self.rate {
            Some(_) if self.free_at > now + BURST => {
                now + self.free_at.saturating_since(now + BURST)
            }
            _ => now,
        };
        Some(if queue > line { queue } else { line })
    }
}

/// A packet is not sent.
fn lose(packet: Packet, reason: Reason, pool: &mut Pool, frames: &mut Frames, count: &Counters) {
    frames.free(frame_of(&packet));
    pool.give(packet);
    count.drop(reason);
}

/// Marks a packet with CE, congestion experienced (RFC 3168 §5).
fn mark(frame: &mut [u8]) {
    let Some((ethernet, packet)) = frame.split_at_mut_checked(14) else { return };
    match ethernet[12..14] {
        [8, 0] if packet.len() >= 20 => {
            let old = [packet[0], packet[1]];
            packet[1] |= 3;
            let sum = u16::from_be_bytes([packet[10], packet[11]]);
            let new = update_field(sum, &old, &packet[..2]);
            packet[10..12].copy_from_slice(&new.to_be_bytes());
        }
        [0x86, 0xdd] if packet.len() >= 40 => packet[1] |= 0x30,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_wire::internet::ipv4;

    #[test]
    fn a_marked_packet_keeps_a_good_checksum() {
        let mut frame = vec![0; 12];
        frame.extend([8, 0]);
        let header = ipv4::Header {
            traffic_class: 2,
            ..ipv4::Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17)
        };
        header.emit(0, &mut frame).expect("fits");
        mark(&mut frame);
        let packet = ipv4::Packet::parse(&frame[14..]).expect("a good checksum");
        assert_eq!(packet.header().traffic_class, 3);
    }
}
