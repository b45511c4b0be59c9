//! Source routes: the channels of each path, and the bytes that a sender writes in front of its packet.
//!
//! Switches are arranged in levels from a root. A path by levels goes up any number of times and then down any
//! number of times, so channels cannot wait for each other in a cycle. A path by the fewest hops may go down and
//! up again, so they can.
//!
//! Source: Schroeder et al., Autonet, IEEE JSAC 9(8), 1991 (up*/down*); ANSI/VITA 26-1998 for the route bytes,
//! each a signed distance from the port of entry.

use super::topology::{Channel, End, Topology};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Failed components.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Cables, by number; a failed port counts as its cable.
    pub cables: BTreeSet<usize>,
    /// Switches.
    pub switches: BTreeSet<usize>,
}

impl Faults {
    fn works(&self, topology: &Topology, channel: Channel) -> bool {
        let up = |end: End| match end {
            End::Switch(switch, _) => !self.switches.contains(&switch),
            End::Host(_) => true,
        };
        !self.cables.contains(&(channel / 2))
            && up(topology.to(channel))
            && up(topology.from(channel))
    }
}

/// How paths are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Up, then down.
    UpDown,
    /// The fewest hops, regardless of deadlocks.
    Shortest,
}

/// A path: the channels from a host to another.
pub type Path = Arc<[Channel]>;

/// The paths of all pairs of hosts.
#[derive(Clone, Debug)]
pub struct Routes {
    hosts: usize,
    paths: Vec<Option<Path>>,
}

impl Routes {
    /// Computes all paths around the failed components.
    ///
    /// ```
    /// use lastmeter_lan::wormhole::routes::{Faults, Routing, Routes};
    /// use lastmeter_lan::wormhole::topology::Topology;
    /// let text = "switch s 8\nswitch t 8\ncable s t\nhost a s\nhost b t";
    /// let topology = Topology::parse(text)?;
    /// let routes = Routes::new(&topology, Routing::UpDown, &Faults::default());
    /// let path = routes.path(0, 1).expect("they are connected");
    /// assert_eq!(path.len(), 3); // to s, to t, to b
    /// # Ok::<(), lastmeter_lan::wormhole::topology::TopologyError>(())
    /// ```
    pub fn new(topology: &Topology, routing: Routing, faults: &Faults) -> Routes {
        let hosts = topology.hosts().len();
        let levels = levels(topology, faults);
        let mut paths = Vec::with_capacity(hosts * hosts);
        let mut by_switch: Vec<Option<Vec<Option<Vec<Channel>>>>> =
            vec![None; topology.switches().len()];
        for from in 0..hosts {
            let switch = topology.switch_of(from);
            let leaves = faults.works(topology, topology.out_of_host(from));
            let tree = by_switch[switch]
                .get_or_insert_with(|| search(topology, routing, faults, &levels, switch));
            for to in 0..hosts {
                let last = topology.to_host(to);
                let between = &tree[topology.switch_of(to)];
                let path = between
                    .as_ref()
                    .filter(|_| leaves && from != to && faults.works(topology, last));
                paths.push(path.map(|between| {
                    let first = std::iter::once(topology.out_of_host(from));
                    first.chain(between.iter().copied()).chain([last]).collect()
                }));
            }
        }
        Routes { hosts, paths }
    }

    /// Given paths, by sender and then by receiver.
    pub fn of(hosts: usize, paths: Vec<Option<Path>>) -> Routes {
        assert_eq!(paths.len(), hosts * hosts, "there is a path for each pair");
        Routes { hosts, paths }
    }

    /// The path from one host to another, if there is one.
    pub fn path(&self, from: usize, to: usize) -> Option<&Path> {
        self.paths[from * self.hosts + to].as_ref()
    }
    /// All paths.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().flatten()
    }
    /// Number of pairs of different hosts without a path.
    pub fn missing(&self) -> usize {
        self.paths.iter().filter(|path| path.is_none()).count() - self.hosts
    }
}

/// The distance of each switch from the root, which is the first working switch.
fn levels(topology: &Topology, faults: &Faults) -> Vec<usize> {
    let count = topology.switches().len();
    let mut levels = vec![usize::MAX; count];
    // Switches not connected to the first root have a root of their own.
    for root in (0..count).filter(|switch| !faults.switches.contains(switch)) {
        if levels[root] != usize::MAX {
            continue;
        }
        levels[root] = 0;
        let mut reached = VecDeque::from([root]);
        while let Some(switch) = reached.pop_front() {
            for (channel, next) in topology.out_of_switch(switch) {
                if levels[next] == usize::MAX && faults.works(topology, channel) {
                    levels[next] = levels[switch] + 1;
                    reached.push_back(next);
                }
            }
        }
    }
    levels
}

/// The channels from one switch to each other one: the shortest permitted path.
fn search(
    topology: &Topology,
    routing: Routing,
    faults: &Faults,
    levels: &[usize],
    from: usize,
) -> Vec<Option<Vec<Channel>>> {
    let count = topology.switches().len();
    let mut found: Vec<Option<Vec<Channel>>> = vec![None; count];
    // A state is a switch, and whether the path has already gone down.
    let mut before: Vec<Option<(usize, Channel)>> = vec![None; 2 * count];
    let mut seen = vec![false; 2 * count];
    seen[2 * from] = !faults.switches.contains(&from);
    let mut reached = VecDeque::from_iter(seen[2 * from].then_some(2 * from));
    while let Some(state) = reached.pop_front() {
        let (switch, down) = (state / 2, state % 2 == 1);
        if found[switch].is_none() {
            let (mut channels, mut at) = (Vec::new(), state);
            while let Some((earlier, channel)) = before[at] {
                channels.push(channel);
                at = earlier;
            }
            channels.reverse();
            found[switch] = Some(channels);
        }
        for (channel, next) in topology.out_of_switch(switch) {
            let up = (levels[next], next) < (levels[switch], switch);
            let next_down = match routing {
                Routing::UpDown if down && up => continue,
                Routing::UpDown => down || !up,
                Routing::Shortest => false,
            };
            let state_next = 2 * next + usize::from(next_down);
            if !seen[state_next] && faults.works(topology, channel) {
                seen[state_next] = true;
                before[state_next] = Some((state, channel));
                reached.push_back(state_next);
            }
        }
    }
    found
}

/// The route bytes of a path: at each switch the distance from the port of entry to the port of exit.
///
/// # Errors
/// If a switch has more ports than a byte can distinguish.
pub fn route_bytes(topology: &Topology, path: &[Channel]) -> Result<Vec<i8>, String> {
    let byte = |pair: &[Channel]| match (topology.to(pair[0]), topology.from(pair[1])) {
        (End::Switch(switch, entry), End::Switch(_, exit)) => {
            let ports = topology.switches()[switch].1 as i64;
            // The shorter way around, so that 64 ports fit into six bits.
            let delta = (exit as i64 - entry as i64).rem_euclid(ports);
            let delta = if delta > 31 { delta - ports } else { delta };
            i8::try_from(delta).map_err(|_| format!("{ports} ports are too many for a route byte"))
        }
        _ => Err("a path goes through switches".to_owned()),
    };
    path.windows(2).map(byte).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn paths_connect_their_hosts_and_route_bytes_follow_them(
            seed in 0u64..1000, switches in 1usize..9, more in 0usize..8,
        ) {
            let topology = Topology::random(seed, switches, more);
            for routing in [Routing::UpDown, Routing::Shortest] {
                let routes = Routes::new(&topology, routing, &Faults::default());
                prop_assert_eq!(routes.missing(), 0);
                for from in 0..switches {
                    for to in (0..switches).filter(|&to| to != from) {
                        let path = routes.path(from, to).unwrap();
                        for pair in path.windows(2) {
                            let (into, out) = (topology.to(pair[0]), topology.from(pair[1]));
                            let same = matches!((into, out),
                                (End::Switch(a, _), End::Switch(b, _)) if a == b);
                            prop_assert!(same);
                        }
                        prop_assert_eq!(topology.to(*path.last().unwrap()), End::Host(to));
                        // The bytes as switches read them.
                        let bytes = route_bytes(&topology, path).unwrap();
                        let mut packet = lastmeter_wire::myrinet::emit(&bytes, 4, b"x").unwrap();
                        for pair in path.windows(2) {
                            let End::Switch(switch, entry) = topology.to(pair[0]) else { panic!() };
                            let ports = topology.switches()[switch].1 as u8;
                            let exit =
                                lastmeter_wire::myrinet::hop(&mut packet, entry as u8, ports);
                            let right = End::Switch(switch, usize::from(exit.unwrap()));
                            prop_assert_eq!(topology.from(pair[1]), right);
                        }
                        prop_assert!(lastmeter_wire::myrinet::Packet::parse(&packet).is_ok());
                    }
                }
            }
        }
    }

    #[test]
    fn paths_avoid_faults_or_do_not_exist() {
        let text = "switch a 8\nswitch b 8\nswitch c 8\ncable a b\ncable b c\ncable c a\n\
                    host x a\nhost y b\nhost z c";
        let topology = Topology::parse(text).unwrap();
        let missing = |cables: &[usize], switches: &[usize]| {
            let faults = Faults {
                cables: cables.iter().copied().collect(),
                switches: switches.iter().copied().collect(),
            };
            Routes::new(&topology, Routing::UpDown, &faults).missing()
        };
        assert_eq!(missing(&[], &[]), 0);
        assert_eq!(missing(&[0], &[]), 0);
        assert_eq!(missing(&[0, 1], &[]), 4);
        assert_eq!(missing(&[], &[0]), 4);
        assert_eq!(missing(&[3], &[]), 4);
    }
}
