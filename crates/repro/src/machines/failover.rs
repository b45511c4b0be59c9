//! Hosts on two networks: the first is used while probes over it are answered, otherwise the second. Also the
//! effect of every single failure on the first.
//!
//! ```text
//! probe answered --> first          `misses` in a row unanswered --> second
//! `answers` in a row answered --> first again
//! ```
//!
//! Source: Touch et al., §4.a, Fig 5: "automatically switched to the backup ethernet in the event of a port or
//! link failure" (N-47, N-48); how failures were detected is not said, and the probes are ours.

use lastmeter_base::Duration;
use lastmeter_lan::wormhole::dependency::Dependencies;
use lastmeter_lan::wormhole::routes::{Faults, Routes, Routing};
use lastmeter_lan::wormhole::topology::{End, Topology};

/// The network over which a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The fast one.
    First,
    /// The backup.
    Second,
}

/// A host's view of its first network.
///
/// ```
/// use lastmeter_repro::machines::failover::{Dual, Network};
/// let mut host = Dual::new(3, 2);
/// (0..2).for_each(|_| assert_eq!(host.probed(false), Network::First));
/// assert_eq!(host.probed(false), Network::Second);
/// assert_eq!(host.probed(true), Network::Second);
/// assert_eq!(host.probed(true), Network::First);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dual {
    misses_max: u32,
    answers_min: u32,
    /// Consecutive probes that contradict the current choice.
    against: u32,
    network: Network,
}

impl Dual {
    /// A host that leaves the first network after `misses` unanswered probes in a row, and returns after `answers`
    /// answered ones.
    pub fn new(misses: u32, answers: u32) -> Dual {
        Dual {
            misses_max: misses.max(1),
            answers_min: answers.max(1),
            against: 0,
            network: Network::First,
        }
    }

    /// A probe over the first network was answered, or timed out.
    pub fn probed(&mut self, answered: bool) -> Network {
        let (against, limit, other) = match self.network {
            Network::First => (!answered, self.misses_max, Network::Second),
            Network::Second => (answered, self.answers_min, Network::First),
        };
        self.against = if against { self.against + 1 } else { 0 };
        if self.against >= limit {
            (self.network, self.against) = (other, 0);
        }
        self.network
    }

    /// The longest time from a failure to the first packet over the second network, with a probe each `interval`
    /// that must be answered within `wait`.
    pub fn recovery_max(&self, interval: Duration, wait: Duration) -> Duration {
        interval * u64::from(self.misses_max) + wait
    }
}

/// The effect of one failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The failed part.
    pub failed: String,
    /// Hosts that reach no other over the first network, and have only the second.
    pub alone: Vec<usize>,
    /// Pairs of the other hosts that do not reach each other over the first network.
    pub parted: usize,
    /// Whether the routes around the failure can deadlock.
    pub deadlock: bool,
}

/// The effect of each single failure: of each cable (or a port at its end), and of each switch.
pub fn sweep(topology: &Topology) -> Vec<Left> {
    let name = |end: End| match end {
        End::Switch(switch, port) => format!("{}.{port}", topology.switches()[switch].0),
        End::Host(host) => topology.hosts()[host].clone(),
    };
    let cables = topology.cables().iter().enumerate().map(|(number, cable)| {
        let faults = Faults { cables: [number].into(), ..Faults::default() };
        (format!("{}-{}", name(cable.ends[0]), name(cable.ends[1])), faults)
    });
    let switches = topology.switches().iter().enumerate().map(|(number, (name, _))| {
        (name.clone(), Faults { switches: [number].into(), ..Faults::default() })
    });
    cables.chain(switches).map(|(failed, faults)| left(topology, failed, &faults)).collect()
}

fn left(topology: &Topology, failed: String, faults: &Faults) -> Left {
    let routes = Routes::new(topology, Routing::UpDown, faults);
    let hosts = topology.hosts().len();
    let reaches = |from: usize| (0..hosts).any(|to| to != from && routes.path(from, to).is_some());
    let alone: Vec<usize> = (0..hosts).filter(|&host| !reaches(host)).collect();
    let others = hosts - alone.len();
    let pairs = others * others.saturating_sub(1);
    let parted = pairs - routes.paths().count();
    let paths = routes.paths().map(|path| &path[..]);
    let deadlock = Dependencies::of(topology.channels(), paths).cycle().is_some();
    Left { failed, alone, parted, deadlock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_parted_by_a_cable_and_a_ring_is_not() {
        let mut text = String::new();
        for switch in 0..4 {
            text += &format!(
                "switch s{switch} 8\nhost a{switch} s{switch}\nhost b{switch} s{switch}\n"
            );
        }
        let line = text.clone() + "cable s0 s1\ncable s1 s2\ncable s2 s3\n";
        let parted = |text: &str| {
            let topology = Topology::parse(text).unwrap();
            sweep(&topology).iter().filter(|left| left.parted > 0).count()
        };
        // Three cables and the two inner switches.
        assert_eq!(parted(&line), 5);
        assert_eq!(parted(&(line + "cable s3 s0\n")), 0);
    }

    #[test]
    fn a_host_that_hears_nothing_waits_no_longer_than_it_says() {
        let (interval, wait) = (Duration::from_ms(100), Duration::from_ms(50));
        let mut host = Dual::new(3, 2);
        let limit = host.recovery_max(interval, wait);
        // The failure comes right after an answered probe.
        let mut at = interval + wait;
        while host.probed(false) == Network::First {
            at += interval;
        }
        assert_eq!(at, limit);
        assert_eq!(host.probed(true), Network::Second);
        assert_eq!(host.probed(false), Network::Second);
    }
}
