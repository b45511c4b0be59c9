//! What the ledger says of steady state: warm-up, lengths of queues, directions that differ.

use lastmeter_engine::Serial;
use lastmeter_lab::document::Override;
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::Builtin;
use lastmeter_lab::replicate::{Replicates, replicate};
use lastmeter_lab::run::{Runner, Watch, ledger};
use lastmeter_lab::sweep::Until;
use lastmeter_ledger::Ledger;

fn run(text: &str, overrides: &[&str], threads: usize) -> Ledger {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    let experiment = Experiment::parse("experiment.toml", text, &overrides, &Builtin).unwrap();
    let watch = Watch::default();
    ledger(&experiment, Runner { parallel: &Serial, threads, library: &Builtin, watch: &watch })
        .unwrap()
}

/// M/M/1 at a load of 0.8; the link to it brings a delay, so that packets are on their way at any time.
const MM1: &str = r#"
duration = "400 ms"
[nodes]
customers = { host = {} }
desk = { station = { service = { exponential = "1 us" }, queue-length = true } }
exit = { host = {} }
[[links]]
between = ["customers", "desk", "exit"]
delay = "10 us"
[[traffic]]
name = "customers"
from = "customers"
to = "exit"
poisson = { rate = "6.4 Gbit/s", size = "1000 B" }
"#;

/// Kleinrock, Queueing Systems, Volume 1, section 3.2: n are in the system with probability (1 - rho) rho^n, so k
/// or more wait with rho^(k + 1), and rho^2 / (1 - rho) on average.
#[test]
fn the_length_of_a_queue_is_distributed_as_in_mm1() {
    let ledger = run(MM1, &["warm-up=20 ms"], 1);
    let [length] = ledger.levels.as_slice() else { panic!("{:?}", ledger.levels) };
    assert_eq!((length.name.as_str(), length.unit.as_str()), ("desk: length", "packets"));
    assert!((length.mean - 3.2).abs() < 0.15, "mean {}", length.mean);
    // The least k with 1 - 0.8^(k + 2) of at least the share.
    assert_eq!((length.least, length.p50), (0.0, 2.0));
    assert!((length.p90 - 9.0).abs() <= 1.0, "p90 {}", length.p90);
    assert!((length.p99 - 19.0).abs() <= 2.0, "p99 {}", length.p99);
    // Little: as many wait as come in the mean wait.
    let path = &ledger.paths[0];
    let rate = path.totals.delivered.packets as f64 / ledger.duration;
    let wait = path.stages.iter().find(|stage| stage.name == "desk service").unwrap().wait.unwrap();
    assert!((rate * wait.mean / length.mean - 1.0).abs() < 0.002, "{} {}", rate, wait.mean);
}

#[test]
fn a_warm_up_is_left_out_and_the_books_still_balance() {
    let text = MM1.replace("poisson", "constant");
    for threads in [1, 2] {
        let whole = run(&text, &[], threads);
        let warm = run(&text, &["warm-up=300 ms"], threads);
        assert_eq!((warm.duration, warm.warm_up, whole.warm_up), (0.1, Some(0.3), None));
        assert_eq!((warm.balance.packets_residual, warm.balance.latency_residual), (0, 0.0));
        // A packet each 1.25 us, the first at once; in flight are those of 20 us and what waits.
        let totals = &warm.paths[0].totals;
        assert_eq!(totals.offered.unwrap().packets, 80_000);
        assert_eq!(whole.paths[0].totals.offered.unwrap().packets, 320_001);
        let ended = totals.delivered.packets + totals.held.unwrap();
        assert!((80_016..80_100).contains(&ended), "{ended}");
        let busy = warm.resources.iter().find(|one| one.name == "desk").unwrap();
        assert!((busy.busy + busy.idle - 1.0).abs() < 1e-9 && (busy.busy - 0.8).abs() < 0.02);
    }
}

#[test]
fn a_warm_up_as_long_as_the_run_is_refused() {
    let overrides = [Override::parse("warm-up=400 ms").unwrap()];
    let problems = Experiment::parse("experiment.toml", MM1, &overrides, &Builtin).unwrap_err();
    assert!(problems[0].render(false).contains("shorter than the duration"));
}

const TRIANGLE: &str = r#"
duration = "100 ms"
[nodes]
home = { host = {} }
exchange = { router = {} }
detour = { router = {} }
server = { host = {} }
[[links]]
between = ["home", "exchange"]
rate = "2 Mbit/s"
delay = "4 ms"
back = { rate = "24 Mbit/s", delay = "6 ms", queue = { drop-tail = { packets = 7 } } }
[[links]]
between = ["exchange", "server"]
delay = "1 ms"
back = { cost = 3 }
[[links]]
between = ["server", "detour", "exchange"]
delay = "10 ms"
[[traffic]]
name = "up"
from = "home"
to = "server"
constant = { rate = "1 Mbit/s", size = "1250 B" }
[[traffic]]
name = "down"
from = "server"
to = "home"
constant = { rate = "48 Mbit/s", size = "1500 B" }
"#;

#[test]
fn the_directions_of_a_link_may_differ_and_so_may_routes() {
    let ledger = run(TRIANGLE, &[], 1);
    let path = |class| ledger.paths.iter().find(|path| path.class == class).unwrap();
    let stages = |class| -> Vec<&str> {
        path(class).stages.iter().map(|stage| stage.name.as_str()).collect()
    };
    assert_eq!(
        stages("up"),
        ["home->exchange transmit", "home->exchange propagation", "exchange->server propagation"]
    );
    assert_eq!(
        stages("down"),
        [
            "server->detour propagation",
            "detour->exchange propagation",
            "exchange->home transmit",
            "exchange->home propagation",
        ]
    );
    // 10 kbit at 2 Mbit/s, 4 ms and 1 ms.
    assert_eq!(path("up").totals.latency.unwrap().max, Some(10e-3));
    // 12 kbit at 24 Mbit/s, at most seven more before it, 6 ms and two times 10 ms.
    let down = path("down").totals.latency.unwrap();
    assert!((down.max.unwrap() - (8.0 * 0.5e-3 + 26e-3)).abs() < 1e-9, "{down:?}");
    assert!((path("down").totals.loss.unwrap() - 0.4).abs() < 0.15);
}

#[test]
fn renamed_traffic_keeps_its_random_numbers_if_it_keeps_its_stream() {
    let offered = |ledger: &Ledger| ledger.paths[0].totals.offered.unwrap();
    let waited = |ledger: &Ledger| ledger.paths[0].totals.latency.unwrap();
    let renamed = MM1.replace("name = \"customers\"", "name = \"people\"");
    let kept = renamed.replace("from =", "stream = \"customers\"\nfrom =");
    let [before, other, same] = [MM1, &renamed, &kept].map(|text| run(text, &["duration=5 ms"], 1));
    assert_eq!(same.paths[0].class, "people");
    assert_eq!((offered(&before), waited(&before)), (offered(&same), waited(&same)));
    assert_ne!((offered(&before), waited(&before)), (offered(&other), waited(&other)));
}

const HISTORIC: &str = r#"
duration = "100 ms"
[nodes]
a = { host = { profile = "hp9000-730", adapter = "afterburner" } }
b = { host = { profile = "hp9000-730", adapter = "afterburner" } }
[[links]]
between = ["a", "b"]
rate = "1 Gbit/s"
[[traffic]]
name = "requests"
from = "a"
to = "b"
request = { size = "64 B", response = "64 B", window = 1 }
"#;

#[test]
fn a_value_of_a_profile_can_be_set() {
    let cpu = |overrides: &[&str]| {
        let ledger = run(HISTORIC, overrides, 1);
        let stages = &ledger.paths[0].stages;
        let stage = stages.iter().find(|stage| stage.name == "b protocol in").unwrap();
        stage.service.unwrap().p50.unwrap()
    };
    let key = "profiles.hosts/hp9000-730.receive.protocol in.per-packet=1 ms";
    assert_ne!(cpu(&[]), cpu(&[key]));
    assert!(cpu(&[key]) >= 1e-3);
}

#[test]
fn a_stage_of_a_host_can_take_a_random_time() {
    let profile = |key: &str| format!("profiles.hosts/hp9000-730.receive.protocol in.{key}");
    let set = [
        profile("per-packet=0 us"),
        profile("random={ exponential = \"1 ms\" }"),
        "traffic.requests.request={ size = \"64 B\", response = \"64 B\", window = 1 }".to_owned(),
        "duration=20 s".to_owned(),
    ];
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let ledger = run(HISTORIC, &set, 1);
    let stages = &ledger.paths[0].stages;
    let service =
        stages.iter().find(|stage| stage.name == "b protocol in").unwrap().service.unwrap();
    // Of an exponential time the median is ln 2 of the mean, the 99th percentile ln 100.
    assert!((service.mean / 1e-3 - 1.0).abs() < 0.05, "{service:?}");
    assert!((service.p50.unwrap() / service.mean - 0.693).abs() < 0.05, "{service:?}");
    assert!((service.p99.unwrap() / service.mean - 4.605).abs() < 0.4, "{service:?}");
}

fn replicated(text: &str, runs: u64, until: Option<&str>) -> Vec<lastmeter_ledger::Estimate> {
    let experiment = Experiment::parse("experiment.toml", text, &[], &Builtin).unwrap();
    let watch = Watch::default();
    let runner = Runner { parallel: &Serial, threads: 1, library: &Builtin, watch: &watch };
    let first = ledger(&experiment, runner).unwrap();
    let until = until.map(|text| Until::parse(text).unwrap());
    replicate(&experiment, &first, &Replicates { runs, until }, runner).unwrap()
}

/// M/M/1 at a load of 0.8: 5 us in the system, 4 of them in the queue and at the desk, 20 us on the links.
#[test]
fn intervals_over_seeds_cover_the_truth() {
    let text = MM1.replace("400 ms", "60 ms");
    let text = text.replacen("duration", "warm-up = \"10 ms\"\nduration", 1);
    let all = replicated(&text, 8, None);
    let one = |of: &str, measure: &str| {
        all.iter().find(|one| one.of == of && one.measure == measure).unwrap()
    };
    let latency = one("all paths", "latency");
    let half = latency.half_width.unwrap();
    assert_eq!(latency.runs, 8);
    // Three standard errors: t is 2.365 with 7 degrees of freedom.
    assert!((latency.mean - 25e-6).abs() < half * 3.0 / 2.365, "{latency:?}");
    assert!(half > 0.0 && half < 1e-6, "{latency:?}");
    let length = one("desk: length", "mean");
    assert!((length.mean - 3.2).abs() < length.half_width.unwrap() * 3.0 / 2.365, "{length:?}");
    assert_eq!(one("desk", "busy").runs, 8);
    assert_eq!(one("all paths", "goodput").unit, "bit/s");
}

#[test]
fn seeds_are_added_until_an_interval_is_narrow() {
    let text = MM1.replace("400 ms", "5 ms");
    let runs = |until| {
        let all = replicated(&text, 3, Some(until));
        let one = all.iter().find(|one| one.of == "all paths" && one.measure == "latency").unwrap();
        (one.runs, one.half_width.unwrap() / one.mean)
    };
    let (few, (wide, narrow)) = (runs("latency 50 %"), runs("latency 1.5 %"));
    assert_eq!(few.0, 3);
    assert!(wide > 3 && wide < 200 && narrow <= 0.015, "{wide} {narrow}");
}

/// A host whose profile has one side only, from a library of its own.
struct OneSided(&'static str);

impl lastmeter_lab::library::Library for OneSided {
    fn profile(&self, _folder: &str, _name: &str) -> Result<String, String> {
        let stage =
            |side| format!("[[{side}]]\nname = \"work\"\non = \"cpu\"\nper-packet = \"5 us\"\n");
        let text = "what = \"A host\"\nsource = \"us\"\n[resources]\ncpu = { cpu = {} }\n";
        Ok(text.to_owned() + &stage(self.0))
    }
    fn names(&self, _folder: &str) -> Vec<String> {
        vec!["own".to_owned()]
    }
}

#[test]
fn a_host_may_cost_something_on_one_side_only() {
    let text = MM1.replace("host = {}", "host = { profile = \"own\" }").replace("400 ms", "1 ms");
    let text = text.replace("6.4 Gbit/s", "80 Mbit/s");
    for (side, host) in [("send", "customers"), ("receive", "exit")] {
        let library = OneSided(side);
        let experiment = Experiment::parse("experiment.toml", &text, &[], &library).unwrap();
        let watch = Watch::default();
        let runner = Runner { parallel: &Serial, threads: 1, library: &library, watch: &watch };
        let ledger = ledger(&experiment, runner).unwrap();
        let works = ledger.paths[0].stages.iter().filter(|stage| stage.name.ends_with(" work"));
        let works: Vec<&str> = works.map(|stage| stage.name.as_str()).collect();
        assert_eq!(works, [format!("{host} work")]);
    }
}
