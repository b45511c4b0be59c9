//! The kernel's TCP behind an emulated link beside the model's.

use crate::attempts::in_time;
use crate::is_installed;
use lastmeter::emulate::kernel::measure;
use lastmeter_base::Duration;
use lastmeter_engine::Control;
use lastmeter_judge::linux::scenarios;
use std::sync::Arc;

/// A short run of a scenario; `lastmeter repro linux` compares twelve, each for a hundred seconds.
pub(crate) fn a_161_the_kernels_tcp_fills_a_link_and_its_queue_as_the_models_does() {
    if !is_installed("iperf3") {
        return;
    }
    let name = "40 ms, drop-tail 1, 1 connection, Reno";
    let scenario = scenarios().into_iter().find(|scenario| scenario.name == name).unwrap();
    let (left_out, lasts) = (Duration::from_secs(4), Duration::from_secs(16));
    let linux = measure(&scenario, left_out, lasts, &Arc::new(Control::default())).unwrap();
    in_time!(linux.is_some(), "the emulator did not keep up");
    let (linux, ours) = (linux.unwrap(), scenario.ours(1, left_out, lasts).unwrap());
    println!("  Linux: {linux:?}\n  model: {ours:?}");
    // Linux has a queue of 33 packets, each of which takes 1.23 ms: no mean is longer.
    assert!(linux.wait <= 33.0 * 1538.0 * 8.0 / 10e6, "{linux:?}");
    assert!(linux.dropped > 0 && ours.dropped > 0, "the queue overflows now and then");
    let off = |ours: f64, linux: f64| (ours / linux - 1.0).abs();
    in_time!(off(ours.goodput, linux.goodput) < 0.05, "goodput: {ours:?}, {linux:?}");
    // Ten or so cycles of the window: where the interval cuts them moves the mean.
    in_time!(off(ours.wait, linux.wait) < 0.15, "wait: {ours:?}, {linux:?}");
}
