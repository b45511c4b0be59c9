//! Receive livelock (E-96 to E-119): Eqs 7.1 to 7.5, and every policy simulated under load.

use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::reception::{Setup, explain, of_1997};
use lastmeter_base::{Bytes, Duration};
use lastmeter_host::receive::backoff::{Backoff, Parameters};
use lastmeter_host::receive::control;
use lastmeter_host::receive::equations;
use lastmeter_host::receive::explicit::Explicit;
use lastmeter_host::receive::interrupt::Interrupt;
use lastmeter_host::receive::polling::Polling;
use lastmeter_host::receive::timed::Timed;
use lastmeter_host::receive::trial::Outcome;
use lastmeter_host::receive::{Commands, InterfaceOptions, Policy, Scheduling};
use lastmeter_ledger::plots::{Plot, Series};

const NAME: &str = "livelock";

/// The rates of §7.3: 1000 to 5500 packets per second.
const RATES: [u64; 10] = [1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000, 5500];
/// Rates beyond the capacity of every policy.
const OVERLOAD: [u64; 4] = [2000, 3000, 4000, 5500];
/// The document has some thousand packets per point; 5 s give at least as many.
const LENGTH: Duration = Duration::from_secs(5);
const UNIT: Duration = Duration::from_ms(1);
/// Rates that differ by less count as equal: a batch more or less at the end.
const SAME: f64 = 0.01;
/// Our threshold for "stable" (Fig 7.7): the deviation from the mean over all overloads.
const STABLE: f64 = 0.05;

/// The host of Table 7.2, and what we assume of its adapter.
pub(super) fn setup(setting: &Setting<'_>) -> Result<Setup, Error> {
    let constants = setting.constants;
    let receive: Duration = constants.get("receive")?;
    let accept: Duration = constants.get("accept")?;
    let costs = lastmeter_host::receive::Costs {
        interrupt: constants.get("interrupt")?,
        switch: constants.get("switch")?,
        wake: Duration::ZERO,
        accept,
        demultiplex: Duration::ZERO,
        protocol: receive - accept,
        application: constants.get("application_1000")?,
        cache_miss: constants.get("cache_miss")?,
        look: Duration::ZERO,
    };
    Ok(Setup {
        costs,
        scheduling: Scheduling::Cooperative,
        commands: Commands::Two,
        adapter_buffers: constants.get("adapter_buffers")?,
        announced_max: constants.get("announced")?,
        host_buffers: constants.get("buffers")?,
        transfer: constants.get("transfer")?,
        len: constants.get::<Bytes>("packet")?,
    })
}

fn rate(value: f64) -> Value {
    Value::Number(value, "packets/s")
}

/// The formulas (E-107, E-109, E-110, E-112, E-114, E-121).
pub(super) fn equations(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let costs = setup(setting)?.costs;
    let load_1 = lastmeter_host::receive::Costs {
        application: setting.constants.get("application_1")?,
        ..costs
    };
    let period_max: Duration = setting.constants.get("period_max")?;
    let guarantees = [300.0, 1200.0];
    let ms = Duration::from_ms;
    let holds = |holds| Value::Holds(holds);
    let crossing = equations::interrupt(&costs);
    Ok(vec![
        row("E-107/c_sw", costs.switch),
        row("E-107/c_cm", costs.cache_miss),
        row("E-107/c_intr", costs.interrupt),
        row("E-107/c_ri", costs.accept + costs.protocol),
        row("E-107/c_pp-load", load_1.application),
        row("E-107/c_pp-load-1000", costs.application),
        row("E-109/eq-7_1", rate(equations::interrupt(&load_1))),
        row("E-109/eq-7_1-load", rate(crossing)),
        row("E-109/eq-7_1-was", rate(equations::interrupt(&load_1))),
        row("E-109/eq-7_1-was-measured", rate(crossing)),
        row("E-110/eq-7_2", rate(equations::livelock(&costs))),
        row("E-110/eq-7_2-was", rate(equations::livelock(&costs))),
        row(
            "E-110/eq-7_2-meets",
            holds((equations::processed(&costs, crossing) / crossing - 1.0).abs() < 1e-9),
        ),
        row("E-112/eq-7_3", rate(equations::polling(&costs, 1))),
        row("E-112/eq-7_3-q", rate(equations::polling(&costs, 8))),
        row("E-114/eq-7_4", rate(equations::timed(&costs, 8, ms(1)))),
        row("E-114/eq-7_4-second", rate(equations::timed(&costs, 8, ms(2)))),
        row("E-114/eq-7_4-q", rate(equations::timed(&costs, 2, ms(1)))),
        row("E-114/eq-7_4-q-5", rate(equations::timed(&costs, 5, ms(2)))),
        row("E-121/q-2", rate(equations::guarantee(12, period_max))),
        row("E-121/eq-7_5", holds(equations::admissible(1500.0, &guarantees))),
    ])
}

/// One policy at one rate.
struct Bench<'a> {
    setup: Setup,
    setting: &'a Setting<'a>,
}

impl Bench<'_> {
    fn offer(&self, interface: InterfaceOptions, rate: u64) -> Outcome {
        let arrivals = self.setup.periodic(rate as f64);
        self.setup.offer(interface, arrivals, self.setting.seed, LENGTH)
    }

    fn early(&self, policy: impl Policy + 'static, rate: u64) -> Outcome {
        self.offer(self.setup.interface(Box::new(policy)), rate)
    }

    fn late(&self, rate: u64) -> Outcome {
        let card = self.setup.interface(Box::new(Interrupt));
        self.offer(InterfaceOptions { accepts: None, ..card }, rate)
    }

    /// Mean throughput under overload.
    fn overloaded(&self, policy: impl Fn() -> Box<dyn Policy>) -> f64 {
        let curve = self.curve(&OVERLOAD, policy);
        curve.iter().sum::<f64>() / curve.len() as f64
    }

    fn curve(&self, rates: &[u64], policy: impl Fn() -> Box<dyn Policy>) -> Vec<f64> {
        let point = |&rate: &u64| self.offer(self.setup.interface(policy()), rate).total();
        rates.iter().map(point).collect()
    }

    fn timed(&self, quota: u64, period: u64) -> f64 {
        self.overloaded(|| Box::new(Timed::new(Duration::from_ms(period), quota)))
    }

    fn backoff(&self, period_max: u64, factor: (u64, u64), restore: (u64, u64)) -> f64 {
        let parameters = |quota| {
            let (period_min, period_max) = (UNIT, Duration::from_ms(period_max));
            Parameters { period_min, period_max, factor, restore, quota }
        };
        let quota = self.setting.constants.get("quota").unwrap_or(60);
        self.overloaded(|| Box::new(Backoff::new(parameters(quota))))
    }
}

/// The greatest rate in a range for which `holds` is true, given that it is true up to some rate and false beyond.
pub(super) fn last_rate(range: (u64, u64), holds: impl Fn(u64) -> bool) -> f64 {
    let (mut low, mut high) = range;
    while high - low > 1 {
        let middle = (low + high) / 2;
        match holds(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low as f64
}

/// Losses below this share count as none: packets in flight at the end.
const LOSSLESS: f64 = 0.998;

/// Figs 7.1 and 7.4 to 7.8 (E-96 to E-119).
pub(super) fn figures(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let bench = Bench { setup: setup(setting)?, setting };
    let mut computed = vec![row("E-99", (control::NAMES.len() as f64, "commands"))];
    // A single curve takes a fraction of the time of all.
    let wants = |ids: &[&str]| ids.iter().any(|id| setting.wants(id));
    if wants(&["E-96", "E-100", "E-108", "E-111"]) {
        computed.extend(interrupts(&bench)?);
    }
    if wants(&["E-96", "E-104"]) {
        computed.extend(ledger(&bench)?);
    }
    if wants(&["E-101", "E-113"]) {
        computed.extend(polling(&bench));
    }
    if wants(&["E-102", "E-115"]) {
        computed.extend(timed(&bench));
    }
    if wants(&["E-103", "E-116", "E-117", "E-118", "E-119"]) {
        computed.extend(adaptive(&bench));
    }
    Ok(computed.into_iter().filter(|value| setting.wants(&value.id)).collect())
}

fn interrupts(bench: &Bench<'_>) -> Result<Vec<Computed>, Error> {
    let lossless = |outcome: Outcome, rate: u64| outcome.total() >= LOSSLESS * rate as f64;
    let mut load_1 = Bench { setup: bench.setup, setting: bench.setting };
    load_1.setup.costs.application = bench.setting.constants.get("application_1")?;
    load_1.setup.costs.cache_miss = Duration::ZERO;
    let mlfrr =
        |bench: &Bench<'_>| last_rate((1000, 2200), |rate| lossless(bench.late(rate), rate));
    let early = last_rate((1000, 2200), |rate| lossless(bench.early(Interrupt, rate), rate));
    let alive = |rate: u64| bench.late(rate).total() > 0.0;
    let livelock = last_rate((1500, 5500), alive);
    let early_livelock = last_rate((1500, 5501), |rate| bench.early(Interrupt, rate).total() > 0.0);
    let curve: Vec<f64> = RATES.iter().map(|&rate| bench.late(rate).total()).collect();
    let by_equation = |&rate: &u64| {
        let costs = &bench.setup.costs;
        equations::processed(costs, rate as f64).min(rate as f64)
    };
    let agrees = |(ours, rate): (&f64, &u64)| (ours - by_equation(rate)).abs() < 10.0;
    Ok(vec![
        row("E-96/throughput", curve.ends_with(&[0.0; 6])),
        row("E-108", curve.iter().zip(&RATES).skip(1).all(agrees)),
        row("E-111/mlfrr-load", rate(mlfrr(&load_1))),
        row("E-111/mlfrr-load-1000", rate(mlfrr(bench))),
        row("E-111/livelock-beyond", rate(livelock)),
        row(
            "E-111/livelock-beyond-load",
            rate(last_rate((1500, 5500), |at| load_1.late(at).total() > 0.0)),
        ),
        row("E-111/early-drop", (early / mlfrr(bench) - 1.0).abs() < SAME),
        row("E-100/early-drop", early_livelock > livelock * (1.0 + SAME)),
        row("E-100/early-drop-prevent", early_livelock < 5500.0),
    ])
}

/// What the ledger says at 3000 packets per second.
fn ledger(bench: &Bench<'_>) -> Result<Vec<Computed>, Error> {
    let failed = |error: lastmeter_engine::Error| Error::Computation {
        name: NAME,
        message: error.to_string(),
    };
    let ways = of_1997();
    let explained = explain(&bench.setup, (&ways[0], &ways), UNIT, 3000.0, Duration::from_secs(2))
        .map_err(failed)?;
    let ledger = &explained.ledger;
    let verdict = ledger.verdict.as_ref().map_or("", |verdict| verdict.words.as_str());
    let backoff = ledger.what_ifs.iter().position(|w| w.change.starts_with("adaptive backoff"));
    Ok(vec![
        row("E-96/share-cpu", (100.0 * explained.reception, "%")),
        row("E-96/verdict-says", verdict.starts_with("Receive livelock: with interrupts")),
        row(
            "E-96/ledger-balances",
            ledger.balance.latency_residual == 0.0 && ledger.balance.packets_residual == 0,
        ),
        row(
            "E-104",
            backoff.is_some_and(|at| {
                let better = ledger.what_ifs[..at].iter().map(|w| w.change.as_str());
                better
                    .into_iter()
                    .all(|change| change.contains("adapter instead") || change.contains("ours"))
            }),
        ),
    ])
}

fn polling(bench: &Bench<'_>) -> Vec<Computed> {
    let at = |quota: u64| bench.overloaded(|| Box::new(Polling { quota }));
    let curve: Vec<f64> = (1..=8).map(at).collect();
    let rises = curve.windows(2).all(|pair| pair[1] > pair[0] * (1.0 - SAME / 10.0));
    let flat = bench.curve(&OVERLOAD, || Box::new(Polling { quota: 4 }));
    vec![
        row("E-113/lowest-q", rate(curve[0])),
        row("E-113/highest-q", rate(curve[7])),
        row("E-101", rises),
        row("E-113/livelock-up", stable(&flat, SAME)),
        row("E-113/better-eq", curve[7] > equations::polling(&bench.setup.costs, 8)),
    ]
}

/// Whether all points are within `share` of their mean.
fn stable(curve: &[f64], share: f64) -> bool {
    let mean = curve.iter().sum::<f64>() / curve.len() as f64;
    curve.iter().all(|point| (point / mean - 1.0).abs() <= share)
}

fn timed(bench: &Bench<'_>) -> Vec<Computed> {
    let curve = |period: u64| (1..=10).map(|q| bench.timed(q, period)).collect::<Vec<f64>>();
    let (one, two) = (curve(1), curve(2));
    // Among quotas for which the second term decides, the lowest one that is worse than its predecessor.
    let dip = |curve: &[f64], from: usize, to: usize| {
        let falls = (from..=to).filter(|&q| curve[q - 1] < curve[q - 2] * (1.0 - SAME));
        falls.min_by(|&a, &b| curve[a - 1].total_cmp(&curve[b - 1])).unwrap_or(0) as f64
    };
    let starved = |(q, ours): (usize, &f64), period: f64| {
        (ours / ((q + 1) as f64 / 2.0 / period) - 1.0).abs() < SAME
    };
    let commands = |value| Value::Number(value, "commands");
    vec![
        row("E-115/1-ms", rate(one[0])),
        row("E-115/1-ms-q", rate(one[1])),
        row("E-102/2-ms", two[..5].iter().enumerate().all(|at| starved(at, 2e-3))),
        row("E-115/1-ms-quota", commands(dip(&one, 4, 8))),
        row("E-115/2-ms", commands(dip(&two, 6, 9))),
        row("E-115/1-ms-q-8", one[7] > 1274.0),
        row("E-115/2-ms-q", two[7] > 1306.0),
        row(
            "E-102/livelock-up",
            stable(&bench.curve(&OVERLOAD, || Box::new(Timed::new(UNIT * 2, 6))), SAME),
        ),
    ]
}

fn adaptive(bench: &Bench<'_>) -> Vec<Computed> {
    let explicit = |quota: u64, interval: u64| {
        move || Box::new(Explicit::new(quota, UNIT * interval)) as Box<dyn Policy>
    };
    let quotas = [1, 2, 4, 8];
    let flat = |&q: &u64| stable(&bench.curve(&OVERLOAD, explicit(q, 2)), STABLE);
    let starves = bench.overloaded(explicit(1, 2)) < 2.0 * bench.timed(1, 2);
    let best = bench.backoff(20, (3, 2), (4, 5));
    let explicit_best =
        quotas.iter().map(|&q| bench.overloaded(explicit(q, 2))).fold(0.0, f64::max);
    let polled = bench.overloaded(|| Box::new(Polling { quota: 8 }));
    let timed = (1..=8).map(|q| bench.timed(q, 1).max(bench.timed(q, 2))).fold(0.0, f64::max);
    let others = [
        bench.backoff(10, (3, 2), (4, 5)),
        bench.backoff(20, (2, 1), (9, 10)),
        bench.backoff(30, (3, 2), (4, 5)),
        bench.backoff(20, (2, 1), (4, 5)),
    ];
    let weak = bench.backoff(30, (2, 1), (9, 10));
    let wasted = 100.0 * (1.0 - weak / best);
    let explicit_latency = bench.early(Explicit::new(8, UNIT * 2), 100).latency.mean();
    let timed_latency = bench.early(Timed::new(UNIT * 2, 8), 100).latency.mean();
    let cold = Bench { setup: without_cache(bench.setup), setting: bench.setting };
    vec![
        row("E-116/stable-q", quotas.iter().all(flat)),
        row("E-116/starve-timed", !starves),
        row("E-103", explicit_latency < timed_latency),
        row("E-117/backoff-1_5", rate(best)),
        row("E-117/highest-ways", best > explicit_best.max(polled).max(timed)),
        row("E-117/above-1500", cold.backoff(20, (3, 2), (4, 5)) < 1500.0),
        row("E-118/parameters", others.iter().all(|other| *other > best * (1.0 - SAME))),
        row("E-118/30-ms", (wasted, "%")),
        row("E-119/interrupts", [explicit_best, polled, timed, best].iter().all(|t| *t > 1245.0)),
        row("E-119/latency-backoff", bounded(bench)),
        row("E-119/smaller-quota", jitter(bench, 2) < jitter(bench, 8)),
    ]
}

/// The author's formulas: every packet pays for its own cache misses.
fn without_cache(mut setup: Setup) -> Setup {
    setup.costs.cache_miss = Duration::ZERO;
    setup
}

/// §7.2.3: the longest period, then the processing of all buffers and of a batch.
fn bounded(bench: &Bench<'_>) -> bool {
    let period_max = UNIT * 20;
    let costs = &bench.setup.costs;
    let work = costs.application * bench.setup.host_buffers + costs.protocol * 2 * 60;
    let bound = period_max + work;
    let policy = Backoff::new(Parameters {
        period_min: UNIT,
        period_max,
        factor: (3, 2),
        restore: (4, 5),
        quota: 60,
    });
    // Just beyond capacity, where the adapter's buffers add no wait of their own.
    bench.early(policy, 1400).latency.max() <= bound
}

/// The spread of latency with continuous polling under overload, in seconds.
fn jitter(bench: &Bench<'_>, quota: u64) -> f64 {
    let latency = bench.early(Polling { quota }, 3000).latency;
    (latency.percentile(0.99) - latency.percentile(0.01)).as_secs_f64()
}

/// Figs 7.4 to 7.8: throughput by offered rate.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let bench = Bench { setup: setup(setting)?, setting };
    let mut load_1 = Bench { setup: bench.setup, setting };
    load_1.setup.costs.application = setting.constants.get("application_1")?;
    load_1.setup.costs.cache_miss = Duration::ZERO;
    let quota = setting.constants.get("quota")?;
    let series = |name: String, value: &dyn Fn(u64) -> f64| {
        let points = RATES.iter().map(|&rate| (rate as f64, value(rate))).collect();
        Series { name, points }
    };
    let by_policy = |name: String, policy: &dyn Fn() -> Box<dyn Policy>| {
        series(name, &|rate| bench.offer(bench.setup.interface(policy()), rate).total())
    };
    let plot = |title: &str, caption: &str, series| {
        Plot::new(title, caption, ("offered, packets/s", "processed, packets/s"), series)
    };
    let polled = |quota| {
        by_policy(format!("Q = {quota}"), &|| Box::new(Polling { quota }) as Box<dyn Policy>)
    };
    let timed = |(period, quota): (u64, u64)| {
        by_policy(format!("{period} ms, Q = {quota}"), &|| {
            Box::new(Timed::new(UNIT * period, quota)) as Box<dyn Policy>
        })
    };
    let explicit = |quota| {
        by_policy(format!("Q = {quota}"), &|| {
            Box::new(Explicit::new(quota, UNIT * 2)) as Box<dyn Policy>
        })
    };
    let backoff = |ms: u64| {
        let parameters = || Parameters {
            period_min: UNIT,
            period_max: UNIT * ms,
            factor: (3, 2),
            restore: (4, 5),
            quota,
        };
        by_policy(format!("at most {ms} ms"), &|| {
            Box::new(Backoff::new(parameters())) as Box<dyn Policy>
        })
    };
    Ok(vec![
        plot(
            "Fig 7.4: interrupts",
            "Nothing is processed once reception takes the whole CPU; early drop delays that.",
            vec![
                series("load 1".to_owned(), &|rate| load_1.late(rate).total()),
                series("load 1000".to_owned(), &|rate| bench.late(rate).total()),
                series("load 1, early drop".to_owned(), &|rate| {
                    load_1.early(Interrupt, rate).total()
                }),
                series("load 1000, early drop".to_owned(), &|rate| {
                    bench.early(Interrupt, rate).total()
                }),
            ],
        ),
        plot(
            "Fig 7.5: continuous polling",
            "No livelock; more with a larger quota Q.",
            [1, 2, 4, 8].map(polled).into(),
        ),
        plot(
            "Fig 7.6: timed polling",
            "A small quota starves the application: at most Q / 2 packets a period.",
            [(1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4), (2, 8)].map(timed).into(),
        ),
        plot(
            "Fig 7.7: explicit interrupt management",
            "Interrupts off for 2 ms after Q commands: stable, and not starved by a small quota.",
            [1, 2, 4, 8].map(explicit).into(),
        ),
        plot(
            "Fig 7.8: adaptive backoff",
            "Backoff 1.5, restore 0.8, by the longest period.",
            [10, 20, 30].map(backoff).into(),
        ),
    ])
}
