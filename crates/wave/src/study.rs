//! The congested link of the experiments: a stream, bursts of cross traffic, deficit round robin, a screen.
//!
//! ```text
//! film ---> filter --\
//! cross 1 ------------+--> deficit round robin --> line --> decoder --> PSNR, bands
//! cross 2 ------------/    (drops the oldest of the longest queue)
//! ```
//!
//! In Kuhns et al., Fig 7, no link before those of D2 and D3 is congested, and these share nothing; so each is studied
//! by itself. A filter is whatever decides about the stream's packets in front of the queue: nothing (plain queueing),
//! the scaler in its sandbox, or the layers that a receiver has subscribed to ([`crate::layered`]).

use crate::Decoder;
use crate::decoder::Shown;
use crate::stream::{HEADERS_LEN, Judge, Options, emit, mask, renumbered};
use lastmeter_base::{Bytes, Duration, FlowId, Packet, Rate, Time};
use lastmeter_net::queue::{Drr, DrrOptions, Queue, Room, Unit};
use lastmeter_wire::wave;
use std::net::Ipv4Addr;

/// The paced line of §5.2.
pub const LINE: Rate = Rate::from_mbit(3);
/// What all flows have in the queue together; the document does not say.
pub const BUFFER: Bytes = Bytes::from_kib(96);
/// The length of a packet of cross traffic; ours.
pub const CROSS_LEN: Bytes = Bytes(1000);
/// The rate of a stream of cross traffic: more than its share of the line, whoever else is there; ours.
pub const CROSS_RATE: Rate = Rate::from_mbit(2);
/// The flow of the video; cross traffic has those after it.
const VIDEO: u32 = 0;

/// What a filter is told of the queue behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waiting {
    /// What the stream has in it.
    pub len: Bytes,
    /// The share of the line that the scheduler grants the stream now, in parts of a million.
    pub share: u64,
    /// The line.
    pub rate: Rate,
}

/// Decides about a stream's packets in front of a queue.
pub trait Filter {
    /// Whether a packet, from its IP header on, passes.
    fn passes(&mut self, now: Time, packet: &[u8], waiting: &Waiting) -> bool;
    /// A packet has arrived at the receiver.
    fn arrived(&mut self, _now: Time) {}
}

/// Plain queueing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Filter for Plain {
    fn passes(&mut self, _now: Time, _packet: &[u8], _waiting: &Waiting) -> bool {
        true
    }
}

/// What is studied.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The video.
    pub video: Options,
    /// How many of its frames are sent.
    pub frames: u32,
    /// Streams of cross traffic.
    pub cross: u32,
    /// When these send: from, to.
    pub bursts: Vec<(Duration, Duration)>,
}

impl Case {
    /// Whether a frame begins within a burst.
    pub fn in_burst(&self, frame: u32) -> bool {
        let at = self.video.begins(frame);
        self.bursts.iter().any(|&(from, to)| from <= at && at < to)
    }
}

/// A frame as it was shown.
#[derive(Clone, Debug)]
pub struct Frame {
    /// What came of it.
    pub shown: Shown,
    /// Its PSNR in dB.
    pub psnr: f64,
    /// The bands that came whole, as bits by priority.
    pub bands: u64,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The frames, in order.
    pub frames: Vec<Frame>,
    /// Packets that passed the filter: when, and how long they are.
    pub passed: Vec<(Time, Bytes)>,
    /// Packets that did not pass it.
    pub denied: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
    /// Packets that arrived: when, and how long they are.
    pub arrived: Vec<(Time, Bytes)>,
    /// About all of them.
    pub judge: Judge,
}

impl Outcome {
    /// The mean PSNR of frames that begin within bursts.
    pub fn psnr_in_bursts(&self, case: &Case) -> f64 {
        let within = self.frames.iter().filter(|frame| case.in_burst(frame.shown.frame));
        let (sum, count) =
            within.fold((0.0, 0.0), |(sum, count), frame| (sum + frame.psnr, count + 1.0));
        sum / f64::max(count, 1.0)
    }
    /// The rate at which the stream arrived from one time to another.
    pub fn arrival_rate(&self, from: Duration, to: Duration) -> f64 {
        let within = |at: Time| (from..to).contains(&at.since_start());
        let bytes: u64 =
            self.arrived.iter().filter(|(at, _)| within(*at)).map(|(_, len)| len.0).sum();
        bytes as f64 * 8.0 / (to - from).as_secs_f64()
    }
    /// From the beginning of a burst until what passes, up to the end of the burst, is no more than `share` of the line
    /// and a twentieth, give or take what that is in [`ALLOWED`]; in steps of 10 ms.
    pub fn settled(&self, burst: (Duration, Duration), share: f64) -> Duration {
        let rate = LINE.as_bits() as f64 * share / 8.0;
        let fits = |from: Duration| {
            let (mut then, mut over) = (from, 0.0);
            self.passed.iter().all(|(at, len)| {
                let at = at.since_start();
                if !(from..burst.1).contains(&at) {
                    return true;
                }
                let gone = (at - then).as_secs_f64() * rate * 1.05;
                (over, then) = (f64::max(over - gone, 0.0) + len.0 as f64, at);
                over <= rate * ALLOWED.as_secs_f64()
            })
        };
        let mut from = burst.0;
        while from < burst.1 && !fits(from) {
            from += STEP;
        }
        from - burst.0
    }
    /// How many of 8 frames had each band whole, by window and priority (D-105).
    pub fn histogram(&self) -> Vec<[u8; wave::BANDS]> {
        let window = |frames: &[Frame]| {
            let mut counts = [0; wave::BANDS];
            for (band, count) in counts.iter_mut().enumerate() {
                let there = frames.iter().filter(|frame| frame.bands >> band & 1 == 1);
                *count = there.count() as u8;
            }
            counts
        };
        self.frames.chunks_exact(WINDOW).map(window).collect()
    }
}

/// What may wait for a moment: a period of the scaler's profile.
pub const ALLOWED: Duration = Duration::from_ms(50);
const STEP: Duration = Duration::from_ms(10);
/// Frames of a window of the histogram (Fig 8).
pub const WINDOW: usize = 8;

/// What arrives at the queue.
enum Arrival {
    Video(u32, usize),
    Cross(u32),
}

/// Everything that arrives, in order.
fn arrivals(case: &Case, film: &[Vec<Vec<u8>>]) -> Vec<(Time, Arrival)> {
    let mut all = Vec::new();
    for frame in 0..case.frames {
        let packets = &film[frame as usize % film.len()];
        let due = |packet| Time::START + case.video.due(frame, packets, packet);
        all.extend((0..packets.len()).map(|packet| (due(packet), Arrival::Video(frame, packet))));
    }
    let gap = CROSS_RATE.time_for(CROSS_LEN);
    for &(from, to) in &case.bursts {
        for stream in 0..case.cross {
            let mut at = from + gap.scale_ceil(stream.into(), case.cross.into());
            while at < to {
                all.push((Time::START + at, Arrival::Cross(1 + stream)));
                at += gap;
            }
        }
    }
    all.sort_by_key(|arrival| arrival.0);
    all
}

/// The queue and the line behind it.
struct Line {
    queue: Drr,
    /// When it has sent what it has begun.
    free_at: Time,
    /// Packets and bytes of each flow that wait.
    waiting: Vec<(u64, u64)>,
    dropped: u64,
}

impl Line {
    fn new(flows: u32) -> Line {
        let room = Room { packets: u64::MAX, bytes: BUFFER };
        let options = DrrOptions { room, unit: Unit::Bytes, ..DrrOptions::each(0) };
        Line {
            queue: Drr::new(options),
            free_at: Time::START,
            waiting: vec![(0, 0); flows as usize],
            dropped: 0,
        }
    }
    fn left(&mut self, packet: &Packet) {
        let (packets, bytes) = &mut self.waiting[packet.flow.0 as usize];
        (*packets, *bytes) = (*packets - 1, *bytes - packet.len.0);
    }
    /// Sends until `now`; what is the video's is given to `arrived` with the time at which it is there.
    fn send(&mut self, now: Time, mut arrived: impl FnMut(Time, Packet)) {
        while self.free_at <= now {
            let Some(packet) = self.queue.dequeue(self.free_at) else { return };
            self.left(&packet);
            self.free_at += LINE.time_for(packet.len);
            if packet.flow.0 == VIDEO {
                arrived(self.free_at, packet);
            }
        }
    }
    fn push(&mut self, now: Time, packet: Packet) {
        self.free_at = match self.queue.packets() {
            0 => self.free_at.max(now),
            _ => self.free_at,
        };
        let (packets, bytes) = &mut self.waiting[packet.flow.0 as usize];
        (*packets, *bytes) = (*packets + 1, *bytes + packet.len.0);
        if let Err(packet) = self.queue.enqueue(now, packet) {
            self.left(&packet);
            self.dropped += u64::from(packet.flow.0 == VIDEO);
        }
        while let Some((packet, _)) = self.queue.dropped() {
            self.left(&packet);
            self.dropped += u64::from(packet.flow.0 == VIDEO);
        }
    }
    /// Of the flows that have something waiting, the video counted in, each is granted the same.
    fn seen(&self) -> Waiting {
        let others = self.waiting[1..].iter().filter(|flow| flow.0 > 0).count() as u64;
        Waiting { len: Bytes(self.waiting[0].1), share: 1_000_000 / (1 + others), rate: LINE }
    }
}

/// What the receiver has.
struct Screen<'a> {
    film: &'a [Vec<Vec<u8>>],
    sent: Vec<(u32, usize)>,
    decoder: Decoder,
    shown: Vec<Shown>,
    arrived: Vec<(Time, Bytes)>,
}

impl Screen<'_> {
    fn take(&mut self, at: Time, packet: &Packet) {
        self.arrived.push((at, packet.len));
        let (frame, place) = self.sent[packet.seq as usize];
        let code = &self.film[frame as usize % self.film.len()][place];
        let piece = wave::Packet::parse(code).expect("the encoder made it");
        self.decoder.take(&wave::Packet { frame, ..piece }, &mut self.shown);
    }
}

/// Runs a case. `film` is that of its video ([`Options::film`]).
pub fn run(case: &Case, film: &[Vec<Vec<u8>>], filter: &mut dyn Filter) -> Outcome {
    let mut line = Line::new(1 + case.cross);
    let (width, height) = case.video.size;
    let decoder = Decoder::new(width, height);
    let mut screen =
        Screen { film, sent: Vec::new(), decoder, shown: Vec::new(), arrived: Vec::new() };
    let (mut passed, mut denied) = (Vec::new(), 0);
    let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    let mut bytes = Vec::new();
    for (now, arrival) in arrivals(case, film) {
        line.send(now, |at, packet| {
            screen.take(at, &packet);
            filter.arrived(at);
        });
        let packet = match arrival {
            Arrival::Cross(flow) => {
                let mut packet = Packet::new(CROSS_LEN);
                packet.flow = FlowId(flow);
                packet
            }
            Arrival::Video(frame, place) => {
                let payload = renumbered(&film[frame as usize % film.len()][place], frame);
                bytes.clear();
                emit(addresses[0], addresses[1], 1, &payload, &mut bytes);
                let len = Bytes((HEADERS_LEN + payload.len()) as u64);
                if !filter.passes(now, &bytes, &line.seen()) {
                    denied += 1;
                    continue;
                }
                passed.push((now, len));
                let mut packet = Packet::new(len);
                packet.seq = screen.sent.len() as u64;
                screen.sent.push((frame, place));
                packet
            }
        };
        line.push(now, packet);
    }
    line.send(Time::MAX, |at, packet| screen.take(at, &packet));
    screen.shown.extend(screen.decoder.finish());
    let mut judge = Judge::new(case.video);
    let judged = screen.shown.into_iter().map(|shown| {
        let (psnr, bands) = (judge.see(&shown), mask(&shown));
        Frame { shown, psnr, bands }
    });
    let frames = judged.collect();
    Outcome { frames, passed, denied, dropped: line.dropped, arrived: screen.arrived, judge }
}
