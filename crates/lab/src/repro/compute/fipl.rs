//! FIPL: lookup engines that share one memory (D-133 to D-139), over a Tree Bitmap of the same size.

use super::{Computed, Setting, Value};
use crate::repro::{Constants, Error};
use lastmeter_base::{Duration, Time};
use lastmeter_host::lookup_engines::{Engines, Options};
use lastmeter_net::lookup::table::{addresses, generate, load};
use lastmeter_net::lookup::{self, TreeBitmap};

const NAME: &str = "fipl";

/// How many prefixes of each length routing tables had in the middle of 2001, of a hundred thousand:
/// 57 % of 24 bits, most others from 16 to 23 (Huston, "Analyzing the Internet's BGP routing table",
/// The Internet Protocol Journal 4(1), 2001). It stands for the part of Mae-West's table.
const LENGTHS_2001: &[(u8, u32)] = &[
    (8, 25),
    (9, 5),
    (10, 10),
    (11, 15),
    (12, 45),
    (13, 100),
    (14, 260),
    (15, 450),
    (16, 7200),
    (17, 1500),
    (18, 2600),
    (19, 7000),
    (20, 5800),
    (21, 4700),
    (22, 7000),
    (23, 8600),
    (24, 57_500),
];
/// A route that nobody covers has 8 nodes of 4 bits and one more for all 32.
const NODES_MOST: u64 = 9;
/// Throughput that differs by less is the same.
const SAME: f64 = 0.01;
/// Phases of the updates beside the run, of which the document reports the worst.
const PHASES: u64 = 16;

/// Ways of a run's addresses down the tree, and the engines that go them.
struct Bench {
    options: Options,
    nodes: Vec<u64>,
    cells: u64,
    held: Duration,
}

/// What a run gave.
struct Run {
    /// Lookups a second.
    rate: f64,
    /// Mean, in seconds.
    latency: f64,
}

impl Bench {
    fn read(setting: &Setting<'_>) -> Result<Bench, Error> {
        let constants: &Constants = setting.constants;
        let routes: u64 = constants.get("routes")?;
        let table = generate::<u32>(routes as usize, LENGTHS_2001, setting.seed);
        let tree: TreeBitmap<u32> = load(&table, lookup::Options::FIPL)
            .map_err(|full| Error::Computation { name: NAME, message: full.to_string() })?;
        let wanted: u64 = constants.get("addresses")?;
        let keys = addresses(&table, wanted as usize, setting.seed);
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

    /// A run from the first address to the last, with updates of this period and phase.
    fn run(&self, options: Options, updates: Option<(Duration, Duration)>) -> Run {
        let mut engines = Engines::new(options);
        self.nodes.iter().for_each(|&nodes| engines.lookup(Time::START, nodes));
        let mut update = updates.map(|(_, phase)| Time::START + phase);
        let (mut done, mut latency, mut end) = (0, Duration::ZERO, Time::START);
        while let Some(next) = engines.next() {
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

    /// The longest ways, with engines and memory of twice the clock.
    fn at_twice_the_clock(&self) -> f64 {
        let half = |time: Duration| Duration::from_ps(time.as_ps() / 2);
        let Options { cycle, period, handover, .. } = self.options;
        let (cycle, period, handover) = (half(cycle), half(period), half(handover));
        let options = Options { cycle, period, handover, ..self.options };
        self.at_worst(options)
    }

    /// Shares that so many updates a second take away, one for each phase.
    fn losses(&self, rate: u64) -> Vec<f64> {
        let without = self.run(self.options, None).rate;
        let period = Duration::from_secs(1) / rate;
        let phases = (0..PHASES).map(|phase| period * phase / PHASES);
        phases
            .map(|phase| 1.0 - self.run(self.options, Some((period, phase))).rate / without)
            .collect()
    }

    /// The longest ways, and addresses whenever an engine is free.
    fn at_worst(&self, options: Options) -> f64 {
        let nodes = vec![NODES_MOST; self.nodes.len()];
        let options = Options { supply: Duration::ZERO, ..options };
        Bench { options, nodes, ..*self }.run(options, None).rate
    }

    /// What twice as many engines bring at worst, with this memory and with one of twice the speed.
    fn twice(&self) -> (f64, f64) {
        let options = Options { engines: 2 * self.options.engines, ..self.options };
        let one = self.at_worst(self.options);
        let cycle = Duration::from_ps(options.cycle.as_ps() / 2);
        (self.at_worst(options) / one, self.at_worst(Options { cycle, ..options }) / one)
    }
}

pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let bench = Bench::read(setting)?;
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
    let losses: Vec<Vec<f64>> = updates.iter().map(|&rate| bench.losses(rate)).collect();
    let most = |losses: &[f64]| losses.iter().copied().fold(0.0, f64::max);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let (more, more_and_faster) = bench.twice();
    let mhz = 1.0 / bench.options.cycle.as_secs_f64() / 1e6;
    Ok(vec![
        Computed::new("D-133", "clock", Value::Number(mhz, "MHz")),
        Computed::new("D-134", "engines", count(all as u64, "engines")),
        Computed::new("D-135", "routes of the table", count(constants.get("routes")?, "routes")),
        Computed::new("D-136", "one engine: throughput", rate(one.rate)),
        Computed::new("D-136", "one engine: latency", time(one.latency)),
        Computed::new("D-136", "eight engines: throughput", rate(eight.rate)),
        Computed::new("D-136", "eight engines: latency", time(eight.latency)),
        Computed::new(
            "D-136",
            "latency with eight engines beside one",
            percent(eight.latency / one.latency - 1.0),
        ),
        Computed::new(
            "D-136",
            "throughput never falls with an engine more",
            Value::Holds(curve.windows(2).all(|pair| pair[1].rate > pair[0].rate * (1.0 - SAME))),
        ),
        Computed::new(
            "D-136",
            "eight engines consume the memory",
            Value::Holds(bench.options.cycle * all as u64 == bench.options.period),
        ),
        Computed::new(
            "D-136",
            "memory bandwidth limits",
            Value::Holds(more < 1.2 && more_and_faster > 1.8),
        ),
        Computed::new("D-137", "loss at 1,000 updates/s", percent(mean(&losses[0]))),
        Computed::new("D-137", "loss at 10,000 updates/s at most", percent(most(&losses[1]))),
        Computed::new("D-137", "loss at 100,000 updates/s at most", percent(most(&losses[2]))),
        Computed::new("D-138", "writes of an update", count(writes, "writes")),
        Computed::new("D-138", "control cells of an update", count(bench.cells, "cells")),
        Computed::new("D-138", "writes of a control cell", count(writes / bench.cells, "writes")),
        Computed::new("D-139", "worst case at 200 MHz", rate(projected)),
    ])
}
