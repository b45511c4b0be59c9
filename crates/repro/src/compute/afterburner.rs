//! Afterburner's stream between two HP 9000/730 (J-67, J-79 to J-86), by running the model.

use super::{Computed, Setting, Value, row};
use crate::Error;
use lastmeter_base::Bytes;
use lastmeter_lab::historic::Pair;
use lastmeter_lab::library::Builtin;
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_ledger::{Ledger, Stage};

const HOST: &str = "hp9000-730";
const ADAPTER: &str = "afterburner";

/// The smallest `send()` in the document's mean.
const FLAT_FROM: Bytes = Bytes::from_kib(4);
/// Sizes of `send()`: multiples of 256 B, denser where the curve is steep.
const MESSAGES: [u64; 15] =
    [256, 512, 768, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 6144, 8192, 16_384, 32_768, 65_536];
/// A curve counts as flat if no sample exceeds another by more than the document's highest sample, 25.6,
/// exceeds its mean, 24.7.
const FLAT: f64 = 1.04;
/// Samples that differ by less count as equal: a packet more or less at the end of a run.
const SAME: f64 = 0.002;
/// Our threshold for "not by a significant amount".
const SIGNIFICANT: f64 = 0.01;

pub(super) fn stream(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let pair = Pair::read(HOST, ADAPTER, &Builtin).map_err(Error::Problems)?;
    let model = Model { setting, pair, large: setting.constants.get("large_segment")? };
    let small: Bytes = setting.constants.get("small_segment")?;
    let mut computed = configuration(&model);
    if ["J-81", "J-82", "J-83", "J-84", "J-85"].iter().any(|id| setting.wants(id)) {
        computed.extend(figure_9(&model.curve(model.large)?, &model.curve(small)?));
    }
    if ["J-67", "J-80", "J-84"].iter().any(|id| setting.wants(id)) {
        computed.extend(model.limit()?);
    }
    if setting.wants("J-86") {
        let throughput = |run: &str| setting.ledger(run, &[]).map(|ledger| throughput(&ledger));
        let (without, with) = (throughput("transfer")?, throughput("delayed")?);
        let holds = Value::Holds((with / without - 1.0).abs() < SIGNIFICANT);
        computed.push(row("J-86", holds));
    }
    Ok(computed)
}

/// Constants of the document that the profiles repeat.
fn configuration(model: &Model<'_>) -> Vec<Computed> {
    let Pair { host, adapter, .. } = &model.pair;
    let mut computed = vec![
        row("J-79/link-rate", adapter.rate),
        row("J-79/block", adapter.packet_max),
        row("J-79/segment", model.large),
    ];
    let buffer = host.socket_buffer.map(|buffer| row("J-81/socket-buffer", buffer));
    computed.extend(buffer);
    computed
}

/// A sample of Fig 9.
struct Sample {
    message: Bytes,
    /// Bytes a second of data.
    throughput: f64,
}

struct Model<'a> {
    setting: &'a Setting<'a>,
    pair: Pair,
    large: Bytes,
}

impl Model<'_> {
    fn curve(&self, packet: Bytes) -> Result<Vec<Sample>, Error> {
        let sample = |&message: &u64| {
            let given = [("message", message.into()), ("packet", packet.0.into())];
            let throughput = throughput(&self.setting.ledger("transfer", &given)?);
            Ok(Sample { message: Bytes(message), throughput })
        };
        MESSAGES.iter().map(sample).collect()
    }

    /// The bottleneck and the best what-if of an explained run.
    fn limit(&self) -> Result<Vec<Computed>, Error> {
        let ledger = self.setting.ledger("judged", &[])?;
        let limit = ledger.verdict.as_ref().and_then(|verdict| verdict.resource.as_deref());
        let is_copy = Value::Holds(limit == Some("receiver.card-to-memory"));
        let stream = &ledger.paths[0];
        let copies = |host: &str| {
            let at = |stage: &&Stage| stage.place.host.as_deref() == Some(host);
            let stages = stream.stages.iter().filter(at);
            Value::Number(stages.map(|stage| f64::from(stage.copies.unwrap_or(0))).sum(), "copies")
        };
        let multiple = Value::Number(stream.totals.memory_multiple.unwrap_or(0.0), "B/B");
        let peak = self.pair.host.resources.iter().find(|known| known.name == "card-to-memory");
        let peak = peak.map_or(0.0, |peak| 1e9 / peak.per_byte.as_fs() as f64);
        Ok(vec![
            row("J-67/copies-application", copies("sender")),
            row("J-67/copies-card", copies("receiver")),
            row("J-80", multiple),
            row("J-84/peak-copy", in_mb(peak * 1e6)),
            row("J-84/copy-limits", is_copy),
        ])
    }
}

fn figure_9(large: &[Sample], small: &[Sample]) -> Vec<Computed> {
    let flat = |curve: &[Sample]| -> Vec<f64> {
        let samples = curve.iter().filter(|sample| sample.message >= FLAT_FROM);
        samples.map(|sample| sample.throughput).collect()
    };
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
    let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
    let least = |samples: &[f64]| samples.iter().copied().fold(f64::MAX, f64::min);
    let (flat_large, flat_small) = (flat(large), flat(small));
    let is_flat = |samples: &[f64]| Value::Holds(most(samples) <= FLAT * least(samples));
    let rises = |curve: &[Sample]| {
        let up = |pair: &[Sample]| pair[1].throughput >= (1.0 - SAME) * pair[0].throughput;
        Value::Holds(curve.windows(2).all(up))
    };
    let above = Value::Holds(least(&flat_large) > most(&flat_small));
    let gain = 100.0 * (mean(&flat_large) / mean(&flat_small) - 1.0);
    vec![
        row("J-81/14-kb", rises(large)),
        row("J-81/6-kb", rises(small)),
        row("J-81/14-kb-flat", is_flat(&flat_large)),
        row("J-81/6-kb-flat", is_flat(&flat_small)),
        row("J-81/14-kb-above", above),
        row("J-82/mean-4", in_mb(mean(&flat_large))),
        row("J-82/bits", in_mbit(mean(&flat_large))),
        row("J-83", in_mb(most(&flat_large))),
        row("J-84/throughput", in_mb(most(&flat_large))),
        row("J-85", (gain, "%")),
    ]
}

/// Fig 9.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let pair = Pair::read(HOST, ADAPTER, &Builtin).map_err(Error::Problems)?;
    let model = Model { setting, pair, large: setting.constants.get("large_segment")? };
    let small: Bytes = setting.constants.get("small_segment")?;
    let series = [("14 KB packets", model.large), ("6 KB packets", small)].map(|(name, packet)| {
        let point = |one: &Sample| (one.message.0 as f64 / 1024.0, one.throughput / 1e6);
        let points = model.curve(packet)?.iter().map(point).filter(|one| one.0 <= 16.0).collect();
        Ok(Series { name: name.to_owned(), points })
    });
    Ok(vec![
        Plot::new(
            "Fig 9: TCP stream throughput of Afterburner",
            "Flat from 4 KB: 24.7 MB/s with 14 KB packets, a fifth less with 6 KB. The \
                  rise hangs on an assumed send() of 50 us.",
            ("size of send(), KB", "throughput, MB/s"),
            series.into_iter().collect::<Result<_, Error>>()?,
        )
        .marked(vec![(4.0, "4 KB".to_owned())]),
    ])
}

fn in_mb(bytes_per_second: f64) -> Value {
    Value::Number(bytes_per_second / 1e6, "MB/s")
}

fn in_mbit(bytes_per_second: f64) -> Value {
    Value::Number(bytes_per_second * 8.0 / 1e6, "Mbit/s")
}

/// Bytes a second that the stream delivers; acknowledgements do not count.
fn throughput(ledger: &Ledger) -> f64 {
    ledger.paths[0].totals.goodput / 8.0
}
