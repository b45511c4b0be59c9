//! A hundred TCP connections through one bottleneck, compared with ns-3.
//!
//! ns-3 3.37 has four faults, described in `peers/ns3_mended.h`: its scoreboard counts
//! retransmitted segments as in flight after they have been SACKed, it retransmits segments above the
//! highest SACKed one, partial acknowledgements do not restart its retransmission timer, and its
//! proportional rate reduction overflows. Our results must agree with those of ns-3 with all four
//! corrected; those of ns-3 as shipped are printed beside them.
//!
//! The short test runs one seed for five simulated seconds. The long one takes about an hour, nearly
//! all of it in ns-3: `scripts/test-long ns3`.
//!
//! With `NS3_RUNS=FOLDER` the results of ns-3 are kept there, so that an interrupted comparison can be
//! resumed. Both tests require Debian's libns3-dev and g++, and report that they skip without them.

#![allow(clippy::print_stdout, reason = "prints the comparison")]

use lastmeter_engine::Serial;
use lastmeter_lab::build::Changes;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{self, Builtin};
use lastmeter_lab::run::{RunOptions, prepare};
use std::path::PathBuf;
use std::process::Command;

const LIBRARIES: &str =
    "core network internet point-to-point applications traffic-control bridge stats";

/// The result of a run.
#[derive(Clone, Debug, Default)]
struct Found {
    /// Goodput of all connections, in bits per second.
    goodput: f64,
    /// Share of packets that the bottleneck dropped.
    loss: f64,
    /// Mean number of packets waiting there.
    waiting: f64,
    /// Bytes that each connection delivered.
    delivered: Vec<f64>,
}

/// The queue at the bottleneck, and the ns-3 to compare with.
#[derive(Clone, Copy, Debug)]
struct Case {
    packets: u32,
    red: bool,
    /// With the faults of ns-3 3.37 corrected.
    corrected: bool,
}

/// The ns-3 program, or `None` where it cannot be built.
fn ns3() -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/ns3_dumbbell.cc");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ns3_dumbbell");
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-std=c++17", "-o"]).arg(&program).arg(source);
    compiler.args(LIBRARIES.split(' ').map(|library| format!("-lns3-{library}")));
    match compiler.output() {
        Ok(output) if output.status.success() => Some(program),
        _ => {
            println!("SKIP: libns3-dev or g++ is not installed");
            None
        }
    }
}

fn theirs(program: &PathBuf, case: Case, seed: u64, seconds: u64) -> Found {
    let Case { packets, red, corrected } = case;
    let words = [
        seconds.to_string(),
        packets.to_string(),
        red.to_string(),
        seed.to_string(),
        corrected.to_string(),
    ];
    let kept = std::env::var_os("NS3_RUNS")
        .map(|folder| PathBuf::from(folder).join(format!("{}.json", words.join("-"))));
    let answer = kept.as_ref().and_then(|path| std::fs::read(path).ok()).unwrap_or_else(|| {
        let keys = ["seconds", "packets", "red", "seed", "corrected"];
        let options = keys.iter().zip(&words).map(|(key, word)| format!("--{key}={word}"));
        let answer = Command::new(program).args(options).output().unwrap().stdout;
        kept.iter().for_each(|path| std::fs::write(path, &answer).unwrap());
        answer
    });
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    let number = |key: &str| answer[key].as_f64().unwrap();
    let delivered: Vec<f64> =
        answer["delivered"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    Found {
        goodput: delivered.iter().sum::<f64>() * 8.0 / seconds as f64,
        loss: number("dropped") / (number("dropped") + number("passed")),
        waiting: number("waiting"),
        delivered,
    }
}

fn ours(Case { packets, red, .. }: Case, seed: u64, seconds: u64) -> Found {
    let queue = match red {
        false => format!("drop-tail = {{ packets = {packets} }}"),
        // ns-3's RED: gentle, averaging weight 0.002, drop probability 0.02 at the upper threshold.
        true => format!(
            "red = {{ packets = {packets}, min = {}, max = {}, probability = 0.02 }}",
            packets / 4,
            packets * 3 / 4
        ),
    };
    let text = library::experiment("dumbbell").unwrap();
    let text = text
        .replace("drop-tail = { packets = 200 }", &queue)
        .replace("duration = \"20 s\"", &format!("duration = \"{seconds} s\""))
        .replace("seed = 1", &format!("seed = {seed}"));
    let experiment = Experiment::parse("dumbbell", &text, &[], &Builtin).unwrap();
    let manner = RunOptions { threads: 1, shuffle_ties: 0, collecting: true };
    let mut prepared = prepare(&experiment, &Changes::NONE, manner, &Builtin).unwrap();
    prepared.run(&Default::default(), &Serial).unwrap();
    let outcome = prepared.finish().unwrap();
    let counter = |element: &str, name: &str| {
        let report = outcome.elements.iter().find(|report| report.name == element).unwrap();
        let found = report.counters.iter().find(|(counter, _)| *counter == name).unwrap();
        found.1 as f64
    };
    let delivered: Vec<f64> =
        (0..100).map(|i| counter(&format!("d.{i} receives stream"), "consumed")).collect();
    let served = counter("r1->r2", "served");
    let dropped = counter("r1->r2", "refused") + counter("r1->r2", "dropped");
    let stage = outcome.stages.iter().position(|stage| stage.name == "r1->r2 transmit").unwrap();
    let rows = outcome.books.paths[0].rows();
    let row = rows.iter().find(|row| row.stage.0 as usize == stage).unwrap();
    // Little's law: mean number waiting = rate × mean wait.
    let wait = row.wait.sum() as f64 * 1e-12 / row.passed.packets as f64;
    Found {
        goodput: delivered.iter().sum::<f64>() * 8.0 / seconds as f64,
        loss: dropped / (dropped + served),
        waiting: wait * served / seconds as f64,
        delivered,
    }
}

/// The greatest distance between two distributions (Kolmogorov-Smirnov).
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let below = |all: &[f64], x: f64| {
        all.iter().filter(|&&value| value <= x).count() as f64 / all.len() as f64
    };
    a.iter().chain(b).map(|&x| (below(a, x) - below(b, x)).abs()).fold(0.0, f64::max)
}

/// Fisher's exact permutation test: of all ways to split the runs of both sides into two halves, the share
/// whose distributions are at least as far apart as ours and theirs. Whole runs are exchanged, because the
/// connections of a run compete and so are not independent, as the usual critical value of [`distance`]
/// assumes.
fn chance(us: &[Found], them: &[Found]) -> f64 {
    let half = us.len();
    let runs: Vec<&Found> = us.iter().chain(them).collect();
    let mut values: Vec<(f64, usize)> = Vec::new();
    for (run, found) in runs.iter().enumerate() {
        values.extend(found.delivered.iter().map(|&value| (value, run)));
    }
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Both sides have equally many values, so their distance is the maximum of a walk of steps up and down.
    let apart = |ours: u32| -> i32 {
        let (mut walk, mut most) = (0_i32, 0);
        for (i, &(value, run)) in values.iter().enumerate() {
            walk += if ours >> run & 1 == 1 { 1 } else { -1 };
            if values.get(i + 1).is_none_or(|next| next.0 > value) {
                most = most.max(walk.abs());
            }
        }
        most
    };
    let found = apart((1 << half) - 1);
    let halves = (0..1_u32 << runs.len()).filter(|ours| ours.count_ones() as usize == half);
    let (ways, far) = halves.fold((0_u32, 0_u32), |(ways, far), ours| {
        (ways + 1, far + u32::from(apart(ours) >= found))
    });
    f64::from(far) / f64::from(ways)
}

/// Relative errors of our means, over some seeds.
struct Compared {
    goodput: f64,
    loss: f64,
    waiting: f64,
    chance: f64,
}

fn compare(program: &PathBuf, case: Case, seeds: u64, seconds: u64) -> Compared {
    let (mut us, mut them) = (Vec::new(), Vec::new());
    for seed in 1..=seeds {
        us.push(ours(case, seed, seconds));
        them.push(theirs(program, case, seed, seconds));
    }
    let mean = |runs: &[Found], value: fn(&Found) -> f64| {
        runs.iter().map(value).sum::<f64>() / runs.len() as f64
    };
    let row = |what: &str, value: fn(&Found) -> f64| {
        let (us, them) = (mean(&us, value), mean(&them, value));
        let name = if case.red { "RED" } else { "drop-tail" };
        let peer = if case.corrected { "ns-3 corrected" } else { "ns-3 as shipped" };
        let (packets, error) = (case.packets, us / them - 1.0);
        println!("{name} {packets} {what}: {us:.5}, {peer} {them:.5}: {:+.1} %", error * 100.0);
        error
    };
    let all = |runs: &[Found]| -> Vec<f64> {
        runs.iter().flat_map(|run| run.delivered.iter().copied()).collect()
    };
    let (a, b) = (all(&us), all(&them));
    // The critical value of the two-sample test at the 1 % level.
    let distance_most = 1.628 * (2.0 / a.len() as f64).sqrt();
    let distance = distance(&a, &b);
    let goodput = row("goodput, Mbit/s", |found| found.goodput / 1e6);
    let loss = row("loss", |found| found.loss);
    let waiting = row("waiting", |found| found.waiting);
    let chance = chance(&us, &them);
    println!(
        "    shares are {distance:.4} apart (1 % level if independent: {distance_most:.4}); \
         {:.1} % of all ways to split these runs are as far apart",
        chance * 100.0
    );
    Compared { goodput, loss, waiting, chance }
}

#[test]
fn five_seconds_of_one_seed_agree_with_ns3() {
    let Some(program) = ns3() else { return };
    let case = Case { packets: 200, red: false, corrected: true };
    let found = compare(&program, case, 1, 5);
    assert!(found.goodput.abs() < 0.05, "goodput {:+.3}", found.goodput);
    assert!(found.loss.abs() < 0.5, "loss {:+.3}", found.loss);
}

#[test]
#[ignore = "an hour: make test-long"]
fn goodput_loss_queue_and_shares_agree_with_ns3() {
    let Some(program) = ns3() else { return };
    let mut wrong = Vec::new();
    for (packets, red) in [(200, false), (5000, false), (200, true), (5000, true)] {
        let found = compare(&program, Case { packets, red, corrected: true }, 10, 20);
        let mut check = |what: &str, holds: bool| {
            if !holds {
                wrong.push(format!("{packets}, RED {red}: {what}"));
            }
        };
        check("goodput within 2 %", found.goodput.abs() < 0.02);
        check("loss within 10 %", found.loss.abs() < 0.1);
        check("mean queue within 10 %", found.waiting.abs() < 0.1);
        check("shares at the 1 % level", found.chance > 0.01);
        compare(&program, Case { packets, red, corrected: false }, 1, 20);
    }
    assert!(wrong.is_empty(), "differs from ns-3: {wrong:?}");
}
