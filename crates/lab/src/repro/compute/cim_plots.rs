//! Figs 5.5 and 5.7 to 5.10 drawn from our runs (E-69, E-71 to E-73, E-76).
//!
//! The adapter's own measurements exist in print only, so what is drawn is the model beside the
//! document's formulas.

use super::Setting;
use super::cim_model::{Bench, SIZES, alone, overlapped, read};
use crate::report::plots::{Plot, Series};
use crate::repro::Error;
use lastmeter_base::Bytes;
use lastmeter_host::adapter::description::Description;

const DEPTHS: [u64; 4] = [1, 2, 3, 4];

fn plot(title: &str, caption: &str, y: &str, series: Vec<Series>) -> Plot {
    Plot {
        title: title.to_owned(),
        caption: caption.to_owned(),
        x: "message, KB".to_owned(),
        y: y.to_owned(),
        over_time: false,
        series,
        marks: Vec::new(),
    }
}

/// A curve over the sizes of messages.
fn curve(name: impl Into<String>, value: impl Fn(u64) -> f64) -> Series {
    let points = SIZES.iter().map(|&len| (len as f64 / 1024.0, value(len))).collect();
    Series { name: name.into(), points }
}

/// One plot for each.
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
            "By the constants of Table 5.1: the transfer decides beyond 4 KB.",
            "ms",
            vec![
                curve("host interface", |_| 1e3 * cim.host.per_message.as_secs_f64()),
                curve("transfer (Eq 5.3)", |len| 1e3 * cim.transfer_time(Bytes(len)).as_secs_f64()),
                curve("network (Eq 5.1)", network),
            ],
        ),
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
            "Fig 5.10(a): what the improvements gain, depth 1",
            "Run. Two banks gain nothing with one message on its way.",
            "% more messages",
            improved(1),
        ),
        plot(
            "Fig 5.10(b): what the improvements gain, depth 2",
            "Run, beside the adapter as it is at the same depth.",
            "% more messages",
            improved(2),
        ),
    ])
}
