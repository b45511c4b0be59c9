//! Figs 5.5 to 5.10, drawn from our runs (E-69 to E-73, E-76).
//!
//! The adapter's measurements exist in print only, so each plot has the model and the document's formulas.

use super::Setting;
use super::cim_model::{Bench, SIZES, alone, overlapped, read};
use crate::Error;
use lastmeter_base::{Bytes, Time};
use lastmeter_host::adapter::description::Description;
use lastmeter_host::adapter::pipeline::run;
use lastmeter_host::adapter::transmitter::{Phase, Variation};
use lastmeter_ledger::plots::{Plot, Series};

const DEPTHS: [u64; 4] = [1, 2, 3, 4];
/// DMA of the CIM: bytes, and nanoseconds per word of [`WORD`] bytes.
const TABLE_3_1: [(u64, f64); 2] = [(2048, 1250.0), (4096, 2250.0)];
const WORD: u64 = 4;

fn plot(title: &str, caption: &str, y: &str, series: Vec<Series>) -> Plot {
    Plot::new(title, caption, ("message, KB", y), series)
}

/// A curve by message size.
fn curve(name: impl Into<String>, value: impl Fn(u64) -> f64) -> Series {
    let points = SIZES.iter().map(|&len| (len as f64 / 1024.0, value(len))).collect();
    Series { name: name.into(), points }
}

/// DMA time per word from Table 3.1 beside Eq 5.3: the part of Fig 5.5(b) that the text gives.
fn approximation(cim: &Description) -> Plot {
    let error = |(len, per_word): (u64, f64)| {
        let by_equation = 1e9 * cim.transfer_time(Bytes(len)).as_secs_f64();
        (len as f64 / 1024.0, 100.0 * (by_equation / (per_word * (len / WORD) as f64) - 1.0))
    };
    let line = |len: u64| {
        let all = cim.transfer_time(Bytes(len)).as_secs_f64();
        let far = cim.transfer_time(Bytes(65_536)).as_secs_f64() / 65_536.0;
        100.0 * (far * len as f64 / all - 1.0)
    };
    let points = |values: Vec<(f64, f64)>| Series { name: String::new(), points: values };
    let named = |name: &str, series: Series| Series { name: name.to_owned(), ..series };
    let short = SIZES.iter().filter(|&&len| len <= 16_384);
    let sizes = short.map(|&len| (len as f64 / 1024.0, line(len))).collect();
    plot(
        "Fig 5.5(b): error of the approximation",
        "Of the document's measurements only the two of Table 3.1 are printed, and Eq 5.3 is far \
         from both: it says itself that they diverge about 4 KB. The other curve is what one slope \
         for all lengths would miss of the two.",
        "%",
        vec![
            named("Eq 5.3 beside Table 3.1", points(TABLE_3_1.map(error).into())),
            named("one slope beside Eq 5.3", points(sizes)),
        ],
    )
}

/// The phases of a message as a step function of time.
fn steps(name: &str, phases: &[(u64, Phase, Time, Time)], id: u64, lane: f64) -> Series {
    let ms = |at: Time| 1e3 * at.since_start().as_secs_f64();
    let height = |phase: Phase| {
        lane + match phase {
            Phase::Host => 0.2,
            Phase::Transfer => 0.4,
            Phase::Setup => 0.6,
            Phase::Network => 0.8,
        }
    };
    let mut points = vec![(0.0, lane)];
    let mut step = |from: Time, to: Time, height: f64| {
        if from < to {
            points.extend([(ms(from), lane), (ms(from), height), (ms(to), height), (ms(to), lane)]);
        }
    };
    for &(_, phase, from, to) in phases.iter().filter(|row| row.0 == id) {
        let taken = phases.iter().find(|row| {
            phase == Phase::Transfer
                && row.0 != id
                && row.1 == Phase::Network
                && row.2 < to
                && row.3 > from
        });
        match taken {
            Some(&(.., begins, ends)) => {
                step(from, begins, height(phase));
                step(ends, to, height(phase));
            }
            None => step(from, to, height(phase)),
        }
    }
    Series { name: name.to_owned(), points }
}

/// Two messages in flight, without and with the overlap of Eq 5.5.
fn overlap(cim: &Description) -> Plot {
    let mut apart = cim.clone();
    apart.network.setup_overlap = (0, 1);
    let of = |card| run(card, Bytes(4096), (2, 2), Variation::None, 1).timeline;
    let (together, apart) = (of(cim), of(&apart));
    let mut drawn = plot(
        "Fig 5.6: overlap of messages of 4 KB",
        "Each line is a message, its height the phase: waiting, host, transfer, network set-up, \
         frames. In case 2 the network pre-empts the transfer.",
        "message",
        vec![
            steps("message 2, case 2: Eq 5.5", &together, 1, 0.0),
            steps("message 2, case 1: Eq 5.4", &apart, 1, 1.0),
            steps("message 1", &together, 0, 2.0),
        ],
    );
    drawn.x = "ms".to_owned();
    drawn
}

pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let bench = Bench { cim: read("cim")?, seed: setting.seed };
    let cim = &bench.cim;
    let ms = |card: &Description, len, depth| 1e3 * bench.mean(card, len, depth);
    let simple = cim.with_simple_interface();
    let banks = cim.with_two_banks();
    let both = simple.with_two_banks();
    let improved = |depth: u64| {
        let of = |name: &str, card: &Description| curve(name, |len| bench.gain(card, len, depth));
        vec![of("simple interface", &simple), of("two banks of memory", &banks), of("both", &both)]
    };
    let throughput = |len: u64, depth| len as f64 / bench.mean(cim, len, depth) / 1e6;
    let delay = |len: u64, depth| 1e3 * bench.run(cim, len, depth).latency.mean();
    let by_depth = |value: &dyn Fn(u64, u64) -> f64| {
        let of = |depth| curve(format!("depth {depth}"), |len| value(len, depth));
        DEPTHS.into_iter().map(of).collect()
    };
    let network = |len| {
        let (free, rest) = cim.network_time(Bytes(len));
        1e3 * (free + rest).as_secs_f64()
    };
    Ok(vec![
        plot(
            "Fig 5.5(a): sources of delay",
            "By the constants of Table 5.1: the transfer dominates beyond 4 KB.",
            "ms",
            vec![
                curve("host interface", |_| 1e3 * cim.host.per_message.as_secs_f64()),
                curve("transfer (Eq 5.3)", |len| 1e3 * cim.transfer_time(Bytes(len)).as_secs_f64()),
                curve("network (Eq 5.1)", network),
            ],
        ),
        approximation(cim),
        overlap(cim),
        plot(
            "Fig 5.7: mean time of a message",
            "The formulas, and the run with an exponential host part.",
            "ms",
            vec![
                curve("Eq 5.2, depth 1", |len| 1e3 * alone(cim, len).as_secs_f64()),
                curve("run, depth 1", |len| ms(cim, len, 1)),
                curve("Eq 5.5, depth 2", |len| 1e3 * overlapped(cim, len).as_secs_f64()),
                curve("run, depth 2", |len| ms(cim, len, 2)),
            ],
        ),
        plot(
            "Fig 5.8: throughput by depth",
            "Run. Linear axes, where the document has logarithmic ones.",
            "MB/s",
            by_depth(&throughput),
        ),
        plot(
            "Fig 5.9: mean delay by depth",
            "Run, from when a message begins until it is done.",
            "ms",
            by_depth(&delay),
        ),
        plot(
            "Fig 5.10(a): gain of the improvements, depth 1",
            "Run. Two banks gain nothing with one message in flight.",
            "% more messages",
            improved(1),
        ),
        plot(
            "Fig 5.10(b): gain of the improvements, depth 2",
            "Run, compared with the unchanged adapter at the same depth.",
            "% more messages",
            improved(2),
        ),
    ])
}
