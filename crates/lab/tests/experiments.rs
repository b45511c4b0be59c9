//! Experiments from text to outcome.

use lastmeter_base::{Duration, Rate, Time};
use lastmeter_engine::{Outcome, VirtualClock};
use lastmeter_lab::build::{Changes, build};
use lastmeter_lab::close::{Close, close};
use lastmeter_lab::document::{Override, Problem};
use lastmeter_lab::experiment::Experiment;
use lastmeter_lab::library::{Builtin, Library};
use std::collections::BTreeMap;
use std::io::Read;

const TWO_HOSTS: &str = r#"
title = "Two hosts and a router"
duration = "100 ms"
[nodes]
alice = { host = {} }
r1 = { router = {} }
bob = { host = {} }
[[links]]
between = ["alice", "r1", "bob"]
rate = "1 Gbit/s"
delay = "1 ms"
queue = { drop-tail = { packets = 200 } }
[[traffic]]
name = "bulk"
from = "alice"
to = "bob"
constant = { rate = "18 Mbit/s", size = "1500 B" }
"#;

fn parse(text: &str, overrides: &[&str]) -> Result<Experiment, Vec<Problem>> {
    let overrides: Vec<Override> =
        overrides.iter().map(|text| Override::parse(text).unwrap()).collect();
    Experiment::parse("experiment.toml", text, &overrides, &Builtin)
}

fn parsed(text: &str, overrides: &[&str]) -> Experiment {
    parse(text, overrides).map_err(shown).unwrap()
}

fn shown(problems: Vec<Problem>) -> String {
    problems.iter().map(|problem| format!("{}\n", problem.render(false))).collect()
}

fn run(experiment: &Experiment, changes: &Changes) -> Outcome {
    let built = build(experiment, changes, &Builtin).unwrap();
    let mut engine = built.graph.build(1).unwrap();
    engine.run_until(built.end, &mut VirtualClock::default()).unwrap();
    engine.finish().unwrap()
}

#[test]
fn two_hosts_run_from_text_to_balanced_books() {
    let experiment = parsed(TWO_HOSTS, &[]);
    let outcome = run(&experiment, &Changes::NONE);
    assert_eq!(outcome.now, Time::START + experiment.duration);
    let stages: Vec<&str> = outcome.stages.iter().map(|stage| stage.name.as_str()).collect();
    let names =
        ["alice->r1 propagation", "alice->r1 transmit", "r1->bob propagation", "r1->bob transmit"];
    assert_eq!(stages, names);
    assert_eq!(outcome.resources[0].name, "alice->r1");
    assert_eq!(
        (outcome.paths[0].name.as_str(), outcome.paths[0].class.as_str()),
        ("alice->bob", "bulk")
    );
    // At 18 Mbit/s there is a packet every 666.7 us: 150 in 100 ms, the last three still in flight.
    assert_eq!(outcome.books.made, 150);
    assert_eq!(outcome.books.delivered, 147);
    let latency = outcome.books.paths[0].latency.mean();
    assert!((latency - 2.024e-3).abs() < 1e-12, "{latency}");
}

fn served(outcome: &Outcome) -> u64 {
    let counters = outcome.elements.iter().flat_map(|element| &element.counters);
    counters.filter(|(name, _)| *name == "served").map(|(_, count)| count).sum()
}

#[test]
fn the_chain_of_fifty_flows_serves_the_expected_load() {
    let text = include_str!("../../../experiments/chain/experiment.toml");
    let outcome = run(&parsed(text, &[]), &Changes::NONE);
    // 50 flows x 1500 packets per second x 2 s = 150,000 packets, each served by 11 wires on its route. Random phases
    // and packets still in flight make it slightly less.
    assert_eq!((served(&outcome), outcome.books.delivered), (1_645_789, 149_163));
    assert_eq!(outcome.resources.len(), 50 + 9 + 50);
    // Counted nodes share stages and have wires of their own.
    let stages: Vec<&str> = outcome.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert!(stages.contains(&"s->r1 transmit") && stages.contains(&"r10->d propagation"));
    assert_eq!(stages.len(), 2 * 11);
    assert!(outcome.resources.iter().any(|resource| resource.name == "s.49->r1"));
    assert_eq!(outcome.books.paths.len(), 1);
}

#[test]
fn mm1_and_the_tandem_agree_with_theory() {
    let cases = [
        (include_str!("../../../experiments/mm1/experiment.toml"), 5e-6),
        (include_str!("../../../experiments/tandem/experiment.toml"), 50e-6),
    ];
    for (text, time) in cases {
        let outcome = run(&parsed(text, &[]), &Changes::NONE);
        let mean = outcome.books.paths[0].latency.mean();
        assert!((mean / time - 1.0).abs() < 0.05, "{mean} s instead of {time} s");
    }
}

/// One capture, whole or cut short.
struct OneCapture(usize);

impl Library for OneCapture {
    fn open(&self, _path: &str) -> Result<Box<dyn Read + Send>, String> {
        let capture = include_bytes!("../../../examples/captures/mixed.pcapng");
        Ok(Box::new(&capture[..self.0.min(capture.len())]))
    }
}

const REPLAY: &str = r#"
duration = "60 s"
[nodes]
alice = { host = {} }
bob = { host = {} }
[[links]]
between = ["alice", "bob"]
[[traffic]]
name = "recorded"
from = "alice"
to = "bob"
replay = { capture = "mixed.pcapng" }
"#;

fn replay(len: usize) -> (Outcome, Vec<Problem>) {
    let experiment = parsed(REPLAY, &[]);
    let mut built = build(&experiment, &Changes::NONE, &OneCapture(len)).map_err(shown).unwrap();
    let captures = built.captures();
    let mut engine = built.graph.build(1).unwrap();
    engine.run_until(built.end, &mut VirtualClock::default()).unwrap();
    (engine.finish().unwrap(), captures.problems())
}

/// E-07, Fig 2.2(a) of Indiresan 1997: driven by a trace; (b), driven by a real host, is `experiments/end-live`.
#[test]
fn a_capture_is_replayed_to_its_end() {
    let (outcome, problems) = replay(usize::MAX);
    assert!(problems.is_empty());
    assert!(outcome.books.delivered > 10, "{}", outcome.books.delivered);
}

#[test]
fn a_capture_that_breaks_off_is_reported() {
    let (whole, _) = replay(usize::MAX);
    let len = include_bytes!("../../../examples/captures/mixed.pcapng").len();
    let (outcome, problems) = replay(len / 2);
    assert!(outcome.books.delivered < whole.books.delivered);
    let text = problems[0].to_string();
    assert!(text.contains("the capture `mixed.pcapng` broke: record "), "{text}");
    assert!(text.contains("the file ends within it"), "{text}");
}

#[test]
fn a_file_that_is_not_a_capture_is_refused_before_the_run() {
    let experiment = parsed(REPLAY, &[]);
    let problems = build(&experiment, &Changes::NONE, &Builtin).err().unwrap();
    assert_eq!(problems[0].key, "traffic.recorded");
}

fn goodput(outcome: &Outcome) -> u64 {
    outcome.books.paths.iter().map(|book| book.delivered.bytes).sum()
}

fn digest(outcome: &Outcome) -> String {
    format!("{:?} {:?} {:?}", outcome.books, outcome.elements, outcome.handled)
}

#[test]
fn overrides_replace_values_of_the_file_and_change_the_hash() {
    let plain = parsed(TWO_HOSTS, &[]);
    let changes = [
        "duration=50 ms",
        "links.0.rate=10 Mbit/s",
        "traffic.bulk.constant.rate=36 Mbit/s",
        "traffic.bulk.phase=random",
        "nodes.r1={ station = { service = \"1 us\" } }",
        "traffic.+={ name = 'more', from = 'alice', to = 'bob', bulk = { size = '1 B', window = 1 } }",
        "seed=7",
        "title=Another",
    ];
    let changed = parsed(TWO_HOSTS, &changes);
    assert_eq!((changed.seed, changed.title.as_str()), (7, "Another"));
    assert_eq!(changed.duration, Duration::from_ms(50));
    assert_eq!(changed.links[0].values.get::<Rate>("rate"), Rate::from_mbit(10));
    assert_eq!(changed.nodes[1].kind.page.name, "station");
    assert_eq!(changed.traffic[0].kind.values.get::<Rate>("rate"), Rate::from_mbit(36));
    assert_eq!((plain.traffic.len(), changed.traffic[1].name.as_str()), (1, "more"));
    assert_eq!(plain.hash.len(), 16);
    assert_ne!(plain.hash, changed.hash);
    assert_eq!(plain.hash, parsed(TWO_HOSTS, &[]).hash);
}

#[test]
fn the_same_seed_gives_the_same_books_and_another_seed_others() {
    let text = include_str!("../../../experiments/mm1/experiment.toml");
    let books = |overrides: &[&str]| {
        let experiment = parsed(text, overrides);
        digest(&run(&experiment, &Changes::NONE))
    };
    let short = "duration=1 ms";
    assert_eq!(books(&[short]), books(&[short]));
    assert_ne!(books(&[short]), books(&[short, "seed=2"]));
}

const OVERLOADED: &str = r#"
duration = "200 ms"
[nodes]
alice = { host = {} }
r1 = { router = {} }
bob = { host = {} }
[[links]]
between = ["alice", "r1"]
rate = "100 Mbit/s"
delay = "100 us"
[[links]]
between = ["r1", "bob"]
rate = "10 Mbit/s"
delay = "100 us"
queue = { drop-tail = { packets = 10 } }
[[traffic]]
name = "bursts"
from = "alice"
to = "bob"
poisson = { rate = "20 Mbit/s", size = "1500 B" }
"#;

#[test]
fn changes_have_the_expected_effects() {
    let experiment = parsed(OVERLOADED, &[]);
    let with = |changes: Changes| run(&experiment, &changes);
    let plain = with(Changes::NONE);
    let faster = |name: &str| Changes {
        speed: BTreeMap::from([(name.to_owned(), (2, 1))]),
        ..Changes::NONE
    };
    // Doubling the rate of the limiting wire nearly doubles goodput; doubling the other's changes nothing.
    assert!(goodput(&with(faster("r1->bob"))) * 10 > goodput(&plain) * 18);
    assert!(goodput(&with(faster("alice->r1"))).abs_diff(goodput(&plain)) < 100_000);
    let free = |stage: &str| Changes { free: [stage.to_owned()].into(), ..Changes::NONE };
    assert_eq!(with(free("r1->bob transmit")).books.dropped, 0);
    let near = with(free("alice->r1 propagation"));
    let gained = plain.books.paths[0].latency.mean() - near.books.paths[0].latency.mean();
    assert!((gained - 100e-6).abs() < 1e-6, "{gained}");
    let roomy = with(Changes { buffers: (2, 1), ..Changes::NONE });
    assert!(roomy.books.paths[0].latency.mean() > 1.5 * plain.books.paths[0].latency.mean());
}

#[test]
fn a_change_of_something_missing_is_refused() {
    let experiment = parsed(OVERLOADED, &[]);
    let changes = Changes {
        speed: BTreeMap::from([("r1->bbo".to_owned(), (2, 1))]),
        free: ["r1->bob".to_owned()].into(),
        ..Changes::NONE
    };
    let problems = build(&experiment, &changes, &Builtin).err().unwrap();
    assert_eq!(problems.len(), 2);
    assert_eq!(problems[0].suggestion.as_deref(), Some("r1->bob"));
}

#[test]
fn requests_from_many_hosts_and_to_many_find_their_way_back() {
    let text = r#"
duration = "50 ms"
[nodes]
client = { host = {}, count = 3 }
r1 = { router = {} }
server = { host = {} }
disk = { host = {}, count = 3 }
[[links]]
between = ["client", "r1", "server", "disk"]
rate = "1 Gbit/s"
delay = "10 us"
[[traffic]]
name = "lookups"
from = "client"
to = "server"
request = { size = "100 B", response = "1000 B" }
[[traffic]]
name = "reads"
from = "server"
to = "disk"
bulk = { size = "100 B", response = "4 KiB", window = 4 }
[[traffic]]
name = "noise"
from = "client.1"
to = "server"
constant = { rate = "1 Mbit/s", size = "500 B" }
packets = 3
"#;
    let outcome = run(&parsed(text, &[]), &Changes::NONE);
    let names: Vec<String> =
        outcome.paths.iter().map(|path| format!("{} {}", path.name, path.class)).collect();
    assert_eq!(
        names,
        [
            "client->server lookups",
            "server->client lookups responses",
            "server->disk reads",
            "disk->server reads responses",
            "client.1->server noise",
        ]
    );
    let counts = |name: &str| -> Vec<u64> {
        let elements = outcome.elements.iter();
        let counters = elements.flat_map(|element| &element.counters);
        counters.filter(|(counter, _)| *counter == name).map(|&(_, count)| count).collect()
    };
    assert!(counts("responses").iter().all(|&count| count > 100), "{:?}", counts("responses"));
    assert_eq!(counts("given_up"), [0; 6]);
    assert_eq!(outcome.books.paths[4].delivered.packets, 3);
    assert_eq!(outcome.books.dropped, 0);
}

/// The longest times, the slowest rates and the largest sizes allowed.
#[test]
fn the_extremes_of_all_parameters_run_without_overflow() {
    let text = r#"
duration = "100000 s"
[nodes]
alice = { host = {} }
slow = { station = { service = { exponential = "100000 s" } } }
bob = { host = {} }
[[links]]
between = ["alice", "slow", "bob"]
rate = "1 kbit/s"
delay = "100000 s"
framing = "64 KiB"
queue = { token-bucket = { rate = "1 kbit/s", burst = "1 GiB" } }
[[traffic]]
name = "rare"
from = "alice"
to = "bob"
start = "100000 s"
poisson = { rate = "1 kbit/s", size = "16 MiB" }
[[traffic]]
name = "bursts"
from = "alice"
to = "bob"
on-off = { rate = "1 kbit/s", size = "16 MiB", on = { exponential = "100000 s" }, off = "100000 s" }
[[traffic]]
name = "patience"
from = "bob"
to = "alice"
bulk = { size = "16 MiB", window = 1000, timeout = "100000 s" }
[[traffic]]
name = "haste"
from = "alice"
to = "bob"
constant = { rate = "1000000 Tbit/s", size = "1 B" }
packets = 1000
[[traffic]]
name = "tails"
from = "alice"
to = "bob"
renewal = { gap = { pareto = "100000 s", shape = 1.01 }, size = "16 MiB" }
[[traffic]]
name = "transfers"
from = "alice"
to = "bob"
start = "100000 s"
tcp = { connections = 50000, gap = { log-normal = "100000 s", sigma = 8.0 }, spread = "100000 s", bytes = { pareto = "1 GiB", shape = 1.01 } }
"#;
    let tail = "nodes.slow.station.service={ pareto = \"100000 s\", shape = 1.01 }";
    for seed in 0..20 {
        let seed = format!("seed={seed}");
        for overrides in [&[seed.as_str()][..], &[seed.as_str(), tail]] {
            run(&parsed(text, overrides), &Changes::NONE);
        }
    }
}

#[test]
fn a_wide_area_network_accounts_for_the_effects_of_its_impairments() {
    let text = include_str!("../../../experiments/wan/experiment.toml");
    let outcome = run(&parsed(text, &[]), &Changes::NONE);
    let count = |element: &str, counter: &str| {
        let element = outcome.elements.iter().find(|known| known.name == element).unwrap();
        element.counters.iter().find(|(name, _)| *name == counter).unwrap().1
    };
    for (element, counter) in [
        ("up", "served"),
        ("down", "served"),
        ("air", "lost"),
        ("wander", "delayed"),
        ("noise", "corrupted"),
        ("paths", "overtaken"),
        ("double", "duplicated"),
        ("stray", "lost"),
        ("cut", "cut off"),
        ("line", "served"),
    ] {
        assert!(count(element, counter) > 0, "{element} {counter}");
    }
    // Packets towards the server pass one trace and bypass the other.
    assert_eq!(count("up", "around"), count("down", "served"));
    let books = &outcome.books;
    assert_eq!(books.made, books.delivered + books.dropped + outcome.held);
    let paths = &books.paths;
    assert!(paths.iter().map(|path| path.corrupted).sum::<u64>() > 0);
    assert!(paths.iter().map(|path| path.reordered).sum::<u64>() > 0);
}

#[test]
fn goodput_is_what_applications_read() {
    let text = include_str!("../../../experiments/dumbbell/experiment.toml");
    let experiment = parse(text, &["duration=\"5 s\""]).map_err(shown).unwrap();
    let outcome = run(&experiment, &Changes::NONE);
    let counters = || outcome.elements.iter().flat_map(|element| &element.counters);
    let sum =
        |name| counters().filter(|(known, _)| *known == name).map(|(_, count)| count).sum::<u64>();
    let useful: u64 = outcome.books.paths.iter().map(|book| book.useful).sum();
    assert!(sum("retransmissions") > 0, "a duplicate is not useful twice");
    assert_eq!(useful, sum("consumed"));
    // Acknowledgements arrive and bring nothing.
    let idle = outcome.books.paths.iter().filter(|book| book.useful == 0);
    assert!(idle.map(|book| book.delivered.packets).sum::<u64>() > 0);
}

#[test]
fn transfers_that_begin_at_random_say_when_they_complete() {
    let text = r#"
title = "Files"
duration = "100 s"
[nodes]
alice = { host = {} }
bob = { host = {} }
[[links]]
between = ["alice", "bob"]
rate = "1 Gbit/s"
delay = "10 ms"
[[traffic]]
name = "files"
from = "alice"
to = "bob"
tcp = { connections = 10000, gap = { exponential = "50 ms" }, bytes = { uniform = ["1 B", "1 kB"] }, acknowledge-first = true }
"#;
    let experiment = parse(text, &[]).map_err(shown).unwrap();
    let ledger = close(&run(&experiment, &Changes::NONE), Close::default());
    let [files] = &ledger.transfers[..] else { panic!("one kind of traffic") };
    // Poisson: 2000 in 100 s, with a standard deviation of 45.
    assert!((1_800..2_200).contains(&files.begun), "{}", files.begun);
    assert!(files.begun - files.completed < 10, "those under way at the end");
    // A handshake, and one segment with its acknowledgement: two round trips.
    let times = files.completion.unwrap();
    assert!((times.mean - 0.040).abs() < 1e-4 && times.max.unwrap() < 0.0401, "{times:?}");
    let bytes = files.bytes as f64 / files.begun as f64;
    assert!((bytes / 500.5 - 1.0).abs() < 0.05, "{bytes}");
    assert_eq!(files.each.len() as u64, files.begun);
    // Rates are as the bytes, uniform from 0: n / (n + n / 3) is Jain's index.
    assert!((files.fairness - 0.75).abs() < 0.02, "{}", files.fairness);
}

#[test]
fn errors_in_an_impairment_are_reported_at_their_place() {
    let text = |impairment: &str| {
        format!(
            "duration = \"1 s\"\n[nodes]\nalice = {{ host = {{}} }}\nwan = {{ {impairment} }}\n\
             bob = {{ host = {{}} }}\n[[links]]\nbetween = [\"alice\", \"wan\", \"bob\"]\n\
             [[traffic]]\nname = \"bulk\"\nfrom = \"alice\"\nto = \"bob\"\n\
             constant = {{ rate = \"1 Mbit/s\", size = \"1500 B\" }}\n"
        )
    };
    for (impairment, found) in [
        ("loss = { probability = 0.1, toward = [\"bop\"] }", "there is no node `bop`"),
        ("varying-rate = {}", "it has neither `rates` nor a `file` of them"),
        (
            "varying-rate = { rates = [[\"1 s\", \"1 Mbit/s\"]] }",
            "the first rate begins at 1 s: write `0 s`",
        ),
        (
            "varying-rate = { rates = [[\"0 s\", \"10\"]] }",
            "`10` has no unit: write \"10 Mbit/s\" or \"10 MB/s\"",
        ),
        ("mahimahi = { trace = \"nowhere\" }", "`nowhere`: the program has no such built-in file"),
        (
            "mahimahi = { trace = \"../../examples/traces/README.md\" }",
            "`../../examples/traces/README.md`, line 1: `# Traces` is not a whole number of \
             milliseconds",
        ),
        ("partition = { windows = [[\"2 s\", \"1 s\"]] }", "it ends at 1 s, not after 2 s"),
    ] {
        let experiment = parse(&text(impairment), &[]);
        let problems = experiment
            .and_then(|experiment| build(&experiment, &Changes::NONE, &Builtin).map(drop))
            .unwrap_err();
        assert_eq!((problems[0].line, problems[0].found.as_str()), (4, found));
    }
}

/// A queue that drops by itself, and every other discipline that reads more of packets than their length: the engine's
/// books balance, and these fields have their effect.
#[test]
fn packet_fields_reach_queues_that_drop_by_themselves() {
    let text = |queue: &str, first: &str, second: &str| {
        format!(
            r#"
duration = "200 ms"
[nodes]
alice = {{ host = {{}} }}
r1 = {{ router = {{}} }}
bob = {{ host = {{}} }}
[[links]]
between = ["alice", "r1"]
rate = "100 Mbit/s"
[[links]]
between = ["r1", "bob"]
rate = "10 Mbit/s"
delay = "1 ms"
queue = {{ {queue} }}
[[traffic]]
name = "first"
from = "alice"
to = "bob"
constant = {{ rate = "8 Mbit/s", size = "530 B" }}
{first}
[[traffic]]
name = "second"
from = "alice"
to = "bob"
poisson = {{ rate = "8 Mbit/s", size = "530 B" }}
{second}
"#
        )
    };
    let delivered = |queue: &str, first: &str, second: &str| {
        let experiment = parsed(&text(queue, first, second), &[]);
        // `finish` proves that packets made = delivered + dropped + held.
        let outcome = run(&experiment, &Changes::NONE);
        let counters = outcome.elements.iter().flat_map(|element| &element.counters);
        let marked: u64 = counters.filter(|&&(name, _)| name == "marked").map(|&(_, n)| n).sum();
        let paths = outcome.books.paths.iter();
        let mut counts: Vec<f64> = paths.map(|path| path.delivered.packets as f64).collect();
        counts.push(marked as f64);
        counts
    };
    // 10 Mbit/s for 199 ms are 469 packets; each class offers 377.
    let all = |counts: &[f64]| counts[0] + counts[1];
    let urgent = delivered("priority = { packets = 20, full = \"lowest\" }", "class = 1", "");
    assert!(urgent[1] > 330.0 && urgent[0] < 140.0, "{urgent:?}");
    let tree = "h-pfq = { parents = [0, 0], weights = [3, 1], each = 20 }";
    let shared = delivered(tree, "", "class = 1");
    assert!((shared[0] / 352.0 - 1.0).abs() < 0.05, "{shared:?}");
    // Half of the load offered to FQ-CoDel with a short target has to be dropped, by its own decision.
    let short = "fq-codel = { target = \"1 ms\", interval = \"5 ms\" }";
    let marked = delivered(short, "ecn = \"ect0\"", "");
    assert!(marked[2] > 5.0 && (marked[0] - marked[1]).abs() < 15.0, "{marked:?}");
    assert!(all(&marked) > 440.0, "{marked:?}");
    let late = delivered("hop-laxity = { packets = 500 }", "deadline = \"12 ms\"", "");
    assert!(late[0] > 360.0, "{late:?}");
    let early = delivered("edd = { bound = \"20 ms\" }", "deadline = \"20 ms\"", "");
    assert!(early[0] > 360.0 && all(&early) > 440.0, "{early:?}");
    let dual = delivered("dual-pi2 = { packets = 100 }", "ecn = \"ect1\"", "");
    assert!(dual[2] > 100.0 && all(&dual) > 440.0, "{dual:?}");
    // Ten cells are a packet: nearly all packets sent by early discard are complete.
    let cells = "cell-discard = { cells = 60, policy = \"early\" }";
    let whole = delivered(cells, "cells = 10", "cells = 10");
    assert!(all(&whole) > 400.0, "{whole:?}");
}
