//! A small ledger with every part filled in, made by hand, for tests of how ledgers look.

use lastmeter_ledger::*;

fn latencies() -> Vec<Quantile> {
    let known =
        [(0.0, 41.0e-6), (0.5, 58.6e-6), (0.9, 120.0e-6), (0.99, 203.4e-6), (1.0, 311.9e-6)];
    known.map(|(share, latency)| Quantile { share, latency }).to_vec()
}

/// Microseconds as (mean, p99); half of the visits took the mean.
fn times((mean, p99): (f64, f64)) -> Times {
    Times { mean: mean / 1e6, p50: Some(mean / 1e6), p99: Some(p99 / 1e6) }
}

/// The host, from the name.
fn place(name: &str) -> Place {
    let host = name.split_once('.').map(|(host, _)| host.to_owned());
    Place { host, ..Place::default() }
}

type Part = (f64, f64);

fn stage(name: &str, resource: &str, parts: [Part; 3], work: [u32; 2]) -> Stage {
    let passed = Count { packets: 131_118, bytes: 131_118 * 1500 };
    let served = (!resource.is_empty()).then_some(resource);
    Stage {
        place: place(resource),
        wait: Some(times(parts[0])),
        service: Some(times(parts[1])),
        blocked: Some(times(parts[2])),
        copies: Some(work[0]),
        touches: Some(work[1]),
        ..Stage::new(name, served, passed)
    }
}

fn stages() -> Vec<Stage> {
    let none = (0.0, 0.0);
    let mut stages = vec![
        stage("alice.send call", "alice.cpu", [(0.8, 4.1), (2.1, 2.1), none], [0, 0]),
        stage("alice.copy and checksum", "alice.cpu", [none, (3.2, 3.2), none], [1, 1]),
        stage("alice.fetch", "alice.pci", [(0.4, 1.9), (1.6, 1.6), (0.3, 1.1)], [0, 0]),
        stage("alice.transmit ring", "alice.nic", [(1.9, 6.3), (0.6, 0.6), (0.9, 4.8)], [0, 0]),
        stage("link.transmit", "link", [(2.2, 7.0), (1.2, 1.2), none], [0, 0]),
        stage("link.propagation", "", [none, (5.0, 5.0), none], [0, 0]),
        stage("bob.receive ring", "bob.nic", [(0.7, 2.2), (0.6, 0.6), none], [0, 0]),
        stage("bob.deposit", "bob.pci", [(0.9, 2.6), (1.6, 1.6), none], [0, 0]),
        stage("bob.interrupt", "bob.cpu", [(21.4, 98.0), (1.9, 1.9), none], [0, 0]),
        stage("bob.checksum and copy", "bob.cpu", [(18.3, 71.5), (5.6, 9.4), none], [1, 2]),
    ];
    stages[6].drops.insert("no descriptor".to_owned(), 212);
    stages[8].drops.insert("full".to_owned(), 3_658);
    stages
}

fn resource(name: &str, kind: &str, busy: &[(&str, f64)], blocked: f64, moved: f64) -> Resource {
    let total: f64 = busy.iter().map(|(_, share)| share).sum();
    Resource {
        place: place(name),
        by_stage: busy.iter().map(|&(stage, share)| (stage.to_owned(), share)).collect(),
        bytes_per_delivered_byte: Some(moved),
        ..Resource::new(name, kind, total, Some(blocked))
    }
}

fn resources() -> Vec<Resource> {
    let sender = [("alice.copy and checksum", 0.432), ("alice.send call", 0.2835)];
    let receiver = [("bob.checksum and copy", 0.7343), ("bob.interrupt", 0.2491)];
    vec![
        resource("alice.cpu", "cpu", &sender, 0.0, 2.06),
        resource("alice.pci", "bus", &[("alice.fetch", 0.216)], 0.0405, 1.03),
        resource("alice.nic", "engine", &[("alice.transmit ring", 0.081)], 0.1215, 1.03),
        resource("link", "wire", &[("link.transmit", 0.162)], 0.0, 1.03),
        resource("bob.nic", "engine", &[("bob.receive ring", 0.0809)], 0.0, 1.03),
        resource("bob.pci", "bus", &[("bob.deposit", 0.2157)], 0.0, 1.028),
        resource("bob.cpu", "cpu", &receiver, 0.0, 2.0),
    ]
}

fn totals() -> Totals {
    let count = |packets: u64| Count { packets, bytes: packets * 1500 };
    Totals {
        offered: Some(count(135_000)),
        dropped: Some(count(3_870)),
        held: Some(12),
        loss: Some(3_870.0 / 135_000.0),
        latency: Some(Latency {
            mean: 71.2e-6,
            p50: Some(58.6e-6),
            p99: Some(203.4e-6),
            max: Some(311.9e-6),
        }),
        jitter: Some(7.3e-6),
        reordered: Some(0),
        corrupted: Some(0),
        memory_multiple: Some(5.03),
        ..Totals::new(count(131_118), 131_118.0 * 12_000.0)
    }
}

fn what_if(change: &str, gain: f64, measured: Option<f64>) -> WhatIf {
    let baseline = 131_118.0 * 12_000.0;
    let predicted = baseline * (1.0 + gain);
    WhatIf {
        change: change.to_owned(),
        metric: "goodput".to_owned(),
        baseline,
        predicted: Some(predicted),
        measured,
        error: measured.map(|measured| (predicted - measured) / measured),
        gain: measured.map_or(gain, |measured| measured / baseline - 1.0),
        share: None,
    }
}

fn what_ifs() -> Vec<WhatIf> {
    let mut what_ifs = vec![
        what_if("bob.checksum and copy costs nothing", 0.386, None),
        what_if("bob.cpu twice as fast", 0.362, None),
        what_if("interrupts of bob.nic coalesced, 8 packets", 0.214, Some(1.876e9)),
        what_if("bob.cpu 10 % faster", 0.029, None),
        what_if("rings doubled", 0.004, Some(1.577e9)),
        what_if("alice.cpu twice as fast", 0.0, None),
        what_if("link twice as fast", 0.0, None),
        what_if("bob.pci twice as fast", -0.006, None),
        what_if("alice.nic twice as fast", -0.011, None),
    ];
    what_ifs.insert(
        2,
        WhatIf {
            change: "bob.cpu twice as fast".to_owned(),
            metric: "latency".to_owned(),
            baseline: 71.2e-6,
            predicted: Some(46.9e-6),
            measured: None,
            error: None,
            gain: 0.341,
            share: None,
        },
    );
    what_ifs
}

fn connection() -> Connection {
    let part = |name: &str, hosts, price, power| lastmeter_ledger::Part {
        name: name.to_owned(),
        hosts,
        price,
        power,
    };
    let parts = vec![
        part("adapter", 1, Some(240.0), Some(9.5)),
        part("cable", 1, Some(4.0), None),
        part("port of a switch", 4, Some(110.0), Some(3.25)),
    ];
    Connection { delivered: 1.573e9, parts }
}

/// Two hosts, a link, ten stages; the receiver's processor limits.
pub(crate) fn ledger() -> Ledger {
    let source = |name: &str, hash: &str| Source { name: name.to_owned(), hash: hash.to_owned() };
    Ledger {
        schema: SCHEMA.to_owned(),
        title: "1500-byte packets from alice to bob over 10 Gbit/s".to_owned(),
        duration: 1.0,
        warm_up: Some(0.25),
        paths: vec![Path {
            name: "alice to bob".to_owned(),
            class: "bulk".to_owned(),
            stages: stages(),
            totals: totals(),
            latencies: latencies(),
        }],
        resources: resources(),
        verdict: Some(Verdict {
            resource: Some("bob.cpu".to_owned()),
            utilisation: Some(0.9834),
            confidence: Confidence::High,
            runner_up: Some("alice.cpu".to_owned()),
            words: "bob.cpu limits the path: it is busy 98.3 % of the time, and 74.7 % of that \
                    goes into bob.checksum and copy."
                .to_owned(),
        }),
        what_ifs: what_ifs(),
        balance: Balance::default(),
        certificate: None,
        provenance: Provenance {
            version: "0.1.0".to_owned(),
            seed: Some(7),
            experiment: source("two-hosts", "9f2c4e7a1b3d5f60"),
            profiles: vec![
                source("pc-2024", "0a1b2c3d4e5f6071"),
                source("nic-10g", "1122334455667788"),
            ],
            level: "model".to_owned(),
            host: None,
            partial: false,
        },
        notes: Vec::new(),
        series: Vec::new(),
        levels: vec![Level {
            name: "r1->bob: length".to_owned(),
            unit: "packets".to_owned(),
            mean: 3.25,
            least: 0.0,
            p50: 2.0,
            p90: 9.0,
            p99: 19.0,
            most: 44.0,
        }],
        estimates: vec![Estimate {
            of: "alice -> bob bulk".to_owned(),
            measure: "goodput".to_owned(),
            unit: "bit/s".to_owned(),
            runs: 5,
            mean: 1.573e9,
            half_width: Some(12e6),
        }],
        counters: counters(),
        connection: Some(connection()),
        waits: Some(waits()),
        transfers: vec![Transfers::new(
            "bulk",
            vec![
                Transfer::new(0, 0.0, Some(0.4), 40_000_000, 1.0),
                Transfer::new(1, 0.1, None, 56_000_000, 1.0),
            ],
        )],
    }
}

fn waits() -> Waits {
    let wait = |name: &str, count, p50: f64| Wait {
        name: name.to_owned(),
        count,
        mean: 1.5 * p50,
        p50,
        p99: 8.0 * p50,
        max: 40.0 * p50,
    };
    Waits {
        observed: 0.3,
        looks: 1,
        events: 40_000,
        lost: 12,
        cost: Some(0.034),
        packets: 12_034,
        socket_full: 3,
        rows: vec![
            wait("bob for a CPU, woken", 2310, 12e-6),
            wait("receive softirq", 5120, 800e-9),
            wait("packets in the queue of eth0", 6007, 3e-6),
        ],
    }
}

fn counters() -> Vec<Counter> {
    let count = |element: &str, name: &str, value| Counter {
        element: element.to_owned(),
        name: name.to_owned(),
        value,
    };
    vec![
        count("alice sends bulk", "segments", 131_234),
        count("alice sends bulk", "retransmissions", 12),
        count("alice sends bulk", "timeouts", 0),
        count("alice->bob queue", "marked", 3),
    ]
}

/// One queue and one server, as in the textbooks; without a verdict.
pub(crate) fn single() -> Ledger {
    let mut ledger = ledger();
    let mut stage = stage("server", "server", [(9.0, 46.0), (1.0, 4.6), (0.0, 0.0)], [0, 0]);
    stage.packets = 900_000;
    ledger.title = "M/M/1 at 90 %".to_owned();
    ledger.paths[0].name = "customers".to_owned();
    ledger.paths[0].class = String::new();
    ledger.paths[0].stages = vec![stage];
    ledger.paths[0].totals.latency =
        Some(Latency { mean: 10e-6, p50: Some(58.6e-6), p99: Some(203.4e-6), max: Some(311.9e-6) });
    ledger.resources = vec![resource("server", "engine", &[("server", 0.9)], 0.0, 1.0)];
    ledger.verdict = None;
    ledger.what_ifs.clear();
    ledger
}

/// Sources that never sent.
pub(crate) fn silent() -> Ledger {
    let mut ledger = single();
    ledger.title = "nothing".to_owned();
    let path = &mut ledger.paths[0];
    path.stages.clear();
    path.latencies.clear();
    path.totals = Totals {
        offered: Some(Count::default()),
        dropped: Some(Count::default()),
        held: Some(0),
        loss: Some(0.0),
        ..Totals::new(Count::default(), 0.0)
    };
    ledger.resources[0].by_stage.clear();
    (ledger.resources[0].busy, ledger.resources[0].idle) = (0.0, 1.0);
    ledger
}

/// Fifty paths of 22 stages, names of 200 characters, one of them hostile, a live run that did not
/// keep up and was stopped.
pub(crate) fn huge() -> Ledger {
    let mut ledger = ledger();
    let hostile = "<script>alert('x')</script>&\"\u{1b}[31m]]>";
    let long = format!("{hostile}{}", "long name ".repeat(16));
    let path = ledger.paths[0].clone();
    ledger.paths = (0..50)
        .map(|place| {
            let mut path = path.clone();
            path.name = format!("path {place} {}", if place % 7 == 0 { &long } else { "" });
            let more = path.stages.clone();
            path.stages.extend(more.iter().cloned().chain(more[..2].iter().cloned()));
            for (number, stage) in path.stages.iter_mut().enumerate() {
                stage.name = format!("{} {place}.{number}", stage.name);
            }
            let mean = path.stages.iter().map(Stage::mean).sum();
            path.totals.latency = path.totals.latency.map(|all| Latency { mean, ..all });
            path.stages[3].name = long.clone();
            path.stages[4].drops.insert(long.clone(), 3);
            path
        })
        .collect();
    ledger.title = long.clone();
    ledger.what_ifs[0].change = long.clone();
    ledger.resources[0].name = long.clone();
    ledger.provenance.partial = true;
    ledger.provenance.level = "L1".to_owned();
    ledger.provenance.host = Some("testbed 4, Linux 6.1".to_owned());
    ledger.certificate = Some(Certificate {
        kept_up: false,
        within_10us: 0.41,
        within_20us: 0.55,
        within_100us: 0.87,
        within_1ms: 0.993,
        worst_lag: 0.0123,
        overruns: 17,
        departures: 1000,
        required: 0.99,
        tolerance: 1e-4,
        shortfall: 0.0,
        stages: [("send".to_owned(), 2e-6)].into(),
        lags: vec![Lag { at_most: 1e-5, departures: 1000 }],
        cpu: 0.93,
        words: "It did not keep up: 17 packets were lost to its own queues.".to_owned(),
    });
    ledger
}
