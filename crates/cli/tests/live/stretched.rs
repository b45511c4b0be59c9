//! A live run whose time is stretched (E-55): equations 4.1 and 4.2 of Indiresan 1997, §4.4.2.

use crate::attempts::in_time;
use crate::{EXPERIMENT, go, is_installed, options, parse, shell};
use lastmeter::emulate::{Options, Report};
use lastmeter_linux::clock::WaitOptions;
use lastmeter_linux::port::Offload;
use lastmeter_live::site::Kind;
use std::time::Instant;

/// Operations one after the other, each of which takes some CPU time `c` (a program starts) and a delay `d` (its ping
/// takes 10 ms in the model).
const OPERATIONS: u32 = 12;
const DELAY: f64 = 0.010;

fn pings(slower: u32) -> (Report, f64) {
    let script = format!(
        "ping -c 1 10.77.0.2 > /dev/null; for at in $(seq {OPERATIONS}); do ping -c 1 10.77.0.2 > /dev/null; done"
    );
    let manner = WaitOptions { slower, ..WaitOptions::SLEEPING };
    let programs = vec![shell("alice", &script, true)];
    let options = Options { programs, manner, ..options(Kind::Tap(Offload::Checksum)) };
    let began = Instant::now();
    let report = go(&parse(EXPERIMENT, &[]), &options);
    assert_eq!(report.status, Some(0));
    (report, began.elapsed().as_secs_f64())
}

pub(crate) fn e_55_with_stretched_time_delays_grow_and_what_cpus_do_does_not() {
    const SLOWER: u32 = 8;
    if !is_installed("ping") {
        return;
    }
    let ((_, plain), (report, stretched)) = (pings(1), pings(SLOWER));
    // The network is what the experiment says, by its own time.
    let path = &report.ledger.paths[0];
    let latency = path.totals.latency.as_ref().unwrap().mean;
    assert!(latency >= 0.5 * DELAY, "never early: {latency}");
    in_time!(latency < 0.6 * DELAY, "{latency}");
    let twin = report.twin.as_ref().unwrap();
    assert!(twin.order_identical && twin.early == 0 && twin.changed == 0, "{twin:?}");
    // All delays of the experiment, two of which are the first ping's and its ARP's.
    let delays = f64::from(OPERATIONS + 2) * DELAY;
    let grown = f64::from(SLOWER - 1) * delays;
    println!("  {plain:.3} s, stretched {stretched:.3} s; delays of {delays:.3} s");
    assert!(stretched >= f64::from(SLOWER) * delays, "a second lasts {SLOWER}");
    in_time!((stretched - plain - grown).abs() < 0.25 * grown, "{plain}, {stretched}, {grown}");
    // Equation 4.1 gives c from what was measured without; 4.2 then says how busy the stretched network is.
    let c = plain - delays;
    let predicted = delays / (c / f64::from(SLOWER) + delays);
    let measured = f64::from(SLOWER) * delays / stretched;
    println!("  the network is used {predicted:.3} by equation 4.2, {measured:.3} measured");
    in_time!((measured / predicted - 1.0).abs() < 0.15, "{predicted}, {measured}");
}
