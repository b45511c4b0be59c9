//! Afterburner's stream between two HP 9000/730 (J-67, J-79 to J-86), by running the model.

use super::{Computed, Setting, Value, row};
use crate::Error;
use lastmeter_base::{Bytes, Duration};
use lastmeter_engine::Serial;
use lastmeter_host::profile::StageProfile;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::historic::{DURATION, Pair};
use lastmeter_lab::library::Builtin;
use lastmeter_lab::run::{self, Failure, Runner, Watch};
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_ledger::{Ledger, Stage};

const NAME: &str = "afterburner-stream";
const HOST: &str = "hp9000-730";
const ADAPTER: &str = "afterburner";

/// Where the document's mean begins.
const FLAT_FROM: Bytes = Bytes::from_kib(4);
/// Sizes of `send()`: multiples of 256 B, close where the curve is steep.
const MESSAGES: [u64; 15] =
    [256, 512, 768, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 6144, 8192, 16_384, 32_768, 65_536];
/// A curve is flat where no sample is further above another: what the highest sample of the
/// document, 25.6, is above the mean, 24.7.
const FLAT: f64 = 1.04;
/// Samples that differ by less are the same: a packet more or less at the end of a run.
const SAME: f64 = 0.002;
/// Our reading of "not by a significant amount".
const SIGNIFICANT: f64 = 0.01;

pub(super) fn stream(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let pair = Pair::read(HOST, ADAPTER, &Builtin).map_err(Error::Problems)?;
    agrees(setting, &pair)?;
    let model = Model { pair, large: setting.constants.get("large_segment")? };
    let small: Bytes = setting.constants.get("small_segment")?;
    let mut computed = configuration(&model);
    if ["J-81", "J-82", "J-83", "J-84", "J-85"].iter().any(|id| setting.wants(id)) {
        computed.extend(figure_9(&model.curve(model.large)?, &model.curve(small)?));
    }
    if ["J-67", "J-80", "J-84"].iter().any(|id| setting.wants(id)) {
        computed.extend(model.limit()?);
    }
    if setting.wants("J-86") {
        let delay: Duration = setting.constants.get("jetstream_delay")?;
        let (without, with) = (model.goodput(Duration::ZERO)?, model.goodput(delay)?);
        let holds = Value::Holds((with / without - 1.0).abs() < SIGNIFICANT);
        computed.push(row("J-86", holds));
    }
    Ok(computed)
}

/// Both profiles have the constants whose origin the experiment states, so that fitted ones are
/// counted.
fn agrees(setting: &Setting<'_>, pair: &Pair) -> Result<(), Error> {
    let constants = setting.constants;
    let wrong = |name: &str| Error::Computation {
        name: NAME,
        message: format!("constant `{name}` is not what the profiles {HOST} and {ADAPTER} have"),
    };
    let same = |name: &'static str, same: bool| if same { Ok(()) } else { Err(wrong(name)) };
    let whole = pair.host.with(&pair.adapter);
    let stage = |name: &str| -> Result<&StageProfile, Error> {
        let found = whole.send.iter().chain(&whole.receive).find(|stage| stage.name == name);
        found.ok_or_else(|| wrong(name))
    };
    let protocol: Duration = constants.get("protocol")?;
    same("protocol", stage("protocol in")?.cost.per_packet == protocol)?;
    same("protocol", stage("protocol out")?.cost.per_packet == protocol)?;
    let set_up = stage("set up block moves")?.cost.per_byte;
    same("move_set_up", set_up == constants.get("move_set_up")?)?;
    same("send_call", stage("send call")?.per_message == constants.get("send_call")?)?;
    same("copy_out", stage("copy to card")?.cost.per_byte == constants.get("copy_out")?)?;
    let ports = ["card sends", "card receives"].map(stage);
    for port in ports {
        same("port", port?.cost.per_byte == constants.get("port")?)?;
    }
    let peak = whole.resources.iter().find(|resource| resource.name == "card-to-memory");
    let peak = peak.ok_or_else(|| wrong("copy_peak"))?.per_byte;
    same("copy_peak", peak == constants.get("copy_peak")?)?;
    same("cable_delay", pair.adapter.delay == constants.get("cable_delay")?)
}

/// What the profiles repeat of the document.
fn configuration(model: &Model) -> Vec<Computed> {
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

struct Model {
    pair: Pair,
    large: Bytes,
}

impl Model {
    fn parse(
        &self,
        text: Result<String, Vec<lastmeter_lab::document::Problem>>,
    ) -> Result<Experiment, Error> {
        let text = text.map_err(Error::Problems)?;
        Experiment::parse(NAME, text, &[], &Builtin).map_err(Error::Problems)
    }

    fn curve(&self, packet: Bytes) -> Result<Vec<Sample>, Error> {
        let sample = |&message: &u64| {
            let message = Bytes(message);
            let experiment = self.parse(self.pair.experiment(message, packet, DURATION))?;
            Ok(Sample { message, throughput: throughput(&ledger(&experiment)?) })
        };
        MESSAGES.iter().map(sample).collect()
    }

    /// Throughput of 4 KB messages with so much more delay each way.
    fn goodput(&self, delay: Duration) -> Result<f64, Error> {
        let mut pair = self.pair.clone();
        pair.adapter.delay += delay;
        let text = pair.experiment(FLAT_FROM, self.large, DURATION);
        Ok(throughput(&ledger(&self.parse(text)?)?))
    }

    /// What a run with what-ifs names.
    fn limit(&self) -> Result<Vec<Computed>, Error> {
        let text = self.pair.experiment(FLAT_FROM, self.large, Duration::from_ms(500));
        let experiment = self.parse(text)?;
        let ledger = with_runner(|runner| run::explain(&experiment, 0, runner))?.ledger;
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
        row("J-85", Value::Number(gain, "%")),
    ]
}

/// Fig 9.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let pair = Pair::read(HOST, ADAPTER, &Builtin).map_err(Error::Problems)?;
    let model = Model { pair, large: setting.constants.get("large_segment")? };
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

fn ledger(experiment: &Experiment) -> Result<Ledger, Error> {
    with_runner(|runner| run::ledger(experiment, runner))
}

fn with_runner<T>(run: impl FnOnce(Runner<'_>) -> Result<T, Failure>) -> Result<T, Error> {
    let watch = Watch::default();
    run(Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch }).map_err(
        |failure| match failure {
            Failure::Problems(problems) => Error::Problems(problems),
            failure => Error::Computation { name: NAME, message: failure.to_string() },
        },
    )
}
