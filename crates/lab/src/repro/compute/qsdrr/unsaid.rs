//! What §7 does not say, varied: in which range the orderings hold that it publishes.
//!
//! Propagation delay, Blue's steps and the shortest retransmission timer. All runs are of Fig 15's
//! network, with the small buffer and with the large one.

use super::figures::means_over;
use super::network::{BlueSteps, Case, Discipline, Network, PUBLISHED, Unsaid};
use super::{Reading, Study};
use crate::report::plots::{Plot, Series};
use crate::repro::Error;

/// Milliseconds from source to receiver: a campus to an ocean.
const DELAYS: [u64; 5] = [5, 10, 25, 50, 100];
/// Milliseconds: what ns-2 had before 14 May 2001 and since.
const TIMERS: [u64; 2] = [200, 1000];
/// B1 to B4 of Blue's technical report (CSE-TR-387-99, Table 1), then ours: longer and shorter steps.
const STEPS: [(f64, f64, u64); 7] = [
    (0.0025, 0.00025, 10),
    (0.0025, 0.00025, 100),
    (0.02, 0.002, 10),
    (0.02, 0.002, 100),
    (0.00025, 0.000025, 100),
    (0.0025, 0.0025, 100),
    (0.02, 0.02, 100),
];

fn case(reading: &Reading, discipline: Discipline, packets: u64, unsaid: Unsaid) -> Case {
    Case { network: Network::Single, discipline, packets, length: reading.length_swept, unsaid }
}

fn delay(ms: u64) -> Unsaid {
    Unsaid { delay: Some(ms), ..Unsaid::default() }
}

fn timer(ms: u64) -> Unsaid {
    Unsaid { timer: Some(ms), ..Unsaid::default() }
}

fn steps((increment, decrement, freeze): (f64, f64, u64)) -> Unsaid {
    Unsaid { blue: Some(BlueSteps { increment, decrement, freeze }), ..Unsaid::default() }
}

/// All of them.
pub(super) fn cases(reading: &Reading) -> Vec<Case> {
    let others = DELAYS.map(delay).into_iter().chain(TIMERS.map(timer));
    let mut cases = Vec::new();
    for unsaid in others {
        for packets in [reading.small, reading.large] {
            let of = |discipline| case(reading, discipline, packets, unsaid);
            cases.extend(PUBLISHED.map(of));
        }
    }
    let blue = |unsaid| case(reading, Discipline::Blue, reading.large, unsaid);
    cases.extend(STEPS.map(steps).map(blue));
    cases
}

/// Whether, all else being so, the ordering of §7.3 holds for this buffer.
fn holds(study: &Study, reading: &Reading, packets: u64, unsaid: Unsaid) -> Result<bool, Error> {
    let mean = |discipline| -> Result<f64, Error> {
        Ok(study.in_case(&case(reading, discipline, packets, unsaid))?.mean())
    };
    if packets < reading.large {
        let red = mean(Discipline::Red)? + reading.significant;
        return Ok(mean(Discipline::Tdrr)? > red && mean(Discipline::Qsdrr)? > red);
    }
    let blue = mean(Discipline::Blue)? + reading.significant;
    let others = PUBLISHED.into_iter().filter(|&discipline| discipline != Discipline::Blue);
    let above = others.map(|other| Ok(mean(other)? > blue)).collect::<Result<Vec<_>, Error>>()?;
    Ok(above.into_iter().all(|above| above))
}

fn figure(
    study: &Study,
    reading: &Reading,
    packets: u64,
    (what, x, values): (&str, &str, &[(u64, Unsaid)]),
) -> Result<Plot, Error> {
    let at: Vec<(f64, Case)> = values
        .iter()
        .map(|&(value, unsaid)| (value as f64, case(reading, Discipline::Red, packets, unsaid)))
        .collect();
    let title = format!("Mean goodput by {what}, {packets} packets");
    let mut marks = Vec::new();
    for &(value, unsaid) in values {
        let word = if holds(study, reading, packets, unsaid)? { "holds" } else { "not" };
        marks.push((value as f64, word.to_owned()));
    }
    let order = match packets < reading.large {
        true => "TDRR and QSDRR above RED",
        false => "all above Blue",
    };
    let caption = format!("Marked: whether the published ordering ({order}) holds there.");
    Ok(Plot { marks, ..means_over(study, (&title, caption, x), &at)? })
}

/// Over the delay and the timer, each with both buffers, and Blue's steps.
pub(super) fn plots(study: &Study, reading: &Reading) -> Result<Vec<Plot>, Error> {
    let delays = DELAYS.map(|ms| (ms, delay(ms)));
    let timers = TIMERS.map(|ms| (ms, timer(ms)));
    let mut plots = Vec::new();
    for packets in [reading.small, reading.large] {
        let words = ("propagation delay", "one way, ms", &delays[..]);
        plots.push(figure(study, reading, packets, words)?);
    }
    for packets in [reading.small, reading.large] {
        let words = ("shortest retransmission timer", "ms", &timers[..]);
        plots.push(figure(study, reading, packets, words)?);
    }
    let (mut own, mut caption) = (Vec::new(), String::from("Increment, decrement, freeze:"));
    for (x, setting) in (1..).zip(STEPS) {
        let (increment, decrement, freeze) = setting;
        let shares =
            study.in_case(&case(reading, Discipline::Blue, reading.large, steps(setting)))?;
        own.push((f64::from(x), shares.mean()));
        let (mean, deviation) = (shares.mean(), shares.deviation());
        caption += &format!(
            " {x}: {increment}, {decrement}, {freeze} ms gives {mean:.1}, deviation {deviation:.1};"
        );
    }
    let mut least = f64::MAX;
    for discipline in PUBLISHED.into_iter().filter(|&other| other != Discipline::Blue) {
        let usual = study.single(discipline, reading.large)?.mean();
        least = least.min(usual);
    }
    let ends = [1.0, STEPS.len() as f64];
    plots.push(Plot::new(
        "Mean goodput with Blue by its steps, 5000 packets",
        caption.trim_end_matches(';').to_owned() + ".",
        ("setting", "% of the fair share"),
        vec![
            Series { name: "Blue".to_owned(), points: own },
            Series {
                name: "the lowest of the others".to_owned(),
                points: ends.map(|x| (x, least)).to_vec(),
            },
        ],
    ));
    Ok(plots)
}
