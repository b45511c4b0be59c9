//! Which hosts carry a rate: those of the 1990s compared with a calibrated one of today.

#![allow(clippy::unwrap_used, reason = "a test")]

use lastmeter_base::Rate;
use lastmeter_engine::Serial;
use lastmeter_lab::library::Builtin;
use lastmeter_lab::run::{Runner, Watch};
use lastmeter_why::reach::{hosts, table};

#[test]
fn j_88_no_host_of_the_1990s_carries_a_gigabit_but_one_of_today_does() {
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
    let carried = hosts("afterburner", Rate::from_mbit(950), runner).unwrap();
    assert_eq!(carried[0].host, "epyc-2-cores");
    assert_eq!(carried[0].times, Some(1.0));
    let then = carried.iter().find(|one| one.host == "hp9000-730").unwrap();
    // 24.7 MB/s are 198 Mbit/s, nearly all of it limited by the host's copy.
    let times = then.times.unwrap();
    assert!((4.0..6.0).contains(&times), "{times}");
    assert!(then.reached >= 950e6);
    let words = table("afterburner", Rate::from_mbit(950), &carried);
    assert!(words.contains("The first that does is epyc-2-cores"), "{words}");
}
