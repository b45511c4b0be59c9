//! The four studies of Wave Video (D-95 to D-105): a table, figures, and a film of both ways side by side.
//!
//! ```text
//! cargo run --release -p lastmeter-plugin --example wave-video -- OUT
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "it says what it measured")]

mod draw;
#[path = "../../tests/sandboxed.rs"]
mod sandboxed;

use lastmeter_base::{Bytes, Duration, Time};
use lastmeter_wave::layered::{Layered, Timers};
use lastmeter_wave::sequence::Sequence;
use lastmeter_wave::stream::Options;
use lastmeter_wave::study::{Case, LINE, Outcome, Plain, Waiting, run};
use sandboxed::{ROOM, Scaler, class, module};
use std::path::Path;
use std::time::Instant;

/// Frames until a sequence repeats; 6 s.
const FRAMES: u32 = 72;
/// Frames that are sent; 20 s.
const SENT: u32 = 240;

fn main() {
    let out = std::env::args().nth(1).unwrap_or_else(|| "out/wave-video".to_owned());
    let out = Path::new(&out);
    std::fs::create_dir_all(out).unwrap();
    let Some(module) = module("study") else { return };
    let loading = Instant::now();
    let class = class(&module);
    let loaded = loading.elapsed();
    let instance = Instant::now();
    let mut scaler = Scaler::new(&class, ROOM);
    println!(
        "the plugin: {} B, checked and compiled in {:.2} ms, an instance in {:.3} ms",
        module.len(),
        loaded.as_secs_f64() * 1e3,
        instance.elapsed().as_secs_f64() * 1e3
    );
    cost(&mut scaler);
    for sequence in Sequence::ALL {
        let video = Options::new(sequence, FRAMES);
        let film = video.film();
        for cross in [1, 2] {
            let burst = |from: u64, to: u64| (Duration::from_secs(from), Duration::from_secs(to));
            let bursts = vec![burst(4, 8), burst(11, 17)];
            let case = Case { video, frames: SENT, cross, bursts };
            let plain = run(&case, &film, &mut Plain);
            let scaled = run(&case, &film, &mut Scaler::new(&class, ROOM));
            let mut receiver = Layered::new(Timers::default());
            let layered = run(&case, &film, &mut receiver);
            let name = format!("{}-{cross}", sequence.name());
            report(&name, &case, [("plain", &plain), ("scaled", &scaled), ("layered", &layered)]);
            draw::psnr(&out.join(format!("{name}-psnr.svg")), &case, &plain, &scaled, &layered);
            draw::histograms(&out.join(format!("{name}-bands.png")), &plain, &scaled);
            if cross == 1 {
                let frames = 36..132;
                draw::film(&out.join(format!("{name}-film.png")), &case, &plain, &scaled, frames);
            }
        }
    }
}

/// What a decision costs, one packet at a time, sandbox included.
fn cost(scaler: &mut Scaler) {
    let video = Options::new(Sequence::Panning, 1);
    let film = video.film();
    let mut packets = Vec::new();
    for payload in &film[0] {
        let mut bytes = vec![0; 28];
        bytes[0] = 0x45;
        bytes[9] = 17;
        bytes[22..24].copy_from_slice(&5005u16.to_be_bytes());
        bytes.extend(payload);
        packets.push(bytes);
    }
    let waiting = Waiting { len: Bytes(0), share: 500_000, rate: LINE };
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let (begun, rounds) = (Instant::now(), 200);
        for _ in 0..rounds {
            for packet in &packets {
                scaler.decide(Time::START, packet, packet.len() as u32, &waiting);
            }
        }
        let each = begun.elapsed().as_secs_f64() / (f64::from(rounds) * packets.len() as f64);
        best = best.min(each);
    }
    println!("a decision: {:.0} ns, one packet at a time", best * 1e9);
}

fn report(name: &str, case: &Case, ways: [(&str, &Outcome); 3]) {
    let share = 1.0 / f64::from(1 + case.cross);
    println!("{name}");
    for (way, outcome) in ways {
        let (from, to) = case.bursts[1];
        let settled = outcome.settled(case.bursts[1], share);
        println!(
            "  {way:8} {:6.2} dB in bursts, least {:5.2} dB; {:.3} Mbit/s in the second burst; {} of {} \
             frames exact, {} broken; settled after {}; {} dropped in the \
             queue",
            outcome.psnr_in_bursts(case),
            outcome.judge.least,
            outcome.arrival_rate(from + Duration::from_secs(1), to) / 1e6,
            outcome.judge.exact,
            outcome.judge.frames,
            outcome.judge.broken,
            format_args!("{:.0} ms", settled.as_secs_f64() * 1e3),
            outcome.dropped,
        );
    }
}
