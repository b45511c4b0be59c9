//! The CIM simulated from its description (E-27, E-28, E-58 to E-62, E-70 to E-76), and a modern adapter
//! compared with published arithmetic of its bus (E-39, E-40, E-126).

use super::{Computed, Setting, Value, row};
use crate::Error;
use lastmeter_base::{Bytes, Duration};
use lastmeter_host::adapter::description::{Description, Side};
use lastmeter_host::adapter::pcie;
use lastmeter_host::adapter::pipeline::{Outcome, run};
use lastmeter_host::adapter::transmitter::{Phase, Variation};
use lastmeter_lab::library::{Builtin, Library};
use lastmeter_lab::profile::device;

const NAME: &str = "cim-model";
/// Messages per measurement; the document sends 12,000.
const MESSAGES: usize = 6_000;
/// From small ones, through one frame, to where the transfer limits. In bytes.
pub(super) const SIZES: [u64; 9] = [44, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];

pub(super) fn read(name: &str) -> Result<Description, Error> {
    device::read(name, &Builtin).map_err(|message| Error::Computation { name: NAME, message })
}

/// One adapter, simulated repeatedly.
pub(super) struct Bench {
    pub(super) cim: Description,
    pub(super) seed: u64,
}

impl Bench {
    pub(super) fn run(&self, card: &Description, len: u64, depth: u64) -> Outcome {
        run(card, Bytes(len), (depth, MESSAGES), Variation::Exponential, self.seed)
    }

    pub(super) fn mean(&self, card: &Description, len: u64, depth: u64) -> f64 {
        self.run(card, len, depth).mean.as_secs_f64()
    }

    /// The throughput gain of `better` over the CIM as described, in per cent.
    pub(super) fn gain(&self, better: &Description, len: u64, depth: u64) -> f64 {
        100.0 * (self.mean(&self.cim, len, depth) / self.mean(better, len, depth) - 1.0)
    }

    /// The throughput gain of one more message in flight, in per cent.
    fn deeper(&self, len: u64, depth: u64) -> f64 {
        let (less, more) = (self.mean(&self.cim, len, depth), self.mean(&self.cim, len, depth + 1));
        100.0 * (less / more - 1.0)
    }
}

fn percent(value: f64) -> Value {
    Value::Number(value, "percent")
}

/// Figs 3.4, 5.1 to 5.4 and 5.6 to 5.10.
pub(super) fn model(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let bench = Bench { cim: read("cim")?, seed: setting.seed };
    let computed =
        [interface(&bench), depth(&bench), theory(&bench), improvements(&bench)].concat();
    Ok(computed.into_iter().filter(|value| setting.wants(&value.id)).collect())
}

fn interface(bench: &Bench) -> Vec<Computed> {
    let cim = &bench.cim;
    let sent = run(cim, Bytes(4096), (1, 1), Variation::None, bench.seed).commands;
    let said: Vec<&str> = sent.iter().map(|&(.., word)| word).collect();
    let received: Vec<&str> = cim.reception(1).iter().map(|&(_, word)| word).collect();
    let by_card = |commands: &[(Side, &'static str)]| {
        Value::Number(cim.interrupts(commands) as f64, "interrupts")
    };
    let fig_5_1 = ["write", "write ack", "address list", "address ack", "transmit ack"];
    let fig_5_2 = ["read", "read ack", "address", "address ack", "read end"];
    let count = |value: usize| Value::Number(value as f64, "commands");
    let stages = Value::Number(cim.queueing.stages as f64, "stages");
    let received_in =
        |card: &Description| Value::Number(card.reception_stages().len() as f64, "stages");
    let mut generic = cim.clone();
    generic.host.transfer_ack = false;
    let sides: Vec<(Side, &'static str)> =
        sent.iter().map(|&(_, side, word)| (side, word)).collect();
    vec![
        row("E-58", count(sent.len())),
        row("E-59/transmission", said == fig_5_1),
        row("E-59/interrupts", by_card(&sides)),
        row("E-60", received == fig_5_2),
        row("E-61", stages),
        row("E-62", received_in(cim)),
        row("E-98/stages-reception", received_in(&generic)),
        row("E-98/interrupts", by_card(&generic.reception(1))),
    ]
}

fn depth(bench: &Bench) -> Vec<Computed> {
    let gains: Vec<f64> = SIZES.iter().map(|&len| bench.deeper(len, 1)).collect();
    let greatest = gains.iter().copied().fold(0.0, f64::max);
    let saturates = gains.windows(2).skip(4).all(|pair| pair[1] < pair[0]);
    let throughput = |len: u64, depth: u64| len as f64 / bench.mean(&bench.cim, len, depth) / 1e6;
    let near_linear = |from: u64| {
        let factor = throughput(2 * from, 1) / throughput(from, 1);
        (1.5..=2.0).contains(&factor)
    };
    let latency = |len: u64, depth: u64| bench.run(&bench.cim, len, depth).latency.mean();
    let flat =
        latency(2048, 1) / latency(44, 1) < 1.5 && latency(65_536, 1) / latency(4096, 1) > 3.0;
    let with_depth = (1..4).all(|depth| latency(4096, depth + 1) > latency(4096, depth));
    vec![
        row("E-27/greatest-gain", percent(greatest)),
        row("E-27/depth-1", [256, 512, 1024].into_iter().all(near_linear)),
        row("E-27/gain-falls", saturates),
        row("E-27/throughput", (throughput(3 << 20, 2), "MB/s")),
        row("E-27/latency-flat", flat),
        row("E-27/latency-rises", with_depth),
        row("E-28", percent(bench.deeper(8192, 2))),
    ]
}

/// Eq 5.2, from the phases of the description.
pub(super) fn alone(cim: &Description, len: u64) -> Duration {
    let (free, rest) = cim.network_time(Bytes(len));
    cim.host.per_message + cim.transfer_time(Bytes(len)) + free + rest
}

/// Eq 5.5, from the phases of the description.
pub(super) fn overlapped(cim: &Description, len: u64) -> Duration {
    let (free, rest) = cim.network_time(Bytes(len));
    cim.transfer_time(Bytes(len)).max(free) + rest
}

fn theory(bench: &Bench) -> Vec<Computed> {
    let cim = &bench.cim;
    let error = |&len: &u64| (bench.mean(cim, len, 1) / alone(cim, len).as_secs_f64() - 1.0).abs();
    let mean_error = 100.0 * SIZES.iter().map(error).sum::<f64>() / SIZES.len() as f64;
    let optimistic =
        |&len: &u64| bench.mean(cim, len, 2) >= 0.999 * overlapped(cim, len).as_secs_f64();
    let outcome = run(cim, Bytes(4096), (2, 4), Variation::None, bench.seed);
    let of = |id: u64, phase: Phase| {
        let row = outcome.timeline.iter().find(|row| (row.0, row.1) == (id, phase));
        row.map_or((Duration::ZERO, Duration::ZERO), |&(.., from, to)| {
            (from.since_start(), to.since_start())
        })
    };
    let (transfer, network) = (of(1, Phase::Transfer), of(0, Phase::Network));
    let split = transfer.0 < network.0 && network.1 < transfer.1;
    let delay = |depth: u64| bench.run(cim, 16_384, depth).latency.mean();
    let slope = |from: u64, to: u64| {
        let time = |len| cim.transfer_time(Bytes(len)).as_secs_f64();
        (time(to) - time(from)) / (to - from) as f64
    };
    vec![
        row("E-69", slope(4096, 16_384) < slope(1024, 4096)),
        row("E-70", split),
        row("E-71", SIZES.iter().all(optimistic)),
        row("E-72", percent(mean_error)),
        row("E-73", delay(1) < delay(2) && delay(2) < delay(4)),
    ]
}

fn improvements(bench: &Bench) -> Vec<Computed> {
    let simple = bench.cim.with_simple_interface();
    let banks = bench.cim.with_two_banks();
    let both = simple.with_two_banks();
    let greatest = |gains: &[f64]| gains.iter().copied().fold(f64::MIN, f64::max);
    let least = |gains: &[f64]| gains.iter().copied().fold(f64::MAX, f64::min);
    let by_banks: Vec<f64> = SIZES.iter().map(|&len| bench.gain(&banks, len, 2)).collect();
    let small = [512, 1024, 1536, 2048].map(|len| bench.gain(&banks, len, 2));
    let by_both: Vec<f64> = SIZES[1..].iter().map(|&len| bench.gain(&both, len, 2)).collect();
    let interface = |len| percent(bench.gain(&simple, len, 1));
    let falls = [44, 256, 1024, 4096].map(|len| bench.gain(&simple, len, 1));
    let fixed = |card: &Description, len| run(card, Bytes(len), (2, 400), Variation::None, 1).mean;
    let certain = |len| {
        100.0 * (fixed(&bench.cim, len).as_secs_f64() / fixed(&banks, len).as_secs_f64() - 1.0)
    };
    let busy = |len| bench.run(&bench.cim, len, 2).busy;
    let (at_small, at_large) = (busy(44), busy(65_536));
    vec![
        row("E-74/commands-simple", (simple.transmission().len() as f64, "commands")),
        row("E-74/interrupts", (simple.interrupts(&simple.transmission()) as f64, "interrupts")),
        row("E-75", SIZES.iter().all(|&len| bench.gain(&banks, len, 1).abs() < 0.01)),
        row("E-76/interface", interface(44)),
        row("E-76/interface-depth", interface(256)),
        row("E-76/interface-depth-1", interface(1024)),
        row("E-76/interface-smaller", falls.windows(2).all(|pair| pair[0] > pair[1])),
        row("E-76/banks-depth", percent(small.iter().sum::<f64>() / 4.0)),
        row("E-76/banks-depth-2", percent(greatest(&by_banks))),
        row("E-76/banks-depth-2-very", percent(by_banks[SIZES.len() - 1])),
        row("E-76/both-depth", percent(least(&by_both))),
        row("E-76/both-depth-2", percent(greatest(&by_both))),
        row("E-76/variation", certain(8192) > 35.0),
        row("E-76/64-kb", at_large[1] > at_large[0].max(at_large[2])),
        row("E-76/44-b", at_small[0] > 10.0 * at_small[1]),
    ]
}

/// The lines of a bundled description.
fn builtin_lines(name: &str) -> f64 {
    let text = Builtin.profile(device::FOLDER, name).unwrap_or_default();
    text.lines().count() as f64
}

/// A modern adapter from its description, compared with the published arithmetic.
pub(super) fn modern(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let (simple, card) = (read("simple-nic")?, read("pcie4")?);
    let link = |card: &Description| {
        card.transfer.pcie.ok_or(Error::Computation { name: NAME, message: "no bus".to_owned() })
    };
    let gbit = |bits: f64| Value::Number(bits / 1e9, "Gbit/s");
    let reaches = |card: &Description, len: u64| {
        pcie::throughput(card, Bytes(len)).is_some_and(|(bus, both)| both < bus)
    };
    let bytes = pcie::per_packet(&simple, Bytes(512)).unwrap_or_default();
    let bus = |len: u64| pcie::throughput(&card, Bytes(len)).map_or(0.0, |(bus, _)| bus);
    let sizes = [64, 128, 256, 512, 1024, 1500];
    let sent = |len: u64| {
        let messages = run(&card, Bytes(len), (64, 4000), Variation::None, setting.seed);
        gbit(8.0 * len as f64 / messages.mean.as_secs_f64())
    };
    let lines = builtin_lines("pcie4");
    let size = |len: &u64| Value::Number(*len as f64, "B");
    let first = sizes.iter().find(|&&len| reaches(&card, len)).unwrap_or(&0);
    let computed = vec![
        row("E-40/pcie-3_0", gbit(link(&simple)?.raw())),
        row("E-40/pcie-3_0-x8", gbit(link(&simple)?.transactions())),
        row("E-40/pcie-4_0", gbit(link(&card)?.transactions())),
        row("E-40/simple-adapter", (bytes[0], "B")),
        row("E-40/simple-adapter-512", (bytes[1], "B")),
        row("E-40/simple-adapter-40", !reaches(&simple, 512) && reaches(&simple, 768)),
        row("E-39", (card.host.queues as f64, "queues")),
        row("E-126/modern-adapter", gbit(bus(64))),
        row("E-126/modern-adapter-1500", gbit(bus(1500))),
        row("E-126/modern-adapter-reaches", size(first)),
        row("E-126/modern-adapter-run", sent(64)),
        row("E-126/modern-adapter-run-128", sent(128)),
        row("E-126/modern-adapter-run-512", sent(512)),
        row("E-126/modern-adapter-run-1500", sent(1500)),
        row("E-126/lines-description", (lines, "lines")),
    ];
    Ok(computed.into_iter().filter(|value| setting.wants(&value.id)).collect())
}
