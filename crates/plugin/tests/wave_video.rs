//! Wave Video over the congested link of the document, plain and scaled by the plugin (D-95 to D-105).

use crate::sandboxed::{ROOM, Scaler, class, module};
use lastmeter_base::Duration;
use lastmeter_wave::layered::{Layered, Timers};
use lastmeter_wave::measure::WINDOW;
use lastmeter_wave::sequence::Sequence;
use lastmeter_wave::stream::Options;
use lastmeter_wave::study::{Case, Outcome, Plain, run};
use lastmeter_wire::wave::{BANDS, BASE};

/// The document's value of this key.
fn published(key: &str) -> f64 {
    let rows = include_str!("../../../experiments/wave-video/expected.csv").lines();
    let row = rows.filter(|row| row.ends_with(&format!(",{key}"))).collect::<Vec<_>>();
    assert_eq!(row.len(), 1, "{key}");
    row[0].split(',').nth(2).and_then(|value| value.parse().ok()).unwrap()
}

/// Two bursts of three seconds.
fn case(sequence: Sequence, cross: u32) -> Case {
    let burst = |second: u64| (Duration::from_secs(second), Duration::from_secs(second + 3));
    let video = Options::new(sequence, 12);
    Case { video, frames: 12 * 12, cross, bursts: vec![burst(2), burst(7)] }
}

/// Frames of a burst but for the first two, in which the scaler has not yet reacted, by the burst.
fn windows<'a>(case: &Case, outcome: &'a Outcome) -> Vec<&'a lastmeter_wave::study::Frame> {
    let frames = outcome.frames.iter();
    let within = frames.filter(|frame| {
        let number = frame.shown.frame;
        number >= 2 && case.in_burst(number) && case.in_burst(number - 2)
    });
    within.collect()
}

#[test]
fn scaling_is_better_than_plain_queueing_and_whole() {
    let Some(module) = module("video") else { return };
    let class = class(&module);
    for (sequence, cross, gain) in
        [(Sequence::Panning, 1, 3.0), (Sequence::Panning, 2, 3.0), (Sequence::TalkingHead, 2, 3.0)]
    {
        let case = case(sequence, cross);
        let film = case.video.film();
        let plain = run(&case, &film, &mut Plain);
        let scaled = run(&case, &film, &mut Scaler::new(&class, ROOM));
        let [before, after] = [&plain, &scaled].map(|outcome| outcome.psnr_in_bursts(&case));
        let share = 1.0 / f64::from(1 + cross);
        let settled = scaled.settled(case.bursts[0], share);
        println!(
            "{} {cross}: plain {before:.2} dB, scaled {after:.2} dB; settled after {settled:?}; plain \
             {} of {} exact, {} broken; scaled {} exact, {} broken",
            sequence.name(),
            plain.judge.exact,
            plain.judge.frames,
            plain.judge.broken,
            scaled.judge.exact,
            scaled.judge.broken
        );
        // D-103, D-97, D-104.
        assert!(after > before + gain, "{before} dB, {after} dB");
        assert_eq!(scaled.dropped, 0, "the queue drops nothing of a scaled stream");
        assert_eq!(scaled.judge.broken, 0);
        assert!(plain.dropped > 0 && plain.judge.broken > 0);
        // D-98.
        assert!(settled.as_secs_f64() * 1e3 < published("reaction"), "{settled:?}");
        // D-99: the share of plain queueing is the scheduler's.
        let (from, to) = (case.bursts[0].0 + Duration::from_secs(1), case.bursts[0].1);
        let rate = plain.arrival_rate(from, to) / 1e6;
        let wanted = published(if cross == 1 { "share-one" } else { "share-two" });
        assert!((rate / wanted - 1.0).abs() < 0.05, "{rate} Mbit/s");
        // D-105: what arrives of a scaled frame are its first bands.
        for frame in windows(&case, &scaled) {
            assert!((frame.bands + 1).is_power_of_two(), "{:b}", frame.bands);
            assert!(frame.bands.trailing_ones() >= BASE.into());
        }
        let counts = |outcome: &Outcome| {
            let frames = windows(&case, outcome);
            (0..BANDS)
                .map(|band| frames.iter().filter(|frame| frame.bands >> band & 1 == 1).count())
                .collect::<Vec<_>>()
        };
        println!("plain {:?}\nscaled {:?}", counts(&plain), counts(&scaled));
        assert!(scaled.histogram().iter().all(|window| window[0] == WINDOW as u8));
    }
}

#[test]
fn without_cross_traffic_nothing_is_scaled() {
    let Some(module) = module("alone") else { return };
    let case = Case { frames: 24, ..case(Sequence::Panning, 0) };
    let film = case.video.film();
    let scaled = run(&case, &film, &mut Scaler::new(&class(&module), ROOM));
    assert_eq!(BANDS as f64, published("bands"));
    assert_eq!((scaled.judge.exact, scaled.denied), (24, 0));
}

#[test]
fn d_98_layered_multicast_takes_seconds() {
    let mut case = case(Sequence::Panning, 1);
    case.bursts = vec![(Duration::from_secs(2), Duration::from_secs(10))];
    let film = case.video.film();
    let mut layered = Layered::new(Timers::default());
    let outcome = run(&case, &film, &mut layered);
    let settled = outcome.settled(case.bursts[0], 0.5);
    println!("settled after {settled:?}, {:?}", layered.changes);
    let seconds = settled.as_secs_f64();
    assert!(seconds > published("layered") && seconds < 8.0, "{settled:?}");
}
