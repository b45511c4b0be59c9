//! Figures of the Smart Port Card: 10 to 14, and what-ifs.

use super::Setting;
use super::spc::Card;
use crate::Error;
use lastmeter_base::{Bytes, Duration, PerByte};
use lastmeter_ledger::plots::{Plot, Series};

/// Thousands of packets are enough for a curve.
const LENGTH: Duration = Duration::from_ms(20);
/// The link rate of the traffic source, which bounds the offered load (D-12).
const OFFERED_MAX: f64 = 1.0e9;

/// Forwarded against offered load, each in thousands of packets per second.
fn curve(name: String, card: &Card, len: Bytes, offered: &[u64]) -> Result<Series, Error> {
    let point = |&offered: &u64| {
        Ok((offered as f64 / 1e3, card.offer_for(LENGTH, len, offered)?.rate / 1e3))
    };
    let points = offered.iter().map(point).collect::<Result<_, Error>>()?;
    Ok(Series { name, points })
}

/// The same in Mbit/s of packets.
fn in_bits(series: &Series, len: Bytes) -> Series {
    let bits = |kpps: f64| kpps * len.0 as f64 * 8.0 / 1e3;
    let points = series.points.iter().map(|&(x, y)| (bits(x), bits(y))).collect();
    Series { name: series.name.clone(), points }
}

const KPPS: (&str, &str) = ("offered, thousand packets/s", "forwarded, thousand packets/s");
const MBIT: (&str, &str) = ("offered, Mbit/s", "forwarded, Mbit/s");

/// Figs 10 to 14.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let constants = setting.constants;
    let (card, second) = (Card::read(constants)?, Card::second(constants)?);
    let small: Bytes = constants.get("small")?;
    let sizes: Vec<Bytes> = constants.get::<Vec<u64>>("sizes")?.into_iter().map(Bytes).collect();
    let longest = sizes.last().copied().unwrap_or(small);
    let most: u64 = constants.get("offered_most")?;
    let near: Vec<u64> = (80_000..=160_000).step_by(4_000).collect();
    let far: Vec<u64> = near.iter().copied().chain((200_000..=most).step_by(100_000)).collect();
    let ladder = [
        ("complete processing", card.with(|_| ())),
        ("without distributed queueing", card.without_queueing()),
        ("without FIPL as well", card.without_queueing().without_lookup()),
        ("without word swap as well", card.without_queueing().without_lookup().without_swap()),
    ];
    let rungs = ladder.iter().map(|(name, card)| curve((*name).to_owned(), card, small, &near));
    let mut fig10 = Plot::new(
        "Fig 10: forwarding rate of 40-byte packets",
        "Each step leaves out one more component. Dotted: the document's 105, 112, 128, 137.",
        KPPS,
        rungs.collect::<Result<_, _>>()?,
    );
    fig10.marks = [105.0, 112.0, 128.0, 137.0].map(|at| (at, format!("{at:.0}"))).into();
    let stable = Plot::new(
        "Section 6.2: offered load far above capacity",
        "Nothing is lost after reception, so the rate stays at its maximum up to 900 kpps: no \
         livelock. The output port looks nothing up.",
        KPPS,
        vec![
            curve("input port".to_owned(), &card, small, &far)?,
            curve("output port".to_owned(), &card.without_lookup(), small, &far)?,
        ],
    );
    let fig11 = Plot::new(
        "Fig 11: SPC 2 with all processing",
        "A memory that is 1.6 times as fast makes up for distributed queueing, FIPL and word swap.",
        KPPS,
        vec![
            curve("SPC".to_owned(), &card, small, &near)?,
            curve("SPC 2".to_owned(), &second, small, &near)?,
        ],
    );
    // Each size up to the rate of a link of 1 Gbit/s.
    let steps = |len: Bytes, most: f64| -> Vec<u64> {
        let top = (OFFERED_MAX / (len.0 as f64 * 8.0)).min(3.0 * most);
        (1..=24).map(|step| (top * f64::from(step) / 24.0) as u64).collect()
    };
    let by_size = sizes
        .iter()
        .map(|&len| curve(format!("{} B", len.0), &card, len, &steps(len, card.most(len)?)));
    let by_size: Vec<Series> = by_size.collect::<Result<_, _>>()?;
    let in_mbit = by_size.iter().zip(&sizes).map(|(series, &len)| in_bits(series, len)).collect();
    let fig12 = Plot::new(
        "Fig 12: forwarding rate by size",
        "Slope one, a knee, then flat; long packets decline once cells find the card full.",
        KPPS,
        by_size,
    );
    let fig13 = Plot::new("Fig 13: throughput by size", "Fig 12 times the size.", MBIT, in_mbit);
    let double = PerByte::from_fs(card.options.memory.as_fs() / 2);
    let variants = [
        ("as it is", card.with(|_| ())),
        ("without word swap", card.without_swap()),
        ("what if: memory twice as fast", card.with_memory(double)),
        ("what if: both", card.with_memory(double).without_swap()),
    ];
    let offered: Vec<u64> = (1..=24).map(|step| step * 2_000).collect();
    let variants = variants.iter().map(|(name, card)| {
        Ok(in_bits(&curve((*name).to_owned(), card, longest, &offered)?, longest))
    });
    let fig14 = Plot::new(
        "Fig 14: cost of word swap for the longest packets, and gain of faster memory",
        "220 Mbit/s with and 380 without, by the document; the what-ifs are the model's.",
        MBIT,
        variants.collect::<Result<_, Error>>()?,
    );
    Ok(vec![fig10, stable, fig11, fig12, fig13, fig14])
}
