//! The tuner on real sockets.

use crate::attempts::{disturbed, in_time};
use lastmeter_base::Bytes;
use lastmeter_bench::tune::measure;

/// Indiresan 1997, §3.3.1: "the pipeline depth was fixed at 2 and the packet size at 2 KB". The same service times as in
/// the model, so no point is faster (1 %, for the order of events) nor, on a machine that is quiet, 10 % slower: both
/// set before the first run.
pub(crate) fn e_28_the_tuner_finds_the_published_operating_point_on_real_sockets() {
    let found = measure("cim", true).unwrap();
    println!("{}", found.table());
    let ratios: Vec<f64> =
        found.points.iter().map(|[here, model]| here.throughput / model.throughput).collect();
    assert!(ratios.iter().all(|ratio| *ratio < 1.01), "an adapter is never early: {ratios:?}");
    if found.is_late() {
        disturbed!("answers {} s late", found.late);
    }
    in_time!(ratios.iter().all(|ratio| *ratio > 0.9), "{ratios:?}");
    let [here, model] = found.chosen().map(Option::unwrap);
    in_time!((here.point.len, here.point.depth) == (Bytes(2048), 2), "{here:?}");
    assert_eq!((model.point.len, model.point.depth), (Bytes(2048), 2), "{model:?}");
    assert!(!here.at_edge && !model.at_edge, "there is more than that to try");
    let lines = found.measurements();
    let value = |name: &str| lines.iter().find(|one| one.bench == name).unwrap().value;
    assert_eq!((value("tune/cim/packet"), value("tune/cim/depth")), (2048.0, 2.0));
}
