//! Benchmarks of this machine beside what the documents print: shapes that hold on any machine.

use crate::attempts::{attempt, in_time};
use std::collections::BTreeMap;
use std::time::Instant;

/// Rounds of a benchmark of which the best counts: others can only take time away.
const ROUNDS: usize = 40;

/// Units a second of the benchmarks whose names begin so, the best of rounds in turn.
fn bench(name: &str) -> BTreeMap<&'static str, f64> {
    let cases = lastmeter_lab::bench_cases().filter(|case| case.name.starts_with(name));
    let mut work: Vec<_> = cases.map(|case| (case.name, (case.prepare)(true))).collect();
    let mut best = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (name, work) in &mut work {
            let began = Instant::now();
            let units = work().units as f64;
            let value = best.entry(*name).or_insert(0.0_f64);
            *value = value.max(units / began.elapsed().as_secs_f64());
        }
    }
    best
}

fn holds(test: impl Fn()) {
    attempt(test).settle();
}

/// Aurora's report, §3.4: what a packet costs is "proportional to the depth of the tree". Here a straight line through
/// the times of 64 classes at depths 1 to 6, of which each time is within a sixth: set before the first run.
#[test]
fn a_154_what_a_packet_costs_is_proportional_to_the_depth() {
    const WITHIN: f64 = 1.0 / 6.0;
    holds(|| {
        let times: Vec<(f64, f64)> = bench("queue/h-pfq-depth")
            .iter()
            .map(|(name, rate)| (name.rsplit('@').next().unwrap().parse().unwrap(), 1e9 / rate))
            .collect();
        assert_eq!(times.len(), 4, "{times:?}");
        let mean =
            |of: fn(&(f64, f64)) -> f64| times.iter().map(of).sum::<f64>() / times.len() as f64;
        let (x, y) = (mean(|one| one.0), mean(|one| one.1));
        let covariance: f64 = times.iter().map(|one| (one.0 - x) * (one.1 - y)).sum();
        let level = covariance / times.iter().map(|one| (one.0 - x).powi(2)).sum::<f64>();
        println!("  {level:.1} ns a level, {:.1} ns besides: {times:.1?}", y - level * x);
        in_time!(level > 0.0, "a level costs {level} ns");
        for &(depth, time) in &times {
            let line = y + level * (depth - x);
            in_time!(
                (time / line - 1.0).abs() < WITHIN,
                "{time} ns at {depth}, by the line {line}"
            );
        }
    });
}

/// Jetstream's card has one generator of CRC-32, 32 bits at 30 MHz for both directions: 120 MB/s. A processor of today
/// generates it faster than both directions of the line need, in either way.
#[test]
fn j_47_a_processor_generates_crcs_faster_than_the_cards_one_generator() {
    holds(|| {
        let rates = bench("wire/crc32");
        println!("  published: 120 MB/s; here: {rates:.3?} B/s");
        for name in ["wire/crc32", "wire/crc32-words"] {
            in_time!(rates[name] > 2.0 * 120e6, "{name}: {} B/s", rates[name]);
        }
    });
}

/// Kuhns et al., §3.1: circuits allow "early traffic demultiplexing [...] thereby reducing the per packet/cell processing
/// overhead". By label must cost less than half of what it costs by header: set before the first run.
#[test]
fn d_19_a_label_saves_most_of_what_it_takes_to_tell_packets_apart() {
    holds(|| {
        let rates = bench("fabric/by");
        let [label, header] = ["fabric/by-label", "fabric/by-header"].map(|name| 1e9 / rates[name]);
        println!("  {label:.2} ns a packet by label, {header:.1} ns by header");
        in_time!(label < header / 2.0, "{label} ns by label, {header} ns by header");
    });
}

/// END's platform took 15000 best-effort and 8000 real-time packets a second at most (§4.4.1): packets by due dates cost
/// the emulator more than packets in order, then and now.
#[test]
fn e_53_the_emulator_takes_more_packets_in_order_than_by_due_date() {
    holds(|| {
        let rates = bench("emulator/");
        let [fifo, heap] = ["emulator/fifo@1000", "emulator/heap@1000"].map(|name| rates[name]);
        println!("  published: 15000 and 8000 packets/s; here: {fifo:.0} and {heap:.0}");
        in_time!(heap < fifo, "{heap} by due date, {fifo} in order");
        assert!(heap > 15_000.0, "{heap} packets/s");
    });
}
