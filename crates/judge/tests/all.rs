//! The simulator compared with queueing theory, in few runs, and with results of ns-3.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use lastmeter_judge::ns3;
use lastmeter_judge::theory::{RUNS_FEW, run};
use lastmeter_repro::{Effort, Observer, Style};
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn every_quantity_is_within_three_standard_errors_of_its_formula() {
    let report = run(1, RUNS_FEW, Effort::PLAIN).expect("all cases run");
    let off: Vec<_> = report.rows.iter().filter(|row| !row.pass).collect();
    assert!(off.is_empty(), "{off:#?}");
    // Standard errors so large that anything passes would hide a wrong model.
    let coarse = |row: &&lastmeter_judge::theory::Row| row.standard_error > 0.03 * row.theory;
    let coarse: Vec<_> = report.rows.iter().filter(coarse).collect();
    assert!(coarse.is_empty(), "{coarse:#?}");
    assert!(report.rows.iter().filter(|row| row.z.is_some()).count() >= 20);
}

#[test]
fn every_cell_agrees_with_ns3_or_it_is_listed_why_it_does_not() {
    let report = ns3::run("", (1, ns3::SEEDS), None, Effort::PLAIN).expect("all scenarios run");
    let off: Vec<_> = report.rows.iter().filter(|row| !row.pass).collect();
    assert!(off.is_empty(), "{off:#?}");
    assert!(report.stale.is_empty(), "listed, and not beyond: {:#?}", report.stale);
    assert!(report.rows.len() > 250, "{} cells", report.rows.len());
}

#[test]
fn a_table_of_few_seeds_has_ns3_beside_ours() {
    let few = (1, ns3::SEEDS_FEW);
    let report = ns3::run("drop-tail 1, NewReno", few, None, Effort::PLAIN).expect("three run");
    let table = report.table(Style { width: 100, colour: false });
    for words in ["round trips, drop-tail 1, NewReno", "loss (%)", "share of rtt-160", "mended"] {
        assert!(table.contains(words), "{words} is not in\n{table}");
    }
    let goodput = report.rows.iter().filter(|row| row.metric == "goodput");
    let off = |row: &ns3::Row| (row.ours / row.theirs - 1.0).abs();
    let off: Vec<f64> = goodput.map(off).collect();
    assert_eq!(off.len(), 4, "round trips, series, short flows, mixed");
    assert!(off.iter().all(|off| *off < 0.02), "{off:?}");
    assert_eq!(report.json_lines().expect("numbers").lines().count(), report.rows.len());
}

/// Stops after so many runs.
struct Stops(AtomicU64);

impl Observer for Stops {
    fn planned(&self, _runs: u64) {}
    fn done(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
    fn stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[test]
fn what_is_stopped_keeps_the_runs_that_were_done() {
    let stops = |runs| Stops(AtomicU64::new(runs));
    let (few, observer) = (stops(5), stops(0));
    let report = run(1, RUNS_FEW, Effort { observer: &few, ..Effort::PLAIN }).expect("five run");
    // Five runs of the first load: halves need four.
    assert_eq!(report.rows.iter().map(|row| row.runs).collect::<Vec<_>>(), [4]);
    let few = stops(2);
    let report =
        ns3::run("drop-tail 1, NewReno", (1, 3), None, Effort { observer: &few, ..Effort::PLAIN });
    assert!(report.expect("two run").rows.iter().all(|row| row.runs == 2));
    let none = ns3::run("", (1, 3), None, Effort { observer: &observer, ..Effort::PLAIN });
    assert!(none.expect("nothing runs").rows.is_empty());
}
