//! The networks of the study, the disciplines, and what connections get in a run.

use super::NAME;
use crate::compute::runs::{self, File, Found};
use crate::{Constants, Error, Means};
use lastmeter_base::{Bytes, Duration, Rate, Time};

/// Which network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// One bottleneck: Fig 15.
    Single,
    /// Three, one behind the other.
    Hops,
    /// One, for connections of two round-trip times.
    Mixed,
}

impl Network {
    fn text(self) -> &'static str {
        match self {
            Network::Single => include_str!("../../../../../experiments/qsdrr/single.toml"),
            Network::Hops => include_str!("../../../../../experiments/qsdrr/hops.toml"),
            Network::Mixed => include_str!("../../../../../experiments/qsdrr/mixed.toml"),
        }
    }
    /// Bottlenecks stand first in its list of links.
    fn bottlenecks(self) -> usize {
        match self {
            Network::Single | Network::Mixed => 1,
            Network::Hops => 3,
        }
    }
    /// Groups of connections: who receives them, how many, and what they are called.
    fn groups(self) -> &'static [(&'static str, usize, &'static str)] {
        match self {
            Network::Single => &[("d", 100, "stream")],
            Network::Hops => &[
                ("d", 50, "long"),
                ("e1", 50, "cross1"),
                ("e2", 50, "cross2"),
                ("e3", 50, "cross3"),
            ],
            Network::Mixed => &[("u", 50, "long"), ("d", 50, "short")],
        }
    }
}

/// A discipline, as the paper or its own defaults set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discipline {
    /// Queue-state DRR.
    Qsdrr,
    /// Queue-state DRR of so many queues, onto which connections are hashed.
    Hashed(u64),
    /// DRR that drops from the longest queue.
    Drr,
    /// DRR that drops from the fastest queue.
    Tdrr,
    /// Random early detection with the parameters of Table 3, drops apart as ns-2 keeps them.
    Red,
    /// The same as Floyd & Jacobson 1993 have it: drops may follow each other.
    Red1993,
    /// Blue, as its reference code sets it: configuration B2 of its paper.
    Blue,
    /// First in, first out.
    DropTail,
    /// CoDel.
    Codel,
    /// FQ-CoDel.
    FqCodel,
    /// PIE.
    Pie,
    /// Both queues of L4S.
    DualPi2,
}

/// The six of §7.1.
pub(super) const PUBLISHED: [Discipline; 6] = [
    Discipline::Qsdrr,
    Discipline::Drr,
    Discipline::Tdrr,
    Discipline::Red,
    Discipline::Blue,
    Discipline::DropTail,
];
/// Disciplines that came later (D-79).
pub(super) const RIVALS: [Discipline; 4] =
    [Discipline::Codel, Discipline::FqCodel, Discipline::Pie, Discipline::DualPi2];

impl Discipline {
    /// As the rows call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Discipline::Qsdrr => "QSDRR",
            Discipline::Hashed(_) => "QSDRR, hashed",
            Discipline::Drr => "DRR",
            Discipline::Tdrr => "TDRR",
            Discipline::Red => "RED",
            Discipline::Red1993 => "RED of 1993",
            Discipline::Blue => "Blue",
            Discipline::DropTail => "Tail Drop",
            Discipline::Codel => "CoDel",
            Discipline::FqCodel => "FQ-CoDel",
            Discipline::Pie => "PIE",
            Discipline::DualPi2 => "DualPI2",
        }
    }
    fn queue(self, packets: u64, red: &Red, blue: Option<BlueSteps>) -> String {
        match self {
            Discipline::Qsdrr => format!("{{ qsdrr = {{ packets = {packets} }} }}"),
            Discipline::Hashed(queues) => {
                format!("{{ qsdrr = {{ packets = {packets}, queues = {queues} }} }}")
            }
            Discipline::Drr => format!("{{ drr = {{ packets = {packets} }} }}"),
            Discipline::Tdrr => format!("{{ tdrr = {{ packets = {packets} }} }}"),
            Discipline::Red | Discipline::Red1993 => format!(
                "{{ red = {{ packets = {packets}, min = {}, max = {packets}, probability = {}, \
                 weight = {}, gentle = false, wait = {}, full-counts = true, \
                 typical = \"500 B\" }} }}",
                packets * red.min / 100,
                1.0 / red.drop_one_in as f64,
                1.0 / red.mean_over as f64,
                self == Discipline::Red,
            ),
            Discipline::Blue => match blue {
                Some(BlueSteps { increment, decrement, freeze }) => format!(
                    "{{ blue = {{ packets = {packets}, increment = {increment}, \
                     decrement = {decrement}, freeze = \"{freeze} ms\" }} }}"
                ),
                None => format!("{{ blue = {{ packets = {packets} }} }}"),
            },
            Discipline::DropTail => format!("{{ drop-tail = {{ packets = {packets} }} }}"),
            Discipline::Codel => format!("{{ codel = {{ packets = {packets} }} }}"),
            Discipline::FqCodel => format!("{{ fq-codel = {{ packets = {packets} }} }}"),
            Discipline::Pie => format!("{{ pie = {{ packets = {packets} }} }}"),
            Discipline::DualPi2 => format!("{{ dual-pi2 = {{ packets = {packets} }} }}"),
        }
    }
}

/// Table 3.
#[derive(Clone, Copy, Debug)]
pub(super) struct Red {
    /// 1 / max_p.
    pub(super) drop_one_in: u64,
    /// 1 / w_q.
    pub(super) mean_over: u64,
    /// min_th in per cent of the buffer.
    pub(super) min: u64,
}

/// How Blue moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BlueSteps {
    pub(super) increment: f64,
    pub(super) decrement: f64,
    /// Milliseconds.
    pub(super) freeze: u64,
}

/// What §7 does not say, where it is not as in the network's file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Unsaid {
    /// One way from source to receiver in Fig 15's network, in milliseconds.
    pub(super) delay: Option<u64>,
    /// The same between those that are far apart in the network of mixed traffic.
    pub(super) far: Option<u64>,
    pub(super) blue: Option<BlueSteps>,
    /// The shortest retransmission timer, in milliseconds.
    pub(super) timer: Option<u64>,
    /// The largest window, in segments.
    pub(super) window: Option<u64>,
    /// Within what time sources start, in milliseconds.
    pub(super) spread: Option<u64>,
    /// Whether duplicates of what was sent before a timeout mean nothing.
    pub(super) careful: bool,
}

/// Of sources and receivers, one way, in milliseconds: `single.toml`.
const ACCESS: u64 = 2;
/// Of all that far sources share with the others, one way, in milliseconds: `mixed.toml`.
const SHARED: u64 = 19;

impl Unsaid {
    /// Settings over a network's file.
    fn sets(self, network: Network, mss: u64) -> Vec<String> {
        let mut sets = Vec::new();
        if let Some(ms) = self.delay {
            sets.push(format!("links.0.delay=\"{} ms\"", ms.saturating_sub(ACCESS)));
        }
        if let Some(ms) = self.far {
            sets.push(format!("links.2.delay=\"{} ms\"", ms.saturating_sub(SHARED)));
        }
        for (_, _, name) in network.groups() {
            let mut set = |key: &str, value: String| {
                sets.push(format!("traffic.{name}.tcp.{key}={value}"));
            };
            if let Some(ms) = self.timer {
                set("timeout-min", format!("\"{ms} ms\""));
            }
            if let Some(segments) = self.window {
                set("receive-buffer", format!("\"{} B\"", segments * mss));
            }
            if let Some(ms) = self.spread {
                set("spread", format!("\"{ms} ms\""));
            }
            if self.careful {
                set("careful", "true".to_owned());
            }
        }
        sets
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Case {
    /// Through what.
    pub(super) network: Network,
    /// In front of each bottleneck.
    pub(super) discipline: Discipline,
    /// Its buffer.
    pub(super) packets: u64,
    /// How long.
    pub(super) length: Duration,
    /// What is otherwise than in the network's file.
    pub(super) unsaid: Unsaid,
}

/// What each connection got, in per cent of its fair share, group by group.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    groups: Vec<Vec<f64>>,
    /// Of the time after [`START`], mean over all connections.
    later: f64,
}

/// The part of a run that [`Shares::mean_later`] leaves out: one in so many.
const START: u64 = 4;

impl Shares {
    fn all(&self) -> impl Iterator<Item = f64> + '_ {
        self.groups.iter().flatten().copied()
    }
    /// Of each connection, from the least to the greatest.
    pub(super) fn sorted(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.all().collect();
        all.sort_by(f64::total_cmp);
        all
    }
    /// Mean goodput over all connections.
    pub(super) fn mean(&self) -> f64 {
        self.all().sum::<f64>() / self.all().count() as f64
    }
    /// Mean goodput over all connections without the first quarter of the run.
    pub(super) fn mean_later(&self) -> f64 {
        self.later
    }
    /// Mean goodput of the first group: the long connections, where there are such.
    pub(super) fn mean_first(&self) -> f64 {
        self.groups[0].iter().sum::<f64>() / self.groups[0].len() as f64
    }
    /// Standard deviation of goodput over all connections.
    pub(super) fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.all().map(|share| (share - mean).powi(2)).sum();
        (squares / self.all().count() as f64).sqrt()
    }
    /// How far the goodput of any connection is from the mean, in per cent of the mean.
    pub(super) fn farthest(&self) -> f64 {
        let mean = self.mean();
        self.all().map(|share| 100.0 * (share / mean - 1.0).abs()).fold(0.0, f64::max)
    }
}

/// The constants of Tables 2 and 3, and what the computation reads statements as.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables {
    pub(super) connections: u64,
    pub(super) packet: Bytes,
    pub(super) link: Rate,
    pub(super) access: Rate,
    pub(super) red: Red,
    seed: u64,
}

impl Tables {
    /// Reads them.
    ///
    /// # Errors
    /// One is missing.
    pub(super) fn read(constants: &Constants, seed: u64) -> Result<Tables, Error> {
        Ok(Tables {
            connections: constants.get("connections")?,
            packet: constants.get("packet")?,
            link: constants.get("link")?,
            access: constants.get("access")?,
            red: Red {
                drop_one_in: constants.get("drop_one_in")?,
                mean_over: constants.get("mean_over")?,
                min: constants.get("min_threshold")?,
            },
            seed,
        })
    }

    fn run(&self, case: &Case) -> Result<Shares, Error> {
        let mut sets =
            vec![format!("seed={}", self.seed), format!("duration=\"{} ps\"", case.length.as_ps())];
        let mss = self.packet.0 - HEADERS;
        sets.extend(case.unsaid.sets(case.network, mss));
        let queue = case.discipline.queue(case.packets, &self.red, case.unsaid.blue);
        for link in 0..case.network.bottlenecks() {
            sets.push(format!("links.{link}.queue={queue}"));
            sets.push(format!("links.{link}.rate=\"{} bit/s\"", self.link.as_bits()));
        }
        for (_, _, name) in case.network.groups() {
            // Headers of IP and TCP without options.
            sets.push(format!("traffic.{name}.tcp.mss=\"{mss} B\""));
        }
        let text = case.network.text();
        let file = File { name: NAME, text, collecting: false, tracing: false };
        let start = case.length / START;
        let (before, found) = file.run_from(&sets, Time::START + start)?;
        // A hundred connections share each bottleneck; headers are no goodput.
        let payload = self.link.as_bits() as f64 / self.connections as f64
            * (self.packet.0 - HEADERS) as f64
            / self.packet.0 as f64;
        let fair = payload / 8.0 * case.length.as_secs_f64();
        let group = |found: &Found, &(host, count, name): &(&str, usize, &str)| {
            let got = |at| found.count(&format!("{host}.{at} receives {name}"), "consumed");
            (0..count).map(|at| Ok(100.0 * got(at)? as f64 / fair)).collect::<Result<_, Error>>()
        };
        let of = |found: &Found| -> Result<Vec<Vec<f64>>, Error> {
            case.network.groups().iter().map(|of| group(found, of)).collect()
        };
        let early = Shares { groups: of(&before)?, later: 0.0 }.mean();
        let whole = Shares { groups: of(&found)?, later: 0.0 };
        let part = START as f64 / (START - 1) as f64;
        Ok(Shares { later: (whole.mean() - early) * part, ..whole })
    }

    /// Runs all of them, as many at once as there are threads.
    ///
    /// # Errors
    /// The first that failed.
    pub(super) fn run_all(&self, cases: &[Case], means: Means<'_>) -> Result<Vec<Shares>, Error> {
        runs::all(NAME, cases, means, |case| self.run(case))
    }
}

/// Of IPv4 and TCP.
pub(super) const HEADERS: u64 = 40;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;

    fn tables() -> Tables {
        Tables {
            connections: 100,
            packet: Bytes(1500),
            link: Rate::from_mbit(500),
            access: Rate::from_mbit(10),
            red: Red { drop_one_in: 100, mean_over: 1000, min: 20 },
            seed: 1,
        }
    }

    fn case(network: Network, discipline: Discipline, packets: u64, seconds: u64) -> Case {
        let length = Duration::from_ms(1000 * seconds);
        Case { network, discipline, packets, length, unsaid: Unsaid::default() }
    }

    #[test]
    fn every_discipline_runs_in_every_network() {
        let later = [Discipline::Hashed(25), Discipline::Red1993];
        for network in [Network::Single, Network::Hops, Network::Mixed] {
            let all = PUBLISHED.into_iter().chain(RIVALS).chain(later);
            let cases: Vec<Case> =
                all.map(|discipline| case(network, discipline, 200, 1)).collect();
            for (case, shares) in cases.iter().zip(tables().run_all(&cases, Means::PLAIN).unwrap())
            {
                let mean = shares.mean();
                assert!(shares.mean_later() > mean, "{case:?}: in the first quarter windows grow");
                assert!(mean > 5.0 && mean < 100.0, "{case:?}: {mean}");
                assert!(shares.deviation() > 0.0 && shares.farthest() > 0.0, "{case:?}");
            }
        }
    }

    #[test]
    fn deviation_and_distance_are_those_of_all_connections() {
        let groups = vec![vec![80.0, 120.0], vec![100.0, 100.0]];
        let shares = Shares { groups, later: 0.0 };
        assert_eq!((shares.mean(), shares.mean_first()), (100.0, 100.0));
        assert!((shares.deviation() - 200f64.sqrt()).abs() < 1e-9);
        assert!((shares.farthest() - 20.0).abs() < 1e-9);
    }
}
