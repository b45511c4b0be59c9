//! Packets with labels (MPLS), and messages about them (RSVP): what a port processor does with both.
//!
//! ```text
//! flow's packet ------------------------------------> lookup, plugins --> push --> queue
//! 0x8847 --> label known here, at this port? --> swap, one hop less -------------> queue of its flow
//!                 |                          --> pop --> as any packet of IP, or to the next router it names
//!                 no: dropped, `label`
//! RSVP, with Router Alert or to an address of ours --> control processor, `signal`
//! ```
//!
//! The hops that are left are those of the packet (the uniform model, RFC 3443 §3.1): a label takes them along, and
//! gives them back. A packet whose hops end between labels is answered as any other, if there is a route to its source.
//! Where the next link's MTU has no room for a label, packets are cut or their sources told so before it is put in
//! front; what has a label already is dropped (`too-big`). Plugins see packets without labels alone.
//!
//! Rows: D-43.

use super::answer::Fault;
use super::count::{Counters, Reason};
use super::forward::Work;
use super::hop::Way;
use super::parse::{Addresses, ETHERNET, Seen, parse};
use super::plugin::Passing;
use super::{Event, Going, PortProcessor};
use crate::mpls::{self, SHIM_LEN, Shim};
use crate::rsvp::{PROTOCOL, is_alert};
use lastmeter_base::Time;
use lastmeter_linux::dataplane::{Frame, Frames};
use lastmeter_wire::internet::checksum::update_field;
use std::net::IpAddr;

/// The label of a packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labelled {
    /// It has none.
    No,
    /// It gets this one.
    Push(u32),
    /// It is in the frame.
    Has,
}

impl Labelled {
    /// Bytes that it adds to a packet.
    #[inline]
    pub(super) fn more(self) -> u16 {
        if matches!(self, Labelled::Push(_)) { SHIM_LEN as u16 } else { 0 }
    }
}

/// What the file and RSVP say of a flow's labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Its packets arrive with this one, at this port.
    pub arrives: Option<(u32, u16)>,
    /// They leave with this one.
    pub next: Option<u32>,
    /// For this hop; 0 if the routing table decides.
    pub hop: u32,
}

/// Whether a frame has a label.
pub(super) fn has(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&mpls::ETHERTYPE)
}

impl PortProcessor {
    /// A packet with a label has arrived: it joins the batch if it goes on without one.
    pub(super) fn switch(&mut self, port: u16, frame: Frame, now: Time) -> Option<Work> {
        let Some(shim) = Shim::parse(&self.frames.bytes(frame)[ETHERNET..]) else {
            return self.loses(port, frame, Reason::Truncated);
        };
        let known = self.labels.binary_search_by_key(&shim.label, |(label, _)| *label);
        let number = known.ok().map(|at| self.labels[at].1);
        let treatment = number.map(|number| &mut self.treatments[number as usize]);
        let Some((treatment, number)) = treatment.zip(number) else {
            return self.loses(port, frame, Reason::Label);
        };
        let Labels { arrives, next, hop } = treatment.labels;
        if arrives != Some((shim.label, port)) {
            return self.loses(port, frame, Reason::Label);
        }
        treatment.seen += 1;
        let reserved = treatment.reserved;
        match next {
            Some(label) => self.swap(port, frame, (shim, label), (hop, reserved), now),
            None if shim.bottom => self.pop(port, frame, shim, (hop, number)),
            // Nobody here knows what the label below means.
            None => self.loses(port, frame, Reason::Label),
        }
    }

    fn loses(&mut self, port: u16, frame: Frame, reason: Reason) -> Option<Work> {
        self.frames.free(frame);
        self.counts[usize::from(port)].drop(reason);
        None
    }

    /// It goes on with another label.
    fn swap(
        &mut self,
        port: u16,
        frame: Frame,
        (shim, label): (Shim, u32),
        (hop, reserved): (u32, Option<(u16, u32)>),
        now: Time,
    ) -> Option<Work> {
        if shim.ttl <= 1 {
            return self.ends(port, frame, shim, now);
        }
        let hash = u64::from(label) << 32;
        let Way::To(neighbour) = self.hops.way(hop, hash) else {
            return self.loses(port, frame, Reason::NoRoute);
        };
        let new = Shim { label, ttl: shim.ttl - 1, ..shim };
        self.frames.bytes_mut(frame)[ETHERNET..][..SHIM_LEN].copy_from_slice(&new.emit());
        let seen = Seen {
            addresses: Addresses::V4(0, label),
            ports: (0, 0),
            protocol: mpls::PROTOCOL,
            traffic_class: shim.class << 5,
            hops: new.ttl,
            len: frame.len - ETHERNET as u16,
            is_fragment: false,
            may_fragment: false,
            has_options: false,
            source_routed: false,
        };
        let passing = Passing { frame, seen, hash };
        let (departed, hop, crossed, label) = (true, false, false, Labelled::Has);
        let queue = None;
        let going =
            Going { port, passing, neighbour, queue, reserved, departed, hop, crossed, label };
        self.deliver(going, now);
        None
    }

    /// Its hops end here.
    fn ends(&mut self, port: u16, frame: Frame, shim: Shim, now: Time) -> Option<Work> {
        let bare = bare(&mut self.frames, frame);
        let seen = parse(self.frames.bytes(bare)).ok().filter(|_| shim.bottom);
        let Some(seen) = seen else { return self.loses(port, bare, Reason::Expired) };
        self.refuse(port, bare, &seen, Fault::Expired, Reason::Expired, now);
        None
    }

    /// It goes on without a label: as any other packet, or to the next router that its flow names.
    fn pop(
        &mut self,
        port: u16,
        frame: Frame,
        shim: Shim,
        (hop, number): (u32, u32),
    ) -> Option<Work> {
        let bare = bare(&mut self.frames, frame);
        let mut seen = match parse(self.frames.bytes(bare)) {
            Ok(seen) => seen,
            Err(reason) => return self.loses(port, bare, reason),
        };
        if seen.source_routed {
            return self.loses(port, bare, Reason::SourceRoute);
        }
        set_hops(&mut self.frames.bytes_mut(bare)[ETHERNET..], &mut seen, shim.ttl);
        let mut one = Work::new(Passing { frame: bare, seen, hash: seen.hash() });
        // The fast path knows no labels.
        (one.plain, one.same) = (false, false);
        if hop != 0 {
            (one.hop, one.pinned, one.hinted, one.flow) = (hop, true, true, Some(number));
        }
        Some(one)
    }

    /// Puts a label in front of a packet that leaves. `None`: there is no room, and the frame is free.
    pub(super) fn push(
        &mut self,
        frame: Frame,
        label: u32,
        seen: &Seen,
        hop: bool,
    ) -> Option<Frame> {
        let Some(longer) = frame.with_front(SHIM_LEN as u16) else {
            self.frames.free(frame);
            return None;
        };
        let ttl = seen.hops.saturating_sub(hop.into());
        let shim = Shim { label, class: seen.traffic_class >> 5, bottom: true, ttl };
        let bytes = self.frames.bytes_mut(longer);
        bytes.copy_within(SHIM_LEN..SHIM_LEN + 12, 0);
        bytes[12..14].copy_from_slice(&mpls::ETHERTYPE);
        bytes[ETHERNET..][..SHIM_LEN].copy_from_slice(&shim.emit());
        Some(longer)
    }

    /// Hands a message of RSVP to the control processor, if it is for this router; whether it was.
    pub(super) fn signals(&mut self, port: u16, frame: Frame, seen: &Seen, now: Time) -> bool {
        let Addresses::V4(_, dst) = seen.addresses else { return false };
        let to_us =
            self.ports.iter().any(|port| port.own.v4.is_some_and(|own| u32::from(own) == dst));
        let whole = seen.protocol == PROTOCOL && !seen.is_fragment;
        if !whole || !self.ports[usize::from(port)].labels {
            return false;
        }
        let packet = &self.frames.bytes(frame)[ETHERNET..][..usize::from(seen.len)];
        if !to_us && !is_alert(packet) {
            return false;
        }
        let packet = packet.to_vec();
        let reason = if self.asking.may(now) { Reason::Signal } else { Reason::SignalLost };
        if reason == Reason::Signal {
            self.tell(Event::Signal { port, packet });
        }
        self.frames.free(frame);
        self.counts[usize::from(port)].drop(reason);
        true
    }

    /// Sends a packet of the control processor to a neighbour.
    pub(super) fn send_signal(&mut self, port: u16, to: IpAddr, packet: &[u8]) {
        if usize::from(port) >= self.ports.len() {
            return;
        }
        let now = self.now();
        let Some((frame, seen)) = self.make(packet) else { return };
        Counters::add(&self.counts[usize::from(port)].made, 1);
        let Some(neighbour) = self.hops.number(port, to) else {
            self.frames.free(frame);
            return self.counts[usize::from(port)].drop(Reason::NoNeighbour);
        };
        let passing = Passing { frame, seen, hash: seen.hash() };
        let (queue, reserved, label) = (None, None, Labelled::No);
        let (departed, hop, crossed) = (true, false, false);
        let going =
            Going { port, passing, neighbour, queue, reserved, departed, hop, crossed, label };
        self.deliver(going, now);
    }
}

/// The frame without its label.
fn bare(frames: &mut Frames, frame: Frame) -> Frame {
    let bytes = frames.bytes_mut(frame);
    let kind = match bytes.get(ETHERNET + SHIM_LEN).map(|first| first >> 4) {
        Some(6) => [0x86, 0xdd],
        _ => [0x08, 0x00],
    };
    bytes.copy_within(..12, SHIM_LEN);
    bytes[12 + SHIM_LEN..14 + SHIM_LEN].copy_from_slice(&kind);
    let by = SHIM_LEN as u16;
    Frame { at: frame.at + u32::from(by), len: frame.len - by }
}

/// A packet has no more hops left than its label had.
fn set_hops(packet: &mut [u8], seen: &mut Seen, ttl: u8) {
    if ttl >= seen.hops {
        return;
    }
    seen.hops = ttl;
    match seen.addresses {
        Addresses::V4(..) => {
            let old = [packet[8], packet[9]];
            packet[8] = ttl;
            let sum = u16::from_be_bytes([packet[10], packet[11]]);
            let new = update_field(sum, &old, &packet[8..10]);
            packet[10..12].copy_from_slice(&new.to_be_bytes());
        }
        Addresses::V6(..) => packet[7] = ttl,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_processor::hop::{FIRST, Next};
    use crate::port_processor::line::Line;
    use crate::port_processor::null::{Made, NEXT, frame};
    use crate::port_processor::{Change, Setup, Treatment};
    use lastmeter_base::Rate;
    use lastmeter_lan::labels::reserved::Promise;
    use lastmeter_linux::dataplane::FlowTo;
    use lastmeter_net::classify::{Action, Classifier, Filter, Rule, Verdict};
    use lastmeter_net::lookup::NextHop;
    use lastmeter_wire::internet::ipv4;
    use std::net::Ipv4Addr;
    use std::sync::atomic::Ordering::Relaxed;

    const TO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
    const IN: u32 = 524_301;
    const OUT: u32 = 77;

    /// A frame to `TO` with this label in front.
    fn labelled(shim: Shim) -> Vec<u8> {
        let plain = frame(TO);
        [&plain[..12], &mpls::ETHERTYPE, &shim.emit(), &plain[ETHERNET..]].concat()
    }
    fn shim(label: u32, ttl: u8) -> Shim {
        Shim { label, class: 5, bottom: true, ttl }
    }
    fn treatment(labels: Labels, reserved: Option<(u16, u32)>) -> Treatment {
        let name = "film".to_owned();
        Treatment { name, reserved, functions: Vec::new(), labels, seen: 0 }
    }
    /// A router with one flow: these frames arrive, and what leaves is returned, with what was dropped and why.
    fn passed(
        arriving: Vec<Vec<u8>>,
        setup: impl FnOnce(&mut Setup),
    ) -> (Vec<Vec<u8>>, Vec<(String, u64)>, Made) {
        let count = arriving.len();
        let made = Made::with(&[([192, 0, 2, 0].into(), 24)], arriving, false, setup);
        let mut made = made.expect("there is memory");
        if let Some(Line::Null(out)) = &mut made.processor.lines[1] {
            out.kept = Some(Vec::new());
        }
        let hop = vec![Next { port: 1, address: Some(NEXT) }];
        made.change(Change::Hop(FIRST + 1, hop)).expect("it runs");
        made.resolve().expect("it runs");
        made.processor.change();
        let now = made.processor.now();
        made.processor.batch(0, now, count);
        let _ = made.processor.drain();
        let Some(Line::Null(out)) = &mut made.processor.lines[1] else { panic!("a device") };
        let left = out.kept.take().expect("they are kept");
        let mut counts = made.counts[0].each();
        counts.retain(|(name, _)| name.starts_with("dropped/"));
        (left, counts, made)
    }
    fn with(labels: Labels) -> impl FnOnce(&mut Setup) {
        move |setup| setup.treatments = vec![treatment(labels, None)]
    }

    #[test]
    fn a_known_label_is_swapped_at_its_port_alone_and_all_others_are_counted_d_43() {
        let labels = Labels { arrives: Some((IN, 0)), next: Some(OUT), hop: FIRST + 1 };
        let arriving = vec![
            labelled(shim(IN, 9)),
            labelled(shim(IN + 1, 9)),
            labelled(shim(IN, 1)),
            labelled(Shim { bottom: false, ..shim(IN, 9) }),
            frame(TO)[..12].iter().copied().chain([0x88, 0x47, 0, 0]).collect(),
        ];
        let (left, dropped, made) = passed(arriving.clone(), with(labels));
        let heads: Vec<Option<Shim>> = left.iter().map(|bytes| Shim::parse(&bytes[14..])).collect();
        let not_last = Shim { bottom: false, ..shim(OUT, 8) };
        assert_eq!(heads, [Some(shim(OUT, 8)), Some(not_last)]);
        assert!(left[0][..6] == [2, 0, 0, 0, 0, 9] && has(&left[0]), "{left:?}");
        assert_eq!(left[0][18..], arriving[0][18..], "the packet is as it was");
        // The source of what has expired cannot be told: this router has no address.
        let reasons = [("truncated", 1), ("expired", 1), ("label", 1)];
        let reasons = reasons.map(|(name, count)| (format!("dropped/{name}"), count));
        assert_eq!(dropped, reasons);
        assert_eq!(made.processor.treatments[0].seen, 3);
        // At another port it is nobody's.
        let elsewhere = Labels { arrives: Some((IN, 1)), ..labels };
        let (left, dropped, _) = passed(vec![labelled(shim(IN, 9))], with(elsewhere));
        assert_eq!((left.len(), dropped), (0, vec![("dropped/label".to_owned(), 1)]));
    }

    #[test]
    fn a_popped_packet_goes_on_as_any_other_with_the_hops_of_its_label_d_43() {
        for (hop, ttl, hops) in [(0, 9, 8), (FIRST + 1, 9, 8), (0, 255, 63)] {
            let labels = Labels { arrives: Some((IN, 0)), next: None, hop };
            let (left, dropped, made) = passed(vec![labelled(shim(IN, ttl))], with(labels));
            assert_eq!(dropped, []);
            let packet = ipv4::Packet::parse(&left[0][ETHERNET..]).expect("a good checksum");
            assert_eq!((packet.header().time_to_live, packet.dst()), (hops, TO));
            assert_eq!(made.processor.treatments[0].seen, 1);
        }
        let labels = Labels { arrives: Some((IN, 0)), next: None, hop: 0 };
        let arriving = [Shim { bottom: false, ..shim(IN, 9) }, shim(IN, 1)].map(labelled);
        let (left, dropped, _) = passed(arriving.into(), with(labels));
        let reasons = ["expired", "label"].map(|name| (format!("dropped/{name}"), 1));
        assert_eq!((left.len(), dropped), (0, reasons.into()));
    }

    #[test]
    fn a_known_flow_with_a_hint_gets_its_label_as_well_d_43() {
        let setup = |setup: &mut Setup| {
            let labels = Labels { arrives: None, next: Some(OUT), hop: FIRST + 1 };
            setup.treatments = vec![treatment(labels, None)];
            setup.rules = Some(all_of_it());
        };
        let network = [([192, 0, 2, 0].into(), 24)];
        let made = Made::with(&network, vec![frame(TO)], true, setup);
        let mut made = made.expect("there is memory");
        let hop = vec![Next { port: 1, address: Some(NEXT) }];
        made.change(Change::Hop(FIRST + 1, hop)).expect("it runs");
        made.resolve().expect("it runs");
        let _ = made.processor.turn();
        let noted = made.events.try_iter().find_map(|event| match event {
            Event::Flow { to: FlowTo::Socket(hint), .. } => Some(hint.get()),
            _ => None,
        });
        for (at, line) in made.processor.lines.iter_mut().flatten().enumerate() {
            let Line::Null(null) = line else { panic!("a device") };
            null.hint =
                if at == 0 { noted.expect("it is noted, and not for the fast path") } else { 0 };
            null.kept = Some(Vec::new());
        }
        let _ = made.processor.turn();
        assert!(made.counts[0].hinted.load(Relaxed) > 0);
        let _ = made.processor.turn();
        let Some(Line::Null(out)) = &mut made.processor.lines[1] else { panic!("a device") };
        let left = out.kept.take().expect("they are kept");
        let bare = left.iter().filter(|bytes| !has(bytes)).count();
        assert!(!left.is_empty() && bare == 0, "{bare} of {} without a label", left.len());
    }

    /// All packets are of the flow.
    fn all_of_it() -> Classifier {
        let verdict = Verdict {
            next_hop: NextHop::new(FIRST + 1),
            ..Verdict::of(Action::Reserved { queue: 0 })
        };
        let mut classifier = Classifier::new(1);
        let rule = Rule { filter: Filter::all(), priority: 1, verdict };
        classifier.general.install(rule).expect("room");
        classifier
    }

    #[test]
    fn a_flow_s_packets_get_its_label_and_its_reservation_d_43() {
        let (left, dropped, made) = passed(vec![frame(TO)], |setup| {
            let labels = Labels { arrives: None, next: Some(OUT), hop: FIRST + 1 };
            setup.treatments = vec![treatment(labels, Some((1, 0)))];
            let (flow, rate) = ("film".to_owned(), Rate::from_mbit(1));
            setup.ports[1].reserved = vec![Promise { flow, rate, packets: 9 }];
            setup.rules = Some(all_of_it());
        });
        assert_eq!(dropped, []);
        assert_eq!(Shim::parse(&left[0][14..]), Some(Shim { class: 0, ..shim(OUT, 63) }));
        let packet = ipv4::Packet::parse(&left[0][18..]).expect("a good checksum");
        assert_eq!(packet.header().time_to_live, 63);
        let (_, _, counts) = made.processor.ports[1].output.reserved.counts().next().expect("one");
        assert_eq!((counts.within, made.counts[1].sent.load(Relaxed)), (1, 1));
    }
}
