//! Several interfaces on one host (E-120 to E-125): Table 7.3, Figs 7.10 and 7.11.

use super::livelock::setup;
use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::reception::{Setup, gap};
use lastmeter_base::{Duration, Time};
use lastmeter_host::receive::backoff::{Backoff, Parameters};
use lastmeter_host::receive::equations::guarantee;
use lastmeter_host::receive::shares::Shares;
use lastmeter_host::receive::trial::{self, Arrivals};
use lastmeter_host::receive::{InterfaceOptions, Policy};

/// Table 7.3: what END 1 and END 2 reserve, in experiments 1 to 3 and 7 to 9; 4 to 6 and 10 to 12 differ only
/// in their factors.
const RESERVED: [[u64; 2]; 6] =
    [[300, 1200], [700, 800], [1000, 500], [100, 1000], [500, 600], [800, 300]];
/// Offered rates of END 1; END 2 always sends 1000.
const RATES: [u64; 9] = [300, 400, 500, 600, 700, 800, 1000, 1500, 2000];
/// A rate at which both are overloaded.
const OVERLOAD: u64 = 2000;
const END_2: u64 = 1000;
/// Some 10,000 packets, like each point of the document.
const LENGTH: Duration = Duration::from_secs(7);

/// How interfaces share the host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// `b` = 2.00, `r` = 0.99.
    Strict,
    /// `b` = 1.50, `r` = 0.80.
    Loose,
    /// Our own choice.
    Exact,
}

struct Bench<'a> {
    setup: Setup,
    period_min: Duration,
    period_max: Duration,
    setting: &'a Setting<'a>,
}

/// Packets per second of each interface.
type Pair = [f64; 2];

impl Bench<'_> {
    fn policy(&self, how: How, quota: u64) -> Box<dyn Policy> {
        let (period_min, period_max) = (self.period_min, self.period_max);
        let backoff = |factor, restore| {
            Box::new(Backoff::new(Parameters { period_min, period_max, factor, restore, quota }))
        };
        match how {
            How::Strict => backoff((200, 100), (99, 100)),
            How::Loose => backoff((150, 100), (80, 100)),
            How::Exact => Box::new(Shares::new(period_max / 2, period_max, quota)),
        }
    }

    fn run(&self, how: How, reserved: [u64; 2], rate: u64) -> Pair {
        let card = |reserved: u64| {
            // Quota = Q / (2 I_max), so Q = 2 I_max x quota.
            let quota = (2 * self.period_max.as_ps() * reserved) / 1_000_000_000_000;
            InterfaceOptions {
                reservation: Some(gap(reserved as f64)),
                ..self.setup.interface(self.policy(how, quota))
            }
        };
        let host = self.setup.host(reserved.map(card).into_iter().collect());
        let second = Arrivals {
            start: Time::START + Duration::from_us(311),
            ..self.setup.periodic(END_2 as f64)
        };
        let arrivals = [self.setup.periodic(rate as f64), second];
        let outcome = trial::run(host, &arrivals, self.setting.seed, LENGTH / 5, LENGTH);
        [outcome.processed[0], outcome.processed[1]]
    }

    fn curve(&self, how: How, reserved: [u64; 2]) -> Vec<Pair> {
        RATES.iter().map(|&rate| self.run(how, reserved, rate)).collect()
    }
}

/// The least that an overloaded interface must get beside another: its reservation and its share of the rest,
/// but no more than its offered load.
fn fair(reserved: [u64; 2], total: f64) -> Pair {
    let sum = (reserved[0] + reserved[1]) as f64;
    let second = (total * reserved[1] as f64 / sum).min(END_2 as f64);
    [total - second, second]
}

fn near(ours: f64, other: f64, share: f64) -> bool {
    (ours / other - 1.0).abs() <= share
}

pub(super) fn two(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let constants = setting.constants;
    let bench = Bench {
        setup: setup(setting)?,
        period_min: constants.get("period_min")?,
        period_max: constants.get("period_max")?,
        setting,
    };
    let mut computed = vec![
        row("E-122/i_min", bench.period_min),
        row("E-122/i_max", bench.period_max),
        row("E-122/experiments", (2.0 * RESERVED.len() as f64, "experiments")),
        row("E-121", (guarantee(12, bench.period_max), "packets/s")),
    ];
    for (at, id) in ["E-123", "E-124"].into_iter().enumerate() {
        let reserved = &RESERVED[3 * at..3 * at + 3];
        computed.extend(figure(&bench, id, reserved));
    }
    computed.extend(lessons(&bench));
    Ok(computed.into_iter().filter(|value| setting.wants(&value.id)).collect())
}

fn packets(value: f64) -> Value {
    Value::Number(value, "packets/s")
}

/// One figure: three reservations, each with both pairs of factors.
fn figure(bench: &Bench<'_>, id: &'static str, all: &[[u64; 2]]) -> Vec<Computed> {
    let mut computed = Vec::new();
    let (mut follows, mut capacity, mut linear, mut larger) = (true, true, true, true);
    for &reserved in all {
        let (strict, loose) =
            (bench.curve(How::Strict, reserved), bench.curve(How::Loose, reserved));
        for curve in [&strict, &loose] {
            linear &= near(curve[0][0], 300.0, 0.01) && near(curve[0][1], 1000.0, 0.01);
            capacity &= curve.last().is_some_and(|end| end[0] + end[1] > 1400.0);
        }
        let end = strict[RATES.len() - 1];
        let [one, two] = reserved;
        larger &= (end[0] > end[1]) == (one > two);
        for (at, [own, other]) in [[1, 2], [2, 1]].into_iter().enumerate() {
            let item = format!("END {own} beside END {other}, {one} + {two}, r = 0.99");
            computed.push(Computed::new(id, item, packets(end[at])));
        }
        let end = loose[RATES.len() - 1];
        let bias = end[0] / (end[0] + end[1]);
        follows &= (bias - 0.5).abs() < 0.05;
    }
    let words = "r = 0.99: the larger reservation gets more, beyond what is reserved too";
    computed.push(Computed::new(id, words, larger));
    computed.push(Computed::new(id, "no backoff while the host keeps up", linear));
    computed.push(Computed::new(id, "r = 0.80: roughly equal shares", follows));
    computed.push(Computed::new(id, "no livelock in any experiment", capacity));
    let least = all.iter().flat_map(|&reserved| {
        let end = bench.run(How::Strict, reserved, OVERLOAD);
        [(end[0], reserved[0]), (end[1], reserved[1].min(END_2))]
    });
    let kept = least.map(|(got, reserved)| got / reserved as f64).fold(f64::MAX, f64::min);
    computed.push(Computed::new(
        id,
        "r = 0.99: least share of a reservation that is kept",
        Value::Number(100.0 * kept, "%"),
    ));
    computed.push(Computed::new(id, "total reserved", packets(all[0].iter().sum::<u64>() as f64)));
    computed
}

fn lessons(bench: &Bench<'_>) -> Vec<Computed> {
    let dips = |how: How| {
        let curve = bench.curve(how, [300, 1200]);
        curve.iter().map(|pair| pair[1]).fold(f64::MAX, f64::min)
    };
    let (strict, loose, exact) = (dips(How::Strict), dips(How::Loose), dips(How::Exact));
    let ends: Vec<([u64; 2], Pair)> = RESERVED
        .iter()
        .map(|&reserved| (reserved, bench.run(How::Exact, reserved, OVERLOAD)))
        .collect();
    let error = |(reserved, got): &([u64; 2], Pair)| {
        let should = fair(*reserved, got[0] + got[1]);
        (0..2).map(|at| (got[at] / should[at] - 1.0).abs()).fold(0.0, f64::max)
    };
    let worst = 100.0 * ends.iter().map(error).fold(0.0, f64::max);
    let strict_worst = RESERVED
        .iter()
        .map(|&reserved| error(&(reserved, bench.run(How::Strict, reserved, OVERLOAD))))
        .fold(0.0, f64::max);
    let least = ends.iter().map(|(_, got)| got[0] + got[1]).fold(f64::MAX, f64::min);
    let absorbed = bench.run(How::Strict, [300, 1200], OVERLOAD)[0];
    vec![
        row("E-120", absorbed > 400.0),
        row("E-125/first-backoff", strict < 900.0),
        row("E-125/r-0_80", loose < 900.0),
        row("E-125/ours-end", packets(exact)),
        row("E-125/ours-worst", (worst, "%")),
        row("E-125/ours-nearer", worst < 100.0 * strict_worst),
        row("E-125/ours-least", packets(least)),
    ]
}
