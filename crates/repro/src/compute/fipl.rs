//! FIPL: lookup engines that share one memory (D-133 to D-139), over a Tree Bitmap of the same size.

use super::{Computed, Setting, Value, row};
use crate::{Constants, Error, Shelf};
use lastmeter_base::{Duration, Time};
use lastmeter_host::lookup_engines::{Engines, Options};
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_net::lookup::table::{LENGTHS_2001, addresses, generate, load};
use lastmeter_net::lookup::{self, TreeBitmap};

const NAME: &str = "fipl";

/// A route that no other covers has 8 nodes of 4 bits, and one for the full 32 bits.
const NODES_MOST: u64 = 9;
/// Rates that differ by less count as equal.
const SAME: f64 = 0.01;
/// Phases of the updates relative to the run; the worst is reported.
const PHASES: u64 = 16;

/// The tree paths of a run's addresses, and the engines that follow them.
struct Bench {
    options: Options,
    nodes: Vec<u64>,
    cells: u64,
    held: Duration,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Lookups per second.
    pub rate: f64,
    /// Mean latency, in seconds.
    pub latency: f64,
}

/// The document's engines, for comparison with today's measurements (D-134).
pub struct Engines2001(Bench);

impl Engines2001 {
    /// The engines of the bundled experiment.
    ///
    /// # Errors
    /// A constant is missing.
    pub fn new(seed: u64) -> Result<Engines2001, Error> {
        Shelf::builtin()
            .constants(NAME)
            .and_then(|constants| Bench::read(&constants, seed))
            .map(Engines2001)
    }
    /// The largest number of engines.
    pub fn engines(&self) -> usize {
        self.0.options.engines
    }
    /// A run with this many engines.
    pub fn run(&self, engines: usize) -> Run {
        self.0.engines(engines)
    }
    /// A run with this many engines and updates per second: the mean over all phases of the updates. The latency
    /// is that without updates.
    pub fn updated(&self, engines: usize, rate: u64) -> Run {
        let Run { rate: without, latency } = self.0.engines(engines);
        let losses = self.0.losses(Options { engines, ..self.0.options }, rate);
        Run { rate: without * (1.0 - mean(&losses)), latency }
    }
}

fn mean(losses: &[f64]) -> f64 {
    losses.iter().sum::<f64>() / losses.len() as f64
}

impl Bench {
    fn read(constants: &Constants, seed: u64) -> Result<Bench, Error> {
        let routes: u64 = constants.get("routes")?;
        let table = generate::<u32>(routes as usize, LENGTHS_2001, seed);
        let tree: TreeBitmap<u32> = load(&table, lookup::Options::FIPL)
            .map_err(|full| Error::Computation { name: NAME, message: full.to_string() })?;
        let wanted: u64 = constants.get("addresses")?;
        let keys = addresses(&table, wanted as usize, seed);
        let nodes = keys.iter().map(|&key| tree.explain(key).steps.len() as u64).collect();
        let options = Options {
            engines: constants.get::<u64>("engines")? as usize,
            cycle: constants.get("cycle")?,
            period: constants.get("period")?,
            handover: constants.get("handover")?,
            supply: constants.get("supply")?,
            in_order: true,
        };
        let (cells, held) = (constants.get("update_cells")?, constants.get("cell_held")?);
        Ok(Bench { options, nodes, cells, held })
    }

    fn engines(&self, engines: usize) -> Run {
        self.run(Options { engines, ..self.options }, None)
    }

    /// A run through all addresses, with updates of this period and phase.
    fn run(&self, options: Options, updates: Option<(Duration, Duration)>) -> Run {
        let mut engines = Engines::new(options);
        self.nodes.iter().for_each(|&nodes| engines.lookup(Time::START, nodes));
        let mut update = updates.map(|(_, phase)| Time::START + phase);
        let (mut done, mut latency, mut end) = (0, Duration::ZERO, Time::START);
        while let Some(next) = engines.ready_at() {
            if let (Some(at), Some((period, _))) = (update.filter(|&at| at <= next), updates) {
                (0..self.cells).for_each(|_| engines.control_cell(at, self.held));
                update = Some(at + period);
                continue;
            }
            engines.advance(next);
            for finished in engines.finished() {
                (done, latency) = (done + 1, latency + finished.latency);
                end = end.max(finished.at);
            }
        }
        let seconds = (end - Time::START).as_secs_f64();
        Run { rate: f64::from(done) / seconds, latency: latency.as_secs_f64() / f64::from(done) }
    }

    /// The longest paths, with engines and memory at twice the clock.
    fn at_twice_the_clock(&self) -> f64 {
        let half = |time: Duration| Duration::from_ps(time.as_ps() / 2);
        let Options { cycle, period, handover, .. } = self.options;
        let (cycle, period, handover) = (half(cycle), half(period), half(handover));
        let options = Options { cycle, period, handover, ..self.options };
        self.at_worst(options)
    }

    /// The share that updates at this rate take, for each phase.
    fn losses(&self, options: Options, rate: u64) -> Vec<f64> {
        let without = self.run(options, None).rate;
        let period = Duration::from_secs(1) / rate;
        let phases = (0..PHASES).map(|phase| period * phase / PHASES);
        phases.map(|phase| 1.0 - self.run(options, Some((period, phase))).rate / without).collect()
    }

    /// The longest paths, and an address whenever an engine is free.
    fn at_worst(&self, options: Options) -> f64 {
        let nodes = vec![NODES_MOST; self.nodes.len()];
        let options = Options { supply: Duration::ZERO, ..options };
        Bench { options, nodes, ..*self }.run(options, None).rate
    }

    /// The worst-case gain of twice as many engines, with this memory and with one twice as fast.
    fn twice(&self) -> (f64, f64) {
        let options = Options { engines: 2 * self.options.engines, ..self.options };
        let one = self.at_worst(self.options);
        let cycle = Duration::from_ps(options.cycle.as_ps() / 2);
        (self.at_worst(options) / one, self.at_worst(Options { cycle, ..options }) / one)
    }
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let bench = Bench::read(setting.constants, setting.seed)?;
    let constants = setting.constants;
    let (writes, updates): (u64, Vec<u64>) = (constants.get("writes")?, constants.get("updates")?);
    let count = |value: u64, unit| Value::Number(value as f64, unit);
    let rate = |value| Value::Number(value, "lookups/s");
    let percent = |share: f64| Value::Number(100.0 * share, "%");
    let time = |seconds| Value::Time(Duration::from_secs_f64(seconds));
    let all = bench.options.engines;
    let curve: Vec<Run> = (1..=all).map(|engines| bench.engines(engines)).collect();
    let (one, eight) = (&curve[0], &curve[all - 1]);
    let projected = bench.at_twice_the_clock();
    let losses: Vec<Vec<f64>> =
        updates.iter().map(|&rate| bench.losses(bench.options, rate)).collect();
    let most = |losses: &[f64]| losses.iter().copied().fold(0.0, f64::max);
    let (more, more_and_faster) = bench.twice();
    let mhz = 1.0 / bench.options.cycle.as_secs_f64() / 1e6;
    Ok(vec![
        row("D-133", (mhz, "MHz")),
        row("D-134", count(all as u64, "engines")),
        row("D-135", count(constants.get("routes")?, "routes")),
        row("D-136/engine-throughput", rate(one.rate)),
        row("D-136/engine-latency", time(one.latency)),
        row("D-136/eight-engines", rate(eight.rate)),
        row("D-136/eight-engines-latency", time(eight.latency)),
        row("D-136/latency-eight", percent(eight.latency / one.latency - 1.0)),
        row(
            "D-136/longest-latency",
            percent(curve.iter().map(|run| run.latency).fold(0.0, f64::max) / one.latency - 1.0),
        ),
        row(
            "D-136/throughput",
            curve.windows(2).all(|pair| pair[1].rate > pair[0].rate * (1.0 - SAME)),
        ),
        row(
            "D-136/eight-engines-consume",
            bench.options.cycle * all as u64 == bench.options.period,
        ),
        row("D-136/memory-bandwidth", more < 1.2 && more_and_faster > 1.8),
        row("D-137/loss-1", percent(mean(&losses[0]))),
        row("D-137/loss-10", percent(most(&losses[1]))),
        row("D-137/loss-100", percent(most(&losses[2]))),
        row("D-138/writes-update", count(writes, "writes")),
        row("D-138/control-cells", count(bench.cells, "cells")),
        row("D-138/writes-control", count(writes / bench.cells, "writes")),
        row("D-139", rate(projected)),
    ])
}

/// Figs 26 and 27.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let bench = Bench::read(setting.constants, setting.seed)?;
    let updates: Vec<u64> = setting.constants.get("updates")?;
    let plot = |title: &str, caption: &str, y: &str, series| {
        Plot::new(title, caption, ("lookup engines", y), series)
    };
    let curve = |name: String, of: &dyn Fn(usize) -> f64| {
        let points = (1..=bench.options.engines).map(|engines| (engines as f64, of(engines)));
        Series { name, points: points.collect() }
    };
    let with = |engines: usize| Options { engines, ..bench.options };
    let worst = |engines: usize| {
        let nodes = vec![NODES_MOST; bench.nodes.len()];
        Bench { nodes, ..bench }.run(with(engines), None)
    };
    let rate = |engines: usize| bench.engines(engines).rate / 1e6;
    let mut under = vec![curve("no updates".to_owned(), &rate)];
    for &updates in &updates {
        let name = format!("{updates} updates/s");
        under.push(curve(name, &|engines| {
            rate(engines) * (1.0 - mean(&bench.losses(with(engines), updates)))
        }));
    }
    Ok(vec![
        plot(
            "Fig 26: throughput",
            "1.53 to 10.1 million lookups/s in the document. At worst a lookup visits nine nodes.",
            "million lookups/s",
            vec![
                curve("addresses of the table".to_owned(), &rate),
                curve("at worst".to_owned(), &|engines| worst(engines).rate / 1e6),
            ],
        ),
        plot(
            "Fig 26: latency",
            "624 to 660 ns in the document: engines settle into phases in which they hardly wait.",
            "ns",
            vec![
                curve("addresses of the table".to_owned(), &|e| 1e9 * bench.engines(e).latency),
                curve("at worst".to_owned(), &|engines| 1e9 * worst(engines).latency),
            ],
        ),
        plot(
            "Fig 27: throughput under updates",
            "The mean over runs that begin at any phase of the updates. `lastmeter bench \
             lookup/engines` measures both figures on this machine.",
            "million lookups/s",
            under,
        ),
    ])
}
