//! Faults in a network of hosts, and which hosts still reach the switch: on a ring, with a hub, or with a port
//! each.
//!
//! ```text
//! ring:  switch --link 0--> host 1 --link 1--> host 2 -- ... --> host n --link n--> switch
//! hub:   switch ==[ hub ]-- link 1 -- host 1      a repeater, which bypasses faults
//!                        '- link 2 -- host 2 ...
//! ports: switch -- link 1 -- host 1               a port for each host
//! ```
//!
//! | wiring | a host reaches the switch while |
//! |---|---|
//! | ring | all hosts and all links work |
//! | hub | the hub, its own link and the host itself work |
//! | ports | its own link and the host itself work |
//!
//! Every part alternates between working and broken, for exponentially distributed times. A part's faults depend
//! only on the seed and its name, so that all wirings are compared under the same faults. The switch never fails.
//!
//! Source: HPL-93-37 §3.5. The report gives no fault rate; that a hub is part of the switch's port, with no link
//! of its own, is one of the two forms that it names.

use lastmeter_base::{Draw, Duration, Stream, Time};

/// How hosts are attached to a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wiring {
    /// In a chain from host to host.
    Ring,
    /// To a repeater that bypasses absent hosts.
    Hub,
    /// Each to its own port.
    Ports,
}

/// A part that can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A host, from 1 on.
    Host(usize),
    /// The link after a host on a ring, or from a host to the hub or its port; link 0 exists only on the ring.
    Link(usize),
    /// The hub.
    Hub,
}

/// Mean times between faults and to repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// From a repair to the next fault.
    pub between: Duration,
    /// From a fault to its repair.
    pub repair: Duration,
}

impl Rates {
    /// Availability of a part.
    pub fn availability(&self) -> f64 {
        let (between, repair) = (self.between.as_secs_f64(), self.repair.as_secs_f64());
        between / (between + repair)
    }
}

#[derive(Clone, Debug)]
struct Life {
    part: Part,
    random: Stream,
    broken: bool,
    changes: Time,
}

/// The parts of a ring, a hub and ports with the same hosts, in virtual time.
///
/// ```
/// use lastmeter_base::{Duration, Time};
/// use lastmeter_lan::timed_token::faults::{Faults, Part, Rates, Wiring};
/// let rates = Rates { between: Duration::from_secs(99), repair: Duration::from_secs(1) };
/// let mut faults = Faults::new(3, rates, 1, Time::START);
/// assert_eq!(faults.reach(Wiring::Ring), [true, true, true]);
/// faults.set(Part::Host(2), true);
/// assert_eq!(faults.reach(Wiring::Ring), [false, false, false]);
/// assert_eq!(faults.reach(Wiring::Hub), [true, false, true]);
/// ```
#[derive(Clone, Debug)]
pub struct Faults {
    hosts: usize,
    rates: Rates,
    lives: Vec<Life>,
}

impl Faults {
    /// This many hosts, with all parts working.
    pub fn new(hosts: usize, rates: Rates, seed: u64, now: Time) -> Faults {
        let parts = (1..=hosts).map(Part::Host).chain((0..=hosts).map(Part::Link));
        let life = |part: Part| {
            let mut random = Stream::new(seed, &format!("{part:?}"));
            let changes = now + Draw::Exponential(rates.between).sample(&mut random);
            Life { part, random, broken: false, changes }
        };
        Faults { hosts, rates, lives: parts.chain([Part::Hub]).map(life).collect() }
    }

    /// When the next part breaks or is repaired.
    pub fn ready_at(&self) -> Time {
        self.lives.iter().map(|life| life.changes).min().expect("there is a hub")
    }

    /// Applies the first change that is due by now; returns the part and whether it is now broken.
    pub fn advance(&mut self, now: Time) -> Option<(Part, bool)> {
        let first = self.lives.iter_mut().min_by_key(|life| life.changes);
        let life = first.filter(|life| life.changes <= now)?;
        life.broken = !life.broken;
        let mean = if life.broken { self.rates.repair } else { self.rates.between };
        // Never twice at the same instant.
        let lasts = Draw::Exponential(mean).sample(&mut life.random).max(Duration::from_ps(1));
        life.changes += lasts;
        Some((life.part, life.broken))
    }

    /// Sets the state of a part directly.
    pub fn set(&mut self, part: Part, broken: bool) {
        for life in self.lives.iter_mut().filter(|life| life.part == part) {
            life.broken = broken;
        }
    }

    /// Whether a part is broken.
    pub fn is_broken(&self, part: Part) -> bool {
        self.lives.iter().any(|life| life.part == part && life.broken)
    }

    /// Which hosts reach the switch, from host 1 on.
    pub fn reach(&self, wiring: Wiring) -> Vec<bool> {
        let mut works = vec![true; self.hosts];
        let mut all = true;
        for life in self.lives.iter().filter(|life| life.broken) {
            match (life.part, wiring) {
                (Part::Hub, Wiring::Hub) | (Part::Host(_) | Part::Link(_), Wiring::Ring) => {
                    all = false;
                }
                (Part::Hub, _) | (Part::Link(0), _) => {}
                (Part::Host(host) | Part::Link(host), _) => works[host - 1] = false,
            }
        }
        works.iter_mut().for_each(|works| *works &= all);
        works
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::{Node, bring_up};
    use super::*;
    use proptest::prelude::*;

    const RATES: Rates = Rates { between: Duration::from_secs(9), repair: Duration::from_secs(1) };

    /// Result of the nodes' own bring-up: the hosts that have an identity. Broken links and unpowered nodes pass
    /// nothing on.
    fn brought_up(faults: &Faults, hosts: usize, wiring: Wiring) -> usize {
        let works = faults.reach(Wiring::Ports);
        let mut nodes = vec![Node::new(true)];
        match wiring {
            Wiring::Ring => {
                for host in 0..=hosts {
                    if host > 0 {
                        nodes.push(Node::new(false));
                        if !faults.is_broken(Part::Host(host)) {
                            nodes.last_mut().expect("it was pushed").power();
                        }
                    }
                    if faults.is_broken(Part::Link(host)) {
                        nodes.push(Node::new(false));
                    }
                }
            }
            Wiring::Hub | Wiring::Ports => {
                for _ in works.iter().filter(|&&works| works) {
                    nodes.push(Node::new(false));
                    nodes.last_mut().expect("it was pushed").power();
                }
            }
        }
        nodes[0].power();
        match bring_up(&mut nodes) {
            Some(_) => nodes.iter().filter_map(|node| node.rid).filter(|&rid| rid > 0).count(),
            None => 0,
        }
    }

    proptest! {
        #[test]
        fn j_61_bring_up_includes_exactly_the_hosts_that_reach_the_switch(
            hosts in 1_usize..=15,
            broken in prop::collection::vec(any::<bool>(), 15),
            links in prop::collection::vec(0_u8..8, 16),
            few: bool,
        ) {
            let mut faults = Faults::new(hosts, RATES, 1, Time::START);
            for host in 1..=hosts {
                faults.set(Part::Host(host), !few && broken[host - 1]);
            }
            for (link, &state) in links.iter().enumerate().take(hosts + 1) {
                faults.set(Part::Link(link), state == 0);
            }
            for wiring in [Wiring::Ring, Wiring::Hub] {
                let said = faults.reach(wiring).iter().filter(|&&works| works).count();
                prop_assert_eq!(brought_up(&faults, hosts, wiring), said);
            }
        }

        #[test]
        fn j_61_a_ring_serves_all_hosts_or_none_and_a_working_hub_at_least_as_many(
            seed in 0_u64..1_000_000,
            hosts in 1_usize..=15,
        ) {
            let mut faults = Faults::new(hosts, RATES, seed, Time::START);
            let (mut last, mut count) = (Time::START, 0);
            while count < 400 {
                let now = faults.ready_at();
                prop_assert!(now >= last, "never early");
                last = now;
                let before = [Wiring::Hub, Wiring::Ports].map(|wiring| faults.reach(wiring));
                let (part, broken) = faults.advance(now).expect("it is due");
                prop_assert_eq!(faults.is_broken(part), broken);
                let [ring, hub, ports] =
                    [Wiring::Ring, Wiring::Hub, Wiring::Ports].map(|wiring| faults.reach(wiring));
                prop_assert!(ring.iter().all(|&works| works == ring[0]));
                let works = !faults.is_broken(Part::Hub);
                for host in 0..hosts {
                    prop_assert!(!ring[host] || !works || hub[host]);
                    prop_assert_eq!(hub[host], works && ports[host]);
                }
                // Any fault or repair affects only one port.
                let touched = |then: &[bool], now: &[bool]| {
                    then.iter().zip(now).filter(|(then, now)| then != now).count()
                };
                prop_assert!(touched(&before[1], &ports) <= 1);
                prop_assert!(part == Part::Hub || touched(&before[0], &hub) <= 1);
                count += 1;
            }
        }
    }

    #[test]
    fn the_availability_of_a_part_follows_from_its_rates() {
        let mut faults = Faults::new(2, RATES, 7, Time::START);
        let end = Time::START + Duration::from_secs(200_000);
        let (mut last, mut worked) = (Time::START, Duration::ZERO);
        while last < end {
            let next = faults.ready_at().min(end);
            if !faults.is_broken(Part::Host(1)) {
                worked += next - last;
            }
            last = next;
            while faults.advance(next).is_some() {}
        }
        let share = worked.as_secs_f64() / 200_000.0;
        assert!((share - RATES.availability()).abs() < 0.005, "{share}");
    }

    #[test]
    fn faults_of_a_part_do_not_depend_on_the_number_of_parts() {
        let first = |hosts| {
            let mut faults = Faults::new(hosts, RATES, 3, Time::START);
            loop {
                let now = faults.ready_at();
                if let Some((Part::Host(1), _)) = faults.advance(now) {
                    return now;
                }
            }
        };
        assert_eq!(first(1), first(15));
    }
}
