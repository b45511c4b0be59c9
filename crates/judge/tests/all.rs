//! The simulator compared with queueing theory, in few runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use lastmeter_judge::theory::{RUNS_FEW, run};
use lastmeter_repro::Effort;

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
