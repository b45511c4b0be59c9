//! Where the time of a command went: the thread that moves its data, over all of the time and over time, and
//! what its CPU time went into.
//!
//! The path is the thread's time from the first look to the last, one "packet": the whole run. Its stages are on
//! a CPU, by class where the command was sampled (L1); ready for one; asleep, by where; and what is not known.
//! They sum to the run.

use super::own::end;
use super::waits;
use lastmeter_ledger::{
    Confidence, Count, Counter, Latency, Ledger, Path, Series, Stage, Step, Times, Totals, figures,
};
use lastmeter_live::observe::{Interval, Observation, Timeline};
use lastmeter_live::sample::stages::NOT_ATTRIBUTED;
use lastmeter_live::sample::{Class, Sampled, Share};

/// The name of the path.
pub const PATH: &str = "time of the thread that moves the data";
/// The share of the time that may be not attributed for a verdict of high confidence.
const UNATTRIBUTED_MAX: f64 = 0.1;
/// States that took less than this share of the time have no row over time.
const SHOWN: f64 = 0.03;
/// The most phases in the sentence about time.
const PHASES_MAX: usize = 6;
const ON_CPU: &str = "on a CPU";
const READY: &str = "ready for a CPU";
const UNKNOWN: &str = "unknown";

/// Adds them to the ledger of `seen`.
pub fn add(ledger: &mut Ledger, seen: &Observation, sampled: Option<&Sampled>) {
    waits::add(ledger, sampled);
    let sampled = sampled.filter(|sampled| sampled.all().total() > 0);
    if let Some(sampled) = sampled {
        ledger.provenance.level = "L1".to_owned();
        divide_cpu(ledger, sampled);
        ledger.notes.push(sampled_note(sampled, seen));
    }
    connections(ledger, seen);
    let Some(timeline) = seen.timeline.as_ref().filter(|t| !t.intervals.is_empty()) else { return };
    let path = path(timeline, sampled, seen);
    let whole = path.totals.latency.map_or(0.0, |latency| latency.mean);
    let unknown: f64 =
        path.stages.iter().filter(|stage| stage.name == NOT_ATTRIBUTED).map(Stage::wait_mean).sum();
    ledger.paths.push(path);
    ledger.series.extend(series(timeline));
    ledger.notes.extend(phases(timeline));
    if let Some(verdict) = &mut ledger.verdict
        && unknown > UNATTRIBUTED_MAX * whole
        && verdict.confidence == Confidence::High
    {
        verdict.confidence = Confidence::Medium;
    }
}

/// Counts connections, those that no look saw, too.
fn connections(ledger: &mut Ledger, seen: &Observation) {
    let closed = &seen.closed;
    if closed.connections == 0 && closed.lost == 0 {
        return;
    }
    let count = |name: &str, value: u64| Counter {
        element: "connections".to_owned(),
        name: name.to_owned(),
        value,
    };
    ledger.counters.push(count("between two looks", closed.connections));
    ledger.counters.push(count("bytes sent by these", closed.sent));
    ledger.counters.push(count("bytes received by these", closed.received));
    ledger.notes.push(format!(
        "{} connections began and ended between two looks; the kernel reported their ends: \
         {} sent, {} received.",
        closed.connections,
        figures::size(closed.sent),
        figures::size(closed.received)
    ));
    if closed.lost > 0 {
        ledger.notes.push("More of them ended than the kernel could report.".to_owned());
    }
}

/// Divides what the row of the CPU was busy by class.
fn divide_cpu(ledger: &mut Ledger, sampled: &Sampled) {
    let all = sampled.all();
    for row in ledger.resources.iter_mut().filter(|row| row.kind == "cpu") {
        let parts = Class::ALL.into_iter().filter(|&class| all.of(class) > 0);
        row.by_stage = parts
            .map(|class| (class.name().to_owned(), sampled.share(class).value * row.busy))
            .collect();
    }
}

/// How the shares came about.
fn sampled_note(sampled: &Sampled, seen: &Observation) -> String {
    let all = sampled.all();
    let total = all.total();
    let shares = Class::ALL.into_iter().filter(|&class| all.of(class) > 0).map(|class| {
        let Share { value, error } = sampled.share(class);
        format!("{} {:.1} ±{:.1} %", class.name(), value * 100.0, error * 100.0)
    });
    let shares: Vec<String> = shares.collect();
    let lost = match sampled.lost {
        0 => String::new(),
        lost => format!(" {lost} samples found no room."),
    };
    format!(
        "L1: {total} samples of the command's CPU time ({:.3} s): {}. {:.0} % of them were in \
         softirqs. Time with interrupts off is seen at the unlock after it ({:.1} %), and counts \
         as what held the lock. Reading the samples took {:.2} % of a CPU.{lost}",
        total as f64 * sampled.period,
        shares.join(", "),
        softirqs(sampled) as f64 / total.max(1) as f64 * 100.0,
        sampled.unlocks as f64 / total.max(1) as f64 * 100.0,
        sampled.reading / seen.elapsed.max(f64::MIN_POSITIVE) * 100.0
    )
}

fn softirqs(sampled: &Sampled) -> u64 {
    let groups: u64 = sampled.groups.iter().map(|group| group.softirq.total()).sum();
    groups + sampled.outside.total()
}

fn path(timeline: &Timeline, sampled: Option<&Sampled>, seen: &Observation) -> Path {
    let bytes = seen.connections.iter().map(|one| one.sent + one.received).sum();
    let once = Count { packets: 1, bytes };
    let all: &[Interval] = &timeline.intervals;
    let sum = |of: fn(&Interval) -> f64| all.iter().map(of).sum::<f64>();
    let (run, mut unknown) = (sum(|i| i.run), sum(|i| i.unknown));
    let mut stages = Vec::new();
    let mut service = |name: &str, seconds: f64| {
        let stage = Stage { place: end("CPU"), ..Stage::new(name, Some("CPU"), once) };
        stages.push(Stage { service: Some(Times::mean(seconds)), ..stage });
    };
    match sampled {
        None => service(ON_CPU, run),
        Some(sampled) => {
            for class in Class::ALL {
                let seconds = sampled.share(class).value * run;
                match class {
                    Class::Unknown => unknown += seconds,
                    _ if seconds > 0.0 => service(class.name(), seconds),
                    _ => {}
                }
            }
        }
    }
    let wait = |name: &str, seconds: f64| Stage {
        wait: Some(Times::mean(seconds)),
        ..Stage::new(name, None, once)
    };
    stages.push(wait(READY, sum(|i| i.wait)));
    for place in places(timeline) {
        let seconds = all.iter().filter_map(|i| i.asleep.get(&place)).sum();
        stages.push(wait(&place, seconds));
    }
    stages.push(wait(NOT_ATTRIBUTED, unknown));
    let whole = all.iter().map(Interval::seconds).sum::<f64>();
    let latency = Some(Latency { mean: whole, ..Latency::default() });
    let goodput = bytes as f64 * 8.0 / seen.elapsed.max(f64::MIN_POSITIVE);
    let class = "from the first look to the last; a packet is the run".to_owned();
    Path::new(PATH, class, stages, Totals { latency, ..Totals::new(once, goodput) })
}

/// Where the thread slept, by name.
fn places(timeline: &Timeline) -> Vec<String> {
    let all = timeline.intervals.iter().flat_map(|interval| interval.asleep.keys().cloned());
    let mut names: Vec<String> = all.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What the thread did in an interval, in shares of it.
fn shares(interval: &Interval) -> Vec<(&str, f64)> {
    let whole = interval.seconds().max(f64::MIN_POSITIVE);
    let fixed = [(ON_CPU, interval.run), (READY, interval.wait), (UNKNOWN, interval.unknown)];
    let asleep = interval.asleep.iter().map(|(name, seconds)| (name.as_str(), *seconds));
    fixed.into_iter().chain(asleep).map(|(name, seconds)| (name, seconds / whole)).collect()
}

/// A row for each state that took its share of the time, in percent of each interval.
fn series(timeline: &Timeline) -> Vec<Series> {
    let names = [ON_CPU, READY].into_iter().map(str::to_owned).chain(places(timeline));
    let names = names.chain([UNKNOWN.to_owned()]);
    let row = |name: String| {
        let share = |interval: &Interval| {
            let all = shares(interval);
            all.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, share)| *share)
        };
        let values: Vec<f64> = timeline.intervals.iter().map(share).collect();
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let steps = timeline.intervals.iter().zip(&values).map(|(interval, share)| Step {
            at: interval.at,
            least: share * 100.0,
            most: share * 100.0,
        });
        (mean >= SHOWN).then(|| Series {
            name: format!("thread: {name}"),
            unit: "%".to_owned(),
            step: timeline.step,
            steps: steps.collect(),
        })
    };
    names.filter_map(row).collect()
}

/// A sentence about what the thread mostly did, and when, where that changed.
fn phases(timeline: &Timeline) -> Option<String> {
    let mut phases: Vec<(&str, f64, f64)> = Vec::new();
    for interval in &timeline.intervals {
        let all = shares(interval);
        let (state, _) = all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let until = interval.at + interval.seconds().max(timeline.step);
        match phases.last_mut() {
            Some((same, _, end)) if *same == state => *end = until,
            _ => phases.push((state, interval.at, until)),
        }
    }
    let words = |(state, from, to): &(&str, f64, f64)| format!("{from:.1} to {to:.1} s {state}");
    match phases.len() {
        0 | 1 => None,
        count if count <= PHASES_MAX => {
            let words: Vec<String> = phases.iter().map(words).collect();
            Some(format!("Over time the thread was mostly: {}.", words.join("; ")))
        }
        count => {
            Some(format!("Over time the thread changed {} times what it mostly did.", count - 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn interval(at: f64, run: f64, asleep: f64) -> Interval {
        let asleep = BTreeMap::from([("waiting for room in a socket".to_owned(), asleep)]);
        Interval { at, run, asleep, ..Interval::default() }
    }

    #[test]
    fn half_the_program_and_half_the_link_is_said() {
        let intervals = (0..10).map(|place| {
            let run = if place < 5 { 0.09 } else { 0.01 };
            interval(f64::from(place) * 0.1, run, 0.1 - run)
        });
        let timeline = Timeline { step: 0.1, intervals: intervals.collect() };
        let words = phases(&timeline).unwrap();
        assert!(words.contains("0.0 to 0.5 s on a CPU"), "{words}");
        assert!(words.contains("0.5 to 1.0 s waiting for room in a socket"), "{words}");
        let rows = series(&timeline);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].steps.len(), 10);
        assert!((rows[0].steps[0].most - 90.0).abs() < 1e-9);
    }
}
