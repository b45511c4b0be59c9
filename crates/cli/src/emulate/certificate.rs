//! The certificate of a live run: whether it kept up with real time, with the figures.
//!
//! A run kept up when none of its frames was lost at its own ports and enough of them left in time.
//! A frame's lateness counts from its modelled departure until the kernel has accepted it, plus the time
//! for which it had waited unseen, where the kernel reports that.

use lastmeter_base::Duration;
use lastmeter_engine::Distribution;
use lastmeter_ledger::{Certificate, Lag};
use lastmeter_live::session::Measured;

/// The requirement of a certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// The share of departures that must be within the tolerance.
    pub share: f64,
    /// Tolerated lateness of a departure.
    pub tolerance: Duration,
}

impl Demand {
    /// Of a run that busy-polls.
    pub const BUSY: Demand = Demand { share: 0.99, tolerance: Duration::from_us(100) };
    /// Of a run that sleeps between deadlines: timers and the scheduler make sleeps end late.
    pub const SLEEPING: Demand = Demand { share: 0.99, tolerance: Duration::from_ms(1) };
}

/// The steps of the distribution of lateness.
const STEPS: [Duration; 10] = [
    Duration::from_us(5),
    Duration::from_us(10),
    Duration::from_us(20),
    Duration::from_us(50),
    Duration::from_us(100),
    Duration::from_us(200),
    Duration::from_us(500),
    Duration::from_ms(1),
    Duration::from_ms(10),
    Duration::MAX,
];

/// The share of values at most `limit`; a bucket that contains the limit counts as above.
pub(crate) fn share_within(distribution: &Distribution, limit: Duration) -> f64 {
    if distribution.max() <= limit {
        return 1.0;
    }
    let within = distribution
        .buckets()
        .filter(|&(start, width, _)| start.as_ps() + width.as_ps() - 1 <= limit.as_ps())
        .map(|(_, _, count)| count)
        .sum::<u64>();
    within as f64 / distribution.count().max(1) as f64
}

/// States whether a run kept up. `waiting_is_idle` says whether waiting was spent asleep.
pub(crate) fn certificate(measured: &Measured, demand: Demand) -> Certificate {
    let lag = &measured.lag;
    let within = |limit| share_within(lag, limit);
    let [mut received, mut sent, mut unreachable] = [0; 3];
    for line in &measured.lines {
        received += line.counts.received;
        sent += line.counts.sent;
        unreachable += line.counts.unreachable;
    }
    let on_time = within(demand.tolerance);
    let overruns = measured.overruns;
    let lost = overruns as f64 / (received + overruns).max(1) as f64;
    let kept_up = overruns == 0
        && on_time >= demand.share
        && measured.violation.is_none()
        && broken(measured).is_none();
    let frames = received.max(1) as f64;
    let model =
        (measured.elapsed - measured.receiving - measured.sending - measured.waiting).max(0.0);
    let stages = [
        ("receive", measured.receiving / frames),
        ("model", model / frames),
        ("send", measured.sending / sent.max(1) as f64),
    ];
    let mut before = 0.0;
    let lags = STEPS.map(|step| {
        let share = within(step);
        let departures = ((share - before) * lag.count() as f64).round() as u64;
        before = share;
        Lag {
            at_most: if step == Duration::MAX { f64::MAX } else { step.as_secs_f64() },
            departures,
        }
    });
    let mut certificate = Certificate {
        kept_up,
        within_10us: within(Duration::from_us(10)),
        within_20us: within(Duration::from_us(20)),
        within_100us: within(Duration::from_us(100)),
        within_1ms: within(Duration::from_ms(1)),
        worst_lag: lag.max().as_secs_f64(),
        overruns,
        departures: lag.count(),
        required: demand.share,
        tolerance: demand.tolerance.as_secs_f64(),
        shortfall: lost,
        cpu: measured.cpu / measured.elapsed.max(f64::MIN_POSITIVE),
        stages: stages.map(|(name, cost)| (name.to_owned(), cost)).into(),
        lags: lags.into_iter().filter(|lag| lag.departures > 0).collect(),
        words: String::new(),
    };
    certificate.words = words(&certificate, measured, unreachable, on_time, demand);
    if let Some(broken) = broken(measured) {
        certificate.words = format!("{broken} {}", certificate.words);
    }
    certificate
}

/// What the run lost before its end, in words; `None` if its hosts and interfaces lasted.
pub(crate) fn broken(measured: &Measured) -> Option<String> {
    let gone: Vec<&str> =
        measured.lines.iter().filter(|line| line.gone).map(|line| line.name.as_str()).collect();
    let mut words = Vec::new();
    if !gone.is_empty() {
        words.push(format!("the interface of {} was gone before the end", gone.join(", ")));
    }
    if !measured.lost.is_empty() {
        let lost = measured.lost.join(", ");
        words.push(format!("the helper process of {lost} ended before the run did"));
    }
    let found = words.join(", and ");
    (!words.is_empty()).then(|| format!("The run is not what the experiment describes: {found}."))
}

fn words(
    certificate: &Certificate,
    measured: &Measured,
    unreachable: u64,
    on_time: f64,
    demand: Demand,
) -> String {
    let percent = |share: f64| format!("{:.4} %", share * 100.0);
    let worst = measured.lag.max();
    if certificate.departures == 0 && certificate.overruns == 0 {
        return format!("there were no frames to carry. {}", gone(unreachable))
            .trim_end()
            .to_owned();
    }
    let timeliness = format!(
        "{} of {} departures at most {} late, worst {worst}",
        percent(on_time),
        certificate.departures,
        demand.tolerance,
    );
    if certificate.kept_up {
        return format!("{timeliness}, no frame lost at its own ports.{}", gone(unreachable))
            .trim_end()
            .to_owned();
    }
    let mut words = String::new();
    if certificate.overruns > 0 {
        words += &format!(
            "{} frames were lost at its own ports, {} of those to carry; ",
            certificate.overruns,
            percent(certificate.shortfall),
        );
    }
    if let Some((at, lag)) = measured.violation {
        words += &format!("at {at} a frame left {lag} late, more than {}; ", demand.tolerance);
    }
    words += &format!("{timeliness}; {} are required. ", percent(demand.share));
    words + help(certificate, measured, demand) + gone(unreachable)
}

fn gone(unreachable: u64) -> &'static str {
    match unreachable {
        0 => "",
        _ => " Frames were lost because an interface was down or gone.",
    }
}

/// What would help, by what the run spent its time on.
fn help(certificate: &Certificate, measured: &Measured, demand: Demand) -> &'static str {
    const SATURATED: f64 = 0.15;
    let idle = measured.waiting / measured.elapsed.max(f64::MIN_POSITIVE);
    let is_busy = demand.tolerance < Demand::SLEEPING.tolerance;
    let stage = |name: &str| certificate.stages.get(name).copied().unwrap_or_default();
    if idle < SATURATED {
        return match stage("send") > stage("receive") + stage("model") {
            true => {
                "The emulator's core was saturated, mostly by handing frames to the kernel, \
                 which runs the receiving host's stack in the same call. What would help: a \
                 lower rate, larger packets, or a faster core."
            }
            false => {
                "The emulator's core was saturated. What would help: a lower rate, larger \
                 packets, or a faster core."
            }
        };
    }
    match is_busy {
        false => "What would help: --busy, which polls instead of sleeping, and --pin.",
        true => {
            "The emulator's core was not saturated, but other programs took it when it was \
             needed. What would help: a core of its own (--pin, and nothing else on it)."
        }
    }
}
