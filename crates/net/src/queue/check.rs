//! Invariants of every discipline: report every loss, keep the order within a
//! flow, and, unless it is a shaper, never idle while something waits.

use super::Queue;
use lastmeter_base::{Bytes, Duration, Ecn, FlowId, Packet, Stream, Time};
use std::collections::BTreeMap;

pub(super) fn packet(flow: u32, len: u64) -> Packet {
    let mut packet = Packet::new(Bytes(len));
    packet.flow = FlowId(flow);
    packet.class = flow as u8;
    packet
}

/// All that may be sent now.
pub(super) fn drain(queue: &mut impl Queue, now: Time) -> Vec<Packet> {
    std::iter::from_fn(|| queue.dequeue(now)).collect()
}

/// What it has dropped, by flow and reason.
pub(super) fn victims(queue: &mut impl Queue) -> Vec<(u32, &'static str)> {
    std::iter::from_fn(|| queue.dropped()).map(|(packet, why)| (packet.flow.0, why)).collect()
}

pub(super) struct Options {
    pub(super) flows: u64,
    pub(super) seed: u64,
    pub(super) work_conserving: bool,
    pub(super) in_order: bool,
}

pub(super) const USUAL: Options =
    Options { flows: 7, seed: 1, work_conserving: true, in_order: true };

/// Drives it with random arrivals and departures, then empties it.
pub(super) fn holds(mut queue: impl Queue, options: &Options) {
    let mut random = Stream::new(options.seed, "check");
    let mut sequence: BTreeMap<u32, u64> = BTreeMap::new();
    let mut sent: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut inside, mut bytes) = (BTreeMap::new(), 0);
    let mut now = Time::START;
    let mut check_out = |packet: &Packet, inside: &mut BTreeMap<u64, u64>, ordered: bool| {
        let len = inside.remove(&packet.id).expect("no packet comes out twice");
        assert_eq!(len, packet.len.0);
        if ordered && options.in_order {
            let last = sent.insert(packet.flow.0, packet.seq);
            assert!(last.is_none_or(|last| last < packet.seq), "order within a flow");
        }
        len
    };
    for id in 0..20_000u64 {
        now += Duration::from_ns(random.below(2_000));
        // Load swings from an empty queue to a full one.
        let busy = id / 1000 % 2 == 0;
        if random.chance(if busy { 0.7 } else { 0.3 }) {
            let flow = random.below(options.flows) as u32;
            let mut packet = packet(flow, 40 + random.below(1461));
            packet.ecn = if flow.is_multiple_of(2) { Ecn::NotCapable } else { Ecn::Ect0 };
            let seq = sequence.entry(flow).or_default();
            (packet.id, packet.seq, packet.entered) = (id, *seq, now);
            packet.deadline = now + Duration::from_us(100);
            *seq += 1;
            inside.insert(id, packet.len.0);
            bytes += packet.len.0;
            if let Err(packet) = queue.enqueue(now, packet) {
                bytes -= check_out(&packet, &mut inside, false);
            }
        } else {
            let packet = queue.dequeue(now);
            let ready = queue.ready_at(now);
            assert_eq!(queue.packets() == 0, ready.is_none(), "ready exactly while it holds any");
            if options.work_conserving {
                assert!(packet.is_some() || queue.packets() == 0, "idle while packets wait");
                assert!(ready.is_none_or(|ready| ready <= now));
            }
            if let Some(packet) = packet {
                bytes -= check_out(&packet, &mut inside, true);
            }
        }
        while let Some((packet, reason)) = queue.dropped() {
            assert!(!reason.is_empty());
            bytes -= check_out(&packet, &mut inside, false);
        }
        assert_eq!(queue.packets(), inside.len() as u64, "in = out + held + dropped");
        assert_eq!(queue.bytes(), Bytes(bytes));
    }
    let mut idle = 0;
    while let Some(ready) = queue.ready_at(now) {
        now = now.max(ready);
        idle = if let Some(packet) = queue.dequeue(now) {
            check_out(&packet, &mut inside, true);
            0
        } else {
            idle + 1
        };
        while let Some((packet, _)) = queue.dropped() {
            check_out(&packet, &mut inside, false);
        }
        assert!(idle < 1000, "it claims to be ready but returns nothing");
    }
    assert!(inside.is_empty(), "{} packets never came out", inside.len());
    assert_eq!((queue.packets(), queue.bytes()), (0, Bytes::ZERO));
}
