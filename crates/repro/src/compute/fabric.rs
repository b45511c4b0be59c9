//! Distributed queueing: the stress load (D-118 to D-121), and the least sufficient speed-up (D-126).

use super::{Computed, Setting, Value, row};
use crate::{Constants, Error};
use lastmeter_base::{Bytes, Duration, Rate, Stream, Time};
use lastmeter_lan::fabric::allocation::Rule;
use lastmeter_lan::fabric::model::{Model, Options};
use lastmeter_lan::fabric::stress::{Load, Record, Sample, run};
use lastmeter_ledger::plots::{Plot, Series};

/// The router of Table 4 with one of the two sets of equations, and its load.
pub(crate) fn table_4(constants: &Constants, base: bool) -> Result<(Options, Load), Error> {
    let backlog_min = constants.get("backlog_min")?;
    let options = Options {
        ports: constants.get::<u64>("ports")? as usize,
        link: constants.get("link")?,
        speed_up: (constants.get("speed_up")?, 1),
        period: constants.get("period")?,
        rule: Some(if base { Rule::Base } else { Rule::Responsive { backlog_min } }),
        room: constants.get("room")?,
    };
    let load = Load {
        len: constants.get("packet")?,
        sources: constants.get::<u64>("sources")? as usize,
        stages: constants.get::<u64>("stages")? as usize,
        first: constants.get("first")?,
        periods: constants.get("length")?,
    };
    Ok((options, load))
}

fn mbit(value: f64) -> Value {
    Value::Number(value, "Mbit/s")
}
fn count(value: f64, unit: &'static str) -> Value {
    Value::Number(value, unit)
}

/// The stress load, with the equations of §8.2 and with those of §3.6.
pub(super) fn stress(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let (options, load) = table_4(setting.constants, false)?;
    let record = run(options, load);
    let base = run(table_4(setting.constants, true)?.0, load);
    let mut computed = vec![
        row("D-118/n", count(options.ports as f64, "ports")),
        row("D-118/s", count(options.speed_up.0 as f64, "times")),
        row("D-118/l", options.link),
        row("D-118/d", options.period),
        row("D-118/m", load.len),
        row("D-118/k", count(load.sources as f64, "sources")),
        row("D-118/r", count(load.stages as f64, "stages")),
        row("D-118/t", count(load.first as f64, "periods")),
    ];
    for stage in 0..4 {
        let end = |record: &Record| record.ends.get(stage).map_or(f64::NAN, |&end| end as f64);
        let name = format!("end of stage {}", stage + 1);
        computed.push(Computed::new("D-119", name.clone(), count(end(&record), "periods")));
        let name = format!("{name}, Eqs 1 and 2");
        computed.push(Computed::new("D-119", name, count(end(&base), "periods")));
    }
    computed.extend(backlogs(&record, options, load));
    computed.extend(rates(&record, options, load));
    computed.extend(beside_the_ideal(&record, &base, options));
    Ok(computed.into_iter().filter(|value| setting.wants(&value.id)).collect())
}

/// Growth of a backlog between two periods, in Mbit/s.
fn slope(
    record: &Record,
    options: Options,
    (from, to): (u64, u64),
    of: impl Fn(&Sample) -> u64,
) -> f64 {
    let bytes = record.at(to, &of) - record.at(from, &of);
    bytes * 8.0 / (options.period * (to - from)).as_secs_f64() / 1e6
}

/// Fig 20.
fn backlogs(record: &Record, options: Options, load: Load) -> Vec<Computed> {
    // In the first two periods the rates change from those of an idle fabric to those of a loaded one.
    let (begun, first) = (10, load.first);
    let output = |sample: &Sample| sample.output[0];
    let input = |sample: &Sample| sample.input[0];
    let drained = slope(record, options, (first + 10, first + 150), input);
    // Over 20 periods an output's backlog grows at less than half its earlier pace.
    let slower = record.samples.windows(21).find(|samples| {
        let grown = samples[20].output[0] as f64 - samples[0].output[0] as f64;
        let before = options.link.as_bits() as f64 / 8.0 * (options.period * 20).as_secs_f64();
        samples[0].period > first && grown < before / 2.0
    });
    let slower = slower.map_or(f64::NAN, |samples| samples[10].period as f64);
    vec![
        row("D-120/b-1", mbit(slope(record, options, (begun, first), output))),
        row("D-120/b-1-t", Bytes(record.at(first, output) as u64)),
        row("D-120/b-1-1", mbit(slope(record, options, (begun, first), input))),
        row("D-120/b-1-1-t", Bytes(record.at(first, input) as u64)),
        row("D-120/b-1-1-drains", mbit(-drained)),
        row("D-120/b-1-grows", count(slower, "periods")),
    ]
}

/// Fig 21.
fn rates(record: &Record, options: Options, load: Load) -> Vec<Computed> {
    let rate = |output: usize| move |sample: &Sample| sample.rate[output];
    let mean = |from, to, output| record.mean(from, to, rate(output)) / 1e6;
    let end = |stage: usize| record.ends.get(stage).copied().unwrap_or(u64::MAX);
    let mut computed = Vec::new();
    for output in 0..4 {
        // From when the rates have followed the change of stage, to the end of the stage.
        let begun = if output == 0 { 0 } else { end(output - 1) };
        let name = format!("r(1,{}) while its sources send", output + 1);
        let value = mean(begun + 5, end(output), output);
        computed.push(Computed::new("D-121", name, mbit(value)));
    }
    let idle: Vec<f64> = (1..options.ports).map(|output| mean(50, load.first, output)).collect();
    let idle = idle.iter().sum::<f64>() / idle.len() as f64;
    let capacity = options.capacity().as_bits() as f64 / 1e6;
    let simple = (capacity - 35.0) / (options.ports - 1) as f64;
    // Where it falls fastest over ten periods, before the sources stop.
    let fall = |samples: &[Sample]| samples[0].rate[0].saturating_sub(samples[10].rate[0]);
    let within = |s: &&[Sample]| s[0].period >= load.first && s[10].period < end(3);
    let fastest = record.samples.windows(11).filter(within);
    let fastest = fastest.max_by_key(|samples| fall(samples));
    let dropped = fastest.map_or(f64::NAN, |samples| samples[5].period as f64);
    let dropped_at = dropped as u64;
    let before = mean(dropped_at.saturating_sub(20), dropped_at.saturating_sub(10), 0);
    let last = end(3);
    // After the sources stop, until the first of the other queues is empty.
    let empty = record.first(last + 20, |sample| sample.input[..4].contains(&0));
    let until = empty.unwrap_or(load.periods);
    let others = (0..4).map(|output| mean(last + 20, until, output)).sum::<f64>() / 4.0;
    computed.extend([
        row("D-121/queue-backlog", mbit(idle)),
        row("D-121/queue-backlog-gets", mbit(idle)),
        row("D-121/140-35", mbit(simple)),
        row("D-121/r-1", count(dropped, "periods")),
        row("D-121/small-drop", before < 0.99 * 35.0),
        row("D-121/r-1-5", mbit(mean(last + 20, until, 4))),
        row("D-121/r-1-1", mbit(others)),
    ]);
    computed
}

/// What ideal output queueing would do with the same packets (D-59).
fn beside_the_ideal(record: &Record, base: &Record, options: Options) -> Vec<Computed> {
    let carried = |record: &Record, output: usize| {
        let (ours, ideal) = record.last_began[output];
        let ours = record.router.output(output).carried - ours;
        ours as f64 / (record.router.ideal_carried(output) - ideal) as f64
    };
    let period = (options.capacity().as_bits() as u128 * u128::from(options.period.as_ps())
        / 8_000_000_000_000) as u64;
    let congested = |record: &Record| {
        let most = (0..options.ports).map(|output| record.router.output(output).congestion_max);
        most.max().unwrap_or(0) > 2 * period + options.ports as u64 * 520
    };
    let whole = |record: &Record| {
        (0..4).all(|output| {
            let out = record.router.output(output);
            out.carried as f64 > 0.999 * record.router.ideal_carried(output) as f64
        })
    };
    vec![
        row("D-59/fabric-never", !congested(record) && !congested(base)),
        row("D-59/outputs-1", whole(record) && whole(base)),
        row("D-59/output-5", count(100.0 * carried(record, 4), "%")),
        row("D-59/output-5-keeps", count(100.0 * carried(base, 4), "%")),
    ]
}

/// Figs 19, 20 and 21.
pub(super) fn stress_plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let (options, load) = table_4(setting.constants, false)?;
    Ok(figures(&run(options, load).samples, load))
}

/// Figs 19, 20 and 21 from samples at the end of each period.
pub(crate) fn figures(samples: &[Sample], load: Load) -> Vec<Plot> {
    let curve = |name: String, of: &dyn Fn(&Sample) -> f64| Series {
        name,
        points: samples.iter().map(|sample| (sample.period as f64, of(sample))).collect(),
    };
    let marks: Vec<(f64, String)> =
        [400.0, 600.0, 700.0, 750.0].map(|end| (end, format!("{end:.0}"))).into();
    let plot = |title: &str, caption: &str, y: &str, series| {
        Plot::new(title, caption, ("DQ periods of 500 us", y), series)
            .over_time()
            .marked(marks.clone())
    };
    let sends = |output: usize| {
        curve(format!("to output {}", output + 1), &move |sample: &Sample| {
            let sources = if sample.stage == load.stages { 1 } else { load.sources };
            if sample.stage == output + 1 { 70.0 * sources as f64 } else { 0.0 }
        })
    };
    let backlog = |output: usize| {
        curve(format!("output {}", output + 1), &move |sample: &Sample| {
            sample.output[output] as f64 / 1e6
        })
    };
    let waiting = |output: usize| {
        curve(format!("1 => {}", output + 1), &move |sample: &Sample| {
            sample.input[output] as f64 / 1e6
        })
    };
    let rate = |output: usize| {
        curve(format!("r(1,{})", output + 1), &move |sample: &Sample| {
            sample.rate[output] as f64 / 1e6
        })
    };
    vec![
        plot(
            "Fig 19: the stress load",
            "What all sources send to each output. Dotted: ends of the document's stages.",
            "Mbit/s",
            (0..load.stages).map(sends).collect(),
        ),
        plot(
            "Fig 20: backlogs of outputs, and of input 1 for them",
            "Outputs fill at 70 Mbit/s and input queues at 35; the document has 1.76 MB and 880 KB \
             after 400 periods. A backlog at an output lowers the rate of the inputs that feed \
             it.",
            "MB",
            (0..4).map(backlog).chain((0..4).map(waiting)).collect(),
        ),
        plot(
            "Fig 21: rates allocated to input 1",
            "35 Mbit/s while a queue is loaded, 13 for one without backlog, and about 70 to \
             output 5 once it sends alone.",
            "Mbit/s",
            (0..load.stages).map(rate).collect(),
        ),
    ]
}

/// Traffic patterns of the speed-up study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// Each packet to a random output.
    Uniform,
    /// Bursts of 32 packets on average, each to one output.
    Bursts,
    /// Half of an input's packets to the opposite output, the rest to the next one.
    Diagonal,
    /// Half of all packets to one output, which overloads it; the rest to all.
    Hot,
    /// The stress load.
    Stress,
}

const TRAFFICS: [(Traffic, &str); 5] = [
    (Traffic::Uniform, "uniform"),
    (Traffic::Bursts, "bursts"),
    (Traffic::Diagonal, "two outputs each"),
    (Traffic::Hot, "one output overloaded"),
    (Traffic::Stress, "stress load"),
];

/// Speed-ups S, in hundredths.
const SPEED_UPS: [u64; 10] = [100, 103, 105, 110, 115, 120, 130, 150, 175, 200];

/// The share of ideal output queueing's throughput that was lost, in the worst output that the ideal keeps
/// busy, and the mean extra delay of packets.
struct Loss {
    share: f64,
    later: f64,
    congested: bool,
}

/// The loss with one traffic pattern at one speed-up, which is in hundredths.
fn loss(
    setting: &Setting<'_>,
    traffic: Traffic,
    rule: Option<Rule>,
    speed_up: u64,
) -> Result<Loss, Error> {
    let constants = setting.constants;
    let (link, period): (Rate, Duration) = (constants.get("link")?, constants.get("period")?);
    let options = Options {
        ports: constants.get::<u64>("ports")? as usize,
        link,
        speed_up: (speed_up, 100),
        period,
        rule,
        room: constants.get("room")?,
    };
    let len: Bytes = constants.get("packet")?;
    let bound = |options: Options| {
        let period = options.capacity().as_bits() as u128 * u128::from(options.period.as_ps());
        2 * (period / 8_000_000_000_000) as u64 + options.ports as u64 * len.0
    };
    let congested = |router: &Model| {
        (0..options.ports).any(|port| router.output(port).congestion_max > bound(options))
    };
    if traffic == Traffic::Stress {
        let load = Load { len, sources: 4, stages: 5, first: 400, periods: 1600 };
        let record = run(options, load);
        let share = |output: usize| {
            let router = &record.router;
            1.0 - router.output(output).carried as f64 / router.ideal_carried(output) as f64
        };
        let share = (0..5).map(share).fold(0.0, f64::max);
        return Ok(Loss { share, later: 0.0, congested: congested(&record.router) });
    }
    let periods: u64 = if setting.means.full { 20_000 } else { 2_000 };
    let percent: u64 = constants.get("load")?;
    let mut router = Model::new(options);
    let mut random = Stream::new(setting.seed, "speed-up");
    let ports = options.ports as u64;
    let mut burst = vec![0; options.ports];
    let gap = link.time_for(len);
    let (mut at, end) = (Time::START, Time::START + period * periods);
    // Measurement begins after a tenth of the run, when queues have reached their length.
    let warm = Time::START + period * (periods / 10);
    let mut began: Option<Vec<(u64, u64)>> = None;
    while at < end {
        router.advance(at);
        if began.is_none() && at >= warm {
            let both = |output| (router.output(output).carried, router.ideal_carried(output));
            began = Some((0..options.ports).map(both).collect());
        }
        for (input, burst) in burst.iter_mut().enumerate() {
            if random.below(100) >= percent {
                continue;
            }
            let input_number = input as u64;
            let output = match traffic {
                Traffic::Uniform | Traffic::Stress => random.below(ports),
                Traffic::Bursts => {
                    if random.below(32) == 0 {
                        *burst = random.below(ports);
                    }
                    *burst
                }
                Traffic::Diagonal => (input_number + random.below(2)) % ports,
                Traffic::Hot if random.below(2) == 0 => 0,
                Traffic::Hot => random.below(ports),
            };
            router.offer(input, output as usize, len);
        }
        at += gap;
    }
    router.advance(end);
    let began = began.unwrap_or_else(|| vec![(0, 0); options.ports]);
    let (mut ours, mut ideal) = (0, 0);
    for (output, &(carried, by_ideal)) in began.iter().enumerate() {
        ours += router.output(output).carried - carried;
        ideal += router.ideal_carried(output) - by_ideal;
    }
    let delays = router.delays();
    let later = (delays.sum as f64 - delays.ideal_sum as f64) / delays.packets.max(1) as f64;
    let share = 1.0 - ours as f64 / ideal.max(1) as f64;
    Ok(Loss { share, later: later * 1e-12, congested: congested(&router) })
}

fn rules(setting: &Setting<'_>) -> Result<[Rule; 2], Error> {
    let backlog_min = setting.constants.get("backlog_min")?;
    Ok([Rule::Base, Rule::Responsive { backlog_min }])
}

/// The least sufficient speed-up, by traffic pattern (D-126).
pub(super) fn speed_up(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let [base, responsive] = rules(setting)?;
    let percent = |loss: &Loss| count(100.0 * loss.share.max(0.0), "%");
    let small = loss(setting, Traffic::Uniform, Some(responsive), 110)?;
    let mut congested = small.congested;
    let mut worst: f64 = 0.0;
    for (traffic, _) in TRAFFICS {
        for rule in [base, responsive] {
            let loss = loss(setting, traffic, Some(rule), 200)?;
            congested |= loss.congested;
            worst = worst.max(loss.share);
        }
    }
    let none = loss(setting, Traffic::Hot, None, 200)?;
    Ok(vec![
        row("D-126/throughput", percent(&small)),
        row("D-126/throughput-lost", count(100.0 * worst, "%")),
        row("D-126/fabric-never", !congested),
        row("D-126/distributed", none.congested),
    ])
}

/// Losses below this share of the ideal's throughput, in per cent, are neglected.
const LOST: f64 = 1.0;

/// The speed-up from which each traffic pattern's loss is negligible.
fn conclusion(lost: &[Series]) -> String {
    let enough = |series: &Series| {
        let least = series.points.iter().rev().take_while(|point| point.1 < LOST).last();
        match least {
            Some((at, _)) => format!("{} from S = {at}", series.name),
            None => format!("{} at none of these", series.name),
        }
    };
    let words: Vec<String> = lost.iter().map(enough).collect();
    format!("Conclusion: less than {LOST} % is lost by {}.", words.join(", by "))
}

/// Loss by speed-up, for each traffic pattern and both sets of equations.
pub(super) fn speed_up_plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let mut plots = Vec::new();
    for (rule, equations) in rules(setting)?.into_iter().zip(["Eqs 1 and 2", "Eqs 5 and 6"]) {
        let (mut lost, mut late) = (Vec::new(), Vec::new());
        for (traffic, name) in TRAFFICS {
            let (mut losses, mut delays) = (Vec::new(), Vec::new());
            for speed_up in SPEED_UPS {
                let loss = loss(setting, traffic, Some(rule), speed_up)?;
                let at = speed_up as f64 / 100.0;
                losses.push((at, 100.0 * loss.share.max(0.0)));
                delays.push((at, 1e3 * loss.later));
            }
            lost.push(Series { name: name.to_owned(), points: losses });
            if traffic != Traffic::Stress {
                late.push(Series { name: name.to_owned(), points: delays });
            }
        }
        let plot = |title: String, caption: &str, y: &str, series| {
            Plot::new(title, caption, ("speed-up S", y), series)
        };
        let caption = format!(
            "Beside ideal output queueing of the same packets; 8 ports, load as the constants say. \
             {}",
            conclusion(&lost)
        );
        plots.push(plot(
            format!("Throughput lost, {equations}"),
            &caption,
            "% of what the ideal carries",
            lost,
        ));
        plots.push(plot(
            format!("Packets leave later, {equations}"),
            "On average, compared with ideal output queueing.",
            "ms",
            late,
        ));
    }
    Ok(plots)
}
