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
use crate::measure::{self, Burst, Shot};
use crate::stream::{HEADERS_LEN, Judge, Options, emit, mask, renumbered};
use lastmeter_base::{Bytes, Duration, FlowId, Packet, Rate, Time};
pub use lastmeter_engine::site::Waiting;
use lastmeter_engine::site::{Asked, Code, Order, Program, Programs, Wish};
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

/// An owner's program.
pub struct Scaler(pub Box<dyn Program>);

impl Scaler {
    /// How `plugins/wave-scaler` is configured here: the UDP port of streams, the number of the queue, what a stream
    /// may have in it in bytes, the period of its profile in ms.
    pub const CONFIG: &str = "5005 0 24000 50";

    /// Has this module run.
    ///
    /// # Errors
    /// If it is refused.
    pub fn new(programs: &dyn Programs, module: &[u8], seed: u64) -> Result<Scaler, String> {
        let code = Code::Module(module);
        let config = Scaler::CONFIG;
        let order = Order { name: "scaler", code, config, fail: "closed", seed };
        programs.load(&order).map(Scaler)
    }
}

impl Filter for Scaler {
    fn passes(&mut self, now: Time, packet: &[u8], waiting: &Waiting) -> bool {
        let asked = Asked { link: 0, arrival: now, len: packet.len() as u32, bytes: packet };
        self.0.decide(now, &asked, &[Some(*waiting)]) == Wish::Pass
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
    pub bursts: Vec<Burst>,
}

impl Case {
    /// Whether a frame begins within a burst.
    pub fn in_burst(&self, frame: u32) -> bool {
        measure::in_burst(&self.video, &self.bursts, frame)
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
    /// The frames, as they are measured.
    pub fn shots(&self) -> Vec<Shot> {
        let shot =
            |frame: &Frame| Shot { frame: frame.shown.frame, psnr: frame.psnr, bands: frame.bands };
        self.frames.iter().map(shot).collect()
    }
    /// The mean PSNR of frames that begin within bursts.
    pub fn psnr_in_bursts(&self, case: &Case) -> f64 {
        measure::psnr_in_bursts(&case.video, &case.bursts, &self.shots())
    }
    /// The rate at which the stream arrived from one time to another.
    pub fn arrival_rate(&self, from: Duration, to: Duration) -> f64 {
        measure::arrival_rate(&self.arrived, from, to)
    }
    /// How soon after the beginning of a burst what passes fits a share of the line ([`measure::settled`]).
    pub fn settled(&self, burst: Burst, share: f64) -> Duration {
        let granted = LINE.as_bits() as f64 * share;
        measure::settled(&self.passed, burst, Rate::from_bits(granted as u64))
    }
    /// How many of 8 frames had each band whole, by window and priority (D-105).
    pub fn histogram(&self) -> Vec<[u8; wave::BANDS]> {
        measure::histogram(&self.shots())
    }
}

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
    run_judged(case, film, Judge::new(case.video), filter)
}

/// The same of other pictures, which `judge` knows.
pub fn run_judged(
    case: &Case,
    film: &[Vec<Vec<u8>>],
    mut judge: Judge,
    filter: &mut dyn Filter,
) -> Outcome {
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
    let judged = screen.shown.into_iter().map(|shown| {
        let (psnr, bands) = (judge.see(&shown), mask(&shown));
        Frame { shown, psnr, bands }
    });
    let frames = judged.collect();
    Outcome { frames, passed, denied, dropped: line.dropped, arrived: screen.arrived, judge }
}
