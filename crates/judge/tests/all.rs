//! The simulator compared with queueing theory, in few runs, and with results of ns-3 and of Linux's TCP; this machine's
//! benchmarks compared with what the documents print.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::print_stdout,
    reason = "measured figures, and tests that a busy machine leaves undecided"
)]

#[path = "../../live/tests/attempts/mod.rs"]
mod attempts;
mod figures;

use lastmeter_judge::theory::{RUNS_FEW, run};
use lastmeter_judge::{linux, ns3};
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

/// How tables are printed here.
const PLAIN: Style = Style { width: 100, colour: false };

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

/// within 5 % of the goodput, 10 % of the mean wait and 20 % of the loss in at least ten of twelve.
#[test]
fn a_161_the_models_tcp_does_as_linuxs_in_ten_of_twelve_scenarios() {
    let report = linux::run("", (1, linux::SEEDS), None, Effort::PLAIN).expect("all scenarios run");
    assert_eq!(report.rows.len(), 36, "three metrics of each: every run of Linux is kept");
    let (agree, of) = report.agree();
    assert!(agree >= linux::AGREE && of == 12, "{}", report.table(PLAIN));
    assert!(report.passes());
    // What is off is off by little, or the model is of another TCP.
    let far = |row: &&linux::Row| (row.ours / row.theirs - 1.0).abs() > 0.5;
    let far: Vec<_> = report.rows.iter().filter(far).collect();
    assert!(far.is_empty(), "{far:#?}");
    let goodput = report.rows.iter().filter(|row| row.metric == "goodput");
    assert!(goodput.into_iter().all(|row| row.pass), "{}", report.table(PLAIN));
}

#[test]
fn a_table_of_one_scenario_has_linux_beside_ours() {
    let one = "40 ms, drop-tail 1, 1 connection, CUBIC";
    let report = linux::run(one, (1, linux::SEEDS_FEW), None, Effort::PLAIN).expect("one runs");
    let table = report.table(PLAIN);
    for words in [one, "goodput (Mbit/s)", "wait (ms)", "loss (%)", "of 1 scenarios agree"] {
        assert!(table.contains(words), "{words} is not in\n{table}");
    }
    assert_eq!(report.json_lines().expect("numbers").lines().count(), 3);
}
