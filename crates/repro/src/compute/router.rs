//! A router under overload (E-133): the reception policies of chapter 7 on a host that forwards packets.
//!
//! ```text
//! network 0 --> interface 0 --\                         /--> network 1
//!                              one CPU: receive, relay
//! network 1 --> interface 1 --/                         \--> network 0
//! ```
//!
//! The application of `experiments/livelock` is replaced by a relay's work on a packet (§3.2.3): HNET, the link
//! scheduler and the transmit driver. Deviation: the end of a transmission costs nothing.

use super::livelock::{last_rate, setup};
use super::{Computed, Setting, Value, row};
use crate::Error;
use crate::reception::{Setup, Way, gap, of_1997};
use lastmeter_base::{Duration, Time};
use lastmeter_host::receive::trial::{self, Arrivals, Outcome};
use lastmeter_ledger::plots::{Plot, Series};

/// Total packets per second, half from each network; beyond the router's capacity.
const OVERLOAD: [u64; 4] = [2000, 3000, 4000, 5500];
const RATES: [u64; 10] = [500, 1000, 1250, 1500, 1750, 2000, 2500, 3000, 4000, 5500];
/// Packets per second from either network when one floods.
const FLOOD: [u64; 2] = [4000, 300];
const LENGTH: Duration = Duration::from_secs(5);
/// Time unit of the policies' periods, as in 1997.
const UNIT: Duration = Duration::from_ms(1);
/// The delivered share that counts as lossless: the rest may be in flight at the end.
const LOSSLESS: f64 = 0.998;
/// A packet or two that were in flight when livelock began.
const NOTHING: f64 = 1.0;

struct Bench<'a> {
    setup: Setup,
    ways: Vec<Way>,
    setting: &'a Setting<'a>,
}

impl<'a> Bench<'a> {
    fn new(setting: &'a Setting<'a>) -> Result<Bench<'a>, Error> {
        let mut setup = setup(setting)?;
        setup.costs.application = setting.constants.get("relay")?;
        setup.costs.cache_miss = setting.constants.get("relay_cache_miss")?;
        Ok(Bench { setup, ways: of_1997(), setting })
    }

    /// Simulates this policy at these rates of the two networks.
    fn run(&self, way: &str, rates: [u64; 2]) -> Outcome {
        let way = self.ways.iter().find(|known| known.name == way).expect("a way of 1997");
        let card = |_| (way.interface)(&self.setup, UNIT);
        let host = self.setup.host((0..2).map(card).collect());
        let [first, second] = rates.map(|rate| self.setup.periodic(rate as f64));
        let second = Arrivals { start: Time::START + gap(rates[1] as f64) / 2, ..second };
        trial::run(host, &[first, second], self.setting.seed, LENGTH / 5, LENGTH)
    }

    /// Packets forwarded per second, from both networks together.
    fn forwards(&self, way: &str, rate: u64) -> f64 {
        self.run(way, [rate / 2, rate - rate / 2]).total()
    }

    /// Mean throughput under overload.
    fn overloaded(&self, way: &str) -> f64 {
        OVERLOAD.iter().map(|&rate| self.forwards(way, rate)).sum::<f64>() / OVERLOAD.len() as f64
    }
}

/// The thesis's solutions (§7.2.2, §7.2.3): the host's, then the adapter's.
const HOSTS: [&str; 3] = ["continuous polling", "timed polling", "explicit management"];
const BACKOFF: &str = "adaptive backoff";
const INTERRUPTS: &str = "interrupts";

/// The rows of E-133.
pub(super) fn rows(setting: &Setting<'_>) -> Result<Vec<Computed>, Error> {
    let bench = Bench::new(setting)?;
    let packets = |value| Value::Number(value, "packets/s");
    let lossless = |rate: u64| bench.forwards(INTERRUPTS, rate) >= LOSSLESS * rate as f64;
    let alive = |rate: u64| bench.forwards(INTERRUPTS, rate) > NOTHING;
    let range = (1000, 4000);
    let solutions = HOSTS.into_iter().chain([BACKOFF]);
    let least = solutions.map(|way| bench.forwards(way, 5500)).fold(f64::MAX, f64::min);
    let best = HOSTS.iter().map(|way| bench.overloaded(way)).fold(0.0, f64::max);
    let quiet = |way| bench.run(way, FLOOD).processed[1];
    let (kept, lost) = (quiet(BACKOFF), quiet(INTERRUPTS));
    Ok(vec![
        row("E-133/lossless", packets(last_rate(range, lossless))),
        row("E-133/livelock", packets(last_rate(range, alive))),
        row("E-133/solutions", least > 100.0),
        row("E-133/backoff", bench.overloaded(BACKOFF) >= best),
        row("E-133/flood", kept > 0.99 * FLOOD[1] as f64),
        row("E-133/flood-interrupts", lost < NOTHING),
    ])
}

/// Forwarding rate by offered load, for each policy.
pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let bench = Bench::new(setting)?;
    let curve = |name: &'static str| Series {
        name: name.to_owned(),
        points: RATES.iter().map(|&rate| (rate as f64, bench.forwards(name, rate))).collect(),
    };
    let names = [INTERRUPTS, "interrupts, early drop", HOSTS[0], HOSTS[1], HOSTS[2], BACKOFF];
    Ok(vec![Plot::new(
        "A router under overload, E-133",
        "Packets of two networks, half from each, forwarded to the other. With interrupts nothing \
         is forwarded once reception uses the whole processor.",
        ("offered, packets/s", "forwarded, packets/s"),
        names.into_iter().map(curve).collect(),
    )])
}
