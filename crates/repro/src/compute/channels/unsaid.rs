//! What §6.4 leaves open, varied: the ranges in which its published values hold (E-89, E-92, E-94).
//!
//! The document prints neither the contracts of channels 0 to 5 nor the films. Each figure varies one parameter,
//! as means over seeds; a mark shows where the published numbers hold.

use super::super::Setting;
use super::spread::seeds;
use super::token::{Bench, EQOS, HEAVY, HQOS_1, HQOS_2, MINUTE, Plan, Queues, SPEED, Unsaid};
use crate::Error;
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_transport::channel::handlers::Regulation;

/// Milliseconds.
const TIGHTEST: [u64; 6] = [10, 15, 20, 25, 30, 40];
/// Twelfths of Table 6.2's B_max.
const BURSTS: [u64; 6] = [1, 3, 5, 6, 9, 12];
/// Most packets on the adapter.
const DEPTHS: [u64; 6] = [20, 40, 60, 80, 100, 150];
/// Frames per minute at 33 ms each, and at 30 per second: whole groups of pictures.
const MINUTES: [u64; 2] = [MINUTE, 1800];
/// C_sf, in hundredths.
const SPEEDS: [u64; 8] = [600, 650, 675, 700, 725, 750, 800, 1200];

/// Percentage of missed deadlines, as the mean over seeds.
fn mean(setting: &Setting<'_>, unsaid: Unsaid, plan: &Plan) -> Result<f64, Error> {
    let (mut sum, mut count) = (0.0, 0.0);
    for seed in seeds(setting) {
        sum += Bench::new(setting.constants, seed, unsaid)?.whole(plan, HEAVY)?.missed;
        count += 1.0;
    }
    Ok(sum / count)
}

/// A curve over `values`, each simulated by `run`.
fn curve(
    setting: &Setting<'_>,
    name: &str,
    values: &[u64],
    run: impl Fn(u64) -> (Unsaid, Plan),
) -> Result<Series, Error> {
    let point = |&value: &u64| {
        let (unsaid, plan) = run(value);
        Ok((value as f64, mean(setting, unsaid, &plan)?))
    };
    let points = values.iter().map(point).collect::<Result<_, Error>>()?;
    Ok(Series { name: name.to_owned(), points })
}

/// A figure; `holds` decides from all curves' values at one place whether the published ones hold there.
fn plot(
    (title, caption, x): (&str, &str, &str),
    series: Vec<Series>,
    holds: impl Fn(&[f64]) -> bool,
) -> Plot {
    let places = series.first().map_or(0, |first| first.points.len());
    let mark = |at: usize| {
        let values: Vec<f64> = series.iter().map(|curve| curve.points[at].1).collect();
        holds(&values).then(|| (series[0].points[at].0, "holds".to_owned()))
    };
    let marks = (0..places).filter_map(mark).collect();
    Plot::new(title, caption, (x, "% of real-time packets late or lost"), series).marked(marks)
}

/// Whether it is within a tenth of the published value.
fn near(value: f64, published: f64) -> bool {
    (value / published - 1.0).abs() <= 0.1
}

fn deadlines(setting: &Setting<'_>) -> Result<Plot, Error> {
    let of = |ms| Unsaid { tightest: Some(ms), ..Unsaid::NONE };
    let series = vec![
        curve(setting, "EQoS", &TIGHTEST, |ms| (of(ms), EQOS))?,
        curve(setting, "HQoS2", &TIGHTEST, |ms| (of(ms), HQOS_2))?,
    ];
    let words = (
        "Late packets against the tightest deadline, E-92",
        "Deadline of channels 4 and 5; 80 ms for channels 0 to 3. Published: EQoS below 1 %, HQoS2 \
         3 to 4 %. With one FIFO for all channels a deadline matters only if it is near the \
         token's 10 ms. Marked: where both hold.",
        "deadline of channels 4 and 5, ms",
    );
    Ok(plot(words, series, |late| late[0] < 1.0 && (3.0..=4.0).contains(&late[1])))
}

fn bursts(setting: &Setting<'_>) -> Result<Plot, Error> {
    let of = |twelfths| Unsaid { bursts: Some(twelfths), ..Unsaid::NONE };
    let two = |speed: u64, regulation| Plan {
        regulation,
        queues: Queues::Two,
        speed: speed * SPEED,
        ..EQOS
    };
    let run = |speed, regulation| move |b| (of(b), two(speed, regulation));
    let series = vec![
        curve(setting, "12, RT Pri", &BURSTS, run(12, Regulation::RealTimePriority))?,
        curve(setting, "12, Unregulated", &BURSTS, run(12, Regulation::Unregulated))?,
        curve(setting, "8, RT Pri", &BURSTS, run(8, Regulation::RealTimePriority))?,
    ];
    let words = (
        "Late packets against bursts, two queues, E-94",
        "Bursts of channels 0 to 5, in twelfths of Table 6.2's. Published: about 15 % with both \
         policies at 12, and similar at 8. Marked: where both hold at 12.",
        "B_max, twelfths of Table 6.2's",
    );
    Ok(plot(words, series, |late| near(late[0], 15.0) && near(late[1], 15.0)))
}

fn depths(setting: &Setting<'_>) -> Result<Plot, Error> {
    let mut series = Vec::new();
    for stagger in MINUTES {
        let unsaid = Unsaid { stagger, ..Unsaid::NONE };
        let name = format!("{stagger} frames a minute");
        let run = |depth| (unsaid, Plan { depth: Some(depth), ..HQOS_1 });
        series.push(curve(setting, &name, &DEPTHS, run)?);
    }
    let words = (
        "Late packets against depth, one queue, E-92",
        "Published: 15 % at 60. Instances of a film are a minute apart: 1818 frames of 33 ms, or \
         1800, whole groups of pictures, so that the large frames of all films coincide. Marked: \
         where 15 % lies between the two.",
        "most packets on the adapter",
    );
    Ok(plot(words, series, |late| late[0] <= 15.0 * 1.1 && late[1] >= 15.0 * 0.9))
}

fn speeds(setting: &Setting<'_>) -> Result<Plot, Error> {
    use Queues::{Deadlines, Two};
    use Regulation::{FlowControl, RealTimePriority, Unregulated};
    let mut series = Vec::new();
    for (name, regulation, queues) in [
        ("EDF, FlowCtrl", FlowControl, Deadlines),
        ("EDF, RT Pri", RealTimePriority, Deadlines),
        ("TwoQ, FlowCtrl", FlowControl, Two),
        ("TwoQ, Unregulated", Unregulated, Two),
    ] {
        let run = |speed| (Unsaid::NONE, Plan { regulation, queues, speed, ..EQOS });
        let mut of = curve(setting, name, &SPEEDS, run)?;
        of.points.iter_mut().for_each(|point| point.0 /= SPEED as f64);
        series.push(of);
    }
    let words = (
        "Missed deadlines against processor speed, E-94",
        "Published: at 7, 10 % with EDF and FlowCtrl and up to 80 % with less policing; at 8 as \
         at 12; at 6 almost all. At 7 the link is full, so a few per cent of speed or of film \
         traffic make all the difference. Marked: where 10 % holds.",
        "C_sf",
    );
    Ok(plot(words, series, |missed| near(missed[0], 10.0)))
}

/// The figures of the shared network.
pub(in super::super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    Ok(vec![deadlines(setting)?, bursts(setting)?, depths(setting)?, speeds(setting)?])
}
