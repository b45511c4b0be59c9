//! What §7 does not say, varied: in which range the orderings hold that it publishes.
//!
//! Fig 15's network with the small buffer and with the large one: propagation delay, the largest
//! window, how far apart sources start, the shortest retransmission timer, what a sender makes of
//! duplicates after a timeout, Blue's steps. And the two networks that the paper does not describe:
//! several hops by their buffer, mixed traffic by how far the far ones are.

use super::figures::means_over;
use super::network::{BlueSteps, Case, Discipline, Network, PUBLISHED, Shares, Unsaid};
use super::{PAPERS_MAIN, Reading, Study};
use crate::Error;
use lastmeter_ledger::plots::{Plot, Series};

/// Something that varies in Fig 15's network: what it is, the axis, and the values. What is as in the
/// network's file is [`Unsaid::default`], which is run once for all.
struct Axis {
    what: &'static str,
    x: &'static str,
    values: Vec<(u64, Unsaid)>,
}

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
/// Segments of 1460 B in the 1 MiB of the network's file.
const WINDOW: u64 = 718;
/// What varies where there are several hops: the buffer, in small ones.
const TIMES: [u64; 2] = [1, 5];
/// And where round-trip times are mixed: one way between far ones, in milliseconds; near ones have 20.
const FAR: [u64; 2] = [40, 80];

fn axes() -> [Axis; 5] {
    let none = Unsaid::default();
    let delay = |ms| (ms, Unsaid { delay: Some(ms), ..none });
    [
        // A region to an ocean.
        Axis {
            what: "propagation delay",
            x: "one way, ms",
            values: vec![delay(10), delay(25), (50, none), delay(100)],
        },
        // A little more than twice the fair share's, and what never limits.
        Axis {
            what: "largest window",
            x: "segments",
            values: vec![(100, Unsaid { window: Some(100), ..none }), (WINDOW, none)],
        },
        Axis {
            what: "spread of the start",
            x: "ms",
            values: vec![(0, none), (10, Unsaid { spread: Some(10), ..none })],
        },
        // What ns-2 had before 14 May 2001, and since.
        Axis {
            what: "shortest retransmission timer",
            x: "ms",
            values: vec![(200, none), (1000, Unsaid { timer: Some(1000), ..none })],
        },
        Axis {
            what: "whether duplicates after a timeout mean nothing",
            x: "0: no, 1: yes",
            values: vec![(0, none), (1, Unsaid { careful: true, ..none })],
        },
    ]
}

fn case(reading: &Reading, discipline: Discipline, packets: u64, unsaid: Unsaid) -> Case {
    Case { network: Network::Single, discipline, packets, length: reading.length_swept, unsaid }
}

fn hops(reading: &Reading, discipline: Discipline, times: u64) -> (f64, Case) {
    let packets = reading.small * times;
    let network = Network::Hops;
    (packets as f64, Case { network, ..case(reading, discipline, packets, Unsaid::default()) })
}

fn mixed(reading: &Reading, discipline: Discipline, ms: u64) -> (f64, Case) {
    let unsaid = Unsaid { far: Some(ms), ..Unsaid::default() };
    let network = Network::Mixed;
    (ms as f64, Case { network, ..case(reading, discipline, reading.small, unsaid) })
}

fn steps((increment, decrement, freeze): (f64, f64, u64)) -> Unsaid {
    Unsaid { blue: Some(BlueSteps { increment, decrement, freeze }), ..Unsaid::default() }
}

/// All of them.
pub(super) fn cases(reading: &Reading) -> Vec<Case> {
    let mut cases = Vec::new();
    for (_, unsaid) in axes().into_iter().flat_map(|axis| axis.values) {
        for packets in [reading.small, reading.large] {
            let of = |discipline| case(reading, discipline, packets, unsaid);
            cases.extend(PUBLISHED.map(of));
        }
    }
    let blue = |unsaid| case(reading, Discipline::Blue, reading.large, unsaid);
    cases.extend(STEPS.map(steps).map(blue));
    for discipline in PAPERS_MAIN {
        cases.extend(TIMES.map(|times| hops(reading, discipline, times).1));
        cases.extend(FAR.map(|ms| mixed(reading, discipline, ms).1));
    }
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
    Axis { what, x, values }: &Axis,
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

fn blue(study: &Study, reading: &Reading) -> Result<Plot, Error> {
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
        let usual = case(reading, discipline, reading.large, Unsaid::default());
        least = least.min(study.in_case(&usual)?.mean());
    }
    let ends = [1.0, STEPS.len() as f64];
    Ok(Plot::new(
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
    ))
}

/// What all connections get and what those of long paths do.
fn of_others(
    study: &Study,
    (title, x): (&str, &str),
    at: &dyn Fn(Discipline) -> [(f64, Case); 2],
) -> Result<Plot, Error> {
    let mut series = Vec::new();
    for discipline in PAPERS_MAIN {
        let mut add = |whose: &str, value: fn(&Shares) -> f64| -> Result<(), Error> {
            let point = |(x, case): (f64, Case)| -> Result<(f64, f64), Error> {
                Ok((x, value(study.in_case(&case)?)))
            };
            let points = at(discipline).into_iter().map(point).collect::<Result<_, _>>()?;
            series.push(Series { name: format!("{}{whose}", discipline.name()), points });
            Ok(())
        };
        add("", Shares::mean)?;
        add(", long paths", Shares::mean_first)?;
    }
    Ok(Plot::new(
        title,
        "Of all connections, and of those with long paths.",
        (x, "% of the fair share"),
        series,
    ))
}

/// Over each axis with both buffers, Blue's steps, and the other networks.
pub(super) fn plots(study: &Study, reading: &Reading) -> Result<Vec<Plot>, Error> {
    let mut plots = Vec::new();
    for axis in axes() {
        for packets in [reading.small, reading.large] {
            plots.push(figure(study, reading, packets, &axis)?);
        }
    }
    plots.push(blue(study, reading)?);
    plots.push(of_others(study, ("Three hops", "buffer, packets"), &|discipline| {
        TIMES.map(|times| hops(reading, discipline, times))
    })?);
    plots.push(of_others(
        study,
        ("Mixed round-trip times, 200 packets", "far connections, one way, ms"),
        &|discipline| FAR.map(|ms| mixed(reading, discipline, ms)),
    )?);
    Ok(plots)
}
