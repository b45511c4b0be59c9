//! The cases: experiment, loads, and what theory predicts.

use super::formulas::{self, bound, closed, shared, wait_in_slots, wait_of_class};
use super::measure::Given;
use crate::interval::Interval;

/// A model of queueing theory, and an experiment with the same model.
pub(super) struct Case {
    pub(super) title: &'static str,
    /// The source.
    pub(super) source: &'static str,
    /// The model's assumptions, and how the experiment meets them.
    pub(super) assumes: &'static str,
    /// The file in `experiments/theory`.
    pub(super) file: &'static str,
    pub(super) loads: &'static [Load],
    pub(super) laws: &'static [Law],
}

/// An experiment with settings.
pub(super) struct Load {
    pub(super) name: &'static str,
    /// The runs with one seed, each with its weight in the compared value and its settings. Theory is evaluated for
    /// the first.
    pub(super) runs: &'static [(f64, &'static [&'static str])],
}

/// A quantity with a known value.
pub(super) struct Law {
    pub(super) what: &'static str,
    pub(super) unit: Unit,
    pub(super) theory: fn(&Given) -> Value,
    pub(super) ours: fn(&Interval) -> f64,
}

/// The prediction of theory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// The mean of a random quantity.
    Mean(f64),
    /// A deterministic number; a count may differ by this much where an interval cuts a round.
    Exact(f64, f64),
    /// An upper bound (with the tolerance of such a count) and a lower bound.
    Bound(f64, f64, f64),
}

/// A unit, and its ratio to seconds or to a plain number.
pub(super) struct Unit(pub(super) &'static str, pub(super) f64);

const US: Unit = Unit("us", 1e6);
const SHARE: Unit = Unit("%", 100.0);
const PLAIN: Unit = Unit("", 1.0);
const PER_MS: Unit = Unit("/ms", 1e-3);

const CUSTOMERS: &str = "customers";
const TRANSFER: &str = "transfer";

const KHINCHIN: &str = "Pollaczek 1930, Khinchin 1932; Kleinrock 1975, §5.5 and 5.7";

/// The queueing delay of Poisson arrivals at a link, first come first served.
const WAIT: &[Law] = &[Law {
    what: "wait",
    unit: US,
    theory: |given| {
        let (lambda, service) = given.served(CUSTOMERS, 0);
        Value::Mean(formulas::wait(lambda, service))
    },
    ours: |run| run.wait(CUSTOMERS, "customers->desk transmit"),
}];

/// The queueing delay of a class of `priorities.toml`.
fn cobham(given: &Given, class: usize) -> Value {
    let classes = ["urgent", "usual", "patient"].map(|class| given.served(class, 0));
    Value::Mean(wait_of_class(&classes, class))
}

/// The mean time of a job's packets under processor sharing, in the limit of a zero quantum: every share of the
/// job's work takes as long as a job of that work.
fn job(given: &Given, of: &str) -> Value {
    let rate = given.line(1);
    let work = |traffic| {
        let (bursts, bits) = given.bursts(traffic);
        (bursts, bits / rate)
    };
    let load: f64 = ["small", "large"].map(work).iter().map(|(bursts, work)| bursts * work).sum();
    Value::Mean(shared(work(of).1 / 2.0, load))
}

/// Each station's service in a round of `window.toml`, which visits it twice.
fn demands(given: &Given) -> [f64; 3] {
    ["cpu", "bus", "wire"].map(|station| 2.0 * given.service(station))
}

/// A round of `wires.toml` without queueing, and the slowest of its six servers.
fn ring(given: &Given) -> (f64, f64) {
    let times = ["size", "response"].map(|what| {
        let bits = given.bits(TRANSFER, what);
        [0, 1, 2].map(|link| bits / given.line(link))
    });
    let delays: f64 = [0, 1, 2].iter().map(|&link| 2.0 * given.delay(link)).sum();
    let times = times.as_flattened();
    (times.iter().sum::<f64>() + delays, times.iter().copied().fold(0.0, f64::max))
}

/// The tolerance of a rate per second: where an interval begins and ends within a window.
fn slack(given: &Given) -> f64 {
    given.window(TRANSFER) as f64 / given.seconds()
}

pub(super) const CASES: &[Case] = &[
    Case {
        title: "M/D/1: Poisson arrivals, constant service",
        source: KHINCHIN,
        assumes: "unlimited queue; one packet length, and so one service time",
        file: "one-server.toml",
        loads: &[
            Load {
                name: "load 0.3",
                runs: &[(1.0, &["traffic.customers.poisson.rate=300 Mbit/s"])],
            },
            Load { name: "load 0.6", runs: &[(1.0, &[])] },
            Load {
                name: "load 0.9",
                runs: &[(1.0, &["traffic.customers.poisson.rate=900 Mbit/s"])],
            },
        ],
        laws: WAIT,
    },
    Case {
        title: "M/G/1: two packet lengths",
        source: KHINCHIN,
        assumes: "unlimited queue; independent lengths, three of 100 B to one of \
                  1500 B",
        file: "one-server.toml",
        loads: &[
            Load {
                name: "load 0.4",
                runs: &[(
                    1.0,
                    &[
                        "traffic.customers.poisson.size=[[\"100 B\", 3], [\"1500 B\", 1]]",
                        "traffic.customers.poisson.rate=400 Mbit/s",
                        "duration=1 s",
                    ],
                )],
            },
            Load {
                name: "load 0.8",
                runs: &[(
                    1.0,
                    &[
                        "traffic.customers.poisson.size=[[\"100 B\", 3], [\"1500 B\", 1]]",
                        "traffic.customers.poisson.rate=800 Mbit/s",
                        "duration=1 s",
                    ],
                )],
            },
        ],
        laws: WAIT,
    },
    Case {
        title: "M/M/1/K: exponential service, room for five including the one in service",
        source: "Kleinrock 1975, §3.6; the number by Little 1961, from times in the system",
        assumes: "arrivals that find the system full are lost",
        file: "finite-room.toml",
        loads: &[
            Load { name: "load 0.8", runs: &[(1.0, &[])] },
            Load { name: "load 1", runs: &[(1.0, &["traffic.customers.poisson.rate=8 Gbit/s"])] },
            Load {
                name: "load 1.5",
                runs: &[(1.0, &["traffic.customers.poisson.rate=12 Gbit/s"])],
            },
        ],
        laws: &[
            Law {
                what: "loss",
                unit: SHARE,
                theory: |given| {
                    let load = given.offered(CUSTOMERS).0 * given.service("desk");
                    Value::Mean(formulas::loss(load, given.room("desk") + 1))
                },
                ours: |run| run.loss(CUSTOMERS),
            },
            Law {
                what: "number there",
                unit: PLAIN,
                theory: |given| {
                    let load = given.offered(CUSTOMERS).0 * given.service("desk");
                    Value::Mean(formulas::number(load, given.room("desk") + 1))
                },
                ours: |run| run.number(CUSTOMERS),
            },
        ],
    },
    Case {
        title: "Geo/D/1: Bernoulli arrivals, service of four slots",
        source: "Meisling 1958; Takagi 1993, Volume 3",
        assumes: "at most one arrival per slot, at its start, served at once if \
                  nobody is before; who leaves at an instant is not met by who arrives then",
        file: "slots.toml",
        loads: &[
            Load { name: "load 0.8", runs: &[(1.0, &[])] },
            Load { name: "load 0.4", runs: &[(1.0, &["nodes.coin.loss.probability=0.9"])] },
        ],
        laws: &[Law {
            what: "wait",
            unit: US,
            theory: |given| {
                let slot = 1.0 / given.offered(CUSTOMERS).0;
                let service = given.served(CUSTOMERS, 1).1.first / slot;
                let arrival = 1.0 - given.chance("coin");
                Value::Mean(wait_in_slots(arrival, service) * slot)
            },
            ours: |run| run.wait(CUSTOMERS, "coin->desk transmit"),
        }],
    },
    Case {
        title: "Priorities, not pre-emptive: three classes",
        source: "Cobham 1954; Kleinrock 1976, §3.6",
        assumes: "Poisson arrivals of each class; within a class first come first served; \
                  unlimited queue",
        file: "priorities.toml",
        loads: &[Load { name: "load 0.2 + 0.3 + 0.3", runs: &[(1.0, &[])] }],
        laws: &[
            Law {
                what: "wait of the first",
                unit: US,
                theory: |given| cobham(given, 0),
                ours: |run| run.wait("urgent", "customers->desk transmit"),
            },
            Law {
                what: "wait of the second",
                unit: US,
                theory: |given| cobham(given, 1),
                ours: |run| run.wait("usual", "customers->desk transmit"),
            },
            Law {
                what: "wait of the third",
                unit: US,
                theory: |given| cobham(given, 2),
                ours: |run| run.wait("patient", "customers->desk transmit"),
            },
        ],
    },
    Case {
        title: "Processor sharing: deficit round robin as its quantum goes to zero",
        source: "Kleinrock 1967; Sakata, Noguchi and Oizumi 1971; Kleinrock 1976, chapter 4",
        assumes: "Poisson arrivals of jobs, each a flow of its own with packets of one \
                  quantum; the mean over a job's packets; twice what a quantum of a half gives, \
                  less what a whole one does, with the same arrivals",
        file: "sharing.toml",
        loads: &[Load {
            name: "load 0.5",
            runs: &[
                (
                    2.0,
                    &[
                        "traffic.small.on-off.size=25 B",
                        "traffic.small.on-off.on=100 ps",
                        "traffic.large.on-off.size=25 B",
                        "traffic.large.on-off.on=400 ps",
                        "links.1.queue.drr.quantum=25 B",
                    ],
                ),
                (
                    -1.0,
                    &[
                        "traffic.small.on-off.size=50 B",
                        "traffic.small.on-off.on=50 ps",
                        "traffic.large.on-off.size=50 B",
                        "traffic.large.on-off.on=200 ps",
                        "links.1.queue.drr.quantum=50 B",
                    ],
                ),
            ],
        }],
        laws: &[
            Law {
                what: "job of 20 us",
                unit: US,
                theory: |given| job(given, "small"),
                ours: |run| run.latency("small"),
            },
            Law {
                what: "job of 80 us",
                unit: US,
                theory: |given| job(given, "large"),
                ours: |run| run.latency("large"),
            },
        ],
    },
    Case {
        title: "A closed network of product form: a window through processor, bus and wire",
        source: "Reiser and Lavenberg 1980",
        assumes: "exponential service, independent at each visit; first come first served; packets \
                  and responses pass each station once each",
        file: "window.toml",
        loads: &[
            Load { name: "window 1", runs: &[(1.0, &["traffic.transfer.bulk.window=1"])] },
            Load { name: "window 4", runs: &[(1.0, &[])] },
            Load { name: "window 16", runs: &[(1.0, &["traffic.transfer.bulk.window=16"])] },
        ],
        laws: &[
            Law {
                what: "throughput",
                unit: PER_MS,
                theory: |given| {
                    Value::Mean(closed(&demands(given), given.window(TRANSFER)).throughput)
                },
                ours: |run| run.throughput(TRANSFER),
            },
            Law {
                what: "at the wire, each way",
                unit: US,
                theory: |given| {
                    let stay = closed(&demands(given), given.window(TRANSFER)).stays[2];
                    Value::Mean(stay / 2.0)
                },
                ours: |run| run.stay([TRANSFER, "transfer responses"], "wire service"),
            },
        ],
    },
    Case {
        title: "The same with constant times: asymptotic bounds",
        source: "Denning and Buzen 1978",
        assumes: "at most the window over an empty round, and one for each service of the slowest; \
                  at least one round at a time",
        file: "window.toml",
        loads: &[
            Load {
                name: "window 4",
                runs: &[(
                    1.0,
                    &[
                        "nodes.cpu.station.service=3 us",
                        "nodes.bus.station.service=2 us",
                        "nodes.wire.station.service=5 us",
                    ],
                )],
            },
            Load {
                name: "window 16",
                runs: &[(
                    1.0,
                    &[
                        "nodes.cpu.station.service=3 us",
                        "nodes.bus.station.service=2 us",
                        "nodes.wire.station.service=5 us",
                        "traffic.transfer.bulk.window=16",
                    ],
                )],
            },
        ],
        laws: &[Law {
            what: "throughput",
            unit: PER_MS,
            theory: |given| {
                let demands = demands(given);
                let round: f64 = demands.iter().sum();
                let slowest = demands.iter().copied().fold(0.0, f64::max);
                let most = bound(round, slowest, given.window(TRANSFER));
                Value::Bound(most, slack(given), 1.0 / round)
            },
            ours: |run| run.throughput(TRANSFER),
        }],
    },
    Case {
        title: "A ring of wires with constant times: the bound is reached",
        source: "Baccelli, Cohen, Olsder and Quadrat 1992",
        assumes: "each server is visited once per round; first in first out",
        file: "wires.toml",
        loads: &[
            Load { name: "window 4", runs: &[(1.0, &[])] },
            Load { name: "window 20", runs: &[(1.0, &["traffic.transfer.bulk.window=20"])] },
        ],
        laws: &[Law {
            what: "throughput",
            unit: PER_MS,
            theory: |given| {
                let (round, slowest) = ring(given);
                Value::Exact(bound(round, slowest, given.window(TRANSFER)), slack(given))
            },
            ours: |run| run.throughput(TRANSFER),
        }],
    },
];
