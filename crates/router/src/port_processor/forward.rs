//! A batch of packets, from arrival to the output queues.
//!
//! ```text
//! receive --> parse --> classify --> plugins --> lookup --> forward --> queue
//!               |           |           |          |           |
//!             drop        deny        deny       answer      answer, cut, hold
//! ```
//!

use super::answer::{self, Fault};
use super::count::{Counters, Reason};
use super::decide::{class, flow};
use super::hop::Way;
use super::label::{Labelled, has as has_label};
use super::output::Leaving;
use super::parse::{Addresses, ETHERNET, Seen, deserves_an_answer, parse, v4, v6};
use super::plugin::Passing;
use super::{Event, Going, HELD_MAX, Held, PATIENCE, PortProcessor};
use crate::in_band::{self, Asked};
use crate::rsvp::PROTOCOL;
use lastmeter_base::{Ecn, Time};
use lastmeter_linux::dataplane::Frame;
use lastmeter_net::lookup::NextHop;
use std::net::IpAddr;
use std::time::Instant;

/// Packets of a batch.
pub const BATCH: usize = 64;

/// A packet of the batch.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) passing: Passing,
    /// The number of its next hop.
    pub(super) hop: u32,
    /// Whether its hop stays though a plugin changes its destination.
    pub(super) pinned: bool,
    /// The queue of its flow, if a plugin chose one.
    pub(super) queue: Option<u32>,
    /// The port that a plugin chose.
    pub(super) port: Option<u16>,
    /// A filter's plugin.
    pub(super) plugin: Option<u32>,
    /// Its flow's treatment.
    pub(super) flow: Option<u32>,
    /// Whether only its addresses determine its path, so that the fast path may handle it.
    pub(super) plain: bool,
    /// Whether addresses, ports and protocol determine what rules and tables say of it.
    pub(super) same: bool,
    /// Whether that was known when it arrived.
    pub(super) hinted: bool,
    pub(super) gone: bool,
}

impl Work {
    pub(super) fn new(passing: Passing) -> Work {
        Work {
            passing,
            hop: 0,
            pinned: false,
            queue: None,
            port: None,
            plugin: None,
            flow: None,
            plain: true,
            same: true,
            hinted: false,
            gone: false,
        }
    }
}

impl PortProcessor {
    /// Processes a batch of at most `most` packets from a port; returns their number.
    pub(super) fn batch(&mut self, port: u16, now: Time, most: usize) -> usize {
        let timed = self.batches.is_multiple_of(super::SAMPLE).then(Instant::now);
        let at = usize::from(port);
        self.arrived.clear();
        let Some(line) = &mut self.lines[at] else { return 0 };
        let taken = line.receive(most, &mut self.frames, &mut self.arrived);
        if taken == 0 {
            return 0;
        }
        self.batches += 1;
        let mut clock = Lap { last: timed, spent: [0; 6] };
        clock.lap(0);
        self.work.clear();
        let (mut bytes, arrived) = (0, std::mem::take(&mut self.arrived));
        for frame in &arrived {
            bytes += u64::from(frame.len);
            match parse(self.frames.bytes(*frame)) {
                Ok(seen) if !seen.source_routed => {
                    if seen.has_options {
                        self.asks(port, *frame, &seen, now);
                    }
                    if seen.protocol == PROTOCOL && self.signals(port, *frame, &seen, now) {
                        continue;
                    }
                    let passing = Passing { frame: *frame, seen, hash: seen.hash() };
                    let mut one = Work::new(passing);
                    if self.fast {
                        self.take_hint(port, &mut one);
                    }
                    self.work.push(one);
                }
                Ok(seen) => {
                    self.refuse(port, *frame, &seen, Fault::SourceRoute, Reason::SourceRoute, now)
                }
                Err(Reason::NotIp) if has_label(self.frames.bytes(*frame)) => {
                    let popped = self.switch(port, *frame, now);
                    self.work.extend(popped);
                }
                Err(reason) => {
                    self.frames.free(*frame);
                    self.counts[at].drop(reason);
                }
            }
        }
        self.arrived = arrived;
        Counters::add(&self.counts[at].received, taken as u64);
        Counters::add(&self.counts[at].received_bytes, bytes);
        clock.lap(1);
        let mut work = std::mem::take(&mut self.work);
        if self.rules.is_some() {
            self.classify(port, &mut work);
        }
        clock.lap(2);
        self.plugins(port, &mut work, now);
        clock.lap(3);
        self.lookup(port, &mut work);
        clock.lap(4);
        for one in work.iter().filter(|one| !one.gone) {
            self.forward(port, one, now);
        }
        self.depart(now);
        clock.lap(5);
        self.work = work;
        if timed.is_some() {
            self.sampling = true;
            for (stage, spent) in clock.spent.iter().enumerate() {
                Counters::add(&self.stages.spent[stage], *spent);
            }
            Counters::add(&self.stages.packets, taken as u64);
        }
        taken
    }

    fn forward(&mut self, port: u16, one: &Work, now: Time) {
        let Passing { frame, seen, hash } = one.passing;
        if one.hop == 0 {
            return self.refuse(port, frame, &seen, Fault::NoRoute, Reason::NoRoute, now);
        }
        let neighbour = match self.hops.way(one.hop, hash) {
            Way::To(neighbour) => Some(neighbour),
            Way::OnLink(to) => self.hops.number(to, destination(&seen)),
            Way::Blackhole => {
                self.frames.free(frame);
                return self.counts[usize::from(port)].drop(Reason::Blackhole);
            }
            Way::Unreachable => {
                return self.refuse(port, frame, &seen, Fault::NoRoute, Reason::Unreachable, now);
            }
            Way::Prohibited => {
                return self.refuse(
                    port,
                    frame,
                    &seen,
                    Fault::Prohibited,
                    Reason::Unreachable,
                    now,
                );
            }
        };
        if seen.hops <= 1 {
            return self.refuse(port, frame, &seen, Fault::Expired, Reason::Expired, now);
        }
        if let Some(to) = one.port {
            return self.send_to_port(port, &one.passing, to, now);
        }
        let Some(neighbour) = neighbour else {
            return self.refuse(port, frame, &seen, Fault::NoNeighbour, Reason::NoNeighbour, now);
        };
        let (passing, queue) = (one.passing, one.queue);
        let treatment = one.flow.map(|flow| &self.treatments[flow as usize]);
        let reserved = treatment.and_then(|own| own.reserved);
        // A label is for the next router of its flow, which told it.
        let label = treatment.filter(|own| own.labels.hop == one.hop);
        let label = label.and_then(|own| own.labels.next).map_or(Labelled::No, Labelled::Push);
        let (departed, hop, crossed) = (false, true, false);
        let going =
            Going { port, passing, neighbour, queue, reserved, departed, hop, crossed, label };
        self.deliver(going, now);
        if self.fast {
            self.consider(port, one, neighbour);
        }
    }

    /// Sends a packet to its destination's neighbour on a port that a plugin chose, without asking the routing table.
    pub(super) fn send_to_port(&mut self, port: u16, passing: &Passing, to: u16, now: Time) {
        let number = (usize::from(to) < self.ports.len())
            .then(|| self.hops.number(to, destination(&passing.seen)))
            .flatten();
        match number {
            Some(neighbour) if passing.seen.hops > 1 => {
                let (passing, queue, reserved) = (*passing, None, None);
                let (departed, hop, crossed, label) = (false, true, false, Labelled::No);
                let going = Going {
                    port,
                    passing,
                    neighbour,
                    queue,
                    reserved,
                    departed,
                    hop,
                    crossed,
                    label,
                };
                self.deliver(going, now);
            }
            _ => {
                self.frames.free(passing.frame);
                self.counts[usize::from(port)].drop(Reason::Plugin);
            }
        }
    }

    /// Sends a packet to a neighbour.
    pub(super) fn deliver(&mut self, going: Going, now: Time) {
        let Going { passing: Passing { frame, seen, hash }, neighbour, queue, hop, label, .. } =
            going;
        let to = *self.hops.neighbour(neighbour);
        let Some(macs) = to.macs else { return self.hold(going, now) };
        if self.crossing.as_ref().is_some_and(|ways| ways.takes(to.port, going.crossed)) {
            return self.cross(going, to, now);
        }
        let out = &mut self.ports[usize::from(to.port)];
        if !out.departing.is_empty() && !going.departed {
            return out.leaving.push(going);
        }
        if seen.len + label.more() > out.mtu {
            return self.too_long(going, now);
        }
        let flow = queue.unwrap_or(flow(hash, out.flows));
        // Padding of short frames goes with them; the kernel pads what it sends.
        let frame = Frame { at: frame.at, len: ETHERNET as u16 + seen.len };
        let bytes = self.frames.bytes_mut(frame);
        bytes[..12].copy_from_slice(&macs);
        if hop {
            one_hop_less(&mut bytes[ETHERNET..], &seen);
        }
        let frame = match label {
            Labelled::Push(label) => match self.push(frame, label, &seen, hop) {
                Some(frame) => frame,
                None => return self.counts[usize::from(going.port)].drop(Reason::NoFrame),
            },
            _ => frame,
        };
        // Nobody marks a packet behind a label.
        let ecn = if label == Labelled::No { seen.ecn() } else { Ecn::NotCapable };
        let leaving = Leaving { frame, flow, class: class(&seen), ecn };
        let at = usize::from(to.port);
        let (output, count) = (&mut self.ports[at].output, &self.counts[at]);
        let reservation = match going.reserved {
            Some((port, number)) if port == to.port => Some(number),
            _ => None,
        };
        output.enqueue(now, leaving, reservation, &mut self.pool, &mut self.frames, count);
    }

    /// Fragments a packet longer than the next link's MTU, or notifies its source (RFC 791, RFC 1191, RFC 8201).
    fn too_long(&mut self, going: Going, now: Time) {
        let Going { port, passing, neighbour, .. } = going;
        let seen = passing.seen;
        if going.label == Labelled::Has {
            self.frames.free(passing.frame);
            return self.counts[usize::from(port)].drop(Reason::TooBig);
        }
        let mtu = self.ports[usize::from(self.hops.neighbour(neighbour).port)].mtu;
        let mtu = mtu.saturating_sub(going.label.more());
        if !seen.may_fragment || !matches!(seen.addresses, Addresses::V4(..)) {
            return self.refuse(
                port,
                passing.frame,
                &seen,
                Fault::TooBig(mtu),
                Reason::TooBig,
                now,
            );
        }
        let frame = self.frames.bytes(passing.frame);
        let parts = answer::fragments(&frame[ETHERNET..][..usize::from(seen.len)], mtu.into());
        self.frames.free(passing.frame);
        if parts.is_empty() {
            return self.counts[usize::from(port)].drop(Reason::TooBig);
        }
        Counters::add(&self.counts[usize::from(port)].made, parts.len() as u64 - 1);
        for part in parts {
            let made = self.make(&part);
            let Some((frame, seen)) = made else {
                self.counts[usize::from(port)].drop(Reason::NoFrame);
                continue;
            };
            let passing = Passing { frame, seen, hash: passing.hash };
            self.deliver(Going { passing, ..going }, now);
        }
    }

    /// A frame of our own with an IP packet.
    pub(super) fn make(&mut self, packet: &[u8]) -> Option<(Frame, Seen)> {
        let mut bytes = Vec::with_capacity(ETHERNET + packet.len());
        bytes.resize(12, 0);
        bytes.extend(if packet.first()? >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        bytes.extend_from_slice(packet);
        let seen = parse(&bytes).ok()?;
        Some((self.frames.make(&bytes)?, seen))
    }

    /// Holds a packet until its neighbour is resolved.
    fn hold(&mut self, going: Going, now: Time) {
        let to = *self.hops.neighbour(going.neighbour);
        self.tell(Event::Resolve { port: to.port, address: to.address });
        if self.held.len() >= HELD_MAX {
            self.frames.free(going.passing.frame);
            return self.counts[usize::from(going.port)].drop(Reason::NoNeighbour);
        }
        self.held.push(Held { going, until: now + PATIENCE });
    }

    /// Sends packets whose neighbours are now resolved; drops those that have waited too long.
    pub(super) fn release(&mut self, now: Time) {
        let waiting = std::mem::take(&mut self.held);
        let mut silent = Vec::new();
        for held in waiting {
            let Going { port, passing, neighbour, hop, .. } = held.going;
            if self.hops.neighbour(neighbour).macs.is_some() {
                self.deliver(held.going, now);
            } else if now < held.until {
                self.held.push(held);
            } else {
                silent.push(neighbour);
                let (fault, reason) = (Fault::NoNeighbour, Reason::NoNeighbour);
                match hop {
                    true => self.refuse(port, passing.frame, &passing.seen, fault, reason, now),
                    // No errors for packets that the router generated itself.
                    false => {
                        self.frames.free(passing.frame);
                        self.counts[usize::from(port)].drop(reason);
                    }
                }
            }
        }
        self.depart(now);
        silent.sort_unstable();
        silent.dedup();
        for neighbour in silent {
            if self.held.iter().all(|held| held.going.neighbour != neighbour) {
                self.hops.forget(neighbour);
            }
        }
    }

    /// Drops a packet and notifies its source, at a limited rate.
    pub(super) fn refuse(
        &mut self,
        port: u16,
        frame: Frame,
        seen: &Seen,
        fault: Fault,
        reason: Reason,
        now: Time,
    ) {
        self.counts[usize::from(port)].drop(reason);
        let said = {
            let own = self.ports[usize::from(port)].own;
            let packet = &self.frames.bytes(frame)[ETHERNET..];
            let may = deserves_an_answer(packet, seen) && self.answers.may(now);
            may.then(|| answer::error(packet, seen, fault, own)).flatten()
        };
        self.frames.free(frame);
        if let Some(said) = said {
            self.send_own(port, &said, now);
        }
    }

    /// Sends a packet of the router's own, because of one that arrived at a port.
    fn send_own(&mut self, port: u16, packet: &[u8], now: Time) {
        let Some((frame, seen)) = self.make(packet) else { return };
        Counters::add(&self.counts[usize::from(port)].made, 1);
        let hop = match seen.addresses {
            Addresses::V4(_, dst) => self.v4.lookup(dst),
            Addresses::V6(_, dst) => self.v6.lookup(dst),
        };
        let hash = seen.hash();
        let neighbour = match self.hops.way(hop.map_or(super::hop::UNREACHABLE, NextHop::get), hash)
        {
            Way::To(neighbour) => Some(neighbour),
            Way::OnLink(to) => self.hops.number(to, destination(&seen)),
            _ => None,
        };
        match neighbour {
            Some(neighbour) => {
                let (passing, queue, reserved) = (Passing { frame, seen, hash }, None, None);
                let going = Going {
                    port,
                    passing,
                    neighbour,
                    queue,
                    reserved,
                    departed: false,
                    hop: false,
                    crossed: false,
                    label: Labelled::No,
                };
                self.deliver(going, now);
            }
            None => {
                self.frames.free(frame);
                self.counts[usize::from(port)].drop(Reason::NoRoute);
            }
        }
    }

    /// What a packet with options asks of routers, if its port may.
    fn asks(&mut self, port: u16, frame: Frame, seen: &Seen, now: Time) {
        if self.ports[usize::from(port)].in_band
            && let Some(asked) = in_band::parse(&self.frames.bytes(frame)[ETHERNET..], seen)
            && self.asking.may(now)
        {
            self.tell(Event::Asked { port, asked });
        }
    }

    /// Both ends of a flow are told that it is refused, and so are the routers on its way.
    pub(super) fn tell_ends(&mut self, port: u16, asked: &Asked) {
        let Some(from) = self.ports.get(usize::from(port)).and_then(|port| port.own.v4) else {
            return;
        };
        let now = self.now();
        for to in [asked.flow.src, asked.flow.dst] {
            self.send_own(port, &asked.refusal(from, to), now);
        }
        self.depart(now);
    }
}

/// Where a packet goes, as an address.
pub(super) fn destination(seen: &Seen) -> IpAddr {
    match seen.addresses {
        Addresses::V4(_, dst) => IpAddr::V4(v4(dst)),
        Addresses::V6(_, dst) => IpAddr::V6(v6(dst)),
    }
}

/// TTL or hop limit, and the checksum (RFC 1141).
#[inline]
fn one_hop_less(packet: &mut [u8], seen: &Seen) {
    match seen.addresses {
        Addresses::V4(..) => {
            packet[8] -= 1;
            let sum = u32::from(u16::from_be_bytes([packet[10], packet[11]])) + 0x100;
            let sum = (sum + u32::from(sum >= 0xffff)) as u16;
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Addresses::V6(..) => packet[7] -= 1,
    }
}

/// Times of a batch that is sampled.
struct Lap {
    last: Option<Instant>,
    spent: [u64; 6],
}

impl Lap {
    #[inline]
    fn lap(&mut self, stage: usize) {
        if let Some(last) = self.last {
            let now = Instant::now();
            self.spent[stage] = u64::try_from((now - last).as_nanos()).unwrap_or(0);
            self.last = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastmeter_wire::internet::ipv4;

    #[test]
    fn a_forwarded_header_has_one_hop_less_and_a_good_checksum() {
        for hops in [2, 64, 255] {
            for identification in 0..2000u16 {
                let header = ipv4::Header {
                    time_to_live: hops,
                    identification: identification.wrapping_mul(33),
                    ..ipv4::Header::new([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), 17)
                };
                let mut frame = vec![0; 12];
                frame.extend([8, 0]);
                header.emit(0, &mut frame).expect("fits");
                let seen = parse(&frame).expect("a packet");
                one_hop_less(&mut frame[ETHERNET..], &seen);
                let packet = ipv4::Packet::parse(&frame[ETHERNET..]).expect("a good checksum");
                assert_eq!(packet.header().time_to_live, hops - 1);
            }
        }
    }
}
