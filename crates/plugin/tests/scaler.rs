//! `plugins/wave-scaler` before a queue whose share of the line changes at random.

use crate::sandboxed::{ROOM, Scaler, class, module};
use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
use lastmeter_plugin::host::Class;
use lastmeter_wave::study::Waiting;
use lastmeter_wire::internet::ipv4;
use lastmeter_wire::wave::{BASE, Band, Packet};
use std::collections::VecDeque;
use std::sync::Arc;

/// The line of Kuhns et al., §5.2.
const LINE: Rate = Rate::from_mbit(3);
const PORT: u16 = 5005;
const INTERVAL: Duration = Duration::from_us(83_333);
const FRAMES: u32 = 24;

/// The head of a packet of the stream; of what follows, a router only counts the bytes.
fn packet(band: Band, frame: u32, slice: u8) -> Vec<u8> {
    let of_band = Packet {
        band,
        frame,
        slice,
        last: false,
        width: 11,
        height: 9,
        row: 0,
        rows: 1,
        step: 1,
        planes: 8,
        floor: 0,
        code: &[],
    };
    let payload = of_band.emit().unwrap();
    let mut bytes = Vec::new();
    let addresses = ([10, 0, 0, 1].into(), [192, 0, 2, 9].into());
    let header = ipv4::Header::new(addresses.0, addresses.1, 17);
    header.emit(8 + payload.len(), &mut bytes).unwrap();
    for half in [4000, PORT, 8 + payload.len() as u16, 0] {
        bytes.extend(half.to_be_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// A queue that drains at the granted rate and, when full, loses its oldest packet, as in the document.
#[derive(Default)]
struct Fluid {
    /// Frame, priority and what is left of each packet, in bits.
    waiting: VecDeque<(u32, u8, f64)>,
    then: Time,
    room: u64,
    delivered: Vec<(u32, u8)>,
    drained: f64,
    lost: u32,
}

impl Fluid {
    fn bytes(&self) -> u64 {
        (self.waiting.iter().map(|packet| packet.2).sum::<f64>() / 8.0) as u64
    }
    fn drain(&mut self, now: Time, share: f64) {
        let passed = (now - self.then).as_secs_f64();
        self.then = now;
        let mut bits = passed * share * LINE.as_bits() as f64;
        while let Some(first) = self.waiting.front_mut() {
            if first.2 > bits {
                first.2 -= bits;
                self.drained += bits;
                return;
            }
            bits -= first.2;
            self.drained += first.2;
            self.delivered.push((first.0, first.1));
            self.waiting.pop_front();
        }
    }
    fn push(&mut self, frame: u32, priority: u8, len: u64) {
        self.waiting.push_back((frame, priority, len as f64 * 8.0));
        while self.bytes() > self.room {
            self.waiting.pop_front();
            self.lost += 1;
        }
    }
}

/// A stream of frames through the plugin into the queue; what was sent and what was delivered, by frame.
struct Run {
    sent: Vec<Vec<u8>>,
    delivered: Vec<Vec<u8>>,
    /// Bits that left the queue before the last packet came.
    in_time: f64,
    lost: u32,
}

/// The share changes at random unless it is `steady`.
fn run(class: &Arc<Class>, seed: u64, steady: Option<f64>) -> Run {
    let mut random = Stream::new(seed, "congestion");
    let room = if steady.is_some() { ROOM } else { 2500 + random.below(ROOM) };
    let (mut scaler, mut queue) = (Scaler::new(class, room), Fluid { room, ..Fluid::default() });
    let (mut share, mut changes) =
        (steady.unwrap_or(1.0), Time::START + Duration::from_ms(random.below(500)));
    let mut sent = vec![Vec::new(); FRAMES as usize];
    for frame in 0..FRAMES {
        // Twice the detail at twice the resolution, and some of it in two packets.
        let mut packets = Vec::new();
        for band in Band::all() {
            let (width, height) = band.size(11, 9);
            let len = (width * height) as u64 * (3 + random.below(4)) / 8 + 44;
            let pieces = len.div_ceil(1444);
            packets.extend((0..pieces).map(|slice| (band, slice as u8, len / pieces)));
        }
        let start = Time::START + INTERVAL * u64::from(frame);
        let all: u64 = packets.iter().map(|packet| packet.2).sum();
        let mut before = 0;
        for (band, slice, len) in packets {
            let now = start + INTERVAL.scale_ceil(before, all);
            before += len;
            if now >= changes && steady.is_none() {
                queue.drain(changes.max(queue.then), share);
                let shares = [1.0, 0.5, 0.333, 0.1, 0.02, 0.0];
                share = shares[random.below(shares.len() as u64) as usize];
                changes = now + Duration::from_ms(1 + random.below(600));
            }
            queue.drain(now, share);
            sent[frame as usize].push(band.priority());
            let waits = Bytes(queue.bytes());
            let waiting = Waiting { len: waits, share: (share * 1e6) as u64, rate: LINE };
            if scaler.decide(now, &packet(band, frame, slice), len as u32, &waiting) {
                queue.push(frame, band.priority(), len);
            }
        }
    }
    let in_time = queue.drained;
    queue.drain(queue.then + Duration::from_secs(10), 1.0);
    let mut delivered = vec![Vec::new(); FRAMES as usize];
    for (frame, priority) in queue.delivered {
        delivered[frame as usize].push(priority);
    }
    Run { sent, delivered, in_time, lost: queue.lost }
}

/// D-97, D-105: the queue never overflows; whatever arrives of a frame, all of its lowest bands do, and what arrives is the
/// first of what was sent.
fn check(class: &Arc<Class>, seeds: std::ops::Range<u64>) {
    let (mut frames, mut arrived, mut whole) = (0, 0, 0);
    for seed in seeds {
        let Run { sent, delivered, lost, .. } = run(class, seed, None);
        assert_eq!(lost, 0, "seed {seed}: the queue lost packets");
        for (frame, (sent, delivered)) in sent.iter().zip(&delivered).enumerate() {
            frames += 1;
            if delivered.is_empty() {
                continue;
            }
            arrived += 1;
            whole += usize::from(delivered.len() == sent.len());
            assert!(sent.starts_with(delivered), "seed {seed}, frame {frame}: {delivered:?}");
            let low = sent.iter().filter(|&&priority| priority < BASE).count();
            assert!(delivered.len() >= low, "seed {seed}, frame {frame}: {delivered:?}");
        }
    }
    println!("{frames} frames, {arrived} arrived, {whole} whole");
    assert!(arrived > frames / 2 && arrived < frames && whole > 0 && whole < arrived);
}

#[test]
fn d_97_low_bands_arrive_whenever_anything_does() {
    if let Some(module) = module("some") {
        check(&class(&module), 0..300);
    }
}

#[test]
#[ignore = "10,000 patterns"]
fn d_97_low_bands_arrive_whenever_anything_does_in_10_000_patterns() {
    if let Some(module) = module("all") {
        check(&class(&module), 0..10_000);
    }
}

/// With a steady share the stream takes nearly all of it: it is scaled, and not simply cut to the least.
#[test]
fn d_95_a_steady_share_is_used() {
    let Some(module) = module("steady") else { return };
    let class = class(&module);
    for share in [0.5, 1.0 / 3.0] {
        let Run { sent, delivered, in_time, lost } = run(&class, 1, Some(share));
        assert_eq!(lost, 0);
        let time = (INTERVAL * u64::from(FRAMES)).as_secs_f64();
        let used = in_time / (time * share * LINE.as_bits() as f64);
        // A band passes whole or not at all, and the finest ones are a sixth of a frame.
        assert!((0.75..1.0).contains(&used), "{used} of a share of {share}");
        assert!(delivered.iter().all(|frame| !frame.is_empty()));
        assert!(delivered[3..].iter().zip(&sent[3..]).all(|(came, sent)| came.len() < sent.len()));
    }
    let all = run(&class, 1, Some(1.0));
    assert!(all.delivered == all.sent, "what fits is not scaled");
}
